"""Schedules, in the database. `Store.schedules`; called by service.schedules.

A row is changed only by whoever has seen its last version (compare and set). What follows from a change, a run and its order, is written in the
same transaction: so that of any number of processes that see a time come, one makes its run, and a crash leaves all of it or nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from penstock.store.drivers.base import Row
from penstock.store.session import Session


class ScheduleRow(NamedTuple):
    """A workflow that is run by the clock."""

    name: str
    state: str
    """active, paused, over (it has no further time)"""
    next_at: float | None
    """The time that is due next."""
    waiting: float | None
    """A time that is due, and waits for the run before it."""
    last_at: float | None
    """The time that a run was made for last."""
    version: int
    owner: str
    workflow: str
    digest: str
    """Of the workflow as it was when the schedule was made."""
    document: dict[str, Any]
    """When, what with, and which policies."""
    note: str
    """Why it last made no run."""
    created: float


class ScheduleRun(NamedTuple):
    """The run that was made for a time."""

    due: float
    run: int
    id: str
    state: str


class ScheduleRepository:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._db = session.db

    def put(self, row: ScheduleRow, text: str, also: Callable[[], object] = lambda: None) -> bool:
        """A new one, with its workflow, and what `also` writes. False: there is one of this name."""

        def work() -> bool:
            self._db.write("put_workflow", (row.digest, text))
            if not self._db.write("put_schedule", _written(row)):
                return False
            also()
            return True

        return self._session.transact(work)

    def change(
        self, before: ScheduleRow, row: ScheduleRow, also: Callable[[], object] = lambda: None, text: str | None = None
    ) -> bool:
        """Writes the row in place of `before`, and what `also` writes. `text`: its workflow, if that is a new one. False: somebody else has changed
        it since, and nothing was written."""

        row = row._replace(version=before.version + 1)

        def work() -> bool:
            if text is not None:
                self._db.write("put_workflow", (row.digest, text))
            if not self._db.write("change_schedule", (*_written(row)[1:], row.name, before.version)):
                return False
            if before.digest != row.digest:
                self._db.write("gc_workflow", (before.digest,))
            also()
            return True

        return self._session.transact(work)

    def note_run(self, name: str, due: float, run: int) -> None:
        """Part of the open transaction."""
        self._session.transact(lambda: self._db.write("put_schedule_run", (name, due, run)))

    def drop(self, row: ScheduleRow) -> bool:
        """Its runs stay. False: somebody else has changed it since."""

        def work() -> bool:
            if not self._db.write("drop_schedule", (row.name, row.version)):
                return False
            self._db.write("drop_schedule_runs", (row.name,))
            self._db.write("gc_workflow", (row.digest,))
            return True

        return self._session.transact(work)

    def of(self, name: str) -> ScheduleRow | None:
        return next(map(_row, self._db.rows("schedule", (name,))), None)

    def page(self, limit: int, after: str = "") -> list[ScheduleRow]:
        """By name."""
        return [_row(row) for row in self._db.rows("schedules_page", (after, limit))]

    def all(self) -> Iterator[ScheduleRow]:
        return map(_row, self._session.pages("schedules_page", ("",)))

    def due(self, now: float, limit: int) -> list[ScheduleRow]:
        """Those whose time has come, the earliest first."""
        return [_row(row) for row in self._db.rows("schedules_due", (now, limit))]

    def waiting(self, limit: int) -> list[ScheduleRow]:
        """Those that wait for a run."""
        return [_row(row) for row in self._db.rows("schedules_waiting", (limit,))]

    def next_due(self) -> float | None:
        """When the next time of any is due; None: there is none."""
        found: float | None = self._db.rows("schedules_next")[0][0]
        return found

    def runs_of(self, name: str, limit: int) -> list[ScheduleRun]:
        """The newest first."""
        return [ScheduleRun(*row) for row in self._db.rows("schedule_runs", (name, limit))]


def _written(row: ScheduleRow) -> tuple[Any, ...]:
    return row._replace(document=json.dumps(row.document, separators=(",", ":")))  # type: ignore[arg-type]


def _row(row: Row) -> ScheduleRow:
    found = ScheduleRow(*row)
    return found._replace(document=json.loads(found.document))  # type: ignore[arg-type]
