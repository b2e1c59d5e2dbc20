"""Every eviction is answered: else Kueue admits nobody from that ClusterQueue. Also of workflows that are being deleted, cannot be read, or whose pods
outlive their stage; and where workflows are counted."""

from __future__ import annotations

import random
from typing import Any

import pytest

from penstock.controller.core import Seen, may_run, reconcile, unreadable
from penstock.controller.coverage import is_active, requests_of
from penstock.controller.engine import Observed
from penstock.controller.objects import WORKLOADS, annotations_of, holds, name_of, part, rows
from penstock.controller.workload import OwnWorkload
from tests.controller import model
from tests.controller.model import Cluster, control, look
from tests.controller.toy_engine.penstock_toy import ENGINE

STEP = {"name": "train", "pods": 2, "cpu": "2"}
AFTER = {"name": "report", "pods": 1, "cpu": "1"}


def running(*steps: dict[str, Any]) -> Cluster:
    """The pods of its first stage run."""
    cluster = Cluster()
    cluster.submit("a", steps or [STEP, AFTER])
    for _ in range(4):
        cluster.now += 3
        cluster.engine_step(), control(cluster), cluster.kueue_step(), control(cluster)
    for pod in cluster.of("pods"):
        cluster.pod_step(name_of(pod))
    control(cluster)
    assert cluster.used() == 4000
    return cluster


def evicted(cluster: Cluster) -> dict[str, Any]:
    (one,) = [one for one in cluster.of("workloads") if OwnWorkload(one).runs]
    cluster.evict(name_of(one))
    return one


def sight(cluster: Cluster) -> Seen:
    (main,) = cluster.of("sequences")
    return Seen(
        ENGINE, Observed(main, {"Pod": cluster.of("pods")}, cluster, cluster.now), "stage", cluster.of("workloads")
    )


def carry_out(cluster: Cluster, plan: Any) -> None:
    for write in plan.writes:
        cluster.write(write)


def test_of_a_workflow_that_is_being_deleted() -> None:
    """Its finalizer may keep it for ever."""
    cluster = running()
    (main,) = cluster.of("sequences")
    main["metadata"]["deletionTimestamp"] = "2030-01-01T00:00:00Z"
    control(cluster)
    assert cluster.used() == 4000, "its pods still run"
    evicted(cluster)
    control(cluster), control(cluster)
    assert not cluster.of("pods") and cluster.used() == 0
    assert not [one for one in cluster.of("workloads") if OwnWorkload(one).live]
    assert not look(cluster, main).writes


def test_a_deleted_workflow_gives_back_what_nothing_runs_on() -> None:
    cluster = running()
    (main,) = cluster.of("sequences")
    main["metadata"]["deletionTimestamp"] = "2030-01-01T00:00:00Z"
    for pod in cluster.of("pods"):
        cluster.pod_step(name_of(pod))
    control(cluster)
    assert cluster.used() == 0


def test_of_a_workflow_that_cannot_be_read() -> None:
    cluster = running()
    evicted(cluster)
    plan = unreadable(sight(cluster), "its status is compressed", "Use gzip.")
    assert {write.resource.kind for write in plan.writes} == {"Pod"}
    assert plan.notes[0].message == "its status is compressed. None of its pods is let go. Use gzip."
    carry_out(cluster, plan)
    carry_out(cluster, unreadable(sight(cluster), "its status is compressed"))
    assert cluster.used() == 0
    assert not unreadable(sight(cluster), "its status is compressed").writes


def test_of_a_pod_that_outlives_its_stage() -> None:
    """A daemon."""
    cluster = running()
    (main,) = cluster.of("sequences")
    main["status"]["done"]["train"] = [0, 1]
    control(cluster)
    assert cluster.used() == 4000
    evicted(cluster)
    (note,) = [one for one in look(cluster, main).notes if one.reason == "Stopped"]
    assert "stage train: pods are deleted" in note.message
    control(cluster)
    assert not cluster.of("pods")
    control(cluster)
    assert OwnWorkload(cluster.of("workloads")[0]).finished


def test_of_a_stage_that_was_set_back() -> None:
    """Somebody edits the status, so that the stage that runs is not reached any more."""
    cluster = running({"name": "first", "pods": 2, "cpu": "2"}, {"name": "second", "pods": 2, "cpu": "2"})
    for pod in cluster.of("pods"):
        cluster.pod_step(name_of(pod))
    for _ in range(4):
        cluster.now += 3
        cluster.engine_step(), control(cluster), cluster.kueue_step()
    control(cluster)
    (main,) = cluster.of("sequences")
    main["status"]["done"]["first"] = [0]
    workload = evicted(cluster)
    assert annotations_of(workload)["penstock/stage"] == "second"
    for _ in range(4):
        control(cluster)
    there = cluster.objects.get((WORKLOADS.plural, name_of(workload)))
    assert there is None or not holds(there, "QuotaReserved")


# -- where workflows are counted ----------------------------------------------------------------------------------------


