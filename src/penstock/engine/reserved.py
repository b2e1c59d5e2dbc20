"""What a run holds of the queues while it runs: reservations, each of one or more lots. Called by admitting. Pure bookkeeping.

A lot is one Workload. An elastic stage may hold several: what was admitted first, and the rest that keeps its place in line.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from penstock.admission.model import PodSet, Requirement, Toleration, Workload
from penstock.engine.live import Live
from penstock.engine.steps import StepState
from penstock.graph.model import Placement, Step, Unit, Workflow


def base(resources: Mapping[str, int]) -> dict[str, int]:
    """From thousandths to what queues count in: cpu in thousandths, the rest in whole units, rounded up."""
    return {name: amount if name == "cpu" else -(-amount // 1000) for name, amount in resources.items() if amount}


def where(placement: Placement | None) -> dict[str, Any]:
    """A step's placement as a pod set has it."""
    if placement is None:
        return {}
    return {
        "selector": dict(placement.node_selector),
        "tolerations": tuple(
            Toleration(one.key or "", one.operator, one.value or "", one.effect or "") for one in placement.tolerations
        ),
        "affinity": _terms(placement.affinity),
    }


def _terms(affinity: Any) -> tuple[tuple[Requirement, ...], ...] | None:
    """Kubernetes' required node affinity, if that is what it is."""
    try:
        node = affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        return tuple(
            tuple(
                Requirement(one["key"], one["operator"], tuple(map(str, one.get("values", ()))))
                for one in term.get("matchExpressions", ())
            )
            for term in node["nodeSelectorTerms"]
        )
    except (KeyError, TypeError, AttributeError):
        return None


MOST_SHAPES = 18
"""Kinds of pods that one Workload can have."""


def shapes(states: Iterable[StepState]) -> list[list[StepState]]:
    """Steps whose pods are alike, together."""
    found: dict[str, list[StepState]] = {}
    for state in states:
        plan = state.plan
        if plan.shape is None:
            step = plan.step
            plan.shape = repr((sorted(step.resources.items()), step.replicas, step.placement))
        found.setdefault(plan.shape, []).append(state)
    return list(found.values())


def podset(states: Sequence[StepState], asked: Mapping[StepState, int], elastic: bool, name: str) -> PodSet:
    """Steps with one kind of pods, and how many tasks of each. If they are elastic fewer may be admitted, one at least."""
    step = states[0].plan.step
    tasks = sum(asked[state] for state in states)
    gang = (
        not elastic or tasks <= 1 or any(one.plan.step.each is not None and one.plan.step.each.gang for one in states)
    )
    return PodSet(
        name=name,
        count=tasks * step.replicas,
        min_count=None if gang else step.replicas,
        requests=base(step.resources),
        **where(step.placement),
    )


def one_of(step: Step) -> PodSet:
    """The pods of one task."""
    return PodSet(count=step.replicas, requests=base(step.resources), **where(step.placement))


class Lot:
    """One Workload of a reservation. Each task that it lets start has it as its permit."""

    __slots__ = ("_kinds", "_of", "asked", "gated", "granted", "held", "idle", "key", "leaving", "since")

    def __init__(self, key: str, asked: dict[StepState, int], since: float) -> None:
        self.key = key
        self.asked = asked
        """Tasks, by step, that it was asked for."""
        self.granted: dict[StepState, int] = {}
        """Permits, by step, that are in use."""
        self.idle = 0
        """Permits that wait for the stage that takes over."""
        self.gated = False
        """Its time has not come."""
        self.held = False
        self.leaving = False
        """It was evicted: it is gone when its tasks have stopped."""
        self.since = since
        self._kinds: list[list[StepState]] = []
        self._of: tuple[int, int] = (0, 0)

    def kinds(self) -> list[list[StepState]]:
        """Its steps, those with pods of one kind together, in the order of its pod sets."""
        of = (id(self.asked), len(self.asked))
        if of != self._of:
            self._of, self._kinds = of, shapes(self.asked)
        return self._kinds

    @property
    def busy(self) -> int:
        return sum(self.granted.values())


class Reserved:
    """The quota that a stage holds, or one stage after the other of a chain."""

    def __init__(
        self,
        live: Live,
        name: str,
        queue: tuple[str, str],
        priority: int,
        priority_class: str | None,
        unit: Unit,
        chain: tuple[str, ...],
        order: int,
    ) -> None:
        self.live = live
        self.name = name
        self.namespace, self.queue = queue
        self.priority = priority
        self.priority_class = priority_class
        self.unit = unit
        self.order = order
        """The how-manieth of its engine: among stages of one run, who asked first goes first."""
        self.chain = chain
        """The steps that have it one after the other."""
        self.lots: dict[str, Lot] = {}
        self.lined: dict[str, Lot] = {}
        """Those of them that stand in line."""
        self.states: set[StepState] = set()
        """The steps that it is for now."""
        self.made = 0
        self.said = ""
        """Why it waits, as it was last written down."""

    def next_name(self) -> str:
        self.made += 1
        return f"{self.live.run.id}/{self.name}" + (f"+{self.made}" if self.made > 1 else "")

    def heir_of(self, state: StepState) -> bool:
        """Does somebody take over when this step is done? Then nothing is given back before."""
        return state.plan.step.name in self.chain[:-1]

    def pending(self, state: StepState) -> int:
        """Tasks of a step that are in line, or will be when they have stopped."""
        return sum(lot.asked.get(state, 0) for lot in self.lots.values() if not lot.held or lot.leaving)

    def add(self, lot: Lot) -> None:
        self.lots[lot.key] = lot
        if not lot.gated:
            self.lined[lot.key] = lot

    def remove(self, lot: Lot) -> None:
        self.lots.pop(lot.key, None)
        self.lined.pop(lot.key, None)

    def podsets(self, asked: Mapping[StepState, int]) -> tuple[PodSet, ...]:
        """One for each kind of pods. Of several kinds, all start or none does."""
        kinds = shapes(asked)
        return tuple(
            podset(states, asked, len(kinds) == 1, "main" if len(kinds) == 1 else states[0].plan.step.name)
            for states in kinds
        )

    def workload(self, name: str, podsets: tuple[PodSet, ...]) -> Workload:
        """In line by the time its run was submitted: a stage keeps the place of its run."""
        return Workload(
            name=name,
            namespace=self.namespace,
            uid=f"{self.live.number:012d}/{self.order:09d}/{self.made:09d}",
            queue=self.queue,
            podsets=podsets,
            priority=self.priority,
            priority_class=self.priority_class,
            created=self.live.run.created,
        )


def heirs_of(workflow: Workflow, params: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Step path -> the names of the steps of its chain, for those that are in one (unit reuse)."""
    from penstock.plan.make import make

    found: dict[str, tuple[str, ...]] = {}
    for reservation in make(workflow, params, Unit.REUSE).reservations:
        if len(reservation.stages) > 1:
            names = tuple(path.rpartition("/")[2] for path in reservation.stages)
            found.update(dict.fromkeys(reservation.stages, names))
    return found
