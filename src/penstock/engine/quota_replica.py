"""The engine's copy of the scheduler, kept level with the store that several engines share. Called by Admitter and by service.

Every engine has the whole copy and may decide for all: the engine that takes the store's next decision number decides, on what all
engines before it have written. What it decides about another engine's Workloads, that engine reads a moment later and acts on.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from penstock.admission.manifests.config import config_of
from penstock.admission.manifests.read import objects_of
from penstock.admission.model import (
    PODS,
    Check,
    ClusterQueue,
    Cohort,
    Config,
    LocalQueue,
    Namespace,
    Object,
    PriorityClass,
    ResourceFlavor,
    Workload,
)
from penstock.admission.scheduler import Scheduler
from penstock.engine.checks import ask
from penstock.engine.workload_codec import from_document, to_document
from penstock.graph.model import Step
from penstock.store.queue_use import FINE, QueueUse, Use
from penstock.store.records import WorkloadRecord

if TYPE_CHECKING:
    from penstock.store.protocols import QueueStore

KINDS: Mapping[str, type] = {
    "ResourceFlavor": ResourceFlavor,
    "ClusterQueue": ClusterQueue,
    "Cohort": Cohort,
    "LocalQueue": LocalQueue,
    "WorkloadPriorityClass": PriorityClass,
    "AdmissionCheck": Check,
    "Namespace": Namespace,
}
CONFIGURATION = "Configuration"


class QuotaReplica:
    def __init__(self, store: QueueStore, me: str, defaults: Sequence[Object] = ()) -> None:
        self.store = store
        self.me = me
        self.defaults = tuple(defaults)
        """What there is as long as nobody has configured anything."""
        self.version = 0
        self.owners: dict[str, tuple[int, str]] = {}
        """Workload -> its run, and the engine that answers for it."""
        self.configured = False
        self.scheduler = Scheduler()

    def load(self, now: float) -> None:
        """Read everything again."""
        self.version = self.store.last_decision()
        rows = self.store.queue_objects()
        documents = [(kind, json.loads(text)) for kind, _, _, text in rows if text is not None]
        self.configured = any(kind == "ClusterQueue" for kind, _ in documents)
        self.scheduler = Scheduler(_config(documents), ask)
        self.owners = {}
        objects = _objects(doc for kind, doc in documents if kind != CONFIGURATION)
        self.scheduler.apply([*(self.defaults if not self.configured else ()), *objects], now)
        self.scheduler.apply(with_own_names(self.scheduler), now)
        for record in self.store.workloads():
            self._restore(record, now)
        self.scheduler.touched.clear()

    def catch_up(self, now: float, number: int) -> set[str]:
        news = self._news(now)
        self.version = number
        return news

    def _news(self, now: float) -> set[str]:
        news: set[str] = set()
        rows = self.store.queue_objects(self.version)
        if any(kind == CONFIGURATION or text is None or not self.configured for kind, _, _, text in rows):
            mine = set(self.owners)
            self.load(now)
            return mine | set(self.owners)
        if rows:
            self.scheduler.apply(_objects(json.loads(text) for *_, text in rows if text is not None), now)
            self.scheduler.apply(with_own_names(self.scheduler), now)
            news |= self.scheduler.touched
        for record in self.store.workloads(self.version):
            news.add(record.key)
            touched = record.key in self.scheduler.touched
            if record.key in self.scheduler.workloads:
                self.scheduler.remove(record.key, now)
            self.owners.pop(record.key, None)
            if record.state != "over":
                self._restore(record, now)
            if not touched:
                self.scheduler.touched.discard(record.key)
        return news

    def _restore(self, record: WorkloadRecord, now: float) -> None:
        self.owners[record.key] = (record.run, record.engine)
        self.scheduler.submit(from_document(record.document), now)
        self.scheduler.look_again(record.key, now)

    def submit(self, workload: Workload, run: int, now: float) -> None:
        self.owners[workload.key] = (run, self.me)
        self.scheduler.submit(workload, now)

    @property
    def strict(self) -> bool:
        """Is there a queue that must admit even steps that need no resources?"""
        return self.configured and any(self._holds_all(local) for local in self.scheduler.local_queues.values())

    def holds_all(self, name: str | None) -> bool:
        """Is this such a queue: one that counts pods, is stopped, or has admission checks?"""
        found = queue_called(self.scheduler, name) if self.configured else None
        return found is not None and self._holds_all(self.scheduler.local_queues[f"{found[0]}/{found[1]}"])

    def _holds_all(self, local: LocalQueue) -> bool:
        queue = self.scheduler.cluster_queues.get(local.cluster_queue)
        if queue is None:
            return False
        counts = any(PODS in group.resources for group in queue.groups)
        return local.stop != "None" or queue.stop != "None" or bool(queue.checks) or counts

    def queue_for(self, name: str | None) -> tuple[str, str]:
        """(namespace, LocalQueue) of a queue's name: that of a LocalQueue, or of a ClusterQueue. As long as no queue is configured,
        every name means the one default queue."""
        if not self.configured:
            return "default", "default"
        return queue_called(self.scheduler, name) or ("default", name or "default")

    def priority_of(self, named: str | int | None) -> tuple[int, str | None]:
        if named is None or isinstance(named, int):
            return named or 0, None
        found = self.scheduler.priority_classes.get(named)
        return (0, None) if found is None else (found.value, named)

    def contended(self, key: str, own: int) -> bool:
        """Must quota be given back when a task ends, instead of going to the next task? So it is if others wait for it (`own`: how
        many Workloads of the same reservation wait), or if its queue is stopped."""
        workload = self.scheduler.workloads[key]
        local = self.scheduler.local_queues.get(f"{workload.namespace}/{workload.queue}")
        if local is None or local.stop != "None" or self.scheduler.inactive(self.scheduler.queue_of(workload)):
            return True
        return self.scheduler.waiting_beside(key) > own

    def queue_use(self, at: int) -> dict[str, QueueUse]:
        """By ClusterQueue. Empty as long as this machine is the only queue."""
        if not self.configured:
            return {}
        pending, found = self.scheduler.queues.pending, {}
        for name, node in self.scheduler.tree.queues.items():
            many = len(pending.get(name, ()))
            amounts = {}
            for fr in sorted({*node.quotas, *node.usage}):
                used, quota = node.usage.get(fr, 0), node.quotas.get(fr)
                nominal = 0 if quota is None else quota.nominal
                if used or nominal:
                    borrowed = max(0, used - nominal) if node.parent is not None else 0
                    amounts[f"{fr.flavor}/{fr.resource}"] = Use(used, used, used, nominal, borrowed)
            found[name] = QueueUse(at, FINE, Use(many, many, many), amounts)
        return found

    counts_pods = False

    def placed(self, step: Step, planned: Step, key: str) -> Step:
        """Our own flavors are names: what runs here runs where it runs."""
        return step

    def ended(self, run: str) -> None:
        """What it held is in no other place than here."""

    def written(self) -> dict[str, tuple[str, int, int, str, str, str]]:
        """The rows of what has changed since the last time, for the number of this decision."""
        found = {}
        for key in sorted(self.scheduler.touched):
            if key not in self.owners:
                continue
            run, engine = self.owners[key]
            workload = self.scheduler.workloads.get(key)
            if workload is None:
                del self.owners[key]
                found[key] = (key, self.version, run, engine, "over", "{}")
            else:
                found[key] = (key, self.version, run, engine, state_of(workload), to_document(workload))
        self.scheduler.touched.clear()
        return found


def queue_called(scheduler: Scheduler, name: str | None) -> tuple[str, str] | None:
    """None: there is no such queue; or none was named, and there are several."""
    if name is None:
        names = list(scheduler.local_queues.values())
        if "default/default" in scheduler.local_queues:
            return "default", "default"
        targets = {queue.cluster_queue for queue in names} or set(scheduler.cluster_queues)
        if len(targets) != 1:
            return None
        name = next(iter(targets))
        return next(((one.namespace, one.name) for one in names if one.cluster_queue == name), ("default", name))
    key = name if "/" in name else f"default/{name}"
    if key in scheduler.local_queues:
        space, _, local = key.partition("/")
        return space, local
    elsewhere = [one for one in scheduler.local_queues.values() if one.name == name]
    return (elsewhere[0].namespace, name) if len(elsewhere) == 1 else None


def with_own_names(scheduler: Scheduler) -> list[LocalQueue]:
    """A LocalQueue for each ClusterQueue whose name is free, so that `--queue` takes either."""
    return [
        LocalQueue(name=name, cluster_queue=name)
        for name in scheduler.cluster_queues
        if f"default/{name}" not in scheduler.local_queues
    ]


def state_of(workload: Workload) -> str:
    if workload.eviction is not None and workload.admission is not None:
        return "leaving"
    if workload.admission is not None:
        return "held"
    return "gated" if workload.gates else "pending"


def _objects(documents: Iterable[dict[str, Any]]) -> list[Object]:
    """The queues and what belongs to them. Workloads are recorded elsewhere."""
    return [one for one in objects_of(documents) if not isinstance(one, Workload)]


def _config(documents: Iterable[tuple[str, Any]]) -> Config:
    return next((config_of(document) for kind, document in documents if kind == CONFIGURATION), Config())
