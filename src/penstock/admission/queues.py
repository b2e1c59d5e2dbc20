"""The pending Workloads of all ClusterQueues: Kueue's queue manager. The scheduler takes the heads of a cycle from it and gives back
those that were not admitted; lifecycle puts Workloads in and takes them out.

It also knows in which trees another cycle could decide something (`changed`). A tree, here, is a root cohort with all ClusterQueues
below it, or a ClusterQueue without a cohort: nothing that happens in one tree matters in another.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator
from typing import NamedTuple

from penstock.admission.cache import SchedulerCache
from penstock.admission.model import ClusterQueue, LocalQueue, Workload
from penstock.admission.pending import PendingQueue, PendingWorkload, may_queue
from penstock.admission.workloads import WorkloadIndex


class Head(NamedTuple):
    """The head of a ClusterQueue, taken out for a cycle."""

    queue: str
    pending: PendingWorkload
    preemptor: bool
    """It waits for the preemption targets of an earlier cycle."""


class QueueManager:
    def __init__(self, cache: SchedulerCache, workloads: WorkloadIndex) -> None:
        self.cache = cache
        self.workloads = workloads
        self.pending: dict[str, PendingQueue] = {}
        """By ClusterQueue."""
        self.changed: set[str] = set()
        """Roots of trees in which a cycle may decide something new."""
        self._requeued: set[str] = set()
        """Roots of trees in which no Workload has become inadmissible since all of them were requeued."""
        self._scans: dict[str, set[Hashable]] = {}
        """By root: how far flavor searches had come since something changed in the tree."""

    # -- Workloads ----------------------------------------------------------------------------------------------------

    def enqueue(self, workload: Workload, now: float) -> None:
        """Put it into its queue, if it may be in one and there is one."""
        local_queue = self.cache.local_queues.get(workload.local_queue)
        if local_queue is None or local_queue.stop != "None" or not may_queue(workload, self.cache.config):
            return
        queue = self.pending.get(local_queue.cluster_queue)
        if queue is not None:
            queue.push(workload, now)
            self.mark_changed(queue.name)

    def dequeue(self, workload: Workload) -> None:
        queue = self.pending.get(self.cache.queue_of(workload))
        if queue is not None and queue.remove(workload.key):
            self.mark_changed(queue.name)

    def update(self, workload: Workload, now: float) -> None:
        """It has changed: put it into its queue again, or let others be tried if it holds quota."""
        if workload.admission is None:
            self.enqueue(workload, now)
        else:
            self.requeue_inadmissible(workload.admission.cluster_queue, now)

    # -- what has changed ---------------------------------------------------------------------------------------------

    def mark_changed(self, queue: str) -> None:
        """A cycle may decide something new in the tree of this ClusterQueue."""
        root = self.cache.roots.get(queue)
        if root is not None:
            self.changed.add(root)
            self._scans.pop(root, None)

    def requeue_inadmissible(self, queue: str, now: float) -> None:
        """Quota may be free: the inadmissible Workloads in the tree of this ClusterQueue are tried again."""
        root = self.cache.roots.get(queue)
        if root is None:
            return
        self.mark_changed(queue)
        if root in self._requeued:
            return
        self._requeued.add(root)
        for name in self.cache.trees[root]:
            self.retry(name, now)

    def retry(self, queue: str, now: float) -> None:
        """The inadmissible Workloads of this ClusterQueue become active. Kueue does this up to a second later."""
        found = self.pending[queue]
        if found.inadmissible_shapes or found.inadmissible:
            found.requeue_inadmissible(now, self.cache.admits(queue))

    def usage_sampled(self) -> None:
        """What LocalQueues have consumed was sampled, so that the order of some queues may be another."""
        roots = self.cache.roots
        self.changed.update(
            roots[name] for name, queue in self.pending.items() if queue.usage is not None and name in roots
        )

    def is_new_scan(self, queue: str, progress: Hashable) -> bool:
        """Has a flavor search come to this point for the first time since something changed in the tree?"""
        seen = self._scans.setdefault(self.cache.roots[queue], set())
        if progress in seen:
            return False
        seen.add(progress)
        return True

    # -- heads --------------------------------------------------------------------------------------------------------

    def pop_heads(self, roots: Collection[str] | None = None) -> Iterator[Head]:
        """The head of each active ClusterQueue, in all trees or in those of some roots."""
        cache = self.cache
        self._requeued.difference_update(cache.trees if roots is None else roots)
        names: Iterable[str] = (
            cache.roots if roots is None else (name for root in sorted(roots) for name in cache.trees.get(root, ()))
        )
        for name in names:
            if name not in cache.why_inactive:
                queue = self.pending[name]
                found = queue.pop()
                if found is not None:
                    yield Head(name, found, queue.is_preemptor(found.workload.key))

    def heads(self) -> dict[str, Workload]:
        """The Workloads that would be tried next, by ClusterQueue."""
        found = {}
        for name, queue in sorted(self.pending.items()):
            head = queue.head() if not self.cache.why_inactive.get(name) else None
            if head is not None:
                found[name] = head.workload
        return found

    def in_order(self, queue: str) -> list[Workload]:
        """The Workloads that wait in a ClusterQueue, active or inadmissible."""
        found = self.pending.get(queue)
        return found.in_order() if found is not None else []

    def waiting_beside(self, queue: str) -> int:
        """How many Workloads wait in the tree of this ClusterQueue."""
        root = self.cache.roots.get(queue)
        return sum(len(self.pending[name]) for name in self.cache.trees[root]) if root is not None else 0

    # -- configuration ------------------------------------------------------------------------------------------------

    def rebuild(self, now: float) -> None:
        """After the cache was rebuilt: a PendingQueue for each ClusterQueue, and all Workloads are tried again."""
        for name in [name for name in self.pending if name not in self.cache.cluster_queues]:
            del self.pending[name]
        for _, queue in sorted(self.cache.cluster_queues.items()):
            self._update_queue(queue, now)
        for name in self.cache.roots:
            self.retry(name, now)
            for found in self.pending[name].workloads.values():
                found.workload.scan_progress = None
        self.changed, self._requeued = set(self.cache.trees), set()

    def _update_queue(self, queue: ClusterQueue, now: float) -> None:
        ledger = self.cache.ledger
        usage = ledger.usage if ledger is not None and queue.usage_based else None
        found = self.pending.get(queue.name)
        if found is not None and (found.usage is None) == (usage is None):
            if found.strategy is not queue.strategy:
                found.strategy, found.sticky = queue.strategy, False
            return
        self.pending[queue.name] = PendingQueue(queue.name, queue.strategy, self.cache.config, usage)
        for key, local_queue in self.cache.local_queues.items():
            if local_queue.cluster_queue == queue.name:
                for workload in self.workloads.of(key):
                    self.enqueue(workload, now)

    def update_local_queue(self, key: str, new: LocalQueue | None, now: float) -> None:
        """Add, replace or delete (`new` is None) a LocalQueue in the cache, and move its Workloads."""
        old = self.cache.local_queues.get(key)
        moved = old is None or new is None or (old.cluster_queue, old.stop) != (new.cluster_queue, new.stop)
        if moved and old is not None and (queue := self.pending.get(old.cluster_queue)) is not None:
            for workload in self.workloads.of(key):
                queue.remove(workload.key)
            self.mark_changed(old.cluster_queue)
        if new is None:
            self.cache.delete(LocalQueue, key)
            return
        self.cache.put(new)
        if moved:
            for workload in self.workloads.of(key):
                self.enqueue(workload, now)
        elif self.cache.ledger is not None:
            self.mark_changed(new.cluster_queue)
