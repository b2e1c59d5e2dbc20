"""The order of heads under fair sharing. Called by cycle.

In every cohort the children's candidates compete: whose subtree would have the smaller share if its candidate were admitted goes
up. The winner at the root is processed, which changes the shares, and the rest compete again. Trees do not touch each other; they
are taken by the names of their roots.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, TypeVar

from penstock.admission.assignment import Assignment
from penstock.admission.model import Config, Workload
from penstock.admission.order import effective_priority, queue_time
from penstock.admission.quota import Node
from penstock.admission.shares import Share, share
from penstock.admission.state import State


class Head(Protocol):
    workload: Workload
    preemptor: bool
    assignment: Assignment
    node: Node


H = TypeVar("H", bound=Head)
Rank = tuple[bool, bool, Share, int, float, str, str]


def rank(workload: Workload, found: Share, borrows: bool, preemptor: bool, config: Config) -> Rank:
    """Ascending, among the children of one cohort. `found`: the share of the child with the Workload; `borrows`: whether it
    borrows on what the Workload asks for."""
    return (
        config.gate("PrioritizePreemptorWorkloads", False) and not preemptor,
        borrows and config.gate("FairSharingPrioritizeNonBorrowing", True),
        found,
        -effective_priority(workload, config) if config.gate("PrioritySortingWithinCohort", True) else 0,
        queue_time(workload, config),
        workload.uid,
        workload.key,
    )


def in_turn(state: State, heads: Sequence[H]) -> Iterator[H]:
    """Each one after the one before it has been processed."""
    trees: dict[tuple[str, bool], dict[str, H]] = {}
    for head in heads:
        root = head.node.root
        trees.setdefault((root.name, root.is_queue), {})[head.node.name] = head
    for _, left in sorted(trees.items()):
        while len(left) > 1:
            winner = _winner(state, left)
            del left[winner.node.name]
            yield winner
        yield from left.values()


def _winner(state: State, heads: dict[str, H]) -> H:
    """Round by round, up to the root."""
    ranks = {name: _ranks(state, head) for name, head in heads.items()}
    best: dict[str, H] = {}
    depth: dict[str, list[Node]] = {name: [head.node, *head.node.path()] for name, head in heads.items()}
    contenders = dict(heads)
    for level in range(max(map(len, depth.values())) - 1, 0, -1):
        best = {}
        for name, head in contenders.items():
            way = depth[name]
            if len(way) <= level:
                continue
            cohort = way[len(way) - level].name
            if cohort not in best or ranks[name][cohort] < ranks[best[cohort].node.name][cohort]:
                best[cohort] = head
        winners = {head.node.name for head in best.values()}
        contenders = {name: head for name, head in contenders.items() if len(depth[name]) <= level or name in winners}
    return next(iter(contenders.values()))


def _ranks(state: State, head: Head) -> dict[str, Rank]:
    """By cohort on the way up: how the head does among that cohort's children."""
    asked = head.assignment.usage
    wanted = [fr for fr, amount in asked.items() if amount > 0]
    found: dict[str, Rank] = {}
    head.node.add(asked)
    node = head.node
    for above in head.node.path():
        now = share(node)
        found[above.name] = rank(head.workload, now, now.borrows_on(wanted), head.preemptor, state.config)
        node = above
    head.node.remove(asked)
    return found
