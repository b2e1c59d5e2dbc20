"""From the log of a run to its state: starting is recovering. Called by Engine when it adopts a run, and by what is told of a run from its log (service.tracking, service.views.tasks)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from penstock.artifacts.values import loads
from penstock.engine.active_run import OUTCOMES, ActiveRun, execution, how_it_failed, keep_error, left_behind
from penstock.engine.blueprint import Blueprint
from penstock.engine.steps import Task
from penstock.graph.model import Outcome
from penstock.graph.paths import step_of
from penstock.store.records import Event

if TYPE_CHECKING:
    from penstock.store.protocols import ResultStore, RunStore

_BAD = ("task.failed", "task.errored", "task.cancelled")
_ENDS = (*_BAD, "task.succeeded", "task.preempted")
"""What is recorded when an attempt has ended."""
_UNDONE = (*_BAD, "run.cancelling", "run.timeout", "run.untrusted", "task.timeout", "run.finished")
"""What a retry takes back: events of these kinds before it count as not having happened."""


def replay(run: ActiveRun, store: RunStore, results: ResultStore) -> list[Task]:
    """Fold the log into `run.state`. Returns the tasks that had begun and have not ended."""
    state = run.state
    fold = LogFold(run, store, results)
    for chunk in _chunks(store.events(run.number), 500):
        fold.take(chunk)
    last = fold.last
    run.replaying = False
    for path in list(state.failed_calls):
        state.ended(state.accept_failure(path), Outcome.FAILED, {})
    if last:
        # What depended on what is tried again is to be decided again.
        undone = [
            row.task for row in store.tasks(run.number) if row.task not in state.live and not state.over(row.task)
        ]
        store.drop_tasks(run.number, undone)
    recount(run, store)
    for task in state.live.values():
        row = store.task(run.number, task.path)
        execution(task).shown = "" if row is None else row.state
        execution(task).started = None if row is None else row.started
    return [task for task in state.live.values() if task.state.plan.inner is None]


class LogFold:
    """Folds the log of a run piece by piece. What the last retry took back counts as not having happened, so after another retry a new fold is
    needed. Also for who only reads: service.tracking."""

    def __init__(self, run: ActiveRun, store: RunStore, results: ResultStore) -> None:
        self.run = run
        self._results = results
        self.last = max((event.seq for event in store.events(run.number, kinds=["run.retried"])), default=0)
        self._untrusted = {event.task: event.seq for event in store.events(run.number, kinds=["task.untrusted"])}

    def take(self, chunk: list[Event]) -> None:
        run = self.run
        keys = {event.data["key"] for event in chunk if event.kind == "task.succeeded" and "key" in event.data}
        found = self._results.lookup(list(keys)) if keys else {}
        for event in chunk:
            if event.seq < self._untrusted.get(event.task, 0) and event.kind == "task.succeeded":
                _distrust(run, event, event.seq < self.last)
            elif event.seq < self.last and event.kind in _UNDONE and event.data.get("retry") is None:
                _forgive(run, event)
            else:
                _apply(run, event, found)

    def inputs(self, path: str) -> dict[str, Any] | None:
        """What a task was given that has begun, or is about to. None: it is over, or there is none."""
        task = self.run.state.find(path)
        return None if task is None else task.inputs


def inputs_of(run: ActiveRun, store: RunStore, results: ResultStore, path: str) -> dict[str, Any] | None:
    """The inputs that a task was given, from what was recorded before it began. None: it cannot be told."""
    for chunk in _chunks(store.events(run.number), 500):
        keys = {event.data["key"] for event in chunk if event.kind == "task.succeeded" and "key" in event.data}
        found = results.lookup(list(keys)) if keys else {}
        for event in chunk:
            if event.task == path and event.kind.startswith("task."):
                task = run.state.find(path)
                return None if task is None else task.inputs
            _apply(run, event, found)
    return None


def _chunks(events: Iterable[Event], size: int) -> Iterator[list[Event]]:
    iterator = iter(events)
    while chunk := list(islice(iterator, size)):
        yield chunk


def _forgive(run: ActiveRun, event: Event) -> None:
    """A failure before a retry. The task has been begun, and its attempts are counted on from there."""
    if event.kind in _BAD:
        task = run.state.find(event.task) if event.task else None
        if task is not None and task.state.plan.inner is None:
            task.attempt = max(task.attempt, int(event.data.get("attempt", 0)))
            task.tries = 0
            execution(task).state = "forgiven"
            execution(task).first = None
            execution(task).since = 0


def _distrust(run: ActiveRun, event: Event, retried: bool) -> None:
    """It had a result, and that was another's perhaps: it has yet to be done. What a called workflow gave follows from what is in it."""
    task = None if event.data.get("follows") else run.state.find(event.task)
    if task is not None:
        task.attempt = max(task.attempt, int(event.data.get("attempt", 0)))
        execution(task).state = "forgiven" if retried else "lost"
        execution(task).first = None
        execution(task).since = 0


