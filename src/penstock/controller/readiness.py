"""Whether the pods of an admitted Workload run, in Kueue's sense: what its condition PodsReady has to say. Called by `controller.core`; pure.

Kueue evicts what was admitted and is not ready in time, and what was ready, has lost pods, and does not recover in time. Not every pod that is missing is
late: a loop may have fewer slots than items, and a lock may keep steps apart. So a stage is ready as well when all the pods that came run and no more
come, and a loop when it gets on; and pods are lost when one that should run has waited for long.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.controller import names
from penstock.controller import workload as kueue
from penstock.controller.coverage import is_active
from penstock.controller.objects import Object, Write, annotations_of, condition, rows
from penstock.controller.sizing import created_at, ended_at, has_run
from penstock.controller.workload import OwnWorkload
from penstock.kueue import status

COMPLETE = 5.0
"""Seconds without a new pod after which no more are expected."""
LATE = 30.0
"""Seconds that a pod may take to start before it counts as lost. Kueue's own limits are minutes; each change is a write."""
LOST = "WaitForRecovery"


@dataclass(frozen=True, slots=True)
class Readiness:
    write: Write | None = None
    started: bool = False
    """Its first pods have run: what is over from now on is given back."""
    again: float | None = None
    """Seconds after which it may be otherwise, though nothing is seen."""


def readiness(
    there: OwnWorkload, pods: Sequence[tuple[str, Object]], finished: int, independent: bool, now: float
) -> Readiness:
    """`pods`: those of its stage, with the names of their tasks. `finished`: how many of its pods are over for good, whether there is still a pod or not.
    `independent`: its tasks need not run at the same time."""
    mine = [(task, pod) for task, pod in pods if _counts(pod, there)]
    waiting = [pod for _, pod in mine if is_active(pod) and not has_run(pod)]
    running = {task for task, pod in mine if is_active(pod) and has_run(pod)}
    ended = {task for task, pod in mine if not is_active(pod)} - {task for task, pod in mine if is_active(pod)}
    over = max(len(ended), finished)
    if condition(there.obj, "Requeued"):
        # Admitted again: Kueue has counted only what was left.
        since = status.seconds(condition(there.obj, "Admitted").get("lastTransitionTime"))
        over = len({task for task, pod in mine if not is_active(pod) and ended_at(pod) >= since} & ended)
    started = bool(running or over)
    whole = not there.vector and len(running) + over >= _admitted(there)
    late = [pod for pod in waiting if now - created_at(pod) >= LATE]
    if there.ready:
        lost = bool(late) and not whole and not there.vector
        soon = [LATE - now + created_at(pod) for pod in waiting if pod not in late]
        write = kueue.pods_lost(there, f"{len(late)} pods do not run", now) if lost else None
        return Readiness(write, started, min(soon, default=None) if not there.vector else None)
    told = condition(there.obj, "PodsReady")
    if told.get("reason") == LOST:
        since = status.seconds(told.get("lastTransitionTime"))
        back = whole or all(created_at(pod) > since for pod in waiting)
        return Readiness(kueue.pods_ready(there, now, recovered=True) if back else None, started)
    quiet = now - max((created_at(pod) for _, pod in pods), default=now)
    # What is over may have been so before it was admitted, this time: it does not make it ready alone.
    settled = bool(running) and not waiting and (there.vector or quiet >= COMPLETE)
    gets_on = independent and bool(running) and over > 0 and not late
    if whole or settled or gets_on:
        return Readiness(kueue.pods_ready(there, now), started)
    return Readiness(None, started, COMPLETE - quiet if running and not waiting else None)


def _counts(pod: Object, there: OwnWorkload) -> bool:
    return str(annotations_of(pod).get(names.POD_SET) or "").partition("/")[0] == there.name


def _admitted(there: OwnWorkload) -> int:
    return sum(int(one.get("count") or 0) for one in rows(there.obj, "status", "admission", "podSetAssignments"))
