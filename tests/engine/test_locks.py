"""What is locked runs one at a time, or as many as may: over runs, over engines, through crashes, cancellation and retries. On the
scripted backend and a clock that jumps.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from penstock.backends.base import AttemptSpec
from penstock.engine.active_run import ActiveRun
from penstock.engine.blueprint import blueprints
from penstock.engine.engine import Engine
from penstock.expressions.parse import Expr
from penstock.expressions.template import parse_template
from penstock.graph.links import links_of
from penstock.graph.model import Cache, Edge, ForEach, Input, Lock, Nested, Outcome, Parameter, Retry, Step, Workflow
from penstock.service.runs import own
from tests.engine.yard import CPU, Yard, flow, queue, step

ROUNDS = int(os.environ.get("PENSTOCK_LOCK_ROUNDS", "40"))
SEED = int(os.environ.get("PENSTOCK_SEED", "0"))
M = (Lock(name="m"),)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / ".penstock"


@pytest.fixture(params=["sqlite", "postgresql"])
def where(request: pytest.FixtureRequest, place: Path) -> str:
    return str(place) if request.param == "sqlite" else str(request.getfixturevalue("postgres_url"))


def locked(name: str = "a", *needs: str, locks: tuple[Lock, ...] = M, **fields: Any) -> Step:
    return step(name, *needs, cpu=fields.pop("cpu", 0), locks=locks, **fields)


def together(yard: Yard, *tasks: str) -> int:
    """How many of the tasks whose paths begin so have run at the same time."""
    spans = [(start, end) for id, start, end, _ in yard.spans if id.split("/", 1)[1].startswith(tasks or ("",))]
    return max(sum(start <= at < end for start, end in spans) for at, _ in spans)


def adopt(engine: Engine, live: ActiveRun, workflow: Workflow) -> ActiveRun:
    """As another engine takes a run over whose own is gone."""
    run = engine.store.runs.by_number(live.number)
    assert run is not None
    engine.peers.reap({run.engine or ""})
    return engine.adopt(own(engine.store, engine.me.id, run), blueprints(workflow, links_of(workflow)), run.params)


def test_a_mutex_is_held_by_one_task_at_a_time_over_runs_and_engines(place: Path, where: str) -> None:
    yard = Yard(place, store=where)

    async def main(yard: Yard) -> Any:
        engines = [yard.go(yard.engine()) for _ in range(2)]
        return [yard.submit(engines[number % 2], flow(locked(), step("free", cpu=0))) for number in range(4)]

    lives = yard.play(main)
    assert [live.status for live in lives] == ["succeeded"] * 4
    assert together(yard, "a/") == 1
    assert together(yard, "free/") == 4
    starts = [yard.times(live.record.id, "a")[0][0] for live in lives]
    assert starts == sorted(starts), "the oldest run first"
    assert yard.clock.elapsed < 45, "no time is lost between them"


def test_why_a_task_waits_is_written_down(place: Path) -> None:
    yard = Yard(place)

    async def main(yard: Yard) -> Any:
        engine = yard.go(yard.engine())
        first = yard.submit(engine, flow(locked()))
        await asyncio.sleep(1)
        second = yard.submit(engine, flow(locked("b")))
        await asyncio.sleep(1)
        row = engine.store.runs.task(second.number, "b")
        assert row is not None
        return first, second, row

    first, second, row = yard.play(main)
    assert row.state == "waiting"
    assert row.info["reason"] == {
        "why": "lock",
        "lock": "m",
        "limit": 1,
        "of": "b",
        "holders": [{"run": first.record.id, "task": "a"}],
    }
    assert [event.kind for event in yard.events(second, "task.waiting", "task.started", "task.succeeded")] == [
        "task.waiting",
        "task.started",
        "task.succeeded",
    ]
    assert not yard.events(first, "task.waiting"), "who gets it at once has not waited"


def test_a_semaphore_is_held_by_so_many(place: Path) -> None:
    yard = Yard(place)
    work = flow(locked(tasks=7, locks=(Lock(name="s", limit=3),)))

    async def main(yard: Yard) -> Any:
        return yard.submit(yard.go(yard.engine()), work)

    assert yard.play(main).status == "succeeded"
    assert together(yard) == 3
    assert yard.clock.elapsed == pytest.approx(30, abs=1)


def test_the_name_of_a_lock_may_hang_on_what_the_task_is_given(place: Path) -> None:
    yard = Yard(place)
    each = ForEach(axes=({"i": ("x", "y", "x", "y")},))
    name = parse_template("l-${{ inputs.i }}-${{ params.p }}-${{ run.id }}")
    inputs = (Input(name="i", value=Expr.of("item.i")),)
    one = Step(
        name="a",
        action=step("a").action,
        each=each,
        inputs=inputs,
        locks=(Lock(name=name),),
        cache=Cache(enabled=False),
    )
    work = flow(one, params=(Parameter(name="p", default="q"),))

    async def main(yard: Yard) -> Any:
        return yard.submit(yard.go(yard.engine()), work)

    assert yard.play(main).status == "succeeded"
    assert together(yard) == 2
    assert together(yard, "a[0]", "a[2]") == 1


def test_a_lock_without_a_name_is_an_error_of_the_task(place: Path) -> None:
    yard = Yard(place)
    work = flow(locked(locks=(Lock(name=Expr.of("'' + ''")),)), step("b", cpu=0))

    async def main(yard: Yard) -> Any:
        return yard.submit(yard.go(yard.engine()), work)

    live = yard.play(main)
    assert live.status == "failed"
    assert "a lock has no name" in live.why


def test_two_locks_in_opposite_order_are_no_deadlock(place: Path, where: str) -> None:
    yard = Yard(place, store=where)
    one, two = Lock(name="k"), Lock(name="l")

    async def main(yard: Yard) -> Any:
        engines = [yard.go(yard.engine()) for _ in range(2)]
        return [
            yard.submit(engines[number % 2], flow(locked(tasks=3, locks=(one, two) if number % 2 else (two, one))))
            for number in range(4)
        ]

    lives = yard.play(main)
    assert [live.status for live in lives] == ["succeeded"] * 4
    assert together(yard) == 1


def test_a_run_holds_its_locks_from_its_first_task_to_its_last(place: Path, where: str) -> None:
    yard = Yard(place, store=where)
    work = flow(step("a", cpu=0), step("b", "a", cpu=0), locks=M, on_exit=(step("z", cpu=0),))

    async def main(yard: Yard) -> Any:
        engines = [yard.go(yard.engine()) for _ in range(2)]
        lives = [yard.submit(engines[number % 2], work) for number in range(3)]
        await asyncio.sleep(1)
        row = engines[1].store.runs.task(lives[1].number, "a")
        assert row is not None and row.info["reason"]["of"] == "" and row.info["reason"]["lock"] == "m"
        return lives

    lives = yard.play(main)
    assert [live.status for live in lives] == ["succeeded"] * 3
    assert together(yard) == 1
    order = [id.split("/")[0] for id, *_ in sorted(yard.spans, key=lambda span: span[1])]
    assert order == [live.record.id for live in lives for _ in range(3)]
    (waited,) = yard.events(lives[1], "run.waiting")
    assert waited.data["reason"]["holders"] == [{"run": lives[0].record.id, "task": ""}]
    assert yard.events(lives[1], "run.entered")


def calling(name: str = "call", *needs: str, **fields: Any) -> Step:
    return Step(name=name, action=Nested(name="inner"), needs=tuple(Edge(up) for up in needs), **fields)


INNER = Workflow(name="inner", steps=(step("x", cpu=0), step("y", "x", cpu=0)))


@pytest.mark.parametrize("how", ["step", "definition"])
def test_a_called_workflow_holds_its_locks_while_it_runs(place: Path, how: str) -> None:
    yard = Yard(place)
    inner = INNER if how == "step" else Workflow(name="inner", steps=INNER.steps, locks=M)
    call = calling(locks=M if how == "step" else (), each=ForEach(axes=({"i": (1, 2, 3)},)))
    work = flow(call, step("free", cpu=0), definitions=(inner,))

    async def main(yard: Yard) -> Any:
        engine = yard.go(yard.engine())
        live = yard.submit(engine, work)
        await asyncio.sleep(1)
        rows = {row.task: row.state for row in engine.store.runs.tasks(live.number)}
        return live, rows

    live, rows = yard.play(main)
    assert live.status == "succeeded"
    assert together(yard, "call") == 1
    ran = [id.split("/")[1] for id, *_ in sorted(yard.spans, key=lambda span: span[1]) if "call" in id]
    assert ran == ["call[0]"] * 2 + ["call[1]"] * 2 + ["call[2]"] * 2
    assert (rows["call[0]"], rows["call[1]"], rows["call[1]/x"]) == ("running", "waiting", "waiting")


def test_inside_of_what_holds_a_lock_its_name_is_free_and_still_excludes(place: Path) -> None:
    yard = Yard(place)
    inner = Workflow(name="inner", steps=(locked("x", tasks=2), locked("y")))
    work = flow(calling(locks=M), locks=M, definitions=(inner,))

    async def main(yard: Yard) -> Any:
        engine = yard.go(yard.engine())
        return [yard.submit(engine, work) for _ in range(2)]

    lives = yard.play(main)
    assert [live.status for live in lives] == ["succeeded"] * 2
    assert together(yard) == 1


def test_a_task_keeps_its_lock_while_it_is_tried_again(place: Path) -> None:
    yard = Yard(place)
    failed: list[str] = []

    def script(order: AttemptSpec) -> Any:
        if order.step.name == "a" and not failed:
            failed.append(order.id)
            return 1.0, Outcome.FAILED
        return 5.0

    async def main(yard: Yard) -> Any:
        engine = yard.go(yard.engine(script))
        first = yard.submit(engine, flow(locked(retry=Retry(limit=1))))
        await asyncio.sleep(0.5)
        return first, yard.submit(engine, flow(locked("b")))

    first, second = yard.play(main)
    assert (first.status, second.status) == ("succeeded", "succeeded")
    assert yard.times(second.record.id, "b")[0][0] >= yard.times(first.record.id, "a")[1][1]


def test_a_run_that_is_cancelled_lets_go_and_does_not_wait_any_more(place: Path, where: str) -> None:
    yard = Yard(place, store=where)
    work = flow(locked(), on_exit=(step("z", cpu=0),))

    async def main(yard: Yard) -> Any:
        engines = [yard.go(yard.engine()) for _ in range(2)]
        lives = [yard.submit(engines[number % 2], work) for number in range(4)]
        await asyncio.sleep(2)
        for number in (1, 0):  # one that waits, one that runs
            engines[number].cancel(lives[number], "enough", False)
            engines[number].inbox.wake()
        return lives

    lives = yard.play(main)
    assert [live.status for live in lives] == ["cancelled", "cancelled", "succeeded", "succeeded"]
    assert not yard.times(lives[1].record.id, "a")
    assert all(yard.times(live.record.id, "z") for live in lives), "clean-up waits for no lock"
    assert yard.clock.elapsed < 45


def test_a_run_that_waits_for_its_own_lock_and_is_cancelled_cleans_up(place: Path) -> None:
    yard = Yard(place)
    work = flow(step("a", cpu=0), locks=M, on_exit=(step("z", cpu=0),))

    async def main(yard: Yard) -> Any:
        engine = yard.go(yard.engine())
        lives = [yard.submit(engine, work) for _ in range(3)]
        await asyncio.sleep(1)
        engine.cancel(lives[1], "enough", False)
        engine.inbox.wake()
        return lives

    lives = yard.play(main)
    assert [live.status for live in lives] == ["succeeded", "cancelled", "succeeded"]
    assert yard.times(lives[1].record.id, "z")[0][0] < 2
    assert not yard.times(lives[1].record.id, "a")


def test_the_locks_of_an_engine_that_dies_are_free_and_its_runs_ask_again(place: Path, where: str) -> None:
    yard = Yard(place, store=where)
    work = flow(locked("a"), locked("b", "a"), locks=(Lock(name="r"),))
    other = flow(locked("a"), locks=(Lock(name="r"),))

    async def main(yard: Yard) -> Any:
        doomed, alive = yard.go(yard.engine()), yard.go(yard.engine())
        first = yard.submit(doomed, work)
        await asyncio.sleep(12)  # a has ended, b runs
        second = yard.submit(alive, other)
        await asyncio.sleep(2)
        await yard.die(doomed)
        alive.peers.dead = lambda: {doomed.me.id}  # type: ignore[method-assign]
        await asyncio.sleep(2)
        alive.peers.dead = set  # type: ignore[method-assign]
        third = adopt(alive, first, work)
        return second, third

    second, third = yard.play(main)
    assert (second.status, third.status) == ("succeeded", "succeeded")
    (one,) = yard.times(second.record.id, "a")
    attempts = yard.times(third.record.id, "b")
    assert len(attempts) == 2 and attempts[1][0] >= one[1], "it came back too late, and waits again"
    assert len(yard.times(third.record.id, "a")) == 1


def test_who_waits_for_a_lock_holds_no_machines_and_no_place_among_those_that_run(place: Path) -> None:
    yard = Yard(place, cpu=2)
    inner = Workflow(name="inner", steps=(step("x", cpu=1), step("y", "x", cpu=1)), locks=M)
    work = flow(
        calling(),
        locked("wants", cpu=1, tasks=4),
        step("late", cpu=1),
        parallel=1,
        definitions=(inner,),
    )

    async def main(yard: Yard) -> Any:
        engine = yard.go(yard.engine())
        return [yard.submit(engine, work) for _ in range(2)]

    lives = yard.play(main)
    assert [live.status for live in lives] == ["succeeded"] * 2
    assert yard.most["cpu"] <= 2 * CPU
    for live in lives:
        spans = [(start, end) for id, start, end, _ in yard.spans if id.startswith(live.record.id + "/")]
        assert max(sum(start <= at < end for start, end in spans) for at, _ in spans) == 1
    assert yard.left() == []


def test_nobody_is_preempted_for_a_task_that_waits_for_a_lock(place: Path) -> None:
    yard = Yard(place, queue("q", 2, preemption={"withinClusterQueue": "LowerPriority"}))

    async def main(yard: Yard) -> Any:
        engine = yard.go(yard.engine(lambda order: 30.0 if order.step.name == "holder" else 10.0))
        lives = [yard.submit(engine, flow(locked("holder", cpu=1)), queue="q", priority=9)]
        await asyncio.sleep(1)
        lives.append(yard.submit(engine, flow(step("low", cpu=1)), queue="q"))
        await asyncio.sleep(1)
        lives.append(yard.submit(engine, flow(locked("high", cpu=1)), queue="q", priority=5))
        return lives

    lives = yard.play(main)
    assert [live.status for live in lives] == ["succeeded"] * 3
    assert len(yard.times(lives[1].record.id, "low")) == 1
    assert yard.times(lives[2].record.id, "high")[0][0] >= 29.9


# -- whatever happens ---------------------------------------------------------------------------------------------------

NAMES = {"k": 1, "l": 1, "m": 2}


def some(chance: random.Random, most: int = 2) -> tuple[Lock, ...]:
    return tuple(Lock(name=name, limit=NAMES[name]) for name in chance.sample(sorted(NAMES), chance.randint(0, most)))


def work(chance: random.Random, name: str) -> Workflow:
    """Calls lock nothing that tasks in them, or other calls, could wait for: that would be a deadlock of the author's."""
    steps: list[Step] = []
    definitions = []
    for number in range(chance.randint(1, 4)):
        ups = chance.sample([one.name for one in steps], min(len(steps), chance.randint(0, 1)))
        cpu = chance.choice((0, 1, 2))
        if chance.random() < 0.3:
            inner = f"d{number}"
            definitions.append(
                Workflow(name=inner, steps=(step("x", cpu=cpu), step("y", "x", cpu=0)), locks=some(chance, 1))
            )
            steps.append(Step(name=f"s{number}", action=Nested(name=inner), needs=tuple(Edge(up) for up in ups)))
            continue
        retry = Retry(limit=2) if chance.random() < 0.3 else None
        steps.append(step(f"s{number}", *ups, cpu=cpu, tasks=chance.choice((0, 0, 3)), locks=some(chance), retry=retry))
    root = (Lock(name="root"),) if chance.random() < 0.2 else ()
    return flow(
        *steps, name=name, definitions=tuple(definitions), locks=root, parallel=chance.choice((None, None, 1, 2))
    )


