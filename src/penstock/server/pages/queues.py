"""Pages about queues. Taken in by site."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from penstock.phrases import quoted
from penstock.server.access import note
from penstock.server.api.common import needs, threads_of, who_of
from penstock.server.api.queues import STOPS
from penstock.server.pages.site import page
from penstock.service import queues
from penstock.service.amounts import UNLIMITED, figure, vector
from penstock.service.views.quotas import FlavorUsage, QueueReader, QueueView, StoreQueues
from penstock.store.sql import Store

router = APIRouter(include_in_schema=False)
LOOK = needs("viewer", "look at queues")
EXPLAINED = 50
"""Waiting Workloads whose reason is worked out for a page."""


@router.get("/queues", dependencies=[LOOK])
async def list_queues(request: Request) -> Response:
    def look(store: Store) -> dict[str, Any]:
        reader = QueueReader(StoreQueues(store))
        views = reader.all()
        return {
            "data": [view.as_data(workloads=False) for view in views],
            "views": [(view, _bars(view)) for view in views],
            "configured": reader.source.configured,
        }

    return page(request, "queues.html", await threads_of(request).call(look), "penstock queue ls")


@router.get("/queues/{name:path}", dependencies=[LOOK])
async def show_queue(request: Request, name: str) -> Response:
    def look(store: Store) -> dict[str, Any]:
        reader = QueueReader(StoreQueues(store))
        view = reader.one(name, EXPLAINED)
        return {
            "data": view.as_data(),
            "view": view,
            "bars": _bars(view),
            "holding": [(one, vector(one.total)) for one in view.holding[:500]],
            "waiting": [(one, vector(one.total)) for one in view.waiting[:500]],
            "configured": reader.source.configured,
        }

    data = await threads_of(request).call(look)
    data["may_stop"] = who_of(request).may("operator") and data["configured"]
    return page(request, "queue.html", data, f"penstock queue show {quoted(name)}")


def _bars(view: QueueView) -> list[dict[str, Any]]:
    return [_bar(one) for one in view.usage if one.matters]


def _bar(one: FlavorUsage) -> dict[str, Any]:
    """How much of what it may use is used, and of that what is borrowed."""
    most = max(one.nominal if one.nominal < UNLIMITED else 0, one.used, one.most if one.most < UNLIMITED else 0, 1)
    own = one.used - one.borrowed
    return {
        "flavor": one.flavor,
        "resource": one.resource,
        "own": round(100 * own / most, 2),
        "borrowed": round(100 * one.borrowed / most, 2),
        "nominal": round(100 * min(one.nominal, most) / most, 2),
        "words": f"{figure(one.used, one.resource)} of {figure(one.nominal, one.resource)}"
        + (f", {figure(one.borrowed, one.resource)} borrowed" if one.borrowed > 0 else ""),
    }


@router.post("/queues/{name:path}/{verb}", dependencies=[needs("operator", "stop queues")])
async def stop_queue(request: Request, name: str, verb: str) -> Response:
    await threads_of(request).call(lambda store: queues.set_stop(store, name, STOPS.get(verb, STOPS["resume"])))
    await note(request, verb, f"queue {name}", 303)
    return RedirectResponse(f"/queues/{name}", 303)
