"""How queues are used is recorded: rightly, by several engines, on both databases, and not where there are no queues."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from penstock.service.views.series import series
from penstock.store.sql import open_store
from tests.engine.yard import CPU, Yard, flow, queue, step

NAME = "default/cpu"


@pytest.fixture(params=["sqlite", "postgresql"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "p") if request.param == "sqlite" else str(request.getfixturevalue("postgres_url"))


def test_use_and_waiting_of_two_engines_are_on_record(tmp_path: Path, where: str) -> None:
    yard = Yard(tmp_path / "p", queue("q", 4) + queue("idle", 2), store=where)

    async def main(yard: Yard) -> Any:
        one = yard.go(yard.engine(lambda order: 100.0))
        first = yard.submit(one, flow(step("a", cpu=3), queue="q"))
        two = yard.go(yard.engine(lambda order: 50.0))
        await asyncio.sleep(40)
        return one, two, first, yard.submit(two, flow(step("b", cpu=2), name="other", queue="q"))

    began = yard.clock.now()
    one, _, first, second = yard.play(main)
    assert (first.status, second.status) == ("succeeded", "succeeded") and one
    with open_store(where) as store:
        found = series(store, "q", began, began + 200, 10)
        used = {round(at - began): use.mean for at, use in found.of(NAME)}
        waiting = {round(span.at - began): span.waiting.mean for span in found.spans}
        assert {use.nominal for _, use in found.of(NAME)} == {4 * CPU}
        idle = series(store, "idle", began, began + 200, 10)
    at = lambda seconds, values: values[min(values, key=lambda one: abs(one - seconds))]
    assert [at(t, used) for t in (20, 80, 125, 180)] == [3 * CPU, 3 * CPU, 2 * CPU, 0]
    assert [at(t, waiting) for t in (20, 80, 125, 180)] == [0, 1, 0, 0]
    assert all(use.mean == 0 for _, use in idle.of(NAME)) and idle.names == [NAME]


def test_what_changes_within_a_second_is_on_record_in_the_end(tmp_path: Path) -> None:
    """Many short tasks, then one that goes on for long: its use is there although it began just after a look."""
    yard = Yard(tmp_path / "p", queue("q", 8))

    async def main(yard: Yard) -> Any:
        engine = yard.go(yard.engine(lambda order: 0.05 if order.step.name == "short" else 300.0))
        return yard.submit(engine, flow(step("short", cpu=1), step("long", "short", cpu=5)))

    began = yard.clock.now()
    yard.play(main)
    with open_store(yard.where) as store:
        found = series(store, "q", began, began + 400, 10).of(NAME)
    by = {at: use.mean for at, use in found}
    assert by[int(began + 150) // 10 * 10] == 5 * CPU and found[-1][1].last == 0
    assert sum(use.mean * 10 for _, use in found) == pytest.approx(300 * 5 * CPU, rel=0.05)


def test_many_decisions_make_few_rows(tmp_path: Path) -> None:
    yard = Yard(tmp_path / "p", queue("q", 2))

    async def main(yard: Yard) -> Any:
        engine = yard.go(yard.engine(lambda order: 0.1))
        return yard.submit(engine, flow(step("a", tasks=500)))

    began = yard.clock.now()
    yard.play(main)
    with open_store(yard.where) as store:
        _, rows = store.series.between("q", began - 10, began + 60)
    assert 2 <= len(rows) <= 5


def test_without_queues_nothing_is_recorded(tmp_path: Path) -> None:
    yard = Yard(tmp_path / "p", cpu=4)

    async def main(yard: Yard) -> Any:
        return yard.submit(yard.go(yard.engine()), flow(step("a", tasks=10)))

    yard.play(main)
    with open_store(yard.where) as store:
        assert not [one for one in ("machine", "default", "q") if store.series.between(one, 0, 4e9)[1]]
