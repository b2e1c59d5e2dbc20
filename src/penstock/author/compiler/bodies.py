"""The body of a loop -> a nested workflow, called as one step. Called by comprehensions, for_loops and while_loops."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import NamedTuple

from penstock.author.compiler.context import CompileContext
from penstock.author.compiler.expressions import Expressions
from penstock.author.compiler.refusals import Located
from penstock.author.compiler.symbols import Dynamic, Symbol
from penstock.expressions.parse import Expr, reference
from penstock.expressions.types import ANY, Type, list_of
from penstock.graph import model
from penstock.graph.model import ForEach, Output, Step, While, Workflow


class BodyResult(NamedTuple):
    """A value that leaves the body."""

    symbol: Symbol
    node: ast.expr
    """Where a refusal points."""


class Repetition(NamedTuple):
    """How a while loop runs its body again."""

    loop: While
    types: dict[str, Type]
    """The declared types of results."""


class Bodies:
    def __init__(self, context: CompileContext, expressions: Expressions) -> None:
        self._refusals = context.refusals
        self._scopes = context.scopes
        self._definitions = context.definitions
        self._expressions = expressions

    def call(
        self,
        where: Located,
        name: str,
        work: Callable[[], dict[str, BodyResult]],
        *,
        each: ForEach | None = None,
        when: Expr | None = None,
        repetition: Callable[[], Repetition] | None = None,
    ) -> dict[str, Symbol]:
        """Compiles `work` into a workflow of its own and adds one step that calls it. Returns its outputs, as seen from here.

        `repetition` is asked after `work`, inside the body."""
        step_name = self._scopes.builder.free_name(name)
        with self._scopes.body() as inner:
            results = work()
            loop, declared = repetition() if repetition is not None else (None, {})
            outputs = tuple(
                self._expressions.output(key, result.node, result.symbol, declared.get(key, ANY))
                for key, result in results.items()
            )
        source = self._refusals.source(where)
        workflow = Workflow(
            name="", params=tuple(inner.params.values()), steps=tuple(inner.steps), outputs=outputs, source=source
        )
        step = Step(
            name=step_name,
            action=model.Nested(name=self._definitions.add_body(step_name, workflow)),
            inputs=tuple(inner.inputs.values()),
            each=each,
            when=when,
            # A filter that lets no item through gives empty lists, as in Python.
            outputs=tuple(Output(name=o.name, type=o.type, default=()) for o in outputs) if each and when else (),
            loop=loop,
            source=source,
        )
        self._scopes.emit(step)
        return {
            output.name: Dynamic(
                reference("steps", step_name, "outputs", output.name),
                list_of(output.type) if each is not None else output.type,
            )
            for output in outputs
        }
