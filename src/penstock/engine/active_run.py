"""One run that the engine executes: its state, and the rows that its facts become. Called by Engine and its parts, and by replay.

Everything that is recorded about a run goes through `log` and `row` into the journal's batch, so that a fact, what follows from it
and its summary are written together or not at all.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from penstock.artifacts.values import dumps, loads
from penstock.backends.base import AttemptEnded
from penstock.engine import follow
from penstock.engine.deciding import deciding
from penstock.engine.effects import CallOpened, Effect, Emit, Noted, QuotaWanted, StepSettled, TaskSettled
from penstock.engine.run_state import RunState
from penstock.engine.steps import Task
from penstock.expressions.evaluate import resolve
from penstock.graph.model import MISSING, Outcome
from penstock.graph.paths import step_of
from penstock.store.records import RunRecord, WriteBatch

_encode = json.JSONEncoder(separators=(",", ":")).encode
SUCCEEDED = Outcome.SUCCEEDED
OUTCOMES = {"failed": Outcome.FAILED, "errored": Outcome.ERRORED, "cancelled": Outcome.CANCELLED}
MOST_FAILURES = 20
"""Failed tasks of which the details are kept in memory."""


class Execution:
    """What the engine knows of the execution of a task, beside what RunState knows of the task."""

    __slots__ = (
        "attempt_id",
        "cancelled",
        "first",
        "lane",
        "leased",
        "log",
        "lost",
        "preempted",
        "ran",
        "resume_at",
        "retry_delay",
        "shown",
        "since",
        "started",
        "state",
        "timed_out",
        "timer",
    )

    def __init__(self) -> None:
        self.state = ""
        self.shown = ""
        """The state under which the tallies count it."""
        self.attempt_id = ""
        """Of the attempt that runs. AGAIN: the task is retried and still holds the lease of its key."""
        self.lane = ""
        self.started: float | None = None
        self.first: float | None = None
        """When its first attempt began."""
        self.timer: asyncio.TimerHandle | None = None
        self.timed_out = False
        self.cancelled = False
        self.preempted: dict[str, Any] | None = None
        """Why it is being stopped, if it is to wait for quota again."""
        self.leased = True
        """Its key is leased, not just computed within one transaction."""
        self.since = 0
        """The first of the attempts of which no end is recorded; 0: there is none."""
        self.lost = 0
        """How many workers went down with it."""
        self.log: Any = ()
        self.ran: dict[str, Any] = {}
        """What is recorded of its action while it waits for an answer: seconds, cpu_seconds, log."""
        self.retry_delay = 0.0
        """Seconds before the next attempt, as the log says."""
        self.resume_at: float | None = None
        """Wall-clock time at which a suspended or failed task goes on, as the log says."""

    def stop_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


AGAIN = "again"
TIMED_OUT = "TimeoutError"
"""The name of the error of a task that ran out of time, whatever it was that ran."""


def execution(task: Task) -> Execution:
    if task.execution is None:
        task.execution = Execution()
    found: Execution = task.execution
    return found


Route: TypeAlias = Callable[["ActiveRun", Any], None]
"""A part's method that takes an effect of one type."""


