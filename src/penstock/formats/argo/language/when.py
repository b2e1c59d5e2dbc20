"""Argo's `when` -> a condition of Penstock. Called by the Argo reader.

Argo replaces the tags and passes the text to govaluate. If every tag is a whole operand or inside quotes, the meaning does not depend on
the values, and the condition is translated: `{{steps.flip.outputs.result}} == heads` is
`steps.flip.outputs.result == "heads"`. If it does depend on them (a tag that may hold a whole condition, arithmetic, a list from a
parameter), the text is composed and parsed when the step is due: `condition("…" + text(x) + "…")`.

It is more lenient in two ways: a value with a space or dash, which govaluate cannot parse, is a text; and a number compared by `=~` is a
text too.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from penstock.expressions.evaluate import EvaluationError, evaluate
from penstock.expressions.go.govaluate import (
    ConditionError,
    Infix,
    Operand,
    Parenthesized,
    Prefix,
    Tree,
    atom,
    parse,
    time_of,
)
from penstock.expressions.parse import Binary, Call, Const, ExpressionError, ListOf, Node, Unary
from penstock.formats.argo.language.tags import Tag, split_tags
from penstock.formats.expression_trees import chain, checked, compared, is_condition, joined

_COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")


def compile_when(text: str, resolve: Callable[[Tag], Node]) -> Node:
    """Raises ExpressionError, with a position in `text`. `resolve` gives the value of a tag, a string (see build)."""
    if not text:
        return Const(True)
    parts = split_tags(text)
    nodes = {number: resolve(part) for number, part in enumerate(parts) if isinstance(part, Tag)}
    if not nodes:
        return _constant(text)
    if len(nodes) == 1 and sum(len(part.strip()) for part in parts if isinstance(part, str)) == 0:
        (node,) = nodes.values()
        return checked(node if is_condition(node) else Call("condition", (_as_text(node),)))
    written = _Written.of(text, parts, nodes)
    try:
        return checked(_Translation(written.tags).condition(parse(written.text)))
    except _NotPlain:
        pass
    except ConditionError as error:
        # A text that does not parse with placeholders may parse with values: `{{x}} {{operator}} {{y}}`.
        if not written.beside_a_tag(error.position, error.symbol):
            raise ExpressionError(written.named(str(error)), written.position(error.position)) from None
    return checked(
        Call(
            "condition",
            (joined([nodes[at] if isinstance(part, Tag) else Const(part) for at, part in enumerate(parts)]),),
        )
    )


def _constant(text: str) -> Node:
    try:
        return Const(bool(evaluate(Call("condition", (Const(text),)), {})))
    except ConditionError as error:
        raise ExpressionError(str(error), error.position) from None
    except EvaluationError as error:
        raise ExpressionError(str(error), 0) from None


def _as_text(node: Node) -> Node:
    return Call("text", (node,)) if is_condition(node) else node


@dataclass(slots=True)
class _Written:
    """The text with a placeholder for each tag."""

    text: str
    tags: dict[str, Node]
    places: list[tuple[int, int]]
    """Where a part begins in `text`, and where it began."""
    names: dict[str, str]

    @staticmethod
    def of(original: str, parts: list[str | Tag], nodes: dict[int, Node]) -> _Written:
        stem = "tag"
        while stem in original:
            stem += "x"
        written, at, start = "", 0, 0
        found = _Written("", {}, [], {})
        for number, part in enumerate(parts):
            found.places.append((len(written), start))
            if isinstance(part, Tag):
                word = f"{stem}{number}q"
                found.tags[word], found.names[word] = nodes[number], part.raw
                written += word
                start += len(part.raw)
            else:
                written += part
                start += len(part)
            at = len(written)
        found.places.append((at, start))
        found.text = written
        return found

    def beside_a_tag(self, at: int, symbol: str) -> bool:
        """Does the token here, or the one before it, have a tag in it? A symbol must touch one."""
        if symbol:
            return any(
                self.text[:at].endswith(word) or self.text.startswith(word, at + len(symbol)) for word in self.tags
            )
        around = re.findall(r"[^\s()]+", self.text[:at])[-1:] + re.findall(r"[^\s()]+", self.text[at:])[:1]
        return any(word in token for token in around for word in self.tags)

    def position(self, at: int) -> int:
        begin, origin = max(place for place in self.places if place[0] <= at)
        return origin + at - begin

    def named(self, message: str) -> str:
        for word, raw in self.names.items():
            message = message.replace(word, raw)
        return message


class _NotPlain(Exception):
    """The meaning depends on the values."""


@dataclass(slots=True)
class _Side:
    """One side of a comparison: a tag as a whole operand, a text, a number or a boolean."""

    node: Node
    bare: bool = False
    """A tag as a whole operand: its type follows from its text."""


class _Translation:
    def __init__(self, tags: dict[str, Node]) -> None:
        self.tags = tags
        self.words = re.compile(f"({'|'.join(map(re.escape, tags))})")

    def condition(self, tree: Tree) -> Node:
        match tree:
            case Parenthesized(of):
                return self.condition(of)
            case Prefix("!", of):
                return Unary("!", self.condition(of))
            case Infix("&&" | "||" as op, _, _):
                return chain(op, [self.condition(part) for part in _row(tree, op)])
            case Infix("in", left, right):
                return self.member(left, right)
            case Infix("=~" | "!~" as op, left, right):
                found = Call("matches", (self.text(left), self.text(right)))
                return found if op == "=~" else Unary("!", found)
            case Infix(op, left, right) if op in _COMPARISONS:
                return self.comparison(op, self.side(left), self.side(right))
            case Operand(bool(value)):
                return Const(value)
            case Operand(str(word), False) if word in self.tags and is_condition(self.tags[word]):
                return self.tags[word]
        raise _NotPlain

    def side(self, tree: Tree) -> _Side:
        while isinstance(tree, Parenthesized):
            tree = tree.of
        match tree:
            case Operand(str(word), False) if word in self.tags:
                return _Side(self.tags[word], bare=True)
            case Operand(str(word), quoted) if self.words.search(word):
                if not quoted:
                    raise _NotPlain
                return _Side(joined([self.tags.get(piece, Const(piece)) for piece in self.words.split(word) if piece]))
            case Operand(str(word), _):
                return _Side(Const(word))
            case Operand(value, False):
                return _Side(Const(value))
            case Prefix("-", Operand(float(value))):
                return _Side(Const(-value))
        raise _NotPlain

    def comparison(self, op: str, left: _Side, right: _Side) -> Node:
        if not left.bare and right.bare:
            flipped = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(op, op)
            return self.comparison(flipped, right, left)
        if left.bare and is_condition(left.node):
            raise _NotPlain
        match left.bare, right.bare, right.node:
            case True, True, _:
                return Binary(op, _atom(left.node), _atom(right.node))
            case True, False, Const(bool(value)) if op in ("==", "!="):
                return compared(op, left.node, Const("true" if value else "false"))
            case True, False, Const(str(word)) if op in ("==", "!=") and atom(word) == word:
                return compared(op, left.node, right.node)
            case True, False, Const(value) if not isinstance(value, bool):
                return Binary(op, _atom(left.node), right.node)
            case False, False, _ if _is_text(left.node) and _is_text(right.node):
                return compared(op, left.node, right.node)
        raise _NotPlain

    def text(self, tree: Tree) -> Node:
        side = self.side(tree)
        if isinstance(side.node, Const) and not isinstance(side.node.value, str):
            raise _NotPlain
        return side.node

    def member(self, left: Tree, right: Tree) -> Node:
        side = self.side(left)
        items = _row(right.of, ",") if isinstance(right, Parenthesized) else []
        if len(items) < 2:
            raise _NotPlain
        values = [self.side(item).node for item in items]
        if not all(isinstance(value, Const) for value in values):
            raise _NotPlain
        plain = all(
            isinstance(value, Const) and isinstance(value.value, str) and atom(value.value) == value.value
            for value in values
        )
        if not side.bare and not _is_text(side.node):
            raise _NotPlain
        return Binary("in", side.node if plain or not side.bare else _atom(side.node), ListOf(tuple(values)))


def _row(tree: Tree, op: str) -> list[Tree]:
    """a op b op c, without recursion: conditions are long rather than deep."""
    found: list[Tree] = []
    while isinstance(tree, Infix) and tree.op == op:
        found.append(tree.right)
        tree = tree.left
    return [tree, *reversed(found)]


def _is_text(node: Node) -> bool:
    """Not a number, a boolean, or a text that govaluate takes for a date."""
    return not isinstance(node, Const) or (isinstance(node.value, str) and time_of(node.value) is None)


def _atom(node: Node) -> Node:
    return Call("atom", (node,))
