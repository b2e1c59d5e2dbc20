"""Http steps against a real server on this machine."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from penstock.backends.base import AttemptEnded
from penstock.backends.http import MOST, HttpBackend
from penstock.expressions.parse import Expr
from penstock.expressions.types import parse
from penstock.graph import model
from penstock.graph.model import MISSING
from penstock.graph.stored import Stored
from tests.backends.harness import Play, play, spec_of


class Server(ThreadingHTTPServer):
    """Answers by path; remembers what it was asked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[dict[str, Any]] = []
        self.waiting = threading.Event()
        self.hung_up = threading.Event()
        self.url = f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def log_message(self, format: str, *args: Any) -> None:
        """Not on the terminal."""

    def answer(self) -> None:
        length = int(self.headers.get("content-length", 0))
        asked = {"method": self.command, "path": self.path, "body": self.rfile.read(length).decode()}
        self.server.asked.append(asked | {"headers": {k.lower(): v for k, v in self.headers.items()}})
        name = self.path.split("?")[0].strip("/")
        if name == "slow":
            self.server.waiting.set()
            if self.connection.recv(1) == b"":
                self.server.hung_up.set()
        elif name == "cut":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
        elif name == "noise":
            self.wfile.write(b"SSH-2.0-something\r\n")
        elif name == "moved":
            self.say(302, b"", Location="/json")
        elif name == "round":
            self.say(302, b"", Location="/round")
        elif name == "away":
            self.say(302, b"", Location=f"http://localhost:{self.server.server_port}/json")
        elif name == "to":
            self.say(int(self.headers.get("x-status", "302")), b"", Location=self.path.partition("?")[2])
        elif name == "nowhere":
            self.say(302, b"")
        elif name == "endless":
            self.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
            with suppress(OSError):
                while True:
                    self.wfile.write(b"x" * 65536)
        elif name == "chunked":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            with suppress(OSError):
                while True:
                    self.wfile.write(b"10000\r\n" + b"x" * 65536 + b"\r\n")
        elif name == "huge":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n")
        elif name.isdigit():
            self.say(int(name), b'{"error":\n "for a reason"}')
        else:
            self.say(200, *ANSWERS[name])

    do_GET = do_POST = do_PUT = do_DELETE = answer

    def say(self, status: int, body: bytes, kind: str = "application/json", **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.send_header("X-Two", "a")
        self.send_header("X-Two", "b")
        self.end_headers()
        self.wfile.write(body)


ANSWERS: dict[str, tuple[Any, ...]] = {
    "json": (b'{"id": 7, "tags": ["a", "b"]}',),
    "text": (b"plain words", "text/plain"),
    "latin": ("né".encode("latin-1"), "text/plain; charset=latin-1"),
    "bytes": (b"\x00\xff\x01", "application/octet-stream"),
    "large": (json.dumps(["x" * 100] * 2000).encode(),),
    "empty": (b"",),
}


@pytest.fixture
def server() -> Iterator[Server]:
    found = Server()
    thread = threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield found
    found.shutdown()
    thread.join()
    found.server_close()


def output(name: str, type_: str = "any", value: str | None = None) -> model.Output:
    return model.Output(name=name, type=parse(type_), value=MISSING if value is None else Expr.of(value))


def step(url: str, *outputs: model.Output, **more: Any) -> model.Step:
    return model.Step(name="ask", action=model.Http(url=url, **more), outputs=outputs)


def asked(home: Path, one: model.Step, inputs: dict[str, Any] | None = None) -> AttemptEnded:
    found: list[AttemptEnded] = []

    async def story(playing: Play) -> None:
        found.append(await playing.one(spec_of(one, inputs)))
        assert playing.backend.room() == MOST

    play(home, HttpBackend, story)
    return found[0]


def test_outputs_are_expressions_over_the_response(server: Server, tmp_path: Path) -> None:
    ended = asked(
        tmp_path,
        step(
            f"{server.url}/json",
            output("id", "int", "response.body.id"),
            output("status", "int", "response.status"),
            output("all"),
            output("kind", "str", "response.headers['content-type']"),
            output("two", "str", "response.headers['x-two']"),
            output("given", "str", "inputs.word + '!'"),
            output("text", "str"),
        ),
        {"word": "hi"},
    )
    assert ended.outcome == "succeeded", ended
    assert ended.outputs == {
        "id": 7,
        "status": 200,
        "all": {"id": 7, "tags": ["a", "b"]},
        "kind": "application/json",
        "two": "a, b",
        "given": "hi!",
        "text": '{"id": 7, "tags": ["a", "b"]}',
    }


@pytest.mark.parametrize(("name", "body"), [("text", "plain words"), ("latin", "né"), ("empty", "")])
def test_a_body_that_is_not_json_is_text(server: Server, tmp_path: Path, name: str, body: str) -> None:
    assert asked(tmp_path, step(f"{server.url}/{name}", output("body"))).outputs == {"body": body}


def test_a_file_is_the_bytes_of_the_body(server: Server, tmp_path: Path) -> None:
    async def story(playing: Play) -> None:
        ended = await playing.one(spec_of(step(f"{server.url}/bytes", output("image", "file"))))
        stored = ended.outputs["image"]
        assert isinstance(stored, Stored) and stored.kind == "file"
        assert playing.blobs.get(stored.digest) == b"\x00\xff\x01"

    play(tmp_path, HttpBackend, story)


def test_a_large_body_is_stored(server: Server, tmp_path: Path) -> None:
    ended = asked(tmp_path, step(f"{server.url}/large", output("body")))
    assert isinstance(ended.outputs["body"], Stored) and ended.outputs["body"].kind == "json"


def test_what_is_sent(server: Server, tmp_path: Path) -> None:
    secret = server.url.replace("://", "://me:p%40ss@")
    asked(tmp_path, step(f"{server.url}/json", method="post", body={"b": [1], "a": None}, headers={"X-N": 5}))
    asked(tmp_path, step(f"{server.url}/json", method="PUT", body="words", headers={"content-type": "text/x"}))
    asked(tmp_path, step(f"{secret}/json?q=a b&r=%20#part"))
    first, second, third = server.asked
    assert (first["method"], first["body"], first["headers"]["content-type"]) == (
        "POST",
        '{"a":null,"b":[1]}',
        "application/json",
    )
    assert first["headers"]["x-n"] == "5" and first["headers"]["user-agent"] == "penstock"
    assert (second["method"], second["body"], second["headers"]["content-type"]) == ("PUT", "words", "text/x")
    assert third["path"] == "/json?q=a%20b&r=%20"
    assert base64.b64decode(third["headers"]["authorization"].removeprefix("Basic ")) == b"me:p@ss"


def test_redirects_are_followed(server: Server, tmp_path: Path) -> None:
    assert asked(tmp_path, step(f"{server.url}/moved", output("id", "int", "response.body.id"))).outputs == {"id": 7}


def test_a_redirect_to_another_host_does_not_get_the_password(server: Server, tmp_path: Path) -> None:
    headers = {"Authorization": "Bearer secret", "X-Other": "kept"}
    asked(tmp_path, step(f"{server.url}/moved", headers=headers))
    asked(tmp_path, step(f"{server.url}/away", headers=headers))
    assert ["authorization" in one["headers"] for one in server.asked] == [True, True, True, False]
    assert all(one["headers"]["x-other"] == "kept" for one in server.asked)


SECRETS = {
    "Authorization": "Bearer s",
    "Cookie": "s=1",
    "X-Api-Key": "s",
    "PRIVATE-TOKEN": "s",
    "X-Auth-Token": "s",
    "Api-Secret": "s",
    "X-Amz-Security-Token": "s",
    "X-CSRF-Token": "s",
    "Session": "s",
    "x-goog-api-key": "s",
    "CF-Access-Client-Id": "s",
}


@pytest.mark.parametrize("status", ["301", "302", "303", "307", "308"])
def test_nothing_that_could_be_a_secret_follows_to_another_place(server: Server, tmp_path: Path, status: str) -> None:
    other = Server()
    threading.Thread(target=other.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        back = f"{server.url}/json"
        headers = {**SECRETS, "Accept": "text/x", "X-Status": status}
        for place in (
            "/json",
            f"{other.url}/json",
            f"http://LOCALHOST:{server.server_port}/json",
            f"{other.url}/to?{back}",
        ):
            ended = asked(
                tmp_path, step(f"{server.url}/to?{place}", output("id", "int", "response.body.id"), headers=headers)
            )
            assert ended.outputs == {"id": 7}, ended.message
    finally:
        other.shutdown()
        other.server_close()
    known = {name.lower() for name in SECRETS}
    same = [known <= one["headers"].keys() for one in server.asked]
    assert same == [True, True, True, True, False, True, False]  # the last: once away, they do not come back
    assert not any(known & one["headers"].keys() for one in (*other.asked, server.asked[4], server.asked[6]))
    assert all(one["headers"]["accept"] == "text/x" for one in (*server.asked, *other.asked))


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("to?file:///etc/passwd", "file:///etc/passwd is neither http nor https"),
        ("to?ftp://127.0.0.1/x", "ftp://127.0.0.1/x is neither http nor https"),
        ("to?data:,hello", "data:,hello is neither http nor https"),
        ("to?/to", "it does not say where to"),
        ("nowhere", "it does not say where to"),
    ],
)
def test_a_redirect_that_is_not_followed_is_a_failure(server: Server, tmp_path: Path, path: str, why: str) -> None:
    for condition in (None, Expr.of("response.status < 400")):
        ended = asked(tmp_path, step(f"{server.url}/{path}", output("all"), success_condition=condition))
        assert ended.outcome == "failed" and ended.outputs == {}
        assert f"answered 302 Found, a redirect that is not followed: {why}" in ended.message, ended.message


