"""Results as the classes that functions declare: a dataclass, a member of an Enum, a date. Called by local and results.

What is recorded is plain data. The process that has the functions makes of it what they returned; another one, which has only the
record, leaves it as it is.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Any

from penstock.artifacts.rebuild import Misfit, build_of
from penstock.author.capture import declared, declared_of, declared_output
from penstock.graph.model import Nested, Value, Workflow
from penstock.graph.paths import step_of


def outputs_of_run(workflow: Workflow, outputs: Mapping[str, Any]) -> dict[str, Any]:
    """By what the @workflow function says that it returns; if it says nothing, by the steps whose outputs they are."""
    if len(outputs) == 1 and "return" in declared(workflow):
        return {name: _built(declared(workflow)["return"], value) for name, value in outputs.items()}
    known = {output.name: output.value for output in workflow.outputs}
    return {name: _of_parts(workflow, known.get(name), value) for name, value in outputs.items()}


def outputs_of_step(workflow: Workflow, path: str, outputs: Mapping[str, Any]) -> dict[str, Any]:
    """Of a task, or of a step with all its tasks."""
    *outer, name = step_of(path).split("/")
    for called in outer:
        step = next((one for one in workflow.steps if one.name == called), None)
        if step is None or not isinstance(step.action, Nested):
            return dict(outputs)
        name_of_called = step.action.name
        inside = next((one for one in workflow.definitions if one.name == name_of_called), None)
        if inside is None:
            return dict(outputs)
        workflow = inside
    hint = declared_output(workflow, name)
    return {key: _built(hint, value) if len(outputs) == 1 else value for key, value in outputs.items()}


def _of_parts(workflow: Workflow, value: Value, found: Any) -> Any:
    """A list or map that the workflow puts together, part by part."""
    if isinstance(value, tuple) and isinstance(found, list) and len(value) == len(found):
        return [_of_parts(workflow, part, item) for part, item in zip(value, found, strict=True)]
    if isinstance(value, dict) and isinstance(found, dict):
        return {key: _of_parts(workflow, value.get(key), item) for key, item in found.items()}
    return _built(declared_of(workflow, value), found)


def _built(hint: Any, value: Any) -> Any:
    """Of a loop it is a list of what the function declares."""
    for wanted in (hint, types.GenericAlias(list, (hint,))):
        build = build_of(wanted)
        if build is None:
            return value
        try:
            return build(value)
        except Misfit:
            continue
    return value
