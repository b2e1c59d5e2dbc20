"""The steps that KEP-74 lists for one look at a workflow (ReconcileGenericWorkflow), each by itself, on the model of Kueue and of an engine."""

from __future__ import annotations

from typing import Any

from penstock.controller.coverage import is_gated
from penstock.controller.objects import annotations_of, condition, holds, name_of, part, rows
from tests.controller.model import Cluster, control, look

STEP = {"name": "train", "pods": 3, "cpu": "1"}


def queued(cpu: int = 10, *steps: dict[str, Any]) -> Cluster:
    """Somebody has submitted it, and the controller has looked once."""
    cluster = Cluster(cpu=cpu)
    cluster.submit("a", list(steps) or [STEP])
    cluster.engine_step(), control(cluster)
    return cluster


def running(cpu: int = 10, *steps: dict[str, Any]) -> Cluster:
    """Its first stage is admitted, and all its pods run."""
    cluster = queued(cpu, *steps)
    for _ in range(3):
        cluster.kueue_step(), control(cluster), cluster.engine_step(), control(cluster)
    for pod in cluster.of("pods"):
        cluster.pod_step(name_of(pod))
    control(cluster)
    return cluster


def the_workload(cluster: Cluster, stage: str = "train") -> dict[str, Any]:
    (found,) = [one for one in cluster.of("workloads") if annotations_of(one)["penstock/stage"] == stage]
    return found


def opened(cluster: Cluster) -> int:
    return int(cluster.of("sequences")[0]["spec"]["open"])


def phases(cluster: Cluster) -> list[str]:
    return [part(pod, "status")["phase"] for pod in cluster.of("pods")]


def test_1_there_is_one_workload_for_a_stage() -> None:
    cluster = queued()
    first = the_workload(cluster)
    for _ in range(5):
        control(cluster)
    assert the_workload(cluster)["metadata"]["uid"] == first["metadata"]["uid"]


def test_1_two_controllers_that_do_not_see_one_another_make_one() -> None:
    cluster = Cluster()
    cluster.submit("a", [STEP])
    old = cluster.snapshot()
    control(cluster)
    control(cluster, old)
    assert len(cluster.of("workloads")) == 1


def test_1_a_running_stage_without_a_workload_is_stopped_at_once() -> None:
    cluster = running()
    cluster.drop("workloads", name_of(the_workload(cluster)))
    control(cluster), cluster.engine_step()
    assert opened(cluster) == 0 and not cluster.of("pods")


def test_1_1_a_workload_under_deletion_stops_its_stage_and_is_not_used() -> None:
    """Its finalizer is Kueue's; what it held is held until it is gone."""
    cluster = running()
    there = the_workload(cluster)
    there["metadata"]["deletionTimestamp"] = "2030-01-01T00:00:00Z"
    cluster.touch(there)
    for _ in range(3):
        control(cluster), cluster.engine_step()
    assert opened(cluster) == 0 and not [one for one in phases(cluster) if one == "Running"]
    cluster.drop("workloads", name_of(there))
    control(cluster)
    assert the_workload(cluster)["metadata"]["uid"] != there["metadata"]["uid"]


def test_2_a_stage_that_is_over_is_finished() -> None:
    cluster = running()
    for pod in cluster.of("pods"):
        cluster.pod_step(name_of(pod))
    cluster.engine_step(), control(cluster)
    assert holds(the_workload(cluster), "Finished") and cluster.used() == 0


def test_3_a_stage_without_a_workload_is_held_and_gets_one() -> None:
    cluster = Cluster(cpu=0)
    cluster.submit("a", [STEP])
    cluster.engine_step(), control(cluster)
    assert opened(cluster) == 0 and not cluster.of("pods")
    assert [one["count"] for one in the_workload(cluster)["spec"]["podSets"]] == [3]


def test_4_what_is_over_is_given_back() -> None:
    cluster = running()
    cluster.pod_step(name_of(cluster.of("pods")[0]))
    cluster.engine_step(), control(cluster)
    assert rows(the_workload(cluster), "status", "reclaimablePods") == [{"name": "main", "count": 1}]
    assert cluster.used() == 2000


def test_5_pods_ready_is_said_when_all_run_and_not_before() -> None:
    cluster = queued()
    for _ in range(3):
        cluster.kueue_step(), control(cluster), cluster.engine_step(), control(cluster)
    first, *others = [name_of(pod) for pod in cluster.of("pods")]
    cluster.pod_step(first), control(cluster)
    assert not holds(the_workload(cluster), "PodsReady")
    for name in others:
        cluster.pod_step(name)
    control(cluster)
    assert holds(the_workload(cluster), "PodsReady")


def test_6_an_evicted_stage_keeps_its_quota_until_nothing_runs() -> None:
    cluster = running()
    cluster.evict(name_of(the_workload(cluster)))
    control(cluster)
    assert opened(cluster) == 0 and holds(the_workload(cluster), "QuotaReserved"), "its pods still run"
    cluster.engine_step(), control(cluster)
    there = the_workload(cluster)
    assert not cluster.of("pods") and not holds(there, "QuotaReserved") and "admission" not in part(there, "status")
    assert condition(there, "Requeued").get("status") == "True"


def test_7_a_suspended_stage_waits_and_goes_when_it_is_admitted() -> None:
    cluster = queued(cpu=2)
    cluster.kueue_step(), control(cluster), cluster.engine_step()
    assert opened(cluster) == 0 and not cluster.of("pods")
    cluster.quota = 3000
    cluster.kueue_step(), control(cluster)
    assert opened(cluster) == 1


def test_8_a_stage_that_somebody_let_go_has_no_pod_that_runs() -> None:
    """And one that was admitted meanwhile is simply let go."""
    cluster = queued(cpu=0)
    main = cluster.of("sequences")[0]
    main["spec"]["open"] = 1
    cluster.touch(main)
    cluster.engine_step(), control(cluster)
    assert len(cluster.of("pods")) == 3 and all(map(is_gated, cluster.of("pods")))
    cluster.quota = 3000
    cluster.kueue_step(), control(cluster)
    assert not any(map(is_gated, cluster.of("pods")))
    assert not look(cluster, cluster.of("sequences")[0]).writes


def test_resumed_it_goes_on_with_what_is_left() -> None:
    cluster = running()
    cluster.pod_step(name_of(cluster.of("pods")[0]))
    cluster.engine_step(), control(cluster)
    cluster.evict(name_of(the_workload(cluster)))
    for _ in range(3):
        control(cluster), cluster.engine_step()
    for _ in range(4):
        cluster.kueue_step(), control(cluster), cluster.engine_step(), control(cluster)
    assert sorted(phases(cluster)) == ["Pending", "Pending", "Succeeded"]
    for _ in range(2):
        for pod in cluster.of("pods"):
            cluster.pod_step(name_of(pod))
        cluster.engine_step(), control(cluster)
    assert set(cluster.runs.values()) == {1} and holds(the_workload(cluster), "Finished")
