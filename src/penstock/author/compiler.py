"""A @workflow function's source -> Workflow. Called by flow the first time a graph is asked for.

Reads the AST, never runs the body. Names keep a Symbol each; a call of a task leaves a step behind and stands for its
output; branches put conditions on steps and meet in a choice; loops over values become for-each steps, loops over constants
that depend on one another are written out; a body of several steps becomes a nested workflow that is given what it reads.
Everything else is refused, with the line and what to write instead (syntax.py).
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any

from penstock.author.annotations import hints_of, to_type
from penstock.author.blame import wrong
from penstock.author.jobs import to_job
from penstock.author.loops import Loops
from penstock.author.options import seconds
from penstock.author.scopes import Scope
from penstock.author.symbols import (
    NoValue,
    Static,
    Sym,
    Symbol,
    Unset,
    choose,
    negate,
    plain,
    type_of,
)
from penstock.author.syntax import always_returns, has_return, live_before, names_assigned, names_bound
from penstock.errors import Source
from penstock.graph.expr import Binary, ExpressionError, Node, parse, reference
from penstock.graph.model import Output, Parameter, Step, Unit, Workflow, expressions, step_values
from penstock.graph.satisfy import never
from penstock.graph.types import ANY, Type

_compiling: ContextVar[tuple[Any, ...]] = ContextVar("compiling", default=())


def compile_workflow(
    function: Callable[..., Any], name: str, given: Mapping[str, Any], defined: Source | None
) -> Workflow:
    """`given`: the options of @workflow. Raises AuthorError at the line that has no meaning."""
    stack = _compiling.get()
    if function in stack:
        names = " → ".join(each.__name__ for each in (*stack[stack.index(function) :], function))
        raise wrong(
            "P314", f"the workflow calls itself: {names}", "repeat with a while loop instead of recursion", defined
        )
    token = _compiling.set((*stack, function))
    try:
        compiled = _Compiler(function, name, given, defined).run()
        _read_back(compiled)
        return compiled
    except (RecursionError, ExpressionError):
        fix = "collect values in a list and combine them in one @task; turn a long elif chain into a lookup"
        raise wrong("P316", f"branches or expressions in {name!r} nest too deep", fix, defined) from None
    finally:
        _compiling.reset(token)


def _read_back(workflow: Workflow) -> None:
    """Every expression that was put together must also parse, which bounds its depth. Raises ExpressionError."""
    for one in (workflow, *workflow.definitions):
        values = [output.value for output in one.outputs]
        for value in (*values, *(value for step in one.steps for _, value in step_values(step))):
            for expr in expressions(value):
                parse(expr.text)


class _Compiler(Loops):
    def __init__(
        self, function: Callable[..., Any], name: str, given: Mapping[str, Any], defined: Source | None
    ) -> None:
        self.function = function
        self.workflow_name = name
        self.given = given
        try:
            lines, first = inspect.getsourcelines(function)
            tree = ast.parse(textwrap.dedent("".join(lines)))
        except (OSError, TypeError):
            raise wrong(
                "P315",
                f"the source of {function.__name__}() cannot be read",
                "define it in a file; code typed into a prompt or made by exec has none",
                defined,
            ) from None
        except SyntaxError:
            raise wrong(
                "P315",
                f"the source of {function.__name__}() cannot be read on its own",
                "put the def on lines of its own",
                defined,
            ) from None
        if not isinstance(tree.body[0], ast.FunctionDef):
            raise wrong("P315", "only functions made with def can be workflows", "write def name(...):", defined)
        self.definition = tree.body[0]
        ast.increment_lineno(tree, first - 1)
        indent = len(lines[0]) - len(lines[0].lstrip())
        for node in ast.walk(tree):
            if hasattr(node, "col_offset"):
                node.col_offset += indent
        super().__init__(
            inspect.getsourcefile(function) or "<source>", {first + i: line for i, line in enumerate(lines)}
        )
        self.globals = function.__globals__
        self.closure = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=False))
        self.uses: dict[str, Workflow] = {}
        self.digests: dict[Any, str] = {}
        self.scope = Scope(name)

    # -- the whole function

    def run(self) -> Workflow:
        function, given = self.function, self.given
        hints = hints_of(function)
        params = []
        for parameter in inspect.signature(function).parameters.values():
            params.append(self.parameter(parameter, to_type(hints.get(parameter.name, ANY))))
            self.scope.env[parameter.name] = Sym(reference("params", parameter.name), params[-1].type)
        self.scope.local = frozenset(names_assigned(self.definition.body))
        returned = self.block(self.body_without_docstring(), set())
        outputs: tuple[Output, ...] = ()
        if returned is not None and not (isinstance(returned, Static) and returned.value is None):
            outputs = (self.output("result", returned, self.last_return(), to_type(hints.get("return", ANY))),)
        exits: list[Step] = []
        for job in map(to_job, given.get("on_exit") or ()):
            for used in job.uses:
                self.define(self.definition, used)
            exits.append(dataclasses.replace(job.to_step(), name=self.scope.free(job.name)))
            self.scope.taken.add(exits[-1].name)
        return Workflow(
            name=self.workflow_name, params=tuple(params), steps=tuple(self.scope.steps), outputs=outputs,
            on_exit=tuple(exits), queue=given.get("queue"),
            priority=given.get("priority"), unit=None if given.get("unit") is None else Unit(given["unit"]), parallel=given.get("parallel"),
            timeout=None if given.get("timeout") is None else seconds(given["timeout"]), fail_fast=given.get("fail_fast", False),
            labels=dict(given.get("labels") or {}), definitions=tuple(self.uses[name] for name in sorted(self.uses)),
            doc=inspect.getdoc(function) or "", source=Source(self.file, self.definition.lineno),
        )  # fmt: skip

    def parameter(self, parameter: inspect.Parameter, type_: Type) -> Parameter:
        where: ast.AST = next(
            (arg for arg in ast.walk(self.definition.args) if isinstance(arg, ast.arg) and arg.arg == parameter.name),
            self.definition,
        )
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise self.error("P311", where, f"{str(parameter)!r} has no meaning in a workflow", "name each parameter")
        if parameter.default is parameter.empty:
            return Parameter(name=parameter.name, type=type_)
        try:
            return Parameter(name=parameter.name, type=type_, default=plain(parameter.default))
        except NoValue as error:
            raise self.error(
                "P307",
                where,
                f"the default {error} cannot be written into a workflow",
                "use text, numbers, true/false, lists or dicts",
            ) from None

    def body_without_docstring(self) -> list[ast.stmt]:
        body = self.definition.body
        first = body[0]
        has_docstring = (
            isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
        )
        return body[1:] if has_docstring else body

    def last_return(self) -> ast.expr:
        found = [
            node.value for node in ast.walk(self.definition) if isinstance(node, ast.Return) and node.value is not None
        ]
        return found[-1]

    # -- statements

    def block(self, statements: list[ast.stmt], live: set[str]) -> Symbol | None:
        """Compiles in order. Returns what the block returns, or None if it falls through its end.

        `live`: the names that are read after the block."""
        for i, statement in enumerate(statements):
            rest = statements[i + 1 :]
            if isinstance(statement, ast.Return):
                return Static(None) if statement.value is None else self.lower(statement.value)
            if isinstance(statement, ast.If) and has_return([statement]):
                return self.branch_and_return(statement, rest, live)
            # Only loops and branches ask what is read after them; to find out costs as much as the rest is long.
            matters = isinstance(statement, ast.If | ast.For | ast.While)
            self.statement(statement, live_before(rest, live) if matters else live)
        return None

    def statement(self, statement: ast.stmt, live: set[str]) -> None:
        self.hint = ""
        match statement:
            case ast.Assign(targets=targets, value=value):
                self.hint = targets[0].id if isinstance(targets[0], ast.Name) else ""
                symbol = self.lower(value)
                for target in targets:
                    self.assign(target, symbol)
            case ast.AnnAssign(target=target, value=value):
                if value is not None:
                    self.assign(target, self.lower(value))
            case ast.AugAssign(target=ast.Name() as target, op=op, value=value):
                if type_of(self.scope.env.get(target.id, Static(0))).name in ("list", "tuple"):
                    self.refuse_alias(statement, target.id)
                current = ast.copy_location(ast.Name(target.id, ast.Load()), target)
                self.assign(
                    target, self.arithmetic(statement, op, self.lower(current), self.lower(value), current, value)
                )
            case ast.Expr(
                value=ast.Call(func=ast.Attribute(attr="append", value=ast.Name() as owner), args=[item], keywords=[])
            ) if self.is_list(owner):
                self.append(statement, owner, item)
            case ast.Expr(value=ast.Constant()) | ast.Pass():
                return
            case ast.Expr(value=value):
                self.lower(value)
            case ast.If():
                self.branch(statement, live)
            case ast.For():
                self.for_loop(statement, live)
            case ast.While():
                self.while_loop(statement, live)
            case _:
                raise self.refused(statement)

    def decided(self, condition: bool | Node) -> bool | Node:
        """A condition that the branches around it have settled already is settled: its other branch is dead."""
        if isinstance(condition, bool) or isinstance(self.scope.guard, bool):
            return condition
        for answer, way in ((False, condition), (True, negate(condition))):
            if never(Binary("&&", self.scope.guard, way), lambda node: ANY, lambda node: ()):
                return answer
        return condition

    def branch(self, statement: ast.If, live: set[str]) -> None:
        condition = self.decided(self.condition(statement.test))
        if isinstance(condition, bool):
            self.block(statement.body if condition else statement.orelse, live)
            return
        before = dict(self.scope.env)
        with self.guarded(condition):
            self.block(statement.body, live)
        yes, self.scope.env = self.scope.env, dict(before)
        with self.guarded(negate(condition)):
            self.block(statement.orelse, live)
        self.scope.env = self.meet(statement, condition, yes, self.scope.env, before)

    def meet(
        self, where: ast.If, condition: Node, yes: dict[str, Symbol], no: dict[str, Symbol], before: dict[str, Symbol]
    ) -> dict[str, Symbol]:
        """Names as they are after both branches. Those that no branch binds are what they were, or came from outside."""
        bound = names_bound([*where.body, *where.orelse])
        met = dict(before)
        for name in [*yes, *(other for other in no if other not in yes)]:
            if name not in bound:
                met[name] = yes.get(name) or no[name]
                continue
            a, b = yes.get(name, Unset(name)), no.get(name, Unset(name))
            if isinstance(a, Unset) or isinstance(b, Unset):
                met[name] = Unset(name)
                continue
            try:
                met[name] = choose(condition, a, b)
            except NoValue as error:
                raise self.error(
                    "P307",
                    where.test,
                    f"{name!r} would be {error} in one branch, which cannot be passed between steps",
                    "use text, numbers, lists or dicts",
                ) from None
        return met

    def branch_and_return(self, statement: ast.If, rest: list[ast.stmt], live: set[str]) -> Symbol | None:
        """An if that returns: what comes after it is the other branch."""
        condition = self.decided(self.condition(statement.test))
        yes_body = statement.body if always_returns(statement.body) else [*statement.body, *rest]
        no_body = statement.orelse if always_returns(statement.orelse) else [*statement.orelse, *rest]
        if isinstance(condition, bool):
            return self.block(yes_body if condition else no_body, live)
        before = dict(self.scope.env)
        with self.guarded(condition):
            yes = self.block(yes_body, live)
        self.scope.env = dict(before)
        with self.guarded(negate(condition)):
            no = self.block(no_body, live)
        self.scope.env = before
        try:
            return choose(condition, yes or Static(None), no or Static(None))
        except NoValue as error:
            raise self.error(
                "P307", statement.test, f"{error} cannot be returned", "return text, numbers, lists or dicts"
            ) from None
