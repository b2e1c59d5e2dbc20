"""Figures of simulations that can be worked out by hand, for each unit; and what must hold whatever is simulated."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from penstock import LocalRunner
from penstock.admission.metrics import Measures
from penstock.backends.base import AttemptSpec
from penstock.engine import engine as loop
from penstock.errors import UserError
from penstock.graph import codec
from penstock.graph.model import Cache, Edge, Lock, Step, Suspend, Unit, Workflow
from penstock.service.machine import machine
from penstock.service.queues import rows_of
from penstock.service.simulation import scenario
from penstock.service.simulation.simulate import UNITS, SimulatedJob, SimulationResult, simulate
from penstock.store.memory import MemoryLocks
from penstock.store.records import LockRequest
from tests.engine.yard import MACHINE, flow, queue, step
from tests.support.source import module

CPU = 1000


def takes(seconds: float = 10.0, **steps: float) -> Callable[[AttemptSpec], float]:
    return lambda order: steps.get(order.step.name, seconds)


def copies(job: SimulatedJob, many: int, every: float) -> list[SimulatedJob]:
    return [dataclasses.replace(job, at=job.at + number * every) for number in range(many)]


def played(jobs: Sequence[SimulatedJob], cpu: int, units: Sequence[Unit] = UNITS) -> dict[str, SimulationResult]:
    found = simulate(jobs, machine({"cpu": cpu * CPU}), units)
    assert all(run.state == "succeeded" for one in found for run in one.runs.values())
    return {str(one.unit): one for one in found}


def measures(jobs: Sequence[SimulatedJob], cpu: int) -> dict[str, Measures]:
    found = played(jobs, cpu)
    assert all(one.measures is not None for one in found.values())
    return {unit: one.measures for unit, one in found.items() if one.measures is not None}


def in_queues(jobs: Sequence[SimulatedJob], manifest: str) -> dict[str, SimulationResult]:
    rows, _ = rows_of(None, (MACHINE + manifest, "queues.yaml"))
    return {str(one.unit): one for one in simulate(jobs, documents=rows)}


def chain(scale: int = 1) -> Workflow:
    """10 → 100 → 10: what is reserved for all of it would be 120, and at one moment it needs 100."""
    return flow(
        step("a", tasks=10 // scale),
        step("b", "a", tasks=100 // scale),
        step("c", "b", tasks=10 // scale),
        name="chain",
    )


@pytest.mark.parametrize(
    "unit, reserved, workloads",
    [("workflow", 100 * 10 + 100 * 10 + 10 * 10, 1), ("stage", 1200, 3), ("task", 1200, 120), ("reuse", 1200, 3)],
)
def test_a_chain_of_unequal_stages(unit: str, reserved: int, workloads: int) -> None:
    one = played([SimulatedJob(workflow=chain(), seconds=takes())], 100, [Unit(unit)])[unit]
    assert one.measures is not None
    total = one.measures.totals["cpu"]
    assert (total.reserved, total.used, total.wasted) == (reserved * CPU, 1200 * CPU, (reserved - 1200) * CPU)
    assert total.utilisation == 1200 / (100 * 30) and total.peak_reserved == total.peak_used == 100 * CPU
    assert one.measures.makespan == 30.0 and one.measures.waiting.longest == 0.0 and one.workloads == workloads
    series = one.measures.series[0]
    first = 100 if unit == "workflow" else 10
    assert series.times == (0.0, 10.0, 20.0, 30.0)
    assert series.reserved == (first * CPU, 100 * CPU, 10 * CPU, 0) and series.used == (
        10 * CPU,
        100 * CPU,
        10 * CPU,
        0,
    )


def test_two_of_them_at_once() -> None:
    found = measures(copies(SimulatedJob(workflow=chain(5), seconds=takes()), 2, 0.0), 20)
    whole = found["workflow"]
    assert whole.makespan == 60.0 and (whole.delay.mean, whole.delay.longest) == (15.0, 30.0)
    assert whole.runs["chain-2"].waiting == whole.runs["chain-2"].stalled == 30.0
    for unit in ("stage", "task", "reuse"):
        # Both begin at once. At 10 the first has all 20, at 20 its last stage takes 2, and 18 of the other's 20 can run; the last
        # two of these run from 30 to 40.
        one = found[unit]
        assert one.makespan == 50.0 and one.delay.longest == 0.0, unit
        assert [(run.ended, run.waiting, run.stalled) for run in one.runs.values()] == [(30, 0, 0), (50, 20, 10)], unit
        assert one.totals["cpu"].wasted == 0.0


def test_stages_that_hand_on_their_machines_hold_those_that_are_idle() -> None:
    equal = flow(step("a", tasks=4), step("b", "a", tasks=4), step("c", "b", tasks=4), name="equal")
    job = SimulatedJob(workflow=equal, seconds=lambda order: 15.0 if order.task.endswith("[0]") else 10.0)
    found = measures([job], 4)
    assert {unit: one.makespan for unit, one in found.items()} == dict.fromkeys(map(str, UNITS), 45.0)
    # One of four takes five seconds longer, three times; the last stage gives back what it does not need.
    wasted = {unit: one.totals["cpu"].wasted / CPU for unit, one in found.items()}
    assert wasted == {"workflow": 45.0, "stage": 0.0, "task": 0.0, "reuse": 30.0}


def test_submissions_are_apart_and_each_waits_for_the_one_before() -> None:
    job = SimulatedJob(workflow=flow(step("only", cpu=4)), seconds=takes(30.0))
    for unit, one in measures(copies(job, 3, 20.0), 4).items():
        assert one.makespan == 90.0, unit
        assert [run.delay for run in one.runs.values()] == [0.0, 10.0, 20.0], unit
        assert (one.waiting.mean, one.stalled.longest) == (10.0, 20.0)


@pytest.mark.parametrize("unit", [str(unit) for unit in UNITS])
def test_a_preemption_is_counted_and_its_work_is_lost(unit: str) -> None:
    jobs = [
        SimulatedJob(workflow=flow(step("long", cpu=10), name="low"), seconds=takes(100.0), priority=0),
        SimulatedJob(workflow=flow(step("short", cpu=10), name="high"), seconds=takes(10.0), priority=5, at=30.0),
    ]
    one = in_queues(jobs, queue("team", 10, preemption={"withinClusterQueue": "LowerPriority"}))[unit]
    found = one.measures
    assert found is not None and found.preemptions == 1 and found.makespan == 140.0
    low, high = found.runs["low-1"], found.runs["high-1"]
    assert (low.preemptions, low.waiting, low.stalled, low.ended) == (1, 10.0, 10.0, 140.0)
    assert (high.preemptions, high.delay, high.ended) == (0, 0.0, 40.0)
    assert found.totals["cpu"].used == 10 * CPU * 140


def test_a_cohort_lends() -> None:
    manifest = queue("a", 4, "all") + queue("b", 4, "all")
    job = SimulatedJob(workflow=flow(step("wide", tasks=8)), seconds=takes(), queue="a")
    one = in_queues([job], manifest)["stage"].measures
    assert one is not None and one.makespan == 10.0 and one.totals["cpu"].capacity == 8 * CPU


def test_what_can_never_start_with_one_unit_is_played_with_the_others() -> None:
    found = {
        str(one.unit): one
        for one in simulate([SimulatedJob(workflow=chain(), seconds=takes())], machine({"cpu": 40 * CPU}))
    }
    refused = found.pop("workflow")
    assert refused.measures is None and refused.refused is not None and refused.refused.code == "P818"
    assert "100 cpu" in str(refused.refused) and "40 at most" in str(refused.refused)
    assert refused.capacity == {"cpu": 40 * CPU}
    assert {one.measures.makespan for one in found.values() if one.measures is not None} == {50.0}


def test_of_several_workflows_the_one_that_cannot_start_is_named() -> None:
    jobs = [
        SimulatedJob(workflow=flow(step("s", cpu=9), name="large"), seconds=takes()),
        SimulatedJob(workflow=chain(10), seconds=takes()),
    ]
    (one,) = simulate(jobs, machine({"cpu": 8 * CPU}), [Unit.WORKFLOW])
    assert one.refused is not None
    assert [problem.message.partition(":")[0] for problem in one.refused.problems] == ["large", "chain"]


def test_a_queue_that_is_not_there_ends_it_all() -> None:
    with pytest.raises(UserError, match="P812"):
        in_queues([SimulatedJob(workflow=chain(), seconds=takes(), queue="nowhere")], queue("a", 4) + queue("b", 4))


def test_a_queue_that_is_stopped_is_said_to_be() -> None:
    found = in_queues(
        [SimulatedJob(workflow=flow(step("s"), name="w"), seconds=takes())], queue("team", 4, stopPolicy="Hold")
    )
    for one in found.values():
        assert one.refused is not None and one.refused.code == "P820" and "stopped" in str(one.refused)


def test_nothing_is_reused_or_shared() -> None:
    cached = flow(step("s", tasks=3, cache=Cache()), name="cached")
    for unit, one in played(copies(SimulatedJob(workflow=cached, seconds=takes()), 2, 5.0), 10).items():
        assert one.measures is not None
        assert one.measures.totals["cpu"].used == 60 * CPU, unit
        assert [run.tasks for run in one.runs.values()] == [3, 3]


def test_a_step_that_waits_for_somebody_is_answered() -> None:
    ask = Step(name="ask", action=Suspend(), needs=(Edge("a"),))
    job = SimulatedJob(workflow=flow(step("a"), ask, step("b", "ask")), seconds=takes(ask=100.0))
    assert {one.makespan for one in measures([job], 1).values()} == {120.0}


def test_it_does_not_depend_on_how_fast_we_are(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = copies(SimulatedJob(workflow=chain(5), seconds=lambda order: 1.0 + len(order.task) % 3), 3, 1.0)
    before = simulate(jobs, machine({"cpu": 25 * CPU}))
    monkeypatch.setattr(loop, "WINDOW", -1.0)
    assert simulate(jobs, machine({"cpu": 25 * CPU})) == before


@pytest.mark.parametrize("seed", range(12))
def test_what_is_used_is_always_held_and_the_work_is_the_same(seed: int) -> None:
    chance = random.Random(seed)
    jobs = []
    for number in range(3):
        steps: list[Any] = []
        for at in range(chance.randint(1, 7)):
            needs = [one.name for one in steps if chance.random() < 0.4]
            steps.append(step(f"s{at}", *needs, cpu=chance.randint(0, 3), tasks=chance.choice([0, 0, 2, 5])))
        times = {one.name: chance.choice([0.0, 1.0, 2.5, 7.0]) for one in steps}
        jobs.append(
            SimulatedJob(
                workflow=flow(*steps, name=f"w{number}"), seconds=takes(**times), at=float(chance.randint(0, 5))
            )
        )
    work = math.fsum(
        one.resources.get("cpu", 0)
        * (1 if one.each is None else len(next(iter(one.each.axes[0].values()))))
        * job.seconds(AttemptSpec(id="", run="", task=one.name, attempt=1, step=one, action=one.action, inputs={}))
        for job in jobs
        for one in job.workflow.steps
    )
    for one in simulate(jobs, machine({"cpu": 4 * CPU})):
        if one.measures is None:
            assert one.unit is Unit.WORKFLOW and one.refused is not None and one.refused.code == "P818"
            continue
        assert {run.state for run in one.runs.values()} == {"succeeded"}
        for series in one.measures.series:
            assert all(used <= held for used, held in zip(series.used, series.reserved, strict=True)), one.unit
            assert max(series.reserved) <= 4 * CPU and series.reserved[-1] == series.used[-1] == 0
        assert one.measures.totals["cpu"].used == pytest.approx(work)
        assert [name for name in one.measures.runs] == [name for name in one.runs]
        for run in one.measures.runs.values():
            assert run.stalled <= run.waiting and run.ended is not None and run.preemptions == 0


# -- where the times come from ----------------------------------------------------------------------------------------

TIMED = """
import time
from penstock import task, workflow

