"""OGC API – Processes, part 1 (18-062r2): processes, jobs, results, dismissal. Taken in by app. What they are here says service.ogc.

Jobs are always asynchronous. Lists and descriptions are JSON; the classes of conformance that are named are those that tests/server/test_ogc.py
goes through.
"""

from __future__ import annotations

import json
import os
import time
from typing import Annotated, Any, Final
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Header, Path, Query, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse

from penstock.errors import Problem
from penstock.graph.stored import Stored
from penstock.server import ogc_models as models
from penstock.server.access import actor_of, entry_of, note
from penstock.server.api.common import (
    Cursor,
    RunName,
    errors,
    needs,
    number_of,
    settings_of,
    threads_of,
    who_of,
    with_run,
)
from penstock.server.problems import RequestRefused
from penstock.service import ogc, work
from penstock.service.ogc import JobFilter, OgcJob, ProcessCall
from penstock.store.records import FINAL, RunRecord
from penstock.store.sql import Store

PREFIX: Final = "/ogc"
router = APIRouter(prefix=PREFIX, tags=["runs"])
LOOK = needs("viewer", "look at processes and jobs")
CLASSES: Final = ("core", "json", "ogc-process-description", "job-list", "dismiss")
"""Of conformance. Not callback: a subscriber is told of the end, and not of progress; not oas30: the OpenAPI document is of version 3.1; not html."""
_CLASS: Final = "http://www.opengis.net/spec/ogcapi-processes-1/1.0/conf/"
_REL: Final = "http://www.opengis.net/def/rel/ogc/1.0/"
MOST: Final = 1000
"""Items of a page; who asks for more gets so many."""
Many = Annotated[int, Query(ge=1, description=f"Items of a page, at most {MOST}")]
ProcessName = Annotated[str, Path(max_length=300)]
Seconds = Annotated[float | None, Query(ge=0, allow_inf_nan=False)]


def _link(
    request: Request, path: str, rel: str, title: str, kind: str = "application/json", **query: Any
) -> dict[str, str]:
    base = str(request.base_url).rstrip("/")
    asked = f"?{urlencode(query, doseq=True)}" if query else ""
    return {"href": f"{base}{path}{asked}", "rel": rel, "type": kind, "title": title}


@router.get("", dependencies=[LOOK], response_model=models.Landing, responses=errors())
@router.get("/", dependencies=[LOOK], response_model=models.Landing, responses=errors(), include_in_schema=False)
async def landing(request: Request) -> Any:
    links = [
        _link(request, PREFIX, "self", "this document"),
        _link(
            request, "/api/v1/openapi.json", "service-desc", "the API", "application/vnd.oai.openapi+json;version=3.1"
        ),
        _link(request, f"{PREFIX}/conformance", f"{_REL}conformance", "what is conformed to"),
        _link(request, f"{PREFIX}/processes", f"{_REL}processes", "workflows that can be run"),
        _link(request, f"{PREFIX}/jobs", f"{_REL}job-list", "runs"),
    ]
    return {"title": "Penstock", "description": "Workflows as OGC processes, runs as jobs", "links": links}


@router.get("/conformance", dependencies=[LOOK], response_model=models.Conformance, responses=errors())
async def conformance(request: Request) -> Any:
    return {"conformsTo": [_CLASS + name for name in CLASSES]}


# -- processes --------------------------------------------------------------------------------------------------------


@router.get("/processes", dependencies=[LOOK], response_model=models.ProcessList, responses=errors())
async def list_processes(
    request: Request, limit: Many = 100, cursor: Annotated[str, Query(max_length=300)] = ""
) -> Any:
    """Workflows that were submitted before, by name."""
    many = min(limit, MOST)
    found, following = await threads_of(request).call(lambda store: ogc.processes(store, many, cursor))
    links = [_link(request, f"{PREFIX}/processes", "self", "this page", limit=many, cursor=cursor)]
    if following is not None:
        links.append(_link(request, f"{PREFIX}/processes", "next", "the next page", limit=many, cursor=following))
    items = [one.summary() | {"links": [_described(request, one.workflow.name, "self")]} for one in found]
    return {"processes": items, "links": links}


