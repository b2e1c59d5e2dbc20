"""A small cluster for tests of the core: a store with versions, a queue that behaves like Kueue, a kubelet, and the engines of `machines`.

Every write of the controller goes through `Cluster.write`, and after each one the invariants are checked: pods without a gate never ask for more than
their Workload holds, quota is never exceeded, and a finished task is never run again. In the end every eviction is answered, and every workflow is over.
"""

from __future__ import annotations

import copy
import json
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
    ApiResource,
    Object,
    ReconcilePlan,
    Write,
    annotations_of,
    condition,
    holds,
    is_deleted,
    labels_of,
    name_of,
    namespace_of,
    part,
    rows,
    uid_of,
)
from penstock.controller.workload import OwnWorkload
from penstock.kueue.status import timestamp
from tests.controller.machines import Argo, Machine, machines

Key = tuple[str, str]
NS = "team"
CAP = "penstock/workflows"
CLASSES = {"high": 100, "low": 0}
CHILDREN = {"TaskRun": "taskruns", "Job": "jobs", "Pod": "pods"}


class Conflict(Exception):
    pass


class Cluster:
    """Objects by plural and name. `history` has the older states, for controllers that look at an old sight."""

    def __init__(self, cpu: int = 10, graceful: bool = False, cap: int = 0) -> None:
        """`graceful`: pods that are deleted end with exit code 143 first, as on a node. `cap`: how many workflows may run."""
        self.objects: dict[Key, dict[str, Any]] = {}
        self.version = 0
        self.now = 1_000_000.0
        self.graceful = graceful
        self.quotas = {"cpu": cpu * 1000} | ({CAP: cap * 1000} if cap else {})
        self.runs: dict[tuple[str, str, str], int] = {}
        """(workflow, step, index) -> how often it has finished."""
        self.unit: Unit = "stage"
        self.units: dict[str, Unit] = {}
        """Of workflows that were submitted with one."""
        self.machines = machines()
        covered = [{"coveredResources": list(self.quotas)}]
        self.add("resourceflavors", {"metadata": {"name": "spot"}, "spec": {"nodeLabels": {"pool": "spot"}}})
        self.add("clusterqueues", {"metadata": {"name": "all"}, "spec": {"resourceGroups": covered}})
        self.add("localqueues", {"metadata": {"name": "q", "namespace": NS}, "spec": {"clusterQueue": "all"}})
        for name, value in CLASSES.items():
            self.add("workloadpriorityclasses", {"metadata": {"name": name}, "value": value})

    @property
    def quota(self) -> int:
        return self.quotas["cpu"]

    @quota.setter
    def quota(self, amount: int) -> None:
        self.quotas["cpu"] = amount

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
            self._delete(plural, write)
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
        seen = part(write.body, "preconditions")
        if seen.get("uid") not in (None, uid_of(there)):
            raise Conflict("409")
        if seen.get("resourceVersion") not in (None, there["metadata"]["resourceVersion"]):
            raise Conflict("409")

    def _delete(self, plural: str, write: Write) -> None:
        if plural == "pods":
            self.end_pod(write.name, at_once=write.body.get("gracePeriodSeconds") == 0)
        elif write.body.get("propagationPolicy") == "Foreground":
            self.mark_deleted(plural, write.name, "foregroundDeletion")
            self.collect()
        else:
            self.drop(plural, write.name)

    def mark_deleted(self, plural: str, name: str, finalizer: str) -> None:
        there = self.objects[plural, name]
        there["metadata"] |= {"deletionTimestamp": timestamp(self.now), "finalizers": [finalizer]}
        self.touch(there)

    def collect(self) -> None:
        """The garbage collector: what is deleted in the foreground goes after its pods."""
        for (plural, name), one in list(self.objects.items()):
            if "foregroundDeletion" in part(one, "metadata").get("finalizers", ()):
                pods = self.owned("pods", one)
                for pod in pods:
                    self.end_pod(name_of(pod))
                if not self.owned("pods", one):
                    self.drop(plural, name)

    def end_pod(self, name: str, at_once: bool = False) -> None:
        pod = self.objects.get(("pods", name))
        if pod is None or is_deleted(pod):
            return
        if self.graceful and not at_once and part(pod, "status").get("phase") == "Running":
            pod["metadata"]["deletionTimestamp"] = timestamp(self.now)
            self.touch(pod)
        else:
            self.drop("pods", name)

    def owned(self, plural: str, owner: Object) -> list[dict[str, Any]]:
        """What belongs to it directly."""
        return [one for one in self.of(plural) if _owned(one, uid_of(owner))]

    def root_of(self, pod: Object) -> str:
        """The uid of the workflow of a pod."""
        (one,) = rows(pod, "metadata", "ownerReferences")
        run = next(
            (each for kind in ("taskruns", "jobs") for each in self.of(kind) if uid_of(each) == one["uid"]), None
        )
        return str(one["uid"]) if run is None else self.root_of(run)

    # Lookup

    def get(self, resource: ApiResource, namespace: str, name: str) -> Object | None:
        return self.objects.get((resource.plural, name))

    def list(self, resource: ApiResource, namespace: str = "") -> Sequence[Object]:
        return self.of(resource.plural)

    def snapshot(self) -> Cluster:
        found = Cluster.__new__(Cluster)
        found.__dict__.update(self.__dict__)
        found.objects = copy.deepcopy(self.objects)
        return found

    # people

    def submit(
        self,
        name: str,
        steps: Sequence[Mapping[str, Any]],
        engine: str = "toy",
        unit: Unit | None = None,
        priority: str = "",
    ) -> None:
        machine = self.machines[engine]
        made = machine.document(name, steps)
        labels = {"kueue.x-k8s.io/queue-name": "q"} | ({"kueue.x-k8s.io/priority-class": priority} if priority else {})
        made["metadata"] = {"name": name, "namespace": NS, "labels": labels, **part(made, "metadata")}
        adjusted = machine.engine.adjust(made, unit or self.unit, self).object
        main = self.add(machine.plural, adjusted)
        if unit:
            self.units[uid_of(main)] = unit

    @property
    def mains(self) -> list[dict[str, Any]]:
        plurals = {one.plural for one in self.machines.values()}
        return [one for (plural, _), one in self.objects.items() if plural in plurals]

    def machine_of(self, main: Object) -> Machine:
        plural = next(plural for (plural, _), one in self.objects.items() if uid_of(one) == uid_of(main))
        return next(one for one in self.machines.values() if one.plural == plural)

    @property
    def argo(self) -> Argo:
        found = self.machines["argo"]
        assert isinstance(found, Argo)
        return found

    # the controllers of the engines, and a kubelet

    def engine_step(self) -> None:
        self.collect()
        for main in self.mains:
            self.machine_of(main).look(self, main)

    def pod_step(self, name: str) -> None:
        pod = self.objects.get(("pods", name))
        if pod is None or is_gated(pod):
            return
        if is_deleted(pod) and not is_active(pod):
            self.drop("pods", name)
            return
        if not is_active(pod):
            return
        if is_deleted(pod):
            pod["status"]["phase"] = "Failed"  # with exit code 143
        elif pod["status"]["phase"] == "Pending":
            pod["status"]["phase"] = "Running"
        elif not self._runs_on(pod):
            pod["status"]["phase"] = "Succeeded"
            key = (self.root_of(pod), labels_of(pod)["step"], labels_of(pod)["index"])
            self.runs[key] = self.runs.get(key, 0) + 1
        self.touch(pod)

    def _runs_on(self, pod: Object) -> bool:
        """A daemon ends when its workflow does."""
        main = next((one for one in self.mains if uid_of(one) == self.root_of(pod)), None)
        steps = json.loads(annotations_of(main or {}).get("steps") or "[]")
        return any(one["name"] == labels_of(pod)["step"] and one.get("daemon") for one in steps)

    # Kueue

    def used(self, resource: str = "cpu") -> int:
        return sum(
            _held(one, resource)
            for one in self.of("workloads")
            if holds(one, "QuotaReserved") and not holds(one, "Finished")
        )

    def kueue_step(self) -> None:
        """Admits the oldest that waits and fits, the most urgent first; of what need not be admitted whole, a part."""
        for one in self.of("workloads"):
            if condition(one, "Requeued").get("status") == "False" and not holds(one, "QuotaReserved"):
                _state(one, "Requeued", True, "BackoffFinished")
                self.touch(one)
        for one in self._waiting():
            counts = self._fitting(one)
            if counts is None:
                continue
            sets = [
                {"name": each["name"], "count": count, "flavors": {"cpu": "spot"}}
                for each, count in zip(one["spec"]["podSets"], counts, strict=True)
            ]
            one.setdefault("status", {})["admission"] = {"clusterQueue": "all", "podSetAssignments": sets}
            for kind in ("QuotaReserved", "Admitted"):
                _state(one, kind, True, kind)
            _state(one, "Evicted", False, "QuotaReserved")
            self.touch(one)
            self.invariants()

    def _waiting(self) -> list[dict[str, Any]]:
        waiting = [one for one in self.of("workloads") if _pending(one)]
        return sorted(waiting, key=lambda one: (-_priority(one), one["metadata"]["creationTimestamp"], uid_of(one)))

    def _fitting(self, one: Object) -> list[int] | None:
        """How many pods of each pod set; None if it does not fit."""
        sets = rows(one, "spec", "podSets")
        whole = [int(each["count"]) for each in sets]
        if self._fits(sets, whole):
            return whole
        if len(sets) == 1 and "minCount" in sets[0]:
            fewer = range(whole[0] - 1, int(sets[0]["minCount"]) - 1, -1)
            return next(([count] for count in fewer if self._fits(sets, [count])), None)
        return None

    def _fits(self, sets: Sequence[Object], counts: Sequence[int]) -> bool:
        return all(
            self.used(name) + sum(_amount(each, name) * count for each, count in zip(sets, counts, strict=True))
            <= amount
            for name, amount in self.quotas.items()
        )

    def preempt_step(self) -> None:
        """For the most urgent one that waits: those of lower priority are evicted, if that helps."""
        for one in self._waiting():
            if self._fitting(one) is not None:
                continue
            lower = [
                each for each in self.of("workloads") if OwnWorkload(each).runs and _priority(each) < _priority(one)
            ]
            sets = rows(one, "spec", "podSets")
            missing = {
                name: self.used(name) + sum(_amount(each, name) * int(each["count"]) for each in sets) - amount
                for name, amount in self.quotas.items()
            }
            if all(sum(_held(each, name) for each in lower) >= short for name, short in missing.items()):
                for each in lower:
                    self.evict(name_of(each))
                return

    def evict(self, name: str, why: str = "Preempted") -> None:
        one = self.objects.get(("workloads", name))
        if one is not None and OwnWorkload(one).runs:
            _state(one, "Evicted", True, why)
            self.touch(one)

    def unanswered(self) -> list[str]:
        """Workloads that were evicted and still hold quota."""
        return [
            name_of(one)
            for one in self.of("workloads")
            if holds(one, "Evicted") and holds(one, "QuotaReserved") and not holds(one, "Finished")
        ]

    # the invariants

    def invariants(self) -> None:
        for name, amount in self.quotas.items():
            assert self.used(name) <= amount, f"more {name} is admitted than there is"
        asked: dict[str, int] = {}
        for pod in self.of("pods"):
            if not is_active(pod) or is_gated(pod) or not any(requests_of(pod).values()):
                continue
            against = str(annotations_of(pod).get("penstock/pod-set", "")).partition("/")[0]
            assert against, f"{name_of(pod)} runs on nothing"
            asked[against] = asked.get(against, 0) + requests_of(pod).get("cpu", 0)
        for one in self.of("workloads"):
            held = _held(one) if holds(one, "QuotaReserved") and not holds(one, "Finished") else 0
            running = asked.get(name_of(one), 0)
            assert running <= held, f"{name_of(one)}: {running} run on {held}"
        for key, times in self.runs.items():
            assert times == 1, f"{key} has run {times} times"


