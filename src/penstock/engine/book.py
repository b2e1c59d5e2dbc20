"""The queues as this engine knows them, kept level with the store that several engines share. Called by admitting and by service.

Every engine has all of it and may decide for all: whoever takes the next number of the store decides, on what everybody before
has written. What an engine decides about another's Workloads, that one reads a moment later and acts on.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from penstock.admission.config import config_of
from penstock.admission.model import (
    PODS,
    Admission,
    Check,
    CheckState,
    ClusterQueue,
    Cohort,
    Config,
    Eviction,
    LocalQueue,
    Namespace,
    Object,
    PodSet,
    PodSetAssignment,
    PriorityClass,
    Requirement,
    ResourceFlavor,
    Toleration,
    Workload,
)
from penstock.admission.queues import Queues
from penstock.admission.read import objects_of
from penstock.admission.state import usage_of
from penstock.store.base import Standing
from penstock.store.sql import Store

KINDS: Mapping[str, type] = {
    "ResourceFlavor": ResourceFlavor, "ClusterQueue": ClusterQueue, "Cohort": Cohort, "LocalQueue": LocalQueue, "WorkloadPriorityClass": PriorityClass, "AdmissionCheck": Check, "Namespace": Namespace,
}  # fmt: skip
CONFIGURATION = "Configuration"
_encode = json.JSONEncoder(separators=(",", ":")).encode


class Book:
    def __init__(self, store: Store, me: str, defaults: Sequence[Object] = ()) -> None:
        self.store = store
        self.me = me
        self.defaults = tuple(defaults)
        """What there is as long as nobody has configured anything."""
        self.version = 0
        self.owners: dict[str, tuple[int, str]] = {}
        """Workload -> its run, and the engine that answers for it."""
        self.configured = False
        self.queues = Queues()

    def load(self, now: float) -> None:
        """All anew."""
        self.version = self.store.last_decision()
        rows = self.store.queue_objects()
        documents = [(kind, json.loads(text)) for kind, _, _, text in rows if text is not None]
        self.configured = any(kind == "ClusterQueue" for kind, _ in documents)
        self.queues = Queues(_config(documents), answer)
        self.owners = {}
        objects = objects_of(doc for kind, doc in documents if kind != CONFIGURATION)
        self.queues.apply([*(self.defaults if not self.configured else ()), *objects], now)  # type: ignore[list-item]
        self.queues.apply(with_own_names(self.queues), now)
        for standing in self.store.workloads():
            self._restore(standing, now)
        self.queues.touched.clear()

    def catch_up(self, now: float) -> set[str]:
        """What others have written since. Returns the Workloads that they have changed."""
        news: set[str] = set()
        rows = self.store.queue_objects(self.version)
        if any(kind == CONFIGURATION or text is None or not self.configured for kind, _, _, text in rows):
            mine = set(self.owners)
            self.load(now)
            return mine | set(self.owners)
        if rows:
            self.queues.apply(objects_of(json.loads(text) for *_, text in rows if text is not None), now)  # type: ignore[arg-type]
            self.queues.apply(with_own_names(self.queues), now)
            news |= self.queues.touched
        for standing in self.store.workloads(self.version):
            news.add(standing.key)
            touched = standing.key in self.queues.touched
            if standing.key in self.queues.workloads:
                self.queues.remove(standing.key, now)
            self.owners.pop(standing.key, None)
            if standing.state != "over":
                self._restore(standing, now)
            if not touched:
                self.queues.touched.discard(standing.key)
        return news

    def _restore(self, standing: Standing, now: float) -> None:
        self.owners[standing.key] = (standing.run, standing.engine)
        self.queues.submit(from_document(standing.document), now)
        self.queues.look_again(standing.key, now)

    def submit(self, workload: Workload, run: int, now: float) -> None:
        self.owners[workload.key] = (run, self.me)
        self.queues.submit(workload, now)

    @property
    def strict(self) -> bool:
        """Is there a queue that even a step which needs nothing has to be let in by?"""
        return self.configured and any(self._holds_all(local) for local in self.queues.local_queues.values())

    def holds_all(self, name: str | None) -> bool:
        """Is this such a queue? One that counts pods, or is stopped, or checks."""
        found = queue_called(self.queues, name) if self.configured else None
        return found is not None and self._holds_all(self.queues.local_queues[f"{found[0]}/{found[1]}"])

    def _holds_all(self, local: LocalQueue) -> bool:
        queue = self.queues.cluster_queues.get(local.cluster_queue)
        if queue is None:
            return False
        counts = any(PODS in group.resources for group in queue.groups)
        return local.stop != "None" or queue.stop != "None" or bool(queue.checks) or counts

    def queue_for(self, name: str | None) -> tuple[str, str]:
        """(namespace, LocalQueue) of what people call a queue: a LocalQueue, or a ClusterQueue itself. As long as nobody has
        configured any, all names mean the one that there is."""
        if not self.configured:
            return "default", "default"
        return queue_called(self.queues, name) or ("default", name or "default")

    def priority_of(self, named: str | int | None) -> tuple[int, str | None]:
        if named is None or isinstance(named, int):
            return named or 0, None
        found = self.queues.priority_classes.get(named)
        return (0, None) if found is None else (found.value, named)

    def crowded(self, key: str, own: int) -> bool:
        """Must what this Workload has be given back when a task ends, rather than be handed to the next? If anybody else waits
        for it (`own`: how many of its own kin do), or its queue is stopped."""
        workload = self.queues.workloads[key]
        local = self.queues.local_queues.get(f"{workload.namespace}/{workload.queue}")
        if local is None or local.stop != "None" or self.queues.inactive(self.queues.queue_of(workload)):
            return True
        return self.queues.waiting_beside(key) > own

    def written(self) -> dict[str, tuple[str, int, int, str, str, str]]:
        """The rows of what has changed since the last time, to be written with the number of this decision."""
        found = {}
        for key in sorted(self.queues.touched):
            if key not in self.owners:
                continue
            run, engine = self.owners[key]
            workload = self.queues.workloads.get(key)
            if workload is None:
                del self.owners[key]
                found[key] = (key, self.version, run, engine, "over", "{}")
            else:
                found[key] = (key, self.version, run, engine, standing_of(workload), to_document(workload))
        self.queues.touched.clear()
        return found


def answer(name: str, workload: Workload) -> CheckState:
    """What an admission check says: the function that is registered under its name as an entry point of `penstock.checks`, called
    with the Workload. Where there is none, or it breaks, the answer is still to come."""
    found = registered_checks().get(name)
    if found is None:
        return CheckState.PENDING
    try:
        return CheckState(found.load()(workload))
    except Exception:
        return CheckState.PENDING


@cache
def registered_checks() -> dict[str, Any]:
    from importlib.metadata import entry_points

    return {point.name: point for point in entry_points(group="penstock.checks")}


def queue_called(queues: Queues, name: str | None) -> tuple[str, str] | None:
    """None: there is no such queue, or none was named and it is not clear which is meant."""
    if name is None:
        names = list(queues.local_queues.values())
        if "default/default" in queues.local_queues:
            return "default", "default"
        targets = {queue.cluster_queue for queue in names} or set(queues.cluster_queues)
        if len(targets) != 1:
            return None
        name = next(iter(targets))
        return next(((one.namespace, one.name) for one in names if one.cluster_queue == name), ("default", name))
    key = name if "/" in name else f"default/{name}"
    if key in queues.local_queues:
        space, _, local = key.partition("/")
        return space, local
    elsewhere = [one for one in queues.local_queues.values() if one.name == name]
    return (elsewhere[0].namespace, name) if len(elsewhere) == 1 else None


def with_own_names(queues: Queues) -> list[LocalQueue]:
    """A LocalQueue for each ClusterQueue that can be called by its own name, so that `--queue` takes either."""
    return [
        LocalQueue(name=name, cluster_queue=name)
        for name in queues.cluster_queues
        if f"default/{name}" not in queues.local_queues
    ]


def standing_of(workload: Workload) -> str:
    if workload.eviction is not None and workload.admission is not None:
        return "leaving"
    if workload.admission is not None:
        return "held"
    return "gated" if workload.gates else "pending"


def _config(documents: Iterable[tuple[str, Any]]) -> Config:
    return next((config_of(document) for kind, document in documents if kind == CONFIGURATION), Config())


# -- a Workload as text -------------------------------------------------------------------------------------------------


def to_document(workload: Workload) -> str:
    data: dict[str, Any] = {
        "name": workload.name,
        "namespace": workload.namespace,
        "uid": workload.uid,
        "queue": workload.queue,
        "priority": workload.priority,
        "created": workload.created,
        "podsets": [_podset(podset) for podset in workload.podsets],
    }
    for name, empty in _OPTIONAL.items():
        value = getattr(workload, name)
        if value != empty:
            data[name] = value
    if workload.gates:
        data["gates"] = sorted(workload.gates)
    if workload.checks:
        data["checks"] = {name: str(state) for name, state in workload.checks.items()}
    if workload.admission is not None:
        data["admission"] = {
            "queue": workload.admission.cluster_queue,
            "podsets": [
                [one.name, one.count, dict(one.flavors), dict(one.usage)] for one in workload.admission.podsets
            ],
        }
    for name in ("eviction", "last_eviction"):
        eviction = getattr(workload, name)
        if eviction is not None:
            data[name] = [eviction.reason, eviction.at, eviction.preempted, eviction.by]
    return _encode(data)


_OPTIONAL: Mapping[str, Any] = {
    "priority_class": None, "boost": 0, "active": True, "max_seconds": None, "unfit": "", "reclaimable": {}, "reserved_at": None,
    "admitted_at": None, "ready_at": None, "was_ready": False, "requeue_at": None, "requeue_count": 0, "held_back": False, "run_seconds": 0.0,
}  # fmt: skip


def from_document(text: str) -> Workload:
    data = json.loads(text)
    workload = Workload(
        name=data["name"],
        namespace=data["namespace"],
        uid=data["uid"],
        queue=data["queue"],
        priority=data["priority"],
        created=data["created"],
        podsets=tuple(_podset_from(podset) for podset in data["podsets"]),
        gates=frozenset(data.get("gates", ())),
        checks={name: CheckState(state) for name, state in data.get("checks", {}).items()},
    )
    for name in _OPTIONAL:
        if name in data:
            setattr(workload, name, data[name])
    for name in ("eviction", "last_eviction"):
        if name in data:
            setattr(workload, name, Eviction(*data[name]))
    if "admission" in data:
        given = data["admission"]
        workload.admission = Admission(given["queue"], tuple(PodSetAssignment(*one) for one in given["podsets"]))
        workload.held = usage_of(workload.admission, workload.reclaimable, workload.podsets)
    return workload


def _podset(podset: PodSet) -> dict[str, Any]:
    data: dict[str, Any] = {"name": podset.name, "count": podset.count, "requests": dict(podset.requests)}
    for name in ("min_count", "group"):
        if getattr(podset, name) is not None:
            data[name] = getattr(podset, name)
    if podset.selector:
        data["selector"] = dict(podset.selector)
    if podset.affinity is not None:
        data["affinity"] = [[[one.key, one.operator, list(one.values)] for one in term] for term in podset.affinity]
    if podset.tolerations:
        data["tolerations"] = [[one.key, one.operator, one.value, one.effect] for one in podset.tolerations]
    return data


def _podset_from(data: Mapping[str, Any]) -> PodSet:
    affinity = data.get("affinity")
    return PodSet(
        name=data["name"],
        count=data["count"],
        min_count=data.get("min_count"),
        requests=data["requests"],
        selector=data.get("selector", {}),
        affinity=None
        if affinity is None
        else tuple(
            tuple(Requirement(key, operator, tuple(values)) for key, operator, values in term) for term in affinity
        ),
        tolerations=tuple(Toleration(*one) for one in data.get("tolerations", ())),
        group=data.get("group"),
    )
