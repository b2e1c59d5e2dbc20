"""`matrix` of a pipeline task -> a for-each. Called by pipeline; task_scope fills in what only the task knows.

Every parameter is an axis; the first varies fastest, as in Tekton, so that aggregated results have the same order. With `include` the
combinations are literal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

from penstock.expressions.parse import Binary, Call, Choice, Const, Expr, Node, reference, references
from penstock.formats.report import Report
from penstock.formats.tekton.read.scope import (
    KnownText,
    Located,
    Lookup,
    legal,
    node_of,
    path_expr,
    refilled,
    understood,
    value_at,
)
from penstock.formats.tekton.variables import Var, split_vars
from penstock.graph.model import ForEach, Value, expressions

MOST = 256
"""Tekton's default limit."""
MOST_WRITTEN = 10_000


@dataclass(slots=True)
class Matrix:
    each: ForEach
    given: dict[str, KnownText]
    """Parameters of the task -> the loop variable."""
    length: KnownText
    may_be_empty: bool
    lost: str = ""

    def refill(self, name: str, lookup: Lookup) -> KnownText:
        """A parameter whose values may have variables of the task in them: Tekton replaces these after the parameters."""
        (variable,) = (path[1] for one in expressions(self.given[name].value) for path in references(one.text))
        here: dict[str, KnownText] = {}

        def now(var: Var) -> KnownText | None:
            found = lookup(var)
            if found is None or not _of_one_task(found.value):
                return found
            here[var.raw] = found
            return None

        axes = []
        for axis in self.each.axes:
            value = axis.get(variable)
            if isinstance(value, Expr):
                parts = [part for part in split_vars(value.text) if isinstance(part, Var)]
                here |= {part.raw: found for part in parts if (found := lookup(part)) is not None}
            elif value is not None:
                axis = {**axis, variable: refilled(KnownText(value), now).value}
            axes.append(axis)
        self.each = replace(self.each, axes=tuple(axes))
        node = reference("item", variable)
        for raw, found in here.items():
            node = Call("replace", (node, Const(raw), node_of(found.value, found.type)))
        return KnownText(Expr.tree(node))

    # -- the number of a combination ----------------------------------------------------------------------------------

    @property
    def suffix(self) -> KnownText:
        """What Tekton appends to the names of the TaskRuns: their number, if there are several. Needs `numbered`."""
        known = 1
        total: Node | None = None
        number: Node | None = None
        for axis, index in zip(self.each.axes, self._indexes(), strict=True):
            size = _size(axis)
            here = reference("item", index)
            many = Const(size) if isinstance(size, int) else size
            number = here if number is None else Binary("+", Binary("*", number, many), here)
            if isinstance(size, int):
                known *= size
            else:
                total = size if total is None else Binary("*", total, size)
        if number is None or (total is None and known < 2):
            return KnownText.plain("")
        said = Binary("+", Const("-"), Call("string", (number,)))
        if total is None or known > 1:
            return KnownText(Expr.tree(said))
        return KnownText(Expr.tree(Choice(Binary("==", total, Const(1)), Const(""), said)))

    def numbered(self) -> ForEach:
        """With the place of each value in its axis."""
        axes = []
        for axis, index in zip(self.each.axes, self._indexes(), strict=True):
            size = _size(axis)
            places = tuple(range(size)) if isinstance(size, int) else Expr.tree(Call("range", (size,)))
            axes.append({**axis, index: places})
        return replace(self.each, axes=tuple(axes))

    def is_number(self, path: tuple[str, ...]) -> bool:
        return path[0] == "item" and path[1] in self._indexes()

    def _indexes(self) -> list[str]:
        taken = {variable for axis in self.each.axes for variable in axis}
        found: list[str] = []
        for axis in self.each.axes:
            found.append(legal(f"{next(iter(axis))}-number", {*taken, *found}, variable=True))
        return found


def _size(axis: Mapping[str, Value]) -> int | Node:
    value = next(iter(axis.values()))
    return Call("size", (value.node,)) if isinstance(value, Expr) else len(value)


def _of_one_task(value: Value) -> bool:
    """Does it depend on the combination or the attempt?"""
    paths = (path for one in expressions(value) for path in references(one.text))
    return any(path[0] in ("attempt", "inputs", "item") for path in paths)


@dataclass(slots=True)
class _Axes:
    found: dict[str, KnownText] = field(default_factory=dict)
    written: dict[str, int] = field(default_factory=dict)
    """How many items the document has, before variables are filled in."""

    @property
    def written_out(self) -> bool:
        return all(isinstance(known.value, tuple) for known in self.found.values())


Default = Callable[[str], Value]
"""The value of a parameter that a combination does not name."""


