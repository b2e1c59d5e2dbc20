"""Peak demand: the most that a workflow can hold of each resource at one moment. Called by plan.make and plan.reserve.

Exact: a maximum-weight antichain of the graph (antichain.py) for each resource. A nested workflow is a module of the graph
around it - nothing outside is ordered with only a part of it - so its peak, times how many of it run side by side, is the
weight of the step that calls it. What is finished weighs nothing, so the peak of what remains never rises.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.graph import quantity
from penstock.plan.antichain import heaviest_antichain
from penstock.plan.expand import Level, Planned

Counts = Callable[[Planned], bool]
"""Which steps weigh anything: all, or those of one placement."""


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
    """Steps whose size is only known at run time. They are counted as one task each."""

    @property
    def exact(self) -> bool:
        return not self.open

    def as_data(self) -> dict[str, Any]:
        def show(amount: int) -> str:
            return quantity.show(amount, self.resource)

        data: dict[str, Any] = {
            "peak": show(self.amount), "sum": show(self.total), "steps": [{"step": path, "amount": show(amount)} for path, amount in self.steps],
        }  # fmt: skip
        if self.open:
            data["unknown"] = list(self.open)
        return data


@dataclass(slots=True)
class _Sum:
    amount: int
    steps: list[tuple[str, int]]
    total: int
    open: list[str]


def peaks(
    level: Level, finished: Collection[str] = frozenset(), counts: Counts = lambda planned: True
) -> dict[str, Peak]:
    """Every resource that is asked for -> its peak. `finished`: paths of steps that are over, or that never ran."""
    done = frozenset(finished)
    found = {}
    for resource in resources(level):
        result = _peak(level, resource, done, counts)
        if result.total:
            found[resource] = Peak(resource, result.amount, tuple(result.steps), result.total, tuple(result.open))
    return found


def resources(level: Level) -> list[str]:
    return sorted({resource for planned, _ in level.walk() for resource in planned.step.resources})


def _peak(level: Level, resource: str, done: frozenset[str], counts: Counts) -> _Sum:
    """The peak of one workflow. Exit handlers are exempt, and weigh nothing."""
    position = {planned.step.name: i for i, planned in enumerate(level.steps)}
    weights = []
    inner: dict[int, _Sum] = {}
    total = 0
    unknown: list[str] = []
    for i, planned in enumerate(level.steps):
        weight = 0
        if not planned.exempt and planned.runs != "no" and planned.path not in done:
            part = _weight(planned, resource, done, counts)
            if part is not None:
                inner[i] = part
                weight = part.amount
                total += part.total
                unknown += part.open
        weights.append(weight)
    if len(inner) == 1:
        chosen = list(inner)
        amount = weights[chosen[0]]
    else:
        edges = [(position[up], i) for i, planned in enumerate(level.steps) for up in level.before[planned.step.name]]
        amount, chosen = heaviest_antichain(weights, edges)
    return _Sum(amount, [step for i in chosen if i in inner for step in inner[i].steps], total, unknown)


def _weight(planned: Planned, resource: str, done: frozenset[str], counts: Counts) -> _Sum | None:
    """What one step can hold at one moment: all of its tasks that run side by side."""
    width = planned.width
    count = 1 if width.count is None else width.count
    unknown = [planned.path] if width.count is None else []
    if planned.inner is not None:
        part = _peak(planned.inner, resource, done, counts)
        if not part.total:
            return None
        tasks = 1 if planned.tasks.count is None else planned.tasks.count
        return _Sum(
            part.amount * count,
            [(path, amount * count) for path, amount in part.steps],
            part.total * tasks,
            unknown + part.open,
        )
    amount = planned.step.resources.get(resource, 0) * planned.step.replicas
    if not amount or not count or not counts(planned):
        return None
    tasks = 1 if planned.tasks.count is None else planned.tasks.count
    return _Sum(amount * count, [(planned.path, amount * count)], amount * tasks, unknown)


def vector(found: Mapping[str, Peak]) -> dict[str, int]:
    return {resource: peak.amount for resource, peak in found.items() if peak.amount}
