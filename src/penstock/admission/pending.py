"""The Workloads that wait in one ClusterQueue: the active ones, of which the head is tried next, and the inadmissible ones, which wait
until something changes. The QueueManager has one for each ClusterQueue.

Workloads of the same shape (priority and pods) get the same decision, so they are kept in equivalence classes, and the order of
the queue is that of the classes' heads. To move a shape to the inadmissible ones, or everything back, costs one step for each
class, however many Workloads are in it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from heapq import heappop, heappush
from typing import Any

from penstock.admission.model import Config, Strategy, Workload
from penstock.admission.order import QueueKey, effective_priority, queue_key

Shape = tuple[Any, ...]


class RequeueReason(StrEnum):
    """Why a cycle returns a head to its queue."""

    GENERIC = "Generic"
    FAILED = "FailedAfterNomination"
    NAMESPACE = "NamespaceMismatch"
    PREEMPTING = "PendingPreemption"
    PREEMPTION_FAILED = "PreemptionFailed"
    NO_FIT = "NoFit"
    NO_CANDIDATES = "PreemptionNoCandidates"


IMMEDIATE = frozenset({RequeueReason.FAILED, RequeueReason.PREEMPTING, RequeueReason.PREEMPTION_FAILED})
"""With BestEffortFIFO it becomes active again at once."""
SAME_FOR_SHAPE = frozenset({RequeueReason.NO_FIT, RequeueReason.NO_CANDIDATES})
"""Every Workload of the same shape would get the same result."""


class PendingStatus(StrEnum):
    IN_CLASS = "in class"
    """In an equivalence class: active, unless the class's shape is inadmissible."""
    INADMISSIBLE = "inadmissible"
    OUT = "out"


@dataclass(slots=True, eq=False)
class PendingWorkload:
    """A Workload in a PendingQueue."""

    workload: Workload
    order: QueueKey
    shape: Shape | None
    local_queue: str
    """Empty where the order does not depend on LocalQueues."""
    status: PendingStatus = PendingStatus.OUT
    entry: int = 0
    """The number of its current entry in the heap of its class."""


@dataclass(slots=True, eq=False)
class EquivalenceClass:
    """The Workloads of one shape, as a heap. An entry that is no longer valid is dropped when it reaches the top."""

    shape: Shape | None
    local_queue: str
    heap: list[tuple[QueueKey, int, PendingWorkload]] = field(default_factory=list)
    size: int = 0
    listed: set[QueueKey] = field(default_factory=set)
    """The entries that the queue's heap of heads has for this class, valid or not."""

    def head(self) -> PendingWorkload | None:
        heap = self.heap
        while heap:
            _, entry, pending = heap[0]
            if pending.entry == entry and pending.status is PendingStatus.IN_CLASS:
                return pending
            heappop(heap)
        return None

    def members(self) -> list[PendingWorkload]:
        return [
            pending
            for _, entry, pending in self.heap
            if pending.entry == entry and pending.status is PendingStatus.IN_CLASS
        ]


def may_queue(workload: Workload, config: Config) -> bool:
    """May it be in a queue at all? Not if it is gated, deactivated, finished, admitted or being evicted."""
    return (
        workload.admission is None
        and workload.active
        and not workload.finished
        and workload.eviction is None
        and not (workload.gates and config.gate("AdmissionGatedBy", True))
    )


def ready_to_queue(workload: Workload, now: float) -> bool:
    """May it be active? Not while it is held back, and not before its backoff ends."""
    return not workload.held_back and (workload.requeue_at is None or workload.requeue_at <= now)


def shape_of(workload: Workload, config: Config) -> Shape | None:
    """What a decision about it depends on. None: every Workload is in a class of its own."""
    if not config.gate("SchedulingEquivalenceHashing", True):
        return None
    reclaimable = workload.reclaimable if config.gate("ReclaimablePods", True) else {}
    return (
        effective_priority(workload, config),
        *(
            (
                podset.name,
                max(0, podset.count - reclaimable.get(podset.name, 0)) if reclaimable else podset.count,
                podset.min_count,
                tuple(sorted(podset.requests.items())),
                tuple(sorted(podset.selector.items())) if podset.selector else (),
                podset.affinity,
                podset.tolerations,
                podset.group,
            )
            for podset in workload.podsets
        ),
    )


