"""`matrix` of a pipeline task -> a for-each. Called by tekton_pipeline.

Every parameter is an axis; the first one runs fastest, as in Tekton, so that aggregated results come in the same order. With
`include` the combinations are written out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod
from typing import Any

from penstock.formats.report import Report
from penstock.formats.tekton_scope import At, Known, Lookup, legal, path_expr, understood, value_at
from penstock.graph.expr import Binary, Call, Const, Expr, Node
from penstock.graph.model import ForEach, Value

MOST = 256
"""Tekton takes no more, unless its defaults are changed."""
MOST_WRITTEN = 10_000


@dataclass(slots=True)
class Matrix:
    each: ForEach
    given: dict[str, Known]
    """Parameters of the task -> the loop variable."""
    length: Known
    may_be_empty: bool
    lost: str = ""


@dataclass(slots=True)
class _Axes:
    found: dict[str, Known] = field(default_factory=dict)

    @property
    def written_out(self) -> bool:
        return all(isinstance(known.value, tuple) for known in self.found.values())


Default = Callable[[str], Value]
"""What a parameter of the task is if a combination does not name it."""


def read_matrix(at: At, lookup: Lookup, default: Default, report: Report) -> Matrix | None:
    """None if there is nothing in it."""
    axes = _Axes()
    for param in at.maps("params"):
        known = value_at(param.at("value"), lookup)
        if known.type.name not in ("list", "any"):
            raise param.at("value").wrong("a list")
        axes.found[param.name()] = known
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


def _given(names: dict[str, str]) -> dict[str, Known]:
    return {name: Known(path_expr("item", variable)) for name, variable in names.items()}


def _length(axes: _Axes) -> Known:
    if axes.written_out:
        return Known.plain(str(prod(len(known.value) for known in axes.found.values())))
    node: Node | None = None
    for known in axes.found.values():
        size: Node = Const(len(known.value)) if isinstance(known.value, tuple) else Call("size", (known.value.node,))
        node = size if node is None else Binary("*", node, size)
    assert node is not None
    return Known(Expr.tree(Call("string", (node,))))


def _tell_of_size(at: At, length: Known, report: Report) -> None:
    if isinstance(length.value, str) and int(length.value) > MOST:
        report.changed(
            at.path, f"{length.value} combinations; Tekton takes {MOST} unless told otherwise", "", at.source
        )


# -- include ----------------------------------------------------------------------------------------------------------

_Combination = dict[str, Known]


def _with_include(at: At, axes: _Axes, included: list[_Combination], default: Default, report: Report) -> Matrix:
    lost = ""
    if not axes.written_out:
        settled = {name: known for name, known in axes.found.items() if isinstance(known.fixed, tuple | list)}
        if len(settled) == len(axes.found):
            axes = _Axes({name: Known.plain(known.fixed) for name, known in settled.items()})
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
    length = Known.plain(str(len(combinations)))
    _tell_of_size(at, length, report)
    return Matrix(ForEach(axes=(axis,)), _given(names), length, not combinations, lost)


def _fan_out(axes: _Axes) -> list[_Combination]:
    found: list[_Combination] = [{}] if axes.found else []
    for name, known in axes.found.items():
        found = [
            {**one, name: Known(value, fixed=value)} for value in known.value for one in found
        ]  # the first parameter runs fastest
    return found


def _same(one: Known, other: Known) -> bool:
    return bool((one.fixed, one.value)[not one.is_fixed] == (other.fixed, other.value)[not other.is_fixed])
