"""The image: well-formed whatever the text, every step and edge once, nothing on top of anything else, and fast."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import task, workflow
from penstock.drawing.svg import svg
from penstock.expressions.parse import Expr
from penstock.graph.model import Container, Edge, ForEach, Nested, Outcome, While, Workflow
from tests.drawing.test_text import DIAMOND, NESTED, dags, step, under_seed, when
from tests.support.speed import within

NS = "{http://www.w3.org/2000/svg}"
Rect = tuple[float, float, float, float]
"""Left, top, right, bottom."""


def parse(workflow: Workflow) -> ElementTree.Element:
    return ElementTree.fromstring(svg(workflow))


def of_class(root: ElementTree.Element, tag: str, name: str) -> list[ElementTree.Element]:
    return [found for found in root.iter(NS + tag) if name in (found.get("class") or "").split()]


def steps_in(root: ElementTree.Element) -> dict[str, ElementTree.Element]:
    groups = of_class(root, "g", "step")
    found = {group.attrib["data-step"]: group for group in groups}
    assert len(found) == len(groups)
    return found


def edges_in(root: ElementTree.Element) -> list[tuple[str, str]]:
    return sorted((path.attrib["data-from"], path.attrib["data-to"]) for path in of_class(root, "path", "edge"))


def rect(element: ElementTree.Element) -> Rect:
    x, y, width, height = (float(element.attrib[name]) for name in ("x", "y", "width", "height"))
    return x, y, x + width, y + height


def border(group: ElementTree.Element) -> Rect:
    """A step's own box, not the second one that hints at a fan-out, nor those of the steps inside."""
    own = [child for child in group.findall(NS + "rect") if "box" in child.attrib["class"].split()]
    (found,) = [child for child in own if "many" not in child.attrib["class"].split()]
    return rect(found)


def overlap(a: Rect, b: Rect) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def contains(outer: Rect, inner: Rect) -> bool:
    return outer[0] <= inner[0] and outer[1] <= inner[1] and inner[2] <= outer[2] and inner[3] <= outer[3]


def check_boxes(root: ElementTree.Element) -> None:
    """Steps of one workflow lie apart; those of a nested one inside the box of its step; all of it inside the image."""
    borders = {name: border(group) for name, group in steps_in(root).items()}
    image = (0.0, 0.0, float(root.attrib["width"]), float(root.attrib["height"]))
    names = list(borders)
    for i, name in enumerate(names):
        assert contains(image, borders[name])
        around, _, _ = name.rpartition("/")
        if around:
            assert contains(borders[around], borders[name])
        for other in names[:i]:
            if other.rpartition("/")[0] == around:
                assert not overlap(borders[name], borders[other])


# -- what is drawn ----------------------------------------------------------------------------------------------------


@given(dags())
def test_any_graph_is_well_formed_with_every_step_and_edge_once(workflow: Workflow) -> None:
    root = parse(workflow)
    assert set(steps_in(root)) == {step.name for step in (*workflow.steps, *workflow.on_exit)}
    assert edges_in(root) == sorted((edge.step, step.name) for step in workflow.steps for edge in step.needs)
    check_boxes(root)


@given(dags())
def test_edges_lead_to_the_right(workflow: Workflow) -> None:
    root = parse(workflow)
    borders = {name: border(group) for name, group in steps_in(root).items()}
    for up, down in edges_in(root):
        assert borders[up][2] < borders[down][0]
    for path in of_class(root, "path", "edge"):
        start = re.match(r"M([\d.]+) ([\d.]+)", path.attrib["d"])
        assert start is not None
        _, top, right, bottom = borders[path.attrib["data-from"]]
        assert float(start[1]) == pytest.approx(right, abs=0.2)
        assert top < float(start[2]) < bottom


def test_columns_follow_the_longest_path() -> None:
    root = parse(Workflow(name="w", steps=(step("a"), step("b", "a"), step("c", "b", "a"), step("d", "a"))))
    left = {name: border(group)[0] for name, group in steps_in(root).items()}
    assert left["a"] < left["b"] == left["d"] < left["c"]


def test_a_long_edge_goes_around_the_boxes_between() -> None:
    chain = [step("s0"), *(step(f"s{i}", f"s{i - 1}") for i in range(1, 6))]
    root = parse(Workflow(name="w", steps=(*chain, step("end", "s5", "s0"))))
    (path,) = [
        found
        for found in of_class(root, "path", "edge")
        if found.get("data-from") == "s0" and found.get("data-to") == "end"
    ]
    # It is level where it passes the others, and there it is below or above all of them.
    level = re.search(r"C[\d. ]+ ([\d.]+)H", path.attrib["d"])
    assert level is not None
    for name, group in steps_in(root).items():
        if name in {"s1", "s2", "s3", "s4"}:
            _, top, _, bottom = border(group)
            assert not top <= float(level[1]) <= bottom


