"""Callbacks: what was sent when runs ended, what came of it, and sending again. Taken in by app, before runs."""

from __future__ import annotations

import time
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field

from penstock.server.api.common import Cursor, Limit, RunName, errors, needs, number_of, threads_of, with_run
from penstock.server.models import _Open, _Strict
from penstock.service import callback_records as records
from penstock.store.records import RunRecord
from penstock.store.sql import Store

router = APIRouter(tags=["runs"])
LOOK = needs("viewer", "look at runs")


class CallbackTry(_Open):
    attempt: int
    at: float
    status: int = Field(description="Of the answer; 0: there was none")
    error: str
    seconds: float


class CallbackItem(_Open):
    number: int
    run: str
    callback: str
    end: str
    place: int | None = Field(description="Of the item that it is about")
    state: str = Field(description="new: still to be delivered; done; dead: given up")
    attempts: int
    error: str
    next_at: float | None
    key: str = Field(description="What the receiver got as Idempotency-Key")
    tries: list[CallbackTry]


class CallbackPage(BaseModel):
    items: list[CallbackItem]
    next: str | None


class Redeliver(_Strict):
    numbers: list[Annotated[int, Field(ge=1, lt=1 << 53)]] = Field(
        default=[], max_length=10_000, description="Which; none: all of the run that were given up"
    )


class Redelivered(BaseModel):
    redelivered: int


@router.get("/callbacks", dependencies=[LOOK], response_model=CallbackPage, responses=errors())
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


@router.get("/callbacks/{number}", dependencies=[LOOK], response_model=CallbackItem, responses=errors(404))
async def show_callback(request: Request, number: int) -> Any:
    """With every try to deliver it: as `penstock callbacks show N -o json`."""
    return await threads_of(request).call(lambda store: records.one(store, number).as_data())


@router.get("/runs/{run}/callbacks", dependencies=[LOOK], response_model=CallbackPage, responses=errors(404))
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
    response_model=Redelivered,
    status_code=202,
    responses=errors(404, 409),
)
async def redeliver(request: Request, run: RunName, given: Redeliver) -> Any:
    """Deliver callbacks of a run once more, with the same keys: as `penstock callbacks redeliver`."""

    def do(store: Store, record: RunRecord) -> dict[str, Any]:
        numbers = given.numbers or records.dead(store, run=record)
        return {"redelivered": records.redeliver(store, numbers, time.time(), None, record)}

    found = await with_run(request, run, do)
    request.app.state.nudge()
    return found
