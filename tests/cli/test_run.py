"""run, resume, retry and cancel as a person types them: in this process where one is enough, in two where it takes two."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import pytest

from penstock.store.sql import open_store
from tests.cli.conftest import Result

Penstock = Callable[..., Result]
FLOW = """
from penstock import task, workflow

@task
def split(n: int) -> list[int]:
    print("splitting")
    return list(range(n))

@task
def work(x: int) -> int:
    if x == 13:
        raise ValueError("thirteen")
    return 2 * x

@task
def total(xs: list[int]) -> int:
    return sum(xs)

@workflow
def flow(n: int = 4):
    return total([work(x) for x in split(n)])
"""
APPROVE = """
apiVersion: penstock/v1
kind: Workflow
name: approve
steps:
- name: ok
  suspend: {message: "ship it?"}
  outputs: [{name: who, type: str}]
- name: ship
  script: {source: "echo by ${{ inputs.who }}"}
  inputs: [{name: who, value: "${{ steps.ok.outputs.who }}"}]
  outputs: [{name: said, type: str, path: /dev/stdout}]
outputs: [{name: said, value: "${{ steps.ship.outputs.said }}"}]
"""
NAP = """
apiVersion: penstock/v1
kind: Workflow
name: nap
steps:
- name: nap
  script: {source: "sleep 100"}
on_exit:
- name: bye
  script: {source: "echo bye >> bye.txt"}
"""


@pytest.fixture
def flow(tmp_path: Path) -> str:
    (tmp_path / "flow.py").write_text(FLOW)
    return "flow.py"


def test_run_prints_outputs_and_a_second_run_reuses_everything(penstock: Penstock, flow: str) -> None:
    first = penstock("run", flow)
    assert first.code == 0 and first.out == "result: 12\n" and "✓ flow-1 done" in first.err
    again = penstock("run", flow)
    assert again.code == 0 and again.out == "result: 12\n" and "6 of them reused" in again.err


def test_run_as_json(penstock: Penstock, flow: str) -> None:
    data = json.loads(penstock("run", flow, "-p", "n=3", "-o", "json", "-q").out)
    assert data["run"] == "flow-1" and data["state"] == "succeeded" and data["outputs"] == {"result": 6}
    assert data["tasks"] == {"succeeded": 5} and data["failures"] == []


def test_a_failure_shows_the_step_the_exception_the_log_and_what_to_try(penstock: Penstock, flow: str) -> None:
    failed = penstock("run", flow, "-p", "n=14")
    assert failed.code == 3 and failed.out == ""
    for part in ("work[13]", "ValueError: thirteen", "flow.py:12", "penstock logs", "penstock retry flow-1"):
        assert part in failed.err, part
    assert penstock("retry", "@").code == 3
    Path("flow.py").write_text(FLOW.replace("x == 13", "x == 99"))
    mended = penstock("run", flow, "-p", "n=14", "-o", "json", "-q")
    assert json.loads(mended.out)["tasks"]["reused"] == 1, "only work has changed"


def test_until_fail_fast_and_fresh(penstock: Penstock, flow: str) -> None:
    some = json.loads(penstock("run", flow, "--until", "split", "-o", "json", "-q").out)
    assert some["tasks"] == {"succeeded": 1} and some["outputs"] == {}
    fast = json.loads(
        penstock(
            "run", flow, "-p", "n=400", "--fail-fast", "-j", "1", "-o", "json", "-q", "--on", "function=inline"
        ).out
    )
    assert fast["state"] == "failed" and fast["tasks"]["cancelled"] > 0
    assert json.loads(penstock("run", flow, "--fresh", "-o", "json", "-q").out)["tasks"] == {"succeeded": 6}


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["run", "nope.py"], 4, "P501"),
        (["run", "flow.py", "--until", "slit"], 2, "P406"),
        (["run", "flow.py", "-p", "n=many"], 2, "P402"),
        (["run", "flow.py", "-j", "0"], 2, "P407"),
        (["run", "flow.py", "--on", "function=nowhere"], 2, "P703"),
        (["run", "flow.py", "--on", "funktion=inline"], 2, "P409"),
        (["resume", "@"], 4, "P505"),
        (["retry", "flow-7"], 4, "P505"),
        (["cancel", "@3"], 4, "P505"),
    ],
)
def test_what_cannot_be_done_is_said_with_a_fix(
    penstock: Penstock, flow: str, words: list[str], code: int, said: str
) -> None:
    done = penstock(*words)
    assert done.code == code and said in done.err and "fix" in done.err
    assert penstock("ls", "-o", "json").out.strip() in ("[]", '{\n  "runs": []\n}'), "nothing was recorded"


def test_a_run_that_is_over_is_neither_resumed_nor_cancelled_nor_retried(penstock: Penstock, flow: str) -> None:
    penstock("run", flow, "-q")
    for verb in ("resume", "cancel", "retry"):
        done = penstock(verb, "@")
        assert done.code == 2 and "P413" in done.err


# -- two processes --------------------------------------------------------------------------------------------------------


def until(check: Callable[[], Any], what: str, seconds: float = 30.0) -> Any:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = check()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError(f"{what} did not happen")


def state(where: Path, task: str) -> str:
    if not (where / ".penstock" / "state.db").exists():
        return ""
    with open_store(str(where / ".penstock")) as store:
        runs = store.runs.newest(limit=1)
        row = store.runs.task(runs[0].number, task) if runs else None
        return row.state if row is not None else ""


def spawn(*words: str, stderr: int | IO[str] = subprocess.PIPE) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "penstock", *words], stdout=subprocess.PIPE, stderr=stderr, text=True
    )


def test_somebody_else_resumes_a_suspended_step_with_values(penstock: Penstock, tmp_path: Path) -> None:
    Path("approve.yaml").write_text(APPROVE)
    said = tmp_path / "said"
    with said.open("w") as file, spawn("run", "approve.yaml", stderr=file) as running:
        until(lambda: "penstock resume approve-1/ok -p who=…" in said.read_text(), "the wait")
        assert "P408" in penstock("resume", "@/ok").err
        assert "P411" in penstock("retry", "@").err or penstock("retry", "@").code == 2
        assert penstock("resume", "@/ok", "-p", "who=ana").code == 0
        out, _ = running.communicate(timeout=30)
    assert running.returncode == 0 and out == "said: by ana\n"
    assert "ship it?" in said.read_text()


def test_a_run_is_cancelled_from_elsewhere_and_its_exit_handler_runs(penstock: Penstock, tmp_path: Path) -> None:
    Path("nap.yaml").write_text(NAP)
    with spawn("run", "nap.yaml") as running:
        until(lambda: state(tmp_path, "nap") == "running", "the nap")
        assert "P411" in penstock("resume", "@").err
        done = penstock("cancel", "@", "-o", "json")
        assert done.code == 0 and json.loads(done.out)["state"] == "cancelled"
        running.communicate(timeout=30)
    assert running.returncode == 3
    assert (tmp_path / "bye.txt").read_text() == "bye\n"


def test_a_run_that_nobody_is_at_can_be_cancelled(penstock: Penstock, tmp_path: Path) -> None:
    Path("nap.yaml").write_text(NAP)
    running = spawn("run", "nap.yaml")
    with running:
        until(lambda: state(tmp_path, "nap") == "running", "the nap")
        running.kill()
    done = penstock("cancel", "@")
    assert done.code == 0 and "cancelled" in done.out
    assert state(tmp_path, "nap") == "cancelled" and (tmp_path / "bye.txt").exists()


def test_a_detached_run_goes_on_by_itself(penstock: Penstock, flow: str, tmp_path: Path) -> None:
    done = penstock("run", flow, "--detach", "-o", "json")
    assert done.code == 0
    data = json.loads(done.out)
    assert data["run"] == "flow-1"
    until(lambda: json.loads(penstock("show", "@", "-o", "json").out).get("state") == "succeeded", "the end")
    until(
        lambda: not Path(f"/proc/{data['pid']}").exists() or os.waitpid(data["pid"], os.WNOHANG)[0], "its process to go"
    )


DECLARED = """
import datetime
from enum import Enum, IntEnum
from typing import Literal
from penstock import task, workflow

