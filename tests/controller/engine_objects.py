"""Objects as the real controllers write them, cut down to what matters, for the tests of the engines."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.controller import workload as kueue
from penstock.controller.engine import Observed, Stage
from penstock.controller.names import POD_GATE, QUEUE, QUEUED
from penstock.controller.objects import ApiResource, Object

NS = "team"
QUEUE_LABEL = {QUEUE: "team-a"}


class Shelf:
    """Lookup over a few objects, by kind and name."""

    def __init__(self, *objects: Mapping[str, Any]) -> None:
        self.objects = {(one["kind"], one["metadata"]["name"]): one for one in objects}

    def get(self, resource: ApiResource, namespace: str, name: str) -> Object | None:
        return self.objects.get((resource.kind, name))

    def list(self, resource: ApiResource, namespace: str = "") -> Sequence[Object]:
        return [one for (kind, _), one in self.objects.items() if kind == resource.kind]


def observed(main: Object, *children: Object, shelf: Shelf | None = None) -> Observed:
    found: dict[str, list[Object]] = {}
    for one in children:
        found.setdefault(one["kind"], []).append(one)
    return Observed(main, found, shelf or Shelf(), 0.0)


def child(kind: str, name: str, owner: Object, **more: Any) -> dict[str, Any]:
    refs = [
        {"kind": owner["kind"], "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"], "controller": True}
    ]
    metadata = {"name": name, "namespace": NS, "uid": f"uid-{name}", "resourceVersion": "7", "ownerReferences": refs}
    metadata |= more.pop("metadata", {})
    metadata["labels"] = {QUEUED: "team-a", **more.pop("labels", {})}
    return {"kind": kind, "metadata": metadata, **more}


def pod(name: str, owner: Object, *, gated: bool = False, phase: str = "", **more: Any) -> dict[str, Any]:
    spec: dict[str, Any] = {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]}
    if gated:
        spec["schedulingGates"] = [{"name": POD_GATE}]
    return child("Pod", name, owner, spec=spec, status={"phase": phase or ("Pending" if gated else "Running")}, **more)


def admitted(main: Object, stage: Stage, count: int | None = None) -> dict[str, Any]:
    """The Workload of a stage, with its quota; of `count` pods only, if that is less."""
    found = copy.deepcopy(dict(kueue.build(main, stage, "team-a", None).body))
    found["metadata"]["uid"] = f"uid-{found['metadata']['name']}"
    sets = [{"name": one["name"], "count": count or one["count"], "flavors": {}} for one in found["spec"]["podSets"]]
    states = [{"type": kind, "status": "True", "reason": kind} for kind in ("QuotaReserved", "Admitted")]
    found["status"] = {"admission": {"clusterQueue": "all", "podSetAssignments": sets}, "conditions": states}
    return found


def created(obj: Object, uid: str = "uid-main") -> dict[str, Any]:
    """As the API server stores what was adjusted."""
    found = copy.deepcopy(dict(obj))
    found["metadata"] |= {"uid": uid, "resourceVersion": "5", "namespace": NS}
    return found
