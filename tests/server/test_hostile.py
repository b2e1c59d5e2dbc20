"""What somebody may send who means no good, or is slow: a clear answer with a code, nothing lost, and nothing seen that is not theirs."""

from __future__ import annotations

import hashlib
import http.client
import io
import json
import socket
import threading
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest

from penstock.artifacts.blobs import Blobs
from penstock.cli.main import run as penstock
from penstock.errors import NotSignedIn
from penstock.graph.stored import Stored
from penstock.server.access import Allowance
from penstock.server.problems import RequestRefused
from penstock.service import stores
from penstock.service.connection import ServerConnection
from penstock.service.fetching import FetchedPart, fetch
from penstock.settings import read
from tests.server.served import NOTHING, Answer, Served, wait_for
from tests.server.test_api import HERE, SHELL, problem
from tests.server.test_same_there import ASKS


def sent(served: Served, chunks: list[bytes], *headers: tuple[str, str], wait: float = 0.0) -> Answer:
    """A submission in pieces; the last does not end it if it is empty."""
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=30)
    try:
        connection.putrequest("POST", "/api/v1/runs")
        connection.putheader("Authorization", f"Bearer {served.own}")
        connection.putheader("Content-Type", "application/json")
        for name, value in headers:
            connection.putheader(name, value)
        connection.endheaders()
        try:
            for chunk in chunks:
                connection.send(chunk)
        except (BrokenPipeError, ConnectionResetError):
            pass  # it has heard enough
        found = connection.getresponse()
        return Answer(found.status, {name.lower(): value for name, value in found.getheaders()}, found.read())
    finally:
        connection.close()


# -- bodies -----------------------------------------------------------------------------------------------------------


def test_a_body_that_does_not_end_is_cut_off(served: Served) -> None:
    piece = b"100000\r\n" + b"x" * 0x100000 + b"\r\n"
    problem(sent(served, [piece] * 70, ("Transfer-Encoding", "chunked")), 413, "P940")
    problem(sent(served, [b'{"document": '], ("Content-Length", str(1 << 30))), 413, "P940")
    assert served.ask("GET", "/healthz").text == "ok\n"


def test_who_sends_slowly_is_not_waited_for_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Served(tmp_path / ".penstock", worker=False, patience=0.3) as served:
        problem(sent(served, [b'{"document"'], ("Content-Length", "1000")), 408, "P944")
        digest = hashlib.sha256(b"abc").hexdigest()
        connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=30)
        connection.putrequest("PUT", f"/api/v1/blobs/sha256:{digest}")
        connection.putheader("Authorization", f"Bearer {served.own}")
        connection.putheader("Content-Length", "3")
        connection.endheaders()
        connection.send(b"ab")
        assert connection.getresponse().status == 408
        connection.close()
        assert list((served.settings.home / "work").glob("arriving-*")) == []
        assert served.submit()["created"]  # others are served meanwhile, and afterwards


def test_who_reads_a_stream_slowly_holds_up_nobody_and_gets_all_of_it(served: Served) -> None:
    run = served.submit(params={"many": 1500})["run"]["run"]
    slow = socket.create_connection(("127.0.0.1", served.port), timeout=60)
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    request = f"GET /api/v1/runs/{run}/stream HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {served.own}\r\n\r\n"
    slow.sendall(request.encode())
    served.wait(run)
    assert served.ask("GET", "/healthz").text == "ok\n"
    text = b""
    while b"event: over" not in text[-200:]:
        text += slow.recv(1 << 20)
    slow.close()
    numbers = [int(line[4:]) for line in text.split(b"\n") if line.startswith(b"id: ")]
    assert numbers == list(range(1, len(numbers) + 1)) and len(numbers) > 3000


# -- code and files ---------------------------------------------------------------------------------------------------


def packed(**files: bytes) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name.replace("__", "."), data)
    return made.getvalue()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"PK\x03\x04",
        packed(other=b"1"),
        packed(manifest__json=b"not json"),
        packed(manifest__json=b'{"version": 2}'),
        packed(manifest__json=b"[]"),
        packed(manifest__json=b" " * (100 * 2**20)),
        packed(manifest__json=b'{"version": 1}')[:-8],
    ],
    ids=["nothing", "cut", "other", "text", "version", "list", "bomb", "torn"],
)
def test_a_broken_bundle_of_code_is_refused_before_it_is_run(served: Served, data: bytes) -> None:
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    assert served.ask("PUT", f"/api/v1/blobs/{digest}", data).status == 200
    before = served.get("runs?limit=1")["items"]
    problem(served.ask("POST", "/api/v1/runs", {"document": NOTHING, "bundle": digest}), 400, "P936")
    assert served.get("runs?limit=1")["items"] == before


