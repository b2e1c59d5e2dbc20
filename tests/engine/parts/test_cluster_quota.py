"""Workloads in a cluster, driven without one: whatever Kueue and others do, at whatever moment, tasks run only on what Kueue holds for them, an
eviction is answered when they have stopped and not before, and in the end the cluster has what is wanted."""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.admission.model import PodSet, Workload
from penstock.engine.cluster_quota import ClusterQuota, clear, injected, queue_named
from penstock.graph import model
from penstock.kubernetes.objects import Object, Write, annotations_of, condition, holds, labels_of, part, rows
from penstock.kueue.injection import PodInjection, injections
from penstock.kueue.wanted import ENGINE, PLACE, DesiredWorkload, is_admitted, is_occupied, next_write, waits_for

Dict = dict[str, Any]
FLAVOR = {"metadata": {"name": "f"}, "spec": {"nodeLabels": {"pool": "f"}, "tolerations": [{"key": "f"}]}}
MOMENT = "2026-01-01T00:00:00Z"


class Cluster:
    """ClusterQueues in memory; its writers write when they are told to."""

    namespace = "ns"
    priorities: Mapping[str, int] = {"urgent": 10}
    local_queues: Mapping[str, str] = {"team": "research"}

    def __init__(self, engine: str = "me", objects: dict[str, Dict] | None = None) -> None:
        self.engine = engine
        self.objects: dict[str, Dict] = {} if objects is None else objects
        self.wanted: dict[str, DesiredWorkload] = {}
        self.dropped: set[str] = set()
        self.told: set[str] = set()
        self.sent: list[Write] = []

    def metadata(self, key: str, run: str) -> Dict:
        name = key.replace("/", "-").replace("+", "-")
        return {"name": name, "namespace": self.namespace, "labels": {}, "annotations": {"run": run}}

    def want(self, name: str, wanted: DesiredWorkload | None) -> None:
        self.wanted.pop(name, None)
        if wanted is not None:
            self.wanted[name] = wanted

    def seen(self, name: str) -> Object | None:
        return copy.deepcopy(self.objects.get(name))

    def follows(self, name: str) -> bool:
        return name in self.objects and annotations_of(self.objects[name]).get(ENGINE) == self.engine

    def start(self, changed: Any) -> None: ...

    def close(self) -> None: ...

    def runs(self) -> Collection[str]:
        return {annotations_of(one)["run"] for one in self.objects.values()}

    def of_run(self, run: str) -> Collection[str]:
        return [name for name, one in self.objects.items() if annotations_of(one).get("run") == run]

    def drop(self, name: str) -> None:
        self.objects.pop(name, None)
        self.told.add(name)

    def news(self) -> Collection[str]:
        found, self.told = self.told, set()
        return found

    def flavors(self, names: Iterable[str]) -> Mapping[str, Object] | None:
        return dict.fromkeys(names, FLAVOR)

    def problem(self, name: str) -> str:
        return ""

    def waiting(self, queue: str) -> int:
        return 0

    def write(self, name: str) -> bool:
        """One write, as the API server and Kueue's webhook take it."""
        write = next_write(self.wanted.get(name), self.seen(name), self.engine, 1000.0)
        if write is None:
            return False
        self.sent.append(write)
        self.told.add(name)
        if write.verb == "delete":
            del self.objects[name]
        elif write.verb == "create":
            assert name not in self.objects
            self.objects[name] = copy.deepcopy(dict(write.body))
        else:
            there = self.objects[name]
            if "podSets" in part(write.body, "spec"):
                assert not is_occupied(there), "pod sets are frozen while quota is reserved"
            if is_occupied(there) and holds(there, "QuotaReserved"):
                before = {one["name"]: one["count"] for one in rows(there, "status", "reclaimablePods")}
                _merge(there, write.body)
                after = {one["name"]: one["count"] for one in rows(there, "status", "reclaimablePods")}
                assert all(after.get(each, 0) >= count for each, count in before.items()) or not is_occupied(there)
            else:
                _merge(there, write.body)
        return True

    def settle(self) -> None:
        for _ in range(50):
            if not any(self.write(name) for name in {*self.wanted, *self.objects}):
                return
        raise AssertionError("the writes do not come to an end")

    # -- what Kueue does

    def admit(self, name: str, part_of_it: bool = False) -> None:
        one = self.objects.get(name)
        if one is None or is_occupied(one) or not part(one, "spec").get("active", True) or holds(one, "Finished"):
            return
        sets = []
        for each in one["spec"]["podSets"]:
            count = each["minCount"] if part_of_it and each.get("minCount") else each["count"]
            sets.append({"name": each["name"], "count": count, "flavors": {"cpu": "f"}})
        one.setdefault("status", {})["admission"] = {"clusterQueue": "research", "podSetAssignments": sets}
        for kind in ("QuotaReserved", "Admitted"):
            state(one, kind, True, kind)
        state(one, "Evicted", False, "QuotaReserved")
        self.told.add(name)

    def evict(self, name: str) -> None:
        one = self.objects.get(name)
        if one is not None and is_occupied(one):
            state(one, "Evicted", True, "Preempted", "for another")
            state(one, "Preempted", True, "InClusterQueue")
            self.told.add(name)


