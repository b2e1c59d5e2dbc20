"""Whom a Workload may preempt, and who of them goes first. Called by preempt and fair, who choose among them.

A search takes usage out of the tree and puts it back (`Trial`); it leaves no trace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cmp_to_key
from typing import Any, Final, NamedTuple

from penstock.admission.model import Config, FlavorResource, Policy, Usage, Workload
from penstock.admission.order import effective_priority, queue_time
from penstock.admission.quota import Node
from penstock.admission.state import State

IN_QUEUE: Final = "InClusterQueue"
RECLAIMED: Final = "InCohortReclamation"
WHILE_BORROWING: Final = "InCohortReclaimWhileBorrowing"
FAIR: Final = "InCohortFairSharing"

BUFFER: Final = 300.0
"""Seconds that a candidate has to be newer by, under SchedulerTimestampPreemptionBuffer."""


class Target(NamedTuple):
    """A Workload that has to go."""

    workload: Workload
    reason: str


class Candidate(NamedTuple):
    """A Workload that may have to go."""

    workload: Workload
    node: Node
    """Of its queue."""
    reason: str
    below: Node | None = None
    """The lowest cohort above both queues; None in the own queue."""
    not_borrowing: bool = False
    """Only if the preemptor's queue does not borrow in the end."""


# -- may it? ----------------------------------------------------------------------------------------------------------


def may_preempt(preemptor: Workload, candidate: Workload, policy: Policy, config: Config) -> bool:
    """The policy alone: priorities, and times where they are equal."""
    return bool(chosen(preemptor, (candidate,), policy, config))


def chosen(preemptor: Workload, found: Iterable[Workload], policy: Policy, config: Config) -> list[Workload]:
    """Those that the policy lets it preempt."""
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
    state: State, preemptor: Workload, node: Node, policy: Policy, needs: Iterable[FlavorResource]
) -> list[Workload]:
    """Those in a queue that hold something of what is needed, and may be preempted."""
    found = state.holders.get(node.name)
    if not found or policy is Policy.NEVER:
        return []
    allowed = chosen(preemptor, found.values(), policy, state.config)
    return [each for each in allowed if not each.held.keys().isdisjoint(needs)]


# -- in which order? --------------------------------------------------------------------------------------------------

Order = Callable[[Workload], Any]
"""A sort key."""


def plain_order(state: State, now: float) -> Order:
    """Who is on the way out already; then the lowest priority; then the latest to get its quota."""
    boosted = state.config.gate("PriorityBoost", False)

    def key(workload: Workload) -> tuple[bool, int, float, str, str, str]:
        priority = workload.priority + workload.boost if boosted else workload.priority
        since = now if workload.reserved_at is None else workload.reserved_at
        return (workload.eviction is None, priority, -since, workload.uid, workload.namespace, workload.name)

    return key


def full_order(state: State, queue: str, now: float, usage_based: bool = True) -> Order:
    """As `plain_order`, but those of other queues before those of `queue`; and of Workloads in one queue with admission fair
    sharing, but from different LocalQueues, the one whose LocalQueue has consumed more goes first."""
    plain = plain_order(state, now)
    if state.local_usage is None or not usage_based:
        return lambda workload: ((key := plain(workload))[0], queue_of(workload) == queue, key)
    consumed = state.local_usage

    def compare(a: Workload, b: Workload) -> int:
        first, second = plain(a), plain(b)
        if first[0] != second[0]:
            return -1 if second[0] else 1
        one, other = queue_of(a), queue_of(b)
        if (one == queue) != (other == queue):
            return 1 if one == queue else -1
        if one == other and a.queue != b.queue and _usage_based(state, one):
            used, others = consumed(f"{a.namespace}/{a.queue}"), consumed(f"{b.namespace}/{b.queue}")
            if used != others:
                return -1 if used > others else 1
        return -1 if first < second else int(first > second)

    return cmp_to_key(compare)


def _usage_based(state: State, queue: str) -> bool:
    found = state.cluster_queues.get(queue)
    return found is not None and found.usage_based


def queue_of(workload: Workload) -> str:
    return workload.admission.cluster_queue if workload.admission is not None else ""


# -- what if? ---------------------------------------------------------------------------------------------------------


class Trial:
    """The tree without some Workloads, for one that wants in."""

    def __init__(self, node: Node, request: Usage) -> None:
        self.node = node
        self.request = request
        self.gone: list[Candidate] = []
        self.short: dict[FlavorResource, int] = {}
        """What has still to go at least, as far as `enough` has found out. Whoever goes frees no more than it holds, so that
        until then there is nothing to look at."""

    def enough(self, listed: Iterable[Candidate]) -> bool:
        """Do they hold as much as has to go?"""
        for fr, amount in self.request.items():
            lack = amount - self.node.available_raw(fr)
            if lack > 0:
                self.short[fr] = lack
                if sum([each.workload.held.get(fr, 0) for each in listed]) < lack:
                    return False
        return True

    def remove(self, candidate: Candidate) -> None:
        held = candidate.workload.held
        candidate.node.remove(held)
        self.gone.append(candidate)
        for fr in self.short:
            if fr in held:
                self.short[fr] -= held[fr]

    def fits(self, borrowing: bool = True) -> bool:
        for lack in self.short.values():
            if lack > 0:
                return False
        node = self.node
        for fr, amount in self.request.items():
            if not borrowing and node.borrowing_with(fr, amount):
                return False
            if amount > node.available(fr):
                return False
        return True

    def fill_back(self, borrowing: bool = True) -> None:
        """Put back whom it did not take after all: from the last but one to the first, as long as the request fits. Whoever
        comes back to another queue takes no more than it holds: as long as there is that much to spare, nobody has to look."""
        stay = self.gone[-1:]
        self.short = {}
        spare = self.spare()
        for candidate in reversed(self.gone[:-1]):
            held = candidate.workload.held
            candidate.node.add(held)
            if candidate.node is not self.node and _covers(spare, held):
                for fr in spare:
                    spare[fr] -= held.get(fr, 0)
            elif self.fits(borrowing):
                spare = self.spare()
            else:
                candidate.node.remove(held)
                stay.append(candidate)
        self.gone = stay[::-1]

    def spare(self) -> dict[FlavorResource, int]:
        """What is left beyond the request."""
        return {fr: self.node.available_raw(fr) - amount for fr, amount in self.request.items()}

    def restore(self) -> list[Target]:
        """As it was before; and who was out at the end."""
        targets = []
        for candidate in self.gone:
            candidate.node.add(candidate.workload.held)
            targets.append(Target(candidate.workload, candidate.reason))
        self.gone = []
        return targets


def _covers(spare: Usage, held: Usage) -> bool:
    for fr, left in spare.items():  # noqa: SIM110 (this is asked very often)
        if held.get(fr, 0) > left:
            return False
    return True


def borrows_any(node: Node, needs: Iterable[FlavorResource]) -> bool:
    return any(node.borrowing_with(fr, 0) for fr in needs)


def requested(usage: Mapping[FlavorResource, int]) -> dict[FlavorResource, int]:
    """What has to be there: nothing of something needs no room."""
    return {fr: amount for fr, amount in usage.items() if amount != 0}