@pytest.mark.parametrize("name", ["../../evil", "..", ".", "", "/etc/evil", "a\nb", "\x1b[2J", "a/../../evil"])
def test_a_file_that_is_fetched_goes_nowhere_else_whatever_it_is_called(tmp_path: Path, name: str) -> None:
    settings = read(home=tmp_path / ".penstock")
    stores.prepare(settings)
    digest = Blobs(settings.artifacts).put(b"data")
    (tmp_path / "mine").write_text("kept")
    folder = tmp_path / "got"
    part = FetchedPart("run-1", "", "model", Stored(kind="file", digest=digest, name=name, size=4))
    [found] = fetch([part], folder, settings, force=True)
    assert [path.parent for path in found.paths] == [folder] and found.paths[0].read_bytes() == b"data"
    assert found.paths[0].name.isprintable() and (tmp_path / "mine").read_text() == "kept"
    assert sorted(one.name for one in tmp_path.iterdir()) == [".penstock", "got", "mine"]


@pytest.mark.parametrize(
    "name",
    [
        "logs/../state.db",
        "state.db",
        "/etc/passwd",
        "logs/../../other",
        "logs",
        "logs/link",
        "logs/\0",
        "logs/" + "x" * 400,
    ],
)
def test_only_logs_are_read_as_logs(served: Served, name: str) -> None:
    link = served.settings.home / "logs" / "link"
    if not link.is_symlink():
        link.symlink_to("/etc/passwd")
    found = served.ask("POST", "/api/v1/store/logs", {"pieces": [[name, 0, None, None]]})
    assert found.status == 200 and found.data == {"pieces": [None]}
    assert served.ask("POST", "/api/v1/store/logs/sizes", {"names": [name]}).data == {"sizes": {}}


def test_values_for_a_step_that_waits_name_no_file_of_the_server(served: Served, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("hush")
    run = served.submit(ASKS, options=HERE)["run"]["run"]
    wait_for(lambda: served.get(f"runs/{run}")["tasks"].get("suspended"))
    given = {"task": "ask", "params": {"ok": f"@{tmp_path}/secret", "many": 1}}
    assert served.ask("POST", f"/api/v1/runs/{run}/resume", given).status == 202
    served.wait(run)
    assert served.ask("GET", f"/api/v1/runs/{run}/logs").text == f"@{tmp_path}/secret 1\n"
    run = served.submit(ASKS.replace("type: str", "type: file"), options=HERE)["run"]["run"]
    wait_for(lambda: served.get(f"runs/{run}")["tasks"].get("suspended"))
    for value in (f"{tmp_path}/secret", f"@{tmp_path}/secret"):
        given = {"task": "ask", "params": {"ok": value}}
        problem(served.ask("POST", f"/api/v1/runs/{run}/resume", given), 400, "P935")
    served.ask("POST", f"/api/v1/runs/{run}/cancel", {"now": True})


# -- words ------------------------------------------------------------------------------------------------------------


def test_codes_for_terminals_move_no_cursor(
    served: Served, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from penstock.cli.ui import render

    evil = "\x1b[2J\x1b]0;owned\x07<script>alert(1)</script>"
    run = served.submit(SHELL, options=HERE, params={"text": evil})["run"]["run"]
    served.wait(run)
    bad = served.submit(SHELL.replace('"$1" != bad', "1 = 2"), options=HERE, params={"text": evil})["run"]["run"]
    served.wait(bad, "failed")
    monkeypatch.setenv("PENSTOCK_TOKEN", served.own)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(render, "is_terminal", lambda *_: True)
    for words in (["logs", run], ["show", run], ["show", f"{bad}/say"], ["watch", bad], ["why", run], ["ls"]):
        penstock([*words, "--server", served.url])
        said = capsys.readouterr()
        assert "\x1b]0" not in said.out + said.err and "\x07" not in said.out + said.err, words
        assert "\x1b[2J" not in said.out + said.err, words
    assert "owned" in (penstock(["logs", run, "--server", served.url]), capsys.readouterr())[1].out
    page = served.ask("GET", f"/runs/{bad}/logs", headers=served.browser(), token=None)
    assert "<script>alert" not in page.text and "&lt;script&gt;" in page.text


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "localhost", "X-Forwarded-Host": "evil.example", "Origin": "https://evil.example"},
        {"Host": "localhost.evil.example"},
        {"Host": "[::1"},
        {"Host": "\xe9vil"},
    ],
)
def test_forged_names_lead_nowhere(served: Served, headers: dict[str, str]) -> None:
    found = served.ask("GET", "/login", headers={**headers, "Accept": "text/html"}, token=None)
    assert found.status in (200, 400, 421) and "evil.example" not in found.headers.get("location", "")
    cookie = served.browser()["Cookie"]
    given = {**headers, "Cookie": cookie, "Content-Type": "application/json"}
    made = served.ask("POST", "/api/v1/runs", json.dumps({"document": NOTHING}).encode(), token=None, headers=given)
    assert made.status in (400, 403, 421), made


