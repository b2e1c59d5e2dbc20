"""What the screens show of the queues: quota, use, who holds it, who waits and why. Called by `penstock queue`, later by the pages."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.admission.explain import Hold
from penstock.admission.model import ClusterQueue, LocalQueue, Object, Stop, Workload
from penstock.engine.book import Book
from penstock.service import wording
from penstock.service.queueing import book_of, find_queue, named_queues, objects_in
from penstock.service.wording import MACHINE, spell
from penstock.store.sql import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """Of one flavor and resource."""

    flavor: str
    resource: str
    nominal: int
    used: int
    free: int
    """What could be had now, by borrowing too."""
    most: int
    """What could be had if nobody else used anything."""
    borrowed: int
    borrowing: int | None
    lending: int | None

    def as_data(self) -> dict[str, Any]:
        data: dict[str, Any] = {"flavor": self.flavor, "resource": self.resource}
        for name in ("nominal", "used", "borrowed", "free", "most"):
            data[name] = spell(getattr(self, name), self.resource)
        for name, limit in (("borrowing_limit", self.borrowing), ("lending_limit", self.lending)):
            if limit is not None:
                data[name] = spell(limit, self.resource)
        return data


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A Workload that holds quota, or waits for it."""

    workload: str
    run: str
    user: str
    queue: str
    """The LocalQueue."""
    priority: int
    priority_class: str | None
    since: float
    """When it was admitted; of those that wait, when the run was submitted, by which they stand in line."""
    amounts: Mapping[str, Mapping[str, int]]
    """Flavor -> resource -> amount, as held; of those that wait all is under ""."""
    pods: int
    hold: Hold | None = None
    leaving: str = ""
    """Why it is being stopped, if it is."""

    @property
    def name(self) -> str:
        return wording.called(self.workload)

    @property
    def total(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for amounts in self.amounts.values():
            for resource, amount in amounts.items():
                found[resource] = found.get(resource, 0) + amount
        return found

    def as_data(self, position: int = 0) -> dict[str, Any]:
        spelled = {
            flavor: {name: spell(amount, name) for name, amount in amounts.items()}
            for flavor, amounts in self.amounts.items()
        }
        data: dict[str, Any] = {
            "workload": self.workload, "run": self.run, "user": self.user, "queue": self.queue, "priority": self.priority,
            "priority_class": self.priority_class, "pods": self.pods,
        }  # fmt: skip
        if position:
            data |= {"position": position, "submitted": self.since, "asks": spelled.get("", {})}
            data["reason"] = None if self.hold is None else wording.spelled(self.hold.as_data())
        else:
            data |= {"since": self.since, "held": spelled, "leaving": self.leaving or None}
        return data


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueView:
    name: str
    kind: str
    """ClusterQueue, or LocalQueue: then only its own Workloads are listed."""
    cluster_queue: str
    cohort: str
    strategy: str
    stop: str
    why: str
    """Why it admits nobody; empty if it does."""
    amounts: tuple[Amount, ...]
    holding: tuple[Member, ...]
    waiting: tuple[Member, ...]
    """In order."""
    gated: int
    queues: Mapping[str, str] = field(default_factory=dict)
    """Its LocalQueues, with their stop policies."""

    @property
    def state(self) -> str:
        """active · holding: stopped, and what runs may finish · draining: stopped, and what runs is being ended · inactive"""
        return {"Hold": "holding", "HoldAndDrain": "draining"}.get(self.stop, "inactive" if self.why else "active")

    def as_data(self, whole: bool = True) -> dict[str, Any]:
        data: dict[str, Any] = {
            "queue": self.name, "kind": self.kind, "cluster_queue": self.cluster_queue, "cohort": self.cohort or None,
            "strategy": self.strategy, "state": self.state, "why": self.why or None, "pending": len(self.waiting),
            "admitted": len(self.holding), "gated": self.gated, "local_queues": list(self.queues),
            "quota": [amount.as_data() for amount in self.amounts],
        }  # fmt: skip
        if whole:
            data["holding"] = [one.as_data() for one in self.holding]
            data["waiting"] = [one.as_data(place) for place, one in enumerate(self.waiting, 1)]
        return data


class Looking:
    """The queues at one moment."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.now = time.time()
        self.book: Book = book_of(store, self.now)
        # What nobody has decided yet is decided here, to be looked at only: so every wait has its reason.
        self.book.queues.settle(self.now)
        self._runs: dict[int, tuple[str, str]] = {}

    def all(self) -> list[QueueView]:
        """Every ClusterQueue, by cohort and name."""
        found = self.book.queues.cluster_queues
        return [self.view(found[name]) for name in sorted(found, key=lambda name: (found[name].cohort or "", name))]

    def one(self, name: str, explained: int = 1000) -> QueueView:
        """A ClusterQueue or LocalQueue. `explained`: of so many that wait, why. Raises NotFound."""
        return self.view(find_queue(self.book, name), explained)

    def manifest(self, name: str) -> list[dict[str, Any]]:
        """As Kueue has it: the queue; with a ClusterQueue its flavors and LocalQueues too."""
        from penstock.admission.write import document

        found = find_queue(self.book, name)
        if isinstance(found, LocalQueue):
            return [document(found)]
        named = {flavor.flavor for group in found.groups for flavor in group.flavors}
        parts: list[Object] = [flavor for flavor in self.book.queues.flavors.values() if flavor.name in named]
        parts += [found, *(queue for queue in named_queues(self.book.queues) if queue.cluster_queue == found.name)]
        return [document(one) for one in parts]

    def everything(self) -> list[dict[str, Any]]:
        from penstock.admission.write import document

        return [document(one) for one in objects_in(self.book.queues)]

    def view(self, found: ClusterQueue | LocalQueue, explained: int = 0) -> QueueView:
        queues = self.book.queues
        if isinstance(found, LocalQueue):
            name, shown, only = found.cluster_queue, found.key.removeprefix("default/"), found
        else:
            name, shown, only = found.name, found.name, None
        queue = queues.cluster_queues.get(name)

        def counts(workload: Workload) -> bool:
            return only is None or (workload.namespace, workload.queue) == (only.namespace, only.name)

        waiting = [
            (place, one) for place, one in enumerate(queues.pending(name) if queue is not None else ()) if counts(one)
        ]
        # Those of a LocalQueue that is stopped, or leads nowhere, stand in no line.
        listed = {one.key for _, one in waiting}
        waiting += [
            (len(waiting), one)
            for key in queues.members
            if (local := queues.local_queues.get(key)) is not None and local.cluster_queue == name
            for one in map(queues.workloads.__getitem__, queues.members[key])
            if one.admission is None and not one.gates and one.key not in listed and counts(one)
        ]
        holding = [one for one in queues.state.holders.get(name, {}).values() if counts(one)]
        holding.sort(key=lambda one: (one.reserved_at or 0.0, one.key))
        stop = queue.stop if queue is not None else Stop.NONE
        why = queues.inactive(name)
        if only is not None and only.stop is not Stop.NONE:
            stop, why = only.stop, "it is stopped"
        return QueueView(
            name=shown,
            kind="ClusterQueue" if only is None else "LocalQueue",
            cluster_queue=name,
            cohort=(queue.cohort or "") if queue is not None else "",
            strategy=str(queue.strategy) if queue is not None else "",
            stop=str(stop),
            why=why,
            amounts=tuple(self._amounts(name)),
            holding=tuple(self._holds(one) for one in holding),
            waiting=tuple(self._waits(one, number < explained) for number, (_, one) in enumerate(waiting)),
            gated=sum(counts(one) for one in queues.gated(name)),
            queues={
                one.key.removeprefix("default/"): str(one.stop)
                for one in named_queues(queues)
                if one.cluster_queue == name and name != MACHINE
            }
            if only is None
            else {},
        )

    def _amounts(self, name: str) -> Iterable[Amount]:
        node = self.book.queues.tree.queues.get(name)
        for fr, quota in sorted(node.quotas.items()) if node is not None else ():
            assert node is not None
            yield Amount(
                flavor=fr.flavor,
                resource=fr.resource,
                nominal=quota.nominal,
                used=node.usage.get(fr, 0),
                free=node.available(fr),
                most=node.potential(fr),
                # Without a cohort there is nobody to borrow from: the quota was cut.
                borrowed=max(0, node.usage.get(fr, 0) - quota.nominal) if node.parent is not None else 0,
                borrowing=quota.borrowing,
                lending=quota.lending,
            )

    def _holds(self, workload: Workload) -> Member:
        held: dict[str, dict[str, int]] = {}
        for fr, amount in sorted(workload.held.items()):
            if amount:
                held.setdefault(fr.flavor, {})[fr.resource] = amount
        gone = workload.eviction
        leaving = "" if gone is None else wording.eviction({"reason": gone.preempted or gone.reason, "by": gone.by})
        assert workload.admission is not None
        pods = sum(one.count - workload.reclaimable.get(one.name, 0) for one in workload.admission.podsets)
        since = workload.admitted_at or workload.reserved_at or workload.created
        return self._member(workload, since, held, pods, leaving=leaving)

    def _waits(self, workload: Workload, explain: bool) -> Member:
        asks: dict[str, int] = {}
        for podset in workload.podsets:
            for resource, amount in podset.requests.items():
                asks[resource] = asks.get(resource, 0) + amount * podset.count
        hold = self.book.queues.explain(workload.key, self.now) if explain else None
        pods = sum(podset.count for podset in workload.podsets)
        return self._member(workload, workload.created, {"": asks}, pods, hold=hold)

    def _member(
        self, workload: Workload, since: float, amounts: Mapping[str, Mapping[str, int]], pods: int, **rest: Any
    ) -> Member:
        number = self.book.owners.get(workload.key, (0, ""))[0]
        if number not in self._runs:
            run = self.store.run_by_number(number)
            self._runs[number] = ("", "") if run is None else (run.id, run.user)
        id, user = self._runs[number]
        return Member(
            workload=workload.key,
            run=id,
            user=user,
            queue=f"{workload.namespace}/{workload.queue}".removeprefix("default/"),
            priority=workload.priority,
            priority_class=workload.priority_class,
            since=since,
            amounts=amounts,
            pods=pods,
            **rest,
        )
