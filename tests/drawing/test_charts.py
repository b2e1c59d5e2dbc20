"""The picture of quota over time: says what the series say, stands alone, stays small, and bears any text and any number."""

from __future__ import annotations

import re
import sys
import types
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.drawing import charts as plot
from penstock.drawing.charts import Chart, amount, duration, png, svg
from penstock.errors import UserError
from tests.drawing.test_text import under_seed
from tests.support.speed import within

NS = "{http://www.w3.org/2000/svg}"


@dataclass(frozen=True)
class Line:
    """What admission.meter gives, without it."""

    resource: str
    capacity: int | None
    times: tuple[float, ...]
    reserved: tuple[int, ...]
    used: tuple[int, ...]


STAIRS = Line("cpu", 8000, (0.0, 10.0, 30.0, 40.0), (8000, 4000, 2000, 0), (4000, 4000, 0, 0))
MEMORY = Line("memory", 2**34, (0.0, 25.0, 40.0), (2**33, 2**34, 0), (2**32, 2**32, 0))


def parse(*charts: Chart, **words: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg(charts, **words))


def of_class(root: ElementTree.Element, name: str, tag: str = "path") -> list[ElementTree.Element]:
    return [found for found in root.iter(NS + tag) if name in (found.get("class") or "").split()]


def panel(root: ElementTree.Element, resource: str = "cpu") -> ElementTree.Element:
    return next(group for group in of_class(root, "panel", "g") if group.get("data-resource") == resource)


def texts(root: ElementTree.Element) -> list[str]:
    return [text.text or "" for tag in ("text", "tspan") for text in root.iter(NS + tag) if text.text]


def box(group: ElementTree.Element) -> tuple[float, float, float, float]:
    """Left, top, right, bottom."""
    (ground,) = of_class(group, "ground", "rect")
    x, y, width, height = (float(ground.attrib[name]) for name in ("x", "y", "width", "height"))
    return x, y, x + width, y + height


def outline(path: ElementTree.Element) -> list[tuple[float, float]]:
    """The corners of an area, from left to right."""
    corners: list[tuple[float, float]] = []
    x = y = 0.0
    for letter, numbers in re.findall(r"([MHVz])([^MHVz]*)", path.attrib["d"]):
        values = [float(number) for number in numbers.split()]
        if letter == "M":
            x, y = values
        elif letter == "H":
            x = values[0]
        elif letter == "V":
            y = values[0]
        corners.append((x, y))
    return corners


def heights(group: ElementTree.Element, name: str) -> dict[float, float]:
    """Where along the panel (0 to 1) the area gets which height, in shares of the capacity line."""
    left, _, right, bottom = box(group)
    (capacity,) = of_class(group, "capacity")
    top = float(capacity.attrib["d"].split()[1].split("h")[0])
    (area,) = of_class(group, name)
    found = {}
    for x, y in outline(area)[1:-1]:
        found[round((x - left) / (right - left), 2)] = round((bottom - y) / (bottom - top), 2)
    return found


# -- what is drawn ----------------------------------------------------------------------------------------------------


def test_areas_follow_the_series_and_the_capacity() -> None:
    group = panel(parse(Chart("unit stage", [STAIRS])))
    assert heights(group, "reserved") == {0.0: 1.0, 0.25: 0.5, 0.75: 0.25, 1.0: 0.0}
    assert heights(group, "used") == {0.0: 0.5, 0.75: 0.0, 1.0: 0.0}


def test_one_panel_for_each_chart_and_resource_all_on_the_same_scales() -> None:
    short = Line("cpu", 8000, (0.0, 20.0), (8000, 0), (8000, 0))
    root = parse(
        Chart("unit stage", [MEMORY, STAIRS], "makespan 40 s"), Chart("unit task", [short]), title="T", note="N"
    )
    groups = of_class(root, "panel", "g")
    assert [(group.get("data-chart"), group.get("data-resource")) for group in groups] == [
        ("unit stage", "cpu"),
        ("unit stage", "memory"),
        ("unit task", "cpu"),
        ("unit task", "memory"),
    ]
    assert {"T", "N", "unit stage", "makespan 40 s", "capacity 8", "capacity 16 GiB", "nothing ran", "20 s"} <= set(
        texts(root)
    )
    first, second = groups[0], groups[2]
    assert (box(first)[0], box(first)[2]) == (box(second)[0], box(second)[2])
    left, _, right, _ = box(second)
    (area,) = of_class(second, "used")
    assert max(x for x, _ in outline(area)) == pytest.approx((left + right) / 2, abs=0.2)
    assert len(of_class(second, "end")) == 1 and not of_class(first, "end")


