"""Rule for `while` statements. Added to the table of statements by compile.

A while loop is a step that runs a nested workflow while its condition holds. Outputs of one round are inputs of the next.
"""

from __future__ import annotations

import ast

from penstock.author.compiler.bindings import Bindings
from penstock.author.compiler.bodies import Bodies, BodyResult, Repetition
from penstock.author.compiler.callees import Callees
from penstock.author.compiler.conditions import Conditions
from penstock.author.compiler.context import CompileContext
from penstock.author.compiler.jumps import jumps, without_jumps
from penstock.author.compiler.liveness import changes, live_before, names_assigned, names_read, read_before_assigned
from penstock.author.compiler.statements import StatementRules, Statements
from penstock.author.compiler.symbols import (
    Condition,
    Dynamic,
    NoValue,
    Static,
    Symbol,
    Unbound,
    condition_symbol,
    to_value,
    type_of,
)
from penstock.expressions.parse import Const, Expr, Node, reference
from penstock.expressions.types import ANY, BOOL, Type, list_of
from penstock.graph.model import While


class _TypesChanged(Exception):
    """A value leaves the round with another type than it came in with."""


class _Loop:
    """`start`: the values that rounds hand on, as they are before the loop. `proceed`: the first answer of a condition that
    calls tasks. Such a condition is evaluated before the loop and at the end of each round; its answer is handed on, too.
    `label`: the name of the step. `limit`: of rounds."""

    def __init__(
        self, statement: ast.While, start: dict[str, Symbol], proceed: Condition | None, label: str, limit: int
    ) -> None:
        self.statement = statement
        self.label = label
        self.limit = limit
        self.start = start
        self.proceed = proceed
        self.types: dict[str, Type] = {}
        self.proceed_name = "proceed"
        while self.proceed_name in start:
            self.proceed_name += "_"

    def names(self) -> list[str]:
        return [*self.start, *([self.proceed_name] if self.proceed is not None else [])]


