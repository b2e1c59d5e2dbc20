"""How fast, and whether at all, something else is asked that has trouble. Called by service.callbacks for receivers, and by the backend
`kubernetes` for what an API server refuses. Pure.

Each failure halves the rate, down to a floor; each success doubles it again. After some failures in a row nothing is sent for a while, then one
probe: if it fails, the next while is twice as long.
"""

from __future__ import annotations

from typing import NamedTuple


class BreakerLimits(NamedTuple):
    most: float = 1000.0
    """A second. At this rate nothing is spaced out."""
    floor: float = 1.0
    after: int = 5
    """Failures in a row that open it. 0: it never opens."""
    open_for: float = 10.0
    longest: float = 300.0


class Breaker(NamedTuple):
    rate: float
    """A second."""
    failures: int = 0
    """In a row."""
    trips: int = 0
    """How often in a row it was opened."""
    until: float = 0.0
    """Nothing is sent before: it is open, or its probe is on its way."""
    next_at: float = 0.0
    """When the next may be sent, by the rate."""


def closed(limits: BreakerLimits) -> Breaker:
    return Breaker(limits.most)


def due(state: Breaker) -> float:
    """When the next may be sent."""
    return max(state.until, state.next_at)


def is_open(state: Breaker, now: float) -> bool:
    return state.until > now


def sent(state: Breaker, limits: BreakerLimits, now: float) -> Breaker:
    space = _space(state.rate, limits)
    probe = limits.after and state.failures >= limits.after
    # A probe of which nothing is heard again holds up others only for a while.
    until = now + limits.open_for if probe else state.until
    return state._replace(next_at=max(now, state.next_at) + space, until=until)


def succeeded(state: Breaker, limits: BreakerLimits) -> Breaker:
    rate = min(limits.most, state.rate * 2.0)
    return Breaker(rate, next_at=state.next_at if rate < limits.most else 0.0)


def failed(state: Breaker, limits: BreakerLimits, now: float, probe: bool = True) -> Breaker:
    """`probe`: False if it was sent before the breaker opened: then it opens no further."""
    failures, rate = state.failures + 1, max(limits.floor, state.rate / 2.0)
    trips, until = state.trips, state.until
    opens = limits.after and failures >= limits.after
    if opens and (not is_open(state, now) or (probe and state.failures >= limits.after)):
        trips += 1
        until = now + min(limits.longest, limits.open_for * 2.0 ** min(trips - 1, 60))
    return Breaker(rate, failures, trips, until, max(state.next_at, now + _space(rate, limits)))


def _space(rate: float, limits: BreakerLimits) -> float:
    return 0.0 if rate >= limits.most else 1.0 / rate
