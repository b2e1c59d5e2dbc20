"""What the controller watches, and what follows from what it sees: writes, Events, a plan. Used by every part of `controller`; pure.

Objects themselves, and how a write looks, are in `kubernetes.objects`; the names are here too, for the parts of the controller.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from penstock.kubernetes.objects import (
    ApiResource,
    Object,
    PatchType,
    Write,
    annotations_of,
    condition,
    controller_of,
    holds,
    is_deleted,
    labels_of,
    name_of,
    namespace_of,
    part,
    rows,
    uid_of,
)
from penstock.kueue.kinds import CLUSTER_QUEUES, FLAVORS, LOCAL_QUEUES, PRIORITIES, WORKLOADS

__all__ = [
    "CLUSTER_QUEUES",
    "FLAVORS",
    "LOCAL_QUEUES",
    "PRIORITIES",
    "WORKLOADS",
    "ApiResource",
    "Object",
    "PatchType",
    "Write",
    "annotations_of",
    "condition",
    "controller_of",
    "holds",
    "is_deleted",
    "labels_of",
    "name_of",
    "namespace_of",
    "part",
    "rows",
    "uid_of",
]


@dataclass(frozen=True, slots=True)
class Note:
    """A Kubernetes Event on the workflow object. The shell sends one only when it is new."""

    reason: str
    """`Queued`, `Admitted`, `Evicted`, `Released`, `Refused` …"""
    message: str
    warning: bool = False


@dataclass(frozen=True, slots=True)
class ReconcilePlan:
    """What follows from what is seen: writes in order, Events, and when to look again if nothing happens before."""

    writes: Sequence[Write] = ()
    notes: Sequence[Note] = ()
    again: float | None = None
    """Seconds."""
    stages: Mapping[str, str] = field(default_factory=dict)
    """The state of each stage, for the metrics."""
    over: bool = False
    """The workflow has ended, and holds nothing any more."""
    doubts: Sequence[Write] = ()
    """Empty patches of objects that may be otherwise than they were seen: they are read, and then it is decided anew. Pods are stopped for them."""
    fault: Exception | None = None
    """Why nothing else could be decided. It is raised when the writes are carried out."""


class Lookup(Protocol):
    """Objects that are watched, by name. Answered from memory."""

    def get(self, resource: ApiResource, namespace: str, name: str) -> Object | None: ...

    def list(self, resource: ApiResource, namespace: str = "") -> Sequence[Object]: ...


NAMESPACES = ApiResource("v1", "Namespace", "namespaces", namespaced=False)
PODS = ApiResource("v1", "Pod", "pods", selector="penstock/queue")
