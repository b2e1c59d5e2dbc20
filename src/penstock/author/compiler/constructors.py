"""Calls of classes whose objects have a plain form: `Config(rate=0.1)`, `Color("red")`, `date(2024, 5, 17)`, `Path("a.csv")`. Called by
calls."""

from __future__ import annotations

import ast

from penstock.artifacts.plain import has_plain_form
from penstock.author.compiler.callees import Callees
from penstock.author.compiler.context import CompileContext
from penstock.author.compiler.expressions import Expressions
from penstock.author.compiler.refusals import described
from penstock.author.compiler.symbols import Static


class Constructors:
    def __init__(self, context: CompileContext, expressions: Expressions, callees: Callees) -> None:
        self._refusals = context.refusals
        self._expressions = expressions
        self._callees = callees

    def call(self, node: ast.Call) -> Static | None:
        """The object, made now; None if it is not such a call. Its arguments must be known."""
        cls = self._callees.static_object(node.func)
        if not isinstance(cls, type) or not has_plain_form(cls):
            return None
        args = [self._expressions.lower(arg) for arg in node.args]
        named = {keyword.arg or "": self._expressions.lower(keyword.value) for keyword in node.keywords}
        if "" in named or not all(isinstance(arg, Static) for arg in (*args, *named.values())):
            message = f"{described(cls)} of a value that is only known at run time has no meaning in a workflow"
            raise self._refusals.error("P311", node, message, f"call {described(cls)} inside a @task")
        given = [arg.value for arg in args if isinstance(arg, Static)]
        known = {name: arg.value for name, arg in named.items() if isinstance(arg, Static)}
        return self._expressions.fold(node, cls, *given, **known)
