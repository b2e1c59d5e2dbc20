"""What tasks printed, from the log files. Called by `penstock logs`, the views of failures, and Run.logs.

A task's record has its log as parts: (file below the home folder, first byte, end byte or None while it runs). Several tasks share
the file of their worker.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.settings import Settings

LAST_BYTES = 65536
"""Read from the end of a part if only the last lines are wanted."""

LogParts = Sequence[Sequence[Any]]


def log_text(settings: Settings, parts: LogParts, last: int | None = None) -> str:
    """The whole text. `last`: only so many lines from its end."""
    found = []
    for name, start, end in parts:
        path = Path(settings.home, name)
        try:
            with open(path, "rb") as file:
                size = path.stat().st_size if end is None else end
                if last is not None and size - start > LAST_BYTES:
                    start = size - LAST_BYTES
                file.seek(start)
                found.append(file.read() if end is None else file.read(max(0, end - start)))
        except FileNotFoundError:
            continue
    text = b"".join(found).decode("utf-8", "replace")
    return text if last is None else "\n".join(text.rstrip("\n").split("\n")[-last:])


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
        exact = self.last if self.text is None else None
        return self.tail(self.matching(lines_of(log_text(settings, parts, exact))))
