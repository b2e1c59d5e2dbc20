"""The order of heads with fair sharing. Called by cycle.

In each cohort the candidates of its children compete, and the one whose subtree would have the smallest share with it admitted goes
up. The winner at the root is processed, which changes the shares, and the others compete again. Trees are independent; they are
taken by the names of their roots.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, TypeVar

from penstock.admission.assignment import Assignment
from penstock.admission.model import Config, Workload
from penstock.admission.order import effective_priority, queue_time
from penstock.admission.quota import QuotaNode
from penstock.admission.shares import Share, share


class Competitor(Protocol):
    workload: Workload
    preemptor: bool
    assignment: Assignment
    node: QuotaNode


C = TypeVar("C", bound=Competitor)
Rank = tuple[bool, bool, Share, int, float, str, str]


def rank(workload: Workload, found: Share, borrows: bool, preemptor: bool, config: Config) -> Rank:
    """Ascending, among the children of one cohort. `found`: the share of the child with the Workload admitted. `borrows`: whether
    the child then borrows what the Workload requests."""
    return (
        config.gate("PrioritizePreemptorWorkloads", False) and not preemptor,
        borrows and config.gate("FairSharingPrioritizeNonBorrowing", True),
        found,
        -effective_priority(workload, config) if config.gate("PrioritySortingWithinCohort", True) else 0,
        queue_time(workload, config),
        workload.uid,
        workload.key,
    )


def in_fair_order(heads: Sequence[C], config: Config) -> Iterator[C]:
    """Each head is yielded after the one before it has been processed."""
    trees: dict[tuple[str, bool], dict[str, C]] = {}
    for head in heads:
        root = head.node.root
        trees.setdefault((root.name, root.is_queue), {})[head.node.name] = head
    for _, left in sorted(trees.items()):
        while len(left) > 1:
            winner = _winner(left, config)
            del left[winner.node.name]
            yield winner
        yield from left.values()


def _winner(heads: dict[str, C], config: Config) -> C:
    """Level by level, up to the root."""
    ranks = {name: _ranks(head, config) for name, head in heads.items()}
    paths: dict[str, list[QuotaNode]] = {name: [head.node, *head.node.path()] for name, head in heads.items()}
    left = dict(heads)
    for level in range(max(map(len, paths.values())) - 1, 0, -1):
        best: dict[str, C] = {}
        for name, head in left.items():
            path = paths[name]
            if len(path) <= level:
                continue
            cohort = path[len(path) - level].name
            if cohort not in best or ranks[name][cohort] < ranks[best[cohort].node.name][cohort]:
                best[cohort] = head
        winners = {head.node.name for head in best.values()}
        left = {name: head for name, head in left.items() if len(paths[name]) <= level or name in winners}
    return next(iter(left.values()))


def _ranks(head: Competitor, config: Config) -> dict[str, Rank]:
    """By cohort on the path to the root: the rank of the head among that cohort's children."""
    usage = head.assignment.usage
    requested = [fr for fr, amount in usage.items() if amount > 0]
    found: dict[str, Rank] = {}
    head.node.add(usage)
    node = head.node
    for ancestor in head.node.path():
        now = share(node)
        found[ancestor.name] = rank(head.workload, now, now.borrows_on(requested), head.preemptor, config)
        node = ancestor
    head.node.remove(usage)
    return found
