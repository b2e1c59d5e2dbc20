"""The worker that `penstock serve` starts: a process of its own, which comes again when it dies and is gone when the server is."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from contextlib import suppress
from os import kill
from pathlib import Path
from typing import Any

import pytest

from penstock.service import stores
from penstock.settings import read
from penstock.store import liveness
from penstock.store.records import EngineRecord
from tests.server.served import wait_for
from tests.server.test_operated import ask, program, state, submitted

WAITS = """
apiVersion: penstock/v1
kind: Workflow
name: waits
steps:
  - {name: one, script: {source: "sleep 300"}}
"""


def worker_of(home: Path) -> EngineRecord:
    """The engine that executes something there."""
    with stores.open_existing(read({}, home=home)) as store:
        alive = [one for one in store.peers.engines() if liveness.alive(one)]
    return alive[0]


def figure(port: int, token: str, name: str) -> float:
    text = ask(port, token, "GET", "/metrics")[1]
    return float(text.partition(f"\n{name} ")[2].partition("\n")[0])


def test_a_server_begins_without_what_only_its_worker_needs() -> None:
    code = "import sys, penstock.cli.serving, penstock.server.app; print(*sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "penstock.server.app" in said
    assert not {"penstock.engine.engine", "penstock.service.workers", "penstock.service.simulation.simulate"} & {*said}


@pytest.mark.slow
def test_a_worker_that_dies_comes_again_and_its_run_goes_on(tmp_path: Path) -> None:
    home = tmp_path / ".penstock"
    with program(home, "serve", "--port", "0") as served:
        port, token = served.address()
        run = submitted(port, token, WAITS.replace("300", "1"))
        wait_for(lambda: state(port, token, run) == "running")
        worker = worker_of(home)
        assert worker.pid != served.process.pid
        assert figure(port, token, "penstock_worker_up") == figure(port, token, "penstock_worker_runs") == 1
        kill(worker.pid, signal.SIGKILL)
        wait_for(lambda: "is started again" in ask(port, "", "GET", "/readyz")[1])
        assert ask(port, "", "GET", "/readyz")[0] == 200
        wait_for(lambda: state(port, token, run) == "succeeded")
        assert ask(port, "", "GET", "/readyz")[1] == "ok\n"
        assert figure(port, token, "penstock_worker_restarts_total") == 1
        assert served.end() == 0
    assert any("ended by signal 9" in line for line in served.log)


@pytest.mark.slow
def test_the_worker_of_a_server_that_was_killed_lets_its_tasks_finish_and_ends(tmp_path: Path) -> None:
    home, done = tmp_path / ".penstock", tmp_path / "done"
    with program(home, "serve", "--port", "0", "-q") as served:
        port, token = served.address()
        go = tmp_path / "go"
        script = f"while ! test -e {go}; do sleep 0.05; done; touch {done}"
        run = submitted(port, token, WAITS.replace("sleep 300", script))
        wait_for(lambda: state(port, token, run) == "running")
        worker = worker_of(home)
        served.process.kill()
        served.process.wait(30)
        assert liveness.alive(worker)
        go.touch()
        wait_for(lambda: not liveness.alive(worker), what="the worker to end")
        assert done.exists()
        served.end()


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_told_twice_a_server_ends_its_tasks_now(tmp_path: Path, how: Any) -> None:
    home = tmp_path / ".penstock"
    with program(home, "serve", "--port", "0", "-q") as served:
        port, token = served.address()
        run = submitted(port, token, WAITS)
        wait_for(lambda: state(port, token, run) == "running")
        worker, began = worker_of(home), time.monotonic()
        while served.process.poll() is None:  # the second one counts once the first has arrived
            with suppress(ProcessLookupError):
                served.process.send_signal(how)
            time.sleep(0.2)
        assert served.end() == 0 and time.monotonic() - began < 60
        assert not liveness.alive(worker)
