"""A key is computed by one engine; the others wait and are told."""

from __future__ import annotations

import pytest

from penstock.artifacts.values import dumps
from penstock.graph.stored import Stored
from penstock.store.base import Batch, Found, Holder, Result
from penstock.store.sql import Store, open_store
from tests.store.work import new_run, processes, write


def claim(
    store: Store, engine: str, *wanted: tuple[str, int, str], fresh: bool = False, hold: bool = True
) -> dict[str, Found]:
    store.begin()
    found = store.claim(wanted, engine, fresh, hold)
    store.commit()
    return found


def test_the_first_gets_the_lease_and_the_second_waits(store: Store) -> None:
    assert claim(store, "a", ("k", 1, "t")) == {"k": Found()}
    assert claim(store, "a", ("k", 1, "again")) == {"k": Found()}, "it is the engine's own"
    assert claim(store, "b", ("k", 2, "u"), ("free", 2, "v")) == {
        "k": Found(holder=Holder("k", "a", 1, "t")),
        "free": Found(),
    }
    assert store.holders(["k", "free", "none"]) == {"k": ("k", "a", 1, "t"), "free": ("free", "b", 2, "v")}
    (waiting,) = store.waiting("b")
    assert (waiting.key, waiting.run, waiting.task, waiting.holder) == ("k", 2, "u", ("k", "a", 1, "t"))
    assert (waiting.failure, waiting.result) == (None, None)
    assert store.waiting("a") == []


def test_a_key_that_is_asked_for_twice_at_once_is_one_lease_and_two_waiters(store: Store) -> None:
    assert claim(store, "a", ("k", 1, "t"), ("k", 1, "u")) == {"k": Found()}
    claim(store, "b", ("k", 2, "t"), ("k", 2, "u"), ("k", 2, "u"))
    assert [(w.run, w.task) for w in store.waiting("b")] == [(2, "t"), (2, "u")]


def test_a_result_ends_the_wait_and_is_found_from_then_on(store: Store) -> None:
    run = new_run(store, owner="a").number
    claim(store, "a", ("k", run, "t"))
    claim(store, "b", ("k", 2, "u"))
    result = Result("k", {"x": 1}, run, "t", 5.0)
    write(store, Batch(results=[("k", '{"x":1}', run, "t", 5.0)], released=["k"]), "a")
    (waiting,) = store.waiting("b")
    assert (waiting.result, waiting.holder, waiting.failure) == (result, None, None)
    write(store, Batch(served=[("k", 2, "u")]), "b")
    assert store.waiting("b") == []
    assert claim(store, "c", ("k", 3, "v")) == {"k": Found(result=result)}
    assert store.holders(["k"]) == {}


def test_those_who_wait_are_told_a_failure(store: Store) -> None:
    claim(store, "a", ("k", 1, "t"), ("l", 1, "t"))
    claim(store, "b", ("k", 2, "u"), ("l", 2, "u"))
    write(store, Batch(failures=[('{"exit_code":1}', "k")], released=["k"]), "a")
    told = {w.key: (w.failure, w.holder is None) for w in store.waiting("b")}
    assert told == {"k": ({"exit_code": 1}, True), "l": (None, False)}
    assert claim(store, "b", ("k", 2, "u")) == {"k": Found()}


def test_who_asks_again_has_forgotten_the_failure(store: Store) -> None:
    claim(store, "a", ("k", 1, "t"))
    claim(store, "b", ("k", 2, "u"))
    write(store, Batch(failures=[("{}", "k")], released=["k"]), "a")
    claim(store, "c", ("k", 3, "v"))
    claim(store, "b", ("k", 2, "u"))
    (waiting,) = store.waiting("b")
    assert waiting.failure is None
    assert waiting.holder == ("k", "c", 3, "v")


def test_only_the_holder_can_release(store: Store) -> None:
    claim(store, "a", ("k", 1, "t"))
    write(store, Batch(released=["k"]), "b")
    assert store.holders(["k"])["k"].engine == "a"


def test_a_fresh_claim_does_not_look_at_results_and_its_waiters_do_not_get_the_old_one(store: Store) -> None:
    run = new_run(store, owner="a").number
    write(store, Batch(results=[("k", '{"old":1}', run, "t", 5.0)]), "a")
    assert claim(store, "a", ("k", run, "t"), fresh=True) == {"k": Found()}
    assert claim(store, "b", ("k", 2, "u"), fresh=True)["k"].holder
    (waiting,) = store.waiting("b")
    assert waiting.result is None
    write(store, Batch(results=[("k", '{"new":1}', run, "t", 6.0)], released=["k"]), "a")
    (waiting,) = store.waiting("b")
    assert waiting.result and waiting.result.outputs == {"new": 1}


def test_what_is_recorded_before_the_commit_needs_no_lease_where_nobody_else_can_write(store: Store) -> None:
    run = new_run(store, owner="a").number
    claim(store, "b", ("held", 2, "u"))
    write(store, Batch(results=[("known", '{"x":1}', run, "t", 5.0)]), "a")
    store.begin()
    keys = ["free", "held", "known"]
    found = store.claim([(key, run, "t") for key in keys], "a", hold=False)
    assert found == {
        "free": Found(),
        "held": Found(holder=Holder("held", "b", 2, "u")),
        "known": Found(result=Result("known", {"x": 1}, run, "t", 5.0)),
    }
    assert set(store.holders(keys)) == ({"held"} if store._db.alone else {"free", "held"})
    assert [w.key for w in store.waiting("a")] == ["held"]
    store.flush(Batch(results=[("free", '{"y":2}', run, "t", 6.0)], released=["free"]), "a")
    store.commit()
    assert set(store.holders(keys)) == {"held"}
    for hold in (True, False):
        ours = claim(store, "a", ("free", run, "t"), hold=hold)["free"].result
        assert ours and ours.outputs == {"y": 2}


