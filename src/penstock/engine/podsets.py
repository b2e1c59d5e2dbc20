"""Pod sets: the one place where the needs of steps become what a queue counts. Called by the engine's reservations, by `penstock plan`
(what would a queue say?) and by the simulator.

A stage is one pod set for each shape of pods. A reservation for a whole workflow is a vector of resources: unit pods, one pod set
for each resource, tied together so that one flavor serves them all.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from penstock.admission.model import PodSet, PodToleration, Requirement
from penstock.graph.model import Placement, Step

MOST_SHAPES = 18
"""Pod sets that one Workload can have."""
MOST_UNITS = 10_000
"""Unit pods into which one resource of a whole workflow is cut."""


class PodDemand(NamedTuple):
    """Some tasks of one step, and what each of them needs."""

    name: str
    resources: Mapping[str, int]
    placement: Placement | None
    replicas: int
    tasks: int
    gang: bool
    """All of these tasks start together, or none."""

    @classmethod
    def of(cls, step: Step, tasks: int = 1) -> PodDemand:
        gang = step.each is not None and step.each.gang
        return cls(step.name, step.resources, step.placement, step.replicas, tasks, gang)


class Vector(NamedTuple):
    """Amounts of resources on machines of one kind."""

    placement: Placement | None
    amounts: Mapping[str, int]
    """In the queue's units."""
    units: Mapping[str, int]
    """How much one unit pod is, by resource."""


def amounts(resources: Mapping[str, int]) -> dict[str, int]:
    """From thousandths to the units that queues count in: cpu in thousandths, all else in whole units, rounded up."""
    return {name: amount if name == "cpu" else -(-amount // 1000) for name, amount in resources.items() if amount}


def shape_of(resources: Mapping[str, int], placement: Placement | None, replicas: int) -> str:
    """The same for pods that are alike."""
    return repr((sorted(resources.items()), replicas, placement))


def stage_podsets(shapes: Sequence[Sequence[PodDemand]]) -> tuple[PodSet, ...]:
    """One for each shape; `shapes`: the demands, those of one shape together. Of several shapes, all start or none does. Of a
    single one fewer may be admitted, one task at least, unless it is a gang."""
    alone = len(shapes) == 1
    return tuple(_podset(members, alone) for members in shapes)


def _podset(members: Sequence[PodDemand], alone: bool) -> PodSet:
    first = members[0]
    tasks = sum(one.tasks for one in members)
    whole = not alone or tasks <= 1 or any(one.gang for one in members)
    return PodSet(
        name="main" if alone else first.name,
        count=tasks * first.replicas,
        min_count=None if whole else first.replicas,
        requests=amounts(first.resources),
        **placement_fields(first.placement),
    )


def task_podset(step: Step) -> PodSet:
    """The pods of one task."""
    return PodSet(count=step.replicas, requests=amounts(step.resources), **placement_fields(step.placement))


def vector_podsets(vectors: Iterable[Vector]) -> tuple[PodSet, ...]:
    """Unit pods. All that is held on machines of one kind gets one flavor."""
    return tuple(
        PodSet(
            name=unit_name(number, resource),
            count=-(-amount // vector.units[resource]),
            requests={resource: vector.units[resource]},
            group=f"pool-{number}" if len(vector.amounts) > 1 else None,
            **placement_fields(vector.placement),
        )
        for number, vector in enumerate(vectors)
        for resource, amount in sorted(vector.amounts.items())
        if amount > 0
    )


def unit_name(vector: int, resource: str) -> str:
    return f"{vector}-{resource}".replace("/", "-").replace(".", "-")


def units_of(steps: Iterable[Step], placement: Placement | None, peak: Mapping[str, int]) -> dict[str, int]:
    """For each resource the largest amount of which every step's need is a multiple, so that what ends can be given back exactly;
    larger where there would be too many unit pods."""
    needs: dict[str, list[int]] = {}
    for step in steps:
        if step.placement == placement:
            for name, amount in amounts(step.resources).items():
                needs.setdefault(name, []).append(amount)
    return {name: _unit(needs.get(name, [total]), total) for name, total in peak.items()}


def _unit(needs: Sequence[int], total: int) -> int:
    unit = math.gcd(*needs) or 1
    return unit if total // unit <= MOST_UNITS else -(-total // MOST_UNITS)


def placement_fields(placement: Placement | None) -> dict[str, Any]:
    """A step's placement as the fields of a PodSet."""
    if placement is None:
        return {}
    return {
        "selector": dict(placement.node_selector),
        "tolerations": tuple(
            PodToleration(one.key or "", one.operator, one.value or "", one.effect or "")
            for one in placement.tolerations
        ),
        "affinity": _terms(placement.affinity),
    }


def _terms(affinity: Any) -> tuple[tuple[Requirement, ...], ...] | None:
    """Kubernetes' required node affinity, if the document has that form."""
    try:
        node = affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        return tuple(
            tuple(
                Requirement(one["key"], one["operator"], tuple(map(str, one.get("values", ()))))
                for one in term.get("matchExpressions", ())
            )
            for term in node["nodeSelectorTerms"]
        )
    except (KeyError, TypeError, AttributeError):
        return None
