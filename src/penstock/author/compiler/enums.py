"""Members of an Enum in a workflow function. Called by subscripts, conditions and axes.

Between steps a member is plain data: its value, or its name (see artifacts.plain). So `.value` and `.name` are looked up in a table
that is written into the expression, and a comparison with something else is refused: Python's answer is always no, and that of the
expression might be yes.
"""

from __future__ import annotations

import enum
import typing
from typing import Any

from penstock.artifacts.plain import by_value, member_value
from penstock.author.compiler.symbols import Dynamic, Static, Symbol
from penstock.expressions.parse import Binary, Choice, Const, Node
from penstock.expressions.types import of_value


def enum_of(symbol: Symbol) -> type[enum.Enum] | None:
    """The Enum that the symbol is declared to be a member of, or is one of."""
    declared = type(symbol.value) if isinstance(symbol, Static) else getattr(symbol, "declared", None)
    return declared if isinstance(declared, type) and issubclass(declared, enum.Enum) else None


def item_hint(symbol: Symbol) -> Any:
    """The annotation of what a loop over the symbol goes over; None if it is not known."""
    if isinstance(symbol, Static) and isinstance(symbol.value, list | tuple):
        kinds = {type(item) for item in symbol.value}
        return kinds.pop() if len(kinds) == 1 else None
    hint = getattr(symbol, "declared", None)
    args = typing.get_args(hint)
    return args[0] if typing.get_origin(hint) is list and len(args) == 1 else None


def as_list(symbol: Symbol) -> Symbol:
    """`for color in Color` goes over its members."""
    if isinstance(symbol, Static) and isinstance(symbol.value, type) and issubclass(symbol.value, enum.Enum):
        return Static(list(symbol.value))
    return symbol


def part(symbol: Dynamic, name: str) -> Symbol | None:
    """`color.value` and `color.name`; None if it is neither."""
    cls = enum_of(symbol)
    if cls is None or name not in ("name", "value") or issubclass(cls, enum.Flag):
        return None
    members = list(cls)
    if by_value(cls) is (name == "value"):
        return Dynamic(symbol.node, of_value(member_value(members[0])))
    found = [(member_value(member), getattr(member, name)) for member in members]
    if not all(isinstance(value, bool | int | float | str) for _, value in found):
        return None
    node: Node = Const(found[-1][1])
    for data, value in reversed(found[:-1]):
        node = Choice(Binary("==", symbol.node, Const(data)), Const(value), node)
    return Dynamic(node, of_value(found[-1][1]))


def never_equal(left: Symbol, right: Symbol) -> str | None:
    """What to write instead, if one is a member of an Enum and the other a constant that is none; None if they may be equal."""
    for member, other in ((left, right), (right, left)):
        cls = enum_of(member)
        if cls is None or issubclass(cls, int | str | float | enum.Flag) or not isinstance(other, Static):
            continue
        if other.value is None or isinstance(other.value, cls):
            return None
        same = next((one for one in cls if one.value == other.value or one.name == other.value), None)
        return "write .value or .name" if same is None else f"write {cls.__name__}.{same.name}"
    return None
