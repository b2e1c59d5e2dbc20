"""The admission engine that the engine, the simulator and the conformance tests use: Kueue's scheduler, with its parts.

Callers report what has happened and when (`submit`, `finish`, `release`, `reclaim`…), and let it decide (`settle`). It decides
nothing on its own and has no clock: the same calls give the same results.

- `cache`: what is configured and who holds quota; decisions are made on its snapshot.
- `queues`: the pending Workloads of each ClusterQueue.
- `assigner` and `preemptor`: the flavors for a Workload, and the Workloads to preempt for it.
- `lifecycle`: quota reserved, admitted, evicted, queued again; with `timers` and `admission_checks`.
- `explainer`: why a Workload waits.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from penstock.admission.assignment import Assignment
from penstock.admission.cache import SchedulerCache
from penstock.admission.checks import AdmissionChecks, CheckFunction
from penstock.admission.cycle import CycleEntry, SchedulingCycle
from penstock.admission.decisions import Cycle, Decision, Preempted
from penstock.admission.explain import Explainer, Hold, Lines, Shortage
from penstock.admission.flavors import FlavorAssigner
from penstock.admission.give_back import kept_pods
from penstock.admission.lifecycle import PREEMPTED, Evicted, Lifecycle
from penstock.admission.model import CheckState, Config, LocalQueue, Object, PodSet, PriorityClass, Workload
from penstock.admission.preemption import Preemptor
from penstock.admission.queues import QueueManager
from penstock.admission.quota import QuotaTree
from penstock.admission.timers import Timers
from penstock.admission.workloads import WorkloadIndex


class Scheduler:
    def __init__(
        self,
        config: Config | None = None,
        check: CheckFunction | None = None,
        queues: Callable[[SchedulerCache, WorkloadIndex], QueueManager] = QueueManager,
    ) -> None:
        """`check` answers admission checks, unless the caller calls `set_check`."""
        self.config = config if config is not None else Config()
        self.cache = SchedulerCache(self.config)
        self.index = WorkloadIndex()
        self.queues = queues(self.cache, self.index)
        self.preemptor = Preemptor(self.cache.snapshot)
        self.assigner = FlavorAssigner(self.cache.snapshot, self.preemptor.simulate)
        self.admission_checks = AdmissionChecks(self.cache, check)
        self.lifecycle = Lifecycle(self.cache, self.queues, self.index, Timers(self.config), self.admission_checks)
        self.decisions: dict[str, Decision] = {}
        """The latest decision about each pending Workload."""
        self.explainer = Explainer(self.cache, self.queues, self.assigner, self.decisions)

        # What callers read, in the parts that own it.
        self.workloads = self.index.by_key
        self.members = self.index.by_local_queue
        self.touched = self.index.touched
        self.flavors = self.cache.flavors
        self.cluster_queues = self.cache.cluster_queues
        self.cohorts = self.cache.cohorts
        self.local_queues = self.cache.local_queues
        self.priority_classes = self.cache.priority_classes
        self.namespaces = self.cache.namespaces
        self.checks = self.cache.checks

    @property
    def tree(self) -> QuotaTree:
        return self.cache.snapshot.tree

    # -- configuration ------------------------------------------------------------------------------------------------

    def apply(self, objects: Iterable[Object], now: float) -> list[Evicted]:
        """Add or replace objects. Returns the Workloads that must stop because of it."""
        rebuild = False
        priority_classes: list[PriorityClass] = []
        local_queues: list[LocalQueue] = []
        for found in objects:
            if isinstance(found, LocalQueue):
                local_queues.append(found)
                continue
            rebuild = self.cache.put(found) or rebuild
            if isinstance(found, PriorityClass):
                priority_classes.append(found)
        if rebuild:
            self._rebuild(now)
        for local_queue in local_queues:
            self.queues.update_local_queue(local_queue.key, local_queue, now)
        for priority_class in priority_classes:
            for workload in list(self.workloads.values()):
                if workload.priority_class == priority_class.name:
                    self.lifecycle.set_priority(workload, priority_class.value, now)
        return self.lifecycle.apply_stop_policies(now)

    def delete(self, kind: type[Any], name: str, now: float) -> list[Evicted]:
        """`name` of a LocalQueue: "namespace/name". Returns the Workloads that must stop because of it."""
        if kind is not LocalQueue:
            if self.cache.delete(kind, name):
                self._rebuild(now)
        elif name in self.local_queues:
            self.queues.update_local_queue(name, None, now)
            if self.cache.ledger is not None:
                self.cache.ledger.forget(name)
        return self.lifecycle.apply_stop_policies(now)

    def _rebuild(self, now: float) -> None:
        self.cache.rebuild()
        self.queues.rebuild(now)

    # -- Workloads ----------------------------------------------------------------------------------------------------

    def submit(self, workload: Workload, now: float) -> None:
        """A Workload that is new here. One that has an admission holds its quota from the start."""
        if workload.key in self.workloads:
            self.remove(workload.key, now)
        if workload.finished:
            return
        self.index.add(workload)
        if workload.priority_class is not None and workload.priority_class in self.priority_classes:
            workload.priority = self.priority_classes[workload.priority_class].value
        if workload.admission is not None:
            self.lifecycle.restore(workload, now)
        else:
            self.queues.enqueue(workload, now)
            self.lifecycle.timers.watch(workload)

    def ungate(self, key: str, gate: str, now: float) -> None:
        self.lifecycle.ungate(self.workloads[key], gate, now)

    def set_priority(self, key: str, priority: int, now: float) -> None:
        self.lifecycle.set_priority(self.workloads[key], priority, now)

    def resize(self, key: str, podsets: tuple[PodSet, ...], now: float) -> None:
        """Replace the pod sets of a Workload that holds no quota. Pods that were reclaimable before do not count any more."""
        self.lifecycle.resize(self.workloads[key], podsets, now)

    def reclaim(self, key: str, counts: Mapping[str, int], now: float) -> None:
        """Pods, by pod set, that are no longer needed. While quota is held the numbers only increase."""
        self.lifecycle.reclaim(self.workloads[key], counts, now)

    def set_active(self, key: str, active: bool, now: float) -> list[Evicted]:
        return self.lifecycle.set_active(self.workloads[key], active, now)

    def set_check(
        self,
        key: str,
        name: str,
        state: CheckState,
        now: float,
        retry_after: float | None = None,
        message: str = "",
    ) -> list[Evicted]:
        """The answer of an admission check. `message` says why; `retry_after` is in seconds."""
        return self.lifecycle.set_check(self.workloads[key], name, state, now, retry_after, message)

    def ready(self, key: str, now: float, ready: bool = True) -> None:
        """Whether all its pods are ready."""
        self.lifecycle.set_ready(self.workloads[key], ready, now)

    def release(self, key: str, now: float) -> None:
        """It has stopped after an eviction: its quota is free, and it queues again if it may."""
        self.lifecycle.release(self.workloads[key], now)

    def kept_pods(self, key: str) -> int:
        """How many of its pods a Workload that is preempted may keep. 0: it must stop as a whole."""
        return kept_pods(self.cache.snapshot, self.workloads, self.decisions.values(), key)

    def spare(self, key: str, now: float) -> None:
        """It was preempted and has given back enough (`reclaim`): it keeps the rest."""
        self.lifecycle.spare(self.workloads[key], now)

    def look_again(self, key: str, now: float) -> None:
        """If the cause of its eviction is over, it queues again."""
        self.lifecycle.look_again(self.workloads[key], now)

    def finish(self, key: str, now: float) -> None:
        workload = self.workloads[key]
        self.remove(key, now)
        workload.finished = True

    def remove(self, key: str, now: float) -> None:
        workload = self.workloads[key]
        queue = self.cache.queue_of(workload)
        self.lifecycle.forget(workload, now)
        self.index.remove(workload)
        self.decisions.pop(key, None)
        self.queues.requeue_inadmissible(queue, now)

    # -- cycles -------------------------------------------------------------------------------------------------------

    def settle(self, now: float) -> list[Cycle]:
        """Run cycles until there is nothing left to decide now."""
        self.tick(now)
        found = []
        while self.queues.changed:
            roots, self.queues.changed = self.queues.changed, set()
            found.append(self.cycle(now, roots))
            self.lifecycle.ask_checks(found[-1].reserved, now)
        return found

    def tick(self, now: float) -> list[Evicted]:
        """What time alone causes: backoffs end, pods were not ready in time, maximum execution times are over."""
        return self.lifecycle.tick(now)

    def next_time(self, now: float) -> float | None:
        """When `tick` next has something to do."""
        return self.lifecycle.next_time(now)

    def cycle(self, now: float, roots: Collection[str] | None = None) -> Cycle:
        """One scheduling cycle, over the heads of all ClusterQueues or of those in the trees of some roots."""
        self.assigner.cycle += 1
        cycle = SchedulingCycle(self.cache, self.assigner, self.preemptor, now, bool(self.lifecycle.unready))
        cycle.run(self.queues.pop_heads(roots))
        preempted = self._preempt(cycle.processed, now)
        for entry in cycle.admitted:
            entry.workload.admission = entry.assignment.admission(entry.queue)
            self.lifecycle.reserve(entry.workload, now)
        decisions = self._requeue(cycle, now)
        preemptors = {found.by for found in preempted}
        for entry in cycle.processed:
            if entry.decision == "admit" or entry.workload.key in preemptors:
                self.queues.mark_changed(entry.queue)
        return Cycle(
            now,
            decisions,
            tuple(entry.workload.key for entry in cycle.admitted),
            tuple(entry.workload.key for entry in cycle.admitted if entry.workload.admitted_at is not None),
            preempted,
            cycle.skipped_preemptions,
        )

    def _preempt(self, entries: list[CycleEntry], now: float) -> tuple[Preempted, ...]:
        """Evict the preemption targets that are not being evicted already."""
        found = []
        for entry in entries:
            if entry.decision == "preempt":
                by = entry.workload.key
                for target, reason in entry.targets:
                    if target.eviction is None:
                        self.lifecycle.evict(target, PREEMPTED, now, reason, by)
                        found.append(Preempted(target.key, reason, by))
        return tuple(found)

    def _requeue(self, cycle: SchedulingCycle, now: float) -> tuple[Decision, ...]:
        """Give the heads back that were not admitted, and find the trees in which another cycle would decide more."""
        roots = self.cache.roots
        decisions = []
        inadmissible_in = set()
        for entry in (*cycle.processed, *cycle.inadmissible):
            decision = entry.record()
            decisions.append(decision)
            key = entry.workload.key
            if entry.decision != "admit":
                self.decisions[key] = decision
                if not self._requeue_head(entry, now):
                    inadmissible_in.add(roots[entry.queue])
                continue
            self.decisions.pop(key, None)
            queue = self.queues.pending[entry.queue]
            if queue.preemptor == key:
                queue.remove(key)
        for entry in cycle.processed:
            if entry.decision == "skip" and roots[entry.queue] in inadmissible_in:
                # The head that took its quota does not take part in the next cycle.
                self.queues.changed.add(roots[entry.queue])
        return tuple(decisions)

    def _requeue_head(self, entry: CycleEntry, now: float) -> bool:
        """Is it active again?"""
        queue, workload = self.queues.pending[entry.queue], entry.workload
        progress = workload.scan_progress
        flavors_left = False
        if progress is not None and progress.pending:
            # Where pod sets hinder each other a search may go round in a circle. Once is enough: others have to be tried.
            flavors_left = self.queues.is_new_scan(entry.queue, (workload.key, progress.tried))
        active = queue.requeue(entry.pending, entry.requeue_reason, now, flavors_left)
        head = queue.head()
        if (active and flavors_left) or (head is not None and head is not entry.pending):
            self.queues.changed.add(self.cache.roots[entry.queue])
        return active

    # -- questions ----------------------------------------------------------------------------------------------------

    def queue_of(self, workload: Workload) -> str:
        """The ClusterQueue that the Workload is admitted to, or waits for. Empty if there is none."""
        return self.cache.queue_of(workload)

    def inactive(self, queue: str) -> str:
        """Why a ClusterQueue admits nothing. Empty if it is active."""
        return self.cache.inactive(queue)

    def admits(self, queue: str) -> Callable[[str], bool] | None:
        """Which namespaces a ClusterQueue admits Workloads from. None: all of them."""
        return self.cache.admits(queue)

    def pending(self, queue: str) -> list[Workload]:
        """The Workloads that wait in a ClusterQueue, in order, active or inadmissible."""
        return self.queues.in_order(queue)

    def gated(self, queue: str) -> list[Workload]:
        """The gated Workloads of a ClusterQueue, the oldest first."""
        found = [
            workload
            for key in self.members
            if (local_queue := self.local_queues.get(key)) is not None and local_queue.cluster_queue == queue
            for workload in self.index.of(key)
            if workload.gates and workload.admission is None
        ]
        return sorted(found, key=lambda workload: (workload.created, workload.key))

    def heads(self) -> dict[str, Workload]:
        """The Workloads that would be tried next, by ClusterQueue."""
        return self.queues.heads()

    def waiting_beside(self, key: str) -> int:
        """How many Workloads wait that could use what this one holds."""
        return self.queues.waiting_beside(self.cache.queue_of(self.workloads[key]))

    def explain(self, key: str, now: float, lines: Lines | None = None) -> Hold:
        """Why it waits. `lines`: empty at first, and the same for all questions while nothing changes; many are answered faster then."""
        return self.explainer.explain(self.workloads[key], now, lines)

    def hold_kind(self, key: str, now: float) -> str:
        """The kind of `explain`, without looking at quota."""
        return self.explainer.hold_of(self.workloads[key], now).kind

    def fit_of(self, workload: Workload, queue: str) -> Assignment:
        """The flavors that it would get now, with the smallest counts that may be admitted."""
        return self.explainer.fit_of(workload, queue)

    def fits_ever(self, workload: Workload) -> tuple[Shortage, ...]:
        """What it requests that its queue cannot give even if nothing else holds quota. Empty if it can."""
        return self.explainer.fits_ever(workload)
