"""A run in a notebook: its drawing with the state of each step and what failed, live while it runs. Called by Run.

IPython is not needed: it is used if the caller's process has it loaded, as every notebook has.
"""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable, Mapping
from html import escape
from typing import TYPE_CHECKING, Any

from penstock.drawing.svg import StepMark, svg
from penstock.service.views.outline import Outline, StepNode, Tallies, Times

if TYPE_CHECKING:
    from penstock.graph.model import Workflow

INTERVAL = 0.5
"""Seconds between two drawings of a run that is watched."""
SHOWN = 5
"""Failures that are shown with their message and the end of their log."""

_WORDS = {"succeeded": "done", "": "pending"}


def page(
    run: str, workflow: Workflow, state: str, tallies: Tallies, times: Times, failures: Mapping[str, Mapping[str, Any]]
) -> str:
    """The HTML of a run. `failures`: task -> message, exception, log_end."""
    outline = Outline(workflow)
    outline.measure(tallies, state)
    marks = {node.path: _mark(node, times) for node in outline.nodes if node.state}
    counts: dict[str, int] = {}
    for node in outline.nodes:
        for name, many in ({} if node.nested else node.tally).items():
            if name != "tasks" and many:
                counts[name] = counts.get(name, 0) + many
    words = " · ".join(f"{many:,} {_WORDS.get(name, name)}" for name, many in counts.items())
    head = f"<p><b>{escape(run)}</b> {escape(state)} <small>{escape(words)}</small></p>"
    return head + svg(workflow, marks) + _failures(failures)


def _mark(node: StepNode, times: Times) -> StepMark:
    state = node.state
    if node.many and node.total:
        done = node.count(("succeeded", "reused"))
        bad = node.count(("failed", "errored"))
        words = f"{done:,} of {node.total:,}" + (f", {bad:,} failed" if bad else "")
    else:
        words = _WORDS.get(state, state)
    stamps = times.get(node.path, ())
    if node.over and len(stamps) > 1 and state not in ("reused", "skipped", "omitted"):
        words += f" · {_seconds(max(0.0, stamps[1] - stamps[0]))}"
    return StepMark(state, words)


def _seconds(seconds: float) -> str:
    if seconds < 0.0995:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 99.5 else f"{seconds / 60:.1f} min"


def _failures(failures: Mapping[str, Mapping[str, Any]]) -> str:
    found = []
    for task, data in list(failures.items())[:SHOWN]:
        lines = "\n".join(str(data.get("log_end") or "").rstrip().splitlines()[-6:])
        log = f"<pre>{escape(lines)}</pre>" if lines else ""
        found.append(f"<p><b>✗ {escape(task)}</b> {escape(str(data.get('message') or 'failed'))}</p>{log}")
    if len(failures) > SHOWN:
        found.append(f"<p>… {len(failures) - SHOWN:,} more failed</p>")
    return "".join(found)


# -- the notebook -----------------------------------------------------------------------------------------------------


class LiveDrawing:
    """The drawing of one run in the cell that runs it. Made anew as the run goes on."""

    def __init__(self, shell: Any, draw: Callable[[], str]) -> None:
        shown: Any = importlib.import_module("IPython.display")  # it has no types

        self.cell = shell.execution_count
        self._html = shown.HTML
        self._draw = draw
        self._last = draw()
        self._handle: Any = shown.display(shown.HTML(self._last), display_id=True)

    def follow(self, wait: Callable[[float | None], bool], timeout: float | None) -> None:
        """Calls `wait` until it says that the run is over, or for `timeout` seconds."""
        until = None if timeout is None else time.monotonic() + timeout
        try:
            while True:
                left = INTERVAL if until is None else min(INTERVAL, until - time.monotonic())
                if left <= 0 or wait(left):
                    return
                self.update()
        finally:
            self.update()

    def update(self) -> None:
        now = self._draw()
        if now != self._last and self._handle is not None:
            self._last = now
            self._handle.update(self._html(now))


def notebook() -> Any:
    """The shell of the notebook that this process belongs to; None in a script or a terminal, which shows no images."""
    if "IPython" not in sys.modules:
        return None
    get_ipython = getattr(sys.modules["IPython"], "get_ipython", None)
    shell = None if get_ipython is None else get_ipython()
    return None if shell is None or type(shell).__name__ == "TerminalInteractiveShell" else shell
