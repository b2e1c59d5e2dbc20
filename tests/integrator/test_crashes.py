"""kill -9 at each point of the protocol, objects that somebody removes by hand, and reports in any order: one object, one row, the right state
(T3.3, T3.4, T3.5, T3.8). The cluster is the fake one; what a real one does besides is in tests/cluster.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock import LocalRunner
from penstock.artifacts.blobs import Blobs
from penstock.backends.base import Abilities, AttemptEnded, AttemptSpec, AttemptStarted, BackendContext
from penstock.backends.kubernetes.cluster import JOBS, PODS
from penstock.graph import codec
from penstock.graph.model import Outcome, Step
from penstock.service import stores, work
from penstock.service.workers import Worker
from penstock.settings import Settings
from penstock.store.records import Fenced, RunRecord, WriteBatch
from penstock.store.sql import Store
from tests.backends.kubernetes.fake_cluster import NAMESPACE, FakeCluster
from tests.integrator import submitter
from tests.integrator.payloads import end, send

POINTS = ["its id is known", "its blob is there", "its run is written", "all is committed"]


def wait_for(done: Callable[[], Any], what: str = "") -> None:
    until = time.monotonic() + 60
    while not done():
        assert time.monotonic() < until, what
        time.sleep(0.01)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCluster]:
    made = FakeCluster(Blobs(tmp_path / "home" / "artifacts"))
    (tmp_path / "kubeconfig").write_text(made.kubeconfig())
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    monkeypatch.setenv("PENSTOCK_KUBERNETES_VOLUME", "host:/data")
    yield made
    made.stop()


@pytest.fixture
def settings(tmp_path: Path, where: str, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("PENSTOCK_STORE", where)  # the objects of a cluster are those of a store
    return submitter.settings_at(str(tmp_path / "home"), where)


def process(point: str, settings: Settings, image: str) -> subprocess.Popen[bytes]:
    env = {**os.environ, "PENSTOCK_HOME": str(settings.home), "PENSTOCK_STORE": settings.store}
    words = [sys.executable, "-m", "tests.integrator.submitter", point, str(settings.home), settings.store, image]
    return subprocess.Popen(words, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@contextmanager
def worker(settings: Settings) -> Iterator[None]:
    made = Worker(settings, lambda line: None)
    made.start()
    try:
        yield
    finally:
        made.abandon()
        assert made.join(30)


def ended(settings: Settings, number: int = 1) -> RunRecord:
    with stores.open_existing(settings) as store:
        found: list[RunRecord] = []

        def over() -> bool:
            run = store.runs.by_number(number)
            found[:] = [] if run is None else [run]
            return run is not None and run.ended is not None

        wait_for(over, "the run to end")
        return found[0]


@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS)
def test_t3_3_a_submitter_that_is_killed_and_starts_again_makes_one_object(
    cluster: FakeCluster, settings: Settings, point: str
) -> None:
    assert process(point, settings, "succeed").wait(60) == -9
    again = submitter.send(settings, "succeed")  # as a queue delivers again
    assert again.created == (point != "all is committed")
    assert (again.payload.run_id, again.payload.attempts) == ("ingest-1", 1)
    with worker(settings):
        assert ended(settings).state == "succeeded"
        with stores.open_existing(settings) as store:
            wait_for(lambda: not store.orders.all(), "no order to be left")
            assert len(store.runs.newest()) == 1
    assert len(cluster.made) == 1 and cluster.nodes.times == {"succeed": 1}
    assert not submitter.send(settings, "succeed").created


@pytest.mark.slow
def test_t3_3_a_worker_that_is_killed_when_the_object_is_there_makes_no_second_one(
    cluster: FakeCluster, settings: Settings
) -> None:
    submitter.send(settings, "hang")
    child = process("work", settings, "hang")
    wait_for(lambda: cluster.made, "the object to be made")
    child.kill()
    child.wait()
    assert not submitter.send(settings, "hang").created
    with worker(settings):
        wait_for(lambda: cluster.nodes.times, "the object to run")
        cluster.nodes.hold.set()
        assert ended(settings).state == "succeeded"
    assert len(set(cluster.made)) == 1 and cluster.nodes.times == {"hang": 1}


# -- T3.8 -------------------------------------------------------------------------------------------------------------


def test_t3_8_an_object_that_somebody_removes_is_made_again_and_none_is_left(
    cluster: FakeCluster, settings: Settings
) -> None:
    submitter.send(settings, "hang")
    with worker(settings):
        wait_for(lambda: cluster.names(PODS), "the object to run")
        [job] = cluster.names()
        cluster.remove(JOBS, NAMESPACE, job)
        wait_for(lambda: len(cluster.made) > 1, "another object to be made")
        with stores.open_existing(settings) as store:
            assert [row.state for row in store.runs.tasks(1)] in (["running"], ["waiting"])
        cluster.nodes.hold.set()
        assert ended(settings).state == "succeeded"
        wait_for(lambda: not cluster.names() and not cluster.names(PODS), "no object to be left")


@pytest.mark.slow
def test_t3_8_the_object_of_a_run_that_nobody_goes_on_with_is_removed(cluster: FakeCluster, settings: Settings) -> None:
    submitter.send(settings, "hang")
    child = process("work", settings, "hang")
    wait_for(lambda: cluster.names(PODS), "the object to run")
    child.kill()
    child.wait()
    with stores.open_existing(settings) as store:
        run = store.runs.by_number(1)
        assert run is not None
        work.cancel(store, run, "ann", now=True)
    with worker(settings):
        assert ended(settings).state == "cancelled"
        wait_for(lambda: not cluster.names() and not cluster.names(PODS), "no object to be left")


# -- T3.4, T3.5: reports of backends ----------------------------------------------------------------------------------


class Unruly:
    """A backend whose reports come twice, in the wrong order, and about attempts that are over."""

    def __init__(self, context: BackendContext) -> None:
        self.abilities = Abilities()
        self._context = context
        self._before: list[str] = []

    def room(self) -> int:
        return 10

    def room_for(self, step: Step) -> int:
        return 10

    def start(self, specs: Sequence[AttemptSpec]) -> None:
        inbox = self._context.inbox
        for spec in specs:
            for old in self._before:  # the last word of an attempt that is over, and another one
                inbox.put(AttemptEnded(id=old, outcome=Outcome.SUCCEEDED, outputs={"n": "late"}))
                inbox.put(AttemptStarted(id=old))
                inbox.put(AttemptEnded(id=old, outcome=Outcome.FAILED, message="late"))
            failed = spec.attempt == 1
            outcome = Outcome.FAILED if failed else Outcome.SUCCEEDED
            last = AttemptEnded(id=spec.id, outcome=outcome, outputs={} if failed else {"n": "right"}, message="no")
            for report in (last, AttemptStarted(id=spec.id), last):
                inbox.put(report)
            inbox.put(AttemptEnded(id=spec.id, outcome=Outcome.FAILED, message="twice"))
            self._before.append(spec.id)

    def stop(self, id: str, grace: float) -> None:
        pass

    async def close(self) -> None:
        pass


def test_t3_4_t3_5_reports_that_are_doubled_reversed_or_late_change_nothing(tmp_path: Path) -> None:
    steps = [
        {
            "name": "a",
            "retry": {"limit": 2, "backoff": {"initial": 0.01}},
            "outputs": [{"name": "n"}],
            "script": {"source": "x"},
        }
    ]
    outputs = [{"name": "n", "value": "${{ steps.a.outputs.n }}"}]
    head = {"apiVersion": "penstock/v1", "kind": "Workflow", "name": "w", "steps": steps, "outputs": outputs}
    with LocalRunner(home=tmp_path, on={"script": "unruly"}, backends={"unruly": Unruly}) as runner:
        run = runner.run(codec.from_data(head))
    assert (run.status, run.result) == ("succeeded", "right")
    kinds = [event.kind for event in run.events if event.task == "a"]
    assert kinds.count("task.failed") == 1 and kinds.count("task.succeeded") == 1
    assert kinds.index("task.failed") < kinds.index("task.succeeded")


SKEWS = [[0, 3600, -300], [3600, 0, 300], [-300, -301, -302]]


@pytest.mark.parametrize("skew", SKEWS)
def test_t3_4_the_order_of_the_log_decides_and_not_the_clock(store: Store, skew: list[int]) -> None:
    run = send(store, {"id": "a"}).run
    assert run is not None
    for state, seconds in zip(("running", "failed", "succeeded"), skew, strict=True):
        end(store, run.number, state, "Late: no" if state == "failed" else "", at=10_000.0 + seconds)
    assert [event.seq for event in store.runs.events(run.number)] == [1, 2, 3, 4]
    found = store.payloads.find(send(store, {"id": "a"}).payload.id)
    assert found is not None and (found.state, found.error, found.attempts) == ("succeeded", "", 1)


def test_t3_5_the_end_of_an_older_attempt_does_not_change_the_payload(store: Store) -> None:
    first = send(store, {"id": "a"}).run
    assert first is not None
    end(store, first.number, "failed", "Timeout: slow")
    second = send(store, {"id": "a"}).run
    assert second is not None
    end(store, second.number, "running")
    end(store, first.number, "succeeded", at=99_999.0)  # a late word, with a later time
    again = send(store, {"id": "a"})
    assert (again.created, again.payload.run_id, again.payload.state) == (False, second.id, "running")


def test_t3_5_an_engine_that_has_lost_the_run_writes_nothing(store: Store) -> None:
    run = send(store, {"id": "a"}).run
    assert run is not None
    assert store.runs.take(run.number, "old", None) and store.runs.take(run.number, "new", "old")
    batch = WriteBatch()
    batch.events.append((run.number, 2, 1.0, "run.finished", "", "{}"))
    batch.runs[run.number] = (2, "failed", 1.0, "{}", None, "Late: no", 0)
    store.journal.begin()
    with pytest.raises(Fenced):
        store.journal.flush(batch, "old")
    assert send(store, {"id": "a"}).payload.state == "queued"
    assert len(list(store.runs.events(run.number))) == 1