def state(one: Dict, kind: str, status: bool, reason: str, message: str = "") -> None:
    there = one.setdefault("status", {}).setdefault("conditions", [])
    there[:] = [each for each in there if each["type"] != kind]
    there.append(
        {"type": kind, "status": str(status), "reason": reason, "message": message, "lastTransitionTime": MOMENT}
    )


def _merge(target: Dict, patch: Mapping[str, Any]) -> None:
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        elif isinstance(value, Mapping):
            _merge(target.setdefault(key, {}), value)
        else:
            target[key] = copy.deepcopy(value)


def asked(count: int, minimum: int | None = None, cpu: int = 1000) -> tuple[PodSet, ...]:
    return (PodSet(count=count, min_count=minimum, requests={"cpu": cpu}),)


def submitted(quota: ClusterQuota, podsets: tuple[PodSet, ...], name: str = "r-1/s", **more: Any) -> Workload:
    found = Workload(name=name, namespace="ns", queue="team", podsets=podsets, **more)
    quota.submit(found, 1, 0.0)
    return found


STEPS = ("write", "admit", "part", "evict", "look", "stopped", "reclaim", "delete", "deactivate")


@settings(max_examples=300, deadline=None)
@given(st.integers(1, 4), st.booleans(), st.booleans(), st.lists(st.sampled_from(STEPS), min_size=5, max_size=40))
def test_tasks_run_on_nothing_but_what_kueue_holds_for_them(
    count: int, elastic: bool, begun: bool, steps: list[str]
) -> None:
    cluster = Cluster()
    quota = ClusterQuota(cluster)
    scheduler = quota.scheduler
    workload = submitted(quota, asked(count, 1 if elastic and count > 1 else None))
    name = "ns-r-1-s"
    for step in ("write", "admit", "look", *steps) if begun else steps:
        mine = scheduler.workloads.get(workload.key)
        runs = mine is not None and mine.admission is not None
        before = cluster.seen(name)
        if step == "write":
            cluster.write(name)
            if runs and before is not None and is_occupied(before):
                after = cluster.seen(name)
                assert after is not None and is_occupied(after), "given back while tasks run on it"
        elif step in ("admit", "part"):
            cluster.admit(name, step == "part")
        elif step == "evict":
            cluster.evict(name)
        elif step == "deactivate" and before is not None and not is_occupied(before):
            state(cluster.objects[name], "Finished", True, "OutOfSync")
        elif step == "look":
            scheduler.settle(1.0)
        elif step == "stopped" and mine is not None and mine.eviction is not None:
            scheduler.release(workload.key, 1.0)
            scheduler.resize(workload.key, asked(count), 1.0)
        elif step == "reclaim" and runs and mine is not None and mine.eviction is None and count > 1:
            scheduler.reclaim(workload.key, {"main": 1}, 1.0)
        elif step == "delete":
            cluster.drop(name)
        mine = scheduler.workloads.get(workload.key)
        if step == "look" and mine is not None and mine.admission is not None and mine.eviction is None:
            seen = cluster.seen(name)
            assert seen is not None and is_admitted(seen)
            assert sum(one.count for one in mine.admission.podsets) <= count
        if step == "look" and mine is None:
            break  # somebody had taken its quota away: Reservations ask anew, as another
    else:
        for _ in range(4):  # now nothing disturbs any more
            cluster.settle()
            cluster.admit(name)
            scheduler.settle(2.0)
            mine = scheduler.workloads.get(workload.key)
            if mine is not None and mine.eviction is not None:
                scheduler.release(workload.key, 2.0)
        assert mine is None or mine.admission is not None
    if workload.key in scheduler.workloads:
        scheduler.finish(workload.key, 3.0)
    cluster.settle()
    assert cluster.objects == {}


