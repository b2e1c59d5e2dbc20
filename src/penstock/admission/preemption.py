"""Which Workloads to preempt so that another one can be admitted. The scheduler has one Preemptor: a cycle asks it for `targets`, and
the flavor search asks it to `simulate` the preemption for one flavor and resource.

`_ClassicalSearch` is classical preemption; with fair sharing, fair_preemption searches. In classical preemption, Workloads of another
queue may be preempted if that queue uses more than its own quota: any of them if the preemptor has a hierarchical advantage (it fits
into the quota of a subtree that they are not in); else by priority and, unless the queue may preempt while borrowing, only if the
preemptor's queue does not borrow in the end.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from operator import itemgetter
from typing import Any, NamedTuple

from penstock.admission import fair_preemption
from penstock.admission.assignment import Assignment, Mode
from penstock.admission.candidates import (
    IN_QUEUE,
    RECLAIMED,
    WHILE_BORROWING,
    Candidate,
    Order,
    PreemptionTarget,
    RemovalSimulation,
    full_order,
    holders,
    plain_order,
    requested,
)
from penstock.admission.model import ClusterQueue, FlavorResource, Policy, Usage, Workload
from penstock.admission.order import effective_priority
from penstock.admission.quota import NO_QUOTA, QuotaNode
from penstock.admission.snapshot import Snapshot

Ranked = tuple[Any, Candidate]
"""A candidate with its rank in the order of candidates."""
Shared = dict[tuple[QuotaNode, frozenset[FlavorResource], bool, float], list[Ranked]]
_rank = itemgetter(0)


class _Answer(NamedTuple):
    """The result of the latest simulation."""

    workload: Workload
    queue: str
    needs: frozenset[FlavorResource]
    request: dict[FlavorResource, int]
    targets: list[PreemptionTarget]


class Preemptor:
    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self._latest: _Answer | None = None
        self._shared: Shared | None = None

    def targets(self, workload: Workload, queue: str, assignment: Assignment, now: float) -> list[PreemptionTarget]:
        """The Workloads to preempt so that the assignment fits. Empty if there is no way. The snapshot is left as it was."""
        needs, request = assignment.needs(), requested(assignment.usage)
        latest, self._latest = self._latest, None
        if latest is not None and latest[:4] == (workload, queue, needs, request):
            return latest.targets
        return self._search(workload, queue, needs, request, now)

    def simulate(self, workload: Workload, queue: str, fr: FlavorResource, amount: int) -> tuple[Mode, int]:
        """Could this amount be had by preemption, if nothing else were needed? And the borrowing level that it would have then."""
        queues = self.snapshot.tree.queues
        node = queues[queue]
        needs, request = frozenset((fr,)), {fr: amount}
        found = self._search(workload, queue, needs, request, math.inf)
        self._latest = _Answer(workload, queue, needs, request, found)
        if not found:
            return Mode.NO_CANDIDATES, node.level(fr, amount)[0]
        own = False
        removed = []
        for target, _ in found:
            assert target.admission is not None
            name = target.admission.cluster_queue
            own = own or name == queue
            removed.append((queues[name], target.held))
        for at, held in removed:
            at.remove(held)
        level, _ = node.level(fr, amount)
        for at, held in removed:
            at.add(held)
        return Mode.PREEMPT if own else Mode.RECLAIM, level

    @contextmanager
    def unchanged_usage(self) -> Iterator[None]:
        """Until the end nothing that is held changes, so that searches may share their lists of candidates."""
        self._shared = {}
        yield
        self._shared = None

    def _search(
        self, workload: Workload, queue: str, needs: frozenset[FlavorResource], request: Usage, now: float
    ) -> list[PreemptionTarget]:
        if self.snapshot.config.fair_sharing:
            return fair_preemption.targets(self.snapshot, workload, queue, needs, request, now)
        return _ClassicalSearch(self.snapshot, workload, queue, needs, request, now, self._shared).targets()


class _ClassicalSearch:
    def __init__(
        self,
        snapshot: Snapshot,
        workload: Workload,
        queue: str,
        needs: frozenset[FlavorResource],
        request: Usage,
        now: float,
        shared: Shared | None,
    ) -> None:
        self.snapshot = snapshot
        self.workload = workload
        self.queue: ClusterQueue = snapshot.cluster_queues[queue]
        self.node = snapshot.tree.queues[queue]
        self.needs = needs
        self.request = request
        self.now = now
        self.shared = shared
        self.never_borrowing = self.queue.preemption.borrow is Policy.NEVER
        self.order = self._order()
        self.with_advantage: list[Ranked] = []
        """Candidates of other queues over which the preemptor has a hierarchical advantage."""
        self.by_priority: list[Ranked] = []
        """The other candidates of other queues."""

    def targets(self) -> list[PreemptionTarget]:
        same = [
            Candidate(each, self.node, IN_QUEUE)
            for each in holders(self.snapshot, self.workload, self.node, self.queue.preemption.within, self.needs)
        ]
        must_borrow = self.never_borrowing and not self._under_nominal()
        self._collect_others(must_borrow)
        if must_borrow or not (self.with_advantage or self.by_priority):
            attempts: tuple[bool, ...] = (True,)
        elif self.never_borrowing and not self.with_advantage:
            attempts = (False, True)
        else:
            attempts = (True, False)
        listed = self._in_order(same)
        for borrowing in attempts:
            found = self._attempt(listed, borrowing)
            if found:
                return found
        return []

    def _under_nominal(self) -> bool:
        node = self.node
        return all(node.quotas.get(fr, NO_QUOTA).nominal > node.usage.get(fr, 0) for fr in self.needs)

    def _attempt(self, listed: list[Candidate], borrowing: bool) -> list[PreemptionTarget]:
        simulation = RemovalSimulation(self.node, self.request)
        if not simulation.enough(listed):
            return []
        for candidate in listed:
            if not self._valid(candidate, borrowing):
                continue
            simulation.remove(candidate)
            if simulation.fits(borrowing):
                simulation.fill_back(borrowing)
                return simulation.restore()
        simulation.restore()
        return []

    def _valid(self, candidate: Candidate, borrowing: bool) -> bool:
        """Not if its queue, or a cohort between, uses no more than its own quota after earlier candidates were removed."""
        if candidate.below is None:
            return True
        if borrowing and candidate.not_borrowing:
            return False
        node: QuotaNode | None = candidate.node
        while node is not None and node is not candidate.below:
            if node.within(self.needs):
                return False
            node = node.parent
        return True

    # -- candidates of other queues -----------------------------------------------------------------------------------

    def _collect_others(self, must_borrow: bool) -> None:
        """From the parent to the root, in each branch that uses more than its own quota. If the preemptor must borrow anyway,
        candidates that are valid only without borrowing are not collected."""
        policy = self.queue.preemption.reclaim
        if self.node.parent is None or policy is Policy.NEVER:
            return
        advantage, rest = self._fits_in(self.node, self.request)
        before: QuotaNode | None = None
        for ancestor in self.node.path():
            if advantage or not must_borrow:
                found = self.with_advantage if advantage else self.by_priority
                found.extend(self._below(ancestor, before, policy, advantage))
            fits, rest = self._fits_in(ancestor, rest)
            advantage = advantage or fits
            before = ancestor

    def _fits_in(self, node: QuotaNode, request: Usage) -> tuple[bool, Usage]:
        """Does the request fit into the quota of the subtree? And what is needed from above, beyond what the node does not lend."""
        fits = True
        rest = {}
        for fr, amount in request.items():
            fits = fits and not node.borrowing_with(fr, amount)
            rest[fr] = max(0, amount - node.local_available(fr))
        return fits, rest

    def _below(self, top: QuotaNode, before: QuotaNode | None, policy: Policy, advantage: bool) -> list[Ranked]:
        """The candidates below an ancestor, without the branch of the preemptor (`before`). Where priorities do not matter they
        are the same for all preemptors below the ancestor, as long as usage does not change."""
        alike = policy is Policy.ANY and (advantage or self.never_borrowing) and self.snapshot.local_usage is None
        if self.shared is None or not alike:
            return self._collect(top, top, before or self.node, policy, advantage)
        key = (top, self.needs, advantage, self.now)
        listed = self.shared.get(key)
        if listed is None:
            listed = self.shared[key] = sorted(self._collect(top, top, None, policy, advantage), key=_rank)
        if before is None:
            return [ranked for ranked in listed if ranked[1].node is not self.node]
        own = set(before.leaves())
        return [ranked for ranked in listed if ranked[1].node not in own]

    def _collect(
        self, cohort: QuotaNode, top: QuotaNode, skipped: QuotaNode | None, policy: Policy, advantage: bool
    ) -> list[Ranked]:
        order, listed = self.order, []
        for child in cohort.children:
            if child is skipped or not child.active or child.within(self.needs):
                continue
            if not child.is_queue:
                listed += self._collect(child, top, skipped, policy, advantage)
                continue
            for each in holders(self.snapshot, self.workload, child, policy, self.needs):
                if advantage:
                    found = Candidate(each, child, RECLAIMED, top)
                elif self.never_borrowing:
                    found = Candidate(each, child, RECLAIMED, top, True)
                else:
                    found = self._candidate(each, child, top)
                listed.append((order(each), found))
        return listed

    def _candidate(self, other: Workload, node: QuotaNode, top: QuotaNode) -> Candidate:
        """While borrowing, a candidate must be below the preemptor's priority and not above the threshold."""
        config = self.snapshot.config
        priority = effective_priority(other, config)
        threshold = self.queue.preemption.borrow_threshold
        if priority >= effective_priority(self.workload, config) or (threshold is not None and priority > threshold):
            return Candidate(other, node, RECLAIMED, top, True)
        return Candidate(other, node, WHILE_BORROWING, top)

    def _in_order(self, same: list[Candidate]) -> list[Candidate]:
        """Those that are being evicted already come first, then each kind in the order of candidates."""
        evicted: list[Candidate] = []
        others: list[Candidate] = []
        for kind in (self.with_advantage, self.by_priority, [(self.order(each.workload), each) for each in same]):
            kind.sort(key=_rank)
            for _, each in kind:
                (others if each.workload.eviction is None else evicted).append(each)
        return evicted + others

    def _order(self) -> Order:
        if self.snapshot.local_usage is None:
            return plain_order(self.snapshot.config, self.now)
        return full_order(self.snapshot, self.queue.name, self.now)
