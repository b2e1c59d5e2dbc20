"""A wait, as data and in one line. Made by queue_waits, lock_waits and why; shown by the screens of why, show, run and watch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from penstock.service import wording
from penstock.service.amounts import spell


@dataclass(slots=True)
class Wait:
    """Something that is waited for now."""

    path: str
    """The step, stage or task that waits; "workflow" for the whole."""
    kind: str
    """queue · lock · slot · shared · retry · somebody · time · steps · engine · there (in the cluster that it is to run on)"""
    since: float | None = None
    reason: dict[str, Any] = field(default_factory=dict)
    """Of a queue: what `Hold.as_data` returns. Of a lock: {why, lock, limit, of, held, holders: [{run, task, since, user, gone}]}."""
    tasks: int = 1
    asks: dict[str, int] = field(default_factory=dict)
    """Of a queue: what all its tasks together ask for."""
    steps: tuple[str, ...] = ()
    """Paths of the steps that wait; none: the run as a whole."""
    priority: int = 0
    who: dict[str, str] = field(default_factory=dict)
    """Workload -> its user and priority, for those that the reason names."""
    own: bool = False
    """All that it waits for is held by its own tasks: a fan-out that runs in several rounds."""

    def as_data(self) -> dict[str, Any]:
        data: dict[str, Any] = {"path": self.path, "kind": self.kind, "since": self.since, "tasks": self.tasks}
        if self.kind == "queue":
            data["asks"] = {name: spell(amount, name) for name, amount in self.asks.items()}
            data["priority"] = self.priority
        return data | {"reason": wording.spelled(self.reason)}


def texts(waits: Iterable[Wait]) -> dict[str, str]:
    """Step -> its wait in one line; "" for the run as a whole. The line is empty if the step waits only for its own tasks."""
    found: dict[str, str] = {}
    for wait in waits:
        whole = wait.kind == "lock" and wait.path == "workflow"
        for step in (*wait.steps, "") if whole or not wait.steps else wait.steps:
            found.setdefault(step, "" if wait.own else wording.brief(wait.reason))
    return found
