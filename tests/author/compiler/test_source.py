"""The text of a function, and errors that point into it."""

from __future__ import annotations

import ast

import pytest

from penstock.author.compiler.refusals import Refusals, described, how_to_call, with_article
from penstock.author.compiler.source import FunctionSource
from penstock.author.compiler.symbols import NoValue, Static, Unbound
from penstock.errors import AuthorError, Source
from penstock.expressions.types import parse
from tests.author.compiler.build import block, expr


def indented(offset: int):
    def inner(x: int):
        """Words."""
        y = x + offset
        return y

    return inner


def test_positions_are_those_of_the_file() -> None:
    source = FunctionSource(indented(1))
    assign = source.body()[0]
    assert isinstance(assign, ast.Assign), "the docstring is left out"
    assert source.lines[assign.lineno][assign.col_offset :].startswith("y = x")
    assert source.lines[source.last_return().lineno].strip() == "return y"
    assert source.closure["offset"].cell_contents == 1
    parameter = source.parameter("x")
    assert isinstance(parameter, ast.arg) and source.lines[parameter.lineno][parameter.col_offset] == "x"


def test_a_function_without_a_text_is_refused() -> None:
    names: dict[str, object] = {}
    exec("def f(): pass", names)
    with pytest.raises(AuthorError, match="P315"):
        FunctionSource(names["f"], Source("flow.py", 3))  # type: ignore[arg-type]


def test_refusals_point_at_the_line_and_say_what_to_write() -> None:
    refusals = Refusals("flow.py", {1: "y = x.real\n"})
    problem = refusals.error("P311", block("y = x.real")[0].value, "no", "do").problems[0]
    assert (problem.source, problem.excerpt) == (Source("flow.py", 1, 5), "y = x.real")
    problem = refusals.meaningless(block("del x")[0]).problems[0]
    assert (problem.message, problem.fix) == ("del has no meaning in a workflow", "leave the name alone")
    assert "before the if" in refusals.unusable(expr("q"), Unbound("q"), NoValue("q")).problems[0].fix
    assert refusals.unusable(expr("q"), Static(print), NoValue("print")).code == "P307"


@pytest.mark.parametrize("body", ["return 1", "if a:\n        return 1"])
def test_what_leaves_a_round_early_is_refused(body: str) -> None:
    refusals = Refusals("flow.py", {})
    with pytest.raises(AuthorError, match="P311"):
        refusals.refuse_returns(block(f"for v in xs:\n    {body}")[0])
    refusals.refuse_returns(block("for v in xs:\n    a = 1")[0])


def test_things_have_names_in_refusals() -> None:
    assert described(ast) == "the module 'ast'" and described(print) == "print()" and described(5) == "int 5"
    assert with_article(parse("int")) == "an int" and with_article(parse("str")) == "a str"
    assert how_to_call(indented).startswith("decorate it") and how_to_call(print).startswith("call it")
