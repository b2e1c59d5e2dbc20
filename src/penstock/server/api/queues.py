"""Queues: look at them, stop them, change them. Taken in by app."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Body, Path, Query, Request

from penstock.errors import PlanError, Problem
from penstock.server import models
from penstock.server.access import note
from penstock.server.api.cluster import queues_beside
from penstock.server.api.common import errors, needs, threads_of
from penstock.service import queues
from penstock.service.queue_changes import Named, stop_in
from penstock.service.views.quotas import QueueReader, StoreQueues
from penstock.store.sql import Store

router = APIRouter(prefix="/queues", tags=["queues"])
LOOK = needs("viewer", "look at queues")
QueueName = Annotated[str, Path(max_length=300)]


@router.get("", dependencies=[LOOK], response_model=models.QueueList, responses=errors())
async def list_queues(request: Request) -> Any:
    """Every ClusterQueue with its quota: as `penstock queue ls -o json`."""

    def look(store: Store) -> dict[str, Any]:
        return {"items": [view.as_data(workloads=False) for view in QueueReader(StoreQueues(store)).all()]}

    return await threads_of(request).call(look) | {"cluster": queues_beside(request)}


@router.get("/{name:path}", dependencies=[LOOK], response_model=models.QueueItem, responses=errors(404))
async def show_queue(request: Request, name: QueueName) -> Any:
    """Who holds its quota, who waits, in order, and why: as `penstock queue show NAME -o json`."""
    return await threads_of(request).call(lambda store: QueueReader(StoreQueues(store)).one(name).as_data())


@router.post(
    "/{name:path}/{verb}",
    dependencies=[needs("operator", "stop queues", queue=True)],
    response_model=models.QueueStopped,
    responses=errors(404, 409),
)
async def stop_queue(request: Request, name: QueueName, verb: Literal["drain", "hold", "resume"]) -> Any:
    """drain: running Workloads are evicted · hold: they may finish, nothing new starts · resume: it admits again."""

    def do(store: Store) -> dict[str, Any]:
        kind, called = stop_in(store, name, verb)
        return QueueReader(StoreQueues(store)).one(name).as_data() | {"changed": [{"kind": kind, "name": called}]}

    found = await threads_of(request).call(do)
    await note(request, verb, f"queue {name}", 200)
    return found


@router.put(
    "",
    dependencies=[needs("admin", "change queues")],
    response_model=models.QueuesChanged,
    responses=errors(413),
)
async def apply_queues(
    request: Request, manifests: Annotated[str, Body(media_type="application/yaml", max_length=4 * 2**20)]
) -> Any:
    """Kueue's objects, or the queue configuration of YuniKorn: as `penstock queue apply FILE`. All or nothing."""
    return await _apply(request, [(manifests, "<request>")])


@router.post(
    "",
    dependencies=[needs("admin", "change queues")],
    response_model=models.QueuesChanged,
    responses=errors(413),
)
async def apply_queue_files(request: Request, given: models.QueueFiles) -> Any:
    """The same of several files. All or nothing of all of them."""
    return await _apply(request, [(one.text, one.name) for one in given.files])


async def _apply(request: Request, sources: list[tuple[str, str]]) -> dict[str, Any]:
    def do(store: Store) -> dict[str, Any]:
        changed, warnings = queues.apply(store, *sources)
        return _changed(store, changed) | {"warnings": [one.as_data() for one in warnings]}

    found = await threads_of(request).call(do)
    await note(request, "apply", "queues", 200)
    return found


@router.delete(
    "",
    dependencies=[needs("admin", "change queues")],
    response_model=models.QueuesChanged,
    responses=errors(404),
)
async def delete_queues(
    request: Request,
    name: Annotated[list[str], Query(max_length=100, description="team-a, or Cohort/all; may be repeated")] = [],  # noqa: B006
    all: Annotated[bool, Query(description="Everything: only the machine itself is left")] = False,
) -> Any:
    """As `penstock queue delete NAME…`. If one does not exist, none is deleted."""
    if all == bool(name):
        raise PlanError(
            Problem("P946", "neither names nor all, or both", "say what to delete: ?name=team-a, or ?all=true")
        )

    def do(store: Store) -> dict[str, Any]:
        return _changed(store, queues.delete_all(store) if all else queues.delete(store, name))

    found = await threads_of(request).call(do)
    await note(request, "delete", "all queues" if all else f"queues {', '.join(name)}", 200)
    return found


def _changed(store: Store, changed: Named) -> dict[str, Any]:
    views = [view.as_data(workloads=False) for view in QueueReader(StoreQueues(store)).all()]
    return {"items": views, "changed": [{"kind": kind, "name": name} for kind, name in changed]}
