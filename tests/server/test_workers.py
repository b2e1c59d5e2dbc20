"""Workers: what they do about an order, and that no death of one loses a run or makes two of it."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.service import intake, stores, work, workers
from penstock.service.intake import Parcel, submit
from penstock.service.policy import Actor
from penstock.service.run_records import RunConflict, state_of
from penstock.service.views.why import why
from penstock.service.why_text import waits
from penstock.service.workers import Worker
from penstock.settings import Settings, read
from penstock.store import liveness
from penstock.store.orders import OrderRepository, WorkOrder
from penstock.store.records import ACTIVE, FINAL, RunRecord
from tests.server.served import NOTHING, Served, wait_for
from tests.server.test_api import HERE, SHELL
from tests.server.test_same_there import ASKS

COUNT = """
apiVersion: penstock/v1
kind: Workflow
name: count
params:
  - {name: place, type: str}
  - {name: many, type: int, default: 20}
steps:
  - name: mark
    each: {axes: [{i: "${{ range(params.many) }}"}]}
    container: {image: busybox, command: [sh, -c, 'sleep 0.05; echo x >> "$1/$2"', sh, "${{ params.place }}", "${{ item.i }}"]}
"""


def record(state: str, seq: int = 5) -> RunRecord:
    return RunRecord(
        number=1, id="w-1", workflow="w", digest="", params={}, options={}, state=state, created=0.0, seq=seq
    )


@given(
    st.sampled_from(["run", "retry", "cancel"]),
    st.sampled_from([*ACTIVE, *FINAL]),
    st.sampled_from([True, False, None]),
    st.integers(0, 9),
)
def test_what_a_worker_does_about_an_order(verb: str, state: str, owned: bool | None, seq: int) -> None:
    order = WorkOrder(1, verb, {"seq": seq}, 0.0)
    action = work.action_of(order, record(state), owned)
    over = state in FINAL
    if action in ("execute", "cancel"):
        assert not over and owned is False and action == ("cancel" if verb == "cancel" else "execute")
    if action == "retry":
        assert verb == "retry" and over and state != "succeeded" and seq >= 5
    if action == "ask":
        assert verb == "cancel" and owned and not over
    if action == "drop":
        assert over
    if action == "wait":
        assert not over and owned is not False
    if over and verb != "retry":
        assert action == "drop"
    assert work.action_of(order, None, owned) == "drop"


@pytest.fixture(params=["sqlite", "postgresql"])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> Settings:
    url = str(request.getfixturevalue("postgres_url")) if request.param == "postgresql" else None
    found = read(home=tmp_path / ".penstock", store=url, jobs=4)
    stores.prepare(found)
    return found


def order(settings: Settings, document: str = NOTHING, **given: Any) -> str:
    options = given.pop("options", {"dry": True})
    with stores.open_or_create(settings) as store:
        return submit(store, settings, Parcel(document=document, options=options, **given), Actor("ana", ())).run.id


def states(settings: Settings, *runs: str) -> list[str]:
    with stores.open_or_create(settings) as store:
        return [state_of(store, found) for run in runs if (found := store.runs.by_id(run)) is not None]


def orders(settings: Settings) -> int:
    with stores.open_or_create(settings) as store:
        return store.orders.count()


def test_a_run_waits_for_a_worker_and_says_so(settings: Settings) -> None:
    run = order(settings)
    assert states(settings, run) == ["starting"]
    with stores.open_or_create(settings) as store:
        found = store.runs.by_id(run)
        assert found is not None
        assert waits(why(store, found), time.time())[0].text == f"{run} waits for a worker that is free."
    worker = Worker(settings, lambda _: None)
    worker.start()
    wait_for(lambda: states(settings, run) == ["succeeded"] and not orders(settings))
    worker.stop()
    assert worker.join(30) and worker.failure is None


def test_several_workers_take_each_run_once(settings: Settings) -> None:
    runs = [order(settings, params={"many": 2}) for _ in range(12)]
    workers = [Worker(settings, lambda _: None) for _ in range(3)]
    for one in workers:
        one.start()
    wait_for(lambda: states(settings, *runs) == ["succeeded"] * 12, what="all runs to end")
    for one in workers:
        one.stop()
    assert all(one.join(30) for one in workers)
    with stores.open_or_create(settings) as store:
        for run in runs:
            found = store.runs.by_id(run)
            assert found is not None
            kinds = [event.kind for event in store.runs.events(found.number)]
            assert kinds.count("run.started") == 1 and kinds.count("task.succeeded") == 3


def test_what_was_ordered_is_done_whoever_has_the_run(settings: Settings) -> None:
    run = order(settings, SHELL, params={"text": "bad"}, options=HERE)
    with stores.open_or_create(settings) as store:
        found = store.runs.by_id(run)
        assert found is not None
        work.cancel(store, found, "bob")  # before anybody has it
    worker = Worker(settings, lambda _: None)
    worker.start()
    wait_for(lambda: states(settings, run) == ["cancelled"])
    with stores.open_or_create(settings) as store:
        found = store.runs.by_id(run)
        assert found is not None
        with pytest.raises(RunConflict):
            work.cancel(store, found, "bob")
        work.retry(store, found, "bob")
    wait_for(lambda: states(settings, run) == ["failed"] and not orders(settings))
    worker.stop()
    assert worker.join(30)


def test_an_old_order_of_a_dead_worker_is_found(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written while the worker looks, and the order is dated years before."""
    monkeypatch.setattr("penstock.store.orders.time", SimpleNamespace(time=lambda: 1000.0))
    lost, released = order(settings), order(settings)
    done = subprocess.Popen(["true"])
    dead = liveness.identity("dead")._replace(pid=done.pid)
    done.wait()
    with stores.open_or_create(settings) as store:
        store.peers.register(dead)
        for run in (lost, released):
            found = store.runs.by_id(run)
            assert found is not None and store.runs.take(found.number, dead.id, None)
        worker = Worker(settings, lambda _: None)
        assert store.runs.release(found.number, dead.id, "stopped")
    worker.start()
    wait_for(lambda: states(settings, lost, released) == ["succeeded"] * 2 and not orders(settings))
    worker.stop()
    assert worker.join(30)