# -- the controller ---------------------------------------------------------------------------------------------------


def observed(cluster: Cluster, main: Object) -> Observed:
    ours, children = {uid_of(main)}, {}
    for kind, plural in CHILDREN.items():
        children[kind] = [one for one in cluster.of(plural) if any(_owned(one, uid) for uid in ours)]
        ours |= {uid_of(one) for one in children[kind]}
    return Observed(main, children, cluster, cluster.now)


def look(cluster: Cluster, main: Object) -> ReconcilePlan:
    workloads = [one for one in cluster.of("workloads") if labels_of(one).get("penstock/workflow-uid") == uid_of(main)]
    unit = cluster.units.get(uid_of(main), cluster.unit)
    return reconcile(Seen(cluster.machine_of(main).engine, observed(cluster, main), unit, workloads))


def control(cluster: Cluster, sight: Cluster | None = None, cut: int = 10**6) -> int:
    """One look at every workflow, perhaps at an old sight; only the first `cut` writes are carried out. Returns how many were."""
    done = 0
    for main in (sight or cluster).mains:
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
    backs_off = condition(one, "Requeued").get("status") == "False"
    return not off and not backs_off and not holds(one, "Finished") and not holds(one, "QuotaReserved")


def _amount(each: Object, resource: str) -> int:
    return requests_of(each["template"]).get(resource, 0)


def _priority(one: Object) -> int:
    return int(part(one, "spec").get("priority") or 0)


def _held(one: Object, resource: str = "cpu") -> int:
    back = {each["name"]: each["count"] for each in rows(one, "status", "reclaimablePods")}
    given = {each["name"]: each["count"] for each in rows(one, "status", "admission", "podSetAssignments")}
    return sum(
        _amount(each, resource) * min(given.get(each["name"], each["count"]), each["count"] - back.get(each["name"], 0))
        for each in one["spec"]["podSets"]
    )


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
