"""A Workload as a row of the store: to text and back. Called by QuotaReplica."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from penstock.admission.model import (
    Admission,
    CheckState,
    Eviction,
    PodSet,
    PodSetAssignment,
    PodToleration,
    Requirement,
    Workload,
)
from penstock.admission.snapshot import usage_of

_encode = json.JSONEncoder(separators=(",", ":")).encode


def to_document(workload: Workload) -> str:
    data: dict[str, Any] = {
        "name": workload.name,
        "namespace": workload.namespace,
        "uid": workload.uid,
        "queue": workload.queue,
        "priority": workload.priority,
        "created": workload.created,
        "podsets": [_podset(podset) for podset in workload.podsets],
    }
    for name, empty in _OPTIONAL.items():
        value = getattr(workload, name)
        if value != empty:
            data[name] = value
    if workload.gates:
        data["gates"] = sorted(workload.gates)
    if workload.checks:
        data["checks"] = {name: str(state) for name, state in workload.checks.items()}
    if workload.admission is not None:
        data["admission"] = {
            "queue": workload.admission.cluster_queue,
            "podsets": [
                [one.name, one.count, dict(one.flavors), dict(one.usage)] for one in workload.admission.podsets
            ],
        }
    for name in ("eviction", "last_eviction"):
        eviction = getattr(workload, name)
        if eviction is not None:
            data[name] = [eviction.reason, eviction.at, eviction.preempted, eviction.by]
    return _encode(data)


_OPTIONAL: Mapping[str, Any] = {
    "priority_class": None,
    "boost": 0,
    "active": True,
    "max_seconds": None,
    "unfit": "",
    "reclaimable": {},
    "reserved_at": None,
    "admitted_at": None,
    "ready_at": None,
    "was_ready": False,
    "requeue_at": None,
    "requeue_count": 0,
    "held_back": False,
    "run_seconds": 0.0,
    "check_messages": {},
}
"""Fields that are left out when they have this value."""


def from_document(text: str) -> Workload:
    data = json.loads(text)
    workload = Workload(
        name=data["name"],
        namespace=data["namespace"],
        uid=data["uid"],
        queue=data["queue"],
        priority=data["priority"],
        created=data["created"],
        podsets=tuple(_podset_from(podset) for podset in data["podsets"]),
        gates=frozenset(data.get("gates", ())),
        checks={name: CheckState(state) for name, state in data.get("checks", {}).items()},
    )
    for name in _OPTIONAL:
        if name in data:
            setattr(workload, name, data[name])
    for name in ("eviction", "last_eviction"):
        if name in data:
            setattr(workload, name, Eviction(*data[name]))
    if "admission" in data:
        given = data["admission"]
        workload.admission = Admission(given["queue"], tuple(PodSetAssignment(*one) for one in given["podsets"]))
        workload.held = usage_of(workload.admission, workload.reclaimable, workload.podsets)
    return workload


def _podset(podset: PodSet) -> dict[str, Any]:
    data: dict[str, Any] = {"name": podset.name, "count": podset.count, "requests": dict(podset.requests)}
    for name in ("min_count", "group"):
        if getattr(podset, name) is not None:
            data[name] = getattr(podset, name)
    if podset.selector:
        data["selector"] = dict(podset.selector)
    if podset.affinity is not None:
        data["affinity"] = [[[one.key, one.operator, list(one.values)] for one in term] for term in podset.affinity]
    if podset.tolerations:
        data["tolerations"] = [[one.key, one.operator, one.value, one.effect] for one in podset.tolerations]
    return data


def _podset_from(data: Mapping[str, Any]) -> PodSet:
    affinity = data.get("affinity")
    return PodSet(
        name=data["name"],
        count=data["count"],
        min_count=data.get("min_count"),
        requests=data["requests"],
        selector=data.get("selector", {}),
        affinity=None
        if affinity is None
        else tuple(
            tuple(Requirement(key, operator, tuple(values)) for key, operator, values in term) for term in affinity
        ),
        tolerations=tuple(PodToleration(*one) for one in data.get("tolerations", ())),
        group=data.get("group"),
    )
