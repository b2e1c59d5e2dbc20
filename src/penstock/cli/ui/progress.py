"""A run on the terminal while it is executed. Called by `foreground` and `watch`.

On a terminal the lines of a Board are redrawn in place. Each frame is one write that hides the cursor, draws, and shows it again, so that
the terminal is in order whenever the process ends, even by kill -9. A pipe gets one line for each step that ends.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Mapping
from typing import Any, TextIO

from penstock.cli.ui import board, render
from penstock.cli.ui.board import Board
from penstock.cli.ui.render import Line
from penstock.graph.model import Workflow
from penstock.service.views.outline import Outline, Tallies, Times
from penstock.store.records import FINAL

PAUSE = 0.1
"""Seconds between two frames, at least."""
SHARE = 0.05
"""Of the time that may be spent drawing: a board of thousands of steps is drawn less often."""


class Progress:
    """Draws one run, to stderr or to `stream`."""

    def __init__(self, run: str, workflow: Workflow, stream: TextIO | None = None) -> None:
        self.run = run
        self.board = Board(Outline(workflow))
        self.stream: TextIO = stream if stream is not None else sys.stderr
        self.live = render.is_terminal(self.stream) and os.environ.get("TERM") != "dumb"
        self._last: tuple[Tallies, Times, float, str] | None = None
        self._began: dict[str, float] = {}
        """Step -> when it was first seen with a state, in seconds since the run began."""
        self._reported: set[str] = set()
        """In a pipe: the steps whose end has been reported, and "" for the run."""
        self._waited: dict[str, str] = {}
        """In a pipe: step -> the queue in which its wait has been reported."""
        self._next = 0.0
        self._frame: list[str] = []
        self._lengths: list[int] = []
        self._width = 0
        self._closed = False

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def due(self) -> bool:
        """Is it time for the next frame?"""
        return not self._closed and (self._last is None or time.monotonic() >= self._next)

    def update(
        self, tallies: Tallies, times: Times, seconds: float, state: str, waits: Mapping[str, str] | None = None
    ) -> None:
        """The latest tallies, which must not change afterwards. May be called at any rate; `due` tells whether it would draw. `seconds`:
        since the run began. `waits`: see Board."""
        self.board.waits = waits or {}
        due = self.due
        self._last = (tallies, times, seconds, state)
        if due:
            now = time.monotonic()
            self._show()
            self._next = now + max(PAUSE, (time.monotonic() - now) / SHARE)

    def note(self, text: str) -> None:
        """A line for people, above the steps."""
        if self.live and self._frame:
            self._write(self._up() + "\x1b[J" + text + "\n")
            self._frame = []
            self._show()
        else:
            self._write(text + "\n")

    def close(self) -> None:
        """Draw the latest state. It stays on the screen."""
        if not self._closed and self._last is not None:
            self._show(final=True)
        self._closed = True

    # -- drawing ----------------------------------------------------------------------------------------------------------

    def _show(self, final: bool = False) -> None:
        if self._last is None:
            return
        tallies, times, seconds, state = self._last
        self.board.outline.measure(tallies, state)
        if not self.live:
            self._report(times, state)
            return
        for node in self.board.nodes:
            if node.path not in self._began and self.board.state_of(node):
                self._began[node.path] = seconds
        width, height = self._size()
        nodes, rest = self.board.chosen(max(1, height - 2))
        ages = {node.path: max(0.0, seconds - self._began[node.path]) for node in nodes if node.path in self._began}
        lines: list[Line] = [] if final and state in FINAL else [self.board.head(self.run, state, seconds, width)]
        lines += self.board.lines(times, nodes, ages, self.run, width)
        if rest:
            lines.append(rest)
        self._draw([render.cut(line, width - 1) for line in lines], width)

    def _report(self, times: Times, state: str) -> None:
        """In a pipe: the steps that have ended since the last time, and those that have begun to wait in a queue."""
        if not self._reported:
            self._reported.add("")
            self._write(f"{self.run}  {state}\n")
        ended = [node for node in self.board.nodes if node.over and node.path not in self._reported]
        self._reported.update(node.path for node in ended)
        lines = []
        for node in ended:
            if not node.tally:
                continue  # it is inside a step that did not run
            words = render.plain(self.board.details(node)) or "done"
            many = f" ×{node.total:,}" if node.many and node.total else ""
            spent = board.spent(node, times, {})
            lines.append("  ".join(part for part in (node.path + many, words, spent) if part))
        for path, text in self.board.waits.items():
            at, place = self.board.by_path.get(path), text.partition(":")[0]
            if self._waited.get(path) != place and (at is None or self.board.state_of(at) == "queued"):
                self._waited[path] = place
                lines.append(f"{path or self.run}  {text}")
        self._write("".join(line + "\n" for line in lines))

    def _size(self) -> tuple[int, int]:
        try:
            width, height = os.get_terminal_size(self.stream.fileno())
        except (OSError, ValueError):
            width = height = 0
        fallback = shutil.get_terminal_size()
        return max(20, width or fallback.columns), max(4, height or fallback.lines)

    def _up(self) -> str:
        """Moves the cursor to the first line of the last frame."""
        width = self._size()[0]
        rows = len(self._frame)
        if self._width and width < self._width:
            # The terminal was made narrower, so each line takes several rows now.
            rows = sum(max(1, -(-length // width)) for length in self._lengths)
        return "\r" + (f"\x1b[{rows}A" if rows else "")

    def _draw(self, lines: list[Line], width: int) -> None:
        frame = [render.painted(line, self._paint) for line in lines]
        if frame == self._frame and width == self._width:
            return
        text = "".join(line + "\x1b[K\n" for line in frame)
        # Cursor and wrapping are off while drawing, and on again in the same write.
        self._write("\x1b[?25l\x1b[?7l" + self._up() + text + "\x1b[J\x1b[?7h\x1b[?25h")
        self._frame, self._width = frame, width
        self._lengths = [len(render.plain(line)) for line in lines]

    def _paint(self, text: str, **style: Any) -> str:
        return render.paint(text, self.stream, **style)

    def _write(self, text: str) -> None:
        if not text:
            return
        encoding = self.stream.encoding or "utf-8"
        try:
            self.stream.write(render.in_letters_of(text, encoding))
            self.stream.flush()
        except (OSError, ValueError):
            # The terminal is gone; the run goes on without drawing.
            self._closed = True
