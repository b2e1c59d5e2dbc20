"""While a loop runs a few tasks at a time, only those that have not started count as waiting; and when it is over, it is said that they
did run."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from penstock.engine.active_run import ActiveRun
from penstock.engine.engine import Engine
from penstock.service.views.quotas import QueueReader, StoreQueues
from penstock.service.views.why import WaitReport, why
from tests.engine.yard import CPU, Yard, flow, queue, step


def _why(engine: Engine, live: ActiveRun) -> WaitReport:
    run = engine.store.runs.by_number(live.number)
    assert run is not None
    return why(engine.store, run)  # type: ignore[arg-type]


@pytest.mark.parametrize("replicas", [1, 2])
def test_only_tasks_that_have_not_started_wait(tmp_path: Path, replicas: int) -> None:
    yard = Yard(tmp_path / "p", queue("q", 2 * replicas))

    async def main(yard: Yard) -> Any:
        engine = yard.go(yard.engine(lambda order: 10.0))
        live = yard.submit(engine, flow(step("each", tasks=6, replicas=replicas)))
        found = []
        for _ in range(3):
            await asyncio.sleep(5)
            report = _why(engine, live)
            shown = QueueReader(StoreQueues(engine.store)).one("q")
            waits = [(wait.tasks, wait.asks) for wait in report.waits]
            found.append((report.running, waits, [one.pods for one in shown.waiting]))
            await asyncio.sleep(5)
        await asyncio.sleep(5)
        return found, _why(engine, live)

    found, after = yard.play(main)
    each = CPU * replicas
    assert found[0] == (2, [(4, {"cpu": 4 * each})], [4 * replicas])
    assert found[1] == (2, [(2, {"cpu": 2 * each})], [2 * replicas])
    assert found[2] == (2, [], [])
    assert [wait.outcome for wait in after.history] == ["handed on"]


def test_a_loop_that_is_cancelled_was_not_needed_any_more(tmp_path: Path) -> None:
    yard = Yard(tmp_path / "p", queue("q", 2))

    async def main(yard: Yard) -> Any:
        engine = yard.go(yard.engine(lambda order: 10.0))
        live = yard.submit(engine, flow(step("each", tasks=6)))
        await asyncio.sleep(5)
        engine.cancel(live, "enough", False)
        engine.inbox.wake()
        await asyncio.sleep(30)
        return _why(engine, live)

    assert [wait.outcome for wait in yard.play(main).history] == ["withdrawn"]
