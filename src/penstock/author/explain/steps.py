"""One step -> Python text: the job, and the decorators around it. Called by program."""

from __future__ import annotations

import dataclasses
import keyword
from collections.abc import Iterator, Mapping
from typing import Any

from penstock.author.explain.layout import Imports, call
from penstock.author.explain.values import ModelWriter, ValueWriter, declared
from penstock.author.options import GPU, dedented
from penstock.expressions.parse import Call, Const, Expr, references
from penstock.graph import model, quantity
from penstock.graph.model import MISSING, Input, Output, Step


class WrittenWorkflows:
    """The workflows of one text, by their names in the graph."""

    def __init__(self) -> None:
        self.variables: dict[str, str] = {}
        """Those that are written already."""
        self.called_by_name: set[str] = set()
        """Those that a step called before they were written, as a workflow that calls itself does."""


class StepWriter:
    def __init__(
        self, imports: Imports, written: WrittenWorkflows, values: ValueWriter, step: Step, variable: str
    ) -> None:
        self._imports = imports
        self._model = ModelWriter(imports)
        self._written = written
        self._step = step
        self._variable = variable
        self._steps = values.steps
        names = [name for axis in (step.each.axes if step.each else ()) for name in axis]
        usable = bool(names) and all(name.isidentifier() and not keyword.iskeyword(name) for name in names)
        usable = usable and step.each is not None and step.each.at_once is None and step.each.enough is None
        shadowed = set(names) & ({*values.params.values()} | {*values.steps.values()})
        self._decorated = usable and not shadowed
        """Is the loop written as @for_loop? Its variables are parameters of a function then."""
        self._values = dataclasses.replace(values, items={name: name for name in names} if self._decorated else {})

    def text(self) -> str:
        step = self._step
        if self._decorated or step.loop is not None:
            head = "\n".join([*self._decorators(), f"def {self._variable}({', '.join(self._values.items)}):"])
            return head + "\n" + call(f"return {self._head()}", self._args(), "    ") + self._after()
        text = call(f"{self._variable} = {self._head()}", self._args(inline_when=True)) + self._after()
        if step.each is not None:
            text += f"\n{self._variable}.each = {self._raw_loop(step.each)}"
        return text

    def _raw_loop(self, each: model.ForEach) -> str:
        """For names of loop variables that Python does not allow."""
        axes = ", ".join(
            "{" + ", ".join(f"{name!r}: {self._model.part(items)}" for name, items in axis.items()) + "}"
            for axis in each.axes
        )
        limits = f", parallel={each.parallel}" if each.parallel else ""
        gang = ", gang=True" if each.gang else ""
        now = f", at_once={self._model.part(each.at_once)}" if each.at_once is not None else ""
        enough = f", enough={self._model.part(each.enough)}" if each.enough is not None else ""
        return f"{self._imports.use('ForEach', 'penstock.graph.model')}(axes=({axes},){limits}{gang}{now}{enough})"

    # -- decorators

    def _decorators(self) -> Iterator[str]:
        step = self._step
        if self._decorated and step.each is not None:
            yield from self._for_loops(step.each)
        if step.loop is not None:
            yield self._while_loop(step.loop)
        if step.when is not None:
            text = self._values.condition(step.when)
            yield f"@{self._imports.use('when')}({_over_items(text, _items_in(step.when), [*self._values.items])})"

    def _while_loop(self, loop: model.While) -> str:
        args = [repr(loop.condition.text)]
        if loop.carry:
            args.append(f"carry={dict(loop.carry)!r}")
        args.append(f"max_iterations={loop.max_iterations}")
        args.append(f"test={loop.test!r}")
        if loop.at_limit != "stop":
            args.append(f"at_limit={loop.at_limit!r}")
        return f"@{self._imports.use('while_loop')}({', '.join(args)})"

    def _for_loops(self, each: model.ForEach) -> Iterator[str]:
        limits = [f"parallel={each.parallel}"] if each.parallel is not None else []
        limits += ["gang=True"] if each.gang else []
        known: list[str] = []
        for axis in each.axes:
            args = [
                f"{name}={_over_items(self._axis_items(items), _items_in(items), known)}"
                for name, items in axis.items()
            ]
            known += axis
            if len(axis) > 1:
                args.append("zipped=True")
            yield f"@{self._imports.use('for_loop')}({', '.join([*args, *limits])})"
            limits = []

    def _axis_items(self, items: Any) -> str:
        if isinstance(items, Expr):
            match items.node:
                case Call("range", (Const(start), Const(stop), Const(step))):
                    return f"range({start}, {stop}, {step})"
        return self._values.value(items)

    # -- the job

    def _head(self) -> str:
        """The class or function that makes the job."""
        match self._step.action:
            case model.Container():
                return self._imports.use("ContainerJob")
            case model.Script(source=source) if not isinstance(source, str) or dedented(source) == source:
                return self._imports.use("ScriptJob")
            case model.Resource(manifest=manifest) if isinstance(manifest, Mapping):
                return self._imports.use("ResourceJob")
            case model.Function(name=name) if self._importable(name):
                return self._imports.use("FunctionJob")
            case model.Nested(name=name) if name in self._written.variables:
                return f"{self._written.variables[name]}.as_job"
            case _:
                return self._imports.use("BaseJob")

    def _importable(self, name: str) -> bool:
        return all(part.isidentifier() for part in name.split(".")) and len(self._step.outputs) == 1

    def _args(self, inline_when: bool = False) -> list[str]:
        step = self._step
        args = [repr(step.name), *self._action(), *self._inputs(), *self._outputs()]
        if inline_when and step.when is not None:
            args.append(f"when={self._values.condition(step.when)}")
        if step.trigger is not None:
            args.append(f"trigger={self._values.condition(step.trigger)}")
        return [*args, *self._options()]

    def _action(self) -> Iterator[str]:
        value = self._values.value
        match self._step.action:
            case model.Container(image=image, command=command, args=args, env=env, workdir=workdir):
                yield f"image={value(image)}"
                yield from (f"{name}={value(words)}" for name, words in (("command", command), ("args", args)) if words)
                yield from self._surroundings(env, workdir)
            case model.Script(source=source, command=command, image=image, env=env, workdir=workdir) if (
                self._head() == "ScriptJob"
            ):
                yield f"source={value(source)}"
                if command != ("sh",):
                    yield f"command={value(command)}"
                if image is not None:
                    yield f"image={value(image)}"
                yield from self._surroundings(env, workdir)
            case model.Resource(manifest=manifest) as resource if isinstance(manifest, Mapping):
                yield value(manifest)
                if resource.action != "create":
                    yield f"action={resource.action!r}"
                for name in ("success_condition", "failure_condition"):
                    condition = getattr(resource, name)
                    if condition is not None:
                        yield f"{name}={condition.text!r}"
            case model.Function(module=module, name=name, image=image, env=env) if self._importable(name):
                self._imports.use_module(module)
                yield f"{module}.{name}"
                if image is not None:
                    yield f"image={value(image)}"
                yield from self._surroundings(env, None)
            case model.Nested(name=name) if name in self._written.variables:
                return
            case other:
                if isinstance(other, model.Nested):
                    self._written.called_by_name.add(other.name)
                yield self._model.built(other)

    def _surroundings(self, env: Mapping[str, Any], workdir: str | None) -> Iterator[str]:
        if env:
            yield f"env={self._values.value(env)}"
        if workdir is not None:
            yield f"workdir={workdir!r}"

    def _inputs(self) -> Iterator[str]:
        given = self._step.inputs
        if not given:
            return
        by_signature = self._head() == "FunctionJob" or self._head().endswith(".as_job")
        if by_signature and all(item.path is None and item.default is MISSING for item in given):
            yield "inputs={" + ", ".join(f"{item.name!r}: {self._values.value(item.value)}" for item in given) + "}"
        else:
            yield f"inputs=[{', '.join(self._input(item) for item in given)}]"

    def _input(self, item: Input) -> str:
        if item.default is not MISSING:
            return self._model.built(item)
        return declared(self._imports, self._values, item.name, item.type, item.value, path=item.path)

    def _outputs(self) -> Iterator[str]:
        outputs = self._step.outputs
        if not outputs or (self._head() == "FunctionJob" and outputs[0] == Output(name="result", type=outputs[0].type)):
            return
        yield f"outputs=[{', '.join(self._output(output) for output in outputs)}]"

    def _output(self, output: Output) -> str:
        if output.value is not MISSING:
            return self._model.built(output)
        return declared(self._imports, ValueWriter(), output.name, output.type, output.default, path=output.path)

    # -- options

    def _options(self) -> Iterator[str]:
        step, built = self._step, self._model.built
        yield from self._resources()
        if step.replicas != 1:
            yield f"replicas={step.replicas}"
        if step.placement is not None:
            yield from self._placement(step.placement)
        for name in ("queue", "priority", "group", "timeout", "doc"):
            value = getattr(step, name)
            if value or (name == "priority" and value is not None):
                yield f"{name}={value!r}"
        if step.resources_by:
            yield f"resources_by={self._values.value(step.resources_by)}"
        if step.timeout_by is not None:
            yield f"timeout_by={self._values.condition(step.timeout_by)}"
        if step.retry is not None:
            limit = step.retry.limit
            yield f"retry={limit if limit and step.retry == model.Retry(limit=limit) else built(step.retry)}"
        if step.exempt:
            yield "exempt=True"
        if step.tolerates:
            yield f"tolerates={sorted(map(str, step.tolerates))!r}"
        for name in ("locks", "mounts"):
            parts = getattr(step, name)
            if parts:
                yield f"{name}=[{', '.join(map(built, parts))}]"
        if step.answer is not None:
            yield f"answer={built(step.answer)}"
        if step.extra:
            yield f"extra={self._model.part(step.extra)}"
        if step.cache != model.Cache():
            yield f"cache={'False' if step.cache == model.Cache(enabled=False) else built(step.cache)}"

    def _resources(self) -> Iterator[str]:
        rest = dict(self._step.resources)
        for name, resource in (("cpu", "cpu"), ("memory", "memory"), ("gpu", GPU)):
            if resource in rest:
                yield f"{name}={_amount(rest.pop(resource), resource)}"
        if rest:
            amounts = (f"{name!r}: {_amount(amount, name)}" for name, amount in sorted(rest.items()))
            yield "resources={" + ", ".join(amounts) + "}"

    def _placement(self, placement: model.Placement) -> Iterator[str]:
        if placement.node_selector:
            yield f"node_selector={dict(placement.node_selector)!r}"
        if placement.tolerations:
            yield f"tolerations=[{', '.join(map(self._model.built, placement.tolerations))}]"
        if placement.affinity is not None:
            yield f"affinity={self._values.value(placement.affinity)}"

    def _after(self) -> str:
        text = ""
        for edge in self._step.needs:
            outcomes = "" if edge.outcomes == model.NORMAL else f", outcomes={sorted(map(str, edge.outcomes))!r}"
            text += f".after({self._steps[edge.step]}{outcomes})"
        return text


def _items_in(value: Any) -> set[str]:
    """The loop variables that the value reads."""
    paths = (path for expr in model.expressions(value) for path in references(expr.text))
    return {path[1] for path in paths if path[0] == "item" and len(path) > 1}


def _over_items(text: str, items: set[str], known: list[str]) -> str:
    """As a lambda, if Python reads loop variables in it. A text in quotes is an expression, and reads them itself."""
    if not items or text[0] in "'\"":
        return text
    return f"lambda {', '.join(name for name in known if name in items)}: {text}"


def _amount(milli: int, resource: str) -> str:
    text = quantity.show(milli, resource)
    return text if text.isdigit() else repr(text)
