"""Quota over time as an SVG image: capacity, reserved, used. Called by the queue simulator.

There is one chart for each scenario, one below the other. They share their axes, so they can be compared at a glance. A chart has one
panel for each resource. Amounts are counted as in admission: cpu in thousandths, everything else in its base unit. Series of many
thousand points are thinned to half a pixel, so that the image stays small; peaks and troughs are kept.

Like the images of `svg`, it has no script, link, id or font, and it has colours for light and dark pages.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from importlib import import_module
from typing import Final, Protocol

from penstock.errors import Problem, UserError
from penstock.graph.labels import cut

_MARGIN: Final = 24.0
_GUTTER: Final = 66.0
"""Space left of a panel, for the amounts."""
_HEIGHT: Final = 112.0
_ROW: Final = 40.0
"""Space above a panel, for the name of its chart."""
_HEADS: Final = 22.0
_AXIS: Final = 34.0
_BETWEEN: Final = 22.0
_WIDEST: Final = 760.0
_NARROWEST: Final = 240.0
_ALL: Final = 1080.0
"""Width of all panels of a row together, unless they need more."""
_OFF_SCALE: Final = 5
"""A capacity so many times larger than what is ever reserved is not drawn to scale: everything else would be flat."""

_BYTES: Final = re.compile(r"memory|storage|hugepages")
_BINARY: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_STEPS: Final = (
    *(factor * 10.0**power for power in range(-6, 1) for factor in (1, 2, 5)), 10, 15, 30,
    60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172_800, 432_000, 864_000,
)  # fmt: skip
"""Seconds between two ticks of the time axis."""
_UNITS: Final = (("d", 86400.0), ("h", 3600.0), ("min", 60.0), ("s", 1.0), ("ms", 0.001))


class UsageSeries(Protocol):
    """One resource over time: from times[i] on, reserved[i] and used[i]; the last time is the end. admission.metrics makes them."""

    @property
    def resource(self) -> str: ...
    @property
    def capacity(self) -> int | None: ...
    @property
    def times(self) -> Sequence[float]: ...
    @property
    def reserved(self) -> Sequence[int]: ...
    @property
    def used(self) -> Sequence[int]: ...


@dataclass(frozen=True, slots=True)
class Chart:
    title: str
    series: Sequence[UsageSeries]
    note: str = ""
    """Text after the title."""


# -- words ------------------------------------------------------------------------------------------------------------


def duration(seconds: float) -> str:
    """For display: `12.5 s`, `3 min 20 s`, `1 h 5 min`, `2 d 3 h`."""
    if seconds < 59.95:
        return f"{_decimal(seconds, 1 if seconds >= 1 else 3)} s"
    if seconds < 3599.5:
        return _both(round(seconds), 60, "min", "s")
    if seconds < 86_370:
        return _both(round(seconds / 60), 60, "h", "min")
    return _both(round(seconds / 3600), 24, "d", "h")


def _both(count: int, size: int, large: str, small: str) -> str:
    whole, rest = divmod(count, size)
    return f"{whole:,} {large} {rest} {small}" if rest else f"{whole:,} {large}"


def amount(value: float, resource: str) -> str:
    """For display: cpu in cores, bytes in a unit that fits, everything else as it is."""
    if _BYTES.search(resource):
        power = _power(value)
        return f"{_decimal(value / 1024**power, 1 if value / 1024**power < 100 else 0)} {_BINARY[power]}"
    if _is_cpu(resource):
        value /= 1000
    for letter, size in (("T", 1e12), ("G", 1e9), ("M", 1e6)):
        if abs(value) >= size:
            return _decimal(value / size, 1) + letter
    return _decimal(value, 3 if abs(value) < 1 else 2 if abs(value) < 10 else 1 if abs(value) < 1000 else 0)


def _is_cpu(resource: str) -> bool:
    return re.search(r"(?:^|[ /])cpu\Z", resource) is not None


def _power(value: float) -> int:
    """The power of 1024. What would be shown as 1,024 KiB is a MiB."""
    power = 0
    while power < len(_BINARY) - 1 and abs(value) / 1024**power >= 1023.5:
        power += 1
    return power


def _decimal(value: float, digits: int) -> str:
    text = f"{value:,.{digits}f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text in ("-0", "") else text


def _label(resource: str) -> str:
    return cut(resource.replace("nvidia.com/", ""), 40)


# -- scales -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Scale:
    """Maps values to pixels, and knows the ticks."""

    top: float
    marks: tuple[tuple[float, str], ...]


def _time_scale(span: float, width: float) -> _Scale:
    if span <= 0:
        return _Scale(1.0, ((0.0, "0 s"),))
    wanted = span / max(2.0, width / 70)
    step = next((float(step) for step in _STEPS if step >= wanted), 0.0) or _nice(wanted / 86400) * 86400
    unit, size = next((unit, size) for unit, size in _UNITS if step * (2 if size > 1 else 10) >= size or unit == "ms")
    digits = 0 if step >= size else 1 if unit != "ms" else 3
    marks = [i * step for i in range(math.floor(span / step * (1 + 1e-9)) + 1)]
    return _Scale(span, tuple((at, f"{_decimal(at / size, digits)} {unit}" if at else "0") for at in marks))


def _amount_scale(resource: str, series: Iterable[UsageSeries]) -> tuple[_Scale, str]:
    """The scale that all panels of a resource share, and a text for its capacity."""
    found = list(series)
    highest = max((max((*one.reserved, *one.used), default=0) for one in found), default=0)
    limits = {one.capacity for one in found}
    limit = limits.pop() if len(limits) == 1 else None
    shown = f"capacity {amount(limit, resource)}" if limit is not None else ""
    largest = max([*filter(None, (*limits, limit))], default=0)
    if largest > _OFF_SCALE * highest > 0:
        shown = shown and f"{shown}, off the scale"
        largest = 0
    top = max(highest, largest, 1)
    if _BYTES.search(resource):
        step = 2.0 ** math.ceil(math.log2(top / 4.2))
    else:
        step = _nice(top / 4.2)
    step = max(1.0, step)
    marks = [i * step for i in range(math.floor(top / step) + 1)]
    return _Scale(top * 1.08, tuple((at, amount(at, resource) if at else "0") for at in marks)), shown


def _nice(value: float) -> float:
    """The smallest of 1, 2, 2.5 or 5 times a power of ten that is not below."""
    power = 10.0 ** math.floor(math.log10(value))
    factors = (1, 2, 2.5, 5) if power >= 10 else (1, 2, 5)
    return next((factor * power for factor in factors if factor * power >= value * (1 - 1e-9)), 10 * power)


# -- drawing ----------------------------------------------------------------------------------------------------------

_FONTS: Final = (
    "Helvetica Neue", "Helvetica", "Arial", "Liberation Sans", "Nimbus Sans", "FreeSans", "Segoe UI", "Roboto", "Noto Sans",
    "Open Sans", "Ubuntu", "Cantarell", "DejaVu Sans",
)  # fmt: skip
"""Nearly every machine has one of these. They are about equally wide, so a layout for one fits the others."""
_STYLE: Final = """
.plot{font-family:FONTS,sans-serif}
.plot .head{font-size:17px;font-weight:600;fill:#475569}
.plot .note{font-size:12px;fill:#64748b}
.plot .name{font-size:13px;font-weight:600;fill:#1e293b}
.plot .mark{font-size:11px;fill:#64748b}
.plot .right{text-anchor:end}
.plot .middle{text-anchor:middle}
.plot .ground{fill:#f8fafc}
.plot .grid{stroke:#e2e8f0;stroke-width:1;fill:none}
.plot .axis{stroke:#94a3b8;stroke-width:1;fill:none}
.plot .reserved{fill:#fcd68a;stroke:#d99a2b;stroke-width:.7}
.plot .used{fill:#3b82f6;stroke:#2563eb;stroke-width:.7}
.plot .dense{stroke:none}
.plot .capacity{stroke:#be185d;stroke-width:1.4;stroke-dasharray:6 4;fill:none}
.plot .end{stroke:#475569;stroke-width:1;stroke-dasharray:2 3;fill:none}
@media (prefers-color-scheme:dark){
.plot .head{fill:#cbd5e1}.plot .note,.plot .mark{fill:#94a3b8}.plot .name{fill:#e8edf5}
.plot .ground{fill:#161b26}.plot .grid{stroke:#2a3243}.plot .axis{stroke:#64748b}
.plot .reserved{fill:#6b5322;stroke:#b98a34}.plot .used{fill:#3b82f6;stroke:#60a5fa}
.plot .dense{stroke:none}.plot .capacity{stroke:#f472b6}.plot .end{stroke:#94a3b8}
}
""".replace("FONTS", ",".join(f'"{font}"' for font in _FONTS))


def svg(charts: Sequence[Chart], title: str = "", note: str = "") -> str:
    """The whole image. The same charts give the same bytes in every process."""
    columns = _columns(charts)
    width = min(_WIDEST, max(_NARROWEST, _ALL / max(1, len(columns)) - _GUTTER - _BETWEEN))
    span = max((one.times[-1] for chart in charts for one in chart.series if one.times), default=0.0)
    across = max(1, len(columns)) * (width + _GUTTER + _BETWEEN) - _BETWEEN + 2 * _MARGIN
    head = _MARGIN + (24.0 if title else 0.0) + (19.0 if note else 0.0)
    legend = head + 6.0
    rows = legend + 24.0 + _HEADS
    down = rows + len(charts) * (_ROW + _HEIGHT) + _AXIS + _MARGIN - 12
    size = f'viewBox="0 0 {_n(across)} {_n(down)}" width="{_n(across)}" height="{_n(down)}"'
    letters = int((across - 2 * _MARGIN) / 6.4)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="plot" role="img" {size}>',
        f"<title>{_text(title or 'Quota over time', 200)}</title>",
        f"<style>{_STYLE}</style>",
    ]
    if title:
        parts.append(_words("head", _MARGIN, _MARGIN + 14, cut(title, int(letters * 0.68))))
    if note:
        parts.append(_words("note", _MARGIN, head - 5, cut(note, letters)))
    parts += _legend(legend)
    times = _time_scale(span, width)
    scales = {name: _amount_scale(name, _of(charts, name)) for name in columns}
    for i, name in enumerate(columns):
        x = _MARGIN + _GUTTER + i * (width + _GUTTER + _BETWEEN)
        parts += _two(_label(name), scales[name][1], x, rows - 8, int(width / 5.8))
    for j, chart in enumerate(charts):
        y = rows + j * (_ROW + _HEIGHT) + _ROW
        parts += _two(cut(chart.title, 40), chart.note, _MARGIN, y - 14, letters)
        for i, name in enumerate(columns):
            box = _Box(_MARGIN + _GUTTER + i * (width + _GUTTER + _BETWEEN), y, width, times, scales[name][0])
            parts += _panel(box, chart, name, last=j == len(charts) - 1)
    if not charts:
        parts.append(_words("note", _MARGIN, rows + 20, "nothing to show"))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _columns(charts: Sequence[Chart]) -> list[str]:
    first = {"cpu": 0, "memory": 1}
    names = {one.resource for chart in charts for one in chart.series}
    return sorted(names, key=lambda name: (first.get(name, 2), name))


def _of(charts: Iterable[Chart], name: str) -> list[UsageSeries]:
    return [one for chart in charts for one in chart.series if one.resource == name]


def _legend(y: float) -> Iterator[str]:
    x = _MARGIN
    for style, words, width in (("used", "used", 66), ("reserved", "reserved, not used", 148), ("", "capacity", 0)):
        if style:
            yield f'<rect class="{style}" x="{_n(x)}" y="{_n(y)}" width="14" height="10"/>'
        else:
            yield f'<path class="capacity" d="M{_n(x)} {_n(y + 5)}h20"/>'
        yield _words("note", x + (20 if style else 26), y + 9.5, words)
        x += width


def _two(name: str, note: str, x: float, y: float, letters: int) -> Iterator[str]:
    """A name and a note after it, in one text element: only the renderer knows where the name ends."""
    yield f'<text x="{_n(x)}" y="{_n(y)}"><tspan class="name">{escape(name)}</tspan>'
    if note:
        yield f'<tspan class="note" dx="10">{_text(note, letters - len(name))}</tspan>'
    yield "</text>"


@dataclass(frozen=True, slots=True)
class _Box:
    """Position and scales of a panel."""

    left: float
    top: float
    width: float
    times: _Scale
    amounts: _Scale

    @property
    def right(self) -> float:
        return self.left + self.width

    @property
    def bottom(self) -> float:
        return self.top + _HEIGHT

    def x(self, time: float) -> float:
        return self.left + self.width * min(1.0, max(0.0, time / self.times.top))

    def y(self, value: float) -> float:
        return self.bottom - _HEIGHT * min(1.0, max(0.0, value / self.amounts.top))


def _panel(box: _Box, chart: Chart, name: str, last: bool) -> Iterator[str]:
    found = next((one for one in chart.series if one.resource == name), None)
    yield f'<g class="panel" data-chart="{_text(chart.title, 200)}" data-resource="{_text(name, 200)}">'
    yield f'<rect class="ground" x="{_n(box.left)}" y="{_n(box.top)}" width="{_n(box.width)}" height="{_n(_HEIGHT)}"/>'
    if found is not None and found.times:
        yield f"<title>{_text(_summary(chart, found), 300)}</title>"
    lines = "".join(f"M{_n(box.left)} {_n(box.y(at))}h{_n(box.width)}" for at, _ in box.amounts.marks[1:])
    lines += "".join(f"M{_n(box.x(at))} {_n(box.top)}v{_n(_HEIGHT)}" for at, _ in box.times.marks[1:])
    if lines:
        yield f'<path class="grid" d="{lines}"/>'
    if found is not None and len(found.times) > 1 and found.times[-1] > 0:
        yield from _areas(box, found)
    else:
        words = "no time passed" if found is not None and found.times else "nothing ran"
        yield _words("note middle", box.left + box.width / 2, box.top + _HEIGHT / 2 + 4, words)
    if found is not None and found.capacity is not None and found.capacity <= box.amounts.top:
        yield f'<path class="capacity" d="M{_n(box.left)} {_n(box.y(found.capacity))}h{_n(box.width)}"/>'
    yield f'<path class="axis" d="M{_n(box.left)} {_n(box.top)}V{_n(box.bottom)}H{_n(box.right)}"/>'
    for at, words in box.amounts.marks:
        yield _words("mark right", box.left - 7, box.y(at) + 4, words)
    if last:
        for at, words in box.times.marks:
            yield _words("mark middle", box.x(at), box.bottom + 17, words)
    yield "</g>"


def _summary(chart: Chart, one: UsageSeries) -> str:
    peaks = ", ".join(
        f"{words} at most {amount(max(values, default=0), one.resource)}"
        for words, values in (("reserved", one.reserved), ("used", one.used))
    )
    return f"{chart.title}, {_label(one.resource)}: {peaks}; over after {duration(one.times[-1])}"


def _areas(box: _Box, one: UsageSeries) -> Iterator[str]:
    # With a step in every pixel, only outlines would be visible.
    dense = " dense" if len(one.times) > box.width / 2 else ""
    for style, values in (("reserved", one.reserved), ("used", one.used)):
        if any(values):
            yield f'<path class="{style}{dense}" d="{_area(box, one.times, values)}"/>'
    end = box.x(one.times[-1])
    if end < box.right - 2:
        yield f'<path class="end" d="M{_n(end)} {_n(box.top)}V{_n(box.bottom)}"/>'
        if end < box.right - 96:
            yield _words("mark", end + 5, box.bottom - 6, duration(one.times[-1]))


def _area(box: _Box, times: Sequence[float], values: Sequence[int]) -> str:
    """The outline of a step curve, closed at the baseline."""
    parts = [f"M{_n(box.left)} {_n(box.bottom)}"]
    before = _n(box.bottom)
    for i in _thinned([box.x(time) for time in times], values):
        y = _n(box.y(values[i]))
        if y != before:
            parts.append(f"H{_n(box.x(times[i]))}V{y}")
            before = y
    return f"{''.join(parts)}H{_n(box.x(times[-1]))}V{_n(box.bottom)}z"


def _thinned(places: Sequence[float], values: Sequence[int]) -> Iterator[int]:
    """Indices to draw: of all points in one half of a pixel, the first, the lowest, the highest and the last."""
    start = 0
    while start < len(places):
        end = start + 1
        half = int(places[start] * 2)
        while end < len(places) and int(places[end] * 2) == half:
            end += 1
        here = range(start, end)
        if len(here) <= 4:
            yield from here
        else:
            kept = {start, min(here, key=values.__getitem__), max(here, key=values.__getitem__), end - 1}
            yield from sorted(kept)
        start = end


def _words(style: str, x: float, y: float, words: str) -> str:
    return f'<text class="{style}" x="{_n(x)}" y="{_n(y)}">{escape(words)}</text>'


def _text(text: str, longest: int) -> str:
    return escape(cut(text, max(1, longest)))


def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


# -- pixels -----------------------------------------------------------------------------------------------------------

_MOST_PIXELS: Final = 2**26
"""Four bytes each. The renderer kills the process if it runs out of memory, so larger images are scaled down."""
_SIZE: Final = re.compile(r'<svg[^>]* width="([\d.]+)" height="([\d.]+)"')
_LETTER: Final = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="20" height="20"><text x="2" y="16" font-family="{}">{}</text></svg>'
)


def png(image: str, scale: float = 2.0) -> bytes:
    """An SVG image as PNG, on white. The renderer is an optional dependency and uses the fonts of the machine."""
    try:
        render = import_module("resvg_py").svg_to_bytes
    except ImportError:
        raise _no_png(
            "PNG images need the library resvg-py, which is not here", "pip install 'penstock[plot]', or write a .svg"
        ) from None
    # The renderer silently omits letters of a missing font.
    blank = render(svg_string=_LETTER.format("", ""))
    font = next((font for font in _FONTS if render(svg_string=_LETTER.format(font, "M")) != blank), None)
    if font is None:
        raise _no_png(
            f"this machine has none of the fonts {', '.join(_FONTS[:-1])} or {_FONTS[-1]}",
            "install one (Debian: apt install fonts-dejavu-core), or write a .svg",
        )
    size = _SIZE.search(image[:2000])
    if size is not None:
        pixels = float(size[1]) * float(size[2])
        scale = min(scale, math.sqrt(_MOST_PIXELS / pixels)) if pixels else scale
    return bytes(render(svg_string=image, background="#ffffff", zoom=scale, sans_serif_family=font, font_family=font))


def _no_png(message: str, fix: str) -> UserError:
    return UserError(Problem("P811", message, fix))