def test_panels_do_not_overlap_and_stay_inside_the_image() -> None:
    lines = [
        Line(name, 10**6, (0.0, 5.0), (10**6, 0), (10**5, 0))
        for name in ("cpu", "memory", "a.b/gpu", "pods", "storage")
    ]
    root = parse(*(Chart(f"unit {i}", lines) for i in range(4)))
    boxes = [box(group) for group in of_class(root, "panel", "g")]
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    assert len(boxes) == 20
    assert all(0 < a < c < width and 0 < b < d < height for a, b, c, d in boxes)
    for i, one in enumerate(boxes):
        assert not any(one[0] < o[2] and o[0] < one[2] and one[1] < o[3] and o[1] < one[3] for o in boxes[:i])


def test_a_capacity_far_above_all_is_said_instead_of_drawn() -> None:
    root = parse(Chart("c", [Line("cpu", 960_000, (0.0, 5.0), (1000, 0), (1000, 0))]))
    assert "capacity 960, off the scale" in texts(root)
    assert not of_class(panel(root), "capacity")
    assert box(panel(root))[1] < min(y for _, y in outline(of_class(panel(root), "used")[0])) < box(panel(root))[1] + 20


def test_no_capacity_no_line() -> None:
    root = parse(Chart("c", [Line("cpu", None, (0.0, 5.0), (1000, 0), (1000, 0))]))
    assert not of_class(panel(root), "capacity")
    assert not any(text.startswith("capacity ") for text in texts(root))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (Line("cpu", 8000, (0.0,), (0,), (0,)), "no time passed"),
        (Line("cpu", 8000, (0.0, 0.0), (5, 0), (5, 0)), "no time passed"),
        (Line("cpu", 8000, (), (), ()), "nothing ran"),
    ],
)
def test_no_time_is_said(line: Line, words: str) -> None:
    root = parse(Chart("c", [line]))
    assert words in texts(root)
    assert not of_class(panel(root), "used")


def test_nothing_at_all() -> None:
    assert "nothing to show" in texts(parse())
    assert parse(Chart("c", [])).tag == NS + "svg"


# -- marks and words --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("span", "marks"),
    [
        (0.004, ["0", "1 ms", "2 ms", "3 ms", "4 ms"]),
        (1.0, ["0", "0.2 s", "0.4 s", "0.6 s", "0.8 s", "1 s"]),
        (42, ["0", "10 s", "20 s", "30 s", "40 s"]),
        (150, ["0", "0.5 min", "1 min", "1.5 min", "2 min", "2.5 min"]),
        (1391, ["0", "5 min", "10 min", "15 min", "20 min"]),
        (2.6 * 3600, ["0", "0.5 h", "1 h", "1.5 h", "2 h", "2.5 h"]),
        (40 * 3600, ["0", "0.5 d", "1 d", "1.5 d"]),
        (9 * 86400, ["0", "2 d", "4 d", "6 d", "8 d"]),
        (900 * 86400, ["0", "200 d", "400 d", "600 d", "800 d"]),
    ],
)
def test_marks_on_the_time_axis(span: float, marks: list[str]) -> None:
    assert [words for _, words in plot._time_scale(span, 452).marks] == marks


@given(st.floats(1e-6, 1e9), st.floats(200, 800))
def test_there_are_a_few_marks_on_any_time_axis_and_no_two_alike(span: float, width: float) -> None:
    marks = plot._time_scale(span, width).marks
    assert 2 <= len(marks) <= 13
    assert len({words for _, words in marks}) == len(marks)


