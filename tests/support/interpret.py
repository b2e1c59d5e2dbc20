"""A workflow of Python functions, run the slow and obvious way: the meaning that compiled graphs are compared with."""

from __future__ import annotations

import sys
from typing import Any

from penstock.expressions.evaluate import evaluate, resolve
from penstock.graph.model import MISSING, Function, Nested, Step, Workflow
from penstock.plan.expand import decide, each_item
from penstock.plan.make import make


def run(workflow: Workflow, **params: Any) -> dict[str, Any]:
    """The outputs of the workflow."""
    plan = make(workflow, params)
    given = {param.name: plan.params[param.name] for param in workflow.params}
    return _Run(workflow, plan.orders).scope("", workflow, given)


class _Run:
    def __init__(self, root: Workflow, orders: Any) -> None:
        self.definitions = {definition.name: definition for definition in root.definitions}
        self.orders = orders
        self.calls: list[str] = []

    def scope(self, key: str, workflow: Workflow, params: dict[str, Any]) -> dict[str, Any]:
        by_name = {step.name: step for step in workflow.steps}
        known: dict[str, Any] = {"params": params, "steps": {}}
        for name in self.orders[key][0]:
            known["steps"][name] = self.step(by_name[name], known)
        return {output.name: plain(resolve(output.value, known)) for output in workflow.outputs}

    def step(self, step: Step, known: dict[str, Any]) -> dict[str, Any]:
        if step.each is None:
            if step.when is not None and not evaluate(step.when, known):
                return {"outputs": defaults(step), "outcome": "skipped"}
            return {"outputs": self.repeat(step, known), "outcome": "succeeded"}
        if step.when is not None and decide(step.when, known) is False:
            return {"outputs": defaults(step), "outcome": "skipped"}
        results = []
        for item in each_item(step.each.axes, known):
            inside = {**known, "item": item}
            if step.when is None or evaluate(step.when, inside):
                results.append(self.repeat(step, inside))
        names = {name for result in results for name in result} or {output.name for output in self.outputs_of(step)}
        return {"outputs": {name: [result[name] for result in results] for name in names}, "outcome": "succeeded"}

    def outputs_of(self, step: Step) -> Any:
        return self.definitions[step.action.name].outputs if isinstance(step.action, Nested) else step.outputs

    def repeat(self, step: Step, known: dict[str, Any]) -> dict[str, Any]:
        inputs = {given.name: resolve(given.value, known) for given in step.inputs}
        if step.loop is None:
            return self.once(step, inputs)
        assert step.loop.test == "before"
        outputs = {output: inputs[name] for name, output in step.loop.carry.items()}
        for _ in range(step.loop.max_iterations):
            if not evaluate(step.loop.condition, {**known, "inputs": inputs}):
                return outputs
            outputs = self.once(step, inputs)
            inputs |= {name: outputs[output] for name, output in step.loop.carry.items()}
        raise AssertionError("the loop does not end")

    def once(self, step: Step, inputs: dict[str, Any]) -> dict[str, Any]:
        self.calls.append(step.name)
        if isinstance(step.action, Nested):
            target = self.definitions[step.action.name]
            defaults = {param.name: param.default for param in target.params if param.default is not MISSING}
            return self.scope(step.action.name, target, defaults | inputs)
        assert isinstance(step.action, Function)
        function: Any = sys.modules[step.action.module]
        for part in step.action.name.split("."):
            function = getattr(function, part)
        return {"result": plain(getattr(function, "function", function)(**inputs))}


def defaults(step: Step) -> dict[str, Any]:
    return {output.name: plain(output.default) for output in step.outputs if output.default is not MISSING}


def plain(value: Any) -> Any:
    """Tuples and ranges as lists: what is left of them between steps."""
    if isinstance(value, list | tuple | range):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return value