def _described(request: Request, name: str, rel: str) -> dict[str, str]:
    return _link(request, f"{PREFIX}/processes/{quote(name, safe='')}", rel, f"the process {name}")


@router.get(
    "/processes/{process}", dependencies=[LOOK], response_model=models.ProcessDescription, responses=errors(404)
)
async def show_process(request: Request, process: ProcessName) -> Any:
    """The workflow of this name as it was submitted last: its inputs and outputs with their JSON schemas."""
    found = await threads_of(request).call(lambda store: ogc.process(store, process))
    there = f"{PREFIX}/processes/{quote(process, safe='')}/execution"
    links = [_described(request, process, "self"), _link(request, there, f"{_REL}execute", "run it")]
    return found.description() | {"links": links}


@router.post(
    "/processes/{process}/execution",
    dependencies=[needs("submitter", "submit runs")],
    response_model=models.StatusInfo,
    status_code=201,
    responses=errors(404, 413),
)
async def execute(
    request: Request,
    process: ProcessName,
    given: models.Execute,
    prefer: Annotated[str | None, Header(max_length=300)] = None,
) -> Any:
    """A job, which a worker executes as soon as one is free and its queue admits it."""
    who, settings = who_of(request), settings_of(request)
    request.app.state.allowance.take(who.token)
    outputs = None if given.outputs is None else tuple(given.outputs)
    asked = ProcessCall(inputs=given.inputs, outputs=outputs, raw=given.response == "raw", subscriber=given.subscriber)

    def do(store: Store) -> OgcJob:
        def noted(run: RunRecord) -> None:
            store.tokens.note(entry_of(who, "submit", run.id, 201))

        return ogc.job(store, ogc.execute(store, settings, process, asked, actor_of(who), noted))

    made = await threads_of(request).call(do)
    request.app.state.nudge()
    body = _status(request, made)
    headers = {"Location": body["links"][0]["href"]}
    if "respond-async" in (prefer or ""):
        headers["Preference-Applied"] = "respond-async"
    return JSONResponse(body, 201, headers)


# -- jobs -------------------------------------------------------------------------------------------------------------


def _status(request: Request, found: OgcJob) -> dict[str, Any]:
    there = f"{PREFIX}/jobs/{quote(found.run.id, safe='')}"
    links = [_link(request, there, "self", "this job")]
    if found.status in ("successful", "failed"):
        links.append(_link(request, f"{there}/results", f"{_REL}results", "its results"))
    return found.as_data() | {"links": links}


@router.get("/jobs", dependencies=[LOOK], response_model=models.JobList, responses=errors())
async def list_jobs(
    request: Request,
    limit: Many = 100,
    cursor: Cursor = None,
    type: Annotated[list[str] | None, Query(max_length=10, description="All jobs are of the type process")] = None,
    process_id: Annotated[list[str] | None, Query(alias="processID", max_length=100)] = None,
    status: Annotated[list[models.Status] | None, Query(max_length=10)] = None,
    datetime: Annotated[
        str | None, Query(max_length=100, description="Created then: a time, or a/b, ../b, a/..")
    ] = None,
    min_duration: Annotated[Seconds, Query(alias="minDuration")] = None,
    max_duration: Annotated[Seconds, Query(alias="maxDuration")] = None,
) -> Any:
    """Runs, the newest first. A page may have fewer items than asked for and yet a next one, if few fit among many."""
    many, before, now = min(limit, MOST), number_of(cursor), time.time()
    first, last = (None, None) if datetime is None else ogc.interval(datetime)
    wanted = JobFilter(process_id or (), status or (), first, last, min_duration, max_duration)
    found: list[OgcJob] = []
    following = None
    if not type or "process" in type:
        found, following = await threads_of(request).call(lambda store: ogc.jobs(store, wanted, many, now, before))
    query = [one for one in request.query_params.multi_items() if one[0] not in ("cursor", "limit")]
    kept: dict[str, Any] = {name: [value for key, value in query if key == name] for name, _ in query}
    links = [
        _link(
            request, f"{PREFIX}/jobs", "self", "this page", **kept, limit=many, **({"cursor": cursor} if cursor else {})
        )
    ]
    if following is not None:
        links.append(_link(request, f"{PREFIX}/jobs", "next", "the next page", **kept, limit=many, cursor=following))
    return {"jobs": [_status(request, one) for one in found], "links": links}


