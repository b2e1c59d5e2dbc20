"""Where the values of a run come from: conditions, items of a loop, inputs, actions, keys, results. Owned by RunState.

A dry run has another one (see dry), in which a value that cannot be known ends nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from penstock.engine.blueprint import Fetch, Items, StepPlan, loaded
from penstock.engine.outcomes import results_of
from penstock.engine.steps import Task, WorkflowScope
from penstock.expressions.evaluate import EvaluationError, evaluate, resolve
from penstock.expressions.parse import Expr
from penstock.expressions.plain import brief
from penstock.graph import quantity
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

    def at_once(self, scope: WorkflowScope, plan: StepPlan) -> int | None:
        """How many tasks of the for-each may run at the same time. None: all."""
        ...

    def beyond(self, scope: WorkflowScope, plan: StepPlan) -> int | None:
        """How many tasks may end with what the for-each has enough of. None: any number."""
        ...

    def is_one_of_enough(self, task: Task, outputs: Mapping[str, Any]) -> bool: ...

    def inputs(self, scope: WorkflowScope, plan: StepPlan, item: Any) -> dict[str, Any]: ...

    def resources(self, scope: WorkflowScope, plan: StepPlan) -> dict[str, int]:
        """What each pod of the step asks for, where only the run knows some of it."""
        ...

    def resolve(self, task: Task, item: Any) -> None:
        """Replace the expressions in the task's action by their values."""
        ...

    def limit(self, task: Task, item: Any) -> None:
        """Set the task's timeout, if only the run knows it."""
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
        self._last: StepPlan | None = None
        """The step that a key was made for last, and its variant: the tasks of a loop come one after another."""
        self._last_variant: str | None = None

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

    def at_once(self, scope: WorkflowScope, plan: StepPlan) -> int | None:
        each = plan.step.each
        if each is None or each.at_once is None:
            return None if each is None else each.parallel
        found = _count(evaluate(each.at_once, scope.view), "at_once", 1)
        return min(found, each.parallel or found)

    def beyond(self, scope: WorkflowScope, plan: StepPlan) -> int | None:
        each = plan.step.each
        if each is None or each.enough is None:
            return None
        return _count(resolve(each.enough.beyond, scope.view), "enough.beyond", 0)

    def is_one_of_enough(self, task: Task, outputs: Mapping[str, Any]) -> bool:
        each = task.step.each
        assert each is not None and each.enough is not None
        return evaluate(each.enough.when, {**task.state.scope.view, "outputs": loaded(outputs, self.fetch)}) is True

    def inputs(self, scope: WorkflowScope, plan: StepPlan, item: Any) -> dict[str, Any]:
        return plan.inputs(scope.params, scope.steps, scope.view, item)

    def resources(self, scope: WorkflowScope, plan: StepPlan) -> dict[str, int]:
        step = plan.step
        found = dict(step.resources)
        for name, given in step.resources_by.items():
            found[name] = _amount(name, resolve(given, scope.view), step.resources.get(name, 0))
        return found

    def resolve(self, task: Task, item: Any) -> None:
        task.action = task.state.plan.action(task.state.scope.view, task.inputs, item, self.fetch, task.tries)

    def limit(self, task: Task, item: Any) -> None:
        given = task.step.timeout_by
        if given is None:
            return
        view = task.state.scope.view
        found = evaluate(given, {**view, "inputs": loaded(task.inputs, self.fetch), "item": item})
        if found is None:
            return
        limit = given_seconds(found, "timeout_by")
        task.timeout = limit if task.timeout is None else min(limit, task.timeout)

    def give_key(self, task: Task, item: Any) -> None:
        plan = task.state.plan
        if plan.laid or plan.keyed:
            self._own_key(task, plan.within(task.state.scope.view, task.inputs, item, self.fetch))
        elif not plan.private:
            if plan is self._last:
                variant = self._last_variant
            else:
                variant = self._last_variant = "" if self.variant_of is None else self.variant_of(plan.step)
                self._last = plan
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
        scope: dict[str, Any] = {**task.state.scope.view, "inputs": loaded(task.inputs, self.fetch)}
        if item is not None:
            scope["item"] = item
        if outputs is not None:
            scope["outputs"] = loaded(outputs, self.fetch)
        try:
            return evaluate(condition, scope) is True
        except EvaluationError as error:
            raise EvaluationError(f"its condition has no value: {error}") from None

    def may_repeat(self, task: Task) -> bool:
        return True

    def results(self, scope: WorkflowScope) -> tuple[dict[str, Any], str]:
        return results_of(scope)


def _amount(name: str, value: Any, most: int) -> int:
    """Thousandths of a unit."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise EvaluationError(f"resources_by.{name} is {brief(value)}, not an amount")
    try:
        amount = quantity.parse(value)
    except ValueError as error:
        raise EvaluationError(f"resources_by.{name}: {error}") from None
    if name == "memory":
        amount = -(-amount // 1000) * 1000  # bytes are whole
    if not 0 <= amount <= most:
        shown = quantity.show(most, name)
        raise EvaluationError(f"resources_by.{name} is {value}, and resources allows from 0 to {shown}")
    if "/" in name and amount % 1000:
        raise EvaluationError(f"resources_by.{name} is {value}, and a device cannot be divided")
    return amount


def given_seconds(found: Any, name: str) -> float:
    """Raises EvaluationError."""
    if isinstance(found, bool) or not isinstance(found, int | float) or not 0 <= found < 1e9:
        raise EvaluationError(f"{name} is {found!r}, not a number of seconds")
    return float(found)


def _count(value: Any, name: str, low: int) -> int:
    if type(value) is not int or value < low:
        raise EvaluationError(f"each.{name} is {value!r}, not a whole number from {low} on")
    return value
