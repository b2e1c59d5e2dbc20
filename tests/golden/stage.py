"""Where a golden case plays: a folder of its own, and the ways of running something in it. Called by the cases and test_golden.

Only surfaces that stay are used here and in the cases: the public names of `penstock`, `penstock.testing`, the command line as a
process of its own, and the tables of the store. Nothing waits for time to pass; `until` looks until something is so.
"""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import itertools
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from penstock import LocalRunner, Run
from penstock.testing import VirtualReport, run_virtually
from tests.golden.record import Record

T = TypeVar("T")
PATIENCE = 60.0
"""Seconds after which something that should come will not."""


@dataclass(frozen=True, slots=True)
class Case:
    """A few runs whose log is compared with what was recorded."""

    name: str
    play: Callable[[Stage], None]
    by_task: str = ""
    """Why the order between tasks is not determined, if it is not: then the events of each task are compared by themselves."""
    without: Mapping[str, str] = field(default_factory=dict)
    """Fields that are not compared, and why."""

    def __str__(self) -> str:
        return self.name


class Cases(list[Case]):
    """The cases of one file: `@cases.of("name")` above a function adds it."""

    def of(self, name: str, **loosely: Any) -> Callable[[Callable[[Stage], None]], Callable[[Stage], None]]:
        def add(play: Callable[[Stage], None]) -> Callable[[Stage], None]:
            self.append(Case(name, play, **loosely))
            return play

        return add


def until_there_is(go: str) -> str:
    """Of a script: wait for this file. It ends with the case, whatever becomes of that, and some day by itself."""
    return f"n=0; until [ -e {go} ] || [ -e over ] || [ $n = 9999 ]; do n=$((n + 1)); sleep 0.01; done"


