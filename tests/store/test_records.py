"""What is written comes back; who does not own a run cannot write to it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import StoreError
from penstock.store.records import EngineRecord, Fenced, Result, WriteBatch
from penstock.store.sql import Store, open_store
from tests.store.work import batch, event_count, new_run, processes, write


def test_a_new_run_is_recorded_with_its_document_and_first_event(store: Store) -> None:
    run = new_run(store)
    assert (run.number, run.id, run.state, run.engine, run.seq) == (1, "flow-1", "stopped", None, 1)
    assert store.runs.by_id("flow-1") == store.runs.by_number(1) == run
    assert store.runs.document(run.digest) == '{"steps":[]}'
    (event,) = store.runs.events(1)
    assert (event.seq, event.kind, event.task, event.data["user"]) == (1, "run.submitted", "", "me")
    assert store.runs.by_id("flow-2") is None
    with pytest.raises(KeyError):
        store.runs.document("none")


def test_numbers_count_over_the_store_and_ids_by_workflow(store: Store) -> None:
    assert [new_run(store, name).id for name in ("a", "b", "a", "a-1")] == ["a-1", "b-1", "a-2", "a-1-1"]
    assert [run.number for run in store.runs.newest()] == [4, 3, 2, 1]


def test_many_processes_create_runs_and_no_number_is_lost_or_doubled(where: str) -> None:
    open_store(where).close()
    made = [tuple(row) for said in processes("create", where, 4, 10) for row in said]
    assert sorted(number for number, _ in made) == list(range(1, 41))
    assert {id for _, id in made} == {f"{name}-{n}" for name in ("one", "other") for n in range(1, 21)}


def test_runs_are_found_by_state_workflow_and_time(store: Store) -> None:
    for n, name in enumerate(("a", "b", "a", "b")):
        run = store.runs.create(name, "d", "{}", {}, {}, "", 100.0 + n)
        store.runs.take(run.number, "e", None)
        store.runs.release(run.number, "e", "failed" if n == 2 else "succeeded")
    assert [run.id for run in store.runs.newest(limit=2)] == ["b-2", "a-2"]
    assert [run.id for run in store.runs.newest(state="succeeded")] == ["b-2", "b-1", "a-1"]
    assert [run.id for run in store.runs.newest(state=("failed", "running"))] == ["a-2"]
    assert [run.id for run in store.runs.newest(workflow="b", limit=1)] == ["b-2"]
    assert [run.id for run in store.runs.newest(state="succeeded", workflow="b", since=102.0)] == ["b-2"]
    assert [run.id for run in store.runs.newest(since=102.0)] == ["b-2", "a-2"]


def test_a_batch_comes_back(store: Store) -> None:
    run = new_run(store, owner="e")
    made = batch(run.number, range(2, 1203))
    made.outbox.append((run.number, 2, "callback", '{"url":"x"}', "k", 1.0, 1.0))
    write(store, made, "e")
    assert [event.seq for event in store.runs.events(run.number)] == list(range(1, 1203))
    assert [event.seq for event in store.runs.events(run.number, after=1000, limit=3)] == [1001, 1002, 1003]
    assert [event.seq for event in store.runs.events(run.number, limit=1001)][-1] == 1001
    assert event_count(store, run.number) == 1202
    seen = store.runs.by_id(run.id)
    assert seen and (seen.seq, seen.state, seen.engine, seen.counts) == (1202, "running", "e", {"succeeded": 1202})
    assert store.results.lookup(["key-1-2", "none"])["key-1-2"].outputs == {"out": 2}
    assert len(store.results.lookup([f"key-1-{n}" for n in range(3000)])) == 1201


def test_events_of_some_kinds_only(store: Store) -> None:
    run = new_run(store, owner="e").number
    made = WriteBatch(events=[(run, n, 1.0, f"kind.{n % 3}", "", "{}") for n in range(2, 4000)])
    made.events.append((run, 4000, 1.0, "run.finished", "", "{}"))
    write(store, made, "e")
    assert [event.seq for event in store.runs.events(run, kinds=["kind.0", "kind.1"])] == [
        n for n in range(2, 4000) if n % 3 < 2
    ]
    assert [event.seq for event in store.runs.events(run, 100, 2, ("kind.2",))] == [101, 104]
    assert [event.seq for event in store.runs.events(run, kinds=["run.finished", "run.submitted"])] == [1, 4000]
    assert list(store.runs.events(run, kinds=[])) == list(store.runs.events(run, kinds=["none"])) == []


def test_an_older_result_of_a_key_is_replaced(store: Store) -> None:
    run = new_run(store, owner="e")
    made = WriteBatch(results=[("k", "1", run.number, "a", 1.0)])
    write(store, made, "e")
    made = WriteBatch(results=[("k", "2", run.number, "b", 2), ("k", "3", run.number, "c", 2.5)])
    write(store, made, "e")
    assert store.results.lookup(["k"])["k"] == Result("k", 3, run.number, "c", 2.5)  # type: ignore[arg-type]


def test_tasks_are_found_by_state_and_step_and_counted(store: Store) -> None:
    run = new_run(store, owner="e")
    made = WriteBatch()
    for n, (step, state) in enumerate([("a", "succeeded"), ("a", "failed"), ("b", "succeeded"), ("B", "running")]):
        task = f"{step}[{n}]"
        made.tasks[run.number, task] = (
            run.number,
            task,
            step,
            state,
            1,
            "",
            10.0 + n,
            None if n == 3 else 20.0 + n,
            "{}",
        )
    write(store, made, "e")
    made = WriteBatch()
    made.tasks[run.number, "a[1]"] = (run.number, "a[1]", "a", "succeeded", 2, "k", 30, 40, '{"exit_code":0}')
    write(store, made, "e")
    assert [row.task for row in store.runs.tasks(run.number)] == ["B[3]", "a[0]", "a[1]", "b[2]"]
    assert [row.task for row in store.runs.tasks(run.number, step="a")] == ["a[0]", "a[1]"]
    assert [row.task for row in store.runs.tasks(run.number, ["succeeded"], limit=2, offset=1)] == ["a[1]", "b[2]"]
    assert store.runs.tasks(run.number, []) == []
    row = store.runs.task(run.number, "a[1]")
    assert row and (row.attempt, row.key, row.started, row.ended, row.info) == (2, "k", 30.0, 40.0, {"exit_code": 0})
    assert store.runs.task(run.number, "none") is None
    assert store.runs.task_counts(run.number) == {
        ("a", "succeeded"): (2, 10.0, 40.0),
        ("b", "succeeded"): (1, 12.0, 22.0),
        ("B", "running"): (1, 13.0, None),
    }


def test_texts_of_any_kind_come_back(store: Store) -> None:
    """Per cent, question marks and quotes mean something to one library or the other; NUL is no text for PostgreSQL."""
    strange = "100% ? %s :x 'quoted\" \\ \u2603 \U0001f600 line\nend"
    run = store.runs.create("flow", "d", strange, {"p": strange + "\0"}, {"o": [strange]}, strange, 1.0)
    assert store.runs.by_id(run.id) == run
    assert run.params == {"p": strange + "\0"}
    assert store.runs.document("d") == strange


def test_only_one_engine_owns_a_run(store: Store) -> None:
    run = new_run(store)
    assert store.runs.take(run.number, "a", None)
    assert not store.runs.take(run.number, "b", None)
    assert store.runs.take(run.number, "a", None), "asked again, because the answer was lost"
    assert not store.runs.take(run.number, "b", "c")
    assert store.runs.take(run.number, "b", "a")
    assert not store.runs.release(run.number, "a", "failed")
    assert store.runs.release(run.number, "b", "succeeded")
    seen = store.runs.by_id(run.id)
    assert seen and (seen.engine, seen.state) == (None, "succeeded")


def test_an_engine_that_lost_its_run_writes_nothing(store: Store, another: Callable[..., Store]) -> None:
    run, mine = new_run(store, owner="old"), new_run(store, owner="old")
    assert another().runs.take(run.number, "new", "old")
    made = batch(mine.number, [2])
    made.runs.update(batch(run.number, [2]).runs)
    store.journal.begin()
    with pytest.raises(Fenced):
        store.journal.flush(made, "old")
    assert not store.journal.in_transaction
    assert event_count(store, mine.number) == 1
    write(store, batch(run.number, [2]), "new")


def test_an_engine_that_loses_its_run_after_it_began_writes_nothing(postgres_url: str) -> None:
    """PostgreSQL only: in SQLite nobody can take a run while another one writes."""
    with open_store(postgres_url) as store, open_store(postgres_url) as other:
        run = new_run(store, owner="old")
        store.journal.begin()
        assert store.runs.by_id(run.id)
        assert other.runs.take(run.number, "new", "old")
        with pytest.raises(Fenced):
            store.journal.flush(batch(run.number, [2]), "old")
        assert event_count(store, run.number) == 1


def test_a_sequence_number_cannot_be_used_twice(store: Store) -> None:
    run = new_run(store, owner="e")
    write(store, batch(run.number, [2, 3]), "e")
    store.journal.begin()
    with pytest.raises(StoreError) as caught:
        store.journal.flush(batch(run.number, [3, 4]), "e")
    assert caught.value.code == "P607"
    assert not store.journal.in_transaction
    assert [event.seq for event in store.runs.events(run.number)] == [1, 2, 3]
    assert store.journal.committed(run.number, 3)
    assert not store.journal.committed(run.number, 4)
    assert not store.journal.committed(99, 1)


def test_what_is_rolled_back_never_was(store: Store) -> None:
    run = new_run(store, owner="e")
    store.journal.begin()
    store.journal.flush(batch(run.number, [2]), "e")
    store.results.claim([("k", run.number, "t")], "e")
    store.journal.rollback()
    store.journal.rollback()
    assert (event_count(store, run.number), store.results.holders(["k"])) == (1, {})


def test_writing_without_a_transaction_is_refused(store: Store) -> None:
    with pytest.raises(AssertionError):
        store.journal.flush(batch(1, [2]), "e")
    with pytest.raises(AssertionError):
        store.results.claim([("k", 1, "t")], "e")


def test_changed_tells_that_somebody_else_has_written(store: Store, another: Callable[..., Store]) -> None:
    other = another()
    before = store.peers.changed()
    assert store.peers.changed() == before
    new_run(other)
    assert store.peers.changed() != before


def test_engines_beat_and_are_forgotten_with_what_they_held(store: Store) -> None:
    run = new_run(store)
    for id in ("a", "b"):
        store.peers.register(EngineRecord(id, "host", 1, "born", 0))
    assert store.peers.beat("a")
    assert store.peers.beat("a")
    assert [(engine.id, engine.beat) for engine in store.peers.engines()] == [("a", 2), ("b", 0)]
    store.journal.begin()
    store.results.claim([("x", run.number, "t")], "a")
    store.results.claim([("y", run.number, "t")], "b")
    store.results.claim([("y", run.number, "t")], "a")
    store.journal.commit()
    store.peers.forget("a")
    assert not store.peers.beat("a")
    assert [engine.id for engine in store.peers.engines()] == ["b"]
    assert list(store.results.holders(["x", "y"])) == ["y"]
    assert store.results.waiting("a") == []


def test_requests_are_read_in_order_until_they_are_handled(store: Store) -> None:
    runs = [new_run(store, owner="e").number for _ in range(3)]
    numbers = [store.runs.request(run, "cancel", {"why": n}) for n, run in enumerate([*runs, runs[0]])]
    assert [(r.number, r.run, r.verb, r.data) for r in store.runs.requests(0, runs[:2])] == [
        (numbers[0], runs[0], "cancel", {"why": 0}),
        (numbers[1], runs[1], "cancel", {"why": 1}),
        (numbers[3], runs[0], "cancel", {"why": 3}),
    ]
    write(store, WriteBatch(handled=[numbers[0], numbers[1]]), "e")
    assert [r.number for r in store.runs.requests(0, runs)] == numbers[2:]
    assert [r.number for r in store.runs.requests(numbers[2], runs)] == numbers[3:]
    assert store.runs.requests(0, []) == []


def test_a_batch_is_true_if_there_is_anything_in_it_and_clear_empties_it() -> None:
    assert not WriteBatch()
    for name in WriteBatch.__slots__:
        made = WriteBatch()
        part = getattr(made, name)
        if isinstance(part, dict):
            part[1] = (1,)
        else:
            part.append((1,))
        assert made, name
        made.clear()
        assert not made, name


def test_old_runs_are_deleted_with_what_only_they_refer_to(store: Store) -> None:
    gone, kept, busy = (new_run(store, name, owner="e") for name in ("gone", "kept", "busy"))
    write(store, batch(gone.number, [2, 3]), "e")
    made = batch(kept.number, [2])
    row = (kept.number, "reused", "r", "reused", 1, f"key-{gone.number}-3", None, None, "{}")
    made.tasks[kept.number, "reused"] = row
    made.results.append(("young", "{}", gone.number, "t", 50.0))
    write(store, made, "e")
    store.runs.request(gone.number, "cancel", {})
    for run in (gone, kept):
        store.runs.release(run.number, "e", "succeeded")
    assert store.maintenance.delete_runs([gone.number, busy.number, 99], before=10.0) == (1, 1)
    assert [run.id for run in store.runs.newest()] == ["busy-1", "kept-1"]
    assert (event_count(store, gone.number), store.runs.tasks(gone.number), store.runs.requests(0, [gone.number])) == (
        0,
        [],
        [],
    )
    keys = [f"key-{gone.number}-2", f"key-{gone.number}-3", f"key-{kept.number}-2", "young"]
    assert sorted(store.results.lookup(keys)) == sorted(keys[1:])
    with pytest.raises(KeyError):
        store.runs.document(gone.digest)
    assert store.runs.document(kept.digest)
    assert new_run(store, "gone").id == "gone-2", "an id is never used again"
    store.maintenance.vacuum()


def test_every_blob_that_a_record_speaks_of_is_found(store: Store) -> None:
    digests = [f"sha256:{n:064x}" for n in range(7)]
    run = store.runs.create("f", "d", f'{{"code":"{digests[0]}"}}', {"p": digests[1]}, {"bundle": digests[2]}, "", 1.0)
    store.runs.take(run.number, "e", None)
    made = WriteBatch()
    made.events.append((run.number, 2, 1.0, "task.succeeded", "t", f'{{"out":["{digests[3]}"]}}'))
    made.results.append(("k", f'{{"out":"{digests[4]}","no":"sha256:12"}}', run.number, "t", 1.0))
    made.tasks[run.number, "t"] = (run.number, "t", "t", "succeeded", 1, "k", 1.0, 2.0, f'{{"log":"{digests[5]}"}}')
    made.runs[run.number] = (2, "succeeded", 2.0, "{}", f'{{"o":"{digests[6]}"}}', "", 0)
    write(store, made, "e")
    assert store.maintenance.referenced_blobs() == set(digests)


@pytest.fixture(scope="module")
def one_of_each(request: pytest.FixtureRequest) -> list[str]:
    from tests.support.postgres import binaries

    folders = [tempfile.mkdtemp()]
    if binaries():
        folders.append(request.getfixturevalue("postgres").database())
    return folders


@settings(max_examples=30, deadline=None)
@given(sizes=st.lists(st.integers(0, 40), max_size=8), fail=st.sets(st.integers(0, 7)))
def test_events_come_back_in_order_none_lost_none_doubled(
    one_of_each: list[str], sizes: list[int], fail: set[int]
) -> None:
    """Batches of any size; some are rolled back and written again, as after a lost connection."""
    for where in one_of_each:
        with open_store(where) as store:
            run = new_run(store, owner="e").number
            last = 1
            for turn, size in enumerate(sizes):
                made = batch(run, range(last + 1, last + 1 + size))
                made.runs[run] = (last + size, "running", None, "{}", None, "", 0)
                if turn in fail:
                    store.journal.begin()
                    store.journal.flush(made, "e")
                    store.journal.rollback()
                    store.journal.reconnect(0)
                    assert store.journal.committed(run, last) and (
                        not size or not store.journal.committed(run, last + size)
                    )
                write(store, made, "e")
                last += size
            assert [event.seq for event in store.runs.events(run)] == list(range(1, last + 1))
            assert len(store.runs.tasks(run)) == last - 1


def test_the_folder_is_not_for_git(tmp_path: Path) -> None:
    open_store(str(tmp_path / "a" / "b")).close()
    assert (tmp_path / "a" / "b" / ".gitignore").read_text() == "*\n"
    assert (tmp_path / "a" / "b" / "state.db").exists()
