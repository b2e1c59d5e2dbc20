"""`$(tasks.x.status)`, `$(tasks.x.reason)`, `$(tasks.status)` and `$(tasks.x.matrix.r.length)` as expressions. Called by tekton_pipeline,
and by tekton_write to know them again.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.graph.expr import Binary, Call, Choice, Const, Expr, ListOf, Macro, Name, Node, reference, show

_MANY = 300
"""Up to so many tasks are looked at one by one; an expression has its limits."""
_FAILED = ("failed", "errored")


def _is(node: Node, outcomes: Sequence[str]) -> Node:
    return Binary("in", node, ListOf(tuple(map(Const, outcomes))))


def _outcome(step: str) -> Node:
    return reference("steps", step, "outcome")


def how_many(results: Node) -> str:
    """Results of a matrix that there are: a combination may leave its own out."""
    there = Macro("filter", results, "one", Binary("!=", Name("one"), Const(None)))
    return show(Call("string", (Call("size", (there,)),)))


def status(step: str) -> Expr:
    """Succeeded, Failed, or None if it was skipped or never began."""
    return Expr.tree(_choose(step, "Failed", "None"))


def reason(step: str, tolerated: bool) -> Expr:
    """As far as the outcome tells: a timeout is a failure here."""
    return Expr.tree(_choose(step, "FailureIgnored" if tolerated else "Failed", ""))


def _choose(step: str, failed: str, else_: str) -> Node:
    rest = Choice(_is(_outcome(step), _FAILED), Const(failed), Const(else_))
    return Choice(Binary("==", _outcome(step), Const("succeeded")), Const("Succeeded"), rest)


def aggregate(steps: Sequence[str]) -> Expr:
    """Of all tasks: Failed if one failed, Completed if one was skipped, Succeeded if all succeeded, None otherwise."""
    if len(steps) > _MANY:
        good = Binary("==", reference("workflow", "outcome"), Const("succeeded"))
        return Expr.tree(Choice(good, Const("Completed"), Const("Failed")))
    listed = ListOf(tuple(map(_outcome, steps)))

    def has(outcomes: Sequence[str]) -> Node:
        return Macro("exists", listed, "one", _is(Name("one"), outcomes))

    whole = Macro("all", listed, "one", Binary("==", Name("one"), Const("succeeded")))
    rest = Choice(whole, Const("Succeeded"), Const("None"))
    return Expr.tree(
        Choice(has(_FAILED), Const("Failed"), Choice(has(("skipped", "omitted")), Const("Completed"), rest))
    )
