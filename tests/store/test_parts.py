"""Each part of a store alone, on its own session; and the store in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.store.drivers.sqlite import Sqlite
from penstock.store.journal import JournalRepository
from penstock.store.locks import LockRepository
from penstock.store.memory import MemoryStore
from penstock.store.migrate import migrate
from penstock.store.protocols import EngineStore
from penstock.store.queues import QueueRepository
from penstock.store.records import Disconnected, LockRequest, WriteBatch
from penstock.store.results import PendingClaims, ResultRepository
from penstock.store.runs import RunRepository
from penstock.store.session import Session
from penstock.store.sql import Store, open_store


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    db = Sqlite(str(tmp_path), 5.0)
    migrate(db)
    yield Session(db)
    db.close()


def test_runs_are_created_with_their_first_event(session: Session) -> None:
    runs = RunRepository(session)
    run = runs.create("flow", "d", "{}", {}, {}, "me", 1.0)
    assert (run.id, run.number, runs.by_id("flow-1"), runs.newest()) == ("flow-1", 1, run, [run])
    assert [event.kind for event in runs.events(1)] == ["run.submitted"]
    assert runs.request(1, "cancel", {"now": True}) == 1
    assert [one.verb for one in runs.requests(0, [1])] == ["cancel"]


def test_what_fails_inside_a_transaction_is_rolled_back(session: Session) -> None:
    def work() -> None:
        session.next_number("x")
        raise KeyError("no")

    with pytest.raises(KeyError):
        session.transact(work)
    assert not session.db.in_transaction and session.transact(lambda: session.next_number("x")) == 1


def test_claims_outlive_a_lost_connection_and_nothing_else(session: Session) -> None:
    pending = PendingClaims([("k", "e", 1, "t")])
    pending.roll_back(session.db, Disconnected())
    assert pending.leases
    pending.roll_back(session.db, ValueError())
    assert not pending.leases


def test_a_journal_writes_again_what_was_claimed_before_the_connection_was_lost(session: Session) -> None:
    pending = PendingClaims([("k", "e", 1, "t")])
    journal, results = JournalRepository(session, pending), ResultRepository(session, pending)
    journal.reconnect(0.0)
    journal.begin()
    journal.flush(WriteBatch(), "e")
    journal.commit()
    assert results.holders(["k"])["k"].engine == "e" and not pending.lost


def test_locks_and_decisions_count_for_themselves(session: Session) -> None:
    assert LockRepository(session).lock("e", [LockRequest(1, "t", {"m": 1})]) == {(1, "t")}
    queues = QueueRepository(session)
    assert queues.put_queue_objects([("ClusterQueue", "q", "{}")]) == queues.last_decision() == 1
    assert queues.queue_objects() == [("ClusterQueue", "q", 1, "{}")] and queues.queue_objects(1) == []


def test_a_store_in_memory_keeps_runs_and_queues() -> None:
    store = MemoryStore([("ClusterQueue", "q", "{}")])
    run = store.runs.create("flow", "d", "{}", {}, {}, "", 1.0)
    assert store.runs.take(run.number, "e", None) and store.runs.by_number(1) is run and run.engine == "e"
    assert store.queues.queue_objects() == [("ClusterQueue", "q", 0, "{}")]
    assert store.journal.next_decision() == store.queues.last_decision() == 1


def test_both_are_stores_for_an_engine(tmp_path: Path) -> None:
    def names(store: EngineStore) -> set[str]:
        return {name for name in vars(store) if not name.startswith("_")}

    with open_store(str(tmp_path)) as store:
        assert isinstance(store, Store) and names(store) - {
            "maintenance",
            "orders",
            "outbox",
            "payloads",
            "tokens",
            "tracking",
            "usage",
        } == names(MemoryStore())
