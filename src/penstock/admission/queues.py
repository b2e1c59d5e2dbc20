"""The state machine that the engine, the simulator and the conformance test hold: what is configured, who waits, who holds what.

Callers tell it what happened (`submit`, `finish`, `release`, `reclaim`…) and when, and let it decide (`settle`). It decides
nothing by itself and knows no clock: the same calls give the same answers. What happens to a Workload is in lifecycle, how a
decision is made in cycle.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any

from penstock.admission import cycle, explain, lifecycle, setup
from penstock.admission.cycle import Cycle, Decision
from penstock.admission.explain import Hold
from penstock.admission.lifecycle import Evicted
from penstock.admission.lines import Line, selects
from penstock.admission.model import (
    Check,
    CheckState,
    ClusterQueue,
    Cohort,
    Config,
    FlavorResource,
    LocalQueue,
    Namespace,
    Object,
    PodSet,
    PriorityClass,
    ResourceFlavor,
    Workload,
)
from penstock.admission.quota import Tree
from penstock.admission.state import State, usage_of
from penstock.admission.usage import Ledger


class Queues:
    def __init__(
        self, config: Config | None = None, check: Callable[[str, Workload], CheckState] | None = None
    ) -> None:
        self.config = config if config is not None else Config()
        self.check = check
        """Decides admission checks where nobody calls `set_check`."""
        self.state = State(self.config)
        self.priority_classes: dict[str, PriorityClass] = {}
        self.namespaces: dict[str, Namespace] = {}
        self.checks: dict[str, Check] = {}
        self.workloads: dict[str, Workload] = {}
        """All that are not over, by key."""
        self.decisions: dict[str, Decision] = {}
        """What was last decided about those that wait."""
        self.touched: set[str] = set()
        """Workloads that were changed here since somebody cleared this."""
        self.lines: dict[str, Line] = {}
        self.unready: set[str] = set()
        """They hold quota, and their pods are not ready."""
        self.members: dict[str, dict[str, None]] = {}
        """LocalQueue -> the keys of its Workloads."""
        self.stirred: set[str] = set()
        """Roots of trees in which something has changed since they were last found at rest."""
        self.scans: dict[str, set[tuple[str, Hashable]]] = {}
        """By root: how far the search for flavors had come, for whom, since something changed there."""
        self.why_inactive: dict[str, str] = {}
        self.roots: dict[str, str] = {}
        """ClusterQueue -> the root of its tree; none for those that are in no tree."""
        self.trees: dict[str, list[str]] = {}
        """The other way round."""
        self.alarms: list[tuple[float, str]] = []
        """When time alone may change something about a Workload: a heap; what no longer holds is found out then."""
        self.undecided: dict[str, None] = {}
        """They have quota, and `check` has not said yes or no."""
        self.lost: dict[str, float] = {}
        """Since when Workloads are not ready that have been."""
        self.ledger: Ledger | None = None
        if self.config.half_life is not None and self.config.gate("AdmissionFairSharing", True):
            self.ledger = Ledger(self.config, self._weight)
            self.state.local_usage = self.local_usage

    # -- what is configured -------------------------------------------------------------------------------------------

    @property
    def flavors(self) -> dict[str, ResourceFlavor]:
        return self.state.flavors

    @property
    def cluster_queues(self) -> dict[str, ClusterQueue]:
        return self.state.cluster_queues

    @property
    def cohorts(self) -> dict[str, Cohort]:
        return self.state.cohorts

    @property
    def local_queues(self) -> dict[str, LocalQueue]:
        return self.state.local_queues

    @property
    def tree(self) -> Tree:
        return self.state.tree

    def apply(self, objects: Iterable[Object], now: float) -> list[Evicted]:
        """Add or replace. Returns who has to stop because of it."""
        return setup.apply(self, objects, now)

    def delete(self, kind: type[Any], name: str, now: float) -> list[Evicted]:
        """`name` of a LocalQueue: "namespace/name"."""
        return setup.delete(self, kind, name, now)

    def inactive(self, queue: str) -> str:
        """Why a ClusterQueue admits nobody; empty if nothing is wrong with it."""
        if queue not in self.cluster_queues:
            return "it does not exist"
        return self.why_inactive.get(queue, "")

    def local_usage(self, local_queue: str) -> float:
        """What a LocalQueue has consumed, as far as its ClusterQueue goes by that."""
        if self.ledger is None:
            return 0.0
        queue = self._cluster_queue(local_queue)
        return self.ledger.usage(local_queue) if queue is not None and queue.usage_based else 0.0

    def _weight(self, local_queue: str) -> float:
        found = self.local_queues.get(local_queue)
        return found.weight if found is not None else 1.0

    def _cluster_queue(self, local_queue: str) -> ClusterQueue | None:
        found = self.local_queues.get(local_queue)
        return self.cluster_queues.get(found.cluster_queue) if found is not None else None

    def admits(self, queue: str) -> Callable[[str], bool] | None:
        """Which namespaces a ClusterQueue takes Workloads from; None: all of them."""
        selector = self.cluster_queues[queue].namespaces
        if selector is not None and not selector.requirements:
            return None
        return lambda name: selects(selector, self.labels(name))

    def labels(self, namespace: str) -> Mapping[str, str]:
        found = self.namespaces.get(namespace)
        return found.labels if found is not None else {}

    # -- Workloads ----------------------------------------------------------------------------------------------------

    def submit(self, workload: Workload, now: float) -> None:
        """It is new, or it was known to somebody before: with an admission it holds quota from the start."""
        if workload.key in self.workloads:
            self.remove(workload.key, now)
        if workload.finished:
            return
        self.touched.add(workload.key)
        self.workloads[workload.key] = workload
        self.members.setdefault(f"{workload.namespace}/{workload.queue}", {})[workload.key] = None
        if workload.priority_class is not None and workload.priority_class in self.priority_classes:
            workload.priority = self.priority_classes[workload.priority_class].value
        if workload.admission is not None:
            lifecycle.restore(self, workload, now)
        else:
            self.enqueue(workload, now)
            lifecycle.watch(self, workload)

    def ungate(self, key: str, gate: str, now: float) -> None:
        workload = self.workloads[key]
        if gate in workload.gates:
            self.touched.add(key)
            workload.gates -= {gate}
            if not workload.gates:
                self.enqueue(workload, now)

    def set_priority(self, key: str, priority: int, now: float) -> None:
        workload = self.workloads[key]
        if workload.priority != priority:
            self.touched.add(key)
            workload.priority = priority
            self._changed(workload, now)

    def resize(self, key: str, podsets: tuple[PodSet, ...], now: float) -> None:
        workload = self.workloads[key]
        if workload.admission is not None:
            raise ValueError(f"{key} holds quota for its pods as they are")
        self.touched.add(key)
        workload.podsets, workload.memory = podsets, None
        sizes = {podset.name: podset.count for podset in podsets}
        workload.reclaimable = {name: min(n, sizes[name]) for name, n in workload.reclaimable.items() if name in sizes}
        self._changed(workload, now)

    def reclaim(self, key: str, counts: Mapping[str, int], now: float) -> None:
        """Pods, by pod set, that are not needed any more. While quota is held there can only be more of them."""
        workload = self.workloads[key]
        sizes = {podset.name: podset.count for podset in workload.podsets}
        found = dict(workload.reclaimable)
        for name, count in counts.items():
            least = found.get(name, 0) if workload.admission is not None else 0
            found[name] = max(least, min(count, sizes.get(name, 0)))
        if found == workload.reclaimable:
            return
        self.touched.add(key)
        workload.reclaimable = found
        if workload.admission is not None:
            lifecycle.shrink(self, workload, now)
        else:
            self._changed(workload, now)

    def set_active(self, key: str, active: bool, now: float) -> list[Evicted]:
        return lifecycle.set_active(self, self.workloads[key], active, now)

    def set_check(
        self, key: str, name: str, state: CheckState, now: float, retry_after: float | None = None
    ) -> list[Evicted]:
        return lifecycle.set_check(self, self.workloads[key], name, state, now, retry_after)

    def ready(self, key: str, now: float, ready: bool = True) -> None:
        """Are all of its pods up?"""
        lifecycle.ready(self, self.workloads[key], ready, now)

    def release(self, key: str, now: float) -> None:
        """It has stopped after an eviction: what it held is free, and it queues again, if it may."""
        lifecycle.release(self, self.workloads[key], now)

    def finish(self, key: str, now: float) -> None:
        workload = self.workloads[key]
        self.remove(key, now)
        workload.finished = True

    def remove(self, key: str, now: float) -> None:
        workload = self.workloads[key]
        self.touched.add(key)
        queue = self.queue_of(workload)
        lifecycle.let_go(self, workload, now)
        self.dequeue(workload)
        if self.ledger is not None:
            self.ledger.given_up(f"{workload.namespace}/{workload.queue}", key)
        del self.workloads[key]
        self.decisions.pop(key, None)
        self.undecided.pop(key, None)
        self.lost.pop(key, None)
        members = self.members[f"{workload.namespace}/{workload.queue}"]
        del members[key]
        if not members:
            del self.members[f"{workload.namespace}/{workload.queue}"]
        self.flush(queue, now)

    # -- time ---------------------------------------------------------------------------------------------------------

    def cycle(self, now: float) -> Cycle:
        """One scheduling cycle over everything that is in line."""
        return cycle.run(self, now)

    def settle(self, now: float) -> list[Cycle]:
        """Whatever can be decided now."""
        lifecycle.tick(self, now)
        found = []
        while self.stirred:
            roots, self.stirred = self.stirred, set()
            found.append(cycle.run(self, now, roots))
            lifecycle.ask_checks(self, found[-1].reserved, now)
        return found

    def tick(self, now: float) -> list[Evicted]:
        """What time alone brings about: backoffs end, somebody was not ready in time or ran too long."""
        return lifecycle.tick(self, now)

    def next_time(self, now: float) -> float | None:
        """When `tick` will next have something to do."""
        return lifecycle.next_time(self, now)

    # -- looking ------------------------------------------------------------------------------------------------------

    def pending(self, queue: str) -> list[Workload]:
        """Who waits in a ClusterQueue, in order: in line, and parked until something changes."""
        line = self.lines.get(queue)
        return line.in_order() if line is not None else []

    def gated(self, queue: str) -> list[Workload]:
        """Who will wait in a ClusterQueue when somebody says so, oldest first."""
        found = [
            workload
            for local_queue, members in self.members.items()
            if (to := self.local_queues.get(local_queue)) is not None and to.cluster_queue == queue
            for workload in map(self.workloads.__getitem__, members)
            if workload.gates and workload.admission is None
        ]
        return sorted(found, key=lambda workload: (workload.created, workload.key))

    def heads(self) -> dict[str, Workload]:
        """Who would be tried next, by ClusterQueue."""
        found = {}
        for name, line in sorted(self.lines.items()):
            head = line.head() if not self.why_inactive.get(name) else None
            if head is not None:
                found[name] = head.workload
        return found

    def is_parked(self, key: str) -> bool:
        queue = self.queue_of(self.workloads[key])
        return queue in self.lines and self.lines[queue].is_parked(key)

    def waiting_beside(self, key: str) -> int:
        """How many wait, in line or parked, that could have what this Workload holds."""
        root = self.roots.get(self.queue_of(self.workloads[key]))
        return sum(len(self.lines[name]) for name in self.trees.get(root, ())) if root is not None else 0

    def explain(self, key: str, now: float) -> Hold:
        """Why it waits."""
        return explain.explain(self, key, now)

    def hold_kind(self, key: str, now: float) -> str:
        """The same in a word, without looking at quotas."""
        return explain.kind_of(self, self.workloads[key], now)[0]

    def queue_of(self, workload: Workload) -> str:
        """The ClusterQueue that it is admitted to, or waits for; empty if there is none."""
        if workload.admission is not None:
            return workload.admission.cluster_queue
        local_queue = self.local_queues.get(f"{workload.namespace}/{workload.queue}")
        return local_queue.cluster_queue if local_queue is not None else ""

    # -- what the other modules call ----------------------------------------------------------------------------------

    def held_of(self, workload: Workload) -> dict[FlavorResource, int]:
        assert workload.admission is not None
        given_back = workload.reclaimable if self.config.gate("ReclaimablePods", True) else {}
        return usage_of(workload.admission, given_back, workload.podsets)

    def may_queue(self, workload: Workload) -> bool:
        """Is there nothing about the Workload itself that keeps it out of every line?"""
        gated = workload.gates and self.config.gate("AdmissionGatedBy", True)
        return (
            not gated
            and workload.active
            and not workload.finished
            and workload.admission is None
            and workload.eviction is None
        )

    def enqueue(self, workload: Workload, now: float) -> None:
        """Into its line, if it may stand in one and there is one."""
        local_queue = self.local_queues.get(f"{workload.namespace}/{workload.queue}")
        if local_queue is None or local_queue.stop != "None" or not self.may_queue(workload):
            return
        line = self.lines.get(local_queue.cluster_queue)
        if line is not None:
            line.push(workload, now)
            self.stir(local_queue.cluster_queue)

    def dequeue(self, workload: Workload) -> None:
        line = self.lines.get(self.queue_of(workload))
        if line is not None and line.remove(workload.key):
            self.stir(line.name)

    def stir(self, queue: str) -> None:
        """Something may be decided otherwise in this ClusterQueue's tree."""
        root = self.roots.get(queue)
        if root is not None:
            self.stirred.add(root)
            self.scans.pop(root, None)

    def flush(self, queue: str, now: float) -> None:
        """Quota may have become free: whoever was parked in the ClusterQueue's tree is tried again."""
        root = self.roots.get(queue)
        if root is None:
            return
        self.stir(queue)
        for name in self.trees[root]:
            line = self.lines[name]
            if line.barred or line.parked:
                line.flush(now, self.admits(name))

    def _changed(self, workload: Workload, now: float) -> None:
        if workload.admission is None:
            self.enqueue(workload, now)
        else:
            self.flush(workload.admission.cluster_queue, now)
