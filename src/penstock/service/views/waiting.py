"""Which runs wait in queues or for locks, and with what. Called by ls and show, and again and again by run and watch."""

from __future__ import annotations

import time

from penstock.graph.model import Workflow
from penstock.service.run_records import workflow_of
from penstock.service.views.lock_waits import has_locks, lock_waits, waits_for_lock
from penstock.service.views.outline import Outline
from penstock.service.views.queue_waits import queue_waits
from penstock.service.views.waits import Wait, texts
from penstock.store.records import RunRecord
from penstock.store.sql import Store

MOST_TASKS = 1000
"""Waiting tasks of a run that are searched for waits for locks."""


def queued_runs(store: Store) -> set[int]:
    """Numbers of the runs that have something waiting in a queue or for a lock."""
    found = {one.run for one in store.queues.workloads() if one.state == "pending"}
    for run in store.runs.newest(state=["running"]):
        if run.number not in found and run.counts.get("waiting") and not run.counts.get("running"):
            rows = store.runs.tasks(run.number, states=["waiting"], limit=MOST_TASKS)
            found |= {run.number} if any(waits_for_lock(row) for row in rows) else set()
    return found


def is_queued(run: RunRecord, state: str, queued: set[int]) -> bool:
    """Does the run wait as a whole: something in a queue or for a lock, and nothing runs?"""
    return state == "running" and run.number in queued and not run.counts.get("running")


def waits_of(
    store: Store, run: RunRecord, workflow: Workflow | None = None, outline: Outline | None = None
) -> list[Wait]:
    """What of a run waits in a queue or for a lock, with the reasons as they are now."""
    rows = store.runs.tasks(run.number, states=["waiting"], limit=MOST_TASKS)
    waits = queue_waits(store, run, workflow, outline)
    return [*waits, *lock_waits(store, run, rows, {step for wait in waits for step in wait.steps})]


class WaitWatcher:
    """The waits of a run, for a caller that asks again and again. The queues are evaluated only after a new decision, and never so often
    that it takes more than SHARE of the time."""

    SHARE = 0.05
    PAUSE = 0.3

    def __init__(self, store: Store, run: RunRecord) -> None:
        self.store = store
        self.run = run
        self.waits: list[Wait] = []
        self._version = -1
        self._next = 0.0
        self._workflow: Workflow | None = None
        self._outline: Outline | None = None
        self._has_locks = False

    def look(self) -> list[Wait]:
        now = time.monotonic()
        if now < self._next:
            return self.waits
        self._next = now + self.PAUSE
        version = self.store.queues.last_decision()
        if version != self._version or self._has_locks:  # a lock changes hands without a decision
            self._version = version
            if self._workflow is None:
                self._workflow = workflow_of(self.store, self.run)
                self._outline = Outline(self._workflow)
                self._has_locks = has_locks(self._workflow)
            self.waits = waits_of(self.store, self.run, self._workflow, self._outline)
            self._next = time.monotonic() + max(self.PAUSE, (time.monotonic() - now) / self.SHARE)
        return self.waits

    def texts(self) -> dict[str, str]:
        return texts(self.look())
