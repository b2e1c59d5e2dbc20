"""The servers of the controller: admission webhooks by HTTPS; /healthz, /readyz and /metrics by HTTP on another port. Started by run.Manager.

The standard library's threaded server: the API server keeps a few connections open and sends one request after another on each, so one thread
for each connection is what is needed. The handshake is made in that thread, or else one slow peer would hold up all.
"""

from __future__ import annotations

import json
import os
import socket
import ssl
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from penstock.controller.cluster.certificates import Material
from penstock.controller.cluster.metrics import Metrics
from penstock.kubernetes.log import Log

Handler = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""The `request` of an AdmissionReview in, the `response` out, without its uid."""
Get = Callable[[], tuple[int, str, bytes]]
"""Code, content type, text."""
LARGEST = 16 * 2**20
"""Bytes of a request. The API server takes objects of 3 MiB, and sends old and new."""
IDLE = 120.0
"""Seconds after which a silent connection is closed; the API server closes its own after 90."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    context: ssl.SSLContext | None = None

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler], log: Log) -> None:
        self.log = log
        self._open: set[socket.socket] = set()
        self._guard = threading.Lock()
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, handler)

    def server_bind(self) -> None:
        # Not HTTPServer's: that asks the DNS for our name.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def finish_request(self, request: Any, client_address: Any) -> None:
        """In the thread of the connection."""
        request.settimeout(IDLE)
        request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        context = self.context
        with self._guard:
            self._open.add(request)
        try:
            if context is None:
                super().finish_request(request, client_address)
                return
            with context.wrap_socket(request, server_side=True, do_handshake_on_connect=False) as secure:
                with self._guard:
                    self._open.add(secure)
                try:
                    secure.do_handshake()
                    super().finish_request(secure, client_address)
                finally:
                    with self._guard:
                        self._open.discard(secure)
        finally:
            with self._guard:
                self._open.discard(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        import sys

        error = sys.exc_info()[1]
        if not isinstance(error, OSError):  # a peer that went away, or speaks no TLS, is no news
            self.log.error("request failed", error=error, peer=str(client_address[0]))

    def hang_up(self) -> None:
        with self._guard:
            sockets = list(self._open)
        for one in sockets:
            try:
                socket.socket.shutdown(one, socket.SHUT_RDWR)
            except OSError:
                continue


class _Request(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body in one packet
    timeout = IDLE

    def answer(self, code: int, content_type: str, body: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
        self.wfile.flush()

    def log_message(self, format: str, *args: Any) -> None:
        """Not one line for each request; the metrics count them."""

    def version_string(self) -> str:
        return "penstock"


class Listening:
    """A server in a thread of its own."""

    def __init__(self, host: str, port: int, handler: type[_Request], log: Log, name: str) -> None:
        self._server = _Server((host, port), handler, log)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), name=name, daemon=True)

    @property
    def port(self) -> int:
        return self._server.server_port

    def use(self, context: ssl.SSLContext) -> None:
        """For connections from now on; those that are open go on."""
        self._server.context = context

    def start(self) -> None:
        self._thread.start()

    def alive(self) -> bool:
        return self._thread.is_alive()

    def stop(self) -> None:
        if self._thread.ident is not None:
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()
        self._server.hang_up()


def tls_context(material: Material) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    descriptor, path = tempfile.mkstemp(prefix="penstock-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(material.certificate + material.key)
        context.load_cert_chain(path)
    finally:
        os.unlink(path)
    return context


def webhook_server(host: str, port: int, handlers: Mapping[str, Handler], log: Log, metrics: Metrics) -> Listening:
    class Request(_Request):
        def do_POST(self) -> None:
            began = time.perf_counter()
            path = self.path.partition("?")[0]
            try:
                length = int(self.headers.get("Content-Length", "-1"))
            except ValueError:
                length = -1
            if not 0 <= length <= LARGEST:
                self.close_connection = True
                self.answer(413 if length > 0 else 411, "text/plain", b"a Content-Length within bounds is needed\n")
                return
            body = self.rfile.read(length)
            handler = handlers.get(path)
            if handler is None:
                self.answer(404, "text/plain", b"no such webhook\n")
                return
            code, said = review(handler, body, log.bind(webhook=path))
            self.answer(code, "application/json", json.dumps(said).encode())
            response = said.get("response") or {}
            word = "error" if code != 200 else "allowed" if response.get("allowed") else "denied"
            metrics.webhooks.labels(path, word).inc()
            metrics.webhook_seconds.labels(path).observe(time.perf_counter() - began)

        def do_GET(self) -> None:
            self.answer(405, "text/plain", b"webhooks are called by POST\n")

    return Listening(host, port, Request, log, "webhooks")


def review(handler: Handler, body: bytes, log: Log) -> tuple[int, dict[str, Any]]:
    """An AdmissionReview answered. A fault of ours is a 500: what then happens is said by the webhook's failurePolicy."""
    try:
        asked = json.loads(body)
        request = asked["request"]
        uid = request["uid"]
        api = asked.get("apiVersion", "admission.k8s.io/v1")
    except (ValueError, KeyError, TypeError, AttributeError):
        return 400, {"message": "an AdmissionReview with a request is needed"}
    try:
        response = handler(request)
    except Exception as error:
        meta = request.get("namespace", ""), request.get("name", "")
        log.error("webhook failed", error=error, object="/".join(filter(None, map(str, meta))))
        return 500, {"message": f"{type(error).__name__}: {error}"}
    return 200, {"apiVersion": api, "kind": "AdmissionReview", "response": {**response, "uid": uid}}


def health_server(host: str, port: int, pages: Mapping[str, Get], log: Log) -> Listening:
    class Request(_Request):
        def do_GET(self) -> None:
            page = pages.get(self.path.partition("?")[0])
            if page is None:
                self.answer(404, "text/plain", b"not found\n")
                return
            try:
                answer = page()
            except Exception as error:
                log.error("page failed", error=error, path=self.path)
                answer = 500, "text/plain", b"it failed; the log says why\n"
            self.answer(*answer)

        do_HEAD = do_GET

    return Listening(host, port, Request, log, "health")
