"""The outbox: a row belongs to one courier at a time, and is settled once."""

from __future__ import annotations

from collections.abc import Callable

from penstock.store import liveness
from penstock.store.outbox import DEAD, DONE, LEASE, NEW
from penstock.store.records import EngineRecord
from penstock.store.sql import Store

ELSEWHERE = EngineRecord("b" * 32, "elsewhere/1.2/3", 1, "1", 0)


def put(store: Store, many: int = 1, due: float = 1.0) -> None:
    for number in range(many):
        store.outbox.put(1, 2, "callback", {"n": number}, f"key-{number}", 1.0, due)


def test_a_row_is_taken_by_one_courier_until_its_lease_is_over(store: Store, another: Callable[..., Store]) -> None:
    put(store, 3)
    me, later = liveness.identity(), another()
    taken = later.outbox.take("callback", ELSEWHERE, 10.0, 2)
    assert [entry.data["n"] for entry in taken] == [0, 1]
    assert [entry.data["n"] for entry in store.outbox.take("callback", me, 10.0, 10)] == [2]
    assert store.outbox.take("callback", me, 10.0 + LEASE - 1, 10) != taken
    again = store.outbox.take("callback", me, 10.0 + LEASE + 1, 10)
    assert {entry.key for entry in again} >= {entry.key for entry in taken}
    assert not later.outbox.settle(taken[0], DONE, 1)  # it is not theirs any more
    assert store.outbox.settle(next(entry for entry in again if entry.number == taken[0].number), DONE, 1)


def test_a_row_of_a_dead_process_is_taken_at_once(store: Store) -> None:
    put(store)
    me = liveness.identity()
    gone = me._replace(id="c" * 32, pid=2**22 + 1)
    assert store.outbox.take("callback", gone, 10.0, 1)
    assert store.outbox.take("callback", me, 10.5, 1)


def test_a_row_is_tried_again_when_it_is_due_and_never_when_it_is_dead(store: Store) -> None:
    put(store)
    me = liveness.identity()
    (entry,) = store.outbox.take("callback", me, 1.0, 1)
    assert store.outbox.settle(entry, NEW, 1, "500", 50.0)
    assert store.outbox.next_due("callback") == 50.0 and store.outbox.take("callback", me, 49.0, 1) == []
    (entry,) = store.outbox.take("callback", me, 50.0, 1)
    assert (entry.attempts, entry.error) == (1, "500")
    assert store.outbox.settle(entry, DEAD, 2, "gone")
    assert store.outbox.next_due("callback") is None and store.outbox.take("callback", me, 99.0, 1) == []


def test_rows_are_listed_by_run_and_by_state(store: Store) -> None:
    put(store, 3)
    assert [entry.data["n"] for entry in store.outbox.of_run(1)] == [0, 1, 2]
    assert [entry.data["n"] for entry in store.outbox.page(["callback"], [NEW], 2)] == [2, 1]
    assert store.outbox.page(["link"], [NEW], 2) == []
