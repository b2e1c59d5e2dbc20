"""kill -9 at any moment: of the engine, of a worker, of both. What was recorded stays, what is done does not run again, and
the run ends as if nothing had been. PENSTOCK_CRASHES asks for more than the usual 200 moments.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.flows import RESULTS
from tests.support.engines import (
    Command,
    Mother,
    Picture,
    consistent,
    follows,
    kill,
    nobody_is_left,
    notes,
    nothing_is_held,
    penstock,
    picture,
    processes,
    until,
)

POINTS = int(os.environ.get("PENSTOCK_CRASHES", "200"))
CHUNKS = 8
INLINE = {"function": "inline"}


@pytest.fixture(scope="module")
def mother() -> Iterator[Mother]:
    made = Mother()
    yield made
    made.close()


class Trial:
    """One run that is killed some times and then comes to its end."""

    def __init__(
        self, mother: Mother, place: Path, flow: str, on: dict[str, str], chance: random.Random, store: str = ""
    ) -> None:
        place.mkdir()
        self.mother = mother
        self.home = place / "home"
        self.store = store
        self.where = store or str(self.home)
        self.notes = place / "notes"
        self.flow = flow
        self.on = on
        self.chance = chance
        self.seen: list[Picture] = []
        self.kills: list[str] = []

    def crash(self, most: int) -> int:
        """Up to so many kills, then to the end. Returns how many there were."""
        pid = self.start()
        while len(self.kills) < most and self.moment(pid):
            whom = self.chance.choice(["engine", "engine", "worker", "both"])
            if whom == "worker":
                self.kill_worker()
            elif not self.kill_engine(pid, and_workers=whom == "both"):
                break
            elif self.seen and self.seen[-1].run.state == "succeeded":
                self.check(engines=False)  # it died after the last word
                return len(self.kills)
            else:
                pid = self.start()
        code = self.mother.wait(pid, 60)
        assert code == 0, f"exit code {code} after {self.kills}\n{Path(f'{self.home}.said').read_text()}"
        self.check()
        return len(self.kills)

    def start(self) -> int:
        return self.mother.start(self.home, self.flow, {"notes": str(self.notes)}, store=self.store, on=self.on)

    def moment(self, pid: int) -> bool:
        """Waits for a random one: some time after the start, or after some tasks have started. False: the run was over before."""
        before = self.started()
        tasks = self.chance.randint(1, 12) if self.chance.random() < 0.6 else 0
        pause = self.chance.uniform(0, 0.008) if tasks else self.chance.uniform(0, 0.2)
        while self.started() < before + tasks:
            if self.mother.wait(pid, 0) is not None:
                return False
            time.sleep(0.0005)
        time.sleep(pause)
        return True

    def started(self) -> int:
        return sum(notes(self.notes).values())

    def kill_worker(self) -> None:
        workers = processes(self.home, workers=True)
        if workers and self.kills.count("worker") < 2:  # a task that loses three workers fails, as it should
            kill(self.chance.choice(workers))
            self.kills.append("worker")
        self.look()

    def kill_engine(self, pid: int, and_workers: bool) -> bool:
        """False: it was over before."""
        victims = [pid, *(processes(self.home, workers=True) if and_workers else ())]
        self.chance.shuffle(victims)
        for victim in victims:
            kill(victim)
        if self.mother.wait(pid) != -signal.SIGKILL:
            return False
        self.kills.append("both" if and_workers else "engine")
        self.look()
        return True

    def look(self) -> None:
        """What is recorded now is what must still be there at the end."""
        if self.store or Path(self.where, "state.db").exists():
            now = picture(self.where, self.notes)
            if now is not None:
                consistent(now)
                self.seen.append(now)

    def check(self, engines: bool = True) -> None:
        end = picture(self.where, self.notes)
        assert end is not None
        consistent(end)
        for before in self.seen:
            follows(before, end, same)
        assert end.run.state == "succeeded", self.kills
        assert end.run.outputs == {"result": RESULTS[self.flow]}
        assert [event.kind for event in end.events].count("run.finished") == 1
        assert set(end.tasks.values()) <= {"succeeded", "reused", "skipped"}
        nobody_is_left(self.home)
        nothing_is_held(self.where, engines)


def same(task: str) -> str:
    """Two tasks of `mixed` share a key, and so one execution."""
    return "same" if task == "same-2" else task


@pytest.mark.long
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_a_run_survives_kills_at_random_moments(
    chunk: int, mother: Mother, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    chance = random.Random(f"{chunk} {os.environ.get('PENSTOCK_SEED', '')}")
    ways: list[dict[str, str]] = [{}, INLINE]
    kinds = [(flow, on) for flow in RESULTS for on in ways if flow != "commands" or not on]
    hits = trials = 0
    while hits < POINTS / CHUNKS:
        if not trials % len(kinds):
            chance.shuffle(kinds)
        store = str(request.getfixturevalue("postgres_url")) if chunk == CHUNKS - 1 and not trials else ""
        hits += Trial(mother, tmp_path / str(trials), *kinds[trials % len(kinds)], chance, store).crash(most=4)
        trials += 1
        assert trials < POINTS, "it is always over before it is killed"


# -- as typed ---------------------------------------------------------------------------------------------------------

FUNCTIONS = """
import os, time
from penstock import task, workflow, Retry, Backoff

