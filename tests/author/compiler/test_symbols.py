"""Symbols: their value, type and truth, and what two branches make of them."""

from __future__ import annotations

import pytest

from penstock.author.compiler.symbols import (
    Dynamic,
    FString,
    NoValue,
    Pairs,
    Seq,
    Static,
    Unbound,
    as_seq,
    choose,
    combine,
    constant_value,
    element,
    negate,
    to_value,
    truth,
    type_of,
)
from penstock.expressions.parse import Binary, Const, Expr, Name, show
from penstock.expressions.template import Template
from penstock.expressions.types import INT, parse
from tests.author.compiler.build import of_run, shown

X = of_run("x", "int")


def test_constants_become_values_or_have_none() -> None:
    assert constant_value([1, (2.5, "a"), {"k": None}]) == (1, (2.5, "a"), {"k": None})
    assert constant_value(range(3)).text == "range(0, 3, 1)"
    for thing in (object(), float("nan"), {1: 2}, print):
        with pytest.raises(NoValue):
            constant_value(thing)


def test_symbols_become_inputs_of_steps() -> None:
    assert to_value(Seq((X, Static(1)))) == (Expr.of("params.x"), 1)
    assert to_value(Pairs((("k", X),))) == {"k": Expr.of("params.x")}
    assert to_value(FString(("a", X))) == Template(("a", Expr.of("params.x")))
    with pytest.raises(NoValue, match="q"):
        to_value(Unbound("q"))


def test_types_follow_from_the_parts() -> None:
    assert str(type_of(Seq((X, Static(1))))) == "list[int]"
    assert str(type_of(Seq((X, Static("a")), is_tuple=True))) == "tuple[int, str]"
    assert str(type_of(Pairs((("k", X),)))) == "dict[int]"
    assert str(type_of(FString((X,)))) == "str"


def test_truth_is_pythons() -> None:
    assert truth(Static([])) is False and truth(Seq((X,))) is True
    shows = {"bool": "params.v", "int": "params.v != 0", "str": "size(params.v) > 0", "any": "truthy(params.v)"}
    for type_, text in shows.items():
        test = truth(of_run("v", type_))
        assert not isinstance(test, bool) and show(test) == text


def test_conditions_are_folded() -> None:
    a, b = Name("a"), Name("b")
    assert combine(True, a, "&&") is a and combine(a, False, "&&") is False and combine(a, True, "||") is True
    assert combine(a, b, "||") == Binary("||", a, b)
    assert negate(negate(a)) is a
    assert negate(Binary("==", a, b)) == Binary("!=", a, b)


def test_branches_meet_in_a_choice() -> None:
    test = Name("t")
    assert choose(test, X, X) is X
    assert shown(choose(test, X, Static(0))) == "t ? params.x : 0"
    both = choose(test, Seq((X, Static(1)), is_tuple=True), Seq((X, Static(2)), is_tuple=True))
    assert isinstance(both, Seq) and both.items[0] is X
    assert type_of(choose(test, X, Static(0))) == INT


def test_elements_of_values_of_the_run() -> None:
    pair = parse("tuple[int, str]")
    assert element(Name("p"), pair, -1).type.name == "str"
    assert show(element(Name("p"), pair, -1).node) == "p[1]"
    assert show(element(Name("p"), parse("list[int]"), -1).node) == "p[size(p) - 1]"


def test_lists_written_out() -> None:
    assert as_seq(Static((1,))) == Seq((Static(1),), is_tuple=True)
    assert as_seq(X) is None
    assert as_seq(Static("ab")) is None
    assert Dynamic(Const(1), INT) == Dynamic(Const(1), INT)
