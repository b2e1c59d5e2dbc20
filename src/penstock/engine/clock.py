"""A clock that jumps: an event loop that waits for nothing. Called by simulate and by tests."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Standstill(RuntimeError):
    """Something is waited for that will never come."""


class VirtualClock:
    """An event loop whose time jumps to the next thing that is due, whenever nothing else is to be done. Only for work that
    needs no real time: timers and scripted backends, not processes."""

    def __init__(self, start: float = 1_000_000_000.0) -> None:
        self.start = start
        self.elapsed = 0.0
        self.shift = 0.0

    def now(self) -> float:
        """Wall-clock time."""
        return self.start + self.elapsed + self.shift

    def set_back(self, seconds: float) -> None:
        """The wall clock is put back; the time that passes is not."""
        self.shift -= seconds

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        with asyncio.Runner(loop_factory=lambda: _Loop(self)) as runner:
            return runner.run(main)


class _Selector(selectors.DefaultSelector):
    clock: VirtualClock

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if not ready and timeout is not None and timeout > 0:
            self.clock.elapsed += timeout
        elif not ready and timeout is None:
            raise Standstill("nothing is left that could happen: the loop would wait for ever")
        return ready


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        selector = _Selector()
        selector.clock = clock
        super().__init__(selector)

    def time(self) -> float:
        return self._clock.elapsed
