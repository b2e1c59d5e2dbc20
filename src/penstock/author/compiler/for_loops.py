"""Rule for `for` statements. Added to the table of statements by compile.

Rounds that do not depend on one another are one step with a for-each, whether the list is known or not. Rounds that depend on one another run one
after the other: over constants they are written out, over values of the run they are a while loop that goes through the list. So they are over
constants if what the rounds decide in the run would make the expressions too long.
"""

from __future__ import annotations

import ast
from typing import NamedTuple

from penstock.author.compiler.axes import UNROLL, Axes, loop_variable
from penstock.author.compiler.bindings import Bindings
from penstock.author.compiler.bodies import Bodies, BodyResult
from penstock.author.compiler.callees import Callees
from penstock.author.compiler.comprehensions import Comprehensions
from penstock.author.compiler.context import CompileContext
from penstock.author.compiler.expressions import Expressions
from penstock.author.compiler.jumps import jumps, without_jumps
from penstock.author.compiler.liveness import (
    append_target,
    changes,
    item_target,
    live_before,
    names_assigned,
    names_read,
    read_before_assigned,
)
from penstock.author.compiler.statements import StatementRules, Statements
from penstock.author.compiler.symbols import Dynamic, Static, Symbol
from penstock.author.compiler.while_loops import WhileLoops, still, unless
from penstock.errors import AuthorError
from penstock.expressions.parse import Call, Expr, ExpressionError, show
from penstock.expressions.types import INT
from penstock.graph.model import ForEach

_LONGEST = 10_000
"""Characters."""


class _Element(NamedTuple):
    """What each round adds to a list, or under `key` to a dict."""

    value: ast.expr
    key: ast.expr | None = None

    def pair(self) -> ast.expr:
        if self.key is None:
            return self.value
        return ast.copy_location(ast.Tuple([self.key, self.value], ast.Load()), self.value)


Collected = dict[str, _Element]


