"""Pages about runs. Taken in by site."""

from __future__ import annotations

import json
import time
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request
from starlette.responses import RedirectResponse, Response

from penstock.engine.follow import FOLLOW
from penstock.errors import NotFound, Problem
from penstock.graph.codec import encode_value
from penstock.graph.model import MISSING
from penstock.phrases import duration, quoted
from penstock.server.access import actor_of, note
from penstock.server.api.cluster import chosen_items, workflows_beside
from penstock.server.api.common import (
    RunName,
    cluster_of,
    listed,
    needs,
    number_of,
    settings_of,
    threads_of,
    who_of,
    with_run,
)
from penstock.server.pages.site import page, wants_json
from penstock.server.pages.steps import shown_step
from penstock.service import callback_records, intake, why_text, work
from penstock.service.access import administers_run
from penstock.service.logs import LogFilter
from penstock.service.run_records import state_of, workflow_of
from penstock.service.stores import home_of
from penstock.service.task_states import BAD
from penstock.service.views import tasks as task_views
from penstock.service.views.details import details
from penstock.service.views.lineage import in_chain, lineage
from penstock.service.views.listing import page_of_runs
from penstock.service.views.timeline import bands
from penstock.service.views.why import why
from penstock.service.workflows import step_at
from penstock.store.records import FINAL, RunRecord, TaskRow
from penstock.store.sql import Store

router = APIRouter(include_in_schema=False)
LOOK = needs("viewer", "look at runs")
STATES: Final = ("starting", "running", "queued", "stopped", "lost", "succeeded", "failed", "cancelled")
MANY: Final = 50
STEPS: Final = 400
"""Rows of a page about a run. Those that failed or run come first."""
LINKS: Final = 100
"""Rows of the lineage of a run."""
LINES: Final = 2000
VALUE: Final = "v-"
"""What the names of fields for outputs of a suspended task begin with."""
Text = Annotated[str, Query(max_length=1000)]


@router.get("/", dependencies=[LOOK])
async def list_runs(
    request: Request, state: Text = "", workflow: Text = "", user: Text = "", cursor: Text = ""
) -> Response:
    before = number_of(cursor or None)
    chosen = state if state in STATES else None

    def look(store: Store) -> Any:
        return page_of_runs(store, MANY, before, chosen, workflow or None, user or None)

    found, following = await threads_of(request).call(look)
    rows = [listed(*one) for one in found]
    filters = {name: value for name, value in (("state", state), ("workflow", workflow), ("user", user)) if value}
    data: dict[str, Any] = {"items": rows, "next": None if following is None else str(following)}
    words = "".join(f" --{name} {quoted(value)}" for name, value in filters.items() if name != "user")
    cluster = cluster_of(request) if not cursor else None
    if cluster is not None:
        data["cluster"] = workflows_beside(request, state, workflow, user)
    beside: dict[str, Any] = {"status": None if cluster is None else cluster.status()}
    beside["theirs"] = chosen_items(request, state, workflow, user) if cluster is not None else []
    given = beside | {
        "data": data,
        "rows": rows,
        "next": data["next"],
        "filters": filters,
        "states": STATES,
        "cursor": cursor,
    }
    return page(request, "runs.html", given, f"penstock ls{words}")


