"""Who holds what: the tree, and in each ClusterQueue the Workloads that hold quota. What decisions are made against; called by
flavors, preempt, fair, cycle and queues.

Copying all this would cost more than a decision. A simulation takes usage out of the tree and puts it back (`Node.remove`,
`Node.add`), and leaves the holders alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from penstock.admission.model import (
    Admission,
    ClusterQueue,
    Cohort,
    Config,
    FlavorResource,
    LocalQueue,
    PodSet,
    ResourceFlavor,
    Workload,
)
from penstock.admission.quota import Node, Tree, plus


def usage_of(
    admission: Admission, reclaimable: Mapping[str, int], podsets: Iterable[PodSet] = ()
) -> dict[FlavorResource, int]:
    """What an admission counts for, less the pods that are not needed any more.

    Those are taken from what was asked for (`podsets`): of 5 pods, 3 admitted, 2 given back still leaves the 3.
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


class State:
    def __init__(self, config: Config) -> None:
        self.config = config
        self.flavors: dict[str, ResourceFlavor] = {}
        self.cluster_queues: dict[str, ClusterQueue] = {}
        self.cohorts: dict[str, Cohort] = {}
        self.local_queues: dict[str, LocalQueue] = {}
        self.tree = Tree({}, {})
        self.holders: dict[str, dict[str, Workload]] = {}
        """By ClusterQueue, then by key."""
        self.inactive: set[str] = set()
        """ClusterQueues that no cycle considers, and from which nobody is preempted. Set before `rebuild`."""
        self.cycle = 0
        """The number of the cycle that decides."""
        self.generations: dict[str, int] = {}
        """By ClusterQueue: grows when there may be more to have than before, so that flavors are tried from the first again."""
        self.asked: Any = None
        """What preempt was last asked by the search for a flavor, and what it found."""
        self.shared: dict[Any, Any] | None = None
        """What searches for victims have in common, as long as nobody holds more or less than before; None at other times."""
        self.local_usage: Callable[[str], float] | None = None
        """LocalQueue ("namespace/name") -> what it has consumed, where admission fair sharing is on."""

    def rebuild(self) -> None:
        """After a change of queues, cohorts or flavors."""
        self.tree = Tree(self.cluster_queues, self.cohorts, self.inactive)
        for name in self.cluster_queues:
            self.generations[name] = self.generations.get(name, 0) + 1
        for name, holders in self.holders.items():
            node = self.tree.queues.get(name)
            if node is not None:
                for workload in holders.values():
                    node.add(workload.held)

    def node(self, queue: str) -> Node:
        return self.tree.queues[queue]

    def hold(self, workload: Workload) -> None:
        """It holds its `held`, from now on or again."""
        assert workload.admission is not None
        queue = workload.admission.cluster_queue
        self.holders.setdefault(queue, {})[workload.key] = workload
        node = self.tree.queues.get(queue)
        if node is not None:
            node.add(workload.held)

    def drop(self, workload: Workload) -> None:
        assert workload.admission is not None
        queue = workload.admission.cluster_queue
        del self.holders[queue][workload.key]
        self.generations[queue] = self.generations.get(queue, 0) + 1
        node = self.tree.queues.get(queue)
        if node is not None:
            node.remove(workload.held)

    def hold_all(self, workloads: Iterable[Workload]) -> None:
        for workload in workloads:
            self.hold(workload)

    def drop_all(self, workloads: Iterable[Workload]) -> None:
        for workload in workloads:
            self.drop(workload)
