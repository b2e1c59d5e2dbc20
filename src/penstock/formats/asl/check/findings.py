"""Problems of a definition with their place, a JSON pointer as AWS gives. Made by every check; read becomes Problems of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from penstock.graph.limits import MOST_PROBLEMS

STRUCTURE: Final = "P835"
MISSING: Final = "P832"
EXPRESSION: Final = "P834"


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem. `place`: the names and numbers that lead to it."""

    code: str
    place: tuple[str | int, ...]
    message: str
    fix: str

    @property
    def pointer(self) -> str:
        """`/States/Wait/Seconds`."""
        return "/" + "/".join(str(part).replace("~", "~0").replace("/", "~1") for part in self.place)

    @property
    def path(self) -> str:
        """`States.Wait.Seconds`, as the lines of a document are kept."""
        found = ""
        for part in self.place:
            found += f"[{part}]" if isinstance(part, int) else f".{part}"
        return found.lstrip(".")


@dataclass(slots=True)
class Findings:
    """All that was found, at most so many."""

    found: list[Finding] = field(default_factory=list)

    def add(self, code: str, place: tuple[str | int, ...], message: str, fix: str) -> None:
        if len(self.found) < MOST_PROBLEMS:
            self.found.append(Finding(code, place, message, fix))

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.found)
