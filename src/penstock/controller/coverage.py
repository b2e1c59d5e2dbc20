"""Which pods may run: each counts against a pod set of an admitted Workload. Pure.

Called by `controller.core` for pods that wait, and by `controller.admit` for a pod that is just created. A pod that may run carries the annotation
`penstock/pod-set`, so the count is in the cluster and nowhere else. A pod without the gate whose Workload does not run is a stray.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from penstock.controller import names
from penstock.controller.engine import Opening, Task
from penstock.controller.objects import (
    FLAVORS,
    Lookup,
    Object,
    annotations_of,
    part,
    rows,
)
from penstock.controller.workload import OwnWorkload, PodSetRoom
from penstock.formats.pods.requests import resources_of

Answer = Literal["wait", "uncovered"]


@dataclass(frozen=True, slots=True)
class Grant:
    """A pod may run: the pod set that it counts against, and what the admission adds to the pod."""

    pod_set: str
    """`workload/pod-set`; empty for a pod that needs no quota."""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Mapping[str, Any], ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Assumed:
    """A pod that was let go a moment ago and was not seen since."""

    pod_set: str
    requests: Mapping[str, int]
    pod: str = ""
    """Its name, if it has one before it is made."""


def counts_for(pod: Object) -> tuple[str, dict[str, int]] | None:
    """What a pod runs on, and with how much; None if it does not run, or needs no quota."""
    pod_set = str(annotations_of(pod).get(names.POD_SET, ""))
    return (pod_set, requests_of(pod)) if pod_set and is_active(pod) and not is_gated(pod) else None


@dataclass(slots=True)
class _Used:
    pods: int = 0
    amounts: dict[str, int] = field(default_factory=dict)

    def add(self, requests: Mapping[str, int], pods: int) -> None:
        self.pods += pods
        for name, amount in requests.items():
            self.amounts[name] = self.amounts.get(name, 0) + amount * pods


def requests_of(pod: Object) -> dict[str, int]:
    return resources_of(part(pod, "spec"))


def is_gated(pod: Object) -> bool:
    return any(one.get("name") == names.POD_GATE for one in rows(pod, "spec", "schedulingGates"))


def is_active(pod: Object) -> bool:
    return part(pod, "status").get("phase") not in ("Succeeded", "Failed")


class Coverage:
    """Counts what runs against what is admitted, for one workflow. Each grant is counted at once."""

    def __init__(
        self,
        workloads: Iterable[OwnWorkload],
        pods: Sequence[tuple[Task, Object]],
        lookup: Lookup,
        assumed: Iterable[Assumed] = (),
    ) -> None:
        self.lookup = lookup
        self.workloads = {one.name: one for one in workloads if one.live}
        self._of_stage: dict[str, list[OwnWorkload]] = {}
        """For the stage as a whole."""
        self._of_task: dict[tuple[str, str], list[OwnWorkload]] = {}
        """For some tasks of it: by each of them."""
        for one in self.workloads.values():
            if one.tasks is None:
                self._of_stage.setdefault(one.stage, []).append(one)
            for name in one.tasks or ():
                self._of_task.setdefault((one.stage, name), []).append(one)
        self.used: dict[str, _Used] = {}
        self._counted: dict[str, int] = {}
        """By Workload, the pods that run on it."""
        self.strays: list[tuple[Task, Object]] = []
        """Pods that run without quota."""
        for task, pod in pods:
            if is_active(pod) and not is_gated(pod):
                self._count(task, pod)
        for each in assumed:
            self.count(each.pod_set, each.requests)

    def count(self, pod_set: str, requests: Mapping[str, int], pods: int = 1) -> None:
        """So many more pods run, or less, on `workload/pod-set`."""
        self.used.setdefault(pod_set, _Used()).add(requests, pods)
        workload = pod_set.partition("/")[0]
        self._counted[workload] = self._counted.get(workload, 0) + pods

    def _count(self, task: Task, pod: Object) -> None:
        requests = requests_of(pod)
        counted = str(annotations_of(pod).get(names.POD_SET, ""))
        if counted:
            self.count(counted, requests)
        against = self.workloads.get(counted.partition("/")[0])
        if task.stage and any(requests.values()) and (against is None or not against.reserved):
            self.strays.append((task, pod))

    def counted(self, workload: OwnWorkload) -> int:
        """How many pods run on this Workload."""
        return self._counted.get(workload.name, 0)

    def forget(self, workload: OwnWorkload) -> None:
        """It is given back: nothing is covered by it any more."""
        self.workloads.pop(workload.name, None)

    def spare(self, workload: OwnWorkload, finished: Mapping[str, int]) -> dict[str, int]:
        """Of what is over, the part that no pod uses: others of the stage may have taken its place."""
        asked = {
            str(one.get("name") or "main"): int(one.get("count") or 0) for one in rows(workload.obj, "spec", "podSets")
        }
        found = {}
        for one in workload.pod_sets:
            used = self.used.get(f"{workload.name}/{one.group or one.name}", _Used())
            taken = used.pods
            if one.group:
                taken = max((-(-used.amounts.get(n, 0) // each) for n, each in one.requests.items() if each), default=0)
            found[one.name] = max(0, min(finished.get(one.name, 0), asked.get(one.name, 0) - taken))
        return found

    def decide(self, task: Task, pod: Object) -> Grant | Answer:
        """May this pod run? `wait`: a Workload that will cover it is not admitted yet. `uncovered`: there is none."""
        requests = requests_of(pod)
        own = self._of_task.get((task.stage, task.name), ())
        answer: Answer = "uncovered"
        for workload in (*own, *self._of_stage.get(task.stage, ())):
            if workload.place or workload.name not in self.workloads:
                continue
            room = self._room(workload, requests, part(pod, "spec"))
            if room is None:
                continue
            if not workload.runs:
                answer = "wait"
                continue
            counted = f"{workload.name}/{room.group or room.name}"
            grant = self.admits(workload, self._rooms(workload, room, requests), counted)
            if not _allowed(grant, part(pod, "spec")):
                continue
            self.count(counted, requests)
            return grant
        return answer

    def _rooms(self, workload: OwnWorkload, room: PodSetRoom, requests: Mapping[str, int]) -> list[PodSetRoom]:
        """The pod sets that a pod takes from: of a group one for each resource, and each may have a flavor of its own."""
        if not room.group:
            return [room]
        here = [one for one in workload.pod_sets if one.group == room.group]
        return [one for one in here if any(requests.get(name) for name in one.requests)] or [room]

    def _room(self, workload: OwnWorkload, requests: Mapping[str, int], spec: Object) -> PodSetRoom | None:
        sets = workload.pod_sets
        fitting = [one for one in sets if self._fits(workload, one, sets, requests)]
        wanted = {str(key): str(text) for key, text in part(spec, "nodeSelector").items()}
        # The one that it was made for, if there is room in it: alike in size and place; then alike in size.
        fitting.sort(key=lambda one: (dict(one.requests) != dict(requests), dict(one.node_selector) != wanted))
        return fitting[0] if fitting else None

    def _fits(
        self, workload: OwnWorkload, one: PodSetRoom, sets: Sequence[PodSetRoom], requests: Mapping[str, int]
    ) -> bool:
        used = self.used.get(f"{workload.name}/{one.group or one.name}", _Used())
        if not one.group:
            return used.pods < one.count and all(amount <= one.requests.get(n, 0) for n, amount in requests.items())
        held: dict[str, int] = {}
        for each in sets:
            if each.group == one.group:
                for name, amount in each.requests.items():
                    held[name] = held.get(name, 0) + amount * each.count
        return all(used.amounts.get(name, 0) + amount <= held.get(name, 0) for name, amount in requests.items())

    def admits(self, workload: OwnWorkload, rooms: Sequence[PodSetRoom], counted: str = "") -> Grant:
        """What the admission of pod sets says about their pods: the nodes of its flavors, and what admission checks add."""
        flavors = dict.fromkeys(name for room in rooms for name in room.flavors)
        found = [self.lookup.get(FLAVORS, "", name) or {} for name in flavors]
        selector = {str(k): str(v) for one in found for k, v in part(one, "spec", "nodeLabels").items()}
        tolerations = [dict(each) for one in found for each in rows(one, "spec", "tolerations")]
        labels: dict[str, str] = {}
        annotations: dict[str, str] = {}
        own = {None, *(room.name for room in rooms)}
        for check in rows(workload.obj, "status", "admissionChecks"):
            for update in rows(check, "podSetUpdates"):
                if update.get("name") in own:
                    selector |= {str(k): str(v) for k, v in part(update, "nodeSelector").items()}
                    labels |= {str(k): str(v) for k, v in part(update, "labels").items()}
                    annotations |= {str(k): str(v) for k, v in part(update, "annotations").items()}
                    tolerations += [dict(each) for each in rows(update, "tolerations")]
        return Grant(counted, selector, tuple(tolerations), labels, annotations)


def opening(coverage: Coverage, there: OwnWorkload) -> Opening:
    """What was admitted, for the engine that lets the stage go."""
    sets = there.pod_sets
    asked = sum(int(one.get("count") or 0) for one in rows(there.obj, "spec", "podSets"))
    admitted = sum(one.count for one in sets)
    grants = [coverage.admits(there, [one]) for one in sets]
    alike = all(one.node_selector == grants[0].node_selector for one in grants)
    flavors = tuple(dict.fromkeys(name for one in sets for name in one.flavors))
    selector = grants[0].node_selector if grants and alike else {}
    tolerations = grants[0].tolerations if grants and alike else ()
    return Opening(admitted if admitted < asked and not there.vector else None, flavors, selector, tolerations)


def _allowed(grant: Grant, spec: Object) -> bool:
    """A pod that chose other nodes than those of the flavor is not covered by it; nobody may change what it chose."""
    chosen = part(spec, "nodeSelector")
    return all(str(chosen.get(key, text)) == text for key, text in grant.node_selector.items())


def released(pod: Object, grant: Grant) -> dict[str, Any]:
    """The pod as a merge patch has to make it: without our gate, with what the admission adds. A pod that waits may still be told where to run."""
    spec = part(pod, "spec")
    gates = [one for one in rows(spec, "schedulingGates") if one.get("name") != names.POD_GATE]
    notes = dict(grant.annotations) | ({names.POD_SET: grant.pod_set} if grant.pod_set else {})
    metadata: dict[str, Any] = {}
    if notes:
        metadata["annotations"] = notes
    if grant.labels:
        metadata["labels"] = dict(grant.labels)
    changed: dict[str, Any] = {"schedulingGates": gates or None}
    if grant.node_selector:
        changed["nodeSelector"] = dict(grant.node_selector)
    have = rows(spec, "tolerations")
    more = [dict(one) for one in grant.tolerations if not any(_same(one, each) for each in have)]
    if more:
        changed["tolerations"] = [*have, *more]
    return {"metadata": metadata, "spec": changed} if metadata else {"spec": changed}


def _same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return {k: v for k, v in one.items() if v} == {k: v for k, v in other.items() if v}
