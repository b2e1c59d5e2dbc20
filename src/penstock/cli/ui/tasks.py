"""Tasks and events on the terminal. Called by show."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from penstock.cli.ui import render
from penstock.cli.ui.failures import last_lines
from penstock.cli.ui.marks import STATES
from penstock.cli.ui.render import DIM, Line, duration
from penstock.cli.ui.values import shown_value
from penstock.phrases import quoted
from penstock.service.task_states import ACTIVE, BAD
from penstock.service.views.reasons import failure_reason, reason_of
from penstock.service.views.tasks import TaskView
from penstock.settings import Settings
from penstock.store.records import FINAL, Event, RunRecord, TaskRow

LONGEST = 300
"""Characters of an input that are shown."""


def task_table(rows: Sequence[TaskRow], now: float) -> None:
    """On a terminal, failures come first."""
    order = sorted(rows, key=lambda row: urgency(row.state)) if render.is_terminal() else rows
    cells = [
        [row.task, row.state, str(row.attempt or ""), took(row, now), render.clean(reason_of(row))] for row in order
    ]
    render.table(["TASK", "STATE", "ATTEMPT", "TOOK", "REASON"], cells, _indent(), STATES)


def urgency(state: str) -> int:
    """Sorts by what a user wants to see first."""
    return 0 if state in BAD else 1 if state in ACTIVE else 2 if state == "cancelled" else 3


def took(row: TaskRow, now: float) -> str:
    if row.started is None:
        return ""
    return duration(max(0.0, (now if row.ended is None else row.ended) - row.started))


def _indent() -> str:
    return "  " if render.is_terminal() else ""


def task(view: TaskView, run: RunRecord, settings: Settings, now: float) -> None:
    row = view.row
    colour = STATES.get(row.state, "")
    line: Line = [(f"{run.id}/{row.task}", {"bold": True}), ("  ", {}), (row.state, {"fg": colour} if colour else {})]
    why = reason_of(row)
    line += [(f" {took(row, now)}", {}), (f"   {render.clean(why)}" if why else "", {})]
    render.print_line(line)
    facts = [("key", row.key), ("started", "" if row.started is None else render.when(row.started, now))]
    facts += [("log", f"{file}") for file in view.log]
    for name, text in facts:
        if text:  # never cut, so that it can be copied
            render.data(render.paint(f"  {name:<9}", dim=True) + text)
    for word, values in (("input", view.inputs), ("output", view.outputs)):
        for name, value in values.items():
            text = render.clean(shown_value(value))
            if word == "input" and len(text) > LONGEST:
                text = f"{text[:LONGEST]}… ({len(text):,} characters; -o json has all)"
            render.print_line([(f"  {word:<9}", DIM), (f"{name} = {text}", {})])
    if len(view.attempts) > 1 or (view.attempts and row.state in (*BAD, "retrying")):
        render.data("")
        cells = [_attempt_row(one) for one in view.attempts]
        render.table(["ATTEMPT", "STATE", "TOOK", "WHAT HAPPENED"], cells, _indent(), STATES)
    if row.info.get("traceback"):
        render.data("")
        for text in str(row.info["traceback"]).rstrip().splitlines():
            render.data("  " + render.clean(text))
    last = last_lines(settings, row.info, 10)
    if last:
        render.data("")
        for text in last:
            render.print_line([("  │ ", DIM), (render.clean(text), {})])
    _next(row, run)


def _next(row: TaskRow, run: RunRecord) -> None:
    """The commands to type next."""
    target = quoted(f"{run.id}/{row.task}")
    words = [f"penstock logs {target}"] if row.info.get("log") else []
    if row.state in BAD and run.state in FINAL:
        words.append(f"penstock retry {run.id}")
    if row.state == "suspended":
        words = [f"penstock resume {target}"]
    if words:
        render.data(f"  next   {'   '.join(words)}")


def _attempt_row(one: Mapping[str, Any]) -> list[str]:
    seconds = one.get("seconds")
    if seconds is None and one["started"] is not None and one["ended"] is not None:
        seconds = one["ended"] - one["started"]
    what = failure_reason(one) if one["state"] in (*BAD, "lost", "cancelled") else ""
    if one.get("retry") is not None:
        what += f"   (tried again after {duration(one['retry'])})"
    return [str(one["attempt"]), one["state"], "" if seconds is None else duration(seconds), render.clean(what)]


def events(found: Iterable[Event]) -> None:
    if not render.is_terminal():
        render.data("SEQ\tAT\tKIND\tTASK\tDATA")
    for event in found:
        at = datetime.fromtimestamp(event.at).astimezone()
        text = json.dumps(event.data, ensure_ascii=False, separators=(",", ":")) if event.data else ""
        if render.is_terminal():
            clock = at.strftime("%H:%M:%S.") + f"{at.microsecond // 1000:03}"
            colour = STATES.get(event.kind.partition(".")[2], "")
            line: Line = [(f"{event.seq:>5} {clock}  ", DIM), (f"{event.kind:<15}", {"fg": colour} if colour else {})]
            render.print_line([*line, (f" {event.task}  ", {}), (text, DIM)])
        else:
            render.data(f"{event.seq}\t{at.isoformat(timespec='milliseconds')}\t{event.kind}\t{event.task}\t{text}")
