"""Python that has no meaning in a workflow, and what to write instead. Called by every part of the compiler."""

from __future__ import annotations

import ast
import enum
import types
from collections.abc import Mapping
from typing import Any

from penstock.author.compiler.symbols import NoValue, Symbol, Unbound
from penstock.errors import AuthorError, Problem, Source
from penstock.expressions.types import Type

Located = ast.expr | ast.stmt | ast.arg
"""Syntax nodes that have a line and a column."""

_INSTEAD: dict[type[ast.AST], tuple[str, str]] = {
    ast.Try: (
        "try/except",
        "handle the exception inside a @task, or use retry=; in the object form, .after(job, outcomes=['failed'])",
    ),
    ast.With: ("with", "use the context manager inside a @task"),
    ast.AsyncWith: ("async with", "use the context manager inside a @task"),
    ast.AsyncFor: ("async for", "write a plain for; independent tasks run side by side anyway"),
    ast.Await: ("await", "call the task without await; independent tasks run side by side anyway"),
    ast.Yield: ("yield", "return a list from a @task and loop over it"),
    ast.YieldFrom: ("yield from", "return a list from a @task and loop over it"),
    ast.FunctionDef: ("a function inside a workflow", "define it at the top of the file, with @task or @workflow"),
    ast.AsyncFunctionDef: ("a function inside a workflow", "define it at the top of the file, with @task or @workflow"),
    ast.ClassDef: ("a class inside a workflow", "define it at the top of the file"),
    ast.Lambda: ("lambda", "define a @task at the top of the file"),
    ast.Global: ("global", "pass the value as an argument"),
    ast.Nonlocal: ("nonlocal", "pass the value as an argument"),
    ast.Import: ("import inside a workflow", "import at the top of the file, or inside a @task"),
    ast.ImportFrom: ("import inside a workflow", "import at the top of the file, or inside a @task"),
    ast.Delete: ("del", "leave the name alone"),
    ast.Assert: ("assert", "check inside a @task and raise there"),
    ast.Raise: ("raise", "raise inside a @task"),
    ast.Match: ("match", "write if/elif/else"),
    ast.Break: ("break here", "put it into a loop"),
    ast.Continue: ("continue here", "put it into a loop"),
    ast.Set: ("a set", "write a list"),
    ast.SetComp: ("a set comprehension", "write a list comprehension"),
    ast.GeneratorExp: ("a generator expression", "write a list comprehension: [ … ]"),
    ast.NamedExpr: (":=", "assign on a line of its own"),
    ast.Starred: ("*", "pass each argument by name"),
}

_WRITE_INSTEAD: tuple[tuple[object, str], ...] = (
    (map, "write a comprehension: [f(x) for x in xs]"),
    (filter, "write a comprehension: [x for x in xs if …]"),
    (pow, "write x ** y"),
    (divmod, "write x // y and x % y"),
)
"""Builtins that have another form."""


class Refusals:
    """Makes the errors of one compilation. Each error points into the source of the function."""

    def __init__(self, file: str, lines: Mapping[int, str]) -> None:
        self.file = file
        self._lines = lines

    def source(self, node: Located) -> Source:
        return Source(self.file, node.lineno, node.col_offset + 1)

    def error(self, code: str, node: Located, message: str, fix: str) -> AuthorError:
        source = self.source(node)
        excerpt = self._lines.get(source.line, "").rstrip("\n")
        return AuthorError(Problem(code, message, fix, source=source, excerpt=excerpt))

    def meaningless(self, node: Located) -> AuthorError:
        """For syntax that no rule handles."""
        what, instead = _INSTEAD.get(type(node), (type(node).__name__.lower(), "move it into a @task"))
        return self.error("P311", node, f"{what} has no meaning in a workflow", instead)

    def unusable(self, node: Located, symbol: Symbol, error: NoValue) -> AuthorError:
        """For a symbol that has no value where one is needed."""
        if isinstance(symbol, Unbound):
            return self.error(
                "P312",
                node,
                f"{symbol.name!r} is not assigned on every way that leads here",
                f"assign {symbol.name!r} before the if, or in every branch",
            )
        return self.error(
            "P307",
            node,
            f"{error} cannot be passed between steps",
            "pass text, numbers, true/false, lists or dicts; make anything else inside a @task",
        )

    def refuse_returns(self, loop: ast.For | ast.While) -> None:
        """The rounds of a loop hand their values on: raises for a return in one."""
        for statement in (*loop.body, *loop.orelse):
            for node in ast.walk(statement):
                if isinstance(node, ast.Return):
                    message = "return inside a loop has no meaning in a workflow"
                    raise self.error("P311", node, message, "assign the value and break; return after the loop")


def described(value: Any) -> str:
    """`print()`, `the module 'os'`, `int 5`."""
    if isinstance(value, types.ModuleType):
        return f"the module {value.__name__!r}"
    if isinstance(value, enum.Enum):
        return str(value)
    name = getattr(value, "__name__", None)
    return f"{name}()" if callable(value) and name else f"{type(value).__name__} {value!r:.40}"


def with_article(type_: Type) -> str:
    return f"{'an' if str(type_)[0] in 'aeio' else 'a'} {type_}"


def how_to_call(value: Any) -> str:
    """What to do with a function that is not a task."""
    instead = next((instead for known, instead in _WRITE_INSTEAD if known is value), None)
    if instead is not None:
        return instead
    if value is print or getattr(value, "__module__", "") == "logging":
        return "call it inside a @task (penstock logs shows what tasks print), or return the value: the result is shown"
    if isinstance(value, types.FunctionType):
        return "decorate it with @task (or with @workflow, if it calls tasks), or call it outside the workflow"
    return "call it inside a @task, or outside the workflow"
