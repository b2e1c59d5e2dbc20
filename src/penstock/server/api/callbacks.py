"""Callbacks: what was sent when runs ended, what came of it, and sending again. Taken in by app, before runs."""

from __future__ import annotations

import time
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request

from penstock.server import record_models as models
from penstock.server.api.common import Cursor, Limit, RunName, errors, needs, number_of, threads_of, with_run
from penstock.service import callback_records as records
from penstock.store.records import RunRecord
from penstock.store.sql import Store

router = APIRouter(tags=["runs"])
LOOK = needs("viewer", "look at runs")


@router.get("/callbacks", dependencies=[LOOK], response_model=models.CallbackPage, responses=errors())
async def list_callbacks(
    request: Request,
    state: Annotated[list[Literal["new", "done", "dead"]], Query(max_length=3)] = [],  # noqa: B006
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Any:
    """Callbacks of all runs, the newest first: as `penstock callbacks ls -o json`."""
    before = number_of(cursor)

    def look(store: Store) -> dict[str, Any]:
        found = records.page(store, state, limit, before)
        following = str(found[-1].number) if len(found) == limit else None
        return {"items": [one.as_data() for one in found], "next": following}

    return await threads_of(request).call(look)


@router.get("/callbacks/{number}", dependencies=[LOOK], response_model=models.CallbackItem, responses=errors(404))
async def show_callback(request: Request, number: int) -> Any:
    """With every try to deliver it: as `penstock callbacks show N -o json`."""
    return await threads_of(request).call(lambda store: records.one(store, number).as_data())


@router.get("/runs/{run}/callbacks", dependencies=[LOOK], response_model=models.CallbackPage, responses=errors(404))
async def list_callbacks_of_run(request: Request, run: RunName, limit: Limit = 50, cursor: Cursor = None) -> Any:
    """Callbacks of one run, in their order."""
    after = number_of(cursor) or 0

    def look(store: Store, record: RunRecord) -> dict[str, Any]:
        found = [one for one in records.of_run(store, record) if one.number > after]
        following = str(found[limit - 1].number) if len(found) > limit else None
        return {"items": [one.as_data() for one in found[:limit]], "next": following}

    return await with_run(request, run, look)


@router.post(
    "/runs/{run}/callbacks/redeliver",
    dependencies=[needs("operator", "redeliver callbacks", own=True)],
    response_model=models.Redelivered,
    status_code=202,
    responses=errors(404, 409),
)
async def redeliver(request: Request, run: RunName, given: models.Redeliver) -> Any:
    """Deliver callbacks of a run once more, with the same keys: as `penstock callbacks redeliver`."""

    def do(store: Store, record: RunRecord) -> models.Redelivered:
        numbers = given.numbers or records.dead(store, run=record)
        return models.Redelivered(redelivered=records.redeliver(store, numbers, time.time(), None, record))

    found = await with_run(request, run, do)
    if found.redelivered:
        request.app.state.nudge()
    return found
