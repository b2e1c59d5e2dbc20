"""Schedules for people: the list, and one with its last runs and buttons. Taken in by app."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import RedirectResponse, Response

from penstock.phrases import duration
from penstock.server.access import entry_of, note
from penstock.server.api.common import needs, threads_of, who_of
from penstock.server.pages.site import page
from penstock.service.schedules import verbs
from penstock.service.schedules.noun import StoredSchedule
from penstock.service.schedules.timing import told
from penstock.store.records import RunRecord
from penstock.store.sql import Store

router = APIRouter(include_in_schema=False)
MANY = 100
TIMES = 5
LOOK = needs("viewer", "look at schedules")
Name = Annotated[str, Path(max_length=300)]


def _shown(data: Mapping[str, Any]) -> dict[str, Any]:
    """With times as people of its zone read them."""
    zone = data["zone"]
    when = f"every {duration(data['every'])}" if data["every"] else f"{', '.join(data['cron'])} {zone}"
    moments = {
        one: "" if data[one] is None else told(data[one], zone) for one in ("next", "last", "waiting", "start", "end")
    }
    return {**data, **moments, "when": when}


@router.get("/schedules", dependencies=[LOOK])
async def list_schedules(request: Request, cursor: Annotated[str, Query(max_length=300)] = "") -> Response:
    def look(store: Store) -> dict[str, Any]:
        rows = store.schedules.page(MANY + 1, cursor)
        found = [verbs.data(StoredSchedule.of(row)) for row in rows[:MANY]]
        more = rows[MANY - 1].name if len(rows) > MANY else None
        return {"data": {"items": found, "next": more}, "rows": [_shown(one) for one in found], "next": more}

    return page(request, "schedules.html", await threads_of(request).call(look), "penstock schedule ls")


@router.get("/schedules/{schedule}", dependencies=[LOOK])
async def show_schedule(request: Request, schedule: Name) -> Response:
    who = who_of(request)

    def look(store: Store) -> dict[str, Any]:
        found = verbs.find(store, schedule)
        data = verbs.details(store, found)
        times = [told(at, found.timing.zone) for at in verbs.times(found, time.time(), TIMES)]
        runs = [{**one, "at": told(one["due"], found.timing.zone)} for one in data["runs"]]
        may = who.may("operator") or (who.may("submitter") and who.person == found.row.owner)
        return {"data": data, "one": _shown(data), "times": times, "runs": runs, "may_change": may}

    return page(request, "schedule.html", await threads_of(request).call(look), f"penstock schedule show {schedule}")


@router.post("/schedules/{schedule}/{verb}", dependencies=[needs("operator", "change schedules", own=True)])
async def change_schedule(
    request: Request, schedule: Name, verb: Literal["pause", "resume", "run", "remove"]
) -> Response:
    who = who_of(request)

    def do(store: Store) -> str:
        def noted(run: RunRecord) -> None:
            store.tokens.note(entry_of(who, "submit", run.id, 303))

        if verb == "run":
            return f"/runs/{verbs.run_now(store, schedule, who.person, time.time(), noted).id}"
        if verb == "remove":
            verbs.remove(store, schedule)
            return "/schedules"
        verbs.pause(store, schedule) if verb == "pause" else verbs.resume(store, schedule, time.time())
        return f"/schedules/{schedule}"

    there = await threads_of(request).call(do)
    request.app.state.nudge()
    if verb != "run":
        await note(request, verb, f"schedule {schedule}", 303)
    return RedirectResponse(there, 303)