def test_a_redirect_in_a_circle_is_a_failure(server: Server, tmp_path: Path) -> None:
    ended = asked(tmp_path, step(f"{server.url}/round", output("all")))
    assert ended.outcome == "failed" and "it leads in a circle" in ended.message and "/round" in ended.message
    assert len(server.asked) <= 11


def test_what_changes_something_is_not_sent_again(server: Server, tmp_path: Path) -> None:
    ended = asked(tmp_path, step(f"{server.url}/to?/json", method="PUT", body="x", headers={"X-Status": "307"}))
    assert ended.outcome == "failed" and "a PUT request is not sent again" in ended.message
    assert len(server.asked) == 1


@pytest.mark.parametrize("path", ["endless", "chunked", "huge"])
def test_an_answer_may_be_so_long(server: Server, tmp_path: Path, path: str) -> None:
    found: list[AttemptEnded] = []

    async def story(playing: Play) -> None:
        playing.blobs.limits.value = 1_000_000
        found.append(await playing.one(spec_of(step(f"{server.url}/{path}", output("all")))))

    play(tmp_path, HttpBackend, story)
    assert found[0].outcome == "failed" and "is larger than 1000000, the most that is taken" in found[0].message
    assert "PENSTOCK_LARGEST_VALUE" in found[0].message


