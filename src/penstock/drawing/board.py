"""The steps of a run as boxes in columns, for any number of steps: what is drawn, and where. Called by service.views.board; a page draws it.

A step's column is the length of the longest path to it. If there are more boxes than people can look at, columns beside each other become
one, and the steps of a column that are in the same state become one box, a *group*, which can be opened. Those that failed stay boxes of
their own, and so does what somebody searches for. So the picture is of bounded size, and nothing is left out of it: every step is in a box.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from penstock.drawing.spacing import settled

WIDTH: Final = 196.0
HEIGHT: Final = 50.0
GAP: Final = 14.0
"""Between boxes of a column."""
BETWEEN: Final = 60.0
"""Between columns."""
TOP: Final = 34.0
"""Above the boxes: the numbers of the columns, if there are groups."""
MARGIN: Final = 8.0

MOST_BOXES: Final = 120
"""A graph with so many steps is drawn as it is."""
MOST_COLUMNS: Final = 24
FEW: Final = 4
"""Steps of a column that are not made into groups."""
LOUD: Final = 6
"""Steps that failed or wait for somebody, and that stay boxes of their own; of each column."""
FOUND: Final = 12
"""The same for steps that were searched for."""
OPEN: Final = 150
"""Steps of an opened group that are boxes."""
MOST_EDGES: Final = 400
SWEEPS: Final = 8

GROUPS: Final = {
    "failed": ("failed", "errored"),
    "suspended": ("suspended",),
    "running": ("running", "retrying"),
    "waiting": ("waiting",),
    "pending": ("",),
    "cancelled": ("cancelled",),
    "done": ("succeeded", "reused"),
    "skipped": ("skipped", "omitted"),
}
"""Group -> states, in the order in which they are shown: what needs somebody comes first."""
_GROUP_OF: Final = {state: group for group, states in GROUPS.items() for state in states}
_RANK: Final = {group: rank for rank, group in enumerate(GROUPS)}
_LOUD: Final = ("failed", "suspended")


@dataclass(frozen=True, slots=True)
class BoardStep:
    """A step, as far as the layout knows it. `before`: ids of the steps that it waits for."""

    id: str
    before: Sequence[str] = ()
    state: str = ""

    @property
    def group(self) -> str:
        return _GROUP_OF.get(self.state, "pending")


@dataclass(frozen=True, slots=True)
class BoardChoice:
    """What somebody wants to see. It comes from an address, so that names in it may be of steps and groups that are not there."""

    found: Collection[str] = ()
    """Ids that stay boxes of their own."""
    span: tuple[int, int] | None = None
    """Only these columns, from the first to the last; from 0."""
    opened: Collection[str] = ()
    """Groups whose steps are boxes."""


@dataclass(slots=True)
class BoardBox:
    id: str
    """Of a group: `3-5.waiting`, the columns and the state."""
    members: Sequence[str]
    """Of a step: itself."""
    group: str = ""
    """Empty: this is a step."""
    column: int = 0
    """The place in Board.columns."""
    x: float = 0.0
    y: float = 0.0

    @property
    def is_group(self) -> bool:
        return bool(self.group)


@dataclass(frozen=True, slots=True)
class BoardColumn:
    """Columns of the graph that are drawn as one: from `first` to `last`."""

    first: int
    last: int
    steps: int
    x: float
    states: Mapping[str, int] = field(default_factory=dict)
    """Group -> how many of its steps."""


@dataclass(frozen=True, slots=True)
class BoardEdge:
    source: int
    """The place in Board.boxes."""
    target: int
    many: int
    """How many edges of the graph it stands for."""
    path: str
    """For the attribute `d` of an SVG path."""


@dataclass(frozen=True, slots=True)
class StepBoard:
    columns: Sequence[BoardColumn]
    boxes: Sequence[BoardBox]
    edges: Sequence[BoardEdge]
    width: float
    height: float
    depth: int
    """Columns of the whole graph."""
    left_out: int = 0
    """Edges that are not drawn."""

    @property
    def folded(self) -> bool:
        return any(box.is_group for box in self.boxes) or any(one.first != one.last for one in self.columns)


def depths(steps: Sequence[BoardStep]) -> dict[str, int]:
    """Step -> its column. What is in a circle, which a checked workflow never has, is in the first."""
    known = {step.id for step in steps}
    after: dict[str, list[str]] = {step.id: [] for step in steps}
    missing = {}
    for step in steps:
        ups = [up for up in dict.fromkeys(step.before) if up in known and up != step.id]
        missing[step.id] = len(ups)
        for up in ups:
            after[up].append(step.id)
    found = dict.fromkeys(known, 0)
    ready = [step.id for step in steps if not missing[step.id]]
    for here in ready:  # grows
        for down in after[here]:
            found[down] = max(found[down], found[here] + 1)
            missing[down] -= 1
            if not missing[down]:
                ready.append(down)
    return {step.id: found[step.id] if not missing[step.id] else 0 for step in steps}


def board(steps: Sequence[BoardStep], choice: BoardChoice | None = None) -> StepBoard:
    choice = choice or BoardChoice()
    column_of = depths(steps)
    depth = max(column_of.values(), default=-1) + 1
    bands = _bands(depth, choice.span)
    members: list[list[BoardStep]] = [[] for _ in bands]
    band_of = {column: number for number, (first, last) in enumerate(bands) for column in range(first, last + 1)}
    for step in steps:
        number = band_of.get(column_of[step.id])
        if number is not None:
            members[number].append(step)
    small = sum(map(len, members)) <= MOST_BOXES and all(first == last for first, last in bands)
    columns = [_folded(band, some, choice, small) for band, some in zip(bands, members, strict=True)]
    boxes = [box for column in columns for box in column]
    for number, column in enumerate(columns):
        for box in column:
            box.column, box.x = number, MARGIN + number * (WIDTH + BETWEEN)
    pairs = _pairs(steps, boxes)
    places = {box.id: number for number, box in enumerate(boxes)}
    rows = [[places[box.id] for box in column] for column in columns]
    _set_rows(boxes, rows, pairs, small, MARGIN if small else TOP)
    edges, left_out = _edges(boxes, rows, pairs)
    shown = [
        BoardColumn(first, last, len(some), MARGIN + number * (WIDTH + BETWEEN), Counter(one.group for one in some))
        for number, ((first, last), some) in enumerate(zip(bands, members, strict=True))
    ]
    width = 2 * MARGIN + max(0.0, len(bands) * (WIDTH + BETWEEN) - BETWEEN)
    height = max((box.y + HEIGHT for box in boxes), default=TOP) + MARGIN
    return StepBoard(shown, boxes, edges, width, height, depth, left_out)


# -- what is drawn ----------------------------------------------------------------------------------------------------


def _bands(depth: int, span: tuple[int, int] | None) -> list[tuple[int, int]]:
    """Columns that are drawn, as (first, last). Of many, those beside each other become one; all are about equally wide."""
    first, last = (0, depth - 1) if span is None else (max(0, span[0]), min(depth - 1, span[1]))
    many = last - first + 1
    if many <= 0:
        return [] if span is None or not depth else _bands(depth, None)
    bands = min(many, MOST_COLUMNS)
    cuts = [first + many * number // bands for number in range(bands + 1)]
    return [(a, b - 1) for a, b in pairwise(cuts)]


def _folded(band: tuple[int, int], steps: Sequence[BoardStep], choice: BoardChoice, small: bool) -> list[BoardBox]:
    """The boxes of a column."""
    if small:
        return [BoardBox(step.id, (step.id,)) for step in steps]
    boxes = []
    for group in GROUPS:
        some = [step.id for step in steps if step.group == group]
        name = f"{band[0]}-{band[1]}.{group}"
        alone = _alone(some, group, name in choice.opened, choice.found, len(steps))
        boxes += [BoardBox(id, (id,)) for id in alone]
        out = set(alone)
        rest = [id for id in some if id not in out]
        if rest:
            boxes.append(BoardBox(name, rest, group))
    if choice.found:
        boxes.sort(key=lambda box: box.is_group or box.id not in choice.found)
    return boxes


def _alone(some: Sequence[str], group: str, opened: bool, found: Collection[str], of: int) -> Sequence[str]:
    """Which of a group's steps are boxes of their own."""
    if of <= FEW or len(some) == 1:
        return some
    if opened:
        return some[:OPEN] if len(some) > OPEN + 1 else some
    chosen = [id for id in some if id in found][:FOUND]
    if group in _LOUD:
        chosen += [id for id in some if id not in found][: max(0, LOUD - len(chosen))]
    if len(some) - len(chosen) == 1:  # a group of one says less than the step
        return some
    wanted = set(chosen)
    return [id for id in some if id in wanted]


