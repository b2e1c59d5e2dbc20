"""`{{a.b}}` and `{{=expression}}` in texts of Argo documents. Called by the Argo reader for every text, and by when and translate.

Argo replaces tags in the text of a whole template and keeps unknown tags, so that Go templates and Jinja in a script survive: see the
predicate `known`. One difference is intended: `}}` inside quotes or braces does not end an expression. Argo would end it there and then
refuse it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from penstock.expressions.parse import ExpressionError
from penstock.formats.values import merge_texts

ROOTS = frozenset(
    "cronworkflow duration exitCode inputs item lastRetry node outputs pod resourcesDuration retries status steps tasks"
    " workflow".split()
)
"""The roots of Argo's variables."""
_ONE = re.compile(r"\{\{([\w.-]+)\}\}\Z", re.A)
_BRACES = re.compile(r"\{\{|\}\}")
_PART = re.compile(r"""\[\s*(?:'([^']*)'|"([^"]*)"|(\d+))\s*\]|([^\s.\[\]'"{}]+)""")
_WHOLE_NAMES = (("workflow", "labels"), ("workflow", "annotations"))
"""After these, the rest is one name, dots and slashes included."""


@dataclass(frozen=True, slots=True)
class Tag:
    """A tag in a text."""

    kind: Literal["simple", "expr"]
    body: str
    """Without braces, `=` and the space around it."""
    start: int
    """Where the braces begin in the text."""
    raw: str = ""
    """As written, braces included."""

    @property
    def root(self) -> str:
        """`steps` of `steps.a.outputs.result`."""
        return re.split(r"[.\[\s]", self.body, maxsplit=1)[0]


def split_tags(text: str, known: Callable[[Tag], bool] | None = None) -> list[str | Tag]:
    """Texts and tags in order, no empty text. A `{{` without an end is text, and so is a tag that is not `known`."""
    if "{{" not in text:
        return [text] if text else []
    parts = _split(text)
    if known is None:
        return list(parts)
    return merge_texts(part.raw if isinstance(part, Tag) and not known(part) else part for part in parts)


@lru_cache(maxsize=1 << 14)
def _split(text: str) -> tuple[str | Tag, ...]:
    if (one := _ONE.match(text)) is not None:
        return (Tag("simple", one[1], 0, text),)
    parts: list[str | Tag] = []
    closed = _pairs(text)
    plain = at = 0
    careful = True
    while (start := text.find("{{", at)) >= 0:
        expression = text.startswith("=", start + 2)
        begin = start + 2 + expression
        end = _end_of_expression(text, begin) if expression and careful else -1
        if expression and end < 0:
            careful = False  # so that the text is not scanned again for every tag
            end = text.find("}}", begin)
            if end < 0:
                break
        elif not expression:
            end = closed.get(start, -1)
        if end < 0:
            at = begin
            continue
        if plain < start:
            parts.append(text[plain:start])
        at = plain = end + 2
        parts.append(Tag("expr" if expression else "simple", text[begin:end].strip(), start, text[start:at]))
    if plain < len(text):
        parts.append(text[plain:])
    return tuple(parts)


def _pairs(text: str) -> dict[int, int]:
    """Position of each `{{` -> of its `}}`: tags may be nested."""
    found: dict[int, int] = {}
    unclosed: list[int] = []
    for match in _BRACES.finditer(text):
        if match[0] == "{{":
            unclosed.append(match.start())
        elif unclosed:
            found[unclosed.pop()] = match.start()
    return found


def _end_of_expression(text: str, start: int) -> int:
    """Where `}}` ends an expression, outside quotes and braces; -1 if nowhere."""
    depth, at = 0, start
    while at < len(text):
        char = text[at]
        if char in "\"'`":
            at += 1
            while at < len(text) and text[at] != char:
                at += 2 if text[at] == "\\" and char != "`" else 1
        elif char == "{":
            depth += 1
        elif char == "}":
            if depth == 0 and text.startswith("}}", at):
                return at
            depth = max(depth - 1, 0)
        at += 1
    return -1


@lru_cache(maxsize=1 << 14)
def tag_path(body: str) -> tuple[str, ...]:
    """`steps.a-b.outputs.parameters.x` and `steps['a-b'].outputs…` -> the names. Raises ExpressionError."""
    if "[" not in body and "{" not in body:
        names = tuple(body.strip().split("."))
        if all(names) and not any(char.isspace() for char in body.strip()):
            return _joined(names)
    found: list[str] = []
    at = len(body) - len(body.lstrip())
    end = len(body.rstrip())
    while at < end or not found:
        match = _PART.match(body, at, end)
        if match is None or (match[4] is None and not found):
            what = "a tag inside a tag is not known before it runs" if "{{" in body else "this is not a variable"
            raise ExpressionError(f"{what}: {body[:80]!r}", min(at, len(body)))
        found.append(next(group for group in match.groups() if group is not None))
        at = match.end()
        if at < end and body[at] == ".":
            at += 1
            if at == end or body[at] == "[":
                raise ExpressionError(f"a name is missing after '.' in {body[:80]!r}", at)
        elif at < end and body[at] != "[":
            raise ExpressionError(f"this is not a variable: {body[:80]!r}", at)
    return _joined(tuple(found))


def _joined(names: tuple[str, ...]) -> tuple[str, ...]:
    return (*names[:2], ".".join(names[2:])) if len(names) > 3 and names[:2] in _WHOLE_NAMES else names
