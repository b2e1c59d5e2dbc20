"""The one place that prints. Called by the commands; takes what service returns and gives lines.

Data goes to stdout, the rest to stderr. To a terminal: aligned, coloured, cut to its width. To a pipe: no colour, tabs between
columns, nothing cut, so that `cut` and `grep` work.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from penstock.errors import PenstockError, Problem, UserError
from penstock.graph import quantity
from penstock.graph.model import NORMAL, Step

if TYPE_CHECKING:
    from penstock.formats.report import Entry
    from penstock.plan.diff import PlanDiff
    from penstock.plan.expand import Planned, Size
    from penstock.plan.make import Plan
    from penstock.plan.merge import Merged
    from penstock.plan.reserve import Reservation
    from penstock.service.forecast import Forecast
    from penstock.service.outlook import Outlook

ROWS = 200
"""More rows than that are not read on a screen."""
_SHORT = {"nvidia.com/gpu": "gpu"}

Piece = tuple[str, dict[str, Any]]
Line = list[Piece]
"""Text with its style, so that it can be cut to a width before it is painted."""
DIM: dict[str, Any] = {"dim": True}


def is_terminal(stream: Any = None) -> bool:
    return bool((stream or sys.stdout).isatty())


def paint(text: str, stream: Any = None, **style: Any) -> str:
    if not is_terminal(stream) or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return text
    return click.style(text, **style)


def note(text: str) -> None:
    click.echo(text, err=True)


def json_out(data: Any) -> None:
    click.echo(json.dumps(data, indent=2, ensure_ascii=False))


def table(
    head: Sequence[str], rows: Sequence[Sequence[str]], indent: str = "", colours: Mapping[str, str] | None = None
) -> None:
    """Columns as wide as they need; on a terminal what does not fit is cut. `colours`: of cells with just this text."""
    if not is_terminal():
        for row in [head, *rows]:
            click.echo("\t".join(row))
        return
    shown = rows[:ROWS]
    widths = [max(len(row[i]) for row in [head, *shown]) for i in range(len(head))]
    for number, row in enumerate([head, *shown]):
        line: Line = [(indent, {})]
        for cell, width in zip(row, widths, strict=True):
            style = DIM if number == 0 else {"fg": colours[cell]} if colours and cell in colours else {}
            line += [(cell.ljust(width), style), ("  ", {})]
        print_line(line)
    if len(rows) > ROWS:
        click.echo(indent + paint(f"… {len(rows) - ROWS:,} more; -o json, or a pipe, shows all", dim=True))


def print_line(line: Line, stream: Any = None) -> None:
    """On a terminal cut to its width; elsewhere whole."""
    if not is_terminal(stream):
        click.echo(plain(line), file=stream)
        return
    shown = cut(trimmed(line), shutil.get_terminal_size().columns)
    click.echo(painted(shown, lambda text, **style: paint(text, stream, **style)), file=stream)


def cut(line: Line, width: int) -> Line:
    found: Line = []
    left = width
    for text, style in line:
        if len(text) > left:
            found.append((text[: max(0, left - 1)] + "…" if left else "", style))
            return found
        found.append((text, style))
        left -= len(text)
    return found


def plain(line: Line) -> str:
    return "".join(text for text, _ in line).rstrip()


def painted(line: Line, paint: Callable[..., str]) -> str:
    return "".join(paint(text, **style) if style else text for text, style in line)


def trimmed(line: Line) -> Line:
    """Without blanks at the end."""
    found = list(line)
    while found and not found[-1][0].strip():
        found.pop()
    return [*found[:-1], (found[-1][0].rstrip(), found[-1][1])] if found else []


# -- time -------------------------------------------------------------------------------------------------------------


def duration(seconds: float) -> str:
    """12ms, 0.4s, 31s, 1m12s, 1h05m, 2d03h: never more than six characters or so."""
    if seconds < 0.0995:
        return f"{seconds * 1000:.0f}ms"
    if seconds < 9.95:
        return f"{seconds:.1f}s"
    if seconds < 59.5:
        return f"{seconds:.0f}s"
    whole = int(seconds + 0.5)
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02}m"
    return f"{whole // 86400}d{whole % 86400 // 3600:02}h"


def when(at: float, now: float | None = None) -> str:
    """To a terminal `3m ago`; to a pipe the date and time in full."""
    from datetime import datetime

    if not is_terminal():
        return datetime.fromtimestamp(at).astimezone().isoformat(timespec="seconds")
    age = max(0.0, (time.time() if now is None else now) - at)
    for unit, name in ((86400, "d"), (3600, "h"), (60, "m")):
        if age >= unit:
            return f"{age / unit:.0f}{name} ago"
    return f"{age:.0f}s ago"


# -- errors -----------------------------------------------------------------------------------------------------------


def error(failure: PenstockError) -> None:
    if not isinstance(failure, UserError):
        click.echo(f"{paint('error', sys.stderr, fg='red', bold=True)}: {failure}", err=True)
        return
    for one in failure.problems:
        problem(one)
    codes = list(dict.fromkeys(problem.code for problem in failure.problems))
    click.echo(
        f"  more   penstock explain {codes[0]}" + (f"   (and {', '.join(codes[1:])})" if codes[1:] else ""), err=True
    )


def problem(problem: Problem) -> None:
    """To stderr, with its place and its fix."""
    word = problem.severity
    head = paint(f"{word}[{problem.code}]", sys.stderr, fg="red" if word == "error" else "yellow", bold=True)
    lines = [f"{head}: {clean(problem.message)}"]
    if problem.source is not None:
        column = f":{problem.source.column}" if problem.source.column else ""
        lines.append(f"  at     {near(problem.source.file)}:{problem.source.line}{column}")
    if problem.where:
        lines.append(f"  in     {clean(problem.where)}")
    if problem.excerpt.strip():
        text = clean(problem.excerpt.expandtabs(1))
        margin = len(text) - len(text.lstrip())
        lines.append(f"         {text.strip()}")
        if problem.source is not None and problem.source.column > margin:
            lines.append(
                "         " + " " * (problem.source.column - 1 - margin) + paint("^", sys.stderr, fg="red", bold=True)
            )
    lines.append(f"  fix    {clean(problem.fix)}")
    click.echo("\n".join(lines), err=True)


def entries(found: Sequence[Entry]) -> None:
    """What a translation changed or lost, a line each."""
    for entry in found:
        place = f" ({entry.source})" if entry.source is not None else ""
        nearest = f" {entry.near}" if entry.near else ""
        head = paint(entry.kind, sys.stderr, fg={"lost": "red", "changed": "yellow"}.get(entry.kind, "green"))
        note(f"{head} {clean(entry.path)}: {clean(entry.message)}{place}.{nearest}")


def near(file: str) -> str:
    """The path as one would type it here."""
    if not os.path.isabs(file):
        return clean(file)
    near = os.path.relpath(file)
    return clean(near if not near.startswith("..") else file)


def clean(text: str) -> str:
    """Whatever stands in a user's file must not move the cursor or ring the bell."""
    return "".join(char if char.isprintable() or char == " " else "·" for char in text)