# -- where ------------------------------------------------------------------------------------------------------------

Pairs = Mapping[tuple[int, int], int]
"""Two boxes by their places, the left one first -> how many edges of the graph lead from one to the other."""


def _pairs(steps: Iterable[BoardStep], boxes: Sequence[BoardBox]) -> Pairs:
    place = {member: number for number, box in enumerate(boxes) for member in box.members}
    found: Counter[tuple[int, int]] = Counter()
    for step in steps:
        target = place.get(step.id)
        if target is None:
            continue
        for up in step.before:
            source = place.get(up)
            if source is not None and boxes[source].column < boxes[target].column:
                found[source, target] += 1
    return found


def _set_rows(boxes: Sequence[BoardBox], rows: list[list[int]], pairs: Pairs, small: bool, top: float) -> None:
    """Heights. A small graph is ordered so that few edges cross, and its boxes are near their neighbours; in a large one the order of the
    groups stays, so that what failed is at the top."""
    if not small:
        for row in rows:
            for number, i in enumerate(row):
                boxes[i].y = top + number * (HEIGHT + GAP)
        return
    before: dict[int, list[int]] = {}
    after: dict[int, list[int]] = {}
    for source, target in pairs:
        after.setdefault(source, []).append(target)
        before.setdefault(target, []).append(source)
    for row in rows:
        for number, i in enumerate(row):
            boxes[i].y = (number - len(row) / 2) * (HEIGHT + GAP)
    for sweep in range(SWEEPS):
        near = before if sweep % 2 == 0 else after
        for row in rows if sweep % 2 == 0 else rows[::-1]:
            mean = {i: _mean([boxes[j].y for j in near.get(i, ())], boxes[i].y) for i in row}
            row.sort(key=lambda i: (mean[i], i))
            gaps = [HEIGHT + GAP] * (len(row) - 1)
            for i, y in zip(row, settled([mean[i] for i in row], [1.0] * len(row), gaps), strict=True):
                boxes[i].y = y
    least = min((box.y for box in boxes), default=0.0)
    for box in boxes:
        box.y = round(box.y - least + top, 1)


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def _edges(boxes: Sequence[BoardBox], rows: Sequence[Sequence[int]], pairs: Pairs) -> tuple[list[BoardEdge], int]:
    """The most important ones first: those of boxes that are steps, then those that stand for many."""
    order = sorted(pairs, key=lambda pair: (sum(boxes[i].is_group for i in pair), -pairs[pair], pair))
    gaps = [_gaps([boxes[i].y for i in row]) for row in rows]
    drawn = [
        BoardEdge(source, target, pairs[source, target], _path(boxes[source], boxes[target], gaps))
        for source, target in order[:MOST_EDGES]
    ]
    return drawn, max(0, len(order) - MOST_EDGES)