def note(line):
    fd = os.open("notes", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, f"{line}\\n".encode())
    os.close(fd)

def noted(line):
    return open("notes").read().split().count(line)

def wait():
    deadline = time.monotonic() + 30
    while not os.path.exists("go") and time.monotonic() < deadline:
        time.sleep(0.005)

@task
def first() -> int:
    note("first")
    return 1

@task
def slow(x: int) -> int:
    note("slow")
    wait()
    return x + 1

@task
def last(x: int) -> int:
    note("last")
    return x + 1

@workflow
def flow(n: int = 0):
    return last(slow(first()))
"""

COMMANDS = """
from penstock import ScriptJob, Workflow, WorkflowParam

say = 'echo "$PENSTOCK_TASK" >> notes\\n'
out = [WorkflowParam("n", int)]
first = ScriptJob("first", say + "echo 1 > $PENSTOCK_OUTPUTS/n", outputs=out)
wait = "i=0; while [ ! -e go ] && [ $i -lt 3000 ]; do sleep 0.01; i=$((i+1)); done\\n"
slow = ScriptJob("slow", say + wait + "expr ${{ steps.first.outputs.n }} + 1 > $PENSTOCK_OUTPUTS/n", outputs=out)
last = ScriptJob("last", say + "expr ${{ steps.slow.outputs.n }} + 1 > $PENSTOCK_OUTPUTS/n", outputs=out)
flow = Workflow("flow", [first, slow, last], params=[WorkflowParam("n", int, 0)], outputs={"result": last.outputs["n"]})
"""


@pytest.fixture(params=["functions", "commands"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    (tmp_path / "flow.py").write_text(FUNCTIONS if request.param == "functions" else COMMANDS)
    return tmp_path


def begun(folder: Path, *words: str, task: str = "slow", times: int = 1) -> Command:
    """`penstock run`, at the moment when a task is running."""
    command = Command(folder, *(words or ("run", "flow.py")))
    until(f"{task} started", lambda: notes(folder / "notes")[task] >= times or command.process.poll() is not None)
    until(
        f"{task} known to run",
        lambda: command.process.poll() is not None or look(folder).tasks.get(task) == "running",
    )
    assert command.process.poll() is None, command.text
    return command


def look(folder: Path, id: str = "") -> Picture:
    found = picture(str(folder / ".penstock"), folder / "notes", id)
    assert found is not None
    consistent(found)
    return found


def went_on(folder: Path, before: Picture, slow: int) -> Picture:
    """The run has come to its end, and nothing ran that was done."""
    end = look(folder)
    follows(before, end)
    assert end.run.number == 1 and end.run.state == "succeeded" and end.run.outputs == {"result": 3}
    assert end.started == {"first": 1, "slow": slow, "last": 1}
    nobody_is_left(folder / ".penstock")
    nothing_is_held(str(folder / ".penstock"))
    return end


@pytest.mark.parametrize("words", [["run", "flow.py"], ["resume", "flow-1"], ["resume", "@"]], ids=" ".join)
def test_the_same_command_or_resume_goes_on_after_a_kill(folder: Path, words: list[str]) -> None:
    begun(folder).kill()
    before = look(folder)
    assert before.done == {"first"}
    (folder / "go").touch()
    code, said = penstock(folder, *words)
    assert code == 0, said
    assert "result: 3" in said
    if words[0] == "run":
        assert "continuing flow-1, which was interrupted" in said
    went_on(folder, before, slow=2)


ORPHANS = """
import os, subprocess
from penstock import ScriptJob, task, workflow

