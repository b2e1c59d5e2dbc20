"""Runs: list, submit, look at, follow, end. Taken in by app."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse, StreamingResponse

from penstock.errors import PlanError, Problem
from penstock.server import models
from penstock.server.access import actor_of, entry_of, note
from penstock.server.api.cluster import workflows_beside
from penstock.server.api.common import (
    Cursor,
    Limit,
    RunName,
    errors,
    listed,
    needs,
    number_of,
    settings_of,
    threads_of,
    who_of,
    with_run,
)
from penstock.server.feeds import Feeds
from penstock.server.leash import streamed
from penstock.service import intake, work
from penstock.service.fetching import as_data, parts_of
from penstock.service.logs import LogFilter
from penstock.service.run_records import state_of
from penstock.service.stores import home_of
from penstock.service.task_states import BAD
from penstock.service.views import tasks as task_views
from penstock.service.views.details import details
from penstock.service.views.lineage import lineage
from penstock.service.views.listing import page_of_runs
from penstock.service.views.why import why
from penstock.store.records import RunRecord
from penstock.store.sql import Store

router = APIRouter(prefix="/runs", tags=["runs"])
State = Literal["starting", "running", "queued", "stopped", "lost", "succeeded", "failed", "cancelled"]
LOOK = needs("viewer", "look at runs")


@router.get("", dependencies=[LOOK], response_model=models.RunPage, responses=errors())
async def list_runs(
    request: Request,
    limit: Limit = 50,
    cursor: Cursor = None,
    state: State | None = None,
    workflow: Annotated[str | None, Query(max_length=300)] = None,
    user: Annotated[str | None, Query(max_length=300)] = None,
    since: Annotated[float | None, Query(description="Seconds since 1970: only runs that were submitted later")] = None,
) -> Any:
    """The newest first."""
    before = number_of(cursor)
    found, following = await threads_of(request).call(
        lambda store: page_of_runs(store, limit, before, state, workflow, user, since)
    )
    beside = None if cursor else workflows_beside(request, state or "", workflow or "", user or "")
    items = [listed(*one) for one in found]
    return {"items": items, "next": None if following is None else str(following), "cluster": beside}


@router.post(
    "",
    dependencies=[needs("submitter", "submit runs")],
    response_model=models.Submitted,
    status_code=201,
    responses=errors(409, 413) | {200: {"model": models.Submitted, "description": "It had arrived before"}},
)
async def submit(
    request: Request,
    given: models.Submit,
    idempotency_key: Annotated[
        str | None, Header(max_length=200, description="The same submission with the same key makes one run")
    ] = None,
) -> Any:
    """A worker executes it as soon as one is free and its queue admits it."""
    parcel = intake.Parcel(
        document=given.document,
        name=given.name,
        params=given.params,
        options=given.options.model_dump(),
        bundle=given.bundle,
    )
    who, settings = who_of(request), settings_of(request)
    request.app.state.allowance.take(who.token)

    def receive(store: Store) -> tuple[intake.Received, str]:
        def noted(run: RunRecord) -> None:
            store.tokens.note(entry_of(who, "submit", run.id, 201))

        received = intake.submit(store, settings, parcel, actor_of(who), idempotency_key or "", noted)
        return received, state_of(store, received.run)

    received, state = await threads_of(request).call(receive)
    run = received.run
    if received.created:
        request.app.state.nudge()
    body = {
        "run": listed(run, state),
        "created": received.created,
        "warnings": [one.as_data() for one in received.warnings],
    }
    return JSONResponse(body, 201 if received.created else 200, {"Location": f"/api/v1/runs/{run.id}"})


@router.get("/{run}", dependencies=[LOOK], response_model=models.RunDetails, responses=errors(404))
async def show_run(request: Request, run: RunName) -> Any:
    """Its steps, failures, outputs, and what it waits for: as `penstock show RUN -o json`."""
    settings = settings_of(request)

    def look(store: Store, record: RunRecord) -> dict[str, Any]:
        view, waits = details(store, record, settings)
        data = view.as_data() | {"waits": [wait.as_data() for wait in waits]}
        return listed(view.run, view.state) | data

    return await with_run(request, run, look)


@router.get("/{run}/lineage", dependencies=[LOOK], response_model=models.LineageView, responses=errors(404))
async def lineage_of_run(request: Request, run: RunName) -> Any:
    """The runs of its chain from the first, and the links that started none: as `penstock show RUN --lineage -o json`."""
    return await with_run(request, run, lambda store, record: lineage(store, record).as_data())


@router.get("/{run}/document", dependencies=[LOOK], responses=errors(404))
async def document_of_run(request: Request, run: RunName) -> Response:
    """The workflow that was run, in Penstock's form."""
    text = await with_run(request, run, lambda store, record: store.runs.document(record.digest))
    return Response(text, media_type="application/json")


