"""What pods tell of themselves: what each asks for, when it was made and when it ended. Pure.

Called by `controller.core` for pods that nothing declared covers, which get Workloads that are sized by what they ask for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from penstock.controller import names
from penstock.controller.coverage import is_active, is_gated, requests_of
from penstock.controller.engine import Shape, Stage, Task
from penstock.controller.objects import Object, annotations_of, labels_of, part, rows
from penstock.controller.workload import OwnWorkload
from penstock.kueue import status

UNTOLD = 10.0
"""Seconds for which a pod waits until its engine can tell its queue."""


def shape_of(pod: Object) -> Shape:
    """What one pod asks for."""
    spec = part(pod, "spec")
    return Shape(
        1,
        requests_of(pod),
        {str(key): str(text) for key, text in part(spec, "nodeSelector").items()},
        tuple(
            one for one in rows(spec, "tolerations") if not str(one.get("key", "")).startswith("node.kubernetes.io/")
        ),
        part(spec, "affinity"),
        str(spec.get("runtimeClassName") or ""),
    )


def queues_of(
    pods: Sequence[tuple[Task, Object]], main: str, stage: str, now: float
) -> tuple[dict[str, list[tuple[Task, Object]]], bool]:
    """The pods of one stage by the queue that each waits in: its own, if its label or its task names one. `main`: the workflow's; `stage`: that of the
    stage. Second: whether there are pods whose queue their engine cannot tell yet."""
    found: dict[str, list[tuple[Task, Object]]] = {}
    untold = False
    for task, pod in pods:
        said = str(labels_of(pod).get(names.QUEUED) or "")
        if said in ("", main):
            if task.queue is None and now - created_at(pod) < UNTOLD:
                untold = True
                continue
            said = task.queue or stage
        found.setdefault(said, []).append((task, pod))
    return found, untold


class ByTask:
    """The pods of a workflow, by stage and task."""

    def __init__(self, pods: Sequence[tuple[Task, Object]]) -> None:
        self._pods: dict[tuple[str, str], list[Object]] = {}
        self._stages: dict[str, list[tuple[str, Object]]] = {}
        for task, pod in pods:
            self._pods.setdefault((task.stage, task.name), []).append(pod)
            self._stages.setdefault(task.stage, []).append((task.name, pod))

    def in_stage(self, stage: str) -> Sequence[tuple[str, Object]]:
        """With the names of their tasks."""
        return self._stages.get(stage, ())

    def of(self, stage: str, tasks: Iterable[str]) -> list[tuple[str, Object]]:
        """Those of these tasks, with their names."""
        return [(name, pod) for name in sorted(tasks) for pod in self._pods.get((stage, name), ())]

    def left(self, there: OwnWorkload) -> frozenset[str]:
        """The tasks that a OwnWorkload was sized for, without those whose pods found room in another one: nothing of this one is theirs."""
        return frozenset(name for name in there.tasks or () if not self._elsewhere(there, name))

    def _elsewhere(self, there: OwnWorkload, task: str) -> bool:
        for pod in self._pods.get((there.stage, task), ()):
            counted = str(annotations_of(pod).get(names.POD_SET) or "").partition("/")[0]
            if counted not in ("", there.name) and is_active(pod) and not is_gated(pod):
                return True
        return False


def all_came(stage: Stage, pods: Sequence[tuple[Task, Object]]) -> bool:
    """Has every task of the stage a pod, or had one?"""
    if not stage.known or stage.vector:
        return False
    here = [(task.name, is_active(pod)) for task, pod in pods if task.stage == stage.key]
    active = {name for name, goes_on in here if goes_on}
    ended = {name for name, goes_on in here if not goes_on} - active
    return len(active) + max(len(ended), sum(stage.finished)) == sum(one.count for one in stage.shapes)


def created_at(pod: Object) -> float:
    return status.seconds(part(pod, "metadata").get("creationTimestamp"))


def ended_at(pod: Object) -> float:
    ends = [
        status.seconds(part(one, "state", "terminated").get("finishedAt"))
        for one in rows(pod, "status", "containerStatuses")
    ]
    return max(ends, default=0.0) or created_at(pod)


def has_run(pod: Object) -> bool:
    """It runs, or did."""
    phase = part(pod, "status").get("phase")
    return phase in ("Succeeded", "Failed") or (phase == "Running" and not is_gated(pod))


def over_for_good(workload: str, pods: Sequence[tuple[str, Object]], before: float) -> tuple[dict[str, int], bool]:
    """By pod set of a Workload, the tasks that ended before a moment and have no pod that runs or waits: no retry follows. Second: whether others ended
    since. `pods`: with the names of their tasks."""
    ended = dict(pods)
    soon = False
    for name, pod in pods:
        late = not is_active(pod) and ended_at(pod) > before
        soon = soon or late
        if late or is_active(pod):
            ended.pop(name, None)
    found: dict[str, int] = {}
    for pod in ended.values():
        counted, _, pod_set = str(annotations_of(pod).get(names.POD_SET, "")).partition("/")
        if counted == workload:
            found[pod_set] = found.get(pod_set, 0) + 1
    return found, soon