def _apply(run: ActiveRun, event: Event, results: dict[str, Any]) -> None:
    state = run.state
    kind = event.kind
    if kind == "run.cancelling":
        state.cancel(event.data.get("message", "cancelled"), exits=not event.data.get("now"))
    elif kind in ("run.timeout", "run.untrusted", "task.timeout"):
        state.time_out(event.task, event.data.get("message", ""))
    if not kind.startswith("task.") or event.data.get("follows"):
        return
    settled = state.settled
    task = state.find(event.task)
    if task is None:
        # Either it was over as soon as it was looked at, as it was then, or it belongs to what a retry has taken back.
        state.ignored += settled == state.settled
        return
    if task.state.plan.inner is not None:
        _called(run, event, task, results)
        return
    own = execution(task)
    data = event.data
    task.attempt = max(task.attempt, int(data.get("attempt", 0)))
    if kind in _ENDS or (kind == "task.lost" and "seconds" in data):  # an engine that was gone left none
        own.since = 0
    if kind == "task.succeeded":
        _succeeded(run, event, task, results)
    elif kind in _BAD:
        if data.get("retry") is None:
            if kind != "task.cancelled":
                run.failed(task.path, {"state": kind[5:], "attempts": task.attempt, **data})
            keep_error(task, kind[5:], data)
            state.ended(task, OUTCOMES[kind[5:]], left_behind(data), how_it_failed(task, kind[5:], data))
        else:
            task.tries = int(data.get("tries", task.tries))
            own.retry_delay = float(data["retry"])
            own.state, own.resume_at = "retrying", event.at + own.retry_delay
    elif kind == "task.lost":
        own.lost += "exit_code" in data  # its worker died; that an engine did is no fault of the task
        own.state = "lost"
    elif kind == "task.started":
        own.state = "running"
        own.first = own.first or event.at
        own.lane = data.get("on", "")
        own.since = own.since or task.attempt
    elif kind == "task.suspended":
        seconds = data.get("seconds")
        if data.get("answer"):
            own.ran, own.since = data.get("ran", {}), 0
        own.state, own.resume_at = "suspended", None if seconds is None else event.at + float(seconds)
    elif kind == "task.waiting":
        own.state = "waiting"


def _called(run: ActiveRun, event: Event, task: Task, results: dict[str, Any]) -> None:
    """A step that is a workflow: how it ended follows from what is in it, unless it was tried again, or its result was known."""
    state = run.state
    if event.kind == "task.succeeded":
        _succeeded(run, event, task, results)
        if task.path in state.live:
            state.ready.calls.append(task)  # it is not known any more
        return
    task.attempt = max(task.attempt, int(event.data.get("attempt", 0)))
    if event.kind == "task.started":
        own = execution(task)
        own.first = own.first or event.at
    if event.kind == "task.started" and task.path + "/" not in state.scopes and task.path not in state.failed_calls:
        state.call(task)
    elif event.kind in _BAD and task.path in state.failed_calls:
        task.tries = int(event.data.get("tries", task.tries))
        if event.data.get("retry") is not None:
            state.recall(task)
        else:
            state.give_up(task.path)


def _succeeded(run: ActiveRun, event: Event, task: Task, results: dict[str, Any]) -> None:
    if "key" in event.data:
        result = results.get(event.data["key"])
        if result is None:
            # The result was removed by hand: it cannot be had without running the task again.
            execution(task).state = "lost"
            return
        outputs = result.outputs
    else:
        outputs = loads(json.dumps(event.data.get("outputs", {})))
    run.state.ended(task, Outcome.SUCCEEDED, outputs)


def _is_call(root: Blueprint, path: str) -> bool:
    """Is the step of this path a workflow?"""
    blueprint: Blueprint | None = root
    for name in path.split("/"):
        number = None if blueprint is None else blueprint.number.get(name)
        if blueprint is None or number is None:
            return False
        blueprint = blueprint.plans[number].inner
    return blueprint is not None


def recount(run: ActiveRun, store: RunStore) -> None:
    """The tallies, from the task rows."""
    for (step, state), (count, _, _) in store.task_counts(run.number).items():
        run.count(step, "", state, count, called=_is_call(run.state.blueprint, step))
    for event in store.events(run.number, kinds=["step.ready"]):
        tally = run.progress.setdefault(step_of(event.task), {})
        tally["tasks"] = tally.get("tasks", 0) + event.data["tasks"]
