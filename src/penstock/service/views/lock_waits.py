"""What of a run waits for locks now, and who holds them. Called by `waiting` and `why`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from penstock.graph.model import Workflow
from penstock.graph.paths import overlap, step_of
from penstock.service.run_records import owner_alive
from penstock.service.views.waits import Wait
from penstock.store.records import RunRecord, TaskRow
from penstock.store.sql import Store

MOST_NAMED = 5
"""Holders of a lock that are named."""


def has_locks(workflow: Workflow) -> bool:
    every = (workflow, *workflow.definitions)
    return any(one.locks or any(step.locks for step in (*one.steps, *one.on_exit)) for one in every)


def waits_for_lock(row: TaskRow) -> bool:
    reason = row.info.get("reason")
    return row.state == "waiting" and isinstance(reason, Mapping) and reason.get("why") == "lock"


def lock_taker(row: TaskRow) -> str:
    """What would take the lock: the task itself, a call around it, or the run ("")."""
    return str(row.info["reason"].get("of", row.task))


def blocks(row: TaskRow, wanted: Sequence[str]) -> bool:
    """Does the lock that blocks this task block one of these steps or tasks too? None are given: the whole run is meant."""
    return not wanted or not lock_taker(row) or any(overlap(row.task, one) for one in wanted)


def lock_waits(store: Store, run: RunRecord, tasks: Iterable[TaskRow], in_queues: Collection[str] = ()) -> list[Wait]:
    """One for each lock and step, with the holders as they are now, not as they were when the lock was requested. A call that waits,
    or the run, stands for the tasks in it. `in_queues`: steps that are reported as waiting in a queue already."""
    waiting: dict[tuple[str, str], list[TaskRow]] = {}
    for row in tasks:
        if waits_for_lock(row):
            waiting.setdefault((step_of(lock_taker(row)), row.info["reason"]["lock"]), []).append(row)
    since = _requested(store, run) if waiting else {}
    found = []
    for (step, lock), some in waiting.items():
        holders = _holders(store, run, lock, lock_taker(some[0]))
        # A task that has the lock by now and has not started waits for a worker, or in a queue.
        having = [row for row in some if (run.number, lock_taker(row)) in holders]
        for rows in ([row for row in some if row not in having], having):
            if not rows or (rows is having and rows[0].step in in_queues):
                continue
            inner = [row for row in rows if row.task != lock_taker(row)]
            path = lock_taker(rows[0]) or "workflow"
            wait = Wait(path, "lock", since.get(path), dict(rows[0].info["reason"]), len(inner or rows))
            wait.steps = tuple(dict.fromkeys(([step] if step else []) + [row.step for row in rows]))
            if rows is having:
                wait.kind, wait.since, wait.reason = "slot", None, {"why": "worker", "lock": lock}
            else:
                wait.reason |= {"held": len(holders), "holders": _named(store, holders)}
            found.append(wait)
    return found


def _requested(store: Store, run: RunRecord) -> dict[str, float]:
    """Since when tasks, calls or the run ("workflow") have waited for a lock."""
    found: dict[str, float] = {}
    for event in store.runs.events(run.number, kinds=["task.waiting", "run.waiting", "run.started"]):
        if event.kind == "run.started":
            found.clear()  # the new engine requests all locks again
            continue
        reason = event.data.get("reason") or {}
        if reason.get("why") == "lock" and reason.get("of", event.task) == event.task:
            found.setdefault(event.task or "workflow", event.at)
    return found


def _named(store: Store, holders: Sequence[tuple[int, str]]) -> list[dict[str, Any]]:
    found = []
    for number, task in holders[:MOST_NAMED]:
        run = store.runs.by_number(number)
        if run is not None:
            gone = {"gone": True} if owner_alive(store, run) is False else {}
            found.append({"run": run.id, "task": task, "since": _held_since(store, run, task), "user": run.user} | gone)
    return found


def _holders(store: Store, run: RunRecord, name: str, taker: str) -> list[tuple[int, str]]:
    """The current holders of a lock as (run, task). Inside a call that holds a lock, the same name means another lock, which the store
    has under another name: see the engine's locks."""
    parts = taker.split("/") if taker else []
    found = [(one.run, one.task) for one in store.locks.lock_holders([name])[name]]
    for depth in range(len(parts)):
        around = "/".join(parts[:depth])
        if (run.number, around) in found:
            name = f"{name} in {run.id}/{around}"
            found = [(one.run, one.task) for one in store.locks.lock_holders([name])[name]]
    return found


def _held_since(store: Store, run: RunRecord, task: str) -> float | None:
    """When the holder started, which is when it got the lock, or soon after. None if it has not started, or is tried again."""
    if not task:
        return min(
            (first for _, first, _ in store.runs.task_counts(run.number).values() if first is not None), default=None
        )
    row = store.runs.task(run.number, task)
    return row.started if row is not None and row.attempt <= 1 else None
