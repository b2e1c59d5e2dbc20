"""The records of the store. Read by engine and service; written by store.sql.

A run has one writer, the engine that owns it; every write names that engine, and a write by an engine that has lost the run
is refused (`Fenced`). Order is (run, sequence): wall-clock times are kept for reading only.

What is only read is a NamedTuple: made in a quarter of the time, class and object, and every command imports this file.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

ACTIVE = ("running", "stopped")
"""States of a run that can go on. `stopped`: interrupted, and nobody is at it."""
FINAL = ("succeeded", "failed", "cancelled")


class Fenced(Exception):
    """Another engine has taken the run over: nothing was written, and this one must let go of it."""


class Disconnected(Exception):
    """The database went away in the middle of something, or made this transaction give way to another one: nothing of it
    is open any more. `reconnect`, ask `committed`, and if it was not, write the batch again."""


class Event(NamedTuple):
    """A fact."""

    seq: int
    at: float
    kind: str
    """`run.started`, `task.succeeded`, …"""
    task: str
    """The task's path, or "" for the run itself."""
    data: Mapping[str, Any]


@dataclass(slots=True, kw_only=True)
class RunRecord:
    """One execution of a workflow."""

    number: int
    """Counts up over the whole store; the primary key."""
    id: str
    """What people call it: `finetune-3`."""
    workflow: str
    digest: str
    params: dict[str, Any]
    options: dict[str, Any]
    """How it was asked for: file, place, bundle, until, fail_fast, …"""
    state: str
    created: float
    ended: float | None = None
    seq: int = 0
    """Of the last event."""
    engine: str | None = None
    """Who works on it."""
    counts: dict[str, int] = field(default_factory=dict)
    """Tasks by state."""
    outputs: dict[str, Any] | None = None
    user: str = ""
    error: str = ""
    """What made it fail, `TimeoutError: …`; empty if it has not failed."""
    invalid: bool = False
    """It failed because its input is not valid."""


class Origin(NamedTuple):
    """Which run a run follows from, and what it works on."""

    run: int = 0
    root: int = 0
    """The run that it all began with. 0, when it is recorded: itself."""
    parent: int = 0
    """The run whose end made this one; 0: none did."""
    link: str = ""
    """Its place in a chain."""
    payload: str = ""
    """The id of its payload."""
    attempt: int = 0
    """Of the payload, from 1."""


class PayloadRecord(NamedTuple):
    """A payload of a workflow, with its newest run."""

    id: str
    workflow: str
    label: str
    """What its sender calls it; may be empty."""
    version: int
    """Of the identity, as the newest run was submitted."""
    run: int
    """The newest attempt."""
    attempts: int
    created: float
    invalid_after: float | None
    """What came of it does not count after this time; 0: it does not count any more."""
    run_id: str | None
    """None: the run has been removed."""
    run_state: str | None
    invalid: int | None
    ended: float | None
    user: str | None
    error: str | None

    @property
    def state(self) -> str:
        """One of PAYLOAD_STATES; empty if its newest run has been removed."""
        if self.run_state == "failed" and self.invalid:
            return INVALID
        return {"stopped": "queued", None: ""}.get(self.run_state, self.run_state or "")


INVALID = "invalid"
IN_FLIGHT = ("queued", "running")


class FinishedRun(NamedTuple):
    """What is known of a run that is over, where many are looked at."""

    number: int
    id: str
    workflow: str
    ended: float
    user: str
    error: str
    payload: str
    """Of which it is the newest attempt; empty: it has none."""


@dataclass(slots=True, kw_only=True)
class TaskRow:
    """The last that is known of a task: a summary of its events."""

    task: str
    step: str
    """The step's path without indices: `outer/train`."""
    state: str
    """running, waiting, retrying, suspended, succeeded, reused, failed, errored, skipped, omitted, cancelled."""
    attempt: int = 0
    key: str = ""
    started: float | None = None
    ended: float | None = None
    info: dict[str, Any] = field(default_factory=dict)
    """exit_code, exception, message, log, reason, from …"""


class Result(NamedTuple):
    """What a key gave."""

    key: str
    outputs: dict[str, Any]
    run: int
    task: str
    at: float


class LeaseHolder(NamedTuple):
    """Who is computing a key now."""

    key: str
    engine: str
    run: int
    task: str


@dataclass(slots=True)
class KeyClaim:
    """What `claim` says about one key: a result, or somebody else at it, or neither: then it is the caller's now."""

    result: Result | None = None
    holder: LeaseHolder | None = None


class KeyWait(NamedTuple):
    """What a task that waits for another engine has got so far. Nothing at all: the holder is gone, claim the key again."""

    key: str
    run: int
    task: str
    failure: Any = None
    """What the holder said when it failed."""
    result: Result | None = None
    """Only when nobody holds the key: beside a holder, a result is an old one that is being computed afresh."""
    holder: LeaseHolder | None = None


class RunRequest(NamedTuple):
    """Something the owner of a run is asked to do. Gone once its number is in `Batch.handled`."""

    number: int
    run: int
    verb: str
    data: dict[str, Any]


class WorkloadRecord(NamedTuple):
    """A Workload as it is recorded: holding quota, or waiting for it."""

    key: str
    version: int
    run: int
    engine: str
    """Who answers for it."""
    state: str
    """gated (its time has not come), pending, held, leaving (to be stopped), over."""
    document: str


