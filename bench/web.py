"""Servers as processes, and clients that measure them: ours, and a bare one. Called by serving."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

BARE = """
import json, sys, asyncio
import uvicorn
from starlette.applications import Starlette
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

answers = json.load(open(sys.argv[2]))

async def answer(request):
    return Response(answers[request.url.path], media_type="application/json")

async def take(request):
    json.loads(await request.body())
    return Response("{}", 201, media_type="application/json")

async def events(request):
    async def told():
        while True:
            yield ": here\\n\\n"
            await asyncio.sleep(15)
    return StreamingResponse(told(), media_type="text/event-stream")

async def ok(request):
    return Response("ok")

routes = [Route("/healthz", ok), Route("/take", take, methods=["POST"]), Route("/events", events)]
app = Starlette(routes=[*routes, *(Route(path, answer) for path in answers)])
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="error")
"""


class _Process:
    """`started`: seconds from its start to its first answer."""

    port: int
    process: subprocess.Popen[bytes]
    started = 0.0
    health = "/healthz"

    def _wait(self, began: float) -> None:
        while True:
            try:
                with Connection(self.port) as asking:
                    asking.get(self.health)
                    break
            except OSError:
                assert self.process.poll() is None, "the server has ended"
                time.sleep(0.002)
        self.started = time.perf_counter() - began

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


class ServeProcess(_Process):
    def __init__(self, home: Path, store: str = "", worker: bool = False) -> None:
        self._home, self._store, self._worker = home, store, worker
        self.port = free_port()
        self.token = ""

    def __enter__(self) -> ServeProcess:
        env = {**os.environ, "PENSTOCK_HOME": str(self._home)}
        env.pop("PENSTOCK_STORE", None)
        if self._store:
            env["PENSTOCK_STORE"] = self._store
        words = ["serve", "--port", str(self.port), "-q", *([] if self._worker else ["--no-worker"])]
        began = time.perf_counter()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "penstock", *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env
        )
        self._wait(began)
        assert self.process.stdout is not None
        self.token = self.process.stdout.readline().decode().strip().partition("token=")[2]
        return self


class BareProcess(_Process):
    def __init__(self, answers: Mapping[str, str]) -> None:
        self.port = free_port()
        self._file = tempfile.NamedTemporaryFile("w", suffix=".json")  # noqa: SIM115
        json.dump(dict(answers), self._file)
        self._file.flush()

    def __enter__(self) -> BareProcess:
        began = time.perf_counter()
        self.process = subprocess.Popen([sys.executable, "-c", BARE, str(self.port), self._file.name])
        self._wait(began)
        return self


class PrefectProcess(_Process):
    health = "/api/health"

    def __init__(self, program: str, home: Path) -> None:
        self._program, self._home = program, home
        self.port = free_port()

    def __enter__(self) -> PrefectProcess:
        env = {
            **os.environ,
            "PREFECT_HOME": str(self._home),
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            "DO_NOT_TRACK": "1",
        }
        command = [self._program, "server", "start", "--host", "127.0.0.1", "--port", str(self.port)]
        began = time.perf_counter()
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env)
        self._wait(began)
        return self


class Connection:
    """One connection that is kept, as those of clients are."""

    def __init__(self, port: int, token: str = "") -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self._headers = {"Accept": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """The next request opens a new one."""
        self._connection.close()

    def ask(self, method: str, path: str, data: Any = None, **headers: str) -> bytes:
        body = None if data is None else json.dumps(data)
        given = {**self._headers, **({"Content-Type": "application/json"} if body else {}), **headers}
        self._connection.request(method, path, body, given)
        answer = self._connection.getresponse()
        found = answer.read()
        assert answer.status in (200, 201), (answer.status, found[:500])
        return found

    def get(self, path: str) -> bytes:
        return self.ask("GET", path)

    def timed(self, path: str) -> float:
        began = time.perf_counter()
        self.get(path)
        return time.perf_counter() - began


def open_streams(port: int, path: str, token: str, many: int) -> list[socket.socket]:
    """So many clients that have got the first bytes of a stream."""
    found = []
    for _ in range(many):
        one = socket.create_connection(("127.0.0.1", port))
        given = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\nAccept: text/event-stream\r\n\r\n"
        one.sendall(given.encode())
        found.append(one)
    for one in found:
        one.settimeout(30)
        assert one.recv(4096).startswith(b"HTTP/1.1 200")
    return found


def memory_of(pid: int) -> float:
    """In MB: what the process has in memory."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1000
    return 0.0


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        return int(one.getsockname()[1])
