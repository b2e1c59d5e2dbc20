"""Who has to go so that a Workload gets in. Called by cycle for a Workload that needs it (`targets`), and by flavors for one flavor
and resource at a time, to learn whether it could be had that way (`oracle`).

This is the classical way; with fair sharing, fair decides. Workloads of other queues may be taken if theirs uses more than its own:
all of them where the preemptor stands nearer to the quota than they do (it fits into the quota of a subtree that they are not in),
else by priority, and, unless the queue may preempt while it borrows, only if its queue does not borrow in the end.
"""

from __future__ import annotations

import math
from operator import itemgetter
from typing import Any

from penstock.admission import fair
from penstock.admission.assignment import Assignment, Mode
from penstock.admission.candidates import (
    IN_QUEUE,
    RECLAIMED,
    WHILE_BORROWING,
    Candidate,
    Order,
    Target,
    Trial,
    full_order,
    holders,
    may_preempt,
    plain_order,
    requested,
)
from penstock.admission.model import ClusterQueue, FlavorResource, Policy, Usage, Workload
from penstock.admission.order import effective_priority
from penstock.admission.quota import NO_QUOTA, Node
from penstock.admission.state import State

__all__ = ["Target", "may_preempt", "oracle", "targets"]


def targets(state: State, workload: Workload, queue: str, assignment: Assignment, now: float) -> list[Target]:
    """The Workloads to preempt so that the assignment fits; none if that cannot be. The state is left as it was."""
    needs, request = assignment.needs(), requested(assignment.usage)
    known, state.asked = state.asked, None
    if known is not None and known[:4] == (workload, queue, needs, request):
        found: list[Target] = known[4]  # the search for a flavor has just asked the same
        return found
    return _targets(state, workload, queue, needs, request, now)


def oracle(state: State, workload: Workload, queue: str, fr: FlavorResource, amount: int) -> tuple[Mode, int]:
    """Could this much be had by preemption, if it were all that is wanted? And from how far away would it be borrowed then?"""
    node = state.tree.queues[queue]
    needs, request = frozenset((fr,)), {fr: amount}
    found = _targets(state, workload, queue, needs, request, math.inf)
    state.asked = (workload, queue, needs, request, found)
    if not found:
        return Mode.NO_CANDIDATES, node.level(fr, amount)[0]
    own = False
    usages = []
    for target in found:
        assert target.workload.admission is not None
        name = target.workload.admission.cluster_queue
        own = own or name == queue
        usages.append((state.tree.queues[name], target.workload.held))
    for at, held in usages:
        at.remove(held)
    level, _ = node.level(fr, amount)
    for at, held in usages:
        at.add(held)
    return Mode.PREEMPT if own else Mode.RECLAIM, level


def _targets(
    state: State, workload: Workload, queue: str, needs: frozenset[FlavorResource], request: Usage, now: float
) -> list[Target]:
    if state.config.fair_sharing:
        return fair.targets(state, workload, queue, needs, request, now)
    return _Classical(state, workload, queue, needs, request, now).targets()


Ranked = tuple[Any, Candidate]
"""With its place in the order of candidates."""
_rank = itemgetter(0)


