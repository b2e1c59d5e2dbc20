"""What of a run is not in the database, but in the home folder and on the machine: what tasks print, and processes that were left behind. Called
by `logs`, `log_tail`, the views and the server, which answers for homes elsewhere (`remote_store`); `stores.home_of` makes one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from penstock.backends.base import Orphan

LOGS: Final = "logs"
"""The folder of the home that has them. What lies elsewhere is no log."""


class LogPiece(NamedTuple):
    """A part of a log file."""

    name: str
    """Below the home."""
    start: int
    end: int | None
    """None: as far as it goes."""
    last: int | None = None
    """Only so many bytes from its end."""


class HomeFiles(Protocol):
    def sizes(self, names: Sequence[str]) -> Mapping[str, int]:
        """Of those log files that are there."""

    def read(self, pieces: Sequence[LogPiece]) -> list[bytes | None]:
        """None: there is no such file."""

    def shown(self, name: str) -> str:
        """The name of a log file, for users."""

    def orphans(self, engines: Sequence[str]) -> list[Orphan]:
        """The first process of each task that these engines have left behind."""


class LocalHome:
    def __init__(self, home: Path) -> None:
        self.home = home

    def sizes(self, names: Sequence[str]) -> dict[str, int]:
        found = {}
        for name in names:
            try:
                found[name] = (self.home / name).stat().st_size
            except (OSError, ValueError):
                continue
        return found

    def read(self, pieces: Sequence[LogPiece]) -> list[bytes | None]:
        return [self._read(one) for one in pieces]

    def _read(self, piece: LogPiece) -> bytes | None:
        try:
            with open(self.home / piece.name, "rb") as file:
                end = os.fstat(file.fileno()).st_size if piece.end is None else piece.end
                start = piece.start if piece.last is None else max(piece.start, end - piece.last)
                file.seek(start)
                return file.read() if piece.end is None else file.read(max(0, end - start))
        except FileNotFoundError:
            return None

    def shown(self, name: str) -> str:
        return str(self.home / name)

    def orphans(self, engines: Sequence[str]) -> list[Orphan]:
        from penstock.backends.registry import orphans

        every = orphans(self.home, list(engines))
        pids = {one.pid for one in every}
        return [one for one in every if not _belongs(one.pid, pids)]


def _belongs(pid: int, pids: set[int]) -> bool:
    """Was it started by another one of these?"""
    try:
        group = os.getpgid(pid)
    except OSError:
        return True  # it has ended
    return group != pid and group in pids


def place_of(home: Path, name: str) -> Path | None:
    """The log file of this name, for somebody on another machine; None if it is not one of those below `logs`, wherever links lead."""
    if "\0" in name or not name.startswith(f"{LOGS}/"):
        return None
    try:
        place, folder = (home / name).resolve(), (home / LOGS).resolve()
        return place if place.is_relative_to(folder) and place.is_file() else None
    except (OSError, RuntimeError, ValueError):
        return None


def served_piece(home: Path, piece: LogPiece, most: int) -> tuple[int, bytes] | None:
    """Where it begins, and at most so many bytes. None: there is no such log."""
    place = place_of(home, piece.name)
    if place is None:
        return None
    from penstock.artifacts.regular import open_regular

    try:
        with open_regular(place) as file:
            size = os.fstat(file.fileno()).st_size
            end = size if piece.end is None else min(piece.end, size)
            start = max(0, piece.start if piece.last is None else max(piece.start, end - piece.last))
            file.seek(start)
            return start, file.read(max(0, min(end - start, most)))
    except (OSError, ValueError):
        return None