def test_crossings_that_can_be_avoided_are_avoided() -> None:
    tops = [step(f"t{i}") for i in range(6)]
    root = parse(Workflow(name="w", steps=(*tops, *(step(f"u{i}", f"t{5 - i}") for i in range(6)))))
    middle = {name: border(group)[1] for name, group in steps_in(root).items()}
    by_height = sorted(range(6), key=lambda i: middle[f"t{i}"])
    assert by_height == sorted(range(6), key=lambda i: middle[f"u{5 - i}"])


def test_nested_workflows_lie_inside_a_double_border_and_loops_are_marked() -> None:
    root = parse(NESTED)
    steps = steps_in(root)
    assert set(steps) == {
        "start",
        "one",
        "one/fit",
        "one/score",
        "one/tidy",
        "two",
        "two/fit",
        "two/score",
        "two/tidy",
        "end",
        "notify",
    }
    check_boxes(root)
    assert {
        name for name, group in steps.items() if any(r.get("class") == "inner" for r in group.findall(NS + "rect"))
    } == {"one", "two"}
    assert {
        name for name, group in steps.items() if any(p.get("class") == "turn" for p in group.findall(NS + "path"))
    } == {"one"}


def test_exit_handlers_stand_to_the_right_of_everything_in_a_frame() -> None:
    reads = step("log", when=Expr.of('steps.a.outcome == "failed"'))
    root = parse(Workflow(name="w", steps=DIAMOND.steps, on_exit=(step("tidy"), reads)))
    borders = {name: border(group) for name, group in steps_in(root).items()}
    (frame,) = map(rect, of_class(root, "rect", "frame"))
    assert all(contains(frame, borders[name]) for name in ("tidy", "log"))
    assert all(borders[name][2] < frame[0] for name in "abcd")
    assert ("a", "log") in edges_in(root)


def test_badges_dashes_and_labels() -> None:
    each = ForEach(axes=({"x": (1, 2, 3)},))
    steps = (
        step("many", each=each),
        step("maybe", "many", when=Expr.of("params.x")),
        step("mend", Edge("many", frozenset({Outcome.FAILED, Outcome.ERRORED}))),
        step("round", "many", loop=While(condition=Expr.of("outputs.x"), max_iterations=7)),
    )
    root = parse(Workflow(name="w", steps=steps))
    badges = {
        name: [t.text for t in group.findall(NS + "text") if t.get("class") == "count"]
        for name, group in steps_in(root).items()
    }
    assert badges == {"many": ["×3"], "maybe": [], "mend": [], "round": ["≤7"]}
    assert {name for name, group in steps_in(root).items() if of_class(group, "rect", "maybe")} == {"maybe"}
    assert [text.text for text in of_class(root, "text", "pilltext")] == ["failed, errored"]
    assert [path.attrib["data-to"] for path in of_class(root, "path", "asked")] == ["mend"]


def test_labels_of_edges_do_not_lie_on_each_other() -> None:
    failed = frozenset({Outcome.FAILED})
    ups = [step(f"s{i}") for i in range(9)]
    downs = [step(f"t{j}", *(Edge(up.name, failed) for up in ups)) for j in range(3)]
    pills = [rect(found) for found in of_class(parse(Workflow(name="w", steps=(*ups, *downs))), "rect", "pill")]
    assert len(pills) == 27
    assert not any(overlap(a, b) for i, a in enumerate(pills) for b in pills[:i])


def test_long_names_are_cut_and_kept_in_the_title() -> None:
    name = "a-very-long-name-" * 7
    (group,) = steps_in(parse(Workflow(name="w", steps=(step(name),)))).values()
    (shown,) = [text.text or "" for text in group.findall(NS + "text") if text.get("class") == "name"]
    assert shown.endswith("…")
    assert name.startswith(shown[:-1])
    title = group.find(NS + "title")
    assert title is not None
    assert (title.text or "").splitlines()[0] == name
    left, _, right, _ = border(group)
    assert right - left < 320


def test_a_workflow_from_python() -> None:
    @task(cpu=2)
    def prepare(source: str) -> list[str]: ...

    @task(gpu=8, replicas=4)
    def train(shard: str) -> float: ...

    @workflow(queue="team-a")
    def finetune(source: str):
        shards = prepare(source)
        return [train(shard) for shard in shards]

    root = parse(finetune.graph)
    assert edges_in(root) == [("prepare", "train")]
    texts = [text.text for text in root.iter(NS + "text")]
    assert "2 steps · queue team-a" in texts
    assert "function · 8 gpu ×4 replicas" in texts


