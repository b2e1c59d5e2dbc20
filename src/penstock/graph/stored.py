"""A value in the artifact store, named by its digest. Made by artifacts.values. The engine passes it on without opening it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


class Stored:
    """A value that is stored as a blob. Immutable. Not a dataclass: importing dataclasses would take half of a worker's start."""

    __slots__ = ("digest", "kind", "name", "size")

    def __init__(self, kind: str, digest: str, size: int, name: str = "") -> None:
        self.kind = kind
        """json, pickle, file or dir"""
        self.digest = digest
        self.size = size
        self.name = name
        """Of a file or folder: its name where it is written. Of an object: its class."""

    def _all(self) -> tuple[str, str, int, str]:
        return self.kind, self.digest, self.size, self.name

    def __eq__(self, other: object) -> bool:
        return self._all() == other._all() if isinstance(other, Stored) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._all())

    def __reduce__(self) -> tuple[type[Stored], tuple[str, str, int, str]]:
        return Stored, self._all()

    def __repr__(self) -> str:
        return f"Stored({self.kind!r}, {self.digest!r}, {self.size}, {self.name!r})"


def stored_in(value: Any) -> Iterator[Stored]:
    """Every Stored inside a value."""
    if type(value) is Stored:
        yield value
    elif type(value) is list:
        for item in value:
            if type(item) in _HOLDERS:
                yield from stored_in(item)
    elif type(value) is dict:
        for item in value.values():
            if type(item) in _HOLDERS:
                yield from stored_in(item)


_HOLDERS = frozenset({Stored, list, dict})
