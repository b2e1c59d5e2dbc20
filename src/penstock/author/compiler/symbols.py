"""What a Python expression stands for while a @workflow function is compiled. Used by all parts of the compiler.

Static    known when the workflow is compiled: a constant, a module, a task
Dynamic   known when the workflow runs: an expression with a type
Seq       a list or tuple written out; its items are symbols
Pairs     a dict written out; its values are symbols
FString   an f-string that contains Dynamic values
Unbound   a name that not every branch assigns
"""

from __future__ import annotations

import enum
import math
import pathlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.artifacts.plain import member_value, plain
from penstock.author.values import holds_secret, is_secret, to_text
from penstock.expressions import types
from penstock.expressions.parse import Binary, Call, Choice, Const, Expr, Index, ListOf, MapOf, Node, Unary
from penstock.expressions.template import Template
from penstock.expressions.types import BOOL, STR, Type
from penstock.graph.model import Value
from penstock.graph.rewrite import as_node


class NoValue(ValueError):
    """A symbol has no form in a workflow document. The message names what it is."""


@dataclass(frozen=True, slots=True)
class Static:
    """A value that is known when the workflow is compiled."""

    value: Any


@dataclass(frozen=True, slots=True)
class Dynamic:
    """A value of the run: the expression that gives it."""

    node: Node
    type: Type
    declared: Any = field(default=None, compare=False)
    """The annotation, where there is one: types of the graph do not tell the members of an Enum from their values."""


@dataclass(frozen=True, slots=True)
class Seq:
    """A list or tuple of which each item is known by itself."""

    items: tuple[Symbol, ...]
    is_tuple: bool = False


@dataclass(frozen=True, slots=True)
class Pairs:
    """A dict of which each value is known by itself."""

    items: tuple[tuple[str, Symbol], ...]


@dataclass(frozen=True, slots=True)
class FString:
    """Text with values of the run in it."""

    parts: tuple[str | Dynamic, ...]


@dataclass(frozen=True, slots=True)
class Unbound:
    """What may have no value here. `name` says what it is."""

    name: str


Symbol = Static | Dynamic | Seq | Pairs | FString | Unbound
Condition = bool | Node
"""A test: its answer if that is known when the workflow is compiled, else the expression to evaluate."""


def constant_value(value: Any) -> Value:
    """A Python constant as a Value. Raises NoValue. Text stays text: `${{` has no meaning inside a @workflow function, but for a text
    that was made with a secret, `f"Bearer {secret('TOKEN')}"` outside of it."""
    if isinstance(value, enum.Enum):
        return constant_value(member_value(value))
    if isinstance(value, float) and not math.isfinite(value):
        raise NoValue(str(value))
    if isinstance(value, str) and holds_secret(value):
        return to_text(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, range):
        return Expr.tree(Call("range", tuple(Const(n) for n in (value.start, value.stop, value.step))))
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        if len(value) > 1024 and all(type(item) in (int, float) for item in value):
            return tuple(value)
        return tuple(map(constant_value, value))
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: constant_value(item) for key, item in value.items()}
    if is_secret(value):
        return Expr.tree(value.node)
    if not isinstance(value, type):
        made = plain(
            value
        )  # dates, decimals, paths, sets, classes with fields: a task that declares them gets them back
        if type(made) is not type(value) or (isinstance(made, dict) and all(isinstance(key, str) for key in made)):
            return constant_value(made)
    raise NoValue(f"{type(value).__name__} {getattr(value, '__name__', '')}".strip())


def to_value(symbol: Symbol) -> Value:
    """The symbol as the input of a step. Raises NoValue."""
    match symbol:
        case Static(value):
            return constant_value(value)
        case Dynamic(node, _):
            return Expr.tree(node)
        case Seq(items):
            return tuple(map(to_value, items))
        case Pairs(items):
            return {key: to_value(item) for key, item in items}
        case FString(parts):
            return Template(tuple(part if isinstance(part, str) else Expr.tree(_formatted(part)) for part in parts))
        case Unbound(name):
            raise NoValue(name)


def _formatted(part: Dynamic) -> Node:
    """A template prints text and ints as Python's f-strings do; other types need format()."""
    return part.node if part.type.name in ("int", "str") else text_of(part.node)


def text_of(node: Node) -> Node:
    """`str(value)`, as Python prints it."""
    return Call("format", (node, Const("")))


def to_node(symbol: Symbol) -> Node:
    """The symbol as part of a larger expression. Raises NoValue."""
    match symbol:
        case Dynamic(node, _):
            return node
        case Static(value) if not _is_comparable(value):
            raise NoValue(f"{type(value).__name__} {value!r:.40}")
        case Seq(items):
            return ListOf(tuple(map(to_node, items)))
        case Pairs(items):
            return MapOf(tuple((Const(key), to_node(item)) for key, item in items))
        case FString(parts):
            nodes = [_text_node(part) for part in parts]
            result = nodes[0]
            for node in nodes[1:]:
                result = Binary("+", result, node)
            return result
        case _:
            return as_node(to_value(symbol))


