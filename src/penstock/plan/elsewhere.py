"""The workflow without what never runs on this machine: the objects of resource steps, whose pods are a cluster's. Called where there are no queues but this
machine, by the engine and by service."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from penstock.graph.model import Resource, Step, Workflow


def of_this_machine(workflow: Workflow) -> Workflow:
    """The same workflow, if no resource step asks for anything."""
    if not any(_asks(step) for one in (workflow, *workflow.definitions) for step in one.steps):
        return workflow
    definitions = tuple(replace(one, steps=_without(one.steps)) for one in workflow.definitions)
    return replace(workflow, steps=_without(workflow.steps), definitions=definitions)


def _asks(step: Step) -> bool:
    return bool(step.resources) and isinstance(step.action, Resource)


def _without(steps: Iterable[Step]) -> tuple[Step, ...]:
    return tuple(replace(step, resources={}) if _asks(step) else step for step in steps)