@pytest.mark.parametrize(
    ("resource", "top", "marks"),
    [
        ("cpu", 96_000, ["0", "25", "50", "75"]),
        ("cpu", 300, ["0", "0.1", "0.2", "0.3"]),
        ("memory", 256 * 2**30, ["0", "64 GiB", "128 GiB", "192 GiB", "256 GiB"]),
        ("memory", 3 * 2**30, ["0", "1 GiB", "2 GiB", "3 GiB"]),
        ("nvidia.com/gpu", 8, ["0", "2", "4", "6", "8"]),
        ("nvidia.com/gpu", 1, ["0", "1"]),
        ("pods", 0, ["0", "1"]),
    ],
)
def test_marks_on_the_axis_of_amounts(resource: str, top: int, marks: list[str]) -> None:
    scale, _ = plot._amount_scale(resource, [Line(resource, None, (0.0, 1.0), (top, 0), (0, 0))])
    assert [words for _, words in scale.marks] == marks


@given(st.sampled_from(["cpu", "memory", "x.y/z"]), st.integers(0, 2**62))
def test_there_are_a_few_marks_for_any_amount_and_no_two_alike(resource: str, top: int) -> None:
    marks = plot._amount_scale(resource, [Line(resource, None, (0.0, 1.0), (top, 0), (0, 0))])[0].marks
    assert 2 <= len(marks) <= 6
    assert len({words for _, words in marks}) == len(marks)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"),
        (0.0042, "0.004 s"),
        (12.5, "12.5 s"),
        (59.94, "59.9 s"),
        (59.96, "1 min"),
        (100.4, "1 min 40 s"),
        (3599.6, "1 h"),
        (3900, "1 h 5 min"),
        (86_380, "1 d"),
        (86_400 * 2 + 3 * 3600, "2 d 3 h"),
        (10**9, "11,574 d 2 h"),
    ],
)
def test_durations(seconds: float, words: str) -> None:
    assert duration(seconds) == words


@pytest.mark.parametrize(
    ("value", "resource", "words"),
    [
        (96_000, "cpu", "96"),
        (1500, "cpu", "1.5"),
        (64, "cpu", "0.064"),
        (1234.5, "a100/cpu", "1.23"),
        (2**30, "memory", "1 GiB"),
        (1_500_000_000, "memory", "1.4 GiB"),
        (1023 * 2**30, "memory", "1,023 GiB"),
        (2**40 - 1, "memory", "1 TiB"),
        (7, "memory", "7 B"),
        (0, "memory", "0 B"),
        (8, "nvidia.com/gpu", "8"),
        (12_345, "pods", "12,345"),
        (23_456_789, "x/tokens", "23.5M"),
        (-2500, "cpu", "-2.5"),
    ],
)
def test_amounts(value: float, resource: str, words: str) -> None:
    assert amount(value, resource) == words


# -- text from others, size -------------------------------------------------------------------------------------------


@given(st.text(st.characters(exclude_categories=()), max_size=60))
def test_no_text_breaks_the_image(text: str) -> None:
    root = parse(
        Chart(text, [Line(text, 5, (0.0, 1.0), (5, 0), (1, 0))], text + "x"), title=text + "x", note=text + "x"
    )
    plain = parse(Chart("x", [Line("x", 5, (0.0, 1.0), (5, 0), (1, 0))], "x"), title="x", note="x")
    assert [element.tag for element in root.iter()] == [element.tag for element in plain.iter()]


def test_the_image_stands_alone() -> None:
    text = svg([Chart('unit <b>&"stage"', [STAIRS, MEMORY], "n")], "t")
    assert "prefers-color-scheme:dark" in text
    assert re.findall(r"https?://[^\"]+", text) == ["http://www.w3.org/2000/svg"]
    assert not re.search(r"<script|<image|<a |href|@import|url\(|\sid=|\son\w+=|<b>", text)


def test_the_same_bytes_for_every_hash_seed() -> None:
    code = "import tests.drawing.test_charts as t; print(t.svg([t.Chart('a', [t.MEMORY, t.STAIRS]), t.Chart('b', [])]))"
    assert len({under_seed(code, seed) for seed in (0, 1, 2)}) == 1


