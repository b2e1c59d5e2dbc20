"""Pages about workflows by name, and of a run its plan and its cost. Taken in by site."""

from __future__ import annotations

import json
import time
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from penstock.drawing.svg import svg
from penstock.errors import NotFound, Problem
from penstock.phrases import quoted
from penstock.plan.make import make
from penstock.server.api.common import RunName, listed, needs, settings_of, threads_of, with_run
from penstock.server.pages.plots import of_flow
from penstock.server.pages.site import TONES, page
from penstock.server.remembered import Remembered
from penstock.service import prices
from penstock.service.amounts import hours, money, resource_hours
from penstock.service.run_records import plain_params, seconds_of, state_of
from penstock.service.views.comparison import RunDiff
from penstock.service.views.flows import definition, flow, page_of_flows
from penstock.service.views.plan_rows import PEAKS, RESERVATIONS, STEPS, peak_rows, reservation_rows, step_rows
from penstock.service.views.run_plan import RunPlan, run_plan
from penstock.service.views.usage import cost_of
from penstock.store.records import FINAL, RunRecord
from penstock.store.sql import Store

router = APIRouter(include_in_schema=False)
LOOK = needs("viewer", "look at runs")
MANY: Final = 50
ROWS: Final = 400
"""Steps of a plan that are listed."""
DRAWN: Final = 300
_PLANS: Final[Remembered[RunPlan]] = Remembered(4)
Text = Annotated[str, Query(max_length=300)]


@router.get("/flows", dependencies=[LOOK])
async def list_flows(request: Request, find: Text = "", cursor: Text = "") -> Response:
    def look(store: Store) -> dict[str, Any]:
        found, following = page_of_flows(store, MANY, cursor, find)
        return {
            "data": {"items": [one.as_data() for one in found], "next": following},
            "rows": [(one, of_flow(one, TONES)) for one in found],
            "find": find,
            "cursor": cursor,
            "next": following,
        }

    return page(request, "flows.html", await threads_of(request).call(look), "penstock ls")


@router.get("/flows/{name}", dependencies=[LOOK])
async def show_flow(request: Request, name: str) -> Response:
    def look(store: Store) -> dict[str, Any]:
        view, workflow = flow(store, name)
        plan = make(workflow, plain_params(view.run))
        rows = step_rows(plan)
        about = definition(workflow)
        return {
            "data": view.as_data() | {"definition": about},
            "view": view,
            "about": about,
            "params": [
                {
                    **one,
                    "text": "" if one["needed"] else json.dumps(one["default"], ensure_ascii=False, default=str)[:200],
                }
                for one in about["params"]
            ],
            "bars_of": of_flow(view, TONES),
            "longest": max(seconds_of(run, time.time()) or 0.0 for run, _ in view.last),
            "runs": [listed(*one) for one in view.last],
            "heads": STEPS,
            "steps": rows[:ROWS],
            "hidden": max(0, len(rows) - ROWS),
            "drawn": len(rows) <= DRAWN,
        }

    return page(request, "flow.html", await threads_of(request).call(look), f"penstock ls --workflow {quoted(name)}")


@router.get("/flows/{name}/graph.svg", dependencies=[LOOK])
async def graph(request: Request, name: str) -> Response:
    """The workflow as it was written."""

    def look(store: Store) -> str:
        _, workflow = flow(store, name)
        if len(workflow.steps) > DRAWN:
            raise NotFound(
                Problem("P507", f"{name} has more than {DRAWN} steps: too many for a drawing", "see its list of steps")
            )
        return svg(workflow, {})

    headers = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"}
    return Response(await threads_of(request).call(look), media_type="image/svg+xml", headers=headers)


# -- a run ------------------------------------------------------------------------------------------------------------


@router.get("/runs/{run}/plan", dependencies=[LOOK])
async def show_plan(request: Request, run: RunName, against: Text = "") -> Response:
    settings = settings_of(request)

    def look(store: Store, record: RunRecord) -> dict[str, Any]:
        key = (store.id, record.number, against)
        found = _PLANS.get(key, lambda: run_plan(store, record, against, settings))
        rows = step_rows(found.plan)
        return {
            "data": found.as_data(),
            "run": record,
            "state": state_of(store, record),
            "live": record.state not in FINAL,
            "tables": [
                ("Steps", STEPS, rows[:ROWS]),
                ("Reservations", RESERVATIONS, reservation_rows(found.plan)[:ROWS]),
                ("Demand", PEAKS, peak_rows(found.plan)),
            ],
            "hidden": max(0, len(rows) - ROWS),
            "others": [one.id for one in found.others],
            "against": "" if found.difference is None else found.difference.before.run.id,
            "difference": None if found.difference is None else _difference(store, found.difference),
        }

    data = await with_run(request, run, look)
    other = data["against"]
    words = (
        f"penstock diff {quoted(other)} {quoted(data['run'].id)}"
        if other
        else f"penstock show {quoted(data['run'].id)}"
    )
    return page(request, "plan.html", data, words)


