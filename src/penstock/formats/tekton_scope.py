"""Places in a Tekton document, and what its variables stand for. Called by every module of the Tekton reader.

`$(params.x)` is text that Tekton replaces before anything runs. Here it becomes an expression of the model, which keeps its value
open until the run; what the documents themselves already tell of it is kept beside it (`Known.fixed`), for places where the model
wants a plain word: the name of a ConfigMap, the number of words of a command.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from penstock.errors import DocumentError, Source
from penstock.formats.documents import Document
from penstock.formats.lang.tekton_vars import Var, split_vars
from penstock.graph.evaluate import to_text
from penstock.graph.expr import Binary, Call, Const, Expr, ExpressionError, Index, ListOf, Node, parse, reference, show
from penstock.graph.model import MISSING, Value
from penstock.graph.template import Template
from penstock.graph.types import STR, Type, list_of

STRINGS: Final = list_of(STR)
OBJECT: Final = Type("dict", (STR,))
_ENV = re.compile(r"\$(\$?)\(([A-Za-z_][A-Za-z0-9_.-]*)\)")
_DURATION = re.compile(r"(\d{1,12}(?:\.\d{1,9})?|\.\d{1,9})(ns|us|µs|μs|ms|s|m|h)")
_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


# -- places -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class At:
    """A place in a document: what stands there, and where."""

    document: Document
    path: str
    data: Any

    @staticmethod
    def root(document: Document) -> At:
        return At(document, "", document.data)

    @property
    def source(self) -> Source:
        return self.document.source(self.path)

    def error(self, code: str, message: str, fix: str) -> DocumentError:
        return DocumentError(self.document.problem(code, self.path, message, fix))

    def wrong(self, wanted: str) -> DocumentError:
        return self.error("P835", f"{self.path or 'the document'} must be {wanted}", f"write {wanted}")

    def given(self, name: str) -> bool:
        """Is there something? null is as if it were not there."""
        return isinstance(self.data, Mapping) and self.data.get(name) is not None

    def at(self, name: str) -> At:
        """A field, whatever it is; its data is None if there is none."""
        if not isinstance(self.data, Mapping):
            raise self.wrong("a mapping")
        return At(self.document, f"{self.path}.{name}" if self.path else name, self.data.get(name))

    def map(self, name: str) -> At:
        """A field that is a mapping; an empty one if there is none."""
        found = self.at(name)
        if found.data is None:
            return At(self.document, found.path, {})
        if not isinstance(found.data, Mapping):
            raise found.wrong("a mapping")
        return found

    def list(self, name: str) -> list[At]:
        """The items of a field that is a list."""
        found = self.at(name)
        if found.data is None:
            return []
        if not isinstance(found.data, list):
            raise found.wrong("a list")
        return [At(self.document, f"{found.path}[{number}]", item) for number, item in enumerate(found.data)]

    def maps(self, name: str) -> Iterator[At]:
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
        """What stands here, as text."""
        if isinstance(self.data, Mapping | list) or self.data is None:
            raise self.wrong("text")
        return self.data if isinstance(self.data, str) else json.dumps(self.data)

    def flag(self, name: str) -> bool:
        return self.at(name).data in (True, "true")

    def whole(self, name: str) -> int:
        """A field that is a number of times; 0 if there is none."""
        found = self.at(name)
        if found.data is None:
            return 0
        if isinstance(found.data, bool) or not isinstance(found.data, int) or not 0 <= found.data <= 10**6:
            raise found.wrong("a whole number, not below 0")
        return found.data

    def seconds(self, name: str) -> float | None:
        """A Go duration: `1h30m`. None if there is none; 0 means no limit and is said as 0."""
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
        """The field `name`, which must be there."""
        if not isinstance(self.data, Mapping):
            raise self.wrong("a mapping")
        found = self.at("name")
        if found.data in (None, ""):
            raise self.error("P835", f"{self.path or 'the document'} has no name", "give it one")
        return found.text()


# -- variables --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Known:
    """What a text stands for: a value of the model, its type, and what it is in this run as far as the documents tell."""

    value: Value
    type: Type = STR
    fixed: Any = MISSING

    @staticmethod
    def plain(value: Any) -> Known:
        """Something that is written out: text, a list of texts or a map of texts."""
        frozen = tuple(value) if isinstance(value, list | tuple) else value
        kind = STRINGS if isinstance(frozen, tuple) else OBJECT if isinstance(frozen, dict) else STR
        return Known(frozen, kind, frozen)

    @property
    def is_fixed(self) -> bool:
        return self.fixed is not MISSING

    def item(self, index: int) -> Known | None:
        """`[index]`. None if it is known that there is no such element."""
        fixed = self._fixed_item(index)
        if isinstance(self.value, tuple):
            if index >= len(self.value):
                return None
            inner = self.value[index]
            return Known(inner, STR, inner if isinstance(inner, str) else fixed)
        if isinstance(self.value, Expr):
            return Known(Expr.tree(Index(self.value.node, Const(index))), self.type.item, fixed)
        return None

    def _fixed_item(self, index: int) -> Any:
        known = isinstance(self.fixed, tuple | list) and index < len(self.fixed)
        return self.fixed[index] if known else MISSING

    def member(self, key: str) -> Known | None:
        """`.key` of an object. None if it is known that there is none."""
        fixed = self.fixed.get(key, MISSING) if isinstance(self.fixed, dict) else MISSING
        if isinstance(self.value, dict):
            if key not in self.value:
                return None
            inner = self.value[key]
            return Known(inner, STR, inner if isinstance(inner, str) else fixed)
        if isinstance(self.value, Expr) and self.type.name in ("dict", "any"):
            if isinstance(self.fixed, dict) and key not in self.fixed:
                return None
            return Known(_member(self.value, key), self.type.item, fixed)
        return None

    def unfolded(self) -> Known:
        """An object written out key by key, if its keys are known."""
        if not isinstance(self.value, Expr) or not isinstance(self.fixed, dict):
            return self
        return Known({key: _member(self.value, key) for key in self.fixed}, OBJECT, self.fixed)

    def picked(self, keys: tuple[str, ...], var: Var) -> Known | None:
        """What a variable takes of it: all, an element, a member."""
        if len(keys) > 1:
            return None
        found: Known | None = self.member(keys[0]) if keys else self
        return found.item(var.index) if found is not None and var.index is not None else found


def _member(value: Expr, key: str) -> Expr:
    return Expr.tree(Index(value.node, Const(key)))


Lookup = Callable[[Var], Known | None]
"""What a variable stands for; None: it is no variable here, and stays as it is written."""


def compose(parts: Iterable[str | Known]) -> Known:
    """Texts and values in a row, as one."""
    listed = list(parts)
    if len(listed) == 1 and isinstance(listed[0], Known):
        return listed[0]
    out: list[str | Expr] = []
    fixed: list[str] | None = []
    for part in listed:
        known = part if isinstance(part, Known) else Known.plain(part)
        for piece in _pieces(known.value):
            if isinstance(piece, str) and out and isinstance(out[-1], str):
                out[-1] += piece
            elif piece != "":
                out.append(piece)
        fixed = [*fixed, to_text(known.fixed)] if fixed is not None and known.is_fixed else None
    whole: Any = MISSING if fixed is None else "".join(fixed)
    if not out:
        return Known("", STR, "")
    if len(out) == 1:
        # One expression among empty texts is a text all the same: `$(a)$(b)` with an empty b.
        return Known(out[0], STR, out[0] if isinstance(out[0], str) else whole)
    return Known(Template(tuple(out)), STR, whole)


def _pieces(value: Value) -> tuple[str | Expr, ...]:
    if isinstance(value, Template):
        return value.parts
    return (value,) if isinstance(value, str | Expr) else (to_text(value),)


def understood(text: str, lookup: Lookup) -> Known:
    """A text with its variables looked up."""
    if "$(" not in text:
        return Known(text, STR, text)
    parts: list[str | Known] = []
    for part in split_vars(text):
        found = part if isinstance(part, str) else lookup(part)
        parts.append(part.raw if isinstance(part, Var) and found is None else found)  # type: ignore[arg-type]
    return compose(parts) if parts else Known("", STR, "")


def with_env(known: Known, env: Mapping[str, Known]) -> Known:
    """Kubernetes' own `$(NAME)` in words and in the environment, put in where the name is a variable of the container."""
    if "$(" not in str(known.value):
        return known
    parts: list[str | Known] = []
    for piece in _pieces(known.value):
        parts += [Known(piece)] if isinstance(piece, Expr) else _with_env(piece, env)
    return compose(part for part in parts if part != "")


