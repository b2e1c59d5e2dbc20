"""Runs are told to a tracking server: all of them, once, and no run waits for it. The server is a small one that speaks MLflow's calls."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import LocalRunner
from penstock.errors import UserError
from penstock.expressions.secret import Secret
from penstock.graph.stored import Stored
from penstock.service import queues, stores
from penstock.service.tracking import entries
from penstock.service.tracking.sender import SILENCE, Sender
from penstock.service.tracking.target import configured, split
from penstock.settings import read
from penstock.store.sql import open_store
from tests.support.mlflow_double import MlflowDouble

FLOW = """
from pathlib import Path
from penstock import task, workflow

@task
def shards(n: int) -> list[int]:
    return list(range(n))

@task
def train(shard: int, lr: float) -> dict[str, float]:
    return {"loss": shard * lr, "accuracy": 1 - lr}

@task
def report(scores: list[dict[str, float]]) -> str:
    return "good " * 200

@task
def model(scores: list[dict[str, float]]) -> Path:
    path = Path("model.txt")
    path.write_text("weights")
    return path

@task
def best(scores: list[dict[str, float]]) -> float:
    return max(score["loss"] for score in scores)

@workflow
def fit(n: int = 3, lr: float = 0.5, note: str = "first"):
    scores = [train(shard, lr) for shard in shards(n)]
    report(scores)
    model(scores)
    return best(scores)
