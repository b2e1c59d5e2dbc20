"""Conditions that cannot hold: never a false alarm, and the usual mistakes are found."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.expressions.evaluate import EvaluationError, evaluate
from penstock.expressions.infer import TypeMismatch, infer
from penstock.expressions.parse import Binary, Choice, Const, Expr, ListOf, Node, Unary, path_of, reference, show
from penstock.expressions.satisfy import never
from penstock.expressions.types import ANY, Type, parse
from tests.graph.strategies import examples

TYPES = {
    name: parse(text)
    for name, text in {"i": "int", "f": "float", "s": "str", "b": "bool", "x": "any", "c": "str", "k": "int"}.items()
}
CHOICES: dict[str, tuple[Any, ...]] = {"c": ("red", "green"), "k": (1, 5)}
GRID: dict[str, list[Any]] = {
    "i": [-1, 0, 1, 2, 3, 4, 5, 6],
    "f": [-1.0, 0.0, 1, 1.5, 3.5, 4.0, 5.5, float("nan"), float("inf"), float("-inf")],
    "s": ["", "a", "b", "red"],
    "b": [True, False],
    "x": [None, True, 1, 3.5, "a", float("nan"), [1]],
    "c": list(CHOICES["c"]),
    "k": list(CHOICES["k"]),
}


def find(path: tuple[str, ...]) -> tuple[Type, int] | None:
    return (TYPES[path[1]], 2) if path[0] == "params" and len(path) > 1 else None


def type_of(node: Node) -> Type:
    try:
        return infer(node, find)
    except TypeMismatch:
        return ANY


def choices_of(node: Node) -> tuple[Any, ...]:
    path = path_of(node)
    return CHOICES.get(path[1], ()) if path is not None and len(path) == 2 else ()


def is_never(node: Node) -> bool:
    return never(node, type_of, choices_of)


def holds(node: Node, params: dict[str, Any]) -> bool:
    try:
        return evaluate(node, {"params": params}) is True
    except EvaluationError:
        return False


constants = st.sampled_from([0, 1, 3, 4, 5, 1.5, 3.5, "", "a", "red", "blue", True, False, None]).map(Const)


@functools.cache
def conditions_on(names: tuple[str, ...]) -> st.SearchStrategy[Node]:
    terms = st.sampled_from([reference("params", name) for name in names])
    numbers = st.one_of(terms, st.builds(Binary, st.just("+"), terms, constants), st.builds(Unary, st.just("-"), terms))
    orders = st.sampled_from(["<", "<=", ">", ">=", "==", "!="])
    lists = st.lists(constants, max_size=3).map(lambda items: ListOf(tuple(items)))
    atoms = st.one_of(
        st.builds(Binary, orders, numbers, constants),
        st.builds(Binary, orders, constants, numbers),
        st.builds(Binary, st.just("in"), terms, lists),
        st.builds(Binary, st.sampled_from(["==", "<"]), terms, terms),
        terms,
        constants,
    )
    return st.recursive(
        atoms,
        lambda inner: st.one_of(
            st.builds(Binary, st.sampled_from(["&&", "&&", "||"]), inner, inner),
            st.builds(Unary, st.just("!"), inner),
            st.builds(Choice, inner, inner, inner),
        ),
        max_leaves=6,
    )


@st.composite
def conditions(draw: st.DrawFn) -> tuple[Node, tuple[str, ...]]:
    """A condition on one or two parameters, and which ones: few enough to try every value."""
    names = draw(
        st.sampled_from([*itertools.combinations(sorted(TYPES), 1), *itertools.combinations(sorted(TYPES), 2)])
    )
    return draw(conditions_on(names)), names


@examples(1200)
@given(conditions())
def test_what_is_said_never_to_hold_never_holds(condition: tuple[Node, tuple[str, ...]]) -> None:
    node, names = condition
    if is_never(node):
        for values in itertools.product(*(GRID[name] for name in names)):
            params = dict(zip(names, values, strict=True))
            assert not holds(node, params), f"{show(node)} holds for {params}"


@pytest.mark.parametrize(
    "text",
    [
        "params.i > 5 && params.i < 3",
        "params.f > 5.0 && params.f < 3.0",
        "params.x > 5 && params.x < 3",
        "params.i == 1 && params.i == 2",
        "params.i == 1 && params.i != 1",
        "params.s == 'a' && params.s == 'b'",
        "params.b && !params.b",
        "params.i > 3 && params.i < 4",
        "params.i > 3 && 4 > params.i",
        "params.f > 3.0 && params.f < 3.0",
        "params.f >= 3.0 && params.f < 3.0",
        "params.i >= 4 && params.i <= 3",
        "params.i > 5 && !(params.i > 3)",
        "params.f > 5.0 && !(params.f > 3.0)",
        "!(params.i > 5) && !(params.i <= 5)",
        "params.f > 5.0 && !(params.f > 5.0)",
        "params.c == 'blue'",
        "params.c != 'red' && params.c != 'green'",
        "!(params.c in ['red', 'green'])",
        "params.k > 5",
        "params.k > 1 && params.k < 5",
        "params.s in ['a', 'b'] && params.s == 'c'",
        "params.s in ['a'] && params.s in ['b']",
        "params.s in ['a'] && !(params.s in ['a', 'b'])",
        "params.s in []",
        "params.i in [1, 2] && params.i > 2",
        "params.s in ['a'] && params.s > 3",
        "false",
        "1 > 2",
        "params.b && false",
        "!true",
        "1 == 2 || 'a' == 'b'",
        "size([1, 2]) > 2",
        "[1, 2].exists(x, x > 2)",
        "(params.b || params.i > 5) && !params.b && params.i < 5",
        "params.i + 1 > 5 && params.i + 1 < 3",
        "params.x == 1 && params.x == true",
        "!(params.b || true)",
        "size(params.s) == 1 && size(params.s) == 2",
        "params.s.contains('a') && !params.s.contains('a')",
    ],
)
def test_what_must_be_found(text: str) -> None:
    assert is_never(Expr.of(text).node)


@pytest.mark.parametrize(
    "text",
    [
        "params.i > 3 && params.i < 5",
        "params.f > 3.0 && params.f < 4.0",
        "params.x > 3 && params.x < 4",
        "params.i >= 3 && params.i <= 3",
        "params.i == 1 || params.i == 2",
        "params.i == 1 && params.s == 'a'",
        "params.i != 1 && params.i != 2",
        "params.b",
        "!params.b",
        "params.b || !params.b",
        "params.c == 'red'",
        "params.c != 'red'",
        "params.k > 1",
        "params.s in ['a', 'b'] && params.s == 'b'",
        "true",
        "1 < 2",
        "params.i == 1 && params.i == 1.0",
        "!(params.f > 5.0) && !(params.f <= 5.0)",
        "!(params.x > 5) && !(params.x <= 5)",
        "params.b && params.x",
        "size(params.s) == 1",
        "params.x == 'a' && params.x != 'b'",
        "params.f >= 3.0 && params.f <= 3.0",
        "params.i > 3.2 && params.i < 4.5",
        "params.b ? false : true",
        "params.x != null && params.x != 1",
    ],
)
def test_what_must_not_be_found(text: str) -> None:
    assert not is_never(Expr.of(text).node)


def test_too_many_cases_are_left_alone_quickly() -> None:
    text = " && ".join(f"(params.i == {i} || params.s == '{i}')" for i in range(60))
    assert not is_never(Expr.of(text).node)
    assert is_never(Expr.of("false && " + " && ".join(["range(1000000).all(x, true)"] * 20)).node)
