"""The types of a step's outputs. Called by graph.check and formats.argo.write."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.expressions.types import Type, list_of
from penstock.graph.model import Nested, Step, Workflow


def task_output_types(step: Step, definitions: Mapping[str, Workflow]) -> dict[str, Type]:
    """The outputs of one task of the step."""
    found = {output.name: output.type for output in step.outputs}
    if isinstance(step.action, Nested) and step.action.name in definitions:
        for output in definitions[step.action.name].outputs:
            found.setdefault(output.name, output.type)
    return found


def step_output_types(step: Step, definitions: Mapping[str, Workflow]) -> dict[str, Type]:
    """The outputs as other steps read them: each is a list if the step has a for-each."""
    found = task_output_types(step, definitions)
    return {name: list_of(type_) for name, type_ in found.items()} if step.each is not None else found
