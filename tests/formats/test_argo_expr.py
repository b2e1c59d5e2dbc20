"""Expressions in Argo's words: written, read back by the reader of expr-lang, they have the same value."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.expressions.evaluate import EvaluationError, evaluate, to_text
from penstock.expressions.parse import Expr, Node, parse, reference
from penstock.expressions.template import Template
from penstock.expressions.types import Type
from penstock.expressions.types import parse as type_of
from penstock.formats.argo.language.depends import compile_depends
from penstock.formats.argo.language.translate import UnknownVariable, compile_expr
from penstock.formats.argo.write.depends import task_text, trigger_text
from penstock.formats.argo.write.expr import ExprWriter, condition, text_of
from penstock.formats.argo.write.variables import ArgoVariable, NotInArgo, string, tagged
from penstock.graph.model import NORMAL, Outcome

TYPES = {
    "i": "int",
    "j": "int",
    "f": "float",
    "s": "str",
    "t-u": "str",
    "b": "bool",
    "l": "list[int]",
    "ls": "list[str]",
    "d": "dict[int]",
    "a": "any",
}


def find(path: tuple[str, ...]) -> ArgoVariable | None:
    """Every parameter is text, and some are what a loop has given."""
    if path[0] == "params" and path[1] in TYPES:
        return ArgoVariable(("inputs", "parameters", path[1]), type_of(TYPES[path[1]]), 2)
    if path[0] == "steps":
        gathered = path[1] == "many"
        type_ = type_of("list[int]") if gathered else Type("int")
        return ArgoVariable(("tasks", path[1], "outputs", "parameters", path[3]), type_, 4, gathered)
    return None


def read_back(code: str) -> Node:
    def resolve(names: tuple[str, ...]) -> Node:
        if names[0] in ("inputs", "tasks") and len(names) in (3, 5):
            return reference("texts", names[-1])
        raise UnknownVariable(names)

    return compile_expr(code, resolve)


def values_of(**values: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """What our expression sees, and what Argo's does."""
    texts = {name: to_text(value) for name, value in values.items()}
    return {"params": values}, {"texts": texts}


VALUES = {
    "i": 7,
    "j": -2,
    "f": 2.5,
    "s": "abc",
    "t-u": "x'y\"z",
    "b": True,
    "l": [3, 1, 2],
    "ls": ["a", "b"],
    "d": {"k": 1, "m-n": 2},
    "a": "word",
}


@pytest.mark.parametrize(
    "text",
    [
        "params.i + params.j * 3",
        "params.i / params.j",
        "params.i % params.j",
        "-params.i",
        "params.f * 2.0 - 1.5",
        "params.i > params.j",
        'params.s == "abc"',
        'params.s + "-" + params["t-u"]',
        "!params.b || params.i == 7",
        "params.b && params.i != 7",
        "params.l[0] + 1",
        "params.l[params.l.size() - 1] / 2",
        "params.l + [4]",
        "params.i in params.l",
        '"a" in params.ls',
        '"k" in params.d',
        "params.d.k + 1",
        'params.d["m-n"]',
        "has(params.d.k)",
        "has(params.d.z)",
        "size(params.s)",
        "params.l.map(x, x * 2)",
        "params.l.filter(x, x > 1)",
        "params.l.all(x, x > 0)",
        "params.l.exists(x, x == 2)",
        'params.d.exists_one(k, k == "k")',
        "params.b ? params.i : params.j",
        'params.s.startsWith("a")',
        'params.s.contains("b")',
        'params.s.endsWith("x")',
        "string(params.i)",
        "string(params.s)",
        "int(params.f)",
        "double(params.i)",
        'bool("true")',
        "truthy(params.s)",
        "truthy(params.i)",
        "truthy(params.l)",
        "truthy(params.d)",
        "range(3)",
        "range(2, 5)",
        "range(1, 8, 3)",
        "range(params.i)",
        "min(params.i, params.j)",
        "max(params.i, 3)",
        'format(params.s, "")',
        'format(params.i, "")',
        "[params.i, params.j]",
        '{"a": params.i, "b": {"c": params.s}}',
        'params.a == "word"',
        'params.s < "b"',
        "null == null",
        '"{{x}} }}" + params.s',
        "params.l.map(x, x + params.i)",
        "params.i * (params.j + 1) - (3 - 2)",
        "default(params.i, 3)",
        "upper(params.s)",
        'join(params.ls, "-")',
    ],
)
def test_the_same_value(text: str) -> None:
    ours, theirs = values_of(**VALUES)
    code = ExprWriter(find).code(parse(text)).text
    assert "{{" not in tagged(code)[3:-2] and "}}" not in tagged(code)[3:-2]
    found = evaluate(read_back(tagged(code)[3:-2]), theirs)
    wanted = evaluate(parse(text), ours)
    assert (list(found) if isinstance(found, range) else found) == (
        list(wanted) if isinstance(wanted, range) else wanted
    )


@pytest.mark.parametrize(
    "text",
    [
        "params.i + 1",
        "params.s",
        "params.l",
        "params.d.k",
        "params.b",
        "params.f",
        '{"a": [params.s]}',
        'params.i > 3 ? params.s : "n"',
    ],
)
def test_the_same_text(text: str) -> None:
    ours, theirs = values_of(**VALUES)
    code = ExprWriter(find).as_text(parse(text))
    assert evaluate(read_back(code), theirs) == to_text(evaluate(parse(text), ours))


