"""Evictions that no engine answers: of a workflow that is being deleted, or that cannot be read, and of pods that outlive their stage. Pure.

Called by `controller.core`. Kueue admits nobody else from a ClusterQueue while an eviction in it has no answer, so each one gets one: where the engine
cannot stop a stage by its own means, its pods are deleted, and when none of them runs any more the quota goes back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from penstock.controller import names
from penstock.controller import workload as kueue
from penstock.controller.coverage import Coverage, is_active, is_gated
from penstock.controller.objects import (
    PODS,
    Object,
    Write,
    annotations_of,
    is_deleted,
    name_of,
    namespace_of,
    uid_of,
)
from penstock.controller.workload import OwnWorkload


def is_open(workload: OwnWorkload) -> bool:
    """Does Kueue wait for an answer?"""
    return workload.live and workload.evicted and workload.reserved


def answered(workload: OwnWorkload, coverage: Coverage, pods: Iterable[Object], now: float) -> list[Write]:
    """The next writes towards the answer: nothing while pods end."""
    if coverage.counted(workload):
        return delete_pods(workload, pods)
    return [kueue.respond(workload, now)]


def delete_pods(workload: OwnWorkload, pods: Iterable[Object]) -> list[Write]:
    """Those that run on a Workload."""
    mine = (one for one in pods if is_active(one) and not is_gated(one) and not is_deleted(one))
    return [
        Write(
            "delete",
            PODS,
            namespace_of(one),
            name_of(one),
            {"preconditions": {"uid": uid_of(one)}},
            why="its quota is taken back",
        )
        for one in mine
        if str(annotations_of(one).get(names.POD_SET, "")).partition("/")[0] == workload.name
    ]


def left(workloads: Sequence[OwnWorkload], coverage: Coverage, pods: Sequence[Object], now: float) -> list[Write]:
    """Of a workflow that is being deleted. It may take as long as its finalizers like: what nothing runs on goes back, and nothing new starts."""
    writes: list[Write] = []
    for one in workloads:
        if not one.live:
            continue
        if coverage.counted(one):
            writes += delete_pods(one, pods) if is_open(one) else []
        elif one.reserved:
            writes.append(kueue.finish(one, "Failed", "the workflow is being deleted", now))
        else:
            writes.append(kueue.delete(one, "the workflow is being deleted"))
    return writes
