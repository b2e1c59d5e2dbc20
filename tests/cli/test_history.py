"""ls, show and diff, on runs that were made here and on runs written by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.ui import render
from penstock.graph.model import Edge, ForEach, Script, Step, Suspend, Workflow
from tests.cli import history
from tests.cli.history import Hand
from tests.cli.test_render import in_terminal

Run = Callable[..., Any]
WAIT = Script(source="true")
CHAIN = Workflow(
    name="chain",
    steps=(
        Step(name="fetch", action=WAIT),
        Step(name="train", action=WAIT, needs=(Edge("fetch"),), each=ForEach(axes=({"x": (0, 1, 2)},))),
        Step(name="ok", action=Suspend(message="deploy?"), needs=(Edge("train"),)),
    ),
)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "home"
    monkeypatch.setenv("PENSTOCK_HOME", str(place))
    monkeypatch.delenv("PENSTOCK_STORE", raising=False)
    monkeypatch.delenv("PENSTOCK_ARTIFACTS", raising=False)
    return place


def cells(text: str) -> list[list[str]]:
    return [line.split("\t") for line in text.splitlines()]


# -- ls ---------------------------------------------------------------------------------------------------------------


def test_ls_lists_the_newest_first_with_what_became_of_them(penstock: Run, home: Path) -> None:
    history.run(home, history.fine)
    history.run(home, history.broken)
    history.run(home, history.fine)
    rows = cells(penstock("ls").out)
    assert rows[0] == ["RUN", "STATE", "STARTED", "TOOK", "DONE", "FAILED", "REUSED", "USER"]
    assert [row[:2] for row in rows[1:]] == [["fine-2", "succeeded"], ["broken-1", "failed"], ["fine-1", "succeeded"]]
    assert rows[1][4:7] == ["5", "", "5"] and rows[3][4:7] == ["5", "", ""]
    assert int(rows[2][5]) >= 2
    assert rows[1][2].startswith("20") and "T" in rows[1][2]


def test_ls_filters(penstock: Run, home: Path) -> None:
    history.run(home, history.fine)
    history.run(home, history.broken)
    Hand(home, CHAIN, ago=3 * 86400).close()
    lost = Hand(home, CHAIN)
    lost.die()

    def ids(*args: str) -> list[str]:
        return [one["run"] for one in json.loads(penstock("ls", "-o", "json", *args).out)]

    assert ids() == ["chain-2", "chain-1", "broken-1", "fine-1"]
    assert ids("-n", "2") == ["chain-2", "chain-1"]
    assert ids("--state", "failed") == ["broken-1"]
    assert ids("--state", "lost") == ["chain-2"]
    assert ids("--state", "running") == ["chain-1"]
    assert ids("--state", "lost", "--state", "succeeded") == ["chain-2", "fine-1"]
    assert ids("--workflow", "chain") == ["chain-2", "chain-1"]
    assert ids("--since", "2d") == ["chain-2", "broken-1", "fine-1"]
    assert ids("--since", "1h30m", "--workflow", "fine") == ["fine-1"]


def test_ls_where_nothing_was_run_makes_no_store(penstock: Run, home: Path) -> None:
    result = penstock("ls")
    assert result.code == 0 and "nothing has been run here" in result.err
    assert penstock("ls", "-o", "json").out.strip() == "[]"
    assert penstock("show", "@").code == 4
    assert not home.exists()


def test_a_length_of_time_that_is_none(penstock: Run, home: Path) -> None:
    history.run(home, history.fine)
    for wrong in ("2", "x", "2y", "d", "1h 30m", "-1d"):
        result = penstock("ls", f"--since={wrong}")
        assert result.code == 2 and "P508" in result.err


# -- show -------------------------------------------------------------------------------------------------------------


def test_show_has_every_step_the_outputs_and_the_failures(penstock: Run, home: Path) -> None:
    history.run(home, history.broken)
    result = penstock("show", "@")
    assert result.code == 0
    lines = result.out.splitlines()
    assert lines[0].startswith("broken-1  failed in ")
    assert "  with   n=5" in lines
    steps = {row[0]: row[1:] for row in cells(result.out) if len(row) == 5}
    assert steps["prepare"][:2] == ["succeeded", "1"]
    assert steps["row/train"][:2] == ["failed", "5"]
    assert steps["row/train"][3] == "4 done · 1 failed: ValueError: bad row 7"
    assert steps["row/total"][3] == "omitted: train failed"
    assert steps["flaky"][3] == "failed: OSError: still broken"
    text = result.out
    assert "✗ row/train[3] failed: ValueError: bad row 7\n" in text
    assert "history.py:" in text and 'in train: raise ValueError("bad row 7")' in text
    assert "    │ loading shard 3\n" in text
    assert "✗ flaky failed (3 attempts): OSError: still broken" in text
    assert "  logs   penstock logs 'broken-1/row/train[3]'\n" in text
    assert "  retry  penstock retry broken-1\n" in text
    assert "✗ row failed" not in text  # because of what is in it


def test_show_of_a_good_run_has_its_outputs_and_nothing_more(penstock: Run, home: Path) -> None:
    history.run(home, history.fine)
    out = penstock("show", "fine-1").out
    assert "  result: 5" in out.splitlines()
    assert "penstock" not in out


def test_show_as_data_has_these_keys(penstock: Run, home: Path) -> None:
    history.run(home, history.broken)
    data = json.loads(penstock("show", "@", "-o", "json").out)
    assert set(data) == {
        "run",
        "workflow",
        "state",
        "user",
        "created",
        "ended",
        "tasks",
        "params",
        "options",
        "digest",
        "steps",
        "outputs",
        "failed",
        "failures",
        "waits",
    }
    step = next(one for one in data["steps"] if one["step"] == "row/train")
    assert set(step) == {"step", "kind", "state", "total", "tasks", "started", "ended", "reason"}
    assert step["tasks"] == {"succeeded": 4, "failed": 1} and step["total"] == 5 and step["kind"] == "function"
    failure = next(one for one in data["failures"] if one["task"] == "row/train[3]")
    assert failure["exception"] == "ValueError" and failure["log_end"] == "loading shard 3" and failure["attempts"] == 1
    assert data["failed"] == 2


def test_show_a_step_lists_its_tasks_in_natural_order(penstock: Run, home: Path) -> None:
    history.run(home, history.fine, n=3)
    hand = Hand(home, CHAIN)
    for number in range(12):
        hand.task(f"train[{number}]", "train", "failed" if number == 4 else "succeeded", message="no luck", exit_code=9)
    hand.close()
    rows = [row for row in cells(penstock("show", "@/train").out) if len(row) == 5]
    assert [row[0] for row in rows[1:]] == [f"train[{number}]" for number in range(12)]
    assert rows[5] == ["train[4]", "failed", "1", "1.0s", "no luck (exit code 9)"]
    data = json.loads(penstock("show", "@/train", "-o", "json").out)
    assert data["step"] == "train" and len(data["tasks"]) == 12 and data["tasks"][4]["exit_code"] == 9


def test_show_a_task_has_its_attempts_inputs_outputs_and_log(penstock: Run, home: Path) -> None:
    history.run(home, history.broken)
    out = penstock("show", "@/flaky").out
    assert out.startswith("broken-1/flaky  failed")
    assert [row[:2] for row in cells(out) if len(row) == 4] == [
        ["ATTEMPT", "STATE"],
        *[[str(n), "failed"] for n in (1, 2, 3)],
    ]
    assert "  input    n = 5" in out and "OSError: still broken" in out and "Traceback" in out
    out = penstock("show", "@/prepare").out
    assert "  output   result = [0, 1, 2, 3, 4]" in out and "  log      " in out and "  key      " in out
    data = json.loads(penstock("show", "@/row/train[3]", "-o", "json").out)
    assert data["attempts"][0]["exception"] == "ValueError" and Path(data["files"][0]).exists()
    assert data["task"] == "row/train[3]" and data["step"] == "row/train"


def test_show_a_task_has_the_values_of_its_inputs(penstock: Run, home: Path) -> None:
    """From parameters, from results, in loops and in called workflows; while the run goes on, and when it is over."""
    history.run(home, history.broken)
    rows = json.loads(penstock("show", "@/prepare", "-o", "json").out)["outputs"]["result"]
    for number in range(len(rows)):
        data = json.loads(penstock("show", f"@/row/train[{number}]", "-o", "json").out)
        assert rows[number] in data["inputs"].values()
        assert not any("item" in str(value) or "steps." in str(value) for value in data["inputs"].values())


def test_show_a_called_workflow_has_what_is_in_it(penstock: Run, home: Path) -> None:
    history.run(home, history.deep)
    data = json.loads(penstock("show", "@/row[1]", "-o", "json").out)
    assert [one["task"] for one in data["tasks"]] == ["row[1]/total", "row[1]/train[0]", "row[1]/train[1]"]


def test_show_as_a_tree(penstock: Run, home: Path) -> None:
    history.run(home, history.deep)
    lines = [
        line.split("  ")[0].rstrip() if "─" not in line else line
        for line in penstock("show", "@", "--tree").out.splitlines()
    ]
    names = [line.split("─ ")[0] + "─ " + line.split("─ ")[1].split("  ")[0] for line in lines[1:]]
    assert names[1:6] == [
        "├─ ✓ row ×2",
        "│  ├─ ✓ row[0]",
        "│  │  ├─ ✓ train ×2",
        "│  │  │  ├─ ✓ train[0]",
        "│  │  │  └─ ✓ train[1]",
    ]
    assert names[-1] == "└─ ✓ total"


def test_show_over_time(penstock: Run, home: Path) -> None:
    hand = Hand(home, CHAIN)
    hand.task("fetch", "fetch", "succeeded", took=4.0)
    hand.at += 4.0
    hand.task("train[0]", "train", "succeeded", took=4.0)
    hand.task("train[1]", "train", "failed", took=8.0)
    hand.finish("failed", took=8.0)
    hand.close()
    rows = [row for row in cells(penstock("show", "@", "--gantt").out) if len(row) == 4]
    assert rows == [
        ["STEP", "STATE", "FROM", "TO"],
        ["fetch", "succeeded", "0.000", "4.000"],
        ["train", "failed", "4.000", "12.000"],
    ]
    data = json.loads(penstock("show", "@", "--gantt", "-o", "json").out)
    assert [len(band["spans"]) for band in data["bands"]] == [1, 2]
    shown = in_terminal("show", "@", "--gantt", columns=60, NO_COLOR="1").splitlines()
    assert max(map(len, shown)) <= 60
    # Two thirds of the way the two tasks of train run together, the last third only one of them.
    assert (
        "█" in shown[2] and shown[3].index("█") > shown[2].rindex("█") and "▅" in shown[3] and shown[3].endswith("8.0s")
    )


def test_show_the_raw_log(penstock: Run, home: Path) -> None:
    history.run(home, history.fine)
    rows = cells(penstock("show", "@", "--events").out)
    assert rows[0] == ["SEQ", "AT", "KIND", "TASK", "DATA"]
    assert [row[2] for row in rows[1:3]] == ["run.submitted", "run.started"] and rows[-1][2] == "run.finished"
    data = json.loads(penstock("show", "@/train", "--events", "-o", "json").out)
    assert {event["task"] for event in data} >= {"train", "train[0]"} and set(data[0]) == {
        "seq",
        "at",
        "kind",
        "task",
        "data",
    }
    assert all(event["task"].startswith("train") for event in data)


def test_show_a_run_that_waits_or_whose_engine_is_gone(penstock: Run, home: Path) -> None:
    hand = Hand(home, CHAIN)
    hand.task("fetch", "fetch", "succeeded")
    hand.event("step.ready", "train", tasks=3)
    hand.task("train[0]", "train", "waiting", took=None, reason={"why": "shared", "run": "chain-0", "task": "train[7]"})
    hand.write()
    steps = {row[0]: row for row in cells(penstock("show", "@").out) if len(row) == 5}
    assert steps["train"][1:3] == ["waiting", "3"] and "chain-0/train[7] computes the same" in steps["train"][4]
    assert steps["ok"][1] == "pending" and steps["ok"][4] == "after train"
    assert penstock("show", "@").out.splitlines()[-1] == "  next   penstock watch chain-1"
    hand.task("ok", "ok", "suspended", message="deploy?")
    hand.write()
    out = penstock("show", "@").out
    assert "waits for you: deploy?" in out and "penstock resume chain-1/ok" in out
    hand.die()
    out = penstock("show", "@").out
    assert out.startswith("chain-1  lost") and "penstock resume chain-1   (the process that ran it is gone)" in out


def test_tasks_that_were_cancelled_together_are_counted(penstock: Run, home: Path) -> None:
    hand = Hand(home, CHAIN)
    hand.event("step.ready", "train", tasks=3)
    hand.task("train[0]", "train", "cancelled")
    hand.event("step.cancelled", "train", message="cancelled", tasks=2)
    hand.finish("cancelled")
    hand.counts |= {"other": "cancelled", "another": "cancelled"}
    hand.close()
    data = json.loads(penstock("show", "@", "-o", "json").out)
    assert data["steps"][1]["tasks"] == {"cancelled": 3} and data["steps"][1]["total"] == 3


def test_what_is_tried_again_no_longer_counts_as_failed(penstock: Run, home: Path) -> None:
    hand = Hand(home, CHAIN)
    hand.task("fetch", "fetch", "failed", message="x")
    hand.task("train", "train", "omitted", took=None)
    hand.at += 5.0
    hand.event("run.retried", "", by="ana")
    hand.close()
    data = json.loads(penstock("show", "@", "-o", "json").out)
    assert [step["state"] for step in data["steps"]] == ["pending", "pending", "pending"]


def test_names_that_lead_nowhere(penstock: Run, home: Path) -> None:
    history.run(home, history.fine)
    for args, code, hint in (
        (("show", "fin-1"), "P505", 'Did you mean "fine-1"?'),
        (("show", "@7"), "P505", "penstock ls"),
        (("show", "@/trian"), "P507", 'Did you mean "train"?'),
        (("show", "@/train[9]"), "P507", "penstock show fine-1/train"),
        (("logs", "@/nope"), "P507", "its steps are prepare, train, total"),
        (("watch", "nope"), "P505", "penstock ls"),
        (("diff", "@", "nope-3"), "P505", "penstock ls"),
    ):
        result = penstock(*args)
        assert result.code == 4 and code in result.err and hint in result.err, args


@pytest.fixture
def terminal(penstock: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A command that thinks it writes to a terminal so wide."""

    def call(*args: str, columns: int = 80) -> str:
        monkeypatch.setenv("NO_COLOR", "1")
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setattr(render, "is_terminal", lambda stream=None: True)
        return str(penstock(*args).out)

    return call


