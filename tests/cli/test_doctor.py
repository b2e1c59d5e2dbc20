"""penstock doctor: what is wrong with a store and around it is named, and put right where that is possible."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from penstock import LocalRunner, task, workflow
from penstock.artifacts.blobs import Blobs
from penstock.service import stores
from penstock.settings import read
from penstock.store import liveness
from penstock.store.records import EngineRecord
from penstock.store.sql import open_store
from tests.cli.conftest import Result

FLOW = """
from penstock import task, workflow

@task
def numbers(n: int) -> list[int]:
    return list(range(n))

@task
def total(numbers: list[int]) -> int:
    return sum(numbers)

@workflow
def flow(n: int = 20000):
    return total(numbers(n))
"""
Penstock = Callable[..., Result]


@pytest.fixture
def home(penstock: Penstock, tmp_path: Path) -> Path:
    (tmp_path / "flow.py").write_text(FLOW)
    assert penstock("run", "flow.py").code == 0
    return tmp_path / ".penstock"


def found(penstock: Penstock, *words: str) -> dict[str, dict[str, Any]]:
    done = penstock("doctor", "-o", "json", *words)
    data = json.loads(done.out)
    states = {finding["check"]: finding for finding in data["findings"]}
    assert done.code == (0 if data["healthy"] else 1)
    assert data["healthy"] == all(finding["state"] != "problem" for finding in data["findings"])
    assert all(finding["fix"] for finding in data["findings"] if finding["state"] == "problem")
    return states


def test_a_healthy_store(penstock: Penstock, home: Path) -> None:
    states = found(penstock)
    assert {check: one["state"] for check, one in states.items()} == dict.fromkeys(
        ["versions", "owners", "rights", "database", "schema", "leases", "blobs"], "ok"
    )
    plain = penstock("doctor")
    assert plain.code == 0 and f"Python {sys.version.split()[0]}" in plain.out and "SQLite" in plain.out
    assert "podman" in plain.out or "docker" in plain.out


def test_no_store_is_no_illness(penstock: Penstock) -> None:
    assert penstock("doctor").code == 4


def test_rights_are_set(penstock: Penstock, home: Path) -> None:
    home.chmod(0o755)
    log = next((home / "artifacts").iterdir())
    log.chmod(0o777)
    assert found(penstock)["rights"]["state"] == "problem"
    home.chmod(0o755)  # opening the store closed the home itself
    assert found(penstock, "--repair")["rights"]["state"] == "repaired"
    assert found(penstock)["rights"]["state"] == "ok"
    assert log.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("left", [b"", b"\xff" * 9000])
def test_a_file_that_is_lost_gives_way_to_a_new_store(penstock: Penstock, home: Path, left: bytes) -> None:
    (home / "state.db").write_bytes(left)
    states = found(penstock)
    assert states["database"]["state"] == "problem" and "blobs" not in states
    assert (home / "state.db").read_bytes() == left  # only looked at
    assert found(penstock, "--repair")["database"]["state"] == "repaired"
    assert (home / "state.db.damaged-1").read_bytes() == left
    assert penstock("run", "flow.py").code == 0
    assert found(penstock)["database"]["state"] == "ok"


def test_what_can_be_read_of_a_damaged_file_is_saved(penstock: Penstock, home: Path) -> None:
    @task
    def same(n: int) -> int:
        return n

    @workflow
    def small(n: int):
        return same(n)

    with LocalRunner(inline=True) as runner:
        for n in range(60):
            runner.run(small, n=n)
    with open_store(str(home)) as store:
        id, runs = store.id, {run.id for run in store.runs.newest()}
    data = bytearray((home / "state.db").read_bytes())
    page = int.from_bytes(data[16:18], "big")
    with closing(sqlite3.connect(home / "state.db")) as db, db:
        # A page in the middle of the events, as a bad disk would leave it.
        pages = [row[0] for row in db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'events'")]
    db.close()
    root = pages[0]
    child = int.from_bytes(data[(root - 1) * page + 12 :][:2], "big")
    leaf = int.from_bytes(data[(root - 1) * page + child :][:4], "big")
    data[(leaf - 1) * page : leaf * page] = b"\xaa" * page
    (home / "state.db").write_bytes(data)
    assert found(penstock)["database"]["state"] == "problem"
    said = found(penstock, "--repair")["database"]
    assert said["state"] == "repaired" and "rows were saved" in said["text"] and "lost events" in said["text"]
    with open_store(str(home)) as store:
        assert store.id == id and {run.id for run in store.runs.newest()} == runs
    assert found(penstock)["database"]["state"] == "ok"
    assert penstock("run", "flow.py", "-p", "n=70").code == 0


def test_a_damaged_index_is_made_anew(penstock: Penstock, home: Path) -> None:
    db = sqlite3.connect(home / "state.db", isolation_level=None)
    db.execute("PRAGMA writable_schema = ON")
    sql = db.execute("SELECT sql FROM sqlite_master WHERE name = 'runs_by_state'").fetchone()[0]
    db.execute("UPDATE sqlite_master SET sql = ? WHERE name = 'runs_by_state'", (sql + " WHERE number < 0",))
    db.close()
    db = sqlite3.connect(home / "state.db", isolation_level=None)
    db.execute("UPDATE runs SET state = 'failed'")  # the index does not hear of it
    db.execute("PRAGMA writable_schema = ON")
    db.execute("UPDATE sqlite_master SET sql = ? WHERE name = 'runs_by_state'", (sql,))
    db.close()
    assert found(penstock)["database"]["state"] == "problem"
    said = found(penstock, "--repair")["database"]
    assert said["state"] == "repaired" and "indexes" in said["text"]
    assert not list(home.glob("*.damaged*"))
    assert found(penstock)["database"]["state"] == "ok"


def test_a_file_in_use_is_not_exchanged(penstock: Penstock, home: Path) -> None:
    if not os.path.isdir("/proc/self/fd"):
        pytest.skip("this system does not tell which files are open")
    code = "import sys; f = open(sys.argv[1]); print('open', flush=True); sys.stdin.readline()"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(home / "state.db")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as user:
        assert user.stdout is not None and user.stdout.readline() == b"open\n"
        (home / "state.db").write_bytes(b"")
        said = found(penstock, "--repair")["database"]
        assert said["state"] == "problem" and str(user.pid) in said["fix"]
        user.communicate(b"\n")
    assert found(penstock, "--repair")["database"]["state"] == "repaired"


def test_a_newer_schema_is_named_and_left_alone(penstock: Penstock, home: Path) -> None:
    with open_store(str(home)) as store:
        store.note("schema", "99")
    for words in ((), ("--repair",)):
        states = found(penstock, *words)
        assert states["schema"]["state"] == "problem" and "P602" in states["schema"]["text"]


def test_leases_of_dead_engines_are_freed(penstock: Penstock, home: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    me = liveness.identity()
    dead = EngineRecord("dead", me.host, process.pid, "1", 0)
    with open_store(str(home)) as store:
        store.peers.register(dead)
        store.peers.register(me)
        store.journal.begin()
        store.results.claim([("key", 1, "numbers")], "dead")
        store.results.claim([("other", 1, "total")], "never registered")
        store.journal.commit()
    assert "2, with 2 leases" in found(penstock)["leases"]["text"]
    assert found(penstock, "--repair")["leases"]["state"] == "repaired"
    with open_store(str(home)) as store:
        assert store.results.holders(["key", "other"]) == {}
        assert [engine.id for engine in store.peers.engines()] == [me.id]
    assert found(penstock)["leases"]["state"] == "ok"


@pytest.mark.parametrize("harm", ["flip", "cut", "remove"])
def test_damaged_blobs_are_removed_and_made_again(penstock: Penstock, home: Path, harm: str) -> None:
    blobs = Blobs(home / "artifacts")
    digest = max(blobs.all(), key=lambda blob: blob[1])[0]
    place = blobs.local(digest)
    assert place is not None
    place.chmod(0o600)
    data = place.read_bytes()
    if harm == "remove":
        place.unlink()
    else:
        place.write_bytes(data[:-1] + (b"" if harm == "cut" else b"?"))
        place.chmod(0o400)
    said = found(penstock)["blobs"]
    assert said["state"] == "problem" and digest[7:19] in said["text"] and "1 results" in said["fix"]
    assert found(penstock, "--repair")["blobs"]["state"] == "repaired"
    done = penstock("run", "flow.py", "--quiet")
    assert done.code == 0 and "199990000" in done.out
    assert stores.blobs_of(read()).get(digest) == data
    assert found(penstock)["blobs"]["state"] == "ok"


def test_a_store_in_postgresql(
    penstock: Penstock, tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_STORE", postgres_url)
    (tmp_path / "flow.py").write_text(FLOW)
    assert penstock("run", "flow.py").code == 0
    states = found(penstock)
    assert {one["state"] for one in states.values()} == {"ok"} and "answers" in states["database"]["text"]
