"""A lock is handed to so many as may have it, in order, all that somebody needs or nothing; and comes back, whatever happens."""

from __future__ import annotations

import random
from collections.abc import Callable

from penstock.store.records import LeaseHolder, LockRequest
from penstock.store.sql import Store


def test_one_holds_a_mutex_and_the_next_gets_it_when_it_is_let_go(store: Store) -> None:
    assert store.locks.lock("a", [LockRequest(1, "t", {"m": 1}), LockRequest(1, "u", {"m": 1})]) == {(1, "t")}
    assert store.locks.lock("b", [LockRequest(2, "t", {"m": 1, "n": 1})]) == set()
    assert store.locks.lock_holders(["m", "n"]) == {"m": [LeaseHolder("m", "a", 1, "t")], "n": []}
    assert store.locks.lock("a", [], [(1, "t")]) == {(1, "u")}
    assert store.locks.lock("a", [], [(1, "u")]) == set()
    assert store.locks.lock_holders(["m", "n"]) == {
        "m": [LeaseHolder("m", "b", 2, "t")],
        "n": [LeaseHolder("n", "b", 2, "t")],
    }
    assert store.locks.lock("b", []) == {(2, "t")}, "it was handed over by the other"


def test_so_many_hold_a_semaphore(store: Store) -> None:
    asks = [LockRequest(1, str(number), {"s": 3}) for number in range(5)]
    assert store.locks.lock("a", asks) == {(1, "0"), (1, "1"), (1, "2")}
    assert store.locks.lock("a", [], [(1, "1")]) == {(1, "0"), (1, "2"), (1, "3")}


def test_the_line_is_by_priority_then_by_the_age_of_the_run_then_by_who_asked_first(store: Store) -> None:
    store.locks.lock("a", [LockRequest(9, "first", {"m": 1})])
    store.locks.lock("a", [LockRequest(7, "b", {"m": 1}), LockRequest(7, "a", {"m": 1})])
    store.locks.lock("b", [LockRequest(3, "c", {"m": 1})])
    store.locks.lock("b", [LockRequest(8, "d", {"m": 1}, priority=5), LockRequest(8, "e", {"m": 1}, priority=-1)])
    seen = []
    for _ in range(6):
        (holder,) = store.locks.lock_holders(["m"])["m"]
        seen.append(holder.task)
        store.locks.lock(holder.engine, [], [(holder.run, holder.task)])
    assert seen == ["first", "d", "c", "b", "a", "e"]


def test_who_asks_again_keeps_its_place_and_what_it_has(store: Store) -> None:
    store.locks.lock("a", [LockRequest(1, "t", {"m": 1}), LockRequest(1, "u", {"m": 1})])
    store.locks.lock("a", [LockRequest(1, "v", {"m": 1})])
    assert store.locks.lock("b", [LockRequest(1, "t", {"m": 1}), LockRequest(1, "u", {"m": 1})]) == {(1, "t")}, (
        "another engine has its run"
    )
    assert store.locks.lock("a", [], [(1, "t")]) == set(), "it is not the other's any more"
    assert store.locks.lock("b", [], [(1, "t")]) == {(1, "u")}


def test_what_an_engine_held_is_free_when_it_is_forgotten(store: Store) -> None:
    store.locks.lock("a", [LockRequest(1, "t", {"m": 1}), LockRequest(1, "u", {"m": 1})])
    assert store.locks.lock("b", [LockRequest(2, "t", {"m": 1})]) == set()
    store.peers.forget("a")
    assert store.locks.lock("b", []) == set(), "nobody has looked yet"
    assert store.locks.lock("b", [], [], ["m"]) == {(2, "t")}
    assert store.locks.lock("a", [LockRequest(1, "t", {"m": 1}, held=True)]) == {(1, "t")}, (
        "it says that it never stopped"
    )


def test_somebody_who_waits_for_two_does_not_keep_one_from_those_behind(store: Store) -> None:
    store.locks.lock("a", [LockRequest(1, "t", {"n": 1})])
    assert store.locks.lock("a", [LockRequest(2, "both", {"m": 1, "n": 1}), LockRequest(3, "one", {"m": 1})]) == {
        (1, "t"),
        (3, "one"),
    }
    assert store.locks.lock("a", [], [(1, "t")]) == {(3, "one")}
    assert store.locks.lock("a", [], [(3, "one")]) == {(2, "both")}


def test_one_far_behind_many_who_cannot_go_on_can(store: Store) -> None:
    store.locks.lock("a", [LockRequest(1, "t", {"n": 1, "m": 1})])
    store.locks.lock(
        "a",
        [LockRequest(2, str(number), {"m": 1, "n": 1}) for number in range(200)] + [LockRequest(3, "last", {"m": 1})],
    )
    store.locks.lock("a", [LockRequest(4, "hold", {"n": 1})])
    assert store.locks.lock("a", [LockRequest(5, "x", {"n": 1}, priority=9)], [(1, "t")]) == {(5, "x"), (3, "last")}


def test_a_run_that_is_deleted_waits_for_nothing(store: Store) -> None:
    run = store.runs.create("w", "d", "{}", {}, {}, "me", 0.0)
    store.locks.lock("a", [LockRequest(run.number, "t", {"m": 1})])
    store.maintenance.delete_runs([run.number], 0.0)
    assert store.locks.lock_holders(["m"]) == {"m": []}


def test_whatever_is_asked_nobody_has_too_much_and_nobody_waits_without_reason(
    another: Callable[..., Store],
) -> None:
    """Two engines, random asks over a few names: after each step, nothing that could be handed out is left."""
    chance = random.Random(1)
    stores = {name: another() for name in ("a", "b")}
    limits = {"k": 1, "l": 1, "m": 2, "n": 3}
    asked: dict[tuple[int, str], tuple[str, dict[str, int]]] = {}
    for number in range(150):
        engine = chance.choice("ab")
        mine = [who for who, (owner, _) in asked.items() if owner == engine]
        frees = chance.sample(mine, min(len(mine), chance.choice((0, 0, 1, 2)))) if len(asked) > 3 else []
        names = {name: limits[name] for name in chance.sample(sorted(limits), chance.randint(1, 3))}
        ask = LockRequest(chance.randint(1, 4), f"t{number}", names, chance.randint(0, 1))
        stores[engine].locks.lock(engine, [ask], frees)
        for who in frees:
            del asked[who]
        asked[ask.run, ask.task] = (engine, names)
        holders = stores["a"].locks.lock_holders(list(limits))
        held = {(one.run, one.task) for some in holders.values() for one in some}
        assert all(len(holders[name]) <= limit for name, limit in limits.items())
        for who, (_, names) in asked.items():
            if who in held:
                assert all(any((one.run, one.task) == who for one in holders[name]) for name in names), "all or nothing"
            else:
                assert any(len(holders[name]) >= limits[name] for name in names), "it could have gone on"
