"""Texts of an Argo document with `{{tags}}` in them -> values of the model. Called by every part of the Argo reader.

A tag is a variable (`{{inputs.parameters.x}}`) or an expression (`{{=asInt(inputs.parameters.x) + 1}}`). The meaning of a
variable depends on the place of the text: see TextScope. As in Argo, a tag that does not begin with one of its roots is text, so that Go templates
and Jinja in a script survive; a tag that does, and cannot be resolved, is a mistake.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Final

from penstock.errors import nearest
from penstock.expressions.evaluate import EvaluationError, evaluate
from penstock.expressions.parse import Binary, Call, Choice, Const, Expr, ExpressionError, Node, parse, path_of, show
from penstock.expressions.template import Template
from penstock.formats.argo.language.tags import Tag, split_tags, tag_path
from penstock.formats.argo.language.translate import UnknownVariable, compile_expr, compile_output, compile_tag
from penstock.formats.argo.language.when import compile_when
from penstock.formats.argo.read.notes import ReadNotes
from penstock.formats.documents import Document
from penstock.formats.expression_trees import chain, is_condition
from penstock.formats.values import joined
from penstock.graph.model import Value

BEGINNINGS: Final = ("inputs", "item", "outputs", "pod", "steps", "tasks", "workflow")
"""A tag with one of these roots must be resolvable; otherwise Argo refuses it."""
_TEXTUAL: Final = frozenset(
    {"collect", "collect_maps", "collect_results", "date", "phase", "sprintf", "string", "text", "to_json"}
)
_SHORT: Final = 150
"""An expression of so few characters is never too long or too deep."""
_TEXT_ROOTS: Final = frozenset({"params", "inputs", "steps", "run"})


class UnknownName(Exception):
    """A variable that cannot be resolved: what is wrong, and the fix."""

    def __init__(self, message: str, fix: str) -> None:
        super().__init__(message)
        self.fix = fix


class TextScope(ABC):
    """The meaning of variables at one place of the document."""

    notes: ReadNotes
    document: Document
    lenient = False
    """A tag without a value stays as text, as in the arguments of Argo's hooks."""

    def firm(self, names: tuple[str, ...]) -> bool:
        """Does an expression fail if this has no value, although `??` follows?"""
        return False

    @abstractmethod
    def look(self, names: tuple[str, ...], *, typed: bool = False) -> Node | None:
        """The value of a variable; None if it is not a variable here. `typed`: as in an expression, not as text. Raises UnknownName."""

    def known(self) -> Mapping[str, Any]:
        """Values known before the run: parameters with a default, literal inputs."""
        return {}


class QuietScope(TextScope):
    """The same scope with its own notes, so that unknown variables are not reported."""

    def __init__(self, around: TextScope) -> None:
        self.around = around
        self.notes = ReadNotes()
        self.document = around.document

    def look(self, names: tuple[str, ...], *, typed: bool = False) -> Node | None:
        return self.around.look(names, typed=typed)

    def known(self) -> Mapping[str, Any]:
        return self.around.known()


# -- texts ------------------------------------------------------------------------------------------------------------


def value_of(text: str, scope: TextScope, path: str) -> Value:
    """Text, an Expr whose value is text, or a Template of both."""
    if "{{" not in text:
        return text
    return joined(
        [part if isinstance(part, str) else as_expr(part, scope, path) for part in parts_of(text, scope, path)]
    )


def node_of(text: str, scope: TextScope, path: str) -> Node:
    """The same as one expression."""
    return _one([Const(part) if isinstance(part, str) else part for part in parts_of(text, scope, path)])


def _one(nodes: list[Node]) -> Node:
    return chain("+", nodes) if nodes else Const("")


def as_expr(node: Node, scope: TextScope, path: str) -> Expr:
    """The node as an Expr. One that is too long or too deep to be parsed again is refused here, where its line is known."""
    text = show(node)
    if len(text) > _SHORT:
        try:
            parse(text)
        except ExpressionError as error:
            scope.notes.wrong(scope.document, path, "P834", f"this cannot be evaluated: {error}", "make it shorter")
            return Expr('""')
    return Expr(text)


def node_of_value(value: Value) -> Node:
    """A value that is text, as an expression."""
    if isinstance(value, Expr):
        return value.node
    if isinstance(value, Template):
        return _one([Const(part) if isinstance(part, str) else part.node for part in value.parts])
    return Const(value)


def deep(data: Any, scope: TextScope, path: str) -> Value:
    """Every text inside lists and maps. Lists become tuples."""
    if isinstance(data, str):
        return value_of(data, scope, path)
    if isinstance(data, list | tuple):
        return tuple(deep(item, scope, f"{path}[{number}]") for number, item in enumerate(data))
    if isinstance(data, Mapping):
        return {str(key): deep(item, scope, f"{path}.{key}") for key, item in data.items()}
    return data


def parts_of(text: str, scope: TextScope, path: str) -> list[str | Node]:
    """Texts, and nodes whose value is text, in order."""
    found: list[str | Node] = []
    for piece in split_tags(text):
        part: str | Node = piece if isinstance(piece, str) else _tag(piece, scope, path)
        if isinstance(part, Const) and isinstance(part.value, str):
            part = part.value
        if isinstance(part, str) and found and isinstance(found[-1], str):
            found[-1] += part
        else:
            found.append(part)
    return found


