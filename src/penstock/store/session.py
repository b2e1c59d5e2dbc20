"""One connection to the database, shared by all parts of a store: transactions and counters. Made by sql.Store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from penstock.store.drivers import base
from penstock.store.drivers.base import Driver, Row
from penstock.store.records import Disconnected

T = TypeVar("T")
CHUNK = 1000
"""Rows that a streaming reader reads at once. No cursor stays open between chunks: an open one would keep SQLite's log from
shrinking."""

DECISIONS = "admission"
"""The counter of admission decisions."""


class Session:
    def __init__(self, db: Driver) -> None:
        self.db = db

    def next_number(self, counter: str) -> int:
        """Counts up. Nobody else gets a number of this counter until the commit."""
        self.db.write("count_up", (counter,))
        return int(self.db.rows("counter", (counter,))[0][0])

    def next_decision(self) -> int:
        """The number of an admission decision."""
        return self.next_number(DECISIONS)

    def pages(self, name: str, start: Row, *rest: Any) -> Iterator[Row]:
        """All rows of a query that is ordered by its first columns, as many as `start` has."""
        while rows := self.db.rows(name, (*start, *rest, CHUNK)):
            yield from rows
            start = rows[-1][: len(start)]

    def transact(self, work: Callable[[], T], repeatable: bool = True) -> T:
        """Runs `work` in a transaction of its own, or as part of the open one.

        If the connection is lost, it tries once more. `repeatable`: also if the answer to the commit was lost, because doing it
        twice does no harm.
        """
        db = self.db
        if db.in_transaction:
            return work()
        again = False
        while True:
            done = False
            try:
                db.begin()
                value = work()
                done = True
                db.commit()
                return value
            except Disconnected as error:
                if (again and not db.patience) or (done and not repeatable):
                    said = "the connection was lost" + ("; look whether it was recorded before you try again" * done)
                    raise base.unreachable(db.where, said) from error
                db.reconnect(db.patience)
                again = True
            except BaseException:
                db.rollback()
                raise
