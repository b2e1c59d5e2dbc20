"""Queue objects, Workloads and the numbers of admission decisions, in the database. `Store.queues`; called by service and engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from penstock.store.records import WorkloadRecord
from penstock.store.session import DECISIONS, Session


class QueueRepository:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._db = session.db
        self.capacity: Callable[[], Mapping[str, int]] | None = None
        """Of the machine that is the only queue as long as none is configured, in the units of queues. None: this one."""

    def last_decision(self) -> int:
        rows = self._db.rows("counter", (DECISIONS,))
        return int(rows[0][0]) if rows else 0

    def queue_objects(self, after: int = -1) -> list[tuple[str, str, int, str | None]]:
        """(kind, name, version, document as JSON text; None: it was deleted)."""
        return [(kind, name, version, text) for kind, name, version, text in self._db.rows("queue_objects", (after,))]

    def put_queue_objects(self, objects: Iterable[tuple[str, str, str | None]]) -> int:
        """(kind, name, document as JSON text, or None to delete it). All at once; returns the number of the decision."""

        def work() -> int:
            version = self._session.next_decision()
            self._db.many("put_queue_object", [(kind, name, version, text) for kind, name, text in objects])
            return version

        return self._session.transact(work)

    def workloads(self, after: int | None = None) -> list[WorkloadRecord]:
        """Those that are not over; or all that were written after a decision."""
        rows = self._db.rows("workloads_open") if after is None else self._db.rows("workloads", (after,))
        return [WorkloadRecord(*row) for row in rows]

    def end_workloads_of(self, engine: str) -> None:
        """Part of the open transaction."""
        if self._db.rows("workloads_of_engine", (engine,))[0][0]:
            self._db.write("end_workloads_of", (self._session.next_decision(), engine))
