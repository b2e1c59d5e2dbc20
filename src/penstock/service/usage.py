"""What runs asked for and used: core-hours, memory, GPUs and what they cost, by person, queue or flow. Called by `penstock usage`, the server and
the clean-up.

It comes from the log: attempts, how long each ran, and what its step asks for. That is one pure function (`attempts`). What it gives is kept
hour by hour for each run with the number of its last event, so that each log is read once.

Used is what was measured: processor time of commands and functions on this machine. That of containers, of pods and of functions inside the
engine, and the use of memory and GPUs, is measured by nobody here: it is not guessed.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from penstock.graph.paths import step_of
from penstock.service.run_records import state_of, workflow_of
from penstock.store.records import FINAL, Event, RunRecord
from penstock.store.sql import Store
from penstock.store.usage import RunUsage

if TYPE_CHECKING:
    from penstock.graph.model import Step, Workflow

HOUR: Final = 3600
GROUP: Final = 200
"""Runs whose usage is worked out before it is written."""
_BAD: Final = ("task.failed", "task.errored", "task.cancelled", "task.preempted", "task.lost")
_KINDS: Final = ("task.started", "task.succeeded", "task.suspended", *_BAD)


class Attempt(NamedTuple):
    """One try of a task, as far as the log tells."""

    task: str
    start: float
    end: float | None
    """None: it runs."""
    good: bool
    cpu: float | None
    """Seconds of processor time; None: not measured."""
    reused: bool = False
    """Nothing ran: the result was known."""


def attempts(events: Iterable[Event]) -> Iterator[Attempt]:
    """Of the log of one run, in its order."""
    begun: dict[str, float] = {}
    before = 0.0
    for event in events:
        task, data = event.task, event.data
        if event.kind == "task.started":
            if data.get("on") != "workflow":
                begun[task] = event.at
        elif event.kind == "task.suspended":
            if (ran := data.get("ran")) is not None:  # its action has ended; waiting for the answer takes nothing
                begun.pop(task, None)
                yield Attempt(task, event.at - float(ran["seconds"]), event.at, True, ran.get("cpu_seconds"))
        elif event.kind in _KINDS:
            start = begun.pop(task, None)
            if "reused" in data:
                yield Attempt(task, event.at, event.at, True, None, reused=True)
            elif "seconds" in data:
                good, cpu = event.kind == "task.succeeded", data.get("cpu_seconds")
                yield Attempt(task, event.at - float(data["seconds"]), event.at, good, cpu)
            elif event.kind == "task.lost" and start is not None:
                yield Attempt(
                    task, start, max(start, before), False, None
                )  # its engine was gone; until when it ran is not known
        before = event.at
    for task, start in begun.items():
        yield Attempt(task, start, None, True, None)


class Ask(NamedTuple):
    """What a task of a step asks for while it runs."""

    queue: str
    amounts: Mapping[str, float]
    """Cores, GiB of memory, pieces of anything else."""


def asks_of(workflow: Workflow) -> Callable[[str], Ask]:
    """Step path -> what it asks for."""
    from penstock.graph.model import Nested

    levels = {one.name: _by_name(one) for one in workflow.definitions}
    top = _by_name(workflow)
    known: dict[str, Ask] = {}

    def step_at(path: str) -> Step | None:
        inside, found = top, None
        for name in path.split("/"):
            found = inside.get(name)
            if found is None:
                return None
            if isinstance(found.action, Nested):
                inside = levels.get(found.action.name, {})
        return found

    def ask(path: str) -> Ask:
        found = known.get(path)
        if found is None:
            step = step_at(path)
            amounts = {} if step is None else {name: _units(step, name) for name in step.resources}
            queue = (None if step is None else step.queue) or workflow.queue or ""
            found = known[path] = Ask(queue, {name: amount for name, amount in amounts.items() if amount})
        return found

    return ask


def _by_name(workflow: Workflow) -> dict[str, Step]:
    return {one.name: one for one in (*workflow.steps, *workflow.on_exit)}


def _units(step: Step, resource: str) -> float:
    amount = step.resources[resource] * step.replicas / 1000
    return amount / 2**30 if resource in ("memory", "ephemeral-storage") else amount


@dataclass(slots=True)
class Tally:
    """Amounts are in hours: core-hours, GiB-hours, GPU-hours."""

    attempts: int = 0
    reused: int = 0
    """Tasks whose result was known, so that nothing ran."""
    hours: float = 0.0
    """That tasks ran, whatever they asked for."""
    asked: dict[str, float] = field(default_factory=dict)
    cpu_used: float = 0.0
    """Of all attempts whose processor time was measured."""
    cpu_measured: float = 0.0
    """Core-hours asked for by those of them that asked for cores, …"""
    cpu_of_measured: float = 0.0
    """… and used by these."""
    lost: dict[str, float] = field(default_factory=dict)
    """Asked for by attempts that did not succeed."""

    def add(self, other: Tally) -> None:
        self.attempts += other.attempts
        self.reused += other.reused
        self.hours += other.hours
        self.cpu_used += other.cpu_used
        self.cpu_measured += other.cpu_measured
        self.cpu_of_measured += other.cpu_of_measured
        for mine, theirs in ((self.asked, other.asked), (self.lost, other.lost)):
            for name, amount in theirs.items():
                mine[name] = mine.get(name, 0.0) + amount

    def add_data(self, data: Mapping[str, Any]) -> None:
        """The same of another's `as_data`."""
        self.attempts += data["attempts"]
        self.reused += data["reused"]
        self.hours += data["hours"]
        self.cpu_used += data["cpu_used"]
        self.cpu_measured += data["cpu_measured"]
        self.cpu_of_measured += data["cpu_of_measured"]
        for mine, theirs in ((self.asked, data["asked"]), (self.lost, data["lost"])):
            for name, amount in theirs.items():
                mine[name] = mine.get(name, 0.0) + amount

    def add_time(self, ask: Ask, seconds: float, one: Attempt, share: float = 1.0) -> None:
        """`share`: the part of the attempt that these seconds are."""
        hours = seconds / HOUR
        self.hours += hours
        for name, amount in ask.amounts.items():
            self.asked[name] = self.asked.get(name, 0.0) + amount * hours
            if not one.good:
                self.lost[name] = self.lost.get(name, 0.0) + amount * hours
        if one.cpu is not None:
            used = one.cpu / HOUR * share
            self.cpu_used += used
            if ask.amounts.get("cpu"):
                self.cpu_measured += ask.amounts["cpu"] * hours
                self.cpu_of_measured += used

    @property
    def busy(self) -> float | None:
        """Used against asked for, where it was measured. May be more than 1: nobody holds a process to the cores that it asked for."""
        return self.cpu_of_measured / self.cpu_measured if self.cpu_measured else None

    def as_data(self) -> dict[str, Any]:
        return {
            "attempts": self.attempts,
            "reused": self.reused,
            "hours": round(self.hours, 9),
            "asked": {name: round(amount, 9) for name, amount in self.asked.items()},
            "cpu_used": round(self.cpu_used, 9),
            "cpu_measured": round(self.cpu_measured, 9),
            "cpu_of_measured": round(self.cpu_of_measured, 9),
            "lost": {name: round(amount, 9) for name, amount in self.lost.items()},
        }

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Tally:
        return cls(**data)


