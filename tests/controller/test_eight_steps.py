"""The steps that KEP-74 lists for one look at a workflow (ReconcileGenericWorkflow), each by itself, for each engine, on the model of Kueue and of the engine.

1 one Workload for a stage, a running stage without one is stopped, one under deletion is not used · 2 finished · 3 absent · 4 reclaimable · 5 PodsReady ·
6 eviction · 7 suspended · 8 resumed
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from penstock.controller.coverage import is_active, is_gated
from penstock.controller.objects import annotations_of, condition, holds, name_of, part, rows
from tests.controller.model import Cluster, control, look, observed

STEP = {"name": "train", "pods": 3, "cpu": "1"}
KEYS = {"toy": "train", "argo": "main[0]", "tekton": "train", "jobset": "train"}
ROUNDS = 8
"""Until an engine has made all that it makes without quota; some stop a stage in several steps, with pauses."""

engines = pytest.fixture(params=list(KEYS), name="engine")


@engines
def _engine(request: pytest.FixtureRequest) -> Iterator[str]:
    yield request.param


def rounds(cluster: Cluster, number: int = ROUNDS, kueue: bool = False, pods: bool = False) -> None:
    for _ in range(number):
        cluster.now += 2
        cluster.engine_step(), control(cluster)
        if kueue:
            cluster.kueue_step(), control(cluster)
        if pods:
            for pod in cluster.of("pods"):
                cluster.pod_step(name_of(pod))
            control(cluster)


def queued(engine: str, cpu: int = 10, *steps: dict[str, Any], graceful: bool = False) -> Cluster:
    """Somebody has submitted it, and the controller has looked until the first stage is reached."""
    cluster = Cluster(cpu=cpu, graceful=graceful)
    cluster.submit("a", list(steps) or [STEP], engine, "stage")
    rounds(cluster)
    return cluster


def running(engine: str, cpu: int = 10, *steps: dict[str, Any], graceful: bool = False) -> Cluster:
    """Its first stage is admitted, and all its pods run."""
    cluster = queued(engine, cpu, *steps, graceful=graceful)
    rounds(cluster, 4, kueue=True)
    for pod in cluster.of("pods"):
        cluster.pod_step(name_of(pod))
    assert phases(cluster) == ["Running"] * 3
    rounds(cluster, 1)
    return cluster


def the_workload(cluster: Cluster, engine: str) -> dict[str, Any]:
    (found,) = [one for one in cluster.of("workloads") if annotations_of(one)["penstock/stage"] == KEYS[engine]]
    return found


def state(cluster: Cluster, engine: str) -> str:
    """Of the first stage, as its engine sees it."""
    (main,) = cluster.mains
    stages = cluster.machines[engine].engine.view(observed(cluster, main), "stage").stages
    return next(one.state for one in stages if one.key == KEYS[engine])


def phases(cluster: Cluster) -> list[str]:
    return [part(pod, "status")["phase"] for pod in cluster.of("pods")]


def free(cluster: Cluster) -> list[str]:
    """Pods that run, or would if a node took them."""
    return [name_of(pod) for pod in cluster.of("pods") if is_active(pod) and not is_gated(pod)]


def ends_well(cluster: Cluster) -> None:
    """Given its quota, it ends; nothing was run twice, and nothing is held."""
    rounds(cluster, 12, kueue=True, pods=True)
    (main,) = cluster.mains
    assert (part(main, "status").get("phase") or "Succeeded") == "Succeeded"
    assert all(cluster.machine_of(one).over(one) for one in cluster.mains)
    assert set(cluster.runs.values()) == {1} and len(cluster.runs) == 3
    assert all(holds(one, "Finished") for one in cluster.of("workloads")) and cluster.used() == 0


def test_1_there_is_one_workload_for_a_stage(engine: str) -> None:
    cluster = queued(engine)
    first = the_workload(cluster, engine)
    rounds(cluster, 5)
    assert the_workload(cluster, engine)["metadata"]["uid"] == first["metadata"]["uid"]
    assert len(cluster.of("workloads")) == 1


def test_1_two_controllers_that_do_not_see_one_another_make_one(engine: str) -> None:
    cluster = Cluster()
    cluster.submit("a", [STEP], engine, "stage")
    for _ in range(ROUNDS):
        cluster.engine_step()
    old = cluster.snapshot()
    control(cluster)
    control(cluster, old)
    assert len(cluster.of("workloads")) == 1


@pytest.mark.parametrize("graceful", [False, True])
def test_1_a_running_stage_without_a_workload_is_stopped_at_once(engine: str, graceful: bool) -> None:
    cluster = running(engine, graceful=graceful)
    gone = the_workload(cluster, engine)
    cluster.drop("workloads", name_of(gone))
    plan = look(cluster, cluster.mains[0])
    assert plan.writes and [one.reason for one in plan.notes if one.warning] == ["Stopped"]
    for _ in range(ROUNDS):
        rounds(cluster, 1)
        for pod in cluster.of("pods"):
            if "deletionTimestamp" in pod["metadata"]:
                cluster.pod_step(name_of(pod))
    assert not free(cluster)
    assert the_workload(cluster, engine)["metadata"]["uid"] != gone["metadata"]["uid"]
    ends_well(cluster)


def test_1_1_a_workload_under_deletion_stops_its_stage_and_is_not_used(engine: str) -> None:
    """Its finalizer is Kueue's; what it held is held until it is gone."""
    cluster = running(engine)
    there = the_workload(cluster, engine)
    there["metadata"]["deletionTimestamp"] = "2030-01-01T00:00:00Z"
    cluster.touch(there)
    rounds(cluster)
    assert not free(cluster)
    cluster.drop("workloads", name_of(there))
    rounds(cluster, 1)
    # Its own again; or, where its pods wait one by one by now, theirs.
    (again,) = cluster.of("workloads")
    assert again["metadata"]["uid"] != there["metadata"]["uid"] and not holds(again, "Finished")
    ends_well(cluster)


