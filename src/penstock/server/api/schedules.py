"""Schedules: list, add, look at, pause, resume, run, remove. Taken in by app."""

from __future__ import annotations

import time
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.responses import JSONResponse

from penstock.errors import NotFound
from penstock.server import schedule_models as models
from penstock.server.access import actor_of, entry_of, note
from penstock.server.api.common import Limit, errors, needs, settings_of, threads_of, who_of
from penstock.service import intake, tokens
from penstock.service.schedules import verbs
from penstock.service.schedules.noun import StoredSchedule
from penstock.service.tokens import Identity
from penstock.store.records import RunRecord
from penstock.store.sql import Store

router = APIRouter(prefix="/schedules", tags=["runs"])
LOOK = needs("viewer", "look at schedules")
Name = Annotated[str, Path(max_length=300)]


@router.get("", dependencies=[LOOK], response_model=models.SchedulePage, responses=errors())
async def list_schedules(
    request: Request,
    limit: Limit = 100,
    cursor: Annotated[str, Query(max_length=300, description="`next` of the page before")] = "",
) -> Any:
    """By name: as `penstock schedule ls -o json`."""

    def look(store: Store) -> dict[str, Any]:
        rows = store.schedules.page(limit + 1, cursor)
        more = rows[limit - 1].name if len(rows) > limit else None
        return {"items": [verbs.data(StoredSchedule.of(row)) for row in rows[:limit]], "next": more}

    return await threads_of(request).call(look)


@router.post(
    "",
    dependencies=[needs("submitter", "add schedules")],
    response_model=models.ScheduleDetails,
    status_code=201,
    responses=errors(404, 409, 413),
)
async def add_schedule(request: Request, given: models.NewSchedule) -> Any:
    """The workflow and its code are kept as they are sent. Its runs belong to whoever adds it. To replace somebody else's schedule takes an operator."""
    who, settings = who_of(request), settings_of(request)
    request.app.state.allowance.take(who.token)
    parcel = intake.Parcel(
        document=given.document,
        name=given.name,
        params=given.params,
        options=given.options.model_dump() | {"fresh": given.options.fresh or not given.reuse},
        bundle=given.bundle,
    )
    now = time.time()
    asked = verbs.requested(
        given.schedule,
        crons=tuple(given.cron),
        zone=given.zone,
        every=given.every,
        start=given.start,
        end=given.end,
        now=now,
        grace=given.grace,
        policy={"catch_up": given.catch_up, "overlap": given.overlap},
        due_param=given.due_param or "",
        paused=given.paused,
        replace=given.replace,
    )

    def do(store: Store) -> dict[str, Any]:
        _may_replace(store, who, given.schedule)
        workflow = intake.checked(parcel)
        due = verbs.due_only(asked, workflow, parcel.params, now)
        submission, _ = intake.prepared(store, settings, parcel, workflow, actor_of(who), due)

        def noted() -> None:
            store.tokens.note(entry_of(who, "schedule", given.schedule, 201))

        return verbs.details(store, verbs.add(store, asked, submission, now, noted))

    body = await threads_of(request).call(do)
    request.app.state.nudge()
    return JSONResponse(body, 201, {"Location": f"/api/v1/schedules/{given.schedule}"})


def _may_replace(store: Store, who: Identity, name: str) -> None:
    """Raises NotAllowed."""
    try:
        owner = verbs.find(store, name).row.owner
    except NotFound:
        return
    if owner != who.person and not who.may("operator"):
        raise tokens.forbidden(who, "operator", f"replace schedules of {owner}")


@router.get("/{schedule}", dependencies=[LOOK], response_model=models.ScheduleDetails, responses=errors(404))
async def show_schedule(request: Request, schedule: Name) -> Any:
    """With its last runs: as `penstock schedule show NAME -o json`."""
    return await threads_of(request).call(lambda store: verbs.details(store, verbs.find(store, schedule)))


@router.get("/{schedule}/times", dependencies=[LOOK], response_model=models.ScheduleTimes, responses=errors(404))
async def next_times(request: Request, schedule: Name, limit: Limit = 5) -> Any:
    """When it is due next: as `penstock schedule next NAME -o json`."""
    now = time.time()
    found = await threads_of(request).call(lambda store: verbs.times(verbs.find(store, schedule), now, limit))
    return {"times": found}


@router.post(
    "/{schedule}/run",
    dependencies=[needs("operator", "run schedules", own=True)],
    response_model=models.ScheduledRun,
    status_code=201,
    responses=errors(404, 409),
)
async def run_schedule(request: Request, schedule: Name) -> Any:
    """Now, beside its times."""
    who = who_of(request)
    request.app.state.allowance.take(who.token)

    def do(store: Store) -> str:
        def noted(run: RunRecord) -> None:
            store.tokens.note(entry_of(who, "submit", run.id, 201))

        return verbs.run_now(store, schedule, who.person, time.time(), noted).id

    made = await threads_of(request).call(do)
    request.app.state.nudge()
    return JSONResponse({"run": made}, 201, {"Location": f"/api/v1/runs/{made}"})


@router.post(
    "/{schedule}/{verb}",
    dependencies=[needs("operator", "pause and resume schedules", own=True)],
    response_model=models.ScheduleItem,
    responses=errors(404, 409),
)
async def change_schedule(request: Request, schedule: Name, verb: Literal["pause", "resume"]) -> Any:
    """pause: no run is made until it is resumed, and none for the times between."""

    def do(store: Store) -> dict[str, Any]:
        found = verbs.pause(store, schedule) if verb == "pause" else verbs.resume(store, schedule, time.time())
        return verbs.data(found)

    made = await threads_of(request).call(do)
    await note(request, verb, f"schedule {schedule}", 200)
    return made


@router.delete(
    "/{schedule}",
    dependencies=[needs("operator", "remove schedules", own=True)],
    status_code=204,
    response_class=Response,
    responses=errors(404, 409),
)
async def remove_schedule(request: Request, schedule: Name) -> Response:
    """Its runs stay."""
    await threads_of(request).call(lambda store: verbs.remove(store, schedule))
    await note(request, "remove", f"schedule {schedule}", 204)
    return Response(status_code=204)
