"""Where the values of a run come from: conditions, items of a loop, inputs, actions, keys, results. Owned by RunState.

A dry run has another one (see dry), in which a value that cannot be known ends nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from penstock.engine.blueprint import Fetch, Items, Loaded, StepPlan
from penstock.engine.outcomes import results_of
from penstock.engine.steps import Task, WorkflowScope
from penstock.expressions.evaluate import EvaluationError, evaluate
from penstock.expressions.parse import Expr
from penstock.graph.model import Step
from penstock.plan.expand import decide, each_item


class Values(Protocol):
    """Each method raises EvaluationError, KeyError, IndexError, TypeError or ValueError where there is no value."""

    fetch: Fetch

    def triggered(self, scope: WorkflowScope, plan: StepPlan) -> bool:
        """Does the step's trigger hold?"""
        ...

    def wanted(self, scope: WorkflowScope, plan: StepPlan) -> bool | None:
        """Does the step's condition hold? None: that depends on the item."""
        ...

    def item_wanted(self, scope: WorkflowScope, when: Expr, item: Mapping[str, Any]) -> bool: ...

    def items(self, scope: WorkflowScope, plan: StepPlan) -> Items: ...

    def inputs(self, scope: WorkflowScope, plan: StepPlan, item: Any) -> dict[str, Any]: ...

    def resolve(self, task: Task, item: Any) -> None:
        """Replace the expressions in the task's action by their values."""
        ...

    def give_key(self, task: Task, item: Any) -> None:
        """Set the task's key, unless its result is not to be shared."""
        ...

    def holds(self, task: Task, condition: Expr, item: Any, outputs: Mapping[str, Any] | None) -> bool:
        """Does the condition of a while loop hold? `outputs`: of the round that has just ended."""
        ...

    def may_repeat(self, task: Task) -> bool:
        """May a while loop have another round at all?"""
        ...

    def results(self, scope: WorkflowScope) -> tuple[dict[str, Any], str]:
        """The outputs of a workflow that has ended, and what is missing of them, in words."""
        ...


class RunValues:
    """The values of a real run."""

    def __init__(self, fetch: Fetch, variant_of: Callable[[Step], str | None] | None = None) -> None:
        self.fetch = fetch
        self.variant_of = variant_of
        """What distinguishes a result beside its content, such as where it was made; None: the result is not kept."""
        self._memo: dict[int, tuple[Any, str]] = {}

    def triggered(self, scope: WorkflowScope, plan: StepPlan) -> bool:
        return plan.step.trigger is not None and evaluate(plan.step.trigger, scope.view) is True

    def wanted(self, scope: WorkflowScope, plan: StepPlan) -> bool | None:
        when = plan.step.when
        assert when is not None
        return decide(when, scope.view) if plan.step.each is not None else evaluate(when, scope.view) is True

    def item_wanted(self, scope: WorkflowScope, when: Expr, item: Mapping[str, Any]) -> bool:
        return evaluate(when, {**scope.view, "item": item}) is True

    def items(self, scope: WorkflowScope, plan: StepPlan) -> Items:
        assert plan.step.each is not None
        return Items(plan.step.each.axes, scope.view, each_item)

    def inputs(self, scope: WorkflowScope, plan: StepPlan, item: Any) -> dict[str, Any]:
        return plan.inputs(scope.params, scope.steps, scope.view, item)

    def resolve(self, task: Task, item: Any) -> None:
        task.action = task.state.plan.action(task.state.scope.view, task.inputs, item, self.fetch, task.tries)

    def give_key(self, task: Task, item: Any) -> None:
        plan = task.state.plan
        if plan.laid or plan.keyed:
            self._own_key(task, plan.within(task.state.scope.view, task.inputs, item, self.fetch))
        elif not plan.private:
            variant = "" if self.variant_of is None else self.variant_of(plan.step)
            if variant is not None:
                task.key = plan.key(task.inputs, task.action, self._memo, variant)

    def _own_key(self, task: Task, within: Mapping[str, Any]) -> None:
        plan = task.state.plan
        mounts = plan.mounts(within) if plan.laid else ()  # evaluated without a key too: an error must show
        variant = "" if self.variant_of is None else self.variant_of(plan.step)
        if plan.private or variant is None:
            return
        if plan.keyed:
            task.key = plan.own_key(within, variant)
        else:
            task.key = plan.key(task.inputs, task.action, self._memo, variant, mounts)

    def holds(self, task: Task, condition: Expr, item: Any, outputs: Mapping[str, Any] | None) -> bool:
        scope: dict[str, Any] = {**task.state.scope.view, "inputs": Loaded(task.inputs, self.fetch)}
        if item is not None:
            scope["item"] = item
        if outputs is not None:
            scope["outputs"] = Loaded(outputs, self.fetch)
        try:
            return evaluate(condition, scope) is True
        except EvaluationError as error:
            raise EvaluationError(f"its condition has no value: {error}") from None

    def may_repeat(self, task: Task) -> bool:
        return True

    def results(self, scope: WorkflowScope) -> tuple[dict[str, Any], str]:
        return results_of(scope)
