"""Reservations, QuotaReplica and podsets: requests and releases in, permits and evictions out."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.admission.model import Stop
from penstock.engine.active_run import ActiveRun
from penstock.engine.effects import QuotaFreed, QuotaWanted, StepSettled
from penstock.engine.podsets import MOST_UNITS, PodDemand, amounts, stage_podsets, units_of
from penstock.engine.quota_replica import QuotaReplica
from penstock.engine.reservations import Reservations
from penstock.engine.workflow_reservation import WorkflowReservation
from penstock.graph.model import ForEach, Outcome, Unit, Workflow
from penstock.service.queues import machine
from penstock.store.sql import open_store
from tests.engine.parts.build import active_run, flow, step

CPU = 1000


class AtOnce:
    def shrink(self, reservation: WorkflowReservation) -> dict[str, int]:
        return reservation.shrink()


class SharedQueue:
    """Runs in front of a queue of so many cpus."""

    def __init__(self, place: Path, cpu: int) -> None:
        self.store = open_store(str(place))
        self.replica = QuotaReplica(self.store.queues, "me", machine({"cpu": cpu * CPU}))
        self.replica.load(0.0)
        self.admitted: list[tuple[Any, str]] = []
        self.preempted: list[Any] = []
        self.reservations = Reservations(self.replica, self._preempt, self._admitted, AtOnce())
        self.wanted: dict[int, dict[Any, None]] = {}
        self.freed: dict[int, list[Any]] = {}
        self.settled: dict[int, list[Any]] = {}
        self.runs = 0

    def _preempt(self, run: Any, task: Any, why: dict[str, Any]) -> bool:
        self.preempted.append(task)
        return False

    def _admitted(self, run: Any, path: str) -> None:
        self.admitted.append((run, path))

    def run(self, workflow: Workflow) -> ActiveRun:
        self.runs += 1
        routes: Any = {
            QuotaWanted: lambda run, effect: self.wanted.setdefault(run.number, {}).update({effect.step: None}),
            QuotaFreed: lambda run, effect: self.freed.setdefault(run.number, []).append((effect.step, effect.permit)),
            StepSettled: lambda run, effect: self.settled.setdefault(run.number, []).append(effect.step),
        }
        return active_run(
            workflow, routes=routes, number=self.runs, needs_quota=lambda state: bool(state.plan.step.resources)
        )

    def decide(self, *runs: ActiveRun) -> None:
        """What Admission does in a turn."""
        for run in runs:
            freed, settled = self.freed.pop(run.number, []), self.settled.pop(run.number, [])
            self.reservations.release(run, freed, settled, 0.0)
        for run in runs:
            self.reservations.request(run, [s for s in self.wanted.pop(run.number, {}) if s.wanted], 0.0)
        for _ in range(16):
            self.replica.scheduler.settle(0.0)
            touched = set(self.replica.scheduler.touched) & self.reservations.keys()
            if not self.reservations.apply(sorted(touched), 0.0) | self.reservations.cut_down(0.0):
                break

    @property
    def used(self) -> int:
        queue = self.replica.scheduler.tree.queues["machine"]
        return sum(queue.usage.values())


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[SharedQueue]:
    shared = SharedQueue(tmp_path, 4)
    yield shared
    shared.store.close()


def loop(many: int, **fields: Any) -> ForEach:
    return ForEach(axes=({"i": tuple(range(many))},), **fields)


def test_a_stage_is_admitted_and_gives_its_quota_back(shared: SharedQueue) -> None:
    run = shared.run(flow(step("a", cpu=3)))
    shared.decide(run)
    assert shared.used == 3 * CPU and shared.admitted == [(run, "a")]
    (task,) = run.state.ready.take("x", 9)
    run.state.ended(task, Outcome.SUCCEEDED, {})
    shared.decide(run)
    assert shared.used == 0 and len(shared.reservations) == 0


def test_a_loop_takes_what_there_is_and_the_rest_follows(shared: SharedQueue) -> None:
    run = shared.run(flow(step("a", cpu=1, each=loop(10))))
    started = 0
    while run.state.outcome is None:
        shared.decide(run)
        tasks = run.state.ready.take("x", 99)
        assert 0 < len(tasks) <= 4 and shared.used <= 4 * CPU
        started += len(tasks)
        for task in tasks:
            run.state.ended(task, Outcome.SUCCEEDED, {})
    shared.decide(run)
    assert started == 10 and shared.used == 0


def test_a_gang_is_admitted_whole_or_not_at_all(shared: SharedQueue) -> None:
    first, gang = shared.run(flow(step("a", cpu=2))), shared.run(flow(step("g", cpu=1, each=loop(3, gang=True))))
    shared.decide(first, gang)
    assert gang.state.ready.take("x", 9) == [] and shared.reservations.waits
    (task,) = first.state.ready.take("x", 9)
    first.state.ended(task, Outcome.SUCCEEDED, {})
    shared.decide(first, gang)
    assert len(gang.state.ready.take("x", 9)) == 3


def test_an_eviction_takes_permits_back_and_the_step_queues_again(shared: SharedQueue) -> None:
    run = shared.run(flow(step("a", cpu=1, each=loop(2))))
    shared.decide(run)
    tasks = run.state.ready.take("x", 1)
    queue = shared.replica.scheduler.cluster_queues["machine"]
    shared.replica.scheduler.apply([dataclasses.replace(queue, stop=Stop.DRAIN)], 0.0)
    shared.decide(run)
    assert shared.preempted == tasks and shared.used == 0
    assert run.state.ready.take("x", 9) == [] and shared.reservations.waits


def test_a_whole_workflow_holds_its_peak_and_shrinks(shared: SharedQueue) -> None:
    run = shared.run(flow(step("a", cpu=4), step("b", "a", cpu=1), unit=Unit.WORKFLOW))
    shared.decide(run)
    assert shared.used == 4 * CPU
    (task,) = run.state.ready.take("x", 9)
    run.state.ended(task, Outcome.SUCCEEDED, {})
    shared.decide(run)
    assert shared.used == 1 * CPU and [task.path for task in run.state.ready.take("x", 9)] == ["b"]


def test_a_run_that_is_dropped_holds_nothing(shared: SharedQueue) -> None:
    run = shared.run(flow(step("a", cpu=1)))
    shared.decide(run)
    assert shared.reservations.drop(run, 0.0) is True and shared.used == 0
    assert shared.reservations.drop(run, 0.0) is False


def test_what_one_replica_writes_another_reads(tmp_path: Path) -> None:
    shared = SharedQueue(tmp_path, 4)
    run = shared.run(flow(step("a", cpu=3)))
    shared.decide(run)
    shared.replica.version = shared.store.journal.next_decision()
    from penstock.store.records import WriteBatch

    batch = WriteBatch(workloads=shared.replica.written())
    shared.store.journal.begin()
    shared.store.journal.flush(batch, "me")
    shared.store.journal.commit()
    with open_store(str(tmp_path)) as store:
        other = QuotaReplica(store.queues, "other", machine({"cpu": 4 * CPU}))
        other.load(0.0)
        assert sum(other.scheduler.tree.queues["machine"].usage.values()) == 3 * CPU
        assert [owner for _, owner in other.owners.values()] == ["me"]
    shared.store.close()


@settings(max_examples=80, deadline=None)
@given(st.lists(st.integers(1, 2_000_000), min_size=1, max_size=6), st.integers(0, 50))
def test_units_divide_every_need_or_are_few(needs: list[int], more: int) -> None:
    steps = [
        step(f"s{i}").__class__(name=f"s{i}", action=step("x").action, resources={"cpu": n})
        for i, n in enumerate(needs)
    ]
    peak = {"cpu": sum(needs) + more * needs[0]}
    unit = units_of(steps, None, peak)["cpu"]
    assert peak["cpu"] / unit <= MOST_UNITS + 1
    assert unit == math.gcd(*needs) or unit * MOST_UNITS >= peak["cpu"]


def test_one_shape_is_elastic_and_several_are_not() -> None:
    small = PodDemand("a", {"cpu": 1000}, None, 2, 5, False)
    large = PodDemand("b", {"cpu": 2000, "memory": 1500}, None, 1, 1, False)
    (alone,) = stage_podsets([[small]])
    assert (alone.name, alone.count, alone.min_count) == ("main", 10, 2)
    assert [(one.name, one.min_count) for one in stage_podsets([[small], [large]])] == [("a", None), ("b", None)]
    assert amounts({"cpu": 1500, "memory": 1500, "x": 0}) == {"cpu": 1500, "memory": 2}
