"""`matrix` of a pipeline task -> a for-each. Called by pipeline.

Every parameter is an axis; the first varies fastest, as in Tekton, so that aggregated results have the same order. With `include` the
combinations are literal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod
from typing import Any

from penstock.expressions.parse import Binary, Call, Choice, Const, Expr, Node, references
from penstock.formats.report import Report
from penstock.formats.tekton.read.scope import KnownText, Located, Lookup, legal, path_expr, understood, value_at
from penstock.graph.model import ForEach, Value

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
