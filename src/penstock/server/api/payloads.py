"""Payloads: submit, list, look at, invalidate, drive again. Taken in by app."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import JSONResponse

from penstock.graph.text import read_json
from penstock.server import payload_models as models
from penstock.server.access import actor_of, entry_of, note
from penstock.server.api.common import Cursor, Limit, errors, needs, number_of, settings_of, threads_of, who_of
from penstock.service.intake import Parcel
from penstock.service.payloads import intake, verbs
from penstock.service.payloads.submit import PayloadRequest
from penstock.store.records import RunRecord
from penstock.store.sql import Store

router = APIRouter(prefix="/payloads", tags=["payloads"])
LOOK = needs("viewer", "look at payloads")
PayloadName = Annotated[str, Path(max_length=300, description="Its id, or a run of it: ingest-3")]


@router.post(
    "",
    dependencies=[needs("submitter", "submit payloads")],
    response_model=models.PayloadAnswer,
    status_code=201,
    responses=errors(409, 413) | {303: {"model": models.PayloadAnswer, "description": "Its run is there already"}},
)
async def submit_payload(request: Request, given: models.SubmitPayload) -> Any:
    """A payload has one run for each identity: it is answered with 201 if it is new, otherwise with 303 and the place of the run there is. What failed
    is tried again, as a new run."""
    read_json((await request.body()).decode(errors="replace"), "<request>")  # refuses what says a key twice
    parcel = Parcel(
        document=given.document,
        name=given.name,
        params=given.params,
        options=given.options.model_dump(),
        bundle=given.bundle,
    )
    asked = PayloadRequest(
        payload=given.payload, params=given.params, replace=given.replace, version=given.version, label=given.label
    )
    who, settings = who_of(request), settings_of(request)
    request.app.state.allowance.take(who.token)

    def receive(store: Store) -> Any:
        def noted(run: RunRecord) -> None:
            store.tokens.note(entry_of(who, "submit", run.id, 201))

        return intake.receive(store, settings, parcel, asked, actor_of(who), noted)

    found, warnings = await threads_of(request).call(receive)
    if found.created:
        request.app.state.nudge()
    body = {**found.as_data(), "warnings": [one.as_data() for one in warnings]}
    there = {"Location": f"/api/v1/runs/{found.payload.run_id}"}
    return JSONResponse(body, 201 if found.created else 303, there)


@router.get("", dependencies=[LOOK], response_model=models.PayloadPage, responses=errors())
async def list_payloads(
    request: Request,
    limit: Limit = 50,
    cursor: Cursor = None,
    state: models.PayloadState | None = None,
    workflow: Annotated[str | None, Query(max_length=300)] = None,
    since: Annotated[
        float | None,
        Query(ge=0, le=1e11, allow_inf_nan=False, description="Seconds since 1970: ended, or submitted, later"),
    ] = None,
    error: Annotated[str, Query(max_length=300, description="How its error begins, or a pattern: Timeout*")] = "",
) -> Any:
    """Those that were submitted last come first."""
    before = number_of(cursor)
    found, following = await threads_of(request).call(
        lambda store: verbs.page(store, limit, before, state, workflow, since, error)
    )
    return {"items": list(map(verbs.payload_data, found)), "next": None if following is None else str(following)}


@router.post(
    "/redrive",
    dependencies=[needs("operator", "drive runs again")],
    response_model=models.RedrivenRuns,
    responses=errors(409),
)
async def redrive_runs(request: Request, given: models.Redrive) -> Any:
    """Tries again every run that fits: of a payload as its next attempt, a new run; one without a payload goes on where it failed."""
    by, settings = actor_of(who_of(request)), settings_of(request)
    selection = verbs.Selection(state=given.state, workflow=given.workflow, since=given.since, error=given.error)

    def drive(store: Store) -> dict[str, Any]:
        if given.dry_run:
            return {"chosen": [one.id for one in verbs.chosen(store, selection)], "started": []}
        return verbs.redrive(store, settings, selection, by).as_data()

    found = await threads_of(request).call(drive)
    request.app.state.nudge()
    await note(request, "redrive", f"{len(found['started'])} runs", 200)
    return found


@router.get("/{payload}", dependencies=[LOOK], response_model=models.PayloadDetails, responses=errors(404))
async def show_payload(request: Request, payload: PayloadName) -> Any:
    """Its attempts with how they ended, and what happened to it besides."""
    return await threads_of(request).call(lambda store: verbs.history(store, verbs.find(store, payload)))


@router.post(
    "/{payload}/invalidate",
    dependencies=[needs("operator", "invalidate payloads", own=True)],
    response_model=models.PayloadItem,
    responses=errors(404),
)
async def invalidate_payload(request: Request, payload: PayloadName, given: models.Invalidate) -> Any:
    """What came of it does not count any more: the next submission makes a new run."""
    by = actor_of(who_of(request))

    def work(store: Store) -> dict[str, Any]:
        return verbs.payload_data(verbs.invalidate(store, verbs.find(store, payload), by, given.after))

    found = await threads_of(request).call(work)
    await note(request, "invalidate", found["payload"], 200)
    return found
