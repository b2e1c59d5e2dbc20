"""Dispatcher and Deadlines: attempts are launched, started after the commit, limited, retried and stopped."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.artifacts.blobs import Blobs
from penstock.backends.base import AttemptEnded, Inbox
from penstock.engine.active_run import ActiveRun
from penstock.engine.deadlines import Deadlines
from penstock.engine.dispatcher import GRACE, Dispatcher
from penstock.engine.effects import CallFailed, CallOpened, StopTask
from penstock.engine.journal import Journal
from penstock.engine.run_names import RunNames
from penstock.engine.single_flight import SingleFlight
from penstock.graph.model import Outcome, Retry, Suspend
from penstock.store.sql import open_store
from tests.engine.parts.build import Backend, Turns, active_run, flow, pool_of, step


class Bench:
    """A dispatcher, with a backend that starts nothing."""

    def __init__(self, place: Path) -> None:
        self.backend = Backend()
        inbox = Inbox(asyncio.get_running_loop())
        self.timers = Turns(inbox)
        self.store = open_store(str(place))
        self.journal = Journal(self.store.journal, "me")
        pool = pool_of(self.backend, place, inbox)
        names = RunNames(self.store.runs, self.journal, {})
        flights = SingleFlight(self.store.results, self.journal, names, Blobs(place), lambda: 0.0, pool.is_immediate)
        self.deadlines = Deadlines(self.timers, lambda: 0.0, lambda run: False, lambda run: self.stop(run))
        self.dispatcher = Dispatcher(
            self.journal, pool, flights, self.timers, lambda: 0.0, lambda: 0.5, lambda stored: None, self.deadlines
        )

    def stop(self, run: ActiveRun) -> None:
        self.dispatcher.stop_tasks(run, GRACE)

    def run(self, workflow: Any) -> ActiveRun:
        routes: Any = {
            StopTask: self.dispatcher.stop_wanted,
            CallFailed: self.dispatcher.call_failed,
            CallOpened: self.deadlines.call_opened,
        }
        return active_run(workflow, self.journal.batch, routes)

    def launch(self, run: ActiveRun, lane: str = "x") -> Any:
        (task,) = run.state.ready.take("x", 1)
        self.dispatcher.launch(run, task, lane)
        return task

    def events(self) -> list[tuple[str, dict[str, Any]]]:
        return [(event[3], json.loads(event[5])) for event in self.journal.batch.events]


def played(tmp_path: Path, scene: Callable[[Bench], None]) -> None:
    async def main() -> None:
        bench = Bench(tmp_path)
        try:
            scene(bench)
        finally:
            bench.store.close()

    asyncio.run(main())


def test_an_attempt_is_recorded_before_it_starts(tmp_path: Path) -> None:
    def scene(bench: Bench) -> None:
        run = bench.run(flow(step("a")))
        bench.launch(run)
        assert bench.events()[0][0] == "task.started" and not bench.backend.started and bench.dispatcher.busy
        bench.dispatcher.start()
        (spec,) = bench.backend.started
        bench.dispatcher.ended(AttemptEnded(id=spec.id, outcome=Outcome.SUCCEEDED))
        assert run.state.outcome is Outcome.SUCCEEDED and not bench.dispatcher.busy

    played(tmp_path, scene)


def test_a_failure_is_retried_and_then_for_good(tmp_path: Path) -> None:
    def scene(bench: Bench) -> None:
        run = bench.run(flow(step("a", retry=Retry(limit=1))))
        for _ in range(2):
            bench.launch(run)
            bench.dispatcher.start()
            bench.dispatcher.ended(AttemptEnded(id=bench.backend.started[-1].id, outcome=Outcome.FAILED, exit_code=7))
            bench.timers.fire()
        failures = [data for kind, data in bench.events() if kind == "task.failed"]
        assert ["retry" in data for data in failures] == [True, False]
        assert run.state.outcome is Outcome.FAILED and [spec.attempt for spec in bench.backend.started] == [1, 2]

    played(tmp_path, scene)


def test_a_lost_worker_does_not_count_as_a_failure_twice(tmp_path: Path) -> None:
    def scene(bench: Bench) -> None:
        run = bench.run(flow(step("a")))
        for _ in range(3):
            bench.launch(run)
            bench.dispatcher.start()
            bench.dispatcher.ended(AttemptEnded(id=bench.backend.started[-1].id, outcome=Outcome.FAILED, lost=True))
        assert [kind for kind, _ in bench.events() if kind in ("task.lost", "task.failed")] == ["task.lost"] * 2 + [
            "task.failed"
        ]
        assert run.state.outcome is Outcome.FAILED

    played(tmp_path, scene)


def test_an_attempt_may_be_preempted_any_number_of_times(tmp_path: Path) -> None:
    def scene(bench: Bench) -> None:
        run = bench.run(flow(step("a")))
        for _ in range(5):
            bench.launch(run)
            bench.dispatcher.start()
            id = bench.backend.started[-1].id
            bench.dispatcher.ended(AttemptEnded(id=id, outcome=Outcome.ERRORED, lost=True, preempted=True))
        assert [kind for kind, _ in bench.events() if kind.startswith("task.lost")] == ["task.lost"] * 5
        assert run.state.outcome is None

    played(tmp_path, scene)


def test_a_task_that_takes_too_long_is_stopped_and_has_failed(tmp_path: Path) -> None:
    def scene(bench: Bench) -> None:
        run = bench.run(flow(step("a", timeout=5.0)))
        bench.launch(run)
        bench.dispatcher.start()
        assert [seconds for seconds, _ in bench.timers.waiting] == [5.0]
        bench.timers.fire()
        ((id, _),) = bench.backend.stopped
        bench.dispatcher.ended(AttemptEnded(id=id, outcome=Outcome.CANCELLED))
        assert run.state.outcome is Outcome.FAILED and "timed out after 5 s" in run.why

    played(tmp_path, scene)


def test_a_preempted_task_waits_again_and_has_not_failed(tmp_path: Path) -> None:
    def scene(bench: Bench) -> None:
        run = bench.run(flow(step("a")))
        task = bench.launch(run)
        bench.dispatcher.start()
        assert bench.dispatcher.preempt(run, task, {"reason": "InClusterQueue"}) is True
        bench.dispatcher.ended(AttemptEnded(id=bench.backend.started[0].id, outcome=Outcome.CANCELLED))
        assert [kind for kind, _ in bench.events()][-1] == "task.preempted"
        assert run.state.ready.take("x", 1) == [task] and task.tries == 0
        assert bench.dispatcher.preempt(run, task, {}) is False, "nothing runs now"

    played(tmp_path, scene)


def test_cancelling_stops_what_runs(tmp_path: Path) -> None:
    def scene(bench: Bench) -> None:
        run = bench.run(flow(step("a")))
        bench.launch(run)
        bench.dispatcher.start()
        run.state.cancel("enough")
        bench.stop(run)
        assert bench.backend.stopped == [("w-1/a/1", GRACE)]
        bench.dispatcher.ended(AttemptEnded(id="w-1/a/1", outcome=Outcome.CANCELLED))
        assert run.state.outcome is Outcome.CANCELLED

    played(tmp_path, scene)


def test_a_suspended_task_prompts_and_goes_on_with_what_it_is_given(tmp_path: Path) -> None:
    def scene(bench: Bench) -> None:
        run = bench.run(flow(step("a").__class__(name="a", action=Suspend(message="look"))))
        bench.launch(run, "suspend")
        assert "penstock resume w-1/a" in run.prompts["a"]
        bench.dispatcher.resume(run, "a", {})
        assert run.state.outcome is Outcome.SUCCEEDED and not run.prompts

    played(tmp_path, scene)


@pytest.mark.parametrize(("since", "left"), [(None, None), (-4.0, 6.0), (-40.0, 0.0)])
def test_the_time_of_a_run_counts_from_its_first_admission(tmp_path: Path, since: float | None, left: float) -> None:
    def scene(bench: Bench) -> None:
        run = bench.run(flow(step("a")))
        bench.deadlines.limit_run(run, 10.0, since)
        if since is None:
            assert bench.timers.waiting == []
            bench.deadlines.admitted(run, "a")
        assert [seconds for seconds, _ in bench.timers.waiting] == [10.0 if left is None else left]
        bench.timers.fire()
        assert "timed out after 10 s" in run.why

    played(tmp_path, scene)