def test_stored_values_in_outputs_come_back_as_such(store: Store) -> None:
    stored = Stored("file", "sha256:" + "0" * 64, 5, "model.bin")
    outputs = {"model": stored, "list": [stored, 1], "mine": {"$stored": "a map of the user's"}}
    run = new_run(store, owner="a").number
    claim(store, "a", ("k", run, "t"))
    claim(store, "b", ("k", 2, "u"))
    made = Batch(results=[("k", dumps(outputs), run, "t", 5.0)], released=["k"])
    made.events.append((run, 2, 5.0, "task.succeeded", "t", dumps({"outputs": {"model": stored}})))
    made.runs[run] = (2, "succeeded", 6.0, "{}", dumps({"model": stored}))
    write(store, made, "a")
    (waiting,) = store.waiting("b")
    found = [waiting.result, store.lookup(["k"])["k"], claim(store, "c", ("k", 3, "v"))["k"].result]
    assert [result and result.outputs for result in found] == [outputs] * 3
    plain = {"model": {"$stored": {"kind": "file", "digest": stored.digest, "size": 5, "name": "model.bin"}}}
    seen = store.run_by_number(run)
    assert seen and seen.outputs == plain, "read by the service, which shows it"
    assert list(store.events(run))[-1].data == {"outputs": plain}


def test_a_claim_that_is_rolled_back_is_forgotten(store: Store) -> None:
    store.begin()
    store.claim([("k", 1, "t")], "a")
    store.rollback()
    store.reconnect(0)
    write(store, Batch(), "a")
    assert store.holders(["k"]) == {}


@pytest.mark.parametrize("count", [1, 2, 3, 5, 511, 512, 513, 1234])
def test_any_number_of_keys_in_one_claim(store: Store, count: int) -> None:
    wanted = [(f"k{n}", 1, f"t[{n}]") for n in range(count)]
    assert claim(store, "a", *wanted) == {key: Found() for key, _, _ in wanted}
    found = claim(store, "b", *wanted)
    assert {what.holder.engine for what in found.values() if what.holder} == {"a"}
    assert len(store.waiting("b")) == len(found) == count
    write(store, Batch(released=[key for key, _, _ in wanted]), "a")
    assert store.holders([key for key, _, _ in wanted]) == {}


def test_a_result_that_was_committed_while_we_asked_for_the_lease_is_seen(postgres_url: str) -> None:
    """PostgreSQL only: in SQLite nobody can commit while we claim. The other one's commit comes after our first look."""
    with open_store(postgres_url) as mine, open_store(postgres_url) as other:
        claim(other, "b", ("k", 1, "t"))
        look, commits = (
            mine.lookup,
            [lambda: write(other, Batch(results=[("k", "{}", 1, "t", 1.0)], released=["k"]), "b")],
        )

        def lookup(keys: list[str]) -> dict[str, Result]:
            found = look(keys)
            while commits:
                commits.pop()()
            return found

        mine.lookup = lookup  # type: ignore[method-assign,assignment]
        found = claim(mine, "a", ("k", 2, "u"))
        assert found["k"].result
        assert mine.holders(["k"]) == {}
        assert mine.waiting("a") == []


def test_a_lease_that_was_given_up_while_we_asked_is_asked_for_again(postgres_url: str) -> None:
    with open_store(postgres_url) as mine, open_store(postgres_url) as other:
        claim(other, "b", ("k", 1, "t"))
        look, commits = mine.holders, [lambda: write(other, Batch(released=["k"]), "b")]

        def holders(keys: list[str]) -> dict[str, Holder]:
            while commits:
                commits.pop()()
            return look(keys)

        mine.holders = holders  # type: ignore[method-assign,assignment]
        assert claim(mine, "a", ("k", 2, "u")) == {"k": Found()}
        assert mine.holders(["k"])["k"].engine == "a"


def test_eight_processes_claim_the_same_keys_and_each_key_has_one_owner(where: str) -> None:
    with open_store(where) as store:
        run = new_run(store).number
    said = processes("claim", where, 8, run, 50)
    owners: dict[str, set[str]] = {}
    for process in said:
        assert len(process) == 50
        for key, owner in process:
            owners.setdefault(key, set()).add(owner)
    assert len(owners) == 50
    assert all(len(names) == 1 for names in owners.values()), "all eight must name the same owner"
    with open_store(where) as store:
        held = {key: {holder.engine} for key, holder in store.holders(sorted(owners)).items()}
        assert held == owners
        assert sum(len(store.waiting(f"engine-{n}")) for n in range(8)) == 7 * 50


def test_six_processes_compute_the_same_keys_and_each_is_computed_once(where: str) -> None:
    """Some hold a lease from one transaction to another, some record what they got before they commit."""
    open_store(where).close()
    said = processes("compute", where, 6, 40)
    computed = [key for process in said for key in process]
    assert sorted(computed) == sorted(f"shared-{n}" for n in range(40))
    with open_store(where) as store:
        assert store.holders(computed) == {}
        assert len(store.lookup(computed)) == 40
