"""What one reservation holds of a queue, or waits for. Owned by Reservations. Pure bookkeeping.

An Allocation is one Workload. An elastic stage may have several: what was admitted first, and the rest, which keeps its place in
the queue.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from penstock.admission.model import PodSet, Workload
from penstock.engine.podsets import PodDemand, shape_of, stage_podsets
from penstock.engine.run_state import RunState
from penstock.engine.steps import StepState, Task
from penstock.graph.model import Unit, Workflow
from penstock.store.records import RunRecord


class QueuedRun(Protocol):
    """What reservations need of a run. See ActiveRun."""

    @property
    def number(self) -> int: ...

    @property
    def record(self) -> RunRecord: ...

    @property
    def state(self) -> RunState: ...

    @property
    def counts(self) -> Mapping[str, int]: ...

    def note(self, kind: str, path: str, data: Mapping[str, Any]) -> None: ...

    def displaced(self, task: Task) -> None:
        """The task lost its permit before its attempt began."""
        ...


def shapes(states: Iterable[StepState]) -> list[list[StepState]]:
    """Steps whose pods are alike, together."""
    found: dict[str, list[StepState]] = {}
    for state in states:
        plan = state.plan
        if plan.shape is None:
            plan.shape = shape_of(plan.step.resources, plan.step.placement, plan.step.replicas)
        found.setdefault(plan.shape, []).append(state)
    return list(found.values())


def podsets(asked: Mapping[StepState, int]) -> tuple[PodSet, ...]:
    """`asked`: how many tasks of each step."""
    return stage_podsets(
        [[PodDemand.of(state.plan.step, asked[state]) for state in states] for states in shapes(asked)]
    )


class Allocation:
    """One Workload of a reservation. Each task that starts on it has it as its permit."""

    __slots__ = (
        "_asked_shapes",
        "_shapes",
        "asked",
        "evicting",
        "gated",
        "granted",
        "held",
        "idle",
        "keeps",
        "key",
        "since",
    )

    def __init__(self, key: str, asked: dict[StepState, int], since: float) -> None:
        self.key = key
        self.asked = asked
        """Tasks, by step, that it was requested for."""
        self.granted: dict[StepState, int] = {}
        """Permits, by step, that are in use."""
        self.idle = 0
        """Permits that wait for the next stage of the chain."""
        self.gated = False
        """The steps before it have not ended: it takes no part in admission."""
        self.held = False
        """It is admitted."""
        self.evicting = False
        """It was evicted, and its tasks are being stopped."""
        self.keeps = 0
        """Tasks that go on although it was evicted, because those who asked need no more than the others."""
        self.since = since
        self._shapes: list[list[StepState]] = []
        self._asked_shapes: tuple[int, int] = (0, 0)

    def shapes(self) -> list[list[StepState]]:
        """Its steps, those with pods of one shape together, in the order of its pod sets."""
        asked = (id(self.asked), len(self.asked))
        if asked != self._asked_shapes:
            self._asked_shapes, self._shapes = asked, shapes(self.asked)
        return self._shapes

    @property
    def busy(self) -> int:
        """Tasks that run on it, or are about to."""
        return sum(self.granted.values())


class ActiveReservation:
    """The quota of a stage; or of one stage after another of a chain; or of a whole workflow."""

    def __init__(
        self,
        run: QueuedRun,
        name: str,
        queue: tuple[str, str],
        priority: tuple[int, str | None],
        unit: Unit,
        chain: tuple[str, ...],
        order: int,
    ) -> None:
        self.run = run
        self.name = name
        self.namespace, self.queue = queue
        self.priority, self.priority_class = priority
        self.unit = unit
        self.order = order
        """Its number among the reservations of its engine: of two stages of one run, the one that asked first goes first."""
        self.chain = chain
        """The steps that hold it one after the other."""
        self.allocations: dict[str, Allocation] = {}
        self.pending: dict[str, Allocation] = {}
        """Those of them that wait for admission."""
        self.steps: set[StepState] = set()
        """The steps that it is for now."""
        self.made = 0
        """How many Workloads it has had."""
        self.reason = ""
        """Why it waits, as last recorded."""

    def next_name(self) -> str:
        self.made += 1
        return f"{self.run.record.id}/{self.name}" + (f"+{self.made}" if self.made > 1 else "")

    def has_successor(self, state: StepState) -> bool:
        """Does another stage take the machines over when this step has ended? Then nothing is given back before."""
        return state.plan.step.name in self.chain[:-1]

    def requested(self, state: StepState) -> int:
        """Tasks of a step that wait for quota, or will when they have been stopped."""
        found = self.allocations.values()
        return sum(one.asked.get(state, 0) for one in found if not one.held or one.evicting)

    def add(self, allocation: Allocation) -> None:
        self.allocations[allocation.key] = allocation
        if not allocation.gated:
            self.pending[allocation.key] = allocation

    def remove(self, allocation: Allocation) -> None:
        self.allocations.pop(allocation.key, None)
        self.pending.pop(allocation.key, None)

    def workload(self, name: str, podsets: tuple[PodSet, ...]) -> Workload:
        """Its creation time is that of its run: every stage has the run's place in the queue."""
        return Workload(
            name=name,
            namespace=self.namespace,
            uid=f"{self.run.number:012d}/{self.order:09d}/{self.made:09d}",
            queue=self.queue,
            podsets=podsets,
            priority=self.priority,
            priority_class=self.priority_class,
            created=self.run.record.created,
        )


def chains_of(workflow: Workflow, params: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Step path -> the names of the steps of its chain, for those that are in one (unit reuse)."""
    from penstock.plan.make import make

    found: dict[str, tuple[str, ...]] = {}
    for reservation in make(workflow, params, Unit.REUSE).reservations:
        if len(reservation.stages) > 1:
            names = tuple(path.rpartition("/")[2] for path in reservation.stages)
            found.update(dict.fromkeys(reservation.stages, names))
    return found
