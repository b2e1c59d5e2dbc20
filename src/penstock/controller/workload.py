"""Kueue's Workload from the outside: how one is made for a stage, what its status says, and the patches that answer it. Pure.

Called by `controller.core` and `controller.coverage`. The protocol, with a proof for each rule, is in docs/ideas/kueue-protocol.md.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from penstock.controller import names
from penstock.controller.engine import Shape, Stage
from penstock.controller.objects import (
    WORKLOADS,
    Object,
    Write,
    annotations_of,
    holds,
    is_deleted,
    labels_of,
    name_of,
    namespace_of,
    part,
    rows,
    uid_of,
)
from penstock.engine.podsets import MOST_SHAPES, MOST_UNITS
from penstock.formats.pods.requests import resources_of
from penstock.graph import quantity
from penstock.kueue import status

_UNITS = {"cpu": 1000, "memory": 1000 * 2**20, "ephemeral-storage": 1000 * 2**20}
"""Of a unit pod, in thousandths, where amounts are multiples of it; otherwise the amount itself is the unit."""


@dataclass(frozen=True, slots=True)
class PodSetRoom:
    """One pod set of a Workload: what it may hold now."""

    name: str
    count: int
    """Admitted, or asked for while nothing is admitted; what was given back is not in it."""
    requests: Mapping[str, int]
    group: str
    flavors: tuple[str, ...]
    node_selector: Mapping[str, str]
    """As the stage asks for it."""


class OwnWorkload:
    """A Workload of ours, read."""

    def __init__(self, obj: Object) -> None:
        self.obj = obj
        self.name = name_of(obj)
        self.stage = str(annotations_of(obj).get(names.STAGE, ""))
        self.place = names.PLACE in annotations_of(obj)
        self.deleted = is_deleted(obj)
        self.finished = holds(obj, "Finished")
        self.reserved = holds(obj, "QuotaReserved")
        self.evicted = holds(obj, "Evicted")
        self.ready = holds(obj, "PodsReady")
        self.runs = holds(obj, "Admitted") and not self.evicted and not self.finished and not self.deleted
        """Its pods may run."""
        self.tasks = _tasks_of(obj)
        """The tasks that it was sized for; None if it is for the stage as a whole."""

    @property
    def live(self) -> bool:
        return not self.finished and not self.deleted

    @property
    def in_part(self) -> bool:
        """Fewer pods were admitted than it asked for."""
        asked = {str(one.get("name") or "main"): one.get("count") for one in rows(self.obj, "spec", "podSets")}
        given = rows(self.obj, "status", "admission", "podSetAssignments")
        return any(int(one.get("count") or 0) < int(asked.get(str(one.get("name"))) or 0) for one in given)

    @property
    def may_start_in_part(self) -> bool:
        return any("minCount" in one for one in rows(self.obj, "spec", "podSets"))

    @property
    def vector(self) -> bool:
        return any("podSetGroupName" in part(one, "topologyRequest") for one in rows(self.obj, "spec", "podSets"))

    @property
    def pod_sets(self) -> list[PodSetRoom]:
        assigned = {str(one.get("name")): one for one in rows(self.obj, "status", "admission", "podSetAssignments")}
        given_back = {
            str(one.get("name")): int(one.get("count") or 0) for one in rows(self.obj, "status", "reclaimablePods")
        }
        found = []
        for one in rows(self.obj, "spec", "podSets"):
            name, asked = str(one.get("name") or "main"), int(one.get("count") or 0)
            there = assigned.get(name, {})
            count = min(int(there.get("count", asked)), asked - given_back.get(name, 0))
            spec = part(one, "template", "spec")
            flavors = tuple(dict.fromkeys(str(flavor) for flavor in part(there, "flavors").values()))
            found.append(
                PodSetRoom(
                    name,
                    max(0, count),
                    resources_of(spec),
                    str(part(one, "topologyRequest").get("podSetGroupName") or ""),
                    flavors,
                    {str(key): str(text) for key, text in part(spec, "nodeSelector").items()},
                )
            )
        return found


def _tasks_of(obj: Object) -> frozenset[str] | None:
    text = annotations_of(obj).get(names.TASKS)
    if text is None:
        return None
    try:
        return frozenset(map(str, json.loads(text)))
    except (ValueError, TypeError):
        return frozenset()


def name_for(main: Object, key: str) -> str:
    """Of the Workload of a stage, or of some tasks of it: readable, unique and always the same."""
    digest = sha256(f"{uid_of(main)}/{key}".encode()).hexdigest()[:8]
    return f"{_dns(name_of(main))[:30]}-{_dns(key)[:20]}-{digest}".replace("--", "-").lstrip("-")


def _dns(text: str) -> str:
    return "".join(one if one.isascii() and one.isalnum() else "-" for one in text.lower()).strip("-") or "x"


def build(
    main: Object,
    stage: Stage,
    queue: str,
    priority: tuple[str, int] | None,
    *,
    place: bool = False,
    tasks: Sequence[str] | None = None,
    taken: Collection[str] = (),
) -> Write:
    """The request that makes a Workload. With `place` it is switched off: it keeps its place in the queue by the time of its creation. `taken`: names
    of the workflow's Workloads. A place that was given to some tasks has the name of the stage."""
    key = stage.key if tasks is None else f"{stage.key}/{','.join(sorted(tasks))}"
    while name_for(main, key) in taken:
        key = f"{key}/again"
    notes = {names.STAGE: stage.key} | _tasks(tasks)
    if place:
        notes[names.PLACE] = stage.name
    body: dict[str, Any] = {
        "apiVersion": WORKLOADS.api,
        "kind": WORKLOADS.kind,
        "metadata": {
            "name": name_for(main, key),
            "namespace": namespace_of(main),
            "labels": {names.WORKFLOW_UID: uid_of(main)},
            "annotations": notes,
            "ownerReferences": [_owner(main)],
        },
        "spec": {"queueName": queue, "podSets": pod_sets(stage)},
    }
    if place:
        body["spec"]["active"] = False
    body["spec"] |= _priority(priority)
    what = "keeps its place" if place else "waits in the queue"
    return Write(
        "create", WORKLOADS, namespace_of(main), body["metadata"]["name"], body, why=f"stage {stage.name} {what}"
    )


