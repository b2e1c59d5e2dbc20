"""How fast Jobs are created where a quota of the namespace counts them, and refuses more. Used by all attempts of a backend.

Each refusal halves the rate, down to a floor, and each Job that is created doubles it again (backends.breaker). What was refused is asked for
again when something may have changed: nothing is lost, and the API server is not asked by all at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from penstock.backends import breaker
from penstock.backends.breaker import BreakerLimits
from penstock.errors import Problem, UserError

LIMITS: Final = BreakerLimits(most=256.0, floor=0.5, after=0)
LOOK: Final = 0.5
"""Seconds between two looks whether the attempt is still wanted."""
T = TypeVar("T")


class QuotaFull(UserError):
    """The quota of the namespace is full."""

    def __init__(self, message: str) -> None:
        fix = "ask for less, end what uses the quota, or raise it (kubectl describe resourcequota)"
        super().__init__(Problem("P724", f"the quota of the namespace is full: {message}", fix))


class Throttle:
    """`holds`: has this engine anything there that will end and make room?"""

    def __init__(self, holds: Callable[[], bool], limits: BreakerLimits | None = None) -> None:
        self._holds = holds
        self._limits = limits or LIMITS
        self.state = breaker.closed(self._limits)

    async def submit(
        self,
        create: Callable[[], Awaitable[T]],
        wanted: Callable[[], bool],
        patience: float,
        note: Callable[[str], None],
    ) -> T | None:
        """What `create` gives; None: it is not wanted any more. Raises QuotaFull when for so many seconds nothing of this engine was there
        that could make room, and what `create` raises else."""
        loop = asyncio.get_running_loop()
        since: float | None = None
        while True:
            if not await self._turn(wanted):
                return None
            self.state = breaker.sent(self.state, self._limits, loop.time())
            try:
                made = await create()
            except QuotaFull as error:
                self.state = breaker.failed(self.state, self._limits, loop.time())
                if self._holds():
                    since = None
                elif since is None:
                    since = loop.time()
                if since is not None and loop.time() - since >= patience:
                    raise
                note(error.problems[0].message)
                continue
            self.state = breaker.succeeded(self.state, self._limits)
            return made

    async def _turn(self, wanted: Callable[[], bool]) -> bool:
        """Returns when it may be asked; False if it is not wanted any more."""
        loop = asyncio.get_running_loop()
        while wanted():
            wait = breaker.due(self.state) - loop.time()
            if wait <= 0:
                return True
            await asyncio.sleep(min(wait, LOOK))
        return False