def _gaps(heights: Sequence[float]) -> list[float]:
    """Where an edge can pass a column without crossing a box."""
    at = sorted(heights)
    between = [(a + HEIGHT + b) / 2 for a, b in pairwise(at)]
    return [at[0] - GAP / 2, *between, at[-1] + HEIGHT + GAP / 2] if at else []


def _path(source: BoardBox, target: BoardBox, gaps: Sequence[Sequence[float]]) -> str:
    """From the right side of one to the left side of the other, between the boxes of the columns that it passes."""
    x, y = source.x + WIDTH, source.y + HEIGHT / 2
    end = target.y + HEIGHT / 2
    parts = [f"M{_n(x)} {_n(y)}"]
    columns = target.column - source.column
    for step in range(1, columns):
        left = source.x + step * (WIDTH + BETWEEN)
        straight = source.y + HEIGHT / 2 + (end - source.y - HEIGHT / 2) * step / columns
        free = gaps[source.column + step]
        y_there = min(free, key=lambda one: (abs(one - straight), one)) if free else straight
        parts.append(f"{_curve(x, y, left, y_there)}H{_n(left + WIDTH)}")
        x, y = left + WIDTH, y_there
    return "".join((*parts, _curve(x, y, target.x, end)))


def _curve(x: float, y: float, to_x: float, to_y: float) -> str:
    middle = (x + to_x) / 2
    return f"C{_n(middle)} {_n(y)} {_n(middle)} {_n(to_y)} {_n(to_x)} {_n(to_y)}"


def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
