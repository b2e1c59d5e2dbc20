"""Several steps -> one nested workflow: what they read from outside becomes parameters. Called by control.

A nested workflow sees only its own parameters and steps, so no other package has to deal with nested scopes.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from penstock.expressions.parse import Expr, Member, Name, Node, reference, references, replace
from penstock.graph import model
from penstock.graph.model import Input, Output, Parameter, Step, Workflow
from penstock.graph.rewrite import map_step, map_value


def enclose(name: str, steps: Sequence[Step]) -> tuple[Workflow, dict[str, Input]]:
    """A workflow of these steps, and the inputs of the step that calls it. All outputs of its steps are its outputs."""
    inside = {step.name for step in steps}
    swap: dict[tuple[str, ...], Node] = {}
    inputs: dict[str, Input] = {}

    def capture(path: tuple[str, ...]) -> None:
        outer = path[:4] if path[0] == "steps" else path[:2]
        own = path[0] == "steps" and path[1] in inside
        if outer in swap or own or path[0] not in ("steps", "params", "item"):
            return
        label = _free_name("_".join(outer[1::2]) if path[0] == "steps" else outer[-1], inputs)
        swap[outer] = Member(Name("params"), label)
        inputs[label] = Input(name=label, value=Expr.tree(reference(*outer)))

    for step in steps:
        loop_names = {variable for axis in (step.each.axes if step.each else ()) for variable in axis}
        for _, value in model.step_values(step):
            for expr in model.expressions(value):
                for path in references(expr.text):
                    if not (path[0] == "item" and path[1:2] and path[1] in loop_names):
                        capture(path)
    closed = []
    for step in steps:
        own = {("item", variable) for axis in (step.each.axes if step.each else ()) for variable in axis}
        outer = {path: stand_in for path, stand_in in swap.items() if path not in own}
        change = functools.partial(map_value, change=functools.partial(replace, swap=outer))
        closed.append(map_step(step, change))
    outputs = [
        Output(
            name=_free_name(output.name, taken),
            value=Expr.tree(reference("steps", step.name, "outputs", output.name)),
            type=output.type,
        )
        for step in steps
        for taken in [{o.name for other in steps[: steps.index(step)] for o in other.outputs}]
        for output in step.outputs
        if output.name not in taken
    ]
    params = tuple(Parameter(name=label) for label in inputs)
    return Workflow(name=name, params=params, steps=tuple(closed), outputs=tuple(outputs)), inputs


def _free_name(name: str, taken: Any) -> str:
    name = name.replace("-", "_")
    found, number = name, 2
    while found in taken:
        found, number = f"{name}_{number}", number + 1
    return found