def only_tag(text: Any) -> tuple[str, ...] | None:
    """The path of the variable, if a text is a single tag."""
    pieces = split_tags(text) if isinstance(text, str) and text[:2] == "{{" else []
    if len(pieces) != 1 or not isinstance(pieces[0], Tag) or pieces[0].kind != "simple":
        return None
    try:
        return tag_path(pieces[0].body)
    except ExpressionError:
        return None


def _tag(tag: Tag, scope: TextScope, path: str) -> str | Node:
    if tag.kind == "expr":
        found = _compiled(lambda: compile_tag(tag.body, _resolver(tag.body, scope), scope.firm), scope, path, tag.body)
        return Const("") if found is None else _kept(as_text(found), tag, scope)
    try:
        names = tag_path(tag.body)
    except ExpressionError as error:
        if tag.root in BEGINNINGS:
            scope.notes.wrong(scope.document, path, "P834", str(error), "write {{inputs.parameters.NAME}} and the like")
            return Const("")
        names = (tag.body,)
    try:
        found = scope.look(names)
    except UnknownName as error:
        scope.notes.wrong(scope.document, path, "P832", str(error), error.fix)
        return Const("")
    if found is not None:
        return _kept(found, tag, scope)
    if names[0] in BEGINNINGS or (len(names) > 1 and nearest(names[0], BEGINNINGS)):
        message = f"there is no variable {tag.raw[:80]} here"
        scope.notes.wrong(scope.document, path, "P832", message, _meant(names[0]))
        return Const("")
    scope.notes.kept(scope.document, path, f"{tag.raw[:80]} is no variable of Argo's; it stays as text")
    return tag.raw


def _kept(node: Node, tag: Tag, scope: TextScope) -> Node:
    """With the tag itself as text where there is no value, if the place allows that."""
    if not scope.lenient or isinstance(node, Const) or "outputs" not in tag.body:
        return node
    return Call("default", (node, Const(tag.raw)))


def _meant(root: str) -> str:
    return nearest(root, BEGINNINGS).strip() or "read one that this place has: an input, an earlier step, the workflow"


def as_text(node: Node) -> Node:
    return node if _is_text(node) else Call("text", (node,))


def _is_text(node: Node) -> bool:
    match node:
        case Const(value):
            return isinstance(value, str)
        case Call("default", (value, otherwise), None):
            return _is_text(value) and _is_text(otherwise)
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


def expression(text: str, scope: TextScope, path: str) -> Node | None:
    """A field that is an expression of expr-lang, perhaps with tags in it. None with a problem if it is wrong."""
    return _compiled(lambda: compile_expr(text, _resolver(text, scope), _tagger(scope), scope.firm), scope, path, text)


def output_expression(text: str, scope: TextScope, path: str) -> Node | None:
    """The same if the value is kept as text."""
    return _compiled(lambda: compile_output(text, _resolver(text, scope), scope.firm), scope, path, text)


def condition(text: str, scope: TextScope, path: str) -> Node | None:
    """A `when`. None with a problem if it is wrong."""
    return _compiled(lambda: compile_when(text, _tagger(scope)), scope, path, text)


def _tagger(scope: TextScope) -> Callable[[Tag], Node]:
    """Resolves tags inside a condition or an expression."""

    def resolve(tag: Tag) -> Node:
        if tag.kind == "simple":
            found = scope.look(tag_path(tag.body))
            if found is None:
                raise UnknownName(f"there is no variable {tag.raw[:80]} here", _meant(tag.root))
            return found
        found = compile_expr(tag.body, _resolver(tag.body, scope), None, scope.firm)
        return found if is_condition(found) else compile_tag(tag.body, _resolver(tag.body, scope), scope.firm)

    return resolve


def _resolver(text: str, scope: TextScope) -> Callable[[tuple[str, ...]], Node]:
    """Resolves variables inside an expression. With `??` in the text, an unknown variable is null."""

    def resolve(names: tuple[str, ...]) -> Node:
        try:
            found = scope.look(names, typed=True)
        except UnknownName:
            if "??" in text:
                return Const(None)
            raise
        if found is None:
            raise UnknownVariable(names)
        return found

    return resolve


def _compiled(make: Callable[[], Node], scope: TextScope, path: str, text: str) -> Node | None:
    try:
        return make()
    except UnknownName as error:
        scope.notes.wrong(scope.document, path, "P832", str(error), error.fix)
    except UnknownVariable as error:
        scope.notes.wrong(scope.document, path, "P832", str(error), _meant(error.path[0]))
    except ExpressionError as error:
        message = f"{text.strip()[:80]!r} cannot be read at character {error.position + 1}: {error}"
        scope.notes.wrong(scope.document, path, "P834", message, "correct the expression")
    return None


# -- what is known beforehand -----------------------------------------------------------------------------------------


def constant(node: Node, scope: TextScope) -> Any:
    """Its value if it is known before the run; None otherwise."""
    try:
        return evaluate(node, scope.known())
    except EvaluationError:
        return None


def constant_text(text: str, scope: TextScope, path: str) -> str | None:
    """A text with its tags replaced, if their values are known before the run."""
    if "{{" not in text:
        return text
    before = len(scope.notes.problems)
    found = constant(node_of(text, scope, path), scope)
    return found if isinstance(found, str) and len(scope.notes.problems) == before else None
