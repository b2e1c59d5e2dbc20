"""Workflows that were ever run, by name: how often, the last runs, how long they take and how they end. Called by the server."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from typing import Any, Final

from penstock.errors import NotFound, Problem, nearest
from penstock.graph.codec import encode_value
from penstock.graph.model import MISSING, Workflow
from penstock.service.run_records import seconds_of, state_of, workflow_of
from penstock.service.views.listing import run_data
from penstock.store.records import FINAL, RunRecord
from penstock.store.sql import Store

LAST: Final = 30
"""Runs of the trend."""


@dataclass(slots=True)
class FlowView:
    name: str
    many: int
    last: list[tuple[RunRecord, str]]
    """The newest runs with their states as users see them, the newest first."""

    @property
    def run(self) -> RunRecord:
        return self.last[0][0]

    @property
    def state(self) -> str:
        return self.last[0][1]

    @property
    def usual(self) -> float | None:
        """Seconds of its successful runs: the median of the last ones."""
        times = [seconds_of(run) or 0.0 for run, state in self.last if state == "succeeded"]
        return statistics.median(times) if times else None

    @property
    def good(self) -> float | None:
        """How many of the last ones that are over have succeeded."""
        over = [state for run, state in self.last if run.state in FINAL]
        return sum(state == "succeeded" for state in over) / len(over) if over else None

    def as_data(self) -> dict[str, Any]:
        return {
            "flow": self.name,
            "runs": self.many,
            "state": self.state,
            "usual": self.usual,
            "succeeded": self.good,
            "last": [{**run_data(run, state), "seconds": seconds_of(run, time.time())} for run, state in self.last],
        }


def page_of_flows(store: Store, limit: int, after: str = "", find: str = "") -> tuple[list[FlowView], str | None]:
    """By name; and where the next page begins, if there is one."""
    rows = store.runs.flows(limit + 1, after, find)
    found = [_view(store, name, many) for name, many, _ in rows[:limit]]
    return [one for one in found if one.last], rows[limit - 1][0] if len(rows) > limit else None


def flow(store: Store, name: str) -> tuple[FlowView, Workflow]:
    """With its definition, as the newest run has it. Raises NotFound."""
    view = _view(store, name, store.runs.many_of(name))
    if not view.last:
        known = [one for one, *_ in store.runs.flows(1000)]
        raise NotFound(
            Problem("P505", f"no workflow {name[:80]!r} was ever run", f"penstock ls shows runs.{nearest(name, known)}")
        )
    return view, workflow_of(store, view.run)


def _view(store: Store, name: str, many: int) -> FlowView:
    runs = store.runs.newest(limit=LAST, workflow=name)
    return FlowView(name, many, [(run, state_of(store, run)) for run in runs])


def definition(workflow: Workflow) -> dict[str, Any]:
    """Parameters and steps, for people."""
    params = [
        {
            "name": param.name,
            "type": str(param.type),
            "default": None if param.default is MISSING else encode_value(param.default),
            "needed": param.default is MISSING,
        }
        for param in workflow.params
    ]
    return {
        "queue": workflow.queue,
        "unit": None if workflow.unit is None else str(workflow.unit),
        "params": params,
        "doc": workflow.doc,
    }