def usage(failure: click.UsageError) -> None:
    path = failure.ctx.command_path if failure.ctx is not None else "penstock"
    click.echo(f"{paint('error', sys.stderr, fg='red', bold=True)}: {failure.format_message()}", err=True)
    click.echo(f"  fix    {path} --help", err=True)


def bug(failure: Exception) -> None:
    click.echo(
        f"{paint('error[P900]', sys.stderr, fg='red', bold=True)}: this is a mistake in Penstock: {type(failure).__name__}: {failure}",
        err=True,
    )
    click.echo("  fix    run it again with PENSTOCK_DEBUG=1 and report what it prints", err=True)


def explanation(code: str, entry: Mapping[str, str]) -> None:
    click.echo(paint(f"{code}  {entry['title']}", bold=True))
    click.echo()
    for paragraph in entry["text"].strip().split("\n\n"):
        click.echo(textwrap.fill(paragraph, min(shutil.get_terminal_size().columns, 110)) + "\n")
    for name in ("wrong", "right"):
        if entry.get(name):
            click.echo(f"{name}:")
            click.echo("\n".join(f"    {line}" for line in entry[name].rstrip().splitlines()) + "\n")


# -- plans ------------------------------------------------------------------------------------------------------------


def amount(milli: int, resource: str) -> str:
    name = _SHORT.get(resource, resource)
    return f"{quantity.short(milli, resource)} {name}"


