"""`$(tasks.x.status)`, `$(tasks.x.reason)`, `$(tasks.status)` and `$(tasks.x.matrix.r.length)` as expressions. Called by read.pipeline,
and by write.names to recognise them.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.expressions.parse import (
    Binary,
    Call,
    Choice,
    Const,
    Expr,
    Index,
    ListOf,
    Macro,
    Name,
    Node,
    reference,
    show,
)

_MANY = 300
"""Up to so many tasks are tested one by one: expressions have a size limit."""
_FAILED = ("failed", "errored")


def _is(node: Node, outcomes: Sequence[str]) -> Node:
    return Binary("in", node, ListOf(tuple(map(Const, outcomes))))


def _outcome(step: str) -> Node:
    return reference("steps", step, "outcome")


def how_many(results: Node) -> str:
    """The number of results of a matrix: a combination may have none."""
    there = Macro("filter", results, "one", Binary("!=", Name("one"), Const(None)))
    return show(Call("string", (Call("size", (there,)),)))


def status(step: str) -> Expr:
    """Succeeded, Failed, or None if it was skipped or never started."""
    return Expr.tree(_choose(step, Choice(_is(_outcome(step), _FAILED), Const("Failed"), Const("None"))))


def reason(step: str, tolerated: bool, nested: bool = False) -> Expr:
    """The reason, from the outcome: a timeout is a failure here."""
    failed = "FailureIgnored" if tolerated else "Failed" if nested else "StepFailed"
    errored = "FailureIgnored" if tolerated else "Failed"
    rest = Choice(Binary("==", _outcome(step), Const("errored")), Const(errored), Const(""))
    return Expr.tree(_choose(step, Choice(Binary("==", _outcome(step), Const("failed")), Const(failed), rest)))


def _choose(step: str, rest: Node) -> Node:
    return Choice(Binary("==", _outcome(step), Const("succeeded")), Const("Succeeded"), rest)


def aggregate(steps: Sequence[str]) -> Expr:
    """The status of all tasks: Failed if one failed, Completed if one was skipped, Succeeded if all succeeded, None otherwise."""
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


def with_elements(conditions: Sequence[Node], elements: Sequence[Index]) -> Node:
    """All conditions, if these elements exist; otherwise there is no value. `&&` alone would let one that is false decide."""
    whole = conditions[0]
    for more in conditions[1:]:
        whole = Binary("&&", whole, more)
    for element in elements:
        whole = Choice(_exists(element), whole, Binary("==", element, Const("")))
    return whole


def without_elements(node: Node) -> Node:
    """The conditions alone."""
    while isinstance(node, Choice):
        match node:
            case Choice(test, whole, Binary("==", Index() as element, Const(""))) if test == _exists(element):
                node = whole
            case _:
                return node
    return node


def _exists(element: Index) -> Node:
    return Binary(">", Call("size", (element.of,)), element.index)
