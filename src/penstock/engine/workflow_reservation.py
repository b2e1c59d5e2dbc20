"""The quota that a run holds from its first step to its last (unit workflow): one vector for each kind of machine, as large as the
peak of what remains. Owned by Reservations. Pure bookkeeping.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.admission.model import PodSet, Workload
from penstock.engine.allocation import Allocation, QueuedRun
from penstock.engine.podsets import Vector, amounts, unit_name, units_of, vector_podsets
from penstock.engine.steps import StepState
from penstock.graph.model import Placement, Step, Workflow


class ResourcePool:
    """What is held on machines of one kind."""

    __slots__ = ("admitted", "amounts", "free", "placement", "units")

    def __init__(self, placement: Placement | None, amounts: Mapping[str, int], units: Mapping[str, int]) -> None:
        self.placement = placement
        self.amounts = dict(amounts)
        """Needed for what remains."""
        self.units = dict(units)
        """How much one unit pod is."""
        self.free: dict[str, int] = {}
        """Held, and not used by a task."""
        self.admitted: dict[str, int] = {}
        """As it was when it was admitted."""


class WorkflowReservation:
    def __init__(self, run: QueuedRun, workflow: Workflow, params: Mapping[str, Any]) -> None:
        from penstock.plan.make import make

        self.run = run
        self.plan = make(workflow, params)
        steps = [planned.step for planned, _ in self.plan.level.walk()]
        self.pools = [
            ResourcePool(placement, peak, units_of(steps, placement, peak)) for placement, peak in self._remaining()
        ]
        self.allocation: Allocation
        self.waiting: dict[StepState, None] = {}
        """Steps that have tasks to start when others end."""
        self.postponed = False
        """It is to be shrunk in the next turn, whether or not anything ends."""

    def _remaining(self) -> list[tuple[Placement | None, dict[str, int]]]:
        from penstock.plan.reserve import pools

        return [(pool.placement, amounts(pool.amounts)) for pool in pools(self.plan.level, self._ended())]

    def _ended(self) -> frozenset[str]:
        """Steps of the run itself that have ended, with everything inside them."""
        root = self.run.state.root
        ended = {
            plan.step.name
            for plan, outcome in zip(root.blueprint.plans, root.outcomes, strict=True)
            if outcome is not None
        }
        return frozenset(
            planned.path for planned, _ in self.plan.level.walk() if planned.path.partition("/")[0] in ended
        )

    def podsets(self) -> tuple[PodSet, ...]:
        return vector_podsets(Vector(pool.placement, pool.amounts, pool.units) for pool in self.pools)

    def admitted(self, workload: Workload) -> None:
        counts = {one.name: one.count for one in workload.admission.podsets} if workload.admission else {}
        for number, pool in enumerate(self.pools):
            pool.free = {
                resource: counts.get(unit_name(number, resource), 0) * unit for resource, unit in pool.units.items()
            }
            pool.admitted = dict(pool.free)

    def fits(self, state: StepState) -> int:
        """How many tasks of a step can start on what is free; of a gang, all that are left or none."""
        step = state.plan.step
        need = _need(step)
        many = state.wanted
        if need and many:
            free = self._pool_of(step).free
            fit = min(free.get(name, 0) // amount for name, amount in need.items())
            many = 0 if fit < many and step.each is not None and step.each.gang else min(many, fit)
        return many

    def take(self, state: StepState, many: int) -> None:
        granted = self.allocation.granted
        granted[state] = granted.get(state, 0) + many
        self._change_free(state, -many)

    def give_back(self, state: StepState, many: int = 1) -> None:
        self.allocation.granted[state] -= many
        self._change_free(state, many)

    def _change_free(self, state: StepState, many: int) -> None:
        need = _need(state.plan.step)
        if need:
            free = self._pool_of(state.plan.step).free
            for name, amount in need.items():
                free[name] = free.get(name, 0) + amount * many

    def _pool_of(self, step: Step) -> ResourcePool:
        return next(pool for pool in self.pools if pool.placement == step.placement)

    def step_ended(self, state: StepState, unused: int) -> None:
        self.waiting.pop(state, None)
        if unused:
            self.give_back(state, unused)
        if not self.allocation.granted.get(state):
            self.allocation.granted.pop(state, None)

    def shrink(self) -> dict[str, int]:
        """As steps end the peak of the rest falls. Returns the unit pods, by pod set, that are not needed any more."""
        left = {repr(placement): peak for placement, peak in self._remaining()}
        gone: dict[str, int] = {}
        for number, pool in enumerate(self.pools):
            now = left.get(repr(pool.placement), {})
            for resource, unit in pool.units.items():
                held = pool.amounts.get(resource, 0)
                surplus = min(held - now.get(resource, 0), pool.free.get(resource, 0)) // unit * unit
                if surplus > 0:
                    pool.amounts[resource] = held - surplus
                    pool.free[resource] -= surplus
                kept = -(-pool.amounts.get(resource, 0) // unit)
                before = pool.admitted.get(resource, 0) // unit
                if before > kept:
                    gone[unit_name(number, resource)] = before - kept
        return gone


def _need(step: Step) -> dict[str, int]:
    return {name: amount * step.replicas for name, amount in amounts(step.resources).items()}
