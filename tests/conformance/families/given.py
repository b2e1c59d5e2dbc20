"""A case's `given` as a snapshot, for the families that test a snapshot rather than cycles."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from penstock.admission.manifests import read
from penstock.admission.model import UNLIMITED, ClusterQueue, Cohort, FlavorResource, ResourceFlavor, Stop, Workload
from penstock.admission.shares import Share
from penstock.admission.snapshot import Snapshot
from tests.conformance.families.cases import amount, config_of

Case = dict[str, Any]


def state_of(case: Case, flavors_may_be_missing: bool = False) -> Snapshot:
    """With the queues, and the Workloads that hold quota in them."""
    given = case["given"]
    state = Snapshot(config_of(case))
    for found in read.objects_of([*given["resourceFlavors"], *given["cohorts"], *given["clusterQueues"]]):
        if isinstance(found, ResourceFlavor):
            state.flavors[found.name] = found
        elif isinstance(found, Cohort):
            state.cohorts[found.name] = found
        elif isinstance(found, ClusterQueue):
            state.cluster_queues[found.name] = found
    if not flavors_may_be_missing:
        state.inactive = {
            queue.name
            for queue in state.cluster_queues.values()
            if queue.stop is not Stop.NONE
            or {each.flavor for group in queue.groups for each in group.flavors} - state.flavors.keys()
        }
    state.rebuild()
    for workload in workloads_of(given.get("workloads", ())):
        if workload.admission is not None:
            state.hold(workload)
    for queue, usage in given.get("usage", {}).items():
        state.tree.queues[queue].add(usage_of(usage))
    return state


def workloads_of(docs: Iterable[Case]) -> list[Workload]:
    return [found for found in read.objects_of(docs) if isinstance(found, Workload)]


def workload_of(doc: Case) -> Workload:
    return workloads_of([doc])[0]


def usage_of(listed: Mapping[str, Mapping[str, str]]) -> dict[FlavorResource, int]:
    return {
        FlavorResource(flavor, resource): amount(resource, text)
        for flavor, resources in listed.items()
        for resource, text in resources.items()
    }


def check_share(found: Share, expected: Case) -> None:
    assert found.rounded == (
        UNLIMITED if expected["weightedShareRounded"] == "max" else expected["weightedShareRounded"]
    )
    assert found.weighted == float(expected["weightedShare"])
    assert found.ratio == float(expected["unweightedRatio"])
    assert found.weight == float(expected["weight"])
    assert (found.dominant, found.borrowing) == (expected["dominantResource"], expected["borrowing"])
