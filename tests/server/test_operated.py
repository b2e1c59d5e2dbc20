"""The server as somebody who runs it sees it: as a process, its log, its figures, its end, its back-up."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.service import stores
from penstock.settings import read
from tests.server.served import NOTHING, Served, wait_for

COUNT = """
apiVersion: penstock/v1
kind: Workflow
name: slow
steps:
  - {name: first, script: {source: "sleep 1; echo first"}}
  - {name: second, needs: [first], script: {source: "echo second"}}
"""


class Program:
    """`penstock WORDS` as a process."""

    def __init__(self, home: Path, *words: str, store: str = "", **env: str) -> None:
        given = {**os.environ, "PENSTOCK_HOME": str(home), "PENSTOCK_ON_HOST": "yes", **env}
        given.pop("PENSTOCK_STORE", None)
        if store:
            given["PENSTOCK_STORE"] = store
        self.process = subprocess.Popen(
            [sys.executable, "-m", "penstock", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=given
        )
        self.log: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.log.append(line.decode())

    def address(self) -> tuple[int, str]:
        """(port, token) that it has printed."""
        assert self.process.stdout is not None
        found = re.search(r":(\d+)/(?:login\?token=(\S+))?", self.process.stdout.readline().decode())
        assert found, self.log
        return int(found[1]), found[2] or ""

    def end(self, how: int = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            self.process.send_signal(how)
        try:
            return self.process.wait(60)
        finally:
            self._reader.join(10)
            assert self.process.stdout is not None and self.process.stderr is not None
            self.process.stdout.close()
            self.process.stderr.close()


@contextmanager
def program(home: Path, *words: str, **more: Any) -> Iterator[Program]:
    found = Program(home, *words, **more)
    try:
        yield found
    finally:
        if found.process.poll() is None:
            found.end(signal.SIGKILL)


def ask(port: int, token: str, method: str, path: str, data: Any = None, **headers: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    given = {"Accept": "application/json", **({"Authorization": f"Bearer {token}"} if token else {}), **headers}
    try:
        connection.request(method, path, None if data is None else json.dumps(data), given)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def listen(port: int, token: str, run: str) -> Iterator[str]:
    """The lines of a run's stream, as they come."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", f"/api/v1/runs/{run}/stream", headers={"Authorization": f"Bearer {token}"})
        for line in connection.getresponse():
            yield line.decode().rstrip("\r\n")
    finally:
        connection.close()


def submitted(port: int, token: str, document: str = NOTHING, **options: Any) -> str:
    body = {"document": document, "options": options}
    status, text = ask(port, token, "POST", "/api/v1/runs", body, **{"Content-Type": "application/json"})
    assert status == 201, text
    return str(json.loads(text)["run"]["run"])


def state(port: int, token: str, run: str) -> str:
    return str(json.loads(ask(port, token, "GET", f"/api/v1/runs/{run}")[1])["state"])


@pytest.mark.slow
def test_a_server_that_is_told_to_end_tells_its_listeners_and_loses_nothing(tmp_path: Path) -> None:
    home = tmp_path / ".penstock"
    heard: list[str] = []
    with program(home, "serve", "--port", "0") as first:
        port, token = first.address()
        run = submitted(port, token, COUNT)
        wait_for(lambda: state(port, token, run) == "running")
        heard_one = threading.Event()

        def listening() -> None:
            for line in listen(port, token, run):
                heard.append(line)
                if line.startswith("data:"):
                    heard_one.set()

        listener = threading.Thread(target=listening, daemon=True)
        listener.start()
        assert heard_one.wait(30)
        assert first.end() == 0
    listener.join(10)
    assert "event: closing" in heard
    seen = [json.loads(line[5:])["seq"] for line in heard if line.startswith('data: {"')]
    with program(home, "serve", "--port", "0") as second:
        port, token = second.address()
        wait_for(lambda: state(port, token, run) == "succeeded")
        rest = ask(port, token, "GET", f"/api/v1/runs/{run}/stream", **{"Last-Event-ID": str(seen[-1])})[1]
        seen += [json.loads(line[5:])["seq"] for line in rest.splitlines() if line.startswith('data: {"')]
        assert seen == list(range(1, len(seen) + 1))
        assert second.end() == 0


