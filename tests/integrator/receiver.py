"""A receiver of callbacks: an HTTP server in a thread, that answers as it is told and remembers what it was sent; and hostile ones."""

from __future__ import annotations

import http.server
import json
import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Self


class Heard(NamedTuple):
    method: str
    path: str
    headers: Mapping[str, str]
    """By name in lower case."""
    body: bytes

    @property
    def data(self) -> Any:
        return json.loads(self.body)

    @property
    def key(self) -> str:
        return self.headers["idempotency-key"]


Reply = tuple[int, dict[str, str], bytes]


class Receiver:
    """`answers`: statuses, one after another; then 200. `reply`: decides, if it is given."""

    def __init__(
        self, *answers: int, reply: Callable[[Heard], Reply] | None = None, tls: ssl.SSLContext | None = None
    ) -> None:
        self.heard: list[Heard] = []
        self._answers = list(answers)
        self._reply = reply
        self._lock = threading.Lock()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                headers = {name.lower(): value for name, value in self.headers.items()}
                status, more, data = outer._decide(Heard(self.command, self.path, headers, body))
                self.send_response(status)
                for name, value in {**more, "Content-Length": str(len(data))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer

            def log_message(self, *_: Any) -> None:
                pass

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: Any) -> None:
                pass

        self._server = Server(("127.0.0.1", 0), Handler)
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    def _decide(self, heard: Heard) -> Reply:
        with self._lock:
            self.heard.append(heard)
            if self._reply is not None:
                return self._reply(heard)
            return (self._answers.pop(0) if self._answers else 200), {}, b""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)


class Hostile:
    """Reads a request, and does `deed` with the connection, in a thread; `over` is set at the end of the test."""

    def __init__(self, deed: Callable[[socket.socket, threading.Event], None]) -> None:
        self.over = threading.Event()
        self.asked = 0
        self._deed = deed
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self._threads = [threading.Thread(target=self._serve, daemon=True)]

    def _serve(self) -> None:
        while not self.over.is_set():
            try:
                found, _ = self._listening.accept()
            except OSError:
                return
            self._threads.append(threading.Thread(target=self._one, args=(found,), daemon=True))
            self._threads[-1].start()

    def _one(self, found: socket.socket) -> None:
        with found:
            try:
                found.recv(65536)
                self.asked += 1
                self._deed(found, self.over)
            except OSError:
                pass

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for thread in self._threads:
            thread.join(10)
