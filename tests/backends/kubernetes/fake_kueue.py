"""Kueue's part of a cluster, for tests: one LocalQueue with so many cores, filled by priority and age, in part where that is enough. It never
preempts by itself: `evict` is the test's."""

from __future__ import annotations

import copy
import threading
from typing import Any

from penstock.graph import quantity
from penstock.kubernetes.objects import condition, holds, part, rows
from penstock.kueue.kinds import FLAVORS, LOCAL_QUEUES, PRIORITIES, WORKLOADS
from tests.backends.kubernetes.fake_cluster import NAMESPACE, FakeCluster

Dict = dict[str, Any]
NOW = "2026-01-01T00:00:00Z"


class FakeKueue(threading.Thread):
    def __init__(self, api: FakeCluster, cores: float, queue: str = "team") -> None:
        super().__init__(daemon=True)
        self.api = api
        self.cores = cores
        self.held: list[dict[str, float]] = []
        """After each admission: Workload -> cores."""
        self.stopped = False
        """It decides nothing."""
        self._over = threading.Event()
        for kind in (LOCAL_QUEUES, WORKLOADS, FLAVORS, PRIORITIES):
            api.install(kind)
        api.put(
            LOCAL_QUEUES, {"metadata": {"name": queue, "namespace": NAMESPACE}, "spec": {"clusterQueue": "research"}}
        )
        spec = {"nodeLabels": {"pool": "spot"}, "tolerations": [{"key": "spot", "operator": "Exists"}]}
        api.put(FLAVORS, {"metadata": {"name": "spot"}, "spec": spec})
        api.put(PRIORITIES, {"metadata": {"name": "urgent"}, "value": 1000})
        self.start()

    def end(self) -> None:
        self._over.set()
        self.join(10)

    def workloads(self) -> list[Dict]:
        return self.api.all(WORKLOADS)

    def evict(self, name: str) -> None:
        with self.api.changed:
            found = self.api.get(WORKLOADS, NAMESPACE, name)
            assert found is not None
            _state(found, "Evicted", True, "Preempted", "preempted to accommodate another")
            _state(found, "Preempted", True, "InClusterQueue", "preempted")
            self.api.put(WORKLOADS, found)

    def run(self) -> None:
        seen = -1
        while not self._over.is_set():
            if self.api.version == seen or self.stopped:
                with self.api.changed:
                    self.api.changed.wait(0.02)
                continue
            seen = self.api.version
            with self.api.changed:
                self._decide()

    def _decide(self) -> None:
        there = self.workloads()
        used = {one["metadata"]["name"]: _cores(one) for one in there if holds(one, "QuotaReserved")}
        waiting = [one for one in there if not holds(one, "QuotaReserved") and part(one, "spec").get("active", True)]
        waiting.sort(key=lambda one: (-int(one["spec"].get("priority") or 0), int(one["metadata"]["resourceVersion"])))
        for one in waiting:
            if holds(one, "Finished") or condition(one, "Requeued").get("status") == "False":
                continue
            free = self.cores - sum(used.values())
            counts = _fit(one, free)
            if counts is None:
                message = f"couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor spot, {free} left"
                if condition(one, "QuotaReserved").get("message") != message:
                    _state(one, "QuotaReserved", False, "Pending", message)
                    self.api.put(WORKLOADS, one)
                continue
            assigned = [
                {"name": set_["name"], "count": count, "flavors": dict.fromkeys(_requests(set_), "spot")}
                for set_, count in zip(one["spec"]["podSets"], counts, strict=True)
            ]
            one.setdefault("status", {})["admission"] = {"clusterQueue": "research", "podSetAssignments": assigned}
            _state(one, "QuotaReserved", True, "QuotaReserved", "")
            _state(one, "Admitted", True, "Admitted", "")
            _state(one, "Evicted", False, "QuotaReserved", "")
            _state(one, "Preempted", False, "QuotaReserved", "")
            used[one["metadata"]["name"]] = _cores(self.api.put(WORKLOADS, one))
            self.held.append(copy.copy(used))


def _fit(workload: Dict, free: float) -> list[int] | None:
    sets = workload["spec"]["podSets"]
    if sum(_per_pod(one) * one["count"] for one in sets) <= free:
        return [one["count"] for one in sets]
    least = sets[0].get("minCount")
    if least is None or not _per_pod(sets[0]):
        return None
    many = int(free / _per_pod(sets[0]))
    return [many] if many >= least else None


def _requests(set_: Dict) -> Dict:
    found: Dict = set_["template"]["spec"]["containers"][0].get("resources", {}).get("requests", {})
    return found


def _per_pod(set_: Dict) -> float:
    return float(quantity.exact(_requests(set_).get("cpu", "0")))


def _cores(workload: Dict) -> float:
    given = {one["name"]: one["count"] for one in rows(workload, "status", "admission", "podSetAssignments")}
    gone = {one["name"]: one["count"] for one in rows(workload, "status", "reclaimablePods")}
    return sum(
        _per_pod(one) * min(given.get(one["name"], 0), one["count"] - gone.get(one["name"], 0))
        for one in workload["spec"]["podSets"]
    )


def _state(workload: Dict, kind: str, status: bool, reason: str, message: str) -> None:
    conditions = workload.setdefault("status", {}).setdefault("conditions", [])
    conditions[:] = [one for one in conditions if one["type"] != kind]
    conditions.append(
        {"type": kind, "status": str(status), "reason": reason, "message": message, "lastTransitionTime": NOW}
    )