def test_what_a_loop_gave_is_a_list_of_texts() -> None:
    code = ExprWriter(find).code(parse("steps.many.outputs.n[1] + 1")).text
    assert evaluate(read_back(code), {"texts": {"n": '["4","5"]'}}) == 6
    text = text_of(Expr.of("steps.many.outputs.n"), find)
    assert text == "{{=toJson(map(fromJSON(tasks.many.outputs.parameters.n ?? '[]'), {asInt(#)}))}}"


def test_variables_alone_are_plain_tags() -> None:
    assert text_of(Expr.of("params.i"), find) == "{{inputs.parameters.i}}"
    assert text_of(Expr.of('params["t-u"]'), find) == "{{inputs.parameters.t-u}}"
    assert text_of(Expr.of("text(params.i)"), find) == "{{inputs.parameters.i}}"
    assert text_of(Template(("a ", Expr.of("params.i"), " b")), find) == "a {{inputs.parameters.i}} b"
    assert (
        text_of((Expr.of("params.i"), Expr.of("params.l")), find) == "[{{inputs.parameters.i}},{{inputs.parameters.l}}]"
    )
    assert text_of(("a", 1, None), find) == '["a",1,null]'
    assert condition(Expr.of('condition(text(params.s) + " == abc")'), find) == "{{inputs.parameters.s}} == abc"


@pytest.mark.parametrize("text", ["{{inputs.x}}", "a {{= 1}}", "{{ workflow.name }}", "{{item}}"])
def test_text_that_argo_would_take_for_its_own(text: str) -> None:
    with pytest.raises(NotInArgo):
        text_of(text, find)


# -- any expression ----------------------------------------------------------------------------------------------------

_INTS: st.SearchStrategy[str] = st.deferred(
    lambda: st.one_of(
        st.integers(-20, 20).map(str).map(lambda text: f"({text})"),
        st.sampled_from(["params.i", "params.j", "params.l[0]", "params.d.k", "size(params.s)", "params.l.size()"]),
        st.tuples(_INTS, st.sampled_from("+-*/%"), _INTS).map(lambda part: f"({part[0]} {part[1]} {part[2]})"),
        st.tuples(_BOOLS, _INTS, _INTS).map(lambda part: f"({part[0]} ? {part[1]} : {part[2]})"),
    )
)
_BOOLS: st.SearchStrategy[str] = st.deferred(
    lambda: st.one_of(
        st.sampled_from(["params.b", "true", "false", '"a" in params.ls', 'params.s == "abc"']),
        st.tuples(_INTS, st.sampled_from(["==", "!=", "<", "<=", ">", ">="]), _INTS).map(" ".join).map("({})".format),
        st.tuples(_BOOLS, st.sampled_from(["&&", "||"]), _BOOLS).map(lambda part: f"({part[0]} {part[1]} {part[2]})"),
        _BOOLS.map("!({})".format),
    )
)


@given(st.one_of(_INTS, _BOOLS), st.integers(-50, 50), st.integers(-50, 50), st.booleans())
@settings(max_examples=300, deadline=None)
def test_any_expression(text: str, i: int, j: int, b: bool) -> None:
    ours, theirs = values_of(**{**VALUES, "i": i, "j": j, "b": b})
    try:
        wanted = evaluate(parse(text), ours)
    except EvaluationError:
        return
    except ValueError:  # too many operators in a row
        return
    code = ExprWriter(find).code(parse(text)).text
    assert evaluate(read_back(code), theirs) == wanted


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
@settings(max_examples=200, deadline=None)
def test_any_string(text: str) -> None:
    code = tagged(string(text))[3:-2]
    assert evaluate(read_back(code), {}) == text


# -- depends -----------------------------------------------------------------------------------------------------------


def test_depends_and_back() -> None:
    for outcomes in (
        NORMAL,
        frozenset({Outcome.FAILED}),
        frozenset({Outcome.SUCCEEDED, Outcome.FAILED, Outcome.ERRORED}),
    ):
        found = compile_depends(task_text("a", outcomes), ["a"])
        assert found.needs == {"a": outcomes} and found.trigger is None
    trigger = parse(
        '(steps.a.outcome == "failed" || steps.b.outcome in ["skipped", "omitted"]) && steps.c.outcome != "succeeded"'
    )
    text = trigger_text(trigger, lambda name: name)
    assert text == "(a.Failed || (b.Skipped || b.Omitted)) && (c.Failed || c.Errored || c.Skipped || c.Omitted)"
    back = compile_depends(text, ["a", "b", "c"])
    assert back.trigger is not None
    for one in Outcome:
        for other in Outcome:
            for third in set(Outcome) - {Outcome.CANCELLED}:
                scope = {
                    "steps": {
                        name: {"outcome": value.value} for name, value in (("a", one), ("b", other), ("c", third))
                    }
                }
                assert evaluate(back.trigger, scope) == evaluate(trigger, scope)
    with pytest.raises(NotInArgo):
        trigger_text(parse("steps.a.outputs.x > 3"), lambda name: name)
    with pytest.raises(NotInArgo):
        task_text("a", frozenset({Outcome.CANCELLED}))
