"""What would wait, and until when: against what then really happens, on a clock that jumps."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import UserError
from penstock.service.amounts import GUESS
from penstock.service.simulation import what_if as module
from penstock.service.simulation.what_if import QueueChange, WhatIf, what_if
from penstock.service.simulation.wording import sentences
from penstock.store.sql import open_store
from tests.engine.yard import CPU, Yard, flow, queue, step

PREEMPTING = {"preemption": {"withinClusterQueue": "LowerPriority"}}


def tried(yard: Yard, monkeypatch: pytest.MonkeyPatch, **change: Any) -> WhatIf:
    """At this moment of the virtual clock."""
    monkeypatch.setattr(module.time, "time", yard.clock.now)
    with open_store(yard.where) as store:
        return what_if(store, change.pop("queue", "q"), QueueChange(**change))


def test_it_says_what_then_happens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One run takes 20 s of each task; the next of them stands in the line, and a third is asked about and then submitted."""
    yard = Yard(tmp_path / "p", queue("q", 4))
    found: list[WhatIf] = []
    began: list[float] = []

    async def main(yard: Yard) -> Any:
        engine = yard.go(yard.engine(lambda order: 20.0))
        first = yard.submit(engine, flow(step("a", cpu=3), name="one"))
        await asyncio.sleep(30)
        assert first.status == "succeeded"
        yard.submit(engine, flow(step("a", cpu=3), name="one"))
        await asyncio.sleep(5)
        yard.submit(engine, flow(step("a", cpu=3), name="one"))
        await asyncio.sleep(2)
        found.append(tried(yard, monkeypatch, tasks=1, asks={"cpu": 4 * CPU}, seconds=20.0))
        began.append(yard.clock.elapsed)
        return yard.submit(engine, flow(step("b", cpu=4), name="two"))

    live = yard.play(main)
    (one,) = found
    assert one.measured == 2 and one.guessed == 0 and one.at_once == 0 and one.waits_from == 1
    start = yard.times(live.record.id, "b")[0][0] - began[0]
    assert one.starts == [(pytest.approx(start, abs=0.5), 1)]
    assert [(row.name, row.now) for row in one.waiting] == [("one-3/a", pytest.approx(13, abs=0.5))]
    assert one.waiting[0].then == one.waiting[0].now
    assert any("they wait" in said for said in sentences(one))


def test_a_part_starts_and_more_quota_helps_everybody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    yard = Yard(tmp_path / "p", queue("q", 4))
    found: list[WhatIf] = []

    async def main(yard: Yard) -> Any:
        engine = yard.go(yard.engine(lambda order: 100.0))
        yard.submit(engine, flow(step("a", cpu=2)))
        await asyncio.sleep(1)
        many = {"tasks": 6, "asks": {"cpu": CPU}, "seconds": 10.0}
        found.append(tried(yard, monkeypatch, **many))
        found.append(tried(yard, monkeypatch, **many, quota={"cpu": 8 * CPU}))
        found.append(tried(yard, monkeypatch, **many, gang=True))
        found.append(tried(yard, monkeypatch, tasks=2, asks={"cpu": 5 * CPU}))
        yard.submit(engine, flow(step("b", cpu=4), name="waits"))
        await asyncio.sleep(1)
        found.append(tried(yard, monkeypatch, tasks=0, quota={"cpu": 6 * CPU}))

    yard.play(main)
    part, more, gang, never, quota = found
    assert part.starts == [(0.0, 2), (10.0, 2), (20.0, 2)] and part.guessed == 1
    assert more.starts == [(0.0, 6)] and more.waits_from is None
    assert gang.never.startswith("all together ask for 6 cpu, and the queue can have 4 cpu")
    assert never.never.startswith("one asks for 5 cpu") and "never" in sentences(never)[0]
    assert [(row.name, row.now, row.then) for row in quota.waiting] == [
        ("waits-1/b", pytest.approx(GUESS - 2, abs=0.5), 0.0)
    ]
    assert "1 Workload that waits now would start sooner." in sentences(quota)


def test_who_would_be_preempted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    yard = Yard(tmp_path / "p", queue("q", 2, **PREEMPTING))
    found: list[WhatIf] = []

    async def main(yard: Yard) -> Any:
        engine = yard.go(yard.engine(lambda order: 100.0))
        yard.submit(engine, flow(step("low", cpu=2)), priority=1)
        await asyncio.sleep(1)
        found.append(tried(yard, monkeypatch, tasks=1, asks={"cpu": CPU}, priority=5))
        with open_store(yard.where) as store:
            assert [one.state for one in store.queues.workloads()] == ["held"], "nothing was touched"

    yard.play(main)
    assert found[0].stopped == ["w-1/low"] and found[0].starts == [(0.0, 1)]


def test_where_many_wait_it_says_how_far_it_looked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    yard = Yard(tmp_path / "p", queue("q", 2))
    found: list[WhatIf] = []
    monkeypatch.setattr(module, "PATIENCE", 0.0)

    async def main(yard: Yard) -> Any:
        engine = yard.go(yard.engine(lambda order: 10.0))
        yard.submit(engine, flow(*(step(f"s{n}", cpu=2) for n in range(5))))
        await asyncio.sleep(1)
        found.append(tried(yard, monkeypatch, tasks=1, asks={"cpu": CPU}))

    yard.play(main)
    assert found[0].ahead == 0.0 and found[0].starts == [] and any("Many wait" in said for said in sentences(found[0]))


def test_what_cannot_be_tried(tmp_path: Path) -> None:
    with open_store(str(tmp_path)) as store:
        for change, code in (
            (QueueChange(tasks=10**9), "P982"),
            (QueueChange(tasks=1, seconds=1e12), "P982"),
            (QueueChange(quota={"cpu": 1, "gpu": 3}), "P982"),
        ):
            with pytest.raises(UserError, match=code):
                what_if(store, "machine", change)
        with pytest.raises(UserError, match="P812"):
            what_if(store, "nowhere", QueueChange(tasks=1))