"""


@pytest.fixture
def server() -> Iterator[MlflowDouble]:
    with MlflowDouble() as one:
        yield one


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [name for name in os.environ if name.startswith(("MLFLOW_", "PENSTOCK_"))]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "flow.py").write_text(FLOW)
    return tmp_path


def penstock(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    given = os.environ | env
    return subprocess.run([sys.executable, "-m", "penstock", *words], env=given, capture_output=True, text=True)


def wait_until(done: Any, what: str) -> None:
    until = time.monotonic() + 60
    while not done():
        assert time.monotonic() < until, what
        time.sleep(0.02)


def check_whole(server: MlflowDouble, run: str = "fit-1", n: int = 3) -> None:
    """Everything of a run of FLOW is there, once."""
    tree = server.tree(run)
    tasks = {"", "shards", "report", "model", "best", *(f"train[{number}]" for number in range(n))}
    assert set(tree) == tasks
    assert {one.status for one in tree.values()} == {"FINISHED"} and all(one.end for one in tree.values())
    root = tree[""]
    assert root.params == {"n": str(n), "lr": "0.5", "note": "first"}
    assert root.last == {"result": (n - 1) * 0.5} and root.name == run
    for number in range(n):
        one = tree[f"train[{number}]"]
        assert one.params == {"shard": str(number), "lr": "0.5"}
        assert one.last == {"loss": number * 0.5, "accuracy": 0.5}
        assert one.tags["mlflow.parentRunId"] == root.id and one.tags["penstock.step"] == "train"
    assert tree["model"].files == {"outputs/result/model.txt": b"weights"}
    assert tree["report"].files == {"outputs/result.txt": b"good " * 200}
    assert json.loads(tree["shards"].files["outputs/result.json"]) == list(range(n))
    assert all(len(points) == 1 for one in tree.values() for points in one.metrics.values())


def test_parameters_metrics_outputs_and_files_of_a_run_and_its_tasks_are_told(server: MlflowDouble) -> None:
    done = penstock("run", "flow.py", PENSTOCK_MLFLOW=server.url)
    assert done.returncode == 0, done.stderr
    check_whole(server)
    assert server.experiments == {"fit": "1"}
    assert f"mlflow {server.url}/#/experiments/1/runs/{server.tree('fit-1')[''].id}" in done.stderr
    again = penstock("run", "flow.py", PENSTOCK_MLFLOW=server.url, PENSTOCK_MLFLOW_EXPERIMENT="trials")
    assert again.returncode == 0 and server.experiments == {"fit": "1", "trials": "2"}
    assert {one.tags["penstock.state"] for path, one in server.tree("fit-2").items() if path} == {"reused"}
    assert server.tree("fit-2")["train[1]"].params == {"shard": "1", "lr": "0.5"}
    assert penstock("run", "flow.py", "--dry", "--new", PENSTOCK_MLFLOW=server.url).returncode == 0
    assert not server.tree("fit-3")


@pytest.mark.slow
def test_a_server_that_is_down_delays_nothing_and_the_next_run_tells_all(server: MlflowDouble) -> None:
    server.stop()
    done = penstock("run", "flow.py", PENSTOCK_MLFLOW=server.url)
    assert done.returncode == 0 and "still to be told" in done.stderr and "nobody listens" in done.stderr
    assert "penstock resume fit-1" in done.stderr and not server.runs
    target = configured({"PENSTOCK_MLFLOW": server.url})
    assert target is not None
    sender = Sender(read(), target)
    sender.start()
    wait_until(lambda: sender.trouble, "it finds nobody")
    began = time.monotonic()
    sender.close()
    assert time.monotonic() - began < SILENCE
    assert penstock("run", "flow.py", "--fresh", PENSTOCK_MLFLOW="no").returncode == 0
    server.start()
    done = penstock("run", "flow.py", "-p", "note=second", PENSTOCK_MLFLOW=server.url)
    assert done.returncode == 0, done.stderr
    check_whole(server)
    assert not server.tree("fit-2") and server.tree("fit-3")[""].params["note"] == "second"


@pytest.mark.slow
def test_resume_of_a_run_that_is_over_tells_the_rest(server: MlflowDouble) -> None:
    server.stop()
    assert penstock("run", "flow.py", "-q", PENSTOCK_MLFLOW=server.url).returncode == 0
    down = penstock("resume", "fit-1", PENSTOCK_MLFLOW=server.url)
    assert down.returncode == 2 and "P912" in down.stderr and "nobody listens" in down.stderr
    server.start()
    for elsewhere in ("", "http://127.0.0.1:9"):
        other = penstock("resume", "fit-1", PENSTOCK_MLFLOW=elsewhere)
        assert other.returncode == 2 and "P912" in other.stderr and server.url in other.stderr
    kept = penstock("gc", "--older", "0s", "--keep", "0", "--yes")
    assert kept.returncode == 0 and "fit-1 kept" in kept.stderr
    done = penstock("resume", "fit-1", PENSTOCK_MLFLOW=server.url)
    assert done.returncode == 0 and done.stdout.startswith(f"{server.url}/#/experiments/1/runs/")
    check_whole(server)
    over = penstock("resume", "fit-1", PENSTOCK_MLFLOW=server.url)
    assert "P413" in over.stderr
    assert penstock("gc", "--older", "0s", "--keep", "0", "--yes").returncode == 0
    with open_store(str(Path(".penstock").absolute())) as store:
        assert store.runs.newest() == [] and store.tracking.of(1) is None


@pytest.mark.slow
@pytest.mark.parametrize("every", [2, 3, 7])
def test_answers_that_are_lost_lose_nothing_and_make_nothing_twice(
    every: int, server: MlflowDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call was done; its answer was not heard."""
    monkeypatch.setattr("penstock.service.tracking.sender._FIRST_PAUSE", 0.01)
    monkeypatch.setattr("penstock.service.tracking.sender._LONGEST_PAUSE", 0.02)
    server.stop()
    assert penstock("run", "flow.py", "-q", PENSTOCK_MLFLOW=server.url).returncode == 0
    server.start()
    server.lose_every = every
    target = configured({"PENSTOCK_MLFLOW": server.url})
    assert target is not None
    settings = read()
    sender = Sender(settings, target)
    sender.start()
    with stores.open_existing(settings) as store:
        if every == 2:  # half of the answers: nothing gets through that needs two
            wait_until(lambda: len(server.calls) > 40, "it goes on trying")
            server.lose_every = 0
        wait_until(lambda: not store.tracking.behind(), "all is told")
    sender.close()
    check_whole(server)


