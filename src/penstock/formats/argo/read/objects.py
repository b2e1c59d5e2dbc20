"""Conditions and outputs of an Argo resource template -> expressions over `object`. Called by remote.

successCondition: status.phase == Succeeded, status.failed < 1     requirements in the form of label selectors; all must hold
jsonPath: '{.metadata.name}'                                       a path into the object
jqFilter: '.status.conditions[0].type'                             the same in jq; only paths are supported
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from penstock.expressions.parse import (
    Binary,
    Call,
    Const,
    ExpressionError,
    Index,
    ListOf,
    Member,
    Name,
    Node,
    is_identifier,
)

OBJECT: Final = Name("object")
_TOKEN: Final = re.compile(r"\s*(==|=|!=|<|>|!|\(|\)|,|[^\s=!<>(),]+)")
_STEP: Final = re.compile(r"\.?\[\s*(?:'([^']*)'|\"([^\"]*)\"|(\d{1,9}))\s*\]|\.([\w-]+)|\.\"([^\"]*)\"", re.A)
_NUMBER: Final = re.compile(r"[+-]?\d{1,18}(?:\.\d{1,18})?\Z", re.A)


def compile_selector(text: str) -> Node:
    """All requirements, joined by &&. Raises ExpressionError."""
    tokens = [(match[1], match.start(1)) for match in _TOKEN.finditer(text)]
    covered = "".join(token for token, _ in tokens)
    if covered != re.sub(r"\s+", "", text) or not tokens:
        raise ExpressionError("a condition is `path == value`, several are joined by commas", 0)
    found: Node | None = None
    for requirement in _split(tokens, len(text)):
        node = _requirement(requirement)
        found = node if found is None else Binary("&&", found, node)
    assert found is not None
    return found


Tokens = list[tuple[str, int]]


def _split(tokens: Tokens, end: int) -> Iterator[Tokens]:
    """At commas that are not in brackets."""
    one: Tokens = []
    depth = 0
    for token, at in tokens:
        depth += (token == "(") - (token == ")")
        if token == "," and depth == 0:
            yield one
            one = []
        else:
            one.append((token, at))
    if not one:
        raise ExpressionError("a condition is missing after the comma", end)
    yield one


def _requirement(tokens: Tokens) -> Node:
    words = [token for token, _ in tokens]
    at = tokens[0][1] if tokens else 0
    match words:
        case [key] if _is_word(key):
            return Binary("!=", _read(key), Const(None))
        case ["!", key] if _is_word(key):
            return Binary("==", _read(key), Const(None))
        case [key, ("=" | "==" | "!=") as op, value] if _is_word(key) and _is_word(value):
            return Binary("!=" if op == "!=" else "==", _text(key), Const(value))
        case [key, ("=" | "==" | "!=") as op] if _is_word(key):
            return Binary("!=" if op == "!=" else "==", _text(key), Const(""))
        case [key, ("<" | ">") as op, value] if _is_word(key) and _NUMBER.match(value):
            # `<` and `>` hold for numbers only; a missing field is no number.
            number = Call("double", (Call("text", (Call("default", (_path(key), Const("nan"))),)),))
            return Binary(op, number, Const(float(value)))
        case [key, ("in" | "notin") as op, "(", *values, ")"] if _is_word(key):
            listed = tuple(Const(value) for value in values if value != ",")
            inside = Binary("in", _text(key), ListOf(listed))
            return inside if op == "in" else Binary("==", inside, Const(False))
        case _:
            raise ExpressionError(f"{' '.join(words)[:80]!r} is not `path == value`, `path in (a, b)` or the like", at)


def _is_word(token: str) -> bool:
    return token not in ("=", "==", "!=", "<", ">", "!", "(", ")", ",", "in", "notin")


def _path(key: str) -> Node:
    node: Node = OBJECT
    for name in key.strip(".").split("."):
        if name.isdigit() and len(name) < 10:
            node = Index(node, Const(int(name)))
        else:
            node = Member(node, name) if is_identifier(name) else Index(node, Const(name))
    return node


def _read(key: str) -> Node:
    return Call("default", (_path(key), Const(None)))


def _text(key: str) -> Node:
    return Call("text", (Call("default", (_path(key), Const(""))),))


def compile_path(text: str) -> Node | None:
    """`{.metadata.name}`, `.status.conditions[0].type`: the path in the object. None if it is not a plain path."""
    inner = text.strip()
    if inner.startswith("{") and inner.endswith("}"):
        inner = inner[1:-1].strip()
    inner = inner.removeprefix("$")
    node: Node = OBJECT
    if inner == ".":
        return node
    at = 0
    while at < len(inner):
        match = _STEP.match(inner, at)
        if match is None:
            return None
        name = next((match[group] for group in (1, 2, 4, 5) if match[group] is not None), None)
        if name is None:
            node = Index(node, Const(int(match[3])))
        else:
            node = Member(node, name) if is_identifier(name) else Index(node, Const(name))
        at = match.end()
    return node if at else None


def json_path(text: str) -> Node:
    """A jsonPath that is not a plain path, left to the evaluator."""
    inner = text.strip()
    if inner.startswith("{") and inner.endswith("}"):
        inner = inner[1:-1].strip()
    return Call("jsonpath", (OBJECT, Const(inner if inner.startswith("$") else f"${inner}")))
