"""What a call hands to an Argo template: arguments, defaults, artifacts -> inputs of a step. Called by graph and read_argo.

An argument counts before the input's own value, and that before its default. If an argument is nothing but the output of a step
that was skipped, the default stands in for it. Files come from other steps, or are written out in the document (`raw`); what lies
in a bucket or a repository is not fetched on this machine, and the Report says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.errors import nearest
from penstock.formats.argo_in.frame import Frame, SitePlace
from penstock.formats.argo_in.sheet import ARTIFACT, ARTIFACTS, LOCATIONS, PARAMETERS, Sheet, text_of
from penstock.formats.argo_in.values import Place, Unknown, as_text, expression, made, node_of_value, only_tag, value_of
from penstock.formats.documents import Document, items, part
from penstock.graph.expr import Call, Const, Expr, Node
from penstock.graph.model import MISSING, Input, Value
from penstock.graph.types import ANY, STR

NOTHING: Final = object()
"""An artifact that is not there, and need not be."""


@dataclass(slots=True)
class Given:
    """The arguments of a call, by name."""

    values: dict[str, Value] = field(default_factory=dict)
    outputs: set[str] = field(default_factory=set)
    """Arguments that are just the output of a step."""
    files: dict[str, Any] = field(default_factory=dict)
    """Artifacts: a value, or NOTHING."""
    paths: dict[tuple[str, str], str] = field(default_factory=dict)
    """Where each is written."""

    def parameters(self, sheet: Sheet, place: SitePlace) -> dict[str, Value]:
        """The value of each input parameter, by Argo's name; those that have none are left out."""
        inputs = InputPlace(sheet, self, place)
        found = {}
        for name in sheet.inputs[PARAMETERS]:
            value = inputs.value(name)
            if value is not MISSING:
                found[name] = value
        return found


def given_of(arguments: Any, place: SitePlace, path: str) -> Given:
    """The arguments as they are written at a call."""
    found = Given()
    for number, one in items(arguments, PARAMETERS):
        name, here = text_of(one.get("name")), f"{path}.parameters[{number}]"
        if not name:
            place.notes.wrong(place.document, here, "P835", "this argument has no name", "give it one")
            continue
        value = _argument(one, place, here)
        if value is not None:
            found.values[name] = value
            found.paths[PARAMETERS, name] = here
            names = only_tag(one.get("value"))
            if names is not None and names[0] in ("steps", "tasks") and names[2:3] == ("outputs",):
                found.outputs.add(name)
    for number, one in items(arguments, ARTIFACTS):
        name, here = text_of(one.get("name")), f"{path}.artifacts[{number}]"
        if name:
            found.files[name] = file_of(one, place, place.document, here)
            found.paths[ARTIFACTS, name] = here
    return found


def _argument(one: Mapping[str, Any], place: SitePlace, path: str) -> Value | None:
    text = text_of(one.get("value"))
    if text is not None:
        return value_of(text, place, f"{path}.value")
    source = part(one, "valueFrom")
    if source.get("configMapKeyRef") is not None:
        return place.frame.reading.configured(one, place.document, path)
    told = text_of(source.get("expression"))
    if told is not None:
        node = expression(told, place, f"{path}.valueFrom.expression")
        return None if node is None else made(as_text(node), place, path)
    told = text_of(source.get("parameter")) or text_of(source.get("default")) or text_of(one.get("default"))
    if told is not None:
        return value_of(told, place, path)
    place.notes.wrong(place.document, path, "P835", "this argument has no value", "give it one, in quotes")
    return None


# -- files ------------------------------------------------------------------------------------------------------------


def file_of(one: Mapping[str, Any], place: Place, document: Document, path: str) -> Any:
    """The value of an artifact; NOTHING if it cannot be had here; None if it says nothing of where it comes from."""
    said = text_of(one.get("from"))
    told = text_of(one.get("fromExpression"))
    if one.get("subPath") is not None and (said or told):
        place.notes.lost(document, f"{path}.subPath", "the whole file or folder is passed, not a part of it")
    if said is not None:
        return _from(said, place, document, f"{path}.from")
    if told is not None:
        node = expression(told, place, f"{path}.fromExpression")
        return NOTHING if node is None else made(node, place, path)
    raw = part(one, "raw")
    if raw.get("data") is not None:
        text = value_of(text_of(raw.get("data")) or "", place, f"{path}.raw.data")
        # A text that is only known later is told from a file that is handed on.
        return Expr.tree(Call("text", (text.node,))) if isinstance(text, Expr) else text
    where = next((str(name) for name in one if name in LOCATIONS), None)
    if where is None:
        return None
    near = (
        "Make a step that fetches it." if where in ("http", "git") else "Pass it from a step, or write it out as raw."
    )
    place.notes.lost(
        document, f"{path}.{where}", f"what lies in {where} is not fetched on this machine: there is no file", near
    )
    return NOTHING


def _from(said: str, place: Place, document: Document, path: str) -> Any:
    names = only_tag(said.strip())
    if names is None:
        fix = 'write "{{steps.NAME.outputs.artifacts.NAME}}"'
        place.notes.wrong(document, path, "P834", f"{said[:80]!r} is not the artifact of a step", fix)
        return NOTHING
    try:
        node = place.look(names)
        if node is None:
            raise Unknown(f"there is no artifact {'.'.join(names)[:80]}", "name one of a step, or an input")
    except Unknown as error:
        place.notes.wrong(document, path, "P832", str(error), error.fix)
        return NOTHING
    if node is MISSING_FILE:
        return NOTHING
    return node.value if isinstance(node, Const) else Expr.tree(node)


