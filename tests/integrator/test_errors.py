"""What a run failed with is the task's own: T1.3 and T1.4; and payloads that pass by reference: T1.2."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import InvalidInput, LocalRunner, PayloadIdentity, task, workflow
from penstock.artifacts.blobs import Blobs
from penstock.graph import codec
from penstock.graph.model import Workflow
from penstock.service import runs, stores
from penstock.service.hosting import Host
from penstock.service.payloads.sender import PayloadSender
from penstock.service.payloads.submit import PayloadRequest, SubmittedPayload
from penstock.settings import Settings, read
from penstock.store.records import RunRecord
from tests.backends.kubernetes.fake_cluster import FakeCluster

STEPS = """
apiVersion: penstock/v1
kind: Workflow
name: ingest
params: [{name: payload}]
payload: {include: [.id]}
"""


class BadScene(InvalidInput):
    pass


@task(retry=3)
def check(payload: dict[str, Any]) -> int:
    if payload["id"] == "bad":
        raise BadScene("no bbox")
    if payload["id"] == "broken":
        raise RuntimeError("disk on fire")
    return 1


@workflow(payload=PayloadIdentity(include=(".id",)))
def ingest(payload: dict[str, Any]) -> int:
    return check(payload)


def text(steps: str) -> Workflow:
    return codec.from_text(STEPS + steps, "ingest")


def settings_at(folder: Path) -> Settings:
    return read({}, home=folder / ".penstock", jobs=2)


def submitted(settings: Settings, graph: Workflow, payload: Any, **options: Any) -> tuple[SubmittedPayload, RunRecord]:
    """Submits, and executes the run if it is new."""
    sender = PayloadSender(graph, settings, options, worker=False)
    try:
        found = sender.submit(PayloadRequest(payload=payload))
    finally:
        sender.close()
    if found.run is not None:
        host = Host(settings, options.get("on"))
        try:
            assert runs.go_on(host, found.run.id).wait(60)
        finally:
            host.close()
    with stores.open_existing(settings) as store:
        run = store.runs.by_number(found.payload.run)
        assert run is not None
        return found, run


def attempts(settings: Settings, run: RunRecord) -> int:
    with stores.open_existing(settings) as store:
        return sum(event.kind == "task.failed" for event in store.runs.events(run.number))


# -- T1.3 -------------------------------------------------------------------------------------------------------------


def test_t1_3_a_function_that_raises_invalid_input_is_not_retried_and_not_run_again(tmp_path: Path) -> None:
    settings = settings_at(tmp_path)
    _, run = submitted(settings, ingest.graph, {"id": "bad"}, on={"function": "inline"})
    assert (run.state, run.invalid) == ("failed", True)
    assert run.error.endswith("BadScene: no bbox")
    assert attempts(settings, run) == 1
    again, same = submitted(settings, ingest.graph, {"id": "bad"}, on={"function": "inline"})
    assert (again.created, same.id, again.payload.state) == (False, run.id, "invalid")


def test_t1_3_a_worker_process_tells_it_too(tmp_path: Path) -> None:
    with LocalRunner(home=tmp_path / ".penstock", jobs=1) as runner:
        run = runner.run(ingest, {"id": "bad"})
        assert run.status == "failed" and len([one for one in run.events if one.kind == "task.failed"]) == 1


def test_t1_3_a_generic_failure_is_retried_and_run_again(tmp_path: Path) -> None:
    settings = settings_at(tmp_path)
    graph = text("steps: [{name: a, retry: {limit: 1, backoff: {initial: 0.01}}, script: {source: 'exit 3'}}]")
    _, run = submitted(settings, graph, {"id": 1})
    assert (run.state, run.invalid, attempts(settings, run)) == ("failed", False, 2)
    again, other = submitted(settings, graph, {"id": 1})
    assert again.created and other.id != run.id and again.payload.attempts == 2


SAYS = """printf '{"error": "BadScene", "message": "no bbox", "invalid": %s}' >"$PENSTOCK_ERROR"; exit 7"""


@pytest.mark.parametrize(
    ("source", "invalid", "error"),
    [
        (SAYS % "true", True, "BadScene: no bbox"),
        (SAYS % "false", False, "BadScene: no bbox"),
        ("""echo '{"error": "Own"}' >"$PENSTOCK_ERROR"; exit 1""", False, "Own"),
        ("echo nonsense >$PENSTOCK_ERROR; exit 1", False, "failed: exit code 1"),
        ("exit 65", True, "failed: exit code 65"),
        ("kill -9 $$", False, "Killed: "),
    ],
)
def test_t1_3_a_command_says_it_in_a_file_or_by_its_exit_code(
    tmp_path: Path, source: str, invalid: bool, error: str
) -> None:
    settings = settings_at(tmp_path)
    step = {"name": "a", "retry": {"limit": 1, "backoff": {"initial": 0.01}}, "script": {"source": source}}
    _, run = submitted(settings, text(f"steps: [{json.dumps(step)}]"), {"id": 1})
    assert (run.state, run.invalid) == ("failed", invalid)
    assert run.error.startswith(error), run.error
    assert attempts(settings, run) == (1 if invalid else 2)


def test_an_exit_code_of_65_means_nothing_without_a_payload(tmp_path: Path) -> None:
    with LocalRunner(home=tmp_path / ".penstock", jobs=1) as runner:
        document = {"apiVersion": "penstock/v1", "kind": "Workflow", "name": "plain"}
        steps = [{"name": "a", "retry": {"limit": 1, "backoff": {"initial": 0.01}}, "script": {"source": "exit 65"}}]
        run = runner.run(codec.from_data({**document, "steps": steps}))
        assert len([one for one in run.events if one.kind == "task.failed"]) == 2


# -- T1.4: on this machine --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("steps", "error"),
    [
        ("[{name: a, timeout: 0.2, script: {source: sleep 60}}]", "TimeoutError: timed out after 0.2 s"),
        ("[{name: a, script: {source: exit 4}}]", "failed: exit code 4"),
        (
            "[{name: a, tolerates: [failed], script: {source: exit 1}}, {name: b, needs: [{step: a, outcomes: [failed]}], script: {source: exit 5}}]",
            "failed: exit code 5",
        ),
        (
            """[{name: a, script: {source: exit 1}}, {name: fix, needs: [{step: a, outcomes: [failed]}], script: {source: exit 0}},
                {name: b, needs: [fix], script: {source: exit 6}}]""",
            "failed: exit code 6",
        ),
    ],
)
def test_t1_4_the_first_failure_that_nobody_dealt_with_is_the_error_of_the_run(
    tmp_path: Path, steps: str, error: str
) -> None:
    _, run = submitted(settings_at(tmp_path), text(f"steps: {steps}"), {"id": 1})
    assert run.state == "failed" and run.error.startswith(error), run.error


def test_t1_4_an_exception_keeps_its_type_and_message(tmp_path: Path) -> None:
    graph = ingest.graph
    data = codec.to_data(graph)
    data["steps"] = [{key: value for key, value in one.items() if key != "retry"} for one in data["steps"]]
    plain = codec.from_data(data)
    _, run = submitted(settings_at(tmp_path), plain, {"id": "broken"}, on={"function": "inline"})
    assert run.error == "RuntimeError: disk on fire" and not run.invalid


def test_t1_4_the_error_is_the_same_when_another_engine_goes_on(tmp_path: Path) -> None:
    settings = settings_at(tmp_path)
    mark = tmp_path / "mark"
    graph = text(f"""
