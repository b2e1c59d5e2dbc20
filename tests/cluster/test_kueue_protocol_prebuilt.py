"""A Workload of ours that one of Kueue's own kinds runs in: `prebuilt-workload-name` with a JobSet and a Job. Kueue starts, stops and finishes
it; we say when its turn has come.

These are proofs against the real Kueue; docs/ideas/kueue-protocol.md cites them by name.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.cluster.kueue_protocol import (
    IMPATIENT,
    PLAIN,
    PREBUILT,
    QUEUE,
    Desk,
    Object,
    condition,
    holds,
    owner,
    pod_set,
    pod_template,
    reason,
)

STAGE = "penstock.example/stage"
JOBSETS = "/apis/jobset.x-k8s.io/v1alpha2"


@pytest.fixture
def desk(testbed: Any) -> Desk:
    return Desk(testbed(*PLAIN))


def workers(count: int = 2, run_time: str = "0.5s") -> Object:
    made = pod_template()
    made["metadata"] = {"annotations": {"testbed.penstock/run-time": run_time}}
    job = {"spec": {"parallelism": count, "completions": count, "backoffLimit": 0, "template": made}}
    return {"name": "workers", "replicas": 1, "template": job}


def jobset(desk: Desk, name: str, workload: str, *, run_time: str = "0.5s") -> Object:
    body = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name, "labels": {QUEUE: "main", PREBUILT: workload}},
        "spec": {"suspend": True, "replicatedJobs": [workers(run_time=run_time)]},
    }
    return desk.send("POST", desk.path("jobsets", api=JOBSETS), body)


def read(desk: Desk, name: str) -> Object:
    return dict(desk.bed.get(desk.path("jobsets", name, JOBSETS)))


def test_a_jobset_runs_in_a_workload_that_we_made_and_held_back(desk: Desk) -> None:
    desk.queue(cpu="2")
    desk.workload("stage", podSets=[pod_set("workers", count=2)], gate=STAGE)
    jobset(desk, "train", "stage")
    adopted = desk.until("stage", lambda seen: seen["metadata"].get("ownerReferences"), "is the JobSet's")
    assert adopted["metadata"]["ownerReferences"][0]["kind"] == "JobSet"
    assert adopted["metadata"]["labels"]["kueue.x-k8s.io/job-uid"] == adopted["metadata"]["ownerReferences"][0]["uid"]
    desk.fence("fence")
    assert reason(desk.get("stage"), "QuotaReserved") == "AdmissionGated" and read(desk, "train")["spec"]["suspend"]

    desk.clear_gate("stage")
    desk.until("stage", lambda seen: holds(seen, "Admitted"), "is admitted")
    done = desk.until("stage", lambda seen: holds(seen, "Finished"), "is finished")
    assert reason(done, "Finished") == "Succeeded" and holds(done, "PodsReady")
    assert holds(read(desk, "train"), "Completed")


def test_a_preempted_jobset_is_stopped_and_resumed_by_kueue(desk: Desk) -> None:
    desk.queue(cpu="2", preemption={"withinClusterQueue": "LowerPriority"})
    desk.workload("stage", podSets=[pod_set("workers", count=2)])
    jobset(desk, "train", "stage", run_time="forever")
    desk.until("stage", lambda seen: holds(seen, "PodsReady"), "has its pods")
    desk.workload("boss", cpu="2", priority=10)
    desk.until_running("boss")  # without a word from us
    assert read(desk, "train")["spec"]["suspend"]
    desk.finish("boss")
    desk.until("stage", lambda seen: holds(seen, "Admitted") and holds(seen, "PodsReady"), "runs again")


def test_pod_sets_that_differ_end_the_workload(desk: Desk) -> None:
    desk.queue(cpu="8")
    desk.workload("stage", podSets=[pod_set("workers", count=3)], gate=STAGE)
    jobset(desk, "train", "stage")
    over = desk.until("stage", lambda seen: holds(seen, "Finished"), "is finished")
    assert reason(over, "Finished") == "OutOfSync" and read(desk, "train")["spec"]["suspend"]


@pytest.mark.parametrize("controller", [True, False], ids=["controller", "plain owner"])
def test_our_object_may_own_the_workload_but_not_control_it(desk: Desk, controller: bool) -> None:
    desk.queue(cpu="2")
    book = desk.bed.raw("POST", desk.configmaps(), {"metadata": {"name": "run"}})
    book |= {"apiVersion": "v1", "kind": "ConfigMap"}
    desk.workload("stage", podSets=[pod_set("workers", count=2)], owners=[owner(book, controller=controller)])
    jobset(desk, "train", "stage")
    if controller:
        desk.until_running("stage")  # admitted for nobody: the JobSet may not have it
        desk.fence("fence")
        assert read(desk, "train")["spec"]["suspend"]
        owned = desk.get("stage")["metadata"]["ownerReferences"]
        assert [each["kind"] for each in owned] == ["ConfigMap"]
    else:
        desk.until("stage", lambda seen: holds(seen, "Finished"), "is finished")
        owned = desk.get("stage")["metadata"]["ownerReferences"]
        assert sorted(each["kind"] for each in owned) == ["ConfigMap", "JobSet"]


# -- a JobSet by itself: why stages are Workloads of their own --------------------------------------------------------


def sequence(desk: Desk, name: str, *jobs: Object, labels: Object | None = None) -> Object:
    body = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {"suspend": bool(labels), "replicatedJobs": list(jobs)},
    }
    return desk.send("POST", desk.path("jobsets", api=JOBSETS), body)


def after(job: Object, *names: str) -> Object:
    return job | {"dependsOn": [{"name": name, "status": "Complete"} for name in names]}


def own_workload(desk: Desk) -> Object:
    items: list[Object] = desk.bed.wait(lambda: desk.bed.get(desk.path("workloads"))["items"], "the JobSet's Workload")
    return desk.get(items[0]["metadata"]["name"])


def test_a_jobset_asks_for_all_its_steps_at_once(desk: Desk) -> None:
    desk.queue(cpu="3")
    first, second = workers(1), workers(3) | {"name": "second"}
    sequence(desk, "pair", first, after(second, "workers"), labels={QUEUE: "main"})
    own = own_workload(desk)
    waiting = desk.until_pending(own["metadata"]["name"], "Pending")  # no step needs more than three
    assert [each["count"] for each in waiting["spec"]["podSets"]] == [1, 3]
    assert "(1) + current podset request (3) > maximum capacity (3)" in condition(waiting, "QuotaReserved")["message"]


def test_a_jobset_whose_first_step_takes_long_is_never_ready(testbed: Any) -> None:
    desk = Desk(testbed(*PLAIN, kueue=IMPATIENT))
    desk.queue(cpu="4")
    second = workers(1) | {"name": "second"}
    sequence(desk, "pair", workers(1, "forever"), after(second, "workers"), labels={QUEUE: "main"})
    own = own_workload(desk)["metadata"]["name"]
    desk.until_evicted(own, "PodsReadyTimeout")  # its first step ran well, and the second had no business to


def test_a_step_of_a_jobset_may_wait_for_itself(desk: Desk) -> None:
    made = sequence(desk, "knot", workers(1), after(workers(1) | {"name": "self"}, "self"))
    assert made["spec"]["replicatedJobs"][1]["dependsOn"] == [{"name": "self", "status": "Complete"}]
    jobs = desk.bed.wait(lambda: desk.bed.get(desk.jobs())["items"], "the first step starts")
    done = f"{desk.jobs(jobs[0]['metadata']['name'])}"
    desk.bed.wait(lambda: desk.bed.get(done)["status"].get("succeeded"), "the first step ends")
    assert len(desk.bed.get(desk.jobs())["items"]) == 1 and not holds(read(desk, "knot"), "Completed")


# -- a Job ------------------------------------------------------------------------------------------------------------


def job_body(name: str, workload: str) -> Object:
    return {
        "metadata": {"name": name, "labels": {QUEUE: "main", PREBUILT: workload}},
        "spec": {"suspend": True, "parallelism": 2, "completions": 2, "template": pod_template()},
    }


def test_a_job_is_compared_with_its_defaults(desk: Desk) -> None:
    """The API server fills in a Job's pod template but not a Workload's: what we sent for both is then unequal."""
    desk.queue(cpu="2")
    desk.workload("naive", podSets=[pod_set(count=2)], gate=STAGE)
    desk.bed.raw("POST", desk.jobs(), job_body("first", "naive"))
    over = desk.until("naive", lambda seen: holds(seen, "Finished"), "is finished")
    assert reason(over, "Finished") == "OutOfSync"

    # a dry run tells the defaults
    filled = desk.bed.raw("POST", desk.jobs() + "?dryRun=All", job_body("second", "exact"))["spec"]["template"]
    exact = {"spec": filled["spec"]}
    desk.workload("exact", podSets=[pod_set(count=2, template=exact)], gate=STAGE)
    desk.bed.raw("POST", desk.jobs(), job_body("second", "exact"))
    desk.until("exact", lambda seen: seen["metadata"].get("ownerReferences"), "is the Job's")
    desk.clear_gate("exact")
    done = desk.until("exact", lambda seen: holds(seen, "Finished"), "is finished")
    assert reason(done, "Finished") == "Succeeded"


def test_the_job_may_come_before_its_workload(desk: Desk) -> None:
    desk.queue(cpu="2")
    made = desk.bed.raw("POST", desk.jobs(), job_body("early", "late"))
    assert made["spec"]["suspend"]
    filled = made["spec"]["template"]
    desk.workload("late", podSets=[pod_set(count=2, template={"spec": filled["spec"]})])
    done = desk.until("late", lambda seen: holds(seen, "Finished"), "is finished")
    assert reason(done, "Finished") == "Succeeded"


def test_a_job_that_is_deleted_takes_the_workload_along(desk: Desk) -> None:
    desk.queue(cpu="2")
    made = desk.bed.raw("POST", desk.jobs(), job_body("brief", "stage"))
    exact = {"spec": made["spec"]["template"]["spec"]}
    desk.workload("stage", podSets=[pod_set(count=2, template=exact)], gate=STAGE)
    desk.until("stage", lambda seen: seen["metadata"].get("ownerReferences"), "is the Job's")
    options = {"propagationPolicy": "Background"}
    desk.bed.raw("DELETE", desk.jobs("brief"), options)
    desk.bed.wait(
        lambda: "stage" not in {each["metadata"]["name"] for each in desk.bed.get(desk.path("workloads"))["items"]},
        "the Workload goes with the Job",
    )
