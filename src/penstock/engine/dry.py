"""A walk through a workflow in which nothing is run: every step succeeds with empty values, and what cannot be known from such
values is taken to be so. Called by loop for runs that were submitted with `dry`.

A condition, list or input that has no value on what was made up ends nothing: the step is walked, once. A workflow that calls itself
is walked a few calls deep. Nothing is kept, shared, locked or queued.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from penstock.backends.fake import empty
from penstock.engine.blueprint import Blueprint, Items, StepPlan
from penstock.engine.judge import results_of
from penstock.engine.machine import Machine
from penstock.engine.steps import Scope, Task
from penstock.graph.evaluate import EvaluationError, resolve
from penstock.graph.expr import Expr, references
from penstock.graph.model import MISSING, Outcome, Step, Suspend, expressions

FAKE: Final = "fake"
DEEP: Final = 2
"""A workflow is walked so many times inside itself."""
ROUNDS: Final = 2
"""Of a while loop."""
NO_VALUE: Final = (EvaluationError, ValueError, KeyError, IndexError, TypeError)


def lane_of(step: Step) -> str:
    return Suspend.kind if isinstance(step.action, Suspend) else FAKE


def not_kept(step: Step) -> str | None:
    """What was made up is of no use to anybody else."""
    return None


def supplied(step: Step) -> dict[str, Any]:
    """What somebody might have said who was asked."""
    return {
        output.name: empty(output.type) if output.default is MISSING else resolve(output.default, {})
        for output in step.outputs
    }


class DryMachine(Machine):
    def _triggered(self, scope: Scope, plan: StepPlan) -> bool:
        if _too_deep(scope, plan.inner):
            return False
        try:
            return super()._triggered(scope, plan)
        except NO_VALUE:
            return True

    def _wanted(self, scope: Scope, plan: StepPlan) -> bool | None:
        if _too_deep(scope, plan.inner):
            return False
        try:
            return super()._wanted(scope, plan)
        except NO_VALUE:
            return True

    def _item_wanted(self, scope: Scope, when: Expr, item: Mapping[str, Any]) -> bool:
        try:
            return super()._item_wanted(scope, when, item)
        except NO_VALUE:
            return True

    def _items(self, scope: Scope, plan: StepPlan) -> Items:
        each = plan.step.each
        assert each is not None
        if _too_deep(scope, plan.inner):
            return Items.listed([])
        try:
            found = super()._items(scope, plan)
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

    def _inputs(self, scope: Scope, plan: StepPlan, item: Any) -> dict[str, Any]:
        try:
            return super()._inputs(scope, plan, item)
        except NO_VALUE:
            pass
        found: dict[str, Any] = {}
        for getter, given in zip(plan.getters, plan.step.inputs, strict=True):
            try:
                found |= plan._inputs((getter,), scope.params, scope.steps, scope.view, item)
            except NO_VALUE:
                found[given.name] = "" if given.type.name in ("any", "file", "dir") else empty(given.type)
        return found

    def _resolve(self, task: Task, item: Any) -> None:
        try:
            super()._resolve(task, item)
        except NO_VALUE:
            return

    def _key_of(self, task: Task, within: Mapping[str, Any]) -> None:
        return

    def _holds(self, task: Task, condition: Expr, item: Any, outputs: Mapping[str, Any] | None) -> bool | None:
        holds = super()._holds(task, condition, item, outputs)
        return outputs is None and task.round <= 1 if holds is None else holds

    def _next_round(self, task: Task, outputs: dict[str, Any]) -> bool:
        if task.round >= ROUNDS:
            self.last = (Outcome.SUCCEEDED, "")
            return False
        return super()._next_round(task, outputs)

    def _results(self, scope: Scope) -> tuple[dict[str, Any], str]:
        found, _ = results_of(scope)
        for output in scope.blueprint.workflow.outputs:
            if output.name not in found:
                found[output.name] = empty(output.type)
        return found, ""


def _too_deep(scope: Scope, inner: Blueprint | None) -> bool:
    """Would this be one call too many of a workflow inside itself?"""
    around = 0
    at: Scope | None = scope
    while at is not None and inner is not None:
        around += at.blueprint is inner
        at = None if at.owner is None else at.owner.state.scope
    return around > DEEP
