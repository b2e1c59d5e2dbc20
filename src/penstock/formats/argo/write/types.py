"""The types of the values of a workflow before the run. Called by the Argo writer, which must know the types of Argo's texts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from penstock.expressions import types
from penstock.expressions.infer import TypeMismatch, infer
from penstock.expressions.parse import Expr, path_of, simple_path
from penstock.expressions.template import Template
from penstock.expressions.types import ANY, INT, STR, Type, list_of
from penstock.formats.argo.write.slots import KnownValue, Typed
from penstock.graph.model import MISSING, Nested, Step, Value, Workflow, expressions
from penstock.graph.outputs import task_output_types
from penstock.graph.rewrite import as_node

Lookup = Callable[[tuple[str, ...]], tuple[Type, int] | None]


class WorkflowTypes:
    """One workflow: the root or a definition."""

    def __init__(self, workflow: Workflow, definitions: Mapping[str, Workflow], root: bool) -> None:
        self.workflow = workflow
        self.root = root
        self.steps = {step.name: step for step in (*workflow.steps, *workflow.on_exit)}
        self.params: dict[str, Type] = {}
        for param in workflow.params:
            # A text of type any is a string: Argo has nothing else.
            as_text = param.type.name == "any" and isinstance(param.default, str)
            self.params[param.name] = STR if as_text else param.type
        self._own = {name: task_output_types(step, definitions) for name, step in self.steps.items()}
        self._variables: dict[str, dict[str, Type]] = {}

    def loops(self, step: str) -> bool:
        return self.steps[step].each is not None

    def output(self, step: str, name: str) -> Type:
        """Its type for other steps."""
        type_ = self._own[step].get(name, ANY)
        return list_of(type_) if self.loops(step) else type_

    def absent(self, step: str, name: str) -> Value:
        """The output of a loop that does not run."""
        found = next((output.default for output in self.steps[step].outputs if output.name == name), MISSING)
        return () if found is MISSING else found

    def is_file(self, param: str) -> bool:
        return self.params[param].name in ("file", "dir")

    def variables(self, step: Step) -> dict[str, Type]:
        """The types of its loop variables."""
        found = self._variables.get(step.name)
        if found is None:
            found = self._variables[step.name] = {}
            for axis in step.each.axes if step.each is not None else ():
                for name, value in axis.items():
                    of = self.of(value, self._lookup(found))
                    of = of.args[0] if of.name == "optional" else of
                    found[name] = STR if of.name == "dict" else of.item if of.name in ("list", "tuple") else ANY
        return found

    def typed(self, step: Step) -> Typed:
        lookup = self._lookup(self.variables(step))

        def typed(value: Value) -> KnownValue:
            if type(value) is Expr:
                path = simple_path(value.text) or path_of(value.node)
                if path is not None and path[0] == "steps" and len(path) == 4 and path[1] in self.steps:
                    loops = self.loops(path[1])
                    return KnownValue(
                        self.output(path[1], path[3]), loops, self.absent(path[1], path[3]) if loops else MISSING
                    )
            return KnownValue(self.of(value, lookup))

        return typed

    def of(self, value: Value, lookup: Lookup) -> Type:
        if isinstance(value, Expr):
            try:
                return infer(value.node, lookup)
            except TypeMismatch:
                return ANY
        if isinstance(value, Template):
            return STR
        if any(True for _ in expressions(value)):
            try:
                return infer(as_node(value), lookup)
            except TypeMismatch:
                return ANY
        return types.of_value(value)

    def _lookup(self, variables: Mapping[str, Type]) -> Lookup:
        def lookup(path: tuple[str, ...]) -> tuple[Type, int] | None:
            match path:
                case ("params", name, *_):
                    return self.params.get(name, ANY), 2
                case ("steps", step, "outputs", name, *_) if step in self.steps:
                    return self.output(step, name), 4
                case ("steps", _, "exit_code"):
                    return INT, 3
                case ("steps", _, "outcome") | ("workflow", "outcome", *_) | ("run", _, *_):
                    return STR, len(path)
                case ("item", name, *_):
                    return variables.get(name, ANY), 2
            return ANY, len(path)

        return lookup

    def given(self, step: Step) -> Iterable[tuple[str, Type]]:
        """Input -> the type of its value."""
        typed = self.typed(step)
        for one in step.inputs:
            yield one.name, typed(one.value).type


def refine(order: Iterable[WorkflowTypes], by_name: Mapping[str, WorkflowTypes]) -> None:
    """A parameter of type any has the type that all callers pass, if they agree."""
    given: dict[tuple[str, str], set[Type]] = {}
    for typing in order:
        for name, type_ in list(typing.params.items()):
            seen = given.get((typing.workflow.name, name), set())
            if not typing.root and type_.name == "any" and len(seen) == 1:
                typing.params[name] = next(iter(seen))
        for step in typing.steps.values():
            if isinstance(step.action, Nested) and step.action.name in by_name:
                for name, type_ in typing.given(step):
                    given.setdefault((step.action.name, name), set()).add(type_)