def _unchanged(old: Workload, new: Workload, config: Config) -> bool:
    """Is the new object equal to the old one in all that a decision depends on? The same object counts as changed."""
    return (
        old is not new
        and old.podsets == new.podsets
        and old.queue == new.queue
        and old.priority == new.priority
        and old.priority_class == new.priority_class
        and old.active == new.active
        and old.reclaimable == new.reclaimable
        and old.last_eviction == new.last_eviction
        and old.held_back == new.held_back
        and (old.boost == new.boost or not config.gate("PriorityBoost", False))
    )


class PendingQueue:
    def __init__(
        self, name: str, strategy: Strategy, config: Config, usage: Callable[[str], float] | None = None
    ) -> None:
        self.name = name
        self.strategy = strategy
        self.config = config
        self.usage = usage
        """LocalQueue -> what it has consumed. The LocalQueue with the lowest usage comes first. None: usage does not matter."""
        self.workloads: dict[str, PendingWorkload] = {}
        """All of them, active or inadmissible."""
        self.inadmissible: dict[str, PendingWorkload] = {}
        """Those that are inadmissible by themselves. So are all members of classes of `inadmissible_shapes`."""
        self.inadmissible_shapes: set[Shape] = set()
        self.preemptor: str | None = None
        """The Workload that waits for its preemption targets, or did when it was last tried."""
        self.sticky = False
        """The preemptor comes before all others."""
        self._preemptor_changed = False
        self._classes: dict[tuple[str, Shape | None], EquivalenceClass] = {}
        self._heads: dict[str, list[tuple[QueueKey, int, EquivalenceClass]]] = {}
        """By LocalQueue (see `PendingWorkload.local_queue`): the heap of the heads of its classes."""
        self._entries = 0

    def __len__(self) -> int:
        return len(self.workloads)

    def push(self, workload: Workload, now: float) -> None:
        """It is new, or it has changed."""
        old = self.workloads.get(workload.key)
        active = False
        if old is not None:
            active = not self.is_inadmissible(workload.key)
            if not active and _unchanged(old.workload, workload, self.config):
                old.workload = workload
                return
            if workload.key == self.preemptor:
                self._preemptor_changed = True
            self._take_out(old)
        pending = PendingWorkload(
            workload,
            queue_key(workload, self.config),
            shape_of(workload, self.config),
            workload.local_queue if self.usage is not None else "",
        )
        self.workloads[workload.key] = pending
        if active or ready_to_queue(workload, now):
            self._put_in_class(pending)
        else:
            self._set_inadmissible(pending)

    def remove(self, key: str) -> bool:
        """Was it here?"""
        if key == self.preemptor:
            self.preemptor, self.sticky = None, False
        pending = self.workloads.get(key)
        if pending is None:
            return False
        self._take_out(pending)
        return True

    def head(self) -> PendingWorkload | None:
        """The active Workload that is tried next."""
        if self.usage is None:
            return self._head_of("")
        best: tuple[tuple[float, bool, QueueKey], PendingWorkload] | None = None
        for local_queue in self._heads:
            pending = self._head_of(local_queue)
            if pending is not None:
                rank = (self.usage(local_queue), not self._is_sticky(pending), pending.order)
                if best is None or rank < best[0]:
                    best = rank, pending
        return best[1] if best is not None else None

    def pop(self) -> PendingWorkload | None:
        pending = self.head()
        if pending is not None:
            self._take_out(pending)
        return pending

    def requeue(self, pending: PendingWorkload, reason: RequeueReason, now: float, flavors_left: bool = False) -> bool:
        """Take back a head that was not admitted. Is it active, rather than inadmissible?"""
        key = pending.workload.key
        if reason is RequeueReason.PREEMPTING:
            self.preemptor, self.sticky = key, self.strategy is Strategy.BEST_EFFORT
            self._preemptor_changed = False
        if self.strategy is Strategy.STRICT:
            immediate = reason is not RequeueReason.NAMESPACE
        else:
            immediate = reason in IMMEDIATE
        active = (immediate or flavors_left) and ready_to_queue(pending.workload, now)
        if key in self.workloads:
            if not active or not self.is_inadmissible(key):
                return False
            self._take_out(self.workloads[key])
        self.workloads[key] = pending
        if active:
            self._put_in_class(pending)
            return True
        if reason in SAME_FOR_SHAPE and self.strategy is Strategy.BEST_EFFORT and pending.shape is not None:
            self.inadmissible_shapes.add(pending.shape)
            self._put_in_class(pending)
        else:
            self._set_inadmissible(pending)
        return False

    def requeue_inadmissible(self, now: float, admits: Callable[[str], bool] | None = None) -> int:
        """Make the inadmissible Workloads active: something has changed. `admits` says which namespaces the ClusterQueue admits
        Workloads from (None: all). Returns how many were moved."""
        moved = 0
        inadmissible = list(self.inadmissible.values())
        for shape in self.inadmissible_shapes:
            for local_queue in self._heads:
                found = self._classes.get((local_queue, shape))
                if found is None:
                    continue
                if admits is not None:
                    for pending in found.members():
                        if not admits(pending.workload.namespace):
                            self._take_out(pending)
                            self.workloads[pending.workload.key] = pending
                            self._set_inadmissible(pending)
                moved += found.size
                self._list_head(found)
        self.inadmissible_shapes.clear()
        for pending in inadmissible:
            if ready_to_queue(pending.workload, now) and (admits is None or admits(pending.workload.namespace)):
                del self.inadmissible[pending.workload.key]
                self._put_in_class(pending)
                moved += 1
        return moved

    def is_inadmissible(self, key: str) -> bool:
        pending = self.workloads.get(key)
        return pending is not None and (
            pending.status is PendingStatus.INADMISSIBLE or pending.shape in self.inadmissible_shapes
        )

    def is_preemptor(self, key: str) -> bool:
        """It waits for preemption targets, and has not changed since it asked for them."""
        return key == self.preemptor and not self._preemptor_changed

    def in_order(self) -> list[Workload]:
        """All Workloads, in the order in which they would be tried if all were active."""
        usage = self.usage

        def rank(pending: PendingWorkload) -> tuple[float, bool, QueueKey]:
            used = usage(pending.local_queue) if usage is not None else 0.0
            return (used, not self._is_sticky(pending), pending.order)

        return [pending.workload for pending in sorted(self.workloads.values(), key=rank)]

    # -- heaps --------------------------------------------------------------------------------------------------------

    def _is_sticky(self, pending: PendingWorkload) -> bool:
        return self.sticky and pending.workload.key == self.preemptor

    def _head_of(self, local_queue: str) -> PendingWorkload | None:
        if self.sticky and self.preemptor is not None:
            pending = self.workloads.get(self.preemptor)
            if (
                pending is not None
                and pending.local_queue == local_queue
                and pending.status is PendingStatus.IN_CLASS
                and pending.shape not in self.inadmissible_shapes
            ):
                return pending
        heads = self._heads.get(local_queue)
        while heads:
            order, _, found = heads[0]
            pending = found.head()
            if pending is not None and pending.order == order and found.shape not in self.inadmissible_shapes:
                return pending
            heappop(heads)
            found.listed.discard(order)
        return None

    def _put_in_class(self, pending: PendingWorkload) -> None:
        found = self._classes.get((pending.local_queue, pending.shape))
        if found is None:
            found = EquivalenceClass(pending.shape, pending.local_queue)
            self._classes[pending.local_queue, pending.shape] = found
        self._entries += 1
        pending.status, pending.entry = PendingStatus.IN_CLASS, self._entries
        heappush(found.heap, (pending.order, pending.entry, pending))
        found.size += 1
        if pending.local_queue not in self._heads:
            self._heads[pending.local_queue] = []
        if pending.shape not in self.inadmissible_shapes and found.head() is pending:
            self._list_head(found)

    def _list_head(self, found: EquivalenceClass) -> None:
        """The class has another head: enter it into the heap of heads."""
        head = found.head()
        if head is not None and head.order not in found.listed:
            self._entries += 1
            found.listed.add(head.order)
            heappush(self._heads[found.local_queue], (head.order, self._entries, found))

    def _set_inadmissible(self, pending: PendingWorkload) -> None:
        pending.status = PendingStatus.INADMISSIBLE
        self.inadmissible[pending.workload.key] = pending

    def _take_out(self, pending: PendingWorkload) -> None:
        del self.workloads[pending.workload.key]
        if pending.status is PendingStatus.INADMISSIBLE:
            del self.inadmissible[pending.workload.key]
            pending.status = PendingStatus.OUT
            return
        found = self._classes[pending.local_queue, pending.shape]
        was_head = found.head() is pending
        pending.status = PendingStatus.OUT
        found.size -= 1
        if found.size == 0:
            del self._classes[pending.local_queue, pending.shape]
        elif was_head and pending.shape not in self.inadmissible_shapes:
            self._list_head(found)
