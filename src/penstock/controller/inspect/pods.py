"""The pods of an admitted Workload: how many run, and what keeps the others from it. Called by why; pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.controller import names
from penstock.controller.objects import Object, annotations_of, condition, labels_of, name_of, part, rows, uid_of

WORKLOAD = "kueue.x-k8s.io/workload"
"""Kueue's annotation on the pods that it starts."""


@dataclass(frozen=True, slots=True)
class PodCount:
    running: int = 0
    ended: int = 0
    troubles: dict[str, list[str]] = field(default_factory=dict)
    """What keeps a pod from running -> pods."""

    @property
    def there(self) -> int:
        return self.running + self.ended + sum(map(len, self.troubles.values()))

    def as_data(self) -> dict[str, Any]:
        waiting = [{"why": why, "pods": pods} for why, pods in self.troubles.items()]
        return {"running": self.running, "ended": self.ended, "waiting": waiting}


def pods_of(workload: Object, pods: Iterable[Object]) -> list[Object]:
    """Those that say that they are of this Workload, or are owned by what it is for. A workflow has a Workload for each stage, and its pods
    say which."""
    name = name_of(workload)
    owners = {str(one.get("uid")) for one in rows(workload, "metadata", "ownerReferences")}
    ours = names.WORKFLOW_UID in labels_of(workload)
    return [pod for pod in pods if _says(pod, name) or (not ours and _is_of(pod, owners))]


def _says(pod: Object, workload: str) -> bool:
    told = annotations_of(pod)
    count_against = str(told.get(names.POD_SET) or labels_of(pod).get(names.POD_SET) or "")
    return told.get(WORKLOAD) == workload or count_against.partition("/")[0] == workload


def _is_of(pod: Object, uids: set[str]) -> bool:
    return uid_of(pod) in uids or any(str(one.get("uid")) in uids for one in rows(pod, "metadata", "ownerReferences"))


def count(pods: Sequence[Object]) -> PodCount:
    running = ended = 0
    troubles: dict[str, list[str]] = {}
    for pod in pods:
        phase = part(pod, "status").get("phase")
        if phase in ("Succeeded", "Failed"):
            ended += 1
        elif why := trouble(pod):
            troubles.setdefault(why, []).append(name_of(pod))
        else:
            running += 1
    return PodCount(running, ended, troubles)


def trouble(pod: Object) -> str:
    """What keeps it from running; empty if it runs."""
    if part(pod, "metadata").get("deletionTimestamp"):
        return "being deleted"
    gates = [str(one.get("name")) for one in rows(pod, "spec", "schedulingGates")]
    if gates:
        return f"held by the scheduling gate {', '.join(gates)}"
    scheduled = condition(pod, "PodScheduled")
    if scheduled.get("status") == "False":
        return f"no node for it: {scheduled.get('message') or scheduled.get('reason')}"
    for kind in ("initContainerStatuses", "containerStatuses"):
        for container in rows(pod, "status", kind):
            waiting = part(container, "state", "waiting")
            reason = str(waiting.get("reason") or "")
            if reason and reason not in ("ContainerCreating", "PodInitializing"):
                message = f": {waiting['message']}" if waiting.get("message") else ""
                return f"container {container.get('name')}: {reason}{message}"
    if part(pod, "status").get("phase") != "Running":
        return "starting"
    return ""
