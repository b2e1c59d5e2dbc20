"""Every run goes through the queues: gangs, loops that take what there is, units, places in line, preemption, several engines on
one store, engines that die. On the scripted backend and a clock that jumps.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.admission.model import Stop
from penstock.backends.base import AttemptSpec
from penstock.errors import PlanError
from penstock.graph.model import Cache, ForEach, Nested, Retry, Step, Unit, Workflow
from penstock.service.queues import set_stop
from tests.engine.yard import CPU, Yard, flow, queue, step

PREEMPTING = {"preemption": {"withinClusterQueue": "LowerPriority"}}

BUDGET = """---
apiVersion: kueue.x-k8s.io/v1beta2
kind: AdmissionCheck
metadata: {name: budget}
spec: {controllerName: ours/money}
"""


def lasting(**seconds: Any) -> Any:
    """How long tasks take, by step; 10 s if nothing is said."""
    return lambda order: seconds.get(order.step.name, 10.0)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / ".penstock"


@pytest.fixture(params=["sqlite", "postgresql"])
def where(request: pytest.FixtureRequest, place: Path) -> str:
    return str(place) if request.param == "sqlite" else str(request.getfixturevalue("postgres_url"))


def test_a_loop_takes_what_there_is_and_the_rest_keeps_its_place(place: Path) -> None:
    yard = Yard(place, cpu=4)

    async def main(yard: Yard) -> Any:
        return yard.submit(yard.go(yard.engine()), flow(step("a", tasks=10)))

    live = yard.play(main)
    assert live.status == "succeeded"
    assert yard.most == {"cpu": 4 * CPU}
    assert yard.clock.elapsed == pytest.approx(30, abs=1)
    waits = yard.events(live, "reservation.waiting")
    assert waits[0].data["reason"]["short"][0]["resource"] == "cpu"
    assert yard.left() == []


@pytest.mark.parametrize("cpu", [2, 3, 8])
@pytest.mark.parametrize("seconds", [[10.0], [10.0, 7.0], [3.0, 1.0, 2.0]])
def test_a_loop_that_may_run_two_at_a_time_always_does(place: Path, cpu: int, seconds: list[float]) -> None:
    """Its results may be known, so it looks at further tasks before it requests quota; those wait for no permit that it has."""
    yard = Yard(place, cpu=cpu)
    each = ForEach(axes=({"i": tuple(range(9))},), parallel=2)
    work = flow(replace(step("a", tasks=9, cache=Cache()), each=each), step("b", "a"))
    takes = [seconds[i % len(seconds)] for i in range(9)]

    async def main(yard: Yard) -> Any:
        length = lambda order: takes[order.inputs["i"]] if order.step.name == "a" else 1.0
        return yard.submit(yard.go(yard.engine(length)), work, fresh=False)

    live = yard.play(main)
    assert live.status == "succeeded"
    lanes = [0.0, 0.0]
    for one in takes:
        lanes.sort()
        lanes[0] += one
    assert yard.clock.elapsed == pytest.approx(max(lanes) + 1, abs=1)
    assert yard.events(live, "reservation.waiting") == []
    assert yard.left() == []


@pytest.mark.parametrize("unit", list(Unit))
def test_every_unit_runs_everything_and_never_takes_more_than_there_is(place: Path, unit: Unit) -> None:
    yard = Yard(place, cpu=8)
    work = flow(
        step("get", cpu=1),
        step("train", "get", cpu=2, tasks=4),
        step("score", "train", cpu=2, tasks=4),
        step("tell", "score", cpu=0),
    )

    async def main(yard: Yard) -> Any:
        engine = yard.go(yard.engine())
        return [yard.submit(engine, work, unit=str(unit)) for _ in range(3)]

    lives = yard.play(main)
    assert [live.status for live in lives] == ["succeeded"] * 3
    assert yard.most["cpu"] <= 8 * CPU
    assert len(yard.spans) == 3 * 10
    assert yard.left() == []


def test_a_gang_starts_together_or_not_at_all(place: Path) -> None:
    yard = Yard(place, cpu=4)

    async def main(yard: Yard) -> Any:
        engine = yard.go(yard.engine(lasting(one=10.0, gang=5.0)))
        yard.submit(engine, flow(step("one", cpu=2)))
        await asyncio.sleep(1)
        return yard.submit(engine, flow(step("gang", tasks=4, gang=True)), None)

    live = yard.play(main)
    starts = {start for task in range(4) for start, _ in yard.times(live.record.id, f"gang[{task}]")}
    assert len(starts) == 1 and min(starts) == pytest.approx(10, abs=0.5)


def test_replicas_are_admitted_together(place: Path) -> None:
    yard = Yard(place, cpu=5)

    async def main(yard: Yard) -> Any:
        return yard.submit(yard.go(yard.engine()), flow(step("train", tasks=3, replicas=2)))

    live = yard.play(main)
    assert live.status == "succeeded"
    assert yard.most == {"cpu": 4 * CPU}, "two tasks of two pods each: the fifth core is of no use"


def test_what_could_never_start_is_refused_with_the_numbers(place: Path) -> None:
    yard = Yard(place, queue("small", 4))

    async def main(yard: Yard) -> Any:
        engine = yard.go(yard.engine())
        with pytest.raises(PlanError, match=r"P818 big asks for 5 cpu, .*4 at most"):
            yard.submit(engine, flow(step("big", cpu=5)))
        with pytest.raises(PlanError, match=r"P818 .*6 cpu"):
            yard.submit(engine, flow(step("gang", tasks=6, gang=True)))
        with pytest.raises(PlanError, match=r"P812 there is no queue 'smal'.*small"):
            yard.submit(engine, flow(step("a")), queue="smal")
        with pytest.raises(PlanError, match=r"P814 there is no priority class 'urgent'"):
            yard.submit(engine, flow(step("a")), priority="urgent")
        return [yard.submit(engine, flow(step("loop", tasks=6)))]

    assert yard.play(main)[0].status == "succeeded"


def test_a_stage_keeps_the_place_of_its_run(place: Path) -> None:
    """The second stage of an older run goes before the first stage of a younger one."""
    yard = Yard(place, queue("q", 2, queueingStrategy="StrictFIFO"))

    async def main(yard: Yard) -> Any:
        engine = yard.go(yard.engine(lasting(first=10.0, second=10.0, other=10.0)))
        old = yard.submit(engine, flow(step("first", cpu=2), step("second", "first", cpu=2)))
        await asyncio.sleep(1)
        return old, yard.submit(engine, flow(step("other", cpu=2)))

    old, young = yard.play(main)
    assert yard.times(old.record.id, "second")[0][0] < yard.times(young.record.id, "other")[0][0]


def test_stages_stand_in_line_from_the_start_and_take_no_part_before_their_time(place: Path) -> None:
    yard = Yard(place, queue("q", 2, queueingStrategy="StrictFIFO"))

    async def main(yard: Yard) -> Any:
        engine = yard.go(yard.engine())
        live = yard.submit(
            engine, flow(step("a", cpu=2), step("b", "a", cpu=2), step("c", "b", cpu=2), step("d", "c", cpu=0))
        )
        await asyncio.sleep(1)
        before = {one.key.rpartition("/")[2]: one.state for one in engine.store.queues.workloads()}
        await asyncio.sleep(10)
        return live, before, {one.key.rpartition("/")[2]: one.state for one in engine.store.queues.workloads()}

    live, before, after = yard.play(main)
    assert before == {"a": "held", "b": "gated", "c": "gated"}
    assert after == {"b": "held", "c": "gated"}
    assert yard.left() == []
    assert live.status == "succeeded"


def test_a_preempted_task_is_stopped_and_queued_again_and_nothing_is_held_against_it(place: Path) -> None:
    yard = Yard(place, queue("q", 4, **PREEMPTING))

    async def main(yard: Yard) -> Any:
        engine = yard.go(yard.engine(lasting(quick=2.0, slow=30.0, urgent=5.0)))
        low = yard.submit(
            engine,
            flow(step("quick", tasks=4), step("slow", "quick", tasks=4, retry=Retry(limit=0), timeout=35.0)),
            priority=1,
        )
        await asyncio.sleep(10)
        return low, yard.submit(engine, flow(step("urgent", cpu=4)), priority=9)

    low, high = yard.play(main)
    assert (low.status, high.status) == ("succeeded", "succeeded")
    assert yard.times(high.record.id, "urgent")[0][0] == pytest.approx(10, abs=0.5)
    evicted = yard.events(low, "reservation.evicted")
    assert [event.data["reason"] for event in evicted] == ["InClusterQueue"]
    assert evicted[0].data["by"] == f"default/{high.record.id}/urgent"
    assert len(yard.events(low, "task.preempted")) == 4
    assert len(yard.times(low.record.id, "quick[0]")) == 1, "what was finished stays finished"
    for task in range(4):
        assert len(yard.times(low.record.id, f"slow[{task}]")) == 2
    assert not yard.events(low, "task.failed", "task.cancelled", "task.timeout")
    assert yard.most["cpu"] <= 4 * CPU


@pytest.mark.parametrize("unit", ["workflow", "stage", "task", "reuse"])
def test_preemption_with_every_unit(place: Path, unit: str) -> None:
    yard = Yard(place, queue("q", 4, **PREEMPTING))

    async def main(yard: Yard) -> Any:
        engine = yard.go(yard.engine(lasting(a=20.0, b=20.0, urgent=5.0)))
        low = yard.submit(engine, flow(step("a", tasks=4), step("b", "a", tasks=4)), unit=unit, priority=1)
        await asyncio.sleep(30)
        return low, yard.submit(engine, flow(step("urgent", cpu=2)), priority=9)

    low, high = yard.play(main)
    assert (low.status, high.status) == ("succeeded", "succeeded")
    assert yard.times(high.record.id, "urgent")[0][0] == pytest.approx(30, abs=0.5)
    assert yard.most["cpu"] <= 4 * CPU
    assert yard.left() == []


def test_quota_goes_back_as_the_peak_of_what_remains_falls(place: Path) -> None:
    """One reservation for the whole workflow: 4 while four run, 1 afterwards; so that the next run begins long before the end."""
    yard = Yard(place, queue("q", 5))

    async def main(yard: Yard) -> Any:
        engine = yard.go(yard.engine(lasting(wide=10.0, narrow=50.0, other=5.0)))
        first = yard.submit(engine, flow(step("wide", tasks=4), step("narrow", "wide")), unit="workflow")
        await asyncio.sleep(1)
        return first, yard.submit(engine, flow(step("other", cpu=4)))

    first, other = yard.play(main)
    assert yard.times(other.record.id, "other")[0][0] == pytest.approx(10, abs=0.5)
    assert yard.times(first.record.id, "narrow")[0][0] == pytest.approx(10, abs=0.5)
    assert yard.most["cpu"] <= 5 * CPU


def test_a_chain_inherits_its_machines(place: Path) -> None:
    """With unit reuse nobody gets between two stages with the same needs, not even somebody more important."""
    for unit, overtaken in (("reuse", False), ("stage", True)):
        yard = Yard(place.with_name(unit), queue("q", 4))

        async def main(yard: Yard, unit: str = unit) -> Any:
            engine = yard.go(yard.engine())
            chain = yard.submit(engine, flow(step("a", cpu=2, tasks=2), step("b", "a", cpu=2, tasks=2)), unit=unit)
            await asyncio.sleep(1)
            return chain, yard.submit(engine, flow(step("other", cpu=4)), priority=9)

        chain, other = yard.play(main)
        assert (chain.status, other.status) == ("succeeded", "succeeded")
        late = yard.times(chain.record.id, "b[0]")[0][0] > yard.times(other.record.id, "other")[0][0]
        assert late is overtaken
        assert yard.left() == []


def test_known_results_wait_for_nobody(place: Path) -> None:
    yard = Yard(place, cpu=4)

    async def main(yard: Yard) -> Any:
        engine = yard.go(yard.engine(lasting(hog=1000.0)))
        work = flow(step("a", tasks=3, cache=Cache()), step("b", "a", cache=Cache()))
        first = yard.submit(engine, work, fresh=False)
        while first.status == "running":
            await asyncio.sleep(1)
        yard.submit(engine, flow(step("hog", cpu=4), name="hog"))
        await asyncio.sleep(1)
        began = yard.clock.elapsed
        again = yard.submit(engine, work, fresh=False)
        while again.status == "running":
            await asyncio.sleep(1)
        return again, yard.clock.elapsed - began

    again, seconds = yard.play(main)
    assert again.status == "succeeded" and seconds < 5
    assert again.counts == {"reused": 4}


def test_a_queue_is_drained_and_goes_on(place: Path) -> None:
    yard = Yard(place, queue("q", 4))

    async def main(yard: Yard) -> Any:
        engine = yard.go(yard.engine())
        live = yard.submit(engine, flow(step("a", tasks=8), step("free", cpu=0)))
        await asyncio.sleep(5)
        set_stop(engine.store, "q", Stop.DRAIN)
        engine.peers.poll()
        await asyncio.sleep(60)
        assert not yard.running
        set_stop(engine.store, "q", Stop.NONE)
        engine.peers.poll()
        return live

    live = yard.play(main)
    assert live.status == "succeeded"
    assert [event.data["reason"] for event in yard.events(live, "reservation.evicted")] == ["ClusterQueueStopped"]
    assert yard.clock.elapsed == pytest.approx(85, abs=2)


def test_held_queue_lets_what_runs_finish(place: Path) -> None:
    yard = Yard(place, queue("q", 4))

    async def main(yard: Yard) -> Any:
        engine = yard.go(yard.engine())
        live = yard.submit(engine, flow(step("a", tasks=8)))
        await asyncio.sleep(5)
        set_stop(engine.store, "q", Stop.HOLD)
        engine.peers.poll()
        await asyncio.sleep(60)
        assert not yard.running and len(yard.spans) == 4
        late = yard.submit(engine, flow(step("free", cpu=0)))
        await asyncio.sleep(60)
        assert late.status == "running", "a stopped queue holds what needs nothing, too"
        set_stop(engine.store, "q", Stop.NONE)
        engine.peers.poll()
        return live, late

    assert [live.status for live in yard.play(main)] == ["succeeded"] * 2


def test_engines_share_one_quota(place: Path, where: str) -> None:
    yard = Yard(place, queue("q", 4), store=where)

    async def main(yard: Yard) -> Any:
        engines = [yard.go(yard.engine()) for _ in range(3)]
        lives = []
        for number, engine in enumerate(engines):
            lives.append(yard.submit(engine, flow(step("a", tasks=6), step("b", "a", cpu=4), name=f"w{number}")))
            await asyncio.sleep(0.5)
        return lives

    lives = yard.play(main)
    assert [live.status for live in lives] == ["succeeded"] * 3
    assert yard.most == {"cpu": 4 * CPU}
    assert yard.left() == []


def test_an_engine_preempts_for_another(place: Path, where: str) -> None:
    yard = Yard(place, queue("q", 4, **PREEMPTING), store=where)

    async def main(yard: Yard) -> Any:
        one, two = (yard.go(yard.engine(lasting(slow=100.0, urgent=5.0))) for _ in range(2))
        low = yard.submit(one, flow(step("slow", tasks=4), name="low"), priority=1)
        await asyncio.sleep(10)
        high = yard.submit(two, flow(step("urgent", cpu=2), name="high"), priority=9)
        return low, high

    low, high = yard.play(main)
    assert (low.status, high.status) == ("succeeded", "succeeded")
    assert yard.times(high.record.id, "urgent")[0][0] == pytest.approx(10.4, abs=1)
    assert yard.most["cpu"] <= 4 * CPU


def test_what_a_dead_engine_held_is_free_for_others(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    yard = Yard(place, queue("q", 4))
    dead: set[str] = set()

    async def main(yard: Yard) -> Any:
        one, two = (yard.go(yard.engine(lasting(slow=1000.0))) for _ in range(2))
        monkeypatch.setattr("penstock.store.liveness.alive", lambda engine: engine.id not in dead)
        yard.submit(one, flow(step("slow", cpu=4), name="dying"))
        await asyncio.sleep(1)
        live = yard.submit(two, flow(step("a"), name="waiting"))
        await asyncio.sleep(5)
        assert live.counts == {}
        dead.add(one.me.id)
        await yard.die(one)
        return live

    live = yard.play(main)
    assert live.status == "succeeded"
    assert yard.clock.elapsed < 60


def test_a_run_that_is_taken_up_again_queues_again(place: Path) -> None:
    yard = Yard(place, queue("q", 2))

    async def main(yard: Yard) -> Any:
        one = yard.go(yard.engine())
        live = yard.submit(one, flow(step("a", tasks=6), step("b", "a", cpu=2)))
        await asyncio.sleep(15)
        one.interrupt()
        await yard.tasks[0]
        await one.close()
        yard.closed.add(one)
        assert yard.left() == []
        two = yard.go(yard.engine())
        run = two.store.runs.by_id(live.record.id)
        assert run is not None
        from penstock.service.runs import blueprint_of, own

        return two.adopt(own(two.store, two.me.id, run), blueprint_of(two.store, run), run.params)

    live = yard.play(main)
    assert live.status == "succeeded"
    assert sum(1 for id, *_ in yard.spans if "/a[" in id) == 6


def test_time_limits_begin_when_a_task_is_admitted(place: Path) -> None:
    yard = Yard(place, queue("q", 2))

    async def main(yard: Yard) -> Any:
        engine = yard.go(yard.engine(lasting(hog=100.0, a=10.0)))
        yard.submit(engine, flow(step("hog", cpu=2)))
        await asyncio.sleep(1)
        called = Step(name="called", action=Nested(name="inner"), timeout=15.0)
        inner = Workflow(name="inner", steps=(step("b"),))
        alone = yard.submit(engine, flow(step("a", timeout=15.0), timeout=20.0))
        return alone, yard.submit(engine, flow(called, definitions=(inner,)))

    for live in yard.play(main):
        assert live.status == "succeeded", live.why


def test_time_limits_hold_once_they_have_begun(place: Path) -> None:
    yard = Yard(place, queue("q", 2))

    async def main(yard: Yard) -> Any:
        engine = yard.go(yard.engine(lasting(hog=20.0, b=60.0)))
        yard.submit(engine, flow(step("hog", cpu=2)))
        await asyncio.sleep(1)
        called = Step(name="called", action=Nested(name="inner"), timeout=15.0)
        return yard.submit(engine, flow(called, definitions=(Workflow(name="inner", steps=(step("b"),)),)))

    live = yard.play(main)
    assert live.status == "failed" and "timed out after 15 s" in live.why
    assert yard.clock.elapsed == pytest.approx(35, abs=1)


def test_a_cancelled_run_leaves_the_line(place: Path) -> None:
    yard = Yard(place, queue("q", 2, queueingStrategy="StrictFIFO"))

    async def main(yard: Yard) -> Any:
        engine = yard.go(yard.engine(lasting(hog=50.0)))
        yard.submit(engine, flow(step("hog", cpu=2)))
        await asyncio.sleep(1)
        gone = yard.submit(engine, flow(step("a", cpu=2)))
        await asyncio.sleep(1)
        engine.cancel(gone, "enough", False)
        engine.inbox.wake()
        await asyncio.sleep(1)
        assert gone.status == "cancelled" and len(yard.left()) == 1
        return gone

    yard.play(main)
    assert yard.left() == []


def test_exit_handlers_never_queue(place: Path) -> None:
    yard = Yard(place, queue("q", 2))

    async def main(yard: Yard) -> Any:
        engine = yard.go(yard.engine(lasting(hog=100.0, a=1.0, clean=1.0)))
        live = yard.submit(engine, flow(step("a"), on_exit=(step("clean", cpu=2),)))
        await asyncio.sleep(0.5)
        yard.submit(engine, flow(step("hog")))
        while live.status == "running":
            await asyncio.sleep(1)
        return yard.clock.elapsed

    assert yard.play(main) < 10


def test_steps_of_a_group_are_admitted_together(place: Path) -> None:
    yard = Yard(place, queue("q", 4))

    async def main(yard: Yard) -> Any:
        engine = yard.go(yard.engine(lasting(hog=10.0)))
        yard.submit(engine, flow(step("hog", cpu=2)))
        await asyncio.sleep(1)
        return yard.submit(engine, flow(step("a", cpu=1, group="g"), step("b", cpu=2, group="g")))

    live = yard.play(main)
    assert {yard.times(live.record.id, name)[0][0] for name in "ab"} == {yard.times(live.record.id, "a")[0][0]}
    assert yard.times(live.record.id, "a")[0][0] == pytest.approx(10, abs=0.5)


def test_a_failing_task_is_tried_again_on_the_quota_it_has(place: Path) -> None:
    yard = Yard(place, queue("q", 1))
    tries: list[str] = []

    def script(order: AttemptSpec) -> Any:
        tries.append(order.step.name)
        return (5.0, RuntimeError("no")) if order.step.name == "a" and tries.count("a") < 3 else 5.0

    async def main(yard: Yard) -> Any:
        engine = yard.go(yard.engine(script))
        first = yard.submit(engine, flow(step("a", retry=Retry(limit=2))))
        await asyncio.sleep(1)
        return first, yard.submit(engine, flow(step("b")))

    first, _ = yard.play(main)
    assert first.status == "succeeded"
    assert tries == ["a", "a", "a", "b"]


def test_the_same_work_in_two_runs_is_done_once_on_one_quota(place: Path) -> None:
    yard = Yard(place, queue("q", 2))

    async def main(yard: Yard) -> Any:
        one, two = (yard.go(yard.engine()) for _ in range(2))
        work = flow(step("a", cpu=2, cache=Cache()), step("b", "a", cpu=2, cache=Cache()))
        return [
            yard.submit(one, work, fresh=False),
            yard.submit(one, work, fresh=False),
            yard.submit(two, work, fresh=False),
        ]

    lives = yard.play(main)
    assert [live.status for live in lives] == ["succeeded"] * 3
    assert len(yard.spans) == 2
    assert yard.clock.elapsed == pytest.approx(20, abs=3)
    assert yard.left() == []


@pytest.mark.parametrize("unit", ["stage", "reuse"])
def test_a_loop_that_reclaims_a_part_gets_that_part(place: Path, unit: str) -> None:
    """It asks for everything again when its victims have gone; they must not be let in again before it, and so on without end."""
    reclaiming = {"preemption": {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}}
    yard = Yard(place, queue("a", 4, "all", **reclaiming) + queue("b", 2, "all", **reclaiming))

    async def main(yard: Yard) -> Any:
        engine = yard.go(yard.engine(lasting(long=100.0, short=10.0)))
        old = yard.submit(engine, flow(step("long", cpu=2, tasks=9)), queue="b", unit=unit)
        await asyncio.sleep(5)
        return old, yard.submit(engine, flow(step("short", cpu=3, tasks=2)), queue="a", unit=unit)

    old, new = yard.play(main)
    assert (old.status, new.status) == ("succeeded", "succeeded")
    assert yard.times(new.record.id, "short[0]")[0][0] == pytest.approx(5, abs=2)
    assert len(yard.events(old, "reservation.evicted")) <= 4


def test_with_unit_task_a_later_run_does_not_overtake_a_large_loop(place: Path) -> None:
    yard = Yard(place, queue("q", 100))

    async def main(yard: Yard) -> Any:
        engine = yard.go(yard.engine())
        return [yard.submit(engine, flow(step("a", tasks=200)), unit="task") for _ in range(2)]

    first, second = yard.play(main)
    ends = [max(end for id, _, end, _ in yard.spans if id.startswith(live.record.id)) for live in (first, second)]
    assert ends == [pytest.approx(20, abs=0.5), pytest.approx(40, abs=0.5)]


def test_a_group_is_one_reservation_with_unit_reuse_too(place: Path) -> None:
    yard = Yard(place, queue("q", 4))

    async def main(yard: Yard) -> Any:
        engine = yard.go(yard.engine(lasting(hog=10.0)))
        yard.submit(engine, flow(step("hog", cpu=2)))
        await asyncio.sleep(1)
        return yard.submit(engine, flow(step("a", cpu=1, group="g"), step("b", cpu=2, group="g")), unit="reuse")

    live = yard.play(main)
    assert [yard.times(live.record.id, name)[0][0] for name in "ab"] == [pytest.approx(10, abs=0.5)] * 2


def test_an_engine_that_is_stopping_gives_back_what_ends_and_leaves_the_line(place: Path) -> None:
    yard = Yard(place, queue("q", 2))

    async def main(yard: Yard) -> Any:
        one, two = (yard.go(yard.engine(lasting(short=5.0, long=60.0, other=5.0))) for _ in range(2))
        yard.submit(one, flow(step("short"), step("long"), step("more", tasks=4)))
        await asyncio.sleep(1)
        other = yard.submit(two, flow(step("other")))
        one.interrupt()
        while other.status == "running":
            await asyncio.sleep(1)
        return yard.clock.elapsed

    assert yard.play(main) < 15


def test_a_drained_queue_does_not_hold_what_goes_to_no_queue(place: Path) -> None:
    yard = Yard(place, queue("red", 2) + queue("blue", 2))

    async def main(yard: Yard) -> Any:
        engine = yard.go(yard.engine())
        set_stop(engine.store, "red", Stop.DRAIN)
        await asyncio.sleep(1)
        return yard.submit(engine, flow(step("free", cpu=0)))

    assert yard.play(main).status == "succeeded"
    assert yard.clock.elapsed < 20


def test_a_priority_class_alone_leaves_the_machine_as_it_is(place: Path) -> None:
    manifest = """---
