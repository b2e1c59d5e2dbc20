"""Templates for what a step does itself: containers, scripts, functions, pods, waiting, requests, objects. Called by argo_out.maker.

A step arrives here closed: it reads nothing but its inputs (argo_out.slots). What comes out is the body of a template: inputs, outputs,
one of Argo's types, and whatever says how it is run.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from penstock.formats import shim
from penstock.formats.argo_out.around import around, handed_on
from penstock.formats.argo_out.book import Access, Book, Made, Slot, section
from penstock.formats.argo_out.expr import text_of
from penstock.formats.argo_out.found import Find, Found, literal, of_run, tagged
from penstock.formats.argo_out.pod import common, container, image_of, merged, mount_all, pod_bodies, resources, script
from penstock.formats.argo_out.remote import http, resource
from penstock.formats.argo_out.slots import laid_at
from penstock.formats.documents import part
from penstock.graph.evaluate import to_text
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
from penstock.graph.types import INT

STDOUT: Final = "/dev/stdout"
RESULT: Final = "result"
REPLICA: Final = "penstock-replica"


def leaf(book: Book, step: Step, slots: list[Slot], globals_: Mapping[str, str], hint: str) -> Made:
    """`globals_`: outputs that an exit handler reads, and what they are called for the whole workflow. Raises NotSaid."""
    find = _inside(step, slots)
    action = step.action
    faces = {output.name: _face(output, step) for output in step.outputs}
    if isinstance(action, Http):
        return http(book, step, action, slots, find, hint, _inputs)
    if isinstance(action, Resource):
        typed, outputs = resource(book, step, action, find)
        body = {**section("inputs", _inputs(slots)), **section("outputs", outputs), "resource": typed}
    elif isinstance(action, Suspend):
        body = {**section("inputs", _inputs(slots)), **section("outputs", _supplied(step)), **_suspend(action, find)}
    else:
        body = _program(book, step, slots, find)
    _published(body, globals_)
    body |= around(book, step, find)
    return Made(book.share(hint, handed_on(body, part(step.extra, "argo"))), slots, faces)


def has_replicas(step: Step) -> bool:
    """Is it several pods?"""
    return step.replicas > 1 and isinstance(step.action, Container | Script | Function | Pod)


def _inside(step: Step, slots: Sequence[Slot]) -> Find:
    """What the template itself may read."""
    known = {slot.name: slot for slot in slots}

    def find(path: tuple[str, ...]) -> Found | None:
        match path:
            case ("inputs", name, *_) if name in known:
                slot = known[name]
                return Found(("inputs", "parameters", name), slot.type, 2, gathered=slot.gathered)
            case ("attempt", "number"):
                return Found(("retries",), INT, 2) if step.retry is not None else Found((), INT, 2, code="0")
        return of_run(path)

    return find


# -- inputs and outputs -----------------------------------------------------------------------------------------------


def _inputs(slots: Sequence[Slot]) -> dict[str, list[dict[str, Any]]]:
    """Values are parameters; a value that is laid as a file is an artifact with the parameter as its content."""
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


def _face(output: Output, step: Step) -> Access:
    bare = output.type.args[0] if output.type.name == "optional" else output.type
    if bare.name in ("file", "dir"):
        return Access("artifacts", output.name, output.type)
    if output.path == STDOUT and not isinstance(step.action, Suspend | Function):
        return Access(RESULT, RESULT, output.type)
    return Access("parameters", output.name, output.type)


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


def _program(book: Book, step: Step, slots: list[Slot], find: Find) -> dict[str, Any]:
    action = step.action
    inputs = _inputs(slots)
    if isinstance(action, Function):
        kind, typed, paths = "script", *_function(book, step, action, slots, find, inputs)
    elif isinstance(action, Script):
        kind, typed = "script", script(book, step, action, find)
        paths = _paths(step)
    elif isinstance(action, Container):
        kind, typed, paths = "container", container(book, step, action, find), _paths(step)
    else:
        assert isinstance(action, Pod)
        typed, paths = {}, _paths(step)
        kind = ""
    body = {**section("inputs", inputs), **section("outputs", _outputs(step, paths))}
    told = _told(step)
    volumes: list[dict[str, Any]] = []
    mounts = mount_all(book, step, find, body, volumes)
    if isinstance(action, Pod):
        body |= pod_bodies(book, step, action, find, mounts, told)
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
    """What a program is told about itself in its environment."""
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
    book: Book, step: Step, action: Function, slots: Sequence[Slot], find: Find, inputs: dict[str, list[dict[str, Any]]]
) -> tuple[dict[str, Any], Mapping[str, str]]:
    book.ships_code = True
    key = (action.module, action.name, action.code)
    if key in book.bundle.by_value:
        said = "the function travels by value: its image must have cloudpickle, and the Python that it was made with"
        book.remark("changed", said, step, f"steps.{step.name}", "Move it into a module of its own.")
    if any(output.type.name == "object" for output in step.outputs):
        said = "what it returns has no form as JSON; it is passed on as a pickle in base64"
        book.remark("changed", said, step, f"steps.{step.name}.outputs", "Return plain data, or a file.")
    given = [
        shim.Given(slot.name, slot.wire, json.dumps(laid_at(slot)) if slot.artifact else _text_in(slot.name))
        for slot in slots
        if slot.wire
    ]
    made = shim.function_container(
        action, given, step.outputs, retry_on=step.retry.exceptions if step.retry is not None else ()
    )
    found: dict[str, Any] = {"image": image_of(book, step, action.image, find), "command": list(made.command)}
    found["source"] = made.source
    found |= common(action.env, None, find)
    found |= {name: list(value) for name, value in book.code.get("container", {}).items()}
    inputs["artifacts"] += book.code.get("artifacts", ())
    return found, made.outputs


def _text_in(name: str) -> str:
    """An input as a literal of Python: what JSON writes as a string, Python reads as one."""
    return tagged(f"toJson({Found(('inputs', 'parameters', name)).text})")


# -- waiting ----------------------------------------------------------------------------------------------------------


def _suspend(action: Suspend, find: Find) -> dict[str, Any]:
    found: dict[str, Any] = {"suspend": {}}
    if action.duration is not None:
        found["suspend"]["duration"] = str(math.ceil(action.duration))
    if action.message:
        found["annotations"] = {"workflows.argoproj.io/description": text_of(action.message, find)}
    return found