class TrackedRun(NamedTuple):
    """A run that a tracking server is told of."""

    run: int
    url: str
    """Of the server, without a password."""
    experiment: str
    seq: int
    """The last event that it has been told."""
    place: str
    """Where it has the run, once that is known: `EXPERIMENT/RUN`, its own ids."""
    sender: str
    """Who is telling it; empty: nobody."""
    until: float
    """When the sender counts as gone, if nothing is heard of it."""


class LockRequest(NamedTuple):
    """Somebody asks for locks: a task, or a run itself (task "")."""

    run: int
    task: str
    names: Mapping[str, int]
    """Name -> how many may hold it."""
    priority: int = 0
    held: bool = False
    """It has them, and they have been forgotten."""


class EngineRecord(NamedTuple):
    """A process that works on runs; see liveness.py."""

    id: str
    host: str
    pid: int
    born: str
    beat: int


class AnswerRow(NamedTuple):
    digest: str
    run: int
    task: str
    attempt: int
    state: str
    """open, answered, expired."""
    until: float
    """When it is too late; 0: never, or the attempt does not wait yet."""
    heartbeat: float
    """Seconds between two signs of life; 0: none are asked for."""
    beat: float
    at: float
    data: dict[str, Any]
    """The answer: {outputs}, or {error, message}."""

    @property
    def limit(self) -> float:
        """When it is too late if nothing comes before; inf: never."""
        found = [self.until] if self.until else []
        if self.heartbeat:
            found.append(self.beat + self.heartbeat)
        return min(found, default=float("inf"))


@dataclass(slots=True)
class WriteBatch:
    """What will be written together. Kept until the commit is known to have happened, so that it can be written again."""

    events: list[tuple[int, int, float, str, str, str]] = field(default_factory=list)
    """(run, seq, at, kind, task, data as JSON text)"""
    tasks: dict[tuple[int, str], tuple[Any, ...]] = field(default_factory=dict)
    """(run, task) -> (run, task, step, state, attempt, key, started, ended, info as JSON text)"""
    results: list[tuple[str, str, int, str, float]] = field(default_factory=list)
    """(key, outputs as JSON text, run, task, at). An older result of the key is replaced."""
    untrusted: list[str] = field(default_factory=list)
    """Keys whose result is to be forgotten."""
    released: list[str] = field(default_factory=list)
    """Keys whose lease ends."""
    failures: list[tuple[str, str]] = field(default_factory=list)
    """(failure as JSON text, key): told to everybody who waits for the key."""
    served: list[tuple[str, int, str]] = field(default_factory=list)
    """(key, run, task): these no longer wait."""
    runs: dict[int, tuple[Any, ...]] = field(default_factory=dict)
    """run -> (seq, state, ended, counts as JSON text, outputs as JSON text or None, error, 1 if its input is not valid)"""
    outbox: list[tuple[int, int, str, str, str, float, float]] = field(default_factory=list)
    """(run, seq, kind, data as JSON text, key, at, due): what a courier is to do, recorded exactly once. See outbox."""
    asked: list[tuple[str, int, str, int]] = field(default_factory=list)
    """(digest of a token, run, task, attempt): the attempt may be answered, see answers."""
    awaited: list[tuple[float, float, float, int, str, int]] = field(default_factory=list)
    """(until, heartbeat, beat, run, task, attempt): it waits for the answer."""
    waited: list[tuple[str, int, str, int]] = field(default_factory=list)
    """(payload, run, task, attempt): the answer is how these have ended."""
    handled: list[int] = field(default_factory=list)
    """Numbers of requests that are done with."""
    workloads: dict[str, tuple[str, int, int, str, str, str]] = field(default_factory=dict)
    """key -> (key, version, run, engine, state, document as JSON text)"""
    queue_use: dict[str, tuple[str, int, int, str]] = field(default_factory=dict)
    """queue -> (queue, width, at, document as JSON text), see series. Only together with a decision."""

    @property
    def urgent(self) -> bool:
        """Is there more in it than summaries of tasks?"""
        return bool(
            self.events
            or self.results
            or self.untrusted
            or self.released
            or self.failures
            or self.served
            or self.runs
            or self.outbox
            or self.asked
            or self.awaited
            or self.waited
            or self.handled
            or self.workloads
            or self.queue_use
        )

    def __bool__(self) -> bool:
        return bool(self.tasks) or self.urgent

    def drop_runs(self, numbers: Collection[int]) -> None:
        """What would be written of these runs. Results stay: others may count on them."""
        self.events = [row for row in self.events if row[0] not in numbers]
        self.tasks = {key: row for key, row in self.tasks.items() if key[0] not in numbers}
        self.served = [row for row in self.served if row[1] not in numbers]
        self.runs = {number: row for number, row in self.runs.items() if number not in numbers}
        self.outbox = [row for row in self.outbox if row[0] not in numbers]
        self.asked = [row for row in self.asked if row[1] not in numbers]
        self.awaited = [row for row in self.awaited if row[3] not in numbers]
        self.waited = [row for row in self.waited if row[1] not in numbers]
        self.workloads = {key: row for key, row in self.workloads.items() if row[2] not in numbers}

    def clear(self) -> None:
        parts: tuple[list[Any] | dict[Any, Any], ...] = (
            self.events,
            self.tasks,
            self.results,
            self.untrusted,
            self.released,
            self.failures,
            self.served,
            self.runs,
            self.outbox,
            self.asked,
            self.awaited,
            self.waited,
            self.handled,
            self.workloads,
            self.queue_use,
        )
        for part in parts:
            part.clear()
