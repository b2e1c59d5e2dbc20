"""Mermaid, DOT and the terminal tree: every step and edge once, and no text that breaks out of its label."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import task, workflow
from penstock.drawing.text import MOST_BOXES, dot, fan_out, mermaid, picture, tree
from penstock.expressions.parse import Expr, quote
from penstock.graph.labels import cut
from penstock.graph.model import (
    Container,
    Edge,
    ForEach,
    Http,
    Nested,
    Outcome,
    Step,
    Suspend,
    While,
    Workflow,
)

GI = 1000 * 2**30


def step(name: str, *after: str | Edge, **fields: object) -> Step:
    needs = tuple(Edge(up) if isinstance(up, str) else up for up in after)
    return Step(**{"name": name, "action": Container(image="python:3.12"), "needs": needs, **fields})


def when(text: str) -> Expr:
    return Expr.of(f"params.x == {quote(text)}")


DIAMOND = Workflow(name="diamond", steps=(step("a"), step("b", "a"), step("c", "a"), step("d", "b", "c")))
INNER = Workflow(name="inner", steps=(step("fit"), step("score", "fit")), on_exit=(step("tidy"),))
NESTED = Workflow(
    name="outer",
    steps=(
        step("start"),
        step(
            "one", "start", action=Nested(name="inner"), loop=While(condition=Expr.of("outputs.x"), max_iterations=10)
        ),
        step("two", "start", action=Nested(name="inner")),
        step("end", "one", "two"),
    ),
    on_exit=(step("notify", action=Http(url="https://example.org")),),
    definitions=(INNER,),
)
"""One definition, called twice; a step with the name of a Mermaid keyword."""


@st.composite
def dags(draw: st.DrawFn) -> Workflow:
    """Any shape, any outcomes on the edges, some steps conditional or repeated."""
    size = draw(st.integers(0, 14))
    steps = []
    for i in range(size):
        ups = draw(st.lists(st.integers(0, i - 1), unique=True, max_size=4)) if i else []
        outcomes = st.frozensets(st.sampled_from(Outcome), min_size=1)
        edges = [Edge(f"s{up}", draw(outcomes)) if draw(st.booleans()) else Edge(f"s{up}") for up in ups]
        items = draw(st.none() | st.integers(0, 9))
        steps.append(
            step(
                f"s{i}",
                *edges,
                each=None if items is None else ForEach(axes=({"x": tuple(range(items))},)),
                when=when("x") if draw(st.booleans()) else None,
            )
        )
    shuffled = draw(st.permutations(steps))
    cut_at = draw(st.integers(0, 2))
    handlers = tuple(step(f"h{i}") for i in range(cut_at))
    return Workflow(name="any", steps=tuple(shuffled), on_exit=handlers)


# -- the tree ---------------------------------------------------------------------------------------------------------


def test_tree_of_a_diamond_shows_each_step_once_and_what_it_waits_for() -> None:
    assert tree(DIAMOND).splitlines() == [
        "diamond",
        "├─ a  container",
        "├─ b  container · after a",
        "├─ c  container · after a",
        "└─ d  container · after b, c",
    ]


def test_tree_nests_workflows_and_exit_handlers() -> None:
    assert tree(NESTED).splitlines() == [
        "outer",
        "├─ start  container",
        "├─ one    workflow inner · while ≤10 · after start",
        "│  ├─ fit    container",
        "│  ├─ score  container · after fit",
        "│  └─ on exit",
        "│     └─ tidy  container",
        "├─ two    workflow inner · after start",
        "│  ├─ fit    container",
        "│  ├─ score  container · after fit",
        "│  └─ on exit",
        "│     └─ tidy  container",
        "├─ end    container · after one, two",
        "└─ on exit",
        "   └─ notify  http",
    ]


def test_tree_words_resources_conditions_and_outcomes() -> None:
    train = step(
        "train",
        Edge("prepare", frozenset({Outcome.ERRORED, Outcome.FAILED})),
        when=Expr.of("params.rows > 1000"),
        each=ForEach(axes=({"lr": (0.1, 0.01, 0.001)},)),
        resources={"nvidia.com/gpu": 8000, "memory": 4 * GI, "cpu": 2000, "ephemeral-storage": 0},
        replicas=4,
    )
    line = tree(Workflow(name="w", steps=(step("prepare"), train))).splitlines()[2]
    assert line == (
        "└─ train ×3  container · 2 cpu, 4Gi memory, 8 gpu ×4 replicas · when params.rows > 1000"
        " · after prepare (failed, errored)"
    )


def test_tree_lists_steps_behind_what_they_wait_for_even_if_written_first() -> None:
    lines = tree(Workflow(name="w", steps=(step("late", "early"), step("early")))).splitlines()
    assert [line.split()[1] for line in lines[1:]] == ["early", "late"]


def test_tree_counts_a_long_list_of_upstreams_instead_of_naming_all() -> None:
    many = [step(f"s{i}") for i in range(500)]
    last = tree(Workflow(name="w", steps=(*many, step("sink", *(s.name for s in many))))).splitlines()[-1]
    assert last.endswith("and 492 more")
    assert len(last) < 120


def test_tree_of_nothing_says_so() -> None:
    assert tree(Workflow(name="empty")) == "empty\n└─ no steps\n"


def test_tree_shows_no_control_characters() -> None:
    hostile = Workflow(name="w\x1b[2J", steps=(step("a", action=Nested(name="x\ny\x1b[31m\u202e")),))
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", tree(hostile))
    assert len(tree(hostile).splitlines()) == 2


# -- fan-out ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("axes", "shown"),
    [
        (({"a": (1, 2, 3)},), "×3"),
        (({"a": (1, 2, 3), "b": (4, 5, 6)},), "×3"),
        (({"a": (1, 2, 3)}, {"b": (1, 2)}), "×6"),
        (({"a": ()},), "×0"),
        (({"a": Expr.of("range(5)")},), "×5"),
        (({"a": Expr.of("range(2, 12, 3)")},), "×4"),
        (({"a": Expr.of("range(9, 0, -2)")},), "×5"),
        (({"a": Expr.of("range(5, 2)")},), "×0"),
        (({"a": Expr.of("range(0, 5, 0)")},), "×?"),
        (({"a": Expr.of("[1, 2]")},), "×2"),
        (({"a": Expr.of("range(params.n)")},), "×?"),
        (({"a": Expr.of("steps.prepare.outputs.shards")},), "×?"),
        (({"a": (1, 2)}, {"b": Expr.of("item.a")}), "×?"),
        (({"a": Expr.of("params.names"), "b": (1, 2)},), "×2"),
        (({"a": Expr.of("range(20000)")},), "×20,000"),
        (({"a": Expr.of("range(9000000000000000000)")}, {"b": Expr.of("range(9000000000000000000)")}), "×many"),
    ],
)
def test_fan_out(axes: tuple[dict[str, object], ...], shown: str) -> None:
    assert fan_out(step("a", each=ForEach(axes=axes))) == shown


@given(st.integers(-50, 50), st.integers(-50, 50), st.integers(-7, 7).filter(bool))
def test_fan_out_of_a_range_is_its_length(start: int, stop: int, by: int) -> None:
    each = ForEach(axes=({"a": Expr.of(f"range({start}, {stop}, {by})")},))
    assert fan_out(step("a", each=each)) == f"×{len(range(start, stop, by))}"


# -- Mermaid ----------------------------------------------------------------------------------------------------------

MERMAID_NODE = re.compile(r"\s+(n\d+)(?:\[\"|\(\[\"|\[\[\")")
MERMAID_EDGE = re.compile(r"\s+(n\d+) (?:-->|-\.->\|\"[a-z, ]+\"\|) (n\d+)\Z")


def test_mermaid_text() -> None:
    waits = step("approve", Edge("a", frozenset(Outcome)), action=Suspend(), when=Expr.of('params.who == "me"'))
    assert mermaid(Workflow(name="w", steps=(step("a"), waits))).splitlines() == [
        "---",
        'title: "w"',
        "---",
        "flowchart LR",
        '    n0["a<br/>container"]',
        '    n1(["approve<br/>suspend<br/>when params.who == #quot;me#quot;"])',
        '    n0 -.->|"any outcome"| n1',
        "    classDef conditional stroke-dasharray: 5 4",
        "    class n1 conditional",
    ]


def test_mermaid_draws_a_definition_once_for_each_step_that_calls_it() -> None:
    text = mermaid(NESTED)
    ids = re.findall(r"^\s+(?:subgraph )?(n\d+)[\[(]", text, re.M)
    assert len(ids) == len(set(ids)) == 4 + 1 + 2 * 3
    assert text.count('["fit<br/>') == 2
    assert text.count("subgraph ") == text.count("\n    end") + text.count("\n        end") == 5
    # Keywords appear as labels only.
    assert 'n3["end<br/>container"]' in text


@given(dags())
def test_mermaid_has_every_step_and_edge_once(workflow: Workflow) -> None:
    lines = mermaid(workflow).splitlines()
    nodes = [match[1] for line in lines if (match := MERMAID_NODE.match(line))]
    assert len(nodes) == len(set(nodes)) == len(workflow.steps) + len(workflow.on_exit)
    assert _named(_edges(lines, MERMAID_EDGE), workflow) == _said(workflow)


@given(st.text(), st.text())
def test_mermaid_labels_cannot_be_left(condition: str, called: str) -> None:
    hostile = Workflow(name="w", steps=(step("a", when=when(condition)), step("b", "a", action=Nested(name=called))))
    plain = Workflow(name="w", steps=(step("a", when=when("x")), step("b", "a", action=Nested(name="x"))))
    assert _skeleton(mermaid(hostile)) == _skeleton(mermaid(plain))
    for label in re.findall(r'"(.*)"', mermaid(hostile)):
        # Entities are all that is left of quotes, brackets, markup, formulas, comments, back-ticks and colons.
        assert not set(label.replace("<br/>", "")) & set('"<>[]{}|`$&%:\\')
        assert all(re.fullmatch(r"#(\d+|quot|lt|gt|amp);", found) for found in re.findall(r"#[^;]*;?", label))


@pytest.mark.parametrize("text", ["$$x$$", "fa:fa-bell", r"a\nb"])
def test_mermaid_breaks_up_what_it_would_read_after_decoding(text: str) -> None:
    decoded = re.sub(
        r"#(\d+);", lambda match: chr(int(match[1])), mermaid(Workflow(name="w", steps=(step("a", when=when(text)),)))
    )
    assert text not in decoded
    assert text in decoded.replace("\u200b", "").replace("\\\\", "\\")


# -- Graphviz ---------------------------------------------------------------------------------------------------------

DOT_EDGE = re.compile(r"\s+(n\d+) -> (n\d+)(?: \[label=\"[a-z, ]+\", style=dashed\])?;\Z")


def test_dot_text() -> None:
    failed = step("mend", Edge("a", frozenset({Outcome.FAILED})), when=Expr.of(r'params.x == "\\ & \""'))
    lines = dot(Workflow(name="w", steps=(step("a"), failed))).splitlines()
    assert lines[0] == 'digraph "w" {'
    assert lines[4:] == [
        '    n0 [label="a\\ncontainer", style="rounded"];',
        '    n1 [label="mend\\ncontainer\\nwhen params.x == \\"\\\\\\\\ &amp; \\\\\\"\\"", style="rounded,dashed"];',
        '    n0 -> n1 [label="failed", style=dashed];',
        "}",
    ]


def test_dot_edges_of_a_nested_workflow_end_at_its_border() -> None:
    text = dot(NESTED)
    assert text.count("subgraph cluster_n1 {") == text.count("subgraph cluster_n2 {") == 1
    assert len(re.findall(r"lhead=cluster_n[12]\b", text)) == 2
    assert len(re.findall(r"ltail=cluster_n[12]\b", text)) == 2
    assert text.count("{") == text.count("}")


@given(dags())
def test_dot_has_every_step_and_edge_once(workflow: Workflow) -> None:
    lines = dot(workflow).splitlines()
    nodes = re.findall(r"^\s+(n\d+) \[label=", "\n".join(lines), re.M)
    assert len(nodes) == len(set(nodes)) == len(workflow.steps) + len(workflow.on_exit)
    assert _named(_edges(lines, DOT_EDGE), workflow) == _said(workflow)


@given(st.text(), st.text())
def test_dot_strings_cannot_be_left(condition: str, called: str) -> None:
    hostile = Workflow(name="w", steps=(step("a", when=when(condition)), step("b", "a", action=Nested(name=called))))
    plain = Workflow(name="w", steps=(step("a", when=when("x")), step("b", "a", action=Nested(name="x"))))
    assert _skeleton(dot(hostile)) == _skeleton(dot(plain))


# -- all of them ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("draw", [mermaid, dot, tree])
def test_a_workflow_from_python(draw: object) -> None:
    @task(cpu=2, memory="4Gi")
    def prepare(source: str) -> list[str]: ...

    @task(gpu=8, replicas=4)
    def train(shard: str) -> float: ...

    @workflow
    def finetune(source: str):
        shards = prepare(source)
        return [train(shard) for shard in shards]

    text = draw(finetune.graph)  # type: ignore[operator]
    assert "train ×?" in text
    assert "2 cpu, 4Gi memory" in text
    assert "8 gpu ×4 replicas" in text


@pytest.mark.parametrize("draw", [mermaid, dot, tree])
def test_what_check_would_refuse_is_still_drawn(draw: object) -> None:
    steps = (
        step("a", "b", "nowhere"),
        step("b", "a", "b"),
        step("again", action=Nested(name="again")),
        step("missing", action=Nested(name="missing")),
        step("nothing", action=Nested(name="nothing")),
    )
    again = Workflow(name="again", steps=(step("inner", action=Nested(name="again")),))
    text = draw(Workflow(name="w", steps=steps, definitions=(again, Workflow(name="nothing"))))  # type: ignore[operator]
    assert all(name in text for name in ("a", "b", "again", "missing", "nothing", "inner"))
    assert "nowhere" not in text
    assert text.count("inner") == 1  # a workflow that calls itself is opened once


@pytest.mark.parametrize("draw", [mermaid, dot, tree])
def test_definitions_that_double_at_each_level_stay_bounded(draw: object) -> None:
    definitions = [
        Workflow(name=f"d{i}", steps=tuple(step(f"s{j}", action=Nested(name=f"d{i + 1}")) for j in range(20)))
        for i in range(40)
    ]
    root = Workflow(name="w", steps=(step("s", action=Nested(name="d0")),), definitions=tuple(definitions))
    assert sum(1 for _ in picture(root).every()) <= MOST_BOXES
    assert len(draw(root)) < MOST_BOXES * 200  # type: ignore[operator]


@pytest.mark.parametrize("draw", ["mermaid", "dot", "tree"])
def test_the_same_text_for_every_hash_seed(draw: str) -> None:
    code = f"import tests.drawing.test_text as t; from penstock.drawing import text as draw; print(draw.{draw}(t.NESTED), draw.{draw}(t.DIAMOND))"
    assert len({under_seed(code, seed) for seed in (0, 1, 2)}) == 1


@given(st.text(), st.integers(2, 50))
def test_cut_keeps_to_its_length_and_one_line(text: str, longest: int) -> None:
    assert len(cut(text, longest)) <= longest
    assert len(cut(text, longest).splitlines()) <= 1


def under_seed(code: str, seed: int) -> str:
    """What `code` prints in a fresh process."""
    environment = {**os.environ, "PYTHONHASHSEED": str(seed), "PYTHONIOENCODING": "utf-8"}
    root = Path(__file__).parent.parent.parent
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=root,
        env=environment,
        capture_output=True,
        check=True,
        text=True,
        encoding="utf-8",
    ).stdout


def _edges(lines: list[str], pattern: re.Pattern[str]) -> list[tuple[str, str]]:
    return [(match[1], match[2]) for line in lines if (match := pattern.match(line))]


def _named(edges: list[tuple[str, str]], workflow: Workflow) -> list[tuple[str, str]]:
    drawn = picture(workflow)
    names = {box.id: box.step.name for box in drawn.every()}
    return sorted((names[up], names[down]) for up, down in edges)


def _said(workflow: Workflow) -> list[tuple[str, str]]:
    return sorted((edge.step, step.name) for step in workflow.steps for edge in step.needs)


def _skeleton(text: str) -> list[str]:
    """Every line with its quoted strings emptied."""
    return [re.sub(r'"(?:[^"\\]|\\.)*"', '""', line) for line in text.split("\n")]
