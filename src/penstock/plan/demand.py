"""Peak demand: the most that a workflow can hold of each resource at one moment. Called by plan.make and plan.reserve.

Exact: a maximum-weight antichain of the graph (antichain.py) for each resource. A nested workflow is a module of the
graph around it: nothing outside is ordered with only a part of it. So the weight of the step that calls it is its peak times the number of
calls that run side by side. A finished step weighs nothing, so the peak of the rest never rises.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.graph import quantity
from penstock.plan.expand import Level, Planned

Counts = Callable[[Planned], bool]
"""Which steps count: all, or those of one placement."""


@dataclass(frozen=True, slots=True)
class Peak:
    """The most of one resource at one moment, and the steps that make it up."""

    resource: str
    amount: int
    steps: tuple[tuple[str, int], ...]
    """(path, amount) of each step in the heaviest set."""
    total: int
    """The sum over all steps: what would be reserved if nothing ever finished."""
    open: tuple[str, ...] = ()
    """Steps whose size is only known at run time. They count as one task each; recursive calls count as none."""

    maybe: tuple[str, ...] = ()
    """Steps of the set that may not run: then the peak is smaller."""

    @property
    def exact(self) -> bool:
        return not self.open and not self.maybe

    def as_data(self) -> dict[str, Any]:
        def show(amount: int) -> str:
            return quantity.show(amount, self.resource)

        data: dict[str, Any] = {
            "peak": show(self.amount),
            "sum": show(self.total),
            "steps": [{"step": path, "amount": show(amount)} for path, amount in self.steps],
        }
        if self.open:
            data["unknown"] = list(self.open)
        if self.maybe:
            data["conditional"] = list(self.maybe)
        return data


@dataclass(slots=True)
class _Sum:
    amount: int
    steps: list[tuple[str, int]]
    """The steps of a nested workflow; empty for a plain step."""
    total: int
    open: list[str]


def peaks(
    level: Level, finished: Collection[str] = frozenset(), counts: Counts = lambda planned: True
) -> dict[str, Peak]:
    """Every requested resource -> its peak. `finished`: paths of steps that have ended or never ran."""
    done = frozenset(finished)
    unsure = _conditional(level)
    found = {}
    for resource in resources(level):
        result = _peak(level, resource, done, counts)
        if result.total:
            maybe = tuple(path for path, _ in result.steps if path in unsure)
            found[resource] = Peak(
                resource, result.amount, tuple(result.steps), result.total, tuple(result.open), maybe
            )
    return found


def _conditional(level: Level, inside: bool = False) -> frozenset[str]:
    """Paths of steps with a condition that is not known yet, their own or that of a workflow around them."""
    found: set[str] = set()
    for planned in level.steps:
        unsure = inside or planned.runs == "maybe"
        if unsure:
            found.add(planned.path)
        if planned.inner is not None:
            found |= _conditional(planned.inner, unsure)
    return frozenset(found)


def resources(level: Level) -> list[str]:
    return sorted({resource for planned, _ in level.walk() for resource in planned.step.resources})


def _peak(level: Level, resource: str, done: frozenset[str], counts: Counts) -> _Sum:
    """The peak of one workflow. Exit handlers are exempt, and weigh nothing."""
    weights = []
    nested: dict[int, _Sum] = {}
    total = 0
    unknown: list[str] = []
    for i, planned in enumerate(level.steps):
        weight = 0
        if planned.recursive and planned.runs != "no" and not planned.exempt:
            unknown.append(planned.path)
        if planned.inner is not None or resource in planned.step.resources:
            part = None if _over(planned, done) else _weight(planned, resource, done, counts)
            if part is not None:
                weight = part.amount
                total += part.total
                unknown += part.open
                if planned.inner is not None:
                    nested[i] = part
        weights.append(weight)
    amount, chosen = level.graph.heaviest(weights)
    steps: list[tuple[str, int]] = []
    for i in chosen:
        steps += nested[i].steps if i in nested else [(level.steps[i].path, weights[i])]
    return _Sum(amount, steps, total, unknown)


def _over(planned: Planned, done: frozenset[str]) -> bool:
    return planned.exempt or planned.runs == "no" or planned.path in done


def _weight(planned: Planned, resource: str, done: frozenset[str], counts: Counts) -> _Sum | None:
    """The most that one step holds at one moment: all of its tasks that run side by side."""
    width = planned.width.count
    side_by_side = 1 if width is None else width
    tasks = side_by_side if planned.tasks.count is None else planned.tasks.count
    unknown = [planned.path] if width is None else []
    if planned.inner is not None:
        part = _peak(planned.inner, resource, done, counts)
        if not part.total:
            return None
        steps = [(path, amount * side_by_side) for path, amount in part.steps]
        return _Sum(part.amount * side_by_side, steps, part.total * tasks, unknown + part.open)
    amount = planned.step.resources[resource] * planned.step.replicas
    if not amount or not side_by_side or not counts(planned):
        return None
    return _Sum(amount * side_by_side, [], amount * tasks, unknown)


def vector(found: Mapping[str, Peak]) -> dict[str, int]:
    return {resource: peak.amount for resource, peak in found.items() if peak.amount}
