"""When steps or tasks ran, as bars. Called by `show --gantt`."""

from __future__ import annotations

import shutil
from collections.abc import Sequence

from penstock.cli.ui import render
from penstock.cli.ui.marks import MARKS
from penstock.cli.ui.render import DIM, Line, duration
from penstock.service.views.timeline import Band

_HEIGHTS = "▁▂▃▄▅▆▇█"


def chart(bands: Sequence[Band], start: float, end: float) -> None:
    """A bar for each band. Where several tasks of a step run at the same time, the height shows how many."""
    if not bands:
        render.note("nothing has run yet")
        return
    if not render.is_terminal():
        rows = []
        for band in bands:
            first, last = min(span[0] for span in band.spans), max(span[1] for span in band.spans)
            rows.append([band.name, band.state or "pending", f"{first - start:.3f}", f"{last - start:.3f}"])
        render.table(["STEP", "STATE", "FROM", "TO"], rows)
        return
    shown = bands[: render.ROWS]
    names = ["  " * band.depth + band.name for band in shown]
    left = min(max(map(len, names)), 30)
    cells = max(10, shutil.get_terminal_size().columns - left - 12)
    spread = max(end - start, 0.001)
    # One mark for each quarter: more do not fit into 80 columns.
    marks = ["0", *(duration(spread * part / 4) for part in range(1, 5))]
    room = cells - len(marks[4])
    axis = "".join(mark.ljust(cells // 4) for mark in marks[:4])[:room].ljust(room) + marks[4]
    render.print_line([(" " * (left + 3) + axis, DIM)])
    for name, band in zip(names, shown, strict=True):
        mark, colour = MARKS[band.state]
        text = name if len(name) <= left else name[: left - 1] + "…"
        took = max(last for _, last in band.spans) - min(first for first, _ in band.spans)
        line: Line = [(mark, {"fg": colour} if colour else DIM), (f" {text:<{left}} ", {})]
        line.append((_bar(band.spans, start, spread, cells), {"fg": colour} if colour else {}))
        render.print_line([*line, (f" {duration(took):>6}", DIM)])
    if len(bands) > len(shown):
        render.data(render.paint(f"… {len(bands) - len(shown):,} more; -o json, or a pipe, shows all", dim=True))


def _bar(spans: Sequence[tuple[float, float]], start: float, spread: float, cells: int) -> str:
    """The average number of spans that cover each cell, as heights. One pass, because there may be a million spans."""
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
