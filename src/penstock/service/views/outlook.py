"""What the queues would decide about the reservations of a plan now: admitted, waiting, or never. Called by `penstock plan`.

Nothing is written: each kind of request is evaluated once, on a copy of the queues as they are.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.admission.model import Workload
from penstock.admission.scheduler import Scheduler
from penstock.engine.cluster_quota import queue_named
from penstock.engine.quota_replica import QuotaReplica
from penstock.errors import PlanError
from penstock.service import wording
from penstock.service.feasibility import (
    PlannedWorkload,
    PlanQueues,
    emptied,
    namespace_refusal,
    planned_workloads,
    unknown_priorities,
)
from penstock.service.machine import machine
from penstock.service.queues import FILE, Row, is_applied, no_such_queue, read_file, rows_of
from penstock.service.sizing import on_this_machine
from penstock.store.records import WorkloadRecord
from penstock.store.sql import Store

if TYPE_CHECKING:
    from penstock.plan.make import Plan


@dataclass(frozen=True, slots=True)
class Outlook:
    verdict: str
    """fits now · fits in part · waits · never fits · no queue"""
    queue: str = ""
    """The ClusterQueue."""
    tasks: int = 0
    """Of an elastic reservation: how many of its tasks would start now."""
    of: int = 0
    behind: int = 0
    """How many Workloads would be before it in the queue."""
    stopped: tuple[str, ...] = ()
    """Workloads that would be preempted for it."""
    reason: Mapping[str, Any] = field(default_factory=dict)
    """What `Hold.as_data` returns."""
    detail: str = ""

    def text(self) -> str:
        if self.verdict == "no queue":
            return self.detail
        if self.verdict in ("fits now", "fits in part"):
            some = f"{self.tasks:,} of {self.of:,} fit now" if self.verdict == "fits in part" else "fits now"
            return some + (f", preempting {wording.names(self.stopped, 2)}" if self.stopped else "")
        if self.verdict == "never fits" and self.detail:
            return f"never fits: {self.detail}"
        if self.verdict == "never fits":
            return f"never fits: {wording.unsuitable(self.reason.get('short', ())) or wording.too_much(self.reason)}"
        behind = f" behind {self.behind:,}" if self.behind else ""
        return f"waits{behind}: {wording.cause(self.reason)}"

    def as_data(self) -> dict[str, Any]:
        data: dict[str, Any] = {"verdict": self.verdict, "queue": self.queue or None}
        if self.of:
            data |= {"tasks": self.tasks, "of": self.of}
        if self.verdict == "waits":
            data["behind"] = self.behind
        if self.stopped:
            data["stopped"] = list(self.stopped)
        if self.detail:
            data["detail"] = self.detail
        if self.reason:
            data["reason"] = wording.spelled(self.reason)
        return data


def outlook(plan: Plan, store: Store | None, queues: str | Path | None = None) -> dict[str, Outlook]:
    """By reservation. `store`: None if there is none yet. `queues`: a file that a run would apply first; without it, penstock.yaml of the
    current folder. Raises UserError if the file is wrong."""
    if not plan.reservations:
        return {}
    now = time.time()
    replica = overlaid(QueueOverlay(store, queues), now)
    _refuse_unknown(replica, plan)
    replica.scheduler.settle(now)
    return _outlooks(replica, plan, now)


def cluster_outlook(plan: Plan, queues: Scheduler, namespace: str, now: float) -> dict[str, Outlook]:
    """The same of the queues of a cluster, for runs in a namespace of it. `queues`: as Kueue has them now, with its Workloads. Raises UserError."""
    there = ClusterPlanQueues(queues, namespace)
    if not there.local_queues:
        nothing = Outlook("no queue", detail=f"the namespace {namespace} has no queue: the cluster's scheduler decides")
        return {one.name: nothing for one in plan.reservations}
    _refuse_unknown(there, plan)
    return _outlooks(there, plan, now)


def outlook_of_scheduler(plan: Plan, scheduler: str) -> dict[str, Outlook]:
    """The same where a scheduler of the cluster takes the pods by what is written on them, and only it knows what fits. `scheduler`: its name."""
    stages = {stage.name: stage for stage in plan.stages}
    found = {}
    for one in plan.reservations:
        named = {stages[name].queue or "" for name in one.stages}
        where = f"waits in the queue {' or '.join(sorted(named))} of {scheduler}" if all(named) else "has no queue"
        found[one.name] = Outlook(
            "no queue", detail=f"{where}: the cluster's scheduler decides, and nothing is held here"
        )
    return found


def _refuse_unknown(replica: PlanQueues, plan: Plan) -> None:
    problems = unknown_priorities(replica, plan)
    if problems:
        raise PlanError(problems)


def _outlooks(replica: PlanQueues, plan: Plan, now: float) -> dict[str, Outlook]:
    empty = emptied(replica)
    seen: dict[Any, Outlook] = {}
    elsewhere = Outlook("no queue", detail="runs on the cluster, and there are no queues here")
    found = {} if replica.configured else {one.name: elsewhere for one in plan.reservations}
    for one in planned_workloads(replica, plan if replica.configured else on_this_machine(plan)):
        if one.shape not in seen:
            seen[one.shape] = _outlook(replica, empty, one, now)
        found[one.name] = seen[one.shape]
    return found


class ClusterPlanQueues:
    """The queues of a cluster, for runs in one namespace of it."""

    configured = True

    def __init__(self, scheduler: Scheduler, namespace: str) -> None:
        self.scheduler = scheduler
        self.namespace = namespace
        here = [one for one in scheduler.local_queues.values() if one.namespace == namespace]
        self.local_queues = {one.name: one.cluster_queue for one in here}

    def queue_for(self, name: str | None) -> tuple[str, str]:
        return self.namespace, queue_named(name, self.local_queues, self.namespace) or name or "default"

    def priority_of(self, named: str | int | None) -> tuple[int, str | None]:
        if named is None or isinstance(named, int):
            return named or 0, None
        found = self.scheduler.priority_classes.get(named)
        return (0, None) if found is None else (found.value, named)


class QueueOverlay:
    """The queues of a store together with those of a file that has not been applied. `store`: None if there is none yet. `queues`: the
    file; without it, penstock.yaml of the current folder."""

    def __init__(self, store: Store | None, queues: str | Path | None = None) -> None:
        self.store = store
        self.capacity = store.queues.capacity if store is not None else None
        """Of the machine of the store, if that is another one: then no file is applied before a run."""
        path = Path(queues) if queues is not None else Path.cwd() / FILE
        self.rows: list[Row] = []
        if queues is not None or (path.is_file() and self.capacity is None):
            text = read_file(path)
            if store is None or self.capacity is not None or not is_applied(store, path, text):
                self.rows, _ = rows_of(store, (text, str(path)))

    def last_decision(self) -> int:
        return 0 if self.store is None else self.store.queues.last_decision()

    def queue_objects(self, after: int = -1) -> list[tuple[str, str, int, str | None]]:
        found = {} if self.store is None else {(row[0], row[1]): row for row in self.store.queues.queue_objects(after)}
        for kind, name, text in self.rows:
            found[kind, name] = (kind, name, 0, text)
        return list(found.values())

    def workloads(self, after: int | None = None) -> list[WorkloadRecord]:
        return [] if self.store is None else [one for one in self.store.queues.workloads(after) if one.state != "gated"]


def overlaid(overlay: QueueOverlay, now: float | None = None) -> QuotaReplica:
    replica = QuotaReplica(overlay, "", machine(overlay.capacity() if overlay.capacity is not None else None))
    replica.load(time.time() if now is None else now)
    return replica


def _outlook(replica: PlanQueues, empty: Scheduler, one: PlannedWorkload, now: float) -> Outlook:
    queues, workload = replica.scheduler, one.workload
    queue = queues.queue_of(workload)
    if queue not in queues.cluster_queues:
        return Outlook("no queue", detail=no_such_queue(replica.scheduler, one.queue).message)
    refusal = namespace_refusal(replica, workload)
    if refusal:
        return Outlook("never fits", queue, detail=refusal)
    never = empty.fits_ever(workload)
    if never:
        short = [shortage.as_data() for shortage in never]
        return Outlook("never fits", queue, reason={"why": "never", "cluster_queue": queue, "short": short})
    closed = queues.inactive(queue) or queues.local_queues[f"{workload.namespace}/{workload.queue}"].stop != "None"
    if closed:
        return Outlook("waits", queue, reason=_reason(queues, workload, now))
    behind = _behind(queues, workload, queue, now)
    strict = queues.cluster_queues[queue].strategy == "StrictFIFO"
    if behind and strict:
        return Outlook("waits", queue, behind=behind, reason=_reason(queues, workload, now))
    fit = queues.fit_of(workload, queue)
    if fit.kind == "Fit":
        tasks, of = _part(queues, workload, queue, one.replicas)
        verdict = "fits now" if tasks == of else "fits in part"
        return Outlook(verdict, queue, tasks if of > 1 else 0, of if of > 1 else 0)
    if fit.kind == "Preempt":
        victims = queues.preemptor.targets(workload, queue, fit, now)
        if victims:
            return Outlook("fits now", queue, stopped=tuple(sorted(target.workload.key for target in victims)))
    return Outlook("waits", queue, behind=behind, reason=_reason(queues, workload, now))


def _behind(queues: Scheduler, workload: Workload, queue: str, now: float) -> int:
    """How many Workloads would be before it in the queue."""
    if not queues.pending(queue):
        return 0
    queues.submit(workload, now)
    pending = queues.pending(queue)
    place = next((number for number, other in enumerate(pending) if other is workload), len(pending))
    queues.remove(workload.key, now)
    return place


def _reason(queues: Scheduler, workload: Workload, now: float) -> dict[str, Any]:
    queues.submit(workload, now)
    hold = queues.explain(workload.key, now)
    queues.remove(workload.key, now)
    return hold.as_data()


def _part(queues: Scheduler, workload: Workload, queue: str, replicas: int) -> tuple[int, int]:
    """Of an elastic fan-out: how many tasks fit now, of how many."""
    podset = workload.podsets[0] if len(workload.podsets) == 1 else None
    if podset is None or podset.min_count is None:
        return 1, 1
    of = podset.count // replicas
    low, high = 1, of
    while low < high:
        middle = (low + high + 1) // 2
        if _fits(queues, workload, queue, [middle * replicas]):
            low = middle
        else:
            high = middle - 1
    return low, of


def _fits(queues: Scheduler, workload: Workload, queue: str, counts: Sequence[int]) -> bool:
    return queues.assigner.assign_anew(workload, queue, counts).kind == "Fit"
