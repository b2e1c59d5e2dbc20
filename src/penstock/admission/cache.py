"""What is configured and who holds quota: Kueue's scheduler cache. The scheduler puts objects in; queues, cycle, lifecycle and explain
read it. Decisions are made on its `snapshot`.

After quota objects have changed, `rebuild` works out which ClusterQueues are inactive and builds the quota tree again. That is
rare.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from penstock.admission.model import (
    Check,
    ClusterQueue,
    Cohort,
    Config,
    FlavorResource,
    LocalQueue,
    Namespace,
    Object,
    PriorityClass,
    Requirement,
    ResourceFlavor,
    Selector,
    Stop,
    Workload,
)
from penstock.admission.snapshot import Snapshot, usage_of
from penstock.admission.usage import UsageLedger


class SchedulerCache:
    def __init__(self, config: Config) -> None:
        self.config = config
        self.snapshot = Snapshot(config)
        self.local_queues: dict[str, LocalQueue] = {}
        self.priority_classes: dict[str, PriorityClass] = {}
        self.namespaces: dict[str, Namespace] = {}
        self.checks: dict[str, Check] = {}
        self.why_inactive: dict[str, str] = {}
        """By ClusterQueue, for those that are inactive."""
        self.roots: dict[str, str] = {}
        """ClusterQueue -> the root of its tree. ClusterQueues below a cycle of cohorts have none."""
        self.trees: dict[str, list[str]] = {}
        """Root -> its ClusterQueues."""
        self.ledger: UsageLedger | None = None
        """None: admission fair sharing is off."""
        if config.half_life is not None and config.gate("AdmissionFairSharing", True):
            self.ledger = UsageLedger(config, self._weight)
            self.snapshot.local_usage = self.local_usage

    @property
    def flavors(self) -> dict[str, ResourceFlavor]:
        return self.snapshot.flavors

    @property
    def cluster_queues(self) -> dict[str, ClusterQueue]:
        return self.snapshot.cluster_queues

    @property
    def cohorts(self) -> dict[str, Cohort]:
        return self.snapshot.cohorts

    # -- objects ------------------------------------------------------------------------------------------------------

    def put(self, found: Object) -> bool:
        """Add or replace. Must `rebuild` follow?"""
        self._objects(type(found))[found.key if isinstance(found, LocalQueue) else found.name] = found
        return not isinstance(found, LocalQueue | PriorityClass)

    def delete(self, kind: type[Any], name: str) -> bool:
        """`name` of a LocalQueue: "namespace/name". Must `rebuild` follow?"""
        found = self._objects(kind).pop(name, None)
        return found is not None and kind not in (LocalQueue, PriorityClass)

    def _objects(self, kind: type[Any]) -> dict[str, Any]:
        objects: dict[type[Any], dict[str, Any]] = {
            ResourceFlavor: self.flavors,
            ClusterQueue: self.cluster_queues,
            Cohort: self.cohorts,
            LocalQueue: self.local_queues,
            PriorityClass: self.priority_classes,
            Namespace: self.namespaces,
            Check: self.checks,
        }
        return objects[kind]

    def rebuild(self) -> None:
        """The tree, and which ClusterQueues are inactive."""
        why = {name: found for name, queue in self.cluster_queues.items() if (found := self._misconfigured(queue))}
        self.snapshot.inactive = set(why)
        self.snapshot.rebuild()
        tree = self.snapshot.tree
        for name in sorted(tree.cut_off):
            why[name] = f"the cohorts above it form a circle: {', '.join(sorted(tree.circular))}"
        self.why_inactive = why
        self.roots, self.trees = {}, {}
        for name, node in tree.queues.items():
            root = node.root
            self.roots[name] = f"{'queue' if root.is_queue else 'cohort'}/{root.name}"
            self.trees.setdefault(self.roots[name], []).append(name)

    def _misconfigured(self, queue: ClusterQueue) -> str:
        """Why it can admit nothing."""
        found = []
        if queue.stop is not Stop.NONE:
            found.append("it is stopped")
        named = {flavor.flavor for group in queue.groups for flavor in group.flavors}
        if missing := sorted(named - self.flavors.keys()):
            found.append(f"flavor {', '.join(missing)} not found")
        checks = {rule.name for rule in queue.checks}
        if missing := sorted(checks - self.checks.keys()):
            found.append(f"admission check {', '.join(missing)} not found")
        if broken := sorted(name for name in checks & self.checks.keys() if not self.checks[name].active):
            found.append(f"admission check {', '.join(broken)} is not active")
        return "; ".join(found)

    # -- queues -------------------------------------------------------------------------------------------------------

    def inactive(self, queue: str) -> str:
        """Why a ClusterQueue admits nothing. Empty if it is active."""
        if queue not in self.cluster_queues:
            return "it does not exist"
        return self.why_inactive.get(queue, "")

    def queue_of(self, workload: Workload) -> str:
        """The ClusterQueue that the Workload is admitted to, or waits for. Empty if there is none."""
        if workload.admission is not None:
            return workload.admission.cluster_queue
        local_queue = self.local_queues.get(workload.local_queue)
        return local_queue.cluster_queue if local_queue is not None else ""

    def admits(self, queue: str) -> Callable[[str], bool] | None:
        """Which namespaces a ClusterQueue admits Workloads from. None: all of them."""
        selector = self.cluster_queues[queue].namespaces
        if selector is not None and not selector.requirements:
            return None
        return lambda name: self.admits_from(queue, name)

    def admits_from(self, queue: str, namespace: str) -> bool:
        found = self.namespaces.get(namespace)
        return selects(self.cluster_queues[queue].namespaces, found.labels if found is not None else {})

    # -- usage --------------------------------------------------------------------------------------------------------

    def usage_of(self, workload: Workload) -> dict[FlavorResource, int]:
        """What its admission uses, minus the pods that are no longer needed."""
        assert workload.admission is not None
        reclaimable = workload.reclaimable if self.config.gate("ReclaimablePods", True) else {}
        return usage_of(workload.admission, reclaimable, workload.podsets)

    def local_usage(self, local_queue: str) -> float:
        """What a LocalQueue has consumed. 0 if its ClusterQueue does not use admission fair sharing."""
        found = self.local_queues.get(local_queue)
        queue = self.cluster_queues.get(found.cluster_queue) if found is not None else None
        if self.ledger is None or queue is None or not queue.usage_based:
            return 0.0
        return self.ledger.usage(local_queue)

    def _weight(self, local_queue: str) -> float:
        found = self.local_queues.get(local_queue)
        return found.weight if found is not None else 1.0


def selects(selector: Selector | None, labels: Mapping[str, str]) -> bool:
    """Does a label selector match?"""
    return selector is not None and all(_meets(requirement, labels) for requirement in selector.requirements)


def _meets(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value in requirement.values
        case "NotIn":
            return value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    return False
