"""Steps that wait until the work on payloads has ended, wherever and whenever that is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.graph import codec
from penstock.graph.check import errors
from penstock.service import runs, stores
from penstock.service.hosting import Host
from penstock.service.payloads.submit import PayloadRequest, submit
from penstock.service.payloads.waits import BegunWaits, EndedPayloads
from penstock.service.submission import Submission
from penstock.settings import Settings, read
from penstock.store import liveness
from penstock.store.records import RunRecord, WriteBatch
from tests.integrator.payloads import end
from tests.server.served import wait_for

WAITS = """
apiVersion: penstock/v1
kind: Workflow
name: joins
params: [{name: ids, type: "list[str]"}]
steps:
- name: both
  suspend: {payloads: "${{ params.ids }}", duration: 3600}
  outputs: [{name: ends, type: any}]
outputs: [{name: ends, value: "${{ steps.both.outputs.ends }}"}]
"""
WORK = """
apiVersion: penstock/v1
kind: Workflow
name: works
params: [{name: payload, type: any}]
payload: {param: payload}
steps:
- name: work
  script: {source: 'while test ! -e "$GO"; do sleep 0.02; done', env: {GO: "${{ params.payload.go }}"}}
- name: fail
  needs: [work]
  when: params.payload.fails
  script: {source: 'exit 3'}
outputs: [{name: id, value: "${{ params.payload.id }}"}]
"""


@pytest.fixture
def settings(where: str, tmp_path: Path) -> Settings:
    return read({}, home=tmp_path / ".penstock", store=where if "://" in where else None)


class Work:
    """Runs that work on payloads, each with an engine of its own, until it is let go."""

    def __init__(self, settings: Settings, tmp_path: Path) -> None:
        self.settings, self.folder = settings, tmp_path
        self.hosts: list[Host] = []

    def submit(self, name: str, fails: bool = False) -> str:
        payload = {"id": name, "fails": fails, "go": str(self.folder / name)}
        workflow = codec.from_text(WORK)
        request = PayloadRequest(payload=payload)
        with stores.open_or_create(self.settings) as store:
            made = submit(
                store, stores.blobs_of(self.settings), workflow, request, lambda params: Submission(workflow, params)
            )
            return made.payload.id

    def begin(self, number: int) -> None:
        host = Host(self.settings)
        self.hosts.append(host)
        with stores.open_existing(self.settings) as store:
            run = store.runs.by_number(number)
            assert run is not None
        runs.go_on(host, run.id)

    def go(self, name: str) -> None:
        (self.folder / name).touch()


def begun(settings: Settings, ids: list[str]) -> tuple[Host, Any]:
    host = Host(settings)
    return host, runs.begin(host, Submission(codec.from_text(WAITS), {"ids": ids}), {})


def ended(settings: Settings, hosted: Any) -> RunRecord:
    assert hosted.wait(60)
    with stores.open_existing(settings) as store:
        run = store.runs.by_number(hosted.run.number)
        assert run is not None
        return run


def test_a_step_goes_on_when_all_payloads_have_ended(settings: Settings, tmp_path: Path) -> None:
    """One has ended before, one ends later, in another engine."""
    work = Work(settings, tmp_path)
    one, two = work.submit("one"), work.submit("two", fails=True)
    work.go("one")
    work.begin(1)
    work.hosts[0].close()
    host, hosted = begun(settings, [one, two, one])
    wait_for(lambda: hosted.asking())
    work.begin(2)
    with stores.open_existing(settings) as store:
        assert store.runs.by_number(1).state == "succeeded"  # type: ignore[union-attr]
        assert [row for row in store.runs.tasks(hosted.run.number) if row.state == "suspended"]
    work.go("two")
    work.hosts[1].close()
    run = ended(settings, hosted)
    host.close()
    assert run.state == "succeeded" and run.outputs is not None
    assert run.outputs["ends"] == {
        one: {"state": "succeeded", "run": "works-1", "outputs": {"id": "one"}},
        two: {"state": "failed", "run": "works-2", "outputs": {"id": "two"}},
    }
    with stores.open_existing(settings) as store:
        assert not store.answers.waiting_for(one) and not store.answers.waiting_for(two)


def test_payloads_that_have_ended_count_at_once(settings: Settings, tmp_path: Path) -> None:
    work = Work(settings, tmp_path)
    one = work.submit("one")
    work.go("one")
    work.begin(1)
    work.hosts[0].close()
    host, hosted = begun(settings, [one])
    assert ended(settings, hosted).state == "succeeded"
    host.close()


def test_no_order_of_looks_misses_an_end(settings: Settings, tmp_path: Path) -> None:
    """The couriers of both sides, in either order, and twice."""
    work = Work(settings, tmp_path)
    for number, order in enumerate(((BegunWaits(), EndedPayloads()), (EndedPayloads(), BegunWaits(), EndedPayloads()))):
        id = work.submit(f"p{number}")
        with stores.open_existing(settings) as store:
            submission = Submission(codec.from_text(WAITS), {"ids": [id]})
            waiter = submission.record(store)
            store.journal.begin()
            batch = WriteBatch(asked=[(f"d{number}", waiter.number, "both", 1)])
            batch.waited.append((id, waiter.number, "both", 1))
            batch.outbox.append(
                (waiter.number, 1, "payload.wait", '{"task":"both","attempt":1}', f"w{number}", 1.0, 1.0)
            )
            batch.outbox.append((0, 1, "payload.ended", f'{{"payload":"{id}"}}', f"e{number}", 1.0, 1.0))
            store.journal.flush(batch, "")
            store.journal.commit()
            payload = store.payloads.find(id)
            assert payload is not None
            end(store, payload.run, "succeeded")
            me = liveness.identity()
            for delivery in order:
                delivery.deliver(store, store.outbox.take(delivery.kind, me, 2.0, 10))
            row = store.answers.of(waiter.number, "both", 1)
            assert row is not None and row.state == "answered" and set(row.data["outputs"]["payloads"]) == {id}


def test_what_waits_for_payloads_has_one_output_and_one_limit() -> None:
    wrong = codec.from_text(WAITS.replace("duration: 3600", "until: 2026-11-19T08:00:00Z"))
    assert [one.code for one in errors(wrong)] == ["P537"]
