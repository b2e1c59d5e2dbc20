"""gc: what is old and finished goes with everything that only it needed; what is not finished never does."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.artifacts.blobs import Blobs
from penstock.graph.model import Script, Step, Workflow
from penstock.service.cleanup import Cleanup
from penstock.store.sql import open_store
from tests.cli import history
from tests.cli.history import Hand

Run = Callable[..., Any]
ONE = Workflow(name="one", steps=(Step(name="fetch", action=Script(source="true")),))
DAY = 86400.0


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "home"
    monkeypatch.setenv("PENSTOCK_HOME", str(place))
    for name in ("PENSTOCK_STORE", "PENSTOCK_ARTIFACTS"):
        monkeypatch.delenv(name, raising=False)
    return place


def finished(home: Path, ago: float, state: str = "succeeded", **outputs: Any) -> Hand:
    """A run that ended so many days ago, with a log and a scratch folder of its own."""
    hand = Hand(home, ONE, ago=ago * DAY)
    name = hand.log("fetch", "x" * 1000)
    hand.task("fetch", "fetch", state, log=[[name, 0, 1000]])
    (home / "work" / hand.id / "fetch.1").mkdir(parents=True)
    (home / "work" / hand.id / "fetch.1" / "script").write_text("y" * 500)
    hand.finish(state, **outputs)
    hand.die()
    for folder in ("logs", "work"):
        age(home / folder / hand.id, ago * DAY)
    return hand


def age(path: Path, seconds: float = 7200.0) -> None:
    then = time.time() - seconds
    for each in [*path.rglob("*"), path] if path.is_dir() else [path]:
        os.utime(each, (then, then))


def names(penstock: Run) -> list[str]:
    return [one["run"] for one in json.loads(penstock("ls", "-o", "json").out)]


def test_old_finished_runs_go_with_their_logs_and_scratch(penstock: Run, home: Path) -> None:
    for ago in (90, 60, 40, 1):
        finished(home, ago)
    result = penstock("gc", "--yes", "-o", "json")
    data = json.loads(result.out)
    assert data["removed"] and data["runs"] == ["one-3", "one-2", "one-1"]
    assert data["bytes"]["folders"] == 3 * 1500
    assert names(penstock) == ["one-4"]
    assert sorted(path.name for path in (home / "logs").iterdir()) == ["one-4"]
    assert sorted(path.name for path in (home / "work").iterdir()) == ["one-4"]


def test_the_newest_of_a_workflow_are_kept_however_old(penstock: Run, home: Path) -> None:
    for ago in (90, 60, 40):
        finished(home, ago)
    result = penstock("gc", "--keep", "2", "--yes")
    assert names(penstock) == ["one-3", "one-2"]
    assert "kept as the newest of their workflows: 2" in result.err
    assert "1" in result.out.splitlines()[1].split("\t")[1] and "one-1" in result.out
    penstock("gc", "--keep", "0", "--older", "50d", "--yes")
    assert names(penstock) == ["one-3"]


@pytest.mark.parametrize("state", ["running", "stopped", "lost"])
def test_a_run_that_is_not_finished_is_never_touched(penstock: Run, home: Path, state: str) -> None:
    hand = Hand(home, ONE, ago=90 * DAY)
    name = hand.log("fetch", "text")
    (home / "work" / hand.id).mkdir(parents=True)
    blob = Blobs(home / "artifacts").put(b"needed")
    hand.task("fetch", "fetch", "succeeded", log=[[name, 0, 4]], value={"digest": blob})
    hand.write()
    if state == "stopped":
        hand.store.runs.release(hand.number, hand.me.id, "stopped")
    elif state == "lost":
        hand.store.peers.forget(hand.me.id)
    age(home / "logs")
    age(home / "work")
    age(home / "artifacts")
    assert penstock("gc", "--older", "0s", "--keep", "0", "--yes").code == 0
    assert names(penstock) == ["one-1"]
    assert (home / name).exists() and (home / "work" / hand.id).exists() and Blobs(home / "artifacts").has(blob)
    hand.store.close()


def test_blobs_that_no_record_speaks_of_go_unless_they_are_young(penstock: Run, home: Path) -> None:
    blobs = Blobs(home / "artifacts")
    old, young = blobs.put(b"old" * 100), blobs.put(b"young")
    kept, shared, lone = blobs.put(b"kept"), blobs.put(b"shared"), blobs.put(b"lone")
    age(home / "artifacts")
    os.utime(blobs.local(young) or "")
    finished(home, 90, a={"$stored": {"digest": lone}}, b={"$stored": {"digest": shared}})
    finished(home, 1, a={"$stored": {"digest": kept}}, b={"$stored": {"digest": shared}})
    dry = json.loads(penstock("gc", "--dry-run", "-o", "json").out)
    assert not dry["removed"] and dry["blobs"] == 1 and dry["bytes"]["blobs"] == 300 and dry["runs"] == ["one-1"]
    assert blobs.has(old) and names(penstock) == ["one-2", "one-1"]
    data = json.loads(penstock("gc", "--yes", "-o", "json").out)
    assert data["blobs"] == 2 and data["bytes"]["blobs"] == 304
    assert [blobs.has(one) for one in (old, lone, kept, shared, young)] == [False, False, True, True, True]


def test_logs_of_engines_stay_as_long_as_a_run_of_theirs(penstock: Run, home: Path) -> None:
    first, second = finished(home, 90), finished(home, 1)
    stray, alive = "e" * 32, Hand(home, ONE)
    earlier = "f" * 32  # began what `alive` goes on with
    alive.event("run.started", "", engine=earlier)
    alive.write()
    for engine in (first.me.id, second.me.id, stray, alive.me.id, earlier):
        (home / "logs" / engine).mkdir(parents=True)
        (home / "work" / engine / "worker-1").mkdir(parents=True)
    age(home / "logs")
    age(home / "work")
    penstock("gc", "--yes")
    for folder in ("logs", "work"):
        left = {path.name for path in (home / folder).iterdir()}
        assert {second.me.id, alive.me.id, earlier} <= left and not {first.me.id, stray} & left
    alive.close()


def test_a_folder_that_was_touched_a_moment_ago_stays(penstock: Run, home: Path) -> None:
    finished(home, 1)
    (home / "work" / "unknown").mkdir()
    penstock("gc", "--yes")
    assert (home / "work" / "unknown").exists()


def test_what_was_run_really_can_be_run_again_after_it_was_removed(penstock: Run, home: Path) -> None:
    history.run(home, history.fine)
    penstock("gc", "--older", "0s", "--keep", "0", "--yes")
    assert names(penstock) == []
    again = history.run(home, history.fine)
    assert again.ok and not any(row.state == "reused" for row in again.tasks)


def test_somebody_must_say_yes(penstock: Run, home: Path) -> None:
    finished(home, 90)
    result = penstock("gc")
    assert result.code == 2 and "P509" in result.err
    assert names(penstock) == ["one-1"]


def test_blobs_that_others_may_use_stay(
    penstock: Run, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finished(home, 90)
    monkeypatch.setenv("PENSTOCK_ARTIFACTS", str(tmp_path / "shared"))
    blobs = Blobs(tmp_path / "shared")
    digest = blobs.put(b"of somebody else")
    age(tmp_path / "shared")
    assert "--shared" in penstock("gc", "--yes").err
    assert blobs.has(digest)
    penstock("gc", "--yes", "--shared")
    assert not blobs.has(digest)


def test_a_home_with_two_stores_keeps_its_folders(
    penstock: Run, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finished(home, 90)
    other = tmp_path / "other"
    open_store(str(other)).close()
    monkeypatch.setenv("PENSTOCK_STORE", str(other))
    result = penstock("gc", "--older", "0s", "--yes")
    assert "a store of its own" in result.err
    assert (home / "logs" / "one-1").exists()


def test_a_run_that_somebody_retries_at_this_moment_is_left_alone(
    penstock: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand = finished(home, 90, "failed")
    original = Cleanup.remove

    def remove(self: Cleanup) -> None:
        with sqlite3.connect(home / "state.db") as db:
            db.execute("UPDATE runs SET engine = 'another', state = 'running'")
        db.close()
        original(self)

    monkeypatch.setattr(Cleanup, "remove", remove)
    data = json.loads(penstock("gc", "--keep", "0", "--yes", "-o", "json").out)
    assert data["runs"] == [] and names(penstock) == [hand.id]
    assert (home / "logs" / hand.id).exists()


@pytest.mark.parametrize("write", ["blobs.put(b'half' * 1000)", "blobs.put_file(__file__)"])
def test_what_a_killed_writer_left_goes_unless_it_is_young(
    write: str, penstock: Run, home: Path, tmp_path: Path
) -> None:
    finished(home, 1)
    text = (
        f"import os, signal\nfrom penstock.artifacts.blobs import Blobs\nblobs = Blobs({str(home / 'artifacts')!r})\n"
    )
    (tmp_path / "writer.py").write_text(
        f"{text}os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n{write}\n"
    )
    assert subprocess.run([sys.executable, str(tmp_path / "writer.py")], timeout=60).returncode == -9
    (left,) = [path for path in (home / "artifacts").rglob("*") if path.is_file()]
    kept = Blobs(home / "artifacts").put(b"another")
    assert penstock("gc", "--yes").code == 0 and left.exists()
    age(left)
    assert penstock("gc", "--yes").code == 0 and not left.exists()
    assert Blobs(home / "artifacts").has(kept)