class ForLoops:
    def __init__(
        self,
        context: CompileContext,
        expressions: Expressions,
        callees: Callees,
        bodies: Bodies,
        bindings: Bindings,
        axes: Axes,
        comprehensions: Comprehensions,
        statements: Statements,
        while_loops: WhileLoops,
    ) -> None:
        self._context = context
        self._refusals = context.refusals
        self._scopes = context.scopes
        self._expressions = expressions
        self._callees = callees
        self._bodies = bodies
        self._bindings = bindings
        self._axes = axes
        self._comprehensions = comprehensions
        self._statements = statements
        self._while_loops = while_loops

    def rules(self) -> StatementRules:
        return {ast.For: self.loop}

    def loop(self, statement: ast.For, live: set[str]) -> None:
        self._refusals.refuse_returns(statement)
        otherwise = statement.orelse
        with self._context.own_names("stopped", "skipped") as (stopped, skipped):
            stops = jumps(statement.body, (ast.Break,))
            if jumps(statement.body):
                body = without_jumps(statement.body, stopped, skipped)
                statement = ast.copy_location(ast.For(statement.target, statement.iter, body, []), statement)
            if stops:
                self._scopes.bind(stopped, Static(False))
                otherwise = unless(stopped, otherwise)
            self._rounds(statement, live_before(otherwise, live), stopped if stops else "")
        self._statements.block(otherwise, live)

    def _rounds(self, statement: ast.For, live: set[str], stopped: str) -> None:
        filters, body = self._filtered(statement.body)
        collected = {name: item for name, item in _collected(body).items() if self._is_empty(name, item)}
        if filters and not collected:
            filters, body = [], statement.body
        for name in collected:
            self._bindings.refuse_alias(statement, name)
        assigned = names_assigned(body)
        from_round_to_round = (assigned & read_before_assigned(body)) | (set(changes(body)) - collected.keys())
        out_of_the_loop = (assigned | names_assigned([statement.target])) & live
        carried = sorted(from_round_to_round | out_of_the_loop)
        if not (carried or stopped or self._callees.any_called(*body)) and len(collected) == len(body) == 1:
            (name,) = collected
            self._listed(statement, name, collected[name], filters)
        elif carried or stopped or not self._callees.any_called(*body):
            self._one_by_one(statement, live, carried or sorted(collected), stopped)
        else:
            inner = ast.copy_location(ast.For(statement.target, statement.iter, body, []), statement)
            self._for_each(inner, collected, filters)

    def _listed(self, statement: ast.For, name: str, element: _Element, filters: list[ast.expr]) -> None:
        """A loop that does nothing but make a list or a dict, without a task: as a comprehension."""
        generator = ast.comprehension(target=statement.target, iter=statement.iter, ifs=filters, is_async=0)
        if element.key is None:
            made = self._comprehensions.comprehension(
                ast.copy_location(ast.ListComp(element.value, [generator]), statement)
            )
        else:
            dictionary = ast.copy_location(ast.DictComp(element.key, element.value, [generator]), statement)
            made = self._comprehensions.dictionary(dictionary)
        self._scopes.bind(name, made)

    def _filtered(self, body: list[ast.stmt]) -> tuple[list[ast.expr], list[ast.stmt]]:
        """The conditions around everything that a round does, and what it does."""
        tests: list[ast.expr] = []
        while len(body) == 1 and isinstance(body[0], ast.If) and not body[0].orelse:
            if self._callees.any_called(body[0].test):
                break
            tests.append(body[0].test)
            body = body[0].body
        return tests, body

    def _is_empty(self, name: str, item: _Element) -> bool:
        return self._bindings.is_empty_list(name) if item.key is None else self._bindings.is_empty_dict(name)

    # -- side by side

    def _for_each(self, statement: ast.For, collected: Collected, filters: list[ast.expr]) -> None:
        generator = ast.comprehension(target=statement.target, iter=statement.iter, ifs=filters, is_async=0)
        match statement.body:
            case [ast.Expr(value=ast.Call() as call)]:
                name = next(iter(collected), None)
                result = self._comprehensions.for_each(statement, [generator], collected[name].value if name else call)
                if name:
                    self._scopes.bind(name, result)
            case [ast.Assign()] if collected:
                name, element = next(iter(collected.items()))
                assert element.key is not None
                made = ast.copy_location(ast.DictComp(element.key, element.value, [generator]), statement)
                self._scopes.bind(name, self._comprehensions.dictionary(made))
            case _:
                self._nested(statement, collected, generator)

    def _nested(self, statement: ast.For, collected: Collected, generator: ast.comprehension) -> None:
        """A for-each over a nested workflow; the lists that it appends to are its outputs."""
        with self._scopes.shadowing():
            each = ForEach(axes=(self._axes.axis(statement.target, statement.iter),))
            keep = self._comprehensions.kept(generator)
            if keep is False:
                return
            when = None if keep is True else Expr.tree(keep)
            label = loop_variable(statement.target).replace("_", "-").strip("-")
            results = self._bodies.call(
                statement, f"for-{label}", lambda: self._round(statement, collected), each=each, when=when
            )
        for name, symbol in results.items():
            if when is None:
                self._axes.note_length(symbol, each)
            is_dict = collected[name].key is not None
            self._scopes.bind(name, self._comprehensions.of_pairs(statement.iter, symbol) if is_dict else symbol)

    def _round(self, statement: ast.For, collected: Collected) -> dict[str, BodyResult]:
        found: dict[str, BodyResult] = {}
        for i, inner in enumerate(statement.body):
            name = append_target(inner) or item_target(inner)
            if name in collected:
                element = collected[name].pair()
                found[name] = BodyResult(self._expressions.lower(element), element)
            else:
                self._statements.statement(inner, names_read(statement.body[i + 1 :]))
        return found

    # -- one after the other

    def _one_by_one(self, statement: ast.For, live: set[str], carried: list[str], stopped: str) -> None:
        items = self._expressions.lower(statement.iter)
        known = self._axes.elements(statement, items)
        if known is None:
            if not carried and not stopped:
                fix = "remove it, or call a task in it"
                raise self._refusals.error("P311", statement, "this loop calls no task", fix)
            self._go_through(statement, live, items, stopped)
            return
        if not any(isinstance(node, ast.If | ast.IfExp | ast.BoolOp) for node in ast.walk(statement)):
            self._write_out(statement, live, known, stopped)
            return
        # What a round decides in the run is in the expressions of the next one, twice: they grow with every round.
        restore = self._context.snapshot()
        can_be_written_out = True
        try:
            self._write_out(statement, live, known, stopped)
            if not self._has_grown(carried):
                return
        except (RecursionError, ExpressionError):
            can_be_written_out = False
        restore()
        try:
            self._go_through(statement, live, items, stopped)
        except AuthorError:
            if not can_be_written_out:
                raise
            restore()
            self._write_out(statement, live, known, stopped)

    def _has_grown(self, names: list[str]) -> bool:
        """Are the expressions of these variables longer than anybody wants to see?"""
        found = (self._scopes.find(name) for name in names)
        return any(len(show(one.node)) > _LONGEST for one in found if isinstance(one, Dynamic))

    def _write_out(self, statement: ast.For, live: set[str], known: list[Symbol], stopped: str) -> None:
        inside = live | names_read(statement.body) | ({stopped} if stopped else set())
        for item in known:
            if stopped:
                with self._context.own_names("item") as (name,):
                    self._scopes.bind(name, item)
                    assign = ast.Assign([statement.target], ast.Name(name, ast.Load()))
                    ast.fix_missing_locations(ast.copy_location(assign, statement))
                    self._statements.block(unless(stopped, [assign, *statement.body]), inside)
            else:
                self._bindings.assign(statement.target, item)
                self._statements.block(statement.body, inside)

    def _go_through(self, statement: ast.For, live: set[str], items: Symbol, stopped: str) -> None:
        """A while loop with an index."""
        label = loop_variable(statement.target).replace("_", "-").strip("-")
        with self._context.own_names("index", "count", "items") as (index, count, source):
            self._scopes.bind(index, Static(0))
            here: ast.expr = ast.Name(index, ast.Load())
            match items:
                case Dynamic(Call("range", (length,)), _):
                    self._scopes.bind(count, Dynamic(length, INT))
                case _:
                    values = self._axes.listed(statement.iter, items)
                    self._scopes.bind(source, values)
                    size = Call("size", (self._expressions.node(statement.iter, values),))
                    self._scopes.bind(count, Dynamic(size, INT))
                    here = ast.Subscript(ast.Name(source, ast.Load()), here, ast.Load())
            test: ast.expr = ast.Compare(ast.Name(index, ast.Load()), [ast.Lt()], [ast.Name(count, ast.Load())])
            test = still(stopped, ast.copy_location(test, statement.iter)) if stopped else test
            body = [
                ast.Assign([statement.target], ast.copy_location(here, statement.iter)),
                *statement.body,
                ast.AugAssign(ast.Name(index, ast.Store()), ast.Add(), ast.Constant(1)),
            ]
            loop = ast.While(ast.copy_location(test, statement.iter), body, [])
            for made in (loop, body[0], body[-1]):
                ast.copy_location(made, statement)
            ast.fix_missing_locations(loop)
            self._while_loops.repeat(loop, live, f"for-{label}", UNROLL)


def _collected(body: list[ast.stmt]) -> Collected:
    """Lists and dicts that each round adds exactly one element to, in a statement of the body itself, and reads nowhere else."""
    found: Collected = {}
    for statement in body:
        match statement:
            case ast.Expr(value=ast.Call(args=[item])) if name := append_target(statement):
                found[name] = _Element(item)
            case ast.Assign(targets=[ast.Subscript(slice=key)], value=value) if name := item_target(statement):
                if not isinstance(key, ast.Slice):
                    found[name] = _Element(value, key)
    everywhere = changes(body)
    return {name: item for name, item in found.items() if everywhere.count(name) == 1 and _count_reads(body, name) == 1}


def _count_reads(body: list[ast.stmt], name: str) -> int:
    nodes = (node for statement in body for node in ast.walk(statement))
    return sum(isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load) for node in nodes)
