"""A run on the terminal: an overview, and the end of a run that was watched. Called by show and watch."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from penstock.cli.ui import render
from penstock.cli.ui.board import Board, spent
from penstock.cli.ui.failures import failure_lines
from penstock.cli.ui.marks import MARKS, STATES, WORDS
from penstock.cli.ui.render import DIM, Line, duration
from penstock.cli.ui.values import shown_value
from penstock.service.run_records import IDLE, seconds_of
from penstock.service.task_states import ACTIVE, ENDED
from penstock.service.views.outline import StepNode, Times
from penstock.service.views.runs import RunView
from penstock.settings import Settings
from penstock.store.records import FINAL


def overview(view: RunView, settings: Settings, now: float, waits: Mapping[str, str] | None = None) -> None:
    """`waits`: see Board."""
    run = view.run
    title(view, now)
    if waits and "" in waits:
        render.print_line([("  waits  ", DIM), (waits[""].removeprefix("waiting "), {"fg": "yellow"})])
    if run.params:
        words = ", ".join(f"{name}={render.brief(value)}" for name, value in run.params.items())
        render.print_line([("  with   ", DIM), (render.clean(words), {})])
    render.data("")
    reasons = {path: render.clean(text) for path, text in view.reasons.items()}
    board = Board(view.outline, reasons, render.is_terminal(), waits)
    times = view.times
    if view.state in IDLE:  # nothing runs: no times of steps that are not over
        times = {node.path: times[node.path] for node in view.outline.nodes if node.over and node.path in times}
    if render.is_terminal():
        nodes, rest = board.chosen(render.ROWS)
        for line in [*board.lines(times, nodes, run=run.id, width=render.columns()), *([rest] if rest else [])]:
            render.print_line(line)
    else:
        rows = [_step_row(board, node, times) for node in view.outline.nodes]
        render.table(["STEP", "STATE", "TASKS", "TOOK", "DETAILS"], rows)
    if view.outputs:
        render.data("")
        _outputs(view)
    if view.failures:
        render.data("")
        _failures(view, settings)
    _next(view)


def _step_row(board: Board, node: StepNode, times: Times) -> list[str]:
    many = "" if node.total is None else str(node.total)
    state = board.state_of(node) or "pending"
    return [node.path, state, many, spent(node, times, {}), render.plain(board.details(node))]


def title(view: RunView, now: float) -> None:
    run = view.run
    colour = STATES.get(view.state, "")
    took = seconds_of(run, None if view.state in IDLE else now)
    line: Line = [(run.id, {"bold": True}), ("  ", {}), (view.state, {"fg": colour} if colour else {})]
    line.append(
        (f" in {duration(took)}" if took is not None and run.ended else f" {duration(took)}" if took else "", {})
    )
    words = [f"{run.user}, " if run.user else "", render.when(run.created, now)]
    file, made = run.options.get("file"), run.options.get("schedule")
    if isinstance(made, dict):
        words.append(f", by the schedule {render.clean(str(made.get('name')))}")
    line.append((f"   {''.join(words)}" + (f"   {file}" if file else "") + f"   {run.digest[:19]}", DIM))
    render.print_line(line)


def summary(view: RunView, settings: Settings) -> None:
    """When a run that was watched is over."""
    run = view.run
    if view.failures:
        _failures(view, settings)
    _outputs(view)
    mark, colour = MARKS.get(view.state, ("·", ""))
    counts = [f"{many:,} {WORDS.get(state, state)}" for state, many in _totals(view).items()]
    took = seconds_of(run)
    words = [view.state + (f" in {duration(took)}" if took is not None else ""), *counts]
    render.print_line([(f"{mark} {run.id}", {"fg": colour or None, "bold": True}), (" " + " · ".join(words), {})])
    _next(view)


def _totals(view: RunView) -> dict[str, int]:
    """Tasks by state. Called workflows are not counted: the tasks in them are."""
    found: dict[str, int] = {}
    for state in (*ENDED, *ACTIVE):
        many = sum(node.tally.get(state, 0) for node in view.outline.nodes if not node.nested)
        if many:
            found[state] = many
    return found


def _failures(view: RunView, settings: Settings) -> None:
    retry = view.state in FINAL
    failure_lines(view.run.id, view.failures, settings, total=view.failed, retry=retry, stream=sys.stdout)


def _outputs(view: RunView) -> None:
    for name, value in view.outputs.items():
        render.print_line([(f"  {name}: ", DIM), (render.clean(shown_value(value)), {})])


def _next(view: RunView) -> None:
    """The command to type next."""
    id = view.run.id
    waiting = [node.path for node in view.outline.nodes if node.tally.get("suspended") and not node.over]
    hints = {
        "lost": f"penstock resume {id}   (the process that ran it is gone)",
        "stopped": f"penstock resume {id}",
        "starting": f"penstock watch {id}",
        "running": f"penstock watch {id}",
        "queued": f"penstock why {id}   penstock watch {id}",
    }
    if waiting:
        hints["running"] = f"penstock resume {id}/{waiting[0]}   penstock watch {id}"
    if view.state in hints:
        render.data(f"  next   {hints[view.state]}")
