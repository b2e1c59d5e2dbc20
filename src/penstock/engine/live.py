"""One run in the hands of an engine: its machine, and the rows that its facts become. Called by loop and replay.

Everything that is said about a run goes through `log` and `row`, into the engine's one batch, so that a fact, what follows
from it and the summary of it are written together or not at all.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Mapping
from typing import Any

from penstock.artifacts.values import dumps, loads
from penstock.backends.base import Ended
from penstock.engine.machine import Machine
from penstock.engine.steps import Task
from penstock.graph.model import Outcome
from penstock.store.base import Batch, Run

_encode = json.JSONEncoder(separators=(",", ":")).encode
SUCCEEDED = Outcome.SUCCEEDED
OUTCOMES = {"failed": Outcome.FAILED, "errored": Outcome.ERRORED, "cancelled": Outcome.CANCELLED}


class Extra:
    """What the engine keeps of a task beside what the machine does."""

    __slots__ = (
        "cancelled",
        "displaced",
        "first",
        "held",
        "lane",
        "log",
        "lost",
        "order",
        "resume_at",
        "shown",
        "started",
        "state",
        "timed_out",
        "timer",
        "wait",
    )

    def __init__(self) -> None:
        self.state = ""
        self.shown = ""
        """The state it is counted under."""
        self.order = ""
        self.lane = ""
        self.started: float | None = None
        self.first: float | None = None
        """When its first attempt began."""
        self.timer: asyncio.TimerHandle | None = None
        self.timed_out = False
        self.cancelled = False
        self.displaced: Any = None
        """Why it is being stopped, if it is to stand in line again."""
        self.held = True
        """Its key is leased, not just computed within one transaction."""
        self.lost = 0
        self.log: Any = ()
        self.wait = 0.0
        """Seconds that were to pass before the next attempt, from the log."""
        self.resume_at: float | None = None
        """Wall-clock time, from the log, at which a suspended or failed task goes on."""


def extra(task: Task) -> Extra:
    if task.extra is None:
        task.extra = Extra()
    found: Extra = task.extra
    return found


class Live:
    def __init__(self, run: Run, machine: Machine, batch: Batch, now: Callable[[], float]) -> None:
        self.run = run
        self.number = run.number
        self.machine = machine
        self.batch = batch
        self.now = now
        self.seq = run.seq
        self.state = "running"
        self.ended: float | None = None
        self.outputs_text: str | None = None
        self.progress: dict[str, dict[str, int]] = {}
        """Step path -> tasks by state, `tasks` among them: how many there are in all, as far as is known."""
        self.asking: dict[str, str] = {}
        """Suspended tasks that wait for somebody: path -> what to tell them."""
        self.timed: list[Task] = []
        """Called workflows that have begun and have a time limit."""
        self.unarmed: dict[str, Task] = {}
        """Those of them in which nothing has been admitted yet, by the prefix of what is in them."""
        self.counts: dict[str, int] = {}
        """Tasks by state, of the whole run."""
        self.failures: list[tuple[str, dict[str, Any]]] = []
        """The first few tasks that failed for good, with what is known."""
        self.times: dict[str, list[float]] = {}
        """Step path -> when its first task began and its last ended."""
        self.finished = threading.Event()
        self.error: Exception | None = None
        self.fresh = bool(run.options.get("fresh"))
        self.dry = bool(run.options.get("dry"))
        """Nothing of it is run: see dry."""
        self.bundle: str = run.options.get("bundle") or ""
        self.place: str = run.options.get("place") or ""
        self.timer: asyncio.TimerHandle | None = None
        self.ahead = False
        """Its stages have been put in line."""
        self.limit: float | None = None
        """Seconds that the run may take, as long as they have not begun to count."""
        self.chains: dict[str, tuple[str, ...]] | None = None
        """Which steps take over machines from each other, once that has been worked out."""
        self.dirty = False

    @property
    def why(self) -> str:
        """Why the run did not succeed."""
        return self.machine.why

    # -- writing ------------------------------------------------------------------------------------------------------

    def log(self, kind: str, path: str, data: str = "{}") -> None:
        self.seq += 1
        self.batch.events.append((self.number, self.seq, self.now(), kind, path, data))
        self.dirty = True

    def note(self, kind: str, path: str, data: Mapping[str, Any]) -> None:
        self.log(kind, path, _encode(data) if data else "{}")

    def row(self, task: Task, state: str, info: str = "{}", over: bool = False) -> None:
        kept = extra(task)
        before = kept.shown
        kept.state = kept.shown = state
        self.count(task.step_path, before, state, called=task.state.plan.inner is not None)
        ended = None
        if over:
            ended = self.now()
            times = self.times.get(task.step_path)
            if times is None:
                self.times[task.step_path] = [kept.started or ended, ended]
            else:
                times[1] = ended
        self.batch.tasks[self.number, task.path] = (
            self.number, task.path, task.step_path, state, task.attempt, task.key, kept.started, ended, info,
        )  # fmt: skip

    def count(self, step: str, before: str, state: str, many: int = 1, called: bool = False) -> None:
        """`called`: it is a workflow, whose own tasks count."""
        tally = self.progress.get(step)
        if tally is None:
            tally = self.progress[step] = {}
        if before:
            tally[before] -= many
        tally[state] = tally.get(state, 0) + many
        if not called:
            counts = self.counts
            if before:
                counts[before] -= many
            counts[state] = counts.get(state, 0) + many

    def flush(self) -> None:
        """The run's own row, if anything was said since the last time."""
        if self.dirty:
            self.dirty = False
            counts = {state: many for state, many in self.counts.items() if many}
            self.batch.runs[self.number] = (self.seq, self.state, self.ended, _encode(counts), self.outputs_text)

    # -- what followed from the last facts ----------------------------------------------------------------------------

    def settle(self) -> None:
        """Write down what the machine has worked out."""
        machine = self.machine
        if machine.opened:
            for task in machine.opened:
                task.attempt += 1
                kept = extra(task)
                kept.started = self.now()
                kept.first = kept.first or kept.started
                self.log("task.started", task.path, f'{{"attempt":{task.attempt},"on":"workflow"}}')
                self.row(task, "running")
                if task.step.timeout is not None:
                    self.timed.append(task)
            machine.opened.clear()
        if machine.facts:
            for kind, task, outcome, outputs, why in machine.facts:
                data: dict[str, Any] = {"message": why} if why else {}
                if kind == "task.succeeded":
                    self.log(kind, task.path, _encode({**data, "outputs": json.loads(dumps(outputs))}))
                else:
                    self.note(kind, task.path, data)
                self.row(task, outcome.value, _encode(data), over=True)
                if outcome.value in ("failed", "errored"):
                    self.failed(task.path, data)
            machine.facts.clear()
        if machine.notes:
            for kind, path, said, called in machine.notes:
                self.note(kind, path, said)
                self._noted(kind, path, said, called)
            machine.notes.clear()

    def _noted(self, kind: str, path: str, said: Mapping[str, Any], task: Task | None) -> None:
        state = kind.partition(".")[2]
        step = step_of(path)
        if kind == "step.ready":
            tally = self.progress.setdefault(step, {})
            tally["tasks"] = tally.get("tasks", 0) + said["tasks"]
            return
        many = int(said.get("tasks", 1))
        info = _encode({key: value for key, value in said.items() if key not in ("tasks", "follows")})
        if task is not None:
            self.row(task, state, info, over=True)
        else:
            self.count(step, "", state, many)
            if many == 1:
                self.batch.tasks[self.number, path] = (self.number, path, step, state, 0, "", None, self.now(), info)
        if state in ("failed", "errored"):
            self.failed(path, dict(said))

    def failed(self, path: str, data: dict[str, Any]) -> None:
        if len(self.failures) < 20:
            self.failures.append((path, data))

    # -- how a task ended ---------------------------------------------------------------------------------------------

    def succeeded(
        self, task: Task, outputs: Mapping[str, Any], text: str, report: Ended | None, reused: Mapping[str, Any] | None
    ) -> None:
        kept = extra(task)
        parts = [f'"attempt":{task.attempt}'] if task.attempt else []
        parts.append(f'"key":"{task.key}"' if task.key and text == "" else f'"outputs":{text}')
        if reused is not None:
            parts.append(f'"reused":{_encode(reused)}')
        info = "{}"
        if report is not None:
            parts.append(f'"seconds":{round(report.seconds, 6)}')
            if report.log:
                logs = _encode(report.log)
                parts.append(f'"log":{logs}')
                info = f'{{"log":{logs}}}'
        elif reused is not None:
            info = f'{{"from":{_encode(reused)}}}'
        self.log("task.succeeded", task.path, "{" + ",".join(parts) + "}")
        self.row(task, "succeeded" if reused is None else "reused", info, over=True)
        kept.order = ""
        self.machine.ended(task, SUCCEEDED, outputs)

    def supplied(self, task: Task) -> dict[str, Any]:
        """What a suspended task goes on with when nobody has said anything."""
        if not self.dry:
            return {}
        from penstock.engine.dry import supplied

        return supplied(task.step)

    def not_succeeded(self, task: Task, kind: str, data: dict[str, Any]) -> None:
        """For good. `kind`: failed, errored or cancelled."""
        self.note(f"task.{kind}", task.path, {"attempt": task.attempt, **data})
        self.row(task, kind, _encode(data), over=True)
        if kind != "cancelled":
            self.failed(task.path, {"state": kind, "attempts": task.attempt, **data})
        if "exit_code" in data:
            task.exit_code = data["exit_code"]
        self.machine.ended(task, OUTCOMES[kind], left_behind(data), how_it_failed(task, kind, data))


def left_behind(data: Mapping[str, Any]) -> dict[str, Any]:
    """The outputs that a failed task has given all the same, from what was recorded of it."""
    found: dict[str, Any] = loads(json.dumps(data["outputs"])) if "outputs" in data else {}
    return found


def how_it_failed(task: Task, kind: str, data: Mapping[str, Any]) -> str:
    message = data.get("message", "")
    return f"{task.path} {kind}: {message}" if message else f"{task.path} {kind}"


def step_of(path: str) -> str:
    """`outer[2]/train[3]#1` -> `outer/train`."""
    if "[" not in path and "#" not in path:
        return path
    return "/".join(part.partition("[")[0].partition("#")[0] for part in path.split("/"))
