"""Work for a later turn of the engine: at once, or after some seconds. Called by every part that waits for something.

A timer of the event loop never acts by itself. It puts its call into the list of the next turn, so that everything that the engine
does happens inside of a turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from penstock.backends.base import Inbox

Call = Callable[[], None]


class TurnTimers:
    def __init__(self, loop: asyncio.AbstractEventLoop, inbox: Inbox) -> None:
        self._loop = loop
        self._inbox = inbox
        self._due: list[Call] = []

    def __bool__(self) -> bool:
        """Is there anything to do in the next turn?"""
        return bool(self._due)

    def later(self, call: Call) -> None:
        """In the next turn."""
        self._due.append(call)
        self._inbox.wake()

    def after(self, seconds: float, call: Call) -> asyncio.TimerHandle:
        """In a turn, so many seconds from now."""
        return self._loop.call_later(seconds, self.later, call)

    def take(self) -> list[Call]:
        """What is due in this turn."""
        due, self._due = self._due, []
        return due

    def wake(self) -> None:
        """There is to be a turn."""
        self._inbox.wake()
