"""The engines that share a store, in the database. `Store.peers`; called by service and engine."""

from __future__ import annotations

import time

from penstock.store.queues import QueueRepository
from penstock.store.records import EngineRecord
from penstock.store.session import Session


class PeerRepository:
    def __init__(self, session: Session, queues: QueueRepository) -> None:
        self._session = session
        self._db = session.db
        self._queues = queues

    def register(self, engine: EngineRecord, now: float | None = None) -> None:
        at = time.time() if now is None else now
        row = (engine.id, engine.host, engine.pid, engine.born, engine.beat, at)
        self._session.transact(lambda: self._db.write("put_engine", row))

    def beat(self, id: str, now: float | None = None) -> bool:
        """A heartbeat. False: another engine took this one for dead and removed it."""
        at = time.time() if now is None else now
        return self._session.transact(lambda: self._db.write("beat", (at, id))) > 0

    def engines(self) -> list[EngineRecord]:
        return [EngineRecord(*row) for row in self._db.rows("engines")]

    def changed(self) -> object:
        """Differs from the last time if another connection has written since. May also differ if none has."""
        return self._db.changed()

    def forget(self, id: str) -> None:
        """Removes an engine, what it held and what it waited for. It stays the owner of its runs until another takes them over."""

        def work() -> None:
            for name in ("drop_engine", "drop_leases_of", "drop_waiters_of", "drop_locks_of"):
                self._db.write(name, (id,))
            self._queues.end_workloads_of(id)

        self._session.transact(work)
