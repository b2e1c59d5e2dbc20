"""Arguments, defaults and artifacts of a call of an Argo template -> inputs of a step. Called by graph and workflow.

An argument has precedence over the input's own value, and that over its default. If an argument is only the output of a skipped step, the
default is used. Files come from other steps or are in the document (`raw`). Files in a bucket or repository are not fetched on this machine,
and the Report says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.errors import nearest
from penstock.expressions.parse import Call, Const, Expr, Node
from penstock.expressions.types import ANY, STR
from penstock.formats.argo.read.builder import CallScope, DefinitionBuilder
from penstock.formats.argo.read.template import ARTIFACT, ARTIFACTS, LOCATIONS, PARAMETERS, TemplateSpec, text_of
from penstock.formats.argo.read.values import (
    TextScope,
    UnknownName,
    as_expr,
    as_text,
    expression,
    node_of_value,
    only_tag,
    value_of,
)
from penstock.formats.documents import Document, items, part
from penstock.graph.model import MISSING, Input, Value

NOTHING: Final = object()
"""An optional artifact that is absent."""


@dataclass(slots=True)
class CallArguments:
    """The arguments of a call, by name."""

    values: dict[str, Value] = field(default_factory=dict)
    outputs: set[str] = field(default_factory=set)
    """Arguments that are only the output of a step."""
    files: dict[str, Any] = field(default_factory=dict)
    """Artifacts: a value, or NOTHING."""
    paths: dict[tuple[str, str], str] = field(default_factory=dict)
    """The path of each in the document."""

    def parameters(self, template: TemplateSpec, scope: CallScope) -> dict[str, Value]:
        """The value of each input parameter, by Argo's name; inputs without a value are left out."""
        inputs = InputScope(template, self, scope)
        found = {}
        for name in template.inputs[PARAMETERS]:
            value = inputs.value(name)
            if value is not MISSING:
                found[name] = value
        return found


def given_of(arguments: Any, scope: CallScope, path: str) -> CallArguments:
    """The arguments of a call."""
    found = CallArguments()
    for number, one in items(arguments, PARAMETERS):
        name, here = text_of(one.get("name")), f"{path}.parameters[{number}]"
        if not name:
            scope.notes.wrong(scope.document, here, "P835", "this argument has no name", "give it one")
            continue
        value = _argument(one, scope, here)
        if value is not None:
            found.values[name] = value
            found.paths[PARAMETERS, name] = here
            names = only_tag(one.get("value"))
            if (
                names is not None
                and names[0] in ("steps", "tasks")
                and names[2:3] == ("outputs",)
                and not scope.firm(names)
            ):
                found.outputs.add(name)
    for number, one in items(arguments, ARTIFACTS):
        name, here = text_of(one.get("name")), f"{path}.artifacts[{number}]"
        if name:
            found.files[name] = file_of(one, scope, scope.document, here)
            found.paths[ARTIFACTS, name] = here
    return found


def _argument(one: Mapping[str, Any], scope: CallScope, path: str) -> Value | None:
    text = text_of(one.get("value"))
    if text is not None:
        return value_of(text, scope, f"{path}.value")
    source = part(one, "valueFrom")
    if source.get("configMapKeyRef") is not None:
        return scope.builder.context.configured(one, scope.document, path)
    told = text_of(source.get("expression"))
    if told is not None:
        node = expression(told, scope, f"{path}.valueFrom.expression")
        return None if node is None else as_expr(as_text(node), scope, path)
    told = text_of(source.get("parameter")) or text_of(source.get("default")) or text_of(one.get("default"))
    if told is not None:
        return value_of(told, scope, path)
    scope.notes.wrong(scope.document, path, "P835", "this argument has no value", "give it one, in quotes")
    return None


# -- files ------------------------------------------------------------------------------------------------------------


