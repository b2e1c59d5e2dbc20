"""Who has to go so that a Workload gets in, with fair sharing. Called by preempt.

Again and again: from the root down to the child with the largest share, to the queue that is furthest above its own, and of its
candidates the first. A queue may take what it needs of its own quota without asking; beyond that it may take from another only
while its own share, with the Workload in, stays below the other's: after the other has lost the candidate
(LessThanOrEqualToFinalShare), or before (LessThanInitialShare). Shares are those of the two nodes right below the lowest cohort
that both are in.
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
    Target,
    Trial,
    borrows_any,
    full_order,
    holders,
    queue_of,
)
from penstock.admission.model import FlavorResource, Policy, Usage, Workload
from penstock.admission.quota import Node
from penstock.admission.shares import Share, share
from penstock.admission.state import State

FINAL = "LessThanOrEqualToFinalShare"
INITIAL = "LessThanInitialShare"

_BELOW_ALL = Share(1.0, -1.0)


def targets(
    state: State, workload: Workload, queue: str, needs: Collection[FlavorResource], request: Usage, now: float
) -> list[Target]:
    """The Workloads to preempt so that the request fits; none if that cannot be. The state is left as it was."""
    node = state.tree.queues[queue]
    found = candidates(state, workload, node, needs)
    if not found:
        return []
    found.sort(key=full_order(state, queue, now))
    order = full_order(state, queue, now, usage_based=False)
    node.add(request)
    hunt = _Hunt(state, node, request, order)
    strategies = state.config.strategies or (FINAL, INITIAL)
    fits, again = hunt.first(found, strategies[0], _entitled(state, node, needs))
    if not fits and len(strategies) > 1:
        fits = hunt.second(again)
    node.remove(request)
    if not fits:
        hunt.trial.restore()
        return []
    hunt.trial.fill_back()
    return hunt.trial.restore()


def candidates(state: State, workload: Workload, node: Node, needs: Collection[FlavorResource]) -> list[Workload]:
    """Of the own queue, and of all queues in the tree that borrow what is needed."""
    rules = state.cluster_queues[node.name].preemption
    found = holders(state, workload, node, rules.within, needs)
    if node.parent is not None and rules.reclaim is not Policy.NEVER:
        for leaf in node.root.leaves():
            if leaf is not node and borrows_any(leaf, needs):
                found += holders(state, workload, leaf, rules.reclaim, needs)
    return found


def _entitled(state: State, node: Node, needs: Collection[FlavorResource]) -> bool:
    """It takes no more than its own, with the request in: then shares do not matter."""
    return state.config.gate("FairSharingPreemptWithinNominal", True) and not borrows_any(node, needs)


class Turns:
    """Which queue is to lose a candidate next. Whoever asks pops a candidate of it, or drops it, before asking again."""

    def __init__(self, node: Node, found: Iterable[Workload], order: Order) -> None:
        self.node = node
        self.above = set(node.path())
        self.order = order
        self.left: dict[str, deque[Workload]] = {}
        for workload in found:
            self.left.setdefault(queue_of(workload), deque()).append(workload)
        self.out: set[Node] = set()
        """Nodes where there is nobody left to take."""
        self._shares: dict[Node, Share] = {}

    def __iter__(self) -> Iterator[Node]:
        if self.node.parent is None:
            while self.node not in self.out and self.left.get(self.node.name):
                yield self.node
            return
        root = self.node.root
        while root not in self.out:
            found = self._next(root)
            if found is not None:
                yield found

    def pop(self, node: Node) -> Workload:
        """The first candidate of a queue, to be taken or left; from here up, shares may change by it."""
        at: Node | None = node
        while at is not None:
            self._shares.pop(at, None)
            at = at.parent
        return self.left[node.name].popleft()

    def share(self, node: Node) -> Share:
        found = self._shares.get(node)
        if found is None:
            found = self._shares[node] = share(node)
        return found

    def drop(self, node: Node) -> None:
        self.out.add(node)

    def _next(self, cohort: Node) -> Node | None:
        """None if all that happened is that some node turned out to be done with."""
        queue, queue_share = self._queue(cohort)
        lower, lower_share = self._cohort(cohort)
        if queue is None and lower is None:
            self.out.add(cohort)
            return None
        if lower is not None and lower_share >= queue_share:
            return self._next(lower)
        return queue

    def _queue(self, cohort: Node) -> tuple[Node | None, Share]:
        """The one with the largest share; of equal ones the one whose first candidate would go first."""
        best, most = None, _BELOW_ALL
        for child in cohort.children:
            if not child.is_queue or not child.active or child in self.out:
                continue
            if not self.left.get(child.name):
                self.out.add(child)
                continue
            found = self.share(child)
            if not found.borrowing and child is not self.node:
                self.out.add(child)
            elif found > most:
                best, most = child, found
            elif found == most and best is not None:
                first, other = self.left[child.name][0], self.left[best.name][0]
                if self.order(first) < self.order(other):
                    best = child
        return best, most

    def _cohort(self, cohort: Node) -> tuple[Node | None, Share]:
        """The one with the largest share. One above the own queue stays while there is anybody in it: it may be out of
        balance inside."""
        best, most = None, _BELOW_ALL
        for child in cohort.children:
            if child.is_queue or child in self.out:
                continue
            found = self.share(child)
            if not found.borrowing and child not in self.above:
                self.out.add(child)
            elif found >= most:
                best, most = child, found
        return best, most

    def sides(self, target: Node) -> tuple[Node, Node]:
        """Of the own queue and the target: the nodes right below the lowest cohort that both are in."""
        theirs = target
        while theirs.parent is not None and theirs.parent not in self.above:
            theirs = theirs.parent
        mine = self.node
        while mine.parent is not theirs.parent and mine.parent is not None:
            mine = mine.parent
        return mine, theirs


class _Hunt:
    """The preemptor's request is in the tree all the while, because shares go by it."""

    def __init__(self, state: State, node: Node, request: Usage, order: Order) -> None:
        self.state = state
        self.node = node
        self.request = request
        self.order = order
        self.trial = Trial(node, request)

    def take(self, node: Node, workload: Workload, reason: str) -> bool:
        """Does the request fit then?"""
        self.trial.remove(Candidate(workload, node, reason))
        self.node.remove(self.request)
        fits = self.trial.fits()
        self.node.add(self.request)
        return fits

    def first(self, found: list[Workload], strategy: str, entitled: bool) -> tuple[bool, list[Workload]]:
        """Whether the request fits in the end, and else who is left for the second strategy."""
        turns = Turns(self.node, found, self.order)
        again: list[Workload] = []
        for target in turns:
            if target is self.node or entitled:
                if self.take(target, turns.pop(target), IN_QUEUE if target is self.node else RECLAIMED):
                    return True, []
                continue
            own, other = turns.sides(target)
            mine, theirs = turns.share(own), turns.share(other)
            if mine.key[0] and not theirs.key[0]:
                # Without bounds against with bounds: nobody of this queue would do.
                again += turns.left.pop(target.name)
                continue
            while turns.left[target.name]:
                workload = turns.pop(target)
                if self.passes(strategy, mine, theirs, target, other, workload):
                    if self.take(target, workload, FAIR):
                        return True, []
                    break
                again.append(workload)
        return False, again

    def passes(self, strategy: str, mine: Share, theirs: Share, target: Node, other: Node, workload: Workload) -> bool:
        if strategy == INITIAL:
            return mine < theirs
        target.remove(workload.held)
        without = share(other)
        target.add(workload.held)
        return mine <= without

    def second(self, again: list[Workload]) -> bool:
        """Of each queue one at most: the rule does not look at the candidate, so that more would not change the answer."""
        turns = Turns(self.node, again, self.order)
        for target in turns:
            own, other = turns.sides(target)
            below = turns.share(own) < turns.share(other)
            workload = turns.pop(target)
            if below and self.take(target, workload, FAIR):
                return True
            turns.drop(target)
        return False