def _with_env(text: str, env: Mapping[str, Known]) -> list[str | Known]:
    parts: list[str | Known] = []
    at = 0
    for match in _ENV.finditer(text):
        if match[1] or match[2] in env:
            parts += [text[at : match.start()], f"$({match[2]})" if match[1] else env[match[2]]]
            at = match.end()
    return [*parts, text[at:]]


def value_at(at: At, lookup: Lookup) -> Known:
    """A parameter's value: text, a list of texts, a map of texts, each with variables."""
    data = at.data
    if isinstance(data, Mapping):
        members = {str(key): value_at(At(at.document, f"{at.path}.{key}", item), lookup) for key, item in data.items()}
        fixed = {key: known.fixed for key, known in members.items()}
        whole = fixed if all(known.is_fixed for known in members.values()) else MISSING
        return Known({key: _text_value(known) for key, known in members.items()}, OBJECT, whole)
    if isinstance(data, list):
        return listed([At(at.document, f"{at.path}[{number}]", item) for number, item in enumerate(data)], lookup)
    return understood(at.text(), lookup)


def _text_value(known: Known) -> Value:
    return known.value if isinstance(known.value, str | Expr | Template) else to_text(known.value)


def spread(items: Iterable[At], lookup: Lookup) -> list[Known]:
    """The words of a list. An item that is nothing but an array stands for its elements: as many as they are, if that is known;
    otherwise it is the one item here whose type is a list, which whoever runs the words takes for as many."""
    found: list[Known] = []
    for known in understood_all(items, lookup):
        if known.type.name == "list" and known.is_fixed:
            found += [Known.plain(one) for one in known.fixed]
        elif known.type.name == "list" and isinstance(known.value, tuple):
            found += [Known(one) for one in known.value]
        else:
            found.append(known)
    return found