def test_what_others_wrote_does_not_reach_the_terminal_raw(terminal: Run, home: Path) -> None:
    hand = Hand(home, CHAIN)
    name = hand.log("fetch", "\x1b[2Jgone\a\n")
    hand.task("fetch", "fetch", "failed", message="\x1b]0;title\a", exit_code=1, log=[[name, 0, None]])
    hand.finish("failed")
    hand.close()
    for args in (["show", "@"], ["show", "@/fetch"], ["logs", "@"], ["show", "@", "--tree"], ["watch", "@"]):
        shown = terminal(*args)
        assert "\x1b]" not in shown and "\x1b[2J" not in shown and "\a" not in shown, args
        assert "gone" in shown or "title" in shown


@pytest.mark.parametrize("columns", [40, 80, 140])
def test_no_line_is_wider_than_the_terminal(terminal: Run, home: Path, columns: int) -> None:
    history.run(home, history.broken)
    history.run(home, history.broken, n=7)
    screens = (
        ["ls"],
        ["show", "@"],
        ["show", "@", "--tree"],
        ["show", "@", "--gantt"],
        ["show", "@/row/train"],
        ["show", "@/flaky"],
        ["show", "@", "--events"],
        ["diff", "@2", "@"],
    )
    for args in screens:
        shown = terminal(*args, columns=columns)
        whole = ("penstock ", '  File "', "  key ", "  log ")  # to be copied, not read
        wide = [line for line in shown.splitlines() if len(line) > columns and not any(part in line for part in whole)]
        assert shown and not wide, args