@pytest.mark.slow
def test_runs_that_the_server_makes_long_after_nobody_waits_for_them_are_deleted(
    server: MlflowDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were searched for before they were made, so others were made in their place."""
    server.stop()
    assert penstock("run", "flow.py", "-q", PENSTOCK_MLFLOW=server.url).returncode == 0
    server.start()
    server.late = 1.0
    monkeypatch.setattr("penstock.service.tracking.sender._FIRST_PAUSE", 0.01)
    monkeypatch.setattr("penstock.service.tracking.sender._LONGEST_PAUSE", 0.02)
    target = configured({"PENSTOCK_MLFLOW": server.url})
    assert target is not None
    settings = read()
    sender = Sender(settings, target, timeout=0.4)
    sender.start()
    with stores.open_existing(settings) as store:
        wait_until(lambda: not store.tracking.behind(), "all is told")
    sender.close()
    check_whole(server)
    assert [one for one in server.runs.values() if one.deleted]


@pytest.mark.slow
def test_kill_9_in_the_middle_loses_nothing_and_makes_nothing_twice(server: MlflowDouble) -> None:
    """At many points of what is told: each process tells a little, and is killed."""
    server.stop()
    assert penstock("run", "flow.py", "-q", PENSTOCK_MLFLOW=server.url).returncode == 0
    server.start()
    server.delay = 0.01
    kills = 0
    for round_ in range(60):
        before = len(server.calls)
        words = [sys.executable, "-m", "penstock", "resume", "fit-1"]
        process = subprocess.Popen(words, env=os.environ | {"PENSTOCK_MLFLOW": server.url}, stderr=subprocess.PIPE)
        try:
            # Each round lets it come a little further, wherever the round before came to.
            wait_until(lambda: len(server.calls) >= before + 3 + 2 * round_ or process.poll() is not None, "it tells")  # noqa: B023
        finally:
            process.send_signal(signal.SIGKILL)
            _, said = process.communicate()
        if process.returncode != -signal.SIGKILL:
            assert process.returncode == 0, said
            break
        kills += 1
    assert kills >= 3
    assert "P413" in penstock("resume", "fit-1", PENSTOCK_MLFLOW=server.url).stderr
    check_whole(server)


@pytest.mark.slow
def test_a_slow_server_does_not_hold_up_the_run_nor_the_end_of_the_command_for_long(server: MlflowDouble) -> None:
    server.delay = 3.0
    began = time.monotonic()
    done = penstock("run", "flow.py", "-o", "json", PENSTOCK_MLFLOW=server.url)
    took = time.monotonic() - began
    assert done.returncode == 0 and took < 12  # of calls that take 20 seconds one after the other
    assert len(server.calls) <= 4 and "still to be told" in done.stderr
    server.delay = 0.0
    assert penstock("resume", "fit-1", PENSTOCK_MLFLOW=server.url).returncode == 0
    check_whole(server)


@pytest.mark.slow
def test_a_run_is_told_while_it_goes_on(server: MlflowDouble, folder: Path) -> None:
    (folder / "slow.yaml").write_text(
        "apiVersion: penstock/v1\nkind: Workflow\nname: slow\nparams: [{name: p, type: str, default: x}]\nsteps:\n"
        "  - {name: long, script: {source: 'while ! test -e go; do sleep 0.05; done'}, inputs: [{name: given, value: '${{ params.p }}'}]}\n"
    )
    words = [sys.executable, "-m", "penstock", "run", "slow.yaml", "-q"]
    process = subprocess.Popen(words, env=os.environ | {"PENSTOCK_MLFLOW": server.url}, stderr=subprocess.PIPE)
    try:
        wait_until(lambda: "long" in server.tree("slow-1") and server.tree("slow-1")["long"].params, "the task is told")
        assert {one.status for one in server.tree("slow-1").values()} == {"RUNNING"}
        assert server.tree("slow-1")["long"].params == {"given": "x"}
        (folder / "go").touch()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.communicate()
    assert {one.status for one in server.tree("slow-1").values()} == {"FINISHED"}


def test_runs_that_somebody_deletes_on_the_server_stay_deleted(server: MlflowDouble, folder: Path) -> None:
    server.stop()
    assert penstock("run", "flow.py", "-q", PENSTOCK_MLFLOW=server.url).returncode == 0
    server.start()
    server.delete_all_at = 12
    done = penstock("resume", "fit-1", PENSTOCK_MLFLOW=server.url)
    assert done.returncode == 0, done.stderr
    assert len([one for one in server.runs.values() if one.deleted]) >= 2
    assert server.tree("fit-1") and "" not in server.tree("fit-1")


@pytest.mark.slow
def test_failures_retries_and_what_was_cancelled(server: MlflowDouble, folder: Path) -> None:
    (folder / "bad.yaml").write_text(
        "apiVersion: penstock/v1\nkind: Workflow\nname: bad\nsteps:\n"
        "  - {name: moody, retry: {limit: 2}, script: {source: 'echo x >> tries; test $(wc -l < tries) -ge 3'}}\n"
        "  - {name: broken, needs: [moody], script: {source: 'test -e mended || { echo no good; exit 7; }'}}\n"
        "  - {name: never, needs: [broken], script: {source: 'true'}}\n"
    )
    assert penstock("run", "bad.yaml", PENSTOCK_MLFLOW=server.url).returncode == 3
    tree = server.tree("bad-1")
    assert {path: one.status for path, one in tree.items()} == {"": "FAILED", "moody": "FINISHED", "broken": "FAILED"}
    assert tree["moody"].tags["penstock.attempt"] == "3" and tree["broken"].tags["penstock.exit_code"] == "7"
    (folder / "mended").touch()
    assert penstock("retry", "bad-1", PENSTOCK_MLFLOW=server.url).returncode == 0
    assert {one.status for one in server.tree("bad-1").values()} == {"FINISHED"} and len(server.tree("bad-1")) == 4


def test_a_runner_in_python_tells_too(server: MlflowDouble, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server.url)
    from penstock import task, workflow

    @task
    def double(x: int) -> int:
        return 2 * x

    @workflow
    def twice(x: int = 4):
        return double(double(x))

    with LocalRunner(home=folder / "h", inline=True) as runner:
        assert runner.run(twice).result == 16
    tree = server.tree("twice-1")
    assert tree[""].last == {"result": 16.0} and len(tree) == 3
    assert threading.active_count() < 20


# -- the server says no -----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_credentials_are_mlflows_own_variables_and_are_nowhere_else(server: MlflowDouble, folder: Path) -> None:
    secret = "very-secret-word"
    given = {"MLFLOW_TRACKING_USERNAME": "sue", "MLFLOW_TRACKING_PASSWORD": secret}
    done = penstock("run", "flow.py", PENSTOCK_MLFLOW=server.url, **given)
    expected = "Basic " + base64.b64encode(f"sue:{secret}".encode()).decode()
    assert {headers["Authorization"] for headers in server.headers} == {expected}
    server.headers.clear()
    more = penstock("run", "flow.py", PENSTOCK_MLFLOW=server.url, MLFLOW_TRACKING_TOKEN=secret)
    assert {headers["Authorization"] for headers in server.headers} == {f"Bearer {secret}"}
    server.headers.clear()
    inside = penstock("run", "flow.py", PENSTOCK_MLFLOW=server.url.replace("http://", f"http://sue:{secret}@"))
    assert {headers["Authorization"] for headers in server.headers} == {expected}
    server.answer = (401, {}, f"no {secret} {expected}".encode())
    refused = penstock("run", "flow.py", PENSTOCK_MLFLOW=server.url, **given)
    assert refused.returncode == 0 and "refuses the credentials (401)" in refused.stderr
    server.answer = (400, {}, json.dumps({"error_code": "BAD_REQUEST", "message": f"{secret} is wrong"}).encode())
    also = penstock("run", "flow.py", PENSTOCK_MLFLOW=server.url, **given)
    assert also.returncode == 0 and "still to be told" in also.stderr
    for one in (done, more, inside, refused, also):
        assert secret not in one.stdout + one.stderr
    files = [path for path in (folder / ".penstock").rglob("*") if path.is_file()]
    assert files and not [path for path in files if secret.encode() in path.read_bytes()]


@pytest.mark.slow
def test_credentials_follow_no_redirect_and_go_to_no_other_server(server: MlflowDouble) -> None:
    with MlflowDouble() as other:
        server.answer = (307, {"Location": f"{other.url}/x"}, b"")
        given = {"MLFLOW_TRACKING_TOKEN": "t0ken"}
        done = penstock("run", "flow.py", PENSTOCK_MLFLOW=server.url, **given)
        assert "leads elsewhere" in done.stderr and not other.calls
        server.answer = None
        server.calls.clear()
        # What was started for the first server is not told to the second, and the first gets nothing of what is meant for the second.
        assert penstock("run", "flow.py", PENSTOCK_MLFLOW=other.url, **given).returncode == 0
        assert set(other.tree("fit-2")) and not other.tree("fit-1") and not server.calls


@pytest.mark.slow
@pytest.mark.parametrize("answer", [(404, {}, b"<html>"), (200, {}, b"<html>"), (502, {}, b"")])
def test_what_is_no_server_of_mlflow_is_said(answer: Any, server: MlflowDouble) -> None:
    server.answer = answer
    done = penstock("run", "flow.py", PENSTOCK_MLFLOW=server.url)
    assert done.returncode == 0 and "Traceback" not in done.stderr
    assert "no tracking server of MLflow" in done.stderr or "502" in done.stderr
    server.answer = None
    assert penstock("resume", "fit-1", PENSTOCK_MLFLOW=server.url).returncode == 0
    check_whole(server)


@pytest.mark.slow
def test_what_the_server_does_not_take_is_left_out_and_said(server: MlflowDouble) -> None:
    server.longest_param = 250
    server.takes_files = False
    note = "n" * 700
    done = penstock("run", "flow.py", "-p", f"note={note}", PENSTOCK_MLFLOW=server.url)
    assert done.returncode == 0, done.stderr
    tree = server.tree("fit-1")
    assert tree[""].params["note"].endswith("(cut: 700 characters)") and len(tree[""].params["note"]) == 250
    assert tree[""].params["lr"] == "0.5"
    assert "not sent: served without --serve-artifacts" in tree["model"].tags["output.result/model.txt"]
    assert {one.status for one in tree.values()} == {"FINISHED"}


@pytest.mark.slow
def test_a_file_that_is_too_large_is_described(server: MlflowDouble) -> None:
    assert penstock("run", "flow.py", PENSTOCK_MLFLOW=server.url, PENSTOCK_MLFLOW_LARGEST="5").returncode == 0
    one = server.tree("fit-1")["model"]
    assert not one.files and "not sent, more than 5 bytes" in one.tags["output.result/model.txt"]
    wrong = penstock("run", "flow.py", PENSTOCK_MLFLOW=server.url, PENSTOCK_MLFLOW_LARGEST="lots")
    assert wrong.returncode == 2 and "P424" in wrong.stderr


# -- which server -----------------------------------------------------------------------------------------------------


def test_which_server_and_experiment(folder: Path) -> None:
    def found(**env: str) -> tuple[str, str]:
        target = configured(env, folder)
        return ("", "") if target is None else (target.url, target.experiment)

    assert found() == ("", "")
    assert found(MLFLOW_TRACKING_URI="http://m:5000/") == ("http://m:5000", "")
    assert found(MLFLOW_TRACKING_URI="sqlite:///x.db") == ("", "")
    assert found(MLFLOW_TRACKING_URI="http://m", MLFLOW_EXPERIMENT_NAME="e") == ("http://m", "e")
    (folder / "penstock.yaml").write_text("mlflow: {url: 'https://y/sub', experiment: from-file}\n")
    assert found() == found(MLFLOW_TRACKING_URI="http://m") == ("https://y/sub", "from-file")
    assert found(PENSTOCK_MLFLOW="http://p") == ("http://p", "")
    assert found(PENSTOCK_MLFLOW_EXPERIMENT="mine") == ("https://y/sub", "mine")
    assert found(PENSTOCK_MLFLOW="no") == ("", "")
    target = configured({"PENSTOCK_MLFLOW": "http://u:pa%40ss@p", "MLFLOW_TRACKING_INSECURE_TLS": "true"}, folder)
    assert target is not None and target.credentials.password == "pa@ss" and target.credentials.insecure
    assert "pa@ss" not in repr(target) and target.url == "http://p"


def test_what_belongs_to_the_users_own_server_is_not_given_to_that_of_a_folder(folder: Path) -> None:
    (folder / "penstock.yaml").write_text("mlflow: {url: 'https://evil.example'}\n")
    mine = {"MLFLOW_TRACKING_TOKEN": "t", "MLFLOW_TRACKING_USERNAME": "u", "MLFLOW_TRACKING_PASSWORD": "p"}

    def given(**env: str) -> tuple[str, str, str]:
        target = configured({**mine, **env}, folder)
        assert target is not None and target.url == "https://evil.example"
        return target.credentials.token, target.credentials.user, target.credentials.password

    assert given(MLFLOW_TRACKING_URI="https://mlflow.lab") == ("", "", "")
    assert given(MLFLOW_TRACKING_URI="https://evil.example/") == given() == ("t", "u", "p")


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "mlflow: http://m",
        "mlflow: {experiment: e}",
        "mlflow: {url: 3}",
        "mlflow: {url: 'http://m', uri: x}",
        "mlflow: {url: 'http://m'}\nkind: ClusterQueue",
        "mlflow: [",
        "mlflow: {url: 'ftp://m'}",
    ],
)
def test_what_is_written_wrongly_is_refused_before_the_run(text: str, folder: Path) -> None:
    (folder / "penstock.yaml").write_text(text)
    done = penstock("run", "flow.py")
    assert done.returncode == 2 and "P911" in done.stderr and "Traceback" not in done.stderr
    assert not (folder / ".penstock" / "state.db").exists()
    for bad in ("nowhere", "ftp://x", "http://", "http://[x"):
        with pytest.raises(UserError) as error:
            configured({"PENSTOCK_MLFLOW": bad}, folder)
        assert error.value.code == "P911"


@pytest.mark.slow
def test_it_stands_beside_queues_in_one_file(folder: Path, server: MlflowDouble) -> None:
    queue = "apiVersion: kueue.x-k8s.io/v1beta2\nkind: ResourceFlavor\nmetadata: {name: plain}\n"
    text = f"{queue}---  # who is told\nmlflow:\n  url: {server.url}\n---\n{queue.replace('plain', 'other')}"
    said, rest = split(text)
    assert said == {"url": server.url} and rest.count("\n") == text.count("\n") and "mlflow" not in rest
    assert split(queue) == ({}, queue)
    (folder / "penstock.yaml").write_text(text)
    done = penstock("run", "flow.py")
    assert done.returncode == 0 and "ResourceFlavor other" in done.stderr, done.stderr
    check_whole(server)
    with stores.open_existing(read()) as store:
        assert len(store.queues.queue_objects()) == 2
        wrong = text + "  color: red\n"
        with pytest.raises(UserError) as error:
            queues.apply(store, (wrong, "penstock.yaml"))
        source = error.value.problems[0].source
        assert source is not None and source.line > 7  # the lines are those of the file


# -- values as entries ------------------------------------------------------------------------------------------------


def test_values_as_metrics_tags_and_files() -> None:
    file = Stored("file", "sha256:" + "a" * 64, 7, "../we ird/na me.bin")
    found = entries.of_outputs(
        {
            "n": 3,
            "nan": float("nan"),
            "flag": True,
            "nothing": None,
            "huge": 10**400,
            "result": {"a/b": 1, "a_b": 2.5, "..": 3},
            "other": {"x": 1},
            "mixed": {"x": 1, "y": "text"},
            "text": "short",
            "secret": Secret("", "TOKEN", ""),
            "file": file,
            "files": [file, file],
            "object": Stored("pickle", "sha256:" + "b" * 64, 9, "set"),
            "folder": Stored("dir", "sha256:" + "c" * 64, 9, "out"),
            "large": Stored("json", "sha256:" + "d" * 64, 99999),
        }
    )
    assert found.metrics.pop("nan") != 0
    assert found.metrics == {"n": 3.0, "a_b": 1.0, "a_b_2": 2.5, "_": 3.0, "other.x": 1.0}
    assert found.tags["output.flag"] == "true" and found.tags["output.nothing"] == "null"
    assert found.tags["output.text"] == "short" and found.tags["output.secret"] == "***"
    assert found.tags["output.object"].startswith("<pickle of 9 bytes") and len(found.tags["output.huge"]) == 401
    assert [one.path for one in found.files] == [
        "mixed.json", "file/na_me.bin", "files/0/na_me.bin", "files/1/na_me.bin", "files.json", "folder/out.tar", "large.json",
    ]  # fmt: skip


def test_parameters_are_cut_and_say_so() -> None:
    found = entries.of_inputs({"a": "x" * 7000, "b": [1, {"c": Secret("", "T", "")}], "d": 0.1, "": None})
    assert len(found["a"]) == 6000 and found["a"].endswith("… (cut: 7,000 characters)")
    assert found["b"] == '[1, {"c": "***"}]' and found["d"] == "0.1" and found["_"] == "null"