def test_after_a_write_only_new_orders_are_read(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []
    real = OrderRepository.to_do

    def to_do(self: OrderRepository, since: float = 0.0) -> list[WorkOrder]:
        asked.append(since)
        return real(self, since)

    monkeypatch.setattr(OrderRepository, "to_do", to_do)
    monkeypatch.setattr(workers, "CHECK", 3600.0)
    worker = Worker(settings, lambda _: None)
    worker.start()
    wait_for(lambda: asked)
    run = order(settings)
    wait_for(lambda: states(settings, run) == ["succeeded"] and not orders(settings))
    worker.stop()
    assert worker.join(30)
    assert asked[0] == 0.0 and len(asked) > 1 and min(asked[1:]) > time.time() - 600


def test_what_cannot_begin_is_said_and_holds_up_nobody(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """A backend that the server has and the worker has not."""
    monkeypatch.setattr(intake, "check_backends", lambda on: None)
    run = order(settings, SHELL, options={"on": {"container": "nowhere"}})
    good = order(settings)
    worker = Worker(settings, lambda _: None)
    worker.start()
    wait_for(lambda: states(settings, good) == ["succeeded"])
    with stores.open_or_create(settings) as store:
        found = store.runs.by_id(run)
        assert found is not None
        wait_for(lambda: (one := store.orders.of(found.number)) is not None and "problem" in one.data)
        [said] = waits(why(store, found), time.time())
        assert said.text.startswith(f"{run} could not be started: ") and "nowhere" in said.text
    worker.abandon()
    assert worker.join(30)


def test_a_step_is_resumed_while_nobody_executes_its_run(tmp_path: Path) -> None:
    home = tmp_path / ".penstock"
    with Served(home) as first:
        run = first.submit(ASKS, options=HERE)["run"]["run"]
        wait_for(lambda: first.get(f"runs/{run}")["tasks"].get("suspended"))
    with Served(home, worker=False) as between:
        assert between.get(f"runs/{run}")["state"] in ("stopped", "starting", "lost")
        given = {"task": "ask", "params": {"ok": "later", "many": 2}}
        assert between.ask("POST", f"/api/v1/runs/{run}/resume", given).status == 202
    with Served(home) as last:
        last.wait(run)
        assert last.ask("GET", f"/api/v1/runs/{run}/logs").text == "later 2\n"


@pytest.mark.long
@pytest.mark.slow
def test_workers_that_are_killed_lose_nothing(settings: Settings, tmp_path: Path) -> None:
    """Two at a time, killed at random moments: every run ends, and each of its tasks has left its mark."""
    dice = random.Random(17)
    env = {**os.environ, "PENSTOCK_HOME": str(settings.home), "PENSTOCK_STORE": settings.store}
    command = [sys.executable, "-m", "penstock", "worker", "-q", "-j", "4"]
    marks = [tmp_path / f"marks-{number}" for number in range(6)]
    for place in marks:
        place.mkdir()
    runs: list[str] = []

    def keep_submitting() -> None:
        for place in marks:
            runs.append(order(settings, COUNT, params={"place": str(place), "many": 15}, options=HERE))
            time.sleep(0.2)

    thread = threading.Thread(target=keep_submitting)
    thread.start()
    workers = [subprocess.Popen(command, env=env) for _ in range(2)]
    try:
        for _ in range(6):
            time.sleep(dice.uniform(0.6, 1.6))
            number = dice.randrange(2)
            workers[number].send_signal(signal.SIGKILL)
            workers[number].wait()
            workers[number] = subprocess.Popen(command, env=env)
        thread.join()
        wait_for(lambda: states(settings, *runs) == ["succeeded"] * len(marks), 120, "all runs to end")
        wait_for(lambda: not orders(settings))
    finally:
        thread.join()
        for one in workers:
            one.send_signal(signal.SIGTERM)
        for one in workers:
            one.wait(60)
    for place in marks:
        assert sorted(int(file.name) for file in place.iterdir()) == list(range(15))
