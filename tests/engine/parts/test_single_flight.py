"""SingleFlight: one execution for everybody who needs the same key."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.artifacts.blobs import Blobs
from penstock.engine.active_run import ActiveRun
from penstock.engine.journal import Journal
from penstock.engine.run_names import RunNames
from penstock.engine.single_flight import SingleFlight
from penstock.graph.model import Cache, Outcome
from penstock.store.sql import Store, open_store
from tests.engine.parts.build import active_run, flow, step


class Desk:
    """Two runs of the same workflow, and an engine's SingleFlight."""

    def __init__(self, store: Store, place: Path, engine: str = "me") -> None:
        self.store = store
        self.journal = Journal(store.journal, engine)
        workflow = flow(step("a", cache=Cache()))
        self.active: dict[int, ActiveRun] = {}
        for number in (1, 2):
            record = store.runs.create("w", "d", "{}", {}, {}, "", 1.0)
            self.active[number] = active_run(workflow, self.journal.batch, number=record.number)
        names = RunNames(store.runs, self.journal, self.active)
        self.flights = SingleFlight(store.results, self.journal, names, Blobs(place), lambda: 50.0, lambda lane: False)
        self.one, self.two = self.active.values()

    def wanted(self, run: ActiveRun) -> list[Any]:
        return [(run, task, "x") for task in run.state.ready.take("x", 9)]


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with open_store(str(tmp_path)) as store:
        yield Desk(store, tmp_path)


def test_the_first_runs_and_the_second_waits_for_it(desk: Desk) -> None:
    desk.journal.begin()
    ((run, task, lane),), twins = desk.flights.resolve(desk.wanted(desk.one))
    desk.flights.launched(run, task)
    assert (run, lane, twins) == (desk.one, "x", [])
    assert desk.flights.resolve(desk.wanted(desk.two)) == ([], [])
    assert desk.two.counts == {"waiting": 1}
    ((other, twin),) = desk.flights.succeeded(run, task, {"result": 1}, '{"result": 1}')
    assert other is desk.two and twin.path == "a"
    assert desk.journal.batch.results[0][0] == task.key


def test_two_with_the_same_key_in_one_round_are_one_launch(desk: Desk) -> None:
    desk.journal.begin()
    launches, twins = desk.flights.resolve([*desk.wanted(desk.one), *desk.wanted(desk.two)])
    assert len(launches) == 1 and [run for run, _ in twins] == [desk.two]
    desk.flights.launched(launches[0][0], launches[0][1])
    desk.flights.rejoin(twins)
    assert desk.two.counts == {"waiting": 1}


def test_a_result_of_this_transaction_is_reused(desk: Desk) -> None:
    desk.journal.begin()
    ((run, task, _),), _ = desk.flights.resolve(desk.wanted(desk.one))
    desk.flights.launched(run, task)
    desk.flights.succeeded(run, task, {}, "{}")
    assert desk.flights.resolve(desk.wanted(desk.two)) == ([], [])
    assert desk.two.state.outcome is Outcome.SUCCEEDED and desk.two.counts == {"reused": 1}


def test_when_the_owner_goes_another_takes_over(desk: Desk) -> None:
    desk.journal.begin()
    ((run, task, _),), _ = desk.flights.resolve(desk.wanted(desk.one))
    desk.flights.launched(run, task)
    desk.flights.resolve(desk.wanted(desk.two))
    successor = desk.flights.leave_running(run, task)
    assert successor is not None and successor[0] is desk.two
    assert desk.flights.leave_running(*successor) is None, "nobody is left"


def test_a_failure_reaches_those_who_wait_here_and_elsewhere(desk: Desk) -> None:
    desk.journal.begin()
    ((run, task, _),), _ = desk.flights.resolve(desk.wanted(desk.one))
    desk.flights.launched(run, task)
    desk.flights.resolve(desk.wanted(desk.two))
    assert [other for other, _ in desk.flights.failed(task.key, '{"kind": "failed"}')] == [desk.two]
    assert desk.journal.batch.failures == [('{"kind": "failed"}', task.key)]
    assert not desk.flights.in_flight(task.key)


def test_a_key_that_another_engine_computes_is_waited_for(tmp_path: Path) -> None:
    with open_store(str(tmp_path)) as here, open_store(str(tmp_path)) as there:
        mine, theirs = Desk(here, tmp_path), Desk(there, tmp_path, "other")
        theirs.journal.begin()
        ((run, task, _),), _ = theirs.flights.resolve(theirs.wanted(theirs.one))
        theirs.journal.commit()
        mine.journal.begin()
        assert mine.flights.resolve(mine.wanted(mine.one)) == ([], [])
        mine.journal.commit()
        assert mine.flights.waits and mine.one.counts == {"waiting": 1}
        theirs.journal.begin()
        theirs.flights.succeeded(run, task, {}, "{}")
        theirs.journal.commit()
        assert mine.flights.look(lambda: set()) == set()
        assert mine.one.state.outcome is Outcome.SUCCEEDED and not mine.flights.waits
