"""Which task, job or workflow a call names. Called by calls, step_calls, comprehensions and loops.

Names and attributes are looked up, but nothing is lowered that could add a step.
"""

from __future__ import annotations

import ast
from typing import Any

from penstock.author.compiler.context import CompileContext
from penstock.author.compiler.expressions import Expressions
from penstock.author.compiler.symbols import Static
from penstock.author.errors import Broken
from penstock.author.jobs import Authored, BaseJob
from penstock.author.tasks import TaskFunction
from penstock.errors import AuthorError

Callee = TaskFunction[..., Any] | BaseJob | Authored
"""What a call turns into a step."""


class Callees:
    def __init__(self, context: CompileContext, expressions: Expressions) -> None:
        self._refusals = context.refusals
        self._scopes = context.scopes
        self._expressions = expressions

    def find(self, node: ast.expr) -> Callee | None:
        """`train`, `steps.train`, `train.options(gpu=4)`, `train.after(data)`: what stands before the arguments of a call."""
        if isinstance(node, ast.Call):
            return self._modified(node)
        found = self.static_object(node)
        if isinstance(found, Broken):
            raise found.error
        return found if isinstance(found, TaskFunction | BaseJob | Authored) else None

    def _modified(self, node: ast.Call) -> Callee | None:
        if not isinstance(node.func, ast.Attribute):
            return None
        callee = self.find(node.func.value)
        if callee is None or node.func.attr not in ("options", "after"):
            return None
        return callee if node.func.attr == "after" else self._with_options(node, callee)

    def static_object(self, node: ast.expr) -> Any:
        """The Python object that a name or an attribute of it stands for, or None."""
        if isinstance(node, ast.Name):
            try:
                found = self._scopes.look_up(node)
            except AuthorError:
                return None
            return found.value if isinstance(found, Static) else None
        if isinstance(node, ast.Attribute):
            holder = self.static_object(node.value)
            return getattr(holder, node.attr, None) if holder is not None else None
        return None

    def _with_options(self, node: ast.Call, callee: Callee) -> Callee:
        if isinstance(callee, Authored):
            fix = "give them to @workflow, or to the tasks in it"
            raise self._refusals.error("P311", node, f"the workflow {callee.name!r} takes no options here", fix)
        given: dict[str, Any] = {}
        for keyword in node.keywords:
            value = self._expressions.lower(keyword.value)
            if keyword.arg is None or not isinstance(value, Static):
                message = "options must be known when the workflow is compiled"
                raise self._refusals.error("P311", keyword.value, message, "use constants")
            given[keyword.arg] = value.value
        if node.args:
            raise self._refusals.error("P311", node.args[0], "options have names", "write .options(cpu=2)")
        try:
            return callee.options(**given)
        except AuthorError as error:
            problem = error.problems[0]
            raise self._refusals.error(problem.code, node, problem.message, problem.fix) from None

    def any_called(self, *nodes: ast.AST) -> bool:
        """Is a task, job or workflow called anywhere in these nodes?"""
        return any(
            isinstance(child, ast.Call) and self.find(child.func) is not None
            for node in nodes
            for child in ast.walk(node)
        )

    def first_name(self, node: ast.AST) -> str:
        """The name of the first task, job or workflow that is called in the node, or "body"."""
        for child in ast.walk(node):
            if isinstance(child, ast.Call):
                callee = self.find(child.func)
                if callee is not None:
                    return callee.name
        return "body"