@router.get("/{run}/tasks", dependencies=[LOOK], response_model=models.TaskPage, responses=errors(404))
async def list_tasks(
    request: Request,
    run: RunName,
    limit: Limit = 100,
    cursor: Cursor = None,
    step: Annotated[str | None, Query(max_length=1000)] = None,
    state: Annotated[str | None, Query(max_length=40)] = None,
) -> Any:
    """By path, in the order of characters."""

    def look(store: Store, record: RunRecord) -> dict[str, Any]:
        rows = store.runs.task_page(record.number, limit + 1, cursor or "", step, state)
        more = rows[limit - 1].task if len(rows) > limit else None
        return {"items": [task_views.task_data(row) for row in rows[:limit]], "next": more}

    return await with_run(request, run, look)


@router.get("/{run}/task", dependencies=[LOOK], response_model=models.TaskDetails, responses=errors(404))
async def show_task(request: Request, run: RunName, path: Annotated[str, Query(max_length=1000)]) -> Any:
    """All that is known of one task: attempts, inputs, outputs, traceback. Path: train[3]."""
    settings = settings_of(request)

    def look(store: Store, record: RunRecord) -> dict[str, Any]:
        row = store.runs.task(record.number, path)
        if row is None:
            task_views.check_path(store, record, path)
            fix = f"GET /api/v1/runs/{record.id}/tasks?step={path} lists its tasks"
            raise PlanError(Problem("P409", f"{path!r} is a step with several tasks, or none has started", fix))
        data = task_views.task_view(store, record, row, settings).as_data()
        data.pop("files")  # paths on the server
        return data

    return await with_run(request, run, look)


@router.get("/{run}/events", dependencies=[LOOK], response_model=models.EventPage, responses=errors(404))
async def list_events(request: Request, run: RunName, limit: Limit = 100, cursor: Cursor = None) -> Any:
    """Everything that was recorded, in order."""
    after = number_of(cursor) or 0

    def look(store: Store, record: RunRecord) -> dict[str, Any]:
        found = list(store.runs.events(record.number, after, limit))
        more = str(found[-1].seq) if len(found) == limit else None
        return {"items": [event._asdict() for event in found], "next": more}

    return await with_run(request, run, look)


@router.get(
    "/{run}/stream",
    dependencies=[LOOK],
    response_class=StreamingResponse,
    responses=errors(404) | {200: {"content": {"text/event-stream": {}}, "description": "Events as they come"}},
)
async def follow_run(
    request: Request,
    run: RunName,
    after: Annotated[int, Query(ge=0, le=1 << 53, description="The number of the last event that is known")] = 0,
    last_event_id: Annotated[str | None, Header(max_length=40)] = None,
) -> Response:
    """Server-sent events: each of the log, with its number as id; then `over`, `closing` when the server ends, or `refused` when its token is of no
    use any more. A client that comes again with Last-Event-ID gets what it has not seen, each once, in order."""
    start = max(after, number_of(last_event_id) or 0)
    record = await with_run(request, run, lambda _, found: found)
    feeds: Feeds = request.app.state.feeds
    return streamed(request, _told(feeds, record.number, start))


async def _told(feeds: Feeds, run: int, after: int) -> AsyncIterator[str]:
    yield "retry: 1000\n\n"
    async for events in feeds.events(run, after):
        lines = [f"id: {event.seq}\ndata: {json.dumps(event._asdict())}\n\n" for event in events]
        yield "".join(lines) or ": still here\n\n"
    yield f"event: {'closing' if feeds.closing else 'over'}\ndata: {{}}\n\n"


