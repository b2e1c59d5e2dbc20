"""Queues as people use them: apply, look, drain; runs of several terminals that share them."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.cli.ui import progress
from penstock.cli.ui.progress import Progress
from penstock.store.sql import open_store
from tests.cli.conftest import Result
from tests.cli.terminal import Terminal
from tests.cli.test_run import spawn as begin
from tests.cli.test_run import until
from tests.cli.test_why import FLOW
from tests.service.lines import FLAVOR, TWO_TEAMS, Lines, cluster_queue, local_queue, manifest

Penstock = Callable[..., Result]
WAITS = """
apiVersion: penstock/v1
kind: Workflow
name: {name}
steps:
- name: work
  script: {{source: "while [ ! -f go-{name} ]; do sleep 0.02; done"}}
  resources: {{cpu: {cpu}}}
"""


@pytest.fixture
def teams(penstock: Penstock, tmp_path: Path) -> Path:
    """The folder, with a queue of 2 cpu for two teams."""
    (tmp_path / "queues.yaml").write_text(TWO_TEAMS)
    assert penstock("queue", "apply", "queues.yaml").code == 0
    return tmp_path


# -- looking and changing ---------------------------------------------------------------------------------------------


def test_without_queues_the_machine_is_shown_and_nothing_is_made(penstock: Penstock, tmp_path: Path) -> None:
    listed = penstock("queue")
    assert listed.code == 0 and listed.out.splitlines()[1].startswith("machine\t") and "only queue" in listed.err
    assert json.loads(penstock("queue", "ls", "-o", "json").out)[0]["local_queues"] == []
    assert penstock("queue", "show", "machine").code == 0
    assert not (tmp_path / ".penstock").exists()


def test_what_is_applied_is_listed_and_can_be_printed_back(penstock: Penstock, teams: Path) -> None:
    rows = [line.split("\t") for line in penstock("queue", "ls").out.splitlines()]
    assert rows == [
        ["QUEUE", "COHORT", "STRATEGY", "WAIT", "HOLD", "CPU", "BORROWED", "STATE"],
        ["shared", "", "BestEffortFIFO", "0", "0", "0/2", "", "active"],
    ]
    (data,) = json.loads(penstock("queue", "ls", "-o", "json").out)
    assert data["local_queues"] == ["team-a", "team-b"] and data["quota"][0]["nominal"] == "2"
    printed = penstock("queue", "ls", "-o", "yaml").out
    kinds = [document["kind"] for document in yaml.safe_load_all(printed)]
    assert sorted(kinds) == ["ClusterQueue", "LocalQueue", "LocalQueue", "ResourceFlavor", "WorkloadPriorityClass"]
    (teams / "again.yaml").write_text(printed)
    assert penstock("queue", "delete", "--all").code == 0
    assert penstock("queue", "apply", "again.yaml").code == 0
    assert penstock("queue", "ls", "-o", "yaml").out == printed
    one = [document["kind"] for document in yaml.safe_load_all(penstock("queue", "show", "shared", "-o", "yaml").out)]
    assert one == ["ResourceFlavor", "ClusterQueue", "LocalQueue", "LocalQueue"]


def test_manifests_come_from_standard_input_too(penstock: Penstock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(TWO_TEAMS))
    assert "applied ClusterQueue shared\n" in penstock("queue", "apply", "-").out


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["queue", "apply", "nope.yaml"], 2, "P817"),
        (["queue", "apply", "bad.yaml"], 2, "bad.yaml:2"),
        (["queue", "show", "team-aa"], 4, 'Did you mean "team-a"'),
        (["queue", "drain", "shard"], 4, 'Did you mean "shared"'),
        (["queue", "delete", "nothing"], 4, "P812"),
        (["queue", "delete"], 2, "--all"),
        (["queue", "delete", "shared", "--all"], 2, "--all"),
        (["queue", "drian", "shared"], 2, 'Did you mean "drain"'),
        (["queue", "shared"], 2, "penstock queue show shared"),
    ],
)
def test_what_is_wrong_is_said_with_a_fix(
    penstock: Penstock, teams: Path, words: list[str], code: int, said: str
) -> None:
    (teams / "bad.yaml").write_text(manifest(cluster_queue("x", queueingStrategy="FIFO")))
    done = penstock(*words)
    assert done.code == code and said in done.err and "fix" in done.err


def test_a_queue_whose_flavor_is_missing_says_so(penstock: Penstock, tmp_path: Path) -> None:
    (tmp_path / "q.yaml").write_text(manifest(cluster_queue("x")))
    assert "P807" in penstock("queue", "apply", "q.yaml").err
    assert "inactive: flavor default not found" in penstock("queue", "ls").out
    assert "inactive: flavor default not found" in penstock("queue", "show", "x").out


def test_who_holds_and_who_waits_and_why(penstock: Penstock, teams: Path) -> None:
    lines = Lines(teams / ".penstock", "")
    holder, first, second = (lines.run(FLOW, ago=9 - n) for n in range(3))
    lines.ask(holder, "train", count=2)
    lines.ask(first, "fetch", queue="team-b")
    lines.ask(second, "fetch", cpu=2, queue="team-a", priority=10, priority_class="high")
    for run in (holder, first, second):
        run.write()
    shown = [line.split("\t") for line in penstock("queue", "show", "shared").out.splitlines()]
    assert ["default", "cpu", "2", "2", "0", "", "", ""] in shown
    assert any(line[:3] == ["flow-1/train", "team-a", "0"] and line[4] == "2 cpu" for line in shown)
    waits = [line for line in shown if line[0] in ("1", "2")]
    assert [line[1:4] for line in waits] == [["flow-3/fetch", "team-a", "10 (high)"], ["flow-2/fetch", "team-b", "0"]]
    assert [line[-1] for line in waits] == ["2 cpu short", "1 cpu short"]
    assert "local queues  team-a (1 hold, 1 wait), team-b (1 wait)" in penstock("queue", "show", "shared").out
    data = json.loads(penstock("queue", "show", "team-b", "-o", "json").out)
    assert (data["kind"], data["cluster_queue"], data["pending"], data["admitted"]) == ("LocalQueue", "shared", 1, 0)
    (member,) = data["waiting"]
    assert (member["run"], member["user"], member["asks"]) == ("flow-2", "ana", {"cpu": "1"})
    assert member["reason"]["short"][0]["holders"][0]["workload"] == "default/flow-1/train"
    for run in (holder, first, second):
        run.close()
    lines.close()


def test_what_is_borrowed_is_shown(penstock: Penstock, tmp_path: Path) -> None:
    queues = manifest(FLAVOR, cluster_queue("red", 2, cohortName="all"), cluster_queue("blue", 2, cohortName="all"))
    lines = Lines(tmp_path / ".penstock", queues)
    run = lines.run(FLOW)
    lines.ask(run, "train", count=3, queue="red")
    rows = [line.split("\t") for line in penstock("queue", "ls").out.splitlines()]
    assert ["red", "all", "BestEffortFIFO", "0", "1", "3/2", "1 cpu", "active"] in rows
    (quota,) = json.loads(penstock("queue", "show", "blue", "-o", "json").out)["quota"]
    assert (quota["free"], quota["most"], quota["borrowed"]) == ("1", "4", "0")
    run.close()
    lines.close()


# -- the screen -------------------------------------------------------------------------------------------------------


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(progress, "PAUSE", 0.0)
    monkeypatch.setattr(progress, "SHARE", 1e9)
    found = Terminal(110)
    yield found
    found.close()


def test_the_live_screen_shows_what_stands_in_line(terminal: Terminal) -> None:
    shown = Progress("flow-1", FLOW, terminal)
    wait = "waiting in queue team-a: 2 cpu short (position 3)"
    shown.update({}, {}, 1.0, "running", {"fetch": wait})
    shown.update({}, {}, 3.0, "running", {"fetch": wait})
    assert terminal.screen[:3] == [
        "flow-1  queued 3.0s  ▕░░░░░░░░░░░░░░░░░░▏ 0 of 7 tasks",
        f"  ▷ fetch       2.0s  {wait}",
        "  · train  ×4         after fetch",
    ]
    tallies = {"fetch": {"succeeded": 1}, "train": {"tasks": 4, "running": 1}}
    shown.update(tallies, {}, 4.0, "running", {"train": wait})
    assert terminal.screen[2].endswith(f"▒░░░  1 running · 3 {wait}")
    shown.update({}, {}, 5.0, "running", {"": wait})
    assert terminal.screen[0].endswith(f"0 of 7 tasks · {wait}")


def test_in_a_pipe_a_wait_is_told_once_for_each_queue() -> None:
    stream = io.StringIO()
    shown = Progress("flow-1", FLOW, stream)
    shown._next = 0.0
    for text in (
        "waiting in queue q: 2 cpu short",
        "waiting in queue q: 1 cpu short",
        "waiting in queue r: it is stopped",
    ):
        shown._next = 0.0
        shown.update({}, {}, 1.0, "running", {"fetch": text})
    assert stream.getvalue().splitlines() == [
        "flow-1  running",
        "fetch  waiting in queue q: 2 cpu short",
        "fetch  waiting in queue r: it is stopped",
    ]


# -- several runs at once ---------------------------------------------------------------------------------------------


@contextmanager
def spawn(*words: str) -> Iterator[subprocess.Popen[str]]:
    """A command in a process of its own, which is ended if the test fails meanwhile."""
    with begin(*words) as process:
        try:
            yield process
        except BaseException:
            process.kill()
            raise


def write(teams: Path, name: str, cpu: int = 1) -> str:
    (teams / f"{name}.yaml").write_text(WAITS.format(name=name, cpu=cpu))
    return f"{name}.yaml"


def state(where: Path, run: str) -> str:
    """Of its task `work`; `queued` if it stands in line."""
    if not (where / ".penstock" / "state.db").exists():
        return ""
    with open_store(str(where / ".penstock")) as store:
        found = store.runs.by_id(run)
        if found is None:
            return ""
        row = store.runs.task(found.number, "work")
        waits = any(one.run == found.number and one.state == "pending" for one in store.queues.workloads())
        return "queued" if waits else row.state if row is not None else ""


def over(process: subprocess.Popen[str]) -> tuple[str, str]:
    out, err = process.communicate(timeout=30)
    return out, err


def test_a_run_waits_for_another_and_starts_when_that_ends(penstock: Penstock, teams: Path) -> None:
    with spawn("run", write(teams, "one", 2), "--queue", "team-a") as one:
        until(lambda: state(teams, "one-1") == "running", "the first")
        with spawn("run", write(teams, "two"), "--queue", "team-b") as two:
            until(lambda: state(teams, "two-1") == "queued", "the wait")
            listed = {row["run"]: row["state"] for row in json.loads(penstock("ls", "-o", "json").out)}
            assert listed == {"one-1": "running", "two-1": "queued"}
            said = penstock("why", "two-1").out
            assert "in queue team-b (ClusterQueue shared): 1 cpu." in said and "one-1/work has 2 cpu" in said
            assert "waits behind 1: 1 cpu short" in penstock("plan", "two.yaml", "--queue", "team-a").out
            assert two.stderr is not None
            told = [two.stderr.readline() for _ in range(2)]
            assert told == ["two-1  running\n", "work  waiting in queue team-b: 1 cpu short\n"]
            (teams / "go-two").touch()
            (teams / "go-one").touch()
            over(two)
        over(one)
    assert (one.returncode, two.returncode) == (0, 0)
    history = json.loads(penstock("why", "two-1", "-o", "json").out)["history"]
    assert [(spell["path"], spell["outcome"], spell["tasks"]) for spell in history] == [("work", "admitted", 1)]


def test_a_queue_is_drained_and_goes_on_and_nothing_has_failed(penstock: Penstock, teams: Path) -> None:
    with spawn("run", write(teams, "one"), "--queue", "team-a") as one:
        until(lambda: state(teams, "one-1") == "running", "the start")
        assert "1 being evicted" in penstock("queue", "drain", "shared").out
        until(lambda: state(teams, "one-1") == "queued", "the end of it")
        assert "penstock queue resume shared" in penstock("why", "one-1").out
        assert "draining" in penstock("queue", "ls").out
        (teams / "go-one").touch()
        assert penstock("queue", "resume", "shared").code == 0
        over(one)
    assert one.returncode == 0
    shown = json.loads(penstock("show", "one-1/work", "-o", "json").out)
    assert shown["state"] == "succeeded" and shown["attempt"] == 2
    assert "work was stopped: its ClusterQueue was drained" in penstock("why", "one-1").out


def test_hold_lets_what_runs_finish(penstock: Penstock, teams: Path) -> None:
    with spawn("run", write(teams, "one"), "--queue", "team-a") as one:
        until(lambda: state(teams, "one-1") == "running", "the start")
        assert "1 may finish" in penstock("queue", "drain", "--hold", "team-a").out
        with spawn("run", write(teams, "two"), "--queue", "team-a") as two:
            until(lambda: state(teams, "two-1") == "queued", "the wait")
            (teams / "go-one").touch()
            (teams / "go-two").touch()
            over(one)
            assert one.returncode == 0 and state(teams, "two-1") == "queued"
            penstock("queue", "resume", "team-a")
            over(two)
    assert two.returncode == 0


def test_who_is_more_important_takes_the_place(penstock: Penstock, teams: Path) -> None:
    preempting = cluster_queue("shared", 2, preemption={"withinClusterQueue": "LowerPriority"})
    (teams / "more.yaml").write_text(manifest(preempting))
    with spawn("run", write(teams, "one", 2), "--queue", "team-a", "--queues", "more.yaml") as one:
        until(lambda: state(teams, "one-1") == "running", "the start")
        assert (
            "fits now, preempting one-1/work"
            in penstock("plan", write(teams, "two"), "--queue", "team-b", "--priority", "high").out
        )
        with spawn("run", "two.yaml", "--queue", "team-b", "--priority", "high") as two:
            until(lambda: state(teams, "two-1") == "running", "the second")
            assert "preempted by two-1/work" in penstock("why", "one-1").out
            (teams / "go-two").touch()
            over(two)
        (teams / "go-one").touch()
        over(one)
    assert (one.returncode, two.returncode) == (0, 0)


def test_what_can_never_start_is_refused_before_anything_is_recorded(penstock: Penstock, teams: Path) -> None:
    for words in ([], ["--detach"], ["--unit", "workflow"]):
        done = penstock("run", write(teams, "big", 3), "--queue", "team-a", *words)
        assert done.code == 2 and "P818" in done.err and "3 cpu" in done.err
    assert penstock("run", write(teams, "one"), "--queue", "team-c").code == 2
    assert json.loads(penstock("ls", "-o", "json").out) == []


def test_penstock_yaml_is_applied_where_a_run_is_started(penstock: Penstock, tmp_path: Path) -> None:
    (tmp_path / "penstock.yaml").write_text(manifest(FLAVOR, cluster_queue("here"), local_queue("lost", "nowhere")))
    (tmp_path / "go-one").touch()
    done = penstock("run", write(tmp_path, "one"), "--queue", "here", "-q")
    assert done.code == 0 and "warning[P807]" in done.err
    assert "P807" not in penstock("run", "one.yaml", "--queue", "here", "-q").err, "it is there already"
    assert "here\t" in penstock("queue", "ls").out


def test_penstock_yaml_is_applied_only_by_a_run_that_is_accepted_and_shown(penstock: Penstock, tmp_path: Path) -> None:
    (tmp_path / "penstock.yaml").write_text(manifest(FLAVOR, cluster_queue("here", 2)))
    (tmp_path / "go-one").touch()
    assert penstock("run", write(tmp_path, "big", 3), "--queue", "here").code == 2
    assert penstock("run", write(tmp_path, "one"), "--queue", "nowhere").code == 2
    assert penstock("plan", "one.yaml", "--queue", "here").code == 0
    assert "here" not in penstock("queue", "ls").out, "nothing was applied"
    done = penstock("run", "one.yaml", "--queue", "here")
    assert done.code == 0 and "penstock.yaml changed the queues of this store: " in done.err
    assert "ClusterQueue here" in done.err and "here\t" in penstock("queue", "ls").out
    assert "changed the queues" not in penstock("run", "one.yaml", "--queue", "here", "--new").err


def test_a_detached_run_takes_its_queue_and_priority_along(penstock: Penstock, teams: Path) -> None:
    (teams / "go-one").touch()
    done = penstock("run", write(teams, "one"), "--queue", "team-b", "--priority", "7", "-d", "-o", "json")
    assert done.code == 0
    until(lambda: json.loads(penstock("show", "@", "-o", "json").out).get("state") == "succeeded", "the end")
    data = json.loads(done.out)
    until(lambda: not Path(f"/proc/{data['pid']}").exists() or os.waitpid(data["pid"], os.WNOHANG)[0], "its process")
    events = json.loads(penstock("show", "@", "--events", "-o", "json").out)
    admitted = next(event["data"] for event in events if event["kind"] == "reservation.admitted")
    assert admitted["queue"] == "shared"


def test_ctrl_c_leaves_the_line_and_resume_comes_back_to_it(penstock: Penstock, teams: Path) -> None:
    with spawn("run", write(teams, "one", 2), "--queue", "team-a") as one:
        until(lambda: state(teams, "one-1") == "running", "the first")
        with spawn("run", write(teams, "two"), "--queue", "team-b") as two:
            assert two.stderr is not None
            assert "waiting in queue team-b" in [two.stderr.readline() for _ in range(2)][1]
            two.send_signal(signal.SIGINT)
            over(two)
        assert two.returncode == 130
        assert json.loads(penstock("queue", "show", "shared", "-o", "json").out)["pending"] == 0
        (teams / "go-two").touch()
        with spawn("resume", "two-1") as again:
            until(lambda: state(teams, "two-1") == "queued", "the wait again")
            (teams / "go-one").touch()
            over(again)
        over(one)
    assert (again.returncode, one.returncode) == (0, 0)


def test_a_run_that_is_killed_holds_nothing_any_more(penstock: Penstock, teams: Path) -> None:
    with spawn("run", write(teams, "one", 2), "--queue", "team-a") as one:
        until(lambda: state(teams, "one-1") == "running", "the first")
        with spawn("run", write(teams, "two"), "--queue", "team-b") as two:
            until(lambda: state(teams, "two-1") == "queued", "the wait")
            one.kill()
            (teams / "go-two").touch()
            over(two)
    assert two.returncode == 0
    (teams / "go-one").touch()
    assert penstock("resume", "one-1", "-q").code == 0


def test_help_and_a_run_that_needs_nothing_do_not_load_the_queues(tmp_path: Path) -> None:
    (tmp_path / "flow.yaml").write_text(WAITS.format(name="x", cpu=1).replace("  resources: {cpu: 1}\n", ""))
    (tmp_path / "go-x").touch()
    code = (
        "import sys; from penstock.cli.main import run; code = run(sys.argv[1:]); "
        "print([name for name in sys.modules if name.startswith('penstock.admission')]); sys.exit(code)"
    )
    for words in (["--help"], ["queue", "--help"], ["run", "flow.yaml", "-q"], ["plan", "flow.yaml"], ["ls"]):
        done: Any = subprocess.run(
            [sys.executable, "-c", code, *words], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True
        )
        assert done.stdout.splitlines()[-1] == "[]", words
