"""Which Workloads to preempt with fair sharing. Called by preemption.

Repeatedly: from the root down to the child with the largest share, to the queue that is furthest above its own quota, and of its
candidates the first. A queue may always preempt for what it needs of its own quota. Beyond that it may preempt in another queue only
while its own share, with the Workload admitted, stays below the other's share: the share after the other has lost the candidate
(LessThanOrEqualToFinalShare), or the share before (LessThanInitialShare). The shares are those of the two nodes right below the
lowest common cohort.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator

from penstock.admission.candidates import (
    FAIR,
    IN_QUEUE,
    RECLAIMED,
    Candidate,
    Order,
    PreemptionTarget,
    RemovalSimulation,
    borrows_any,
    full_order,
    holders,
    queue_of,
)
from penstock.admission.model import FlavorResource, Policy, Usage, Workload
from penstock.admission.quota import QuotaNode
from penstock.admission.shares import Share, share
from penstock.admission.snapshot import Snapshot

FINAL = "LessThanOrEqualToFinalShare"
INITIAL = "LessThanInitialShare"

_BELOW_ALL = Share(1.0, -1.0)


def targets(
    snapshot: Snapshot, workload: Workload, queue: str, needs: Collection[FlavorResource], request: Usage, now: float
) -> list[PreemptionTarget]:
    """The Workloads to preempt so that the request fits. Empty if there is no way. The snapshot is left as it was."""
    node = snapshot.tree.queues[queue]
    found = candidates(snapshot, workload, node, needs)
    if not found:
        return []
    found.sort(key=full_order(snapshot, queue, now))
    node.add(request)
    search = _FairSearch(node, request, full_order(snapshot, queue, now, usage_based=False))
    strategies = snapshot.config.strategies or (FINAL, INITIAL)
    fits, retry = search.first(found, strategies[0], _within_nominal(snapshot, node, needs))
    if not fits and len(strategies) > 1:
        fits = search.second(retry)
    node.remove(request)
    if not fits:
        search.simulation.restore()
        return []
    search.simulation.fill_back()
    return search.simulation.restore()


def candidates(
    snapshot: Snapshot, workload: Workload, node: QuotaNode, needs: Collection[FlavorResource]
) -> list[Workload]:
    """Of its own queue, and of all queues in the tree that borrow what is needed."""
    rules = snapshot.cluster_queues[node.name].preemption
    found = holders(snapshot, workload, node, rules.within, needs)
    if node.parent is not None and rules.reclaim is not Policy.NEVER:
        for leaf in node.root.leaves():
            if leaf is not node and borrows_any(leaf, needs):
                found += holders(snapshot, workload, leaf, rules.reclaim, needs)
    return found


def _within_nominal(snapshot: Snapshot, node: QuotaNode, needs: Collection[FlavorResource]) -> bool:
    """With the request added, the queue uses no more than its own quota. Then shares do not matter."""
    return snapshot.config.gate("FairSharingPreemptWithinNominal", True) and not borrows_any(node, needs)


class TargetQueueOrdering:
    """In which queue to preempt next. Before the next step, the caller pops a candidate of the queue or drops the queue."""

    def __init__(self, node: QuotaNode, found: Iterable[Workload], order: Order) -> None:
        self.node = node
        self.ancestors = set(node.path())
        self.order = order
        self.left: dict[str, deque[Workload]] = {}
        """By queue: its candidates."""
        for workload in found:
            self.left.setdefault(queue_of(workload), deque()).append(workload)
        self.done: set[QuotaNode] = set()
        """Nodes in which there is nothing left to preempt."""
        self._shares: dict[QuotaNode, Share] = {}

    def __iter__(self) -> Iterator[QuotaNode]:
        if self.node.parent is None:
            while self.node not in self.done and self.left.get(self.node.name):
                yield self.node
            return
        root = self.node.root
        while root not in self.done:
            found = self._next(root)
            if found is not None:
                yield found

    def pop(self, node: QuotaNode) -> Workload:
        """The first candidate of a queue. The caller may remove it, so the shares from here to the root are computed again."""
        at: QuotaNode | None = node
        while at is not None:
            self._shares.pop(at, None)
            at = at.parent
        return self.left[node.name].popleft()

    def drop(self, node: QuotaNode) -> None:
        self.done.add(node)

    def share(self, node: QuotaNode) -> Share:
        found = self._shares.get(node)
        if found is None:
            found = self._shares[node] = share(node)
        return found

    def almost_lowest_common_ancestors(self, target: QuotaNode) -> tuple[QuotaNode, QuotaNode]:
        """Of its own queue and the target: the nodes right below their lowest common cohort."""
        theirs = target
        while theirs.parent is not None and theirs.parent not in self.ancestors:
            theirs = theirs.parent
        mine = self.node
        while mine.parent is not theirs.parent and mine.parent is not None:
            mine = mine.parent
        return mine, theirs

    def _next(self, cohort: QuotaNode) -> QuotaNode | None:
        """None if no queue was found but some node is done now."""
        queue, queue_share = self._best_queue(cohort)
        lower, lower_share = self._best_cohort(cohort)
        if queue is None and lower is None:
            self.done.add(cohort)
            return None
        if lower is not None and lower_share >= queue_share:
            return self._next(lower)
        return queue

    def _best_queue(self, cohort: QuotaNode) -> tuple[QuotaNode | None, Share]:
        """The queue with the largest share. Of equal shares, the one whose first candidate comes first."""
        best, most = None, _BELOW_ALL
        for child in cohort.children:
            if not child.is_queue or not child.active or child in self.done:
                continue
            if not self.left.get(child.name):
                self.done.add(child)
                continue
            found = self.share(child)
            if not found.borrowing and child is not self.node:
                self.done.add(child)
            elif found > most:
                best, most = child, found
            elif found == most and best is not None:
                first, other = self.left[child.name][0], self.left[best.name][0]
                if self.order(first) < self.order(other):
                    best = child
        return best, most

    def _best_cohort(self, cohort: QuotaNode) -> tuple[QuotaNode | None, Share]:
        """The cohort with the largest share. An ancestor of the preemptor's queue stays even if it does not borrow: the shares
        inside it may differ."""
        best, most = None, _BELOW_ALL
        for child in cohort.children:
            if child.is_queue or child in self.done:
                continue
            found = self.share(child)
            if not found.borrowing and child not in self.ancestors:
                self.done.add(child)
            elif found >= most:
                best, most = child, found
        return best, most


class _FairSearch:
    """The preemptor's request is in the tree all the time, because shares depend on it."""

    def __init__(self, node: QuotaNode, request: Usage, order: Order) -> None:
        self.node = node
        self.request = request
        self.order = order
        self.simulation = RemovalSimulation(node, request)

    def first(self, found: list[Workload], strategy: str, within_nominal: bool) -> tuple[bool, list[Workload]]:
        """(whether the request fits in the end, the candidates that are left for the second strategy)"""
        ordering = TargetQueueOrdering(self.node, found, self.order)
        retry: list[Workload] = []
        for target in ordering:
            if target is self.node or within_nominal:
                if self._remove(target, ordering.pop(target), IN_QUEUE if target is self.node else RECLAIMED):
                    return True, []
                continue
            own, other = ordering.almost_lowest_common_ancestors(target)
            mine, theirs = ordering.share(own), ordering.share(other)
            if mine.unbounded and not theirs.unbounded:
                # No candidate of this queue can pass.
                retry += ordering.left.pop(target.name)
                continue
            while ordering.left[target.name]:
                workload = ordering.pop(target)
                if self._passes(strategy, mine, theirs, target, other, workload):
                    if self._remove(target, workload, FAIR):
                        return True, []
                    break
                retry.append(workload)
        return False, retry

    def second(self, retry: list[Workload]) -> bool:
        """One candidate of each queue at most: the strategy does not depend on the candidate."""
        ordering = TargetQueueOrdering(self.node, retry, self.order)
        for target in ordering:
            own, other = ordering.almost_lowest_common_ancestors(target)
            below = ordering.share(own) < ordering.share(other)
            workload = ordering.pop(target)
            if below and self._remove(target, workload, FAIR):
                return True
            ordering.drop(target)
        return False

    def _remove(self, node: QuotaNode, workload: Workload, reason: str) -> bool:
        """Does the request fit then?"""
        self.simulation.remove(Candidate(workload, node, reason))
        self.node.remove(self.request)
        fits = self.simulation.fits()
        self.node.add(self.request)
        return fits

    def _passes(
        self, strategy: str, mine: Share, theirs: Share, target: QuotaNode, other: QuotaNode, workload: Workload
    ) -> bool:
        if strategy == INITIAL:
            return mine < theirs
        target.remove(workload.held)
        without = share(other)
        target.add(workload.held)
        return mine <= without
