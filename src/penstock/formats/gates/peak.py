"""The peak demand of a graph of tasks. Called for the whole-workflow demand of Argo and Tekton documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from penstock.formats.documents import Document
from penstock.graph.antichain import PartialOrder
from penstock.graph.order import NotOrdered, topological


@dataclass(frozen=True, slots=True)
class Unbounded:
    """A place where the demand has no bound."""

    path: str
    document: Document = field(repr=False)
    message: str
    fix: str = ""
    """What helps besides a declaration."""


def peaks(demands: Sequence[Mapping[str, int]], edges: Sequence[tuple[int, int]]) -> dict[str, int]:
    """The peak of each resource. An edge says that one task ends before another starts; implied edges may be left out. If tasks wait
    for one another in a cycle, all tasks are counted."""
    try:
        before: dict[str, set[str]] = {str(node): set() for node in range(len(demands))}
        for first, then in edges:
            before[str(then)].add(str(first))
        at = {int(node): place for place, node in enumerate(topological(before))}
    except NotOrdered:
        at, edges = {node: node for node in range(len(demands))}, ()
    order = PartialOrder(len(demands), {(at[first], at[then]) for first, then in edges})
    found = {}
    for resource in sorted({name for demand in demands for name in demand}):
        weights = [0] * len(demands)
        for node, demand in enumerate(demands):
            weights[at[node]] = demand.get(resource, 0)
        found[resource] = order.heaviest(weights)[0]
    return {name: amount for name, amount in found.items() if amount}
