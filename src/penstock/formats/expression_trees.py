"""Small expression trees that translations need. Called by the readers of Argo and Tekton.

Argo and Tekton know text only. A variable is taken to be a string; the caller wraps anything else (such as the item of a loop) in
`text()`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from penstock.expressions.parse import (
    Binary,
    Call,
    Choice,
    Const,
    ExpressionError,
    ListOf,
    Macro,
    Node,
    Unary,
    parse,
    show,
)

_BOOLEANS = frozenset({"==", "!=", "<", "<=", ">", ">=", "in", "&&", "||"})
_TESTS = frozenset("all bool condition contains endsWith exists exists_one has matches startsWith truthy".split())
LONG = 60
"""From so many operators in a row on, they are nested in pairs: the depth of a tree is limited."""


def joined(pieces: Sequence[Node]) -> Node:
    """The pieces as one text. A single piece stays as it is."""
    if len(pieces) == 1:
        return pieces[0]
    return chain("+", [piece if _is_text(piece) else Call("text", (piece,)) for piece in pieces] or [Const("")])


def _is_text(node: Node) -> bool:
    match node:
        case Const(str()) | Call("text" | "string" | "sprintf" | "to_json", _, None):
            return True
    return False


def chain(op: str, nodes: Sequence[Node]) -> Node:
    """a op b op c, with the least depth."""
    if len(nodes) <= LONG:
        result = nodes[0]
        for node in nodes[1:]:
            result = Binary(op, result, node)
        return result
    middle = len(nodes) // 2
    return Binary(op, chain(op, nodes[:middle]), chain(op, nodes[middle:]))


def one_of(node: Node, words: Iterable[str]) -> Node:
    """`node == "a"`, or `node in ["a", "b"]`."""
    known = list(words)
    if len(known) == 1:
        return Binary("==", node, Const(known[0]))
    return Binary("in", node, ListOf(tuple(map(Const, known))))


def is_condition(node: Node) -> bool:
    """Can it only be true or false?"""
    match node:
        case Const(bool()) | Unary("!", _):
            return True
        case Binary(op, _, _):
            return op in _BOOLEANS
        case Call(name, _, _) | Macro(name, _, _, _):
            return name in _TESTS or name in ("sprig_has", "sprig_hasKey", "sprig_contains", "sprig_empty")
        case Choice(_, yes, no):
            return is_condition(yes) and is_condition(no)
    return False


_OUTCOMES = {
    "Succeeded": ("succeeded",),
    "Failed": ("failed", "cancelled"),
    "Error": ("errored",),
    "Skipped": ("skipped",),
    "Omitted": ("omitted",),
}


def compared(op: str, left: Node, right: Node) -> Node:
    """`left == right`. An Argo phase that is compared with a name of a phase becomes a comparison of outcomes."""
    match left, right:
        case Const(), Call("phase", _, _):
            return compared(op, right, left)
        case Call("phase", (outcome,), None), Const(str(word)) if word in _OUTCOMES and op in ("==", "!="):
            test = one_of(outcome, _OUTCOMES[word])
            if op == "==":
                return test
            return (
                Binary("!=", test.left, test.right)
                if isinstance(test, Binary) and test.op == "=="
                else Unary("!", test)
            )
    return Binary(op, left, right)


def checked(node: Node) -> Node:
    """The tree after a round trip through text. Raises ExpressionError if it is too deep or too long."""
    try:
        return parse(show(node))
    except RecursionError:
        raise ExpressionError("nested too deep", 0) from None
