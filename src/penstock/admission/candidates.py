"""Which Workloads another one may preempt, in which order, and what would fit without them. Called by preemption and
fair_preemption, which choose among the candidates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cmp_to_key
from typing import Any, Final, NamedTuple

from penstock.admission.model import Config, FlavorResource, Policy, Usage, Workload
from penstock.admission.order import effective_priority, queue_time
from penstock.admission.quota import QuotaNode
from penstock.admission.snapshot import Snapshot

IN_QUEUE: Final = "InClusterQueue"
RECLAIMED: Final = "InCohortReclamation"
WHILE_BORROWING: Final = "InCohortReclaimWhileBorrowing"
FAIR: Final = "InCohortFairSharing"

BUFFER: Final = 300.0
"""Seconds by which a candidate must be newer, with SchedulerTimestampPreemptionBuffer."""


class PreemptionTarget(NamedTuple):
    """A Workload to preempt."""

    workload: Workload
    reason: str


class Candidate(NamedTuple):
    """A Workload that may be preempted."""

    workload: Workload
    node: QuotaNode
    """Of its queue."""
    reason: str
    below: QuotaNode | None = None
    """The lowest common cohort of both queues. None if it is in the preemptor's own queue."""
    not_borrowing: bool = False
    """Valid only if the preemptor's queue does not borrow in the end."""


# -- which Workloads --------------------------------------------------------------------------------------------------


def allowed(preemptor: Workload, found: Iterable[Workload], policy: Policy, config: Config) -> list[Workload]:
    """Those that the policy allows it to preempt: by priority, and by time where priorities are equal."""
    if policy is Policy.ANY:
        return list(found)
    if policy is Policy.NEVER:
        return []
    mine = effective_priority(preemptor, config)
    boosted = config.gate("PriorityBoost", False)
    if policy is Policy.LOWER:
        if boosted:
            return [each for each in found if each.priority + each.boost < mine]
        return [each for each in found if each.priority < mine]
    since = queue_time(preemptor, config)
    if config.gate("SchedulerTimestampPreemptionBuffer", False):
        since += BUFFER
    listed = []
    for each in found:
        other = each.priority + each.boost if boosted else each.priority
        if other < mine or (other == mine and queue_time(each, config) > since):
            listed.append(each)
    return listed


def holders(
    snapshot: Snapshot, preemptor: Workload, node: QuotaNode, policy: Policy, needs: Iterable[FlavorResource]
) -> list[Workload]:
    """The Workloads of a queue that hold something of what is needed, and may be preempted."""
    found = snapshot.holders.get(node.name)
    if not found or policy is Policy.NEVER:
        return []
    listed = allowed(preemptor, found.values(), policy, snapshot.config)
    return [each for each in listed if not each.held.keys().isdisjoint(needs)]


# -- in which order ---------------------------------------------------------------------------------------------------

Order = Callable[[Workload], Any]
"""A sort key."""


def plain_order(config: Config, now: float) -> Order:
    """First those that are being evicted already; then the lowest priority; then the latest quota reservation."""
    boosted = config.gate("PriorityBoost", False)

    def key(workload: Workload) -> tuple[bool, int, float, str, str, str]:
        priority = workload.priority + workload.boost if boosted else workload.priority
        since = now if workload.reserved_at is None else workload.reserved_at
        return (workload.eviction is None, priority, -since, workload.uid, workload.namespace, workload.name)

    return key


def full_order(snapshot: Snapshot, queue: str, now: float, usage_based: bool = True) -> Order:
    """As `plain_order`, but Workloads of other queues come before those of `queue`. Of two Workloads in one ClusterQueue with
    admission fair sharing that come from different LocalQueues, the one whose LocalQueue has consumed more comes first."""
    plain = plain_order(snapshot.config, now)
    if snapshot.local_usage is None or not usage_based:
        return lambda workload: ((key := plain(workload))[0], queue_of(workload) == queue, key)
    consumed = snapshot.local_usage

    def compare(a: Workload, b: Workload) -> int:
        first, second = plain(a), plain(b)
        if first[0] != second[0]:
            return -1 if second[0] else 1
        one, other = queue_of(a), queue_of(b)
        if (one == queue) != (other == queue):
            return 1 if one == queue else -1
        if one == other and a.queue != b.queue and _usage_based(snapshot, one):
            used, others = consumed(a.local_queue), consumed(b.local_queue)
            if used != others:
                return -1 if used > others else 1
        return -1 if first < second else int(first > second)

    return cmp_to_key(compare)


