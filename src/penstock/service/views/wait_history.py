"""The times that a run spent waiting in queues, from its events. Called by `why` and queue_waits."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from penstock.service import wording
from penstock.service.amounts import spell
from penstock.store.records import Event

_INTERRUPTIONS = ("run.started", "run.stopped", "run.finished")
KINDS = (
    "reservation.waiting",
    "reservation.admitted",
    "reservation.evicted",
    "reservation.withdrawn",
    *_INTERRUPTIONS,
)
"""The events to read."""
AT_ONCE = 0.01
"""Seconds. A shorter wait is none."""


@dataclass(slots=True)
class PastWait:
    """A period of waiting in a queue."""

    path: str
    workload: str
    start: float
    end: float | None
    """None: it still waits."""
    reasons: list[dict[str, Any]]
    outcome: str = ""
    """admitted; withdrawn: not needed any more; handed on: earlier tasks of the step left their quota to the rest; stopped: the engine
    stopped; "" while it waits."""
    tasks: int = 0
    queue: str = ""
    held: dict[str, dict[str, int]] = field(default_factory=dict)
    """What it was admitted with: flavor -> resource -> amount."""

    def as_data(self) -> dict[str, Any]:
        held = {
            flavor: {name: spell(amount, name) for name, amount in amounts.items()}
            for flavor, amounts in self.held.items()
        }
        return {
            "path": self.path,
            "workload": self.workload,
            "from": self.start,
            "to": self.end,
            "outcome": self.outcome,
            "tasks": self.tasks,
            "cluster_queue": self.queue,
            "held": held,
            "reasons": [wording.spelled(reason) for reason in self.reasons],
        }


def past_waits(events: Iterable[Event]) -> list[PastWait]:
    """In order of their start. `events`: of KINDS."""
    found: list[PastWait] = []
    current: dict[str, PastWait] = {}

    def ended(name: str, at: float, outcome: str) -> PastWait:
        wait = current.pop(name)
        wait.end, wait.outcome = at, outcome
        return wait

    for event in events:
        name, data = event.task, event.data
        if event.kind in _INTERRUPTIONS:
            for left in list(current):
                ended(left, event.at, "stopped")
        elif event.kind == "reservation.waiting":
            wait = current.get(name)
            if wait is None:
                wait = current[name] = PastWait(name, data.get("workload", ""), event.at, None, [])
                found.append(wait)
            wait.reasons.append({"at": event.at, **data.get("reason", {})})
        elif event.kind == "reservation.withdrawn" and name in current:
            ended(name, event.at, "withdrawn")
        elif event.kind == "reservation.admitted":
            before = next((one.reasons[-1:] for one in reversed(found) if one.path == name), [])
            waited = float(data.get("waited", 0.0))
            if name not in current:
                if not before or waited < AT_ONCE:
                    continue
                current[name] = PastWait(name, data.get("workload", ""), event.at - waited, None, list(before))
                found.append(current[name])
            wait = ended(name, event.at, "admitted")
            wait.tasks, wait.queue = int(data.get("tasks", 0)), str(data.get("queue", ""))
            wait.held = dict(data.get("held", {}))
    return found