def test_the_log_is_lines_of_json_without_tokens_and_an_error_is_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with program(tmp_path / ".penstock", "serve", "--port", "0", "--no-worker") as served:
        port, token = served.address()
        assert ask(port, "", "GET", f"/login?token={token}")[0] == 303
        assert ask(port, token, "GET", "/api/v1/runs")[0] == 200
        assert served.end() == 0
    lines = [json.loads(line) for line in served.log if line.startswith("{")]
    assert {"/login", "/api/v1/runs"} <= {line["path"] for line in lines}
    assert any((line["person"], line["status"]) == (lines[-1]["person"], 200) and line["person"] for line in lines)
    assert token.split("_")[2] not in "".join(served.log)


def test_an_error_of_our_own_is_one_line_with_its_traceback() -> None:
    import logging

    from penstock.cli.json_log import JsonLines

    try:
        raise KeyError("broken")
    except KeyError:
        record = logging.LogRecord("uvicorn", logging.ERROR, "x", 1, "it %s", ("broke",), sys.exc_info())
    text = JsonLines().format(record)
    line = json.loads(text)
    assert "\n" not in text and line["message"] == "it broke" and "KeyError: 'broken'" in line["traceback"]


def test_figures_are_in_the_form_that_prometheus_reads(served: Served) -> None:
    text = served.ask("GET", "/metrics").text
    values: dict[str, float] = {}
    for line in text.splitlines():
        if line.startswith("#"):
            assert re.fullmatch(r"# (HELP|TYPE) [a-z_]+ .+", line), line
        else:
            found = re.fullmatch(r'([a-z_]+(?:\{[a-z]+="[^"]*"(?:,[a-z]+="[^"]*")*\})?) ([0-9.e+-]+)', line)
            assert found, line
            values[found[1]] = float(found[2])
    bounds = [value for name, value in values.items() if name.startswith("penstock_http_seconds_bucket")]
    assert bounds == sorted(bounds) and bounds[-1] == values["penstock_http_seconds_count"]
    assert values["penstock_http_open"] >= 1 and any(name.startswith("penstock_queue_pending{") for name in values)


@pytest.mark.slow
def test_a_server_whose_store_is_away_is_alive_and_not_ready(tmp_path: Path, postgres: Any) -> None:
    with Served(tmp_path / ".penstock", postgres.database(), worker=False) as served:
        assert served.ask("GET", "/readyz", token=None).status == 200
        postgres.stop()
        try:
            assert served.ask("GET", "/healthz", token=None).status == 200
            assert served.ask("GET", "/readyz", token=None).status == 503
        finally:
            postgres.start()
        wait_for(lambda: served.ask("GET", "/readyz", token=None).status == 200)


def test_a_server_collects_its_garbage(tmp_path: Path) -> None:
    with program(tmp_path / ".penstock", "serve", "--port", "0", "--no-worker", "-q") as served:
        port, token = served.address()

        def collected() -> float:
            text = ask(port, token, "GET", "/metrics")[1]
            return float(text.partition('python_gc_collections_total{generation="0"} ')[2].partition("\n")[0])

        before = collected()
        for _ in range(300):
            if collected() > before:
                break
        assert collected() > before
        served.end()


def test_who_asks_too_often_is_told_to_wait(tmp_path: Path) -> None:
    from penstock.server.guard import Rate

    now = [0.0]
    rate = Rate(10.0, 3.0, lambda: now[0])
    assert [rate.too_fast("a") for _ in range(4)] == [False, False, False, True]
    assert not rate.too_fast("b")
    now[0] = 0.1
    assert [rate.too_fast("a") for _ in range(2)] == [False, True]
    with Served(tmp_path / ".penstock", worker=False) as served:
        served.server.app.state.gate.rate = Rate(0.0, 2.0)
        assert [served.ask("GET", "/api/v1/whoami").status for _ in range(3)] == [200, 200, 429]
        found = served.ask("GET", "/api/v1/whoami")
        assert found.data["code"] == "P965" and found.headers["retry-after"]
        assert served.ask("GET", "/healthz", token=None).status == 200


