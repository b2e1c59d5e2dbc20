"""Kueue's Configuration document: the part of it that decisions depend on. Called by the engine's replica of the queues, for a
document that was applied with the queues.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from penstock.admission.model import Config

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def config_of(document: Mapping[str, Any]) -> Config:
    """A field that is missing or not valid has Kueue's default. The exception is waitForPodsReady, which is off unless it is given:
    what runs on this machine is ready when it starts."""
    fair = _map(document.get("fairSharing"))
    usage = _map(document.get("admissionFairSharing"))
    ready = _map(document.get("waitForPodsReady"))
    requeue = _map(ready.get("requeuingStrategy"))
    resources = _map(document.get("resources"))
    given: dict[str, Any] = {}
    if fair:
        given["fair_sharing"] = fair.get("enable", True) is not False
        if fair.get("preemptionStrategies"):
            given["strategies"] = tuple(map(str, fair["preemptionStrategies"]))
    if usage:
        given["half_life"] = seconds(usage.get("usageHalfLifeTime"), 0.0)
        given["sampling"] = seconds(usage.get("usageSamplingInterval"), 300.0)
        weights = _map(usage.get("resourceWeights"))
        given["resource_weights"] = {str(name): float(weight) for name, weight in weights.items()}
    if ready and ready.get("enable", True) is not False:
        given["pods_ready_timeout"] = seconds(ready.get("timeout"), 1800.0)
        if ready.get("recoveryTimeout") is not None:
            given["pods_ready_recovery"] = seconds(ready["recoveryTimeout"], 1800.0)
        given["block_admission"] = ready.get("blockAdmission") is True
        given["requeue_by_eviction"] = requeue.get("timestamp", "Eviction") != "Creation"
        given["backoff_base"] = float(requeue.get("backoffBaseSeconds", 60))
        given["backoff_max"] = float(requeue.get("backoffMaxSeconds", 3600))
        if requeue.get("backoffLimitCount") is not None:
            given["backoff_limit"] = int(requeue["backoffLimitCount"])
    given["ignore_undeclared"] = resources.get("quotaCheckStrategy") == "IgnoreUndeclared"
    gates = _map(document.get("featureGates"))
    given["gates"] = {str(name): value is True for name, value in gates.items()}
    return Config(**given)


def seconds(value: Any, default: float) -> float:
    """A duration as Go writes it: 1h30m, 500ms."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    parts = _DURATION.findall(value) if isinstance(value, str) else []
    return sum(float(number) * _SECONDS[unit] for number, unit in parts) if parts else default


def _map(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
