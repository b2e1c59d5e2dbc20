"""YuniKorn's queues as Kueue's objects, with a Report of what Kueue has no place for. Called by service.yunikorn and service.access.

A parent is a Cohort, a leaf a ClusterQueue with a LocalQueue; what a queue is guaranteed is its nominal quota, and what it may have above that it borrows. The
root has the rest of the cluster, which YuniKorn counts itself and Kueue must be told.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.formats.report import Report
from penstock.graph import quantity
from penstock.scheduling.queues.model import Amounts, Partition, Queue, full_name

API: Final = "kueue.x-k8s.io/v1beta2"
FLAVOR: Final = "default-flavor"
ALWAYS: Final = ("cpu", "memory")
UNLIMITED: Final = 2**50 * 1000
"""Thousandths. For a root whose size is not known."""
_OTHER: Final = re.compile(r"[^a-z0-9-]+")
_LOST: Final = {
    "application.sort.policy": "Kueue orders by priority and time of submission",
    "application.sort.priority": "Kueue orders by priority and time of submission",
    "priority.offset": "Kueue has no offsets: use a WorkloadPriorityClass for each queue",
    "priority.policy": "Kueue has no fences of priority",
    "preemption.delay": "Kueue preempts at once",
    "quota.preemption.delay": "Kueue does not evict when a quota shrinks",
}


@dataclass(slots=True)
class Converted:
    documents: list[dict[str, Any]]
    report: Report
    names: dict[str, str] = field(default_factory=dict)
    """The full name of a leaf → its ClusterQueue."""


def to_kueue(partition: Partition, namespace: str = "default", capacity: Amounts | None = None) -> Converted:
    """`capacity`: of the whole cluster."""
    return _Converter(partition, namespace, capacity or {}).convert()


class _Converter:
    def __init__(self, partition: Partition, namespace: str, capacity: Amounts) -> None:
        self.partition, self.namespace, self.capacity = partition, namespace, capacity
        self.report = Report()
        lines = list(partition.root.walk())
        self.resources = sorted(
            {*ALWAYS, *capacity, *(name for line in lines for name in (*line[-1].guaranteed, *line[-1].most))}
        )
        self.names: dict[str, str] = {}
        self.taken: set[str] = set()
        self.called: dict[str, str] = {}
        """Full names → names in Kubernetes."""

    def convert(self) -> Converted:
        found: list[dict[str, Any]] = [_object("ResourceFlavor", FLAVOR, {})]
        for line in self.partition.root.walk():
            one = line[-1]
            self.losses(line)
            name = self.name(line)
            if one.parent:
                found.append(self.cohort(line, name))
            else:
                self.names[full_name(line)] = name
                found += [self.cluster_queue(line, name), self.local_queue(name)]
        self.told()
        return Converted(found, self.report, self.names)

    def name(self, line: tuple[Queue, ...]) -> str:
        """Kubernetes' names have no `_`, `:`, `#`, `/` and `@`."""
        wanted = ".".join(_OTHER.sub("-", one.name).strip("-") or "queue" for one in line)
        found, number = wanted, 2
        while found in self.taken:
            found, number = f"{wanted}-{number}", number + 1
        self.taken.add(found)
        self.called[full_name(line)] = found
        if found != full_name(line):
            self.report.changed(
                line[-1].path, f"{full_name(line)} is called {found}: names in Kubernetes have fewer characters"
            )
        return found

    # -- quotas -------------------------------------------------------------------------------------------------------

    def cohort(self, line: tuple[Queue, ...], name: str) -> dict[str, Any]:
        one = line[-1]
        spec: dict[str, Any] = {} if len(line) == 1 else {"parentName": self.called[full_name(line[:-1])]}
        quotas = {}
        for resource in self.resources:
            below = sum(guarantee(child, resource) for child in one.queues)
            if len(line) == 1:
                quotas[resource] = {"nominalQuota": self.rest(resource, below)}
                continue
            own = max(0, one.guaranteed.get(resource, 0) - below)
            quotas[resource] = {"nominalQuota": own}
            if resource in one.most:
                quotas[resource]["borrowingLimit"] = max(0, one.most[resource] - below - own)
        spec["resourceGroups"] = self.groups(quotas)
        return _object("Cohort", name, spec)

    def rest(self, resource: str, guaranteed: int) -> int:
        """What the root itself owns: all that is guaranteed to nobody."""
        if resource in self.capacity:
            if guaranteed > self.capacity[resource]:
                said = f"{quantity.short(guaranteed, resource)} {resource} are guaranteed, and the cluster has {quantity.short(self.capacity[resource], resource)}"
                self.report.changed(self.partition.root.path, said, "guarantee less")
            return max(0, self.capacity[resource] - guaranteed)
        tops = [child.most.get(resource) for child in self.partition.root.queues]
        if tops and all(top is not None for top in tops):
            return max(0, sum(top or 0 for top in tops) - guaranteed)
        return UNLIMITED

    def cluster_queue(self, line: tuple[Queue, ...], name: str) -> dict[str, Any]:
        one = line[-1]
        quotas: dict[str, dict[str, int]] = {}
        for resource in self.resources:
            nominal = one.guaranteed.get(resource, 0)
            quotas[resource] = {"nominalQuota": nominal}
            if resource in one.most:
                quotas[resource]["borrowingLimit"] = max(0, one.most[resource] - nominal)
        reclaims = self.partition.preemption and self.property(line, "preemption.policy") != "disabled"
        return _object(
            "ClusterQueue",
            name,
            {
                "cohortName": self.called[full_name(line[:-1])],
                "namespaceSelector": {},
                "queueingStrategy": "BestEffortFIFO",
                "preemption": {"reclaimWithinCohort": "Any" if reclaims else "Never", "withinClusterQueue": "Never"},
                "resourceGroups": self.groups(quotas),
            },
        )

    def property(self, line: tuple[Queue, ...], name: str) -> str:
        """Of the queue, or of the nearest above it."""
        return next((one.properties[name] for one in reversed(line) if name in one.properties), "")

    def groups(self, quotas: Mapping[str, Mapping[str, int]]) -> list[dict[str, Any]]:
        listed = [
            {"name": name, **{key: quantity.show(amount, name) for key, amount in found.items()}}
            for name, found in quotas.items()
        ]
        return [{"coveredResources": list(quotas), "flavors": [{"name": FLAVOR, "resources": listed}]}]

    def local_queue(self, name: str) -> dict[str, Any]:
        short = name.removeprefix("root.")
        found = _object("LocalQueue", short, {"clusterQueue": name})
        found["metadata"]["namespace"] = self.namespace
        return found

    # -- what is said -------------------------------------------------------------------------------------------------

    def losses(self, line: tuple[Queue, ...]) -> None:
        one, name = line[-1], full_name(line)
        for what, said, advice in _losses(one):
            self.report.lost(f"{one.path}.{what}", f"{name}: {said}", advice)
        for key, value in one.properties.items():
            if key == "preemption.policy" and value == "disabled":
                self.report.kept(f"{one.path}.properties.{key}", f"{name}: it reclaims nothing from others")
                self.report.lost(
                    f"{one.path}.properties.{key}", f"{name}: others may still reclaim their quota from it"
                )
            elif key == "preemption.policy" and value == "fence":
                self.report.lost(f"{one.path}.properties.{key}", f"{name}: a fence", "a Cohort without a parent is one")
            elif key in _LOST:
                self.report.lost(f"{one.path}.properties.{key}", f"{name}: {_LOST[key]}")
            elif key != "preemption.policy":
                self.report.lost(f"{one.path}.properties.{key}", f"{name}: nothing reads it")

    def told(self) -> None:
        root = self.partition.root
        unknown = [name for name in self.resources if self.rest(name, 0) == UNLIMITED]
        if unknown:
            said = f"the root has the nodes' resources in YuniKorn, and Kueue must be told: there is no bound to {', '.join(unknown)}"
            self.report.changed(root.path, said, "say it: --capacity cpu=64,memory=256Gi")
        if self.partition.rules:
            self.report.lost("placementrules", "no rule places a job in Kueue", "name the LocalQueue in its label")
        for name in self.partition.others:
            self.report.lost(name, "Kueue does not choose nodes", "use topology-aware scheduling")
        if self.partition.preemption:
            said = "a queue below its guarantee takes from others at once and whatever their priority; in YuniKorn after a delay, from equal or lower priority"
            self.report.changed("preemption", said)
        leaves = [line for line in root.walk() if not line[-1].parent]
        self.report.kept("queues", f"{len(leaves)} leaves are ClusterQueues with their guarantees and bounds")


def _losses(one: Queue) -> Iterator[tuple[str, str, str]]:
    if one.applications:
        yield (
            "maxapplications",
            "Kueue counts no applications",
            "cover `pods`, or a resource that each job asks for once",
        )
    if one.submit is not None:
        advice = "with the embedded queues it is honoured; on a cluster use RBAC on the namespace of the LocalQueue"
        yield "submitacl", "Kueue has no ACLs", advice
    if one.admin is not None:
        yield "adminacl", "Kueue has no ACLs", "use RBAC on ClusterQueues"
    for limit in one.limits:
        who = ", ".join((*limit.users, *limit.groups))
        yield (
            "limits",
            f"Kueue has no limits for users and groups ({who})",
            "one ClusterQueue for each, with its own bound",
        )
    if one.template:
        yield "childtemplate", "Kueue makes no queues by itself", "write each queue"


def guarantee(one: Queue, resource: str) -> int:
    """What a queue takes from those above it: its own, or the sum of its children's."""
    below = sum(guarantee(child, resource) for child in one.queues)
    return max(one.guaranteed.get(resource, 0), below)


def _object(kind: str, name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    return {"apiVersion": API, "kind": kind, "metadata": {"name": name}, "spec": dict(spec)}