def vector(amounts: Mapping[str, int]) -> str:
    return (
        ", ".join(amount(milli, resource) for resource, milli in sorted(amounts.items(), key=_by_weight)) or "nothing"
    )


def _by_weight(item: tuple[str, int]) -> tuple[int, str]:
    return {"cpu": 1, "memory": 2}.get(item[0], 0), item[0]


def plan(found: Plan, expected: Forecast | None = None, prospects: Mapping[str, Outlook] | None = None) -> None:
    workflow = found.workflow
    queue = f" → queue {workflow.queue}" if workflow.queue else ""
    click.echo(
        f"{paint(workflow.name, bold=True)}{queue}, by {found.unit}" + paint(f"   {found.digest[:19]}", dim=True)
    )
    if found.params:
        click.echo(
            "  "
            + paint("with   ", dim=True)
            + ", ".join(f"{name}={brief(value)}" for name, value in found.params.items())
        )
    missing = [param.name for param in workflow.params if param.name not in found.params]
    if missing:
        click.echo("  " + paint("needs  ", dim=True) + f"{', '.join(missing)}   (-p {missing[0]}=…)")
    click.echo()
    of_step = {path: number for number, stage in enumerate(found.stages, 1) for path in stage.steps}
    rows = [_step_row(planned, calls, of_step, found) for planned, calls in found.level.walk()]
    head = ["STAGE", "STEP", "TASKS", "EACH NEEDS", "RUNS"]
    if expected is not None:
        head.insert(4, "NOW")
        for (planned, _), row in zip(found.level.walk(), rows, strict=True):
            row.insert(4, _now(expected, planned))
    table(head, rows, "  ")
    click.echo()
    _reservations(found, prospects or {})
    _demand(found)
    for one in found.warnings:
        problem(one)


def _step_row(planned: Planned, calls: Size, of_step: Mapping[str, int], found: Plan) -> list[str]:
    stage = str(of_step.get(planned.path, "–"))
    tasks = str(planned.tasks) if planned.step.each is None else f"×{planned.tasks}"
    needs = "" if planned.inner is not None else _needs(planned.step)
    return [stage, planned.path, tasks, needs, _runs(planned, calls, found)]


def _now(expected: Forecast, planned: Planned) -> str:
    one = expected.steps.get(planned.path)
    if one is None:
        return ""
    return f"{one.word()}: {'; '.join(one.why)}" if one.why else one.word()


def _needs(step: Step) -> str:
    if not step.resources:
        return "nothing"
    gang = f" ×{step.replicas} replicas" if step.replicas > 1 else ""
    return f"({vector(step.resources)}){gang}" if gang and len(step.resources) > 1 else vector(step.resources) + gang


def _runs(planned: Planned, calls: Size, found: Plan) -> str:
    step = planned.step
    words = []
    before = found.before_of(planned.path)
    if planned.exempt:
        words.append("at the end, never queued")
    elif before:
        words.append("after " + _names([_edge(up, step) for up in before]))
    if planned.runs == "no":
        words.append(f"never: {step.when.text} does not hold" if step.when is not None else "never: no items")
    elif step.when is not None:
        words.append(f"when {step.when.text}" + ("" if planned.runs == "maybe" else ", which holds"))
    if step.loop is not None:
        words.append(f"while {step.loop.condition.text}, at most {step.loop.max_iterations:,} rounds")
    if step.each is not None and step.each.parallel is not None:
        words.append(f"at most {step.each.parallel} at once")
    if planned.tasks.count is None:
        words.append(
            f"how many is {planned.tasks.why}"
            if planned.tasks.why.startswith("known")
            else f"how many {planned.tasks.why}"
        )
    if calls.count != 1 and step.loop is None and "/" in planned.path:
        words.append(f"in each of {calls} calls")
    return "; ".join(words)


def _edge(up: str, step: Step) -> str:
    """A step that is waited for, with the outcomes that are asked of it if they are not the usual ones."""
    asked = next((edge.outcomes for edge in step.needs if edge.step == up), NORMAL)
    return up if asked == NORMAL else f"{up} ({' or '.join(sorted(asked))})"


