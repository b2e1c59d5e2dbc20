"""A function -> its syntax tree, with the lines and columns of its file. Called by compile."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Mapping
from types import CellType
from typing import Any

from penstock.author.errors import author_error
from penstock.errors import AuthorError, Source


class FunctionSource:
    """The text of one function and the names around it. Raises AuthorError P315 at `defined` if the text cannot be read."""

    def __init__(self, function: Callable[..., Any], defined: Source | None = None) -> None:
        lines, first = _lines(function, defined)
        self.file = inspect.getsourcefile(function) or "<source>"
        self.lines: Mapping[int, str] = {first + i: line for i, line in enumerate(lines)}
        """By line number of the file."""
        self.definition = _definition(function, lines, first, defined)
        self.globals: Mapping[str, Any] = function.__globals__
        cells = function.__closure__ or ()
        self.closure: Mapping[str, CellType] = dict(zip(function.__code__.co_freevars, cells, strict=False))

    def body(self) -> list[ast.stmt]:
        """The statements without the docstring."""
        match self.definition.body:
            case [ast.Expr(value=ast.Constant(value=str())), *rest]:
                return rest
            case body:
                return body

    def last_return(self) -> ast.expr:
        """The value of the last return statement that has one."""
        returns = (node for node in ast.walk(self.definition) if isinstance(node, ast.Return))
        return [node.value for node in returns if node.value is not None][-1]

    def parameter(self, name: str) -> ast.arg | ast.FunctionDef:
        """Where the parameter is written."""
        arguments = (node for node in ast.walk(self.definition.args) if isinstance(node, ast.arg))
        return next((node for node in arguments if node.arg == name), self.definition)


def _lines(function: Callable[..., Any], defined: Source | None) -> tuple[list[str], int]:
    try:
        return inspect.getsourcelines(function)
    except (OSError, TypeError):
        fix = "define it in a file; code typed into a prompt or made by exec has none"
        raise _unreadable(f"the source of {function.__name__}() cannot be read", fix, defined) from None


def _definition(function: Callable[..., Any], lines: list[str], first: int, defined: Source | None) -> ast.FunctionDef:
    """The syntax tree, with the positions that its nodes have in the file. `first`: the number of the first line."""
    try:
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except SyntaxError:
        message = f"the source of {function.__name__}() cannot be read on its own"
        raise _unreadable(message, "put the def on lines of its own", defined) from None
    definition = tree.body[0]
    if not isinstance(definition, ast.FunctionDef):
        raise _unreadable("only functions made with def can be workflows", "write def name(...):", defined)
    ast.increment_lineno(tree, first - 1)
    indent = len(lines[0]) - len(lines[0].lstrip())
    if indent:
        for node in ast.walk(tree):
            if isinstance(node, ast.expr | ast.stmt | ast.arg):
                node.col_offset += indent
    return definition


def _unreadable(message: str, fix: str, defined: Source | None) -> AuthorError:
    return author_error("P315", message, fix, defined)
