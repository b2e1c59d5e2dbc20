"""The quota tree: its leaves are ClusterQueues, its inner nodes are cohorts. The snapshot builds it; flavors, preemption,
fair_preemption, shares and cycle read it.

Each node knows, for each flavor and resource, the quota of its subtree and the usage that counts against it. A simulation changes
the tree itself and undoes the change: `remove` is the exact inverse of `add`. For this reason usage is a plain sum that is never
cut off at UNLIMITED.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from penstock.admission.model import UNLIMITED, ClusterQueue, Cohort, FlavorResource, Quota, ResourceGroup, Usage

BELOW_ALL = -(2**63)
"""The result of a limited amount minus an unlimited one."""


def plus(a: int, b: int) -> int:
    """Unlimited plus anything is unlimited."""
    return UNLIMITED if a >= UNLIMITED or b >= UNLIMITED else min(a + b, UNLIMITED)


def minus(a: int, b: int) -> int:
    """Unlimited minus a limited amount is unlimited; unlimited minus unlimited is 0."""
    if a >= UNLIMITED:
        return 0 if b >= UNLIMITED else UNLIMITED
    return BELOW_ALL if b >= UNLIMITED else max(a - b, BELOW_ALL)


NO_QUOTA = Quota(0)


class FlavorGroup(NamedTuple):
    """A resource group, in the form that the flavor search needs."""

    number: int
    resources: frozenset[str]
    flavors: tuple[str, ...]


class QuotaNode:
    """A ClusterQueue or a cohort in the tree."""

    __slots__ = (
        "_local",
        "_potential",
        "active",
        "children",
        "groups",
        "height",
        "is_queue",
        "lendable",
        "name",
        "parent",
        "quotas",
        "root",
        "subtree",
        "usage",
        "weight",
    )

    def __init__(
        self, name: str, is_queue: bool, groups: Iterable[ResourceGroup] = (), weight: float = 1.0, active: bool = True
    ) -> None:
        self.name = name
        self.is_queue = is_queue
        self.active = active
        """The quota and usage of an inactive queue count in its cohort, but nothing is admitted or preempted in it."""
        self.parent: QuotaNode | None = None
        self.root: QuotaNode = self
        self.children: list[QuotaNode] = []
        """Cohorts, then queues, each sorted by name."""
        self.groups: dict[str, FlavorGroup] = {}
        """By resource."""
        self.quotas: dict[FlavorResource, Quota] = {}
        for number, group in enumerate(groups):
            found = FlavorGroup(number, frozenset(group.resources), tuple(each.flavor for each in group.flavors))
            for resource in group.resources:
                self.groups.setdefault(resource, found)
            for each in group.flavors:
                for resource, quota in each.quotas.items():
                    self.quotas[FlavorResource(each.flavor, resource)] = quota
        self.subtree: dict[FlavorResource, int] = {}
        self.usage: dict[FlavorResource, int] = {}
        self.weight = weight
        self.height = 0
        """The longest path down to a leaf."""
        self._local: dict[FlavorResource, int] = {}
        """The part of the subtree's quota that is not lent. Only with a lending limit."""
        self._potential: dict[FlavorResource, int] = {}
        self.lendable: dict[str, int] | None = None
        """A cache for shares. Like `_potential` it depends on quotas only, so it is valid as long as the tree."""

    def __repr__(self) -> str:
        return f"<{'ClusterQueue' if self.is_queue else 'Cohort'} {self.name}>"

    def path(self) -> Iterator[QuotaNode]:
        """From the parent to the root."""
        node = self.parent
        while node is not None:
            yield node
            node = node.parent

    def leaves(self) -> Iterator[QuotaNode]:
        """The active queues at and below it."""
        if self.is_queue:
            if self.active:
                yield self
            return
        for child in self.children:
            yield from child.leaves()

    def local(self, fr: FlavorResource) -> int:
        return self._local.get(fr, 0)

    def local_available(self, fr: FlavorResource) -> int:
        return max(0, minus(self._local.get(fr, 0), self.usage.get(fr, 0))) if self._local else 0

    def available_raw(self, fr: FlavorResource) -> int:
        """What is unused here. Negative if more is used than the quota, for example after the quota was reduced."""
        parent = self.parent
        if parent is None:
            own, used = self.subtree.get(fr, 0), self.usage.get(fr, 0)
            return own - used if own < UNLIMITED and used < UNLIMITED else minus(own, used)
        above = parent.available_raw(fr)
        quota = self.quotas.get(fr)
        if quota is not None and quota.borrowing is not None:
            above = min(self._bound(fr, quota.borrowing), above)
        return plus(self.local_available(fr), above) if self._local else above

    def _bound(self, fr: FlavorResource, borrowing: int) -> int:
        """What its borrowing limit leaves of what is above."""
        local = self._local.get(fr, 0)
        lent = minus(self.subtree.get(fr, 0), local)
        used_above = max(0, minus(self.usage.get(fr, 0), local))
        return plus(minus(lent, used_above), borrowing)

    def is_bounded(self, fr: FlavorResource) -> bool:
        """Is more unused above than its borrowing limit leaves?"""
        quota = self.quotas.get(fr)
        if self.parent is None or quota is None or quota.borrowing is None:
            return False
        return self._bound(fr, quota.borrowing) < self.parent.available_raw(fr)

    def available(self, fr: FlavorResource) -> int:
        found = self.available_raw(fr)
        return found if found > 0 else 0

    def potential(self, fr: FlavorResource) -> int:
        """What would be available if nothing were in use."""
        found = self._potential.get(fr)
        if found is None:
            if self.parent is None:
                found = self.subtree.get(fr, 0)
            else:
                found = plus(self._local.get(fr, 0), self.parent.potential(fr))
                quota = self.quotas.get(fr)
                if quota is not None and quota.borrowing is not None:
                    found = min(plus(self.subtree.get(fr, 0), quota.borrowing), found)
            self._potential[fr] = found
        return found

    def borrowing_with(self, fr: FlavorResource, amount: int) -> bool:
        """Does it use more than its own quota with this amount added?"""
        own = self.subtree.get(fr, 0)
        return own < self.usage.get(fr, 0) + amount and own < UNLIMITED

    def within(self, frs: Iterable[FlavorResource]) -> bool:
        """Does it use no more than its own quota of all of these?"""
        for fr in frs:
            own = self.subtree.get(fr, 0)
            if own < self.usage.get(fr, 0) and own < UNLIMITED:
                return False
        return True

    def level(self, fr: FlavorResource, amount: int) -> tuple[int, bool]:
        """(borrowing level, whether it is below the root). The level is 0 if its own quota covers this amount more, else the
        height of the lowest cohort above that has it unused, or of the root if none has."""
        if self.parent is None:
            return 0, False
        if not self.borrowing_with(fr, amount):
            return 0, True
        rest = minus(amount, self.local_available(fr))
        for node in self.path():
            if not node.borrowing_with(fr, rest):
                return node.height, node.parent is not None
            rest = minus(rest, node.local_available(fr))
        return self.root.height, False

    def add(self, usage: Usage) -> None:
        for fr, amount in usage.items():
            node: QuotaNode | None = self
            while node is not None:
                used = node.usage.get(fr, 0)
                node.usage[fr] = used + amount
                spare = node._local.get(fr, 0) - used if node._local else -used
                if spare > 0:
                    amount -= spare
                if amount <= 0:
                    break
                node = node.parent

    def remove(self, usage: Usage) -> None:
        for fr, amount in usage.items():
            node: QuotaNode | None = self
            while node is not None:
                used = node.usage.get(fr, 0)
                node.usage[fr] = used - amount
                if amount <= 0:
                    # `add` never passes a negative amount on.
                    break
                passed_on = used - node._local.get(fr, 0) if node._local else used
                if passed_on <= 0:
                    break
                if passed_on < amount:
                    amount = passed_on
                node = node.parent

    def sum_up(self, root: QuotaNode) -> None:
        """Subtree quota and height, from the leaves upward. The usage of a cohort follows from that of its queues."""
        self.root = root
        self.subtree = {fr: quota.nominal for fr, quota in self.quotas.items()}
        if not self.is_queue:
            self.usage = {}
        self.height = 0
        for child in self.children:
            child.sum_up(root)
            if child.active:
                self.height = max(self.height, child.height + 1)
            for fr, amount in child.subtree.items():
                self.subtree[fr] = plus(self.subtree.get(fr, 0), minus(amount, child.local(fr)))
            for fr, amount in child.usage.items():
                self.usage[fr] = self.usage.get(fr, 0) + max(0, amount - child.local(fr))
        self._local = {
            fr: max(0, minus(self.subtree.get(fr, 0), quota.lending))
            for fr, quota in self.quotas.items()
            if quota.lending is not None
        }
        self._potential = {}
        self.lendable = None


