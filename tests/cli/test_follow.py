"""watch and logs: of runs that are over, and of runs that another process is at."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.cli.ui.logs import LogPrinter
from penstock.graph.model import Edge, ForEach, Script, Step, Workflow
from penstock.service import following, log_tail, run_records
from penstock.service.following import RunFollower
from tests.cli import history
from tests.cli.history import Hand
from tests.cli.test_render import in_terminal

Run = Callable[..., Any]
WAIT = Script(source="true")
CHAIN = Workflow(
    name="chain",
    steps=(
        Step(name="fetch", action=WAIT),
        Step(name="train", action=WAIT, needs=(Edge("fetch"),), each=ForEach(axes=({"x": (0, 1)},))),
    ),
)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "home"
    monkeypatch.setenv("PENSTOCK_HOME", str(place))
    monkeypatch.delenv("PENSTOCK_STORE", raising=False)
    monkeypatch.setattr(following, "POLL", 0.02)
    monkeypatch.setattr(following, "CHECK", 0.1)
    return place


class Meanwhile:
    """Something that happens while a command looks on. The store belongs to one thread, so the run is opened in that one."""

    def __init__(self, what: Callable[[], None]) -> None:
        self.failure: BaseException | None = None

        def go() -> None:
            try:
                what()
            except BaseException as error:
                self.failure = error

        self.thread = threading.Thread(target=go)

    def __enter__(self) -> None:
        self.thread.start()

    def __exit__(self, *_: object) -> None:
        self.thread.join()
        if self.failure is not None:
            raise self.failure


# -- watch ------------------------------------------------------------------------------------------------------------


def test_watching_a_run_that_is_over_says_how_it_went(penstock: Run, home: Path) -> None:
    history.run(home, history.broken)
    result = penstock("watch", "@")
    assert result.code == 0
    assert (
        "row/train ×5  4 done · 1 failed" in result.out and "✗ row/train[3] failed: ValueError: bad row 7" in result.out
    )
    assert result.out.splitlines()[-1].startswith("✗ broken-1 failed in ")
    assert penstock("watch", "@", "--exit-status").code == 3
    history.run(home, history.fine)
    result = penstock("watch", "@", "--exit-status")
    assert result.code == 0 and "✓ fine-1 succeeded in " in result.out and "  result: 5" in result.out
    assert json.loads(penstock("watch", "@", "-o", "json").out)["state"] == "succeeded"


def test_watch_follows_a_run_of_another_process_to_its_end(penstock: Run, home: Path) -> None:
    ready, seen = threading.Event(), threading.Event()

    def engine() -> None:
        hand = Hand(home, CHAIN)
        hand.task("fetch", "fetch", "running")
        hand.write()
        ready.set()
        assert seen.wait(5)
        hand.task("fetch", "fetch", "succeeded")
        hand.event("step.ready", "train", tasks=2)
        hand.task("train[0]", "train", "running")
        hand.write()
        for number in (0, 1):
            hand.task(f"train[{number}]", "train", "succeeded")
        hand.finish("succeeded", answer=42)
        hand.close()

    original = RunFollower.news

    def news(self: RunFollower) -> bool:
        found = original(self)
        seen.set()
        return found

    with pytest.MonkeyPatch.context() as patch, Meanwhile(engine):
        patch.setattr(RunFollower, "news", news)
        assert ready.wait(5)
        result = penstock("watch", "chain-1", "--exit-status")
    assert result.code == 0
    lines = result.out.splitlines()
    assert lines[:3] == ["chain-1  running", "fetch  done  1.0s", "train ×2  2 done  1.0s"]
    assert "  answer: 42" in lines and lines[-1] == "✓ chain-1 succeeded in 2.0s · 3 done"


def test_watch_ends_when_the_engine_is_gone(penstock: Run, home: Path) -> None:
    hand = Hand(home, CHAIN)
    hand.task("fetch", "fetch", "running")
    hand.die()
    result = penstock("watch", "@", "--exit-status")
    assert result.code == 3
    assert "lost" in result.out and "penstock resume chain-1" in result.out


def test_watch_waits_a_while_for_a_run_that_was_just_submitted(
    penstock: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand = Hand(home, CHAIN)
    hand.store.runs.release(hand.number, hand.me.id, "stopped")
    hand.store.close()
    monkeypatch.setattr(run_records, "STARTING", 0.1)
    began = time.monotonic()
    result = penstock("watch", "@")
    assert time.monotonic() - began > 0.1
    assert "stopped" in result.out and "penstock resume chain-1" in result.out


def test_watch_on_a_terminal_leaves_the_steps_and_a_summary(home: Path) -> None:
    history.run(home, history.fine)
    shown = in_terminal("watch", "@", NO_COLOR="1")
    assert "✓ train" in shown and "×3" in shown and "✓ fine-1 succeeded in" in shown
    assert shown.rindex("\x1b[?25h") > shown.rindex("\x1b[?25l")


# -- logs -------------------------------------------------------------------------------------------------------------


def test_logs_of_one_task_are_as_they_were_printed(penstock: Run, home: Path) -> None:
    history.run(home, history.broken)
    assert penstock("logs", "@/prepare").out == "prepare 5\n"
    assert penstock("logs", "@/row/train[3]").out == "loading shard 3\n"
    assert penstock("logs", "@/flaky").out == "try\n"


def test_logs_of_several_tasks_say_which(penstock: Run, home: Path) -> None:
    history.run(home, history.broken)
    lines = penstock("logs", "@").out.splitlines()
    assert lines[:2] == ["flaky\ttry", "prepare\tprepare 5"]
    assert lines[2:] == [f"row/train[{number}]\tloading shard {number}" for number in range(5)]
    assert penstock("logs", "@/row").out.splitlines() == lines[2:]
    assert penstock("logs", "@", "--failed").out.splitlines() == ["flaky\ttry", "row/train[3]\tloading shard 3"]
    assert penstock("logs", "@", "--grep", "shard 2").out.splitlines() == ["row/train[2]\tloading shard 2"]
    data = json.loads(penstock("logs", "@/row/train", "-o", "json").out)
    assert data[1] == {
        "task": "row/train[1]",
        "step": "row/train",
        "state": "succeeded",
        "attempt": 1,
        "lines": ["loading shard 1"],
    }
    shown = in_terminal("logs", "@", NO_COLOR="1")
    assert "flaky        │ try" in shown and "row/train[0] │ loading shard 0" in shown


def test_logs_tail_counts_for_each_task_and_after_grep(penstock: Run, home: Path) -> None:
    hand = Hand(home, CHAIN)
    text = "".join(f"line {number} {'odd' if number % 2 else 'even'}\n" for number in range(100_000))
    for number in (0, 1):
        name = hand.log(f"train{number}", text)
        hand.task(f"train[{number}]", "train", "succeeded", log=[[name, 0, len(text)]])
    hand.finish("succeeded")
    hand.close()
    assert penstock("logs", "@", "--tail", "1").out == "train[0]\tline 99999 odd\ntrain[1]\tline 99999 odd\n"
    out = penstock("logs", "@/train[0]", "--tail", "2", "--grep", "even").out
    assert out == "line 99996 even\nline 99998 even\n"
    assert penstock("logs", "@", "--tail", "0").out == ""


def test_a_log_is_its_own_part_of_a_file_that_others_share(penstock: Run, home: Path) -> None:
    hand = Hand(home, CHAIN)
    name = hand.log("worker", "first\nsecond\nbar 1%\rbar 100%\r\n")
    hand.task("train[0]", "train", "succeeded", log=[[name, 0, 6]])
    hand.task("train[1]", "train", "succeeded", log=[[name, 6, 13]])
    hand.task("fetch", "fetch", "succeeded", log=[[name, 13, None]])
    hand.close()
    assert penstock("logs", "@").out == "fetch\tbar 100%\ntrain[0]\tfirst\ntrain[1]\tsecond\n"


def test_a_reused_task_shows_what_it_printed_when_it_ran(penstock: Run, home: Path) -> None:
    history.run(home, history.fine)
    history.run(home, history.fine)
    result = penstock("logs", "@/prepare")
    assert result.out == "prepare 3\n" and "reused from fine-1/prepare" in result.err
    result = penstock("logs", "@")
    assert result.out == "" and "5 tasks were reused" in result.err


def test_nothing_printed_is_said(penstock: Run, home: Path) -> None:
    history.run(home, history.fine)
    assert penstock("logs", "@/total").err == "total has printed nothing\n"
    assert "no line contains 'zzz'" in penstock("logs", "@", "--grep", "zzz").err


def test_following_prints_lines_as_they_come_also_of_tasks_that_start_later(
    penstock: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready, seen = threading.Event(), []
    original = LogPrinter.put

    def put(self: LogPrinter, task: str, lines: Sequence[str]) -> None:
        seen.extend(lines)
        original(self, task, lines)

    def until(line: str) -> None:
        deadline = time.monotonic() + 30
        while line not in seen:
            assert time.monotonic() < deadline, seen
            time.sleep(0.01)

    def engine() -> None:
        hand = Hand(home, CHAIN)
        first = hand.log("worker-1", "one\ntw")
        hand.task("fetch", "fetch", "running", log=[[first, 0, None]])
        hand.write()
        ready.set()
        until("one")
        hand.log("worker-1", "o\n", "a")
        until("two")
        hand.log("worker-1", "three", "a")
        hand.task("fetch", "fetch", "succeeded", log=[[first, 0, 13]])
        hand.log("worker-1", "other\n", "a")  # of the next task, in the same file
        hand.task("train[0]", "train", "running", log=[[first, 13, None]])
        hand.write()
        until("other")
        hand.task("train[0]", "train", "succeeded", log=[[first, 13, 19]])
        hand.finish("succeeded")
        hand.close()

    monkeypatch.setattr(LogPrinter, "put", put)
    with Meanwhile(engine):
        assert ready.wait(5)
        result = penstock("logs", "@", "-f")
    assert result.code == 0
    assert result.out.splitlines() == ["fetch\tone", "fetch\ttwo", "fetch\tthree", "train[0]\tother"]


def test_following_one_task_ends_with_it(penstock: Run, home: Path) -> None:
    hand = Hand(home, CHAIN)
    name = hand.log("fetch", "a\nb\nc\n")
    hand.task("fetch", "fetch", "succeeded", log=[[name, 0, 6]])
    hand.event("step.ready", "train", tasks=2)
    hand.task("train[0]", "train", "running", log=[[name, 6, None]])
    hand.write()
    assert penstock("logs", "@/fetch", "-f").out == "a\nb\nc\n"
    assert penstock("logs", "@/fetch", "-f", "--tail", "1").out == "c\n"
    out = penstock("logs", "@/fetch", "-f", "--grep", "b", "-o", "json").out
    assert [json.loads(line) for line in out.splitlines()] == [{"task": "fetch", "line": "b"}]
    hand.die()
    assert "chain-1 is lost: penstock resume chain-1" in penstock("logs", "@", "-f").err


def test_what_the_next_task_prints_into_the_same_file_is_not_taken_for_the_first_ones(
    penstock: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand = Hand(home, CHAIN)
    name = hand.log("worker-1", "one\n")
    hand.task("train[0]", "train", "running", log=[[name, 0, None]])
    hand.write()

    def next_starts() -> None:
        hand.log("worker-1", "other\n", "a")  # and the engine has not written it down yet

    def written_down() -> None:
        hand.task("train[0]", "train", "succeeded", log=[[name, 0, 4]])
        hand.task("train[1]", "train", "succeeded", log=[[name, 4, 10]])
        hand.finish("succeeded")
        hand.write()

    happens = iter([lambda: None, next_starts, written_down, lambda: None, lambda: None])
    # Its own clock: other threads sleep, too.
    monkeypatch.setattr(log_tail, "time", SimpleNamespace(sleep=lambda _: next(happens)()))
    result = penstock("logs", "@", "-f")
    assert result.out.splitlines() == ["train[0]\tone", "train[1]\tother"]
    hand.store.close()