def test_a_tree_on_a_screen_shows_what_failed_of_many_items(terminal: Run, home: Path) -> None:
    hand = Hand(home, CHAIN)
    for number in range(100):
        hand.task(f"train[{number}]", "train", "failed" if number == 77 else "succeeded", message="no")
    hand.close()
    shown = terminal("show", "@", "--tree")
    assert "✗ train[77]" in shown and "… 90 more" in shown and shown.count("✓ train[") == 9


# -- diff -------------------------------------------------------------------------------------------------------------


def test_diff_of_two_runs(penstock: Run, home: Path) -> None:
    history.run(home, history.fine)
    history.run(home, history.fine, n=2)
    out = penstock("diff", "fine-1", "@").out
    assert out.startswith("fine-1 → fine-2\n")
    assert "  param    n: 3 → 2" in out and "  output   result: 5 → 1" in out
    rows = {row[0]: row[1:] for row in cells(out) if len(row) == 6}
    assert rows["STEP"] == ["fine-1", "fine-2", "CHANGE", "REUSED", "STATE"]
    assert rows["train"][3:] == ["2", "succeeded → reused"]
    data = json.loads(penstock("diff", "@2", "@", "-o", "json").out)
    assert set(data) == {"before", "after", "plan", "steps", "outputs"}
    assert data["outputs"] == {"result": {"before": 5, "after": 1}}
    assert data["steps"][1]["reused"] == 2
    assert penstock("diff", "@", "@2", "-p", "n=1").code == 2


def test_diff_of_a_run_and_a_file(penstock: Run, home: Path, tmp_path: Path) -> None:
    from penstock.graph import codec

    Hand(home, CHAIN).close()
    (tmp_path / "now.yaml").write_text(codec.to_yaml(CHAIN))
    assert penstock("diff", "@", "now.yaml").out == "no difference\n"
    (tmp_path / "now.yaml").write_text(codec.to_yaml(Workflow(name="chain", steps=CHAIN.steps[:2])))
    data = json.loads(penstock("diff", "@", "now.yaml", "-o", "json").out)
    assert data["removed"] == ["ok"]
    assert json.loads(penstock("diff", "now.yaml", "@", "-o", "json").out)["added"] == ["ok"]
