"""The rules across a workflow's definitions: their names, and who calls whom. Called by graph.check."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from penstock.errors import Problem
from penstock.graph.check.scalars import cycle_path
from penstock.graph.model import Nested, Step, Workflow
from penstock.graph.order import NotOrdered, topological


def check_names(root: Workflow) -> Iterator[Problem]:
    """Names are unique, and only the root has definitions."""
    seen: set[str] = set()
    for definition in root.definitions:
        where = f"definitions.{definition.name}"
        if definition.name in seen:
            message = f"two definitions are named {definition.name!r}"
            yield Problem("P210", message, "rename one", where=where, source=definition.source)
        seen.add(definition.name)
        if definition.definitions:
            message = f"the definition {definition.name!r} has definitions of its own"
            yield Problem("P213", message, "move them to the root", where=where, source=definition.source)


def check_calls(root: Workflow, definitions: Mapping[str, Workflow]) -> Iterator[Problem]:
    """A workflow may call itself only under a condition, and every definition is called."""
    calls = {name: list(_calls(one, definitions)) for name, one in [("", root), *definitions.items()]}
    try:
        topological({name: {called for step, called in found if _is_sure(step)} for name, found in calls.items()})
    except NotOrdered as cycle:
        first = definitions[cycle.names[0]]
        yield Problem(
            "P213",
            f"the workflow calls itself without end: {cycle_path(cycle.names)}",
            "give one of the steps a `when`, or repeat with a while loop",
            where=f"definitions.{first.name}",
            source=first.source,
        )
    linked = {
        name: [link.workflow for link in one.links if link.workflow in definitions]
        for name, one in [("", root), *definitions.items()]
    }
    reached = _reached({name: [*(called for _, called in found), *linked[name]] for name, found in calls.items()})
    for name, definition in definitions.items():
        if name not in reached and root.payload is None:  # the process of a payload may name it
            yield Problem(
                "P222",
                f"no step and no link uses the definition {name!r}",
                "remove it, or use it",
                where=f"definitions.{name}",
                source=definition.source,
                severity="warning",
            )


def _calls(workflow: Workflow, definitions: Mapping[str, Workflow]) -> Iterator[tuple[Step, str]]:
    for step in (*workflow.steps, *workflow.on_exit):
        if isinstance(step.action, Nested) and step.action.name in definitions:
            yield step, step.action.name


def _is_sure(step: Step) -> bool:
    """Does the step run whatever the values are?"""
    return step.when is None and step.trigger is None and step.each is None


def _reached(calls: Mapping[str, list[str]]) -> set[str]:
    reached: set[str] = set()
    frontier = [""]
    while frontier:
        name = frontier.pop()
        if name not in reached:
            reached.add(name)
            frontier += calls[name]
    return reached
