"""Calls of tasks, jobs and workflows -> steps. Called by loops and compiler, which build on it."""

from __future__ import annotations

import ast
import copy
import dataclasses
import inspect
from collections.abc import Callable, Iterator
from typing import Any

from penstock.author.annotations import to_type
from penstock.author.capture import module_of, recorded
from penstock.author.jobs import Authored, BaseJob
from penstock.author.options import KNOWN, step_fields
from penstock.author.scopes import Scope, Scoped
from penstock.author.symbols import (
    Static,
    Sym,
    Symbol,
    Unset,
    both,
    plain,
    type_of,
)
from penstock.author.tasks import Task
from penstock.errors import AuthorError
from penstock.graph import codec, model
from penstock.graph.expr import Binary, Expr, reference, references
from penstock.graph.model import Edge, ForEach, Input, Output, Step, While, Workflow
from penstock.graph.types import ANY, Type, list_of


class Calls(Scoped):
    """Each call leaves a step in the current scope and stands for its output."""

    workflow_name: str
    uses: dict[str, Workflow]
    digests: dict[Any, str]

    def emit(self, step: Step) -> None:
        when = self.scope.guard
        if not isinstance(when, bool):
            own = step.when.node if step.when is not None else True
            whole = both(when, own, "&&")
            step = dataclasses.replace(step, when=None if isinstance(whole, bool) else Expr.tree(whole))
        self.scope.add(step)

    def call_step(self, node: ast.Call, target: Any, each: ForEach | None = None, when: Expr | None = None) -> Symbol:
        for arg in node.args:
            if isinstance(arg, ast.Starred):
                raise self.refused(arg)
        if any(keyword.arg is None for keyword in node.keywords):
            raise self.error("P311", node, "** has no meaning in a workflow", "write the arguments out")
        if isinstance(target, BaseJob):
            step, result = self.job_step(node, target)
        elif isinstance(target, Authored):
            step, result = self.workflow_step(node, target)
        else:
            step, result = self.task_step(node, target)
        path, type_ = result
        if each is not None and not isinstance(target, BaseJob | Authored):
            each = dataclasses.replace(
                each, parallel=target.given.get("parallel"), gang=target.given.get("gang", False)
            )
        step = dataclasses.replace(step, needs=(*step.needs, *self.waits(node.func, step)))
        if step.each is not None:
            raise self.error(
                "P311",
                node,
                f"the job {step.name!r} has a loop of its own",
                "use it in the object form, or make its loop here",
            )
        if each is not None and when is not None:
            step = dataclasses.replace(step, outputs=self.empty_if_skipped(step, path, type_))
        if step.when is not None and when is not None:
            when = Expr.tree(Binary("&&", when.node, step.when.node))
        self.emit(dataclasses.replace(step, each=each, when=when or step.when))
        if path[-1] == "outputs" and isinstance(target, Authored) and not target.graph.outputs:
            return Static(None) if each is None else Unset(f"what {step.name} returns")
        return Sym(reference(*path), list_of(type_) if each is not None else type_)

    def empty_if_skipped(self, step: Step, path: tuple[str, ...], type_: Type) -> tuple[Output, ...]:
        """A filter that lets nothing through gives an empty list, as in Python, not no list."""
        declared = step.outputs or ((Output(name=path[-1], type=type_),) if len(path) == 4 else ())
        return tuple(dataclasses.replace(output, default=()) for output in declared)

    def waits(self, function: ast.expr, step: Step) -> Iterator[Edge]:
        """The steps behind the values in `task.after(a, b)(…)`. What comes from around a loop is waited for by the loop."""
        read = {path[1] for given in step.inputs for path in self.paths(given.value) if path[0] == "steps"}
        while isinstance(function, ast.Call) and isinstance(function.func, ast.Attribute):
            for argument in function.args if function.func.attr == "after" else ():
                for path in self.paths(self.value(argument, self.lower(argument))):
                    if path[0] == "steps" and path[1] not in read:
                        read.add(path[1])
                        yield Edge(path[1])
            function = function.func.value

    def paths(self, value: Any) -> Iterator[tuple[str, ...]]:
        for expr in model.expressions(value):
            yield from references(expr.text)

    def bind(self, node: ast.Call, signature: inspect.Signature, name: str) -> dict[str, ast.expr]:
        try:
            bound = signature.bind(*node.args, **{keyword.arg or "": keyword.value for keyword in node.keywords})
        except TypeError as error:
            raise self.error(
                "P309", node, f"{name}(): {error}", f"call it as {name}{signature}"[:200].replace("'", "")
            ) from None
        return dict(bound.arguments)

    def arguments(self, given: dict[str, ast.expr], wanted: dict[str, Type]) -> tuple[Input, ...]:
        inputs = []
        for name, node in given.items():
            symbol = self.lower(node)
            inputs.append(Input(name=name, value=self.value(node, symbol), type=wanted.get(name, ANY)))
        return tuple(inputs)

    def task_step(self, node: ast.Call, task: Task[..., Any]) -> tuple[Step, tuple[tuple[str, ...], Type]]:
        given = self.bind(node, task.signature, task.name)
        inputs = self.arguments(given, {name: to_type(hint) for name, hint in task.hints.items()})
        name = self.scope.free(task.name)
        function = task.function
        if function not in self.digests:
            self.digests[function] = recorded(function)
        action = model.Function(
            module=module_of(function), name=function.__qualname__, code=self.digests[function],
            image=task.given.get("image"), env=plain(dict(task.given.get("env") or {})),
        )  # fmt: skip
        fields = step_fields({key: value for key, value in task.given.items() if key in KNOWN})
        outputs = (Output(name="result", type=task.result_type),)
        step = Step(name=name, action=action, inputs=inputs, outputs=outputs, source=self.source(node), **fields)
        return step, (("steps", name, "outputs", "result"), task.result_type)

    def workflow_step(self, node: ast.Call, target: Authored) -> tuple[Step, tuple[tuple[str, ...], Type]]:
        try:
            graph = target.graph
        except AuthorError as error:
            if error.code == "P314":
                raise self.error("P314", node, error.problems[0].message, error.problems[0].fix) from None
            raise
        function = getattr(target, "function", None)
        signature = (
            inspect.signature(function)
            if function is not None
            else inspect.Signature(
                [
                    inspect.Parameter(
                        p.name,
                        inspect.Parameter.KEYWORD_ONLY,
                        default=inspect.Parameter.empty if p.default is model.MISSING else p.default,
                    )
                    for p in graph.params
                ]
            )
        )
        inputs = self.arguments(
            self.bind(node, signature, graph.name), {param.name: param.type for param in graph.params}
        )
        job = target.as_job(self.scope.free(graph.name))
        for workflow in job.uses:
            self.define(node, workflow)
        result = {output.name: output.type for output in graph.outputs}
        step = Step(name=job.name, action=job.action, inputs=inputs, source=self.source(node), **job.fields)
        return step, self.result_of(job.name, result)

    def job_step(self, node: ast.Call, job: BaseJob) -> tuple[Step, tuple[tuple[str, ...], Type]]:
        if node.args:
            raise self.error(
                "P309", node.args[0], f"the inputs of the job {job.name!r} have names", f"write {job.name}(name=…)"
            )
        given = {}
        for keyword in node.keywords:
            if keyword.arg not in job.inputs:
                raise self.error(
                    "P309",
                    keyword.value,
                    f"the job {job.name!r} has no input {keyword.arg!r}",
                    f"known: {', '.join(job.inputs) or 'none'}",
                )
            given[keyword.arg] = self.value(keyword.value, self.lower(keyword.value))
        missing = [name for name, item in job.inputs.items() if item.value is model.MISSING and name not in given]
        if missing:
            raise self.error(
                "P309",
                node,
                f"the job {job.name!r} needs the input {missing[0]!r}",
                f"write {job.name}({missing[0]}=…)",
            )
        inputs = tuple(
            dataclasses.replace(item, value=given.get(name, item.value)) for name, item in job.inputs.items()
        )
        name = self.scope.free(job.name)
        for workflow in job.uses:
            self.define(node, workflow)
        bound = copy.copy(job)
        bound.inputs = {item.name: item for item in inputs}
        step = dataclasses.replace(bound.to_step(), name=name, source=self.source(node))
        return step, self.result_of(name, job.output_types())

    def result_of(self, step: str, outputs: dict[str, Type]) -> tuple[tuple[str, ...], Type]:
        """One output is the value of the call; several are looked up by name; none is nothing worth having."""
        if len(outputs) == 1:
            name, type_ = next(iter(outputs.items()))
            return ("steps", step, "outputs", name), type_
        return ("steps", step, "outputs"), Type("dict", (ANY,))

    def define(self, node: ast.AST, workflow: Workflow) -> None:
        known = self.uses.setdefault(workflow.name, workflow)
        if known is not workflow and codec.digest(known) != codec.digest(workflow):
            raise self.error("P210", node, f"two different workflows are named {workflow.name!r}", "rename one")

    def output(self, name: str, symbol: Symbol, where: ast.expr, declared: Type = ANY) -> Output:
        found = type_of(symbol)
        return Output(name=name, value=self.value(where, symbol), type=declared if declared.name != "any" else found)

    def body(
        self, where: ast.AST, name: str, each: ForEach | None, when: Expr | None, work: Callable[[], dict[str, tuple[Symbol, ast.expr]]],
        loop: Callable[[Scope], tuple[While, dict[str, Type]]] | None = None,
    ) -> dict[str, Symbol]:  # fmt: skip
        """Compiles `work` into a workflow of its own and calls that as one step. Returns the outputs as seen from here."""
        outer = self.scope
        step_name = outer.free(name)
        self.scope = Scope(step_name, outer=outer)
        try:
            results = work()
            inner = self.scope
            repeat, declared = loop(inner) if loop is not None else (None, {})
            outputs = tuple(
                self.output(key, symbol, node, declared.get(key, ANY)) for key, (symbol, node) in results.items()
            )
        finally:
            self.scope = outer
        label, number = f"{self.workflow_name}-{step_name}", 2
        workflow = Workflow(
            name=label,
            params=tuple(inner.params.values()),
            steps=tuple(inner.steps),
            outputs=outputs,
            source=self.source(where),
        )
        while label in self.uses and self.uses[label] != workflow:
            label, number = f"{self.workflow_name}-{step_name}-{number}", number + 1
            workflow = dataclasses.replace(workflow, name=label)
        self.uses[label] = workflow
        self.emit(
            Step(
                name=step_name,
                action=model.Nested(name=label),
                inputs=tuple(inner.inputs.values()),
                each=each,
                when=when,
                outputs=tuple(Output(name=o.name, type=o.type, default=()) for o in outputs) if each and when else (),
                loop=repeat,
                source=self.source(where),
            )
        )
        return {
            output.name: Sym(
                reference("steps", step_name, "outputs", output.name),
                list_of(output.type) if each is not None else output.type,
            )
            for output in outputs
        }
