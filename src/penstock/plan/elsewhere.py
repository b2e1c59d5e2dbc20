"""The workflow without what asks for nothing here: the objects of resource steps, whose pods are a cluster's, and steps that a cluster queues. Called by the engine,
where there are no queues but this machine, and by service."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from penstock.graph.model import Resource, Step, Workflow

Test = Callable[[Step], bool]


def of_this_machine(workflow: Workflow) -> Workflow:
    """The same workflow, if no resource step asks for anything."""
    return without_demand(workflow, lambda step: isinstance(step.action, Resource))


def without_demand(workflow: Workflow, of: Test) -> Workflow:
    """What these steps ask for is nothing. The same workflow, if none of them asks for anything."""
    if not any(step.resources and of(step) for one in (workflow, *workflow.definitions) for step in one.steps):
        return workflow
    definitions = tuple(replace(one, steps=_without(one.steps, of)) for one in workflow.definitions)
    return replace(workflow, steps=_without(workflow.steps, of), definitions=definitions)


def _without(steps: Iterable[Step], of: Test) -> tuple[Step, ...]:
    return tuple(replace(step, resources={}) if step.resources and of(step) else step for step in steps)