def _is_comparable(value: Any) -> bool:
    """Has its plain form the order and the equality that it has in Python? Dates and decimals are text between steps."""
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return all(map(_is_comparable, value))
    if isinstance(value, Mapping):
        return all(map(_is_comparable, value.values()))
    return value is None or isinstance(value, bool | int | float | str | range | enum.Enum | pathlib.PurePath)


def _text_node(part: str | Dynamic) -> Node:
    if isinstance(part, str):
        return Const(part)
    return part.node if part.type.name == "str" else text_of(part.node)


def type_of(symbol: Symbol) -> Type:
    match symbol:
        case Dynamic(_, type_):
            return type_
        case FString():
            return STR
        case Seq(items, True):
            return Type("tuple", tuple(map(type_of, items))) if items else types.list_of(types.ANY)
        case Seq(items):
            return types.list_of(types.join(*map(type_of, items)))
        case Pairs(items):
            return Type("dict", (types.join(*(type_of(item) for _, item in items)),))
        case Static(value):
            return types.of_value(value)
        case _:
            return types.ANY


def python(name: str, type_: Type, *nodes: Node) -> Dynamic:
    """What Python's own operator, builtin or method gives; see expressions.python."""
    return Dynamic(Call(f"py_{name}", nodes), type_)


def item_type(type_: Type) -> Type:
    """Of what a loop over a value goes over: keys of a dict, letters of a text."""
    return STR if type_.name in ("dict", "str") else type_.item


def as_seq(symbol: Symbol) -> Seq | None:
    """The symbol as a list or tuple written out, if it is one."""
    if isinstance(symbol, Seq):
        return symbol
    if isinstance(symbol, Static) and isinstance(symbol.value, list | tuple):
        return Seq(tuple(map(Static, symbol.value)), isinstance(symbol.value, tuple))
    return None


def element(container: Node, type_: Type, index: int) -> Dynamic:
    """`container[index]`, where the index is known and the container has type `type_`."""
    item = type_.item
    if type_.name == "tuple" and -len(type_.args) <= index < len(type_.args):
        item = type_.args[index]
        index %= len(type_.args)
    if index < 0:
        return Dynamic(Index(container, Binary("-", Call("size", (container,)), Const(-index))), item)
    return Dynamic(Index(container, Const(index)), item)


def truth(symbol: Symbol) -> Condition:
    """Python's bool(). Raises NoValue."""
    match symbol:
        case Static(value):
            return bool(value)
        case Seq(items) | Pairs(items):
            return bool(items)
        case Dynamic(Const(value), _):
            return bool(value)
        case Dynamic(node, type_):
            match type_.name:
                case "bool":
                    return node
                case "int":
                    return Binary("!=", node, Const(0))
                case "str" | "list" | "tuple" | "dict":
                    return Binary(">", Call("size", (node,)), Const(0))
                case "null":
                    return False
                case _:
                    return Call("truthy", (node,))
        case FString():
            return Call("truthy", (to_node(symbol),))
        case Unbound(name):
            raise NoValue(name)


def negate(node: Node) -> Node:
    match node:
        case Unary("!", inner):
            return inner
        case Binary("==", left, right):
            return Binary("!=", left, right)
        case Binary("!=", left, right):
            return Binary("==", left, right)
        case _:
            return Unary("!", node)


def combine(left: Condition, right: Condition, op: str) -> Condition:
    """`left && right` or `left || right`. A side that is known drops out or decides."""
    decisive = op == "||"
    for one, other in ((left, right), (right, left)):
        if isinstance(one, bool):
            return one if one is decisive else other
    assert not isinstance(left, bool) and not isinstance(right, bool)
    return Binary(op, left, right)


def condition_symbol(condition: Condition) -> Symbol:
    return Static(condition) if isinstance(condition, bool) else Dynamic(condition, BOOL)


def chosen_from(node: Node) -> list[Node]:
    """What `a ? b : c` may be: b and c, and so on."""
    return [*chosen_from(node.yes), *chosen_from(node.no)] if isinstance(node, Choice) else [node]


def choose(test: Node, yes: Symbol, no: Symbol) -> Symbol:
    """The value after two branches. Raises NoValue."""
    if yes is no or (yes == no and type_of(yes) == type_of(no)):
        return yes
    match yes, no:
        case Seq(a, True), Seq(b, True) if len(a) == len(b):
            return Seq(tuple(choose(test, one, other) for one, other in zip(a, b, strict=True)), True)
    return Dynamic(Choice(test, to_node(yes), to_node(no)), types.join(type_of(yes), type_of(no)))
