"""`$(params.x)` in texts of Tekton documents, and the CEL of their `when`. Called by the Tekton reader for every text.

Tekton replaces the variables it knows and leaves every other `$(…)` alone, so that a shell's own command substitution survives.
It knows no escape: `$$(params.x)` is a dollar sign and a value.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from penstock.formats.lang.build import checked, joined
from penstock.graph.expr import (
    Call,
    Const,
    ExpressionError,
    Name,
    Node,
    parse,
    rebuild,
    replace,
)

ROOTS = frozenset(
    "artifacts context credentials finally inputs outputs params resources results step steps tasks workspaces".split()
)
"""What a variable of Tekton may begin with. `tt` belongs to Triggers, which is not Tekton Pipelines."""
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
    path: tuple[str, ...]
    """("tasks", "t", "results", "r"), ("params", "a.b"), ("context", "pipelineRun", "name")"""
    index: int | None = None
    """Of `[0]` at the end."""
    star: bool = False
    """`[*]` at the end: all of it."""
    start: int = 0
    raw: str = ""
    """As written."""


def split_vars(text: str, known: Callable[[Var], bool] | None = None) -> list[str | Var]:
    """Texts and variables in turn, no text empty. What does not begin as a variable does, or is not `known`, is text."""
    if "$(" not in text:
        return [text] if text else []
    parts = _split(text)
    if known is None:
        return list(parts)
    merged: list[str | Var] = []
    for part in parts:
        if isinstance(part, Var) and not known(part):
            part = part.raw
        if isinstance(part, str) and merged and isinstance(merged[-1], str):
            merged[-1] += part
        else:
            merged.append(part)
    return merged


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
    """The `cel` of a `when`: variables are put into the text first, and only then is it read as CEL.

    A variable inside quotes is a piece of that string; one that stands by itself is a number, a truth value or a word,
    whatever its text looks like. Raises ExpressionError."""
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
        raise ExpressionError(message, min(origin + error.position - begin, len(text))) from None
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
    """The same tree, its string constants taken apart where a variable stands in them."""
    match node:
        case Const(str(text)) if names.search(text):
            return joined([values.get(piece, Const(piece)) for piece in names.split(text) if piece])
        case Const() | Name():
            return node
    return rebuild(node, lambda part: _strings(part, names, values))
