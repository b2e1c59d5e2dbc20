"""Payloads over HTTP, from Python and on the command line: 201 for a new one, 303 for one that is there (T3.1)."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from penstock.graph import codec
from penstock.runners.client import Client
from penstock.service import background
from penstock.settings import read
from tests.cli.conftest import Result
from tests.cli.conftest import penstock as penstock
from tests.server.served import Answer, Served, wait_for

Invoke = Callable[..., "Called"]
DOCUMENT = """
apiVersion: penstock/v1
kind: Workflow
name: ingest
params: [{name: payload}]
payload: {include: [.id]}
steps:
- name: a
  inputs: [{name: bad, value: "${{ params.payload.bad }}"}]
  script: {source: "exit ${{ inputs.bad }}"}
"""


class Called(NamedTuple):
    out: str

    @property
    def data(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def invoke(penstock: Callable[..., Result]) -> Invoke:
    def call(*words: str, code: int = 0) -> Called:
        found = penstock(*words)
        assert found.code == code, found
        return Called(found.out)

    return call


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with Served(tmp_path / ".penstock") as found:
        yield found


def post(served: Served, payload: Any, token: str = "", **more: Any) -> Answer:
    return served.ask("POST", "/api/v1/payloads", {"document": DOCUMENT, "payload": payload, **more}, token=token)


def test_t3_1_fifty_requests_get_one_201_and_49_times_303(served: Served) -> None:
    found: list[Answer] = []
    gate = threading.Barrier(10)

    def some() -> None:
        gate.wait(30)
        for _ in range(5):
            found.append(post(served, {"id": "scene", "bad": 0}))

    threads = [threading.Thread(target=some) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(one.status for one in found) == [201] + [303] * 49
    assert {one.headers["location"] for one in found} == {"/api/v1/runs/ingest-1"}
    assert {one.data["run"] for one in found} == {"ingest-1"}
    assert len(served.get("runs")["items"]) == 1
    served.wait("ingest-1")


def test_what_failed_is_tried_again_listed_shown_invalidated_and_driven_again(served: Served) -> None:
    post(served, {"id": "x", "bad": 3})
    served.wait("ingest-1", "failed")
    again = post(served, {"id": "x", "bad": 3})
    assert (again.status, again.data["attempt"]) == (201, 2)
    served.wait("ingest-2", "failed")
    [row] = served.get("payloads?state=failed&workflow=ingest&error=failed*&since=1")["items"]
    assert row["run"] == "ingest-2" and row["error"].startswith("failed: exit code 3")
    assert served.get("payloads?error=Timeout*")["items"] == []
    dry = served.ask("POST", "/api/v1/payloads/redrive", {"since": 0, "workflow": "ingest", "dry_run": True}).data
    assert dry == {"chosen": ["ingest-2"], "started": []}
    driven = served.ask("POST", "/api/v1/payloads/redrive", {"since": 0, "workflow": "ingest"}).data
    assert driven == {"chosen": ["ingest-2"], "started": ["ingest-3"]}
    served.wait("ingest-3", "failed")
    shown = served.get(f"payloads/{row['payload']}")
    assert [one["run"] for one in shown["history"]] == ["ingest-1", "ingest-2", "ingest-3"]
    assert [one["data"]["why"] for one in shown["events"]] == ["new", "failed", "redriven"]
    marked = served.ask("POST", "/api/v1/payloads/ingest-3/invalidate", {}).data
    assert marked["invalid_after"] == 0.0
    assert served.ask("GET", "/api/v1/payloads/nowhere").status == 404


def test_lists_have_pages(served: Served) -> None:
    for number in range(5):
        post(served, {"id": number, "bad": 0})
    first = served.get("payloads?limit=3")
    rest = served.get(f"payloads?limit=3&cursor={first['next']}")
    assert [one["run"] for one in first["items"] + rest["items"]] == [f"ingest-{n}" for n in (5, 4, 3, 2, 1)]
    assert rest["next"] is None


def test_somebody_elses_payload_is_reused_and_not_invalidated(served: Served) -> None:
    ana, bob = served.token("ana", "submitter"), served.token("bob", "submitter")
    assert post(served, {"id": "x", "bad": 0}, ana).status == 201
    assert post(served, {"id": "x", "bad": 0}, bob).status == 303
    id = post(served, {"id": "x", "bad": 0}, bob).data["payload"]
    assert served.ask("POST", f"/api/v1/payloads/{id}/invalidate", {}, token=bob).status == 403
    assert served.ask("POST", f"/api/v1/payloads/{id}/invalidate", {}, token=ana).status == 200
    assert served.ask("POST", "/api/v1/payloads/redrive", {"since": 0}, token=ana).status == 403


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b'{"document": "%s", "payload": {"a": 1, "a": 2}}', "P102"),
        (b'{"document": "%s", "payload": {"id": 1e999}}', "P512"),
        (b'{"document": "%s", "payload": {"idd": 1}}', "P513"),
    ],
)
def test_bad_payloads_are_refused_with_a_code(served: Served, body: bytes, code: str) -> None:
    text = body % json.dumps(DOCUMENT)[1:-1].encode()
    found = served.ask("POST", "/api/v1/payloads", text, headers={"Content-Type": "application/json"})
    assert (found.status, found.data["code"]) == (400, code), found


def test_from_python_and_on_the_command_line(
    served: Served, invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Client(served.url, served.own)
    workflow = codec.from_text(DOCUMENT, "ingest")
    first = client.submit_payload(workflow, {"id": "x", "bad": 0})
    assert first.created and first.wait(30).run.status == "succeeded"
    assert not client.submit_payload(workflow, {"id": "x", "bad": 0}).created
    assert [one["payload"] for one in client.payloads(workflow="ingest")] == [first.id]
    (tmp_path / "ingest.yaml").write_text(DOCUMENT)
    (tmp_path / "p.json").write_text('{"bad": 0, "id": "x"}')
    monkeypatch.setenv("PENSTOCK_TOKEN", served.own)
    sent = invoke(
        "submit", str(tmp_path / "ingest.yaml"), str(tmp_path / "p.json"), "--server", served.url, "-o", "json"
    )
    assert (sent.data["created"], sent.data["run"], sent.data["state"]) == (False, "ingest-1", "succeeded")
    listed = invoke("payload", "ls", "--server", served.url, "-o", "json")
    assert [one["run"] for one in listed.data] == ["ingest-1"]
    shown = invoke("payload", "show", "ingest-1", "--server", served.url, "-o", "json")
    assert [one["attempt"] for one in shown.data["history"]] == [1]


def is_at_rest(home: Path) -> bool:
    """Has the worker in the background ended?"""
    with background.alone(read({}, home=home)) as free:
        return free


def test_the_commands_here_with_a_worker_that_ends_by_itself(invoke: Invoke, tmp_path: Path) -> None:
    (tmp_path / "ingest.yaml").write_text(DOCUMENT)
    (tmp_path / "p.json").write_text('{"bad": 3, "id": "x"}')
    words = ("submit", str(tmp_path / "ingest.yaml"), str(tmp_path / "p.json"))
    first = invoke(*words, "--wait", code=3)
    assert "ingest-1" in first.out
    wait_for(lambda: is_at_rest(tmp_path / ".penstock"), what="the worker to end")
    second = invoke(*words, "--no-worker", "-o", "json")
    assert (second.data["attempt"], second.data["state"]) == (2, "queued")
    again = invoke(*words, "--no-worker", "-o", "json")
    assert (again.data["created"], again.data["run"]) == (False, "ingest-2")
    assert invoke("redrive", "--since", "24h", "-o", "json").data == {"chosen": [], "started": []}
    invoke(*words, "--wait", code=3)  # starts a worker for the run that waits
    driven = invoke("redrive", "--since", "24h", "--workflow", "ingest", "--error", "failed*", "-o", "json").data
    assert driven == {"chosen": ["ingest-2"], "started": ["ingest-3"]}
    shown = invoke("payload", "show", "ingest-3").out
    assert "ingest-1" in shown and "ingest-3" in shown
    wait_for(
        lambda: invoke("payload", "ls", "--state", "failed", "-o", "json").data[:1] != [], what="the last run to end"
    )