class _Classical:
    def __init__(
        self,
        state: State,
        workload: Workload,
        queue: str,
        needs: frozenset[FlavorResource],
        request: Usage,
        now: float,
    ) -> None:
        self.state = state
        self.workload = workload
        self.queue: ClusterQueue = state.cluster_queues[queue]
        self.node = state.tree.queues[queue]
        self.needs = needs
        self.request = request
        self.now = now
        self.never_borrowing = self.queue.preemption.borrow is Policy.NEVER
        self.order = self._order()
        self.nearer: list[Ranked] = []
        """Those of other queues that the preemptor stands nearer to the quota than."""
        self.others: list[Ranked] = []

    def targets(self) -> list[Target]:
        same = [
            Candidate(each, self.node, IN_QUEUE)
            for each in holders(self.state, self.workload, self.node, self.queue.preemption.within, self.needs)
        ]
        must_borrow = self.never_borrowing and not self.under_nominal()
        self.look_around(must_borrow)
        if must_borrow or not (self.nearer or self.others):
            attempts: tuple[bool, ...] = (True,)
        elif self.never_borrowing and not self.nearer:
            attempts = (False, True)
        else:
            attempts = (True, False)
        listed = self.in_order(same)
        for borrowing in attempts:
            found = self.attempt(listed, borrowing)
            if found:
                return found
        return []

    def under_nominal(self) -> bool:
        node = self.node
        return all(node.quotas.get(fr, NO_QUOTA).nominal > node.usage.get(fr, 0) for fr in self.needs)

    def attempt(self, listed: list[Candidate], borrowing: bool) -> list[Target]:
        trial = Trial(self.node, self.request)
        if not trial.enough(listed):
            return []
        for candidate in listed:
            if not self.valid(candidate, borrowing):
                continue
            trial.remove(candidate)
            if trial.fits(borrowing):
                trial.fill_back(borrowing)
                return trial.restore()
        trial.restore()
        return []

    def valid(self, candidate: Candidate, borrowing: bool) -> bool:
        """Others may have gone before it, so that its queue, or a cohort on the way, uses no more than its own by now."""
        if candidate.below is None:
            return True
        if borrowing and candidate.not_borrowing:
            return False
        node: Node | None = candidate.node
        while node is not None and node is not candidate.below:
            if node.within(self.needs):
                return False
            node = node.parent
        return True

    # -- who there is -------------------------------------------------------------------------------------------------

    def look_around(self, must_borrow: bool) -> None:
        """Up to the root, through every branch that uses more than its own. If the preemptor must borrow anyway, those
        that go only if it does not are not worth the walk."""
        policy = self.queue.preemption.reclaim
        if self.node.parent is None or policy is Policy.NEVER:
            return
        nearer, rest = self.fits_in(self.node, self.request)
        before: Node | None = None
        for ancestor in self.node.path():
            if nearer or not must_borrow:
                (self.nearer if nearer else self.others).extend(self.around(ancestor, before, policy, nearer))
            fits, rest = self.fits_in(ancestor, rest)
            nearer = nearer or fits
            before = ancestor

    def fits_in(self, node: Node, request: Usage) -> tuple[bool, Usage]:
        """Into the quota of its subtree? And what has to come from above, beyond what the node keeps for itself."""
        fits = True
        rest = {}
        for fr, amount in request.items():
            fits = fits and not node.borrowing_with(fr, amount)
            rest[fr] = max(0, amount - node.local_available(fr))
        return fits, rest

    def around(self, top: Node, before: Node | None, policy: Policy, nearer: bool) -> list[Ranked]:
        """Those below an ancestor, but for the branch that leads to the preemptor. While nothing changes, and where priorities
        do not matter, they are the same for all preemptors below it."""
        shared = self.state.shared
        alike = policy is Policy.ANY and (nearer or self.never_borrowing) and self.state.local_usage is None
        if shared is None or not alike:
            return self.collect(top, top, before or self.node, policy, nearer)
        listed = shared.get((top, self.needs, nearer, self.now))
        if listed is None:
            listed = sorted(self.collect(top, top, None, policy, nearer), key=_rank)
            shared[top, self.needs, nearer, self.now] = listed
        if before is None:
            return [ranked for ranked in listed if ranked[1].node is not self.node]
        own = set(before.leaves())
        return [ranked for ranked in listed if ranked[1].node not in own]

    def collect(self, cohort: Node, top: Node, but: Node | None, policy: Policy, nearer: bool) -> list[Ranked]:
        order, listed = self.order, []
        for child in cohort.children:
            if child is but or not child.active or child.within(self.needs):
                continue
            if not child.is_queue:
                listed += self.collect(child, top, but, policy, nearer)
                continue
            for each in holders(self.state, self.workload, child, policy, self.needs):
                if nearer:
                    found = Candidate(each, child, RECLAIMED, top)
                elif self.never_borrowing:
                    found = Candidate(each, child, RECLAIMED, top, True)
                else:
                    found = self.by_priority(each, child, top)
                listed.append((order(each), found))
        return listed

    def by_priority(self, other: Workload, node: Node, top: Node) -> Candidate:
        """While it borrows it may take those below its own priority and the threshold."""
        config = self.state.config
        priority = effective_priority(other, config)
        threshold = self.queue.preemption.borrow_threshold
        if priority >= effective_priority(self.workload, config) or (threshold is not None and priority > threshold):
            return Candidate(other, node, RECLAIMED, top, True)
        return Candidate(other, node, WHILE_BORROWING, top)

    def in_order(self, same: list[Candidate]) -> list[Candidate]:
        """Each kind in the order of candidates; of all of them those that are on the way out already first."""
        going: list[Candidate] = []
        staying: list[Candidate] = []
        for kind in (self.nearer, self.others, [(self.order(each.workload), each) for each in same]):
            kind.sort(key=_rank)
            for _, each in kind:
                (staying if each.workload.eviction is None else going).append(each)
        return going + staying

    def _order(self) -> Order:
        if self.state.local_usage is None:
            return plain_order(self.state, self.now)
        return full_order(self.state, self.queue.name, self.now)