def test_a_place_is_switched_on_when_it_is_its_turn() -> None:
    cluster = Cluster()
    quota = ClusterQuota(cluster)
    found = submitted(quota, asked(1), gates=frozenset({"up"}))
    cluster.settle()
    one = cluster.objects["ns-r-1-s"]
    assert one["spec"]["active"] is False and PLACE in annotations_of(one)
    quota.scheduler.resize(found.key, asked(3, 1), 1.0)
    quota.scheduler.ungate(found.key, "up", 1.0)
    cluster.settle()
    assert one["spec"]["active"] is True and PLACE not in annotations_of(one)
    assert (one["spec"]["podSets"][0]["count"], one["spec"]["podSets"][0]["minCount"]) == (3, 1)


def test_what_somebody_switched_off_stays_off() -> None:
    cluster = Cluster()
    quota = ClusterQuota(cluster)
    submitted(quota, asked(1))
    cluster.settle()
    cluster.objects["ns-r-1-s"]["spec"]["active"] = False
    quota.scheduler.resize("ns/r-1/s", asked(2), 1.0)
    cluster.settle()
    assert cluster.objects["ns-r-1-s"]["spec"]["active"] is False


def test_the_next_engine_takes_over_what_fits_and_drops_the_rest() -> None:
    first = Cluster("first")
    before = ClusterQuota(first)
    submitted(before, asked(4, 1))
    submitted(before, asked(2, 1), name="r-1/s+2")
    submitted(before, asked(1), name="r-2/other")
    first.settle()
    first.admit("ns-r-1-s")
    before.scheduler.settle(1.0)
    first.settle()
    second = Cluster("second", first.objects)
    after = ClusterQuota(second)
    found = submitted(after, asked(3, 1))  # one has ended meanwhile
    after.scheduler.settle(2.0)
    assert set(second.objects) == {"ns-r-1-s", "ns-r-2-other"} and found.admission is None
    second.settle()
    after.scheduler.settle(2.0)
    assert found.admission is not None and found.admission.podsets[0].count == 3
    second.settle()
    assert annotations_of(second.objects["ns-r-1-s"])[ENGINE] == "second"
    assert rows(second.objects["ns-r-1-s"], "status", "reclaimablePods") == [{"name": "main", "count": 1}]
    assert annotations_of(second.objects["ns-r-2-other"])[ENGINE] == "first"  # its engine may be alive
    clear(second, lambda run: run == "r-2")
    assert set(second.objects) == {"ns-r-1-s"}


def test_less_than_a_gang_is_of_no_use() -> None:
    cluster = Cluster()
    quota = ClusterQuota(cluster)
    submitted(quota, asked(2))
    cluster.settle()
    cluster.admit("ns-r-1-s")
    quota.scheduler.resize("ns/r-1/s", asked(3), 1.0)
    quota.scheduler.settle(1.0)
    assert quota.scheduler.workloads["ns/r-1/s"].admission is None
    cluster.settle()
    assert cluster.objects["ns-r-1-s"]["spec"]["podSets"][0]["count"] == 3


def test_the_words_of_kueue() -> None:
    assert waits_for(None) == ("", "")
    one: Dict = {"status": {}}
    state(one, "QuotaReserved", False, "Pending", "too little")
    assert waits_for(one) == ("Pending", "too little")
    state(one, "QuotaReserved", True, "QuotaReserved")
    one["status"]["admissionChecks"] = [{"name": "prov", "state": "Pending", "message": "no machine yet"}]
    assert waits_for(one) == ("AdmissionCheck", "admission check prov is Pending: no machine yet")
    state(one, "Evicted", True, "ClusterQueueStopped", "it was stopped")
    assert waits_for(one) == ("ClusterQueueStopped", "it was stopped")