steps:
- {{name: first, tolerates: [failed], script: {{source: exit 9}}}}
- {{name: a, needs: [{{step: first, outcomes: [failed]}}], script: {{source: exit 65}}}}
- {{name: b, script: {{source: "while ! test -e {mark}; do sleep 0.05; done"}}}}
""")
    sender = PayloadSender(graph, settings, {}, worker=False)
    sender.submit(PayloadRequest(payload={"id": 1}))
    sender.close()
    env = {**os.environ, "PENSTOCK_HOME": str(settings.home)}
    worker = subprocess.Popen([sys.executable, "-m", "penstock", "worker", "-q"], env=env)
    with stores.open_existing(settings) as store:
        until = time.monotonic() + 60
        while not any(one.kind == "task.failed" and one.task == "a" for one in store.runs.events(1)):
            assert time.monotonic() < until
            time.sleep(0.02)
    worker.kill()
    worker.wait()
    mark.touch()
    host = Host(settings)
    assert runs.go_on(host, "ingest-1").wait(60)
    host.close()
    with stores.open_existing(settings) as store:
        run = store.runs.by_number(1)
    assert run is not None and (run.state, run.invalid, run.error) == ("failed", True, "failed: exit code 65")


# -- T1.4: on a cluster -----------------------------------------------------------------------------------------------


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCluster]:
    made = FakeCluster(Blobs(tmp_path / ".penstock" / "artifacts"))
    (tmp_path / "kubeconfig").write_text(made.kubeconfig())
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    monkeypatch.setenv("PENSTOCK_KUBERNETES_VOLUME", "host:/data")
    yield made
    made.stop()


@pytest.mark.parametrize(
    ("does", "error", "said"),
    [
        ("oom", "OutOfMemory: ", "memory"),
        ("nopull", "ImagePullError: ", "cannot be pulled"),
        ("evict", "NodeLost: ", "taken away"),
    ],
)
def test_t1_4_a_pod_that_was_killed_not_pulled_or_lost_says_so(
    cluster: FakeCluster, tmp_path: Path, does: str, error: str, said: str
) -> None:
    steps = f"steps: [{{name: a, container: {{image: 'does:{does}', command: [x]}}}}]"
    _, run = submitted(settings_at(tmp_path), text(steps), {"id": 1}, on={"container": "kubernetes"})
    assert run.state == "failed" and run.error.startswith(error) and said in run.error, run.error


# -- T1.2 -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [100, 130_000, 2_500_000])
def test_t1_2_a_command_gets_a_payload_as_a_file_and_gives_one_whatever_its_size(tmp_path: Path, size: int) -> None:
    settings = settings_at(tmp_path)
    graph = text("""
steps:
- name: copy
  inputs: [{name: scene, value: "${{ params.payload }}", path: /in/scene.json}]
  outputs: [{name: out, path: /out/scene.json}, {name: n, type: int, path: /out/n}]
  script: {source: "wc -c < /in/scene.json > /out/n; cp /in/scene.json /out/scene.json"}
- {name: id, inputs: [{name: id, value: "${{ params.payload.id }}"}], outputs: [{name: id, path: /dev/stdout}],
   script: {source: "printf ${{ inputs.id }}"}}
outputs:
- {name: out, value: "${{ steps.copy.outputs.out }}"}
- {name: n, value: "${{ steps.copy.outputs.n }}"}
- {name: id, value: "${{ steps.id.outputs.id }}"}
""")
    payload = {"id": "big", "data": "x" * size}
    _, run = submitted(settings, graph, payload)
    assert run.state == "succeeded", run.error
    assert run.outputs is not None and run.outputs["n"] >= size and run.outputs["id"] == "big"
    recorded = len(json.dumps(run.params))
    assert recorded < 1000  # the record has no copy of it: lists of runs stay small
    again, same = submitted(settings, graph, payload)
    assert not again.created and same.id == run.id
