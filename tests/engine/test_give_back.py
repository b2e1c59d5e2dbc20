"""A loop that is preempted gives back only as much as is asked, the youngest tasks first, and goes on with the rest."""

from __future__ import annotations

import asyncio
import math
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.backends.base import AttemptSpec
from tests.engine.yard import CPU, Yard, flow, queue, step

WITHIN = {"preemption": {"withinClusterQueue": "LowerPriority"}}
RECLAIM = {"preemption": {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"}}


def lasting(**seconds: float) -> Any:
    def script(order: AttemptSpec) -> float:
        return seconds[order.step.name]

    return script


def stopped(yard: Yard, live: Any) -> list[str]:
    return [event.task for event in yard.events(live, "task.preempted")]


def test_a_loop_gives_back_only_what_is_asked(tmp_path: Path) -> None:
    yard = Yard(tmp_path / "p", queue("q", 8, **WITHIN))

    async def main(yard: Yard) -> Any:
        engine = yard.go(yard.engine(lasting(each=100.0, urgent=20.0)))
        low = yard.submit(engine, flow(step("each", tasks=8)), priority=1)
        await asyncio.sleep(10)
        return low, yard.submit(engine, flow(step("urgent", cpu=2)), priority=9)

    low, high = yard.play(main)
    assert (low.status, high.status) == ("succeeded", "succeeded")
    assert len(stopped(yard, low)) == 2
    assert [event.data["tasks"] for event in yard.events(low, "reservation.evicted")] == [2]
    assert yard.times(high.record.id, "urgent")[0][0] == pytest.approx(10, abs=0.5)
    again = [yard.times(low.record.id, task)[1][0] for task in stopped(yard, low)]
    assert again == [pytest.approx(30, abs=0.5)] * 2, "they start again when the other one ends, not before"
    assert yard.most["cpu"] == 8 * CPU and yard.left() == []


def test_the_youngest_tasks_are_stopped(tmp_path: Path) -> None:
    """Four run from the beginning, and four more since the step beside them ended."""
    yard = Yard(tmp_path / "p", queue("q", 8, **WITHIN))

    async def main(yard: Yard) -> Any:
        engine = yard.go(yard.engine(lasting(beside=5.0, each=100.0, urgent=20.0)))
        low = yard.submit(engine, flow(step("beside", cpu=4), step("each", tasks=8)), priority=1)
        await asyncio.sleep(10)
        return low, yard.submit(engine, flow(step("urgent", cpu=3)), priority=9)

    low, high = yard.play(main)
    assert (low.status, high.status) == ("succeeded", "succeeded")
    began = {f"each[{n}]": yard.times(low.record.id, f"each[{n}]")[0][0] for n in range(8)}
    assert sorted(began.values()) == [pytest.approx(0, abs=0.5)] * 4 + [pytest.approx(5, abs=0.5)] * 4
    assert len(stopped(yard, low)) == 3
    assert all(began[task] > 4 for task in stopped(yard, low))


def test_a_loop_of_another_engine_gives_back_what_it_borrowed(tmp_path: Path) -> None:
    yard = Yard(tmp_path / "p", queue("a", 4, "all", **RECLAIM) + queue("b", 4, "all", **RECLAIM))

    async def main(yard: Yard) -> Any:
        script = lasting(each=100.0, mine=20.0)
        first, second = yard.go(yard.engine(script)), yard.go(yard.engine(script))
        low = yard.submit(first, flow(step("each", tasks=8)), queue="a")
        await asyncio.sleep(10)
        return low, yard.submit(second, flow(step("mine", cpu=3)), queue="b")

    low, high = yard.play(main)
    assert (low.status, high.status) == ("succeeded", "succeeded")
    assert len(stopped(yard, low)) == 3
    assert yard.times(high.record.id, "mine")[0][0] == pytest.approx(10, abs=1.5)
    assert yard.most["cpu"] == 8 * CPU and yard.left() == []


def test_a_gang_is_stopped_as_a_whole(tmp_path: Path) -> None:
    yard = Yard(tmp_path / "p", queue("q", 8, **WITHIN))

    async def main(yard: Yard) -> Any:
        engine = yard.go(yard.engine(lasting(each=100.0, urgent=20.0)))
        low = yard.submit(engine, flow(step("each", tasks=8, gang=True)), priority=1)
        await asyncio.sleep(10)
        return low, yard.submit(engine, flow(step("urgent", cpu=2)), priority=9)

    low, high = yard.play(main)
    assert (low.status, high.status) == ("succeeded", "succeeded")
    assert len(stopped(yard, low)) == 8


@pytest.mark.long
@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    total=st.integers(4, 12),
    loops=st.lists(st.tuples(st.integers(1, 3), st.integers(2, 8), st.integers(1, 2)), min_size=1, max_size=3),
    asked=st.integers(1, 8),
    engines=st.integers(1, 2),
)
def test_no_more_tasks_are_stopped_than_are_needed(
    total: int, loops: list[tuple[int, int, int]], asked: int, engines: int
) -> None:
    """Loops of random sizes fill a queue; one step of a higher priority comes. Quota is never exceeded (the yard watches), it starts
    at once, no task of those stopped could have gone on, and each is stopped once."""
    asked = min(asked, total)
    with tempfile.TemporaryDirectory() as place:
        yard = Yard(Path(place) / "p", queue("q", total, **WITHIN))
        used: list[int] = []

        async def main(yard: Yard) -> Any:
            hosts = [yard.go(yard.engine(lasting(each=100.0, urgent=20.0))) for _ in range(engines)]
            lows = []
            for number, (cpu, tasks, replicas) in enumerate(loops):
                size = min(cpu, max(1, total // replicas))
                work = flow(step("each", cpu=size, tasks=tasks, replicas=replicas), name=f"w{number}")
                lows.append((yard.submit(hosts[number % engines], work, priority=1), size * replicas))
                await asyncio.sleep(2)
            await asyncio.sleep(10)
            used.append(yard.in_use()["cpu"] // CPU)
            return lows, yard.submit(hosts[-1], flow(step("urgent", cpu=asked), name="urgent"), priority=9)

        lows, high = yard.play(main)
        assert yard.most["cpu"] <= total * CPU and yard.left() == []
        assert all(live.status == "succeeded" for live, _ in lows) and high.status == "succeeded"
        assert yard.times(high.record.id, "urgent")[0][0] == pytest.approx(2 * len(loops) + 10, abs=1.5)
        lack = max(0, asked - (total - used[0]))
        gone = [(len(stopped(yard, live)), size) for live, size in lows]
        given_back = sum(tasks * size for tasks, size in gone)
        assert given_back >= lack
        for tasks, size in gone:
            assert not tasks or given_back - size < lack, "one task less would have done"
        if len(loops) == 1:
            assert gone[0][0] == math.ceil(lack / gone[0][1])
        for live, _ in lows:
            assert len(set(stopped(yard, live))) == len(stopped(yard, live)), "each at most once"
