"""A small cluster for tests of the core: a store with versions, a queue that behaves like Kueue, and the controller of the toy engine.

Every write of the controller goes through `Cluster.write`, and after each one the invariants are checked: pods without a gate never ask for more than
is admitted, quota is never exceeded, and a finished task is never run again.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.controller.core import Seen, reconcile
from penstock.controller.coverage import is_active, is_gated, requests_of
from penstock.controller.engine import Observed, Unit
from penstock.controller.objects import (
    CLUSTER_QUEUES,
    FLAVORS,
    LOCAL_QUEUES,
    PODS,
    WORKLOADS,
    Object,
    Plan,
    Resource,
    Write,
    annotations_of,
    holds,
    labels_of,
    name_of,
    namespace_of,
    part,
    rows,
    uid_of,
)
from penstock.controller.workload import Workload, timestamp
from tests.controller.toy_engine.penstock_toy import ENGINE, SEQUENCES

Key = tuple[str, str]
NS = "team"


class Conflict(Exception):
    pass


class Cluster:
    """Objects by plural and name. `history` has the older states, for controllers that look at an old sight."""

    def __init__(self, cpu: int = 10) -> None:
        self.objects: dict[Key, dict[str, Any]] = {}
        self.version = 0
        self.now = 1_000_000.0
        self.quota = cpu * 1000
        self.runs: dict[tuple[str, str, str], int] = {}
        """(workflow, step, index) -> how often it has finished."""
        self.unit: Unit = "stage"
        self.add("resourceflavors", {"metadata": {"name": "spot"}, "spec": {"nodeLabels": {"pool": "spot"}}})
        self.add(
            "clusterqueues", {"metadata": {"name": "all"}, "spec": {"resourceGroups": [{"coveredResources": ["cpu"]}]}}
        )
        self.add("localqueues", {"metadata": {"name": "q", "namespace": NS}, "spec": {"clusterQueue": "all"}})

    # the API server

    def add(self, plural: str, obj: Mapping[str, Any]) -> dict[str, Any]:
        self.version += 1
        data = copy.deepcopy(dict(obj))
        data["metadata"].setdefault("uid", f"uid-{self.version}")
        data["metadata"] |= {"resourceVersion": str(self.version), "creationTimestamp": timestamp(self.now)}
        key = (plural, name_of(data))
        if key in self.objects:
            raise Conflict(f"{key} exists")
        self.objects[key] = data
        return data

    def touch(self, obj: dict[str, Any]) -> None:
        self.version += 1
        obj["metadata"]["resourceVersion"] = str(self.version)

    def of(self, plural: str) -> list[dict[str, Any]]:
        return [one for (kind, _), one in self.objects.items() if kind == plural]

    def drop(self, plural: str, name: str) -> None:
        gone = self.objects.pop((plural, name), None)
        if gone:
            for key in [key for key, one in self.objects.items() if _owned(one, uid_of(gone))]:
                self.drop(*key)

    def write(self, write: Write) -> None:
        plural = write.resource.plural
        if write.verb == "create":
            self.add(plural, write.body)
        elif (plural, write.name) not in self.objects:
            raise Conflict("404")
        elif write.verb == "delete":
            self._check(write, self.objects[plural, write.name])
            self.drop(plural, write.name)
        else:
            there = self.objects[plural, write.name]
            self._check(write, there)
            merged = merge(there, write.body)
            merged["metadata"]["uid"] = uid_of(there)
            if plural == "workloads":
                _check_workload(there, merged, write)
            self.objects[plural, write.name] = merged
            self.touch(merged)
        self.invariants()

    def _check(self, write: Write, there: Object) -> None:
        version = part(write.body, "metadata").get("resourceVersion")
        if version is not None and version != there["metadata"]["resourceVersion"]:
            raise Conflict("409")
        uid = part(write.body, "preconditions").get("uid")
        if uid is not None and uid != uid_of(there):
            raise Conflict("409")

    # Lookup

    def get(self, resource: Resource, namespace: str, name: str) -> Object | None:
        return self.objects.get((resource.plural, name))

    def list(self, resource: Resource, namespace: str = "") -> Sequence[Object]:
        return self.of(resource.plural)

    def snapshot(self) -> Cluster:
        found = Cluster.__new__(Cluster)
        found.__dict__.update(self.__dict__)
        found.objects = copy.deepcopy(self.objects)
        return found

    # people

    def submit(self, name: str, steps: Sequence[Mapping[str, Any]]) -> None:
        made = {
            "apiVersion": SEQUENCES.api,
            "kind": SEQUENCES.kind,
            "metadata": {"name": name, "namespace": NS, "labels": {"kueue.x-k8s.io/queue-name": "q"}},
            "spec": {"steps": [dict(step) for step in steps]},
        }
        self.add("sequences", ENGINE.adjust(made, "stage", self).object)

    # the toy's controller, and a kubelet

    def engine_step(self) -> None:
        for main in self.of("sequences"):
            self._sequence(main)

    def _sequence(self, main: dict[str, Any]) -> None:
        done = main.setdefault("status", {}).setdefault("done", {})
        for number, step in enumerate(main["spec"]["steps"]):
            pods = [
                pod for pod in self.of("pods") if _owned(pod, uid_of(main)) and labels_of(pod)["step"] == step["name"]
            ]
            over = set(done.get(step["name"], ()))
            for pod in pods:
                index = int(labels_of(pod)["index"])
                if part(pod, "status").get("phase") == "Succeeded" and index not in over:
                    over.add(index)
                    done[step["name"]] = sorted(over)
                    self.touch(main)
            if number >= main["spec"]["open"]:
                for pod in pods:
                    if is_active(pod):
                        self.drop("pods", name_of(pod))
            elif len(over) < step["pods"]:
                there = {int(labels_of(pod)["index"]) for pod in pods}
                for index in set(range(step["pods"])) - over - there:
                    self._pod(main, step, index)
            if len(over) < step["pods"]:
                return
        if not main["status"].get("phase"):
            main["status"]["phase"] = "Succeeded"
            self.touch(main)

    def _pod(self, main: Object, step: Mapping[str, Any], index: int) -> None:
        resources = {"requests": {"cpu": step.get("asks", step["cpu"])}}
        self.add(
            "pods",
            {
                "metadata": {
                    "name": f"{name_of(main)}-{step['name']}-{index}",
                    "namespace": NS,
                    "labels": {"penstock/queue": "q", "step": step["name"], "index": str(index)},
                    "ownerReferences": [{"uid": uid_of(main), "controller": True}],
                },
                "spec": {"schedulingGates": [{"name": "penstock/admission"}], "containers": [{"resources": resources}]},
                "status": {"phase": "Pending"},
            },
        )

    def pod_step(self, name: str) -> None:
        pod = self.objects.get(("pods", name))
        if pod is None or is_gated(pod) or not is_active(pod):
            return
        if pod["status"]["phase"] == "Pending":
            pod["status"]["phase"] = "Running"
        else:
            pod["status"]["phase"] = "Succeeded"
            key = (
                str(rows(pod, "metadata", "ownerReferences")[0]["uid"]),
                labels_of(pod)["step"],
                labels_of(pod)["index"],
            )
            self.runs[key] = self.runs.get(key, 0) + 1
        self.touch(pod)

    # Kueue

    def used(self) -> int:
        return sum(
            _held(one) for one in self.of("workloads") if holds(one, "QuotaReserved") and not holds(one, "Finished")
        )

    def kueue_step(self) -> None:
        """Admits the oldest that waits and fits."""
        waiting = [one for one in self.of("workloads") if _pending(one)]
        for one in sorted(waiting, key=lambda one: (one["metadata"]["creationTimestamp"], uid_of(one))):
            asked = sum(_pod_cpu(each) * each["count"] for each in one["spec"]["podSets"])
            if self.used() + asked > self.quota:
                continue
            sets = [
                {"name": each["name"], "count": each["count"], "flavors": {"cpu": "spot"}}
                for each in one["spec"]["podSets"]
            ]
            one.setdefault("status", {})["admission"] = {"clusterQueue": "all", "podSetAssignments": sets}
            for kind in ("QuotaReserved", "Admitted"):
                _state(one, kind, True, kind)
            _state(one, "Evicted", False, "QuotaReserved")
            self.touch(one)
            self.invariants()

    def evict(self, name: str) -> None:
        one = self.objects.get(("workloads", name))
        if one is not None and Workload(one).runs:
            _state(one, "Evicted", True, "Preempted")
            self.touch(one)

    # the invariants

    def invariants(self) -> None:
        assert self.used() <= self.quota, "more is admitted than there is"
        for one in self.of("workloads"):
            mine = [
                pod
                for pod in self.of("pods")
                if str(annotations_of(pod).get("penstock/pod-set", "")).startswith(f"{name_of(one)}/")
            ]
            free = [pod for pod in mine if is_active(pod) and not is_gated(pod)]
            asked = sum(requests_of(pod).get("cpu", 0) for pod in free)
            held = _held(one) if holds(one, "QuotaReserved") and not holds(one, "Finished") else 0
            assert asked <= held, f"{name_of(one)}: {asked} run on {held}"
        for key, times in self.runs.items():
            assert times == 1, f"{key} has run {times} times"


# -- the controller ---------------------------------------------------------------------------------------------------


def look(cluster: Cluster, main: Object) -> Plan:
    observed = Observed(
        main, {"Pod": [one for one in cluster.of("pods") if _owned(one, uid_of(main))]}, cluster, cluster.now
    )
    workloads = [one for one in cluster.of("workloads") if labels_of(one).get("penstock/workflow-uid") == uid_of(main)]
    return reconcile(Seen(ENGINE, observed, cluster.unit, workloads))


def control(cluster: Cluster, sight: Cluster | None = None, cut: int = 10**6) -> int:
    """One look at every workflow, perhaps at an old sight; only the first `cut` writes are carried out. Returns how many were."""
    done = 0
    for main in (sight or cluster).of("sequences"):
        plan = look(sight or cluster, main)
        for write in plan.writes:
            if done >= cut:
                return done
            done += 1
            try:
                cluster.write(write)
            except Conflict:
                break
            if sight is not None:  # What it wrote itself it sees, as the shell does.
                key = (write.resource.plural, write.name)
                sight.objects.pop(key, None)
                if key in cluster.objects:
                    sight.objects[key] = copy.deepcopy(cluster.objects[key])
    return done


def merge(old: Any, new: Any) -> Any:
    """JSON merge patch."""
    if not isinstance(new, Mapping):
        return copy.deepcopy(new)
    found = dict(old) if isinstance(old, Mapping) else {}
    for name, value in new.items():
        if value is None:
            found.pop(name, None)
        else:
            found[name] = merge(found.get(name), value)
    return found


def _owned(obj: Object, uid: str) -> bool:
    return any(one.get("uid") == uid for one in rows(obj, "metadata", "ownerReferences"))


def _pending(one: Object) -> bool:
    off = part(one, "spec").get("active") is False
    return not off and not holds(one, "Finished") and not holds(one, "QuotaReserved")


def _pod_cpu(each: Object) -> int:
    return requests_of(each["template"]).get("cpu", 0)


def _held(one: Object) -> int:
    back = {each["name"]: each["count"] for each in rows(one, "status", "reclaimablePods")}
    return sum(_pod_cpu(each) * (each["count"] - back.get(each["name"], 0)) for each in one["spec"]["podSets"])


def _state(one: dict[str, Any], kind: str, status: bool, why: str) -> None:
    kept = [each for each in rows(one, "status", "conditions") if each["type"] != kind]
    made = {"type": kind, "status": "True" if status else "False", "reason": why, "message": why}
    one.setdefault("status", {})["conditions"] = [*kept, made]


def _check_workload(old: Object, new: Object, write: Write) -> None:
    """What Kueue's webhook refuses."""
    if holds(old, "QuotaReserved") and write.subresource == "":
        assert old["spec"]["podSets"] == new["spec"]["podSets"], "pod sets are frozen while quota is reserved"
    if holds(old, "QuotaReserved") and holds(new, "QuotaReserved"):
        before = {one["name"]: one["count"] for one in rows(old, "status", "reclaimablePods")}
        after = {one["name"]: one["count"] for one in rows(new, "status", "reclaimablePods")}
        assert all(after.get(name, 0) >= count for name, count in before.items()), "reclaimable pods only grow"


__all__ = [
    "CLUSTER_QUEUES",
    "FLAVORS",
    "LOCAL_QUEUES",
    "PODS",
    "WORKLOADS",
    "Cluster",
    "control",
    "look",
    "namespace_of",
]
