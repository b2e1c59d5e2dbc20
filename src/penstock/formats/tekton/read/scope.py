"""Places in a Tekton document, and the values of its variables. Called by every module of the Tekton reader.

Tekton replaces `$(params.x)` before anything runs. Here it becomes an expression, whose value is open until the run. What the documents already tell
of the value is kept in `KnownText.fixed`, for places where the model needs a literal: the name of a ConfigMap, the number of words of a
command.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from penstock.errors import DocumentError, Source
from penstock.expressions.evaluate import to_text
from penstock.expressions.parse import (
    Binary,
    Call,
    Const,
    Expr,
    ExpressionError,
    Index,
    ListOf,
    Node,
    parse,
    reference,
    show,
)
from penstock.expressions.template import Template
from penstock.expressions.types import STR, Type, list_of
from penstock.formats.documents import Document
from penstock.formats.tekton.variables import Var, split_vars, texts_in
from penstock.formats.values import joined, pieces
from penstock.graph.model import MISSING, Value

STRINGS: Final = list_of(STR)
OBJECT: Final = Type("dict", (STR,))
_LATER = frozenset({"artifacts", "context", "credentials", "results", "workspaces"})
_ENV = re.compile(r"\$(?:(\$)|\(([^)]*)\)|.)", re.S)
_DURATION = re.compile(r"(\d{1,12}(?:\.\d{1,9})?|\.\d{1,9})(ns|us|µs|μs|ms|s|m|h)")
_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


# -- places -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Located:
    """A value in a document, with its path."""

    document: Document
    path: str
    data: Any

    @staticmethod
    def root(document: Document) -> Located:
        return Located(document, "", document.data)

    @property
    def source(self) -> Source:
        return self.document.source(self.path)

    def error(self, code: str, message: str, fix: str) -> DocumentError:
        return DocumentError(self.document.problem(code, self.path, message, fix))

    def wrong(self, wanted: str) -> DocumentError:
        return self.error("P835", f"{self.path or 'the document'} must be {wanted}", f"write {wanted}")

    def given(self, name: str) -> bool:
        """Is there a value? null counts as absent."""
        return isinstance(self.data, Mapping) and self.data.get(name) is not None

    def at(self, name: str) -> Located:
        """A field, whatever it is; its data is None if there is none."""
        if not isinstance(self.data, Mapping):
            raise self.wrong("a mapping")
        return Located(self.document, f"{self.path}.{name}" if self.path else name, self.data.get(name))

    def map(self, name: str) -> Located:
        """A field that is a mapping; an empty one if there is none."""
        found = self.at(name)
        if found.data is None:
            return Located(self.document, found.path, {})
        if not isinstance(found.data, Mapping):
            raise found.wrong("a mapping")
        return found

    def list(self, name: str) -> list[Located]:
        """The items of a field that is a list."""
        found = self.at(name)
        if found.data is None:
            return []
        if not isinstance(found.data, list):
            raise found.wrong("a list")
        return [Located(self.document, f"{found.path}[{number}]", item) for number, item in enumerate(found.data)]

    def maps(self, name: str) -> Iterator[Located]:
        """The items of a list of mappings."""
        for item in self.list(name):
            if not isinstance(item.data, Mapping):
                raise item.wrong("a mapping")
            yield item

    def word(self, name: str, default: str = "") -> str:
        """A field that is text, or a number that reads as text."""
        found = self.at(name)
        if found.data is None:
            return default
        return found.text()

    def text(self) -> str:
        """The value as text."""
        if isinstance(self.data, Mapping | list) or self.data is None:
            raise self.wrong("text")
        return self.data if isinstance(self.data, str) else json.dumps(self.data)

    def flag(self, name: str) -> bool:
        return self.at(name).data in (True, "true")

    def whole(self, name: str) -> int:
        """A field that is a count; 0 if absent."""
        found = self.at(name)
        if found.data is None:
            return 0
        if isinstance(found.data, bool) or not isinstance(found.data, int) or not 0 <= found.data <= 10**6:
            raise found.wrong("a whole number, not below 0")
        return found.data

    def seconds(self, name: str) -> float | None:
        """A Go duration: `1h30m`. None if absent; 0 means no limit."""
        found = self.at(name)
        if found.data is None:
            return None
        text = found.text().strip()
        if re.fullmatch(r"0(?:\.0*)?", text):
            return 0.0
        parts = list(_DURATION.finditer(text))
        if not parts or "".join(part[0] for part in parts) != text:
            raise found.wrong("a duration: 90s, 15m, 1h30m")
        return float(sum(float(part[1]) * _UNITS[part[2]] for part in parts))

    def name(self) -> str:
        """The required field `name`."""
        if not isinstance(self.data, Mapping):
            raise self.wrong("a mapping")
        found = self.at("name")
        if found.data in (None, ""):
            raise self.error("P835", f"{self.path or 'the document'} has no name", "give it one")
        return found.text()


# -- variables --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class KnownText:
    """The value of a text: in the model, its type, and its known value in this run."""

    value: Value
    type: Type = STR
    fixed: Any = MISSING

    @staticmethod
    def plain(value: Any) -> KnownText:
        """A literal: text, a list of texts or a map of texts."""
        frozen = tuple(value) if isinstance(value, list | tuple) else value
        kind = STRINGS if isinstance(frozen, tuple) else OBJECT if isinstance(frozen, dict) else STR
        return KnownText(frozen, kind, frozen)

    @property
    def is_fixed(self) -> bool:
        return self.fixed is not MISSING

    def item(self, index: int) -> KnownText | None:
        """`[index]`. None if it is known that there is no such element."""
        fixed = self._fixed_item(index)
        if isinstance(self.value, tuple):
            if index >= len(self.value):
                return None
            inner = self.value[index]
            return KnownText(inner, STR, inner if isinstance(inner, str) else fixed)
        if isinstance(self.value, Expr):
            return KnownText(Expr.tree(Index(self.value.node, Const(index))), self.type.item, fixed)
        return None

    def _fixed_item(self, index: int) -> Any:
        known = isinstance(self.fixed, tuple | list) and index < len(self.fixed)
        return self.fixed[index] if known else MISSING

    def member(self, key: str) -> KnownText | None:
        """`.key` of an object. None if it is known that there is none."""
        fixed = self.fixed.get(key, MISSING) if isinstance(self.fixed, dict) else MISSING
        if isinstance(self.value, dict):
            if key not in self.value:
                return None
            inner = self.value[key]
            return KnownText(inner, STR, inner if isinstance(inner, str) else fixed)
        if isinstance(self.value, Expr) and self.type.name in ("dict", "any"):
            if isinstance(self.fixed, dict) and key not in self.fixed:
                return None
            return KnownText(_member(self.value, key), self.type.item, fixed)
        return None

    def unfolded(self) -> KnownText:
        """An object by its keys, if they are known."""
        if not isinstance(self.value, Expr) or not isinstance(self.fixed, dict):
            return self
        return KnownText({key: _member(self.value, key) for key in self.fixed}, OBJECT, self.fixed)

    def picked(self, keys: tuple[str, ...], var: Var) -> KnownText | None:
        """The part that a variable reads: all, an element, a member."""
        if len(keys) > 1:
            return None
        found: KnownText | None = self.member(keys[0]) if keys else self
        return found.item(var.index) if found is not None and var.index is not None else found


def _member(value: Expr, key: str) -> Expr:
    return Expr.tree(Index(value.node, Const(key)))


Lookup = Callable[[Var], KnownText | None]
"""Variable -> its value; None: it is not a variable here, and stays as text."""


def compose(parts: Iterable[str | KnownText]) -> KnownText:
    """Joins texts and values."""
    listed = [part if isinstance(part, KnownText) else KnownText.plain(part) for part in parts]
    if len(listed) == 1:
        return listed[0]
    value = joined(piece for known in listed for piece in pieces(known.value))
    if isinstance(value, str):
        return KnownText(value, STR, value)
    # One expression among empty texts is still text: `$(a)$(b)` with an empty b.
    fixed = all(known.is_fixed for known in listed)
    return KnownText(value, STR, "".join(to_text(known.fixed) for known in listed) if fixed else MISSING)


def understood(text: str, lookup: Lookup) -> KnownText:
    """A text with its variables replaced."""
    if "$(" not in text:
        return KnownText(text, STR, text)
    parts: list[str | KnownText] = []
    for part in split_vars(text):
        found = part if isinstance(part, str) else lookup(part)
        parts.append(part.raw if isinstance(part, Var) and found is None else found)  # type: ignore[arg-type]
    return compose(parts) if parts else KnownText("", STR, "")


def with_env(known: KnownText, env: Mapping[str, KnownText]) -> KnownText:
    """As in the kubelet, in words and environment: `$(NAME)` of a variable of the container is its value, `$$` is one dollar sign."""
    if "$" not in str(known.value):
        return known
    parts: list[str | KnownText] = []
    for piece in pieces(known.value):
        parts += [KnownText(piece)] if isinstance(piece, Expr) else _with_env(piece, env)
    return compose(part for part in parts if part != "")


def _with_env(text: str, env: Mapping[str, KnownText]) -> list[str | KnownText]:
    parts: list[str | KnownText] = []
    at = 0
    for match in _ENV.finditer(text):
        if match[1] or match[2] in env:
            parts += [text[at : match.start()], "$" if match[1] else env[match[2]]]
            at = match.end()
    return [*parts, text[at:]]


def refilled(known: KnownText, lookup: Lookup) -> KnownText:
    """The same value with the variables in its texts replaced: Tekton fills in parameters first, and then what they name."""
    value = known.value
    if "$(" not in str(value) or isinstance(value, Expr):
        return known
    if isinstance(value, tuple | list):
        items = [refilled(KnownText(one, STR, one if isinstance(one, str) else MISSING), lookup) for one in value]
        fixed = tuple(one.fixed for one in items) if all(one.is_fixed for one in items) else MISSING
        return KnownText(tuple(one.value for one in items), known.type, fixed)
    if isinstance(value, dict):
        members = {
            key: refilled(KnownText(one, STR, one if isinstance(one, str) else MISSING), lookup)
            for key, one in value.items()
        }
        whole = {key: one.fixed for key, one in members.items()} if _all_fixed(members) else MISSING
        return KnownText({key: _text_value(one) for key, one in members.items()}, known.type, whole)
    parts: list[str | KnownText] = []
    for piece in pieces(value):
        parts.append(KnownText(piece) if isinstance(piece, Expr) else understood(piece, lookup))
    found = compose(parts)
    return known if found.value == value else found


def _all_fixed(members: Mapping[str, KnownText]) -> bool:
    return all(known.is_fixed for known in members.values())


def names_later(value: Value) -> bool:
    """Does the value name a variable that is filled in only in the task?"""
    texts = texts_in(list(value) if isinstance(value, tuple) else value)
    return any(isinstance(part, Var) and part.path[0] in _LATER for text in texts for part in split_vars(text))


def value_at(at: Located, lookup: Lookup) -> KnownText:
    """A parameter's value: text, a list of texts, a map of texts, each with variables."""
    data = at.data
    if isinstance(data, Mapping):
        members = {
            str(key): value_at(Located(at.document, f"{at.path}.{key}", item), lookup) for key, item in data.items()
        }
        fixed = {key: known.fixed for key, known in members.items()}
        whole = fixed if all(known.is_fixed for known in members.values()) else MISSING
        return KnownText({key: _text_value(known) for key, known in members.items()}, OBJECT, whole)
    if isinstance(data, list):
        return listed([Located(at.document, f"{at.path}[{number}]", item) for number, item in enumerate(data)], lookup)
    return understood(at.text(), lookup)


