"""The store: everything that is recorded, in one SQL database. Opened by service and engine; used from one thread.

A Store has one part for each subject. All parts share one connection, so that what several of them write inside of
`journal.begin` … `journal.commit` is one transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from penstock.store.answers import AnswerRepository
from penstock.store.deliveries import DeliveryRepository
from penstock.store.drivers import base
from penstock.store.drivers.base import Driver, Row
from penstock.store.journal import JournalRepository
from penstock.store.links import LinkRepository
from penstock.store.lock_policies import DEFAULT, LockPolicy, by_priority, find_policy
from penstock.store.locks import LockRepository
from penstock.store.maintenance import Maintenance
from penstock.store.migrate import migrate, version
from penstock.store.orders import OrderRepository
from penstock.store.outbox import OutboxRepository
from penstock.store.payloads import PayloadRepository
from penstock.store.peers import PeerRepository
from penstock.store.queues import QueueRepository
from penstock.store.results import PendingClaims, ResultRepository
from penstock.store.runs import RunRepository
from penstock.store.schedules import ScheduleRepository
from penstock.store.series import SeriesRepository
from penstock.store.served import checked
from penstock.store.session import Session
from penstock.store.tokens import TokenRepository
from penstock.store.tracking import TrackingRepository
from penstock.store.usage import UsageRepository
from penstock.urls import without_password


def open_store(where: str, busy: float = 60.0, lock_policy: str = DEFAULT, patience: float = 0.0) -> Store:
    """The store in a folder or at a `postgresql://` URL, made if it does not exist. `busy`: seconds to wait for other writers.
    `patience`: seconds to wait for a server that does not answer."""
    policy = find_policy(lock_policy)
    db: Driver
    if where.startswith(("postgresql://", "postgres://")):
        from penstock.store.drivers.postgres import Postgres

        db = Postgres(where, busy, patience)
    elif "://" in where:
        raise base.unreachable(without_password(where), "only folders and postgresql:// are known")
    else:
        from penstock.store.drivers.sqlite import Sqlite

        db = Sqlite(where, busy)
    try:
        migrate(db)
    except BaseException:
        db.close()
        raise
    return Store(db, policy)


class Store:
    def __init__(self, db: Driver, lock_policy: LockPolicy = by_priority) -> None:
        self._db = db
        self._session = session = Session(db)
        pending = PendingClaims()
        self.journal = JournalRepository(session, pending)
        self.results = ResultRepository(session, pending)
        self.runs = RunRepository(session)
        self.locks = LockRepository(session, lock_policy)
        self.queues = QueueRepository(session)
        self.peers = PeerRepository(session, self.queues)
        self.outbox = OutboxRepository(session)
        self.links = LinkRepository(session)
        self.schedules = ScheduleRepository(session)
        self.payloads = PayloadRepository(session)
        self.deliveries = DeliveryRepository(session, self.outbox)
        self.tracking = TrackingRepository(session)
        self.orders = OrderRepository(session)
        self.answers = AnswerRepository(session, self.runs, self.orders)
        self.tokens = TokenRepository(session)
        self.series = SeriesRepository(session)
        self.usage = UsageRepository(session)
        self.maintenance = Maintenance(session, self.runs)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def where(self) -> str:
        """For messages, without a password."""
        return self._db.where

    @property
    def id(self) -> str:
        """Of the store itself: the same for everybody who opens it."""
        return self.note("id")

    @property
    def schema(self) -> int:
        """The version of the tables."""
        return version(self._db)

    def note(self, name: str, value: str | None = None) -> str:
        """A text that the store keeps under a name: sets it if `value` is given. Empty if there is none."""
        if value is not None:
            self._session.transact(lambda: self._db.write("put_meta", (name, value)))
            return value
        rows = self._db.rows("meta", (name,))
        return str(rows[0][0]) if rows else ""

    def served(self, name: str, args: Sequence[Any], keys: Sequence[Any] | None = None) -> list[Row]:
        """The rows of a query, for a store elsewhere that has none of its own. Raises PlanError: it is not one of those in `served`."""
        given = checked(name, args, keys)
        return self._db.rows(name, given) if keys is None else self._db.within(name, keys, *given)

    def close(self) -> None:
        self._db.close()
