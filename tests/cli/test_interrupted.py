"""What the commands say of runs that have no engine: those that are about to get one, and those whose engine was killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.service import stores
from penstock.service.submission import Submission
from penstock.service.workflows import load
from penstock.settings import read
from tests.cli.conftest import Result

Penstock = Callable[..., Result]

FLOW = """
apiVersion: penstock/v1
kind: Workflow
name: slow
params: [{name: k, type: int, default: 1}]
steps:
- name: work
  script: {source: "echo $$ > began-${{ params.k }}; n=0; until [ -e $GO ] || [ $n = 6000 ]; do n=$((n + 1)); sleep 0.01; done"}
"""


@pytest.fixture
def flow(tmp_path: Path, penstock: Penstock, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    file = tmp_path / "slow.yaml"
    file.write_text(FLOW.replace("$GO", str(tmp_path / "go")).replace("began-", f"{tmp_path}/began-"))
    yield file
    (tmp_path / "go").touch()


def killed(flow: Path, *given: str, began: str) -> int:
    """Start a run in a process of its own and kill that when its task runs. Returns the pid of the task."""
    words = [sys.executable, "-m", "penstock", "run", str(flow), *given]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    mark = flow.parent / began
    until = time.monotonic() + 60
    while not (mark.exists() and mark.read_text().strip()):
        assert process.poll() is None and time.monotonic() < until
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    return int(mark.read_text())


def test_a_run_that_was_just_submitted_is_starting(penstock: Penstock, flow: Path) -> None:
    with stores.open_or_create(read()) as store:
        Submission(load(str(flow)), {"k": 1}).record(store)
        Submission(load(str(flow)), {"k": 2}).record(store, time.time() - 60)  # its process never came
    shown = {one["run"]: one["state"] for one in json.loads(penstock("ls", "-o", "json").out)}
    assert shown == {"slow-1": "starting", "slow-2": "stopped"}
    assert "slow-1 is starting" in penstock("why", "slow-1").out
    assert "no engine runs slow-2: it was stopped." in penstock("why", "slow-2").out
    assert "starting" in penstock("show", "slow-1").out
    assert "slow-1" in penstock("ls", "--state", "starting").out
    assert "slow-1" not in penstock("ls", "--state", "stopped").out


@pytest.mark.slow
def test_tasks_that_outlived_their_engine_are_named(penstock: Penstock, flow: Path) -> None:
    task = killed(flow, began="began-1")
    assert f"process {task} (work) of it still runs: penstock resume slow-1" in penstock("ls").err
    assert json.loads(penstock("ls", "-o", "json").out)[0]["orphans"] == [{"pid": task, "task": "work"}]
    said = penstock("why", "slow-1").out
    assert f"process {task} of work still runs" in said and "penstock resume slow-1" in said
    (flow.parent / "go").touch()
    assert penstock("resume", "slow-1").code == 0
    assert penstock("ls", "-o", "json").out.count("orphans") == 0


@pytest.mark.slow
def test_other_runs_do_not_hide_one_that_was_interrupted(penstock: Penstock, flow: Path) -> None:
    killed(flow, "-p", "k=3", began="began-3")
    (flow.parent / "go").touch()
    assert penstock("run", str(flow), "-p", "k=1").code == 0
    assert penstock("run", str(flow), "-p", "k=2").code == 0
    again = penstock("run", str(flow), "-p", "k=3")
    assert again.code == 0 and "continuing slow-1, which was interrupted" in again.err
    # It is over, so the same command is a new run.
    assert penstock("run", str(flow), "-p", "k=3").code == 0
    assert [one["run"] for one in json.loads(penstock("ls", "-o", "json").out)] == [
        "slow-4",
        "slow-3",
        "slow-2",
        "slow-1",
    ]


@pytest.mark.slow
def test_an_interrupted_run_is_not_continued_when_the_same_was_run_since(penstock: Penstock, flow: Path) -> None:
    killed(flow, "-p", "k=3", began="began-3")
    (flow.parent / "go").touch()
    assert penstock("run", str(flow), "-p", "k=3", "--new").code == 0
    again = penstock("run", str(flow), "-p", "k=3")
    assert again.code == 0 and "continuing" not in again.err