def _text_value(known: KnownText) -> Value:
    return known.value if isinstance(known.value, str | Expr | Template) else to_text(known.value)


def spread(items: Iterable[Located], lookup: Lookup) -> list[KnownText]:
    """The words of a list. An item that is only an array is replaced by its elements if they are known; otherwise it stays one item of
    type list, which becomes several words at run time."""
    found: list[KnownText] = []
    for known in understood_all(items, lookup):
        if known.type.name == "list" and known.is_fixed:
            found += [KnownText.plain(one) for one in known.fixed]
        elif known.type.name == "list" and isinstance(known.value, tuple):
            found += [KnownText(one) for one in known.value]
        else:
            found.append(known)
    return found


def understood_all(items: Iterable[Located], lookup: Lookup) -> list[KnownText]:
    return [understood("" if item.data is None else item.text(), lookup) for item in items]


def listed(items: Iterable[Located], lookup: Lookup) -> KnownText:
    """A list of texts as one value, with arrays in it expanded."""
    found = understood_all(items, lookup)
    if len(found) == 1 and found[0].type.name == "list":
        return found[0]
    fixed: Any = MISSING
    if all(known.is_fixed for known in found):
        fixed = tuple(one for known in found for one in (known.fixed if known.type.name == "list" else (known.fixed,)))
    if not any(known.type.name == "list" for known in found):
        return KnownText(tuple(known.value for known in found), STRINGS, fixed)
    node: Node | None = None
    for known in found:
        array = known.type.name == "list"
        part = node_of(known.value, known.type) if array else ListOf((node_of(known.value, known.type),))
        node = part if node is None else _behind(node, part)
    assert node is not None
    return KnownText(Expr.tree(node), STRINGS, fixed)


