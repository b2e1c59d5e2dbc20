"""What a Python expression stands for while a @workflow function is compiled. Called by compiler and lower.

Static   known now: a constant, a module, a task
Sym      known when the workflow runs: an expression with a type
Seq      a list or tuple written out, some of whose elements may be Syms
Pairs    a dict written out
Text     an f-string with Syms in it
Unset    a name that only some branches assign
"""

from __future__ import annotations

import enum
import math
import pathlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.graph import types
from penstock.graph.expr import Binary, Call, Choice, Const, Expr, ListOf, MapOf, Node, Unary
from penstock.graph.model import Value
from penstock.graph.rewrite import as_node
from penstock.graph.template import Template
from penstock.graph.types import BOOL, STR, Type


class NoValue(ValueError):
    """The thing cannot be written into a workflow."""


@dataclass(frozen=True, slots=True)
class Static:
    value: Any


@dataclass(frozen=True, slots=True)
class Sym:
    node: Node
    type: Type


@dataclass(frozen=True, slots=True)
class Seq:
    items: tuple[Symbol, ...]
    is_tuple: bool = False


@dataclass(frozen=True, slots=True)
class Pairs:
    items: tuple[tuple[str, Symbol], ...]


@dataclass(frozen=True, slots=True)
class Text:
    parts: tuple[str | Sym, ...]


@dataclass(frozen=True, slots=True)
class Unset:
    name: str


Symbol = Static | Sym | Seq | Pairs | Text | Unset


def is_static(symbol: Symbol) -> bool:
    return isinstance(symbol, Static)


def plain(value: Any) -> Value:
    """A Python constant as a Value. Text is text here: `${{` has no meaning inside a @workflow function."""
    if isinstance(value, enum.Enum):
        return plain(value.value)
    if isinstance(value, float) and not math.isfinite(value):
        raise NoValue(str(value))
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, range):
        return Expr.tree(Call("range", tuple(Const(n) for n in (value.start, value.stop, value.step))))
    if isinstance(value, list | tuple):
        return (
            tuple(value)
            if len(value) > 1024 and all(type(v) in (int, float) for v in value)
            else tuple(map(plain, value))
        )
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, pathlib.PurePath):
        return str(value)
    raise NoValue(f"{type(value).__name__} {getattr(value, '__name__', '')}".strip())


def to_value(symbol: Symbol) -> Value:
    """What goes into an input of a step. Raises NoValue."""
    match symbol:
        case Static(value):
            return plain(value)
        case Sym(node, _):
            return Expr.tree(node)
        case Seq(items):
            return tuple(map(to_value, items))
        case Pairs(items):
            return {key: to_value(item) for key, item in items}
        case Text(parts):
            return Template(tuple(part if isinstance(part, str) else Expr.tree(_spelled(part)) for part in parts))
        case Unset(name):
            raise NoValue(name)


def _spelled(part: Sym) -> Node:
    """An f-string prints as Python does. Text and ints already do."""
    return part.node if part.type.name in ("int", "str") else Call("format", (part.node, Const("")))


def to_node(symbol: Symbol) -> Node:
    """The same as part of a larger expression."""
    match symbol:
        case Sym(node, _):
            return node
        case Seq(items):
            return ListOf(tuple(map(to_node, items)))
        case Pairs(items):
            return MapOf(tuple((Const(key), to_node(item)) for key, item in items))
        case Text(parts):
            nodes: list[Node] = [
                Const(part)
                if isinstance(part, str)
                else part.node
                if part.type.name == "str"
                else Call("format", (part.node, Const("")))
                for part in parts
            ]
            result = nodes[0]
            for node in nodes[1:]:
                result = Binary("+", result, node)
            return result
        case _:
            return as_node(to_value(symbol))


def type_of(symbol: Symbol) -> Type:
    match symbol:
        case Sym(_, type_):
            return type_
        case Text():
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


def truth(symbol: Symbol) -> bool | Node:
    """Python's bool(): now if it is known, else as a condition."""
    match symbol:
        case Static(value):
            return bool(value)
        case Seq(items) | Pairs(items):
            return bool(items)
        case Sym(Const(value), _):
            return bool(value)
        case Sym(node, type_):
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
        case Text():
            return Call("truthy", (to_node(symbol),))
        case Unset(name):
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


def both(left: bool | Node, right: bool | Node, op: str) -> bool | Node:
    """`left && right` or `left || right`, with what is known folded away."""
    decisive = op == "||"
    for one, other in ((left, right), (right, left)):
        if isinstance(one, bool):
            return one if one is decisive else other
    assert not isinstance(left, bool) and not isinstance(right, bool)
    return Binary(op, left, right)


def condition_symbol(condition: bool | Node) -> Symbol:
    return Static(condition) if isinstance(condition, bool) else Sym(condition, BOOL)


def choose(test: Node, yes: Symbol, no: Symbol) -> Symbol:
    """The value that two branches meet in."""
    if yes is no or (yes == no and type_of(yes) == type_of(no)):
        return yes
    if (
        isinstance(yes, Seq)
        and isinstance(no, Seq)
        and len(yes.items) == len(no.items)
        and yes.is_tuple
        and no.is_tuple
    ):
        return Seq(tuple(choose(test, a, b) for a, b in zip(yes.items, no.items, strict=True)), True)
    return Sym(Choice(test, to_node(yes), to_node(no)), types.join(type_of(yes), type_of(no)))
