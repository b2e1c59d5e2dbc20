"""Which secrets a workflow uses, and where. Called by service before a run. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from penstock.expressions.parse import references
from penstock.expressions.secret import ROOT
from penstock.graph.model import Part, Pod, Step, Value, Workflow, expressions, step_values

_OPEN = ("command", "args", "source", "image", "url", "workdir", "manifest")
"""Fields that other users of the machine can see while the step runs, or that messages quote."""


class SecretUse(NamedTuple):
    name: str
    step: str
    """With the workflow that it is in, if that is not the root."""
    field: str
    open: bool
    """Would others see it there?"""
    of: str = "step"
    """Or a callback, whose name is in `step` then."""

    @property
    def where(self) -> str:
        """Its place in the document."""
        return f"{self.of}s.{self.step}.{self.field}"


def secret_uses(workflow: Workflow) -> Iterator[SecretUse]:
    for one in (workflow, *workflow.definitions):
        prefix = "" if one is workflow else f"{one.name}/"
        for step in (*one.steps, *one.on_exit):
            for field, value in _values(step):
                for name in _names(value):
                    yield SecretUse(name, prefix + step.name, field, field.rpartition(".")[2] in _OPEN)

    for callback in workflow.callbacks:
        for field, value in (("headers", dict(callback.headers)), ("body", callback.body), ("secret", callback.secret)):
            for name in _names(value):
                yield SecretUse(name, callback.name, field, False, "callback")


def _values(step: Step) -> Iterator[tuple[str, Value]]:
    for field, value in step_values(step):
        if field != "pod.parts":
            yield field, value
    if isinstance(step.action, Pod):
        for part in step.action.parts:
            yield from ((f"{part.name}.{field}", getattr(part, field)) for field in _fields(part))


def _fields(part: Part) -> tuple[str, ...]:
    return ("image", "command", "args", "source", "env", "workdir")


def _names(value: Value) -> Iterator[str]:
    for expr in expressions(value):
        if ROOT in expr.text:
            for path in references(expr.text):
                if path[0] == ROOT and len(path) > 1:
                    yield path[1]
