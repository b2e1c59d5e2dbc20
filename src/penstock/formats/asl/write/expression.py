"""Penstock's expressions as JSONata. Called by the other modules for every value of a workflow.

JSONata has traps, and what is written steps around them: a list in a list constructor is joined to it, a result of one element is that
element, a field of a list is that field of all its members. So a list is made by appending, and a field is looked up. A value without a
form is refused with its text (Unwritten): what is written means the same here and there, or it is not written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from penstock.expressions import types
from penstock.expressions.evaluate import evaluate
from penstock.expressions.infer import TypeMismatch, infer
from penstock.expressions.parse import (
    Binary,
    Call,
    Choice,
    Const,
    Expr,
    Index,
    ListOf,
    Macro,
    MapOf,
    Member,
    Name,
    Node,
    Unary,
    children,
    path_of,
    references,
    show,
)
from penstock.expressions.plain import EvaluationError, as_lists
from penstock.expressions.template import Template
from penstock.expressions.types import ANY, Type
from penstock.graph.model import Value, expressions

Lookup = Callable[[tuple[str, ...]], tuple[Type, int] | None]
Find = Callable[[tuple[str, ...]], tuple[str, int] | None]
"""A path -> JSONata for its longest known prefix, and how many names that prefix has. None: it cannot be read there."""

_WORD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_KEYWORDS: Final = frozenset({"and", "or", "in", "true", "false", "null", "function"})
_EXACT: Final = 2**53
_BIGGEST_LITERAL: Final = 20_000
_COMPARED: Final = {"==": "=", "!=": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_NUMBERS: Final = ("int", "float")
_SIMPLE: Final = {"upper": "$uppercase", "lower": "$lowercase", "abs": "$abs"}
_PYTHON: Final = {"py_add": "+", "py_sub": "-", "py_mul": "*"}


class Unwritten(ValueError):
    """A value has no form in JSONata; the message says why."""


def literal(value: Any) -> str:
    """A constant in JSONata."""
    text = json.dumps(as_lists(value), ensure_ascii=False, allow_nan=False)
    if len(text) > _BIGGEST_LITERAL:
        raise Unwritten(f"a constant of {len(text):,} characters inside an expression")
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > _EXACT:
        raise Unwritten(f"{value} is more than a JSON number of a state machine holds exactly")
    return text


def data(value: Any) -> Any:
    """A constant in a document: text that would be taken for an expression becomes the expression of that text."""
    if isinstance(value, str):
        return marked(literal(value)) if value.startswith("{%") and value.endswith("%}") else value
    if isinstance(value, Mapping):
        return {key: data(one) for key, one in value.items()}
    if isinstance(value, list | tuple | range):
        return [data(one) for one in value]
    if isinstance(value, float) and (value != value or abs(value) == float("inf")):
        raise Unwritten(f"{value} has no place in JSON")
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > _EXACT:
        raise Unwritten(f"{value} is more than a JSON number of a state machine holds exactly")
    return value


def marked(code: str) -> str:
    return "{% " + code + " %}"


def field(of: str, name: str) -> str:
    """`of.name`, where `of` is a variable or a field."""
    if _WORD.match(name) and name not in _KEYWORDS:
        return f"{of}.{name}"
    return f"$lookup({of}, {literal(name)})"


def alone(code: str) -> str:
    """The list of one value, whatever the value is."""
    return f'($one := {code}; $type($one) = "array" ? [[$one]] : [$one])'


def whole(value: Value, find: Find, lookup: Lookup) -> Any:
    """A value as a field of a document. Raises Unwritten."""
    if isinstance(value, Expr):
        fixed = _constant(value.node)
        return data(fixed[0]) if fixed else _composed(value.node, QueryWriter(find, lookup))
    if isinstance(value, Template):
        return marked(QueryWriter(find, lookup).template(value))
    if isinstance(value, Mapping) and any(True for _ in expressions(value)):
        return {key: whole(one, find, lookup) for key, one in value.items()}
    if isinstance(value, tuple | list) and any(True for _ in expressions(value)):
        return [whole(one, find, lookup) for one in value]
    return data(value)


def _composed(node: Node, writer: QueryWriter) -> Any:
    """Lists and maps as lists and maps of the document, which nothing joins or unwraps."""
    match node:
        case ListOf(items):
            return [_composed(item, writer) for item in items]
        case MapOf(pairs) if all(isinstance(key, Const) and isinstance(key.value, str) for key, _ in pairs):
            return {key.value: _composed(one, writer) for key, one in pairs if isinstance(key, Const)}
        case Const(value):
            return data(value)
        case _:
            return marked(writer.code(node))


def _constant(node: Node) -> tuple[Any] | None:
    """The value of an expression that reads nothing."""
    if references(show(node)):
        return None
    try:
        return (as_lists(evaluate(node, {})),)
    except EvaluationError:
        return None


class QueryWriter:
    """One expression. `bound`: the variables of macros."""

    def __init__(self, find: Find, lookup: Lookup, bound: Mapping[str, str] | None = None) -> None:
        self.find = find
        self.lookup = lookup
        self.bound = bound or {}

    def kind(self, node: Node) -> str:
        """The name of its type."""
        if self.bound:
            return "any" if any(True for _ in _names(node, self.bound)) else self._inferred(node)
        return self._inferred(node)

    def _inferred(self, node: Node) -> str:
        try:
            return infer(node, self.lookup).name
        except (TypeMismatch, KeyError):
            return "any"

    def template(self, value: Template) -> str:
        parts = [literal(part) if isinstance(part, str) else self._text(part.node) for part in value.parts]
        return " & ".join(parts) if len(parts) > 1 else f"$string({parts[0]})"

    def _text(self, node: Node) -> str:
        kind = self.kind(node)
        if kind == "float":
            raise Unwritten(f"{show(node)} is a number whose text differs: 1.0 is 1 there")
        if kind in ("list", "tuple", "dict", "object"):
            raise Unwritten(f"{show(node)} is no text and no number, and its text differs from one JSONata to another")
        code = self.code(node)
        return code if self.kind(node) == "str" else f"$string({code})"

    # -- nodes --------------------------------------------------------------------------------------------------------

    def code(self, node: Node) -> str:
        """JSONata that stands where one term may stand. Raises Unwritten."""
        path = path_of(node)
        if path is not None and path[0] not in self.bound:
            return self._path(path)
        match node:
            case Const(value):
                return literal(value)
            case Name(id) if id in self.bound:
                return self.bound[id]
            case Member(of, name):
                return field(f"({self.code(of)})", name)
            case Index(of, index):
                return self._index(of, index)
            case Unary("!", of):
                return f"$not({self.code(of)})"
            case Unary(_, of):
                return f"(-{self.code(of)})"
            case Binary(op, left, right):
                return self._binary(op, left, right)
            case Choice(test, yes, no):
                return f"({self.code(test)} ? {self.code(yes)} : {self.code(no)})"
            case ListOf(items):
                return self._list([self.code(item) for item in items])
            case MapOf(pairs):
                shown = ", ".join(f"{self.code(key)}: {self.code(one)}" for key, one in pairs)
                return "{" + shown + "}"
            case Macro(name, of, var, body):
                return self._macro(name, of, var, body)
            case Call(name, args, of):
                return self._call(node, name, args, of)
        raise Unwritten(f"{show(node)} has no form in JSONata")

    def _path(self, path: tuple[str, ...]) -> str:
        found = self.find(path)
        if found is None:
            raise Unwritten(f"{'.'.join(path)} cannot be read there")
        code, used = found
        for name in path[used:]:
            code = field(code, name)
        return code

    def _list(self, items: list[str]) -> str:
        if not items:
            return "[]"
        made = alone(items[0])
        for item in items[1:]:
            made = f"$append({made}, {alone(item)})"
        return made

    def _index(self, of: Node, index: Node) -> str:
        held, at = self.kind(of), self.kind(index)
        if at == "str" or held == "dict":
            return f"$lookup({self.code(of)}, {self.code(index)})"
        if at != "int" or (isinstance(index, Const) and isinstance(index.value, int) and index.value < 0):
            raise Unwritten(f"{show(index)} is not known to be a number of a list or a key of a map")
        return f"(({self.code(of)})[{self.code(index)}])"

    def _binary(self, op: str, left: Node, right: Node) -> str:
        first, second = self.code(left), self.code(right)
        if op in ("&&", "||"):
            return f"({first} {'and' if op == '&&' else 'or'} {second})"
        if op in _COMPARED:
            return f"({first} {_COMPARED[op]} {second})"
        if op == "in":
            return self._within(left, right)
        kinds = (self.kind(left), self.kind(right))
        if op == "+":
            return self._plus(kinds, first, second)
        if op in "-*":
            return f"({first} {op} {second})"
        if kinds == ("int", "int"):  # cut towards zero
            cut = f"($cut := {first} / {second}; $cut < 0 ? $ceil($cut) : $floor($cut))"
            return cut if op == "/" else f"({first} % {second})"
        if kinds == ("float", "float") and op == "/":
            return f"({first} / {second})"
        raise Unwritten(f"whether {show(Binary(op, left, right))} divides whole numbers is not known before it runs")

    def _within(self, left: Node, right: Node) -> str:
        held = self.kind(right)
        if held == "dict":
            return f"$exists($lookup({self.code(right)}, {self.code(left)}))"
        if held in ("list", "tuple"):
            return f"({self.code(left)} in {self.code(right)})"
        raise Unwritten(f"whether {show(right)} is a list or a map is not known before it runs")

    def _plus(self, kinds: tuple[str, str], first: str, second: str) -> str:
        if "str" in kinds:
            return f"({first} & {second})"
        if any(kind in _NUMBERS for kind in kinds):
            return f"({first} + {second})"
        if any(kind in ("list", "tuple") for kind in kinds):
            return f"$append({first}, {second})"
        return (
            f"($a := {first}; $b := {second}; "
            '$type($a) = "string" ? $a & $b : $type($a) = "array" ? $append($a, $b) : $a + $b)'
        )

    def _macro(self, name: str, of: Node, var: str, body: Node) -> str:
        if self.kind(of) not in ("list", "tuple"):
            raise Unwritten(f"{show(of)} is not known to be a list")
        own = f"$each{len(self.bound) or ''}"
        inner = QueryWriter(self.find, self.lookup, {**self.bound, var: own})
        held, tested = self.code(of), inner.code(body)
        kept = {
            "map": f"$append($all, {alone(tested)})",
            "filter": f"{tested} ? $append($all, {alone(own)}) : $all",
            "exists": f"$all or {tested}",
            "all": f"$all and {tested}",
            "exists_one": f"{tested} ? $all + 1 : $all",
        }[name]
        start = {"map": "[]", "filter": "[]", "exists": "false", "all": "true", "exists_one": "0"}[name]
        made = f"$reduce({held}, function($all, {own}) {{ {kept} }}, {start})"
        return f"({made} = 1)" if name == "exists_one" else made

    def _call(self, node: Node, name: str, args: tuple[Node, ...], of: Node | None) -> str:
        if of is not None:
            return self._method(node, name, args, of)
        first = args[0] if args else Const(None)
        match name:
            case "size":
                return self._size(first)
            case "string" | "text":
                return self._text(first)
            case "has" if isinstance(first, Member):
                return f"$exists($lookup({self.code(first.of)}, {literal(first.name)}))"
            case "default":
                return f"($wanted := {self.code(first)}; $exists($wanted) and $wanted != null ? $wanted : {self.code(args[1])})"
            case "min" | "max" if len(args) == 2 and {self.kind(one) for one in args} <= {*_NUMBERS}:
                return f"${name}([{self.code(first)}, {self.code(args[1])}])"
            case "range" if len(args) <= 2:
                low, high = (Const(0), first) if len(args) == 1 else args
                return f"[{self.code(low)}..{self.code(high)} - 1]"
            case "join" if len(args) == 2:
                return f"$join({self.code(first)}, {self.code(args[1])})"
            case _ if name in _SIMPLE:
                return f"{_SIMPLE[name]}({self.code(first)})"
            case _ if name in _PYTHON:
                return self._binary(_PYTHON[name], first, args[1])
            case "py_compare" if isinstance(args[1], Const) and args[1].value in _COMPARED:
                return self._binary(str(args[1].value), first, args[2])
            case "py_in":
                return self._within(first, args[1])
        raise Unwritten(f"{name}() has no form in JSONata that means the same")

    def _method(self, node: Node, name: str, args: tuple[Node, ...], of: Node) -> str:
        held = self.code(of)
        match name:
            case "size":
                return self._size(of)
            case "contains":
                return f"$contains({held}, {self.code(args[0])})"
            case "startsWith":
                return f"($of := {held}; $by := {self.code(args[0])}; $substring($of, 0, $length($by)) = $by)"
            case "endsWith":
                by = self.code(args[0])
                return (
                    f"($of := {held}; $by := {by}; $from := $length($of) - $length($by); "
                    "$from >= 0 and $substring($of, $from) = $by)"
                )
        raise Unwritten(f"{show(node)} has no form in JSONata")

    def _size(self, of: Node) -> str:
        held, code = self.kind(of), self.code(of)
        counted = {"str": "$length({})", "list": "$count({})", "tuple": "$count({})", "dict": "$count($keys({}))"}
        if held in counted:
            return counted[held].format(code)
        every = '($of := {}; $type($of) = "string" ? $length($of) : $type($of) = "object" ? $count($keys($of)) : $count($of))'
        return every.format(code)


def _names(node: Node, bound: Mapping[str, str]) -> list[str]:
    """The variables of macros that a node reads."""
    found = [node.id] if isinstance(node, Name) and node.id in bound else []
    for child in children(node):
        found += _names(child, bound)
    return found


def type_of(value: Value, lookup: Lookup) -> Type:
    """The type of a value, as far as it is known."""
    if isinstance(value, Expr):
        try:
            return infer(value.node, lookup)
        except (TypeMismatch, KeyError):
            return ANY
    if isinstance(value, Template):
        return types.STR
    return ANY if any(True for _ in expressions(value)) else types.of_value(value)