# Each starts something that does not know whose it is, waits for it, and does not end by itself. It says its number.
command = ScriptJob("command", "echo $$ >> pids; env -i sleep 60 & echo $! >> pids; echo command >> notes; wait; sleep 60")

@task
def function() -> int:
    child = subprocess.Popen(["sleep", "60"], env={})
    with open("pids", "a") as file:
        file.write(f"{os.getpid()}\\n{child.pid}\\n")
    with open("notes", "a") as file:
        file.write("function\\n")
    child.wait()
    return 1

@workflow
def flow():
    command()
    return function()
"""


def test_what_a_killed_engine_left_running_is_ended_before_its_tasks_start_again(tmp_path: Path) -> None:
    (tmp_path / "flow.py").write_text(ORPHANS)

    def both(times: int) -> bool:
        return notes(tmp_path / "notes") == {"command": times, "function": times}

    command = Command(tmp_path, "run", "flow.py")
    until("both run", lambda: both(1))
    orphans = list(map(int, (tmp_path / "pids").read_text().split()))
    assert len(orphans) == 4 and all(map(runs, orphans))
    command.kill()
    command = Command(tmp_path, "run", "flow.py")
    until("both run again", lambda: both(2))
    assert not any(map(runs, orphans))
    again = list(map(int, (tmp_path / "pids").read_text().split()))[4:]
    assert len(again) == 4 and all(map(runs, again))
    command.signal(signal.SIGINT)
    command.says("stopping: waiting for 2 running tasks")
    command.signal(signal.SIGINT)
    assert command.code(10) == 130
    until(f"all of {again} gone", lambda: not any(map(runs, again)), 5.0)


def test_signals_that_come_again_and_again_leave_nobody_behind(tmp_path: Path) -> None:
    (tmp_path / "flow.py").write_text(ORPHANS)
    command = Command(tmp_path, "run", "flow.py")
    until("both run", lambda: sum(notes(tmp_path / "notes").values()) == 2)
    pids = list(map(int, (tmp_path / "pids").read_text().split()))

    def press() -> bool:
        command.signal(signal.SIGINT)
        return command.process.poll() is not None

    until("it ends", press, 10.0)
    assert command.code() in (130, -signal.SIGINT)
    until(f"all of {pids} gone", lambda: not any(map(runs, pids)), 5.0)


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_run_with_other_parameters_or_new_does_not_continue(folder: Path) -> None:
    begun(folder).kill()
    (folder / "go").touch()
    assert penstock(folder, "run", "flow.py", "--new")[0] == 0
    assert look(folder).run.id == "flow-2"
    begun_again = look(folder, "flow-1")
    assert begun_again.run.state == "running"
    assert penstock(folder, "resume", "flow-1")[0] == 0
    end = look(folder, "flow-1")
    follows(begun_again, end)
    assert end.run.state == "succeeded"
    assert penstock(folder, "run", "flow.py", "-p", "n=1")[0] == 0
    assert look(folder).run.id == "flow-3"


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_a_signal_lets_running_tasks_finish_and_leaves_the_rest_for_later(folder: Path, how: signal.Signals) -> None:
    command = begun(folder)
    command.signal(how)
    command.says("stopping: waiting for 1 running task")
    (folder / "go").touch()
    assert command.code() == 130
    assert "penstock resume flow-1" in command.text
    before = look(folder)
    assert before.run.state == "stopped" and before.run.engine is None
    assert before.done == {"first", "slow"} and "last" not in before.tasks
    nobody_is_left(folder / ".penstock")
    nothing_is_held(str(folder / ".penstock"))
    assert penstock(folder, "resume", "flow-1")[0] == 0
    went_on(folder, before, slow=1)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_a_second_signal_ends_everything_now(folder: Path, how: signal.Signals) -> None:
    command = begun(folder)
    command.signal(how)
    command.says("stopping: waiting for 1 running task")
    command.signal(how)
    assert command.code(5) == 130
    nobody_is_left(folder / ".penstock")
    nothing_is_held(str(folder / ".penstock"))
    before = look(folder)
    assert before.run.state == "stopped" and before.done == {"first"}
    (folder / "go").touch()
    assert penstock(folder, "resume", "@")[0] == 0
    went_on(folder, before, slow=2)


def test_a_signal_while_nothing_runs_stops_at_once(tmp_path: Path) -> None:
    (tmp_path / "flow.py").write_text(
        "from penstock import Backoff, Retry, ScriptJob, Workflow\n"
        "again = Retry(limit=1, backoff=Backoff(initial=600))\n"
        "flow = Workflow('flow', [ScriptJob('a', 'exit 1', retry=again)])\n"
    )
    command = Command(tmp_path, "run", "flow.py")
    until("a waits for its next try", lambda: "a" in (tasks := _tasks(tmp_path)) and tasks["a"] == "retrying")
    command.signal(signal.SIGINT)
    assert command.code(5) == 130
    assert look(tmp_path).run.state == "stopped"


def _tasks(folder: Path) -> dict[str, str]:
    found = picture(str(folder / ".penstock"), folder / "notes")
    return {} if found is None else found.tasks


# -- workers ----------------------------------------------------------------------------------------------------------

WORKERS = (
    FUNCTIONS
    + """
