"""Queues: look at them, stop them, change them. Taken in by app."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Body, Path, Request

from penstock.admission.model import Stop
from penstock.server import models
from penstock.server.access import note
from penstock.server.api.common import errors, needs, threads_of
from penstock.service import queues
from penstock.service.views.quotas import QueueReader, StoreQueues
from penstock.store.sql import Store

router = APIRouter(prefix="/queues", tags=["queues"])
LOOK = needs("viewer", "look at queues")
QueueName = Annotated[str, Path(max_length=300)]
STOPS = {"drain": Stop.DRAIN, "hold": Stop.HOLD, "resume": Stop.NONE}


@router.get("", dependencies=[LOOK], response_model=models.QueueList, responses=errors())
async def list_queues(request: Request) -> Any:
    """Every ClusterQueue with its quota: as `penstock queue ls -o json`."""

    def look(store: Store) -> dict[str, Any]:
        return {"items": [view.as_data(workloads=False) for view in QueueReader(StoreQueues(store)).all()]}

    return await threads_of(request).call(look)


@router.get("/{name:path}", dependencies=[LOOK], response_model=models.QueueItem, responses=errors(404))
async def show_queue(request: Request, name: QueueName) -> Any:
    """Who holds its quota, who waits, in order, and why: as `penstock queue show NAME -o json`."""
    return await threads_of(request).call(lambda store: QueueReader(StoreQueues(store)).one(name).as_data())


@router.post(
    "/{name}/{verb}",
    dependencies=[needs("operator", "stop queues")],
    response_model=models.QueueItem,
    responses=errors(404, 409),
)
async def stop_queue(request: Request, name: QueueName, verb: Literal["drain", "hold", "resume"]) -> Any:
    """drain: running Workloads are evicted · hold: they may finish, nothing new starts · resume: it admits again."""

    def do(store: Store) -> dict[str, Any]:
        queues.set_stop(store, name, STOPS[verb])
        return QueueReader(StoreQueues(store)).one(name).as_data()

    found = await threads_of(request).call(do)
    await note(request, verb, f"queue {name}", 200)
    return found


@router.put("", dependencies=[needs("admin", "change queues")], response_model=models.QueueList, responses=errors(413))
async def apply_queues(
    request: Request, manifests: Annotated[str, Body(media_type="application/yaml", max_length=4 * 2**20)]
) -> Any:
    """Kueue's objects, or the queue configuration of YuniKorn: as `penstock queue apply FILE`. All or nothing."""

    def do(store: Store) -> dict[str, Any]:
        queues.apply(store, (manifests, "<request>"))
        return {"items": [view.as_data(workloads=False) for view in QueueReader(StoreQueues(store)).all()]}

    found = await threads_of(request).call(do)
    await note(request, "apply", "queues", 200)
    return found
