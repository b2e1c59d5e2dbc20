"""Argo's `depends`: edges where edges can say it, a trigger where not, and back again."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.expressions.evaluate import evaluate
from penstock.expressions.parse import ExpressionError, parse, references, show
from penstock.formats.argo.language.depends import (
    ALL,
    RESULTS,
    Depends,
    compile_depends,
)
from penstock.formats.argo.write.depends import ALWAYS, depends_text
from penstock.formats.argo.write.variables import NotInArgo
from penstock.graph.model import NORMAL, Outcome
from tests.graph.strategies import anything, examples

NAMES = ["A", "B", "C", "task-1", "5A", "and-so-on"]
S, F, E, K, X = Outcome.SUCCEEDED, Outcome.FAILED, Outcome.ERRORED, Outcome.SKIPPED, Outcome.CANCELLED


@pytest.mark.parametrize(
    "text, needs",
    [
        ("A", {"A": NORMAL}),
        ("A && B", {"A": NORMAL, "B": NORMAL}),
        ("A.Succeeded", {"A": {S}}),
        ("A.Succeeded && (B.Failed || B.Errored)", {"A": {S}, "B": {F, E}}),
        ("A and not B.Failed", {"A": NORMAL, "B": ALL - {F}}),
        ("!(A.Failed || B.Errored)", {"A": ALL - {F}, "B": ALL - {E}}),
        ("A || A.Failed", {"A": NORMAL | {F}}),
        ("task-1.Omitted", {"task-1": {Outcome.OMITTED}}),
        ("5A", {"5A": NORMAL}),
        ("(A.Succeeded || A.Skipped || A.Daemoned) && B", {"A": {S, K}, "B": NORMAL}),
        ("A && A.Succeeded", {"A": {S}}),
        ("((A)) && (B && (C))", dict.fromkeys("ABC", NORMAL)),
        ("and-so-on", {"and-so-on": NORMAL}),
        ("A\n  && B", {"A": NORMAL, "B": NORMAL}),
        ("!!A.Failed", {"A": {F}}),
    ],
)
def test_conjunctions_are_edges(text: str, needs: dict[str, set[Outcome]]) -> None:
    found = compile_depends(text, NAMES)
    assert found.needs == needs
    assert found.trigger is None


@pytest.mark.parametrize(
    "text, trigger",
    [
        ("A || B", 'steps.A.outcome in ["succeeded", "skipped"] || steps.B.outcome in ["succeeded", "skipped"]'),
        ("A.Failed || task-1.Failed", 'steps.A.outcome == "failed" || steps["task-1"].outcome == "failed"'),
        (
            "A.Succeeded && (B.Failed || C.Failed)",
            'steps.A.outcome == "succeeded" && (steps.B.outcome == "failed" || steps.C.outcome == "failed")',
        ),
        ("!(A.Failed && B.Failed)", 'steps.A.outcome != "failed" || steps.B.outcome != "failed"'),
        ("A.Succeeded && A.Failed", "false"),
    ],
)
def test_the_rest_is_a_trigger(text: str, trigger: str) -> None:
    found = compile_depends(text, NAMES)
    assert found.trigger is not None
    assert show(found.trigger) == trigger
    assert set(found.needs.values()) == {ALL}


def test_continue_on_widens_a_bare_name() -> None:
    widened = {"A": frozenset({F, E})}
    assert compile_depends("A && B", NAMES, widened).needs == {"A": NORMAL | {F, E}, "B": NORMAL}
    assert compile_depends("A.Succeeded", NAMES, widened).needs == {"A": {S}}


def test_what_looks_into_loops() -> None:
    found = compile_depends("A.AnySucceeded && B.AllFailed", NAMES).trigger
    assert found is not None
    cases = [
        (("failed", 1), ("failed", 0), True),
        (("failed", 0), ("failed", 0), False),
        (("succeeded", None), ("failed", 0), True),
        (("failed", 1), ("failed", 1), False),
    ]
    for a, b, holds in cases:
        steps = {
            name: {"outcome": outcome} | ({} if many is None else {"succeeded": many})
            for name, (outcome, many) in (("A", a), ("B", b))
        }
        assert evaluate(found, {"steps": steps}) is holds


@pytest.mark.parametrize(
    "text, position, words",
    [
        ("", 0, "empty"),
        ("A &&", 4, "missing at the end"),
        ("&& A", 0, "missing before '&&'"),
        ("A B", 2, "&& or ||"),
        ("(A", 0, "')'"),
        ("A)", 1, "cannot stand"),
        ("a", 0, "no task 'a'"),
        ("task-2", 0, 'mean "task-1"'),
        ("A.Suceeded", 0, 'mean "Succeeded"'),
        ("A & B", 2, "'&'"),
        ("A == B", 2, "'='"),
        ("A && ", 5, "missing"),
        ("A.", 1, "'.'"),
        ("('A')", 1, "no meaning"),
        ("(" * 200 + "A", 100, "deeper"),
        ("A" * 70000, 0, "more than"),
    ],
)
def test_mistakes_have_their_place_and_words(text: str, position: int, words: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        compile_depends(text, NAMES)
    assert words in str(caught.value)
    assert caught.value.position == position


def test_two_hundred_tasks() -> None:
    names = [f"t{number}" for number in range(200)]
    assert len(compile_depends(" && ".join(names), names).needs) == 200
    found = compile_depends(" || ".join(names), names)
    assert found.trigger is not None
    assert (
        evaluate(
            found.trigger, {"steps": {name: {"outcome": "failed" if name != "t199" else "succeeded"} for name in names}}
        )
        is True
    )
    assert compile_depends(written(found), names).needs == found.needs


formulas = st.recursive(
    st.builds(
        lambda name, result: f"{name}{result}",
        st.sampled_from(["A", "B", "C"]),
        st.sampled_from(["", *(f".{result}" for result in RESULTS)]),
    ),
    lambda inner: st.one_of(
        st.builds(lambda one, op, two: f"({one} {op} {two})", inner, st.sampled_from(["&&", "||"]), inner),
        inner.map(lambda one: f"!{one}" if one[0] in "(!" else f"!({one})"),
    ),
    max_leaves=6,
)


def holds(found: Depends, outcomes: dict[str, Outcome]) -> bool:
    if any(outcomes[task] not in wanted for task, wanted in found.needs.items()):
        return False
    return (
        found.trigger is None
        or evaluate(found.trigger, {"steps": {name: {"outcome": one.value} for name, one in outcomes.items()}}) is True
    )


def written(found: Depends) -> str:
    """As the writer writes it."""
    named = set() if found.trigger is None else {path[1] for path in references(show(found.trigger))}
    needs = {task: outcomes & ALWAYS for task, outcomes in found.needs.items()}
    return depends_text(needs, found.trigger, str, named)


def says(text: str, outcomes: dict[str, Outcome]) -> bool:
    """What Argo would say, straight from the text."""
    body = text.replace("&&", " and ").replace("||", " or ").replace("!", " not ")
    for name in ("A", "B", "C"):
        for result, wanted in RESULTS.items():
            body = body.replace(f"{name}.{result}", str(outcomes[name] in wanted).lower())
    for name in ("A", "B", "C"):
        body = body.replace(name, str(outcomes[name] in NORMAL).lower())
    return bool(eval(body, {"true": True, "false": False}))


@examples(150)
@given(formulas)
def test_edges_and_triggers_say_what_the_text_says_and_survive_being_written(text: str) -> None:
    found = compile_depends(text, ["A", "B", "C"])
    try:
        again = compile_depends(written(found), ["A", "B", "C"])
    except NotInArgo:
        again = found  # something that Argo cannot say, as that a task was cancelled
    for outcomes in itertools.product([S, F, E, K, Outcome.OMITTED], repeat=3):
        named = dict(zip("ABC", outcomes, strict=True))
        assert holds(found, named) is says(text, named)
        assert holds(again, named) is says(text, named)


@examples(400)
@given(
    st.lists(
        st.sampled_from(["A", "B", ".Failed", ".", "&&", "||", "!", "(", ")", " ", "and", "not", "-", "é", "'", "5A"]),
        max_size=12,
    ).map("".join)
    | anything
)
def test_any_text_is_read_or_has_a_mistake_in_it(text: str) -> None:
    try:
        compile_depends(text, NAMES)
    except ExpressionError as error:
        assert 0 <= error.position <= len(text)


# -- writing ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "needs, trigger, text",
    [
        ({}, None, ""),
        ({"A": NORMAL, "B": NORMAL}, None, "A && B"),
        ({"A": {S}}, None, "A.Succeeded"),
        ({"A": {S, F}, "B": NORMAL}, None, "(A.Succeeded || A.Failed) && B"),
        ({"A": ALL}, None, "(A.Succeeded || A.Failed || A.Errored || A.Skipped || A.Omitted)"),
        (
            {"A": ALL, "B": NORMAL},
            'steps.A.outcome == "failed" || steps.C.outcome == "failed"',
            "B && (A.Failed || C.Failed)",
        ),
        ({}, '!(steps.A.outcome == "failed" || steps.B.outcome in ["failed"])', "!(A.Failed || B.Failed)"),
        (
            {},
            'steps["task-1"].outcome in ["succeeded", "skipped"] && steps.B.outcome == "failed"',
            "(task-1.Succeeded || task-1.Skipped) && B.Failed",
        ),
        ({"A": {F, X}}, None, "A.Failed"),
    ],
)
def test_written(needs: dict[str, set[Outcome]], trigger: str | None, text: str) -> None:
    made = Depends(
        {name: frozenset(wanted) for name, wanted in needs.items()}, None if trigger is None else parse(trigger)
    )
    assert written(made) == text


@pytest.mark.parametrize(
    "needs, trigger",
    [
        ({"A": {X}}, None),
        ({"A": set()}, None),
        ({}, "params.x == 1"),
        ({}, "steps.A.outputs.x == 'failed'"),
        ({}, "steps.A.outcome == 'done'"),
        ({}, "steps.A.outcome == params.x"),
        ({}, "true"),
    ],
)
def test_what_argo_cannot_say(needs: dict[str, set[Outcome]], trigger: str | None) -> None:
    with pytest.raises(NotInArgo):
        written(
            Depends(
                {name: frozenset(wanted) for name, wanted in needs.items()}, None if trigger is None else parse(trigger)
            )
        )