def test_no_steps_and_only_exit_handlers() -> None:
    assert "no steps" in [text.text for text in parse(Workflow(name="w")).iter(NS + "text")]
    root = parse(Workflow(name="w", on_exit=(step("tidy"),)))
    check_boxes(root)
    assert set(steps_in(root)) == {"tidy"}
    (frame,) = of_class(root, "rect", "frame")
    (heading,) = of_class(root, "text", "head")
    assert frame.attrib["x"] == heading.attrib["x"]


def test_a_cycle_is_drawn_without_the_edge_that_closes_it() -> None:
    root = parse(Workflow(name="w", steps=(step("a", "b"), step("b", "a"), step("c", "b"))))
    assert edges_in(root) == [("a", "b"), ("b", "c")]


# -- text from others -------------------------------------------------------------------------------------------------


@given(st.text(st.characters(exclude_categories=()), max_size=60))
def test_no_text_breaks_the_image(text: str) -> None:
    steps = (
        step("a", doc=text, action=Container(image=text), when=when(text.encode("utf-8", "ignore").decode())),
        step("b", "a", action=Nested(name=text)),
    )
    root = parse(Workflow(name="w", steps=steps, queue=text))
    plain = parse(
        Workflow(
            name="w", steps=(step("a", doc="x", when=when("x")), step("b", "a", action=Nested(name="x"))), queue="x"
        )
    )
    assert [element.tag for element in root.iter()] == [element.tag for element in plain.iter()]
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", svg(Workflow(name="w", steps=steps)))


def test_markup_is_shown_as_it_is_written() -> None:
    root = parse(Workflow(name="w", steps=(step("a", doc='<script>alert("x")</script> & more'),)))
    titles = [title.text or "" for title in root.iter(NS + "title")]
    assert titles[1].endswith('<script>alert("x")</script> & more')
    assert not list(root.iter(NS + "script"))


def test_the_image_stands_alone() -> None:
    text = svg(NESTED)
    assert "prefers-color-scheme:dark" in text
    assert re.findall(r"https?://[^\"]+", text) == ["http://www.w3.org/2000/svg"]
    assert not re.search(r"<script|<image|<a |href|@import|url\(|\sid=|\son\w+=", text)


def test_the_same_bytes_for_every_hash_seed() -> None:
    code = "import tests.drawing.test_svg as t; print(t.svg(t.NESTED), t.svg(t.DIAMOND), t.svg(t.layers(300)))"
    assert len({under_seed(code, seed) for seed in (0, 1, 2)}) == 1


# -- size -------------------------------------------------------------------------------------------------------------


def layers(size: int) -> Workflow:
    """Each step reads two or three earlier ones, mostly near, some far: no randomness, no regularity."""
    steps = []
    for i in range(size):
        ups = {(i * 7 + 3) % i, max(0, i - 5 - i % 11), max(0, i - 1 - i % 17)} if i else set()
        steps.append(step(f"s{i}", *(f"s{up}" for up in sorted(ups))))
    return Workflow(name="layers", steps=tuple(steps))


def chain(size: int) -> Workflow:
    """Each step reads the one before it and the first: the edges' lengths add up to a square."""
    steps = [step("s0"), *(step(f"s{i}", *dict.fromkeys((f"s{i - 1}", "s0"))) for i in range(1, size))]
    return Workflow(name="chain", steps=tuple(steps))


def ladder(size: int) -> Workflow:
    """A chain whose steps read every 100th of those before: many lanes, each of them long."""
    steps = [
        step(f"s{i}", *dict.fromkeys([f"s{j}" for j in range(0, i, 100)] + [f"s{i - 1}"] * (i > 0)))
        for i in range(size)
    ]
    return Workflow(name="ladder", steps=tuple(steps))


def star(size: int) -> Workflow:
    middle = [step(f"s{i}", "source") for i in range(size - 2)]
    return Workflow(name="star", steps=(step("source"), *middle, step("sink", *(s.name for s in middle))))


@pytest.mark.parametrize("shape", [layers, chain, ladder, star])
def test_two_thousand_steps_take_less_than_two_seconds(shape: object) -> None:
    large = shape(2000)  # type: ignore[operator]
    with within(2):
        text = svg(large)
    assert len(text) < 4_000_000
    root = ElementTree.fromstring(text)
    assert len(steps_in(root)) == 2000
    assert len(edges_in(root)) == sum(len(step.needs) for step in large.steps)


def test_twenty_thousand_steps_are_still_drawn() -> None:
    text = svg(layers(20_000))
    assert text.count('<g class="step"') == 20_000
    assert len(text) < 25_000_000


def test_definitions_that_double_at_each_level_stay_bounded() -> None:
    definitions = [
        Workflow(name=f"d{i}", steps=tuple(step(f"s{j}", action=Nested(name=f"d{i + 1}")) for j in range(2)))
        for i in range(60)
    ]
    root = parse(Workflow(name="w", steps=(step("s", action=Nested(name="d0")),), definitions=tuple(definitions)))
    assert 1000 < len(steps_in(root)) <= 50_000