@pytest.mark.parametrize("seed", range(SEED, SEED + ROUNDS))
def test_whatever_happens(seed: int, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    chance = random.Random(seed)
    store = str(request.getfixturevalue("postgres_url")) if seed % 10 == 9 else ""
    yard = Yard(tmp_path / "p", queue("q", 4, preemption={"withinClusterQueue": "LowerPriority"}), store=store)
    graphs: dict[str, Workflow] = {}

    def watch(yard: Yard) -> None:
        used: Counter[str] = Counter()
        for id, (run, _) in yard.running.items():
            task = id[len(run) + 1 :].rpartition("/")[0]
            name = task.partition("/")[0].partition("[")[0]
            graph = graphs[run]
            one = next(one for one in graph.steps if one.name == name)
            if isinstance(one.action, Nested):
                inner = next(each for each in graph.definitions if each.name == one.action.name)
                locks = inner.locks
            else:
                locks = one.locks
            used.update(f"{lock.name}" for lock in (*locks, *graph.locks))
        assert all(many <= NAMES.get(name, 99) for name, many in used.items()), used
        holders = {run for run, _ in yard.running.values() if graphs[run].locks}
        assert len(holders) <= 1

    yard.watch = watch

    def script(order: AttemptSpec) -> Any:
        seconds = chance.choice((0.0, 0.1, 3.0, 8.0))
        if order.step.retry is not None and chance.random() < 0.3 and order.attempt == 1:
            return seconds, RuntimeError("once")
        return seconds

    async def main(yard: Yard) -> list[Any]:
        engines = [yard.go(yard.engine(script)) for _ in range(chance.randint(1, 2))]
        lives = []
        for number in range(chance.randint(2, 6)):
            graph = work(chance, f"w{number}")
            engine = chance.choice(engines)
            live = yard.submit(engine, graph, queue="q", priority=chance.randint(0, 3))
            graphs[live.record.id] = graph
            lives.append(live)
            await asyncio.sleep(chance.choice((0, 0.3, 5)))
            if chance.random() < 0.2:
                engine.cancel(live, "enough", chance.random() < 0.5)
                engine.inbox.wake()
        if len(engines) == 2 and chance.random() < 0.5:
            survivor, doomed = engines
            left = list(doomed.runs.values())
            await yard.die(doomed)
            await asyncio.sleep(chance.choice((0, 5)))
            survivor.peers.reap({doomed.me.id})
            lives = [live for live in lives if live not in left]
            lives += [adopt(survivor, live, graphs[live.record.id]) for live in left]
            survivor.inbox.wake()
        return lives

    lives = yard.play(main)
    for live in lives:
        assert live.status in ("succeeded", "cancelled"), (live.status, live.why)
        assert not live.counts.get("running") and not live.counts.get("waiting")
    assert yard.left() == []
    assert not yard.running
    for engine in yard.engines:
        assert not engine.locks and not engine.runs
