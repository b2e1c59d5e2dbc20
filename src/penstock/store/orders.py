"""What workers are to do, and submissions that must not be made twice, in the database. `Store.orders`; called by service.work.

A run that was submitted to a server belongs to nobody. Its order says what the next free worker does with it; workers take runs as all
engines do (runs.take), so two that see the same order cannot both have it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from penstock.store.drivers.base import Row
from penstock.store.records import RunRecord
from penstock.store.session import Session


class WorkOrder(NamedTuple):
    """What any worker is to do with a run."""

    run: int
    verb: str
    """run: execute it until it is over · retry · cancel"""
    data: dict[str, Any]
    """Of retry: by. Of cancel: message, now. `problem`: why the last worker could not."""
    at: float


class KeyReused(Exception):
    """The key of a submission was used before, for something else."""


class OrderRepository:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._db = session.db

    def submit(
        self, create: Callable[[], RunRecord], person: str, key: str = "", digest: str = ""
    ) -> tuple[RunRecord | None, int]:
        """Creates a run and its order, in one transaction: (the run, its number). A submission that carries the `key` of an earlier one
        of the same person creates nothing: (None, the number of that run). Raises KeyReused if `digest`, of what is submitted, differs."""

        def work() -> tuple[RunRecord | None, int]:
            if key:
                self._session.next_number("submission")  # nobody else looks the key up until the commit
                found = self._db.rows("submission", (person, key))
                if found:
                    if found[0][0] != digest:
                        raise KeyReused
                    return None, int(found[0][1])
            run = create()
            now = time.time()
            if key:
                self._db.write("put_submission", (person, key, digest, run.number, now))
            self._db.write("put_order", (run.number, "run", "{}", now))
            return run, run.number

        return self._session.transact(work, repeatable=bool(key))

    def put(self, run: int, verb: str, data: Mapping[str, Any]) -> None:
        """In place of the order that the run may have."""
        row = (run, verb, json.dumps(data), time.time())
        self._session.transact(lambda: self._db.write("put_order", row))

    def turn(self, order: WorkOrder, verb: str, data: Mapping[str, Any]) -> bool:
        """Changes an order. False: it is another one by now."""
        row = (verb, json.dumps(data), order.run, order.verb, order.at)
        return self._session.transact(lambda: self._db.write("turn_order", row)) > 0

    def drop(self, order: WorkOrder) -> bool:
        """It is done. False: it is another one by now."""
        return self._session.transact(lambda: self._db.write("drop_order", (order.run, order.verb, order.at))) > 0

    def to_do(self, since: float = 0.0) -> list[WorkOrder]:
        """Those that may need somebody: all but orders to execute a run that a registered engine is at. `since`: only those that were
        given after this time, by the clock of whoever gave them."""
        return [_order(row) for row in self._db.rows("orders_to_do", (since,))]

    def owned(self, engine: str) -> list[WorkOrder]:
        """Those of the runs that an engine owns."""
        return [_order(row) for row in self._db.rows("orders_owned", (engine,))]

    def runs(self) -> set[int]:
        """That have an order."""
        return {int(row[0]) for row in self._db.rows("ordered")}

    def count(self) -> int:
        return int(self._db.rows("order_count")[0][0])

    def of(self, run: int) -> WorkOrder | None:
        return next(map(_order, self._db.rows("order_of", (run,))), None)


def _order(row: Row) -> WorkOrder:
    run, verb, data, at = row
    return WorkOrder(run, verb, json.loads(data), at)