apiVersion: kueue.x-k8s.io/v1beta2
kind: WorkloadPriorityClass
metadata: {name: urgent}
value: 100
"""
    yard = Yard(place, manifest, cpu=2)

    async def main(yard: Yard) -> Any:
        engine = yard.go(yard.engine())
        yard.submit(engine, flow(step("hog", cpu=2)))
        await asyncio.sleep(1)
        late = yard.submit(engine, flow(step("late", cpu=2)))
        return late, yard.submit(engine, flow(step("first", cpu=2)), priority="urgent")

    late, urgent = yard.play(main)
    assert yard.times(urgent.record.id, "first")[0][0] < yard.times(late.record.id, "late")[0][0]


def test_a_step_may_have_a_queue_and_a_priority_of_its_own(place: Path) -> None:
    yard = Yard(place, queue("small", 1) + queue("large", 8))

    async def main(yard: Yard) -> Any:
        engine = yard.go(yard.engine())
        return yard.submit(engine, flow(step("a", tasks=3), step("b", tasks=8, queue="large"), queue="small"))

    live = yard.play(main)
    assert live.status == "succeeded"
    assert len({start for task in range(8) for start, _ in yard.times(live.record.id, f"b[{task}]")}) == 1
    assert len({start for task in range(3) for start, _ in yard.times(live.record.id, f"a[{task}]")}) == 3
    queues = {event.task: event.data["queue"] for event in yard.events(live, "reservation.admitted")}
    assert queues == {"a": "small", "b": "large"}


def test_an_admission_check_that_raises_is_recorded_and_shown(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked again, and meanwhile everybody can see what went wrong."""
    from penstock.engine import checks as module

    broken = [True]

    class Point:
        def load(self) -> Any:
            def check(workload: Any) -> str:
                if broken[0]:
                    raise ValueError("the budget service is down")
                return "Ready"

            return check

    monkeypatch.setattr(module, "registered_checks", lambda: {"budget": Point()})
    checks = {"admissionChecksStrategy": {"admissionChecks": [{"name": "budget"}]}}
    yard = Yard(place, BUDGET + queue("q", 2, **checks))

    async def main(yard: Yard) -> Any:
        engine = yard.go(yard.engine())
        live = yard.submit(engine, flow(step("a")))
        await asyncio.sleep(30)
        waits = yard.events(live, "reservation.waiting")
        assert "ValueError: the budget service is down" in json.dumps(waits[-1].data)
        (left,) = engine.store.queues.workloads()
        assert "the budget service is down" in left.document
        broken[0] = False
        return live

    live = yard.play(main)
    assert live.status == "succeeded"


