"""How much a ClusterQueue or cohort uses beyond its own quota, as one number: the dominant resource share of fair sharing. Called by
fair_preemption and fair_order.

The number is the maximum, over all resources, of borrowed * 1000 / what the parent could ever lend, divided by the node's weight. A
node of weight 0 that borrows is above all nodes that have a weight; two of them compare by what they borrow.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import total_ordering

from penstock.admission.model import UNLIMITED, FlavorResource, Usage
from penstock.admission.quota import QuotaNode, minus, plus


@total_ordering
class Share:
    __slots__ = ("borrowed", "dominant", "key", "ratio", "weight")

    def __init__(
        self, weight: float, ratio: float = 0.0, dominant: str = "", borrowed: tuple[FlavorResource, ...] = ()
    ) -> None:
        self.weight = weight
        self.ratio = ratio
        """Per thousand, before division by the weight."""
        self.dominant = dominant
        """The resource with the maximum. Of equal ones the first by name."""
        self.borrowed = borrowed
        """What is borrowed. If the parent can lend nothing of it, the ratio is still 0."""
        unbounded = weight == 0 and ratio != 0
        self.key = (unbounded, ratio if unbounded or ratio == 0 else ratio / weight)
        """What shares are compared by."""

    @property
    def unbounded(self) -> bool:
        return self.key[0]

    @property
    def borrowing(self) -> bool:
        return bool(self.borrowed)

    @property
    def weighted(self) -> float:
        return math.inf if self.unbounded else self.key[1]

    @property
    def rounded(self) -> int:
        """Rounded up. UNLIMITED if it is unbounded."""
        return UNLIMITED if self.unbounded else math.ceil(self.key[1])

    def borrows_on(self, frs: Iterable[FlavorResource]) -> bool:
        """Is any of these borrowed?"""
        return bool(self.borrowed) and not frozenset(self.borrowed).isdisjoint(frs)

    def __repr__(self) -> str:
        return f"<Share {self.weighted:g} {self.dominant}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Share) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __lt__(self, other: Share) -> bool:
        return self.key < other.key


def share(node: QuotaNode, extra: Usage | None = None) -> Share:
    """Of the node as it is, or with `extra` added to its usage. A root does not borrow."""
    parent = node.parent
    if parent is None:
        return Share(node.weight)
    usage = node.usage
    borrowed: list[FlavorResource] = []
    amounts: dict[str, int] = {}
    for fr, quota in node.subtree.items():
        used = usage.get(fr, 0)
        if extra is not None:
            used += extra.get(fr, 0)
        if used > quota and (over := minus(used, quota)) > 0:
            borrowed.append(fr)
            amounts[fr.resource] = plus(amounts.get(fr.resource, 0), over)
    if not borrowed:
        return Share(node.weight)
    can_lend = parent.lendable if parent.lendable is not None else lendable(parent)
    ratio, dominant = 0.0, ""
    for resource, over in amounts.items():
        most = can_lend.get(resource, 0)
        if most <= 0:
            continue
        here = float(over) * 1000.0 / float(most)
        if here > ratio or (here == ratio and resource < dominant):
            ratio, dominant = here, resource
    return Share(node.weight, ratio, dominant, tuple(borrowed))


def lendable(node: QuotaNode) -> dict[str, int]:
    """By resource, over all flavors: the most that the node could ever lend to its children."""
    if node.lendable is None:
        found: dict[str, int] = {}
        for fr in node.root.subtree:
            found[fr.resource] = plus(found.get(fr.resource, 0), node.potential(fr))
        node.lendable = found
    return node.lendable
