"""Admitter: what runs report is requested, decided and recorded within one turn."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from penstock.backends.base import Inbox
from penstock.engine.active_run import ActiveRun
from penstock.engine.admission import Admitter
from penstock.engine.effects import QuotaFreed, QuotaWanted, StepSettled
from penstock.engine.journal import Journal
from penstock.engine.steps import StepState
from penstock.graph.model import Outcome, Workflow
from penstock.service.queues import machine
from penstock.store.sql import Store, open_store
from tests.engine.parts.build import Turns, active_run, flow, step

CPU = 1000


class OneQueue:
    """An Admitter in front of four cpus, the runs that it decides about, and its transactions."""

    def __init__(self, store: Store, before_request: Callable[[ActiveRun, StepState], None]) -> None:
        self.journal = Journal(store.journal, "me")
        self.admitted: list[tuple[int, str]] = []
        self.runs: dict[int, ActiveRun] = {}
        self._store = store
        self.admitter = Admitter(
            store.queues,
            self.journal,
            Turns(Inbox(asyncio.get_running_loop())),
            lambda: 100.0,
            capacity=lambda: machine({"cpu": 4 * CPU}),
            before_request=before_request,
            preempt=lambda run, task, why: False,
            admitted=lambda run, path: self.admitted.append((run.number, path)),
        )

    def run(self, workflow: Workflow) -> ActiveRun:
        routes: Any = {
            QuotaWanted: self.admitter.wanted,
            QuotaFreed: self.admitter.freed,
            StepSettled: self.admitter.settled,
        }
        number = self._store.runs.create("w", "d", "{}", {}, {}, "", 1.0).number
        run = self.runs[number] = active_run(
            workflow,
            self.journal.batch,
            routes,
            number,
            needs_quota=lambda state: self.admitter.needs_quota(workflow, state),
        )
        return run

    def turn(self, stopping: bool = False) -> Mapping[str, dict[str, Any]]:
        """Decides, and commits. What it recorded of each Workload."""
        self.journal.begin()
        self.admitter.decide(self.runs, stopping)
        rows = {key: json.loads(row[5]) if row[5] else {} for key, row in self.journal.batch.workloads.items()}
        self.journal.commit()
        return rows


def played(
    place: Path,
    scene: Callable[[OneQueue], None],
    before_request: Callable[[ActiveRun, StepState], None] = lambda run, state: None,
) -> None:
    async def main() -> None:
        with open_store(str(place)) as store:
            scene(OneQueue(store, before_request))

    asyncio.run(main())


def end(run: ActiveRun) -> None:
    (task,) = run.state.ready.take("x", 1)
    run.state.ended(task, Outcome.SUCCEEDED, {})


def test_what_is_wanted_is_requested_admitted_and_on_record(tmp_path: Path) -> None:
    def scene(queue: OneQueue) -> None:
        run = queue.run(flow(step("a", cpu=3), step("free")))
        assert queue.admitter.pending(queue.runs)
        assert len(queue.turn()) == 1, "only the step that asks for something has a Workload"
        assert queue.admitted == [(run.number, "a")] and not queue.admitter.waits and queue.admitter.is_queued
        assert not queue.admitter.pending(queue.runs)

    played(tmp_path, scene)


def test_one_decision_gives_back_and_admits_who_waited_for_it(tmp_path: Path) -> None:
    def scene(queue: OneQueue) -> None:
        first, second = queue.run(flow(step("a", cpu=3))), queue.run(flow(step("a", cpu=3)))
        queue.turn()
        assert queue.admitted == [(first.number, "a")] and queue.admitter.waits
        end(first)
        queue.turn()
        assert queue.admitted == [(first.number, "a"), (second.number, "a")] and not queue.admitter.waits

    played(tmp_path, scene)


def test_a_step_is_looked_at_before_quota_is_requested_for_it(tmp_path: Path) -> None:
    """Known results and locks come first; a scope that has been halted meanwhile asks for nothing."""
    seen: list[str] = []

    def halt(run: ActiveRun, state: StepState) -> None:
        seen.append(state.plan.step.name)
        state.scope.halted = True

    def scene(queue: OneQueue) -> None:
        queue.run(flow(step("b", cpu=1), step("a", cpu=1)))
        assert not queue.turn() and not queue.admitted and not queue.admitter.is_queued

    played(tmp_path, scene, halt)
    assert seen == ["b", "a"], "in the order of the workflow"


def test_an_engine_that_stops_requests_nothing_more_and_withdraws_what_waits(tmp_path: Path) -> None:
    def scene(queue: OneQueue) -> None:
        holds, _ = queue.run(flow(step("a", cpu=3))), queue.run(flow(step("a", cpu=3)))
        queue.turn()
        queue.run(flow(step("a", cpu=1)))
        queue.turn(stopping=True)
        assert queue.admitted == [(holds.number, "a")], "one cpu is free, and nobody asks for it"
        assert not queue.admitter.waits and queue.admitter.is_queued

    played(tmp_path, scene)


def test_a_run_that_leaves_gives_its_quota_to_others(tmp_path: Path) -> None:
    def scene(queue: OneQueue) -> None:
        first, second = queue.run(flow(step("a", cpu=3))), queue.run(flow(step("a", cpu=3)))
        queue.turn()
        queue.admitter.drop(queue.runs.pop(first.number))
        assert queue.admitter.pending(queue.runs), "there is something to decide again"
        queue.turn()
        assert queue.admitted[-1] == (second.number, "a")

    played(tmp_path, scene)
