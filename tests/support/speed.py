"""Bars on processor time that a slow machine does not miss: tests anywhere use them to catch work that grew out of hand.

A bar in seconds is one for the machine it was written on. Here it is stretched by how much slower a plain loop, or a
plain spawning of processes, is at this moment in this very process. Figures for people are in `make bench`; these only tell a fault from no fault.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

LOOP_SECONDS = 0.005
"""What the loop below takes on a machine at rest (2026, one core of a server)."""

SPAWN_SECONDS = 0.000065
"""What one bare spawning costs the parent there, in a small process."""


def _loop() -> float:
    began = time.process_time()
    table: dict[int, str] = {}
    for number in range(40_000):
        table[number % 1000] = str(number)
    return time.process_time() - began


def _spawn(count: int = 20) -> float:
    began = time.process_time()
    for _ in range(count):
        os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)
    return (time.process_time() - began) / count


def slowness() -> float:
    """How many times slower than the machine at rest this process computes now; at least 1."""
    return max(1.0, min(_loop() for _ in range(3)) / LOOP_SECONDS)


def slowness_of_spawning() -> float:
    return max(slowness(), min(_spawn() for _ in range(3)) / SPAWN_SECONDS)


class Spent:
    """How much processor time went by inside the block."""

    seconds = 0.0


@contextmanager
def measured() -> Iterator[Spent]:
    """Without what the garbage of other tests costs: a long run of tests holds millions of objects that each full collection visits."""
    spent = Spent()
    gc.freeze()
    began = time.process_time()
    try:
        yield spent
    finally:
        spent.seconds = time.process_time() - began
        gc.unfreeze()


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Fail where the block took more processor time than this on a machine at rest."""
    with measured() as spent:
        yield
    if spent.seconds >= seconds:
        slow = slowness()
        assert spent.seconds < seconds * slow, (
            f"{spent.seconds:.2f} s, not {seconds:g} (machine {slow:.1f} times slower than at rest)"
        )
