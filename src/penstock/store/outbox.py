"""What couriers are to do: rows that were written with the fact that they follow from. `Store.outbox`; called by service.outbox.

A row is taken by one courier for a while, done, and settled. If the courier dies, another takes the row when that while is over, or at once
if the process is known to be dead. So what a row asks for may be done twice, and is recorded once: `key` is the same each time.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from penstock.store import liveness
from penstock.store.drivers.base import Row
from penstock.store.records import EngineRecord
from penstock.store.session import Session

LEASE: Final = 60.0
"""Seconds for which a row belongs to who took it."""
NEW, DONE, DEAD = "new", "done", "dead"


class OutboxEntry(NamedTuple):
    number: int
    run: int
    seq: int
    """Of the event that it follows from."""
    kind: str
    data: dict[str, Any]
    state: str
    attempts: int
    """How often it was tried."""
    next_at: float
    key: str
    error: str
    """Of the last try."""
    sender: str
    until: float
    at: float


class OutboxRepository:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._db = session.db

    def put(self, run: int, seq: int, kind: str, data: dict[str, Any], key: str, at: float, due: float = 0.0) -> None:
        """One more row; part of the open transaction, if there is one."""
        row = (run, seq, kind, json.dumps(data, separators=(",", ":")), key, at, due or at)
        self._session.transact(lambda: self._db.write("put_outbox", row))

    def take(self, kind: str, me: EngineRecord, now: float, limit: int) -> list[OutboxEntry]:
        """Rows that are due and that nobody works on: they are the caller's until LEASE is over, or `settle`d. The earliest first."""
        mine = liveness.as_sender(me)

        def work() -> list[OutboxEntry]:
            taken = []
            for row in self._db.rows("outbox_due", (kind, now, limit)):
                found = _entry(row)
                if not liveness.may_take(found.sender, found.until, me, now):
                    continue
                if self._db.write("take_outbox", (mine, now + LEASE, found.number, found.sender, found.until)):
                    taken.append(found._replace(sender=mine, until=now + LEASE))
            return taken

        return self._session.transact(work) if self._db.rows("outbox_due", (kind, now, 1)) else []

    def settle(self, entry: OutboxEntry, state: str, attempts: int, error: str = "", next_at: float = 0.0) -> bool:
        """What came of it. `new`: try again at `next_at`. Part of the open transaction, if there is one. False: it was somebody else's by now."""
        row = (state, attempts, error, next_at, entry.number, entry.sender)
        return self._session.transact(lambda: self._db.write("settle_outbox", row)) > 0

    def free(self, me: EngineRecord) -> None:
        """Whatever this process has taken and not settled may be taken by others."""
        self._session.transact(lambda: self._db.write("free_outbox", (liveness.as_sender(me),)))

    def next_due(self, kind: str) -> float | None:
        """When the next row of this kind is due; None: there is none."""
        found: float | None = self._db.rows("outbox_next", (kind,))[0][0]
        return found

    def of(self, number: int) -> OutboxEntry | None:
        return next(map(_entry, self._db.rows("outbox_of", (number,))), None)

    def of_run(self, run: int) -> list[OutboxEntry]:
        return [_entry(row) for row in self._db.rows("outbox_of_run", (run,))]

    def page(self, kinds: Sequence[str], states: Sequence[str], limit: int, before: int = 1 << 62) -> list[OutboxEntry]:
        """The newest first."""
        found = [
            _entry(row) for kind in kinds for row in self._db.within("outbox_page", list(states), kind, before, limit)
        ]
        return sorted(found, reverse=True)[:limit]


def _entry(row: Row) -> OutboxEntry:
    number, run, seq, kind, data, *rest = row
    return OutboxEntry(number, run, seq, kind, json.loads(data), *rest)