@router.get("/runs/{run}", dependencies=[LOOK])
async def show_run(request: Request, run: RunName, find: Text = "") -> Response:
    settings, who = settings_of(request), who_of(request)

    def look(store: Store, record: RunRecord) -> dict[str, Any]:
        view, waits = seen = details(store, record, settings)
        nodes = [node for node in view.outline.nodes if find.lower() in node.path.lower()]
        order = {"failed": 0, "errored": 0, "suspended": 1, "running": 2, "retrying": 2, "waiting": 3}
        if len(nodes) > STEPS:
            nodes = sorted(nodes, key=lambda node: order.get(node.state, 9))
        report = why(store, view.run, "", home_of(settings), seen)
        order_now = store.orders.of(view.run.number)
        data = {}
        if wants_json(request):
            data = listed(view.run, view.state) | view.as_data() | {"waits": [wait.as_data() for wait in waits]}
        return {
            "data": data,
            "run": view.run,
            "state": view.state,
            "row": listed(view.run, view.state),
            "steps": [
                shown_step(node, view.times.get(node.path, ()), view.reasons.get(node.path, ""))
                for node in nodes[:STEPS]
            ],
            "hidden": max(0, len(nodes) - STEPS),
            "many": len(view.outline.nodes),
            "find": find,
            "failures": view.failures[:5],
            "failed": view.failed,
            "outputs": {
                name: json.dumps(value, ensure_ascii=False, default=str)[:500] for name, value in view.outputs.items()
            },
            "params": {name: json.dumps(value, ensure_ascii=False)[:200] for name, value in view.run.params.items()},
            "callbacks": callback_records.of_run(store, view.run)[:MANY] if FOLLOW in view.run.options else [],
            "head": why_text.head(report),
            "waits": why_text.waits(report, time.time())[:20],
            "past": why_text.past(report)[-20:],
            "administers": bool(administers_run(store, view.run, actor_of(who))),
            "order": None if order_now is None else order_now.verb,
            "lineage": list(lineage(store, view.run).walk())[:LINKS] if in_chain(store, view.run) else [],
        }

    data = await with_run(request, run, look)
    record: RunRecord = data["run"]
    own = record.user == who.person or data["administers"]
    mine = who.may("operator") or (who.may("submitter") and own)
    data |= {
        "may_cancel": mine and record.state not in FINAL and data["order"] != "cancel",
        "may_retry": mine and record.state in FINAL and record.state != "succeeded" and data["order"] in (None, "run"),
        "may_resume": mine and data["state"] in ("stopped", "lost") and data["order"] is None,
        "live": record.state not in FINAL or data["order"] is not None,
    }
    return page(request, "run.html", data, f"penstock show {quoted(record.id)}")


@router.get("/runs/{run}/tasks", dependencies=[LOOK])
async def list_tasks(request: Request, run: RunName, step: Text = "", state: Text = "", cursor: Text = "") -> Response:
    def look(store: Store, record: RunRecord) -> dict[str, Any]:
        rows = store.runs.task_page(record.number, MANY + 1, cursor, step or None, state or None)
        more = rows[MANY - 1].task if len(rows) > MANY else None
        items = [task_views.task_data(row) for row in rows[:MANY]]
        filters = {name: value for name, value in (("step", step), ("state", state)) if value}
        return {
            "data": {"items": items, "next": more},
            "run": record,
            "state": state_of(store, record),
            "rows": items,
            "next": more,
            "filters": filters,
            "cursor": cursor,
            "live": record.state not in FINAL,
        }

    data = await with_run(request, run, look)
    about = quoted(data["run"].id + (f"/{step}" if step else ""))
    return page(request, "tasks.html", data, f"penstock show {about}")


@router.get("/runs/{run}/task", dependencies=[LOOK])
async def show_task(request: Request, run: RunName, path: Text) -> Response:
    settings = settings_of(request)

    def look(store: Store, record: RunRecord) -> dict[str, Any]:
        row = store.runs.task(record.number, path)
        if row is None:
            task_views.check_path(store, record, path)
            raise NotFound(Problem("P507", f"{path} has not started", f"penstock show {record.id}/{path}"))
        view = task_views.task_view(store, record, row, settings)
        data = view.as_data()
        data.pop("files")
        lines = LogFilter(None, LINES).lines(settings, row.info.get("log") or ())
        report = why(store, record, path, home_of(settings)) if row.ended is None else None
        return {
            "data": data,
            "run": record,
            "state": state_of(store, record),
            "task": data,
            "inputs": _texts(view.inputs),
            "outputs": _texts(view.outputs),
            "log": "\n".join(lines),
            "cut": len(lines) >= LINES,
            "waits": why_text.waits(report, time.time()) if report is not None else [],
            "live": row.ended is None,
            "asked": _asked(store, record, row) if row.state == "suspended" else None,
            "awaited": bool(row.info.get("answer")),
        }

    data = await with_run(request, run, look)
    who = who_of(request)
    mine = who.may("operator") or (who.may("submitter") and data["run"].user == who.person)
    data["asked"] = data["asked"] if mine else None
    return page(request, "task.html", data, f"penstock show {quoted(data['run'].id + '/' + path)}")


def _asked(store: Store, record: RunRecord, row: TaskRow) -> list[dict[str, str]]:
    """The values with which a suspended task can go on."""
    step = step_at(workflow_of(store, record), row.step)
    return [
        {
            "name": one.name,
            "type": str(one.type),
            "default": "" if one.default is MISSING else json.dumps(encode_value(one.default)),
        }
        for one in (step.outputs if step is not None else ())
    ]


