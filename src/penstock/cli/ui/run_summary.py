"""The end of a run that was executed in the foreground: outputs, failures, what to type next. Called by `foreground`."""

from __future__ import annotations

import sys

from penstock.cli.ui import render
from penstock.service import stores
from penstock.service.runs import HostedRun
from penstock.service.views.outputs import shown_outputs
from penstock.settings import Settings


def run_summary(session: HostedRun, settings: Settings, seconds: float, quiet: bool, output: str) -> None:
    """`seconds`: since the command started."""
    live = session.live
    outputs = shown_outputs(live.outputs_text)
    if output == "json":
        render.json_out(
            {
                "run": session.run.id,
                "state": session.state,
                "seconds": round(seconds, 3),
                "tasks": {state: many for state, many in live.counts.items() if many},
                "outputs": outputs,
                "failures": [{"task": path, **data} for path, data in live.failures],
            }
        )
        return
    for name, value in outputs.items():
        render.data(f"{name}: {value}")
    if session.state in ("failed", "cancelled") and live.failures:
        from penstock.cli.ui.failures import failure_lines

        failure_lines(session.run.id, live.failures, settings)
    elif session.state == "failed" and live.why:
        render.note(f"✗ {live.why}")
    if not quiet:
        for line in _last_lines(session, settings, seconds):
            render.note(line)


def _last_lines(session: HostedRun, settings: Settings, seconds: float) -> list[str]:
    counts = session.live.counts
    reused, failed = counts.get("reused", 0), counts.get("failed", 0) + counts.get("errored", 0)
    parts = [f"{render.plural(counts.get('succeeded', 0) + reused, 'task')} done"]
    parts += [f"{reused:,} of them reused"] if reused else []
    parts += [f"{failed:,} failed"] if failed else []
    words = {
        "succeeded": ("✓", "done", "green"),
        "failed": ("✗", "failed", "red"),
        "cancelled": ("✗", "cancelled", "yellow"),
    }
    mark, word, colour = words.get(session.state, ("⏸", "stopped", "yellow"))
    id = session.run.id
    head = render.paint(f"{mark} {id}", sys.stderr, fg=colour, bold=True)
    lines = [f"{head} {word} in {render.duration(seconds)} · {', '.join(parts)} · kept in {stores.name_of(settings)}"]
    if session.state == "succeeded":
        lines.append("  next   penstock show @   penstock show @ --gantt   penstock ls")
    elif session.state == "stopped":
        lines.append(f"  next   penstock resume {id}")
    return lines
