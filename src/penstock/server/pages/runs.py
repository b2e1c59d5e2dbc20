"""Pages about runs. Taken in by site."""

from __future__ import annotations

import json
import time
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request
from starlette.responses import RedirectResponse, Response

from penstock.drawing.svg import StepMark, svg
from penstock.errors import NotFound, Problem
from penstock.phrases import duration, quoted
from penstock.server.access import note
from penstock.server.api.common import RunName, listed, needs, number_of, settings_of, threads_of, who_of, with_run
from penstock.server.pages.site import WORDS, page
from penstock.service import why_text, work
from penstock.service.logs import LogFilter
from penstock.service.run_records import state_of, workflow_of
from penstock.service.task_states import BAD
from penstock.service.views import tasks as task_views
from penstock.service.views.details import details
from penstock.service.views.listing import page_of_runs
from penstock.service.views.outline import StepNode
from penstock.service.views.timeline import bands
from penstock.service.views.why import why
from penstock.store.records import FINAL, RunRecord
from penstock.store.sql import Store

router = APIRouter(include_in_schema=False)
LOOK = needs("viewer", "look at runs")
STATES: Final = ("starting", "running", "queued", "stopped", "lost", "succeeded", "failed", "cancelled")
MANY: Final = 50
STEPS: Final = 400
"""Rows of a page about a run. Those that failed or run come first."""
DRAWN: Final = 300
"""Steps that are drawn as a graph."""
LINES: Final = 2000
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
    data = {"items": rows, "next": None if following is None else str(following)}
    words = "".join(f" --{name} {quoted(value)}" for name, value in filters.items() if name != "user")
    given = {"data": data, "rows": rows, "next": data["next"], "filters": filters, "states": STATES, "cursor": cursor}
    return page(request, "runs.html", given, f"penstock ls{words}")


@router.get("/runs/{run}", dependencies=[LOOK])
async def show_run(request: Request, run: RunName, find: Text = "") -> Response:
    settings, who = settings_of(request), who_of(request)

    def look(store: Store, record: RunRecord) -> dict[str, Any]:
        view, waits = details(store, record, settings)
        nodes = [node for node in view.outline.nodes if find.lower() in node.path.lower()]
        order = {"failed": 0, "errored": 0, "suspended": 1, "running": 2, "retrying": 2, "waiting": 3}
        if len(nodes) > STEPS:
            nodes = sorted(nodes, key=lambda node: order.get(node.state, 9))
        report = why(store, view.run, "", settings.home)
        order_now = store.orders.of(view.run.number)
        return {
            "data": listed(view.run, view.state) | view.as_data() | {"waits": [wait.as_data() for wait in waits]},
            "run": view.run,
            "state": view.state,
            "row": listed(view.run, view.state),
            "steps": [
                _step(node, view.times.get(node.path, ()), view.reasons.get(node.path, "")) for node in nodes[:STEPS]
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
            "head": why_text.head(report),
            "waits": why_text.waits(report, time.time())[:20],
            "past": why_text.past(report)[-20:],
            "drawn": len(view.outline.nodes) <= DRAWN,
            "order": None if order_now is None else order_now.verb,
        }

    data = await with_run(request, run, look)
    record: RunRecord = data["run"]
    mine = who.may("operator") or (who.may("submitter") and record.user == who.person)
    data |= {
        "may_cancel": mine and record.state not in FINAL and data["order"] != "cancel",
        "may_retry": mine and record.state in FINAL and record.state != "succeeded" and data["order"] in (None, "run"),
        "may_resume": mine and data["state"] in ("stopped", "lost") and data["order"] is None,
        "live": record.state not in FINAL or data["order"] is not None,
    }
    return page(request, "run.html", data, f"penstock show {quoted(record.id)}")


def _step(node: StepNode, stamps: Any, reason: str) -> dict[str, Any]:
    """A row: what the author wrote, however many tasks it has."""
    total = node.total or 0
    counts = [
        (tone, node.count(states))
        for tone, states in (
            ("good", ("succeeded", "reused")),
            ("bad", BAD),
            ("busy", ("running",)),
            ("warn", ("retrying", "suspended", "cancelled")),
            ("wait", ("waiting",)),
        )
    ]
    took = ""
    if stamps:
        end = stamps[1] if node.over and len(stamps) > 1 else time.time()
        took = duration(max(0.0, end - stamps[0])) if node.state not in ("reused", "skipped", "omitted") else ""
    parts, at = [], 0.0
    for tone, many in counts if node.many and total else ():
        if many:
            parts.append((tone, round(at, 2), round(100 * many / total, 2)))
            at += 100 * many / total
    words = [f"{many:,} {WORDS.get(state, state)}" for state, many in node.tally.items() if many and state != "tasks"]
    return {
        "path": node.path,
        "name": node.name,
        "depth": min(node.depth, 8),
        "state": node.state,
        "many": node.many,
        "total": node.total,
        "took": took,
        "reason": reason,
        "bar": parts,
        "counts": " · ".join(words),
    }


@router.get("/runs/{run}/graph.svg", dependencies=[LOOK])
async def graph(request: Request, run: RunName) -> Response:
    """The workflow as it was written, with the state of each step."""
    settings = settings_of(request)

    def look(store: Store, record: RunRecord) -> str:
        view, _ = details(store, record, settings)
        if len(view.outline.nodes) > DRAWN:
            fix = "the list of its steps has a search"
            raise NotFound(Problem("P507", f"{record.id} has more than {DRAWN} steps: too many for a drawing", fix))
        marks = {node.path: StepMark(node.state, _words(node)) for node in view.outline.nodes if node.state}
        return svg(workflow_of(store, record), marks)

    headers = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"}
    return Response(await with_run(request, run, look), media_type="image/svg+xml", headers=headers)


def _words(node: StepNode) -> str:
    if node.many and node.total:
        return f"{node.count(('succeeded', 'reused')):,} of {node.total:,}"
    return WORDS.get(node.state, node.state)


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
        report = why(store, record, path, settings.home) if row.ended is None else None
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
        }

    data = await with_run(request, run, look)
    return page(request, "task.html", data, f"penstock show {quoted(data['run'].id + '/' + path)}")


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
    by = who_of(request).person
    return await _done(request, run, "cancel", lambda store, record: work.cancel(store, record, by))


@router.post("/runs/{run}/retry", dependencies=[needs("operator", "retry runs", own=True)])
async def retry(request: Request, run: RunName) -> Response:
    by = who_of(request).person
    return await _done(request, run, "retry", lambda store, record: work.retry(store, record, by))


@router.post("/runs/{run}/resume", dependencies=[needs("operator", "resume runs", own=True)])
async def resume(request: Request, run: RunName) -> Response:
    return await _done(request, run, "resume", work.go_on)


async def _done(request: Request, name: str, verb: str, order: Any) -> Response:
    def do(store: Store, record: RunRecord) -> str:
        order(store, record)
        return record.id

    id = await with_run(request, name, do)
    request.app.state.nudge()
    await note(request, verb, id, 303)
    return RedirectResponse(f"/runs/{id}", 303)
