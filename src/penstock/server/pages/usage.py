"""The page about what was asked for, used and paid. Taken in by site."""

from __future__ import annotations

import time
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from penstock.phrases import quoted
from penstock.server.api.common import needs, threads_of
from penstock.server.api.records import PATIENCE
from penstock.server.pages.plots import of_days
from penstock.server.pages.site import page
from penstock.server.remembered import Remembered
from penstock.service import prices
from penstock.service.amounts import hours, money, resource_hours
from penstock.service.views.usage import NO_QUEUE, WAYS, UsageReport, UsageRow, usage, way
from penstock.store.sql import Store

router = APIRouter(include_in_schema=False)
LOOK = needs("viewer", "look at runs")
Text = Annotated[str, Query(max_length=300)]
TIMES: Final = {"1d": 1, "7d": 7, "30d": 30, "90d": 90, "365d": 365}
MANY: Final = 200
_FOUND: Final[Remembered[UsageReport]] = Remembered()


@router.get("/usage", dependencies=[LOOK])
async def show_usage(
    request: Request, by: Text = "person", since: Text = "30d", person: Text = "", queue: Text = "", flow: Text = ""
) -> Response:
    chosen = way(by) if by in WAYS else WAYS[0]
    length = since if since in TIMES else "30d"
    filters = {name: text for name, text in (("person", person), ("queue", queue), ("flow", flow)) if text}
    now = time.time()

    def look(store: Store) -> dict[str, Any]:
        first = now - TIMES[length] * 86400
        found = _FOUND.get(
            (store.id, chosen, length, *filters.items()),
            lambda: usage(store, chosen, first, now, prices.configured(), filters, seconds=PATIENCE),
        )
        names = found.resources
        lead = next((name for name in names if name not in ("cpu", "memory")), names[0] if names else "")
        days = [(at, tally.asked.get(lead, 0.0) if lead else tally.hours) for at, tally in sorted(found.days.items())]
        drawn, ticks = of_days(days, first, now)
        return {
            "data": found.as_data(),
            "found": found,
            "by": chosen,
            "ways": WAYS,
            "since": length,
            "times": list(TIMES),
            "filters": filters,
            "heads": [resource_hours(name) for name in names],
            "rows": [_row(one, found, names) for one in found.rows[:MANY]],
            "hidden": max(0, len(found.rows) - MANY),
            "total": _row(found.total, found, names) | {"link": ""},
            "days": drawn,
            "days_words": f"{hours(sum(amount for _, amount in days))} in all",
            "most": hours(max((amount for _, amount in days), default=0.0)),
            "lead": f"{resource_hours(lead)} asked for" if lead else "Hours",
            "ticks": ticks,
        }

    words = f"penstock usage --by {chosen} --since {length}"
    words += "".join(f" --{'workflow' if name == 'flow' else name} {quoted(text)}" for name, text in filters.items())
    return page(request, "usage.html", await threads_of(request).call(look), words)


def _row(one: UsageRow, found: UsageReport, names: list[str]) -> dict[str, Any]:
    tally = one.tally
    links = {"person": "/?user=", "flow": "/flows/", "queue": "/queues/"}
    known = one.name and one.name != NO_QUEUE
    return {
        "name": one.name or "(nobody)",
        "link": links[found.by] if known else "",
        "runs": one.runs,
        "attempts": tally.attempts,
        "reused": tally.reused,
        "hours": hours(tally.hours),
        "asked": [hours(tally.asked.get(name, 0.0)) for name in names],
        "used": hours(tally.cpu_used) if tally.cpu_used else "",
        "busy": None if tally.busy is None else round(100 * tally.busy),
        "cost": money(one.cost, found.prices.currency),
    }
