"""Calls of tasks, jobs and workflows -> steps. Called by calls and comprehensions."""

from __future__ import annotations

import ast
import copy
import dataclasses
import inspect
import types
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from penstock.author.annotations import misfit, to_type
from penstock.author.capture import declared, module_of, recorded
from penstock.author.compiler.callees import Callee
from penstock.author.compiler.context import CompileContext
from penstock.author.compiler.expressions import Expressions
from penstock.author.compiler.symbols import Dynamic, Static, Symbol, Unbound, constant_value
from penstock.author.jobs import Authored, BaseJob
from penstock.author.options import KNOWN, step_fields
from penstock.author.tasks import TaskFunction
from penstock.author.values import holds_secret
from penstock.errors import AuthorError
from penstock.expressions.parse import Binary, Expr, reference, references
from penstock.expressions.types import ANY, Type, list_of
from penstock.graph import model
from penstock.graph.model import Edge, ForEach, Input, Output, Step


class _CalledStep(NamedTuple):
    step: Step
    path: tuple[str, ...]
    """Where the value of the call is read: `steps.NAME.outputs.OUTPUT`."""
    type: Type


class StepCalls:
    """Each call adds a step to the current scope and stands for its output."""

    def __init__(self, context: CompileContext, expressions: Expressions) -> None:
        self._refusals = context.refusals
        self._scopes = context.scopes
        self._definitions = context.definitions
        self._expressions = expressions
        self._digests: dict[Callable[..., Any], str] = {}
        """Functions whose code was read already."""

    def call(self, node: ast.Call, callee: Callee, each: ForEach | None = None, when: Expr | None = None) -> Symbol:
        """`each`, `when`: the loop around the call and its filter, if the call is the element of a comprehension."""
        self._check_arguments(node)
        if isinstance(callee, BaseJob):
            step, path, type_ = self._job(node, callee)
        elif isinstance(callee, Authored):
            step, path, type_ = self._workflow(node, callee)
        else:
            step, path, type_ = self._task(node, callee)
            if each is not None:
                limits = {"parallel": callee.given.get("parallel"), "gang": callee.given.get("gang", False)}
                each = dataclasses.replace(each, **limits)
        step = dataclasses.replace(step, needs=(*step.needs, *self._waits(node.func, step)))
        if step.each is not None:
            message = f"the job {step.name!r} has a loop of its own"
            raise self._refusals.error("P311", node, message, "use it in the object form, or make its loop here")
        if each is not None and when is not None:
            step = dataclasses.replace(step, outputs=_empty_if_skipped(step, path, type_))
        if step.when is not None and when is not None:
            when = Expr.tree(Binary("&&", when.node, step.when.node))
        self._scopes.emit(dataclasses.replace(step, each=each, when=when or step.when))
        if path[-1] == "outputs" and isinstance(callee, Authored) and not callee.graph.outputs:
            return Static(None) if each is None else Unbound(f"what {step.name} returns")
        hint = callee.hints.get("return") if isinstance(callee, TaskFunction) else None
        if each is None:
            return Dynamic(reference(*path), type_, hint)
        return Dynamic(reference(*path), list_of(type_), None if hint is None else types.GenericAlias(list, (hint,)))

    def _check_arguments(self, node: ast.Call) -> None:
        for arg in node.args:
            if isinstance(arg, ast.Starred):
                raise self._refusals.meaningless(arg)
        if any(keyword.arg is None for keyword in node.keywords):
            raise self._refusals.error("P311", node, "** has no meaning in a workflow", "write the arguments out")

    def _waits(self, function: ast.expr, step: Step) -> Iterator[Edge]:
        """The steps behind the values in `task.after(a, b)(…)`. A value from outside a loop is waited for by the loop."""
        read = {path[1] for given in step.inputs for path in _paths(given.value) if path[0] == "steps"}
        while isinstance(function, ast.Call) and isinstance(function.func, ast.Attribute):
            for argument in function.args if function.func.attr == "after" else ():
                for path in _paths(self._expressions.value(argument, self._expressions.lower(argument))):
                    if path[0] == "steps" and path[1] not in read:
                        read.add(path[1])
                        yield Edge(path[1])
            function = function.func.value

    # -- tasks and workflows have a signature

    def _task(self, node: ast.Call, task: TaskFunction[..., Any]) -> _CalledStep:
        given = self._bind(node, task.signature, task.name)
        known = {name: to_type(hint) for name, hint in task.hints.items()}
        inputs = (
            *self._inputs(task.name, given, known, task.hints),
            *(
                Input(name=name, value=constant_value(default), type=known.get(name, ANY))
                for name, default in task.secret_defaults.items()
                if name not in given
            ),
        )
        name = self._scopes.builder.free_name(task.name)
        function = task.function
        if function not in self._digests:
            self._digests[function] = recorded(function)
        action = model.Function(
            module=module_of(function),
            name=function.__qualname__,
            code=self._digests[function],
            image=task.given.get("image"),
            env={name: constant_value(value) for name, value in (task.given.get("env") or {}).items()},
        )
        step = Step(
            name=name,
            action=action,
            inputs=inputs,
            outputs=(Output(name="result", type=task.result_type),),
            source=self._refusals.source(node),
            **step_fields({key: value for key, value in task.given.items() if key in KNOWN}),
        )
        return _CalledStep(step, ("steps", name, "outputs", "result"), task.result_type)

    def _workflow(self, node: ast.Call, target: Authored) -> _CalledStep:
        try:
            graph = target.graph
        except AuthorError as error:
            if error.code == "P314":
                raise self._refusals.error("P314", node, error.problems[0].message, error.problems[0].fix) from None
            raise
        given = self._bind(node, target.signature, graph.name)
        types = {param.name: param.type for param in graph.params}
        inputs = self._inputs(graph.name, given, types, declared(graph))
        job = target.as_job(self._scopes.builder.free_name(graph.name))
        for workflow in job.uses:
            self._definitions.define(node, workflow)
        step = Step(name=job.name, action=job.action, inputs=inputs, source=self._refusals.source(node), **job.fields)
        return _CalledStep(step, *_result_of(job.name, {output.name: output.type for output in graph.outputs}))

    def _bind(self, node: ast.Call, signature: inspect.Signature, name: str) -> dict[str, ast.expr]:
        try:
            bound = signature.bind(*node.args, **{keyword.arg or "": keyword.value for keyword in node.keywords})
        except TypeError as error:
            fix = f"call it as {name}{signature}"[:200].replace("'", "")
            raise self._refusals.error("P309", node, f"{name}(): {error}", fix) from None
        return dict(bound.arguments)

    def _inputs(
        self, callee: str, given: dict[str, ast.expr], types: dict[str, Type], hints: dict[str, Any]
    ) -> tuple[Input, ...]:
        found = []
        for name, node in given.items():
            symbol = self._expressions.lower(node)
            value = self._expressions.value(node, symbol)
            if isinstance(symbol, Static) and not holds_secret(symbol.value):
                wrong = misfit(name, symbol.value, hints.get(name, Any))
                if wrong is not None:
                    raise self._refusals.error("P309", node, f"{name} of {callee}() is {wrong}", wrong.fix)
            found.append(Input(name=name, value=value, type=types.get(name, ANY)))
        return tuple(found)

    # -- jobs have inputs

    def _job(self, node: ast.Call, job: BaseJob) -> _CalledStep:
        bound = copy.copy(job)
        bound.inputs = self._job_inputs(node, job)
        name = self._scopes.builder.free_name(job.name)
        for workflow in job.uses:
            self._definitions.define(node, workflow)
        step = dataclasses.replace(bound.to_step(), name=name, source=self._refusals.source(node))
        return _CalledStep(step, *_result_of(name, job.output_types()))

    def _job_inputs(self, node: ast.Call, job: BaseJob) -> dict[str, Input]:
        error = self._refusals.error
        if node.args:
            message = f"the inputs of the job {job.name!r} have names"
            raise error("P309", node.args[0], message, f"write {job.name}(name=…)")
        given = {}
        for keyword in node.keywords:
            if keyword.arg not in job.inputs:
                message = f"the job {job.name!r} has no input {keyword.arg!r}"
                raise error("P309", keyword.value, message, f"known: {', '.join(job.inputs) or 'none'}")
            given[keyword.arg] = self._expressions.value(keyword.value, self._expressions.lower(keyword.value))
        for name, item in job.inputs.items():
            if item.value is model.MISSING and name not in given:
                message = f"the job {job.name!r} needs the input {name!r}"
                raise error("P309", node, message, f"write {job.name}({name}=…)")
        return {name: dataclasses.replace(item, value=given.get(name, item.value)) for name, item in job.inputs.items()}


def _paths(value: Any) -> Iterator[tuple[str, ...]]:
    for expr in model.expressions(value):
        yield from references(expr.text)


def _result_of(step: str, outputs: dict[str, Type]) -> tuple[tuple[str, ...], Type]:
    """One output is the value of the call. Several are a dict of values."""
    if len(outputs) == 1:
        name, type_ = next(iter(outputs.items()))
        return ("steps", step, "outputs", name), type_
    return ("steps", step, "outputs"), Type("dict", (ANY,))


def _empty_if_skipped(step: Step, path: tuple[str, ...], type_: Type) -> tuple[Output, ...]:
    """A filter that lets no item through gives an empty list, as in Python."""
    declared = step.outputs or ((Output(name=path[-1], type=type_),) if len(path) == 4 else ())
    return tuple(dataclasses.replace(output, default=()) for output in declared)
