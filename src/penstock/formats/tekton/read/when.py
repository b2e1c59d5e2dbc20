"""`when` of pipeline tasks -> conditions. Called by pipeline.

All entries must hold: {input, operator, values}, or {cel}.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.expressions.parse import (
    Binary,
    Const,
    Expr,
    ExpressionError,
    Index,
    Node,
    Unary,
    UnknownFunction,
    reference,
)
from penstock.expressions.satisfy import never
from penstock.expressions.types import ANY
from penstock.formats.report import Report
from penstock.formats.tekton.outcomes import with_elements
from penstock.formats.tekton.read.scope import KnownText, Located, Lookup, expr, listed, node_of, understood
from penstock.formats.tekton.variables import Var, compile_cel

Choices = Callable[[Node], tuple[Any, ...]]
_OPEN = Binary("==", reference("run", "id"), Const(""))
"""A condition that never holds, in a form that graph.check does not report: in a foreign document it is no mistake."""


def conditions(at: Located, lookup: Lookup, report: Report) -> tuple[list[Node], str]:
    """One condition for each entry, and the reason if one of them cannot be translated. Several that read elements of arrays are one: an
    element that does not exist fails the run, whatever the other entries say."""
    elements: list[Index] = []

    def indexed(var: Var) -> KnownText | None:
        known = lookup(var)
        if var.index is not None and known is None and var.path[0] == "params":
            raise at.error("P832", f"{var.raw}: the array has no such element", "read one that it has")
        if known is not None and isinstance(known.value, Expr) and isinstance(known.value.node, Index):
            elements.extend([known.value.node] if var.index is not None and not known.is_fixed else [])
        return known

    found, lost = _entries(at, indexed, report)
    return (found if len(found) < 2 or not elements else [with_elements(found, elements)]), lost


def _entries(at: Located, lookup: Lookup, report: Report) -> tuple[list[Node], str]:
    found: list[Node] = []
    lost = ""
    for entry in at.maps("when"):
        if entry.given("cel"):
            node = _cel(entry, lookup, report)
            lost = lost if node is not None else f"its condition cannot be decided here: {entry.word('cel')[:80]}"
            found += [] if node is None else [node]
        else:
            found.append(_in(entry, lookup))
    return found, lost


def _in(at: Located, lookup: Lookup) -> Node:
    operator = at.word("operator")
    if operator not in ("in", "notin"):
        raise at.at("operator").wrong("in or notin")
    known = understood(at.word("input"), lookup)
    values = listed(at.list("values"), lookup)
    inside = Binary("in", node_of(known.value, known.type), node_of(values.value, values.type))
    return inside if operator == "in" else Unary("!", inside)


def _cel(at: Located, lookup: Lookup, report: Report) -> Node | None:
    def resolve(var: Var) -> Node:
        known = lookup(var)
        if known is None:
            raise at.error("P832", f"{var.raw} has no value here", "name a parameter or a result of a task")
        return node_of(known.value, known.type)

    text = at.word("cel")
    try:
        return compile_cel(text, resolve)
    except ExpressionError as error:
        if isinstance(error, UnknownFunction):
            report.lost(f"{at.path}.cel", f"{text}: {error}", "use input, operator and values", at.source)
            return None
        raise at.at("cel").error("P834", f"{text[:120]}: {error}", "correct the expression") from None


def together(nodes: list[Node], at: Located, choices: Choices) -> Expr | None:
    """All of them as one condition."""
    if not nodes:
        return None
    node = nodes[0]
    for more in nodes[1:]:
        node = Binary("&&", node, more)
    if never(node, lambda _: ANY, choices):
        node = Binary("||", node, _OPEN)
    return expr(node, at)
