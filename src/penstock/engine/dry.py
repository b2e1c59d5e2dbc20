"""Dry runs: a walk through a workflow in which nothing is executed. Called by Engine for runs that were submitted with `--dry`.

Every step succeeds with empty values. A condition, list or input that has no value on such values ends nothing: the step is walked
once. A workflow that calls itself is walked a few calls deep. Nothing is kept, shared, locked or queued.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from penstock.artifacts.empty import empty_value
from penstock.engine.blueprint import Blueprint, Fetch, Items, StepPlan
from penstock.engine.outcomes import results_of
from penstock.engine.steps import Task, WorkflowScope
from penstock.engine.values import RunValues
from penstock.expressions.evaluate import EvaluationError, resolve
from penstock.expressions.parse import Expr, references
from penstock.graph.model import MISSING, Step, Suspend, expressions

FAKE: Final = "fake"
DEEP: Final = 2
"""How many times a workflow is walked inside itself."""
ROUNDS: Final = 2
"""How many rounds of a while loop are walked."""
NO_VALUE: Final = (EvaluationError, ValueError, KeyError, IndexError, TypeError)


def lane_of(step: Step) -> str:
    return Suspend.kind if isinstance(step.action, Suspend) else FAKE


def supplied(step: Step) -> dict[str, Any]:
    """Values for a suspended step, as a person might give them."""
    return {
        output.name: empty_value(output.type) if output.default is MISSING else resolve(output.default, {})
        for output in step.outputs
    }


class DryValues:
    """Values as in a real run where they are known, made-up ones where they are not."""

    def __init__(self, fetch: Fetch) -> None:
        self.fetch = fetch
        self._real = RunValues(fetch)

    def triggered(self, scope: WorkflowScope, plan: StepPlan) -> bool:
        if _too_deep(scope, plan.inner):
            return False
        try:
            return self._real.triggered(scope, plan)
        except NO_VALUE:
            return True

    def wanted(self, scope: WorkflowScope, plan: StepPlan) -> bool | None:
        if _too_deep(scope, plan.inner):
            return False
        try:
            return self._real.wanted(scope, plan)
        except NO_VALUE:
            return True

    def item_wanted(self, scope: WorkflowScope, when: Expr, item: Mapping[str, Any]) -> bool:
        try:
            return self._real.item_wanted(scope, when, item)
        except NO_VALUE:
            return True

    def items(self, scope: WorkflowScope, plan: StepPlan) -> Items:
        each = plan.step.each
        assert each is not None
        if _too_deep(scope, plan.inner):
            return Items.listed([])
        try:
            found = self._real.items(scope, plan)
        except NO_VALUE:
            pass
        else:
            made_up = any(
                path[0] == "steps"
                for axis in each.axes
                for items in axis.values()
                for expr in expressions(items)
                for path in references(expr.text)
            )
            if found.count or not made_up:
                return found
        return Items.listed([{name: "" for axis in each.axes for name in axis}])

    def at_once(self, scope: WorkflowScope, plan: StepPlan) -> int | None:
        try:
            return self._real.at_once(scope, plan)
        except NO_VALUE:
            return None

    def beyond(self, scope: WorkflowScope, plan: StepPlan) -> int | None:
        """What ends is made up: a walk goes through all of it."""
        return None

    def is_one_of_enough(self, task: Task, outputs: Mapping[str, Any]) -> bool:
        return False

    def inputs(self, scope: WorkflowScope, plan: StepPlan, item: Any) -> dict[str, Any]:
        try:
            return self._real.inputs(scope, plan, item)
        except NO_VALUE:
            pass
        found: dict[str, Any] = {}
        for getter, given in zip(plan.getters, plan.step.inputs, strict=True):
            try:
                found |= plan._inputs((getter,), scope.params, scope.steps, scope.view, item)
            except NO_VALUE:
                found[given.name] = "" if given.type.name in ("any", "file", "dir") else empty_value(given.type)
        return found

    def resources(self, scope: WorkflowScope, plan: StepPlan) -> dict[str, int]:
        """The most, where the amount is made of what is made up."""
        try:
            return self._real.resources(scope, plan)
        except NO_VALUE:
            return dict(plan.step.resources)

    def resolve(self, task: Task, item: Any) -> None:
        try:
            self._real.resolve(task, item)
        except NO_VALUE:
            return

    def limit(self, task: Task, item: Any) -> None:
        """Nothing takes time."""

    def give_key(self, task: Task, item: Any) -> None:
        """A made-up result is of no use to another run."""

    def holds(self, task: Task, condition: Expr, item: Any, outputs: Mapping[str, Any] | None) -> bool:
        try:
            return self._real.holds(task, condition, item, outputs)
        except EvaluationError:
            return outputs is None and task.round <= 1

    def may_repeat(self, task: Task) -> bool:
        return task.round < ROUNDS

    def results(self, scope: WorkflowScope) -> tuple[dict[str, Any], str]:
        found, _ = results_of(scope)
        for output in scope.blueprint.workflow.outputs:
            if output.name not in found:
                found[output.name] = empty_value(output.type)
        return found, ""


def _too_deep(scope: WorkflowScope, inner: Blueprint | None) -> bool:
    """Would this be one call too many of a workflow inside itself?"""
    around = 0
    at: WorkflowScope | None = scope
    while at is not None and inner is not None:
        around += at.blueprint is inner
        at = None if at.owner is None else at.owner.state.scope
    return around > DEEP
