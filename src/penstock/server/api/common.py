"""What the routes have in common: the parts of the server, cursors, errors in the OpenAPI document. Called by the routes of api."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Annotated, Any, Final

from fastapi import Depends, Path, Query, Request

from penstock.errors import NotFound, PlanError, Problem
from penstock.server.access import Needs
from penstock.server.models import ProblemDetails
from penstock.server.problems import TYPE
from penstock.server.threads import StoreThreads, T
from penstock.service.clusters import ClusterSource
from penstock.service.run_records import find, seconds_of
from penstock.service.tokens import Identity
from penstock.service.views.listing import run_data
from penstock.settings import Settings
from penstock.store.records import RunRecord
from penstock.store.sql import Store

MOST: Final = 500
"""Items of a page."""
Limit = Annotated[int, Query(ge=1, le=MOST, description="Items of a page")]
Cursor = Annotated[str | None, Query(max_length=500, description="`next` of the page before")]
RunName = Annotated[str, Path(max_length=300, description="finetune-3; @ is the last run, @2 the one before it")]


def settings_of(request: Request) -> Settings:
    settings: Settings = request.app.state.settings
    return settings


def threads_of(request: Request) -> StoreThreads:
    threads: StoreThreads = request.app.state.threads
    return threads


def who_of(request: Request) -> Identity:
    who: Identity = request.state.who
    return who


def cluster_of(request: Request) -> ClusterSource | None:
    found: ClusterSource | None = request.app.state.cluster
    return found


def needed_cluster(request: Request) -> ClusterSource:
    """Raises NotFound."""
    found = cluster_of(request)
    if found is None:
        fix = "start it so: penstock serve --cluster CONTEXT"
        raise NotFound(Problem("P951", "this server shows no cluster", fix))
    return found


async def with_run(request: Request, name: str, work: Callable[[Store, RunRecord], T]) -> T:
    """Raises NotFound."""
    return await threads_of(request).call(lambda store: work(store, find(store, name)))


def listed(run: RunRecord, state: str) -> dict[str, Any]:
    return {**run_data(run, state), "seconds": seconds_of(run, time.time())}


def number_of(cursor: str | None) -> int | None:
    """Raises PlanError."""
    if cursor is None:
        return None
    if not cursor.isascii() or not cursor.isdecimal() or len(cursor) > 18:
        fix = "give `next` of the page before, as it was"
        raise PlanError(Problem("P943", f"{cursor[:40]!r} is not a cursor of this list", fix))
    return int(cursor)


def needs(role: str, what: str, own: bool = False, queue: bool = False) -> Any:
    """The dependency of a route."""
    return Depends(Needs(role, what, own, queue))


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """What a route may answer besides: for the OpenAPI document."""
    said = {"model": ProblemDetails, "content": {TYPE: {}}, "description": "A problem"}
    return {status: dict(said) for status in (*statuses, 400, 401, 403, 404, 408, 413, 421, 429, 503)}
