"""Rules for expressions, each part alone."""

from __future__ import annotations

import ast

import pytest

from penstock.author.compiler.conditions import Conditions
from penstock.author.compiler.expressions import Expressions
from penstock.author.compiler.operators import Operators
from penstock.author.compiler.subscripts import Subscripts
from penstock.author.compiler.symbols import FString, Seq, Static, Unbound
from penstock.errors import AuthorError
from penstock.expressions.parse import show
from tests.author.compiler.build import context, expr, of_run, shown, with_literals


def test_the_table_decides() -> None:
    expressions = Expressions(context().refusals)
    with pytest.raises(AuthorError, match="lambda has no meaning"):
        expressions.lower(expr("lambda: 1"))
    expressions.add({ast.Lambda: lambda node: Static(5)})
    assert expressions.lower(expr("lambda: 1")) == Static(5)


def test_conversions_are_refused_at_their_expression() -> None:
    expressions = Expressions(context().refusals)
    for convert in (expressions.value, expressions.node):
        with pytest.raises(AuthorError, match="P307"):
            convert(expr("f"), Static(print))
    with pytest.raises(AuthorError, match="P312"):
        expressions.truth(expr("q"), Unbound("q"))
    with pytest.raises(AuthorError, match="ZeroDivisionError"):
        expressions.fold(expr("1 / 0"), lambda: 1 / 0)
    assert expressions.output("result", expr("x"), of_run("x", "int")).type.name == "int"


def test_literals() -> None:
    shared = context()
    expressions = with_literals(shared)
    shared.scopes.bind("x", of_run("x", "int"))
    shared.scopes.bind("q", Unbound("q"))
    assert expressions.lower(expr("[1, (2, {'k': 'a'})]")) == Static([1, (2, {"k": "a"})])
    assert expressions.lower(expr("(x, 1)")) == Seq((of_run("x", "int"), Static(1)), is_tuple=True)
    assert shown(expressions.lower(expr("{'k': [x]}"))) == '{"k": [params.x]}'
    for text in ("...", "b'a'", "q", "{x: 1}", "{**x}"):
        with pytest.raises(AuthorError):
            expressions.lower(expr(text))


def test_f_strings() -> None:
    shared = context()
    expressions = with_literals(shared)
    shared.scopes.bind("x", of_run("x", "int"))
    assert expressions.lower(expr("f'a{1:02d}{2!r}'")) == Static("a012")
    assert expressions.lower(expr("f''")) == Static("")
    assert expressions.lower(expr("f'a{x}'")) == FString(("a", of_run("x", "int")))
    assert shown(expressions.lower(expr("f'{x}'"))) == 'format(params.x, "")'
    assert shown(expressions.lower(expr("f'{x:.2f}'"))) == 'format(params.x, ".2f")'
    for text in ("f'{x!r}'", "f'{1:{x}}'", "f'{1:zz}'"):
        with pytest.raises(AuthorError, match="P311"):
            expressions.lower(expr(text))


def test_subscripts() -> None:
    shared = context()
    expressions = with_literals(shared)
    expressions.add(Subscripts(shared, expressions).rules())
    for name, type_ in (("x", "int"), ("xs", "list[int]"), ("d", "dict[int]"), ("a", "any")):
        shared.scopes.bind(name, of_run(name, type_))
    shows = {
        "xs[0]": "params.xs[0]",
        "xs[x]": "params.xs[params.x]",
        "d['k']": "params.d.k",
        "d['a-b']": 'params.d["a-b"]',
        "d.k": "params.d.k",
        "a.b.c": "params.a.b.c",
        "[x, 1][0]": "params.x",
        "[x, 1][1:]": "[1]",
        "{'k': x}['k']": "params.x",
        "'abc'[1:]": '"bc"',
        "xs[1:]": "py_slice(params.xs, 1, null)",
        "xs[::x]": "py_slice(params.xs, null, null, params.x)",
    }
    assert {text: shown(expressions.lower(expr(text))) for text in shows} == shows
    for text in (
        "x[1:]",
        "d[1:]",
        "x.real",
        "[x][5]",
        "[x]['a':]",
        "{'k': x}['j']",
        "{'k': x}[[1]]",
        "'a'.nope",
        "[x].a",
    ):
        with pytest.raises(AuthorError):
            expressions.lower(expr(text))


def test_operators() -> None:
    shared = context()
    expressions = with_literals(shared)
    expressions.add(Operators(shared, expressions, Conditions(shared, expressions)).rules())
    for name, type_ in (("x", "int"), ("f", "float"), ("s", "str"), ("xs", "list[int]")):
        shared.scopes.bind(name, of_run(name, type_))
    shows = {
        "1 + 2 * 3": "7",
        "x + 1": "params.x + 1",
        "x / 2": "double(params.x) / 2.0",
        "x * f": "double(params.x) * double(params.f)",
        "s + 'a'": 'params.s + "a"',
        "[x] + [1]": "[params.x, 1]",
        "xs + [1]": "params.xs + [1]",
        "-x": "-params.x",
        "x // 2": "py_floordiv(params.x, 2)",
        "x / f": "py_div(params.x, params.f)",
        "s * 2": "py_mul(params.s, 2)",
        "not x": "params.x == 0",
        "~1": "-2",
        "6 | 1": "7",
        "6 & 2": "2",
        "6 ^ 3": "5",
        "1 << 4": "16",
        "6 >> 1": "3",
    }
    assert {text: shown(expressions.lower(expr(text))) for text in shows} == shows
    for text in ("s % x", "x << 1", "x + s", "+x", "2 ** 10 ** 10", "'a' * 10 ** 9", "1 / 0", "-'a'"):
        with pytest.raises(AuthorError):
            expressions.lower(expr(text))


def test_conditions_guard_their_right_side() -> None:
    shared = context()
    expressions = with_literals(shared)
    conditions = Conditions(shared, expressions)
    expressions.add(conditions.rules())
    guards: list[str] = []

    def record(node: ast.Call) -> object:
        guard = shared.scopes.guard
        guards.append(str(guard) if isinstance(guard, bool) else show(guard))
        return of_run(node.func.id, "bool")  # type: ignore[attr-defined]

    expressions.add({ast.Call: record})  # type: ignore[dict-item]
    assert show(conditions.lower(expr("a() and (b() or c())"))) == "params.a && (params.b || params.c)"  # type: ignore[arg-type]
    assert guards == ["True", "params.a", "params.a && !params.b"]
    assert conditions.lower(expr("a() or True")) is True
    guards.clear()
    assert shown(expressions.lower(expr("a() if b() else c()"))) == "params.b ? params.a : params.c"
    assert guards == ["True", "params.b", "!params.b"]


def test_comparisons() -> None:
    shared = context()
    expressions = with_literals(shared)
    expressions.add(Conditions(shared, expressions).rules())
    for name, type_ in (("x", "int"), ("s", "str"), ("xs", "list[int]")):
        shared.scopes.bind(name, of_run(name, type_))
    shows = {
        "0 < x < 5": "0 < params.x && params.x < 5",
        "x is None": "params.x == null",
        "x not in xs": "!(params.x in params.xs)",
        "'a' in s": 'params.s.contains("a")',
        "1 in [1, 2]": "true",
        "x or 5": "params.x != 0 ? params.x : 5",
    }
    assert {text: shown(expressions.lower(expr(text))) for text in shows} == shows
    with pytest.raises(AuthorError, match="write =="):
        expressions.lower(expr("x is s"))
