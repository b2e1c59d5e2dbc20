"""Conditions on a Kubernetes object, and paths into it, as Argo's users write them -> expressions over `object`. Called by the reader of Argo's
resource templates, and by whoever reads the condition of a resource step.

status.phase == Succeeded, status.failed < 1        requirements in the form of label selectors; all must hold
{.status.conditions[?(@.type=="Ready")].status} == True    the same of a JSONPath: one of what it finds is so
{.metadata.name}, .status.conditions[0].type        paths: JSONPath, and jq as far as it is a path
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from penstock.expressions.parse import (
    Binary,
    Call,
    Const,
    Expr,
    ExpressionError,
    Index,
    ListOf,
    Macro,
    Member,
    Name,
    Node,
    Unary,
    is_identifier,
    parse,
    path_of,
    references,
    replace,
)

OBJECT: Final = Name("object")
PARTS: Final = frozenset({"object", "status", "spec", "metadata"})
"""What conditions read: the object, and its parts."""
JOINED: Final = {"success_condition": "&&", "failure_condition": "||"}
"""What a comma means, as in Argo: success if all hold, failure if any holds."""
_TOKEN: Final = re.compile(r"\s*(\{[^{}]*\}|==|=|!=|<|>|!|\(|\)|,|[^\s=!<>(),]+)")
_STEP: Final = re.compile(r"\.?\[\s*(?:'([^']*)'|\"([^\"]*)\"|(\d{1,9}))\s*\]|\.([\w-]+)|\.\"([^\"]*)\"", re.A)
_NUMBER: Final = re.compile(r"[+-]?\d{1,18}(?:\.\d{1,18})?\Z", re.A)


def condition_of(text: str, joined_by: str = "&&") -> Expr:
    """The condition of a resource step: an expression over `status`, `spec`, `metadata` and `object`, or Argo's form of it, in which words need no
    quotes. Raises ExpressionError."""
    try:
        found = parse(text)
    except ExpressionError as error:
        if text.rstrip().endswith("="):  # Argo would compare with nothing
            raise
        try:
            return Expr.tree(compile_selector(text, joined_by))
        except ExpressionError:
            raise error from None
    bare: dict[tuple[str, ...], Node] = {
        path: Const(path[0]) for path in references(text) if len(path) == 1 and path[0] not in PARTS
    }
    if bare:  # status.phase == Succeeded
        with suppress(ExpressionError):
            return Expr.tree(compile_selector(text, joined_by))
        return Expr.tree(replace(found, bare))
    return Expr.tree(found)


def compile_selector(text: str, joined_by: str = "&&") -> Node:
    """All requirements, joined. Raises ExpressionError."""
    tokens = [(match[1], match.start(1)) for match in _TOKEN.finditer(text)]
    covered = "".join(token for token, _ in tokens)
    if covered != re.sub(r"\s+", "", text) or not tokens:
        raise ExpressionError("a condition is `path == value`, several are joined by commas", 0)
    found: Node | None = None
    for requirement in _split(tokens, len(text)):
        node = _requirement(requirement)
        found = node if found is None else Binary(joined_by, found, node)
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
    if words and words[0].startswith("{"):
        return _found_by(words, at)
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


def _found_by(words: list[str], at: int) -> Node:
    """The same of what a JSONPath finds, which may be several: one of them is so; with != and notin, none of them is."""
    plain = compile_path(words[0])
    if plain is not None:
        path = path_of(plain)
        if path is not None and not any("." in name for name in path):
            return _requirement([(".".join(path[1:]), at), *((word, at) for word in words[1:])])
    found = Call("default", (json_path(words[0]), ListOf(())))
    every = Call("flatten", (ListOf((found,)),))
    match words[1:]:
        case []:
            return Binary(">", Call("size", (every,)), Const(0))
        case [("=" | "==" | "!=") as op, value] if _is_word(value):
            test: Node = Binary("==", Call("text", (Name("one"),)), Const(value))
            negative = op == "!="
        case [("<" | ">") as op, value] if _NUMBER.match(value):
            test = Binary(op, Call("double", (Call("text", (Name("one"),)),)), Const(float(value)))
            negative = False
        case [("in" | "notin") as op, "(", *values, ")"]:
            test = Binary("in", Call("text", (Name("one"),)), ListOf(tuple(Const(one) for one in values if one != ",")))
            negative = op == "notin"
        case _:
            raise ExpressionError(f"{' '.join(words)[:80]!r} is not `{{.path}} == value`", at)
    held = Macro("exists", every, "one", test)
    return Unary("!", held) if negative else held


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