class WhileLoops:
    def __init__(
        self,
        context: CompileContext,
        conditions: Conditions,
        callees: Callees,
        bodies: Bodies,
        bindings: Bindings,
        statements: Statements,
    ) -> None:
        self._context = context
        self._refusals = context.refusals
        self._scopes = context.scopes
        self._definitions = context.definitions
        self._conditions = conditions
        self._callees = callees
        self._bodies = bodies
        self._bindings = bindings
        self._statements = statements

    def rules(self) -> StatementRules:
        return {ast.While: self.loop}

    def loop(self, statement: ast.While, live: set[str]) -> None:
        self._refusals.refuse_returns(statement)
        with self._context.own_names("stopped", "skipped") as (stopped, skipped):
            otherwise = statement.orelse
            if jumps(statement.body):
                body, test = without_jumps(statement.body, stopped, skipped), statement.test
                if jumps(statement.body, (ast.Break,)):
                    self._scopes.bind(stopped, Static(False))
                    test = still(stopped, test)
                    otherwise = unless(stopped, otherwise)
                statement = ast.copy_location(ast.While(test, body, []), statement)
            self.repeat(statement, live_before(otherwise, live), hidden=frozenset((stopped,)))
        self._statements.block(otherwise, live)

    def repeat(
        self,
        statement: ast.While,
        live: set[str],
        label: str = "",
        limit: int = 0,
        hidden: frozenset[str] = frozenset(),
    ) -> None:
        """A loop without jumps. `label`, `limit`: in place of a name after the first value that changes, and of the workflow's limit.
        `hidden`: names that the author does not see."""
        start = self._start(statement, live)
        calls_tasks = self._callees.any_called(statement.test)
        first = self._conditions.lower(statement.test)
        if first is False and not start:
            return
        if not start and not calls_tasks:
            message = "nothing in the loop changes this condition, so the loop would never end"
            fix = "call a task in the condition, or change a value in the loop"
            raise self._refusals.error("P317", statement.test, message, fix)
        named = next((name for name in start if name not in hidden), "condition")
        label = label or f"while-{named.replace('_', '-').strip('-')}"
        limit = max(limit, self._context.max_iterations)
        self._repeat(_Loop(statement, start, first if calls_tasks else None, label, limit))

    def _start(self, statement: ast.While, live: set[str]) -> dict[str, Symbol]:
        """The names that rounds change and that later rounds, the condition or later statements read."""
        items_changed = set(changes(statement.body))
        changed = names_assigned(statement.body) | items_changed
        read = read_before_assigned(statement.body) | names_read([statement.test]) | live | items_changed
        start: dict[str, Symbol] = {}
        for name in sorted(changed & read):
            symbol = self._scopes.find(name)
            if symbol is None or isinstance(symbol, Unbound):
                message = f"{name!r} has no value before the loop, which may not run at all"
                raise self._refusals.error("P312", statement, message, f"assign {name!r} before the loop")
            if name in items_changed:
                self._bindings.refuse_alias(statement, name)
            start[name] = symbol
        return start

    def _repeat(self, loop: _Loop) -> None:
        definitions = self._definitions.snapshot()
        while True:
            try:
                results = self._bodies.call(
                    loop.statement, loop.label, lambda: self._round(loop), repetition=lambda: self._repetition(loop)
                )
                break
            except _TypesChanged:
                # The body is compiled again, with `any` for the types that did not hold.
                self._definitions.restore(definitions)
        for name in loop.start:
            self._scopes.bind(name, results[name])

    def _round(self, loop: _Loop) -> dict[str, BodyResult]:
        statement, builder = loop.statement, self._scopes.builder
        for name, symbol in loop.start.items():
            type_ = loop.types.setdefault(name, _widened(type_of(symbol)))
            try:
                value = to_value(symbol)
            except NoValue as error:
                raise self._refusals.unusable(statement, symbol, error) from None
            self._scopes.bind(name, builder.parameter(name, value, type_))
        if loop.proceed is not None:
            proceed = loop.proceed if isinstance(loop.proceed, bool) else Expr.tree(loop.proceed)
            builder.parameter(loop.proceed_name, proceed, BOOL)
        self._statements.block(statement.body, loop.start.keys() | names_read([statement.test]))
        results = {name: BodyResult(self._scopes.variables[name], statement.test) for name in loop.start}
        if loop.proceed is not None:
            again = condition_symbol(self._conditions.lower(statement.test))
            results[loop.proceed_name] = BodyResult(again, statement.test)
        return results

    def _repetition(self, loop: _Loop) -> Repetition:
        """Raises _TypesChanged."""
        changed = [
            name
            for name in loop.start
            if loop.types[name] != ANY and type_of(self._scopes.variables[name]) != loop.types[name]
        ]
        if changed:
            loop.types.update(dict.fromkeys(changed, ANY))
            raise _TypesChanged
        if loop.proceed is not None:
            condition = reference("inputs", loop.proceed_name)
        else:
            condition = self._test_over_inputs(loop)
        repeated = While(
            condition=Expr.tree(condition),
            carry={name: name for name in loop.names()},
            max_iterations=loop.limit,
            test="before",
            at_limit="fail",
        )
        return Repetition(repeated, loop.types)

    def _test_over_inputs(self, loop: _Loop) -> Node:
        """The condition as the step sees it: carried names are its inputs; all other names are those outside the loop."""
        with self._scopes.outside():
            for name, type_ in loop.types.items():
                self._scopes.bind(name, Dynamic(reference("inputs", name), type_))
            condition = self._conditions.lower(loop.statement.test)
        return Const(condition) if isinstance(condition, bool) else condition


def _widened(type_: Type) -> Type:
    """A tuple written out may be carried as a list."""
    return list_of(type_.item) if type_.name == "tuple" else type_


def still(stopped: str, test: ast.expr) -> ast.expr:
    """`not stopped and test`"""
    unless_stopped = ast.UnaryOp(ast.Not(), ast.Name(stopped, ast.Load()))
    both = ast.copy_location(ast.BoolOp(ast.And(), [unless_stopped, test]), test)
    return ast.fix_missing_locations(both)


def unless(stopped: str, statements: list[ast.stmt]) -> list[ast.stmt]:
    """`if not stopped: …`"""
    if not statements:
        return []
    branch = ast.If(ast.UnaryOp(ast.Not(), ast.Name(stopped, ast.Load())), statements, [])
    return [ast.fix_missing_locations(ast.copy_location(branch, statements[0]))]
