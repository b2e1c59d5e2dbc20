"""Tags and variables in texts: what is one, where it ends, and what is left alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.expressions.parse import ExpressionError, Node, reference, show
from penstock.formats.argo.language.tags import ROOTS, Tag, split_tags, tag_path
from penstock.formats.tekton.variables import Var, compile_cel, split_vars
from tests.graph.strategies import anything, examples
from tests.support.speed import within


def is_known(tag: Tag) -> bool:
    """As the reader takes them: expressions, and variables that begin as one of Argo's does."""
    return tag.kind == "expr" or tag.root in ROOTS


def shown(parts: list[str | Tag]) -> list[str]:
    return [part if isinstance(part, str) else f"{part.kind}<{part.body}>" for part in parts]


@pytest.mark.parametrize(
    "text, parts",
    [
        ("", []),
        ("plain", ["plain"]),
        ("{{a.b}}", ["simple<a.b>"]),
        ("{{ a.b }}", ["simple<a.b>"]),
        ("x{{a}}y{{b}}", ["x", "simple<a>", "y", "simple<b>"]),
        ("{{=1 + 1}}", ["expr<1 + 1>"]),
        ("{{= 'a}}b' }}!", ["expr<'a}}b'>", "!"]),
        ('{{={"a": {"b": 1}}}}', ['expr<{"a": {"b": 1}}>']),
        ("{{=filter(l, {# > 1})}}", ["expr<filter(l, {# > 1})>"]),
        ("{{=`}}`}}", ["expr<`}}`>"]),
        ("{{='it\\'s }}'}}", ["expr<'it\\'s }}'>"]),
        ("{{='open }}", ["expr<'open>"]),
        ("a {{ b", ["a {{ b"]),
        ("{{= a", ["{{= a"]),
        ("}} {{", ["}} {{"]),
        ("{{}}", ["simple<>"]),
        ("{{{a}}}", ["simple<{a>", "}"]),
        ("{{steps.run-{{inputs.parameters.date}}.status}}", ["simple<steps.run-{{inputs.parameters.date}}.status>"]),
        ("{{ {{a}}", ["{{ ", "simple<a>"]),
        ('{"x": {{a}}}', ['{"x": ', "simple<a>", "}"]),
        ("{{a}}{{b}}", ["simple<a>", "simple<b>"]),
        ("{{\na\n}}", ["simple<a>"]),
    ],
)
def test_tags(text: str, parts: list[str]) -> None:
    assert shown(split_tags(text)) == parts


def test_what_is_not_known_stays_text() -> None:
    text = "{{ if .Values.x }}{{inputs.parameters.a}}{{- end }} {{ jinja | upper }} {{=1}} {{item}}"
    assert shown(split_tags(text, is_known)) == [
        "{{ if .Values.x }}",
        "simple<inputs.parameters.a>",
        "{{- end }} {{ jinja | upper }} ",
        "expr<1>",
        " ",
        "simple<item>",
    ]
    assert split_tags("{{ .token }}", is_known) == ["{{ .token }}"]


@pytest.mark.parametrize(
    "body, path",
    [
        ("item", ("item",)),
        ("steps.a-b.outputs.parameters.x_1", ("steps", "a-b", "outputs", "parameters", "x_1")),
        ("inputs.parameters['a b']", ("inputs", "parameters", "a b")),
        ('steps["a-b"].outputs.result', ("steps", "a-b", "outputs", "result")),
        (" workflow.name ", ("workflow", "name")),
        ("item[0]", ("item", "0")),
        ("steps['a']['b']", ("steps", "a", "b")),
        ("workflow.annotations.example.io/owner", ("workflow", "annotations", "example.io/owner")),
        ("workflow.labels.app", ("workflow", "labels", "app")),
        ("workflow.creationTimestamp.RFC3339", ("workflow", "creationTimestamp", "RFC3339")),
        ("outputs.parameters.a.path", ("outputs", "parameters", "a", "path")),
    ],
)
def test_paths(body: str, path: tuple[str, ...]) -> None:
    assert tag_path(body) == path


