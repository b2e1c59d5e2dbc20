"""The lifecycle of a Workload: quota reserved, admitted, evicted, released, queued again. The scheduler tells it what has happened;
for the heads that a cycle admits and the targets that it preempts, too.

An eviction marks the Workload. Its quota counts as used until the caller reports that it has stopped (`release`). Only a Workload
that was deactivated frees its quota at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from penstock.admission.cache import SchedulerCache
from penstock.admission.checks import AdmissionChecks
from penstock.admission.model import CheckState, Eviction, PodSet, Stop, Workload
from penstock.admission.queues import QueueManager
from penstock.admission.timers import Timers, backoff
from penstock.admission.workloads import WorkloadIndex

PREEMPTED: Final = "Preempted"
NOT_READY: Final = "PodsReadyTimeout"
CHECK: Final = "AdmissionCheck"
QUEUE_STOPPED: Final = "ClusterQueueStopped"
LOCAL_QUEUE_STOPPED: Final = "LocalQueueStopped"
DEACTIVATED: Final = "Deactivated"

_NEVER_HELD_BACK = frozenset({PREEMPTED, "NodeFailures"})


class Evicted(NamedTuple):
    """A Workload that must stop."""

    key: str
    eviction: Eviction


def holds(workload: Workload) -> bool:
    """Does its admission count as used quota?"""
    leaving = workload.eviction is not None and workload.eviction.reason.startswith(DEACTIVATED)
    return workload.admission is not None and workload.active and not leaving


class Lifecycle:
    def __init__(
        self,
        cache: SchedulerCache,
        queues: QueueManager,
        workloads: WorkloadIndex,
        timers: Timers,
        checks: AdmissionChecks,
    ) -> None:
        self.cache = cache
        self.config = cache.config
        self.queues = queues
        self.workloads = workloads
        self.timers = timers
        self.checks = checks
        self.unready: set[str] = set()
        """Keys of Workloads that hold quota and whose pods are not ready."""

    # -- quota --------------------------------------------------------------------------------------------------------

    def restore(self, workload: Workload, now: float) -> None:
        """It has had its quota since before the scheduler knew it."""
        if holds(workload):
            workload.held = self.cache.usage_of(workload)
            self.cache.snapshot.hold(workload)
            if workload.ready_at is None:
                self.unready.add(workload.key)
            if workload.admitted_at is None:
                self.checks.undecided[workload.key] = None
            else:
                self._count(workload, 1, now)
        else:
            workload.held = {}
        if workload.ready_at is None and workload.was_ready:
            self.timers.not_ready_since.setdefault(workload.key, now)
        self.timers.watch(workload)

    def reserve(self, workload: Workload, now: float) -> None:
        """`workload.admission` is set, and counts from now on."""
        self.workloads.touched.add(workload.key)
        workload.held = self.cache.usage_of(workload)
        workload.scan_progress = None
        workload.reserved_at, workload.last_eviction = now, None
        self.cache.snapshot.hold(workload)
        self.unready.add(workload.key)
        if self.cache.ledger is not None and self.cache.cluster_queues[self.cache.queue_of(workload)].usage_based:
            self.cache.ledger.reserved(workload.local_queue, workload.key, self._requested(workload), now)
        if self.checks.all_ready(workload):
            self._admit(workload, now)

    def _requested(self, workload: Workload) -> dict[str, int]:
        """By resource: what all its pods request, even if it was admitted in part."""
        queue = self.cache.cluster_queues[self.cache.queue_of(workload)]
        covered = {resource for group in queue.groups for resource in group.resources}
        found: dict[str, int] = {}
        for podset in workload.podsets:
            pods = max(0, podset.count - workload.reclaimable.get(podset.name, 0))
            for resource, amount in podset.requests.items():
                if resource in covered or not self.config.ignore_undeclared:
                    found[resource] = found.get(resource, 0) + amount * pods
        return found

    def _admit(self, workload: Workload, now: float) -> None:
        workload.admitted_at = now
        self.workloads.touched.add(workload.key)
        if self.cache.ledger is not None:
            self._count(workload, 1, now)
            if self.cache.cluster_queues[self.cache.queue_of(workload)].usage_based:
                self.cache.ledger.admitted(workload.local_queue, workload.key, now)
        self.timers.watch(workload)

    def _count(self, workload: Workload, sign: int, now: float) -> None:
        """Count what an admitted Workload holds as used by its LocalQueue, or (-1) no longer."""
        if self.cache.ledger is not None:
            self.cache.ledger.changed(workload.local_queue, workload.held, sign, now)

    def free(self, workload: Workload, now: float) -> None:
        """Its quota is free."""
        if not self.cache.snapshot.holds(workload):
            return
        self.workloads.touched.add(workload.key)
        self.cache.snapshot.drop(workload)
        self.unready.discard(workload.key)
        if workload.admitted_at is not None:
            workload.run_seconds += max(0, int(now - workload.admitted_at))
            self._count(workload, -1, now)
        workload.held = {}

    def unreserve(self, workload: Workload, now: float) -> None:
        """It had quota but was not admitted yet: it loses the quota and queues again."""
        queue = self.cache.queue_of(workload)
        self.free(workload, now)
        workload.admission, workload.reserved_at, workload.scan_progress = None, None, None
        self.queues.requeue_inadmissible(queue, now)
        self.queues.enqueue(workload, now)

    def forget(self, workload: Workload, now: float) -> None:
        """It is finished or deleted."""
        self.free(workload, now)
        self.queues.dequeue(workload)
        if self.cache.ledger is not None:
            self.cache.ledger.given_up(workload.local_queue, workload.key)
        self.checks.undecided.pop(workload.key, None)
        self.timers.forget(workload.key)

    # -- changes ------------------------------------------------------------------------------------------------------

    def ungate(self, workload: Workload, gate: str, now: float) -> None:
        if gate in workload.gates:
            self.workloads.touched.add(workload.key)
            workload.gates -= {gate}
            if not workload.gates:
                self.queues.enqueue(workload, now)

    def resize(self, workload: Workload, podsets: tuple[PodSet, ...], now: float) -> None:
        """The new pod sets are what is needed now, so no pod of them is reclaimable yet."""
        if workload.admission is not None:
            raise ValueError(f"{workload.key} holds quota for its pods as they are")
        self.workloads.touched.add(workload.key)
        workload.podsets, workload.reclaimable, workload.scan_progress = podsets, {}, None
        self.queues.update(workload, now)

    def reclaim(self, workload: Workload, counts: Mapping[str, int], now: float) -> None:
        """While quota is held, the number of reclaimable pods only increases."""
        sizes = {podset.name: podset.count for podset in workload.podsets}
        found = dict(workload.reclaimable)
        for name, count in counts.items():
            least = found.get(name, 0) if workload.admission is not None else 0
            found[name] = max(least, min(count, sizes.get(name, 0)))
        if found == workload.reclaimable:
            return
        self.workloads.touched.add(workload.key)
        workload.reclaimable = found
        if workload.admission is None:
            self.queues.update(workload, now)
        elif self.cache.snapshot.holds(workload):
            self._shrink(workload, now)

    def _shrink(self, workload: Workload, now: float) -> None:
        admitted = workload.admitted_at is not None
        if admitted:
            self._count(workload, -1, now)
        self.cache.snapshot.drop(workload)
        workload.held = self.cache.usage_of(workload)
        self.cache.snapshot.hold(workload)
        if admitted:
            self._count(workload, 1, now)
        self.queues.update(workload, now)

    def set_priority(self, workload: Workload, priority: int, now: float) -> None:
        if workload.priority == priority:
            return
        self.workloads.touched.add(workload.key)
        workload.priority = priority
        if workload.admission is None or workload.priority_class is not None:
            self.queues.update(workload, now)
        else:
            # As in Kueue: inadmissible Workloads are tried again only if the priority comes from a class.
            self.queues.mark_changed(workload.admission.cluster_queue)

    def set_ready(self, workload: Workload, ready: bool, now: float) -> None:
        """Its pods are all ready, or no longer."""
        if workload.admission is None or (workload.ready_at is not None) == ready:
            return
        self.workloads.touched.add(workload.key)
        if ready:
            workload.ready_at, workload.was_ready = now, True
            self.unready.discard(workload.key)
            self.timers.forget(workload.key)
            if self.config.block_admission:
                self.queues.changed.update(self.cache.trees)
        else:
            workload.ready_at = None
            self.unready.add(workload.key)
            self.timers.not_ready_since[workload.key] = now
            self.timers.watch(workload)

    # -- evictions ----------------------------------------------------------------------------------------------------

    def evict(self, workload: Workload, reason: str, now: float, preempted: str = "", by: str = "") -> Evicted:
        """It must stop."""
        self.workloads.touched.add(workload.key)
        workload.eviction = Eviction(reason, now, preempted, by)
        self.checks.reset(workload)
        return Evicted(workload.key, workload.eviction)

    def release(self, workload: Workload, now: float) -> None:
        """It has stopped, or was never started."""
        queue = self.cache.queue_of(workload)
        self.free(workload, now)
        self.workloads.touched.add(workload.key)
        eviction = workload.eviction
        workload.admission, workload.reserved_at, workload.admitted_at = None, None, None
        workload.ready_at, workload.was_ready, workload.scan_progress = None, False, None
        self.timers.forget(workload.key)
        if eviction is not None:
            workload.eviction, workload.last_eviction = None, eviction
            workload.held_back = eviction.reason not in _NEVER_HELD_BACK
            self._end_hold_back(workload, now)
        self.queues.requeue_inadmissible(queue, now)
        self.queues.enqueue(workload, now)
        self.timers.watch(workload)

    def spare(self, workload: Workload, now: float) -> None:
        """It was preempted, has given back enough, and keeps the rest."""
        assert workload.admission is not None
        self.workloads.touched.add(workload.key)
        workload.eviction = None
        self.queues.requeue_inadmissible(workload.admission.cluster_queue, now)
        self.apply_stop_policies(now)  # while it was being evicted, its queue may have been stopped

    def look_again(self, workload: Workload, now: float) -> None:
        """If the cause of its eviction is over, it queues again."""
        if workload.admission is None and workload.held_back and self._end_hold_back(workload, now):
            self.queues.enqueue(workload, now)

    def _end_hold_back(self, workload: Workload, now: float) -> bool:
        """If the cause of its eviction is over, it may queue again."""
        if not workload.held_back or workload.last_eviction is None:
            return False
        reason = workload.last_eviction.reason
        local_queue = self.cache.local_queues.get(workload.local_queue)
        if reason in (NOT_READY, CHECK):
            over = workload.requeue_at is None or workload.requeue_at <= now
            if over:
                workload.requeue_at = None
        elif reason == QUEUE_STOPPED:
            queue = self.cache.cluster_queues.get(local_queue.cluster_queue) if local_queue is not None else None
            over = queue is not None and queue.stop is Stop.NONE
        elif reason == LOCAL_QUEUE_STOPPED:
            over = local_queue is not None and local_queue.stop is Stop.NONE
        elif reason.startswith(DEACTIVATED):
            over = workload.active
        else:
            over = False
        if over:
            self.workloads.touched.add(workload.key)
            workload.held_back = False
        return over

    def set_active(self, workload: Workload, active: bool, now: float) -> list[Evicted]:
        if workload.active == active:
            return []
        if not active:
            return self._deactivate(workload, DEACTIVATED, now)
        self.workloads.touched.add(workload.key)
        workload.active = True
        self._end_hold_back(workload, now)
        self.queues.enqueue(workload, now)
        return []

    def _deactivate(self, workload: Workload, reason: str, now: float) -> list[Evicted]:
        self.workloads.touched.add(workload.key)
        workload.active = False
        workload.requeue_at, workload.requeue_count = None, 0
        queue = self.cache.queue_of(workload)
        found = []
        if workload.admission is not None:
            found.append(self.evict(workload, reason, now))
            self.free(workload, now)
        else:
            self.queues.dequeue(workload)
            if self.cache.ledger is not None:
                self.cache.ledger.given_up(workload.local_queue, workload.key)
            if workload.last_eviction is None:
                workload.last_eviction = Eviction(reason, now)
        self.queues.requeue_inadmissible(queue, now)
        return found

    def apply_stop_policies(self, now: float) -> list[Evicted]:
        """After a change of configuration: evict the Workloads of queues that are drained, and let those queue again whose queue
        is no longer stopped."""
        found = []
        for workload in list(self.workloads.by_key.values()):
            if workload.admission is None:
                self.look_again(workload, now)
                continue
            if workload.eviction is not None:
                continue
            local_queue = self.cache.local_queues.get(workload.local_queue)
            queue = self.cache.cluster_queues.get(workload.admission.cluster_queue)
            if workload.admitted_at is None:
                if any(one is None or one.stop is not Stop.NONE for one in (local_queue, queue)):
                    self.unreserve(workload, now)
            elif local_queue is not None and local_queue.stop is Stop.DRAIN:
                found.append(self.evict(workload, LOCAL_QUEUE_STOPPED, now))
            elif queue is not None and queue.stop is Stop.DRAIN:
                found.append(self.evict(workload, QUEUE_STOPPED, now))
        return found

    # -- checks -------------------------------------------------------------------------------------------------------

    def set_check(
        self, workload: Workload, name: str, state: CheckState, now: float, retry_after: float | None, message: str
    ) -> list[Evicted]:
        self.workloads.touched.add(workload.key)
        self.checks.record(workload, name, state, message)
        if state is CheckState.RETRY and retry_after is not None:
            workload.requeue_at = max(workload.requeue_at or 0.0, now + retry_after)
        if workload.admission is None:
            self.queues.mark_changed(self.cache.queue_of(workload))
            return []
        return self._follow_checks(workload, now)

    def ask_checks(self, keys: Iterable[str], now: float) -> list[Evicted]:
        """Of Workloads that have quota and are not admitted yet."""
        found = []
        for key in keys:
            workload = self.workloads.by_key.get(key)
            if workload is not None and workload.admission is not None and workload.admitted_at is None:
                if self.checks.ask(workload):
                    self.workloads.touched.add(key)
                found += self._follow_checks(workload, now)
        return found

    def _follow_checks(self, workload: Workload, now: float) -> list[Evicted]:
        """Do what the states of its checks require."""
        if workload.eviction is not None:
            return []
        states = workload.checks.values()
        if CheckState.REJECTED in states:
            return self._deactivate(workload, f"{DEACTIVATED}DueTo{CHECK}", now)
        if CheckState.RETRY in states:
            return [self.evict(workload, CHECK, now)]
        if workload.admitted_at is None and self.checks.all_ready(workload):
            self._admit(workload, now)
        return []

    # -- time ---------------------------------------------------------------------------------------------------------

    def tick(self, now: float) -> list[Evicted]:
        found: list[Evicted] = []
        for key in self.timers.pop_due(now):
            workload = self.workloads.by_key.get(key)
            if workload is not None and workload.eviction is None:
                found += self._time_out(workload, now)
        if self.checks.undecided:
            found += self.ask_checks(self.checks.pop_undecided(), now)
        if self.cache.ledger is not None and self.cache.ledger.sample_due(now):
            self.queues.usage_sampled()
        return found

    def _time_out(self, workload: Workload, now: float) -> list[Evicted]:
        if workload.admission is None:
            if workload.requeue_at is not None and workload.requeue_at <= now:
                workload.requeue_at = None
                self.workloads.touched.add(workload.key)
                self._end_hold_back(workload, now)
                self.queues.enqueue(workload, now)
            return []
        end, deadline = self.timers.end_of(workload), self.timers.ready_deadline(workload)
        if end is not None and end <= now:
            found = self._deactivate(workload, f"{DEACTIVATED}DueToMaximumExecutionTimeExceeded", now)
            workload.run_seconds = 0.0
            return found
        if deadline is not None and deadline <= now:
            return self._not_ready_in_time(workload, now)
        return []

    def _not_ready_in_time(self, workload: Workload, now: float) -> list[Evicted]:
        config = self.config
        if config.backoff_limit is not None and workload.requeue_count + 1 > config.backoff_limit:
            return self._deactivate(workload, f"{DEACTIVATED}DueToRequeuingLimitExceeded", now)
        workload.requeue_count += 1
        wait = backoff(workload.requeue_count, config.backoff_base, config.backoff_max)
        workload.requeue_at = max(workload.requeue_at or 0.0, now + wait)
        return [self.evict(workload, NOT_READY, now)]

    def next_time(self, now: float) -> float | None:
        """When `tick` next has something to do."""
        times = [self.timers.next_time(self.workloads.by_key)]
        sample = self.cache.ledger.next_sample() if self.cache.ledger is not None else None
        if sample is not None and sample > now:
            times.append(sample)
        return min((at for at in times if at is not None), default=None)
