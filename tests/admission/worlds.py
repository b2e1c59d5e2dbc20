"""Random queues, and the Workloads that hold quota in them, for property tests of the admission core.

Drawn by chance alone, so that most of them are full and contested: choices that shrink to the simplest would leave the queues empty.
"""

from __future__ import annotations

from random import Random
from typing import Any

from hypothesis import strategies as st

from penstock.admission.model import (
    Admission,
    ClusterQueue,
    Cohort,
    Config,
    Eviction,
    FlavorQuotas,
    FlavorResource,
    Fungibility,
    PodSet,
    PodSetAssignment,
    Policy,
    Preemption,
    Preference,
    Quota,
    ResourceFlavor,
    ResourceGroup,
    WhenCan,
    Workload,
)
from penstock.admission.quota import QuotaNode
from penstock.admission.snapshot import Snapshot, usage_of

FLAVORS = ("red", "blue")
RESOURCES = ("cpu", "gpu")
CHANCE = st.integers(0, 2**40).map(Random)


def states(**config: Any) -> st.SearchStrategy[Snapshot]:
    return CHANCE.map(lambda chance: state_by(chance, Config(**config)))


def pending(most: int = 3) -> st.SearchStrategy[Workload]:
    return CHANCE.map(lambda chance: pending_by(chance, most))


def state_by(chance: Random, config: Config) -> Snapshot:
    state = Snapshot(config)
    state.flavors = {name: ResourceFlavor(name=name) for name in FLAVORS}
    together = chance.random() < 0.6
    names = ["c0"]
    for i in range(chance.choice([0, 0, 1, 2, 3])):
        state.cohorts[f"c{i + 1}"] = Cohort(
            name=f"c{i + 1}",
            parent=chance.choice(names) if chance.random() < 0.8 else None,
            groups=_groups(chance, together) if chance.random() < 0.4 else (),
            weight=chance.choice([0.0, 1.0, 1.0, 3.0]),
        )
        names.append(f"c{i + 1}")
    for i in range(chance.randint(2, 5)):
        state.cluster_queues[f"q{i}"] = _queue(chance, f"q{i}", names, together)
    state.rebuild()
    for i in range(chance.randint(0, 14)):
        state.hold(_holder(chance, f"h{i}", state))
    return state


def _groups(chance: Random, together: bool) -> tuple[ResourceGroup, ...]:
    """One group for all resources, with one or two flavors; or one for each resource, with a flavor each."""
    if together:
        flavors = chance.sample(FLAVORS, chance.choice([1, 2, 2]))
        return (
            ResourceGroup(
                RESOURCES, tuple(FlavorQuotas(flavor, {r: _quota(chance) for r in RESOURCES}) for flavor in flavors)
            ),
        )
    return tuple(
        ResourceGroup((resource,), (FlavorQuotas(flavor, {resource: _quota(chance)}),))
        for resource, flavor in zip(RESOURCES, FLAVORS, strict=True)
    )


def _quota(chance: Random) -> Quota:
    nominal = chance.choice([0, 2, 3, 4, 6, 8])
    return Quota(
        nominal,
        chance.randint(0, 8) if chance.random() < 0.3 else None,
        chance.randint(0, nominal) if chance.random() < 0.3 else None,
    )


def _queue(chance: Random, name: str, cohorts: list[str], together: bool) -> ClusterQueue:
    reclaim = chance.choice([Policy.NEVER, Policy.LOWER, Policy.LOWER, Policy.LOWER_OR_NEWER, Policy.ANY, Policy.ANY])
    return ClusterQueue(
        name=name,
        cohort=chance.choice(cohorts) if chance.random() < 0.9 else None,
        groups=_groups(chance, together),
        fungibility=Fungibility(
            borrow=chance.choice(list(WhenCan)),
            preempt=chance.choice(list(WhenCan)),
            preference=chance.choice([None, *Preference]),
        ),
        preemption=Preemption(
            within=chance.choice([Policy.NEVER, Policy.LOWER, Policy.LOWER_OR_NEWER]),
            reclaim=reclaim,
            borrow=Policy.LOWER if reclaim is not Policy.NEVER and chance.random() < 0.4 else Policy.NEVER,
            borrow_threshold=chance.choice([None, 0, 1, 2]),
        ),
        weight=chance.choice([0.0, 0.5, 1.0, 1.0, 2.0]),
    )


def _holder(chance: Random, name: str, state: Snapshot) -> Workload:
    """In some queue, whether quota is free or not; in most cases with the first flavor."""
    queue = state.cluster_queues[chance.choice(sorted(state.cluster_queues))]
    flavors, usage = {}, {}
    for group in queue.groups:
        flavor = group.flavors[0 if chance.random() < 0.7 else -1].flavor
        for resource in group.resources:
            if chance.random() < 0.8:
                flavors[resource], usage[resource] = flavor, chance.choice([0, 1, 1, 2, 2, 3, 4])
    workload = Workload(
        name=name,
        uid=chance.choice(["", name]),
        queue=chance.choice(["lq1", "lq2"]),
        podsets=(PodSet(requests=usage),),
        priority=chance.randint(0, 3),
        created=float(chance.randint(0, 3)),
    )
    workload.admission = Admission(queue.name, (PodSetAssignment("main", 1, flavors, usage),))
    workload.held = usage_of(workload.admission, {})
    workload.reserved_at = float(chance.randint(0, 4))
    if chance.random() < 0.15:
        workload.eviction = Eviction("Preempted", 5.0, "InClusterQueue")
    return workload


def pending_by(chance: Random, most: int = 3) -> Workload:
    podsets = []
    for i in range(chance.choice([1, 1, 1, 2, 3][: most + 2])):
        count = chance.choice([1, 1, 2, 3])
        asked = {r: chance.choice([0, 1, 2, 3, 4]) for r in RESOURCES if chance.random() < 0.7}
        podsets.append(
            PodSet(
                name=f"p{i}",
                count=count,
                min_count=chance.choice([None, 1, count]),
                requests=asked,
                group=chance.choice([None, None, "g"]),
            )
        )
    return Workload(
        name="new",
        uid="new",
        podsets=tuple(podsets),
        priority=chance.randint(0, 4),
        created=float(chance.randint(0, 3)),
    )


def picture(state: Snapshot) -> dict[str, Any]:
    """Everything that a decision may not change."""

    def used(node: QuotaNode) -> dict[FlavorResource, int]:
        return {fr: amount for fr, amount in node.usage.items() if amount}

    return {
        "queues": {name: used(node) for name, node in state.tree.queues.items()},
        "cohorts": {name: used(node) for name, node in state.tree.cohorts.items()},
        "holders": {name: [(key, dict(w.held)) for key, w in held.items()] for name, held in state.holders.items()},
        "generations": dict(state.generations),
    }
