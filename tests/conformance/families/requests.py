"""Family `requests`: what a Workload asks for in all, and what is filled in where it does not say."""

from __future__ import annotations

from typing import Any

from penstock.admission import read, requests
from penstock.admission.model import UNLIMITED, Config, Workload
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
    found = [
        {"name": t.name, "count": t.count, "requests": dict(t.requests), "flavors": dict(t.flavors)}
        for t in requests.totals(workload, config)
    ]
    assert found == [
        {
            "name": podset["name"],
            "count": podset["count"],
            "requests": {r: _amount(r, text) for r, text in podset.get("requests", {}).items()},
            "flavors": podset.get("flavors", {}),
        }
        for podset in expect["podSets"]
    ]


def _amount(resource: str, text: str) -> int:
    return UNLIMITED if text == "unlimited" else requests.amount(resource, text)


def _adjust(given: dict[str, Any], expect: dict[str, Any]) -> None:
    found = requests.adjust(given["workload"], given.get("limitRanges", ()), given.get("runtimeClasses", ()))
    assert _plain(found) == _plain(expect["workload"])


def _plain(value: Any, key: str = "") -> Any:
    """Quantities by their size: `1` and `1000m` are the same."""
    if isinstance(value, dict):
        if key in ("limits", "requests", "overhead"):
            return {name: quantity.exact(text) for name, text in value.items()}
        return {name: _plain(part, name) for name, part in value.items()}
    return [_plain(part) for part in value] if isinstance(value, list) else value
