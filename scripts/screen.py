"""The picture of the live screen in the README: what `penstock run` draws while the example runs, by the code that draws it, as SVG.

Called by scripts/docs. The state of the run is made up, so that the picture is the same every time; every letter and colour is the Board's.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

from penstock.cli.ui.board import Board
from penstock.cli.ui.render import Line
from penstock.service import workflows
from penstock.service.views.outline import Outline

WIDTH = 104
"""Columns of the terminal."""
CELL, ROW, EDGE, TOP = 8.4, 20, 18, 46
"""Of the picture, in its own units: a column, a row, the margin, and where the text begins."""
COLOURS = {"green": "#4ade80", "red": "#f87171", "cyan": "#22d3ee", "yellow": "#facc15", "blue": "#60a5fa"}
STYLE = (
    ".screen{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;font-size:14px;white-space:pre;fill:#e2e8f0}"
    ".dim{fill:#8492a6}.bold{font-weight:700}"
)

TALLIES: Mapping[str, Mapping[str, int]] = {
    "prepare": {"tasks": 1, "succeeded": 1},
    "train": {"tasks": 8, "succeeded": 3, "running": 2},
}
TIMES = {"prepare": (0.0, 0.018)}
BEGAN = {"train": 1.3}
WAITS = {"train": "waiting in queue team-a: 2 cpu short (position 1)"}


def picture(root: Path) -> str:
    command = "$ penstock run examples/finetune/flow.py --queue team-a -p rates=@rates.json"
    lines: list[Line] = [[(command, {})], *_board(root)]
    width, height = EDGE * 2 + WIDTH * CELL, TOP + len(lines) * ROW + EDGE / 2
    rows = "\n".join(_row(line, TOP + number * ROW) for number, line in enumerate(lines))
    dots = "".join(f'<circle cx="{EDGE + 4 + n * 18}" cy="17" r="5" fill="#475569"/>' for n in range(3))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}">\n'
        f"<title>penstock run, while the example runs</title>\n<style>{STYLE}</style>\n"
        f'<rect width="{width:g}" height="{height:g}" rx="8" fill="#0f172a"/>\n{dots}\n{rows}\n</svg>\n'
    )


def _board(root: Path) -> list[Line]:
    workflow = workflows.load(str(root / "examples/finetune/flow.py"))
    board = Board(Outline(workflow), waits=WAITS)
    board.outline.measure(TALLIES, "running")
    return [
        board.head("finetune-3", "running", 1.4, WIDTH),
        *board.lines(TIMES, began=BEGAN, run="finetune-3", width=WIDTH),
    ]


def _row(line: Line, y: float) -> str:
    """Each piece has its own place, so that columns stay aligned in whatever monospaced font there is."""
    pieces, column = [], 0
    for text, style in line:
        if text.strip():
            start = column + len(text) - len(text.lstrip())
            shown = text.strip()
            length = len(shown) * CELL
            x = EDGE + start * CELL
            pieces.append(f'<tspan x="{x:.1f}" textLength="{length:.1f}"{_look(style)}>{escape(shown)}</tspan>')
        column += len(text)
    return f'<text class="screen" y="{y:g}">{"".join(pieces)}</text>'


def _look(style: Mapping[str, Any]) -> str:
    classes = [name for name in ("dim", "bold") if style.get(name)]
    colour = COLOURS.get(str(style.get("fg", "")), "")
    return (f' class="{" ".join(classes)}"' if classes else "") + (f' fill="{colour}"' if colour else "")
