"""Plots as SVG, drawn here: they need no script, and change with the page. Called by the pages that have them.

A plot has no text in it: it is as wide as the window, and text would be as wide. What it says is beside it, and in a table.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from penstock.phrases import duration
from penstock.service.amounts import UNLIMITED, figure, short_name
from penstock.service.views.flows import FlowView
from penstock.service.views.series import QueueSeries
from penstock.store.queue_use import Use

WIDE: Final = 1000
HIGH: Final = 100
TICKS: Final = 4


@dataclass(frozen=True, slots=True)
class Layer:
    tone: str
    """own, borrowed, peak, quota, waiting: a class of the style sheet."""
    path: str


@dataclass(frozen=True, slots=True)
class Plot:
    title: str
    words: str
    """What it shows, for those who do not see it."""
    top: str
    """The amount at the upper edge."""
    layers: tuple[Layer, ...]
    ticks: tuple[str, ...]


def _line(points: Sequence[tuple[float, float]], end: float) -> str:
    """A line of steps; each value holds until the next."""
    (x, y), *rest = points
    parts = [f"M{x:.4g} {y:.4g}"]
    for x, next_y in rest:
        parts.append(f"H{x:.4g}")
        if next_y != y:
            parts.append(f"V{next_y:.4g}")
            y = next_y
    return "".join([*parts, f"H{end:.4g}"])


def _area(points: Sequence[tuple[float, float]], end: float) -> str:
    return f"{_line(points, end)}V{HIGH}H{points[0][0]:.4g}Z"


def of_queue(found: QueueSeries) -> list[Plot]:
    """One for each flavor and resource, and one of what waits."""
    if not found.spans:
        return []
    wide = max(1.0, found.until - found.since)
    xs = [max(0.0, WIDE * (one.at - found.since) / wide) for one in found.spans]
    ticks = ticks_of(found.since, found.until)
    plots = []
    for name in found.names:
        known = next(number for number, one in enumerate(found.spans) if name in one.amounts)
        plots.append(_use(name, xs[known:], [use for _, use in found.of(name)][known:], ticks))
    waits = [one.waiting for one in found.spans]
    most = max(1, *(one.peak for one in waits))
    layers = (
        Layer("peak", _area(_points(xs, [one.peak for one in waits], most), WIDE)),
        Layer("waiting", _area(_points(xs, [one.mean for one in waits], most), WIDE)),
    )
    words = f"Workloads that wait: {waits[-1].last:,} now, {max(one.peak for one in waits):,} at most"
    return [*plots, Plot("Waiting", words, f"{most:,}", layers, ticks)]


def _use(name: str, xs: Sequence[float], uses: Sequence[Use], ticks: tuple[str, ...]) -> Plot:
    flavor, _, resource = name.partition("/")
    quotas = [one.nominal if one.nominal < UNLIMITED else 0 for one in uses]
    most = max(1, *quotas, *(max(one.peak, one.mean) for one in uses))
    layers = [Layer("peak", _area(_points(xs, [one.peak for one in uses], most), WIDE))]
    if any(one.borrowed for one in uses):
        layers.append(Layer("borrowed", _area(_points(xs, [one.mean for one in uses], most), WIDE)))
    layers.append(Layer("own", _area(_points(xs, [one.mean - one.borrowed for one in uses], most), WIDE)))
    if any(quotas):
        layers.append(Layer("quota", _line(_points(xs, quotas, most), WIDE)))
    last = uses[-1]
    peak = max(one.peak for one in uses)
    words = f"{short_name(resource)}: {figure(last.last, resource)} of {figure(last.nominal, resource)} used now, {figure(peak, resource)} at most"
    if any(one.borrowed for one in uses):
        words += f", {figure(max(one.borrowed for one in uses), resource)} borrowed at most"
    title = short_name(resource) + (f" · {flavor}" if flavor != "default" else "")
    return Plot(title, words, figure(most, resource), tuple(layers), ticks)


def _points(xs: Sequence[float], values: Sequence[int], most: int) -> list[tuple[float, float]]:
    return [(x, round(HIGH - HIGH * value / most, 2)) for x, value in zip(xs, values, strict=True)]


def ticks_of(since: float, until: float) -> tuple[str, ...]:
    long = until - since
    form = "%H:%M:%S" if long <= 900 else "%H:%M" if long <= 86400 * 1.5 else "%d %b"
    return tuple(time.strftime(form, time.localtime(since + long * number / TICKS)) for number in range(TICKS + 1))


@dataclass(frozen=True, slots=True)
class Bar:
    x: float
    y: float
    width: float
    height: float
    tone: str
    link: str = ""
    words: str = ""


def of_flow(found: FlowView, tones: dict[str, str]) -> list[Bar]:
    """The last runs, the oldest first: as high as each took, coloured by how it ended."""
    runs = list(reversed(found.last))
    now = time.time()
    times = [max(0.0, (run.ended if run.ended is not None else now) - run.created) for run, _ in runs]
    most = max([*times, 1e-9])
    width = WIDE / max(len(runs), 8)
    bars = []
    for place, ((run, state), took) in enumerate(zip(runs, times, strict=True)):
        high = max(4.0, HIGH * took / most)
        words = f"{run.id} {state} {duration(took)}"
        bars.append(
            Bar(
                round(place * width, 2),
                round(HIGH - high, 2),
                round(width * 0.8, 2),
                round(high, 2),
                tones.get(state, "plain"),
                run.id,
                words,
            )
        )
    return bars


DAY: Final = 86400


def of_days(amounts: Sequence[tuple[int, float]], since: float, until: float) -> tuple[list[Bar], tuple[str, ...]]:
    """Bars and ticks. `amounts`: (begin of a day in UTC, amount)."""
    first = int(since // DAY) * DAY
    many = max(1, int((until - first) // DAY) + 1)
    most = max([amount for _, amount in amounts] or [0.0]) or 1.0
    width = WIDE / many
    bars = []
    for at, amount in amounts:
        high = HIGH * amount / most
        x = (at - first) / DAY * width
        bars.append(Bar(round(x, 2), round(HIGH - high, 2), round(width * 0.85, 2), round(high, 2), "busy"))
    days = dict.fromkeys(first + DAY * round((many - 1) * number / TICKS) for number in range(TICKS + 1))
    return bars, tuple(time.strftime("%d %b", time.gmtime(at)) for at in days)
