"""Plans, merged workflows and differences on the terminal. Called by the commands plan, merge and diff."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from penstock.cli.ui import errors
from penstock.cli.ui.render import brief, data, note, paint, plural, table, without_empty
from penstock.graph import quantity
from penstock.service.amounts import short_name
from penstock.service.views.plan_rows import PEAKS, RESERVATIONS, STEPS, peak_rows, reservation_rows, step_rows

if TYPE_CHECKING:
    from penstock.plan.diff import PlanDiff
    from penstock.plan.expand import Planned
    from penstock.plan.make import Plan
    from penstock.plan.merge import Merged
    from penstock.service.views.forecast import Forecast
    from penstock.service.views.outlook import Outlook


def plan(found: Plan, forecast: Forecast | None = None, outlook: Mapping[str, Outlook] | None = None) -> None:
    workflow = found.workflow
    queue = f" → queue {workflow.queue}" if workflow.queue else ""
    data(f"{paint(workflow.name, bold=True)}{queue}, by {found.unit}" + paint(f"   {found.digest[:19]}", dim=True))
    if found.params:
        values = ", ".join(f"{name}={brief(value)}" for name, value in found.params.items())
        data("  " + paint("with   ", dim=True) + values)
    missing = [param.name for param in workflow.params if param.name not in found.params]
    if missing:
        data("  " + paint("needs  ", dim=True) + f"{', '.join(missing)}   (-p {missing[0]}=…)")
    data("")
    rows, head = step_rows(found), list(STEPS)
    if forecast is not None:
        head.insert(4, "NOW")
        for (planned, _), row in zip(found.level.walk(), rows, strict=True):
            row.insert(4, _now(forecast, planned))
    table(head, rows, "  ")
    data("")
    _reservations(found, outlook or {})
    _demand(found)
    errors.problems(found.warnings)


def _now(forecast: Forecast, planned: Planned) -> str:
    one = forecast.steps.get(planned.path)
    if one is None:
        return ""
    return f"{one.word()}: {'; '.join(one.why)}" if one.why else one.word()


def _reservations(found: Plan, outlook: Mapping[str, Outlook]) -> None:
    if not found.reservations:
        data("nothing to reserve: no step asks for a resource")
        return
    rows, head = reservation_rows(found), list(RESERVATIONS)
    if outlook:
        head.insert(4, "IN THE QUEUE")
        for each, row in zip(found.reservations, rows, strict=True):
            row.insert(4, outlook[each.name].text())
    table(*without_empty(head, rows, ("TIMES", "SUM")), "  ")
    data("")


def _demand(found: Plan) -> None:
    if found.peaks:
        table(list(PEAKS), peak_rows(found), "  ")


def _short(text: str, resource: str) -> str:
    return quantity.short(quantity.parse(text), resource)


def merged(found: Merged) -> None:
    summary = found.as_data()
    names = ", ".join(summary["workflows"])
    data(f"{paint(found.workflow.name, bold=True)} = {names}\n")
    rows = [[noun, str(summary[noun]["before"]), str(summary[noun]["after"])] for noun in ("steps", "tasks")]
    before, after = summary["peak"]["before"], summary["peak"]["after"]
    rows += [
        [f"peak {short_name(name)}", _short(before[name], name), _short(after.get(name, "0"), name)] for name in before
    ]
    table(["", "APART", "MERGED"], rows, "  ")
    steps = plural(summary["steps"]["before"] - summary["steps"]["after"], "step")
    saved = ", ".join(f"{_short(text, name)} {short_name(name)}" for name, text in summary["saved"].items())
    data(f"\nsaved: {steps}" + (f", together {saved}" if saved else ""))
    if found.shared:
        data("")
        rows = [[name, ", ".join(origins)] for name, origins in found.shared.items()]
        table(["SHARED STEP", "STANDS FOR"], rows, "  ")
    for line in found.notes:
        note(f"note: {line}")


def diff(found: PlanDiff) -> None:
    if found.empty:
        data("no difference")
        return
    rows = [["+", path, "added"] for path in found.added]
    rows += [["-", path, "removed"] for path in found.removed]
    rows += [["=", f"{old} → {new}", "renamed, same content"] for old, new in found.renamed]
    for change in found.changed:
        what = [f"runs again: {'; '.join(change.content)}"] if change.content else []
        what += ["; ".join(change.other)] if change.other else []
        rows.append(["~", change.step, "; ".join(what)])
    groups: Sequence[tuple[str, Sequence[str]]] = (
        ("peak", found.peaks),
        ("parameter", found.params),
        ("workflow", found.workflow),
    )
    rows += [["", name, line] for name, lines in groups for line in lines]
    table(["", "STEP", "WHAT"], rows)
    data(f"{len(found.same)} the same")
