"""Argo's `when` as a condition of Penstock: the same answer, whatever the values are."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.expressions.evaluate import EvaluationError, evaluate
from penstock.expressions.parse import Call, Const, ExpressionError, Node, reference, show
from penstock.formats.argo.language.tags import Tag, split_tags
from penstock.formats.argo.language.translate import compile_expr
from penstock.formats.argo.language.when import compile_when
from tests.graph.strategies import anything, examples


def resolve(tag: Tag) -> Node:
    if tag.kind == "expr":
        return compile_expr(tag.body, lambda path: reference("inputs", path[-1]))
    return (
        Call("phase", (reference("steps", "a", "outcome"),))
        if tag.body == "steps.a.status"
        else reference("inputs", tag.body)
    )


@pytest.mark.parametrize(
    "text, result",
    [
        ("{{x}} == heads", 'inputs.x == "heads"'),
        ("{{x}} != 'a b'", 'inputs.x != "a b"'),
        ("heads == {{x}}", 'inputs.x == "heads"'),
        ("'{{x}}' == 'heads'", 'inputs.x == "heads"'),
        ('"{{x}}" == "true"', 'inputs.x == "true"'),
        ("{{x}} == true", 'inputs.x == "true"'),
        ("{{x}} == ''", 'inputs.x == ""'),
        ("'a-{{x}}' == 'a-b'", '"a-" + text(inputs.x) == "a-b"'),
        ("{{x}} > 5", "atom(inputs.x) > 5.0"),
        ("5 > {{x}}", "atom(inputs.x) < 5.0"),
        ("{{x}} == 5", "atom(inputs.x) == 5.0"),
        ("{{x}} == -1", "atom(inputs.x) == -1.0"),
        ("{{x}} == '5'", 'atom(inputs.x) == "5"'),
        ("'{{x}}' == '5'", 'inputs.x == "5"'),
        ("{{x}} < {{y}}", "atom(inputs.x) < atom(inputs.y)"),
        ("{{x}} == {{y}}", "atom(inputs.x) == atom(inputs.y)"),
        ("{{x}} =~ '^a'", 'matches(inputs.x, "^a")'),
        ("{{x}} !~ a", '!matches(inputs.x, "a")'),
        ("{{x}} in (a, b)", 'inputs.x in ["a", "b"]'),
        ("{{x}} in (1, b)", 'atom(inputs.x) in [1.0, "b"]'),
        ("!({{x}} == a)", '!(inputs.x == "a")'),
        ("{{x}} == a && {{y}} == b || true", 'inputs.x == "a" && inputs.y == "b" || true'),
        ("({{x}} == a || {{y}} == b) && true", '(inputs.x == "a" || inputs.y == "b") && true'),
        ("{{=n == 'true'}}", 'inputs.n == "true"'),
        ("{{=n}}", "condition(inputs.n)"),
        ("{{=n > 1}} && {{x}} == b", 'inputs.n > 1 && inputs.x == "b"'),
        ("{{x}}", "condition(inputs.x)"),
        (" {{x}} ", "condition(inputs.x)"),
        ("{{steps.a.status}} == Succeeded", 'steps.a.outcome == "succeeded"'),
        ("{{steps.a.status}} != Failed", '!(steps.a.outcome in ["failed", "cancelled"])'),
        ("{{steps.a.status}} == Running", 'phase(steps.a.outcome) == "Running"'),
        ("'{{steps.a.status}}' != Succeeded", 'steps.a.outcome != "succeeded"'),
        ("{{x}} % 2 == 0", 'condition(text(inputs.x) + " % 2 == 0")'),
        ("{{x}} && {{y}}", 'condition(text(inputs.x) + " && " + text(inputs.y))'),
        ("{{x}} in ({{y}})", 'condition(text(inputs.x) + " in (" + text(inputs.y) + ")")'),
        ("{{x}} {{op}} {{y}}", 'condition(text(inputs.x) + " " + text(inputs.op) + " " + text(inputs.y))'),
        ("{{x}}-b == c", 'condition(text(inputs.x) + "-b == c")'),
        ("'{{x}}' > '2024-01-01'", "condition(\"'\" + text(inputs.x) + \"' > '2024-01-01'\")"),
        ("'{{x}}' == 5", 'condition("\'" + text(inputs.x) + "\' == 5")'),
        ("{{x}} == a ? true : false", 'condition(text(inputs.x) + " == a ? true : false")'),
        ("", "true"),
        ("true", "true"),
        ("a == b", "false"),
        ("'a' == a", "true"),
    ],
)
def test_translation(text: str, result: str) -> None:
    assert show(compile_when(text, resolve)) == result


@pytest.mark.parametrize(
    "text, position",
    [
        ("1 ==", 4),
        ("{{x}} = foo", 6),
        ("a b", 2),
        ("{{x}} == 'a", 9),
        ("foo-bar", 0),
        ("{{x}} == a b", 11),
        ("{{=1 +}}", 0),
        ("a == b)", 6),
    ],
)
def test_mistakes_have_their_place(text: str, position: int) -> None:
    with pytest.raises(ExpressionError) as caught:
        compile_when(
            text,
            lambda tag: (
                Const("x")
                if tag.kind == "simple"
                else compile_expr("1 == 1", lambda path: Const(1))
                if tag.body != "1 +"
                else raises(tag)
            ),
        )
    assert caught.value.position == position


def raises(tag: Tag) -> Node:
    raise ExpressionError("no", tag.start)


WORDS = ["heads", "tails", "5", "5.0", "10", "-1", "true", "false", "True", "a_b", "0.5"]


@st.composite
def conditions(draw: st.DrawFn) -> str:
    def side() -> str:
        return draw(
            st.sampled_from(
                ["{{x}}", "{{y}}", "'{{x}}'", "heads", "5", "'5'", "true", "'heads'", "10", "0.5", "'a-{{y}}'"]
            )
        )

    def test() -> str:
        op = draw(st.sampled_from(["==", "!=", "<", ">=", "==", "=~", "in"]))
        return f"{side()} in (heads, 5, true)" if op == "in" else f"{side()} {op} {side()}"

    parts = [test() for _ in range(draw(st.integers(1, 3)))]
    text = parts[0]
    for part in parts[1:]:
        text = f"{text} {draw(st.sampled_from(['&&', '||']))} {draw(st.sampled_from(['', '!']))}({part})"
    return text


@examples(500)
@given(conditions(), st.sampled_from(WORDS), st.sampled_from(WORDS))
def test_a_translated_condition_says_what_the_text_says(text: str, x: str, y: str) -> None:
    """Where the filled-in text has a meaning, the translation has the same."""
    filled = "".join(part if isinstance(part, str) else {"x": x, "y": y}[part.body] for part in split_tags(text))
    try:
        wanted: Any = evaluate(Call("condition", (Const(filled),)), {})
    except EvaluationError:
        return
    try:
        node = compile_when(text, resolve)
    except ExpressionError:
        assert "{{" not in text
        return
    assert evaluate(node, {"inputs": {"x": x, "y": y}}) is wanted, (show(node), filled)


@examples(600)
@given(
    st.lists(
        st.sampled_from(
            [
                "{{x}}",
                "{{=n}}",
                "{{",
                "}}",
                "==",
                "=",
                "&&",
                "(",
                ")",
                "'",
                '"',
                "heads",
                " ",
                "5",
                "in",
                ",",
                "!",
                "=~",
                "[",
                "-",
                "tag0q",
                "?",
                ":",
            ]
        ),
        max_size=12,
    ).map("".join)
    | anything
)
def test_any_text_is_translated_or_has_a_mistake_in_it(text: str) -> None:
    try:
        node = compile_when(text, resolve)
    except ExpressionError as error:
        assert 0 <= error.position <= len(text)
        return
    with contextlib.suppress(EvaluationError):
        evaluate(node, {"inputs": {"x": "a", "n": "true"}})
