"""Templates of http and resource steps. Called by leaf."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from penstock.expressions.evaluate import to_text
from penstock.expressions.parse import (
    Binary,
    Call,
    Const,
    Expr,
    Index,
    ListOf,
    Member,
    Name,
    Node,
    path_of,
    references,
    show,
)
from penstock.expressions.template import Template
from penstock.expressions.types import ANY, INT, STR
from penstock.formats import yaml_writer
from penstock.formats.argo.write.context import InputSlot, OutputAccess, TemplateInterface, WriteContext
from penstock.formats.argo.write.expr import ExprWriter, text_of
from penstock.formats.argo.write.policies import around
from penstock.formats.argo.write.variables import ArgoVariable, Find, NotInArgo, literal, tagged
from penstock.formats.documents import part
from penstock.formats.pods.secrets import secret_source
from penstock.graph.model import MISSING, Http, Output, Resource, Step, Value
from penstock.graph.rewrite import as_node

_OBJECT: Final = ("object", "status", "spec", "metadata")
_COMPARED: Final = {"==": "==", "!=": "!=", "<": "<", ">": ">"}
_MARK: Final = "penstock-hole-"
Inputs = Callable[[Sequence[InputSlot]], dict[str, list[dict[str, Any]]]]


# -- requests ---------------------------------------------------------------------------------------------------------


def http(
    context: WriteContext, step: Step, action: Http, slots: list[InputSlot], find: Find, hint: str, inputs: Inputs
) -> TemplateInterface:
    request: dict[str, Any] = {"url": text_of(action.url, find), "method": action.method}
    if action.headers:
        request["headers"] = [
            {"name": name, "valueFrom": source} if source else {"name": name, "value": text_of(value, find)}
            for name, value in action.headers.items()
            for source in [secret_source(value)]
        ]
    if action.body is not None:
        request["body"] = text_of(action.body, find)
    if step.timeout is not None:
        request["timeoutSeconds"] = math.ceil(step.timeout)
    if action.success_condition is not None:
        request["successCondition"] = ExprWriter(_answer(find)).boolean(action.success_condition.node)
    given = {kind: listed for kind, listed in inputs(slots).items() if listed}
    body = {**({"inputs": given} if given else {}), "http": request, **around(context, step, find)}
    template = context.share(hint, body)
    if all(_is_body(output) for output in step.outputs):
        faces = {output.name: OutputAccess("result", "result", output.type) for output in step.outputs}
        return TemplateInterface(template, slots, faces)
    return _looked_into(context, step, template, slots, given, hint)


def _is_body(output: Output) -> bool:
    return output.value is MISSING or output.value == Expr.of("response.body")


def _looked_into(
    context: WriteContext, step: Step, template: str, slots: list[InputSlot], given: Mapping[str, Any], hint: str
) -> TemplateInterface:
    """Argo returns the text of the response; a dag around it computes the outputs."""
    result = ArgoVariable(("tasks", "request", "outputs", "result"), ANY, 2)

    def find(path: tuple[str, ...]) -> ArgoVariable | None:
        match path:
            case ("response", "body", *_):
                return result
            case ("inputs", name, *_):
                return next(
                    (ArgoVariable(("inputs", "parameters", name), slot.type, 2) for slot in slots if slot.name == name),
                    None,
                )
        return None

    outputs = []
    for output in step.outputs:
        source = Expr.of("response.body") if output.value is MISSING else output.value
        if not isinstance(source, Expr):
            raise NotInArgo(f"the output {output.name} is made of more than one value", "give an expression")
        if any(path[:2] not in (("response", "body"),) and path[0] == "response" for path in references(source.text)):
            raise NotInArgo(
                f"the output {output.name} reads more of the answer than its body, which is all that Argo keeps"
            )
        source_of: dict[str, Any] = {"expression": ExprWriter(find).as_text(source.node)}
        if output.default is not MISSING:
            source_of["default"] = literal(to_text(output.default))
        outputs.append({"name": output.name, "valueFrom": source_of})
    passed = [{"name": slot.name, "value": "{{inputs.parameters." + slot.name + "}}"} for slot in slots]
    task: dict[str, Any] = {"name": "request", "template": template}
    if passed:
        task["arguments"] = {"parameters": passed}
    body = {**({"inputs": dict(given)} if given else {}), "outputs": {"parameters": outputs}, "dag": {"tasks": [task]}}
    faces = {output.name: OutputAccess("parameters", output.name, output.type) for output in step.outputs}
    return TemplateInterface(context.share(f"{hint}-outputs", body), slots, faces)


def _answer(find: Find) -> Find:
    def inner(path: tuple[str, ...]) -> ArgoVariable | None:
        match path:
            case ("response", "status"):
                return ArgoVariable((), INT, 2, code="response.statusCode")
            case ("response", "body"):
                return ArgoVariable(("response", "body"), ANY, 2)
            case ("response", "body", *_):
                return ArgoVariable(("response", "body"), ANY, 2)
            case ("response", "headers", name):
                return ArgoVariable((), STR, 3, code=f"response.headers['{_header(name)}'][0]")
        return find(path)

    return inner


def _header(name: str) -> str:
    """As Go writes it; the model has lower case."""
    return "-".join(part.capitalize() for part in name.split("-"))


# -- objects ----------------------------------------------------------------------------------------------------------


def resource(
    context: WriteContext, step: Step, action: Resource, find: Find
) -> tuple[dict[str, Any], dict[str, list[dict[str, Any]]]]:
    """The type of the template, and its outputs."""
    found: dict[str, Any] = {"action": action.action}
    kept = part(step.extra, "argo", "resource")
    success = action.success_condition
    if success is not None and success.text != "true" and "successCondition" not in kept:
        found["successCondition"] = ", ".join(_requirements(success.node, "&&"))
    if action.failure_condition is not None and "failureCondition" not in kept:
        found["failureCondition"] = ", ".join(_requirements(action.failure_condition.node, "||"))
    found["manifest"] = manifest(action.manifest, find)
    outputs = []
    for output in step.outputs:
        source: dict[str, Any] = {"jqFilter": "."} if output.value is MISSING else {"jsonPath": _json_path(output)}
        if output.default is not MISSING:
            source["default"] = literal(to_text(output.default))
        outputs.append({"name": output.name, "valueFrom": source})
    return found, {"parameters": outputs}


def manifest(value: Value, find: Find) -> str:
    """The object as text. Values that only the run knows are inserted as JSON, so that no value can break the text."""
    if isinstance(value, str | Expr | Template):
        return text_of(value, find)
    holes: list[str] = []
    text = yaml_writer.dump(_with_holes(value, find, holes))
    for number, code in enumerate(holes):
        text = text.replace(f"{_MARK}{number}-", code)
    return text


def _with_holes(value: Value, find: Find, holes: list[str]) -> Any:
    if isinstance(value, Mapping):
        return {key: _with_holes(item, find, holes) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_with_holes(item, find, holes) for item in value]
    if isinstance(value, Expr):
        code = ExprWriter(find).code(value.node)
        holes.append(tagged(f"toJson({code.text})"))
    elif isinstance(value, Template):
        holes.append(tagged(f"toJson({ExprWriter(find).code(as_node(value)).text})"))
    else:
        return literal(value) if isinstance(value, str) else value
    return f"{_MARK}{len(holes) - 1}-"


def _requirements(node: Node, joined_by: str) -> list[str]:
    """Argo's conditions: success if all hold, failure if any holds."""
    if isinstance(node, Binary) and node.op in ("&&", "||"):
        if node.op != joined_by:
            other = "all of several" if joined_by == "||" else "one of several"
            raise NotInArgo(f"{show(node)} holds in {other} cases, for which an object's condition has no words")
        return [*_requirements(node.left, joined_by), *_requirements(node.right, joined_by)]
    if isinstance(node, Binary) and isinstance(node.right, Const | ListOf):
        field = _field(node.left)
        if node.op in _COMPARED and isinstance(node.right, Const):
            return [f"{field} {_COMPARED[node.op]} {_word(node.right)}"]
        if node.op == "in" and isinstance(node.right, ListOf):
            return [f"{field} in ({', '.join(_word(item) for item in node.right.items)})"]
    raise NotInArgo(
        f"{show(node)} is more than a comparison of a field with a constant", "compare fields: status.phase == …"
    )