class Color(Enum):
    RED = "red"
    BLUE = "blue"

class Level(IntEnum):
    LOW = 1
    HIGH = 3

@task
def show(color: Color, level: Level, word: Literal["fast", "slow"], day: datetime.date, levels: list[Level]) -> str:
    return f"{color!r} {level!r} {word!r} {day!r} {levels!r}"

@workflow
def flow(
    color: Color, level: Level, word: Literal["fast", "slow"], day: datetime.date, levels: list[Level], name: str = "x"
):
    return show(color, level, word, day, levels)
"""


def test_parameters_are_what_the_workflow_declares(penstock: Penstock, tmp_path: Path) -> None:
    (tmp_path / "flow.py").write_text(DECLARED)
    good = ["-p", "color=BLUE", "-p", "level=3", "-p", "word=slow", "-p", "day=2024-05-17", "-p", 'levels=["LOW", 3]']
    done = penstock("run", "flow.py", *good)
    assert done.code == 0 and (
        "<Color.BLUE: 'blue'> <Level.HIGH: 3> 'slow' datetime.date(2024, 5, 17) [<Level.LOW: 1>, <Level.HIGH: 3>]"
        in done.out
    )
    again = penstock("run", "flow.py", *good, "-p", "color=blue", "-p", "level=HIGH", "-p", "levels=[1, 3]")
    assert "reused" in again.err
    bad = ["-p", "color=green", "-p", "level=hihg", "-p", "word=fats", "-p", "day=17.5.2024", "-p", "levels=[2]"]
    for command in ("run", "plan"):
        failed = penstock(command, "flow.py", *bad)
        assert failed.code == 2
        for said in (
            "error[P402]: color is 'green', which is not a Color",
            "use one of 'red', 'blue'",
            "level is 'hihg', which is not a Level",
            "use one of HIGH (3), LOW (1)",
            "word is 'fats', which is not one of the 2 values that are declared",
            "use one of 'fast', 'slow'",
            "day is '17.5.2024', which is not a date",
            "levels is 2, which is not a Level",
        ):
            assert said in failed.err


def test_text_that_names_a_file_is_said_once(penstock: Penstock, tmp_path: Path) -> None:
    flow = (
        "from pathlib import Path\nfrom penstock import task, workflow\n@task\ndef f(x: KIND) -> int:\n    return 1\n"
    )
    flow += "@workflow\ndef flow(x: KIND):\n    return f(x)\n"
    (tmp_path / "data.csv").write_text("1")
    (tmp_path / "flow.py").write_text(flow.replace("KIND", "str"))
    said = "warning[P414]: x='data.csv' is text that names a file: its content is not tracked"
    first = penstock("run", "flow.py", "-p", "x=data.csv")
    assert first.code == 0 and first.err.count(said) == 1 and "x: Path" in first.err
    assert "P414" not in penstock("run", "flow.py", "-p", "x=data.csv").err
    assert "P414" not in penstock("run", "flow.py", "-p", "x=other.csv").err
    (tmp_path / "flow.py").write_text(flow.replace("KIND", "Path"))
    assert "P414" not in penstock("run", "flow.py", "-p", "x=data.csv").err
