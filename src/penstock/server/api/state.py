"""How the server itself is, and what its errors mean. Taken in by app; health and metrics are at the top, as monitors expect."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response
from fastapi.responses import PlainTextResponse, StreamingResponse

from penstock.server import models
from penstock.server.api.common import errors, needs, threads_of
from penstock.server.feeds import Feeds
from penstock.service.error_codes import explain
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
    """Server-sent events: one whenever anything was written to the store, at most two a second; then `closing` when the server ends."""
    return StreamingResponse(_told(request.app.state.feeds), media_type="text/event-stream")


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
    """Does its store answer? Open to everybody."""
    if request.app.state.feeds.closing:
        return PlainTextResponse("the server is ending\n", 503)
    try:
        async with asyncio.timeout(PATIENCE):
            await threads_of(request).call(lambda store: store.queues.last_decision())
    except Exception:
        return PlainTextResponse("the store does not answer\n", 503)
    return PlainTextResponse("ok\n")


@health.get("/metrics", dependencies=[needs("viewer", "read metrics")], response_class=PlainTextResponse)
async def metrics(request: Request) -> str:
    """For Prometheus, in its text format."""

    def look(store: Store) -> dict[str, int]:
        found: dict[str, int] = {}
        for run in store.runs.newest(state=["running", "stopped"]):
            found[run.state] = found.get(run.state, 0) + 1
        found["ordered"] = len(store.orders.all())
        return found

    counts = await threads_of(request).call(look)
    worker = request.app.state.worker
    rows = [
        ("penstock_info", "gauge", "The version", [(f'version="{request.app.version}"', 1)]),
        (
            "penstock_runs",
            "gauge",
            "Runs that are not over, by the state of their record",
            [(f'state="{name}"', counts.get(name, 0)) for name in ("running", "stopped")],
        ),
        ("penstock_orders", "gauge", "Runs that workers have to do something about", [("", counts["ordered"])]),
        ("penstock_worker_runs", "gauge", "Runs that this process executes", [("", worker.running if worker else 0)]),
        *request.app.state.counted.rows(),
    ]
    lines = []
    for name, kind, text, samples in rows:
        lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
        lines += [f"{name}{{{labels}}} {value}" if labels else f"{name} {value}" for labels, value in samples]
    return "\n".join(lines) + "\n"