class ActiveRun:
    def __init__(
        self,
        record: RunRecord,
        batch: WriteBatch,
        now: Callable[[], float],
        make_state: Callable[[Emit], RunState],
        routes: Mapping[type, Route] | None = None,
        replaying: bool = False,
    ) -> None:
        self.record = record
        self.number = record.number
        self.batch = batch
        self.now = now
        self.seq = record.seq
        self.status = "running"
        self.ended: float | None = None
        self.outputs_text: str | None = None
        self.error_text = ""
        """What it failed with, once it has ended."""
        self.invalid = False
        """It failed because its input is not valid."""
        self.firsts: dict[str, tuple[str, dict[str, Any]]] = {}
        """Step path -> the first of its tasks that failed for good, with what is known."""
        self.owned = True
        """False once the run has ended, or another engine has taken it over."""
        self.progress: dict[str, dict[str, int]] = {}
        """Step path -> tasks by state; `tasks`: how many there are in all, as far as is known."""
        self.prompts: dict[str, str] = {}
        """Suspended tasks that wait for a person: path -> what to tell them."""
        self.counts: dict[str, int] = {}
        """Tasks by state, of the whole run."""
        self.failures: list[tuple[str, dict[str, Any]]] = []
        """The first tasks that failed for good, with what is known."""
        self.times: dict[str, list[float]] = {}
        """Step path -> when its first task began and its last ended."""
        self.finished = threading.Event()
        self.error: Exception | None = None
        self.fresh = bool(record.options.get("fresh"))
        self.dry = bool(record.options.get("dry"))
        """Nothing is executed: see dry."""
        self.bundle: str = record.options.get("bundle") or ""
        self.place: str = record.options.get("place") or ""
        secrets = record.options.get("secrets") or {}
        self.has_secrets = bool(secrets)
        self.secrets_beside: str = secrets.get("beside", "")
        """The manifest that the workflow was read from: Secrets may be in it, or beside it."""
        self.dirty = False
        """Something was recorded since the run's own row was last written."""
        self.replaying = replaying
        """Effects come from the log: they are recorded already."""
        self._opened: list[Task] = []
        self._settled: list[TaskSettled] = []
        self._notes: list[Noted] = []
        self._routes = dict(routes or {})
        self.state = make_state(self.receive)

    def receive(self, effect: Effect) -> None:
        """What follows from a fact. Recorded by `settle`, or handed to the part that acts on it."""
        if self.replaying and not isinstance(effect, QuotaWanted | StepSettled):
            return
        if isinstance(effect, Noted):
            self._notes.append(effect)
        elif isinstance(effect, TaskSettled):
            self._settled.append(effect)
        else:
            if isinstance(effect, CallOpened):
                self._opened.append(effect.task)
            route = self._routes.get(type(effect))
            if route is not None:
                route(self, effect)

    @property
    def why(self) -> str:
        """Why the run did not succeed."""
        return self.state.why

    # -- writing ------------------------------------------------------------------------------------------------------

    def log(self, kind: str, path: str, data: str = "{}") -> None:
        self.seq += 1
        self.batch.events.append((self.number, self.seq, self.now(), kind, path, data))
        self.dirty = True

    def note(self, kind: str, path: str, data: Mapping[str, Any]) -> None:
        self.log(kind, path, _encode(data) if data else "{}")

    def row(self, task: Task, state: str, info: str = "{}", over: bool = False) -> None:
        own: Execution = task.execution or execution(task)
        before = own.shown
        own.state = own.shown = state
        self.count(task.step_path, before, state, called=task.state.plan.inner is not None)
        ended = None
        if over:
            ended = self.now()
            times = self.times.get(task.step_path)
            if times is None:
                self.times[task.step_path] = [own.started or ended, ended]
            else:
                times[1] = ended
        path, key = task.path, task.key
        row = (self.number, path, task.step_path, state, task.attempt, key, own.started, ended, info)
        self.batch.tasks[self.number, path] = row

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
            self.batch.runs[self.number] = (
                self.seq,
                self.status,
                self.ended,
                _encode(counts),
                self.outputs_text,
                self.error_text,
                int(self.end == follow.INVALID),
            )

    # -- what followed from the last facts ----------------------------------------------------------------------------

    def settle(self) -> None:
        """Record what has followed since the last time."""
        if self._opened:
            for task in self._opened:
                task.attempt += 1
                own = execution(task)
                own.started = self.now()
                own.first = own.first or own.started
                self.log("task.started", task.path, f'{{"attempt":{task.attempt},"on":"workflow"}}')
                self.row(task, "running")
            self._opened.clear()
        if self._settled:
            for kind, task, outcome, outputs, why in self._settled:
                data: dict[str, Any] = {"message": why} if why else {}
                if kind == "task.succeeded":
                    self.log(kind, task.path, _encode({**data, "outputs": json.loads(dumps(outputs))}))
                else:
                    self.note(kind, task.path, data)
                self.row(task, outcome.value, _encode(data), over=True)
                if outcome.value in ("failed", "errored"):
                    self.failed(task.path, {"state": outcome.value, **data})
            self._settled.clear()
        if self._notes:
            for kind, path, said, called in self._notes:
                self.note(kind, path, said)
                self._noted(kind, path, said, called)
            self._notes.clear()

    def waits(self, task: Task, reason: Mapping[str, Any]) -> None:
        """A task waits for something other than quota: its reason is recorded, and it holds no permit meanwhile."""
        self.state.ready.free(task)
        text = json.dumps({"reason": reason})
        self.log("task.waiting", task.path, text)
        self.row(task, "waiting", text)

    def displaced(self, task: Task) -> None:
        """The task lost its permit before its attempt began."""
        if execution(task).shown:
            self.row(task, "waiting")

    def _noted(self, kind: str, path: str, said: Mapping[str, Any], task: Task | None) -> None:
        state = kind.partition(".")[2]
        step = step_of(path)
        if kind == "step.ready":
            tally = self.progress.setdefault(step, {})
            tally["tasks"] = tally.get("tasks", 0) + said["tasks"]
            return
        if kind == "step.asks":  # for people who read the log
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
            self.failed(path, {"state": state, **said})

    def say_error(self) -> None:
        """When it has ended: note what it failed with."""
        if self.status not in ("failed", "errored"):
            return
        timed_out = self.state.root.halt == "timeout"
        data: Mapping[str, Any] = {"state": self.status, "message": self.why, "timed_out": timed_out}
        found = None if timed_out else deciding(self.state.blueprint, self.firsts, self.progress)
        if found is not None:
            data = found[1]
            self.invalid = bool(data.get("invalid"))
        name, message = error_name(data.get("cause") or _killed(data) or data["state"], data), data.get("message", "")
        short = name.rpartition(".")[2]
        if message.startswith(f"{short}: ") or message == short:
            message = message[len(short) + 2 :]
        self.error_text = f"{name}: {message}" if message else name

    @property
    def end(self) -> str:
        """How it has ended, for what follows: its state, or `invalid`."""
        return follow.INVALID if self.invalid else self.status

    def failed(self, path: str, data: dict[str, Any]) -> None:
        self.firsts.setdefault(step_of(path), (path, data))
        if len(self.failures) < MOST_FAILURES:
            self.failures.append((path, data))

    # -- how a task ended ---------------------------------------------------------------------------------------------

    def succeeded(
        self,
        task: Task,
        outputs: Mapping[str, Any],
        text: str,
        report: AttemptEnded | None,
        reused: Mapping[str, Any] | None,
        log: Any = (),
    ) -> None:
        """`log`: of its action, if that was reported before."""
        parts = [f'"attempt":{task.attempt}'] if task.attempt else []
        parts.append(f'"key":"{task.key}"' if task.key and text == "" else f'"outputs":{text}')
        if reused is not None:
            parts.append(f'"reused":{_encode(reused)}')
        info = "{}"
        if report is not None:
            parts.append(f'"seconds":{round(report.seconds, 6)}')
            if report.cpu is not None:
                parts.append(f'"cpu_seconds":{round(report.cpu, 6)}')
            if report.log:
                logs = _encode(report.log)
                parts.append(f'"log":{logs}')
                info = f'{{"log":{logs}}}'
        elif log:
            logs = _encode(log)
            parts.append(f'"log":{logs}')
            info = f'{{"log":{logs}}}'
        elif reused is not None:
            info = f'{{"from":{_encode(reused)}}}'
        self.log("task.succeeded", task.path, "{" + ",".join(parts) + "}")
        self.row(task, "succeeded" if reused is None else "reused", info, over=True)
        own: Execution = task.execution
        own.attempt_id = ""
        self.state.ended(task, SUCCEEDED, outputs)

    def supplied(self, task: Task) -> dict[str, Any]:
        """What a suspended task goes on with when nobody has said anything."""
        if not self.dry:
            return {one.name: resolve(one.default, {}) for one in task.step.outputs if one.default is not MISSING}
        from penstock.engine.dry import supplied

        return supplied(task.step)

    def not_succeeded(self, task: Task, kind: str, data: dict[str, Any]) -> None:
        """For good. `kind`: failed, errored or cancelled."""
        self.note(f"task.{kind}", task.path, {"attempt": task.attempt, **data})
        self.row(task, kind, _encode(data), over=True)
        if kind != "cancelled":
            self.failed(task.path, {"state": kind, "attempts": task.attempt, **data})
        keep_error(task, kind, data)
        self.state.ended(task, OUTCOMES[kind], left_behind(data), how_it_failed(task, kind, data))


def keep_error(task: Task, kind: str, data: Mapping[str, Any]) -> None:
    """What others may read of how it failed: `steps.NAME.exit_code` and `steps.NAME.error`."""
    if "exit_code" in data:
        task.exit_code = data["exit_code"]
    task.error = {
        "name": error_name(kind, data),
        "message": data.get("message", ""),
    }


def _killed(data: Mapping[str, Any]) -> str:
    """A command that SIGKILL ended, on a machine or in a container: perhaps because memory had run out, but nobody has said so."""
    return "Killed" if data.get("exit_code") in (-9, 137) else ""


def error_name(kind: str, data: Mapping[str, Any]) -> str:
    return TIMED_OUT if data.get("timed_out") else str(data.get("exception") or kind)


def left_behind(data: Mapping[str, Any]) -> dict[str, Any]:
    """The outputs that a failed task has given all the same, from what was recorded of it."""
    found: dict[str, Any] = loads(json.dumps(data["outputs"])) if "outputs" in data else {}
    return found


def how_it_failed(task: Task, kind: str, data: Mapping[str, Any]) -> str:
    message = data.get("message", "")
    return f"{task.path} {kind}: {message}" if message else f"{task.path} {kind}"