@router.get("/jobs/{run}", dependencies=[LOOK], response_model=models.StatusInfo, responses=errors(404))
async def show_job(request: Request, run: RunName) -> Any:
    return _status(request, await with_run(request, run, ogc.job))


@router.delete(
    "/jobs/{run}",
    dependencies=[needs("operator", "dismiss jobs", own=True)],
    response_model=models.StatusInfo,
    responses=errors(404, 409, 410),
)
async def dismiss(request: Request, run: RunName) -> Any:
    """It ends when its tasks have; they get 10 seconds. A job that is over stays in the list: penstock gc removes it."""
    by = who_of(request).person

    def do(store: Store, record: RunRecord) -> OgcJob:
        found = ogc.job(store, record)
        if found.status == "dismissed":
            raise RequestRefused(
                410, Problem("P567", f"{record.id} was dismissed before", "there is nothing left to do")
            )
        if record.state not in FINAL:
            work.cancel(store, record, by)
            return found._replace(status="dismissed")
        fix = "there is nothing left to dismiss; penstock gc removes runs that are over"
        raise RequestRefused(409, Problem("P567", f"{record.id} is over: it is {found.status}", fix))

    found = await with_run(request, run, do)
    request.app.state.nudge()
    await note(request, "cancel", found.run.id, 200)
    return _status(request, found)


@router.get(
    "/jobs/{run}/results",
    dependencies=[LOOK],
    response_class=Response,
    responses=errors(404, 410, 424)
    | {
        200: {
            "content": {name: {} for name in ("application/json", "text/plain", "multipart/related")},
            "description": "The outputs",
        }
    }
    | {204: {"description": "It has no outputs, or none of those asked for"}},
)
async def results(request: Request, run: RunName) -> Response:
    """As was asked for with the job: `document`, a JSON object of all outputs; or `raw`, the one output itself, of several one part each. Files are links."""
    settings = settings_of(request)

    def look(store: Store, record: RunRecord) -> ogc.Results:
        found = ogc.job(store, record)
        if found.status == "failed":
            fix = f"GET /api/v1/runs/{record.id} says more; POST of its /retry tries again what failed"
            raise RequestRefused(424, Problem("P564", record.error or f"{record.id} failed", fix))
        if found.status == "dismissed":
            raise RequestRefused(
                410, Problem("P567", f"{record.id} was dismissed: it has no results", "submit it again")
            )
        return ogc.results(store, settings, found)

    found = await with_run(request, run, look)
    blob_at = str(request.base_url).rstrip("/") + "/api/v1/blobs"
    shown = {name: ogc.by_value(value, blob_at) for name, value in found.outputs.items()}
    if not found.raw:
        return JSONResponse(shown)
    if len(shown) == 1:
        ((name, value),) = found.outputs.items()
        if isinstance(value, Stored):
            return Response(None, 204, {"Link": f'<{blob_at}/{value.digest}>; rel="{name}"'})
        return PlainTextResponse(value) if isinstance(value, str) else JSONResponse(shown[name])
    return _parts(shown) if shown else Response(status_code=204)


def _parts(shown: dict[str, Any]) -> Response:
    line = f"penstock-{os.urandom(12).hex()}"
    parts = []
    for name, value in shown.items():
        kind, text = (
            ("text/plain; charset=utf-8", value) if isinstance(value, str) else ("application/json", json.dumps(value))
        )
        parts.append(f"--{line}\r\nContent-Type: {kind}\r\nContent-ID: <{quote(name)}>\r\n\r\n{text}\r\n")
    body = "".join(parts) + f"--{line}--\r\n"
    return Response(body, media_type=f'multipart/related; boundary="{line}"')


# -- exceptions -------------------------------------------------------------------------------------------------------

_TYPES: Final = {"P505": "no-such-job", "P560": "no-such-process", "P563": "result-not-ready"}


def type_of(path: str, code: str) -> str | None:
    """The type of an exception as OGC names it; None: it names none."""
    if not path.startswith(f"{PREFIX}/") or code not in _TYPES:
        return None
    return f"http://www.opengis.net/def/exceptions/ogcapi-processes-1/1.0/{_TYPES[code]}"
