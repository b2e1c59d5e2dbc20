"""Ten clients submit a hundred runs while the server, its workers and PostgreSQL are killed at random moments: each submission is one run, which
ends, and each stream has every event once, in order."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.service import stores, tokens
from penstock.service.connection import ServerConnection
from penstock.service.run_records import find
from penstock.settings import Settings, read
from tests.support.postgres import Server as Postgres
from tests.support.postgres import binaries

CLIENTS, EACH, KILLS = 10, 10, 16
MARK = """
apiVersion: penstock/v1
kind: Workflow
name: mark
params:
  - {name: place, type: str}
steps:
  - name: begin
    container: {image: busybox, command: [sh, -c, 'echo x >> "$1.begun"', sh, "${{ params.place }}"]}
  - name: end
    needs: [begin]
    container: {image: busybox, command: [sh, -c, 'echo x >> "$1.ended"', sh, "${{ params.place }}"]}
"""


class Mortal:
    """A process that is started again whenever it is killed."""

    def __init__(self, settings: Settings, *words: str) -> None:
        self._command = [sys.executable, "-m", "penstock", *words]
        self._env = {**os.environ, "PENSTOCK_HOME": str(settings.home), "PENSTOCK_STORE": settings.store}
        self._log = open(settings.home / f"{words[0]}.log", "ab")  # noqa: SIM115
        self._process = self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self._command, env=self._env, stdout=self._log, stderr=self._log)

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self._process = self._started()

    def end(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        found: int = probe.getsockname()[1]
        return found


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_whatever_is_killed_each_submission_is_one_run_and_each_event_is_heard_once(kind: str, tmp_path: Path) -> None:
    database: Postgres | None = None
    if kind == "postgresql":
        folder = binaries()
        if folder is None:
            pytest.skip("no PostgreSQL on this machine")
        database = Postgres(folder)
    try:
        url = database.database() if database is not None else None
        _play(read(home=tmp_path / ".penstock", store=url, jobs=4), tmp_path, database)
    finally:
        if database is not None:
            database.close()


def _play(settings: Settings, place: Path, database: Postgres | None) -> None:
    stores.prepare(settings)
    with stores.open_or_create(settings) as store:
        secrets = [tokens.create(store, f"person-{n}", "submitter", time.time())[1] for n in range(CLIENTS)]
    port, dice = free_port(), random.Random(17)
    serve = Mortal(settings, "serve", "--port", str(port), "--no-worker", "--no-token", "-q")
    workers = [Mortal(settings, "worker", "-q", "-j", "3") for _ in range(2)]
    clients = [Submitter(f"http://127.0.0.1:{port}", secret, place / f"client-{n}") for n, secret in enumerate(secrets)]
    killers: list[Callable[[], None]] = [serve.kill, *(worker.kill for worker in workers)]
    if database is not None:

        def crash() -> None:
            database.stop(signal.SIGQUIT)
            database.start()

        killers.append(crash)
    try:
        for client in clients:
            client.start()
        for number in range(KILLS):
            time.sleep(dice.uniform(0.3, 1.0))
            killers[number % len(killers) if number < len(killers) else dice.randrange(len(killers))]()
        for client in clients:
            client.join(240)
            assert not client.is_alive(), "a client waits in vain"
    finally:
        for one in (*workers, serve):
            one.end()
    _check(settings, clients)


def _check(settings: Settings, clients: list[Submitter]) -> None:
    for client in clients:
        assert client.trouble is None, client.trouble
    made = [run for client in clients for run in client.runs]
    assert len(set(made)) == len(made) == CLIENTS * EACH
    with stores.open_or_create(settings) as store:
        assert sorted(run.id for run in store.runs.newest()) == sorted(made)
        for client in clients:
            for run, (heard, mark) in client.runs.items():
                record = find(store, run)
                assert record.state == "succeeded", (run, record.state)
                recorded = [event.seq for event in store.runs.events(record.number)]
                assert heard == recorded == list(range(1, record.seq + 1)), (run, heard, recorded)
                # A task may begin again, if whoever ran it was killed before its end was recorded.
                assert mark.with_suffix(".begun").exists() and mark.with_suffix(".ended").exists()


class Submitter(threading.Thread):
    """Submits one run after the other, each twice with the same key, and hears all of its events."""

    def __init__(self, url: str, token: str, place: Path) -> None:
        super().__init__()
        self._server = ServerConnection(url, token, patience=120.0)
        self._place = place
        self.runs: dict[str, tuple[list[int], Path]] = {}
        self.trouble: BaseException | None = None

    def run(self) -> None:
        try:
            for number in range(EACH):
                self._one(number)
        except BaseException as error:
            self.trouble = error

    def _one(self, number: int) -> None:
        mark = self._place.with_name(f"{self._place.name}-{number}.x")
        body = {
            "document": MARK,
            "params": {"place": str(mark.with_suffix(""))},
            "options": {"on": {"container": "process"}, "fresh": True},
        }
        key = {"Idempotency-Key": f"{self._place.name}-{number}"}
        run = self._server.post("runs", body, key)["run"]["run"]
        assert self._server.post("runs", body, key)["run"]["run"] == run
        heard: list[int] = []
        self.runs[run] = heard, mark
        for event in self._server.follow(run):
            if event is not None:
                heard.append(event["seq"])