def _usage_based(snapshot: Snapshot, queue: str) -> bool:
    found = snapshot.cluster_queues.get(queue)
    return found is not None and found.usage_based


def queue_of(workload: Workload) -> str:
    return workload.admission.cluster_queue if workload.admission is not None else ""


# -- what would fit ---------------------------------------------------------------------------------------------------


class RemovalSimulation:
    """The quota tree without some Workloads. `restore` must be called at the end."""

    def __init__(self, node: QuotaNode, request: Usage) -> None:
        self.node = node
        self.request = request
        self.removed: list[Candidate] = []
        self.missing: dict[FlavorResource, int] = {}
        """A lower bound of what must still be removed, set by `enough`. A removal frees no more than the Workload holds, so
        while something is missing there is no need to look at the tree."""

    def enough(self, listed: Iterable[Candidate]) -> bool:
        """Do they hold as much as must be removed?"""
        for fr, amount in self.request.items():
            missing = amount - self.node.available_raw(fr)
            if missing > 0:
                self.missing[fr] = missing
                if sum([each.workload.held.get(fr, 0) for each in listed]) < missing:
                    return False
        return True

    def remove(self, candidate: Candidate) -> None:
        held = candidate.workload.held
        candidate.node.remove(held)
        self.removed.append(candidate)
        for fr in self.missing:
            if fr in held:
                self.missing[fr] -= held[fr]

    def fits(self, borrowing: bool = True) -> bool:
        for missing in self.missing.values():
            if missing > 0:
                return False
        node = self.node
        for fr, amount in self.request.items():
            if not borrowing and node.borrowing_with(fr, amount):
                return False
            if amount > node.available(fr):
                return False
        return True

    def fill_back(self, borrowing: bool = True) -> None:
        """Add Workloads again that need not be removed: from the last but one to the first, while the request fits. A Workload
        that is added to another queue takes no more than it holds; while that much is spare, the tree need not be looked at."""
        stay = self.removed[-1:]
        self.missing = {}
        spare = self._spare()
        for candidate in reversed(self.removed[:-1]):
            held = candidate.workload.held
            candidate.node.add(held)
            if candidate.node is not self.node and _covers(spare, held):
                for fr in spare:
                    spare[fr] -= held.get(fr, 0)
            elif self.fits(borrowing):
                spare = self._spare()
            else:
                candidate.node.remove(held)
                stay.append(candidate)
        self.removed = stay[::-1]

    def _spare(self) -> dict[FlavorResource, int]:
        """What is left beyond the request."""
        return {fr: self.node.available_raw(fr) - amount for fr, amount in self.request.items()}

    def restore(self) -> list[PreemptionTarget]:
        """Put the tree back as it was. Returns the Workloads that were removed."""
        targets = []
        for candidate in self.removed:
            candidate.node.add(candidate.workload.held)
            targets.append(PreemptionTarget(candidate.workload, candidate.reason))
        self.removed = []
        return targets


def _covers(spare: Usage, held: Usage) -> bool:
    for fr, left in spare.items():  # noqa: SIM110 (called very often)
        if held.get(fr, 0) > left:
            return False
    return True


def borrows_any(node: QuotaNode, needs: Iterable[FlavorResource]) -> bool:
    return any(node.borrowing_with(fr, 0) for fr in needs)


def requested(usage: Mapping[FlavorResource, int]) -> dict[FlavorResource, int]:
    """Without amounts of 0, which need no quota."""
    return {fr: amount for fr, amount in usage.items() if amount != 0}
