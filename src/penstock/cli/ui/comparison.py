"""Two runs side by side. Called by `penstock diff`."""

from __future__ import annotations

from penstock.cli.ui import render
from penstock.cli.ui.render import DIM, duration
from penstock.service.run_records import seconds_of
from penstock.service.views.comparison import RunDiff


def comparison(found: RunDiff) -> None:
    before, after = found.before, found.after
    render.print_line([(f"{before.run.id} → {after.run.id}", {"bold": True})])
    if before.state != after.state:
        _fact("state", f"{before.state} → {after.state}")
    old, new = seconds_of(before.run), seconds_of(after.run)
    if old is not None and new is not None:
        _fact("time", f"{duration(old)} → {duration(new)}{_change(old, new)}")
    for line in found.plan.params:
        _fact("param", line)
    for name, (a, b) in found.outputs.items():
        _fact("output", f"{name}: {render.brief(a)} → {render.brief(b)}")
    for number, line in enumerate(_graph(found) or ["the same"]):
        _fact("" if number else "graph", line)
    rows = []
    for step in found.steps:
        was, is_ = step.before, step.after
        change = "" if was is None or is_ is None else _change(was, is_).strip()
        states = step.states[0] or "none"
        if step.states[0] != step.states[1]:
            states += f" → {step.states[1] or 'none'}"
        spent = ["" if one is None else duration(one) for one in (was, is_)]
        rows.append([step.step, *spent, change, str(step.reused or ""), states])
    render.data("")
    head = ["STEP", before.run.id, after.run.id, "CHANGE", "REUSED", "STATE"]
    render.table(head, rows, "  " if render.is_terminal() else "")


def _graph(found: RunDiff) -> list[str]:
    plan = found.plan
    lines = [f"+ {path}" for path in plan.added] + [f"- {path}" for path in plan.removed]
    lines += [f"= {a} → {b}, renamed" for a, b in plan.renamed]
    lines += [f"~ {one.step}: {'; '.join((*one.content, *one.other))}" for one in plan.changed]
    return [*lines, *plan.peaks, *plan.workflow]


def _fact(name: str, text: str) -> None:
    render.print_line([(f"  {name:<8} ", DIM), (render.clean(text), {})])


def _change(old: float, new: float) -> str:
    if abs(new - old) < 0.05 or not old:
        return ""
    ratio = new / old
    return f"   {ratio - 1:+.0%}" if 0.1 < ratio < 10 else f"   ×{ratio:.2g}"
