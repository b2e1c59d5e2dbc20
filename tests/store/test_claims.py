"""A key is computed by one engine; the others wait and are told."""

from __future__ import annotations

import pytest

from penstock.artifacts.values import dumps
from penstock.graph.stored import Stored
from penstock.store.records import KeyClaim, LeaseHolder, Result, WriteBatch
from penstock.store.sql import Store, open_store
from tests.store.work import new_run, processes, write


def claim(
    store: Store, engine: str, *wanted: tuple[str, int, str], fresh: bool = False, hold: bool = True
) -> dict[str, KeyClaim]:
    store.journal.begin()
    found = store.results.claim(wanted, engine, fresh, hold)
    store.journal.commit()
    return found


def test_the_first_gets_the_lease_and_the_second_waits(store: Store) -> None:
    assert claim(store, "a", ("k", 1, "t")) == {"k": KeyClaim()}
    assert claim(store, "a", ("k", 1, "again")) == {"k": KeyClaim()}, "it is the engine's own"
    assert claim(store, "b", ("k", 2, "u"), ("free", 2, "v")) == {
        "k": KeyClaim(holder=LeaseHolder("k", "a", 1, "t")),
        "free": KeyClaim(),
    }
    assert store.results.holders(["k", "free", "none"]) == {"k": ("k", "a", 1, "t"), "free": ("free", "b", 2, "v")}
    (waiting,) = store.results.waiting("b")
    assert (waiting.key, waiting.run, waiting.task, waiting.holder) == ("k", 2, "u", ("k", "a", 1, "t"))
    assert (waiting.failure, waiting.result) == (None, None)
    assert store.results.waiting("a") == []


def test_a_key_that_is_asked_for_twice_at_once_is_one_lease_and_two_waiters(store: Store) -> None:
    assert claim(store, "a", ("k", 1, "t"), ("k", 1, "u")) == {"k": KeyClaim()}
    claim(store, "b", ("k", 2, "t"), ("k", 2, "u"), ("k", 2, "u"))
    assert [(w.run, w.task) for w in store.results.waiting("b")] == [(2, "t"), (2, "u")]


def test_a_result_ends_the_wait_and_is_found_from_then_on(store: Store) -> None:
    run = new_run(store, owner="a").number
    claim(store, "a", ("k", run, "t"))
    claim(store, "b", ("k", 2, "u"))
    result = Result("k", {"x": 1}, run, "t", 5.0)
    write(store, WriteBatch(results=[("k", '{"x":1}', run, "t", 5.0)], released=["k"]), "a")
    (waiting,) = store.results.waiting("b")
    assert (waiting.result, waiting.holder, waiting.failure) == (result, None, None)
    write(store, WriteBatch(served=[("k", 2, "u")]), "b")
    assert store.results.waiting("b") == []
    assert claim(store, "c", ("k", 3, "v")) == {"k": KeyClaim(result=result)}
    assert store.results.holders(["k"]) == {}


def test_those_who_wait_are_told_a_failure(store: Store) -> None:
    claim(store, "a", ("k", 1, "t"), ("l", 1, "t"))
    claim(store, "b", ("k", 2, "u"), ("l", 2, "u"))
    write(store, WriteBatch(failures=[('{"exit_code":1}', "k")], released=["k"]), "a")
    told = {w.key: (w.failure, w.holder is None) for w in store.results.waiting("b")}
    assert told == {"k": ({"exit_code": 1}, True), "l": (None, False)}
    assert claim(store, "b", ("k", 2, "u")) == {"k": KeyClaim()}


def test_who_asks_again_has_forgotten_the_failure(store: Store) -> None:
    claim(store, "a", ("k", 1, "t"))
    claim(store, "b", ("k", 2, "u"))
    write(store, WriteBatch(failures=[("{}", "k")], released=["k"]), "a")
    claim(store, "c", ("k", 3, "v"))
    claim(store, "b", ("k", 2, "u"))
    (waiting,) = store.results.waiting("b")
    assert waiting.failure is None
    assert waiting.holder == ("k", "c", 3, "v")


def test_only_the_holder_can_release(store: Store) -> None:
    claim(store, "a", ("k", 1, "t"))
    write(store, WriteBatch(released=["k"]), "b")
    assert store.results.holders(["k"])["k"].engine == "a"


def test_a_fresh_claim_does_not_look_at_results_and_its_waiters_do_not_get_the_old_one(store: Store) -> None:
    run = new_run(store, owner="a").number
    write(store, WriteBatch(results=[("k", '{"old":1}', run, "t", 5.0)]), "a")
    assert claim(store, "a", ("k", run, "t"), fresh=True) == {"k": KeyClaim()}
    assert claim(store, "b", ("k", 2, "u"), fresh=True)["k"].holder
    (waiting,) = store.results.waiting("b")
    assert waiting.result is None
    write(store, WriteBatch(results=[("k", '{"new":1}', run, "t", 6.0)], released=["k"]), "a")
    (waiting,) = store.results.waiting("b")
    assert waiting.result and waiting.result.outputs == {"new": 1}