def _behind(left: Node, right: Node) -> Node:
    if isinstance(left, ListOf) and isinstance(right, ListOf):
        return ListOf((*left.items, *right.items))
    return Binary("+", left, right)


# -- expressions ------------------------------------------------------------------------------------------------------


def path_expr(*path: str) -> Expr:
    return Expr.tree(reference(*path))


def node_of(value: Value, kind: Type = STR) -> Node:
    """Any value as an expression node."""
    if isinstance(value, Expr):
        return value.node if kind.name in ("str", "list", "dict") else Call("string", (value.node,))
    if isinstance(value, Template):
        parts: list[Node] = [Const(part) if isinstance(part, str) else part.node for part in value.parts]
        node = parts[0]
        for part in parts[1:]:
            node = Binary("+", node, part)
        return node
    if isinstance(value, tuple | list):
        return _list_node(value)
    return Const(value if isinstance(value, str) else to_text(value))


def _list_node(values: Iterable[Value]) -> Node:
    return ListOf(tuple(node_of(value) for value in values))


def expr(node: Node, at: Located) -> Expr:
    """Raises DocumentError if the expression has become too long or too deep."""
    text = show(node)
    try:
        parse(text)
    except ExpressionError as error:
        raise at.error("P834", f"{at.path}: {error}", "make the condition shorter") from None
    return Expr(text)


# -- names ------------------------------------------------------------------------------------------------------------


def legal(name: str, taken: Iterable[str] = (), variable: bool = False) -> str:
    """A name that the model allows, like the given one, and not taken."""
    found = re.sub(r"[^A-Za-z0-9_-]+", "-", name)[:120]
    found = found.strip("-" if variable else "-_") or "unnamed"
    known = taken if isinstance(taken, set | dict) else set(taken)
    number, base = 2, found
    while found in known:
        found = f"{base}-{number}"
        number += 1
    return found


def declared_type(spec: Located) -> Type:
    """The type of a parameter or result: declared, or that of its default."""
    said = spec.word("type")
    if said in ("array", "object", "string"):
        return {"array": STRINGS, "object": OBJECT, "string": STR}[said]
    if said:
        raise spec.at("type").wrong("string, array or object")
    default = spec.at("default").data
    if isinstance(default, list):
        return STRINGS
    if isinstance(default, Mapping) or spec.given("properties"):
        return OBJECT
    return STR


def frozen(value: Any) -> Any:
    """Lists inside the model are tuples."""
    if isinstance(value, Mapping):
        return {str(key): frozen(item) for key, item in value.items()}
    return tuple(map(frozen, value)) if isinstance(value, list | tuple) else value
