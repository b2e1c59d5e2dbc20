"""Which orders a worker is shown: those that somebody may have to do something about, however many there are."""

from __future__ import annotations

from penstock.store import liveness
from penstock.store.records import EngineRecord
from penstock.store.sql import Store
from tests.store.work import batch, new_run, write


def ordered(store: Store, owner: str | None = None) -> int:
    run = new_run(store, owner=owner).number
    store.orders.put(run, "run", {})
    return run


def to_do(store: Store, since: float = 0.0) -> set[int]:
    return {one.run for one in store.orders.to_do(since)}


def test_a_run_that_an_engine_is_at_is_left_out_until_the_engine_goes(store: Store) -> None:
    store.peers.register(liveness.identity("here"))
    store.peers.register(EngineRecord("there", "elsewhere/m.1/p", 7, "1", 0))
    free, gone = ordered(store), ordered(store, "gone")
    mine, other = ordered(store, "here"), ordered(store, "there")
    assert to_do(store) == {free, gone}
    assert {one.run for one in store.orders.owned("there")} == {other}
    assert store.orders.runs() == {free, gone, mine, other} and store.orders.count() == 4
    assert store.runs.release(mine, "here", "stopped")
    store.peers.forget("there")
    assert to_do(store) == {free, gone, mine, other}


def test_what_is_asked_of_a_run_and_the_order_of_one_that_is_over_are_shown(store: Store) -> None:
    store.peers.register(liveness.identity("here"))
    over, cancelled, removed = ordered(store, "here"), ordered(store, "here"), 99
    store.orders.put(cancelled, "cancel", {})
    store.orders.put(removed, "run", {})
    assert to_do(store) == {cancelled, removed}
    write(store, batch(over, [2, 3], "succeeded"), "here")
    assert to_do(store) == {over, cancelled, removed}


def test_only_new_orders_are_shown_to_who_asks_for_them(store: Store) -> None:
    first = ordered(store)
    [order] = store.orders.to_do()
    assert to_do(store, order.at - 1) == {first} and to_do(store, order.at) == set()
    store.orders.put(first, "cancel", {})
    assert to_do(store, order.at) == {first}
