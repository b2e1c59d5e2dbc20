"""What decisions are made on: the quota tree, and the Workloads that hold quota in each ClusterQueue. The cache keeps it up to date;
flavors, preemption, fair_preemption, fair_order and cycle read it.

Kueue copies its cache for each cycle. Here a copy would cost more than the decision, so a simulation takes usage out of the tree
and puts it back (`QuotaNode.remove`, `QuotaNode.add`). The holders stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

from penstock.admission.model import (
    Admission,
    ClusterQueue,
    Cohort,
    Config,
    FlavorResource,
    PodSet,
    ResourceFlavor,
    Workload,
)
from penstock.admission.quota import QuotaTree, plus


def usage_of(
    admission: Admission, reclaimable: Mapping[str, int], podsets: Iterable[PodSet] = ()
) -> dict[FlavorResource, int]:
    """What an admission uses, minus the pods that are no longer needed.

    Those are subtracted from the requested count (`podsets`): with 5 pods requested, 3 admitted and 2 reclaimable, 3 remain.
    """
    found: dict[FlavorResource, int] = {}
    asked = {podset.name: podset.count for podset in podsets}
    for podset in admission.podsets:
        left = max(0, asked.get(podset.name, podset.count) - reclaimable.get(podset.name, 0))
        for resource, amount in podset.usage.items():
            flavor = podset.flavors.get(resource)
            if flavor is None:
                continue
            if left < podset.count:
                amount = amount // podset.count * left
            fr = FlavorResource(flavor, resource)
            found[fr] = plus(found.get(fr, 0), amount)
    return found


class Snapshot:
    def __init__(self, config: Config) -> None:
        self.config = config
        self.flavors: dict[str, ResourceFlavor] = {}
        self.cluster_queues: dict[str, ClusterQueue] = {}
        self.cohorts: dict[str, Cohort] = {}
        self.tree = QuotaTree({}, {})
        self.holders: dict[str, dict[str, Workload]] = {}
        """By ClusterQueue, then by key."""
        self.inactive: set[str] = set()
        """ClusterQueues that no cycle considers, and in which nothing is preempted. Set before `rebuild`."""
        self.generations: dict[str, int] = {}
        """By ClusterQueue: increases when more may be available than before, so that the flavor search starts at the first one."""
        self.local_usage: Callable[[str], float] | None = None
        """LocalQueue ("namespace/name") -> what it has consumed. None: admission fair sharing is off."""

    def rebuild(self) -> None:
        """After a change of queues, cohorts or flavors."""
        self.tree = QuotaTree(self.cluster_queues, self.cohorts, self.inactive)
        for name in self.cluster_queues:
            self.generations[name] = self.generations.get(name, 0) + 1
        for name, holders in self.holders.items():
            node = self.tree.queues.get(name)
            if node is not None:
                for workload in holders.values():
                    node.add(workload.held)

    def holds(self, workload: Workload) -> bool:
        admission = workload.admission
        return admission is not None and workload.key in self.holders.get(admission.cluster_queue, ())

    def hold(self, workload: Workload) -> None:
        """Count `workload.held` as used."""
        assert workload.admission is not None
        queue = workload.admission.cluster_queue
        self.holders.setdefault(queue, {})[workload.key] = workload
        node = self.tree.queues.get(queue)
        if node is not None:
            node.add(workload.held)

    def drop(self, workload: Workload) -> None:
        """Count it no longer."""
        assert workload.admission is not None
        queue = workload.admission.cluster_queue
        del self.holders[queue][workload.key]
        self.generations[queue] = self.generations.get(queue, 0) + 1
        node = self.tree.queues.get(queue)
        if node is not None:
            node.remove(workload.held)

    @contextmanager
    def without(self, workloads: list[Workload]) -> Iterator[None]:
        """As if these Workloads held nothing."""
        holders, generations = dict(self.holders), dict(self.generations)
        for queue in {workload.admission.cluster_queue for workload in workloads if workload.admission is not None}:
            self.holders[queue] = dict(self.holders[queue])
        for workload in workloads:
            self.drop(workload)
        yield
        for workload in reversed(workloads):
            self.hold(workload)
        self.holders.update(holders)
        self.generations = generations
