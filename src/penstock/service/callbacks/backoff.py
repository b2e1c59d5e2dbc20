"""How long to wait before the next attempt to deliver a callback. Called by delivery. Pure."""

from __future__ import annotations

from penstock.graph.callback import CallbackRetry


def delay(retry: CallbackRetry, made: int, draw: float, asked: float | None = None) -> float | None:
    """Seconds; None: no attempt is left. `made`: attempts so far, from 1. `draw`: a random number from 0 to 1; the whole time is random, so
    that receivers that were away are not asked by all at once. `asked`: what the receiver asked for (Retry-After)."""
    if made >= retry.attempts:
        return None
    try:
        most = min(float(retry.longest), retry.initial * float(retry.factor) ** (made - 1))
    except OverflowError:
        most = float(retry.longest)
    wait = most * draw
    return wait if asked is None else max(wait, min(max(0.0, asked), float(retry.longest)))