class Counted(Cluster):
    """A queue of 4 cpu and one workflow, that looks at Workloads of one second in any order."""

    def __init__(self, seed: int) -> None:
        super().__init__(cpu=4)
        self.dice = random.Random(seed)
        self.of("clusterqueues")[0]["spec"]["resourceGroups"].append({"coveredResources": ["penstock/workflows"]})
        self.room = {"cpu": 4000, "penstock/workflows": 1000}

    def amounts(self, one: Any) -> dict[str, int]:
        found: dict[str, int] = {}
        for each in one["spec"]["podSets"]:
            for name, amount in requests_of(each["template"]).items():
                found[name] = found.get(name, 0) + amount * each["count"]
        return found

    def taken(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for one in self.of("workloads"):
            if holds(one, "QuotaReserved") and not holds(one, "Finished"):
                for name, amount in self.amounts(one).items():
                    found[name] = found.get(name, 0) + amount
        return found

    def kueue_step(self) -> None:
        waiting = [one for one in self.of("workloads") if model._pending(one)]
        self.dice.shuffle(waiting)
        for one in sorted(waiting, key=lambda one: one["metadata"]["creationTimestamp"]):
            taken = self.taken()
            if any(taken.get(name, 0) + amount > self.room[name] for name, amount in self.amounts(one).items()):
                continue
            sets = [{"name": each["name"], "count": each["count"], "flavors": {}} for each in one["spec"]["podSets"]]
            one.setdefault("status", {})["admission"] = {"clusterQueue": "all", "podSetAssignments": sets}
            for kind in ("QuotaReserved", "Admitted"):
                model._state(one, kind, True, kind)
            model._state(one, "Evicted", False, "QuotaReserved")
            self.touch(one)

    def round(self) -> None:
        self.now += 3
        self.engine_step(), self.kueue_step(), control(self)
        for pod in self.of("pods"):
            self.pod_step(name_of(pod))

    def over(self) -> list[str]:
        return [name_of(one) for one in self.of("sequences") if part(one, "status").get("phase")]


@pytest.mark.parametrize("seed", range(10))
def test_two_runs_that_come_in_one_second_do_not_block_each_other(seed: int) -> None:
    """One would have the right to run, and the other the quota."""
    cluster = Counted(seed)
    for name in ("a", "b"):
        cluster.submit(name, [{"name": "s", "pods": 4, "cpu": "1"}])
    control(cluster)
    for _ in range(60):
        cluster.round()
        assert cluster.taken().get("penstock/workflows", 0) <= 1000
    assert cluster.over() == ["a", "b"]


def test_a_run_that_loses_its_right_stops_and_holds_nothing() -> None:
    cluster = Counted(1)
    cluster.submit("a", [{"name": "s", "pods": 2, "cpu": "1"}, AFTER])
    for _ in range(6):
        cluster.now += 3
        cluster.engine_step(), cluster.kueue_step(), control(cluster)
    assert [is_active(pod) for pod in cluster.of("pods")] == [True, True] and may_run(sight(cluster))
    (right,) = [one for one in cluster.of("workloads") if annotations_of(one)["penstock/stage"] == "(run)"]
    cluster.evict(name_of(right))
    assert not may_run(sight(cluster))
    for _ in range(5):
        control(cluster), cluster.engine_step()
    assert cluster.taken() == {} and not cluster.of("pods")
    assert {name_of(one) for one in cluster.of("workloads") if "penstock/place" not in annotations_of(one)} == {
        name_of(right)
    }
    for _ in range(30):
        cluster.round()
    assert cluster.over() == ["a"] and cluster.taken() == {}


# -- what pods get and give back ----------------------------------------------------------------------------------------


def test_pods_that_a_workload_was_sized_by_give_back_one_by_one() -> None:
    """They ask for more than was declared, and one of them takes longer than the others."""
    cluster = Cluster()
    cluster.submit("a", [{"name": "s", "pods": 4, "cpu": "1", "asks": "2"}])
    for _ in range(12):
        cluster.now += 3
        cluster.engine_step(), control(cluster), cluster.kueue_step(), control(cluster)
    for pod in cluster.of("pods"):
        cluster.pod_step(name_of(pod))
    control(cluster)
    assert cluster.used() == 8000
    for pod in cluster.of("pods")[:3]:
        cluster.pod_step(name_of(pod))
    for _ in range(3):
        cluster.now += 5
        cluster.engine_step(), control(cluster)
    assert cluster.used() == 2000
    cluster.pod_step(name_of(cluster.of("pods")[3]))
    for _ in range(3):
        cluster.now += 5
        cluster.engine_step(), control(cluster)
    assert cluster.used() == 0


def test_the_rest_of_a_fan_out_may_be_admitted_in_part_again() -> None:
    cluster = Cluster()
    cluster.submit("a", [{"name": "s", "pods": 4, "cpu": "1", "asks": "2", "gang": False}], "argo")
    for _ in range(3):
        cluster.now += 3
        cluster.engine_step(), control(cluster), cluster.kueue_step(), control(cluster)
    sized = [one for one in cluster.of("workloads") if "penstock/tasks" in annotations_of(one)]
    assert sized[0]["spec"]["podSets"][0]["minCount"] == 1


def test_a_priority_class_that_is_made_later_counts() -> None:
    cluster = Cluster(cpu=0)
    cluster.submit("a", [AFTER])
    (main,) = cluster.of("sequences")
    main["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = "late"
    cluster.engine_step(), control(cluster)
    (workload,) = cluster.of("workloads")
    assert "priority" not in workload["spec"]
    assert [one.reason for one in look(cluster, main).notes] == ["Refused"]
    cluster.add("workloadpriorityclasses", {"metadata": {"name": "late"}, "value": 1000})
    control(cluster)
    spec = cluster.objects[WORKLOADS.plural, name_of(workload)]["spec"]
    assert spec["priority"] == 1000 and spec["priorityClassRef"]["name"] == "late"
    assert not look(cluster, main).writes and rows(spec, "podSets")


def test_what_is_seen_of_a_deleted_workflow_needs_no_engine() -> None:
    cluster = running()
    (main,) = cluster.of("sequences")
    main["metadata"]["deletionTimestamp"] = "2030-01-01T00:00:00Z"
    main["spec"]["steps"] = "nothing that can be read"
    evicted(cluster)
    assert {write.resource.kind for write in reconcile(sight(cluster)).writes} == {"Pod", "Workload"}
