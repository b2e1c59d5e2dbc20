"""What an engine left behind is found by its environment, and ended; nothing else is."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.backends.local.orphans import end_orphans, find_orphans

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")

STUBBORN = "import signal, subprocess, time; signal.signal(15, 1); subprocess.Popen(['sleep', '600']); print(); time.sleep(600)"


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[bytes]]]:
    processes: list[subprocess.Popen[bytes]] = []
    yield processes
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.wait()
        if process.stdout:
            process.stdout.close()


def start(home: Path, engine: str, *words: str) -> subprocess.Popen[bytes]:
    env = {**os.environ, "PENSTOCK_HOME": str(home), "PENSTOCK_ENGINE": engine}
    return subprocess.Popen(words or ("sleep", "600"), env=env, start_new_session=True, stdout=subprocess.PIPE)


def test_only_processes_of_dead_engines_of_this_home_are_ended(
    tmp_path: Path, started: list[subprocess.Popen[bytes]]
) -> None:
    dead = start(tmp_path, "dead")
    others = [start(tmp_path, "alive"), start(tmp_path / "other", "dead"), start(Path(f"{tmp_path}2"), "dead")]
    started += [dead, *others]
    deadline = time.monotonic() + 10
    while find_orphans(tmp_path, {"dead"}) != [dead.pid]:  # between fork and exec it has our environment
        assert time.monotonic() < deadline
    assert end_orphans(tmp_path, {"dead", "never"}) == [dead.pid]
    assert dead.wait(5) == -9
    assert all(process.poll() is None for process in others)
    assert end_orphans(tmp_path, {"dead"}) == [] and end_orphans(tmp_path, set()) == []


def test_who_would_not_listen_is_ended_with_all_that_it_started(
    tmp_path: Path, started: list[subprocess.Popen[bytes]]
) -> None:
    stubborn = start(tmp_path, "dead", sys.executable, "-c", STUBBORN)
    started.append(stubborn)
    assert stubborn.stdout is not None
    stubborn.stdout.readline()
    assert stubborn.pid in end_orphans(tmp_path, {"dead"})
    assert stubborn.wait(5) == -9
    assert find_orphans(tmp_path, {"dead"}) == []