def file_of(one: Mapping[str, Any], scope: TextScope, document: Document, path: str) -> Any:
    """The value of an artifact; NOTHING if it is not available here; None if it has no source."""
    message = text_of(one.get("from"))
    told = text_of(one.get("fromExpression"))
    if one.get("subPath") is not None and (message or told):
        scope.notes.lost(document, f"{path}.subPath", "the whole file or folder is passed, not a part of it")
    if message is not None:
        return _from(message, scope, document, f"{path}.from")
    if told is not None:
        node = expression(told, scope, f"{path}.fromExpression")
        return NOTHING if node is None else as_expr(node, scope, path)
    raw = part(one, "raw")
    if raw.get("data") is not None:
        text = value_of(text_of(raw.get("data")) or "", scope, f"{path}.raw.data")
        # A text that is known later is distinguished from a file that is passed on.
        return Expr.tree(Call("text", (text.node,))) if isinstance(text, Expr) else text
    where = next((str(name) for name in one if name in LOCATIONS), None)
    if where is None:
        return None
    near = (
        "Make a step that fetches it." if where in ("http", "git") else "Pass it from a step, or write it out as raw."
    )
    scope.notes.lost(
        document, f"{path}.{where}", f"what lies in {where} is not fetched on this machine: there is no file", near
    )
    return NOTHING


def _from(message: str, scope: TextScope, document: Document, path: str) -> Any:
    names = only_tag(message.strip())
    if names is None:
        fix = 'write "{{steps.NAME.outputs.artifacts.NAME}}"'
        scope.notes.wrong(document, path, "P834", f"{message[:80]!r} is not the artifact of a step", fix)
        return NOTHING
    try:
        node = scope.look(names)
        if node is None:
            raise UnknownName(f"there is no artifact {'.'.join(names)[:80]}", "name one of a step, or an input")
    except UnknownName as error:
        scope.notes.wrong(document, path, "P832", str(error), error.fix)
        return NOTHING
    if node is MISSING_FILE:
        return NOTHING
    return node.value if isinstance(node, Const) else Expr.tree(node)


MISSING_FILE: Final[Node] = Const("there is no such file on this machine")
"""Replaces an input artifact that is not available."""


def whole_given(builder: DefinitionBuilder, scope: CallScope, template: TemplateSpec) -> CallArguments:
    """The arguments of the workflow, passed by name to its entrypoint and exit handler."""
    context = builder.context
    found = CallArguments()
    for name in context.params:
        if name in template.inputs[PARAMETERS]:
            found.values[name] = as_expr(builder.shared((PARAMETERS, name), scope), scope, context.root.path)
    for name, (one, path) in context.artifacts.items():
        if name in template.inputs[ARTIFACTS]:
            found.files[name] = file_of(one, scope, context.root.document, path)
    return found


# -- inputs of a step -------------------------------------------------------------------------------------------------


def called_name(names: tuple[str, ...], around: CallScope, template: TemplateSpec, typed: bool) -> Node | None:
    """`{{steps.name}}` and the like in a called template. An inline template is a part of the one around it."""
    if template.inline:
        return around.look(names, typed=typed)
    found = around.name(names[0])
    return Const(f"{{{{{names[0]}.name}}}}") if found is None and not typed else found


