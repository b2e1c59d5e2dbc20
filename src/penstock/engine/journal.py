"""What the engine writes: one batch, one transaction a turn. The only part that knows that the database can go away.

Everything that a turn has to record is collected in `batch` and written by `commit`, or not at all. If the connection breaks, the
journal reconnects and writes the batch again, unless it finds that the commit had been done. Reads that may meet a broken
connection go through `read`. Called by Engine and by the parts that read or record.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from penstock.store.records import Disconnected, WriteBatch

if TYPE_CHECKING:
    from penstock.store.protocols import JournalStore

T = TypeVar("T")
PATIENCE = 600.0
"""Seconds to wait for a database that has gone away."""


class Journal:
    def __init__(self, store: JournalStore, engine: str) -> None:
        self.engine = engine
        self.batch = WriteBatch()
        self._store = store
        self._decision: int | None = None
        """The number of the admission decision that this transaction makes. While it is open, no other engine decides."""
        store.be_patient(PATIENCE)

    @property
    def alone(self) -> bool:
        """No other engine can use this database now: a key that is computed within one transaction needs no lease."""
        return self._store.alone

    def begin(self) -> None:
        try:
            self._store.begin()
        except Disconnected:
            self._reconnect()

    def commit(self) -> bool:
        """Write the batch. True: it had to be written again under a later decision number, so others may have decided since."""
        overtaken = False
        try:
            while True:
                try:
                    self._store.flush(self.batch, self.engine)
                    self._store.commit()
                    break
                except Disconnected:
                    if self._was_committed():
                        break
                    overtaken |= self._renumber()
        finally:
            self._decision = None
        self.batch.clear()
        return overtaken

    def read(self, ask: Callable[[], T]) -> T:
        """The answer of the store, asked again after a broken connection."""
        while True:
            try:
                return ask()
            except Disconnected:
                self._reconnect()

    def take_decision(self) -> int | None:
        """The number of the next admission decision, which this transaction makes. None: it has one already."""
        if self._decision is not None:
            return None
        self._decision = self._store.next_decision()
        return self._decision

    def wait_for_store(self) -> None:
        """Outside of a transaction: reconnect."""
        self._store.reconnect(patience=PATIENCE)

    def outside(self, ask: Callable[[], T], otherwise: T) -> T:
        """The answer to what is asked outside of a transaction, and once: `otherwise` if the database went away meanwhile. Then it is back."""
        try:
            return ask()
        except Disconnected:
            self.wait_for_store()
            return otherwise

    def _was_committed(self) -> bool:
        """After the database went away in a commit: True if it had been done all the same."""
        while True:
            self._reconnect()
            last = max(self.batch.runs.items(), default=None)
            try:
                if last is None or not self._store.committed(last[0], last[1][0]):
                    return False
                self._store.commit()
                return True
            except Disconnected:
                continue

    def _renumber(self) -> bool:
        """Workloads that are written again are a new decision: other engines may have seen later ones by now."""
        if not self.batch.workloads:
            return False
        number = self.read(self._store.next_decision)
        rows = self.batch.workloads.items()
        self.batch.workloads = {key: (key, number, *row[2:]) for key, row in rows}
        return True

    def _reconnect(self) -> None:
        self._decision = None
        while True:
            self._store.reconnect(patience=PATIENCE)
            try:
                self._store.begin()
                return
            except Disconnected:
                continue
