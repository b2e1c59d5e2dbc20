"""What tasks printed, from the log files. Called by `penstock logs`, the views of failures, and Run.logs.

A task's record has its log as parts: (file below the home folder, first byte, end byte or None while it runs). Several tasks share
the file of their worker.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.service.home_files import LogPiece
from penstock.service.stores import home_of
from penstock.settings import Settings

LAST_BYTES = 65536
"""Read from the end of a part if only the last lines are wanted."""
TOGETHER = 100
"""Tasks whose logs are read at once."""

LogParts = Sequence[Sequence[Any]]


def log_text(settings: Settings, parts: LogParts, last: int | None = None) -> str:
    """The whole text. `last`: only so many lines from its end."""
    return next(log_texts(settings, [parts], last))


def log_texts(settings: Settings, many: Sequence[LogParts], last: int | None = None) -> Iterator[str]:
    """That of each task; of many tasks some are read together, because they may be on a server."""
    home = home_of(settings)
    most = None if last is None else LAST_BYTES
    for first in range(0, len(many), TOGETHER):
        some = many[first : first + TOGETHER]
        pieces = [LogPiece(name, start, end, most) for parts in some for name, start, end in parts]
        found = iter(home.read(pieces))
        for parts in some:
            data = b"".join(piece for piece in (next(found) for _ in parts) if piece is not None)
            text = data.decode("utf-8", "replace")
            yield text if last is None else "\n".join(text.rstrip("\n").split("\n")[-last:])


def lines_of(text: str) -> list[str]:
    """Without carriage returns: of a progress bar only what it printed last."""
    lines = text.split("\n")
    if lines and not lines[-1]:
        lines.pop()
    return [line.rstrip("\r").rpartition("\r")[2] for line in lines]


@dataclass(frozen=True, slots=True)
class LogFilter:
    """Which lines of each task are wanted."""

    text: str | None = None
    """Only lines that contain it."""
    last: int | None = None
    """Only so many lines from the end."""

    def matching(self, lines: Sequence[str]) -> list[str]:
        return [line for line in lines if self.text is None or self.text in line]

    def tail(self, lines: list[str]) -> list[str]:
        return lines if self.last is None else lines[len(lines) - min(self.last, len(lines)) :]

    def lines(self, settings: Settings, parts: LogParts) -> list[str]:
        """The wanted lines of a whole log."""
        return next(self.each(settings, [parts]))

    def each(self, settings: Settings, many: Sequence[LogParts]) -> Iterator[list[str]]:
        """Those of each of several logs."""
        exact = self.last if self.text is None else None
        for text in log_texts(settings, many, exact):
            yield self.tail(self.matching(lines_of(text)))
