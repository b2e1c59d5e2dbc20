"""Parts of the compiler for the tests in this folder, and syntax nodes to feed them."""

from __future__ import annotations

import ast
from typing import Any

from penstock import task
from penstock.author.compiler.compile import FunctionCompiler
from penstock.author.compiler.context import CompileContext
from penstock.author.compiler.expressions import Expressions
from penstock.author.compiler.literals import Literals
from penstock.author.compiler.source import FunctionSource
from penstock.author.compiler.symbols import Dynamic, Symbol, to_node
from penstock.expressions.parse import reference, show
from penstock.expressions.types import Type, parse


@task
def inc(x: int) -> int:
    return x + 1


@task
def add(a: int, b: int) -> int:
    return a + b


def flow() -> None:
    """The function that the parts believe they compile: its module has `inc` and `add`."""


def context() -> CompileContext:
    return CompileContext(FunctionSource(flow), "flow")


def with_literals(shared: CompileContext) -> Expressions:
    """The smallest table that is of use: names and constants."""
    expressions = Expressions(shared.refusals)
    expressions.add(Literals(shared, expressions).rules())
    return expressions


def compiler(**params: str) -> FunctionCompiler:
    """All parts put together; `params` are variables of the run, by type: x="int"."""
    made = FunctionCompiler(FunctionSource(flow), "flow")
    for name, type_ in params.items():
        made.context.scopes.bind(name, of_run(name, type_))
    return made


def of_run(name: str, type_: str | Type = "any") -> Dynamic:
    return Dynamic(reference("params", name), parse(type_) if isinstance(type_, str) else type_)


def expr(text: str) -> Any:
    return ast.parse(text, mode="eval").body


def block(text: str) -> list[Any]:
    return ast.parse(text).body


def shown(symbol: Symbol | None) -> str:
    """The symbol as the text of an expression."""
    assert symbol is not None
    return show(to_node(symbol))
