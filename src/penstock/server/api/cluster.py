"""A cluster beside the store: its queues, and why something waits in them. Read-only. Taken in by app; lists of runs and queues have a part of it."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request

from penstock.server import models
from penstock.server.api.common import cluster_of, errors, needed_cluster, needs, threads_of
from penstock.service.clusters import ClusterItem

router = APIRouter(prefix="/cluster", tags=["cluster"])
LOOK = needs("viewer", "look at the cluster")
SHOWN = 500
"""Items of a list."""


@router.get("/queues/{name:path}", dependencies=[LOOK], response_model=models.QueueItem, responses=errors(404))
async def show_queue(request: Request, name: Annotated[str, Path(max_length=600)]) -> Any:
    """A queue of the cluster's Kueue: as `penstock queue show NAME --cluster -o json`."""
    source = needed_cluster(request)
    return (await threads_of(request).call(lambda _: source.queue(name, 1000))).as_data()


@router.get("/why", dependencies=[LOOK], response_model=models.ClusterWhy, responses=errors(404))
async def why_object(
    request: Request,
    object: Annotated[str, Query(max_length=600, description="KIND/NAME: workflow/nightly")],
    namespace: Annotated[str, Query(max_length=300)] = "default",
) -> Any:
    """What an object of the cluster waits for: as `penstock why KIND/NAME -o json`, without its pods and Events."""
    source = needed_cluster(request)
    return (await threads_of(request).call(lambda _: source.why(object, namespace))).data


# -- beside the lists of the store ------------------------------------------------------------------------------------


def workflows_beside(request: Request, state: str, workflow: str, user: str) -> dict[str, Any] | None:
    """What is in the queues of the cluster, by the filters of the list of runs; None without a cluster."""
    source = cluster_of(request)
    if source is None:
        return None
    return source.status().as_data() | {
        "items": [one.as_data() for one in chosen_items(request, state, workflow, user)]
    }


def chosen_items(request: Request, state: str, workflow: str, user: str) -> list[ClusterItem]:
    """The cluster does not know users."""
    source = cluster_of(request)
    found = source.items() if source is not None and not user else ()
    return [
        one
        for one in found
        if (not state or one.state == state) and (not workflow or one.target.partition("/")[2] == workflow)
    ][:SHOWN]


def queues_beside(request: Request) -> dict[str, Any] | None:
    source = cluster_of(request)
    if source is None:
        return None
    return source.status().as_data() | {"items": [one.as_data(workloads=False) for one in source.queues()]}