# -- a run ------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Folded:
    """The usage of one run."""

    hours: dict[tuple[int, str], Tally] = field(default_factory=dict)
    """(begin of the hour, queue) -> what was done in it."""
    running: list[tuple[float, Ask]] = field(default_factory=list)
    """Since when, and what it asks for."""

    def text(self) -> str:
        rows = [[at, queue, tally.as_data()] for (at, queue), tally in sorted(self.hours.items())]
        running = [[start, ask.queue, ask.amounts] for start, ask in self.running]
        return json.dumps({"hours": rows, "running": running}, separators=(",", ":"))

    @classmethod
    def parsed(cls, text: str) -> Folded:
        data = json.loads(text)
        hours = {(at, queue): Tally.of(tally) for at, queue, tally in data["hours"]}
        return cls(hours, [(start, Ask(queue, amounts)) for start, queue, amounts in data["running"]])

    def tally(self, at: float, queue: str) -> Tally:
        key = (int(at) // HOUR * HOUR, queue)
        found = self.hours.get(key)
        if found is None:
            found = self.hours[key] = Tally()
        return found

    def spread(self, ask: Ask, one: Attempt, end: float) -> None:
        """Its time, over the hours in which it was."""
        start, whole = min(one.start, end), max(end - one.start, 1e-9)
        at = start
        while at < end:
            until = min(end, math.floor(at / HOUR) * HOUR + HOUR)
            self.tally(at, ask.queue).add_time(ask, until - at, one, (until - at) / whole)
            at = until
        last = self.tally(end, ask.queue)
        last.attempts += 1


def fold(events: Iterable[Event], ask_of: Callable[[str], Ask]) -> Folded:
    """The usage of a run, from its log."""
    found = Folded()
    for one in attempts(events):
        ask = ask_of(step_of(one.task))
        if one.reused:
            found.tally(one.start, ask.queue).reused += 1
        elif one.end is None:
            found.running.append((one.start, ask))
        else:
            found.spread(ask, one, one.end)
    return found


class Counter:
    """Works out the usage of runs that is not known yet. `seconds`: how long it may take."""

    def __init__(self, store: Store, seconds: float = math.inf) -> None:
        self.store = store
        self.seconds = seconds
        self._asks: dict[str, Callable[[str], Ask]] = {}

    def bring_up(self, since: float, until: float, tell: Callable[[int], None] = lambda left: None) -> int:
        """All runs of that time. Returns how many are left because there was no time for them. `tell` is called with that now and then."""
        return self.count(self.store.usage.missing(since, until), tell)

    def count(self, numbers: Iterable[int], tell: Callable[[int], None] = lambda left: None) -> int:
        left = list(numbers)
        deadline = time.monotonic() + self.seconds
        while left and time.monotonic() < deadline:
            some, left = left[:GROUP], left[GROUP:]
            rows = []
            for place, number in enumerate(some):
                run = self.store.runs.by_number(number)
                if run is not None:
                    rows.append(self._row(run))
                if time.monotonic() > deadline:
                    left = [*some[place + 1 :], *left]
                    break
            self.store.usage.put(rows)
            if left:
                tell(len(left))
        return len(left)

    def _row(self, run: RunRecord) -> RunUsage:
        found = Folded()
        if not run.options.get("dry"):
            with suppress(KeyError):  # its workflow is not in the store: it was removed a moment ago
                found = fold(self.store.runs.events(run.number, kinds=_KINDS), self.asks(run))
        return RunUsage(run.number, run.seq, run.created, run.ended, run.user, run.workflow, found.text())

    def asks(self, run: RunRecord) -> Callable[[str], Ask]:
        if run.digest not in self._asks:
            self._asks[run.digest] = asks_of(workflow_of(self.store, run))
        return self._asks[run.digest]


def running_now(store: Store, number: int) -> bool:
    """Do the tasks that the log says have begun run?"""
    run = store.runs.by_number(number)
    return run is not None and run.state not in FINAL and state_of(store, run) in ("running", "queued")