def understood_all(items: Iterable[At], lookup: Lookup) -> list[Known]:
    return [understood("" if item.data is None else item.text(), lookup) for item in items]


def listed(items: Iterable[At], lookup: Lookup) -> Known:
    """A list of texts as one value, arrays in it put in their place."""
    found = understood_all(items, lookup)
    if len(found) == 1 and found[0].type.name == "list":
        return found[0]
    fixed: Any = MISSING
    if all(known.is_fixed for known in found):
        fixed = tuple(one for known in found for one in (known.fixed if known.type.name == "list" else (known.fixed,)))
    if not any(known.type.name == "list" for known in found):
        return Known(tuple(known.value for known in found), STRINGS, fixed)
    node: Node | None = None
    for known in found:
        array = known.type.name == "list"
        part = node_of(known.value, known.type) if array else ListOf((node_of(known.value, known.type),))
        node = part if node is None else _behind(node, part)
    assert node is not None
    return Known(Expr.tree(node), STRINGS, fixed)


def _behind(left: Node, right: Node) -> Node:
    if isinstance(left, ListOf) and isinstance(right, ListOf):
        return ListOf((*left.items, *right.items))
    return Binary("+", left, right)


# -- expressions ------------------------------------------------------------------------------------------------------


def path_expr(*path: str) -> Expr:
    return Expr.tree(reference(*path))


def node_of(value: Value, kind: Type = STR) -> Node:
    """Any value as part of an expression, texts as texts."""
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


def expr(node: Node, at: At) -> Expr:
    """Raises DocumentError if the expression has become too long or too deep."""
    text = show(node)
    try:
        parse(text)
    except ExpressionError as error:
        raise at.error("P834", f"{at.path}: {error}", "make the condition shorter") from None
    return Expr(text)


# -- names ------------------------------------------------------------------------------------------------------------


def legal(name: str, taken: Iterable[str] = (), variable: bool = False) -> str:
    """A name that the model takes, like the one given, and not taken yet."""
    found = re.sub(r"[^A-Za-z0-9_-]+", "-", name)[:120]
    found = found.strip("-" if variable else "-_") or "unnamed"
    known = taken if isinstance(taken, set | dict) else set(taken)
    number, base = 2, found
    while found in known:
        found = f"{base}-{number}"
        number += 1
    return found


def declared_type(spec: At) -> Type:
    """The type of a declared parameter or result: said, or that of its default."""
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


def texts_in(data: Any) -> Iterator[str]:
    """Every text in a document."""
    rest = [data]
    while rest:
        one = rest.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, Mapping):
            rest += one.values()
        elif isinstance(one, list):
            rest += one


def frozen(value: Any) -> Any:
    """Lists inside the model are tuples."""
    if isinstance(value, Mapping):
        return {str(key): frozen(item) for key, item in value.items()}
    return tuple(map(frozen, value)) if isinstance(value, list | tuple) else value