def test_behind_a_proxy_the_address_of_the_browser_counts(tmp_path: Path) -> None:
    """127.0.0.1 is believed, as a proxy of this machine is; a cookie of somebody who came by https goes over https alone."""
    with program(tmp_path / ".penstock", "serve", "--port", "0", "--no-worker", "-q") as served:
        port, token = served.address()
        said: dict[str, int] = {}
        for address, many in (("203.0.113.7", 21), ("203.0.113.8", 1)):
            for _ in range(many):
                said[address] = ask(port, "pst_x_y", "GET", "/api/v1/whoami", **{"X-Forwarded-For": address})[0]
        assert said == {"203.0.113.7": 429, "203.0.113.8": 401}
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request("GET", f"/login?token={token}", headers={"X-Forwarded-Proto": "https"})
        answer = connection.getresponse()
        assert "Secure" in str(answer.getheader("set-cookie"))
        connection.close()
        served.end()


# -- back-up and restoring --------------------------------------------------------------------------------------------


def results(home: Path, store: str = "") -> dict[str, Any]:
    settings = read({}, home=home, store=store or None)
    with stores.open_existing(settings) as opened:
        return {run.id: (run.state, run.seq, run.params) for run in opened.runs.newest()}


@pytest.mark.slow
def test_a_copy_of_a_store_of_sqlite_that_is_in_use_can_be_used(tmp_path: Path) -> None:
    """As docs/howto/operate-a-server.md says: the backup of SQLite, and the folders beside it."""
    home, copy = tmp_path / ".penstock", tmp_path / "copy"
    with program(home, "serve", "--port", "0", "-q") as served:
        port, token = served.address()
        done = submitted(port, token, dry=True)
        wait_for(lambda: state(port, token, done) == "succeeded")
        run = submitted(port, token, COUNT)
        wait_for(lambda: state(port, token, run) == "running")
        copy.mkdir(mode=0o700)
        with closing(sqlite3.connect(home / "state.db")) as db, closing(sqlite3.connect(copy / "state.db")) as other:
            db.backup(other)
        subprocess.run(["cp", "-a", *(str(one) for one in home.iterdir() if one.is_dir()), str(copy)], check=True)
        served.end(signal.SIGKILL)
    assert {name: row[0] for name, row in results(copy).items()} == {done: "succeeded", run: "running"}
    with Served(copy) as restored:
        restored.wait(run)  # what was not over goes on


@pytest.mark.slow
def test_a_dump_of_a_store_of_postgresql_can_be_restored(tmp_path: Path, postgres: Any) -> None:
    dump = tmp_path / "penstock.dump"
    before, after = postgres.database(), postgres.database()
    home = tmp_path / ".penstock"
    with Served(home, before) as served:
        for _ in range(3):
            served.wait(served.submit()["run"]["run"])
        tool = postgres.tool("pg_dump")
        subprocess.run([tool, "--format=custom", f"--file={dump}", before], check=True)
        served.wait(served.submit()["run"]["run"])
    subprocess.run([postgres.tool("pg_restore"), f"--dbname={after}", "--no-owner", str(dump)], check=True)
    assert len(results(home, after)) == 3 and len(results(home, before)) == 4
    with Served(home, after) as restored:
        assert restored.wait(restored.submit()["run"]["run"])["run"] == "nothing-4"
        assert restored.ask("GET", "/api/v1/tokens").status == 200


# -- the processes of a team ------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_servers_workers_and_postgresql_as_the_compose_file_has_them(tmp_path: Path, postgres_url: str) -> None:
    """Without containers: a server that executes nothing, a second one, and two workers, on one database."""
    home = tmp_path / ".penstock"
    with (
        program(home, "serve", "--port", "0", "--no-worker", store=postgres_url) as one,
        program(home, "serve", "--port", "0", "--no-worker", "--no-token", store=postgres_url) as other,
        program(home, "worker", store=postgres_url) as first,
        program(home, "worker", store=postgres_url) as second,
    ):
        port, token = one.address()
        beside, _ = other.address()
        made = json.loads(
            ask(port, token, "POST", "/api/v1/tokens", {"person": "ana"}, **{"Content-Type": "application/json"})[1]
        )
        runs = [submitted(beside, made["secret"], COUNT) for _ in range(2)]
        first_state = wait_for(lambda: any(state(port, token, run) == "running" for run in runs))
        assert first_state is None and first.end() == 0  # a worker goes; the other one takes what it leaves
        for run in runs:
            wait_for(lambda run=run: state(beside, made["secret"], run) == "succeeded")
        for process in (second, one, other):
            assert process.end() == 0