def _word(node: Node) -> str:
    if not isinstance(node, Const):
        raise NotInArgo(f"{show(node)} is not a constant")
    return to_text(node.value)


def _field(node: Node) -> str:
    while isinstance(node, Call) and node.name in ("text", "double", "default") and node.of is None:
        node = node.args[0]  # a field that may not exist yet, as text
    path = path_of(node)
    if path is None or path[0] not in _OBJECT:
        raise NotInArgo(f"{show(node)} is not a field of the object")
    return ".".join(path[1:] if path[0] == "object" else path)


def _json_path(output: Output) -> str:
    node = output.value.node if isinstance(output.value, Expr) else None
    if isinstance(node, Call) and node.name == "text":
        node = node.args[0]
    match node:
        case Call("jsonpath", (Name("object"), Const(str(path)))):
            return "{" + path.removeprefix("$") + "}"
    text = "" if node is None else _steps(node)
    if not text:
        raise NotInArgo(
            f"the output {output.name} is not just a field of the object", "read the field, and compute in a step"
        )
    return "{" + text + "}"


def _steps(node: Node) -> str:
    match node:
        case Name("object"):
            return "."
        case Name(id) if id in _OBJECT:
            return f".{id}"
        case Member(of, name):
            return f"{_steps(of).removesuffix('.')}.{name}"
        case Index(of, Const(int(at))):
            return f"{_steps(of)}[{at}]"
        case Index(of, Const(str(name))):
            return f"{_steps(of).removesuffix('.')}['{name}']"
    return ""
