"""From the log of a run to its state: starting is recovering. Called by loop when it takes a run in hand."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from penstock.artifacts.values import loads
from penstock.engine.blueprint import Blueprint
from penstock.engine.live import OUTCOMES, Live, extra, how_it_failed, left_behind, step_of
from penstock.engine.steps import Task
from penstock.graph.model import Outcome
from penstock.store.base import Event
from penstock.store.sql import Store

_BAD = ("task.failed", "task.errored", "task.cancelled")
_UNDONE = (*_BAD, "run.cancelling", "run.timeout", "task.timeout", "run.finished")
"""What a retry takes back: events of these kinds before it count as not having happened."""


def replay(live: Live, store: Store) -> list[Task]:
    """Folds the log into `live.machine`. Returns the tasks that had been begun and are not over."""
    machine = live.machine
    machine.replaying = True
    last = max((event.seq for event in store.events(live.number, kinds=["run.retried"])), default=0)
    for chunk in _chunks(store.events(live.number), 500):
        keys = {event.data["key"] for event in chunk if event.kind == "task.succeeded" and "key" in event.data}
        results = store.lookup(list(keys)) if keys else {}
        for event in chunk:
            if event.seq < last and event.kind in _UNDONE and event.data.get("retry") is None:
                _forgive(live, event)
            else:
                _apply(live, event, results)
    machine.replaying = False
    for part in (machine.notes, machine.facts, machine.opened, machine.stopping):
        part.clear()
    for path in list(machine.called):
        machine.ended(machine.called.pop(path)[0], Outcome.FAILED, {})
    if last:
        # What depended on what is tried again is to be decided again.
        undone = [
            row.task for row in store.tasks(live.number) if row.task not in machine.live and not machine.over(row.task)
        ]
        store.drop_tasks(live.number, undone)
    recount(live, store)
    for task in machine.live.values():
        row = store.task(live.number, task.path)
        extra(task).shown = "" if row is None else row.state
        extra(task).started = None if row is None else row.started
    return [task for task in machine.live.values() if task.state.plan.inner is None]


def _chunks(events: Iterable[Event], size: int) -> Iterator[list[Event]]:
    iterator = iter(events)
    while chunk := list(islice(iterator, size)):
        yield chunk


def _forgive(live: Live, event: Event) -> None:
    """A failure before a retry. The task has been begun, and its attempts are counted on from there."""
    if event.kind in _BAD:
        task = live.machine.find(event.task) if event.task else None
        if task is not None and task.state.plan.inner is None:
            task.attempt = max(task.attempt, int(event.data.get("attempt", 0)))
            task.tries = 0
            extra(task).state = "forgiven"
            extra(task).first = None


def _apply(live: Live, event: Event, results: dict[str, Any]) -> None:
    machine = live.machine
    kind = event.kind
    if kind == "run.cancelling":
        machine.cancel(event.data.get("message", "cancelled"), exits=not event.data.get("now"))
        machine.stopping.clear()
    elif kind in ("run.timeout", "task.timeout"):
        machine.time_out(event.task, event.data.get("message", ""))
        machine.stopping.clear()
    if not kind.startswith("task.") or event.data.get("follows"):
        return
    settled = machine.settled
    task = machine.find(event.task)
    if task is None:
        # Either it was over as soon as it was looked at, as it was then, or it belongs to what a retry has taken back.
        machine.ignored += settled == machine.settled
        return
    if task.state.plan.inner is not None:
        _called(live, event, task, results)
        return
    kept = extra(task)
    data = event.data
    task.attempt = max(task.attempt, int(data.get("attempt", 0)))
    if kind == "task.succeeded":
        _succeeded(live, event, task, results)
    elif kind in _BAD:
        if data.get("retry") is None:
            if kind != "task.cancelled":
                live.failed(task.path, {"state": kind[5:], "attempts": task.attempt, **data})
            if "exit_code" in data:
                task.exit_code = data["exit_code"]
            machine.ended(task, OUTCOMES[kind[5:]], left_behind(data), how_it_failed(task, kind[5:], data))
        else:
            task.tries = int(data.get("tries", task.tries))
            kept.wait = float(data["retry"])
            kept.state, kept.resume_at = "retrying", event.at + kept.wait
    elif kind == "task.lost":
        kept.lost += "exit_code" in data  # its worker died; that an engine did is no fault of the task
        kept.state = "lost"
    elif kind == "task.started":
        kept.state = "running"
        kept.first = kept.first or event.at
    elif kind == "task.suspended":
        seconds = data.get("seconds")
        kept.state, kept.resume_at = "suspended", None if seconds is None else event.at + float(seconds)
    elif kind == "task.waiting":
        kept.state = "waiting"


def _called(live: Live, event: Event, task: Task, results: dict[str, Any]) -> None:
    """A step that is a workflow: how it ended follows from what is in it, unless it was tried again, or its result was known."""
    machine = live.machine
    if event.kind == "task.succeeded":
        _succeeded(live, event, task, results)
        if task.path in machine.live:
            machine.unopened.append(task)  # it is not known any more
        return
    task.attempt = max(task.attempt, int(event.data.get("attempt", 0)))
    if event.kind == "task.started":
        kept = extra(task)
        kept.first = kept.first or event.at
    if event.kind == "task.started" and task.path + "/" not in machine.scopes and task.path not in machine.called:
        machine._call(task)
    elif event.kind in _BAD and task.path in machine.called:
        task.tries = int(event.data.get("tries", task.tries))
        if event.data.get("retry") is not None:
            machine.recall(task)
        else:
            _, outcome, why = machine.called.pop(task.path)
            machine.ended(task, outcome, {}, why)


def _succeeded(live: Live, event: Event, task: Task, results: dict[str, Any]) -> None:
    if "key" in event.data:
        result = results.get(event.data["key"])
        if result is None:
            # The result was removed by hand: it cannot be had without running the task again.
            extra(task).state = "lost"
            return
        outputs = result.outputs
    else:
        outputs = loads(json.dumps(event.data.get("outputs", {})))
    live.machine.ended(task, Outcome.SUCCEEDED, outputs)


def _is_call(root: Blueprint, path: str) -> bool:
    """Is the step of this path a workflow?"""
    blueprint: Blueprint | None = root
    for name in path.split("/"):
        number = None if blueprint is None else blueprint.number.get(name)
        if blueprint is None or number is None:
            return False
        blueprint = blueprint.plans[number].inner
    return blueprint is not None


def recount(live: Live, store: Store) -> None:
    """The tallies, from the task rows."""
    for (step, state), (count, _, _) in store.task_counts(live.number).items():
        live.count(step, "", state, count, called=_is_call(live.machine.blueprint, step))
    for event in store.events(live.number, kinds=["step.ready"]):
        tally = live.progress.setdefault(step_of(event.task), {})
        tally["tasks"] = tally.get("tasks", 0) + event.data["tasks"]
