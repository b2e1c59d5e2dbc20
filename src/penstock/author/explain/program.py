"""A workflow and those that it calls -> the text of a Python file. Called by way of the package."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from penstock.author.explain.layout import Imports, VariableNames, call
from penstock.author.explain.steps import StepWriter, WrittenWorkflows
from penstock.author.explain.values import ModelWriter, ValueWriter, declared
from penstock.graph import model
from penstock.graph.model import MISSING, Step, Workflow
from penstock.graph.order import NotOrdered, topological


def explain(workflow: Workflow) -> str:
    return ProgramWriter(workflow).text()


class ProgramWriter:
    def __init__(self, workflow: Workflow) -> None:
        self._workflow = workflow
        self._imports = Imports()
        self._model = ModelWriter(self._imports)
        self._written = WrittenWorkflows()
        # Modules of functions are imported under their own names.
        modules = {s.action.module.partition(".")[0] for s in _steps(workflow) if isinstance(s.action, model.Function)}
        self._variables = VariableNames(modules)

    def text(self) -> str:
        by_name = {one.name: one for one in self._workflow.definitions}
        calls = {
            name: {step.action.name for step in (*one.steps, *one.on_exit) if isinstance(step.action, model.Nested)}
            & by_name.keys()
            for name, one in by_name.items()
        }
        blocks = [block for name in _callees_first(calls) for block in self._one(by_name[name])]
        blocks += self._one(self._workflow)
        return self._imports.text() + "\n\n" + "\n\n".join(blocks) + "\n"

    def _one(self, workflow: Workflow) -> list[str]:
        """One workflow: its parameters, its steps and the Workflow(…) that holds them."""
        values = ValueWriter()
        blocks = []
        declarations = []
        for param in workflow.params:
            variable = values.params[param.name] = self._variables.new(param.name)
            text = declared(
                self._imports, ValueWriter(), param.name, param.type, param.default, param.choices, param.doc
            )
            declarations.append(f"{variable} = {text}")
        if declarations:
            blocks.append("\n".join(declarations))
        everything = {step.name: step for step in (*workflow.steps, *workflow.on_exit)}
        for name in everything:
            values.steps[name] = self._variables.new(name)
        values.by_name = frozenset(
            name
            for name, step in everything.items()
            if isinstance(step.action, model.Nested) and step.action.name not in self._written.variables
        )
        waits = {name: [up for up in model.edges_of(step) if up in everything] for name, step in everything.items()}
        for name in topological(waits):
            writer = StepWriter(self._imports, self._written, values, everything[name], values.steps[name])
            blocks.append(writer.text())
        # A name that begins with "_" is not taken for the workflow of the file.
        variable = self._variables.new(workflow.name if workflow is self._workflow else f"_{workflow.name}")
        self._written.variables[workflow.name] = variable
        blocks.append(call(f"{variable} = Workflow", list(self._arguments(workflow, values))))
        return blocks

    def _arguments(self, workflow: Workflow, values: ValueWriter) -> Iterator[str]:
        """Of Workflow(…)."""
        built = self._model.built
        yield repr(workflow.name)
        yield f"steps=[{', '.join(values.steps[step.name] for step in workflow.steps)}]"
        if workflow.params:
            yield f"params=[{', '.join(values.params[param.name] for param in workflow.params)}]"
        if workflow.outputs:
            outputs = [
                declared(self._imports, values, o.name, o.type, o.value) if o.default is MISSING else built(o)
                for o in workflow.outputs
            ]
            yield f"outputs=[{', '.join(outputs)}]"
        if workflow.on_exit:
            yield f"on_exit=[{', '.join(values.steps[step.name] for step in workflow.on_exit)}]"
        if workflow is self._workflow and self._written.called_by_name:
            names = sorted(self._written.called_by_name)
            yield f"uses=[{', '.join(self._written.variables[name] for name in names)}]"
        if workflow.judged_by != "handled":
            yield f"judged_by={workflow.judged_by!r}"
        if workflow.enough is not None:
            yield f"enough={built(workflow.enough)}"
        if workflow.locks:
            yield f"locks=[{', '.join(map(built, workflow.locks))}]"
        if workflow.payload is not None:
            yield f"payload={built(workflow.payload)}"
        if workflow.extra:
            yield f"extra={self._model.part(workflow.extra)}"
        for name in ("queue", "priority", "unit", "parallel", "timeout", "fail_fast", "labels", "doc"):
            value = getattr(workflow, name)
            if value or (name == "priority" and value is not None):
                yield f"{name}={str(value)!r}" if name == "unit" else f"{name}={value!r}"


def _steps(workflow: Workflow) -> Iterator[Step]:
    for one in (workflow, *workflow.definitions):
        yield from (*one.steps, *one.on_exit)


def _callees_first(calls: Mapping[str, set[str]]) -> list[str]:
    """Workflows in an order in which each can be written; one that calls itself refers to itself by name."""
    left = {name: set(called) - {name} for name, called in calls.items()}
    while True:
        try:
            return topological(left)
        except NotOrdered as cycle:
            names = cycle.names
            for name, other in zip(names, [*names[1:], names[0]], strict=True):
                if other in left[name]:
                    left[name].discard(other)
                    break
                if name in left[other]:
                    left[other].discard(name)
                    break
