"""Stores that are new, old, damaged, full, read-only, locked or gone."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.errors import StoreError
from penstock.store import migrate
from penstock.store.records import Disconnected
from penstock.store.sql import Store, open_store
from tests.store.work import batch, event_count, new_run, processes, start, write
from tests.support.postgres import Server


@contextlib.contextmanager
def small_disk_at(place: Path, size: str) -> Iterator[Path]:
    """A disk of this size, if we may mount one."""
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)]
    if os.geteuid() or not shutil.which("mount") or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("only root, and not in every container, can mount a small disk")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk_at(tmp_path / "disk", "2m") as place:
        yield place


def code_of(work: Callable[[], object]) -> str:
    with pytest.raises(StoreError) as caught:
        work()
    assert caught.value.exit_code == 1
    assert caught.value.problems[0].fix
    return caught.value.code


# New and old


def test_twelve_processes_open_a_new_store_at_once(where: str) -> None:
    ids = {id for said in processes("open", where, 12) for id in said}
    assert len(ids) == 1


def test_a_newer_schema_is_refused_and_left_alone(where: str) -> None:
    with open_store(where) as store:
        store._db.write("put_meta", (migrate.VERSION, "99"))
    with pytest.raises(StoreError, match=r"P602 .*schema 99; this one knows 14.*upgrade"):
        open_store(where)


def test_an_older_store_is_brought_forward_and_keeps_what_is_in_it(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store(where) as store:
        run, id = new_run(store), store.id
    folder = tmp_path / "migrations"
    shutil.copytree(migrate.FOLDER, folder)
    (folder / "0099_more.sql").write_text(
        "-- more; of it\nCREATE TABLE more (n BIGINT) ;\nINSERT INTO more VALUES (1);\n"
    )
    monkeypatch.setattr(migrate, "FOLDER", str(folder))
    with open_store(where) as store, open_store(where) as again:
        assert (store.runs.by_id(run.id), store.id) == (run, id)
        assert migrate.version(again._db) == len(migrate.known()) == 15


def test_a_migration_that_fails_leaves_nothing_behind(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "migrations"
    shutil.copytree(migrate.FOLDER, folder)
    (folder / "0099_wrong.sql").write_text("CREATE TABLE half (n BIGINT);\nCREATE NONSENSE;\n")
    with monkeypatch.context() as patch:
        patch.setattr(migrate, "FOLDER", str(folder))
        assert code_of(lambda: open_store(where)) == "P607"
    with open_store(where) as store:
        assert new_run(store).number == 1


def test_opening_for_sqlite_imports_neither_psycopg_nor_asyncio(tmp_path: Path) -> None:
    code = "import sys; from penstock.store.sql import open_store; open_store(sys.argv[1]).close(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert not {"psycopg", "asyncio", "socket", "subprocess"} & set(done.stdout.split())


def test_without_psycopg_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    monkeypatch.delitem(sys.modules, "penstock.store.drivers.postgres", raising=False)
    with pytest.raises(StoreError, match=r"P605 .*pip install 'penstock\[postgresql\]'"):
        open_store("postgresql://localhost/none")


# Files


def test_something_else_in_place_of_the_database(tmp_path: Path) -> None:
    (tmp_path / "state.db").write_bytes(b"this is no database, but long enough to look at" * 100)
    assert code_of(lambda: open_store(str(tmp_path))) == "P601"


def test_a_damaged_database(tmp_path: Path) -> None:
    with open_store(str(tmp_path)) as store:
        run = new_run(store, owner="e")
        write(store, batch(run.number, range(2, 2000)), "e")
    file = tmp_path / "state.db"
    data = bytearray(file.read_bytes())
    data[4096 * 3 :] = os.urandom(len(data) - 4096 * 3)
    file.write_bytes(data)

    def use() -> None:
        with open_store(str(tmp_path)) as store:
            list(store.runs.events(run.number))
            store.runs.tasks(run.number)

    assert code_of(use) == "P601"


def test_a_file_where_the_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert code_of(lambda: open_store(str(tmp_path / "file"))) == "P605"


def test_a_full_disk_loses_nothing_that_was_recorded(small_disk: Path) -> None:
    folder = str(small_disk / ".penstock")
    with open_store(folder) as store:
        run, done = new_run(store, owner="e"), 1

        def fill() -> None:
            nonlocal done
            while True:
                write(store, batch(run.number, range(done + 1, done + 101)), "e")
                done += 100

        with pytest.raises(
            StoreError, match=r"P604 .*nothing recorded is lost; free space, then penstock resume"
        ) as caught:
            fill()
        assert caught.value.code == "P604"
        assert done > 100
        assert not store.journal.in_transaction
        assert [event.seq for event in store.runs.events(run.number)] == list(range(1, done + 1))
        subprocess.run(["mount", "-o", "remount,size=8m", str(small_disk)], check=True)
        write(store, batch(run.number, range(done + 1, done + 101)), "e")
    with open_store(folder) as store:
        assert event_count(store, run.number) == done + 100


def test_a_database_that_may_not_grow_says_full(tmp_path: Path) -> None:
    """The same without root."""
    with open_store(str(tmp_path)) as store:
        run = new_run(store, owner="e")
        store._db.statement("PRAGMA max_page_count = 60")
        assert code_of(lambda: write(store, batch(run.number, range(2, 2000)), "e")) == "P604"
        assert event_count(store, run.number) == 1


def test_a_full_disk_from_the_start(small_disk: Path) -> None:
    with contextlib.suppress(OSError), open(small_disk / "rest", "wb", buffering=0) as file:
        while file.write(b"x" * 4096):
            pass
    assert code_of(lambda: open_store(str(small_disk / ".penstock"))) == "P604"


@pytest.mark.parametrize("left", ["closed", "in use"])
def test_a_read_only_disk_can_be_read_and_the_first_write_is_refused(small_disk: Path, left: str) -> None:
    folder = str(small_disk / ".penstock")
    store = open_store(folder)
    run = new_run(store)
    if left == "closed":
        store.close()
        subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    else:
        copy = small_disk / "copy"
        shutil.copytree(folder, copy)
        store.close()
        folder = str(copy)
        assert (copy / "state.db-wal").stat().st_size
        subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with open_store(folder) as store:
        assert store.runs.by_id("flow-1") == run
        assert [found.id for found in store.runs.newest()] == ["flow-1"]
        assert code_of(lambda: new_run(store)) == "P603"
        store.journal.begin()
        assert code_of(lambda: store.journal.flush(batch(run.number, [2]), "e")) == "P603"
        assert not store.journal.in_transaction
        assert code_of(store.maintenance.vacuum) == "P603"
        assert store.runs.by_id("flow-1") == run
    assert code_of(lambda: open_store(str(small_disk / "new"))) == "P603"


@contextlib.contextmanager
def somebody() -> Iterator[None]:
    """Permissions mean nothing to root: be somebody else for a while."""
    if os.geteuid():
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.parametrize("what", ["folder", "file", "both"])
def test_a_store_that_may_only_be_read(what: str) -> None:
    # Not below tmp_path: somebody else could not walk into it.
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o777)
        folder = Path(place) / ".penstock"
        with somebody():
            with open_store(str(folder)) as store:
                run = new_run(store)
            if what != "folder":
                (folder / "state.db").chmod(0o444)
            if what != "file":
                folder.chmod(0o555)
            with open_store(str(folder)) as store:
                assert store.runs.by_id("flow-1") == run
                assert code_of(lambda: new_run(store)) == "P603"
                assert store.runs.by_id("flow-1") == run
            folder.chmod(0o755)


def test_a_folder_where_nothing_may_be_made_and_a_file_that_may_not_be_read() -> None:
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o777)
        folder = Path(place) / ".penstock"
        with somebody():
            folder.mkdir(mode=0o555)
            assert code_of(lambda: open_store(str(folder))) == "P603"
            assert code_of(lambda: open_store(str(folder / "deeper"))) == "P603"
            folder.chmod(0o755)
            open_store(str(folder)).close()
            (folder / "state.db").chmod(0)
            assert code_of(lambda: open_store(str(folder))) == "P605"


def test_a_database_that_may_only_be_read(postgres: Server, postgres_url: str) -> None:
    with open_store(postgres_url) as store:
        run = new_run(store)
    name = postgres_url.rpartition("/")[2]
    postgres.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    with open_store(postgres_url) as store:
        assert store.runs.by_id(run.id) == run
        assert code_of(lambda: new_run(store)) == "P603"
        assert store.runs.by_id(run.id) == run
    postgres.execute(f"CREATE ROLE guest_of_{name} LOGIN")
    postgres.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only")
    guest = postgres_url.replace("penstock@", f"guest_of_{name}@")
    assert code_of(lambda: open_store(guest)) == "P603"


def test_a_process_that_is_killed_in_the_middle_leaves_nothing_and_holds_nobody_up(where: str) -> None:
    with open_store(where) as store:
        run = new_run(store, owner="e").number
        process = start("die", where, 0, run)
        assert process.stdout and process.stdout.readline() == "ready\n"
        process.kill()
        process.communicate()
        write(store, batch(run, [2]), "e")
        assert [event.seq for event in store.runs.events(run)] == [1, 2]
        assert store.results.holders(["k"]) == {}


def test_a_lock_that_is_held_too_long(where: str, store: Store, another: Callable[..., Store]) -> None:
    run = new_run(store, owner="e")
    other = another(busy=0.05)
    store.journal.begin()
    store.journal.flush(batch(run.number, [2]), "e")
    assert code_of(lambda: other.runs.take(run.number, "f", "e")) == "P606"
    seen = other.runs.by_id(run.id)
    assert seen and seen.seq == 1, "reading does not wait"
    store.journal.commit()
    assert other.runs.take(run.number, "f", "e")


def test_no_exception_of_sqlite_gets_out(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    store.close()
    for work in (
        store.runs.newest,
        store.journal.begin,
        store.peers.changed,
        store.maintenance.vacuum,
        lambda: store.results.holders(["k"]),
    ):
        assert code_of(work) == "P607"
    store.journal.rollback()
    store.close()


# A server that goes away, or has no room


def test_a_server_with_a_full_disk(postgres: Server) -> None:
    with small_disk_at(postgres.home / "disk", "12m") as disk:
        owner = postgres.home.stat()
        os.chown(disk, owner.st_uid, owner.st_gid)
        postgres.execute(f"CREATE TABLESPACE small LOCATION '{disk}'")
        postgres.execute("CREATE DATABASE small TABLESPACE small")
        with open_store(postgres.url("small")) as store:
            run, done = new_run(store, owner="e").number, 1

            def fill() -> None:
                nonlocal done
                while True:
                    write(store, batch(run, range(done + 1, done + 501)), "e")
                    done += 500

            assert code_of(fill) == "P604"
            assert not store.journal.in_transaction
            assert event_count(store, run) == done > 1
        # Room again: whoever connects may have to write out somebody else's pages, and the other tests use this server.
        subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True)
        postgres.execute("DROP DATABASE small")
        postgres.execute("DROP TABLESPACE small")


def terminate(store: Store, server: Server) -> None:
    """Ends the connection of the store, from the server's side."""
    server.execute("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = 'penstock'")