@pytest.mark.parametrize(
    "body, position",
    [
        ("", 0),
        ("a.", 2),
        (".a", 0),
        ("a..b", 2),
        ("a b", 1),
        ("a[", 1),
        ("a['b", 1),
        ("['a']", 0),
        ("a.['b']", 2),
        ("a.{{b}}", 2),
    ],
)
def test_what_is_no_path(body: str, position: int) -> None:
    with pytest.raises(ExpressionError) as caught:
        tag_path(body)
    assert caught.value.position == position


@examples(500)
@given(
    st.lists(
        st.sampled_from(["{{", "}}", "{{=", "{", "}", "'", '"', "`", "\\", "a.b", " ", "x", "{{item}}", "é"]),
        max_size=14,
    ).map("".join)
    | anything
)
def test_nothing_of_a_text_is_lost(text: str) -> None:
    parts = split_tags(text)
    assert "".join(part if isinstance(part, str) else part.raw for part in parts) == text
    assert all(parts)
    assert not any(isinstance(one, str) and isinstance(two, str) for one, two in zip(parts, parts[1:], strict=False))
    assert "".join(part if isinstance(part, str) else part.raw for part in split_tags(text, is_known)) == text
    for part in parts:
        if isinstance(part, Tag):
            assert text.startswith(part.raw, part.start)
            try:
                tag_path(part.body)
            except ExpressionError as error:
                assert 0 <= error.position <= len(part.body)


def test_ten_thousand_tags_take_no_time() -> None:
    with within(0.5):
        for number in range(10_000):
            (tag,) = split_tags(f"{{{{steps.s{number % 500}.outputs.parameters.x}}}}")
            assert isinstance(tag, Tag)
            reference(*tag_path(tag.body))


@pytest.mark.parametrize(
    "text",
    [
        "{{" * 30_000 + "}}" * 30_000,
        "{{={ }}" * 9000,
        "{{='" * 15_000,
        "{{" * 60_000,
        "{{='}}" * 9000,
        "{{a{{" * 10_000 + "}}",
    ],
)
def test_hostile_texts_end(text: str) -> None:
    with within(3):
        split_tags(text)


# -- Tekton -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, found",
    [
        ("$(params.x)", [Var(("params", "x"))]),
        ("a$(params.x)b", ["a", Var(("params", "x"), start=1), "b"]),
        ('$(params["a.b"])', [Var(("params", "a.b"))]),
        ("$(params['a.b'])", [Var(("params", "a.b"))]),
        ("$(params.x[*])", [Var(("params", "x"), star=True)]),
        ("$(params.x[2])", [Var(("params", "x"), 2)]),
        ('$(params["x"][0])', [Var(("params", "x"), 0)]),
        ("$(params.obj.key)", [Var(("params", "obj", "key"))]),
        ("$(tasks.t.results.r)", [Var(("tasks", "t", "results", "r"))]),
        ("$(tasks.t.results.r[*])", [Var(("tasks", "t", "results", "r"), star=True)]),
        ("$(tasks.t.status)", [Var(("tasks", "t", "status"))]),
        ("$(tasks.status)", [Var(("tasks", "status"))]),
        ("$(context.pipelineRun.name)", [Var(("context", "pipelineRun", "name"))]),
        ("$(workspaces.w.path)", [Var(("workspaces", "w", "path"))]),
        ("$(results.r.path)", [Var(("results", "r", "path"))]),
        ("$(steps.s.results.r)", [Var(("steps", "s", "results", "r"))]),
        ("$(step.results.r.path)", [Var(("step", "results", "r", "path"))]),
        ("$(steps.step-a.exitCode.path)", [Var(("steps", "step-a", "exitCode", "path"))]),
        ("$(credentials.path)", [Var(("credentials", "path"))]),
        ("$$(params.x)", ["$", Var(("params", "x"), start=1)]),
        ("$(cat /tmp/x)", ["$(cat /tmp/x)"]),
        ("$(date)", ["$(date)"]),
        ("$(params)", ["$(params)"]),
        ("$(params.)", ["$(params.)"]),
        ("$(cat $(workspaces.w.path)/f)", ["$(cat ", Var(("workspaces", "w", "path"), start=6), "/f)"]),
        ("$((1 + 2))", ["$((1 + 2))"]),
        ("$(env.x)", ["$(env.x)"]),
        ("$(params.a b)", ["$(params.a b)"]),
        (
            "$(( $(params.a) + $(params.b) ))",
            ["$(( ", Var(("params", "a"), start=4), " + ", Var(("params", "b"), start=18), " ))"],
        ),
        ("", []),
        ("$", ["$"]),
        ("$(tasks.a.matrix.length)", [Var(("tasks", "a", "matrix", "length"))]),
        ("$(artifacts.path)", [Var(("artifacts", "path"))]),
        ("${params.x}", ["${params.x}"]),
    ],
)
def test_variables_of_tekton(text: str, found: list[str | Var]) -> None:
    parts = split_vars(text)
    assert [(part.path, part.index, part.star, part.start) if isinstance(part, Var) else part for part in parts] == [
        (part.path, part.index, part.star, part.start) if isinstance(part, Var) else part for part in found
    ]
    assert "".join(part.raw if isinstance(part, Var) else part for part in parts) == text