def _texts(values: Any) -> dict[str, str]:
    return {name: json.dumps(value, ensure_ascii=False, default=str, indent=1)[:4000] for name, value in values.items()}


@router.get("/runs/{run}/timeline", dependencies=[LOOK])
async def timeline(request: Request, run: RunName, step: Text = "") -> Response:
    settings = settings_of(request)

    def look(store: Store, record: RunRecord) -> dict[str, Any]:
        if step:
            task_views.check_path(store, record, step)
        view, _ = details(store, record, settings)
        found = bands(view, task_views.tasks(store, record, step), time.time(), step)[:STEPS]
        start = view.run.created
        end = max((last for band in found for _, last in band.spans), default=start)
        width = max(end - start, 0.001)
        rows = [
            {
                "name": band.name,
                "depth": min(band.depth, 8),
                "state": band.state,
                "spans": [
                    (round(100 * (a - start) / width, 3), round(max(0.15, 100 * (b - a) / width), 3))
                    for a, b in band.spans[:500]
                ],
                "words": f"{len(band.spans):,} × " * (len(band.spans) > 1)
                + duration(sum(b - a for a, b in band.spans)),
            }
            for band in found
        ]
        return {
            "data": {"run": view.run.id, "start": start, "end": end, "bands": [band.as_data() for band in found]},
            "run": view.run,
            "state": view.state,
            "rows": rows,
            "width": width,
            "step": step,
            "live": view.run.state not in FINAL,
        }

    data = await with_run(request, run, look)
    about = quoted(data["run"].id + (f"/{step}" if step else ""))
    return page(request, "timeline.html", data, f"penstock show {about} --gantt")


@router.get("/runs/{run}/logs", dependencies=[LOOK])
async def logs(request: Request, run: RunName, step: Text = "", grep: Text = "", failed: bool = False) -> Response:
    settings, chosen = settings_of(request), LogFilter(grep or None, LINES)

    def look(store: Store, record: RunRecord) -> dict[str, Any]:
        rows = task_views.tasks(store, record, step, states=BAD if failed else None)
        parts = []
        left = LINES
        for row in rows:
            lines = chosen.lines(settings, row.info["log"]) if row.info.get("log") and left > 0 else []
            if lines:
                parts.append({"task": row.task, "state": row.state, "text": "\n".join(lines[-left:])})
                left -= len(lines)
        return {
            "data": parts,
            "run": record,
            "state": state_of(store, record),
            "parts": parts,
            "cut": left <= 0,
            "step": step,
            "grep": grep,
            "failed": failed,
            "live": record.state not in FINAL,
        }

    data = await with_run(request, run, look)
    about = quoted(data["run"].id + (f"/{step}" if step else ""))
    words = (" --failed" if failed else "") + (f" --grep {quoted(grep)}" if grep else "")
    return page(request, "logs.html", data, f"penstock logs {about}{words}")


# -- changes ----------------------------------------------------------------------------------------------------------


@router.post("/runs/{run}/cancel", dependencies=[needs("operator", "cancel runs", own=True)])
async def cancel(request: Request, run: RunName) -> Response:
    by, now = who_of(request).person, bool((await request.form()).get("now"))
    return await _done(request, run, "cancel", lambda store, record: work.cancel(store, record, by, now))


@router.post("/runs/{run}/retry", dependencies=[needs("operator", "retry runs", own=True)])
async def retry(request: Request, run: RunName) -> Response:
    by = who_of(request).person
    return await _done(request, run, "retry", lambda store, record: work.retry(store, record, by))


@router.post("/runs/{run}/resume", dependencies=[needs("operator", "resume runs", own=True)])
async def resume(request: Request, run: RunName) -> Response:
    """With a task: a suspended one goes on, with the values of the form."""
    settings, form = settings_of(request), await request.form()
    task = str(form.get("task", ""))
    values = {name.removeprefix(VALUE): text for name, text in form.items() if name.startswith(VALUE) and text}

    def order(store: Store, record: RunRecord) -> None:
        if task:
            intake.resume(store, settings, record, task, values)
        else:
            work.go_on(store, record)

    return await _done(request, run, "resume", order)


async def _done(request: Request, name: str, verb: str, order: Any) -> Response:
    def do(store: Store, record: RunRecord) -> str:
        order(store, record)
        return record.id

    id = await with_run(request, name, do)
    request.app.state.nudge()
    await note(request, verb, id, 303)
    return RedirectResponse(f"/runs/{id}", 303)