def test_a_server_that_is_not_there(tmp_path: Path) -> None:
    assert code_of(lambda: open_store("postgresql://me:secret@127.0.0.1:1/none")) == "P605"
    with pytest.raises(StoreError) as caught:
        open_store("postgresql://me:secret@127.0.0.1:1/none?password=secret")
    assert "secret" not in str(caught.value)


def test_readers_and_single_writers_do_not_notice_a_lost_connection(postgres: Server, postgres_url: str) -> None:
    with open_store(postgres_url) as store:
        run = new_run(store)
        terminate(store, postgres)
        assert store.runs.by_id(run.id) == run
        terminate(store, postgres)
        assert store.runs.take(run.number, "e", None)
        terminate(store, postgres)
        assert new_run(store).id == "flow-2"


def test_a_connection_lost_in_a_transaction_then_written_again(postgres: Server, postgres_url: str) -> None:
    with open_store(postgres_url) as store:
        run = new_run(store, owner="e")
        made = batch(run.number, [2, 3])
        steps: list[Callable[[], object]] = [
            lambda: store.journal.flush(made, "e"),
            lambda: store.results.claim([("k", run.number, "t")], "e"),
            lambda: store.runs.by_id(run.id),
            store.journal.commit,
            store.peers.changed,
            lambda: store.results.lookup(["k"]),
            lambda: store.peers.beat("e"),
        ]
        for step in steps:
            store.journal.begin()
            store.journal.flush(made, "e")
            terminate(store, postgres)
            with pytest.raises(Disconnected):
                step()
            assert not store.journal.in_transaction
            store.journal.reconnect(10)
            assert not store.journal.committed(run.number, 3)
        terminate(store, postgres)
        with pytest.raises(Disconnected):
            store.journal.begin()
        store.journal.reconnect(10)
        write(store, made, "e")
        assert store.journal.committed(run.number, 3)
        assert [event.seq for event in store.runs.events(run.number)] == [1, 2, 3]


