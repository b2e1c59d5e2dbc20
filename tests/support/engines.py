"""Engines in other processes, and what can be seen of them from outside. Used by the tests of crashes, sharing, the soak and
trouble.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from penstock.runners.local import LocalRunner
from penstock.store.records import Event, RunRecord
from penstock.store.sql import Store, open_store

T = TypeVar("T")
DONE = frozenset({"succeeded", "reused"})
OVER = DONE | {"failed", "errored", "skipped", "omitted", "cancelled"}


def until(what: str, found: Callable[[], T], seconds: float = 15.0) -> T:
    """What `found` gives as soon as that is something. Fails with `what` when it takes too long."""
    deadline = time.monotonic() + seconds
    while True:
        value = found()
        if value:
            return value
        assert time.monotonic() < deadline, f"{seconds:g} s have passed without: {what}"
        time.sleep(0.002)


# -- processes --------------------------------------------------------------------------------------------------------


def processes(home: str | Path, *, workers: bool = False) -> list[int]:
    """Pids of what engines of this home have started, or only of warm workers."""
    wanted = b"PENSTOCK_HOME=" + os.fsencode(str(home))
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                environ = Path("/proc", name, "environ").read_bytes().split(b"\0")
                ours = wanted in environ and any(part.startswith(b"PENSTOCK_ENGINE=") for part in environ)
                if ours and (not workers or b"worker_main" in Path("/proc", name, "cmdline").read_bytes()):
                    found.append(int(name))
    return found


def nobody_is_left(home: str | Path) -> None:
    """A process that was killed may need a moment to go."""
    until(f"all processes of {home} gone", lambda: not processes(home), 5.0)


def kill(*pids: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@contextlib.contextmanager
def kept(runner: LocalRunner) -> Iterator[LocalRunner]:
    """One engine in this process for several runs. When the test fails, it does not wait for them."""
    with runner:
        try:
            yield runner
        except BaseException:
            if runner._host is not None:
                runner._host.abandon()
            raise


class Mother:
    """Starts engines; see tests/engine/driver.py."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.engine.driver"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
            start_new_session=True,
        )
        self._running: set[int] = set()
        self._codes: dict[int, int] = {}

    def start(
        self,
        home: str | Path,
        flow: str,
        *params: Mapping[str, Any],
        store: str = "",
        on: Mapping[str, str] | None = None,
        jobs: int = 2,
        window: float = 0.004,
        again: bool = True,
    ) -> int:
        order = {
            "do": "start",
            "home": str(home),
            "store": store,
            "flow": flow,
            "params": list(map(dict, params)),
            "on": dict(on or {}),
            "jobs": jobs,
            "window": window,
            "again": again,
        }
        pid = int(self._ask(order))
        self._running.add(pid)
        self._codes.pop(pid, None)
        return pid

    def wait(self, pid: int, seconds: float = 30.0) -> int | None:
        """Its exit code, minus the signal if one ended it; None if it runs on for so long."""
        if pid in self._running:
            code = self._ask({"do": "wait", "pid": pid, "seconds": seconds})
            if code is None:
                return None
            self._running.discard(pid)
            self._codes[pid] = int(code)
        return self._codes[pid]

    def close(self) -> None:
        for pid in list(self._running):
            kill(pid)
        assert self._process.stdin and self._process.stdout
        self._process.stdin.close()
        self._process.wait(10)
        self._process.stdout.close()

    def _ask(self, order: Mapping[str, Any]) -> Any:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


# -- the record -------------------------------------------------------------------------------------------------------


def fold(events: list[Event]) -> dict[str, str]:
    """Task -> its state, as the events alone tell it."""
    states: dict[str, str] = {}
    for event in events:
        subject, _, what = event.kind.partition(".")
        if event.kind == "run.retried":
            states = {task: state for task, state in states.items() if state in DONE or state == "skipped"}
        if subject == "step" and what != "ready" and event.data.get("tasks", 1) == 1:
            states[event.task] = what
        elif subject == "task":
            if what == "succeeded" and "reused" in event.data:
                what = "reused"
            elif what in ("failed", "errored") and "retry" in event.data:
                what = "retrying"
            states[event.task] = {"started": "running", "lost": "waiting"}.get(what, what)
    return states


