"""Family `requests`: what a Workload requests in total, and which defaults are filled in."""

from __future__ import annotations

import copy
from typing import Any

from penstock.admission.cache import SchedulerCache
from penstock.admission.flavors import pod_set_resources
from penstock.admission.manifests import read, requests
from penstock.admission.model import UNLIMITED, Config, FlavorResource, Workload
from penstock.graph import quantity


def check(case: dict[str, Any]) -> None:
    config = Config(gates=case["config"].get("featureGates", {}))
    if case["kind"] == "totals":
        _totals(case["given"], case["expect"], config)
    else:
        assert case["kind"] == "adjust"
        _adjust(case["given"], case["expect"])


def _totals(given: dict[str, Any], expect: dict[str, Any], config: Config) -> None:
    (workload,) = read.objects_of([given["workload"]])
    assert isinstance(workload, Workload)
    expected = [
        (podset["name"], podset["count"], {r: _amount(r, text) for r, text in podset.get("requests", {}).items()})
        for podset in expect["podSets"]
    ]
    if workload.admission is None:
        asked = pod_set_resources(workload, False, config)
        assert [(one.name, one.count, dict(one.requests)) for one in asked] == expected
        return
    assert {one.name: dict(one.flavors) for one in workload.admission.podsets} == {
        podset["name"]: podset.get("flavors", {}) for podset in expect["podSets"]
    }
    held: dict[FlavorResource, int] = {}
    for one, (name, count, requested) in zip(workload.admission.podsets, expected, strict=True):
        assert one.name == name and one.usage.keys() == requested.keys()
        for resource, amount in requested.items():
            if resource in one.flavors:
                fr = FlavorResource(one.flavors[resource], resource)
                held[fr] = held.get(fr, 0) + amount
            else:
                assert one.usage[resource] // one.count * count == amount
    assert SchedulerCache(config).usage_of(workload) == held


def _amount(resource: str, text: str) -> int:
    return UNLIMITED if text == "unlimited" else requests.amount(resource, text)


def _adjust(given: dict[str, Any], expect: dict[str, Any]) -> None:
    summary = requests.ranges_of(given.get("limitRanges", ()))
    overheads = requests.overheads_of(given.get("runtimeClasses", ()))
    found = copy.deepcopy(given["workload"])
    for podset in found["spec"].get("podSets") or ():
        podset["template"]["spec"] = requests.adjusted(podset["template"]["spec"], summary, overheads)
    assert _plain(found) == _plain(expect["workload"])


def _plain(value: Any, key: str = "") -> Any:
    """Quantities by their size: `1` and `1000m` are the same."""
    if isinstance(value, dict):
        if key in ("limits", "requests", "overhead"):
            return {name: quantity.exact(text) for name, text in value.items()}
        return {name: _plain(part, name) for name, part in value.items()}
    return [_plain(part) for part in value] if isinstance(value, list) else value
