"""Argo's variables and tags, as pieces of text. Used by every part of the Argo writer."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from penstock.graph.expr import is_identifier, quote
from penstock.graph.types import ANY, STR, Type

_PLAIN: Final = re.compile(r"[ -&(-\[\]-~]*\Z")
_BRACES: Final = re.compile(r"(?<=\{)(?=\{)|(?<=\})(?=\})")
_TAKEN: Final = re.compile(r"\{\{\s*(?:=|(?:inputs|item|outputs|pod|steps|tasks|workflow|node|retries|lastRetry)\b)")


class NotSaid(Exception):
    """Argo has no words for this; why, as the end of a sentence, and what to do about it."""

    def __init__(self, why: str, fix: str = "do it in a step of its own", code: str = "P841") -> None:
        super().__init__(why)
        self.fix = fix
        self.code = code


@dataclass(frozen=True, slots=True)
class Found:
    """A variable of Argo's."""

    path: tuple[str, ...]
    type: Type = ANY
    """Of what its text stands for."""
    used: int = 0
    """How many names of our path it stands for."""
    gathered: bool = False
    """The results of a loop: a JSON list of their texts."""
    absent: str = "[]"
    """What stands in for the results of a loop that did not run."""
    code: str = ""
    """Where it is no variable but something computed, of this very type."""
    status: bool = False
    """How a step or the workflow ended, in Argo's words."""

    @property
    def tag(self) -> str:
        return "{{" + ".".join(self.path) + "}}"

    @property
    def text(self) -> str:
        """In an expression."""
        first, *rest = self.path
        return first + "".join(f".{name}" if is_identifier(name) else f"['{name}']" for name in rest)


Find = Callable[[tuple[str, ...]], Found | None]
"""One of our paths -> the variable that holds it, or the beginning of it. Raises NotSaid."""


def of_run(path: tuple[str, ...]) -> Found | None:
    """What can be read anywhere."""
    match path:
        case ("run", "id"):
            return Found(("workflow", "name"), STR, 2)
        case ("run", "created"):
            return Found(("workflow", "creationTimestamp"), STR, 2)
    return None


def literal(text: str) -> str:
    if "{{" in text and _TAKEN.search(text):
        why = "its text has '{{' in it, which Argo would take for one of its own variables"
        raise NotSaid(
            why, "put the text into a file or a parameter of the image, or spell the braces otherwise", "P845"
        )
    return text


def tagged(code: str) -> str:
    """An expression tag. Argo ends it at the first two braces, wherever they stand."""
    while "}}" in code or "{{" in code:
        code = code.replace("}}", "} }").replace("{{", "{ {")
    return "{{=" + code + "}}"


def string(text: str) -> str:
    """A string literal without two braces in a row."""
    pieces = _BRACES.split(text)
    shown = [f"'{piece}'" if _PLAIN.match(piece) else quote(piece) for piece in pieces]
    return shown[0] if len(shown) == 1 else f"({' + '.join(shown)})"
