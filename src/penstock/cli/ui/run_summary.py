"""The end of a run that was started here: outputs, failures, what to type next. Called by `foreground`, and by `remote` for runs on a server."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.cli.ui import render
from penstock.service import stores
from penstock.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnd:
    run: str
    state: str
    seconds: float
    """Since the command started."""
    counts: Mapping[str, int]
    """State of a task -> how many."""
    outputs: Mapping[str, Any]
    failures: Sequence[tuple[str, dict[str, Any]]]
    why: str = ""
    """Why it failed, if no task did."""


def run_summary(end: RunEnd, settings: Settings, quiet: bool, output: str) -> None:
    if output == "json":
        render.json_out(
            {
                "run": end.run,
                "state": end.state,
                "seconds": round(end.seconds, 3),
                "tasks": {state: many for state, many in end.counts.items() if many},
                "outputs": end.outputs,
                "failures": [{"task": path, **data} for path, data in end.failures],
            }
        )
        return
    for name, value in end.outputs.items():
        render.data(f"{name}: {value}")
    if end.state in ("failed", "cancelled") and end.failures:
        from penstock.cli.ui.failures import failure_lines

        failure_lines(end.run, end.failures, settings)
    elif end.state == "failed" and end.why:
        render.note(f"✗ {end.why}")
    if not quiet:
        for line in _last_lines(end, settings):
            render.note(line)


def _last_lines(end: RunEnd, settings: Settings) -> list[str]:
    counts = end.counts
    reused, failed = counts.get("reused", 0), counts.get("failed", 0) + counts.get("errored", 0)
    parts = [f"{render.plural(counts.get('succeeded', 0) + reused, 'task')} done"]
    parts += [f"{reused:,} of them reused"] if reused else []
    parts += [f"{failed:,} failed"] if failed else []
    words = {
        "succeeded": ("✓", "done", "green"),
        "failed": ("✗", "failed", "red"),
        "cancelled": ("✗", "cancelled", "yellow"),
    }
    mark, word, colour = words.get(end.state, ("⏸", "stopped", "yellow"))
    id = end.run
    head = render.paint(f"{mark} {id}", sys.stderr, fg=colour, bold=True)
    lines = [
        f"{head} {word} in {render.duration(end.seconds)} · {', '.join(parts)} · kept in {stores.name_of(settings)}"
    ]
    if end.state == "succeeded":
        lines.append("  next   penstock show @   penstock show @ --gantt   penstock ls")
    elif end.state == "stopped":
        lines.append(f"  next   penstock resume {id}")
    return lines
