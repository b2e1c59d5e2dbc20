"""JobSets behind the controller, on the real JobSet and the real Kueue. How much is held at most: test_controller_kep.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.controller.objects import holds
from testbed.components.kwok import RUN_TIME
from testbed.instance import Testbed
from tests.cluster.controlled import ALL, Controlled, Witness
from tests.cluster.kueue_protocol import Desk
from tests.cluster.test_controller_argo import QUEUE, finished, is_now, is_told, queued, workloads
from tests.cluster.test_jobset import after, create, job, jobs, jobset, pods, reaches

Object = dict[str, Any]


@pytest.fixture(scope="module")
def bed(testbed: Callable[..., Testbed]) -> Testbed:
    return testbed("kueue", "kwok", "argo", "tekton", "jobset")


@pytest.fixture(scope="module")
def controller(bed: Testbed) -> Iterator[Controlled]:
    with Controlled(bed, ALL) as found:
        yield found


@pytest.fixture
def desk(bed: Testbed, controller: Controlled) -> Desk:
    return Desk(bed)


def test_an_evicted_stage_goes_back_in_line_and_continues(bed: Testbed, desk: Desk) -> None:
    """Two of three pods of the second step run when it is evicted; one is over, and stays so. No failure is counted."""
    desk.queue("main", "3", preemption={"withinClusterQueue": "LowerPriority"})
    slow = job("b", 3, {RUN_TIME: "5s"}, dependsOn=after("a"))
    with Witness(bed, desk.namespace) as witness:
        where = create(
            bed, desk.namespace, queued(jobset(job("a", 2), slow, job("c", 1, dependsOn=after("b")), name="j"))
        )
        bed.wait(lambda: is_now(desk, "b", "PodsReady"), "the second stage to run", 60)
        complete = jobs(bed, desk.namespace)["a"]["metadata"]["uid"]
        desk.workload("urgent", count=3, cpu="1", priority=100)
        bed.wait(lambda: holds(desk.get("urgent"), "Admitted"), "the urgent one to be admitted", 60)
        assert not [one for one in pods(bed, desk.namespace, "b") if one["status"]["phase"] == "Running"]
        desk.finish("urgent")
        reaches(bed, where, "Completed")
        bed.wait(lambda: finished(desk), "all Workloads to be finished")
    found = jobs(bed, desk.namespace)
    assert found["a"]["metadata"]["uid"] == complete and not found["b"]["status"].get("failed")
    assert bed.get(where)["status"].get("restarts", 0) == 0
    assert set(workloads(desk)) - {"urgent"} == {"a", "b", "c"}
    is_told(desk, "JobSet", "j", "Queued", "Admitted", "Evicted")
    witness.check()


def test_one_without_an_order_is_left_to_kueue(bed: Testbed, desk: Desk) -> None:
    desk.queue("main", "3")
    where = create(bed, desk.namespace, queued(jobset(job("a", 1), job("b", 1), name="j")))
    made = bed.get(where)
    assert made["metadata"]["labels"][QUEUE] == "main" and "penstock" not in str(made["spec"])
    reaches(bed, where, "Completed")
    (one,) = workloads(desk).values()
    assert one["metadata"]["ownerReferences"][0]["kind"] == "JobSet" and not one["metadata"].get("labels", {}).get(
        "penstock/workflow-uid"
    )


def test_a_queue_called_default_beside_it_changes_nothing(bed: Testbed, desk: Desk) -> None:
    """Kueue gives that queue to what has no label, as ours has none, and suspends it: as if its user held it."""
    desk.queue("default", "3")
    desk.queue("main", "3")
    where = create(bed, desk.namespace, queued(jobset(job("a", 2), job("b", 1, dependsOn=after("a")), name="j")))
    assert not bed.get(where)["spec"].get("suspend")
    reaches(bed, where, "Completed")
    held = jobset(job("a", 2), job("b", 1, dependsOn=after("a")), name="held")
    held["spec"]["suspend"] = True
    assert bed.get(create(bed, desk.namespace, queued(held)))["spec"]["suspend"], "its user holds it"
