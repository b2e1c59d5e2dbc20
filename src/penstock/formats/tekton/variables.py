"""`$(params.x)` in texts of Tekton documents, and the CEL of their `when`. Called by the Tekton reader for every text.

Tekton replaces known variables and keeps every other `$(…)`, so that the command substitution of a shell survives. There is no
escape: `$$(params.x)` is a dollar sign and a value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from penstock.expressions.parse import (
    Call,
    Const,
    ExpressionError,
    Name,
    Node,
    parse,
    rebuild,
    replace,
)
from penstock.formats.expression_trees import checked, joined
from penstock.formats.values import merge_texts

ROOTS = frozenset(
    "artifacts context credentials finally inputs outputs params resources results step steps tasks workspaces".split()
)
"""The roots of Tekton's variables. `tt` belongs to Triggers, which is not Tekton Pipelines."""
_VARIABLE = re.compile(
    r"""\$\(
    (?P<root>[a-z]+)
    (?P<rest>(?: \.[\w/-]+ | \[ (?: "[^"\]\n]+" | '[^'\]\n]+' ) \] )+)
    (?: \[ (?: (?P<index>\d{1,9}) | (?P<star>\*) ) \] )?
    \)""",
    re.X | re.A,
)
_PART = re.compile(r"""\.([\w/-]+)|\[["']([^\]]+)["']\]""", re.A)


@dataclass(frozen=True, slots=True)
class Var:
    """A variable in a text."""

    path: tuple[str, ...]
    """("tasks", "t", "results", "r"), ("params", "a.b"), ("context", "pipelineRun", "name")"""
    index: int | None = None
    """The index of a trailing `[0]`."""
    star: bool = False
    """A trailing `[*]`: all elements."""
    start: int = 0
    raw: str = ""
    """As written."""


def split_vars(text: str, known: Callable[[Var], bool] | None = None) -> list[str | Var]:
    """Texts and variables in order, no empty text. What has no root of a variable, or is not `known`, is text."""
    if "$(" not in text:
        return [text] if text else []
    parts = _split(text)
    if known is None:
        return list(parts)
    return merge_texts(part.raw if isinstance(part, Var) and not known(part) else part for part in parts)


@lru_cache(maxsize=1 << 14)
def _split(text: str) -> tuple[str | Var, ...]:
    parts: list[str | Var] = []
    at = 0
    for match in _VARIABLE.finditer(text):
        if match["root"] not in ROOTS:
            continue
        if at < match.start():
            parts.append(text[at : match.start()])
        names = tuple(dotted or quoted for dotted, quoted in _PART.findall(match["rest"]))
        index = int(match["index"]) if match["index"] else None
        parts.append(Var((match["root"], *names), index, bool(match["star"]), match.start(), match[0]))
        at = match.end()
    if at < len(text):
        parts.append(text[at:])
    return tuple(parts)


def compile_cel(text: str, resolve: Callable[[Var], Node]) -> Node:
    """The `cel` of a `when`: Tekton replaces variables in the text before it parses it as CEL.

    A variable inside quotes is part of that string; a variable as a whole operand is a number, a boolean or a word, depending on its
    text. Raises ExpressionError."""
    parts = split_vars(text)
    stem = _unused(text)
    values: dict[str, Node] = {}
    raws: dict[str, str] = {}
    written = ""
    places: list[tuple[int, int]] = []
    start = 0
    for part in parts:
        places.append((len(written), start))
        piece = part
        if isinstance(part, Var):
            piece = f"{stem}{len(values)}_"
            values[piece], raws[piece] = resolve(part), part.raw
        written += str(piece)
        start += len(part.raw if isinstance(part, Var) else part)
    try:
        tree = parse(written)
    except ExpressionError as error:
        begin, origin = max((place for place in places if place[0] <= error.position), default=(0, 0))
        message = str(error)
        for name, raw in raws.items():
            message = message.replace(name, raw)
        raise type(error)(message, min(origin + error.position - begin, len(text))) from None
    if not values:
        return tree
    names = re.compile(f"({stem}[0-9]+_)")
    filled = _strings(tree, names, values)
    return checked(replace(filled, {(name,): Call("atom", (value,)) for name, value in values.items()}))


def _unused(text: str) -> str:
    stem = "var_"
    while stem in text:
        stem += "v_"
    return stem


def _strings(node: Node, names: re.Pattern[str], values: dict[str, Node]) -> Node:
    """The same tree, with variables in string constants replaced."""
    match node:
        case Const(str(text)) if names.search(text):
            return joined([values.get(piece, Const(piece)) for piece in names.split(text) if piece])
        case Const() | Name():
            return node
    return rebuild(node, lambda part: _strings(part, names, values))


def texts_in(data: Any) -> Iterator[str]:
    """Every text in a document."""
    rest = [data]
    while rest:
        one = rest.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, Mapping):
            rest += one.values()
        elif isinstance(one, list):
            rest += one
