"""What the values of a workflow are called in its machine, and of which types they are. Called by machine and steps.

A step's record is a variable: {outcome, outputs, error}. The parameters are one too. Branches and items read the variables around them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.errors import Problem
from penstock.expressions.evaluate import resolve
from penstock.expressions.types import ANY, STR, Type
from penstock.formats.asl.write import expression
from penstock.formats.asl.write.expression import QueryWriter, Unwritten
from penstock.formats.asl.write.states import Names
from penstock.formats.report import Report
from penstock.graph.model import MISSING, Output, Step, Value, Workflow
from penstock.graph.outputs import step_output_types, task_output_types
from penstock.graph.rewrite import as_node


@dataclass(slots=True)
class Shared:
    """What all machines of one workflow have in common."""

    root: Workflow
    definitions: Mapping[str, Workflow]
    report: Report = field(default_factory=Report)
    problems: list[Problem] = field(default_factory=list)
    rows: dict[str, Any] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)
    machines: dict[str, str] = field(default_factory=dict)
    """Definition -> its row."""
    said: set[str] = field(default_factory=set)
    """What the report says once."""


@dataclass(frozen=True)
class MachineScope:
    """One machine: what its expressions may read at one place."""

    workflow: Workflow
    shared: Shared
    names: Names
    prefix: str
    """Of the places in the report: `definitions.X.`; empty for the root."""
    steps: Mapping[str, Step]
    records: Mapping[str, str]
    """Step -> the variable of its record. Steps that nobody reads have none."""
    own: Mapping[str, str] = field(default_factory=dict)
    """`item`, `inputs` and `outputs` -> where they are, at this place."""
    types: Mapping[tuple[str, str], Type] = field(default_factory=dict)
    """Of what is in them."""
    handlers: bool = False
    """Are these the exit handlers?"""

    def at(self, own: Mapping[str, str], types: Mapping[tuple[str, str], Type]) -> MachineScope:
        return replace(self, own={**self.own, **own}, types={**self.types, **types})

    # -- expressions --------------------------------------------------------------------------------------------------

    def find(self, path: tuple[str, ...]) -> tuple[str, int] | None:
        match path:
            case ("params", *rest):
                return (expression.field("$params", rest[0]), 2) if rest else ("$params", 1)
            case ("steps", step, *rest) if step in self.records and not self.handlers:
                return self._record(f"${self.records[step]}", rest)
            case ("item" | "inputs" | "outputs" as root, *rest) if root in self.own:
                return (expression.field(self.own[root], rest[0]), 2) if rest else (self.own[root], 1)
            case ("run", "id"):
                return "$states.context.Execution.Name", 2
            case ("run", "created"):
                return "$states.context.Execution.StartTime", 2
            case ("workflow", "outcome") if self.handlers:
                return "$workflow", 2
        return None

    def _record(self, record: str, rest: list[str]) -> tuple[str, int] | None:
        match rest:
            case ["outputs", name, *_]:
                return expression.field(f"{record}.outputs", name), 4
            case ["outputs"]:
                return f"{record}.outputs", 3
            case ["outcome"]:
                return f"{record}.outcome", 3
            case ["error", *_]:
                return f"($exists({record}.error) ? {record}.error : {{}})", 3
        return None

    def lookup(self, path: tuple[str, ...]) -> tuple[Type, int] | None:
        match path:
            case ("params", name, *_):
                found = next((one.type for one in self.workflow.params if one.name == name), ANY)
                return found, 2
            case ("steps", step, "outputs", name, *_) if step in self.steps:
                return step_output_types(self.steps[step], self.shared.definitions).get(name, ANY), 4
            case ("steps", _, "outcome") | ("workflow", "outcome") | ("run", _):
                return STR, len(path)
            case (root, name, *_) if (root, name) in self.types:
                return self.types[root, name], 2
        return ANY, len(path)

    def value(self, given: Value) -> Any:
        """As a field of the document. Raises Unwritten."""
        return expression.whole(given, self.find, self.lookup)

    def code(self, given: Value) -> str:
        """As a piece of JSONata. Raises Unwritten."""
        return QueryWriter(self.find, self.lookup).code(as_node(given))

    def holds(self, condition: Value) -> str:
        """A condition, true or false and nothing else."""
        code = self.code(condition)
        return code if self.type(condition).name == "bool" else f"({code} = true)"

    def type(self, given: Value) -> Type:
        return expression.type_of(given, self.lookup)

    def outputs(self, step: Step) -> dict[str, Type]:
        """Of one task of it."""
        return task_output_types(step, self.shared.definitions)

    # -- what is said -------------------------------------------------------------------------------------------------

    def where(self, step: Step, place: str = "") -> str:
        return f"{self.prefix}steps.{step.name}{place}"

    def refuse(self, step: Step | None, place: str, why: str, code: str = "P847") -> None:
        """It has no form in a state machine."""
        if step is None:
            said, fix = f"the workflow {self.workflow.name} is no state machine: {why}", "write Argo, or run it here"
            problem = Problem(code, said, fix, where=f"{self.prefix}{place}".rstrip("."), source=self.workflow.source)
        else:
            said = f"the step {step.name} has no form in a state machine: {why}"
            fix = "let a step of its own do it, or write Argo, or run the workflow here"
            problem = Problem(code, said, fix, where=self.where(step, place), source=step.source)
        self.shared.problems.append(problem)

    def unwritten(self, step: Step | None, place: str, error: Unwritten) -> None:
        name = f"the step {step.name}" if step is not None else f"the workflow {self.workflow.name}"
        said = f"{name}: {error}"
        fix = "compute it in a step, and give its result a type"
        where = self.where(step, place) if step is not None else f"{self.prefix}{place}"
        source = step.source if step is not None else self.workflow.source
        self.shared.problems.append(Problem("P848", said, fix, where=where, source=source))

    def once(self, place: str, said: str, near: str = "") -> None:
        """A change that is the same wherever it occurs."""
        if said not in self.shared.said:
            self.shared.said.add(said)
            self.shared.report.changed(f"{self.prefix}{place}", said, near, self.workflow.source)


def defaults(outputs: tuple[Output, ...]) -> dict[str, Any]:
    """What is read of a step that was skipped."""
    return {one.name: expression.data(resolve(one.default, {})) for one in outputs if one.default is not MISSING}
