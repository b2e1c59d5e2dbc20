"""Argo's variables and tags as text. Called by every part of the Argo writer."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from penstock.expressions.parse import is_identifier, quote
from penstock.expressions.types import ANY, STR, Type

_PLAIN: Final = re.compile(r"[ -&(-\[\]-~]*\Z")
_BRACES: Final = re.compile(r"(?<=\{)(?=\{)|(?<=\})(?=\})")
_TAKEN: Final = re.compile(r"\{\{\s*(?:=|(?:inputs|item|outputs|pod|steps|tasks|workflow|node|retries|lastRetry)\b)")


class NotInArgo(Exception):
    """Argo cannot express this: the reason, as the end of a sentence, and a fix."""

    def __init__(self, why: str, fix: str = "do it in a step of its own", code: str = "P841") -> None:
        super().__init__(why)
        self.fix = fix
        self.code = code


@dataclass(frozen=True, slots=True)
class ArgoVariable:
    """A variable of Argo."""

    path: tuple[str, ...]
    type: Type = ANY
    """The type of its value."""
    used: int = 0
    """The number of names of Penstock's path that it covers."""
    gathered: bool = False
    """The results of a loop: a JSON list of their texts."""
    absent: str = "[]"
    """The value if the loop did not run."""
    code: str = ""
    """If it is computed code and not a variable: the code."""
    status: bool = False
    """It is the status of a step or the workflow."""

    @property
    def tag(self) -> str:
        return "{{" + ".".join(self.path) + "}}"

    @property
    def text(self) -> str:
        """In an expression."""
        first, *rest = self.path
        return first + "".join(f".{name}" if is_identifier(name) else f"['{name}']" for name in rest)


Find = Callable[[tuple[str, ...]], ArgoVariable | None]
"""A path of Penstock -> the variable of it, or of a prefix. Raises NotInArgo."""


def of_run(path: tuple[str, ...]) -> ArgoVariable | None:
    """Variables that can be read anywhere."""
    match path:
        case ("run", "id"):
            return ArgoVariable(("workflow", "name"), STR, 2)
        case ("run", "created"):
            return ArgoVariable(("workflow", "creationTimestamp"), STR, 2)
    return None


def literal(text: str) -> str:
    if "{{" in text and _TAKEN.search(text):
        why = "its text has '{{' in it, which Argo would take for one of its own variables"
        raise NotInArgo(
            why, "put the text into a file or a parameter of the image, or spell the braces otherwise", "P845"
        )
    return text


def tagged(code: str) -> str:
    """An expression tag. Argo ends it at the first two braces, even inside quotes."""
    while "}}" in code or "{{" in code:
        code = code.replace("}}", "} }").replace("{{", "{ {")
    return "{{=" + code + "}}"


def string(text: str) -> str:
    """A string literal without two braces in a row."""
    pieces = _BRACES.split(text)
    shown = [f"'{piece}'" if _PLAIN.match(piece) else quote(piece) for piece in pieces]
    return shown[0] if len(shown) == 1 else f"({' + '.join(shown)})"