def read_matrix(at: Located, lookup: Lookup, default: Default, report: Report) -> Matrix | None:
    """None if it is empty."""
    lookup = _but_of_one_task(lookup)
    axes = _Axes()
    for param in at.maps("params"):
        known = value_at(param.at("value"), lookup)
        if known.type.name not in ("list", "any"):
            raise param.at("value").wrong("a list")
        axes.found[param.name()] = known
        axes.written[param.name()] = len(param.at("value").data) if isinstance(param.at("value").data, list) else 1
    included = [
        {param.name(): understood(param.word("value"), lookup) for param in entry.maps("params")}
        for entry in at.maps("include")
    ]
    if not axes.found and not included:
        return None
    if included:
        return _with_include(at, axes, included, default, report)
    names = _variables(axes.found)
    each = ForEach(axes=tuple({names[name]: known.value} for name, known in reversed(axes.found.items())))
    length = _length(axes)
    _tell_of_size(at, length, report)
    empty = not all(isinstance(known.value, tuple) and known.value for known in axes.found.values())
    return Matrix(each, _given(names), length, empty)


def _but_of_one_task(lookup: Lookup) -> Lookup:
    """The number of the try is filled in where the task reads it."""

    def found(var: Var) -> KnownText | None:
        known = lookup(var)
        return None if known is not None and _of_one_task(known.value) else known

    return found


def _variables(names: dict[str, Any]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in names:
        found[name] = legal(name, found.values(), variable=True)
    return found


def _given(names: dict[str, str]) -> dict[str, KnownText]:
    return {name: KnownText(path_expr("item", variable)) for name, variable in names.items()}


def _length(axes: _Axes) -> KnownText:
    """The number of combinations as Tekton counts them for `matrix.length`: before anything has run. What a task gives counts as one, an empty
    list too, so that reading the length waits for nothing."""
    known = 1
    node: Node | None = None
    for name, axis in axes.found.items():
        if isinstance(axis.value, tuple):
            known *= len(axis.value) or 1
        elif any(path[0] == "steps" for path in references(axis.value.text)):
            known *= axes.written[name] or 1
        else:
            size: Node = Call("size", (axis.value.node,))
            size = Choice(Binary(">", size, Const(0)), size, Const(1))
            node = size if node is None else Binary("*", node, size)
    if node is None:
        return KnownText.plain(str(known))
    return KnownText(Expr.tree(Call("string", (node if known == 1 else Binary("*", Const(known), node),))))


def _tell_of_size(at: Located, length: KnownText, report: Report) -> None:
    if isinstance(length.value, str) and int(length.value) > MOST:
        report.changed(
            at.path, f"{length.value} combinations; Tekton takes {MOST} unless told otherwise", "", at.source
        )


# -- include ----------------------------------------------------------------------------------------------------------

_Combination = dict[str, KnownText]


def _with_include(at: Located, axes: _Axes, included: list[_Combination], default: Default, report: Report) -> Matrix:
    lost = ""
    if not axes.written_out:
        settled = {name: known for name, known in axes.found.items() if isinstance(known.fixed, tuple | list)}
        if len(settled) == len(axes.found):
            axes = _Axes({name: KnownText.plain(known.fixed) for name, known in settled.items()})
        else:
            lost = "its matrix has both an include and arrays that are known only when it runs"
            report.lost(f"{at.path}.include", lost, "write the arrays out", at.source)
            axes = _Axes({})
    if prod(len(known.value) for known in axes.found.values()) > MOST_WRITTEN:
        raise at.error("P835", f"the matrix has more than {MOST_WRITTEN} combinations", "split it up")
    combinations = _fan_out(axes)
    for combination in combinations:
        for extra in included:
            if all(_same(combination[name], known) for name, known in extra.items() if name in combination):
                combination.update(extra)
    if not axes.found:
        combinations = included
    for extra in included if axes.found else ():
        met = any(_same(one[name], known) for one in combinations for name, known in extra.items() if name in one)
        if extra and not met:
            combinations.append(dict(extra))
    names = _variables({name: None for one in combinations for name in one})
    axis: dict[str, Value] = {
        variable: tuple(one[name].value if name in one else default(name) for one in combinations)
        for name, variable in names.items()
    }
    length = KnownText.plain(str(len(combinations)))
    _tell_of_size(at, length, report)
    return Matrix(ForEach(axes=(axis,)), _given(names), length, not combinations, lost)


def _fan_out(axes: _Axes) -> list[_Combination]:
    found: list[_Combination] = [{}] if axes.found else []
    for name, known in axes.found.items():
        found = [
            {**one, name: KnownText(value, fixed=value)} for value in known.value for one in found
        ]  # the first parameter varies fastest
    return found


def _same(one: KnownText, other: KnownText) -> bool:
    return bool((one.fixed, one.value)[not one.is_fixed] == (other.fixed, other.value)[not other.is_fixed])
