"""The transactions of an engine. `Store.journal`; called by the engine.

An engine calls `begin`, claims what it wants to start (see results), writes what has happened with `flush`, and calls `commit`. If
one of these raises, the transaction has been rolled back.
"""

from __future__ import annotations

from penstock.store.records import Fenced, WriteBatch
from penstock.store.results import PendingClaims
from penstock.store.session import Session


class JournalRepository:
    def __init__(self, session: Session, pending: PendingClaims) -> None:
        self._session = session
        self._db = session.db
        self._pending = pending

    @property
    def alone(self) -> bool:
        """Can nobody else write while a transaction is open here?"""
        return self._db.alone

    @property
    def in_transaction(self) -> bool:
        return self._db.in_transaction

    def begin(self) -> None:
        self._db.begin()

    def commit(self) -> None:
        try:
            self._db.commit()
        except BaseException as error:
            self._pending.roll_back(self._db, error)
            raise
        self._pending.clear()

    def rollback(self) -> None:
        self._pending.clear()
        self._db.rollback()

    def flush(self, batch: WriteBatch, engine: str) -> None:
        """Writes a batch into the open transaction. Raises Fenced, and writes nothing, if another engine owns a run in it."""
        db = self._db
        if not db.in_transaction:
            raise AssertionError("flush without begin")
        try:
            self._write(batch, engine)
        except BaseException as error:
            self._pending.roll_back(db, error)
            raise

    def _write(self, batch: WriteBatch, engine: str) -> None:
        db, pending = self._db, self._pending
        for number, values in batch.runs.items():
            if not db.write("update_run", (*values, number, engine)):
                raise Fenced(number)
        for name, rows in (
            ("put_lease", sorted(set(pending.leases)) if pending.lost else ()),
            ("put_waiter", sorted(set(pending.waiters)) if pending.lost else ()),
            ("put_event", batch.events),
            ("put_task", batch.tasks.values()),
            ("put_result", {row[0]: row for row in batch.results}.values()),
            ("fail_waiters", batch.failures),
            ("drop_waiter", batch.served),
            ("put_outbox", batch.outbox),
            ("put_answer", batch.asked),
            ("await_answer", batch.awaited),
            ("put_payload_wait", batch.waited),
            ("put_workload", batch.workloads.values()),
            ("put_queue_use", batch.queue_use.values()),
        ):
            if rows:
                db.many(name, rows)
        db.write_within("drop_results", batch.untrusted)
        db.write_within("drop_leases", batch.released, engine)
        db.write_within("drop_requests", batch.handled)

    def committed(self, run: int, seq: int) -> bool:
        """Is a batch that ended with this event recorded? Asked when the answer to `commit` was lost."""
        rows = self._db.rows("run_seq", (run,))
        return bool(rows) and rows[0][0] >= seq

    def be_patient(self, seconds: float) -> None:
        """Sets how long to wait for a database that cannot be reached, also outside of transactions. Without it, one try is made."""
        self._db.patience = seconds

    def reconnect(self, patience: float) -> None:
        """After Disconnected: tries again for `patience` seconds, then raises StoreError. The next `flush` writes again what was
        claimed in the lost transaction."""
        self._pending.lost = True
        self._db.reconnect(patience)

    def next_decision(self) -> int:
        """The number of an admission decision in this transaction. No other engine decides until the commit."""
        return self._session.next_decision()