@pytest.mark.parametrize(
    ("name", "meant"), [(None, None), ("a", "a"), ("ns/a", "a"), ("big", None), ("small", "c"), ("x", None)]
)
def test_names_of_queues(name: str | None, meant: str | None) -> None:
    assert queue_named(name, {"a": "big", "b": "big", "c": "small"}, "ns") == meant
    assert queue_named(None, {"a": "big"}, "ns") == "a"


def test_pods_get_what_flavors_and_checks_say() -> None:
    seen = {
        "spec": {"podSets": [{"name": "main", "count": 1}]},
        "status": {
            "admission": {"podSetAssignments": [{"name": "main", "count": 1, "flavors": {"cpu": "f", "memory": "f"}}]},
            "admissionChecks": [
                {"podSetUpdates": [{"name": "main", "labels": {"a": "b"}, "nodeSelector": {"zone": "z"}}]}
            ],
        },
    }
    (more,) = injections(seen, {"f": FLAVOR})
    assert more == PodInjection({"pool": "f", "zone": "z"}, ({"key": "f"},), {"a": "b"}, {})
    own = model.Placement(node_selector={"disk": "ssd"}, tolerations=(model.Toleration(key="own"),))
    step = model.Step(
        name="s", action=model.Script(source="x"), placement=own, extra={"metadata": {"labels": {"c": "d"}}}
    )
    found = injected(step, more)
    assert found.placement is not None
    assert found.placement.node_selector == {"disk": "ssd", "pool": "f", "zone": "z"}
    assert [one.key for one in found.placement.tolerations] == ["own", "f"]
    assert labels_of(found.extra) == {"c": "d", "a": "b"}


def test_each_step_gets_the_nodes_of_its_own_pods() -> None:
    """By their requests and placement, also where a whole workflow holds unit pods."""
    cluster = Cluster()
    quota = ClusterQuota(cluster)
    slow = model.Placement(node_selector={"disk": "hdd"})
    plain = PodSet(name="a", count=1, requests={"cpu": 1000})
    podsets = (plain, PodSet(name="b", count=1, requests={"cpu": 1000}, selector={"disk": "hdd"}))
    found = submitted(quota, podsets)
    cluster.settle()
    cluster.admit("ns-r-1-s")
    sets = cluster.objects["ns-r-1-s"]["status"]["admission"]["podSetAssignments"]
    sets[1]["flavors"] = {"cpu": "none"}
    cluster.flavors = lambda names: {"f": FLAVOR, "none": {}}  # type: ignore[method-assign]
    quota.scheduler.settle(1.0)
    assert condition(cluster.objects["ns-r-1-s"], "Admitted")
    one = model.Step(name="one", action=model.Script(source="x"), resources={"cpu": 1000})
    two = model.Step(name="two", action=model.Script(source="x"), resources={"cpu": 1000}, placement=slow)
    assert part({"x": quota.placed(one, one, found.key).placement.node_selector}, "x") == {"pool": "f"}  # type: ignore[union-attr]
    assert quota.placed(two, two, found.key).placement == slow


def test_what_is_decided_meanwhile_does_not_put_off_the_look_at_reasons_for_good() -> None:
    cluster = Cluster()
    scheduler = ClusterQuota(cluster).scheduler
    scheduler.settle(0.0)
    assert scheduler.next_time(0.0) is None
    scheduler.submit(Workload(name="w-1/a", namespace="ns", queue="team", podsets=(PodSet(requests={"cpu": 1000}),)))
    scheduler.settle(1.0)
    cluster.told = set(cluster.wanted)
    scheduler.settle(1.0)
    due = scheduler.next_time(1.0)
    assert due is not None and due > 1.0
    scheduler.settle(1.1)  # nothing new
    assert scheduler.next_time(1.1) == due
    scheduler.settle(due)
    assert scheduler.next_time(due) is None


def test_what_runs_here_is_not_taken_back_from_an_engine_that_has_taken_it_over() -> None:
    seen = {"metadata": {"name": "w", "namespace": "ns", "annotations": {ENGINE: "other"}}, "spec": {"podSets": []}}
    assert next_write(DesiredWorkload(seen, (1,), running=True), seen, "me", 0.0) is None
    assert next_write(DesiredWorkload(seen, (1,)), seen, "me", 0.0) is not None
