"""`when` of pipeline tasks -> conditions. Called by tekton_pipeline.

All entries must hold: {input, operator, values}, or {cel}.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.formats.lang.tekton_vars import Var, compile_cel
from penstock.formats.report import Report
from penstock.formats.tekton_scope import At, Lookup, expr, listed, node_of, understood
from penstock.graph.expr import Binary, Const, Expr, ExpressionError, Node, Unary, reference
from penstock.graph.satisfy import never
from penstock.graph.types import ANY

Choices = Callable[[Node], tuple[Any, ...]]
_OPEN = Binary("==", reference("run", "id"), Const(""))
"""Never true, and not known to be false before there is a run: a condition that cannot hold is a mistake in a workflow that
somebody writes, and nothing unusual in one that is read."""


def conditions(at: At, lookup: Lookup, report: Report) -> tuple[list[Node], str]:
    """One for each entry, and why the step cannot be run if one of them is not to be had."""
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


def _in(at: At, lookup: Lookup) -> Node:
    operator = at.word("operator")
    if operator not in ("in", "notin"):
        raise at.at("operator").wrong("in or notin")
    known = understood(at.word("input"), lookup)
    values = listed(at.list("values"), lookup)
    inside = Binary("in", node_of(known.value, known.type), node_of(values.value, values.type))
    return inside if operator == "in" else Unary("!", inside)


def _cel(at: At, lookup: Lookup, report: Report) -> Node | None:
    def resolve(var: Var) -> Node:
        known = lookup(var)
        if known is None:
            raise at.error("P832", f"{var.raw} stands for nothing here", "name a parameter or a result of a task")
        return node_of(known.value, known.type)

    text = at.word("cel")
    try:
        return compile_cel(text, resolve)
    except ExpressionError as error:
        if "there is no function" in str(error) or "there is no method" in str(error):
            report.lost(f"{at.path}.cel", f"{text}: {error}", "use input, operator and values", at.source)
            return None
        raise at.at("cel").error("P834", f"{text[:120]}: {error}", "correct the expression") from None


def together(nodes: list[Node], at: At, choices: Choices) -> Expr | None:
    """All of them as one condition."""
    if not nodes:
        return None
    node = nodes[0]
    for more in nodes[1:]:
        node = Binary("&&", node, more)
    if never(node, lambda _: ANY, choices):
        node = Binary("||", node, _OPEN)
    return expr(node, at)
