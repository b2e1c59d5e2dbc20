"""What a translation kept, changed and lost. Made by every reader and writer of foreign documents; shown by `penstock convert`.

Kept: the target has the same, perhaps under another name. Changed: the target does it differently; the entry says how. Lost: the target cannot
express it; the entry names the nearest equivalent.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from penstock.errors import Source

Kind = Literal["kept", "changed", "lost"]
MOST = 10_000
"""A report lists at most so many entries and counts the rest."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One field or feature."""

    kind: Kind
    path: str
    """In the document that was read: `spec.templates[0].daemon`; of a Workflow, `steps.train.loop`."""
    message: str
    near: str = ""
    """The nearest equivalent, or what to do about it."""
    source: Source | None = None

    def as_data(self) -> dict[str, Any]:
        data: dict[str, Any] = {"kind": self.kind, "path": self.path, "message": self.message}
        if self.near:
            data["nearest"] = self.near
        if self.source is not None:
            data["file"], data["line"] = self.source.file, self.source.line
        return data


@dataclass(slots=True)
class Report:
    """All entries of one translation."""

    entries: list[Entry] = field(default_factory=list)
    unlisted: int = 0
    """The number of entries that are not listed."""
    losses: int = 0

    def add(self, kind: Kind, path: str, message: str, near: str = "", source: Source | None = None) -> None:
        self.losses += kind == "lost"
        if len(self.entries) >= MOST:
            self.unlisted += 1
            return
        self.entries.append(Entry(kind, path, message, near, source))

    def kept(self, path: str, message: str, source: Source | None = None) -> None:
        self.add("kept", path, message, "", source)

    def changed(self, path: str, message: str, near: str = "", source: Source | None = None) -> None:
        self.add("changed", path, message, near, source)

    def lost(self, path: str, message: str, near: str = "", source: Source | None = None) -> None:
        self.add("lost", path, message, near, source)

    def extend(self, other: Report) -> None:
        for entry in other.entries:
            self.add(entry.kind, entry.path, entry.message, entry.near, entry.source)
        self.unlisted += other.unlisted

    def of(self, kind: Kind) -> list[Entry]:
        return [entry for entry in self.entries if entry.kind == kind]

    def as_data(self) -> dict[str, Any]:
        counts = {kind: len(self.of(kind)) for kind in ("kept", "changed", "lost")}
        data: dict[str, Any] = {"counts": counts, "entries": [entry.as_data() for entry in self.entries]}
        if self.unlisted:
            data["unlisted"] = self.unlisted
        return data


def joined(reports: Iterable[Report]) -> Report:
    whole = Report()
    for one in reports:
        whole.extend(one)
    return whole
