"""Answers that take long, kept for a moment: pages that follow what happens are asked for again and again. Used by pages that add up many runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

T = TypeVar("T")
SHARE: Final = 10
"""At most one part in so many of the time is spent on one answer."""


class Remembered(Generic[T]):
    """`most`: answers that are kept."""

    def __init__(self, most: int = 50) -> None:
        self._most = most
        self._found: dict[Hashable, tuple[float, T]] = {}
        """-> (good until, the answer)"""

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        started = time.monotonic()
        known = self._found.get(key)
        if known is not None and started < known[0]:
            return known[1]
        made = make()
        done = time.monotonic()
        self._found.pop(key, None)
        while len(self._found) >= self._most:
            self._found.pop(next(iter(self._found)), None)
        self._found[key] = (done + SHARE * (done - started), made)
        return made