# -- tokens -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["expired", "revoked"])
def test_a_stream_ends_with_its_token(served: Served, how: str, tmp_path: Path) -> None:
    waits = SHELL.replace('echo "$1"; test "$1" != bad', 'while test ! -e "$1"; do sleep 0.05; done')
    run = served.submit(waits, options=HERE, params={"text": str(tmp_path / "stop")})["run"]["run"]
    served.wait(run, "running")
    token = served.token("eve", "viewer", lifetime=1.0 if how == "expired" else None)
    heard: list[Any] = []
    ended = threading.Event()

    def listen() -> None:
        try:
            heard.extend(event["seq"] for event in ServerConnection(served.url, token).follow(run) if event)
        except NotSignedIn as error:
            heard.append(error.code)
        ended.set()

    threading.Thread(target=listen, daemon=True).start()
    wait_for(lambda: bool(heard))
    if how == "revoked":
        assert served.ask("DELETE", f"/api/v1/tokens/{token.split('_')[1]}").status == 204
    before = list(heard)
    time.sleep(1.2)  # the token expires, and is looked at every second
    (tmp_path / "stop").touch()
    assert ended.wait(30)
    assert heard[-1] == "P930" and heard[:-1] == before  # nothing of what came afterwards
    served.wait(run)


def test_submissions_are_counted_for_each_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_SUBMISSIONS", "2")
    with Served(tmp_path / ".penstock", worker=False) as served:
        ana, bob = served.token("ana", "submitter"), served.token("bob", "submitter")
        assert [served.submit(token=ana)["created"] for _ in range(2)] == [True, True]
        refused = served.ask("POST", "/api/v1/runs", {"document": NOTHING}, token=ana)
        problem(refused, 429, "P973")
        assert int(refused.headers["retry-after"]) > 0
        assert served.submit(token=bob)["created"]
    now = [0.0]
    allowance = Allowance(60, lambda: now[0])
    for _ in range(60):
        allowance.take("t")
    with pytest.raises(RequestRefused):
        allowance.take("t")
    now[0] = 1.01
    allowance.take("t")
    with pytest.raises(RequestRefused):
        allowance.take("t")
    for _ in range(1000):
        Allowance(0).take("t")


# -- names that there are not -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["nope", "@99", "@x", "a/b", "%00", "%ed%a0%80", "x" * 400, "..%2f..", "'; DROP TABLE runs"]
)
def test_unknown_runs_are_not_found(served: Served, name: str) -> None:
    from urllib.parse import quote

    for rest in ("", "/tasks", "/events", "/why", "/outputs", "/logs", "/document", "/stream"):
        found = served.ask("GET", f"/api/v1/runs/{quote(name, safe='%')}{rest}")
        assert found.status in (400, 404) and found.data["code"] in ("P505", "P946", "P943"), (name, rest, found)


@pytest.mark.parametrize("list_", ["runs", "runs/{run}/events", "audit"])
def test_cursors_of_other_lists_are_refused(served: Served, list_: str) -> None:
    run = served.submit()["run"]["run"]
    for cursor in ("each[0]", "-1", "1e9", "9" * 30, "٣", "null"):
        from urllib.parse import quote

        found = served.ask("GET", f"/api/v1/{list_.format(run=run)}?cursor={quote(cursor, safe='%')}")
        problem(found, 400, "P943")