@pytest.mark.parametrize("status", [400, 404, 500, 503])
def test_a_status_from_400_is_a_failure_that_says_what_was_answered(
    server: Server, tmp_path: Path, status: int
) -> None:
    secret = server.url.replace("://", "://me:secret@")
    ended = asked(tmp_path, step(f"{secret}/{status}", output("body")))
    assert ended.outcome == "failed" and ended.outputs == {}
    assert ended.message.startswith(f"GET {server.url}/{status} answered {status} ")
    assert ended.message.endswith(': {"error": "for a reason"}') and "secret" not in ended.message


def test_the_authors_condition_decides(server: Server, tmp_path: Path) -> None:
    def ends(path: str, condition: str) -> tuple[str, str]:
        ended = asked(tmp_path, step(f"{server.url}/{path}", success_condition=Expr.of(condition)), {"id": 7})
        return ended.outcome.value, ended.message

    assert ends("404", "response.status == 404") == ("succeeded", "")
    assert ends("json", "response.body.id == inputs.id")[0] == "succeeded"
    assert ends("json", "response.body.id > 7") == (
        "failed",
        f'GET {server.url}/json answered 200 OK: {{"id": 7, "tags": ["a", "b"]}}',
    )
    assert ends("json", "response.body.id") == ("failed", "its success condition is 7, which is neither true nor false")
    outcome, message = ends("json", "response.body.nothing > 1")
    assert outcome == "failed" and "nothing" in message


