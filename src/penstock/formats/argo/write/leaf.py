"""Leaf templates: containers, scripts, functions, pods, suspends, requests, objects. Called by templates.

The step reads only its inputs (see slots). The result is the body of a template: inputs, outputs, one of Argo's types, and policies.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from penstock.expressions.evaluate import to_text
from penstock.expressions.types import INT
from penstock.formats import shim
from penstock.formats.argo.write.context import InputSlot, OutputAccess, TemplateInterface, WriteContext, section
from penstock.formats.argo.write.expr import text_of
from penstock.formats.argo.write.pod import (
    common,
    container,
    image_of,
    merged,
    mount_all,
    pod_bodies,
    resources,
    script,
)
from penstock.formats.argo.write.policies import around, handed_on
from penstock.formats.argo.write.remote import http, resource
from penstock.formats.argo.write.slots import laid_at
from penstock.formats.argo.write.variables import ArgoVariable, Find, literal, of_run, tagged
from penstock.formats.documents import part
from penstock.graph.model import (
    MISSING,
    Container,
    Function,
    Http,
    Output,
    Pod,
    Resource,
    Script,
    Step,
    Suspend,
)

STDOUT: Final = "/dev/stdout"
RESULT: Final = "result"
REPLICA: Final = "penstock-replica"


def leaf(
    context: WriteContext, step: Step, slots: list[InputSlot], globals_: Mapping[str, str], hint: str
) -> TemplateInterface:
    """`globals_`: outputs that an exit handler reads -> their global names. Raises NotInArgo."""
    find = _inside(step, slots)
    action = step.action
    faces = {output.name: _face(output, step) for output in step.outputs}
    if isinstance(action, Http):
        return http(context, step, action, slots, find, hint, _inputs)
    if isinstance(action, Resource):
        typed, outputs = resource(context, step, action, find)
        body = {**section("inputs", _inputs(slots)), **section("outputs", outputs), "resource": typed}
    elif isinstance(action, Suspend):
        body = {**section("inputs", _inputs(slots)), **section("outputs", _supplied(step)), **_suspend(action, find)}
        if action.until not in (None, ""):
            context.remark(
                "lost", "Argo cannot wait until a time", step, f"steps.{step.name}.suspend", "Give a duration."
            )
    else:
        body = _program(context, step, slots, find)
    _published(body, globals_)
    body |= around(context, step, find)
    return TemplateInterface(context.share(hint, handed_on(body, part(step.extra, "argo"))), slots, faces)


def has_replicas(step: Step) -> bool:
    """Does it need several pods?"""
    return step.replicas > 1 and isinstance(step.action, Container | Script | Function | Pod)


def _inside(step: Step, slots: Sequence[InputSlot]) -> Find:
    """Variables that the template itself can read."""
    known = {slot.name: slot for slot in slots}

    def find(path: tuple[str, ...]) -> ArgoVariable | None:
        match path:
            case ("inputs", name, *_) if name in known:
                slot = known[name]
                return ArgoVariable(("inputs", "parameters", name), slot.type, 2, gathered=slot.gathered)
            case ("attempt", "number"):
                return (
                    ArgoVariable(("retries",), INT, 2) if step.retry is not None else ArgoVariable((), INT, 2, code="0")
                )
        return of_run(path)

    return find


# -- inputs and outputs -----------------------------------------------------------------------------------------------


def _inputs(slots: Sequence[InputSlot]) -> dict[str, list[dict[str, Any]]]:
    """Values are parameters; an input with a path is a raw artifact whose content is the parameter."""
    parameters: list[dict[str, Any]] = []
    artifacts: list[dict[str, Any]] = []
    for slot in slots:
        if slot.artifact:
            optional = {"optional": True} if slot.type.name == "optional" else {}
            artifacts.append({"name": slot.name, "path": laid_at(slot), **optional})
            continue
        parameter = {"name": slot.name}
        if slot.default is not MISSING:
            parameter["default"] = literal(to_text(slot.default))
        parameters.append(parameter)
        if slot.path is not None:
            data = "{{inputs.parameters." + slot.name + "}}"
            artifacts.append({"name": slot.name, "path": slot.path, "raw": {"data": data}})
    return {"parameters": parameters, "artifacts": artifacts}


def _face(output: Output, step: Step) -> OutputAccess:
    bare = output.type.args[0] if output.type.name == "optional" else output.type
    if bare.name in ("file", "dir"):
        return OutputAccess("artifacts", output.name, output.type)
    if output.path == STDOUT and not isinstance(step.action, Suspend | Function):
        return OutputAccess(RESULT, RESULT, output.type)
    return OutputAccess("parameters", output.name, output.type)


def _outputs(step: Step, paths: Mapping[str, str]) -> dict[str, list[dict[str, Any]]]:
    parameters: list[dict[str, Any]] = []
    artifacts: list[dict[str, Any]] = []
    for output in step.outputs:
        if output.path == STDOUT and not isinstance(step.action, Function):
            continue
        optional = output.type.name == "optional"
        if _face(output, step).kind == "artifacts":
            artifacts.append(
                {"name": output.name, "path": paths[output.name], **({"optional": True} if optional else {})}
            )
            continue
        source: dict[str, Any] = {"path": paths[output.name]}
        if output.default is not MISSING and step.each is None:
            source["default"] = literal(to_text(output.default))
        elif optional:
            source["default"] = "null"
        parameters.append({"name": output.name, "valueFrom": source})
    return {"parameters": parameters, "artifacts": artifacts}


def _supplied(step: Step) -> dict[str, list[dict[str, Any]]]:
    found = []
    for output in step.outputs:
        default = {} if output.default is MISSING else {"default": literal(to_text(output.default))}
        found.append({"name": output.name, "valueFrom": {"supplied": {}, **default}})
    return {"parameters": found}


def _published(body: dict[str, Any], globals_: Mapping[str, str]) -> None:
    for kind in ("parameters", "artifacts"):
        for output in body.get("outputs", {}).get(kind, ()):
            if output["name"] in globals_:
                output["globalName"] = globals_[output["name"]]


# -- programs ---------------------------------------------------------------------------------------------------------


def _program(context: WriteContext, step: Step, slots: list[InputSlot], find: Find) -> dict[str, Any]:
    action = step.action
    inputs = _inputs(slots)
    if isinstance(action, Function):
        kind, typed, paths = "script", *_function(context, step, action, slots, find, inputs)
    elif isinstance(action, Script):
        kind, typed = "script", script(context, step, action, find)
        paths = _paths(step)
    elif isinstance(action, Container):
        kind, typed, paths = "container", container(context, step, action, find), _paths(step)
    else:
        assert isinstance(action, Pod)
        typed, paths = {}, _paths(step)
        kind = ""
    body = {**section("inputs", inputs), **section("outputs", _outputs(step, paths))}
    told = _told(step)
    volumes: list[dict[str, Any]] = []
    mounts = mount_all(context, step, find, body, volumes)
    if isinstance(action, Pod):
        body |= pod_bodies(context, step, action, find, mounts, told)
    else:
        if told or "env" in typed:
            typed["env"] = [*told, *typed.get("env", ())]  # others may refer to them: $(NAME)
        if mounts:
            typed["volumeMounts"] = [*typed.get("volumeMounts", ()), *mounts]
        wanted = resources(step)
        if wanted:
            typed["resources"] = wanted
        body[kind] = merged(typed, step.extra.get("container", {}))
    if volumes:
        body["volumes"] = volumes
    return body


def _told(step: Step) -> list[dict[str, str]]:
    """The environment variables that Penstock gives to a program."""
    found = []
    if any(output.path is None for output in step.outputs) and not isinstance(step.action, Function):
        found.append({"name": "PENSTOCK_OUTPUTS", "value": shim.OUTPUTS})
    if has_replicas(step):
        found.append({"name": "PENSTOCK_REPLICA", "value": "{{inputs.parameters." + REPLICA + "}}"})
        found.append({"name": "PENSTOCK_REPLICAS", "value": str(step.replicas)})
    text = repr(step.action) if not isinstance(step.action, Function) else ""
    if "PENSTOCK_RUN" in text:
        found.append({"name": "PENSTOCK_RUN", "value": "{{workflow.name}}"})
    if "PENSTOCK_TASK" in text:
        found.append({"name": "PENSTOCK_TASK", "value": "{{node.name}}"})
    return found


def _paths(step: Step) -> dict[str, str]:
    return {output.name: output.path or f"{shim.OUTPUTS}/{output.name}" for output in step.outputs}


def _function(
    context: WriteContext,
    step: Step,
    action: Function,
    slots: Sequence[InputSlot],
    find: Find,
    inputs: dict[str, list[dict[str, Any]]],
) -> tuple[dict[str, Any], Mapping[str, str]]:
    key = (action.module, action.name, action.code)
    if key in context.bundle.by_value:
        message = "the function travels by value: its image must have cloudpickle, and the Python that it was made with"
        context.remark("changed", message, step, f"steps.{step.name}", "Move it into a module of its own.")
    if any(output.type.name == "object" for output in step.outputs):
        message = "what it returns has no form as JSON; it is passed on as a pickle in base64"
        context.remark("changed", message, step, f"steps.{step.name}.outputs", "Return plain data, or a file.")
    given = [
        shim.FunctionInput(slot.name, slot.wire, json.dumps(laid_at(slot)) if slot.artifact else _text_in(slot.name))
        for slot in slots
        if slot.wire
    ]
    made = shim.function_container(
        action, given, step.outputs, retry_on=step.retry.exceptions if step.retry is not None else ()
    )
    found: dict[str, Any] = {"image": image_of(context, step, action.image, find), "command": list(made.command)}
    found["source"] = made.source
    found |= common(action.env, None, find)
    found |= {name: list(value) for name, value in context.code.get("container", {}).items()}
    inputs["artifacts"] += context.code.get("artifacts", ())
    return found, made.outputs


def _text_in(name: str) -> str:
    """An input as a Python literal: a JSON string is a Python string."""
    return tagged(f"toJson({ArgoVariable(('inputs', 'parameters', name)).text})")


# -- waiting ----------------------------------------------------------------------------------------------------------


def _suspend(action: Suspend, find: Find) -> dict[str, Any]:
    found: dict[str, Any] = {"suspend": {}}
    if action.duration is not None:
        found["suspend"]["duration"] = str(math.ceil(action.duration))
    if action.message:
        found["annotations"] = {"workflows.argoproj.io/description": text_of(action.message, find)}
    return found
