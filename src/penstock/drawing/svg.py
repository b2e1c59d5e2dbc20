"""A workflow as one SVG image: for pages, documents and `penstock draw --svg`. Called by service.workflows.

The layout is Sugiyama's, from left to right. A step's column is the length of the longest path to it. An edge that spans columns runs
along *lanes*, cells without a box, so that it does not cross the boxes between. Sweeps order each column by the mean position of
its neighbours. Then heights are chosen so that edges are as straight as the order allows. Work is bounded: a large graph gets fewer
sweeps and fewer lanes, and finally none.

The image has no script, link, id or font, and it has colours for light and dark pages.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise
from typing import Final, NamedTuple

from penstock.drawing.spacing import fit, measure, settled
from penstock.drawing.text import (
    Box,
    Picture,
    condition,
    fan_out,
    kind,
    label,
    needs,
    outcomes_text,
    picture,
    rounds,
)
from penstock.expressions.parse import Expr
from penstock.expressions.template import Template, show_template
from penstock.graph.labels import clean, cut
from penstock.graph.model import Action, Container, Function, Nested, Outcome, Script, Workflow

_MARGIN: Final = 24.0
_HEADING: Final = 52.0
_NARROW: Final = 116.0
_WIDE: Final = 296.0
_INDENT: Final = 20.0
"""From a box's left border to its text. The stripe that marks the kind is between them."""
_LINE: Final = 16.0
_BADGE: Final = 17.0
_CLUSTER: Final = 22.0
"""Between the border of a nested workflow and its content."""
_FRAME: Final = 18.0
"""Around the exit handlers."""
_LANE: Final = 4.0
_ARROW: Final = 7.0

_SWEEP_WORK: Final = 150_000
_SWEEPS: Final = 16
_LANES: Final = 12_000
"""The most columns that all edges together pass through. If every step of a chain also reads the first, they grow quadratically."""


class StepMark(NamedTuple):
    """What the drawing of a run says about a step."""

    state: str
    """running, succeeded, failed, …: chooses the colour."""
    words: str
    """`3 of 4`, `done · 1.2 s`"""


@dataclass(slots=True)
class _Cell:
    """A cell of a column: a box or a lane."""

    column: int
    width: float
    height: float
    box: Box | None = None
    inside: _Layout | None = None
    before: list[int] = field(default_factory=list)
    after: list[int] = field(default_factory=list)
    x: float = 0.0
    """Left border."""
    y: float = 0.0
    """Middle."""


@dataclass(frozen=True, slots=True)
class _Route:
    """An edge, as the cells it runs through: a box, lanes, a box."""

    cells: tuple[int, ...]
    asked: str
    """The outcomes that it accepts; empty for the default."""


@dataclass(frozen=True, slots=True)
class _Layout:
    cells: list[_Cell]
    routes: list[_Route]
    ends: list[float]
    """Right border of each column."""
    labels: list[tuple[str, float, float]]
    """Labels of edges: text and middle."""
    frame: tuple[float, float, float, float] | None
    """The frame around the exit handlers: left, top, right, bottom."""
    width: float
    height: float


def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


# -- layout -----------------------------------------------------------------------------------------------------------