@router.get("/{run}/logs", dependencies=[LOOK], response_class=PlainTextResponse, responses=errors(404))
async def logs_of_run(
    request: Request,
    run: RunName,
    path: Annotated[str, Query(max_length=1000, description="A step or task; empty: all")] = "",
    failed: Annotated[bool, Query(description="Only of tasks that failed")] = False,
    grep: Annotated[str | None, Query(max_length=1000, description="Only lines with this text")] = None,
    tail: Annotated[int | None, Query(ge=0, le=1_000_000, description="Only so many lines of each task")] = None,
) -> Response:
    """What tasks printed. Of several tasks each line begins with the task."""
    settings, chosen = settings_of(request), LogFilter(grep, tail)

    def look(store: Store, record: RunRecord) -> str:
        rows = task_views.tasks(store, record, path, states=BAD if failed else None)
        rows = [row for row in rows if row.info.get("log")]
        several = len(rows) > 1
        lines = []
        for row in rows:
            lead = f"{row.task} | " if several else ""
            lines += [f"{lead}{line}\n" for line in chosen.lines(settings, row.info["log"])]
        return "".join(lines)

    return PlainTextResponse(await with_run(request, run, look))


@router.get("/{run}/why", dependencies=[LOOK], response_model=models.Why, responses=errors(404))
async def why_run(request: Request, run: RunName, path: Annotated[str, Query(max_length=1000)] = "") -> Any:
    """What it, or a step or task of it, waits for, and has waited for: as `penstock why RUN/PATH -o json`."""
    home = home_of(settings_of(request))
    return await with_run(request, run, lambda store, record: why(store, record, path, home).as_data())


@router.get("/{run}/outputs", dependencies=[LOOK], response_model=models.RunOutputs, responses=errors(404))
async def outputs_of_run(request: Request, run: RunName, path: Annotated[str, Query(max_length=1000)] = "") -> Any:
    """What it, or a step or task, gave: as `penstock get RUN/PATH -o json`. Files are fetched by their digest."""
    settings = settings_of(request)

    def look(store: Store, record: RunRecord) -> dict[str, Any]:
        return as_data(record, parts_of(store, record, path, settings))

    return await with_run(request, run, look)


# -- changes ----------------------------------------------------------------------------------------------------------

_ACCEPTED: dict[str, Any] = {"response_model": models.Accepted, "status_code": 202, "responses": errors(404, 409)}


@router.post("/{run}/cancel", dependencies=[needs("operator", "cancel runs", own=True)], **_ACCEPTED)
async def cancel(request: Request, run: RunName, given: models.Cancel) -> Any:
    """It ends when its tasks have; they get 10 seconds. Returns before that."""
    by = who_of(request).person
    return await _ordered(request, run, "cancel", lambda store, record: work.cancel(store, record, by, given.now))


@router.post("/{run}/retry", dependencies=[needs("operator", "retry runs", own=True)], **_ACCEPTED)
async def retry(request: Request, run: RunName) -> Any:
    """What failed in it is tried again; what succeeded is kept."""
    by = who_of(request).person
    return await _ordered(request, run, "retry", lambda store, record: work.retry(store, record, by))


@router.post("/{run}/resume", dependencies=[needs("operator", "resume runs", own=True)], **_ACCEPTED)
async def resume(request: Request, run: RunName, given: models.Resume) -> Any:
    """Go on with a run that was interrupted, or with a suspended task of it. A file is {"$blob": DIGEST, "name": NAME}."""
    settings = settings_of(request)

    def order(store: Store, record: RunRecord) -> None:
        if not given.task:
            work.go_on(store, record)
            return
        intake.resume(store, settings, record, given.task, given.params)

    return await _ordered(request, run, "resume", order)


async def _ordered(request: Request, name: str, verb: str, order: Any) -> dict[str, Any]:
    def do(store: Store, record: RunRecord) -> tuple[str, str]:
        order(store, record)
        current = store.runs.by_number(record.number)
        return record.id, state_of(store, current or record)

    id, state = await with_run(request, name, do)
    request.app.state.nudge()
    await note(request, verb, id, 202)
    return {"run": id, "state": state, "ordered": verb}
