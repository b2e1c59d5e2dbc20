"""Http steps against a real server on this machine."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from penstock.backends.base import Ended
from penstock.backends.http import MOST, Http
from penstock.graph import model
from penstock.graph.expr import Expr
from penstock.graph.model import MISSING
from penstock.graph.stored import Stored
from penstock.graph.types import parse
from tests.backends.harness import Play, order_of, play


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
        elif name == "away":
            self.say(302, b"", Location=f"http://localhost:{self.server.server_port}/json")
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


def asked(home: Path, one: model.Step, inputs: dict[str, Any] | None = None) -> Ended:
    found: list[Ended] = []

    async def story(playing: Play) -> None:
        found.append(await playing.one(order_of(one, inputs)))
        assert playing.backend.room() == MOST

    play(home, Http, story)
    return found[0]


def test_outputs_are_expressions_over_the_response(server: Server, tmp_path: Path) -> None:
    ended = asked(
        tmp_path,
        step(
            f"{server.url}/json",
            output("id", "int", "response.body.id"), output("status", "int", "response.status"), output("all"),
            output("kind", "str", "response.headers['content-type']"), output("two", "str", "response.headers['x-two']"),
            output("given", "str", "inputs.word + '!'"), output("text", "str"),
        ),
        {"word": "hi"},
    )  # fmt: skip
    assert ended.outcome == "succeeded", ended
    assert ended.outputs == {
        "id": 7, "status": 200, "all": {"id": 7, "tags": ["a", "b"]}, "kind": "application/json", "two": "a, b",
        "given": "hi!", "text": '{"id": 7, "tags": ["a", "b"]}',
    }  # fmt: skip


@pytest.mark.parametrize(("name", "body"), [("text", "plain words"), ("latin", "né"), ("empty", "")])
def test_a_body_that_is_not_json_is_text(server: Server, tmp_path: Path, name: str, body: str) -> None:
    assert asked(tmp_path, step(f"{server.url}/{name}", output("body"))).outputs == {"body": body}


def test_a_file_is_the_bytes_of_the_body(server: Server, tmp_path: Path) -> None:
    async def story(playing: Play) -> None:
        ended = await playing.one(order_of(step(f"{server.url}/bytes", output("image", "file"))))
        stored = ended.outputs["image"]
        assert isinstance(stored, Stored) and stored.kind == "file"
        assert playing.blobs.get(stored.digest) == b"\x00\xff\x01"

    play(tmp_path, Http, story)


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
        "POST", '{"a":null,"b":[1]}', "application/json",
    )  # fmt: skip
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
        "failed", f'GET {server.url}/json answered 200 OK: {{"id": 7, "tags": ["a", "b"]}}',
    )  # fmt: skip
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
        "errored", f"GET http://127.0.0.1:{port}/: nobody listens at 127.0.0.1:{port}",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("path", "message"),
    [("cut", "the server closed the connection before its answer was complete"), ("noise", "does not speak HTTP")],
)
def test_answers_that_are_none(server: Server, tmp_path: Path, path: str, message: str) -> None:
    ended = asked(tmp_path, step(f"{server.url}/{path}"))
    assert ended.outcome == "errored" and message in ended.message, ended.message


def test_stop_hangs_up(server: Server, tmp_path: Path) -> None:
    async def story(playing: Play) -> None:
        order = order_of(step(f"{server.url}/slow"))
        playing.backend.stop(order.id, 1.0)
        playing.backend.start([order])
        assert await asyncio.to_thread(server.waiting.wait, 10)
        playing.backend.stop(order.id, 10.0)
        [ended] = await playing.end_of(order)
        assert ended.outcome == "cancelled"
        assert await asyncio.to_thread(server.hung_up.wait, 10)
        await playing.one(order_of(step(f"{server.url}/json"), task="after"))
        assert len([report for report in playing.reports if isinstance(report, Ended)]) == 2

    play(tmp_path, Http, story)


def test_close_hangs_up(server: Server, tmp_path: Path) -> None:
    async def story(playing: Play) -> None:
        playing.backend.start([order_of(step(f"{server.url}/slow"))])
        assert await asyncio.to_thread(server.waiting.wait, 10)

    play(tmp_path, Http, story)
    assert server.hung_up.wait(10)
