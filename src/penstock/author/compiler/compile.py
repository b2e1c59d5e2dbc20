"""A @workflow function -> Workflow. Called by `author.flow` when the graph is asked for the first time.

Names stand for symbols. A call of a task adds a step and stands for its output. A branch puts its condition on the steps
inside it. A loop over values is a step with a for-each; a loop over constants whose rounds depend on one another is written
out; a loop body of several steps is a nested workflow that gets what it reads as parameters.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any

from penstock.artifacts.rebuild import hints_of
from penstock.author.annotations import misfit, to_type
from penstock.author.capture import compiled
from penstock.author.compiler.assignments import Assignments
from penstock.author.compiler.axes import Axes
from penstock.author.compiler.bindings import Bindings
from penstock.author.compiler.bodies import Bodies
from penstock.author.compiler.callees import Callees
from penstock.author.compiler.calls import Calls
from penstock.author.compiler.comprehensions import Comprehensions
from penstock.author.compiler.conditions import Conditions
from penstock.author.compiler.context import CompileContext
from penstock.author.compiler.expressions import Expressions
from penstock.author.compiler.for_loops import ForLoops
from penstock.author.compiler.literals import Literals
from penstock.author.compiler.liveness import names_assigned
from penstock.author.compiler.operators import Operators
from penstock.author.compiler.source import FunctionSource
from penstock.author.compiler.statements import Statements
from penstock.author.compiler.step_calls import StepCalls
from penstock.author.compiler.subscripts import Subscripts
from penstock.author.compiler.symbols import Dynamic, NoValue, Static, constant_value
from penstock.author.compiler.while_loops import WhileLoops
from penstock.author.errors import author_error
from penstock.author.jobs import to_job
from penstock.author.options import seconds
from penstock.author.values import holds_secret
from penstock.errors import Source
from penstock.expressions.parse import ExpressionError, parse, reference
from penstock.expressions.types import ANY, Type
from penstock.graph.model import Output, Parameter, Step, Unit, Workflow, expressions, step_values

_compiling: ContextVar[tuple[Any, ...]] = ContextVar("compiling", default=())
"""The functions that are being compiled: a function compiles those that it calls."""


def compile_workflow(
    function: Callable[..., Any], name: str, options: Mapping[str, Any], defined: Source | None
) -> Workflow:
    """`options`: those of @workflow. Raises AuthorError at the line that has no meaning."""
    stack = _compiling.get()
    if function in stack:
        names = " → ".join(each.__name__ for each in (*stack[stack.index(function) :], function))
        fix = "repeat with a while loop instead of recursion"
        raise author_error("P314", f"the workflow calls itself: {names}", fix, defined)
    token = _compiling.set((*stack, function))
    try:
        source = FunctionSource(function, defined)
        graph = FunctionCompiler(source, name, options.get("max_iterations", 1000)).compile(function, options)
        _check_depth(graph)
        compiled[graph.name, graph.source] = function
        return graph
    except (RecursionError, ExpressionError):
        fix = "collect values in a list and combine them in one @task; turn a long elif chain into a lookup"
        raise author_error("P316", f"branches or expressions in {name!r} nest too deep", fix, defined) from None
    finally:
        _compiling.reset(token)


def _check_depth(workflow: Workflow) -> None:
    """Parses every expression again: the parser limits the depth. Raises ExpressionError."""
    for one in (workflow, *workflow.definitions):
        values = [output.value for output in one.outputs]
        for value in (*values, *(value for step in one.steps for _, value in step_values(step))):
            for expr in expressions(value):
                parse(expr.text)


class FunctionCompiler:
    """The parts that compile one function, put together."""

    def __init__(self, source: FunctionSource, name: str, max_iterations: int = 1000) -> None:
        self._source = source
        self._name = name
        self.context = context = CompileContext(source, name, max_iterations)
        self.expressions = expressions = Expressions(context.refusals)
        conditions = Conditions(context, expressions)
        operators = Operators(context, expressions, conditions)
        callees = Callees(context, expressions)
        steps = StepCalls(context, expressions)
        bodies = Bodies(context, expressions)
        bindings = Bindings(context)
        axes = Axes(context, expressions, callees, bindings)
        comprehensions = Comprehensions(context, expressions, conditions, callees, steps, bodies, bindings, axes)
        expressions.add(Literals(context, expressions).rules())
        expressions.add(Subscripts(context, expressions).rules())
        expressions.add(conditions.rules())
        expressions.add(operators.rules())
        expressions.add(Calls(context, expressions, callees, steps).rules())
        expressions.add(comprehensions.rules())
        self.statements = statements = Statements(context, expressions, conditions)
        while_loops = WhileLoops(context, conditions, callees, bodies, bindings, statements)
        for_loops = ForLoops(
            context, expressions, callees, bodies, bindings, axes, comprehensions, statements, while_loops
        )
        statements.add(Assignments(context, expressions, operators, bindings, axes).rules())
        statements.add(for_loops.rules())
        statements.add(while_loops.rules())

    def compile(self, function: Callable[..., Any], options: Mapping[str, Any]) -> Workflow:
        """`options`: those of @workflow."""
        source, scopes = self._source, self.context.scopes
        hints = hints_of(function)
        params = self._parameters(function, hints)
        scopes.declare_local(names_assigned(source.definition.body))
        outputs = self._outputs(to_type(hints.get("return", ANY)))
        exits = self._exits(options.get("on_exit") or ())
        return Workflow(
            name=self._name,
            params=params,
            steps=tuple(scopes.builder.steps),
            outputs=outputs,
            on_exit=exits,
            queue=options.get("queue"),
            priority=options.get("priority"),
            unit=None if options.get("unit") is None else Unit(options["unit"]),
            parallel=options.get("parallel"),
            timeout=None if options.get("timeout") is None else seconds(options["timeout"]),
            fail_fast=options.get("fail_fast", False),
            labels=dict(options.get("labels") or {}),
            payload=options.get("payload"),
            definitions=self.context.definitions.by_name(),
            doc=inspect.getdoc(function) or "",
            source=Source(source.file, source.definition.lineno),
        )

    def _parameters(self, function: Callable[..., Any], hints: Mapping[str, Any]) -> tuple[Parameter, ...]:
        params = []
        for given in inspect.signature(function).parameters.values():
            param = self._parameter(given, hints.get(given.name, Any))
            hint = hints.get(param.name)
            self.context.scopes.bind(param.name, Dynamic(reference("params", param.name), param.type, hint))
            params.append(param)
        return tuple(params)

    def _parameter(self, given: inspect.Parameter, hint: Any) -> Parameter:
        type_ = to_type(hint)
        where, refusals = self._source.parameter(given.name), self.context.refusals
        if given.kind in (given.VAR_POSITIONAL, given.VAR_KEYWORD):
            raise refusals.error("P311", where, f"{str(given)!r} has no meaning in a workflow", "name each parameter")
        if given.default is given.empty:
            return Parameter(name=given.name, type=type_)
        if holds_secret(given.default):
            message = f"the default of {given.name} holds a secret, and the parameters of a run are recorded"
            fix = f"leave out the parameter, and write secret(…) where a task is called: fetch({given.name}=secret(…))"
            raise refusals.error("P307", where, message, fix)
        wrong = misfit(given.name, given.default, hint) if hint is not Any else None
        if wrong is not None:
            raise refusals.error("P402", where, f"the default of {given.name} is {wrong}", wrong.fix)
        try:
            return Parameter(name=given.name, type=type_, default=constant_value(given.default))
        except NoValue as error:
            message = f"the default {error} cannot be written into a workflow"
            raise refusals.error("P307", where, message, "use text, numbers, true/false, lists or dicts") from None

    def _outputs(self, declared: Type) -> tuple[Output, ...]:
        """Compiles the body. What it returns is the output `result`."""
        returned = self.statements.block(self._source.body(), set())
        if returned is None or (isinstance(returned, Static) and returned.value is None):
            return ()
        return (self.expressions.output("result", self._source.last_return(), returned, declared),)

    def _exits(self, given: Any) -> tuple[Step, ...]:
        exits: list[Step] = []
        builder = self.context.scopes.builder
        for job in map(to_job, given):
            for used in job.uses:
                self.context.definitions.define(self._source.definition, used)
            exits.append(dataclasses.replace(job.to_step(), name=builder.free_name(job.name)))
            builder.reserve(exits[-1].name)
        return tuple(exits)