def test_what_is_recorded_before_the_commit_needs_no_lease_where_nobody_else_can_write(store: Store) -> None:
    run = new_run(store, owner="a").number
    claim(store, "b", ("held", 2, "u"))
    write(store, WriteBatch(results=[("known", '{"x":1}', run, "t", 5.0)]), "a")
    store.journal.begin()
    keys = ["free", "held", "known"]
    found = store.results.claim([(key, run, "t") for key in keys], "a", hold=False)
    assert found == {
        "free": KeyClaim(),
        "held": KeyClaim(holder=LeaseHolder("held", "b", 2, "u")),
        "known": KeyClaim(result=Result("known", {"x": 1}, run, "t", 5.0)),
    }
    assert set(store.results.holders(keys)) == ({"held"} if store._db.alone else {"free", "held"})
    assert [w.key for w in store.results.waiting("a")] == ["held"]
    store.journal.flush(WriteBatch(results=[("free", '{"y":2}', run, "t", 6.0)], released=["free"]), "a")
    store.journal.commit()
    assert set(store.results.holders(keys)) == {"held"}
    for hold in (True, False):
        ours = claim(store, "a", ("free", run, "t"), hold=hold)["free"].result
        assert ours and ours.outputs == {"y": 2}


def test_stored_values_in_outputs_come_back_as_such(store: Store) -> None:
    stored = Stored("file", "sha256:" + "0" * 64, 5, "model.bin")
    outputs = {"model": stored, "list": [stored, 1], "mine": {"$stored": "a map of the user's"}}
    run = new_run(store, owner="a").number
    claim(store, "a", ("k", run, "t"))
    claim(store, "b", ("k", 2, "u"))
    made = WriteBatch(results=[("k", dumps(outputs), run, "t", 5.0)], released=["k"])
    made.events.append((run, 2, 5.0, "task.succeeded", "t", dumps({"outputs": {"model": stored}})))
    made.runs[run] = (2, "succeeded", 6.0, "{}", dumps({"model": stored}), "", 0)
    write(store, made, "a")
    (waiting,) = store.results.waiting("b")
    found = [waiting.result, store.results.lookup(["k"])["k"], claim(store, "c", ("k", 3, "v"))["k"].result]
    assert [result and result.outputs for result in found] == [outputs] * 3
    plain = {"model": {"$stored": {"kind": "file", "digest": stored.digest, "size": 5, "name": "model.bin"}}}
    seen = store.runs.by_number(run)
    assert seen and seen.outputs == plain, "read by the service, which shows it"
    assert list(store.runs.events(run))[-1].data == {"outputs": plain}


def test_a_claim_that_is_rolled_back_is_forgotten(store: Store) -> None:
    store.journal.begin()
    store.results.claim([("k", 1, "t")], "a")
    store.journal.rollback()
    store.journal.reconnect(0)
    write(store, WriteBatch(), "a")
    assert store.results.holders(["k"]) == {}


@pytest.mark.parametrize("count", [1, 2, 3, 5, 511, 512, 513, 1234])
def test_any_number_of_keys_in_one_claim(store: Store, count: int) -> None:
    wanted = [(f"k{n}", 1, f"t[{n}]") for n in range(count)]
    assert claim(store, "a", *wanted) == {key: KeyClaim() for key, _, _ in wanted}
    found = claim(store, "b", *wanted)
    assert {what.holder.engine for what in found.values() if what.holder} == {"a"}
    assert len(store.results.waiting("b")) == len(found) == count
    write(store, WriteBatch(released=[key for key, _, _ in wanted]), "a")
    assert store.results.holders([key for key, _, _ in wanted]) == {}


def test_a_result_that_was_committed_while_we_asked_for_the_lease_is_seen(postgres_url: str) -> None:
    """PostgreSQL only: in SQLite nobody can commit while we claim. The other one's commit comes after our first look."""
    with open_store(postgres_url) as mine, open_store(postgres_url) as other:
        claim(other, "b", ("k", 1, "t"))
        look, commits = (
            mine.results.lookup,
            [lambda: write(other, WriteBatch(results=[("k", "{}", 1, "t", 1.0)], released=["k"]), "b")],
        )

        def lookup(keys: list[str]) -> dict[str, Result]:
            found = look(keys)
            while commits:
                commits.pop()()
            return found

        mine.results.lookup = lookup  # type: ignore[method-assign,assignment]
        found = claim(mine, "a", ("k", 2, "u"))
        assert found["k"].result
        assert mine.results.holders(["k"]) == {}
        assert mine.results.waiting("a") == []


def test_a_lease_that_was_given_up_while_we_asked_is_asked_for_again(postgres_url: str) -> None:
    with open_store(postgres_url) as mine, open_store(postgres_url) as other:
        claim(other, "b", ("k", 1, "t"))
        look, commits = mine.results.holders, [lambda: write(other, WriteBatch(released=["k"]), "b")]

        def holders(keys: list[str]) -> dict[str, LeaseHolder]:
            while commits:
                commits.pop()()
            return look(keys)

        mine.results.holders = holders  # type: ignore[method-assign,assignment]
        assert claim(mine, "a", ("k", 2, "u")) == {"k": KeyClaim()}
        assert mine.results.holders(["k"])["k"].engine == "a"


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
        held = {key: {holder.engine} for key, holder in store.results.holders(sorted(owners)).items()}
        assert held == owners
        assert sum(len(store.results.waiting(f"engine-{n}")) for n in range(8)) == 7 * 50


def test_six_processes_compute_the_same_keys_and_each_is_computed_once(where: str) -> None:
    """Some hold a lease from one transaction to another, some record what they got before they commit."""
    open_store(where).close()
    said = processes("compute", where, 6, 40)
    computed = [key for process in said for key in process]
    assert sorted(computed) == sorted(f"shared-{n}" for n in range(40))
    with open_store(where) as store:
        assert store.results.holders(computed) == {}
        assert len(store.results.lookup(computed)) == 40