def test_unknown_variables_of_tekton_stay_text() -> None:
    parts = split_vars("$(params.a) $(params.b) $(params.c)", lambda var: var.path[1] == "b")
    assert [part.raw if isinstance(part, Var) else part for part in parts] == [
        "$(params.a) ",
        "$(params.b)",
        " $(params.c)",
    ]


def value(var: Var) -> Node:
    return reference(*var.path)


@pytest.mark.parametrize(
    "text, result",
    [
        ("'$(params.x)' == 'y'", 'params.x == "y"'),
        ("'a-$(params.x)-b' == 'y'", '"a-" + text(params.x) + "-b" == "y"'),
        ("$(params.n) > 3", "atom(params.n) > 3"),
        (
            "'$(params.x)' in ['a', 'b'] && !('$(tasks.t.results.r)' == '')",
            'params.x in ["a", "b"] && !(tasks.t.results.r == "")',
        ),
        ("'$(params.x)'.matches('^a')", 'params.x.matches("^a")'),
        ("'$(params.x)'.startsWith('a') || true", 'params.x.startsWith("a") || true'),
        ("1 == 1", "1 == 1"),
        ("['$(params.a)'].exists(v, v == '$(params.b)')", "[params.a].exists(v, v == params.b)"),
        ("'var_0_' == '$(params.x)'", '"var_0_" == params.x'),
    ],
)
def test_cel_of_tekton(text: str, result: str) -> None:
    assert show(compile_cel(text, value)) == result


@pytest.mark.parametrize(
    "text, position",
    [("'$(params.x)' = 'y'", 14), ("'$(params.x)' == f('y')", 17), ("$(params.x) $(params.y)", 12), ("", 0)],
)
def test_mistakes_in_the_cel_of_tekton_have_their_place(text: str, position: int) -> None:
    with pytest.raises(ExpressionError) as caught:
        compile_cel(text, value)
    assert caught.value.position == position


@examples(400)
@given(
    st.lists(
        st.sampled_from(
            ["$(", ")", "$", "params.", "x", "[", "]", "*", "0", "'", '"', "$(params.x)", " ", "==", "tasks.a", "\\"]
        ),
        max_size=12,
    ).map("".join)
    | anything
)
def test_nothing_of_a_text_of_tekton_is_lost(text: str) -> None:
    assert "".join(part.raw if isinstance(part, Var) else part for part in split_vars(text)) == text
    try:
        compile_cel(text, value)
    except ExpressionError as error:
        assert 0 <= error.position <= len(text)