@task(retry=Retry(limit=1, backoff=Backoff(initial=0.01)))
def unlucky() -> int:
    note("unlucky")
    if noted("unlucky") < 3:
        wait()
    elif noted("unlucky") == 3:
        raise RuntimeError("a failure of its own")
    return 1

@workflow
def flow(n: int = 0):
    return unlucky()
"""
)

KILLER = (
    FUNCTIONS
    + """
@task
def killer() -> int:
    note("killer")
    os.kill(os.getpid(), 9)

@workflow
def flow(n: int = 0):
    return [killer(), last(1)]
"""
)


def test_a_killed_worker_is_replaced_and_its_task_started_again_without_counting_against_retry(tmp_path: Path) -> None:
    (tmp_path / "flow.py").write_text(WORKERS)
    command = begun(tmp_path, task="unlucky")
    for times in (1, 2):
        until("it runs", lambda: notes(tmp_path / "notes")["unlucky"] == times)  # noqa: B023
        for pid in processes(tmp_path / ".penstock", workers=True):
            kill(pid)
    assert command.code() == 0, command.text
    end = look(tmp_path)
    kinds = [event.kind for event in end.events if event.task == "unlucky"]
    assert kinds.count("task.lost") == 2 and kinds.count("task.failed") == 1
    assert end.started["unlucky"] == 4


def test_engines_that_are_killed_do_not_count_as_the_fault_of_the_task(tmp_path: Path) -> None:
    (tmp_path / "flow.py").write_text(FUNCTIONS)
    for times in (1, 2, 3):
        begun(tmp_path, times=times).kill()
    command = begun(tmp_path, times=4)
    kill(*processes(tmp_path / ".penstock", workers=True))
    until("it runs again", lambda: notes(tmp_path / "notes")["slow"] == 5 or command.process.poll() is not None)
    (tmp_path / "go").touch()
    assert command.code() == 0, command.text


def test_a_task_that_always_kills_its_worker_fails_after_three_losses(tmp_path: Path) -> None:
    (tmp_path / "flow.py").write_text(KILLER)
    code, said = penstock(tmp_path, "run", "flow.py")
    assert code == 3
    assert "its worker process was ended by SIGKILL" in said and "it has lost 3 workers" in said
    end = look(tmp_path)
    assert end.tasks == {"killer": "errored", "last": "succeeded"}
    assert end.started["killer"] == 3
    nobody_is_left(tmp_path / ".penstock")
