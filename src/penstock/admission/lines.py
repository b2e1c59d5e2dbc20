"""One ClusterQueue's line: who is tried next, and who is not tried again before something changes. Held by queues, driven by cycle.

Workloads of one shape (same priority, same pods) have the same fate, so that a line is made of rows, one for each shape, and the
line's order is that of the rows' heads. To park a shape that does not fit, or to bring everything back, costs a step for each row,
however many stand in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from heapq import heappop, heappush
from typing import Any

from penstock.admission.model import Config, Requirement, Selector, Strategy, Workload
from penstock.admission.order import QueueKey, effective_priority, queue_key

Shape = tuple[Any, ...]


class Why(StrEnum):
    """Why a head comes back from a cycle."""

    GENERIC = "Generic"
    FAILED = "FailedAfterNomination"
    NAMESPACE = "NamespaceMismatch"
    PREEMPTING = "PendingPreemption"
    PREEMPTION_FAILED = "PreemptionFailed"
    NO_FIT = "NoFit"
    NO_CANDIDATES = "PreemptionNoCandidates"


AT_ONCE = frozenset({Why.FAILED, Why.PREEMPTING, Why.PREEMPTION_FAILED})
HOPELESS = frozenset({Why.NO_FIT, Why.NO_CANDIDATES})
"""Whatever looks the same would come back the same."""


class At(StrEnum):
    ROW = "row"
    PARKED = "parked"
    OUT = "out"


@dataclass(slots=True, eq=False)
class Place:
    """Where a Workload stands."""

    workload: Workload
    order: QueueKey
    shape: Shape | None
    lane: str
    at: At = At.OUT
    tick: int = 0


@dataclass(slots=True, eq=False)
class Row:
    """Everybody of one shape, in order. Who has left is passed over when its turn comes."""

    shape: Shape | None
    lane: str
    heap: list[tuple[QueueKey, int, Place]] = field(default_factory=list)
    size: int = 0
    led: set[QueueKey] = field(default_factory=set)
    """The heads of it that the line knows of, now or before."""

    def head(self) -> Place | None:
        heap = self.heap
        while heap:
            _, tick, place = heap[0]
            if place.at is At.ROW and place.tick == tick:
                return place
            heappop(heap)
        return None

    def members(self) -> list[Place]:
        return [place for _, tick, place in self.heap if place.at is At.ROW and place.tick == tick]


def due(workload: Workload, now: float) -> bool:
    """May it stand in line again? Not while it is held back, nor before its time."""
    return not workload.held_back and (workload.requeue_at is None or workload.requeue_at <= now)


def shape_of(workload: Workload, config: Config) -> Shape | None:
    """What a decision about it depends on. None: every Workload is a case of its own."""
    if not config.gate("SchedulingEquivalenceHashing", True):
        return None
    given_back = workload.reclaimable if config.gate("ReclaimablePods", True) else {}
    return (
        effective_priority(workload, config),
        *(
            (
                podset.name,
                max(0, podset.count - given_back.get(podset.name, 0)) if given_back else podset.count,
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


def selects(selector: Selector | None, labels: Mapping[str, str]) -> bool:
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


def _unchanged(old: Workload, new: Workload, config: Config) -> bool:
    """It came in again, but with nothing new that a decision could depend on. What was changed in place counts as changed."""
    return old is not new and all(
        getattr(old, name) == getattr(new, name)
        for name in (*_DECISIVE, "boost")
        if name != "boost" or config.gate("PriorityBoost", False)
    )


_DECISIVE = ("podsets", "queue", "priority", "priority_class", "active", "reclaimable", "last_eviction", "held_back")


class Line:
    def __init__(
        self, name: str, strategy: Strategy, config: Config, usage: Callable[[str], float] | None = None
    ) -> None:
        self.name = name
        self.strategy = strategy
        self.config = config
        self.usage = usage
        """Of a LocalQueue, where that comes before everything else in the order."""
        self.places: dict[str, Place] = {}
        self.parked: dict[str, Place] = {}
        """Those that are parked by themselves: the rows of `barred` shapes are as well."""
        self.barred: set[Shape] = set()
        self.preemptor: str | None = None
        """The one that waits for its victims, or did when it was last seen."""
        self.sticky = False
        """The preemptor stands in front of all others."""
        self._preemptor_changed = False
        self._rows: dict[tuple[str, Shape | None], Row] = {}
        self._lanes: dict[str, list[tuple[QueueKey, int, Row]]] = {}
        self._ticks = 0

    def __len__(self) -> int:
        return len(self.places)

    # -- coming and going ---------------------------------------------------------------------------------------------

    def push(self, workload: Workload, now: float) -> None:
        """It is new here, or it has changed."""
        old = self.places.get(workload.key)
        in_line = False
        if old is not None:
            in_line = not self.is_parked(workload.key)
            if not in_line and _unchanged(old.workload, workload, self.config):
                old.workload = workload
                return
            if workload.key == self.preemptor:
                self._preemptor_changed = True
            self._leave(old)
        lane = f"{workload.namespace}/{workload.queue}" if self.usage is not None else ""
        shape = shape_of(workload, self.config)
        place = Place(workload, queue_key(workload, self.config), shape, lane)
        self.places[workload.key] = place
        if in_line or due(workload, now):
            self._stand(place)
        else:
            self._park(place)

    def park(self, workload: Workload, now: float) -> None:
        """Take it as tried and found wanting."""
        if workload.key not in self.places:
            self.push(workload, now)
        place = self.places[workload.key]
        self._leave(place)
        self.places[workload.key] = place
        self._park(place)

    def remove(self, key: str) -> bool:
        if key == self.preemptor:
            self.preemptor, self.sticky = None, False
        place = self.places.get(key)
        if place is None:
            return False
        self._leave(place)
        return True

    def head(self) -> Place | None:
        """Who would be tried next."""
        if self.usage is None:
            return self._head_of("")
        best: tuple[tuple[float, bool, QueueKey], Place] | None = None
        for lane in self._lanes:
            place = self._head_of(lane)
            if place is not None:
                rank = (self.usage(lane), not self._is_sticky(place), place.order)
                if best is None or rank < best[0]:
                    best = rank, place
        return best[1] if best is not None else None

    def pop(self) -> Place | None:
        place = self.head()
        if place is not None:
            self._leave(place)
        return place

    def requeue(self, place: Place, why: Why, now: float, flavors_left: bool = False) -> bool:
        """Back from a cycle. Is it in line again, rather than parked?"""
        key = place.workload.key
        if why is Why.PREEMPTING:
            self.preemptor, self.sticky = key, self.strategy is Strategy.BEST_EFFORT
            self._preemptor_changed = False
        at_once = why is not Why.NAMESPACE if self.strategy is Strategy.STRICT else why in AT_ONCE
        again = (at_once or flavors_left) and due(place.workload, now)
        if key in self.places:
            if not again or not self.is_parked(key):
                return False
            self._leave(self.places[key])
        self.places[key] = place
        if again:
            self._stand(place)
            return True
        if why in HOPELESS and self.strategy is Strategy.BEST_EFFORT and place.shape is not None:
            self.barred.add(place.shape)
            self._stand(place)
        else:
            self._park(place)
        return False

    def flush(self, now: float, admits: Callable[[str], bool] | None = None) -> int:
        """Try everybody again: something has changed. `admits` says which namespaces have a chance at all (None: every one)."""
        moved = 0
        parked = list(self.parked.values())
        for shape in self.barred:
            for lane in self._lanes:
                row = self._rows.get((lane, shape))
                if row is None:
                    continue
                if admits is not None:
                    for place in row.members():
                        if not admits(place.workload.namespace):
                            self._leave(place)
                            self.places[place.workload.key] = place
                            self._park(place)
                moved += row.size
                self._lead(row)
        self.barred.clear()
        for place in parked:
            if due(place.workload, now) and (admits is None or admits(place.workload.namespace)):
                del self.parked[place.workload.key]
                self._stand(place)
                moved += 1
        return moved

    # -- who is where -------------------------------------------------------------------------------------------------

    def is_parked(self, key: str) -> bool:
        place = self.places.get(key)
        return place is not None and (place.at is At.PARKED or place.shape in self.barred)

    def is_preemptor(self, key: str) -> bool:
        """It waits for victims, and is still what it was when it asked for them."""
        return key == self.preemptor and not self._preemptor_changed

    def in_order(self) -> list[Workload]:
        """Everybody, parked or not, as they would come if all were tried."""
        usage = self.usage

        def rank(place: Place) -> tuple[float, bool, QueueKey]:
            return (usage(place.lane) if usage is not None else 0.0, not self._is_sticky(place), place.order)

        return [place.workload for place in sorted(self.places.values(), key=rank)]

    # -- inside -------------------------------------------------------------------------------------------------------

    def _is_sticky(self, place: Place) -> bool:
        return self.sticky and place.workload.key == self.preemptor

    def _head_of(self, lane: str) -> Place | None:
        if self.sticky and self.preemptor is not None:
            place = self.places.get(self.preemptor)
            if place is not None and place.lane == lane and place.at is At.ROW and place.shape not in self.barred:
                return place
        heads = self._lanes.get(lane)
        while heads:
            order, _, row = heads[0]
            place = row.head()
            if place is not None and place.order == order and row.shape not in self.barred:
                return place
            heappop(heads)
            row.led.discard(order)
        return None

    def _stand(self, place: Place) -> None:
        row = self._rows.get((place.lane, place.shape))
        if row is None:
            row = self._rows[place.lane, place.shape] = Row(place.shape, place.lane)
        self._ticks += 1
        place.at, place.tick = At.ROW, self._ticks
        heappush(row.heap, (place.order, place.tick, place))
        row.size += 1
        if place.lane not in self._lanes:
            self._lanes[place.lane] = []
        if place.shape not in self.barred and row.head() is place:
            self._lead(row)

    def _lead(self, row: Row) -> None:
        """Somebody else stands at the head of the row: the line goes by that."""
        head = row.head()
        if head is not None and head.order not in row.led:
            self._ticks += 1
            row.led.add(head.order)
            heappush(self._lanes[row.lane], (head.order, self._ticks, row))

    def _park(self, place: Place) -> None:
        place.at = At.PARKED
        self.parked[place.workload.key] = place

    def _leave(self, place: Place) -> None:
        del self.places[place.workload.key]
        if place.at is At.PARKED:
            del self.parked[place.workload.key]
        else:
            row = self._rows[place.lane, place.shape]
            was_head = row.head() is place
            place.at = At.OUT
            row.size -= 1
            if row.size == 0:
                del self._rows[place.lane, place.shape]
            elif was_head and place.shape not in self.barred:
                self._lead(row)
        place.at = At.OUT