def test_what_was_claimed_before_the_connection_was_lost_is_held_after_it(postgres: Server, postgres_url: str) -> None:
    with open_store(postgres_url) as store:
        run = new_run(store, owner="e")
        store.journal.begin()
        store.results.claim([("theirs", 9, "t")], "other")
        store.journal.commit()
        store.journal.begin()
        for _ in range(2):
            store.results.claim([("mine", run.number, "t"), ("theirs", run.number, "u")], "e")
        terminate(store, postgres)
        made = batch(run.number, [2])
        with pytest.raises(Disconnected):
            store.journal.flush(made, "e")
        store.journal.reconnect(10)
        assert (store.results.holders(["mine"]), store.results.waiting("e")) == ({}, [])
        write(store, made, "e")
        assert store.results.holders(["mine"])["mine"].engine == "e"
        assert [waiting.key for waiting in store.results.waiting("e")] == ["theirs"]


def test_a_lease_that_was_given_back_in_a_commit_whose_answer_was_lost_stays_given_back(
    postgres: Server, postgres_url: str
) -> None:
    with open_store(postgres_url) as store:
        run = new_run(store, owner="e")
        made = batch(run.number, [2])
        made.released.append("k")
        store.journal.begin()
        store.results.claim([("k", run.number, "t")], "e")
        store.journal.flush(made, "e")
        plain = store._db.statement

        def commit_and_lose(sql: str) -> None:
            plain(sql)
            terminate(store, postgres)
            plain("SELECT 1")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(store._db, "statement", commit_and_lose)
            with pytest.raises(Disconnected):
                store.journal.commit()
        store.journal.reconnect(10)
        store.journal.begin()
        assert store.journal.committed(run.number, 2)
        store.journal.commit()
        write(store, batch(run.number, [3]), "e")
        assert store.results.holders(["k"]) == {}


