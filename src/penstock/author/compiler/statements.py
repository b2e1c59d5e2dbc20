"""Statements in order, and branches. Called by compile, for_loops and while_loops.

The table has a rule for each type of statement; assignments and loops add theirs. A branch puts its condition on the steps
inside it; after an if, a name that both branches bind is a choice between the two values.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import Any

from penstock.author.compiler.conditions import Conditions
from penstock.author.compiler.context import CompileContext
from penstock.author.compiler.expressions import Expressions
from penstock.author.compiler.liveness import always_returns, has_return, live_before, names_bound
from penstock.author.compiler.scope import Variables
from penstock.author.compiler.symbols import Condition, NoValue, Static, Symbol, Unbound, choose, negate
from penstock.expressions.parse import Binary, Node
from penstock.expressions.satisfy import never
from penstock.expressions.types import ANY

StatementRule = Callable[[Any, set[str]], None]
"""Compiles a statement, given the names that are read after it."""
StatementRules = Mapping[type[ast.stmt], StatementRule]


class Statements:
    def __init__(self, context: CompileContext, expressions: Expressions, conditions: Conditions) -> None:
        self._refusals = context.refusals
        self._scopes = context.scopes
        self._expressions = expressions
        self._conditions = conditions
        self._rules: dict[type[ast.stmt], StatementRule] = {ast.If: self._branch, ast.Pass: _nothing}

    def add(self, rules: StatementRules) -> None:
        self._rules.update(rules)

    def block(self, statements: list[ast.stmt], live: set[str]) -> Symbol | None:
        """Compiles statements in order. Returns what the block returns, or None if it does not return.

        `live`: the names that are read after the block."""
        for i, statement in enumerate(statements):
            if isinstance(statement, ast.Return):
                return Static(None) if statement.value is None else self._expressions.lower(statement.value)
            if isinstance(statement, ast.If | ast.For | ast.While):
                # Only these ask what is read after them. Finding out takes time in proportion to the statements that follow.
                rest = statements[i + 1 :]
                if isinstance(statement, ast.If) and has_return(statement):
                    return self._branch_and_return(statement, rest, live)
                self.statement(statement, live_before(rest, live))
            else:
                self.statement(statement, live)
        return None

    def statement(self, statement: ast.stmt, live: set[str]) -> None:
        self._scopes.assigned_name = ""
        rule = self._rules.get(type(statement))
        if rule is None:
            raise self._refusals.meaningless(statement)
        rule(statement, live)

    # -- branches

    def _branch(self, statement: ast.If, live: set[str]) -> None:
        condition = self._decided(self._conditions.lower(statement.test))
        if isinstance(condition, bool):
            self.block(statement.body if condition else statement.orelse, live)
            return
        before = dict(self._scopes.variables)
        with self._scopes.guarded(condition):
            self.block(statement.body, live)
        yes = self._scopes.replace_variables(dict(before))
        with self._scopes.guarded(negate(condition)):
            self.block(statement.orelse, live)
        no = self._scopes.replace_variables(before)
        self._scopes.replace_variables(self._joined(statement, condition, yes, no, before))

    def _branch_and_return(self, statement: ast.If, rest: list[ast.stmt], live: set[str]) -> Symbol | None:
        """An if that returns: what comes after it belongs to the branch that does not."""
        condition = self._decided(self._conditions.lower(statement.test))
        yes_body = statement.body if always_returns(statement.body) else [*statement.body, *rest]
        no_body = statement.orelse if always_returns(statement.orelse) else [*statement.orelse, *rest]
        if isinstance(condition, bool):
            return self.block(yes_body if condition else no_body, live)
        before = dict(self._scopes.variables)
        with self._scopes.guarded(condition):
            yes = self.block(yes_body, live)
        self._scopes.replace_variables(dict(before))
        with self._scopes.guarded(negate(condition)):
            no = self.block(no_body, live)
        self._scopes.replace_variables(before)
        try:
            return choose(condition, yes or Static(None), no or Static(None))
        except NoValue as error:
            message = f"{error} cannot be returned"
            fix = "return text, numbers, lists or dicts"
            raise self._refusals.error("P307", statement.test, message, fix) from None

    def _decided(self, condition: Condition) -> Condition:
        """The answer, if the branches around the condition leave only one."""
        guard = self._scopes.guard
        if isinstance(condition, bool) or isinstance(guard, bool):
            return condition
        for answer, way in ((False, condition), (True, negate(condition))):
            if never(Binary("&&", guard, way), lambda node: ANY, lambda node: ()):
                return answer
        return condition

    def _joined(
        self, statement: ast.If, condition: Node, yes: Variables, no: Variables, before: Variables
    ) -> Variables:
        """The variables after both branches. Those that no branch binds are as before, or came from outside."""
        bound = names_bound([*statement.body, *statement.orelse])
        joined = dict(before)
        for name in [*yes, *(other for other in no if other not in yes)]:
            if name not in bound:
                joined[name] = yes.get(name) or no[name]
                continue
            a, b = yes.get(name, Unbound(name)), no.get(name, Unbound(name))
            if isinstance(a, Unbound) or isinstance(b, Unbound):
                joined[name] = Unbound(name)
                continue
            try:
                joined[name] = choose(condition, a, b)
            except NoValue as error:
                message = f"{name!r} would be {error} in one branch, which cannot be passed between steps"
                fix = "use text, numbers, lists or dicts"
                raise self._refusals.error("P307", statement.test, message, fix) from None
        return joined


def _nothing(statement: ast.stmt, live: set[str]) -> None:
    """`pass`"""
