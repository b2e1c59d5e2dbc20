"""Runs told to the real tracking server of MLflow, from PyPI: down when they start, killed in between, slow; nothing lost, nothing twice, no run held up.

It needs no Kubernetes. It is here because its installation takes long (`make test-cluster`). The same with a small server: tests/service/test_tracking.py."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.errors import TestbedError
from testbed.mlflow import MlflowServer, install, program
from tests.service.test_tracking import FLOW

TASKS = {"", "shards", "report", "model", "best", "train[0]", "train[1]", "train[2]"}
SLOW = """
import time
from pathlib import Path
from penstock import task, workflow

@task(cache=False)
def step(n: int) -> dict[str, float]:
    return {"n": float(n)}

@task(cache=False)
def last(steps: list[dict[str, float]], place: str) -> dict[str, float]:
    began = time.monotonic()
    while not Path(place).exists():
        time.sleep(0.05)
    return {"waited": time.monotonic() - began}

@workflow
def many(place: str = "go", count: int = 20):
    return [last([step(n) for n in range(count)], place)]
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MlflowServer]:
    left = float(os.environ.get("PENSTOCK_CLUSTER_DEADLINE", "inf")) - time.time()
    if left < (120 if program().exists() else 420):
        pytest.skip("mlflow: the time for the tests is spent")
    try:
        install(min(left, 600.0))
    except TestbedError as error:
        pytest.skip(str(error))
    with MlflowServer(tmp_path_factory.mktemp("mlflow")) as one:
        yield one


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [name for name in os.environ if name.startswith("MLFLOW_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "flow.py").write_text(FLOW)
    (tmp_path / "many.py").write_text(SLOW)
    return tmp_path


def penstock(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    given = os.environ | env
    return subprocess.run([sys.executable, "-m", "penstock", *words], env=given, capture_output=True, text=True)


def wait_until(done: Any, what: str) -> None:
    until = time.monotonic() + 90
    while True:
        with contextlib.suppress(OSError):
            if done():
                return
        assert time.monotonic() < until, what
        time.sleep(0.1)


def runs_of(server: MlflowServer, experiment: str) -> dict[str, Any]:
    """Task -> run as the server tells it; each once."""
    api = f"{server.url}/api/2.0/mlflow"
    with urllib.request.urlopen(f"{api}/experiments/get-by-name?experiment_name={experiment}") as answer:
        id = json.load(answer)["experiment"]["experiment_id"]
    body = json.dumps({"experiment_ids": [id], "max_results": 1000}).encode()
    asked = urllib.request.Request(f"{api}/runs/search", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(asked) as answer:
        found = json.load(answer).get("runs", [])
    made: dict[str, Any] = {}
    for one in found:
        data = one["data"]
        told = {
            name: {entry["key"]: entry["value"] for entry in data.get(name, [])}
            for name in ("params", "metrics", "tags")
        }
        path = told["tags"].get("penstock.task", "")
        assert path not in made, f"{path!r} is there twice"
        made[path] = {**one["info"], **told}
    return made


def check_whole(server: MlflowServer, experiment: str) -> None:
    tree = runs_of(server, experiment)
    assert set(tree) == TASKS
    assert {one["status"] for one in tree.values()} == {"FINISHED"} and all(one["end_time"] for one in tree.values())
    root = tree[""]
    assert root["params"] == {"n": "3", "lr": "0.5", "note": "first"} and root["metrics"] == {"result": 1.0}
    for number in range(3):
        one = tree[f"train[{number}]"]
        assert one["params"] == {"shard": str(number), "lr": "0.5"}
        assert one["metrics"] == {"loss": number * 0.5, "accuracy": 0.5}
        assert one["tags"]["mlflow.parentRunId"] == root["run_id"]
    kept = {path: server.artifacts / one["artifact_uri"].partition(":/")[2] / "outputs" for path, one in tree.items()}
    assert (kept["model"] / "result" / "model.txt").read_text() == "weights"
    assert (kept["report"] / "result.txt").read_text() == "good " * 200
    assert json.loads((kept["shards"] / "result.json").read_text()) == [0, 1, 2]


def test_a_run_is_told_whole(server: MlflowServer) -> None:
    done = penstock("run", "flow.py", PENSTOCK_MLFLOW=server.url, PENSTOCK_MLFLOW_EXPERIMENT="whole")
    assert done.returncode == 0 and "  mlflow " in done.stderr, done.stderr
    if "still to be told" in done.stderr:  # its first answers take long
        done = penstock("resume", "fit-1", PENSTOCK_MLFLOW=server.url)
        assert done.returncode == 0 and done.stdout.startswith(f"{server.url}/#/experiments/"), done.stderr
    check_whole(server, "whole")


def test_a_server_that_is_down_at_the_start_and_killed_in_between_holds_up_nothing_and_has_all_in_the_end(
    server: MlflowServer,
) -> None:
    env = os.environ | {"PENSTOCK_MLFLOW": server.url, "PENSTOCK_MLFLOW_EXPERIMENT": "killed"}
    words = [sys.executable, "-m", "penstock", "run", "many.py", "-j", "1", "-o", "json"]
    server.stop()
    process = subprocess.Popen(words, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        server.start()
        wait_until(lambda: len(runs_of(server, "killed")) > 3, "something is told")
        server.stop()
        assert process.poll() is None, "it was killed after the end"
        Path("go").touch()
        said, errors = process.communicate(timeout=120)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0 and "still to be told" in errors, errors
    alone = penstock("run", "many.py", "-j", "1", "-o", "json", PENSTOCK_MLFLOW="no")
    waited = json.loads(said)["outputs"]["result"][0]["waited"]
    assert json.loads(said)["seconds"] - waited < json.loads(alone.stdout)["seconds"] + 5.0
    server.start()
    penstock("resume", "many-1", **env)
    assert "P413" in penstock("resume", "many-1", **env).stderr
    tree = runs_of(server, "killed")
    assert set(tree) == {"", "last", *(f"step[{number}]" for number in range(20))}
    assert {one["status"] for one in tree.values()} == {"FINISHED"}
    for number in range(20):
        assert tree[f"step[{number}]"]["metrics"] == {"n": float(number)}
        assert tree[f"step[{number}]"]["params"] == {"n": str(number)}


def test_a_server_that_is_silent_holds_up_nothing(server: MlflowServer) -> None:
    """It takes connections and does not answer; then it does."""
    env = {"PENSTOCK_MLFLOW": server.url, "PENSTOCK_MLFLOW_EXPERIMENT": "silent"}
    server.freeze()
    try:
        began = time.monotonic()
        done = penstock("run", "flow.py", "-o", "json", **env)
        took = time.monotonic() - began
        began = time.monotonic()
        assert penstock("run", "flow.py", "--fresh", PENSTOCK_MLFLOW="no").returncode == 0
        assert done.returncode == 0 and "still to be told" in done.stderr
        assert took < time.monotonic() - began + 10.0  # a call alone would wait for 30
    finally:
        server.thaw()
    assert penstock("resume", "fit-1", **env).returncode == 0
    check_whole(server, "silent")
