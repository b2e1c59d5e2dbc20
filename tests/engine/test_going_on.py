"""Attempts that outlive their engine: the next one is told which attempt it may go on with, and the backend when an end is recorded. On
the scripted backend and a clock that jumps."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.backends.base import AttemptEnded, AttemptSpec
from penstock.engine.active_run import ActiveRun
from penstock.engine.engine import Engine
from penstock.graph.model import Backoff, Cache, Outcome, Retry
from penstock.service.runs import blueprint_of, own
from tests.engine.yard import Yard, flow, step

DEAD: set[str] = set()


@pytest.fixture(autouse=True)
def deaths(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.store.liveness.alive", lambda engine: engine.id not in DEAD)


Script = Callable[[AttemptSpec], Any]


def hearing(yard: Yard, script: Script, recorded: list[str]) -> Engine:
    """An engine whose backend wants to know what is recorded."""
    engine = yard.engine(script)
    backend = yard.backends[engine]
    backend.abilities = replace(backend.abilities, recorded=recorded.extend)  # type: ignore[misc]
    return engine


def taken_up(engine: Engine, live: ActiveRun) -> ActiveRun:
    run = engine.store.runs.by_id(live.record.id)
    assert run is not None
    return engine.adopt(own(engine.store, engine.me.id, run), blueprint_of(engine.store, run), run.params)


async def death_of(yard: Yard, engine: Engine) -> None:
    DEAD.add(engine.me.id)
    await yard.die(engine)


def told(yard: Yard, engine: Engine) -> list[tuple[int, int]]:
    return [(order.attempt, order.since) for order in yard.backends[engine].specs]


def test_an_attempt_after_a_death_may_be_the_one_before(tmp_path: Path) -> None:
    yard, recorded = Yard(tmp_path, cpu=4), []  # type: ignore[var-annotated]
    found: list[list[tuple[int, int]]] = []

    async def main(yard: Yard) -> ActiveRun:
        engine = yard.go(hearing(yard, lambda order: 100.0, recorded))
        live = yard.submit(engine, flow(step("a")))
        for _ in range(2):
            await asyncio.sleep(10)
            found.append(told(yard, engine))
            await death_of(yard, engine)
            engine = yard.go(hearing(yard, lambda order: 100.0, recorded))
            live = taken_up(engine, live)
        await asyncio.sleep(200)
        found.append(told(yard, engine))
        return live

    live = yard.play(main)
    assert live.status == "succeeded" and found == [[(1, 1)], [(2, 1)], [(3, 1)]]
    assert recorded == [f"{live.record.id}/a/3"]


def test_an_attempt_after_a_recorded_end_is_a_new_one(tmp_path: Path) -> None:
    """Failed and recorded, then the engine dies while the next attempt runs: that one may be gone on with, and not the failed one."""
    yard, recorded = Yard(tmp_path, cpu=4), []  # type: ignore[var-annotated]
    found: list[list[tuple[int, int]]] = []

    def script(order: AttemptSpec) -> Any:
        return AttemptEnded(id=order.id, outcome=Outcome.FAILED, exit_code=1) if order.attempt == 1 else 100.0

    async def main(yard: Yard) -> ActiveRun:
        engine = yard.go(hearing(yard, script, recorded))
        retry = Retry(limit=3, backoff=Backoff(initial=1, factor=1, jitter=0))
        live = yard.submit(engine, flow(step("a", retry=retry)))
        await asyncio.sleep(20)
        found.append(told(yard, engine))
        assert recorded == [f"{live.record.id}/a/1"]
        await death_of(yard, engine)
        engine = yard.go(hearing(yard, script, recorded))
        live = taken_up(engine, live)
        await asyncio.sleep(200)
        found.append(told(yard, engine))
        return live

    live = yard.play(main)
    assert live.status == "succeeded" and found == [[(1, 1), (2, 2)], [(3, 2)]]
    assert recorded == [f"{live.record.id}/a/1", f"{live.record.id}/a/3"]


def test_a_lost_attempt_is_not_gone_on_with(tmp_path: Path) -> None:
    yard = Yard(tmp_path, cpu=4)

    def script(order: AttemptSpec) -> Any:
        return (
            AttemptEnded(id=order.id, outcome=Outcome.ERRORED, lost=True, message="evicted")
            if order.attempt == 1
            else 1.0
        )

    async def main(yard: Yard) -> Engine:
        engine = yard.go(yard.engine(script))
        yard.submit(engine, flow(step("a")))
        await asyncio.sleep(20)
        return engine

    assert told(yard, yard.play(main)) == [(1, 1), (2, 2)]


def test_what_a_dead_engine_left_of_a_run_that_is_cancelled_is_told(tmp_path: Path) -> None:
    yard, recorded = Yard(tmp_path, cpu=4), []  # type: ignore[var-annotated]

    async def main(yard: Yard) -> ActiveRun:
        engine = yard.go(hearing(yard, lambda order: 100.0, recorded))
        live = yard.submit(engine, flow(step("a")))
        await asyncio.sleep(10)
        await death_of(yard, engine)
        engine = yard.go(hearing(yard, lambda order: 100.0, recorded))
        live = taken_up(engine, live)
        engine.cancel(live, "cancelled", now=True)
        await asyncio.sleep(10)
        assert told(yard, engine) == []
        return live

    live = yard.play(main)
    assert live.status == "cancelled" and recorded == [f"{live.record.id}/a/1"]


def test_what_a_dead_engine_left_of_a_task_whose_result_is_known_meanwhile_is_told(tmp_path: Path) -> None:
    """Another run has computed the same: the task is not started again, and its attempt is of no use."""
    yard, recorded = Yard(tmp_path, cpu=4), []  # type: ignore[var-annotated]

    async def main(yard: Yard) -> ActiveRun:
        engine = yard.go(hearing(yard, lambda order: 100.0, recorded))
        live = yard.submit(engine, flow(step("a", cache=Cache())), fresh=False)
        await asyncio.sleep(10)
        await death_of(yard, engine)
        engine = yard.go(hearing(yard, lambda order: 1.0, recorded))
        other = yard.submit(engine, flow(step("a", cache=Cache()), name="other"), fresh=False)
        await asyncio.sleep(10)
        assert other.status == "succeeded" and recorded == [f"{other.record.id}/a/1"]
        live = taken_up(engine, live)
        await asyncio.sleep(10)
        assert len(told(yard, engine)) == 1
        return live

    live = yard.play(main)
    assert live.status == "succeeded" and recorded[1:] == [f"{live.record.id}/a/1"]