def test_admission_checks_are_functions(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Quota is held while a check is pending, and tasks start when it says that it is ready."""
    from penstock.engine import checks as module

    answers = {"budget": "Pending"}

    class Point:
        def load(self) -> Any:
            return lambda workload: answers["budget"]

    monkeypatch.setattr(module, "registered_checks", lambda: {"budget": Point()})
    checks = {"admissionChecksStrategy": {"admissionChecks": [{"name": "budget"}]}}
    yard = Yard(place, BUDGET + queue("q", 2, **checks))

    async def main(yard: Yard) -> Any:
        engine = yard.go(yard.engine())
        live = yard.submit(engine, flow(step("a")))
        await asyncio.sleep(30)
        assert not yard.running and engine.admission.replica.scheduler.tree.queues["q"].usage
        answers["budget"] = "Ready"
        return live

    live = yard.play(main)
    assert live.status == "succeeded"
    assert 29 <= yard.times(live.record.id, "a")[0][0] < 45


@pytest.mark.parametrize("unit", ["stage", "task", "reuse"])
def test_a_group_larger_than_what_there_is_goes_through_bit_by_bit(place: Path, unit: str) -> None:
    yard = Yard(place, queue("q", 2))

    async def main(yard: Yard) -> Any:
        members = [step(f"s{number}", group="g") for number in range(7)]
        return yard.submit(
            yard.go(yard.engine()), flow(*members, step("join", *(one.name for one in members))), unit=unit
        )

    live = yard.play(main)
    assert live.status == "succeeded"
    assert yard.clock.elapsed == pytest.approx(50, abs=1)
