"""How runs, steps and tasks look: overview, task, tree, chart over time, comparison. Called by show, watch and diff.

On a terminal: lines as wide as it is. In a pipe: tables with tabs, states spelled out.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import click

from penstock.cli import render
from penstock.cli.board import MARKS, WORDS, Board, spent
from penstock.cli.failures import failure_lines, last_lines, quoted
from penstock.cli.render import DIM, Line, duration
from penstock.service import views
from penstock.service.views import Band, Node, RunDiff, RunView, TaskView
from penstock.settings import Settings
from penstock.store.base import Event, Run, TaskRow

ITEMS = 10
"""Tasks of one step that a tree shows on a terminal."""
STATES: Mapping[str, str] = {state: colour for state, (_, colour) in MARKS.items() if state and colour}
_HEIGHTS = "▁▂▃▄▅▆▇█"


# -- a run ------------------------------------------------------------------------------------------------------------


def overview(view: RunView, settings: Settings, now: float, waits: Mapping[str, str] | None = None) -> None:
    """`waits`: what stands in a queue, see Board."""
    run = view.run
    title(view, now)
    if waits and "" in waits:
        render.print_line([("  waits  ", DIM), (waits[""].removeprefix("waiting "), {"fg": "yellow"})])
    if run.params:
        words = ", ".join(f"{name}={render.brief(value)}" for name, value in run.params.items())
        render.print_line([("  with   ", DIM), (render.clean(words), {})])
    click.echo()
    reasons = {path: render.clean(text) for path, text in view.reasons.items()}
    board = Board(view.outline, reasons, render.is_terminal(), waits)
    times = view.times
    if view.state in ("lost", "stopped"):  # nothing goes on, whatever has begun
        times = {node.path: times[node.path] for node in view.outline.nodes if node.over and node.path in times}
    if render.is_terminal():
        nodes, rest = board.chosen(render.ROWS)
        for line in [*board.lines(times, nodes, run=run.id), *([rest] if rest else [])]:
            render.print_line(line)
    else:
        rows = [_step_row(board, node, times) for node in view.outline.nodes]
        render.table(["STEP", "STATE", "TASKS", "TOOK", "DETAILS"], rows)
    if view.outputs:
        click.echo()
        for name, value in view.outputs.items():
            render.print_line([(f"  {name}: ", DIM), (render.clean(_text(value)), {})])
    if view.failures:
        click.echo()
        failure_lines(
            run.id, view.failures, settings, total=view.failed, retry=view.state in views.OVER, stream=sys.stdout
        )
    hint = next_step(view)
    if hint:
        click.echo(f"  next   {hint}")


def _step_row(board: Board, node: Node, times: views.Times) -> list[str]:
    many = "" if node.total is None else str(node.total)
    state = board.state_of(node) or "pending"
    return [node.path, state, many, spent(node, times, {}), render.plain(board.details(node))]


def title(view: RunView, now: float) -> None:
    run = view.run
    colour = STATES.get(view.state, "")
    took = views.seconds_of(run, None if view.state in ("stopped", "lost") else now)
    line: Line = [(run.id, {"bold": True}), ("  ", {}), (view.state, {"fg": colour} if colour else {})]
    line.append(
        (f" in {duration(took)}" if took is not None and run.ended else f" {duration(took)}" if took else "", {})
    )
    words = [f"{run.user}, " if run.user else "", render.when(run.created, now)]
    file = run.options.get("file")
    line.append((f"   {''.join(words)}" + (f"   {file}" if file else "") + f"   {run.digest[:19]}", DIM))
    render.print_line(line)


def next_step(view: RunView) -> str:
    id = view.run.id
    waiting = [node.path for node in view.outline.nodes if node.tally.get("suspended") and not node.over]
    if view.state == "running" and waiting:
        return f"penstock resume {id}/{waiting[0]}   penstock watch {id}"
    return {
        "lost": f"penstock resume {id}   (the process that ran it is gone)",
        "stopped": f"penstock resume {id}",
        "running": f"penstock watch {id}",
        "queued": f"penstock why {id}   penstock watch {id}",
    }.get(view.state, "")


def summary(view: RunView, settings: Settings) -> None:
    """What is left on the screen when a run that was watched is over."""
    run = view.run
    if view.failures:
        failure_lines(
            run.id, view.failures, settings, total=view.failed, retry=view.state in views.OVER, stream=sys.stdout
        )
    for name, value in view.outputs.items():
        render.print_line([(f"  {name}: ", DIM), (render.clean(_text(value)), {})])
    mark, colour = MARKS.get(view.state, ("·", ""))
    counts = [f"{many:,} {WORDS.get(state, state)}" for state, many in total(view).items()]
    took = views.seconds_of(run)
    words = [view.state + (f" in {duration(took)}" if took is not None else ""), *counts]
    render.print_line([(f"{mark} {run.id}", {"fg": colour or None, "bold": True}), (" " + " · ".join(words), {})])
    hint = next_step(view)
    if hint:
        click.echo(f"  next   {hint}")


def total(view: RunView) -> dict[str, int]:
    """Tasks by state, called workflows not counted: what is in them is."""
    found: dict[str, int] = {}
    for state in (*views.ENDED, *views.ACTIVE):
        many = sum(node.tally.get(state, 0) for node in view.outline.nodes if not node.nested)
        if many:
            found[state] = many
    return found


def _text(value: Any) -> str:
    if isinstance(value, dict) and set(value) == {"$stored"} and "digest" in value["$stored"]:
        return _kept(value["$stored"])
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _kept(stored: dict[str, Any]) -> str:
    """A value that is kept as a blob: what it is, and where it lies if it lies on this machine."""
    from penstock.artifacts.blobs import Blobs
    from penstock.settings import read

    path = Blobs(read().artifacts).local(stored["digest"])
    name = f" {stored['name']}" if stored.get("name") else ""
    return f"<{stored['kind']}{name} of {stored['size']:,} bytes>  {path or stored['digest']}"


# -- tasks ------------------------------------------------------------------------------------------------------------


def task_table(rows: Sequence[TaskRow], now: float) -> None:
    # On a screen what went wrong comes first.
    order = sorted(rows, key=lambda row: _urgency(row.state)) if render.is_terminal() else rows
    cells = [
        [row.task, row.state, str(row.attempt or ""), took(row, now), render.clean(views.reason(row))] for row in order
    ]
    render.table(["TASK", "STATE", "ATTEMPT", "TOOK", "REASON"], cells, "  " if render.is_terminal() else "", STATES)


def _urgency(state: str) -> int:
    return 0 if state in views.BAD else 1 if state in views.ACTIVE else 2 if state == "cancelled" else 3


def took(row: TaskRow, now: float) -> str:
    if row.started is None:
        return ""
    return duration(max(0.0, (now if row.ended is None else row.ended) - row.started))


def task(view: TaskView, run: Run, settings: Settings, now: float) -> None:
    row = view.row
    colour = STATES.get(row.state, "")
    line: Line = [(f"{run.id}/{row.task}", {"bold": True}), ("  ", {}), (row.state, {"fg": colour} if colour else {})]
    why = views.reason(row)
    line += [(f" {took(row, now)}", {}), (f"   {render.clean(why)}" if why else "", {})]
    render.print_line(line)
    facts = [("key", row.key), ("started", "" if row.started is None else render.when(row.started, now))]
    facts += [("log", f"{file}") for file in view.log]
    for name, text in facts:
        if text:  # whole: to be copied
            click.echo(render.paint(f"  {name:<9}", dim=True) + text)
    for word, values in (("input", view.inputs), ("output", view.outputs)):
        for name, value in values.items():
            render.print_line([(f"  {word:<9}", DIM), (f"{name} = {render.clean(_text(value))}", {})])
    if len(view.attempts) > 1 or (view.attempts and row.state in (*views.BAD, "retrying")):
        click.echo()
        cells = [_attempt_row(one) for one in view.attempts]
        render.table(["ATTEMPT", "STATE", "TOOK", "WHAT HAPPENED"], cells, "  " if render.is_terminal() else "", STATES)
    if row.info.get("traceback"):
        click.echo()
        for text in str(row.info["traceback"]).rstrip().splitlines():
            click.echo("  " + render.clean(text))
    last = last_lines(settings, row.info, 10)
    if last:
        click.echo()
        for text in last:
            render.print_line([("  │ ", DIM), (render.clean(text), {})])
    words = f"penstock logs {quoted(f'{run.id}/{row.task}')}" if row.info.get("log") else ""
    words += (
        ("   " if words else "") + f"penstock retry {run.id}"
        if row.state in views.BAD and run.state in views.OVER
        else ""
    )
    if row.state == "suspended":
        words = f"penstock resume {quoted(f'{run.id}/{row.task}')}"
    if words:
        click.echo(f"  next   {words}")


def _attempt_row(one: Mapping[str, Any]) -> list[str]:
    seconds = one.get("seconds")
    if seconds is None and one["started"] is not None and one["ended"] is not None:
        seconds = one["ended"] - one["started"]
    what = views.cause(one) if one["state"] in (*views.BAD, "lost", "cancelled") else ""
    if one.get("retry") is not None:
        what += f"   (tried again after {duration(one['retry'])})"
    return [str(one["attempt"]), one["state"], "" if seconds is None else duration(seconds), render.clean(what)]


def events(found: Iterable[Event]) -> None:
    if not render.is_terminal():
        click.echo("SEQ\tAT\tKIND\tTASK\tDATA")
    for event in found:
        at = datetime.fromtimestamp(event.at).astimezone()
        data = json.dumps(event.data, ensure_ascii=False, separators=(",", ":")) if event.data else ""
        if render.is_terminal():
            clock = at.strftime("%H:%M:%S.") + f"{at.microsecond // 1000:03}"
            colour = STATES.get(event.kind.partition(".")[2], "")
            line: Line = [(f"{event.seq:>5} {clock}  ", DIM), (f"{event.kind:<15}", {"fg": colour} if colour else {})]
            render.print_line([*line, (f" {event.task}  ", {}), (data, DIM)])
        else:
            click.echo(f"{event.seq}\t{at.isoformat(timespec='milliseconds')}\t{event.kind}\t{event.task}\t{data}")


# -- as a tree --------------------------------------------------------------------------------------------------------


def tree(view: RunView, rows: Sequence[TaskRow], now: float) -> None:
    """Steps, called workflows and items, each below what it belongs to."""
    title(view, now)
    by_parent: dict[str, dict[str, list[TaskRow]]] = {}
    for row in rows:
        by_parent.setdefault(row.task.rpartition("/")[0], {}).setdefault(row.step, []).append(row)
    inside: dict[str, list[Node]] = {}
    for node in view.outline.nodes:
        inside.setdefault(node.path.rpartition("/")[0], []).append(node)

    def scope(prefix: str, path: str, margin: str) -> None:
        nodes = inside.get(path, [])
        for number, node in enumerate(nodes):
            last = number == len(nodes) - 1
            here = by_parent.get(prefix, {}).get(node.path, [])
            below = margin + ("   " if last else "│  ")
            if len(here) == 1 and here[0].task.rpartition("/")[2] == node.name:
                _leaf(margin, last, here[0], now)
                scope(here[0].task, node.path, below)
                continue
            _group(margin, last, node, here)
            _items(here, node, below)

    def _items(here: list[TaskRow], node: Node, below: str) -> None:
        shown = here
        if render.is_terminal() and len(here) > ITEMS:
            worst = sorted(here, key=lambda row: _urgency(row.state))[:ITEMS]
            shown = sorted(worst, key=lambda row: views.natural(row.task))
        for number, row in enumerate(shown):
            last = number == len(shown) - 1 and len(shown) == len(here)
            _leaf(below, last, row, now)
            scope(row.task, node.path, below + ("   " if last else "│  "))
        if len(shown) < len(here):
            click.echo(f"{below}└─ {render.paint(f'… {len(here) - len(shown):,} more', dim=True)}")

    scope("", "", "")


def _leaf(margin: str, last: bool, row: TaskRow, now: float) -> None:
    mark, colour = MARKS.get(row.state, ("·", ""))
    why = render.clean(views.reason(row))
    word = "" if row.state in ("succeeded", "running") and render.is_terminal() else f"  {row.state}"
    branch = "└─ " if last else "├─ "
    line: Line = [
        (margin + branch, DIM),
        (mark, {"fg": colour} if colour else DIM),
        (f" {row.task.rpartition('/')[2]}", {}),
    ]
    line += [(f"  {took(row, now)}" if row.started else "", DIM), (word + (f": {why}" if why else ""), DIM)]
    render.print_line(line)


def _group(margin: str, last: bool, node: Node, here: Sequence[TaskRow]) -> None:
    counts: dict[str, int] = {}
    for row in here:
        counts[row.state] = counts.get(row.state, 0) + 1
    state = next((one for one in (*views.BAD, *views.ACTIVE, *views.ENDED) if counts.get(one)), "")
    mark, colour = MARKS[state]
    line: Line = [
        (margin + ("└─ " if last else "├─ "), DIM),
        (mark, {"fg": colour} if colour else DIM),
        (f" {node.name}", {}),
    ]
    many = f" ×{len(here):,}  " if here else ""
    words = " · ".join(f"{some:,} {WORDS.get(one, one)}" for one, some in counts.items())
    render.print_line([*line, (many + words, DIM)])


# -- over time --------------------------------------------------------------------------------------------------------


def chart(bands: Sequence[Band], start: float, end: float) -> None:
    """A bar for each band. Where several tasks of a step run at the same time, the height says how many of them."""
    if not bands:
        render.note("nothing has run yet")
        return
    if not render.is_terminal():
        rows = [
            [band.name, band.state or "pending", f"{first - start:.3f}", f"{last - start:.3f}"]
            for band in bands
            for first, last in ((min(span[0] for span in band.spans), max(span[1] for span in band.spans)),)
        ]
        render.table(["STEP", "STATE", "FROM", "TO"], rows)
        return
    shown = bands[: render.ROWS]
    names = ["  " * band.depth + band.name for band in shown]
    left = min(max(map(len, names)), 30)
    cells = max(10, shutil.get_terminal_size().columns - left - 12)
    spread = max(end - start, 0.001)
    # A quarter each: more marks do not fit 80 columns.
    marks = ["0", *(duration(spread * part / 4) for part in range(1, 5))]
    axis = (
        "".join(mark.ljust(cells // 4) for mark in marks[:4])[: cells - len(marks[4])].ljust(cells - len(marks[4]))
        + marks[4]
    )
    render.print_line([(" " * (left + 3) + axis, DIM)])
    for name, band in zip(names, shown, strict=True):
        mark, colour = MARKS[band.state]
        text = name if len(name) <= left else name[: left - 1] + "…"
        took = max(last for _, last in band.spans) - min(first for first, _ in band.spans)
        line: Line = [(mark, {"fg": colour} if colour else DIM), (f" {text:<{left}} ", {})]
        line += [
            (_bar(band.spans, start, spread, cells), {"fg": colour} if colour else {}),
            (f" {duration(took):>6}", DIM),
        ]
        render.print_line(line)
    if len(bands) > len(shown):
        click.echo(render.paint(f"… {len(bands) - len(shown):,} more; -o json, or a pipe, shows all", dim=True))


def _bar(spans: Sequence[tuple[float, float]], start: float, spread: float, cells: int) -> str:
    """How many of the spans are open during each cell, on average, as heights. One pass, be they a million."""
    if all(first == last for first, last in spans):
        points = {min(cells - 1, int((first - start) / spread * cells)) for first, _ in spans}
        return "".join("·" if cell in points else " " for cell in range(cells))
    covered, change = [0.0] * (cells + 1), [0] * (cells + 2)
    for first, last in spans:
        a, b = (min(float(cells), max(0.0, (at - start) / spread * cells)) for at in (first, last))
        left, right = int(a), int(b)
        if left == right:
            covered[left] += b - a
            continue
        covered[left] += left + 1 - a
        covered[right] += b - right
        change[left + 1] += 1
        change[right] -= 1
    heights, level = [], 0
    for cell in range(cells):
        level += change[cell]
        heights.append(level + covered[cell])
    most = max(max(heights), 1e-9)
    return "".join(_HEIGHTS[min(7, int(height / most * 8))] if height > 1e-6 else " " for height in heights)


# -- two runs ---------------------------------------------------------------------------------------------------------


def comparison(found: RunDiff) -> None:
    before, after = found.before, found.after
    render.print_line([(f"{before.run.id} → {after.run.id}", {"bold": True})])
    facts = [("state", before.state, after.state)] if before.state != after.state else []
    old, new = views.seconds_of(before.run), views.seconds_of(after.run)
    if old is not None and new is not None:
        facts.append(("time", duration(old), duration(new) + _change(old, new)))
    for name, a, b in facts:
        _fact(name, f"{a} → {b}")
    for line in found.plan.params:
        _fact("param", line)
    for name, (a, b) in found.outputs.items():
        _fact("output", f"{name}: {render.brief(a)} → {render.brief(b)}")
    graph = [f"+ {path}" for path in found.plan.added] + [f"- {path}" for path in found.plan.removed]
    graph += [f"= {a} → {b}, renamed" for a, b in found.plan.renamed]
    graph += [f"~ {one.step}: {'; '.join((*one.content, *one.other))}" for one in found.plan.changed]
    graph += [*found.plan.peaks, *found.plan.workflow]
    for number, line in enumerate(graph or ["the same"]):
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
    click.echo()
    render.table(
        ["STEP", before.run.id, after.run.id, "CHANGE", "REUSED", "STATE"], rows, "  " if render.is_terminal() else ""
    )


def _fact(name: str, text: str) -> None:
    render.print_line([(f"  {name:<8} ", DIM), (render.clean(text), {})])


def _change(old: float, new: float) -> str:
    if abs(new - old) < 0.05 or not old:
        return ""
    ratio = new / old
    return f"   {ratio - 1:+.0%}" if 0.1 < ratio < 10 else f"   ×{ratio:.2g}"


# -- many runs --------------------------------------------------------------------------------------------------------


def run_table(found: Sequence[tuple[Run, str]], now: float) -> None:
    rows = []
    for run, state in found:
        took = views.seconds_of(run, now if state in ("running", "queued") else None)
        done = run.counts.get("succeeded", 0) + run.counts.get("reused", 0)
        bad = sum(run.counts.get(one, 0) for one in views.BAD)
        numbers = [f"{many:,}" if many else "" for many in (done, bad, run.counts.get("reused", 0))]
        rows.append(
            [run.id, state, render.when(run.created, now), "" if took is None else duration(took), *numbers, run.user]
        )
    if rows or not render.is_terminal():
        render.table(["RUN", "STATE", "STARTED", "TOOK", "DONE", "FAILED", "REUSED", "USER"], rows, colours=STATES)
    else:
        render.note("no such runs")
