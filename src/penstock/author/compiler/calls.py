"""Rule for calls: of a task, job or workflow, or of a function of Python. Added to the table of expressions by compile."""

from __future__ import annotations

import ast

from penstock.author.compiler.builtins import Builtins
from penstock.author.compiler.callees import Callees
from penstock.author.compiler.constructors import Constructors
from penstock.author.compiler.context import CompileContext
from penstock.author.compiler.expressions import Expressions, Rules
from penstock.author.compiler.methods import Methods
from penstock.author.compiler.step_calls import StepCalls
from penstock.author.compiler.symbols import Dynamic, Static, Symbol
from penstock.author.secrets import secret
from penstock.author.values import Computed
from penstock.errors import AuthorError
from penstock.expressions.types import STR


class Calls:
    def __init__(self, context: CompileContext, expressions: Expressions, callees: Callees, steps: StepCalls) -> None:
        self._constructors = Constructors(context, expressions, callees)
        self._refusals = context.refusals
        self._expressions = expressions
        self._callees = callees
        self._steps = steps
        self._builtins = Builtins(context, expressions, callees)
        self._methods = Methods(context, expressions)

    def rules(self) -> Rules:
        return {ast.Call: self.call}

    def call(self, node: ast.Call) -> Symbol:
        callee = self._callees.find(node.func)
        if callee is not None:
            return self._steps.call(node, callee)
        if self._callees.find(node) is not None:
            fix = "add the arguments: task.options(…)(…)"
            raise self._refusals.error("P311", node, "a task with options is not called", fix)
        if isinstance(node.func, ast.Attribute) and self._callees.static_object(node.func) is secret:
            return self._secret(node)
        made = self._constructors.call(node)
        if made is not None:
            return made
        if isinstance(node.func, ast.Attribute):
            return self._methods.call(node, node.func)
        function = self._expressions.lower(node.func)
        if isinstance(function, Static) and function.value is secret:
            return self._secret(node)
        if not isinstance(function, Static):
            message = "only tasks and workflows can be called"
            raise self._refusals.error("P311", node, message, "decorate the function with @task")
        return self._builtins.call(node, function)

    def _secret(self, node: ast.Call) -> Symbol:
        args = [self._expressions.lower(arg) for arg in node.args]
        if len(args) != 1 or node.keywords or not isinstance(args[0], Static):
            message = "the name of a secret must be known when the workflow is compiled"
            raise self._refusals.error("P311", node, message, 'write secret("NAME")')
        try:
            found: Computed = secret(args[0].value)
        except AuthorError as error:
            problem = error.problems[0]
            raise self._refusals.error(problem.code, node, problem.message, problem.fix) from None
        return Dynamic(found.node, STR)