def test_a_commit_whose_answer_was_lost_is_known_to_have_happened(postgres: Server, postgres_url: str) -> None:
    with open_store(postgres_url) as store:
        run = new_run(store, owner="e")
        plain = store._db.statement

        def commit_and_lose(sql: str) -> None:
            plain(sql)
            if sql == "COMMIT":
                terminate(store, postgres)
                plain("SELECT 1")

        store._db.statement = commit_and_lose  # type: ignore[method-assign]
        with pytest.raises(Disconnected):
            write(store, batch(run.number, [2]), "e")
        # A run is not created twice when nobody knows whether it was created.
        store.journal.reconnect(10)
        assert code_of(lambda: new_run(store)) == "P605"
        store._db.statement = plain  # type: ignore[method-assign]
        store.journal.reconnect(10)
        assert store.journal.committed(run.number, 2)
        assert len(store.runs.newest()) == 2


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT])
def test_a_server_that_is_restarted_in_the_middle(postgres: Server, postgres_url: str, how: signal.Signals) -> None:
    store = open_store(postgres_url)
    run = new_run(store, owner="e")
    write(store, batch(run.number, [2]), "e")
    store.journal.begin()
    store.journal.flush(batch(run.number, [3]), "e")
    postgres.stop(how)
    try:
        with pytest.raises(Disconnected):
            store.journal.commit()
        assert code_of(lambda: store.journal.reconnect(0.2)) == "P605"
        assert code_of(lambda: store.runs.by_id(run.id)) == "P605"
        assert code_of(lambda: new_run(store)) == "P605"
    finally:
        starter = threading.Thread(target=postgres.start)
        starter.start()
    store.journal.reconnect(60)
    starter.join()
    assert store.journal.committed(run.number, 2)
    assert not store.journal.committed(run.number, 3)
    write(store, batch(run.number, [3]), "e")
    assert [event.seq for event in store.runs.events(run.number)] == [1, 2, 3]
    store.close()


def test_two_that_wait_for_each_other_crosswise_end_with_one_giving_way(postgres_url: str) -> None:
    """Cannot happen within one claim, whose keys are in order; with two claims in a transaction it can."""
    with open_store(postgres_url) as one, open_store(postgres_url) as two:
        one.journal.begin()
        two.journal.begin()
        one.results.claim([("a", 1, "t")], "one")
        two.results.claim([("b", 2, "t")], "two")
        gave_way: list[str] = []

        def cross(store: Store, key: str, engine: str) -> None:
            try:
                store.results.claim([(key, 1, "u")], engine)
                store.journal.commit()
            except Disconnected:
                gave_way.append(engine)

        thread = threading.Thread(target=cross, args=(one, "b", "one"))
        thread.start()
        cross(two, "a", "two")
        thread.join()
        assert len(gave_way) == 1
        loser = one if gave_way == ["one"] else two
        assert not loser.journal.in_transaction
        loser.journal.reconnect(0)
        loser.journal.begin()
        assert all(found.holder for found in loser.results.claim([("a", 3, "t"), ("b", 3, "t")], "loser").values())
        loser.journal.commit()


def test_sqlite_is_what_we_think_it_is(tmp_path: Path) -> None:
    """Written ahead, so that readers do not wait; the settings are per connection and must be made each time."""
    with open_store(str(tmp_path)) as store:
        db: sqlite3.Connection = store._db._db  # type: ignore[attr-defined]
        assert [db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")] == ["wal", 1]