def _tasks(tasks: Sequence[str] | None) -> dict[str, str]:
    return {} if tasks is None else {names.TASKS: json.dumps(sorted(tasks), separators=(",", ":"))}


def _priority(priority: tuple[str, int] | None) -> dict[str, Any]:
    """Of a WorkloadPriorityClass: its name and its value."""
    if priority is None:
        return {}
    name, value = priority
    return {
        "priority": value,
        "priorityClassRef": {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": name},
    }


def _owner(main: Object) -> dict[str, Any]:
    """Not as its controller: Kueue would look for a job framework of that kind."""
    return {
        "apiVersion": main.get("apiVersion"),
        "kind": main.get("kind"),
        "name": name_of(main),
        "uid": uid_of(main),
    }


# -- pod sets ---------------------------------------------------------------------------------------------------------


def pod_sets(stage: Stage) -> list[dict[str, Any]]:
    """One for each shape, equal ones folded. More than Kueue takes, or a stage that covers others: unit pods, one pod set for each resource."""
    folded = fold(stage.shapes)
    if stage.vector or len(folded) > MOST_SHAPES:
        return _units(folded)
    alone = len(folded) == 1
    found = []
    for number, shape in enumerate(folded):
        one = _pod_set("main" if alone else f"s{number}", shape.count, shape.requests, shape)
        if alone and not stage.gang and shape.count > 1:
            one["minCount"] = 1
        found.append(one)
    return found or [_pod_set("main", 0, {}, Shape(0, {}))]


def fold(shapes: Iterable[Shape]) -> list[Shape]:
    """Shapes that are alike together, in the order of the first; those without pods are left out."""
    found: dict[str, Shape] = {}
    for one in shapes:
        if one.count > 0:
            key = _alike(one)
            before = found[key].count if key in found else 0
            found[key] = Shape(
                before + one.count, one.requests, one.node_selector, one.tolerations, one.affinity, one.runtime_class
            )
    return list(found.values())


def _alike(shape: Shape) -> str:
    wanted = [sorted(shape.requests.items()), _placement(shape)]
    return json.dumps(wanted, sort_keys=True, default=str)


def _placement(shape: Shape) -> str:
    return json.dumps(
        [shape.node_selector, shape.tolerations, shape.affinity, shape.runtime_class], sort_keys=True, default=str
    )


def alike(one: Shape, other: Shape) -> bool:
    """Do their pods ask for the same?"""
    return _alike(one) == _alike(other)


def given_back(stage: Stage) -> dict[str, int]:
    """Of a stage that covers others: by pod set, the unit pods that are not needed any more."""
    found = {}
    for number, (shape, needed) in enumerate(zip(fold(stage.shapes), stage.needed, strict=False)):
        for name, amount in shape.requests.items():
            whole, unit = amount * shape.count, _unit(name, amount * shape.count)
            found[_unit_name(number, name)] = -(-whole // unit) - -(-needed.get(name, 0) // unit)
    return {name: count for name, count in found.items() if count > 0}


def ended(stage: Stage) -> dict[str, int]:
    """By pod set, the pods of a stage that are over for good."""
    if stage.vector:
        return given_back(stage)
    folded = fold(stage.shapes)
    if len(folded) > MOST_SHAPES or not stage.finished:
        return {}
    found: dict[str, int] = {}
    for shape, done in zip(stage.shapes, stage.finished, strict=True):
        for number, one in enumerate(folded):
            if alike(one, shape):
                name = "main" if len(folded) == 1 else f"s{number}"
                found[name] = found.get(name, 0) + done
    return found


def _units(shapes: Sequence[Shape]) -> list[dict[str, Any]]:
    """By placement, the sum of each resource as unit pods. Kueue gives all of one group the same flavor."""
    groups: dict[str, tuple[Shape, dict[str, int]]] = {}
    for shape in shapes:
        _, total = groups.setdefault(_placement(shape), (shape, {}))
        for name, amount in shape.requests.items():
            total[name] = total.get(name, 0) + amount * shape.count
    if sum(len(total) for _, total in groups.values()) > MOST_SHAPES:
        groups = {"": (Shape(1, {}), _sum(total for _, total in groups.values()))}
    found = []
    for number, (shape, total) in enumerate(groups.values()):
        for name, amount in sorted(total.items()):
            unit = _unit(name, amount)
            one = _pod_set(_unit_name(number, name), -(-amount // unit), {name: unit}, shape)
            one["topologyRequest"] = {"podSetGroupName": f"g{number}"}
            found.append(one)
    return found or [_pod_set("main", 0, {}, Shape(0, {}))]


def _unit_name(group: int, resource: str) -> str:
    return f"g{group}-{_dns(resource)[-40:]}"


def _sum(totals: Iterable[Mapping[str, int]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for total in totals:
        for name, amount in total.items():
            found[name] = found.get(name, 0) + amount
    return found


def _unit(name: str, amount: int) -> int:
    unit = _UNITS.get(name, 1000)
    while amount % unit and unit > 1:
        unit //= 10 if unit % 10 == 0 else 2 if unit % 2 == 0 else unit
    return unit if amount // unit <= MOST_UNITS else -(-amount // MOST_UNITS)


def _pod_set(name: str, count: int, requests: Mapping[str, int], shape: Shape) -> dict[str, Any]:
    shown = {resource: quantity.show(amount, resource) for resource, amount in sorted(requests.items()) if amount}
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "containers": [{"name": "main", "image": "penstock/stage", "resources": {"requests": shown}}],
    }
    if shape.node_selector:
        spec["nodeSelector"] = dict(shape.node_selector)
    if shape.tolerations:
        spec["tolerations"] = [dict(one) for one in shape.tolerations]
    if shape.affinity:
        spec["affinity"] = dict(shape.affinity)
    if shape.runtime_class:
        spec["runtimeClassName"] = shape.runtime_class
    return {"name": name, "count": count, "template": {"spec": spec}}


def asks(stage: Stage) -> bool:
    """Does the stage ask for any quota?"""
    return any(one.count > 0 and any(one.requests.values()) for one in stage.shapes)


# -- writes -----------------------------------------------------------------------------------------------------------


def activate(workload: OwnWorkload, stage: Stage, queue: str, tasks: Sequence[str] | None = None) -> Write:
    """The stage is reached: the Workload that kept its place is switched on, with what is known now. `tasks`: for those that wait, whose pods say what
    they ask for; then only if nobody has changed it meanwhile."""
    body: dict[str, Any] = {
        "metadata": {"annotations": {names.PLACE: None, **_tasks(tasks)}},
        "spec": {"active": True, "queueName": queue, "podSets": pod_sets(stage)},
    }
    if tasks is not None:
        body["metadata"]["resourceVersion"] = part(workload.obj, "metadata").get("resourceVersion")
    return _patch(workload, body, f"stage {stage.name} waits in the queue")


def hand_over(workload: OwnWorkload, stage: Stage) -> Write:
    """The next stage takes over what this one holds."""
    body = {"metadata": {"annotations": {names.STAGE: stage.key}}}
    return _patch(workload, body, f"stage {stage.name} takes over the reservation")


def same_needs(one: Stage, other: Stage) -> bool:
    return _comparable(pod_sets(one)) == _comparable(pod_sets(other))


def resize(workload: OwnWorkload, stage: Stage, queue: str, priority: tuple[str, int] | None) -> Write | None:
    """While nothing is reserved, the Workload follows what the stage asks for now, and a priority class that was made or changed later."""
    wanted = pod_sets(stage)
    spec = part(workload.obj, "spec")
    change: dict[str, Any] = {}
    if _comparable(spec.get("podSets")) != _comparable(wanted) or spec.get("queueName") != queue:
        change = {"queueName": queue, "podSets": wanted}
    urgent = _priority(priority)
    if any(spec.get(name) != value for name, value in urgent.items()):
        change |= urgent
    return _patch(workload, {"spec": change}, f"stage {stage.name} has changed") if change else None


def _comparable(sets: Any) -> str:
    """What matters to the queue, in one spelling."""
    found = []
    for one in sets if isinstance(sets, list) else ():
        spec = part(one, "template", "spec")
        placement = [spec.get(name) or None for name in ("nodeSelector", "tolerations", "affinity", "runtimeClassName")]
        group = part(one, "topologyRequest").get("podSetGroupName")
        amounts = sorted(resources_of(spec).items())
        found.append([one.get("name") or "main", one.get("count"), one.get("minCount"), amounts, placement, group])
    return json.dumps(found, sort_keys=True, default=str)


def reclaim(workload: OwnWorkload, finished: Mapping[str, int]) -> Write | None:
    """Gives back what is over; the figures only grow. `finished`: by pod set."""
    return status.reclaim(workload.obj, finished)


def pods_ready(workload: OwnWorkload, now: float, recovered: bool = False) -> Write:
    return status.pods_ready(workload.obj, now, recovered)


def pods_lost(workload: OwnWorkload, message: str, now: float) -> Write:
    """Kueue gives it some time to recover."""
    return status.pods_lost(workload.obj, message, now)


def finish(workload: OwnWorkload, outcome: str, message: str, now: float) -> Write:
    return status.finish(workload.obj, outcome, message, now)


def respond(workload: OwnWorkload, now: float) -> Write:
    """The answer to an eviction: nothing runs any more, the quota goes back, and the Workload back into its queue."""
    return status.respond(workload.obj, now)


def delete(workload: OwnWorkload, why: str) -> Write:
    return status.delete(workload.obj, why)


def _patch(workload: OwnWorkload, body: Object, why: str) -> Write:
    return status.patch(workload.obj, body, why)


def queue_of(obj: Object) -> str:
    """The queue of a main object: Kueue's label, or the one that took its place."""
    found = labels_of(obj)
    return str(found.get(names.QUEUE) or found.get(names.QUEUED) or "")
