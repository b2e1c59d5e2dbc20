"""The server under load: lists of many runs, submission, streams, updates on the screen, start. Called by __main__.

The bare limit is a Starlette application on uvicorn, in a process of its own as ours is, that answers with the same data: `bare.py`. Prefect's
server is measured beside it where it is installed.
"""

from __future__ import annotations

import http.client
import importlib.util
import json
import os
import random
import shutil
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from bench.measure import Figure, best
from bench.web import BareProcess, Connection, PrefectProcess, ServeProcess, memory_of, open_streams
from penstock.graph import codec
from penstock.service import stores
from penstock.settings import read
from penstock.store import liveness
from penstock.store.sql import Store
from tests.cli.history import Hand
from tests.support import postgres

RUNS = 100_000
CLIENTS = 200
RATE = 200
SECONDS = 5
FLOW = {
    "apiVersion": "penstock/v1",
    "kind": "Workflow",
    "name": "nothing",
    "steps": [{"name": "a", "container": {"image": "busybox", "command": ["true"]}}],
}
WATCH = """() => { window.seen = []; const look = () => {
  const found = /([0-9,]+) done/.exec(document.getElementById("main").textContent);
  const many = found ? Number(found[1].replaceAll(",", "")) : 0;
  if (!window.seen.length || window.seen.at(-1)[1] !== many) window.seen.push([Date.now() / 1000, many]);
}; new MutationObserver(look).observe(document.getElementById("main"), {subtree: true, childList: true, characterData: true}); look(); }"""
FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]


def figures() -> Iterator[Figure]:
    yield from _start()
    with tempfile.TemporaryDirectory() as folder:
        yield from _lists(Path(folder), "SQLite", "")
        yield from _submission(Path(folder))
        yield from _streams(Path(folder))
        yield from _screen(Path(folder))
    yield from _prefect()
    if (found := postgres.binaries()) is not None:
        server = postgres.Server(found)
        try:
            with tempfile.TemporaryDirectory() as folder:
                yield from _lists(Path(folder), "PostgreSQL", server.database())
        finally:
            server.close()


def _start() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        times, bare = [], []
        for _ in range(5):
            with ServeProcess(Path(folder) / ".penstock") as served:
                times.append(served.started)
            with BareProcess({}) as other:
                bare.append(other.started)
        yield Figure("server: start to the first answer", min(times), 1.0, "s", min(bare), "bare Starlette")


def _prefect() -> Iterator[Figure]:
    """Prefect's server, if the program is there: until it answers, and a run that is submitted to it."""
    program = shutil.which("prefect")
    if program is None:
        return
    with tempfile.TemporaryDirectory() as folder, PrefectProcess(program, Path(folder)) as other:
        yield Figure("Prefect's server: start to the first answer", other.started, None, "s")
        with Connection(other.port) as asking:
            flow = json.loads(asking.ask("POST", "/api/flows/", {"name": "nothing"}))["id"]
            given = {"flow_id": flow, "state": {"type": "SCHEDULED"}}
            page = {"limit": 50, "sort": "START_TIME_DESC"}
            for what, path, data in (
                ("submission", "/api/flow_runs/", given),
                ("list of 50 among some runs, SQLite", "/api/flow_runs/filter", page),
            ):
                times = [seconds for _ in range(60) if (seconds := _answered(asking, path, data)) is not None]
                if times:
                    yield Figure(f"Prefect's server: {what}", 1000 * min(times), None, "ms")


def _answered(asking: Connection, path: str, data: Any) -> float | None:
    """None: it had no time (503), and has hung up."""
    began = time.perf_counter()
    try:
        asking.ask("POST", path, data)
    except (AssertionError, OSError, http.client.HTTPException):
        asking.close()
        return None
    return time.perf_counter() - began


# -- lists ------------------------------------------------------------------------------------------------------------