class Stage:
    def __init__(self, here: Path) -> None:
        self.here = here
        self.home = here / ".penstock"
        self.names = {str(here): "<here>", f"cancelled by {getpass.getuser()}": "cancelled by <user>"}
        """What stands for texts that differ from one time to the next."""
        self.environ: dict[str, str] = {}
        """More for commands."""
        self.looks: list[dict[str, Any]] = []
        self._begun: list[Command] = []

    def found(self, case: Case) -> dict[str, Any]:
        """All that is to be compared."""
        with Record(self.home, self.names, bool(case.by_task), case.without) as record:
            whole = record.whole()
        return whole | {"looks": self.looks} if self.looks else whole

    def close(self) -> None:
        self.open("over")
        for command in self._begun:
            command.kill()

    # -- running ------------------------------------------------------------------------------------------------------

    def write(self, name: str, text: str) -> str:
        (self.here / name).write_text(text, encoding="utf-8")
        return name

    def begin(self, *words: str) -> Command:
        """`penstock …` as typed in the folder, in a process of its own."""
        command = Command(self, words)
        self._begun.append(command)
        return command

    def type(self, *words: str, code: int = 0) -> str:
        """The same, to its end, which is to be this one; what it printed."""
        command = self.begin(*words)
        command.ends(code)
        return command.text

    @contextlib.contextmanager
    def engine(self, **options: Any) -> Iterator[Callable[..., Run]]:
        """One engine for several runs at once: what is yielded submits one. If the case fails it does not wait for them."""
        runs: list[Run] = []

        def submit(workflow: Any, **params: Any) -> Run:
            runs.append(runner.submit(workflow, **params))
            return runs[-1]

        with LocalRunner(home=self.home, **options) as runner:
            try:
                yield submit
            except BaseException:
                for run in runs:
                    run.cancel(now=True)
                raise

    def ends(self, run: Run, status: str = "succeeded") -> Run:
        run.wait(PATIENCE)
        assert run.status == status, f"{run.id} is {run.status}, not {status}: {run.failures}"
        return run

    def run(self, workflow: Any, status: str = "succeeded", params: Any = None, **options: Any) -> Run:
        """In an engine of its own, to its end, which is to be this one."""
        with self.engine(**options) as submit:
            return self.ends(submit(workflow, **(params or {})), status)

    def virtually(
        self, workflow: Any, params: Any = None, script: Any = None, meanwhile: Any = None, **more: Any
    ) -> VirtualReport:
        """On the scripted backend and the clock that jumps. A task takes a second if nothing is said, and each a little longer
        than the one before, so that no two end at the same moment. `meanwhile()` goes on beside it."""
        begun = itertools.count(1)

        def answer(order: Any) -> Any:
            said = script(order) if script is not None else 1
            seconds, rest = said if isinstance(said, tuple) else (said, None)
            return seconds + next(begun) / 1000, rest

        wrong: list[Exception] = []

        async def beside(engine: Any, live: Any) -> None:
            try:
                if meanwhile is not None:
                    await meanwhile()
                await asyncio.sleep(86_400)
                raise AssertionError("it stands still")
            except Exception as error:
                wrong.append(error)
                engine.later(lambda: engine.cancel(live, "something went wrong", now=True))

        report = run_virtually(workflow, params, answer, home=self.home, meanwhile=beside, **more)
        for error in wrong:
            raise error
        return report

    # -- looking ------------------------------------------------------------------------------------------------------

    def look(self, note: str) -> None:
        """Keep how things stand now, to be compared too."""
        with Record(self.home, self.names) as record:
            self.looks.append(record.look(note))

    def query(self, sql: str, *values: Any) -> list[Any]:
        if not (self.home / "state.db").exists():
            return []
        db = sqlite3.connect(f"file:{self.home / 'state.db'}?mode=ro", uri=True, timeout=30)
        try:
            return db.execute(sql, values).fetchall()
        except sqlite3.OperationalError:  # there is no table yet
            return []
        finally:
            db.close()

    def state(self, run: str, task: str) -> str:
        """Of a task; empty if nothing is known of it."""
        sql = "SELECT tasks.state FROM tasks JOIN runs ON tasks.run = runs.number WHERE runs.id = ? AND task = ?"
        return next((str(row[0]) for row in self.query(sql, run, task)), "")

    def count(self, run: str, kind: str, task: str = "%") -> int:
        """How many events of a kind there are."""
        sql = "SELECT count(*) FROM events JOIN runs ON run = number WHERE id = ? AND kind = ? AND task LIKE ?"
        return int(next((row[0] for row in self.query(sql, run, kind, task)), 0))

    def until(self, what: str, probe: Callable[[], T]) -> T:
        deadline = time.monotonic() + PATIENCE
        while not (found := probe()):
            for command in self._begun:
                assert not command.broken, f"{command.words} ended early, without: {what}\n{command.text}"
            assert time.monotonic() < deadline, f"{PATIENCE:g} s have passed without: {what}"
            time.sleep(0.005)
        return found

    def until_state(self, run: str, task: str, state: str) -> None:
        self.until(f"{run}/{task} is {state}", lambda: self.state(run, task) == state)

    def until_event(self, run: str, kind: str, task: str = "%", times: int = 1) -> None:
        self.until(f"{times} × {kind} of {run}/{task}", lambda: self.count(run, kind, task) >= times)

    def until_file(self, name: str) -> None:
        self.until(f"the file {name}", lambda: (self.here / name).exists())

    def open(self, *names: str) -> None:
        """Let go on what waits for these files."""
        for name in names:
            (self.here / name).touch()


class Command:
    """`penstock …` while it runs, and after."""

    def __init__(self, stage: Stage, words: Sequence[str]) -> None:
        self.words = words
        self._over = False
        self._said = stage.here / f"said-{len(stage._begun)}"
        environ = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
        environ |= {"PENSTOCK_HOME": str(stage.home), "NO_COLOR": "1", **stage.environ}
        with open(self._said, "wb") as said:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "penstock", *words],
                cwd=stage.here,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                start_new_session=True,
            )

    @property
    def text(self) -> str:
        return self._said.read_text(encoding="utf-8")

    @property
    def broken(self) -> bool:
        """Has it ended although nobody has asked whether it has?"""
        return not self._over and self.process.poll() not in (None, 0)

    def ends(self, code: int = 0) -> None:
        found = self.process.wait(PATIENCE)
        self._over = True
        assert found == code, f"{self.words} ended with {found}\n{self.text}"

    def signal(self, how: signal.Signals) -> None:
        self.process.send_signal(how)

    def kill(self) -> None:
        self._over = True
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(PATIENCE)