class QuotaTree:
    """All ClusterQueues and cohorts, except cohorts in a cycle and everything below them."""

    def __init__(
        self,
        queues: Mapping[str, ClusterQueue],
        cohorts: Mapping[str, Cohort],
        inactive: Collection[str] = frozenset(),
    ) -> None:
        self.queues = {
            name: QuotaNode(name, True, queue.groups, queue.weight, name not in inactive)
            for name, queue in sorted(queues.items())
        }
        named = set(cohorts) | {queue.cohort for queue in queues.values() if queue.cohort}
        named |= {cohort.parent for cohort in cohorts.values() if cohort.parent}
        self.cohorts = {}
        for name in sorted(named):
            cohort = cohorts.get(name)
            self.cohorts[name] = (
                QuotaNode(name, False, weight=0.0)
                if cohort is None
                else QuotaNode(name, False, cohort.groups, cohort.weight)
            )
        self.circular = {name for name in self.cohorts if _in_cycle(name, cohorts)}
        for name in self.circular:
            del self.cohorts[name]
        self.cut_off = {name for name, queue in queues.items() if queue.cohort in self.circular}
        """Queues that cannot admit anything because the cohorts above them form a cycle."""
        for name in self.cut_off:
            del self.queues[name]
        for name, node in self.cohorts.items():
            cohort = cohorts.get(name)
            if cohort is not None and cohort.parent:
                _attach(node, self.cohorts[cohort.parent])
        for name, node in self.queues.items():
            above = queues[name].cohort
            if above:
                _attach(node, self.cohorts[above])
        for root in self.roots():
            root.sum_up(root)

    def roots(self) -> Iterator[QuotaNode]:
        for node in (*self.cohorts.values(), *self.queues.values()):
            if node.parent is None:
                yield node


def _attach(node: QuotaNode, parent: QuotaNode) -> None:
    node.parent = parent
    parent.children.append(node)


def _in_cycle(name: str, cohorts: Mapping[str, Cohort]) -> bool:
    """Does the path upward never end?"""
    seen = set()
    at: str | None = name
    while at is not None:
        if at in seen:
            return True
        seen.add(at)
        cohort = cohorts.get(at)
        at = cohort.parent if cohort is not None and cohort.parent else None
    return False