def filters() -> list[dict[str, str]]:
    now = time.time()
    states = ("starting", "running", "queued", "stopped", "lost", "succeeded", "failed", "cancelled")
    single = [
        {},
        *({"state": state} for state in states),
        *({"workflow": one} for one in ("w-0", "w-39", "none")),
        *({"user": one} for one in ("u-0", "u-19", "nobody")),
        *({"since": str(now - back)} for back in (60, 3600, 86400, 864000)),
        {"cursor": str(RUNS // 2)},
    ]
    pairs = [
        {"workflow": "w-0", "user": "u-19"},
        {"workflow": "w-0", "state": "cancelled"},
        {"workflow": "w-39", "state": "running"},
        {"user": "u-0", "state": "failed"},
        {"user": "u-0", "state": "lost"},
        {"state": "cancelled", "since": str(now - 3600)},
        {"workflow": "w-0", "user": "u-0", "state": "cancelled"},
        {"workflow": "w-0", "user": "u-19", "state": "queued", "since": str(now - 86400)},
    ]
    return single + pairs


def fill(store: Store, url: str, folder: Path, many: int) -> None:
    """Runs of ten days: most of one workflow and one user, most of them succeeded; some hundred are not over."""
    chance, now = random.Random(7), time.time()
    owner = liveness.identity("bench-owner")
    store.peers.register(owner, now)
    rows: list[tuple[Any, ...]] = []
    orders: list[tuple[Any, ...]] = []
    for number in range(1, many + 1):
        workflow = f"w-{0 if chance.random() < 0.7 else chance.randrange(40)}"
        user = f"u-{0 if chance.random() < 0.6 else chance.randrange(20)}"
        created = now - 864000 * (1 - number / many)
        params = json.dumps({"rows": number, "source": "s3://bucket/some/where.parquet"})
        state = chance.choices(("succeeded", "failed", "cancelled"), (0.965, 0.03, 0.005))[0]
        if number % 250 == 0:
            state = ("running", "stopped")[number // 250 % 2]
        engine = owner.id if state == "running" and number % 5000 else None
        ended = None if state in ("running", "stopped") else created + 60
        counts = json.dumps({"succeeded": 12} if ended else {"running": 1, "waiting": 3})
        head = (number, f"{workflow}-{number}", workflow, "sha256:0", state, created, ended, 9, engine, user, counts)
        rows.append((*head, params, "{}"))
        if state == "stopped" and number % 1000:
            orders.append((number, "run", "{}", now))
    names = "number, id, workflow, digest, state, created, ended, seq, engine, username, counts, params, options"
    put = f"INSERT INTO runs ({names}) VALUES ({', '.join('?' * 13)})"
    order = "INSERT INTO work_orders (run, verb, data, at) VALUES (?, ?, ?, ?)"
    if url:
        import psycopg

        with psycopg.connect(url) as db, db.cursor() as cursor:
            cursor.executemany(put.replace("?", "%s"), rows)  # type: ignore[arg-type,unused-ignore]
            cursor.executemany(order.replace("?", "%s"), orders)  # type: ignore[arg-type,unused-ignore]
            cursor.execute("ANALYZE")
        return
    with sqlite3.connect(folder / "state.db") as here:
        here.executemany(put, rows)
        here.executemany(order, orders)
    here.close()


def _lists(folder: Path, name: str, url: str) -> Iterator[Figure]:
    home = folder / name
    settings = read({}, home=home, store=url or None)
    stores.prepare(settings)
    with stores.open_or_create(settings) as store:
        fill(store, url, home, RUNS)
    with ServeProcess(home, url) as served, Connection(served.port, served.token) as asking:
        took: dict[str, float] = {}
        body = b""
        for chosen in filters():
            path = f"/api/v1/runs?{urlencode({'limit': '50', **chosen})}"
            body = asking.get(path) if not chosen else body or asking.get(path)
            took[json.dumps(chosen)] = min(asking.timed(path) for _ in range(9))
        with BareProcess({"/runs": body.decode()}) as other, Connection(other.port) as bare:
            limit = min(bare.timed("/runs") for _ in range(30))
        worst = max(took, key=lambda one: took[one])
        title = f"server: list of 50 among {RUNS:,} runs, {name}"
        yield Figure(f"{title}, no filter", 1000 * took["{}"], 30, "ms", 1000 * limit, "bare Starlette")
        shown = ", ".join(json.loads(worst))
        yield Figure(
            f"{title}, the slowest of {len(took)} ({shown})",
            1000 * took[worst],
            30,
            "ms",
            1000 * limit,
            "bare Starlette",
        )
        if os.environ.get("BENCH_DETAILS"):
            for key, seconds in sorted(took.items(), key=lambda one: -one[1]):
                print(f"    {1000 * seconds:8.2f} ms {key}")


# -- submission -------------------------------------------------------------------------------------------------------


def _submission(folder: Path) -> Iterator[Figure]:
    """What is recorded is the same: the document is read, checked, held against the queues, and becomes a run with an order."""
    from penstock.service import intake
    from penstock.service.policy import Actor

    document = json.dumps(FLOW)
    given = {"document": document, "options": {"dry": True}}
    here = read({}, home=folder / "local")
    stores.prepare(here)
    with (
        stores.open_or_create(here) as store,
        ServeProcess(folder / "served") as served,
        Connection(served.port, served.token) as asking,
        BareProcess({}) as other,
        Connection(other.port) as bare,
    ):
        one = intake.Parcel(document=document, options={"dry": True})
        ways: dict[str, Callable[[], object]] = {
            "local": lambda: intake.submit(store, here, one, Actor("ana", ())),
            "there": lambda: asking.ask("POST", "/api/v1/runs", given),
            "bare": lambda: bare.ask("POST", "/take", given),
        }
        times: dict[str, float] = {}
        for _ in range(80):  # by turns, so that what else the machine does is in all of them
            for name, work in ways.items():
                times[name] = min(times.get(name, 1e9), best(work, 1))
    yield Figure("server: submission, times the local one", times["there"] / times["local"], 3.0, "×")
    yield Figure("server: submission", 1000 * times["there"], None, "ms", 1000 * times["bare"], "bare Starlette")


# -- streams and screens ----------------------------------------------------------------------------------------------


def _streams(folder: Path) -> Iterator[Figure]:
    with ServeProcess(folder / "streams") as served, Connection(served.port, served.token) as asking:
        given = {"document": json.dumps(FLOW), "options": {"dry": True}}
        run = json.loads(asking.ask("POST", "/api/v1/runs", given))["run"]["run"]
        open_ones = open_streams(served.port, f"/api/v1/runs/{run}/stream", served.token, CLIENTS)
        used = memory_of(served.process.pid)
        for one in open_ones:
            one.close()
    with BareProcess({}) as other:
        open_ones = open_streams(other.port, "/events", "", CLIENTS)
        bare = memory_of(other.process.pid)
        for one in open_ones:
            one.close()
    yield Figure(f"server: memory with {CLIENTS} open streams", used, 400, "MB", bare, "bare Starlette")


def _screen(folder: Path) -> Iterator[Figure]:
    """Tasks end at a rate; how old is what a page shows when it shows it?"""
    chromium = shutil.which("chromium")
    if chromium is None or importlib.util.find_spec("playwright") is None:
        return
    from playwright.sync_api import sync_playwright

    home = folder / "screen"
    stores.prepare(read({}, home=home))
    with ExitStack() as opened:
        served = opened.enter_context(ServeProcess(home))
        ticker = Ticker(home)
        opened.callback(ticker.close)
        browser = opened.enter_context(sync_playwright()).chromium.launch(executable_path=chromium, args=FLAGS)
        tab = browser.new_context().new_page()
        tab.goto(f"http://127.0.0.1:{served.port}/login?token={served.token}")
        tab.goto(f"http://127.0.0.1:{served.port}/runs/{ticker.run}")
        tab.evaluate(WATCH)
        ticker.tick()
        tab.wait_for_function("(many) => window.seen.at(-1)[1] >= many", arg=len(ticker.ended), timeout=30_000)
        seen = tab.evaluate("() => window.seen")
        browser.close()
    delays = []
    for number, at in enumerate(ticker.ended, 1):
        shown = next(when for when, many in seen if many >= number)
        delays.append(shown - at)
    delays.sort()
    title = f"server: an event on the screen, at {RATE} a second"
    yield Figure(f"{title}, 95 of 100", delays[int(len(delays) * 0.95)], 0.5, "s")
    yield Figure(f"{title}, in the middle", statistics.median(delays), None, "s")


class Ticker:
    """An engine that records the ends of tasks, and does nothing else."""

    def __init__(self, home: Path) -> None:
        self._hand = Hand(home, codec.from_text(json.dumps(fan(RATE * SECONDS)), "bench"))
        self.run = self._hand.id
        self.ended: list[float] = []
        self._hand.write()

    def tick(self) -> None:
        began = time.monotonic()
        for number in range(RATE * SECONDS):
            time.sleep(max(0.0, began + number / RATE - time.monotonic()))
            path = f"each[{number}]"
            self._hand.task(path, "each", "succeeded")
            self._hand.event("task.succeeded", path)
            self._hand.write()
            self.ended.append(time.time())

    def close(self) -> None:
        self._hand.close()


def fan(many: int) -> dict[str, Any]:
    container = {"image": "busybox", "command": ["true"]}
    each = {"axes": [{"i": list(range(many))}]}
    return {
        "apiVersion": "penstock/v1",
        "kind": "Workflow",
        "name": "fan",
        "steps": [{"name": "each", "each": each, "container": container}],
    }


if __name__ == "__main__":
    for figure in figures():
        print(figure.line(), flush=True)
