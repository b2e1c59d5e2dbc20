"""Texts of an Argo document with `{{tags}}` in them -> values of the model. Called by every part of the Argo reader.

A tag is a variable (`{{inputs.parameters.x}}`) or an expression (`{{=asInt(inputs.parameters.x) + 1}}`). What a variable means
depends on where the text stands; a Place knows. As in Argo, a tag that does not begin as one of its variables does is no tag
at all but text, so that Go templates and Jinja in a script survive; one that does, and leads nowhere, is a mistake.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Final

from penstock.errors import nearest
from penstock.formats.argo_in.notes import Notes
from penstock.formats.documents import Document
from penstock.formats.kube import joined
from penstock.formats.lang.build import chain, is_condition
from penstock.formats.lang.exprlang import UnknownVariable, compile_expr, compile_output, compile_tag
from penstock.formats.lang.govaluate import compile_when
from penstock.formats.lang.tags import Tag, split_tags, tag_path
from penstock.graph.evaluate import EvaluationError, evaluate
from penstock.graph.expr import Binary, Call, Choice, Const, Expr, ExpressionError, Node, parse, path_of, show
from penstock.graph.model import Value
from penstock.graph.template import Template

BEGINNINGS: Final = ("inputs", "item", "outputs", "pod", "steps", "tasks", "workflow")
"""A tag that begins with one of these must lead somewhere; Argo refuses it otherwise."""
_TEXTUAL: Final = frozenset(
    {"collect", "collect_maps", "collect_results", "date", "phase", "sprintf", "string", "text", "to_json"}
)
_SHORT: Final = 150
"""An expression of so many characters is neither too long nor too deep."""
_TEXT_ROOTS: Final = frozenset({"params", "inputs", "steps", "run"})


class Unknown(Exception):
    """A variable that leads nowhere: what is wrong, and what to do about it."""

    def __init__(self, message: str, fix: str) -> None:
        super().__init__(message)
        self.fix = fix


class Place(ABC):
    """Where a text stands: what its variables mean there."""

    notes: Notes
    document: Document

    @abstractmethod
    def look(self, names: tuple[str, ...], *, typed: bool = False) -> Node | None:
        """What a variable means; None if it is none here. `typed`: as an expression sees it, not as text. Raises Unknown."""

    def known(self) -> Mapping[str, Any]:
        """What can be evaluated before the run: parameters with a default, inputs that are given literally."""
        return {}


class Quiet(Place):
    """The same place, where it does not matter whether a variable leads anywhere."""

    def __init__(self, around: Place) -> None:
        self.around = around
        self.notes = Notes()
        self.document = around.document

    def look(self, names: tuple[str, ...], *, typed: bool = False) -> Node | None:
        return self.around.look(names, typed=typed)

    def known(self) -> Mapping[str, Any]:
        return self.around.known()


# -- texts ------------------------------------------------------------------------------------------------------------


def value_of(text: str, place: Place, path: str) -> Value:
    """Text, an Expr whose value is text, or a Template of both."""
    if "{{" not in text:
        return text
    return joined([part if isinstance(part, str) else made(part, place, path) for part in parts_of(text, place, path)])


def node_of(text: str, place: Place, path: str) -> Node:
    """The same as one expression."""
    return _one([Const(part) if isinstance(part, str) else part for part in parts_of(text, place, path)])


def _one(nodes: list[Node]) -> Node:
    return chain("+", nodes) if nodes else Const("")


def made(node: Node, place: Place, path: str) -> Expr:
    """The node as an Expr. One that is too long or too deep to be read again is refused here, where its line is known."""
    text = show(node)
    if len(text) > _SHORT:
        try:
            parse(text)
        except ExpressionError as error:
            place.notes.wrong(place.document, path, "P834", f"this cannot be evaluated: {error}", "make it shorter")
            return Expr('""')
    return Expr(text)


def node_of_value(value: Value) -> Node:
    """A value that is text, as an expression."""
    if isinstance(value, Expr):
        return value.node
    if isinstance(value, Template):
        return _one([Const(part) if isinstance(part, str) else part.node for part in value.parts])
    return Const(value)


def deep(data: Any, place: Place, path: str) -> Value:
    """Every text inside lists and maps. Lists become tuples."""
    if isinstance(data, str):
        return value_of(data, place, path)
    if isinstance(data, list | tuple):
        return tuple(deep(item, place, f"{path}[{number}]") for number, item in enumerate(data))
    if isinstance(data, Mapping):
        return {str(key): deep(item, place, f"{path}.{key}") for key, item in data.items()}
    return data


def parts_of(text: str, place: Place, path: str) -> list[str | Node]:
    """Texts, and nodes whose value is text, in turn."""
    found: list[str | Node] = []
    for piece in split_tags(text):
        part: str | Node = piece if isinstance(piece, str) else _tag(piece, place, path)
        if isinstance(part, Const) and isinstance(part.value, str):
            part = part.value
        if isinstance(part, str) and found and isinstance(found[-1], str):
            found[-1] += part
        else:
            found.append(part)
    return found


def only_tag(text: Any) -> tuple[str, ...] | None:
    """The names of the variable that a text consists of, if it is one."""
    pieces = split_tags(text) if isinstance(text, str) and text[:2] == "{{" else []
    if len(pieces) != 1 or not isinstance(pieces[0], Tag) or pieces[0].kind != "simple":
        return None
    try:
        return tag_path(pieces[0].body)
    except ExpressionError:
        return None


def _tag(tag: Tag, place: Place, path: str) -> str | Node:
    if tag.kind == "expr":
        found = _compiled(lambda: compile_tag(tag.body, _resolver(tag.body, place)), place, path, tag.body)
        return Const("") if found is None else as_text(found)
    try:
        names = tag_path(tag.body)
    except ExpressionError as error:
        if tag.root in BEGINNINGS:
            place.notes.wrong(place.document, path, "P834", str(error), "write {{inputs.parameters.NAME}} and the like")
            return Const("")
        names = (tag.body,)
    try:
        found = place.look(names)
    except Unknown as error:
        place.notes.wrong(place.document, path, "P832", str(error), error.fix)
        return Const("")
    if found is not None:
        return found
    if names[0] in BEGINNINGS or (len(names) > 1 and nearest(names[0], BEGINNINGS)):
        said = f"there is no variable {tag.raw[:80]} here"
        place.notes.wrong(place.document, path, "P832", said, _meant(names[0]))
        return Const("")
    place.notes.kept(place.document, path, f"{tag.raw[:80]} is no variable of Argo's; it stays as text")
    return tag.raw


def _meant(root: str) -> str:
    return nearest(root, BEGINNINGS).strip() or "read one that this place has: an input, an earlier step, the workflow"


def as_text(node: Node) -> Node:
    return node if _is_text(node) else Call("text", (node,))


def _is_text(node: Node) -> bool:
    match node:
        case Const(value):
            return isinstance(value, str)
        case Call(name, _, None):
            return name in _TEXTUAL
        case Choice(_, yes, no):
            return _is_text(yes) and _is_text(no)
        case Binary("+", left, right):
            return _is_text(left) and _is_text(right)
        case _:
            path = path_of(node)
            return path is not None and path[0] in _TEXT_ROOTS


# -- expressions ------------------------------------------------------------------------------------------------------


def expression(text: str, place: Place, path: str) -> Node | None:
    """A field that is an expression of expr-lang, perhaps with tags in it. None if it is wrong, and that is noted."""
    return _compiled(lambda: compile_expr(text, _resolver(text, place), _tagger(place)), place, path, text)


def output_expression(text: str, place: Place, path: str) -> Node | None:
    """The same where the value is kept as text."""
    return _compiled(lambda: compile_output(text, _resolver(text, place)), place, path, text)


def condition(text: str, place: Place, path: str) -> Node | None:
    """A `when`. None if it is wrong, and that is noted."""
    return _compiled(lambda: compile_when(text, _tagger(place)), place, path, text)


def _tagger(place: Place) -> Callable[[Tag], Node]:
    """What a tag inside a condition or an expression stands for."""

    def resolve(tag: Tag) -> Node:
        if tag.kind == "simple":
            found = place.look(tag_path(tag.body))
            if found is None:
                raise Unknown(f"there is no variable {tag.raw[:80]} here", _meant(tag.root))
            return found
        found = compile_expr(tag.body, _resolver(tag.body, place))
        return found if is_condition(found) else compile_tag(tag.body, _resolver(tag.body, place))

    return resolve


def _resolver(text: str, place: Place) -> Callable[[tuple[str, ...]], Node]:
    """What a variable inside an expression stands for. Where the author has thought of its not being there, it may be missing."""

    def resolve(names: tuple[str, ...]) -> Node:
        try:
            found = place.look(names, typed=True)
        except Unknown:
            if "??" in text:
                return Const(None)
            raise
        if found is None:
            raise UnknownVariable(names)
        return found

    return resolve


def _compiled(make: Callable[[], Node], place: Place, path: str, text: str) -> Node | None:
    try:
        return make()
    except Unknown as error:
        place.notes.wrong(place.document, path, "P832", str(error), error.fix)
    except UnknownVariable as error:
        place.notes.wrong(place.document, path, "P832", str(error), _meant(error.path[0]))
    except ExpressionError as error:
        said = f"{text.strip()[:80]!r} cannot be read at character {error.position + 1}: {error}"
        place.notes.wrong(place.document, path, "P834", said, "correct the expression")
    return None


# -- what is known beforehand -----------------------------------------------------------------------------------------


def constant(node: Node, place: Place) -> Any:
    """Its value, if that can be told before the run; None otherwise."""
    try:
        return evaluate(node, place.known())
    except EvaluationError:
        return None


def constant_text(text: str, place: Place, path: str) -> str | None:
    """A text with its tags replaced, if their values can be told before the run."""
    if "{{" not in text:
        return text
    before = len(place.notes.problems)
    found = constant(node_of(text, place, path), place)
    return found if isinstance(found, str) and len(place.notes.problems) == before else None
