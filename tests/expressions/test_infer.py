"""Types of expressions: what is promised is kept when the expression is evaluated."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.expressions import types
from penstock.expressions.evaluate import EvaluationError, evaluate
from penstock.expressions.infer import TypeMismatch, infer
from penstock.expressions.parse import (
    FUNCTIONS,
    MACROS,
    METHODS,
    Binary,
    Call,
    Choice,
    Const,
    Expr,
    Index,
    ListOf,
    Macro,
    MapOf,
    Member,
    Name,
    Node,
    Unary,
    reference,
    show,
)
from penstock.expressions.types import Type, parse
from tests.graph.strategies import examples, value_of

KINDS = {
    "i": "int",
    "j": "int",
    "f": "float",
    "s": "str",
    "b": "bool",
    "n": "null",
    "any": "any",
    "p": "file",
    "oi": "optional[int]",
    "os": "optional[str]",
    "od": "optional[dict[int]]",
    "ol": "optional[list[str]]",
    "li": "list[int]",
    "lf": "list[float]",
    "ls": "list[str]",
    "la": "list",
    "lo": "list[optional[int]]",
    "lt": "list[tuple[int, str]]",
    "t": "tuple[int, str]",
    "tt": "tuple[int, int]",
    "t0": "tuple",
    "d": "dict[int]",
    "dl": "dict[list[int]]",
    "dd": "dict[dict[str]]",
}
TYPES = {name: parse(text) for name, text in KINDS.items()}
LEAVES: list[Node] = [reference("params", name) for name in TYPES] + [
    Const(value) for value in (0, 1, 2.5, "", "a", True, False, None)
]


def lookup(path: tuple[str, ...]) -> tuple[Type, int] | None:
    return (TYPES[path[1]], 2) if path[0] == "params" and len(path) > 1 else None


def type_of(node: Node) -> Type | None:
    try:
        return infer(node, lookup)
    except TypeMismatch:
        return None


@st.composite
def well_typed(draw: st.DrawFn) -> list[tuple[Node, Type]]:
    """Grown from the leaves: each round joins parts that are there already, and keeps what has a type."""
    pool: list[Node] = draw(st.lists(st.sampled_from(LEAVES), min_size=3, max_size=5))
    kept: list[tuple[Node, Type]] = []

    def any_of(*more: Node) -> Node:
        return draw(st.sampled_from([*pool, *more]))

    for _ in range(draw(st.integers(5, 25))):
        match draw(st.integers(0, 10)):
            case 0:
                node: Node = Binary(draw(st.sampled_from(["+", "-", "*", "/", "%"])), any_of(), any_of())
            case 1:
                node = Binary(
                    draw(st.sampled_from(["==", "!=", "<", "<=", ">", ">=", "in", "&&", "||"])), any_of(), any_of()
                )
            case 2:
                node = Choice(
                    draw(st.sampled_from([reference("params", "b"), Const(True), Const(False), any_of()])),
                    any_of(),
                    any_of(),
                )
            case 3:
                node = ListOf(tuple(any_of() for _ in range(draw(st.integers(0, 3)))))
            case 4:
                node = MapOf(
                    tuple((Const(key), any_of()) for key in draw(st.lists(st.sampled_from("ab"), unique=True)))
                )
            case 5:
                node = Index(any_of(), draw(st.sampled_from([Const(0), Const(1), Const("a"), any_of()])))
            case 6:
                node = Member(any_of(), draw(st.sampled_from("ab")))
            case 7:
                name = draw(st.sampled_from([name for name in sorted(FUNCTIONS) if name != "has"]))
                arity = FUNCTIONS[name]
                node = Call(
                    name, tuple(any_of() for _ in range(arity if isinstance(arity, int) else draw(st.integers(*arity))))
                )
            case 8:
                name = draw(st.sampled_from(sorted(METHODS)))
                node = Call(name, tuple(any_of() for _ in range(METHODS[name])), any_of())
            case 9:
                x = Name("x")
                body = draw(
                    st.sampled_from(
                        [
                            x,
                            Binary("==", x, x),
                            Binary("+", x, Const(1)),
                            Binary("+", x, Const("a")),
                            Member(x, "a"),
                            any_of(),
                        ]
                    )
                )
                node = Macro(draw(st.sampled_from(MACROS)), any_of(), "x", body)
            case _:
                node = Unary(draw(st.sampled_from("!-")), any_of())
        found = type_of(node)
        if found is not None:
            pool.append(node)
            kept.append((node, found))
    return kept


data = st.fixed_dictionaries({name: value_of(type_) for name, type_ in TYPES.items()})


@examples(300)
@given(well_typed(), data)
def test_a_value_is_of_the_type_that_was_promised(expressions: list[tuple[Node, Type]], params: dict[str, Any]) -> None:
    for node, promised in expressions:
        try:
            value = evaluate(node, {"params": params})
        except EvaluationError:
            continue
        assert types.accepts(promised, value), f"{show(node)} was to be {promised} and is {value!r}"


@pytest.mark.parametrize(
    "text, promised",
    [
        ("params.i + 1", "int"),
        ("params.f * 2.0", "float"),
        ("params.s + 'a'", "str"),
        ("params.p + params.s", "str"),
        ("params.li + [1]", "list[int]"),
        ("params.li + ['a']", "list"),
        ("params.i < params.f", "bool"),
        ("params.i == null", "bool"),
        ("params.li[0]", "int"),
        ("params.d.x", "int"),
        ("params.d['x']", "int"),
        ("params.t[1]", "str"),
        ("params.tt[params.i]", "int"),
        ("params.lt[0][1]", "str"),
        ("params.oi + 1", "int"),
        ("params.b ? params.i : params.f", "float"),
        ("params.b ? params.i : null", "optional[int]"),
        ("params.b ? 1 : 'a'", "any"),
        ("params.b ? params.any : 1", "any"),
        ("params.b ? params.i : params.oi", "optional[int]"),
        ("[params.i, params.oi]", "list[optional[int]]"),
        ("[params.any, 1]", "list"),
        ("[]", "list"),
        ("{}", "dict"),
        ("{'a': 1, 'b': 2.5}", "dict[float]"),
        ("params.li.map(x, string(x))", "list[str]"),
        ("params.ls.filter(x, x != 'a')", "list[str]"),
        ("params.d.map(k, k)", "list[str]"),
        ("params.od.map(k, k)", "list[str]"),
        ("params.od.filter(k, true)", "list[str]"),
        ("params.ol.map(x, x + 'a')", "list[str]"),
        ("params.li.all(x, x > 0)", "bool"),
        ("size(params.s)", "int"),
        ("range(params.i)", "list[int]"),
        ("min(params.i, params.f)", "float"),
        ("has(params.d.x)", "bool"),
        ("params.li.map(params, params)", "list[int]"),
        ("unknown.x.y", "any"),
        ("-params.f", "float"),
        ("!params.b", "bool"),
        ("params.dl.a.map(x, x + 1)", "list[int]"),
        ("[[1]].map(x, x.map(y, y))", "list[list[int]]"),
        ("params.any.x[0] + 1", "any"),
        ("default(params.i, 2)", "int"),
        ("default(params.oi, 2)", "int"),
        ("default(params.oi, null)", "optional[int]"),
        ("default(null, 'a')", "str"),
        ("default(params.s, 1)", "any"),
        ("text(params.i)", "str"),
        ("json(params.s)", "any"),
        ("split(params.s, ',')", "list[str]"),
        ("toInt(params.s) + 1", "int"),
        ("toFloat(params.s) * 2.0", "float"),
        ("condition(params.s) && true", "bool"),
        ("params.s.matches('a')", "bool"),
        ("sprig_splitList(',', params.s)", "list[str]"),
        ("keys(params.d)", "list[str]"),
        ("groupBy(params.li, params.li)", "dict"),
        ("plus(params.i, params.f)", "any"),
        ("over(params.i, 2)", "float"),
        ("phase(params.s)", "str"),
    ],
)
def test_types_of_expressions(text: str, promised: str) -> None:
    assert infer(Expr.of(text).node, lookup) == parse(promised)


@pytest.mark.parametrize(
    "text, words",
    [
        ("params.i + 'a'", "int + str"),
        ("params.i + 1.5", "double("),
        ("params.s - 'a'", "str - str"),
        ("params.f % 2.0", "float % float"),
        ("params.i && true", "'&&' needs true or false"),
        ("!params.i", "'!' needs"),
        ("-params.s", "not a number"),
        ("params.i ? 1 : 2", "before '?'"),
        ("params.i == 'a'", "never equal"),
        ("params.s < 1", "compares str with int"),
        ("1 in params.s", "neither a list nor a map"),
        ("params.s.x", "which has none"),
        ("params.li.x", "which has none"),
        ("params.s[0]", "indexes str"),
        ("params.li['a']", "which has none"),
        ("params.li[1.5]", "indexed by an int"),
        ("params.d[1]", "indexed by a string"),
        ("params.t[2]", "outside"),
        ("size(params.i)", "no size"),
        ("params.i.contains('a')", "for strings"),
        ("params.s.map(x, x)", "needs a list"),
        ("params.li.filter(x, x + 1)", "needs a condition"),
        ("range('a')", "takes ints"),
        ("min('a', 1)", "not a number"),
        ("params.li.map(x, x.y)", "which has none"),
        ("{'a': -'b'}", "not a number"),
        ("99999999999999999999", "64 bits"),
        ("condition(params.s) + 1", "bool + int"),
        ("text(params.i) - 1", "str - int"),
        ("params.i.matches('a')", "for strings"),
        ("default(-params.s, 1)", "not a number"),
        ("[true ? 1 : -9223372036854775809]", "64 bits"),
    ],
)
def test_what_cannot_have_a_value(text: str, words: str) -> None:
    with pytest.raises(TypeMismatch) as caught:
        infer(Expr.of(text).node, lookup)
    assert words in str(caught.value)


def test_a_python_object_is_not_looked_into() -> None:
    with pytest.raises(TypeMismatch, match="Python object"):
        infer(Expr.of("params.o.x").node, lambda path: (types.OBJECT, 2))
