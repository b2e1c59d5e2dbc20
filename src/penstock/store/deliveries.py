"""What came of each try to deliver a row of the outbox. `Store.deliveries`; called by service.callbacks.

A try and what follows from it for its row are one transaction: a row that is done has its try, and a try is recorded once, however often it
was made.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from penstock.store.outbox import DONE, OutboxEntry, OutboxRepository
from penstock.store.session import Session


class Delivered(NamedTuple):
    """What is to be recorded of a row: its new state, and the try that led there."""

    entry: OutboxEntry
    state: str
    attempts: int
    error: str = ""
    next_at: float = 0.0
    at: float = 0.0
    """When the try began. 0: there was none, the row was only put off or given up."""
    status: int = 0
    seconds: float = 0.0


class DeliveryAttempt(NamedTuple):
    outbox: int
    attempt: int
    at: float
    status: int
    """0: there was no answer."""
    error: str
    seconds: float


class OutboxRowData(NamedTuple):
    """A row that comes in place of another."""

    data: dict[str, Any]
    key: str


class DeliveryRepository:
    def __init__(self, session: Session, outbox: OutboxRepository) -> None:
        self._session = session
        self._db = session.db
        self._outbox = outbox

    def record(self, found: Sequence[Delivered]) -> int:
        """Returns how many rows were still the caller's; of the others nothing is recorded."""

        def work() -> int:
            many = 0
            for one in found:
                if self._outbox.settle(one.entry, one.state, one.attempts, one.error, one.next_at):
                    many += 1
                    if one.at:
                        row = (one.entry.number, one.attempts, one.at, one.status, one.error, one.seconds)
                        self._db.write("put_delivery", row)
            return many

        return self._session.transact(work) if found else 0

    def expand(self, entry: OutboxEntry, rows: Sequence[OutboxRowData], now: float) -> bool:
        """These rows in place of one, all or none. False: it was somebody else's by now."""

        def work() -> bool:
            if not self._outbox.settle(entry, DONE, entry.attempts):
                return False
            for one in rows:
                self._outbox.put(entry.run, entry.seq, entry.kind, one.data, one.key, now)
            return True

        return self._session.transact(work)

    def of(self, outbox: int) -> list[DeliveryAttempt]:
        return [DeliveryAttempt(*row) for row in self._db.rows("deliveries_of", (outbox,))]

    def anew(self, entry: OutboxEntry, data: dict[str, Any], now: float) -> bool:
        """A row that is dead or done is to be delivered once more. False: it is neither."""
        row = (now, json.dumps(data, separators=(",", ":")), entry.number)
        return self._session.transact(lambda: self._db.write("outbox_anew", row)) > 0

    def left(self, run: int, kind: str) -> tuple[int, float]:
        """How many rows of a run are still to be delivered, and when the first of them is due."""
        many, due = self._db.rows("outbox_left", (run, kind))[0]
        return int(many), float(due or 0.0)

    def runs_left(self, kind: str) -> set[int]:
        """Runs of which there are rows that are still to be delivered."""
        return {int(run) for (run,) in self._db.rows("outbox_runs_left", (kind,))}

    def counts(self, kind: str) -> dict[str, int]:
        """State -> rows of this kind."""
        return {str(state): int(many) for state, many in self._db.rows("outbox_counts", (kind,))}