def _lay_out(level: Picture) -> _Layout:
    cells = _cells(level)
    routes = _routes(level, cells)
    columns: list[list[int]] = [[] for _ in range(max((cell.column for cell in cells), default=-1) + 1)]
    for i, cell in enumerate(cells):
        columns[cell.column].append(i)
    size = len(cells) + sum(len(cell.before) for cell in cells)
    sweeps = min(_SWEEPS, _SWEEP_WORK // max(1, size))
    columns = _reduce_crossings(cells, columns, sweeps)
    _set_heights(cells, columns, sweeps)
    _straighten(cells, columns)
    ends = _set_columns(cells, columns, routes, cells[len(level.boxes)].column if level.exits else None)
    return _bounded(level, cells, routes, ends)


def _cells(level: Picture) -> list[_Cell]:
    """One column number for each box. Exit handlers come after all other steps."""
    column: dict[str, int] = {}
    first_exit = 0
    cells = []
    for i, box in enumerate((*level.boxes, *level.exits)):
        least = first_exit if i >= len(level.boxes) else 0
        column[box.id] = max([least, *(column[up] + 1 for up, _ in box.ups if up in column)])
        if i < len(level.boxes):
            first_exit = max(first_exit, column[box.id] + 1)
        cells.append(_sized(box, column[box.id]))
    # Boxes of one column are equally wide; nested workflows are as wide as they must be.
    widest: dict[int, float] = {}
    for cell in cells:
        if cell.inside is None:
            widest[cell.column] = max(widest.get(cell.column, 0.0), cell.width)
    for cell in cells:
        if cell.inside is None:
            cell.width = widest[cell.column]
    return cells


def _sized(box: Box, column: int) -> _Cell:
    lines = [(box.step.name, 14.0), (_subtitle(box), 11.0), (condition(box.step), 11.0)]
    text = max(measure(line, size) for line, size in lines) + _INDENT + 14
    width = min(_WIDE, max(_NARROW, text))
    height = 16 + _LINE * sum(1 for line, _ in lines if line)
    if box.inside is None:
        return _Cell(column, width, height, box)
    inside = _lay_out(box.inside)
    return _Cell(column, max(width, inside.width + 2 * _CLUSTER), height + inside.height + _CLUSTER + 10, box, inside)


def _subtitle(box: Box) -> str:
    wanted = needs(box.step)
    return f"{kind(box.step)} · {wanted}" if wanted else kind(box.step)


def _routes(level: Picture, cells: list[_Cell]) -> list[_Route]:
    """The edges, and the lanes they run along; edges of one step with the same label share theirs."""
    index = {box.id: i for i, box in enumerate((*level.boxes, *level.exits))}
    edges: list[tuple[int, int, frozenset[Outcome]]] = []
    for down, box in enumerate((*level.boxes, *level.exits)):
        for up_id, outcomes in box.ups:
            if (
                cells[index[up_id]].column < cells[down].column
            ):  # otherwise there is a cycle, and the workflow is refused anyway
                edges.append((index[up_id], down, outcomes))
    lanes = _lanes(cells, edges)
    routes = []
    for up, down, outcomes in edges:
        between = cells[down].column - cells[up].column - 1
        chain = lanes.get((up, outcomes), [])
        passed = chain[:between] if len(chain) >= between else []
        routes.append(_Route((up, *passed, down), outcomes_text(outcomes)))
    for a, b in dict.fromkeys(pair for route in routes for pair in pairwise(route.cells)):
        cells[a].after.append(b)
        cells[b].before.append(a)
    return routes


def _lanes(
    cells: list[_Cell], edges: Sequence[tuple[int, int, frozenset[Outcome]]]
) -> dict[tuple[int, frozenset[Outcome]], list[int]]:
    """New cells in the columns that edges pass through. Short edges get lanes first; the rest go under the boxes."""
    reach: dict[tuple[int, frozenset[Outcome]], int] = {}
    left = _LANES
    for up, down, outcomes in sorted(edges, key=lambda edge: cells[edge[1]].column - cells[edge[0]].column):
        left -= cells[down].column - cells[up].column - 1
        if left < 0:
            break
        reach[up, outcomes] = cells[down].column
    lanes = {}
    for (up, outcomes), end in reach.items():
        passed = range(cells[up].column + 1, end)
        lanes[up, outcomes] = list(range(len(cells), len(cells) + len(passed)))
        cells += [_Cell(column, 0.0, _LANE) for column in passed]
    return lanes


def _reduce_crossings(cells: Sequence[_Cell], columns: list[list[int]], sweeps: int) -> list[list[int]]:
    """Orders each column by the mean position of its neighbours, to the right and back, and keeps the best order found."""
    place = [0.0] * len(cells)

    def settle(order: Iterable[int]) -> None:
        for position, i in enumerate(order):
            place[i] = float(position)

    for column in columns:
        settle(column)
    best = [list(column) for column in columns]
    fewest = _crossings(cells, columns, place) if sweeps else 0
    for sweep in range(sweeps):
        if not fewest:
            break
        rightward = sweep % 2 == 0
        for column in columns if rightward else reversed(columns):
            wanted = {}
            for i in column:
                around = cells[i].before if rightward else cells[i].after
                wanted[i] = sum(place[j] for j in around) / len(around) if around else place[i]
            column.sort(key=wanted.__getitem__)
            settle(column)
        crossings = _crossings(cells, columns, place)
        if crossings < fewest:
            fewest, best = crossings, [list(column) for column in columns]
    return best


def _crossings(cells: Sequence[_Cell], columns: Sequence[Sequence[int]], place: Sequence[float]) -> int:
    """How many pairs of edges cross between neighbouring columns: inversions, counted with a Fenwick tree."""
    total = 0
    for column, following in pairwise(columns):
        tree = [0] * (len(following) + 1)
        seen = 0
        for i in column:
            ends = [int(place[j]) + 1 for j in cells[i].after if cells[j].column == cells[i].column + 1]
            for end in ends:
                below, at = 0, end
                while at:
                    below += tree[at]
                    at &= at - 1
                total += seen - below
            for at in ends:
                while at <= len(following):
                    tree[at] += 1
                    at += at & -at
            seen += len(ends)
    return total


def _set_heights(cells: Sequence[_Cell], columns: Sequence[Sequence[int]], sweeps: int) -> None:
    """Middles: each near the mean of its neighbours, with a minimum distance. Without sweeps, columns are centred."""
    gaps = [[_apart(cells[a], cells[b]) for a, b in pairwise(column)] for column in columns]
    for column, between in zip(columns, gaps, strict=True):
        y = -sum(between) / 2
        for i, gap in zip(column, [*between, 0.0], strict=True):
            cells[i].y = y
            y += gap
    for sweep in range(sweeps):
        rightward = sweep % 2 == 0
        pairs = list(zip(columns, gaps, strict=True))
        for column, between in pairs if rightward else reversed(pairs):
            wanted, weights = [], []
            for i in column:
                cell = cells[i]
                # The last rounds look both ways, so that no side dominates.
                around = cell.before + cell.after if sweep >= sweeps - 3 else cell.before if rightward else cell.after
                wanted.append(sum(cells[j].y for j in around) / len(around) if around else cell.y)
                weights.append(1.0 if cell.box is not None else 3.0)
            for i, y in zip(column, settled(wanted, weights, between), strict=True):
                cells[i].y = y


def _straighten(cells: Sequence[_Cell], columns: Sequence[Sequence[int]]) -> None:
    """Straightens long edges: as many consecutive lanes at one height as the boxes above and below allow."""
    neighbours: dict[int, tuple[int | None, int | None]] = {}
    for column in columns:
        for above, i, below in zip([None, *column], column, [*column[1:], None], strict=False):
            neighbours[i] = (above, below)
    for start, cell in enumerate(cells):
        if cell.box is not None or cells[cell.before[0]].box is None:
            continue
        run: list[int] = []
        low, high = float("-inf"), float("inf")
        lane: int | None = start
        while lane is not None:
            above, below = neighbours[lane]
            least = float("-inf") if above is None else cells[above].y + _apart(cells[above], cells[lane])
            most = float("inf") if below is None else cells[below].y - _apart(cells[lane], cells[below])
            if max(low, least) > min(high, most):
                _level_run(cells, run, low, high)
                run, low, high = [], float("-inf"), float("inf")
            run.append(lane)
            low, high = max(low, least), min(high, most)
            lane = next((j for j in cells[lane].after if cells[j].box is None), None)
        _level_run(cells, run, low, high)


def _level_run(cells: Sequence[_Cell], run: Sequence[int], low: float, high: float) -> None:
    if len(run) > 1:
        y = min(high, max(low, sum(cells[i].y for i in run) / len(run)))
        for i in run:
            cells[i].y = y


def _apart(above: _Cell, below: _Cell) -> float:
    """From middle to middle. Badges extend above a box, so boxes need more space than lanes."""
    boxes = (above.box is not None) + (below.box is not None)
    return (above.height + below.height) / 2 + (8.0, 16.0, 28.0)[boxes]


def _set_columns(
    cells: Sequence[_Cell], columns: Sequence[Sequence[int]], routes: Sequence[_Route], framed: int | None
) -> list[float]:
    """Left borders, and the right border of each column. A gap has room for its steepest edge, its labels and the frame."""
    room = [56.0] * len(columns)
    for cell in cells:
        for j in cell.after:
            other = cells[j]
            steep = 56 + abs(cell.y - other.y) * 0.1
            room[other.column] = max(room[other.column], min(steep, 170.0))
    for route in routes:
        target = cells[route.cells[-1]]
        if route.asked:
            room[target.column] = max(room[target.column], measure(route.asked, 10.5) + 70)
    if framed is not None:
        room[framed] += 2 * _FRAME
    x = 0.0
    ends = []
    for number, column in enumerate(columns):
        x += room[number] if number else 0.0
        for i in column:
            cells[i].x = x
        x += max(cells[i].width for i in column)
        ends.append(x)
        for i in column:
            if cells[i].box is None:
                cells[i].width = x - cells[i].x
    return ends


def _place_labels(
    cells: Sequence[_Cell], routes: Sequence[_Route], ends: Sequence[float]
) -> list[tuple[str, float, float]]:
    """In the gap before the target, halfway along the curve; moved apart where two would overlap."""
    found: dict[int, list[tuple[float, str, float]]] = {}
    for route in routes:
        if route.asked:
            here, there = cells[route.cells[-2]], cells[route.cells[-1]]
            x = (ends[there.column - 1] + there.x - _ARROW) / 2
            found.setdefault(there.column, []).append(((here.y + there.y) / 2, route.asked, x))
    labels = []
    for gap in found.values():
        gap.sort()
        heights = settled([y for y, _, _ in gap], [1.0] * len(gap), [20.0] * (len(gap) - 1))
        labels += [(text, x, y) for (_, text, x), y in zip(gap, heights, strict=True)]
    return labels


def _bounded(level: Picture, cells: list[_Cell], routes: list[_Route], ends: list[float]) -> _Layout:
    """Moves everything so that it starts at (0, 0), badges included, and places the frame around the exit handlers."""
    handlers = cells[len(level.boxes) : len(level.boxes) + len(level.exits)]
    tops = [cell.y - cell.height / 2 - _BADGE / 2 for cell in cells]
    bottoms = [cell.y + cell.height / 2 + 4 for cell in cells]
    labels = _place_labels(cells, routes, ends)
    tops += [y - 9 for _, _, y in labels]
    bottoms += [y + 9 for _, _, y in labels]
    left = 0.0
    frame = None
    if handlers:
        frame = (
            min(cell.x for cell in handlers) - _FRAME,
            min(cell.y - cell.height / 2 for cell in handlers) - _FRAME - 20,
            max(cell.x + cell.width for cell in handlers) + _FRAME,
            max(cell.y + cell.height / 2 for cell in handlers) + _FRAME,
        )
        left, tops, bottoms = min(0.0, frame[0]), [*tops, frame[1]], [*bottoms, frame[3]]
    top = min(tops, default=0.0)
    for cell in cells:
        cell.x -= left
        cell.y -= top
    ends = [end - left for end in ends]
    labels = [(text, x - left, y - top) for text, x, y in labels]
    if frame is not None:
        frame = (frame[0] - left, frame[1] - top, frame[2] - left, frame[3] - top)
    width = max([*ends[-1:], frame[2] if frame else 0.0], default=0.0)
    return _Layout(cells, routes, ends, labels, frame, width, max(bottoms, default=0.0) - top)


# -- drawing ----------------------------------------------------------------------------------------------------------

_STYLE: Final = """
.penstock{font-family:"Helvetica Neue",Helvetica,Arial,"Liberation Sans",Roboto,sans-serif}
.penstock .head{font-size:17px;font-weight:600;fill:#475569}
.penstock .note{font-size:12px;fill:#64748b}
.penstock .box{fill:#fff;stroke:#b6c0ce;stroke-width:1.2}
.penstock .many{fill:#f1f5f9;stroke:#cbd5e1}
.penstock .open{fill:#f6f8fb}
.penstock .inner{fill:none;stroke:#b6c0ce;stroke-width:1}
.penstock .maybe{stroke:#7c8aa0;stroke-dasharray:5 4}
.penstock .name{font-size:13px;font-weight:600;fill:#1e293b}
.penstock .sub{font-size:11px;fill:#64748b}
.penstock .cond{font-size:11px;font-style:italic;fill:#64748b}
.penstock .edge{fill:none;stroke:#94a3b8;stroke-width:1.4}
.penstock .tip{fill:#94a3b8}
.penstock .asked{stroke:#d97706;stroke-dasharray:5 4}
.penstock .hot{fill:#d97706}
.penstock .pill{fill:#fff7ed;stroke:#fdba74}
.penstock .pilltext{font-size:10.5px;fill:#b45309;text-anchor:middle}
.penstock .badge{fill:#e0e7ff;stroke:#a5b4fc}
.penstock .count{font-size:11px;font-weight:600;fill:#3730a3}
.penstock .turn{fill:none;stroke:#3730a3;stroke-width:1.5;stroke-linecap:round;stroke-linejoin:round}
.penstock .frame{fill:none;stroke:#94a3b8;stroke-dasharray:2 4}
.penstock .container{fill:#3b82f6}.penstock .function{fill:#10b981}.penstock .script{fill:#f59e0b}
.penstock .resource{fill:#8b5cf6}.penstock .suspend{fill:#94a3b8}.penstock .http{fill:#06b6d4}.penstock .workflow{fill:#6366f1}
.penstock .mark{fill:#f1f5f9;stroke:#b6c0ce}
.penstock .marktext{font-size:10.5px;fill:#475569}
.penstock .good{fill:#dcfce7;stroke:#4ade80}.penstock .good+.marktext{fill:#166534}
.penstock .bad{fill:#fee2e2;stroke:#f87171}.penstock .bad+.marktext{fill:#991b1b}
.penstock .busy{fill:#cffafe;stroke:#22d3ee}.penstock .busy+.marktext{fill:#155e75}
@media (prefers-color-scheme:dark){
.penstock .mark{fill:#1e2533;stroke:#4b5568}.penstock .marktext{fill:#cbd5e1}
.penstock .good{fill:#10301c;stroke:#22863a}.penstock .good+.marktext{fill:#86efac}
.penstock .bad{fill:#3a1414;stroke:#b42318}.penstock .bad+.marktext{fill:#fca5a5}
.penstock .busy{fill:#0f2f38;stroke:#0e7490}.penstock .busy+.marktext{fill:#67e8f9}
.penstock .head{fill:#cbd5e1}.penstock .note,.penstock .sub,.penstock .cond{fill:#94a3b8}
.penstock .box{fill:#1e2533;stroke:#4b5568}.penstock .many{fill:#171c27;stroke:#3b4456}.penstock .open{fill:#161b26}
.penstock .inner{fill:none;stroke:#4b5568}.penstock .maybe{stroke:#8a97ab}.penstock .name{fill:#e8edf5}
.penstock .edge{stroke:#64748b}.penstock .tip{fill:#64748b}.penstock .asked{stroke:#d97706}.penstock .hot{fill:#d97706}
.penstock .pill{fill:#2d2113;stroke:#92580f}.penstock .pilltext{fill:#fbbf77}
.penstock .badge{fill:#2a2f5b;stroke:#5b63c4}.penstock .count{fill:#c7d2fe}.penstock .turn{stroke:#c7d2fe}
.penstock .frame{stroke:#64748b}
}
"""


_COLOURS: Final = {
    "succeeded": "good",
    "reused": "good",
    "failed": "bad",
    "errored": "bad",
    "cancelled": "bad",
    "running": "busy",
    "waiting": "busy",
    "retrying": "busy",
    "suspended": "busy",
}


def svg(workflow: Workflow, marks: Mapping[str, StepMark] | None = None) -> str:
    """The whole image. The same workflow gives the same bytes in every process. `marks`: of a run, step path -> its state; they
    change no position, so that the drawing of a run stands still while the run goes on."""
    drawn = picture(workflow)
    layout = _lay_out(drawn)
    name = cut(workflow.name, 128)
    note = _note(workflow)
    width = max(layout.width, measure(name, 18), measure(note, 12)) + 2 * _MARGIN
    height = layout.height + _HEADING + 2 * _MARGIN
    size = f'viewBox="0 0 {_n(width)} {_n(height)}" width="{_n(width)}" height="{_n(height)}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="penstock" role="img" {size}>',
        f"<title>{_text(name)}</title>",
        f"<style>{_STYLE}</style>",
        f'<text class="head" x="{_n(_MARGIN)}" y="{_n(_MARGIN + 14)}">{_text(name)}</text>',
        f'<text class="note" x="{_n(_MARGIN)}" y="{_n(_MARGIN + 33)}">{_text(note)}</text>',
        *_level(layout, _MARGIN, _MARGIN + _HEADING, "", marks or {}),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _note(workflow: Workflow) -> str:
    found = [_counted(len(workflow.steps), "step"), _counted(len(workflow.on_exit), "exit handler")]
    counts = [count for count in found if count] or ["no steps"]
    return " · ".join([*counts, f"queue {cut(workflow.queue, 64)}"] if workflow.queue else counts)


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' if number > 1 else ''}" if number else ""


def _text(text: str) -> str:
    return escape(clean(text))


def _level(layout: _Layout, dx: float, dy: float, path: str, marks: Mapping[str, StepMark]) -> Iterator[str]:
    """Edges first, then boxes, then labels: each covers what is below it."""
    if layout.frame is not None:
        left, top, right, bottom = layout.frame
        yield _rect("frame", left + dx, top + dy, right - left, bottom - top, 12)
        yield f'<text class="note" x="{_n(left + dx + 14)}" y="{_n(top + dy + 19)}">on exit</text>'
    tips: dict[int, bool] = {}
    for route in layout.routes:
        yield _edge(layout, route, dx, dy, path)
        tips[route.cells[-1]] = tips.get(route.cells[-1], True) and bool(route.asked)
    for i, asked in tips.items():
        x, y = layout.cells[i].x + dx, layout.cells[i].y + dy
        style = "tip hot" if asked else "tip"
        yield f'<path class="{style}" d="M{_n(x - 1)} {_n(y)}l-{_n(_ARROW + 1)} -4.2v8.4z"/>'
    for cell in layout.cells:
        if cell.box is not None:
            yield from _box(cell, cell.box, dx, dy, path, marks)
    for text, x, y in layout.labels:
        yield from _label(text, x + dx, y + dy)


def _edge(layout: _Layout, route: _Route, dx: float, dy: float, path: str) -> str:
    """Horizontal along its lanes, a cubic curve from one column to the next."""
    cells = [layout.cells[i] for i in route.cells]
    source, target = cells[0], cells[-1]
    at = source.x + source.width + dx
    d = [f"M{_n(at)} {_n(source.y + dy)}"]
    for here, there in pairwise(cells):
        edge = layout.ends[here.column] + dx
        end = there.x + dx - (_ARROW if there is target else 0.0)
        if here.y == there.y and there is not target:
            continue  # lanes at one height are one line
        if edge > at:
            d.append(f"H{_n(edge)}")
        middle = _n((edge + end) / 2)
        d.append(f"C{middle} {_n(here.y + dy)} {middle} {_n(there.y + dy)} {_n(end)} {_n(there.y + dy)}")
        at = end
    names = [escape(path + clean(cell.box.step.name)) for cell in (source, target) if cell.box is not None]
    style = "edge asked" if route.asked else "edge"
    return f'<path class="{style}" data-from="{names[0]}" data-to="{names[1]}" d="{"".join(d)}"/>'


def _label(text: str, x: float, y: float) -> Iterator[str]:
    width = measure(text, 10.5) + 14
    yield _rect("pill", x - width / 2, y - 8.5, width, 17, 8.5)
    yield f'<text class="pilltext" x="{_n(x)}" y="{_n(y + 3.6)}">{_text(text)}</text>'


def _box(cell: _Cell, box: Box, dx: float, dy: float, path: str, marks: Mapping[str, StepMark]) -> Iterator[str]:
    step = box.step
    x, y = cell.x + dx, cell.y - cell.height / 2 + dy
    here = path + clean(step.name)
    yield f'<g class="step" data-step="{escape(here)}"><title>{_tooltip(box)}</title>'
    if step.each is not None:
        yield _rect("box many", x + 4, y + 4, cell.width, cell.height, 9)
    style = "box open" if cell.inside is not None else "box"
    conditional = condition(step)
    yield _rect(f"{style} maybe" if conditional else style, x, y, cell.width, cell.height, 9)
    if isinstance(step.action, Nested):
        yield _rect("inner", x + 3, y + 3, cell.width - 6, cell.height - 6, 6.5)
    lines = [("name", step.name, 14.0), ("sub", _subtitle(box), 11.0), ("cond", conditional, 11.0)]
    lines = [line for line in lines if line[1]]
    yield _rect(step.action.kind, x + 9, y + 11, 3, _LINE * len(lines) - 6, 1.5)
    for i, (style, text, size) in enumerate(lines):
        fitted = fit(clean(text), size, cell.width - _INDENT - 12)
        yield f'<text class="{style}" x="{_n(x + _INDENT)}" y="{_n(y + 20.5 + _LINE * i)}">{escape(fitted)}</text>'
    yield from _badges(box, x + cell.width - 8, y)
    if cell.inside is not None:
        yield from _level(cell.inside, x + _CLUSTER, y + 18 + _LINE * len(lines), f"{here}/", marks)
    if here in marks:
        yield from _mark(marks[here], x + 8, y + cell.height, cell.width - 16)
    yield "</g>"


def _mark(mark: StepMark, x: float, y: float, room: float) -> Iterator[str]:
    """On the lower border, from the left."""
    text = fit(clean(mark.words), 10.5, room - 14)
    colour = _COLOURS.get(mark.state, "")
    yield _rect(f"mark {colour}".rstrip(), x, y - _BADGE / 2, measure(text, 10.5) + 14, _BADGE, _BADGE / 2)
    yield f'<text class="marktext" data-state="{escape(mark.state)}" x="{_n(x + 7)}" y="{_n(y + 3.6)}">{escape(text)}</text>'


def _tooltip(box: Box) -> str:
    lines = [*label(box.step), _image(box.step.action), cut(box.step.doc, 300)]
    return escape("\n".join(line for line in lines if line))


def _image(action: Action) -> str:
    if isinstance(action, Container | Script | Function) and isinstance(action.image, str | Expr | Template):
        return f"image {cut(show_template(action.image))}"
    return ""


def _badges(box: Box, right: float, top: float) -> Iterator[str]:
    """On the upper border, from the right: the number of tasks and of rounds."""
    for text, turn in ((fan_out(box.step), False), (rounds(box.step), True)):
        if text:
            mark = 13.0 if turn else 0.0
            width = measure(text, 11.5) + 14 + mark
            right -= width
            yield _rect("badge", right, top - _BADGE / 2, width, _BADGE, _BADGE / 2)
            yield f'<text class="count" x="{_n(right + 7 + mark)}" y="{_n(top + 4)}">{_text(text)}</text>'
            if turn:
                # Most of a circle with an arrow head: many fonts lack a letter for it.
                yield f'<path class="turn" d="M{_n(right + 15.5)} {_n(top + 1.5)}a4 4 0 1 1 -1 -4m.4 -2.2v2.6h-2.6"/>'
            right -= 5


def _rect(style: str, x: float, y: float, width: float, height: float, radius: float) -> str:
    size = f'x="{_n(x)}" y="{_n(y)}" width="{_n(width)}" height="{_n(height)}" rx="{_n(radius)}"'
    return f'<rect class="{style}" {size}/>'