def _reservations(found: Plan, prospects: Mapping[str, Outlook]) -> None:
    if not found.reservations:
        click.echo("nothing to reserve: no step asks for a resource")
        return
    rows = [_reservation_row(each) for each in found.reservations]
    head = ["RESERVATION", "TIMES", "HOLDS EACH", "SUM", "STAGES"]
    if prospects:
        head.insert(4, "IN THE QUEUE")
        for each, row in zip(found.reservations, rows, strict=True):
            row.insert(4, prospects[each.name].text())
    # A column that says nothing is left out on a screen.
    kept = [at for at, name in enumerate(head) if name not in ("TIMES", "SUM") or any(row[at] for row in rows)]
    if is_terminal():
        head, rows = [head[at] for at in kept], [[row[at] for at in kept] for row in rows]
    table(head, rows, "  ")
    click.echo()


def _reservation_row(each: Reservation) -> list[str]:
    holds = ("at least " if not each.known else "") + vector(each.peak)
    if not each.known:
        holds += f" ({each.why})"
    times = "" if each.count.count == 1 else f"×{each.count}"
    return [each.name, times, holds, "" if each.total is None else vector(each.total), _names(each.stages)]


def _names(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= 4 else f"{', '.join(names[:3])} and {len(names) - 3:,} more"


def _demand(found: Plan) -> None:
    if not found.peaks:
        return
    rows = []
    for resource, peak in sorted(found.peaks.items(), key=lambda item: _by_weight((item[0], 0))):
        least = "at least " if peak.open else "at most " if peak.maybe else ""
        total = ("at least " if peak.open else "") + quantity.short(peak.total, resource)
        who = _names([path for path, _ in peak.steps])
        rows.append([_SHORT.get(resource, resource), least + quantity.short(peak.amount, resource), total, who])
    table(["PEAK OF", "AT ONCE", "SUM", "WHEN THESE RUN TOGETHER"], rows, "  ")


def brief(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str) if not isinstance(value, str) else value
    return text if len(text) <= 40 else text[:39] + "…"


def _short(text: str, resource: str) -> str:
    return quantity.short(quantity.parse(text), resource)


def merged(found: Merged) -> None:
    data = found.as_data()
    names = ", ".join(data["workflows"])
    click.echo(f"{paint(found.workflow.name, bold=True)} = {names}")
    click.echo()
    rows = [[noun, str(data[noun]["before"]), str(data[noun]["after"])] for noun in ("steps", "tasks")]
    before, after = data["peak"]["before"], data["peak"]["after"]
    rows += [
        [f"peak {_SHORT.get(name, name)}", _short(before[name], name), _short(after.get(name, "0"), name)]
        for name in before
    ]
    table(["", "APART", "MERGED"], rows, "  ")
    steps = data["steps"]["before"] - data["steps"]["after"]
    saved = ", ".join(f"{_short(text, name)} {_SHORT.get(name, name)}" for name, text in data["saved"].items())
    click.echo(f"\nsaved: {steps} step{'s' if steps != 1 else ''}" + (f", together {saved}" if saved else ""))
    if found.shared:
        click.echo()
        table(
            ["SHARED STEP", "STANDS FOR"], [[name, ", ".join(origins)] for name, origins in found.shared.items()], "  "
        )
    for line in found.notes:
        note(f"note: {line}")


def diff(found: PlanDiff) -> None:
    if found.empty:
        click.echo("no difference")
        return
    rows = [["+", path, "added"] for path in found.added]
    rows += [["-", path, "removed"] for path in found.removed]
    rows += [["=", f"{old} → {new}", "renamed, same content"] for old, new in found.renamed]
    for change in found.changed:
        what = [f"runs again: {'; '.join(change.content)}"] if change.content else []
        what += ["; ".join(change.other)] if change.other else []
        rows.append(["~", change.step, "; ".join(what)])
    rows += [["", "peak", line] for line in found.peaks]
    rows += [["", "parameter", line] for line in found.params]
    rows += [["", "workflow", line] for line in found.workflow]
    table(["", "STEP", "WHAT"], rows)
    click.echo(f"{len(found.same)} the same")