def noisy(points: int) -> Line:
    times = tuple(i * 0.37 for i in range(points))
    reserved = tuple(40_000 + (i * 7919) % 30_000 for i in range(points))
    return Line("cpu", 96_000, times, reserved, tuple(value // 2 for value in reserved))


def test_forty_thousand_points_stay_small_and_keep_their_peak() -> None:
    noise = noisy(40_000)
    at = 12_345
    peak = Line("cpu", 96_000, noise.times, (*noise.reserved[:at], 96_000, *noise.reserved[at + 1 :]), noise.used)
    with within(6):
        text = svg([Chart(f"unit {i}", [peak, peak]) for i in range(4)])
    assert len(text) < 1_500_000
    group = panel(ElementTree.fromstring(text))
    line = float(of_class(group, "capacity")[0].attrib["d"].split()[1].split("h")[0])
    assert min(y for _, y in outline(of_class(group, "reserved")[0])) == line
    assert "dense" in (of_class(group, "used")[0].get("class") or "")


@given(st.lists(st.tuples(st.floats(0, 500), st.integers(0, 9)), min_size=1, max_size=200))
def test_thinning_keeps_ends_lows_and_highs_in_order(points: list[tuple[float, int]]) -> None:
    points.sort(key=lambda point: point[0])
    places, values = [x for x, _ in points], [value for _, value in points]
    kept = list(plot._thinned(places, values))
    assert kept == sorted(set(kept)) and kept[0] == 0 and kept[-1] == len(points) - 1
    for half in {int(x * 2) for x in places}:
        inside = [i for i, x in enumerate(places) if int(x * 2) == half]
        left = [i for i in kept if i in inside]
        assert len(left) <= 4
        assert {min(values[i] for i in inside), max(values[i] for i in inside)} <= {values[i] for i in left}


# -- pixels -----------------------------------------------------------------------------------------------------------


def renderer(monkeypatch: pytest.MonkeyPatch, font: str | None) -> list[dict[str, Any]]:
    """A stand-in that knows one font, and a list of what it was asked for."""
    asked: list[dict[str, Any]] = []

    def svg_to_bytes(svg_string: str, **options: Any) -> bytes:
        asked.append({"svg": svg_string, **options})
        return b"letters" if font is not None and f'font-family="{font}"' in svg_string and ">M<" in svg_string else b""

    module = types.ModuleType("resvg_py")
    module.svg_to_bytes = svg_to_bytes  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "resvg_py", module)
    return asked


def test_without_the_renderer_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    with pytest.raises(UserError, match=r"P811.*penstock\[plot\]"):
        png(svg([]))


def test_without_fonts_it_does_not_leave_the_words_out(monkeypatch: pytest.MonkeyPatch) -> None:
    renderer(monkeypatch, None)
    with pytest.raises(UserError, match=r"P811.*fonts"):
        png(svg([]))


def test_the_first_font_that_is_there_stands_in_for_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = renderer(monkeypatch, "DejaVu Sans")
    image = svg([Chart("c", [STAIRS])])
    png(image)
    assert asked[-1] == {
        "svg": image,
        "background": "#ffffff",
        "zoom": 2.0,
        "sans_serif_family": "DejaVu Sans",
        "font_family": "DejaVu Sans",
    }


def test_an_enormous_image_is_drawn_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = renderer(monkeypatch, "Arial")
    png('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 9" width="100000" height="1000000"/>')
    assert 0 < asked[-1]["zoom"] < 0.03


def test_pixels() -> None:
    pytest.importorskip("resvg_py", reason="the extra `plot` is not installed (pip install 'penstock[plot]')")
    image = svg([Chart("unit stage", [STAIRS, MEMORY], "makespan 40 s")], "t")
    found = re.search(r'width="([\d.]+)" height="([\d.]+)"', image)
    assert found is not None
    try:
        data = png(image)
    except UserError as error:
        pytest.skip(str(error))
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")
    assert (width, height) == pytest.approx((2 * float(found[1]), 2 * float(found[2])), abs=2)
