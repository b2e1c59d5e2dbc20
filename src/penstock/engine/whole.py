"""The quota that a run holds from its first step to its last (unit workflow): a vector for each kind of machine, as large as the
peak of what remains. Called by admitting. Pure bookkeeping.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.admission.model import PodSet, Workload
from penstock.engine.live import Live
from penstock.engine.reserved import Lot, base, where
from penstock.engine.steps import StepState
from penstock.graph.model import Placement, Step, Workflow

MOST_PODS = 10_000
"""Unit pods that it is cut into, for each resource."""


class Pool:
    """What is held on machines of one kind."""

    __slots__ = ("amounts", "free", "placement", "units")

    def __init__(self, placement: Placement | None, amounts: Mapping[str, int], units: Mapping[str, int]) -> None:
        self.placement = placement
        self.amounts = dict(amounts)
        """Needed for what remains."""
        self.units = dict(units)
        self.free: dict[str, int] = {}
        """Held, and in nobody's use."""


class Whole:
    def __init__(self, live: Live, workflow: Workflow, params: Mapping[str, Any]) -> None:
        from penstock.plan.make import make

        self.live = live
        self.plan = make(workflow, params)
        self.pools = [
            Pool(placement, amounts, _units(self.plan, placement, amounts)) for placement, amounts in self._remaining()
        ]
        self.lot: Lot
        self.waiting: dict[StepState, None] = {}
        """Steps that have tasks to start when others end."""
        self.asked: list[dict[str, int]] = []
        """As it was when it was asked for, in unit pods by pod set."""
        self.look_again = 0.0
        self.due = False
        """To be looked at in the next turn, whether or not anything ends."""

    def _remaining(self) -> list[tuple[Placement | None, dict[str, int]]]:
        from penstock.plan.reserve import pools

        return [(pool.placement, base(pool.amounts)) for pool in pools(self.plan.level, self._finished())]

    def _finished(self) -> frozenset[str]:
        """Steps of the run itself that are over, with everything inside them."""
        root = self.live.machine.root
        over = {
            plan.step.name
            for plan, outcome in zip(root.blueprint.plans, root.outcomes, strict=True)
            if outcome is not None
        }
        return frozenset(
            planned.path for planned, _ in self.plan.level.walk() if planned.path.partition("/")[0] in over
        )

    def podsets(self) -> tuple[PodSet, ...]:
        """The vector as pods of one unit each. What is held on one kind of machine gets one flavor."""
        found = []
        for number, pool in enumerate(self.pools):
            for resource, amount in sorted(pool.amounts.items()):
                if amount > 0:
                    found.append(
                        PodSet(
                            name=_name(number, resource),
                            count=-(-amount // pool.units[resource]),
                            requests={resource: pool.units[resource]},
                            group=f"pool-{number}" if len(pool.amounts) > 1 else None,
                            **where(pool.placement),
                        )
                    )
        return tuple(found)

    def admitted(self, lot: Lot, workload: Workload) -> None:
        counts = {one.name: one.count for one in workload.admission.podsets} if workload.admission else {}
        for number, pool in enumerate(self.pools):
            pool.free = {
                resource: counts.get(_name(number, resource), 0) * unit for resource, unit in pool.units.items()
            }
        self.asked = [dict(pool.free) for pool in self.pools]

    def need(self, step: Step) -> dict[str, int]:
        return {name: amount * step.replicas for name, amount in base(step.resources).items()}

    def pool_of(self, step: Step) -> Pool:
        return next(pool for pool in self.pools if pool.placement == step.placement)

    def fits(self, state: StepState) -> int:
        """How many tasks of a step can start on what is free; of a gang, all that are left or none."""
        step = state.plan.step
        need = self.need(step)
        many = state.hungry
        if need and many:
            free = self.pool_of(step).free
            fit = min(free.get(name, 0) // amount for name, amount in need.items())
            many = 0 if fit < many and step.each is not None and step.each.gang else min(many, fit)
        return many

    def take(self, state: StepState, many: int) -> None:
        self.lot.granted[state] = self.lot.granted.get(state, 0) + many
        self._free(state, -many)

    def give_back(self, state: StepState, many: int = 1) -> None:
        self.lot.granted[state] -= many
        self._free(state, many)

    def _free(self, state: StepState, many: int) -> None:
        need = self.need(state.plan.step)
        if need:
            free = self.pool_of(state.plan.step).free
            for name, amount in need.items():
                free[name] = free.get(name, 0) + amount * many

    def step_over(self, state: StepState, unused: int) -> None:
        self.waiting.pop(state, None)
        if unused:
            self.give_back(state, unused)
        if not self.lot.granted.get(state):
            self.lot.granted.pop(state, None)

    def shrink(self) -> dict[str, int]:
        """As steps end the peak of the rest falls. Returns the unit pods, by pod set, that are not needed any more."""
        left = {_key(placement): amounts for placement, amounts in self._remaining()}
        gone: dict[str, int] = {}
        for number, pool in enumerate(self.pools):
            now = left.get(_key(pool.placement), {})
            for resource, unit in pool.units.items():
                held = pool.amounts.get(resource, 0)
                surplus = min(held - now.get(resource, 0), pool.free.get(resource, 0)) // unit * unit
                if surplus > 0:
                    pool.amounts[resource] = held - surplus
                    pool.free[resource] -= surplus
                name = _name(number, resource)
                kept = -(-pool.amounts.get(resource, 0) // unit)
                before = self.asked[number].get(resource, 0) // unit
                if before > kept:
                    gone[name] = before - kept
        return gone


def _name(pool: int, resource: str) -> str:
    return f"{pool}-{resource}".replace("/", "-").replace(".", "-")


def _key(placement: Placement | None) -> str:
    return repr(placement)


def _units(plan: Any, placement: Placement | None, amounts: Mapping[str, int]) -> dict[str, int]:
    """For each resource the largest amount that every step's need is a multiple of, so that what ends can be given back
    exactly; larger if there would be too many of them."""
    needs: dict[str, list[int]] = {}
    for planned, _ in plan.level.walk():
        if planned.step.placement == placement:
            for name, amount in base(planned.step.resources).items():
                needs.setdefault(name, []).append(amount)
    return {name: _unit(needs.get(name, [total]), total) for name, total in amounts.items()}


def _unit(amounts: Sequence[int], total: int) -> int:
    unit = math.gcd(*amounts) or 1
    return unit if total // unit <= MOST_PODS else -(-total // MOST_PODS)
