"""A server in a thread of the test, on a port of its own, and somebody who asks it."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import uvicorn

from penstock.server.app import Server
from penstock.server.oidc.settings import SignInSettings
from penstock.service import stores, tokens
from penstock.service.clusters import ClusterSource
from penstock.service.workers import Worker
from penstock.settings import Settings, read

NOTHING = """
apiVersion: penstock/v1
kind: Workflow
name: nothing
params:
  - {name: many, type: int, default: 3}
steps:
  - name: each
    each: {axes: [{i: "${{ range(params.many) }}"}]}
    container: {image: busybox, command: ["true"]}
  - name: last
    needs: [each]
    container: {image: busybox, command: ["true"]}
"""
"""Walked through by a dry run; nothing of it is executed."""


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def data(self) -> Any:
        return json.loads(self.body)

    @property
    def text(self) -> str:
        return self.body.decode()


class Served:
    """`own`: its own token, which may do everything."""

    def __init__(
        self,
        home: Path,
        store: str | None = None,
        worker: bool = True,
        port: int = 0,
        sign_in: SignInSettings | None = None,
        log: Callable[[str], None] | None = None,
        cluster: ClusterSource | None = None,
        patience: float = 60.0,
    ) -> None:
        self.settings: Settings = read(home=home, store=store, jobs=2)
        stores.prepare(self.settings)
        own, self.own = tokens.made("owner", "admin", time.time())
        self.said: list[str] = []
        self.worker = Worker(self.settings, self.said.append) if worker else None
        self.server = Server(
            self.settings,
            ["127.0.0.1", "localhost"],
            own,
            self.worker,
            log,
            sign_in=sign_in,
            cluster=cluster,
            patience=patience,
        )
        self._listening = socket.create_server(("127.0.0.1", port))
        self.port: int = self._listening.getsockname()[1]
        config = uvicorn.Config(self.server, log_level="error", access_log=False, timeout_graceful_shutdown=5)
        self._uvicorn = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._uvicorn._serve([self._listening])), name="served"
        )

    def __enter__(self) -> Served:
        self._thread.start()
        wait_for(lambda: self._uvicorn.started)
        return self

    def __exit__(self, *_: object) -> None:
        self.server.feeds.hang_up()
        if self.worker is not None:
            self.worker.abandon()
        self._uvicorn.should_exit = True
        self._thread.join(30)
        assert not self._thread.is_alive()
        if self.worker is not None:
            assert self.worker.join(30)
        self._listening.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def token(self, person: str, role: str, lifetime: float | None = None) -> str:
        with stores.open_or_create(self.settings) as store:
            return tokens.create(store, person, role, time.time(), lifetime)[1]

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        token: str | None = "",
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """`token`: the server's own if it is empty; None: none. `body`: JSON, or bytes as they are."""
        given = {"Accept": "application/json", **(headers or {})}
        if token is not None:
            given["Authorization"] = f"Bearer {token or self.own}"
        data = body
        if body is not None and not isinstance(body, bytes):
            data = json.dumps(body).encode()
            given.setdefault("Content-Type", "application/json")
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(method, path, data, given)
            found = connection.getresponse()
            return Answer(found.status, {name.lower(): value for name, value in found.getheaders()}, found.read())
        finally:
            connection.close()

    def get(self, path: str, **more: Any) -> Any:
        found = self.ask("GET", f"/api/v1/{path}", **more)
        assert found.status == 200, found
        return found.data

    def submit(self, document: str = NOTHING, token: str = "", key: str = "", **given: Any) -> Any:
        """A dry run, unless `options` say otherwise."""
        body = {"document": document, "options": {"dry": True}, **given}
        found = self.ask("POST", "/api/v1/runs", body, token=token, headers={"Idempotency-Key": key} if key else None)
        assert found.status in (200, 201), found
        return found.data

    def wait(self, run: str, state: str = "succeeded") -> Any:
        wait_for(lambda: self.get(f"runs/{run}")["state"] == state, what=f"{run} to be {state}")
        return self.get(f"runs/{run}")

    def browser(self, token: str = "") -> dict[str, str]:
        """The headers of somebody who is signed in by a cookie, and accepts pages."""
        found = self.ask("GET", f"/login?token={token or self.own}", token=None)
        assert found.status == 303
        return {"Cookie": found.headers["set-cookie"].partition(";")[0], "Accept": "text/html"}


def wait_for(true: Any, seconds: float = 60.0, what: str = "") -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"waited in vain for {what or true}"
        time.sleep(0.02)
