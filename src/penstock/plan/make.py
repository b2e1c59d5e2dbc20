"""Workflow + parameters -> Plan: everything that is known before anything runs. Called by service, merge and diff.

Each part of a plan is computed on demand, and the module that computes it is imported then: a run needs little of it.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from penstock.errors import InvalidWorkflow, PlanError, Problem
from penstock.graph import codec
from penstock.graph.check import check, check_arguments
from penstock.graph.links import Links, links_of
from penstock.graph.model import MISSING, Unit, Workflow
from penstock.plan.expand import Level, expand

if TYPE_CHECKING:
    from penstock.plan import demand, reserve, stages
    from penstock.plan.dedupe import Keys

Orders = dict[str, tuple[list[str], dict[str, tuple[str, ...]]]]


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Switches Python's cycle collector off. Planning only allocates, and the collector would take a third of the time at a hundred
    thousand steps."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@dataclass(frozen=True)
class Plan:
    """What is known before a run. The dearer parts are computed when they are first read."""

    workflow: Workflow
    params: Mapping[str, Any]
    unit: Unit
    level: Level
    orders: Orders
    warnings: tuple[Problem, ...] = ()

    @cached_property
    def stages(self) -> list[stages.Stage]:
        from penstock.plan import stages

        with uninterrupted():
            return stages.stages(self.level, self.workflow)

    @cached_property
    def peaks(self) -> dict[str, demand.Peak]:
        """Resource -> the most that is held at one moment."""
        from penstock.plan import demand

        with uninterrupted():
            return demand.peaks(self.level)

    @cached_property
    def reservations(self) -> list[reserve.Reservation]:
        from penstock.plan import reserve

        with uninterrupted():
            return reserve.reserve(self.level, self.stages, self.unit)

    @cached_property
    def keys(self) -> Keys:
        from penstock.plan.dedupe import content_keys

        with uninterrupted():
            return content_keys(self.workflow, self.params, self.orders, salt=self.digest if self.has_private() else "")

    @cached_property
    def digest(self) -> str:
        return codec.digest(self.workflow)

    def has_private(self) -> bool:
        return any(
            not planned.step.cache.enabled
            or planned.step.answer is not None
            or planned.step.action.kind in ("suspend", "http", "resource")
            for planned, _ in self.level.walk()
        )

    def as_data(self) -> dict[str, Any]:
        """What `penstock plan -o json` prints."""
        return {
            "workflow": self.workflow.name,
            "digest": self.digest,
            "unit": str(self.unit),
            "queue": self.workflow.queue,
            "params": {name: codec.encode_value(value) for name, value in self.params.items()},
            "steps": [self.step_data(planned, calls) for planned, calls in self.level.walk()],
            "stages": [stage.as_data() for stage in self.stages],
            "demand": {resource: peak.as_data() for resource, peak in self.peaks.items()},
            "reservations": [reservation.as_data() for reservation in self.reservations],
            "warnings": [problem.as_data() for problem in self.warnings],
        }

    def step_data(self, planned: Any, calls: Any) -> dict[str, Any]:
        from penstock.plan import stages

        step = planned.step
        prefix = planned.path.removesuffix(step.name)
        level_before = self.before_of(planned.path)
        data: dict[str, Any] = {
            "name": planned.path,
            "kind": step.action.kind,
            "tasks": planned.tasks.as_data(),
            "runs": planned.runs,
            "key": self.keys.keys[planned.path],
        }
        if level_before:
            data["after"] = [prefix + up for up in level_before]
        if step.when is not None:
            data["when"] = step.when.text
        if step.resources:
            data["resources"] = stages.amounts(step.resources)
        if step.replicas != 1:
            data["replicas"] = step.replicas
        if calls.count != 1:
            data["calls"] = calls.as_data()
        if planned.rounds is not None:
            data["rounds"] = planned.rounds
        if planned.exempt:
            data["exempt"] = True
        if planned.recursive:
            data["recursive"] = True
        if planned.path in self.keys.private:
            data["private"] = self.keys.private[planned.path]
        return data

    @cached_property
    def _before(self) -> dict[str, tuple[str, ...]]:
        found: dict[str, tuple[str, ...]] = {}

        def visit(level: Level) -> None:
            for planned in level.steps:
                found[planned.path] = level.before[planned.step.name]
                if planned.inner is not None:
                    visit(planned.inner)

        visit(self.level)
        return found

    def before_of(self, path: str) -> tuple[str, ...]:
        return self._before[path]


def make(
    workflow: Workflow,
    params: Mapping[str, Any] | None = None,
    unit: Unit | str | None = None,
    links: Mapping[str, Links] | None = None,
) -> Plan:
    """Raises InvalidWorkflow or PlanError with every Problem found. `links`: if the caller has them already."""
    try:
        with uninterrupted():
            return _make(workflow, params, unit, links or links_of(workflow))
    except RecursionError:
        problem = Problem("P405", "its workflows are nested too deep", "call workflows from fewer levels")
        raise PlanError(problem) from None


def _make(
    workflow: Workflow, params: Mapping[str, Any] | None, unit: Unit | str | None, links: Mapping[str, Links]
) -> Plan:
    problems = check(workflow, links)
    wrong = [problem for problem in problems if problem.severity == "error"]
    if wrong:
        raise InvalidWorkflow(wrong)
    given = {name: _frozen(value) for name, value in (params or {}).items()}
    bad = check_arguments(workflow.params, given)
    if bad:
        raise PlanError(bad)
    known = {param.name: given.get(param.name, param.default) for param in workflow.params}
    orders = orders_of(workflow, links)
    level = expand(workflow, given, orders)
    chosen = Unit(unit) if unit is not None else workflow.unit or Unit.STAGE
    warnings = tuple(problem for problem in problems if problem.severity == "warning")
    return Plan(
        workflow,
        {name: value for name, value in known.items() if value is not MISSING},
        chosen,
        level,
        orders,
        warnings,
    )


def orders_of(workflow: Workflow, links: Mapping[str, Links]) -> Orders:
    """For the root ("") and each definition: its steps in order, and what each waits for. Exit handlers wait for all."""
    found: Orders = {}
    for key, one in [("", workflow), *((definition.name, definition) for definition in workflow.definitions)]:
        order, before = links[key].order, links[key].before
        if one.on_exit:
            exits = {step.name for step in one.on_exit}
            main = [name for name in order if name not in exits]
            ends = set(main) - {up for name in main for up in before[name]}
            last = tuple(name for name in main if name in ends)
            before = before | {name: tuple(dict.fromkeys((*before[name], *last))) for name in exits}
            order = main + [name for name in order if name in exits]
        found[key] = (order, before)
    return found


def _frozen(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(map(_frozen, value))
    if isinstance(value, dict):
        return {key: _frozen(item) for key, item in value.items()}
    return value
