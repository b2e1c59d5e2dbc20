"""Every eviction is answered in the end, and every workflow ends: the situations in which that is hard, one by one, on the model. Random ones are in
test_core.py."""

from __future__ import annotations

import pytest

from penstock.controller.objects import annotations_of, holds, name_of, part
from tests.controller.model import Cluster, control
from tests.controller.test_core import over, settle
from tests.controller.test_eight_steps import KEYS, running, the_workload


@pytest.mark.parametrize("engine", list(KEYS))
@pytest.mark.parametrize("graceful", [False, True])
def test_a_workflow_that_a_finalizer_keeps_gives_back_what_is_evicted(engine: str, graceful: bool) -> None:
    cluster = running(engine, graceful=graceful)
    (main,) = cluster.mains
    cluster.mark_deleted(cluster.machines[engine].plural, name_of(main), "test/kept")
    cluster.evict(name_of(the_workload(cluster, engine)))
    # The pods do not end by themselves: nothing but the answer stops them.
    for _ in range(12):
        one_round(cluster)
    assert not cluster.unanswered() and cluster.used() == 0


@pytest.mark.parametrize("graceful", [False, True])
def test_an_eviction_is_answered_also_where_the_workflow_cannot_be_read(graceful: bool) -> None:
    cluster = running("argo", graceful=graceful)
    cluster.argo.hide(cluster, cluster.of("workflows")[0])
    cluster.evict(name_of(the_workload(cluster, "argo")))
    for _ in range(12):
        one_round(cluster)
    assert not cluster.unanswered() and cluster.used() == 0


@pytest.mark.parametrize("graceful", [False, True])
def test_a_stage_that_is_over_while_its_daemon_runs_can_be_evicted(graceful: bool) -> None:
    steps = [{"name": "train", "pods": 3, "cpu": "1", "daemon": True}, {"name": "use", "pods": 1, "cpu": "20"}]
    cluster = running("argo", 10, *steps, graceful=graceful)
    cluster.evict(name_of(the_workload(cluster, "argo")))
    for _ in range(12):
        one_round(cluster)
    assert not cluster.unanswered() and cluster.used() == 0


@pytest.mark.parametrize("engine", list(KEYS))
def test_where_one_workflow_may_run_the_next_one_does_not_hold_what_it_needs(engine: str) -> None:
    """The first needs all cpus for its second stage; the second one may not run yet, so it must not hold any."""
    cluster = Cluster(cpu=3, cap=1)
    steps = [{"name": "a", "pods": 1, "cpu": "1"}, {"name": "b", "pods": 1, "cpu": "3"}]
    for name in ("first", "second"):
        cluster.submit(name, steps, engine, "stage")
    settle(cluster)
    assert over(cluster), [
        annotations_of(one)["penstock/stage"] for one in cluster.of("workloads") if holds(one, "Admitted")
    ]


@pytest.mark.parametrize("engine", list(KEYS))
@pytest.mark.parametrize("graceful", [False, True])
def test_the_urgent_one_goes_first_and_the_other_one_goes_on_afterwards(engine: str, graceful: bool) -> None:
    cluster = Cluster(cpu=3, graceful=graceful)
    (step,) = steps = [{"name": "train", "pods": 3, "cpu": "1", "gang": True}]
    cluster.submit("low", steps, engine, "stage", "low")
    settle_without_end(cluster)
    assert step["pods"] * 1000 == cluster.used()
    cluster.submit("other", steps, engine, "stage", "low")
    cluster.submit("high", steps, engine, "stage", "high")
    settle_without_end(cluster)
    holding = [name_of(one) for one in cluster.of("workloads") if holds(one, "QuotaReserved")]
    assert len(holding) == 1 and holding[0].startswith("high"), holding
    settle(cluster)
    assert over(cluster) and set(cluster.runs.values()) == {1} and len(cluster.runs) == 9


def test_argo_may_be_slow_to_write_that_it_misses_a_pod() -> None:
    """It applies its changes to what is there by then: half a node, if the node was removed meanwhile, and the workflow fails."""
    cluster = running("argo")
    cluster.now += 20
    cluster.evict(name_of(the_workload(cluster, "argo")))
    control(cluster)  # suspended
    cluster.now += 3
    control(cluster)  # the pods are deleted
    cluster.argo.think(cluster, cluster.mains[0])
    cluster.now += 6
    control(cluster)
    settle(cluster)
    (main,) = cluster.mains
    assert part(main, "status")["phase"] == "Succeeded", part(main, "status")["nodes"]


def settle_without_end(cluster: Cluster) -> None:
    """Pods start, but none ends by itself. Who is more urgent pre-empts."""
    for _ in range(16):
        one_round(cluster)
        cluster.preempt_step()
        cluster.kueue_step()
        for pod in cluster.of("pods"):
            if pod["status"]["phase"] == "Pending":
                cluster.pod_step(name_of(pod))


def one_round(cluster: Cluster) -> None:
    """Without Kueue: what is given back stays free. Pods that are being deleted end."""
    cluster.now += 2
    cluster.engine_step(), control(cluster)
    for pod in cluster.of("pods"):
        if "deletionTimestamp" in pod["metadata"]:
            cluster.pod_step(name_of(pod))
    control(cluster)
