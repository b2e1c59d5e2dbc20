"""What the server costs, beside a bare Starlette handler that gives the same bytes. Called by __main__.

paint    the first paint of the pages of a run with 10,000 different steps, in Chromium where there is one; and their size before compression
"""

from __future__ import annotations

import asyncio
import http.client
import json
import shutil
import socket
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from bench.measure import Figure, best
from penstock.server.pages.site import STATIC
from tests.server.served import Served, wait_for

STEPS = 10_000
WIDE = 100
"""Steps of one stage; each waits for one of the stage before."""
MOST_BYTES = 300
PAINT = """() => new Promise((found) => new PerformanceObserver((list) => {
  for (const one of list.getEntriesByName("first-contentful-paint")) found(one.startTime);
}).observe({ type: "paint", buffered: true }))"""
CHROMIUM = shutil.which("chromium")
FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]


def figures() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as folder, Served(Path(folder) / ".penstock") as served:
        yield from _paint(served)


def document(steps: int = STEPS, wide: int = WIDE) -> str:
    """A workflow of so many different steps."""

    def step(number: int) -> dict[str, object]:
        before = [f"step-{number - wide}"] if number >= wide else []
        container = {"image": "busybox", "command": ["true", str(number)]}
        return {"name": f"step-{number}", "needs": before, "container": container}

    found = {"apiVersion": "penstock/v1", "kind": "Workflow", "name": "large", "steps": list(map(step, range(steps)))}
    return json.dumps(found)


def _paint(served: Served) -> Iterator[Figure]:
    run = served.submit(document())["run"]["run"]
    served.wait(run)
    sign_in = f"/login?token={served.own}"
    for name, path in (("its overview", ""), ("its graph", "/graph")):
        there = f"/runs/{run}{path}"
        body = served.ask("GET", there, headers={"Accept": "text/html"}).body
        yield Figure(f"run of {STEPS:,} steps: {name}", len(body) / 1000, MOST_BYTES, "kB")
        with Bare({there: body, sign_in: b"<!doctype html>"}) as bare:
            if CHROMIUM is not None:
                what = "first paint"
                least, seconds = (_first_paint(url, sign_in, there) for url in (bare.url, served.url))
            else:
                what = "answered (no Chromium here)"
                least, seconds = (_answered(port, there, served.own) for port in (bare.port, served.port))
        yield Figure(f"run of {STEPS:,} steps: {name}, {what}", seconds, 1.0, "s", least, "bare Starlette")


class Bare:
    """Starlette alone, on a port of its own: bytes that are there already, by their path and query."""

    def __init__(self, pages: dict[str, bytes]) -> None:
        async def answer(request: Request) -> Response:
            query = f"?{request.url.query}" if request.url.query else ""
            return HTMLResponse(pages.get(request.url.path + query, b""))

        static = Mount("/static", StaticFiles(directory=STATIC))
        app = Starlette(routes=[static, Route("/{path:path}", answer)])
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._server = uvicorn.Server(uvicorn.Config(app, log_level="error", access_log=False))
        self._thread = threading.Thread(target=lambda: asyncio.run(self._server._serve([self._listening])))

    def __enter__(self) -> Bare:
        self._thread.start()
        wait_for(lambda: self._server.started)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join(30)
        self._listening.close()


def _answered(port: int, path: str, token: str) -> float:
    return best(lambda: _get(port, path, token))


def _get(port: int, path: str, token: str) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", path, headers={"Accept": "text/html", "Authorization": f"Bearer {token}"})
        return connection.getresponse().read()
    finally:
        connection.close()


def _first_paint(url: str, sign_in: str, path: str) -> float:
    """Seconds from the request to the first content on the screen: the best of seven."""
    from playwright.sync_api import sync_playwright

    found = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        tab = browser.new_context().new_page()
        tab.goto(f"{url}{sign_in}")
        for _ in range(7):
            tab.goto(f"{url}{path}")
            found.append(float(tab.evaluate(PAINT)) / 1000)
        browser.close()
    return min(found)
