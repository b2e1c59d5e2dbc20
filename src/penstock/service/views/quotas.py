"""Queues as screens show them: quota, usage, who holds it, who waits and why. Called by `penstock queue`.

They are those of a store (`StoreQueues`), or of a cluster (`controller.inspect.state`)."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from penstock.admission.model import ClusterQueue, Eviction, LocalQueue, Object, Stop, Workload
from penstock.admission.scheduler import Scheduler
from penstock.service import wording
from penstock.service.amounts import UNLIMITED, added, spell
from penstock.service.queues import find_queue, named_queues, objects_in, replica_of
from penstock.service.views.queue_waits import untaken_tasks
from penstock.service.wording import MACHINE
from penstock.store.protocols import EngineStore


@dataclass(frozen=True, slots=True, kw_only=True)
class FlavorUsage:
    """Quota and usage of one resource of one flavor in one queue."""

    flavor: str
    resource: str
    nominal: int
    used: int
    free: int
    """What could be admitted now, with borrowing."""
    most: int
    """What could be admitted if nothing else used quota."""
    borrowed: int
    borrowing: int | None
    """The borrowing limit."""
    lending: int | None
    """The lending limit."""

    @property
    def matters(self) -> bool:
        """Not if nothing is used and the quota is zero or unlimited."""
        return bool(self.used) or 0 < self.nominal < UNLIMITED

    def as_data(self) -> dict[str, Any]:
        figures = {
            "nominal": self.nominal,
            "used": self.used,
            "borrowed": self.borrowed,
            "free": self.free,
            "most": self.most,
            "borrowing_limit": self.borrowing,
            "lending_limit": self.lending,
        }
        spelled = {name: spell(value, self.resource) for name, value in figures.items() if value is not None}
        return {"flavor": self.flavor, "resource": self.resource, **spelled}


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadView:
    """A Workload that holds quota, or waits for it."""

    workload: str
    run: str
    user: str
    queue: str
    """The LocalQueue."""
    priority: int
    priority_class: str | None
    since: float
    """When it was admitted; if it waits, when its run was submitted, which decides its position in the queue."""
    amounts: Mapping[str, Mapping[str, int]]
    """Flavor -> resource -> amount that it holds. If it waits, what it asks for, under ""."""
    pods: int
    name: str
    """For people."""
    reason: Mapping[str, Any] | None = None
    """Why it waits (`Hold.as_data`), if that was asked for."""
    why: str = ""
    """The same in words."""
    leaving: str = ""
    """Why it is being evicted, if it is."""

    @property
    def total(self) -> dict[str, int]:
        return added(self.amounts.values())

    def as_data(self, position: int = 0) -> dict[str, Any]:
        """`position`: in the queue, from 1; 0 if it holds quota."""
        spelled = {
            flavor: {name: spell(amount, name) for name, amount in amounts.items()}
            for flavor, amounts in self.amounts.items()
        }
        data: dict[str, Any] = {
            "workload": self.workload,
            "run": self.run,
            "user": self.user,
            "queue": self.queue,
            "priority": self.priority,
            "priority_class": self.priority_class,
            "pods": self.pods,
        }
        if position:
            data |= {"position": position, "submitted": self.since, "asks": spelled.get("", {})}
            data["reason"] = None if self.reason is None else wording.spelled(self.reason)
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
    """Why it admits nothing; empty if it does."""
    usage: tuple[FlavorUsage, ...]
    holding: tuple[WorkloadView, ...]
    waiting: tuple[WorkloadView, ...]
    """In the order of the queue."""
    gated: int
    queues: Mapping[str, str] = field(default_factory=dict)
    """Its LocalQueues -> their stop policies."""

    @property
    def state(self) -> str:
        """active · holding: stopped, running Workloads may finish · draining: stopped, running Workloads are evicted · inactive"""
        return {"Hold": "holding", "HoldAndDrain": "draining"}.get(self.stop, "inactive" if self.why else "active")

    def as_data(self, workloads: bool = True) -> dict[str, Any]:
        data: dict[str, Any] = {
            "queue": self.name,
            "kind": self.kind,
            "cluster_queue": self.cluster_queue,
            "cohort": self.cohort or None,
            "strategy": self.strategy,
            "state": self.state,
            "why": self.why or None,
            "pending": len(self.waiting),
            "admitted": len(self.holding),
            "gated": self.gated,
            "local_queues": list(self.queues),
            "quota": [one.as_data() for one in self.usage],
        }
        if workloads:
            data["holding"] = [one.as_data() for one in self.holding]
            data["waiting"] = [one.as_data(place) for place, one in enumerate(self.waiting, 1)]
        return data


class QueueSource(Protocol):
    """The queues at one moment, and what is known of their Workloads."""

    @property
    def scheduler(self) -> Scheduler: ...

    @property
    def configured(self) -> bool:
        """Has somebody made queues?"""

    def named_queues(self) -> list[LocalQueue]:
        """The LocalQueues that somebody has made."""

    def owner_of(self, workload: Workload) -> tuple[str, str]:
        """Its run and user."""

    def pods_left(self, workload: Workload) -> int | None:
        """Of a loop: pods of its tasks that neither run nor have ended; None if that is not known."""

    def kept_places(self, queue: str, only: LocalQueue | None) -> int:
        """Workloads, of a ClusterQueue or only of one LocalQueue, that keep a place and are in no queue."""

    def reason(self, key: str) -> Mapping[str, Any]:
        """Why a Workload waits, as `Hold.as_data`."""

    def shown(self, reason: Mapping[str, Any]) -> Mapping[str, Any]:
        """The same, for people."""

    def name(self, key: str) -> str: ...


class StoreQueues:
    """The queues of a store, with its runs."""

    def __init__(self, store: EngineStore) -> None:
        self.store = store
        self.now = time.time()
        self.replica = replica_of(store.queues, self.now)
        # Decide, on this copy only, what no engine has decided yet, so that every wait has its reason.
        self.replica.scheduler.settle(self.now)
        self._runs: dict[int, tuple[str, str]] = {}

    @property
    def scheduler(self) -> Scheduler:
        return self.replica.scheduler

    @property
    def configured(self) -> bool:
        return self.replica.configured

    def named_queues(self) -> list[LocalQueue]:
        return named_queues(self.scheduler)

    def owner_of(self, workload: Workload) -> tuple[str, str]:
        number = self.replica.owners.get(workload.key, (0, ""))[0]
        if number not in self._runs:
            run = self.store.runs.by_number(number)
            self._runs[number] = ("", "") if run is None else (run.id, run.user)
        return self._runs[number]

    def pods_left(self, workload: Workload) -> int | None:
        least = workload.podsets[0].min_count
        if len(workload.podsets) != 1 or least is None:
            return None
        number = self.replica.owners.get(workload.key, (0, ""))[0]
        left = untaken_tasks(self.store.runs, number, self.name(workload.key).partition("/")[2])
        return None if left is None else left * least

    def kept_places(self, queue: str, only: LocalQueue | None) -> int:
        return 0  # here such Workloads are gated

    def reason(self, key: str) -> Mapping[str, Any]:
        return self.scheduler.explain(key, self.now).as_data()

    def shown(self, reason: Mapping[str, Any]) -> Mapping[str, Any]:
        return reason

    def name(self, key: str) -> str:
        return wording.workload_name(key)


class QueueReader:
    """What there is to see of the queues."""

    def __init__(self, source: QueueSource) -> None:
        self.source = source
        self.queues = source.scheduler

    def all(self) -> list[QueueView]:
        """Every ClusterQueue, by cohort and name."""
        found = self.queues.cluster_queues
        return [self.view(found[name]) for name in sorted(found, key=lambda name: (found[name].cohort or "", name))]

    def one(self, name: str, explained: int = 1000) -> QueueView:
        """A ClusterQueue or LocalQueue. `explained`: for how many waiting Workloads the reason is worked out. Raises NotFound."""
        return self.view(self._find(name), explained)

    def _find(self, name: str) -> ClusterQueue | LocalQueue:
        return find_queue(self.queues, self.source.named_queues(), name, self.source.configured)

    def manifest(self, name: str) -> list[dict[str, Any]]:
        """The queue as Kueue's manifest; a ClusterQueue with its flavors and LocalQueues. Raises NotFound."""
        from penstock.admission.manifests.write import document

        found = self._find(name)
        if isinstance(found, LocalQueue):
            return [document(found)]
        named = {flavor.flavor for group in found.groups for flavor in group.flavors}
        parts: list[Object] = [flavor for flavor in self.queues.flavors.values() if flavor.name in named]
        parts += [
            found,
            *(queue for queue in self.source.named_queues() if queue.cluster_queue == found.name),
        ]
        return [document(one) for one in parts]

    def manifests(self) -> list[dict[str, Any]]:
        """Everything that is configured."""
        from penstock.admission.manifests.write import document

        return [document(one) for one in objects_in(self.queues, self.source.named_queues())]

    def view(self, found: ClusterQueue | LocalQueue, explained: int = 0) -> QueueView:
        queues = self.queues
        if isinstance(found, LocalQueue):
            name, shown, only = found.cluster_queue, found.key.removeprefix("default/"), found
        else:
            name, shown, only = found.name, found.name, None
        queue = queues.cluster_queues.get(name)
        holding = [one for one in queues.cache.snapshot.holders.get(name, {}).values() if _is_of(one, only)]
        holding.sort(key=lambda one: (one.reserved_at or 0.0, one.key))
        stop = queue.stop if queue is not None else Stop.NONE
        why = queues.inactive(name)
        if only is not None and only.stop is not Stop.NONE:
            stop, why = only.stop, "it is stopped"
        local_queues = {}
        if only is None and name != MACHINE:
            mine = [one for one in self.source.named_queues() if one.cluster_queue == name]
            local_queues = {one.key.removeprefix("default/"): str(one.stop) for one in mine}
        return QueueView(
            name=shown,
            kind="ClusterQueue" if only is None else "LocalQueue",
            cluster_queue=name,
            cohort=(queue.cohort or "") if queue is not None else "",
            strategy=str(queue.strategy) if queue is not None else "",
            stop=str(stop),
            why=why,
            usage=tuple(self._usage(name)),
            holding=tuple(self._holds(one) for one in holding),
            waiting=tuple(
                self._waits(one, number < explained) for number, one in enumerate(self._waiting(name, queue, only))
            ),
            gated=sum(_is_of(one, only) for one in queues.gated(name)) + self.source.kept_places(name, only),
            queues=local_queues,
        )

    def _waiting(self, name: str, queue: ClusterQueue | None, only: LocalQueue | None) -> list[Workload]:
        queues = self.queues
        waiting = [one for one in (queues.pending(name) if queue is not None else ()) if _is_of(one, only)]
        # Workloads of a LocalQueue that is stopped, or names no ClusterQueue, are in no pending queue.
        listed = {one.key for one in waiting}
        for key in queues.members:
            local = queues.local_queues.get(key)
            if local is not None and local.cluster_queue == name:
                others = map(queues.workloads.__getitem__, queues.members[key])
                waiting += [
                    one
                    for one in others
                    if one.admission is None and not one.gates and one.key not in listed and _is_of(one, only)
                ]
        return waiting

    def _usage(self, name: str) -> Iterable[FlavorUsage]:
        node = self.queues.tree.queues.get(name)
        for fr, quota in sorted(node.quotas.items()) if node is not None else ():
            assert node is not None
            yield FlavorUsage(
                flavor=fr.flavor,
                resource=fr.resource,
                nominal=quota.nominal,
                used=node.usage.get(fr, 0),
                free=node.available(fr),
                most=node.potential(fr),
                # Without a cohort nothing can be borrowed: more is used than the quota because the quota was reduced.
                borrowed=max(0, node.usage.get(fr, 0) - quota.nominal) if node.parent is not None else 0,
                borrowing=quota.borrowing,
                lending=quota.lending,
            )

    def _holds(self, workload: Workload) -> WorkloadView:
        held: dict[str, dict[str, int]] = {}
        for fr, amount in sorted(workload.held.items()):
            if amount:
                held.setdefault(fr.flavor, {})[fr.resource] = amount
        gone = workload.eviction
        leaving = "" if gone is None else self._eviction(gone)
        assert workload.admission is not None
        pods = sum(one.count - workload.reclaimable.get(one.name, 0) for one in workload.admission.podsets)
        since = workload.admitted_at or workload.reserved_at or workload.created
        return self._workload(workload, since, held, pods, leaving=leaving)

    def _waits(self, workload: Workload, explain: bool) -> WorkloadView:
        asks = added(
            {resource: amount * podset.count for resource, amount in podset.requests.items()}
            for podset in workload.podsets
        )
        reason = self.source.reason(workload.key) if explain else None
        why = "" if reason is None else wording.cause(self.source.shown(reason))
        pods = sum(podset.count for podset in workload.podsets)
        left = self.source.pods_left(workload)
        if left is not None and left < pods:
            asks = {resource: amount * left // pods for resource, amount in asks.items()}
            pods = left
        return self._workload(workload, workload.created, {"": asks}, pods, reason=reason, why=why)

    def _eviction(self, gone: Eviction) -> str:
        by = f"/{self.source.name(gone.by)}" if gone.by else ""
        return wording.eviction({"reason": gone.preempted or gone.reason, "by": by})

    def _workload(
        self, workload: Workload, since: float, amounts: Mapping[str, Mapping[str, int]], pods: int, **rest: Any
    ) -> WorkloadView:
        run, user = self.source.owner_of(workload)
        return WorkloadView(
            workload=workload.key,
            run=run,
            user=user,
            queue=f"{workload.namespace}/{workload.queue}".removeprefix("default/"),
            priority=workload.priority,
            priority_class=workload.priority_class,
            since=since,
            amounts=amounts,
            pods=pods,
            name=self.source.name(workload.key),
            **rest,
        )


def _is_of(workload: Workload, queue: LocalQueue | None) -> bool:
    """Does it belong to this LocalQueue? None: all do."""
    return queue is None or (workload.namespace, workload.queue) == (queue.namespace, queue.name)
