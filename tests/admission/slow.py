"""The same rules, the slow way: everything is computed again from who holds what. The tests compare the fast way with it."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from penstock.admission.model import Admission, ClusterQueue, Cohort, FlavorResource, Policy, Quota, Workload
from penstock.admission.snapshot import Snapshot

Request = dict[FlavorResource, int]


class Slow:
    """A state in which only `holders` hold quota."""

    def __init__(self, state: Snapshot, holders: Iterable[Workload]) -> None:
        self.state = state
        self.holders = list(holders)
        self.up: dict[str, str | None] = {name: queue.cohort for name, queue in state.cluster_queues.items()}
        cohorts = {queue.cohort for queue in state.cluster_queues.values() if queue.cohort} | set(state.cohorts)
        cohorts |= {cohort.parent for cohort in state.cohorts.values() if cohort.parent}
        for name in cohorts:
            self.up[name] = state.cohorts[name].parent if name in state.cohorts else None

    def without(self, gone: Collection[Workload]) -> Slow:
        return Slow(self.state, [each for each in self.holders if each not in gone])

    def above(self, name: str) -> list[str]:
        found = []
        at = self.up[name]
        while at is not None:
            found.append(at)
            at = self.up[at]
        return found

    def below(self, name: str) -> list[str]:
        return sorted(other for other, parent in self.up.items() if parent == name)

    def quota(self, name: str, fr: FlavorResource) -> Quota:
        owner: ClusterQueue | Cohort | None = self.state.cluster_queues.get(name) or self.state.cohorts.get(name)
        for group in owner.groups if owner is not None else ():
            for flavor in group.flavors:
                if flavor.flavor == fr.flavor and fr.resource in flavor.quotas:
                    return flavor.quotas[fr.resource]
        return Quota(0)

    def subtree(self, name: str, fr: FlavorResource) -> int:
        return self.quota(name, fr).nominal + sum(
            self.subtree(child, fr) - self.local(child, fr) for child in self.below(name)
        )

    def local(self, name: str, fr: FlavorResource) -> int:
        lending = self.quota(name, fr).lending
        return 0 if lending is None else max(0, self.subtree(name, fr) - lending)

    def usage(self, name: str, fr: FlavorResource) -> int:
        if name in self.state.cluster_queues:
            return sum(
                each.held.get(fr, 0)
                for each in self.holders
                if each.admission is not None and each.admission.cluster_queue == name
            )
        return sum(max(0, self.usage(child, fr) - self.local(child, fr)) for child in self.below(name))

    def available(self, name: str, fr: FlavorResource) -> int:
        parent = self.up[name]
        if parent is None:
            return self.subtree(name, fr) - self.usage(name, fr)
        local, usage = self.local(name, fr), self.usage(name, fr)
        found = self.available(parent, fr)
        limit = self.quota(name, fr).borrowing
        if limit is not None:
            found = min(found, self.subtree(name, fr) - local - max(0, usage - local) + limit)
        return max(0, local - usage) + found

    def potential(self, name: str, fr: FlavorResource) -> int:
        parent = self.up[name]
        if parent is None:
            return self.subtree(name, fr)
        found = self.local(name, fr) + self.potential(parent, fr)
        limit = self.quota(name, fr).borrowing
        return found if limit is None else min(found, self.subtree(name, fr) + limit)

    def height(self, name: str) -> int:
        return max((1 + self.height(child) for child in self.below(name)), default=0)

    def within(self, name: str, needs: Collection[FlavorResource]) -> bool:
        return all(self.usage(name, fr) <= self.subtree(name, fr) for fr in needs)

    def fits(self, queue: str, request: Request, borrowing: bool = True) -> bool:
        for fr, amount in request.items():
            if not borrowing and self.usage(queue, fr) + amount > self.quota(queue, fr).nominal:
                return False
            if amount > max(0, self.available(queue, fr)):
                return False
        return True


def allows(policy: Policy, preemptor: Workload, other: Workload) -> bool:
    if policy is Policy.ANY:
        return True
    newer = policy is Policy.LOWER_OR_NEWER and other.priority == preemptor.priority
    return policy is not Policy.NEVER and (
        other.priority < preemptor.priority or (newer and preemptor.created < other.created)
    )


def victims(
    slow: Slow, workload: Workload, queue: str, needs: Collection[FlavorResource], request: Request
) -> list[tuple[str, str]]:
    """Classical preemption, as documented: (key, reason) of each target, sorted."""
    rules = slow.state.cluster_queues[queue].preemption
    nearer: list[tuple[Workload, str, str, bool]] = []
    others: list[tuple[Workload, str, str, bool]] = []
    if slow.up[queue] is not None and rules.reclaim is not Policy.NEVER:
        rest = dict(request)
        seen = {queue}
        advantage = False
        at = queue
        for top in slow.above(queue):
            advantage = advantage or all(
                slow.usage(at, fr) + amount <= slow.subtree(at, fr) for fr, amount in rest.items()
            )
            for fr in rest:
                rest[fr] = max(0, rest[fr] - max(0, slow.local(at, fr) - slow.usage(at, fr)))
            for other in _borrowers(slow, top, needs, seen):
                for each in _holding(slow, other, needs):
                    if not allows(rules.reclaim, workload, each):
                        continue
                    if advantage:
                        nearer.append((each, "InCohortReclamation", top, False))
                    elif (
                        rules.borrow is Policy.NEVER
                        or each.priority >= workload.priority
                        or (rules.borrow_threshold is not None and each.priority > rules.borrow_threshold)
                    ):
                        others.append((each, "InCohortReclamation", top, True))
                    else:
                        others.append((each, "InCohortReclaimWhileBorrowing", top, False))
            seen.add(top)
            at = top
    same = [
        (each, "InClusterQueue", "", False)
        for each in _holding(slow, queue, needs)
        if allows(rules.within, workload, each)
    ]
    listed = [found for kind in (nearer, others, same) for found in sorted(kind, key=_turn)]
    listed.sort(key=lambda found: found[0].eviction is None)
    under = all(slow.usage(queue, fr) < slow.quota(queue, fr).nominal for fr in needs)
    if not (nearer or others) or (rules.borrow is Policy.NEVER and not under):
        attempts = [True]
    elif rules.borrow is Policy.NEVER and not nearer:
        attempts = [False, True]
    else:
        attempts = [True, False]
    for borrowing in attempts:
        if found := _attempt(slow, queue, needs, request, listed, borrowing):
            return sorted((each.key, reason) for each, reason in found)
    return []


def _turn(found: tuple[Workload, str, str, bool]) -> tuple[bool, int, float, str, str]:
    each = found[0]
    return (each.eviction is None, each.priority, -(each.reserved_at or 0.0), each.uid, each.name)


def _holding(slow: Slow, queue: str, needs: Collection[FlavorResource]) -> list[Workload]:
    return [
        each
        for each in slow.holders
        if each.admission is not None and each.admission.cluster_queue == queue and any(fr in each.held for fr in needs)
    ]


def _borrowers(slow: Slow, top: str, needs: Collection[FlavorResource], seen: Collection[str]) -> list[str]:
    found = []
    for child in slow.below(top):
        if child in seen or slow.within(child, needs):
            continue
        if child in slow.state.cluster_queues:
            found.append(child)
        else:
            found += _borrowers(slow, child, needs, seen)
    return found


def _attempt(
    slow: Slow,
    queue: str,
    needs: Collection[FlavorResource],
    request: Request,
    listed: list[tuple[Workload, str, str, bool]],
    borrowing: bool,
) -> list[tuple[Workload, str]]:
    gone: list[tuple[Workload, str]] = []
    for each, reason, top, not_borrowing in listed:
        now = slow.without([other for other, _ in gone])
        assert each.admission is not None
        home = each.admission.cluster_queue
        if home != queue:
            if borrowing and not_borrowing:
                continue
            chain = [home, *slow.above(home)]
            if any(now.within(name, needs) for name in chain[: chain.index(top)]):
                continue
        gone.append((each, reason))
        if slow.without([other for other, _ in gone]).fits(queue, request, borrowing):
            for spared in list(reversed(gone[:-1])):
                left = [found for found in gone if found is not spared]
                if slow.without([other for other, _ in left]).fits(queue, request, borrowing):
                    gone = left
            return gone
    return []


# -- fair sharing -----------------------------------------------------------------------------------------------------

Key = tuple[bool, float]


def declared(slow: Slow, name: str) -> set[FlavorResource]:
    owner: ClusterQueue | Cohort | None = slow.state.cluster_queues.get(name) or slow.state.cohorts.get(name)
    found = {
        FlavorResource(flavor.flavor, resource)
        for group in (owner.groups if owner is not None else ())
        for flavor in group.flavors
        for resource in flavor.quotas
    }
    for child in slow.below(name):
        found |= declared(slow, child)
    return found


def share(slow: Slow, name: str) -> tuple[Key, bool]:
    """What it compares by, and whether it borrows at all."""
    above = slow.up[name]
    if above is None:
        return (False, 0.0), False
    over: dict[str, int] = {}
    for fr in declared(slow, name):
        more = slow.usage(name, fr) - slow.subtree(name, fr)
        if more > 0:
            over[fr.resource] = over.get(fr.resource, 0) + more
    everything = declared(slow, [name, *slow.above(name)][-1])
    ratio = 0.0
    for resource, more in over.items():
        most = sum(slow.potential(above, fr) for fr in everything if fr.resource == resource)
        ratio = max(ratio, more * 1000 / most if most > 0 else 0.0)
    owner: ClusterQueue | Cohort = slow.state.cluster_queues.get(name) or slow.state.cohorts[name]
    if ratio and not owner.weight:
        return (True, ratio), True
    return (False, ratio / owner.weight if ratio else 0.0), bool(over)


class Fair:
    """Fair-sharing preemption, as documented."""

    def __init__(
        self, slow: Slow, workload: Workload, queue: str, needs: Collection[FlavorResource], request: Request
    ) -> None:
        self.slow = slow
        self.queue = queue
        self.needs = needs
        self.request = request
        self.ghost = Workload(name="ghost")
        self.ghost.admission = Admission(queue, ())
        self.ghost.held = request
        self.gone: list[tuple[Workload, str]] = []
        rules = slow.state.cluster_queues[queue].preemption
        found = [each for each in _holding(slow, queue, needs) if allows(rules.within, workload, each)]
        root = [queue, *slow.above(queue)][-1]
        for name in slow.state.cluster_queues if rules.reclaim is not Policy.NEVER else ():
            if name != queue and root in slow.above(name) and not slow.within(name, needs):
                found += [each for each in _holding(slow, name, needs) if allows(rules.reclaim, workload, each)]
        self.found = sorted(found, key=self.turn)

    def turn(self, each: Workload) -> tuple[bool, bool, int, float, str, str]:
        first, *rest = _turn((each, "", "", False))
        return (first, self.home(each) == self.queue, *rest)

    def home(self, each: Workload) -> str:
        assert each.admission is not None
        return each.admission.cluster_queue

    def now(self) -> Slow:
        """With the preemptor's request added."""
        rest = self.slow.without([each for each, _ in self.gone])
        return Slow(self.slow.state, [*rest.holders, self.ghost])

    def take(self, each: Workload, reason: str) -> bool:
        self.gone.append((each, reason))
        return self.fits(self.gone)

    def fits(self, gone: list[tuple[Workload, str]]) -> bool:
        return self.slow.without([each for each, _ in gone]).fits(self.queue, self.request)

    def next(self, left: list[Workload], out: set[str]) -> str | None:
        """The queue to preempt in next. None if nothing is left."""
        slow = self.now()
        path = slow.above(self.queue)
        homes = {self.home(each) for each in left}

        def best(cohort: str) -> str | None:
            queues = {
                name: share(slow, name)[0]
                for name in slow.below(cohort)
                if name in homes and name not in out and (name == self.queue or share(slow, name)[1])
            }
            cohorts = {
                name: share(slow, name)[0]
                for name in slow.below(cohort)
                if name not in slow.state.cluster_queues and (name in path or share(slow, name)[1])
            }
            # A branch in which nobody is left does not stand in the way of the others.
            cohorts = {name: key for name, key in cohorts.items() if best(name) is not None}
            top_queue = min(
                (name for name in queues if queues[name] == max(queues.values())),
                key=lambda name: self.turn(next(each for each in left if self.home(each) == name)),
                default=None,
            )
            top_cohort = max((name for name in cohorts if cohorts[name] == max(cohorts.values())), default=None)
            if top_cohort is not None and (top_queue is None or cohorts[top_cohort] >= queues[top_queue]):
                return best(top_cohort)
            return top_queue

        if not path:
            return self.queue if self.queue in homes and self.queue not in out else None
        return best(path[-1])

    def sides(self, other: str) -> tuple[str, str]:
        slow = self.slow
        mine, theirs = [self.queue, *slow.above(self.queue)], [other, *slow.above(other)]
        meet = next(name for name in mine if name in theirs)
        return mine[mine.index(meet) - 1], theirs[theirs.index(meet) - 1]

    def victims(self, strategies: tuple[str, ...]) -> list[tuple[str, str]]:
        if self.found and self.hunt(strategies):
            for spared in list(reversed(self.gone[:-1])):
                left = [found for found in self.gone if found is not spared]
                if self.fits(left):
                    self.gone = left
            return sorted((each.key, reason) for each, reason in self.gone)
        return []

    def hunt(self, strategies: tuple[str, ...]) -> bool:
        entitled = self.now().within(self.queue, self.needs)
        left, again = list(self.found), []
        while (target := self.next(left, set())) is not None:
            mine = [each for each in left if self.home(each) == target]
            if target == self.queue or entitled:
                left.remove(mine[0])
                if self.take(mine[0], "InClusterQueue" if target == self.queue else "InCohortReclamation"):
                    return True
                continue
            own, other = self.sides(target)
            for each in mine:
                left.remove(each)
                with_it, without_it = self.now(), Slow(self.slow.state, self.now().without([each]).holders)
                if (
                    share(with_it, own)[0] <= share(without_it, other)[0]
                    if strategies[0] == "LessThanOrEqualToFinalShare"
                    else share(with_it, own)[0] < share(with_it, other)[0]
                ):
                    if self.take(each, "InCohortFairSharing"):
                        return True
                    break
                again.append(each)
        out: set[str] = set()
        while len(strategies) > 1 and (target := self.next(again, out)) is not None:
            own, other = self.sides(target)
            first = next(each for each in again if self.home(each) == target)
            out.add(target)
            if share(self.now(), own)[0] < share(self.now(), other)[0] and self.take(first, "InCohortFairSharing"):
                return True
        return False