class Picture(NamedTuple):
    """All that is recorded of a run at one moment, and how often each task had started by then."""

    run: RunRecord
    events: list[Event]
    tasks: dict[str, str]
    started: Counter[str]

    @property
    def done(self) -> set[str]:
        return {task for task, state in self.tasks.items() if state in DONE}


def notes(path: str | Path) -> Counter[str]:
    """How often each task has started, as the tasks themselves say."""
    try:
        return Counter(Path(path).read_text(encoding="utf-8").split("\n")[:-1])
    except FileNotFoundError:
        return Counter()


@contextlib.contextmanager
def opened(where: str) -> Iterator[Store]:
    with open_store(where) as store:
        yield store


def picture(where: str, said: str | Path, id: str = "") -> Picture | None:
    """Of the only run, or of the one named. None if there is none yet."""
    with open_store(where) as store:
        store.journal.begin()  # so that all of it is of one moment
        try:
            run = store.runs.by_id(id) if id else next(iter(store.runs.newest(limit=1)), None)
            if run is None:
                return None
            events = list(store.runs.events(run.number))
            tasks = {row.task: row.state for row in store.runs.tasks(run.number)}
        finally:
            store.journal.rollback()
    return Picture(run, events, tasks, notes(said))


def consistent(now: Picture) -> None:
    """What must hold at every moment."""
    assert [event.seq for event in now.events] == list(range(1, len(now.events) + 1)), "numbers with gaps or doubles"
    assert now.run.seq == len(now.events)
    told = fold(now.events)
    assert {task: state for task, state in told.items() if state in OVER} == {
        task: state for task, state in now.tasks.items() if state in OVER
    }, "the summaries do not agree with the events"
    doubled = [
        task
        for task, n in Counter(event.task for event in now.events if event.kind == "task.succeeded").items()
        if n > 1
    ]
    assert not doubled, f"succeeded more than once: {doubled}"


def follows(before: Picture, after: Picture, same: Callable[[str], str] = lambda task: task) -> None:
    """What must hold between two moments. `same`: the name under which a task says that it starts."""
    assert after.events[: len(before.events)] == before.events, "a recorded event was lost or changed"
    for task in before.done:
        assert after.tasks[task] == before.tasks[task]
        assert after.started[same(task)] == before.started[same(task)], f"{task} was recorded as done and ran again"


def nothing_is_held(where: str, engines: bool = True) -> None:
    """After the last engine has gone."""
    with open_store(where) as store:
        for table in ("leases", "waiters", "requests", *(("engines",) if engines else ())):
            assert rows(store, table) == [], f"{table} were left behind"


def rows(store: Store, table: str) -> list[Any]:
    db: Any = store._db
    return list(db._db.execute(f"SELECT * FROM {table}").fetchall())


# -- the command line -------------------------------------------------------------------------------------------------


class Command:
    """`penstock …` in a process of its own, as typed in the folder."""

    def __init__(self, folder: Path, *words: str, home: Path | None = None, store: str = "") -> None:
        self.folder = folder
        self.said = folder / "said"
        environ = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
        environ |= {"PENSTOCK_HOME": str(home or folder / ".penstock"), "PENSTOCK_JOBS": "2", "NO_COLOR": "1"}
        if store:
            environ["PENSTOCK_STORE"] = store
        with open(self.said, "wb") as said:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "penstock", *words],
                cwd=folder,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def text(self) -> str:
        return self.said.read_text(encoding="utf-8")

    def says(self, words: str) -> None:
        until(f"{words!r}, only {self.text!r}", lambda: words in self.text)

    def signal(self, how: signal.Signals) -> None:
        self.process.send_signal(how)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(10)

    def code(self, seconds: float = 30.0) -> int:
        """Its exit code."""
        try:
            return self.process.wait(seconds)
        finally:
            if self.process.poll() is None:
                self.kill()


def penstock(folder: Path, *words: str, home: Path | None = None, store: str = "") -> tuple[int, str]:
    """Run to its end: exit code and all that it said."""
    command = Command(folder, *words, home=home, store=store)
    return command.code(), command.text