MISSING_FILE: Final[Node] = Const("there is no such file on this machine")
"""Stands in a frame for an input artifact that could not be had."""


def whole_given(frame: Frame, place: SitePlace, sheet: Sheet) -> Given:
    """The arguments of the workflow, which its entrypoint and its exit handler get by name."""
    reading = frame.reading
    found = Given()
    for name in reading.params:
        if name in sheet.inputs[PARAMETERS]:
            found.values[name] = made(frame.shared((PARAMETERS, name), place), place, reading.root.path)
    for name, (one, path) in reading.artifacts.items():
        if name in sheet.inputs[ARTIFACTS]:
            found.files[name] = file_of(one, place, reading.root.document, path)
    return found


# -- inputs of a step -------------------------------------------------------------------------------------------------


class InputPlace(Place):
    """The value or default that a template itself gives to an input: it may read the workflow, and other inputs."""

    def __init__(self, sheet: Sheet, given: Given, around: SitePlace) -> None:
        self.sheet = sheet
        self.given = given
        self.around = around
        self.notes = around.notes
        self.document = sheet.document
        self.open: list[str] = []

    def known(self) -> Mapping[str, Any]:
        return self.around.known()

    def look(self, names: tuple[str, ...], *, typed: bool = False) -> Node | None:
        if names[:2] == ("inputs", PARAMETERS) and len(names) > 2:
            name = ".".join(names[2:])
            if name in self.open:
                raise Unknown(f"the inputs {' and '.join(self.open)} read one another", "give one of them a value")
            value = self.value(name) if name in self.sheet.inputs[PARAMETERS] else MISSING
            if value is MISSING:
                fix = nearest(name, self.sheet.inputs[PARAMETERS]).strip() or "declare it under inputs.parameters"
                raise Unknown(f"the template {self.sheet.name!r} has no value for inputs.parameters.{name[:60]}", fix)
            return node_of_value(value)
        if names[0] in ("workflow", "node") or self.sheet.inline or names[1:] == ("name",):
            return self.around.look(names, typed=typed)
        return None

    def value(self, name: str) -> Value:
        """What the input has in this call; MISSING if nothing."""
        if name in self.given.values:
            return self.given.values[name]
        return self.own(name)

    def own(self, name: str) -> Value:
        """What the template gives it by itself."""
        one, here = self.sheet.inputs[PARAMETERS][name], self.sheet.place("inputs", PARAMETERS, name)
        text = text_of(one.get("value"))
        if text is None:
            text = text_of(one.get("default"))
        if text is None:
            text = self.around.frame.reading.configured(one, self.sheet.document, here)
        if text is None:
            text = text_of(part(one, "valueFrom").get("default"))
        if text is None:
            return "" if self.sheet.kind == "suspend" else MISSING
        self.open.append(name)
        try:
            return value_of(text, self, here)
        finally:
            self.open.pop()


def inputs_of(sheet: Sheet, given: Given, place: SitePlace, path: str) -> list[Input]:
    """The inputs of a step that calls the template."""
    found: list[Input] = []
    inputs = InputPlace(sheet, given, place)
    for name in sheet.inputs[PARAMETERS]:
        value = inputs.value(name)
        if value is MISSING:
            _missing(sheet, "parameters", name, place, path)
            continue
        own = sheet.input_names[PARAMETERS, name]
        default: Value = MISSING
        if name in given.outputs:
            default = inputs.own(name)
            if isinstance(default, Expr) and "steps" in default.text:
                default = MISSING
        elif sheet.composite and name not in given.values and isinstance(value, str):
            continue  # the definition has it as the default of its parameter
        found.append(Input(name=own, value=value, type=STR, default=default))
    for name in sheet.inputs[ARTIFACTS]:
        one = _file(sheet, name, given, inputs, place, path)
        if one is not None:
            found.append(one)
    _unasked(sheet, given, place)
    return found


def _file(sheet: Sheet, name: str, given: Given, inputs: InputPlace, place: SitePlace, path: str) -> Input | None:
    one, here = sheet.inputs[ARTIFACTS][name], sheet.place("inputs", ARTIFACTS, name)
    value = given.files.get(name)
    if value is None:
        value = file_of(one, inputs, sheet.document, here)
    if value is None and one.get("optional") is not True:
        _missing(sheet, "artifacts", name, place, path)
    if value is None or value is NOTHING:
        return None
    at = None if sheet.composite else text_of(one.get("path"))
    is_text = not isinstance(value, Expr) or (isinstance(value.node, Call) and value.node.name == "text")
    type_ = ANY if sheet.composite else STR if is_text else ARTIFACT
    return Input(name=sheet.input_names[ARTIFACTS, name], value=value, type=type_, path=at or None)


def _missing(sheet: Sheet, kind: str, name: str, place: SitePlace, path: str) -> None:
    said = f"the template {sheet.name!r} needs inputs.{kind}.{name[:60]}, and this call does not give it"
    place.notes.wrong(place.document, path, "P832", said, f"add it to arguments.{kind}, or give the input a default")


def _unasked(sheet: Sheet, given: Given, place: SitePlace) -> None:
    for kind, values in ((PARAMETERS, given.values), (ARTIFACTS, given.files)):
        for name in values:
            path = given.paths.get((kind, name))
            if name not in sheet.inputs[kind] and path is not None:
                said = (
                    f"the template {sheet.name!r} has no input {name[:60]!r}; the argument is passed over, as Argo does"
                )
                place.notes.changed(place.document, path, said, nearest(name, sheet.inputs[kind]).strip())
