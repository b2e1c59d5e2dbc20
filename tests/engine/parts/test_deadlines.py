"""Deadlines alone: when a limit begins to count, and what happens at its end."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from penstock.backends.base import Inbox
from penstock.engine.deadlines import Deadlines
from tests.engine.parts.build import Turns, active_run, flow, step


def in_a_loop(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


class Limited:
    def __init__(self, waits: bool = False) -> None:
        self.time = 100.0
        self.turns = Turns(Inbox(asyncio.get_running_loop()))
        self.expired: list[Any] = []
        self.run = active_run(flow(step("a", cpu=1)), needs_quota=lambda step: True)
        self.run.owned = True
        self.deadlines = Deadlines(self.turns, lambda: self.time, lambda run: waits, self.expired.append)


def test_the_limit_of_a_run_counts_from_its_first_admission() -> None:
    async def work() -> None:
        limited = Limited()
        limited.deadlines.limit_run(limited.run, 30.0, None)
        limited.time += 1000
        assert not limited.turns.waiting, "it waits in a queue, which costs nothing"
        limited.deadlines.admitted(limited.run, "a")
        assert [seconds for seconds, _ in limited.turns.waiting] == [30.0]
        limited.deadlines.admitted(limited.run, "b")
        assert len(limited.turns.waiting) == 1, "it counts once"
        limited.turns.fire()
        assert limited.expired == [limited.run]

    in_a_loop(work())


def test_a_limit_that_counted_before_a_crash_has_the_rest_left() -> None:
    async def work() -> None:
        limited = Limited()
        limited.deadlines.limit_run(limited.run, 30.0, since=limited.time - 20)
        assert [seconds for seconds, _ in limited.turns.waiting] == [10.0]
        limited.deadlines.limit_run(limited.run, 30.0, since=limited.time - 200)
        assert limited.turns.waiting[-1][0] == 0.0

    in_a_loop(work())


def test_a_run_that_is_forgotten_or_belongs_to_another_engine_does_not_expire() -> None:
    async def work() -> None:
        limited = Limited()
        limited.deadlines.limit_run(limited.run, 30.0, since=limited.time)
        limited.run.owned = False
        limited.turns.fire()
        assert limited.expired == []
        limited.deadlines.forget(limited.run)
        limited.deadlines.admitted(limited.run, "a")
        assert not limited.turns.waiting

    in_a_loop(work())
