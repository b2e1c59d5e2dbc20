"""What the rules of `graph.check` share: the workflow, its symbols, its problems, and what an expression may read.

A rule is a function of a Context. It calls `report` and returns nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from penstock.errors import Problem, Source
from penstock.expressions.types import ANY, INT, STR, Type
from penstock.graph.limits import MOST_PROBLEMS
from penstock.graph.links import Links
from penstock.graph.model import Step, Workflow
from penstock.graph.outputs import step_output_types

Severity = Literal["error", "warning"]
ALWAYS: Final = frozenset({"params", "steps", "run"})
"""The roots that an expression of a step may always read."""
OBJECT: Final = frozenset({"object", "status", "spec", "metadata"})
"""The roots of a condition on a Kubernetes object."""
FIELDS: Final = {
    "run": frozenset({"id", "created"}),
    "attempt": frozenset({"exit_code", "message", "number", "outcome", "seconds"}),
}
"""The names below a root whose names never change."""


@dataclass(slots=True)
class ReadScope:
    """What an expression may read at one place of the document."""

    where: str
    source: Source | None
    roots: frozenset[str]
    own: Mapping[str, Type]
    """Types of `item.x`, `inputs.x` and `outputs.x`, by the whole path."""

    def at(self, field: str) -> str:
        """The path of a field below this place."""
        return f"{self.where}.{field}" if self.where else field


class Context:
    """One workflow: its symbols, the order of its steps, and the problems found in it so far."""

    __slots__ = ("definitions", "exits", "links", "outputs", "params", "prefix", "problems", "steps", "workflow")

    def __init__(self, workflow: Workflow, definitions: Mapping[str, Workflow], prefix: str, links: Links) -> None:
        self.workflow = workflow
        self.definitions = definitions
        self.prefix = prefix
        """The path of the workflow in the document: empty for the root."""
        self.links = links
        self.problems: list[Problem] = []
        self.params = {param.name: param for param in workflow.params}
        steps = (*workflow.steps, *workflow.on_exit)
        self.steps: dict[str, Step] = {step.name: step for step in steps}
        self.exits = frozenset(step.name for step in workflow.on_exit)
        self.outputs = {step.name: step_output_types(step, definitions) for step in steps}
        """Step -> output -> its type as other steps read it."""

    def report(
        self, code: str, message: str, fix: str, where: str, source: Source | None = None, severity: Severity = "error"
    ) -> None:
        """Adds a problem at a path of this workflow. Beyond MOST_PROBLEMS it adds nothing."""
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(
                Problem(
                    code,
                    message,
                    fix,
                    where=self.prefix + where,
                    source=source or self.workflow.source,
                    severity=severity,
                )
            )

    def place_of(self, step: str) -> str:
        """The path of a step."""
        return f"on_exit.{step}" if step in self.exits else f"steps.{step}"

    def type_of_path(self, path: tuple[str, ...], scope: ReadScope) -> tuple[Type, int]:
        """The type of the longest part of a path that has one, and the length of that part."""
        root, length = path[0], len(path)
        if root == "params" and length > 1 and path[1] in self.params:
            return self.params[path[1]].type, 2
        if root == "steps" and length > 3 and path[2] == "outputs":
            return self.outputs.get(path[1], {}).get(path[3], ANY), 4
        if root == "steps" and length > 2 and path[2] == "outcome":
            return STR, 3
        if root == "steps" and length > 2 and path[2] in ("exit_code", "succeeded"):
            return INT, 3
        if root == "steps" and length > 3 and path[2] == "error":
            return STR, 4
        if root in ("item", "inputs", "outputs") and length > 1:
            return scope.own.get(f"{root}.{path[1]}", ANY), 2
        if root in ("run", "secrets", "callback") and length > 1:
            return STR, 2
        return ANY, length
