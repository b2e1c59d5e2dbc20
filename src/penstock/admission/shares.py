"""How much a ClusterQueue or cohort uses beyond its own, as one number. Called by fair (victims), tournament (order) and whoever
shows it.

The number is the largest, over all resources, of what is borrowed out of a thousand of what the parent could ever lend, divided
by the node's weight. A node of weight 0 that borrows stands above all that have a weight; two of them compare by what they borrow.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import total_ordering

from penstock.admission.model import UNLIMITED, FlavorResource, Usage
from penstock.admission.quota import Node, minus, plus


@total_ordering
class Share:
    """Compares as it counts; the parts are for those who explain it."""

    __slots__ = ("borrowed", "dominant", "key", "ratio", "weight")

    def __init__(
        self, weight: float, ratio: float = 0.0, dominant: str = "", borrowed: tuple[FlavorResource, ...] = ()
    ) -> None:
        self.weight = weight
        self.ratio = ratio
        """Per thousand, before it is divided by the weight."""
        self.dominant = dominant
        """The resource that it comes from; of equal ones the first by name."""
        self.borrowed = borrowed
        """What is borrowed. It may be that nobody could lend it: then the ratio is still 0."""
        boundless = weight == 0 and ratio != 0
        self.key = (boundless, ratio if boundless or ratio == 0 else ratio / weight)
        """What comparisons go by."""

    @property
    def borrowing(self) -> bool:
        return bool(self.borrowed)

    @property
    def weighted(self) -> float:
        return math.inf if self.key[0] else self.key[1]

    @property
    def rounded(self) -> int:
        """Rounded up, UNLIMITED for what has no bounds."""
        return UNLIMITED if self.key[0] else math.ceil(self.key[1])

    def borrows_on(self, frs: Iterable[FlavorResource]) -> bool:
        """Is any of these among what is borrowed?"""
        return bool(self.borrowed) and not frozenset(self.borrowed).isdisjoint(frs)

    def __repr__(self) -> str:
        return f"<Share {self.weighted:g} {self.dominant}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Share) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __lt__(self, other: Share) -> bool:
        return self.key < other.key


def share(node: Node, extra: Usage | None = None) -> Share:
    """Of the node as it is, or with `extra` used on top. A root borrows from nobody."""
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


def lendable(node: Node) -> dict[str, int]:
    """By resource, over all flavors: the most that the node could ever pass down."""
    if node.lendable is None:
        found: dict[str, int] = {}
        for fr in node.root.subtree:
            found[fr.resource] = plus(found.get(fr.resource, 0), node.potential(fr))
        node.lendable = found
    return node.lendable


def borrowing_on(node: Node, requested: Usage) -> bool:
    """Does the node borrow on anything that is requested?"""
    if node.parent is None:
        return False
    return any(amount > 0 and fr in node.subtree and node.borrowing_with(fr, 0) for fr, amount in requested.items())
