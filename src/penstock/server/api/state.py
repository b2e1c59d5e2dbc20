"""How the server itself is, and what its errors mean. Taken in by app; health and metrics are at the top, as monitors expect."""

from __future__ import annotations

import asyncio
import gc
import resource
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path as FilePath
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response
from fastapi.responses import PlainTextResponse, StreamingResponse

from penstock.server import models
from penstock.server.api.common import errors, needs, threads_of
from penstock.server.counted import Rows
from penstock.server.feeds import Feeds
from penstock.server.leash import streamed
from penstock.service.error_codes import explain
from penstock.service.run_records import engines_of
from penstock.service.views.quotas import QueueReader, QueueView, StoreQueues
from penstock.store.sql import Store

router = APIRouter(tags=["server"])
health = APIRouter(tags=["server"])
PATIENCE = 5.0
"""Seconds after which a store that does not answer counts as away."""
PAUSE = 0.5
"""Seconds between two lines that say no more than that something has changed."""


@router.get(
    "/errors/{code}", dependencies=[needs("viewer", "ask")], response_model=models.ErrorCode, responses=errors(404)
)
async def error_code(request: Request, code: Annotated[str, Path(max_length=20)]) -> Any:
    """What a code means, and what to do: as `penstock explain CODE`."""
    name, entry = explain(code)
    return {"code": name, "title": entry["title"], "text": entry["text"].strip()}


@router.get(
    "/stream",
    dependencies=[needs("viewer", "look at runs")],
    response_class=StreamingResponse,
    responses=errors()
    | {200: {"content": {"text/event-stream": {}}, "description": "A line whenever something was written"}},
)
async def follow(request: Request) -> Response:
    """Server-sent events: one whenever anything was written to the store, at most two a second; then `closing` when the server ends, or `refused` when
    the token is of no use any more."""
    return streamed(request, _told(request.app.state.feeds))


async def _told(feeds: Feeds) -> AsyncIterator[str]:
    yield "retry: 1000\n\n"
    async for changed in feeds.anything():
        yield "data: {}\n\n" if changed else ": still here\n\n"
        await asyncio.sleep(PAUSE)
    yield "event: closing\ndata: {}\n\n"


@health.get("/healthz", response_class=PlainTextResponse)
async def healthz() -> str:
    """Is the process alive? Open to everybody."""
    return "ok\n"


@health.get("/readyz", response_class=PlainTextResponse, responses={503: {"content": {"text/plain": {}}}})
async def readyz(request: Request) -> Response:
    """Does its store answer? If its worker has died, a second line says so: pages and other workers go on. Open to everybody."""
    if request.app.state.feeds.closing:
        return PlainTextResponse("the server is ending\n", 503)
    try:
        async with asyncio.timeout(PATIENCE):
            await threads_of(request).call(lambda store: store.queues.last_decision())
    except Exception:
        return PlainTextResponse("the store does not answer\n", 503)
    beside = request.app.state.beside
    return PlainTextResponse(f"ok\n{beside.trouble}\n" if beside is not None and beside.trouble else "ok\n")


@health.get("/metrics", dependencies=[needs("viewer", "read metrics")], response_class=PlainTextResponse)
async def metrics(request: Request) -> str:
    """For Prometheus, in its text format."""

    queues: list[QueueView] = []
    beside = request.app.state.beside
    working = beside.pid if beside is not None else request.app.state.working

    def look(store: Store) -> dict[str, int]:
        queues.extend(QueueReader(StoreQueues(store)).all())
        found = {"ours": 0}
        engines = engines_of(store, working)
        for run in store.runs.newest(state=["running", "stopped"]):
            found[run.state] = found.get(run.state, 0) + 1
            found["ours"] += run.state == "running" and run.engine in engines
        found["ordered"] = store.orders.count()
        return found

    counts = await threads_of(request).call(look)
    rows = [
        ("penstock_info", "gauge", "The version", [(f'version="{request.app.version}"', 1)]),
        (
            "penstock_runs",
            "gauge",
            "Runs that are not over, by the state of their record",
            [(f'state="{name}"', counts.get(name, 0)) for name in ("running", "stopped")],
        ),
        ("penstock_orders", "gauge", "Runs that workers have to do something about", [("", counts["ordered"])]),
        ("penstock_worker_runs", "gauge", "Runs that the worker of this server executes", [("", counts["ours"])]),
        ("penstock_worker_up", "gauge", "Is the worker of this server there", [("", int(working is not None))]),
        (
            "penstock_worker_restarts_total",
            "counter",
            "How often the worker of this server was started again",
            [("", beside.restarts if beside is not None else 0)],
        ),
        ("penstock_queue_pending", "gauge", "Workloads that wait", [(_label(one), len(one.waiting)) for one in queues]),
        (
            "penstock_queue_admitted",
            "gauge",
            "Workloads that hold quota",
            [(_label(one), len(one.holding)) for one in queues],
        ),
        *request.app.state.counted.rows(),
        *_process(),
    ]
    lines = []
    for name, kind, text, samples in rows:
        lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
        for labels, value in samples:
            tail = labels if labels.startswith("_") else f"{{{labels}}}" if labels else ""
            lines.append(f"{name}{tail} {value}")
    return "\n".join(lines) + "\n"


def _process() -> Rows:
    """By the names that Prometheus gives them everywhere."""
    collected = [(f'generation="{number}"', float(one["collections"])) for number, one in enumerate(gc.get_stats())]
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0
    with suppress(OSError, ValueError, IndexError):
        memory = int(FilePath("/proc/self/statm").read_text().split()[1]) * float(resource.getpagesize())
    return [
        ("process_resident_memory_bytes", "gauge", "Memory of this process", [("", memory)]),
        (
            "process_cpu_seconds_total",
            "counter",
            "Processor time of this process",
            [("", round(time.process_time(), 2))],
        ),
        ("python_gc_collections_total", "counter", "How often garbage was collected", collected),
    ]


def _label(view: QueueView) -> str:
    plain = view.name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'queue="{plain}"'