class InputScope(TextScope):
    """The value or default of an input in its own template: it may read the workflow and other inputs."""

    def __init__(self, template: TemplateSpec, given: CallArguments, around: CallScope) -> None:
        self.template = template
        self.given = given
        self.around = around
        self.notes = around.notes
        self.document = template.document
        self.open: list[str] = []

    def known(self) -> Mapping[str, Any]:
        return self.around.known()

    def look(self, names: tuple[str, ...], *, typed: bool = False) -> Node | None:
        if names[:2] == ("inputs", PARAMETERS) and len(names) > 2:
            name = ".".join(names[2:])
            if name in self.open:
                raise UnknownName(f"the inputs {' and '.join(self.open)} read one another", "give one of them a value")
            value = self.value(name) if name in self.template.inputs[PARAMETERS] else MISSING
            if value is MISSING:
                fix = nearest(name, self.template.inputs[PARAMETERS]).strip() or "declare it under inputs.parameters"
                raise UnknownName(
                    f"the template {self.template.name!r} has no value for inputs.parameters.{name[:60]}", fix
                )
            return node_of_value(value)
        if names[0] in ("steps", "tasks", "node") and names[1:] == ("name",):
            return called_name(names, self.around, self.template, typed)
        return self.around.look(names, typed=typed) if names[0] == "workflow" or self.template.inline else None

    def value(self, name: str) -> Value:
        """The value of the input in this call; MISSING if none."""
        if name in self.given.values:
            return self.given.values[name]
        return self.own(name)

    def own(self, name: str) -> Value:
        """The value from the template itself."""
        one, here = self.template.inputs[PARAMETERS][name], self.template.scope("inputs", PARAMETERS, name)
        text = text_of(one.get("value"))
        if text is None:
            text = text_of(one.get("default"))
        if text is None:
            text = self.around.builder.context.configured(one, self.template.document, here)
        if text is None:
            text = text_of(part(one, "valueFrom").get("default"))
        if text is None:
            return "" if self.template.kind == "suspend" else MISSING
        self.open.append(name)
        try:
            return value_of(text, self, here)
        finally:
            self.open.pop()


def inputs_of(template: TemplateSpec, given: CallArguments, scope: CallScope, path: str) -> list[Input]:
    """The inputs of a step that calls the template."""
    found: list[Input] = []
    inputs = InputScope(template, given, scope)
    for name in template.inputs[PARAMETERS]:
        value = inputs.value(name)
        if value is MISSING:
            _missing(template, "parameters", name, scope, path)
            continue
        own = template.input_names[PARAMETERS, name]
        default: Value = MISSING
        if name in given.outputs:
            default = inputs.own(name)
            if isinstance(default, Expr) and "steps" in default.text:
                default = MISSING
        elif template.composite and name not in given.values and _is_plain(template.inputs[PARAMETERS][name]):
            continue  # it is the default of the definition's parameter
        found.append(Input(name=own, value=value, type=STR, default=default))
    for name in template.inputs[ARTIFACTS]:
        one = _file(template, name, given, inputs, scope, path)
        if one is not None:
            found.append(one)
    _unasked(template, given, scope)
    return found


def _is_plain(one: Mapping[str, Any]) -> bool:
    """Has the input a value or default that is the same in every call?"""
    text = text_of(one.get("value"))
    text = text_of(one.get("default")) if text is None else text
    return text is not None and "{{" not in text


def _file(
    template: TemplateSpec, name: str, given: CallArguments, inputs: InputScope, scope: CallScope, path: str
) -> Input | None:
    one, here = template.inputs[ARTIFACTS][name], template.scope("inputs", ARTIFACTS, name)
    value = given.files.get(name)
    if value is None:
        value = file_of(one, inputs, template.document, here)
    if value is None and one.get("optional") is not True:
        _missing(template, "artifacts", name, scope, path)
    if value is None or value is NOTHING:
        return None
    at = None if template.composite else text_of(one.get("path"))
    is_text = not isinstance(value, Expr) or (isinstance(value.node, Call) and value.node.name == "text")
    type_ = ANY if template.composite else STR if is_text else ARTIFACT
    return Input(name=template.input_names[ARTIFACTS, name], value=value, type=type_, path=at or None)


def _missing(template: TemplateSpec, kind: str, name: str, scope: CallScope, path: str) -> None:
    message = f"the template {template.name!r} needs inputs.{kind}.{name[:60]}, and this call does not give it"
    scope.notes.wrong(scope.document, path, "P832", message, f"add it to arguments.{kind}, or give the input a default")


def _unasked(template: TemplateSpec, given: CallArguments, scope: CallScope) -> None:
    for kind, values in ((PARAMETERS, given.values), (ARTIFACTS, given.files)):
        for name in values:
            path = given.paths.get((kind, name))
            if name not in template.inputs[kind] and path is not None:
                message = f"the template {template.name!r} has no input {name[:60]!r}; the argument is passed over, as Argo does"
                scope.notes.changed(scope.document, path, message, nearest(name, template.inputs[kind]).strip())
