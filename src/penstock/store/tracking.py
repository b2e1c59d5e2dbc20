"""How far a tracking server has been told of each run. `Store.tracking`; called by service.tracking and by the clean-up.

The log itself is what is to be told: a row only says how much of it the server has. Writers are transactions of their own.
"""

from __future__ import annotations

from penstock.store import liveness
from penstock.store.drivers.base import Row
from penstock.store.records import EngineRecord, TrackedRun
from penstock.store.session import Session

LEASE = 30.0
"""Seconds for which a row belongs to its sender after its last word."""


class TrackingRepository:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._db = session.db

    def of(self, run: int) -> TrackedRun | None:
        """None: no server is to be told of this run."""
        return next(map(_tracked, self._db.rows("tracking", (run,))), None)

    def behind(self) -> list[TrackedRun]:
        """Those of which the log has more than the server."""
        return [_tracked(row) for row in self._db.rows("tracking_behind", ())]

    def has(self, found: TrackedRun, me: EngineRecord) -> bool:
        """Has it been this process's since it was last told?"""
        return found.sender == liveness.as_sender(me)

    def take(self, found: TrackedRun, me: EngineRecord, now: float) -> bool:
        """False: another process is telling the server, and is not dead."""
        mine = liveness.as_sender(me)
        if not liveness.may_take(found.sender, found.until, me, now):
            return False
        values = (mine, now + LEASE, found.run, found.sender)
        return self._session.transact(lambda: self._db.write("take_tracking", values)) > 0

    def move(self, run: int, me: EngineRecord, seq: int, place: str, now: float) -> bool:
        """The server has everything up to `seq`. False: another process has taken the row."""
        values = (seq, place, now + LEASE, run, liveness.as_sender(me))
        return self._session.transact(lambda: self._db.write("move_tracking", values)) > 0

    def free(self, run: int, me: EngineRecord) -> None:
        self._session.transact(lambda: self._db.write("free_tracking", (run, liveness.as_sender(me))))


def _tracked(row: Row) -> TrackedRun:
    return TrackedRun(*row)
