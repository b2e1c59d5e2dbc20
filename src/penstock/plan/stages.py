"""Stages: tasks that become ready together and are admitted together. Called by plan.make.

One step with its fan-out is a stage; the steps of one group are one stage. A step that needs no machine (suspend, http) is no stage, and
a step that calls a workflow is none either: its stages are those inside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.graph import quantity
from penstock.graph.model import Http, Nested, Placement, Suspend, Workflow
from penstock.plan.expand import Level, Planned, Size


@dataclass(frozen=True, slots=True)
class Pods:
    """Pods of one step in a stage: their resources, placement and number."""

    step: str
    resources: Mapping[str, int]
    placement: Placement | None
    replicas: int
    tasks: Size
    width: Size
    """How many tasks run at the same time."""
    gang: bool
    gang_of_tasks: bool = False
    """All tasks of the loop start together, not only the replicas of one task."""


@dataclass(frozen=True, slots=True)
class Stage:
    name: str
    """The path of its step, or of its group."""
    pods: tuple[Pods, ...]
    calls: Size
    """How many times the workflow around it is called. Each call is a stage of its own at run time."""
    queue: str | None
    priority: str | int | None
    exempt: bool = False
    skipped: bool = False
    """It will not run: its condition, or that of the workflow around it, is false."""

    @property
    def steps(self) -> tuple[str, ...]:
        return tuple(pods.step for pods in self.pods)

    @property
    def known(self) -> bool:
        return all(pods.width.count is not None for pods in self.pods)

    @property
    def why(self) -> str:
        return next((pods.width.why for pods in self.pods if pods.width.count is None), "")

    def demand(self) -> dict[str, int]:
        """All of its tasks at once, or as many as may run at once. A step of unknown size counts as one task."""
        total: dict[str, int] = {}
        for pods in self.pods:
            count = pods.replicas * (1 if pods.width.count is None else pods.width.count)
            for resource, amount in pods.resources.items():
                total[resource] = total.get(resource, 0) + amount * count
        return {resource: amount for resource, amount in total.items() if amount}

    def as_data(self) -> dict[str, Any]:
        data: dict[str, Any] = {"name": self.name, "steps": list(self.steps), "needs": amounts(self.demand())}
        if not self.known:
            data["size"] = {"known": False, "why": self.why}
        if self.calls.count != 1:
            data["calls"] = self.calls.as_data()
        for key, value in (
            ("queue", self.queue),
            ("priority", self.priority),
            ("exempt", self.exempt),
            ("skipped", self.skipped),
        ):
            if value:
                data[key] = value
        return data


def amounts(vector: Mapping[str, int]) -> dict[str, str]:
    """A vector for display and JSON: canonical quantities."""
    return {resource: quantity.show(amount, resource) for resource, amount in sorted(vector.items())}


def forms_stage(planned: Planned) -> bool:
    return not isinstance(planned.step.action, (Suspend, Http, Nested))


def stages(level: Level, workflow: Workflow) -> list[Stage]:
    """In topological order, nested ones at the place of their caller."""
    found: dict[tuple[str, bool], list[tuple[Planned, Size]]] = {}
    for planned, calls in level.walk():
        if not forms_stage(planned):
            continue
        prefix = planned.path.rpartition("/")[0]
        group = None if planned.step.exempt else planned.step.group  # an exempt step does not wait for its group
        # A group may have the name of a step; they are still two stages.
        name = planned.path if group is None else f"{prefix}/{group}".lstrip("/")
        found.setdefault((name, group is not None), []).append((planned, calls))
    names = {name for name, is_group in found if not is_group}
    called = {key: f"{key[0]}-group" if key[1] and key[0] in names else key[0] for key in found}
    return [_stage(called[key], members, workflow) for key, members in found.items()]


def _stage(name: str, members: list[tuple[Planned, Size]], workflow: Workflow) -> Stage:
    first, calls = members[0]
    pods = tuple(
        Pods(
            step=planned.path,
            resources=planned.step.resources,
            placement=planned.step.placement,
            replicas=planned.step.replicas,
            tasks=planned.tasks,
            width=planned.width,
            gang=planned.step.replicas > 1 or (planned.step.each is not None and planned.step.each.gang),
            gang_of_tasks=planned.step.each is not None and planned.step.each.gang,
        )
        for planned, _ in members
    )
    queue = next((p.step.queue for p, _ in members if p.step.queue), workflow.queue)
    priority = next((p.step.priority for p, _ in members if p.step.priority is not None), workflow.priority)
    return Stage(
        name,
        pods,
        calls,
        queue,
        priority,
        first.exempt,
        all(p.runs == "no" or often.count == 0 for p, often in members),
    )
