"""A schedule as its parts see it, and its row in the store. Made by verbs; read by clockwork and the screens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from penstock.errors import PlanError, Problem, nearest
from penstock.graph.model import Workflow
from penstock.service.schedules.policy import SchedulePolicy
from penstock.service.schedules.timing import Timing, told
from penstock.store.schedules import ScheduleRow

OPTION: Final = "schedule"
"""Among the options of a run: {name, due}, the schedule that made it, and for which time. Somebody who ran it by hand: {name}."""


@dataclass(frozen=True, slots=True)
class StoredSchedule:
    """When a workflow is run, with which parameters, and what if it is late or the last run is not over."""

    row: ScheduleRow
    timing: Timing
    policy: SchedulePolicy

    @classmethod
    def of(cls, row: ScheduleRow) -> StoredSchedule:
        data = row.document
        return cls(row, Timing.of(data["timing"]), SchedulePolicy(**data["policy"]))

    @property
    def due_param(self) -> str:
        """The parameter that is given the time that is due; empty: none."""
        return str(self.row.document["due_param"])

    def params_at(self, at: float) -> dict[str, Any]:
        found = dict(self.row.document["params"])
        if self.due_param:
            found[self.due_param] = due_value(self.row.document["due_kind"], at, self.timing.zone)
        return found

    def options_at(self, at: float | None) -> dict[str, Any]:
        made = {"name": self.row.name} | ({} if at is None else {"due": at})
        return {**self.row.document["options"], OPTION: made}


def due_value(kind: str, at: float, zone: str) -> Any:
    """A time as the value of a parameter, by its type: seconds since 1970 for a number, otherwise ISO 8601."""
    return {"int": int, "float": float}[kind](at) if kind in ("int", "float") else told(at, zone)


def due_kind(workflow: Workflow, name: str) -> str:
    """The type of the parameter that is given the time. Raises PlanError."""
    found = next((param.type for param in workflow.params if param.name == name), None)
    if found is None:
        known = [param.name for param in workflow.params]
        message = f"{workflow.name} has no parameter {name!r} for the time that is due"
        raise PlanError(Problem("P556", message, f"known: {', '.join(known) or 'none'}.{nearest(name, known)}"))
    return found.args[0].name if found.name == "optional" else found.name