def test_2_a_stage_that_is_over_is_finished(engine: str) -> None:
    cluster = running(engine)
    for pod in cluster.of("pods"):
        cluster.pod_step(name_of(pod))
    rounds(cluster, 3)
    assert holds(the_workload(cluster, engine), "Finished") and cluster.used() == 0


def test_3_a_stage_without_a_workload_is_held_and_gets_one(engine: str) -> None:
    cluster = queued(engine, cpu=0)
    assert state(cluster, engine) == "held" and not free(cluster)
    assert [one["count"] for one in the_workload(cluster, engine)["spec"]["podSets"]] == [3]


def test_4_what_is_over_is_given_back(engine: str) -> None:
    cluster = running(engine)
    cluster.pod_step(name_of(cluster.of("pods")[0]))
    rounds(cluster, 2)
    assert rows(the_workload(cluster, engine), "status", "reclaimablePods") == [{"name": "main", "count": 1}]
    assert cluster.used() == 2000


def test_5_pods_ready_is_said_when_all_run_and_not_before(engine: str) -> None:
    cluster = queued(engine)
    rounds(cluster, 4, kueue=True)
    first, *others = [name_of(pod) for pod in cluster.of("pods")]
    cluster.pod_step(first), rounds(cluster, 1)
    assert len(others) == 2 and not holds(the_workload(cluster, engine), "PodsReady")
    for name in others:
        cluster.pod_step(name)
    rounds(cluster, 1)
    assert holds(the_workload(cluster, engine), "PodsReady")


@pytest.mark.parametrize("why", ["Preempted", "PodsReadyTimeout"])
def test_6_an_evicted_stage_keeps_its_quota_until_nothing_runs(engine: str, why: str) -> None:
    """After a pre-emption it goes back into its queue at once; otherwise Kueue says when."""
    cluster = running(engine, graceful=True)
    cluster.evict(name_of(the_workload(cluster, engine)), why)
    for _ in range(ROUNDS):
        assert holds(the_workload(cluster, engine), "QuotaReserved") or not free(cluster), "its pods still run"
        rounds(cluster, 1)
        for pod in cluster.of("pods"):
            if "deletionTimestamp" in pod["metadata"]:
                cluster.pod_step(name_of(pod))
    there = the_workload(cluster, engine)
    # Of a matrix the pods wait: its TaskRuns would not be made anew.
    assert state(cluster, engine) == ("open" if engine == "tekton" else "held"), "as before it was admitted"
    assert not free(cluster) and not holds(there, "QuotaReserved") and "admission" not in part(there, "status")
    assert condition(there, "Requeued")["status"] == str(why == "Preempted")
    ends_well(cluster)


def test_7_a_suspended_stage_waits_and_goes_when_it_is_admitted(engine: str) -> None:
    """Two of three would fit; a loop, or a matrix, may be admitted in part, so nothing fits here."""
    cluster = queued(engine, cpu=0)
    rounds(cluster, 3, kueue=True)
    assert state(cluster, engine) == "held" and not free(cluster)
    cluster.quota = 3000
    rounds(cluster, 4, kueue=True)
    assert state(cluster, engine) == "open" and len(free(cluster)) == 3


def test_7_what_need_not_start_together_is_admitted_in_part(engine: str) -> None:
    cluster = queued(engine, cpu=2)
    rounds(cluster, 4, kueue=True)
    in_part = engine in ("argo", "tekton")
    assert len(free(cluster)) == (2 if in_part else 0)
    assert state(cluster, engine) == ("open" if in_part else "held")


def let_go(cluster: Cluster, engine: str) -> None:
    """Somebody lets the stage go, past the queue."""
    (main,) = cluster.mains
    if engine == "toy":
        main["spec"]["open"] = 1
    elif engine == "argo":
        gate = next(one for one in main["status"]["nodes"].values() if one["type"] == "Suspend")
        gate["phase"] = "Succeeded"
    elif engine == "tekton":
        for run in cluster.of("taskruns"):
            del run["spec"]["status"]
            cluster.touch(run)
    else:
        cluster.of("jobs")[0]["spec"]["parallelism"] = 3
    cluster.touch(main)


def test_8_a_stage_that_somebody_let_go_has_no_pod_that_runs(engine: str) -> None:
    """And one that was admitted meanwhile is simply let go."""
    cluster = queued(engine, cpu=0)
    let_go(cluster, engine)
    rounds(cluster, 2)
    assert len(cluster.of("pods")) == 3 and all(map(is_gated, cluster.of("pods")))
    cluster.quota = 3000
    rounds(cluster, 2, kueue=True)
    assert not any(map(is_gated, cluster.of("pods")))
    assert not look(cluster, cluster.mains[0]).writes
    ends_well(cluster)


@pytest.mark.parametrize("graceful", [False, True])
def test_8_resumed_it_goes_on_with_what_is_left(engine: str, graceful: bool) -> None:
    cluster = running(engine, graceful=graceful)
    cluster.pod_step(name_of(cluster.of("pods")[0]))
    rounds(cluster, 1)
    cluster.evict(name_of(the_workload(cluster, engine)))
    for _ in range(ROUNDS):
        rounds(cluster, 1)
        for pod in cluster.of("pods"):
            if "deletionTimestamp" in pod["metadata"]:
                cluster.pod_step(name_of(pod))
    assert len(cluster.runs) == 1 and not free(cluster)
    rounds(cluster, 4, kueue=True)
    assert phases(cluster).count("Succeeded") == 1 and len(free(cluster)) == 2
    ends_well(cluster)
