"""PodsReady, as Kueue wants it: said when what was admitted runs, taken back when a pod is lost, and said again when it is back."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.controller.coverage import is_gated
from penstock.controller.objects import condition, labels_of, name_of, part, rows
from penstock.controller.readiness import COMPLETE, LATE
from penstock.kueue.status import timestamp
from tests.controller.model import Cluster, control, look
from tests.controller.test_core import over, settle
from tests.controller.test_eight_steps import KEYS, rounds, running, the_workload

STEP = {"name": "train", "pods": 3, "cpu": "1"}


def told(cluster: Cluster) -> tuple[str, str]:
    """Status and reason of PodsReady."""
    (one,) = cluster.of("workloads")
    found = condition(one, "PodsReady")
    return str(found.get("status")), str(found.get("reason"))


def admitted(**more: Any) -> Cluster:
    """Its pods are let go, and none runs yet."""
    cluster = Cluster()
    cluster.submit("a", [STEP | more])
    for _ in range(4):
        cluster.engine_step(), control(cluster), cluster.kueue_step(), control(cluster)
    assert len(cluster.of("pods")) == 3 and not any(map(is_gated, cluster.of("pods")))
    return cluster


def start(cluster: Cluster, *indexes: int) -> None:
    for pod in cluster.of("pods"):
        if int(labels_of(pod)["index"]) in indexes and part(pod, "status")["phase"] == "Pending":
            cluster.pod_step(name_of(pod))
    control(cluster)


def lose(cluster: Cluster, index: int) -> None:
    """Its node is gone; the engine makes the pod anew, which waits for another."""
    (pod,) = [pod for pod in cluster.of("pods") if int(labels_of(pod)["index"]) == index]
    cluster.drop("pods", name_of(pod))
    cluster.engine_step(), control(cluster)


def writes_of(cluster: Cluster) -> list[str]:
    return [write.why for write in look(cluster, cluster.mains[0]).writes]


def test_pods_that_come_one_by_one_do_not_make_it_ready_too_early() -> None:
    cluster = admitted()
    cluster.drop("pods", "a-train-1"), cluster.drop("pods", "a-train-2")
    start(cluster, 0)
    assert told(cluster) == ("None", "None"), "one of three"
    cluster.engine_step(), control(cluster)
    start(cluster, 1, 2)
    assert told(cluster) == ("True", "Started")


def test_where_no_more_pods_come_those_that_run_are_all() -> None:
    """A lock, or a limit on how many run at the same time, keeps the others. Kueue would evict it after half an hour."""
    cluster = admitted()
    cluster.drop("pods", "a-train-2")
    start(cluster, 0, 1)
    assert look(cluster, cluster.mains[0]).again == COMPLETE
    cluster.now += COMPLETE
    control(cluster)
    assert told(cluster) == ("True", "Started")


def test_a_lost_pod_is_told_and_so_is_its_return() -> None:
    cluster = admitted()
    start(cluster, 0, 1, 2)
    assert told(cluster) == ("True", "Started")
    lose(cluster, 1)
    assert told(cluster) == ("True", "Started"), "it may start in a moment"
    assert look(cluster, cluster.mains[0]).again == LATE
    cluster.now += LATE
    control(cluster)
    assert told(cluster) == ("False", "WaitForRecovery")
    assert not writes_of(cluster), "said once"
    start(cluster, 1)
    assert told(cluster) == ("True", "Recovered")
    settle(cluster)
    assert over(cluster)


def test_a_pod_that_comes_later_does_not_keep_it_from_recovering() -> None:
    cluster = admitted()
    start(cluster, 0, 1, 2)
    lose(cluster, 1)
    cluster.now += LATE
    control(cluster)
    assert told(cluster) == ("False", "WaitForRecovery")
    cluster.now += 2
    lose(cluster, 2)
    start(cluster, 1)
    assert told(cluster) == ("True", "Recovered")


def test_one_that_is_over_is_not_lost() -> None:
    cluster = admitted()
    start(cluster, 0, 1, 2)
    cluster.pod_step("a-train-0")
    cluster.engine_step()
    cluster.now += LATE
    control(cluster), control(cluster)
    assert told(cluster) == ("True", "Started") and not writes_of(cluster)


def test_what_was_evicted_and_comes_back_starts_again() -> None:
    cluster = running("argo")
    cluster.pod_step(name_of(cluster.of("pods")[0]))
    rounds(cluster, 1)
    cluster.evict(name_of(the_workload(cluster, "argo")))
    rounds(cluster, 8)
    assert told(cluster) == ("False", "WaitForStart")
    cluster.kueue_step()
    rounds(cluster, 2)
    assert told(cluster)[0] == "False", "what is over was so before"
    for pod in cluster.of("pods"):
        if part(pod, "status")["phase"] == "Pending":
            cluster.pod_step(name_of(pod))
    rounds(cluster, 1)
    assert told(cluster) == ("True", "Started")


def test_a_part_of_a_loop_is_ready_when_that_part_runs() -> None:
    """What was not admitted waits with its gate, and is nobody's delay."""
    cluster = Cluster(cpu=2)
    cluster.submit("a", [STEP], "argo")
    for _ in range(6):
        cluster.engine_step(), control(cluster), cluster.kueue_step(), control(cluster)
    free = [pod for pod in cluster.of("pods") if not is_gated(pod)]
    assert len(free) == 2 and len(cluster.of("pods")) == 3
    for pod in free:
        cluster.pod_step(name_of(pod))
    control(cluster)
    one = next(one for one in cluster.of("workloads") if part(one, "status").get("admission"))
    assert condition(one, "PodsReady").get("status") == "True"


@pytest.mark.parametrize("engine", list(KEYS))
def test_every_engine_is_told_lost_and_recovered(engine: str) -> None:
    cluster = running(engine)
    assert told(cluster) == ("True", "Started")
    pod = cluster.of("pods")[1]
    pod["status"]["phase"] = "Pending"  # as one that was made again a moment ago
    pod["metadata"]["creationTimestamp"] = timestamp(cluster.now)
    cluster.touch(pod)
    control(cluster)
    assert told(cluster)[0] == "True"
    cluster.now += LATE
    control(cluster)
    assert told(cluster) == ("False", "WaitForRecovery")
    cluster.pod_step(name_of(pod))
    control(cluster)
    assert told(cluster) == ("True", "Recovered")
    assert not rows(cluster.of("workloads")[0], "status", "reclaimablePods")