def _difference(store: Store, found: RunDiff) -> dict[str, Any]:
    plan = found.plan
    lines = [("plus", f"{path} was added") for path in plan.added] + [
        ("minus", f"{path} was removed") for path in plan.removed
    ]
    lines += [("same", f"{old} is now called {new}") for old, new in plan.renamed]
    for one in plan.changed:
        lines += [("again", f"{one.step} runs again: {'; '.join(one.content)}")] if one.content else []
        lines += [("other", f"{one.step}: {'; '.join(one.other)}")] if one.other else []
    lines += [("other", text) for text in (*plan.peaks, *plan.workflow)]
    said = prices.configured()
    costs = [cost_of(store, view.run, said) for view in (found.before, found.after)]
    names = list(dict.fromkeys(name for one in costs for name in one.total.asked))
    amounts = [(resource_hours(name), *(hours(one.total.asked.get(name, 0.0)) for one in costs)) for name in names]
    if said:
        amounts.append(("cost", *(money(one.cost, said.currency) for one in costs)))
    return {
        "params": plan.params,
        "lines": lines[:ROWS],
        "more": max(0, len(lines) - ROWS),
        "outputs": [
            (name, *(json.dumps(value, ensure_ascii=False, default=str)[:200] for value in pair))
            for name, pair in found.outputs.items()
        ],
        "seconds": [seconds_of(view.run, time.time()) for view in (found.before, found.after)],
        "states": [found.before.state, found.after.state],
        "amounts": amounts,
        "steps": [
            (one.step, one.before, one.after, _change(one.before, one.after), one.reused, one.states)
            for one in found.steps[:ROWS]
        ],
    }


def _change(old: float | None, new: float | None) -> str:
    if old is None or new is None or abs(new - old) < 0.05 or not old:
        return ""
    ratio = new / old
    return f"{ratio - 1:+.0%}" if 0.1 < ratio < 10 else f"×{ratio:.2g}"


@router.get("/runs/{run}/cost", dependencies=[LOOK])
async def show_cost(request: Request, run: RunName) -> Response:
    def look(store: Store, record: RunRecord) -> dict[str, Any]:
        found = cost_of(store, record, prices.configured())
        names = list(found.total.asked)
        shown = [
            {
                "step": one.step,
                "queue": one.queue,
                "attempts": one.tally.attempts,
                "reused": one.tally.reused,
                "hours": hours(one.tally.hours),
                "asked": [hours(one.tally.asked.get(name, 0.0)) for name in names],
                "used": hours(one.tally.cpu_used) if one.tally.cpu_used else "",
                "busy": None if one.tally.busy is None else round(100 * one.tally.busy),
                "lost": hours(one.tally.lost.get("cpu", 0.0)) if one.tally.lost.get("cpu") else "",
                "cost": money(one.cost, found.prices.currency),
            }
            for one in found.steps[:ROWS]
        ]
        return {
            "data": found.as_data(),
            "run": record,
            "state": state_of(store, record),
            "live": record.state not in FINAL,
            "found": found,
            "heads": [resource_hours(name) for name in names],
            "rows": shown,
            "hidden": max(0, len(found.steps) - ROWS),
            "totals": [(resource_hours(name), hours(found.total.asked[name])) for name in names],
            "cost": money(found.cost, found.prices.currency),
            "used": hours(found.total.cpu_used) if found.total.cpu_used else "",
            "busy_percent": None if found.total.busy is None else round(100 * found.total.busy),
            "wasteful": [
                (
                    one.step,
                    money(one.waste, found.prices.currency) if found.prices else f"{hours(one.waste)} cpu-h",
                    one.why,
                )
                for one in found.wasteful
            ],
        }

    data = await with_run(request, run, look)
    return page(request, "cost.html", data, f"penstock usage --run {quoted(data['run'].id)}")
