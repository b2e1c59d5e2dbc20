"""What the families share: a case's configuration, its objects, and its amounts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from penstock.admission.manifests import read, requests
from penstock.admission.manifests.config import seconds
from penstock.admission.manifests.times import time_of
from penstock.admission.model import UNLIMITED, Check, ClusterQueue, Config, Object, Workload

NOW = 1768478400.0
"""2026-01-15T12:00:00Z: the clock of all cases."""


def now_of(case: Mapping[str, Any]) -> float:
    found = time_of(case.get("now"))
    return NOW if found is None else found


def config_of(case: Mapping[str, Any]) -> Config:
    config = case["config"]
    usage = config.get("admissionFairSharing")
    given: dict[str, Any] = {}
    if config.get("fairSharingPreemptionStrategies"):
        given["strategies"] = tuple(config["fairSharingPreemptionStrategies"])
    if usage is not None:
        given["half_life"] = seconds(usage.get("usageHalfLifeTime"), 0.0)
        given["sampling"] = seconds(usage.get("usageSamplingInterval"), 300.0)
        given["resource_weights"] = {name: float(weight) for name, weight in usage.get("resourceWeights", {}).items()}
    return Config(
        fair_sharing=config["fairSharing"],
        gates=config["featureGates"],
        requeue_by_eviction=config.get("podsReadyRequeuingTimestamp", "Eviction") == "Eviction",
        **given,
    )


_LISTS = ("namespaces", "resourceFlavors", "cohorts", "clusterQueues", "localQueues", "workloads", "otherObjects")


def objects_of(given: Mapping[str, Any], lists: Iterable[str] = _LISTS) -> tuple[list[Object], list[Workload]]:
    """What is configured, and the Workloads. Checks that a queue asks for exist."""
    found = read.objects_of(doc for name in lists for doc in given.get(name) or ())
    objects: list[Object] = [one for one in found if not isinstance(one, Workload)]
    named = {rule.name for one in objects if isinstance(one, ClusterQueue) for rule in one.checks}
    objects += [Check(name) for name in sorted(named) if Check(name) not in objects]
    return objects, [one for one in found if isinstance(one, Workload)]


def amount(resource: str, text: str) -> int:
    return UNLIMITED if text == "unlimited" else requests.amount(resource, text)


def amounts(given: Mapping[str, str]) -> dict[str, int]:
    return {resource: amount(resource, text) for resource, text in given.items()}
