"""A run on the screen while it goes on. Called by run, resume, retry (act) and watch.

On a terminal the lines of `board` are drawn over and over in place. Each frame is one write that hides the cursor, draws, and
shows it again: whenever the process ends, be it by kill -9, the terminal is as it should be. In a pipe there is one plain
line for each step that ends.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Mapping
from typing import Any

from penstock.cli import board, render
from penstock.cli.board import Board
from penstock.cli.render import Line
from penstock.graph.model import Workflow
from penstock.service.views import OVER, Outline, Tallies, Times

PAUSE = 0.1
"""Seconds between two frames, at least."""
SHARE = 0.05
"""Of our time that may go into drawing: a board of thousands of steps is drawn less often."""


class Progress:
    def __init__(self, run: str, workflow: Workflow, stream: Any = None) -> None:
        self.run = run
        self.board = Board(Outline(workflow))
        self.stream = stream if stream is not None else sys.stderr
        self.live = render.is_terminal(self.stream) and os.environ.get("TERM") != "dumb"
        self._last: tuple[Tallies, Times, float, str] | None = None
        self._began: dict[str, float] = {}
        """When each step was first seen at work, in seconds of the run."""
        self._told: set[str] = set()
        self._waited: dict[str, str] = {}
        """Step -> the queue of which it has been said that it waits in it."""
        self._next = 0.0
        self._frame: list[str] = []
        self._lengths: list[int] = []
        self._width = 0
        self._closed = False

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def update(
        self, progress: Tallies, times: Times, seconds: float, state: str, waits: Mapping[str, str] | None = None
    ) -> None:
        """Tell where things are; may be called as often as one likes. `seconds`: since the run began. `waits`: what stands in
        a queue, see Board."""
        self.board.waits = waits or {}
        first = self._last is None
        self._last = (progress, times, seconds, state)
        now = time.monotonic()
        if self._closed or (now < self._next and not first):
            return
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
        """Show the last that was told. What is on the screen then stays there."""
        if not self._closed and self._last is not None:
            self._show(final=True)
        self._closed = True

    # -- drawing ----------------------------------------------------------------------------------------------------------

    def _show(self, final: bool = False) -> None:
        if self._last is None:
            return
        progress, times, seconds, state = self._last
        self.board.outline.measure(progress, state)
        if not self.live:
            self._tell(times, state)
            return
        for node in self.board.nodes:
            if node.path not in self._began and self.board.state_of(node):
                self._began[node.path] = seconds
        width, height = self._size()
        nodes, rest = self.board.chosen(max(1, height - 2))
        ages = {node.path: max(0.0, seconds - self._began[node.path]) for node in nodes if node.path in self._began}
        lines: list[Line] = [] if final and state in OVER else [self.board.head(self.run, state, seconds, width)]
        lines += self.board.lines(times, nodes, ages, self.run)
        if rest:
            lines.append(rest)
        self._draw([render.cut(line, width - 1) for line in lines], width)

    def _tell(self, times: Times, state: str) -> None:
        """In a pipe: what has ended since the last time, and what has begun to wait in a queue."""
        if not self._told:
            self._told.add("")
            self._write(f"{self.run}  {state}\n")
        ended = [node for node in self.board.nodes if node.over and node.path not in self._told]
        self._told.update(node.path for node in ended)
        lines = []
        for node in ended:
            if not node.tally:
                continue  # below something that was not run itself
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
        """To the first line of what is on the screen."""
        width = self._size()[0]
        rows = len(self._frame)
        if self._width and width < self._width:
            # The terminal was made narrower, and has broken our lines into several.
            rows = sum(max(1, -(-length // width)) for length in self._lengths)
        return "\r" + (f"\x1b[{rows}A" if rows else "")

    def _draw(self, lines: list[Line], width: int) -> None:
        frame = [render.painted(line, self._paint) for line in lines]
        if frame == self._frame and width == self._width:
            return
        text = "".join(line + "\x1b[K\n" for line in frame)
        # No cursor and no wrapping meanwhile; both are back before anybody can interrupt us.
        self._write("\x1b[?25l\x1b[?7l" + self._up() + text + "\x1b[J\x1b[?7h\x1b[?25h")
        self._frame, self._width = frame, width
        self._lengths = [len(render.plain(line)) for line in lines]

    def _paint(self, text: str, **style: Any) -> str:
        return render.paint(text, self.stream, **style)

    def _write(self, text: str) -> None:
        if not text:
            return
        encoding = getattr(self.stream, "encoding", None) or "utf-8"
        try:
            self.stream.write(text.encode(encoding, "replace").decode(encoding))
            self.stream.flush()
        except (OSError, ValueError):
            # Nobody watches any more: that is no reason to stop the run.
            self._closed = True
