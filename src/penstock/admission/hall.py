"""Where the lines stand: what is configured, who waits, who holds what, and the small steps that all others take with it. Queues is
built on it; cycle, lifecycle, setup and explain work on it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping

from penstock.admission.decisions import Decision
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
    PriorityClass,
    ResourceFlavor,
    Workload,
)
from penstock.admission.quota import Tree
from penstock.admission.state import State, usage_of
from penstock.admission.usage import Ledger


class Hall:
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
        self.flushed: set[str] = set()
        """Roots below which nobody was parked since everybody was tried again."""
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

    # -- who is where -------------------------------------------------------------------------------------------------

    def pending(self, queue: str) -> list[Workload]:
        """Who waits in a ClusterQueue, in order: in line, and parked until something changes."""
        line = self.lines.get(queue)
        return line.in_order() if line is not None else []

    def queue_of(self, workload: Workload) -> str:
        """The ClusterQueue that it is admitted to, or waits for; empty if there is none."""
        if workload.admission is not None:
            return workload.admission.cluster_queue
        local_queue = self.local_queues.get(f"{workload.namespace}/{workload.queue}")
        return local_queue.cluster_queue if local_queue is not None else ""

    # -- small steps --------------------------------------------------------------------------------------------------

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
        if root in self.flushed:
            return
        self.flushed.add(root)
        for name in self.trees[root]:
            self.retry(name, now)

    def retry(self, queue: str, now: float) -> None:
        """Whoever is parked in this ClusterQueue is in line again. Kueue does so up to a second later."""
        line = self.lines[queue]
        if line.barred or line.parked:
            line.flush(now, self.admits(queue))

    def changed(self, workload: Workload, now: float) -> None:
        if workload.admission is None:
            self.enqueue(workload, now)
        else:
            self.flush(workload.admission.cluster_queue, now)

    def set_priority_of(self, workload: Workload, priority: int, now: float) -> None:
        if workload.priority != priority:
            self.touched.add(workload.key)
            workload.priority = priority
            if workload.admission is None or workload.priority_class is not None:
                self.changed(workload, now)
            else:
                # As in Kueue, which tries parked Workloads again only if the number comes from a class.
                self.stir(workload.admission.cluster_queue)
