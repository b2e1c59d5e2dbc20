"""Usage on the terminal. Called by `penstock usage`, also of one run."""

from __future__ import annotations

from penstock.cli.ui import render
from penstock.service.amounts import hours, money, resource_hours
from penstock.service.usage import Tally
from penstock.service.views.usage import RunCost, UsageReport, UsageRow


def usage_table(found: UsageReport) -> None:
    if not found.rows:
        render.note("nothing ran in that time")
        return
    names = found.resources
    head = [found.by.upper(), "RUNS", "ATTEMPTS", "REUSED", "HOURS"]
    head += [f"{resource_hours(name).upper()} ASKED" for name in names] + ["CPU-H USED", "BUSY", "COST"]
    rows = [_row(one, found, names) for one in found.rows]
    if len(rows) > 1:
        rows.append(_row(found.total, found, names))
    render.table(*render.without_empty(head, rows, ("REUSED", "CPU-H USED", "BUSY", "COST")))
    if found.total.tally.cpu_measured == 0 and "cpu" in names:
        render.note("no processor time was measured: of containers, pods and what runs inside the engine it is not")


def cost_table(found: RunCost) -> None:
    if not found.steps:
        render.note("nothing of it has run")
        return
    names = list(found.total.asked)
    head = ["STEP", "QUEUE", "ATTEMPTS", "REUSED", "HOURS"]
    head += [f"{resource_hours(name).upper()} ASKED" for name in names] + ["CPU-H USED", "BUSY", "COST"]
    currency = found.prices.currency
    rows = [[one.step, one.queue, *_cells(one.tally, names), money(one.cost, currency)] for one in found.steps]
    if len(rows) > 1:
        rows.append(["total", "", *_cells(found.total, names), money(found.cost, currency)])
    render.table(*render.without_empty(head, rows, ("QUEUE", "REUSED", "CPU-H USED", "BUSY", "COST")))
    for one in found.wasteful:
        amount = money(one.waste, currency) if found.prices else f"{hours(one.waste)} cpu-h"
        render.note(f"wasteful: {one.step}, {amount}" + (f": {one.why}" if one.why else ""))


def _row(one: UsageRow, found: UsageReport, names: list[str]) -> list[str]:
    return [one.name, f"{one.runs:,}", *_cells(one.tally, names), money(one.cost, found.prices.currency)]


def _cells(tally: Tally, names: list[str]) -> list[str]:
    return [
        f"{tally.attempts:,}",
        f"{tally.reused:,}" if tally.reused else "",
        hours(tally.hours),
        *(hours(tally.asked.get(name, 0.0)) for name in names),
        hours(tally.cpu_used) if tally.cpu_used else "",
        "" if tally.busy is None else f"{100 * tally.busy:.0f} %",
    ]
