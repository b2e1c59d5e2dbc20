"""What runs asked for and used, in the database. `Store.usage`; called by service.usage, which works it out from the log."""

from __future__ import annotations

from typing import Final, NamedTuple

from penstock.store.session import Session

KEPT: Final = 400 * 86400.0
"""Seconds for which the usage of runs that were removed is kept."""


class RunUsage(NamedTuple):
    run: int
    seq: int
    """The last event that is counted in it."""
    created: float
    ended: float | None
    user: str
    workflow: str
    document: str
    """See service.usage.fold."""


class UsageRepository:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._db = session.db

    def put(self, rows: list[RunUsage]) -> None:
        if rows:
            self._session.transact(lambda: self._db.many("put_run_usage", rows))

    def between(self, since: float, until: float) -> list[RunUsage]:
        """Of runs that may have done something in that time."""
        return [RunUsage(*row) for row in self._db.rows("run_usage", (until, since))]

    def missing(self, since: float, until: float) -> list[int]:
        """Numbers of the runs of that time that are not counted, or not up to their last event."""
        return [int(row[0]) for row in self._db.rows("runs_to_count", (until, since))]

    def forget(self, now: float) -> None:
        """What is too old to be kept."""
        self._session.transact(lambda: self._db.write("gc_run_usage", (now - KEPT,)))
