"""Names and kinds of all values of a workflow in Tekton. Called by workflow and spec.

A value is a string, an array of strings or an object of strings. A list of texts, a value that is read by index, and the result list of a loop are
arrays; a value that is read by field is an object; everything else is a string, as JSON if it is not text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from penstock.expressions.parse import Const, Expr, Index, children, path_of, reference, references
from penstock.expressions.types import Type
from penstock.formats.documents import part
from penstock.formats.pods.names import label
from penstock.formats.tekton.outcomes import aggregate, how_many, reason, status
from penstock.formats.tekton.write.flatten import FlatWorkflow
from penstock.formats.tekton.write.spec import FILES, keys_read
from penstock.formats.tekton.write.texts import Kind, NotInTekton, Resolve, TektonPath
from penstock.graph.model import Outcome, Value, Workflow, expressions, step_values

BAD = frozenset({Outcome.FAILED, Outcome.ERRORED})


@dataclass(slots=True)
class _Kinds:
    """The values that are arrays or objects in Tekton."""

    arrays: set[tuple[str, ...]] = field(default_factory=set)
    objects: dict[tuple[str, ...], set[str]] = field(default_factory=dict)
    """Objects, with their known fields."""


class PipelineNames:
    def __init__(self, workflow: Workflow, flat: FlatWorkflow) -> None:
        self.workflow = workflow
        self.flat = flat
        self.steps = {step.name: step for step in (*flat.steps, *flat.on_exit)}
        self.exits = {step.name for step in flat.on_exit}
        self.tasks = _unique(self.steps)
        self.params = {
            param.name: param.name if not param.name[:1].isdigit() else f"p-{param.name}" for param in workflow.params
        }
        self.kinds = self._kinds()

    def _kinds(self) -> _Kinds:
        found = _Kinds()
        for param in self.workflow.params:
            if _is_texts(param.type):
                found.arrays.add(("params", param.name))
        for step in self.steps.values():
            for output in step.outputs:
                path: tuple[str, ...] = ("steps", step.name, "outputs", output.name)
                if step.each is not None or _is_texts(output.type):
                    found.arrays.add(path)
        found.arrays |= {path for value in self._values() for path in _indexed(value)}
        for path in self._read():
            base = path[: 2 if path[0] == "params" else 4]
            if len(path) > len(base) and base not in found.arrays:
                found.objects.setdefault(base, set()).add(path[len(base)])
        self._fields(found)
        return found

    def _fields(self, found: _Kinds) -> None:
        """Objects whose fields are read by the steps that receive them."""
        for step in self.steps.values():
            keys = keys_read(step)
            for given in step.inputs:
                path = path_of(given.value.node) if isinstance(given.value, Expr) else None
                if (
                    given.name in keys
                    and path is not None
                    and path[0] in ("params", "steps")
                    and path not in found.arrays
                ):
                    found.objects.setdefault(path, set()).update(keys[given.name])
            for name, sample in part(step.extra, "sample").items():
                path = ("steps", step.name, "outputs", name)
                if isinstance(sample, Mapping) and path not in found.arrays:
                    found.objects.setdefault(path, set()).update(map(str, sample))
        for param in self.workflow.params:
            path = ("params", param.name)
            if path in found.objects and isinstance(param.default, dict):
                found.objects[path] |= set(param.default)

    def _read(self) -> Iterator[tuple[str, ...]]:
        """Every path into a parameter or an output that is read somewhere."""
        for value in self._values():
            for one in expressions(value):
                yield from (path for path in references(one.text) if path[0] in ("params", "steps"))

    def _values(self) -> Iterator[Value]:
        for step in self.steps.values():
            yield from (value for _, value in step_values(step))
        yield from self.flat.outputs.values()

    def kind_of(self, path: tuple[str, ...]) -> Kind:
        base = path[: 2 if path[0] == "params" else 4]
        if path != base:
            return "string"
        return "array" if base in self.kinds.arrays else "object" if base in self.kinds.objects else "string"

    def keys_of(self, path: tuple[str, ...]) -> set[str]:
        return self.kinds.objects.get(path, set())

    def result_name(self, output: str) -> str:
        return output.strip("_-") or "result"

    def resolve(self, exits: bool) -> Resolve:
        def resolve_path(path: tuple[str, ...]) -> tuple[TektonPath, tuple[str, ...]] | None:
            match path:
                case ("params", name, *rest) if name in self.params:
                    return TektonPath(f"params.{self.params[name]}", self.kind_of(("params", name))), tuple(rest)
                case ("steps", step, "outputs", output, *rest) if step in self.tasks:
                    text = f"tasks.{self.tasks[step]}.results.{self.result_name(output)}"
                    return TektonPath(text, self.kind_of(("steps", step, "outputs", output))), tuple(rest)
                case ("run", "id"):
                    return TektonPath("context.pipelineRun.name"), ()
                case ("steps", step, "outcome") if exits and step in self.tasks:
                    return TektonPath(f"tasks.{self.tasks[step]}.status", outcomes=_STATUS), ()
                case ("workflow", "outcome") if exits:
                    return TektonPath("tasks.status", outcomes=_AGGREGATE), ()
            return None

        return resolve_path

    def special(self, final: bool) -> dict[str, TektonPath]:
        """Expressions that the reader makes for single variables of Tekton."""
        found = {
            how_many(reference("steps", step.name, "outputs", output.name)): TektonPath(
                f"tasks.{self.tasks[step.name]}.matrix.{self.result_name(output.name)}.length"
            )
            for step in self.flat.steps
            if step.each is not None
            for output in step.outputs
        }
        if final:
            known = {step.name for step in self.flat.steps}
            names = [step.name for step in self.workflow.steps if step.name in known]
            found[aggregate(names).text] = TektonPath("tasks.status")
            found["phase(workflow.outcome)"] = TektonPath(
                "tasks.status", outcomes=_PHASE
            )  # the form of the Argo reader
            for step in self.flat.steps:
                task = self.tasks[step.name]
                found[status(step.name).text] = TektonPath(f"tasks.{task}.status")
                found[reason(step.name, bool(step.tolerates & BAD)).text] = TektonPath(f"tasks.{task}.reason")
        return found

    def file_of(self, value: Value) -> str | None:
        """The path of an output file of a step."""
        path = path_of(value.node) if isinstance(value, Expr) else None
        if path is None or len(path) != 4 or path[0] != "steps" or path[1] not in self.steps:
            return None
        step = self.steps[path[1]]
        output = next((one for one in step.outputs if one.name == path[3]), None)
        if output is None or _bare(output.type) not in ("file", "dir"):
            return None
        if step.each is not None:
            raise NotInTekton(f"the files of all items of {step.name!r}: a loop gives back texts only")
        return f"/workspace/{FILES}/{self.tasks[step.name]}/{output.name}"


_STATUS: dict[str, tuple[str, ...]] = {
    "succeeded": ("Succeeded",),
    "failed": ("Failed",),
    "errored": ("Failed",),
    "skipped": ("None",),
    "omitted": ("None",),
    "cancelled": ("None",),
}
_PHASE: dict[str, tuple[str, ...]] = {
    "Succeeded": ("Succeeded", "Completed"),
    "Failed": ("Failed",),
    "Error": ("Failed",),
}
_AGGREGATE: dict[str, tuple[str, ...]] = {
    "succeeded": ("Succeeded", "Completed"),
    "failed": ("Failed",),
    "cancelled": ("None",),
}


def _unique(names: Iterable[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in names:
        own, number = label(name), 2
        while own in found.values():
            own, number = label(f"{name}-{number}"), number + 1
        found[name] = own
    return found


def _indexed(value: Value) -> Iterator[tuple[str, ...]]:
    """Values that are read by index, so they are arrays."""
    rest = [one.node for one in expressions(value)]
    while rest:
        node = rest.pop()
        rest += children(node)
        if isinstance(node, Index) and isinstance(node.index, Const) and isinstance(node.index.value, int):
            path = path_of(node.of)
            if path is not None and path[0] in ("params", "steps"):
                yield path


def _bare(type_: Type) -> str:
    return type_.args[0].name if type_.name == "optional" else type_.name


def _is_texts(type_: Type) -> bool:
    inner = type_.args[0] if type_.name == "optional" else type_
    return inner.name == "list" and inner.item.name == "str"
