"""How far a tracking server has been told: one row a run, one sender at a time."""

from __future__ import annotations

from collections.abc import Callable

from penstock.store import liveness
from penstock.store.records import EngineRecord
from penstock.store.sql import Store
from penstock.store.tracking import LEASE


def made(store: Store, tracked: bool = True) -> int:
    server = ("http://here", "trials") if tracked else None
    return store.runs.create("flow", "d", "{}", {}, {}, "me", 1.0, server).number


def test_a_run_is_behind_from_its_first_event_until_all_is_told(store: Store) -> None:
    run, other = made(store), made(store, tracked=False)
    me = liveness.identity()
    (found,) = store.tracking.behind()
    assert (found.run, found.url, found.experiment, found.seq, found.place) == (run, "http://here", "trials", 0, "")
    assert store.tracking.of(other) is None
    assert store.tracking.take(found, me, 10.0) and store.tracking.move(run, me, 1, "1/abc", 10.0)
    assert store.tracking.behind() == []
    again = store.tracking.of(run)
    assert again is not None and (again.seq, again.place) == (1, "1/abc") and store.tracking.has(again, me)


def test_one_process_tells_at_a_time(store: Store, another: Callable[..., Store]) -> None:
    run, me, later = made(store), liveness.identity(), another()
    them = EngineRecord("b" * 32, "elsewhere/1.2/3", 1, "1", 0)
    found = store.tracking.behind()[0]
    assert later.tracking.take(found, them, 10.0) and not store.tracking.take(found, me, 10.0)
    found = store.tracking.behind()[0]
    assert not store.tracking.has(found, me) and not store.tracking.take(found, me, 10.0 + LEASE - 1)
    assert later.tracking.move(run, them, 0, "", 20.0)
    found = store.tracking.behind()[0]
    assert not store.tracking.take(found, me, 10.0 + LEASE + 1)
    assert store.tracking.take(found, me, 20.0 + LEASE + 1)
    assert not later.tracking.move(run, them, 1, "x", 60.0)
    store.tracking.free(run, me)
    assert later.tracking.take(store.tracking.behind()[0], them, 60.0)


def test_a_sender_that_died_on_this_machine_is_not_waited_for(store: Store) -> None:
    made(store)
    me = liveness.identity()
    dead = me._replace(id="d" * 32, born="long ago")
    assert store.tracking.take(store.tracking.behind()[0], dead, 10.0)
    assert store.tracking.take(store.tracking.behind()[0], me, 10.0)


def test_the_row_goes_with_its_run(store: Store) -> None:
    run = made(store)
    assert store.maintenance.delete_runs([run], 5.0)[0] == 1
    assert store.tracking.of(run) is None