def test_outputs_that_are_not_there_or_of_another_type(server: Server, tmp_path: Path) -> None:
    ended = asked(tmp_path, step(f"{server.url}/json", output("x", "any", "response.body.x")))
    assert ended.outcome == "failed" and "the output 'x' of GET" in ended.message
    ended = asked(tmp_path, step(f"{server.url}/json", output("id", "str", "response.body.id")))
    assert (ended.outcome, ended.message) == ("failed", "the output 'id' is 7, which is not str")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("ftp://host/x", "'ftp://host/x' is not a URL of the form http://host/… or https://host/…"),
        ("no url", "'no url' is not a URL"),
        ("file:///etc/passwd", "is not a URL"),
        ("http://[::1", "Invalid IPv6 URL"),
        ("http://host:port/", "nonnumeric port"),
        ("http://no-such-host.invalid/", "there is no host no-such-host.invalid"),
    ],
)
def test_requests_that_cannot_be_sent(tmp_path: Path, url: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")
    ended = asked(tmp_path, step(url))
    assert ended.outcome == "errored" and message in ended.message, ended.message


def test_headers_that_cannot_be_sent(server: Server, tmp_path: Path) -> None:
    ended = asked(tmp_path, step(f"{server.url}/json", headers={"X": "a\r\nEvil: b"}))
    assert ended.outcome == "errored" and "Invalid header value" in ended.message


def test_nobody_listens(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ended = asked(tmp_path, step(f"http://127.0.0.1:{port}/"))
    assert (ended.outcome, ended.message) == (
        "errored",
        f"GET http://127.0.0.1:{port}/: nobody listens at 127.0.0.1:{port}",
    )


@pytest.mark.parametrize(
    ("path", "message"),
    [("cut", "the server closed the connection before its answer was complete"), ("noise", "does not speak HTTP")],
)
def test_answers_that_are_none(server: Server, tmp_path: Path, path: str, message: str) -> None:
    ended = asked(tmp_path, step(f"{server.url}/{path}"))
    assert ended.outcome == "errored" and message in ended.message, ended.message


def test_stop_hangs_up(server: Server, tmp_path: Path) -> None:
    async def story(playing: Play) -> None:
        spec = spec_of(step(f"{server.url}/slow"))
        playing.backend.stop(spec.id, 1.0)
        playing.backend.start([spec])
        assert await asyncio.to_thread(server.waiting.wait, 10)
        playing.backend.stop(spec.id, 10.0)
        [ended] = await playing.end_of(spec)
        assert ended.outcome == "cancelled"
        assert await asyncio.to_thread(server.hung_up.wait, 10)
        await playing.one(spec_of(step(f"{server.url}/json"), task="after"))
        assert len([report for report in playing.reports if isinstance(report, AttemptEnded)]) == 2

    play(tmp_path, HttpBackend, story)


def test_close_hangs_up(server: Server, tmp_path: Path) -> None:
    async def story(playing: Play) -> None:
        playing.backend.start([spec_of(step(f"{server.url}/slow"))])
        assert await asyncio.to_thread(server.waiting.wait, 10)

    play(tmp_path, HttpBackend, story)
    assert server.hung_up.wait(10)
