"""Pages about queues. Taken in by site."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from penstock.phrases import quoted
from penstock.server.access import actor_of, note
from penstock.server.api.cluster import queues_beside
from penstock.server.api.common import cluster_of, needs, threads_of, who_of
from penstock.server.pages.queue_time import over_time
from penstock.server.pages.site import page
from penstock.service import queues
from penstock.service.access import administers_queue
from penstock.service.amounts import UNLIMITED, figure, vector
from penstock.service.queue_changes import VERBS
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

    data = await threads_of(request).call(look)
    cluster = cluster_of(request)
    data["data"] = {"items": data["data"], "cluster": queues_beside(request)}
    data["status"] = None if cluster is None else cluster.status()
    data["theirs"] = [] if cluster is None else [(view, _bars(view)) for view in cluster.queues()]
    return page(request, "queues.html", data, "penstock queue ls")


@router.get("/queues/{name:path}", dependencies=[LOOK])
async def show_queue(request: Request, name: str) -> Response:
    who = who_of(request)

    def look(store: Store) -> dict[str, Any]:
        reader = QueueReader(StoreQueues(store))
        view = reader.one(name, EXPLAINED)
        listed = who.may("submitter") and bool(administers_queue(store, name, actor_of(who)))
        runs = {one.workload: one.run for one in (*view.holding, *view.waiting)}

        def there(workload: str) -> str:
            return f"/runs/{quote(runs[workload], safe='')}" if runs[workload] else ""

        return {
            **(time := over_time(store, view, request.query_params)),
            "data": view.as_data() | time["over_time"],
            **queue_data(view, there),
            "may_stop": reader.source.configured and (listed or who.may("operator")),
            "status": None,
        }

    data = await threads_of(request).call(look)
    return page(request, "queue.html", data, f"penstock queue show {quoted(name)}")


def queue_data(view: QueueView, there: Callable[[str], str]) -> dict[str, Any]:
    """What the template needs. `there`: where a Workload leads to."""
    return {
        "view": view,
        "bars": _bars(view),
        "holding": [(one, vector(one.total), there(one.workload)) for one in view.holding[:500]],
        "waiting": [(one, vector(one.total), there(one.workload)) for one in view.waiting[:500]],
    }


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


@router.post("/queues/{name:path}/{verb}", dependencies=[needs("operator", "stop queues", queue=True)])
async def stop_queue(request: Request, name: str, verb: str) -> Response:
    await threads_of(request).call(lambda store: queues.set_stop(store, name, VERBS.get(verb, VERBS["resume"])))
    await note(request, verb, f"queue {name}", 303)
    return RedirectResponse(f"/queues/{name}", 303)
