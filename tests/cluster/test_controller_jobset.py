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
from tests.cluster.test_jobset import FAILS, FOREVER, after, create, job, jobs, jobset, pods, reaches

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


def in_order(name: str = "j", **more: Any) -> Object:
    """One pod after the other, three times."""
    steps = [job("a"), job("b", dependsOn=after("a")), job("c", dependsOn=after("b"))]
    return jobset(*steps, name=name, **more)


@pytest.mark.parametrize(("unit", "count"), [("stage", 3), ("task", 3), ("reuse", 1), ("workflow", 1)])
def test_by_each_unit(bed: Testbed, desk: Desk, unit: str, count: int) -> None:
    desk.queue("main", "1")
    with Witness(bed, desk.namespace) as witness:
        where = create(bed, desk.namespace, queued(in_order(), unit=unit))
        reaches(bed, where, "Completed")
        bed.wait(lambda: finished(desk), "all Workloads to be finished")
    assert len(desk.read(desk.path("workloads"))["items"]) == count
    assert witness.check()["most pods"] == 1 and witness.most_held("cpu") == 1000


def test_a_step_waits_in_the_queue_that_it_names(bed: Testbed, desk: Desk) -> None:
    desk.queue("main", "1")
    desk.queue("gpus", "1")
    document = in_order()
    document["spec"]["replicatedJobs"][1]["template"]["metadata"] = {"labels": {QUEUE: "gpus"}}
    reaches(bed, create(bed, desk.namespace, queued(document)), "Completed")
    found = {key: one["spec"]["queueName"] for key, one in workloads(desk).items()}
    assert found == {"a": "main", "b": "gpus", "c": "main"}


def test_a_restart_by_the_failure_policy_waits_again(bed: Testbed, desk: Desk) -> None:
    """All steps anew, those that were complete too; what the first try held is given back."""
    desk.queue("main", "1")
    document = jobset(job("a"), job("b", 1, FAILS, dependsOn=after("a")), name="j", failurePolicy={"maxRestarts": 1})
    with Witness(bed, desk.namespace) as witness:
        where = create(bed, desk.namespace, queued(document))
        failed = reaches(bed, where, "Failed")
        bed.wait(lambda: finished(desk), "all Workloads to be finished")
    assert failed["status"]["restarts"] == 1
    assert set(workloads(desk)) == {"a", "b", "a@1", "b@1"}
    assert witness.check()["most pods"] == 1 and witness.most_held("cpu") == 1000
    desk.until_used("0")


def test_the_success_policy_ends_what_still_runs_and_gives_it_back(bed: Testbed, desk: Desk) -> None:
    desk.queue("main", "2")
    document = jobset(
        job("helper", 1, FOREVER),
        job("main", 1, dependsOn=after("helper", "Ready")),
        name="j",
        successPolicy={"operator": "All", "targetReplicatedJobs": ["main"]},
    )
    with Witness(bed, desk.namespace) as witness:
        reaches(bed, create(bed, desk.namespace, queued(document)), "Completed")
        bed.wait(lambda: finished(desk), "all Workloads to be finished")
        desk.until_used("0")
    assert set(workloads(desk)) == {"helper"} and witness.check()["most pods"] == 2
    assert not [one for one in pods(bed, desk.namespace) if one["status"]["phase"] == "Running"]


def test_an_execution_policy_is_taken_from_the_annotation(bed: Testbed, desk: Desk) -> None:
    """The draft of JobSet's issue 672: without it both would run at the same time, and never fit."""
    desk.queue("main", "2")
    document = queued(jobset(job("first", 2), job("second", 2), name="j"))
    policy = '{"executionPolicyOrder": "InOrder", "replicatedJobsStatus": "Succeeded"}'
    document["metadata"]["annotations"] = {"penstock/execution-policy": policy}
    with Witness(bed, desk.namespace) as witness:
        reaches(bed, create(bed, desk.namespace, document), "Completed")
        bed.wait(lambda: finished(desk), "all Workloads to be finished")
    assert set(workloads(desk)) == {"first", "second"}
    assert witness.check()["most pods"] == 2 and witness.most_held("cpu") == 2000