@task
def nap(seconds: float) -> float:
    time.sleep(seconds)
    return seconds

@task
def total(times: list[float]) -> float:
    return sum(times)

@workflow
def timed(times: list[float] = [0.01, 0.05]):
    rest = [nap(one) for one in times]
    return total(rest)
"""


def test_the_last_run_says_how_long_a_step_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "timed.py").write_text(TIMED)
    (guessed,) = scenario.sources(["timed.py"], guess=7.0)
    assert not guessed.runtimes and "7 s for each task, which is a guess" in guessed.remarks[0].text
    made = module(TIMED, prelude="")
    with LocalRunner(home=tmp_path / ".penstock", inline=True) as runner:
        runner.run(made.timed).check()
        runner.run(made.timed).check()  # reused: nothing is measured anew
    (found,) = scenario.sources(["timed.py"])
    assert 0.03 <= found.runtimes["nap"] < 1.0 and found.runtimes["total"] < 0.03
    assert found.remarks[0].text == "timed: tasks take as long as in timed-1"
    (chosen,) = scenario.sources(["timed.py"], runtimes=["nap=5"])
    assert chosen.runtimes == {**found.runtimes, "nap": 5.0}


@pytest.mark.parametrize(
    "text, amounts",
    [
        ("cpu=64,memory=256Gi", {"cpu": 64_000, "memory": 256 * 2**30}),
        (" cpu=500m , gpu=2", {"cpu": 500, "nvidia.com/gpu": 2}),
        ("example.com/fpga=1", {"example.com/fpga": 1}),
        ("cpu=0", {"cpu": 0}),
    ],
)
def test_a_capacity_is_read(text: str, amounts: dict[str, int]) -> None:
    assert scenario.parse_amounts(text) == amounts


@pytest.mark.parametrize(
    "text", ["", "cpu", "cpu=", "cpu=x", "cpu=-1", "=3", "cpu=1,cpu=2", "cores=3", "cpu=1,,memory=1"]
)
def test_a_capacity_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="P822"):
        scenario.parse_amounts(text)


# -- locks ------------------------------------------------------------------------------------------------------------


def ask(run: int, task: str, priority: int = 0, **names: int) -> LockRequest:
    return LockRequest(run, task, names, priority)


def test_a_request_gets_all_its_locks_or_none() -> None:
    locks = MemoryLocks()
    assert locks.lock("", [ask(1, "a", m=1), ask(1, "b", m=1, n=1), ask(1, "c", n=1)], []) == {(1, "a"), (1, "c")}
    assert locks.lock("", [], [(1, "c")]) == {(1, "a")}, "b still waits for m"
    assert locks.lock("", [], [(1, "a")]) == {(1, "b")}
    assert [(one.run, one.task) for one in locks.lock_holders(["n"])["n"]] == [(1, "b")] and locks.lock_holders(
        ["x"]
    ) == {"x": []}


def test_locks_go_by_priority_then_by_the_age_of_the_run_then_in_order() -> None:
    locks = MemoryLocks()
    locks.lock("", [ask(9, "first", m=1), ask(2, "late", m=1), ask(1, "old", m=1), ask(3, "urgent", 5, m=1)], [])
    order = []
    for _ in range(4):
        (holder,) = locks.lock("", [], order[-1:])
        order.append(holder)
    assert [task for _, task in order] == ["urgent", "old", "late", "first"]


def test_as_many_hold_a_lock_as_its_limit_allows() -> None:
    locks = MemoryLocks()
    held = locks.lock("", [ask(1, f"t{number}", m=2) for number in range(3)], [])
    assert held == {(1, "t0"), (1, "t1")}


def test_a_workflow_with_locks_is_simulated() -> None:
    locked = [dataclasses.replace(step(name, cpu=1), locks=(Lock(name="m"),)) for name in ("a", "b")]
    for one in simulate([SimulatedJob(workflow=flow(*locked), seconds=takes())], machine({"cpu": 8 * CPU})):
        assert one.measures is not None and one.measures.makespan == 20, one.unit


def test_what_is_only_simulated_is_never_written_as_a_document(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(workflow: Workflow) -> str:
        raise AssertionError("a document was written")

    monkeypatch.setattr(codec, "to_json", refuse)
    assert simulate([SimulatedJob(workflow=chain(), seconds=takes())], machine({"cpu": 40 * CPU}))
