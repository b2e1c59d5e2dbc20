"""The JobSet engine against the real JobSet controller, on fake nodes: 2 -> 4 -> 2, stopped in the middle, restarted, and in order. Without the core."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from penstock.controller.engines.jobset import ENGINE
from penstock.controller.objects import Object
from testbed.instance import Testbed
from tests.cluster.engine_runs import Driven, held_at_birth
from tests.cluster.support import fresh_namespace
from tests.cluster.test_jobset import FAILS, FOREVER, after, job, jobs, jobset


@pytest.fixture
def bed(testbed: Callable[..., Testbed]) -> Testbed:
    return testbed("kwok", "jobset")


@pytest.fixture
def ns(bed: Testbed) -> str:
    found = fresh_namespace(bed)
    held_at_birth(bed, found)
    return found


def ended(it: Driven) -> str:
    it.bed.wait(lambda: it.view().over, f"{it.name} to end", 90)
    return it.view().over


def two_four_two(**more: Any) -> dict[str, Any]:
    return jobset(
        job("a", 2),
        job("b", 4, FOREVER, dependsOn=after("a")),
        job("c", 2, dependsOn=after("b")),
        name="steps",
        **more,
    )


@pytest.mark.parametrize("like_a_kubelet", [False, True])
def test_two_four_two(bed: Testbed, ns: str, like_a_kubelet: bool) -> None:
    it = Driven(bed, ENGINE, ns, two_four_two())
    it.reach("a", "held")
    counts = [(one.key, one.state, one.shapes[0].count, dict(one.shapes[0].requests)) for one in it.view().stages]
    assert counts == [
        ("a", "held", 2, {"cpu": 1000}),
        ("b", "ahead", 4, {"cpu": 1000}),
        ("c", "ahead", 2, {"cpu": 1000}),
    ]
    assert it.pods("a") == []
    assert it.open("a") == 1 and it.open("a") == 0
    assert it.release("a", 2) == ["steps-a-0/0", "steps-a-0/1"]
    it.reach("b", "held")
    assert it.stage("a").state == "done" and it.stage("a").finished == (2,)
    it.open("b")
    waiting = it.gated("b", 4)
    one = waiting[0][1]["metadata"]["name"]
    brief = {"metadata": {"annotations": {"testbed.penstock/run-time": "100ms"}}}
    bed.raw("PATCH", f"/api/v1/namespaces/{ns}/pods/{one}", brief, "application/merge-patch+json")
    it.release("b", 4)
    bed.wait(lambda: it.stage("b").finished == (1,), "one of four to finish")
    running = it.running("b", 3)
    if like_a_kubelet:
        it.keep(running)
    sent = it.stop("b", between=lambda: it.end_like_a_kubelet(running))
    assert [dict(write.body) for write in sent] == [{"spec": {"parallelism": 0}}]
    held = it.stage("b")
    assert (held.state, held.finished) == ("held", (1,)), "finished ones are kept"
    assert not jobs(bed, ns)["b"]["status"].get("failed")
    it.open("b")
    again = it.release("b", 3, "100ms")
    assert len(again) == 3 and waiting[0][0].name not in again
    it.reach("c", "held")
    it.open("c")
    it.release("c", 2)
    assert ended(it) == "Succeeded"


def test_steps_that_wait_until_others_are_ready_start_together_and_in_order(bed: Testbed, ns: str) -> None:
    document = jobset(
        job("server", 1, FOREVER),
        job("client", 2, dependsOn=after("server", "Ready")),
        job("report", 1, dependsOn=after("client")),
        name="ready",
    )
    it = Driven(bed, ENGINE, ns, document)
    held = it.reach("server", "held")
    assert (held.name, [one.count for one in held.shapes]) == ("server+client", [1, 2])
    bed.wait(lambda: set(jobs(bed, ns)) == {"server", "client"}, "JobSet to take a Job without pods as ready")
    assert it.open("server") == 1
    it.release("server", 1)
    bed.wait(lambda: it.open("server") == 1, "the server to be ready, and the client to be let go")
    assert it.release("server", 2) == ["ready-client-0/0", "ready-client-0/1"]
    it.reach("report", "held")
    assert it.stage("server").state == "open"


def test_a_startup_policy_is_kept(bed: Testbed, ns: str) -> None:
    document = jobset(
        job("a", 1, FOREVER), job("b", 1, FOREVER), startupPolicy={"startupPolicyOrder": "InOrder"}, name="order"
    )
    it = Driven(bed, ENGINE, ns, document)
    it.reach("a", "held")
    bed.wait(lambda: set(jobs(bed, ns)) == {"a", "b"}, "both Jobs")
    assert it.open("a") == 1
    it.release("a", 1)
    bed.wait(lambda: it.open("a") == 1, "b to be let go once a is ready")
    it.release("a", 1)
    it.running("a", 2)


def test_a_restart_is_held_again(bed: Testbed, ns: str) -> None:
    document = jobset(
        job("a", 1), job("b", 1, FAILS, dependsOn=after("a")), failurePolicy={"maxRestarts": 1}, name="again"
    )
    it = Driven(bed, ENGINE, ns, document)
    for attempt in ("", "@1"):
        it.reach(f"a{attempt}", "held")
        it.open(f"a{attempt}")
        it.release(f"a{attempt}", 1)
        it.reach(f"b{attempt}", "held")
        it.open(f"b{attempt}")
        it.release(f"b{attempt}", 1)
    assert ended(it) == "Failed"
    assert it.main()["status"]["restarts"] == 1


def test_a_success_policy_ends_it(bed: Testbed, ns: str) -> None:
    document = jobset(
        job("helper", 1, FOREVER),
        job("main", 1, dependsOn=after("helper", "Ready")),
        successPolicy={"operator": "All", "targetReplicatedJobs": ["main"]},
        name="enough",
    )
    it = Driven(bed, ENGINE, ns, document)
    it.reach("helper", "held")
    it.open("helper")
    it.release("helper", 1)
    bed.wait(lambda: it.open("helper") == 1, "main to be let go")
    it.release("helper", 1)
    assert ended(it) == "Succeeded"


def test_as_a_whole_and_by_task(bed: Testbed, ns: str) -> None:
    it = Driven(bed, ENGINE, ns, two_four_two(), "workflow")
    whole = it.reach("(workflow)", "held")
    assert whole.vector and dict(whole.shapes[0].requests) == {"cpu": 4000}
    for count, needed in ((2, 4000), (4, 4000), (2, 2000)):
        bed.wait(lambda: it.open("(workflow)") == 1, "the next Job to be let go")
        assert dict(it.stage("(workflow)").needed[0]) == {"cpu": needed}
        it.release("(workflow)", count, "100ms")
    assert ended(it) == "Succeeded"
    document = jobset(job("x", 1, replicas=2), job("y", 1, dependsOn=after("x")), name="tasks")
    it = Driven(bed, ENGINE, ns, document, "task")
    it.reach("tasks-x-1", "held")
    assert it.states() == {"tasks-x-0": "held", "tasks-x-1": "held", "tasks-y-0": "ahead"}
    for name in it.states():
        it.reach(name, "held")
        it.open(name)
        it.release(name, 1)
    assert ended(it) == "Succeeded"


def test_an_execution_policy(bed: Testbed, ns: str) -> None:
    document = jobset(job("first", 1), job("second", 1), name="policy")
    policy = '{"executionPolicyOrder": "InOrder", "replicatedJobsStatus": "Succeeded"}'
    document["metadata"]["annotations"] = {"penstock/execution-policy": policy}
    it = Driven(bed, ENGINE, ns, document)
    assert it.main()["spec"]["replicatedJobs"][1]["dependsOn"] == after("first")
    it.reach("first", "held")
    assert it.states() == {"first": "held", "second": "ahead"}


def test_what_the_user_suspends(bed: Testbed, ns: str) -> None:
    it = Driven(bed, ENGINE, ns, jobset(job("a", 1), job("b", 1, dependsOn=after("a")), suspend=True, name="mine"))
    assert it.view().paused
    bed.raw("PATCH", it.resource.path(ns, it.name), {"spec": {"suspend": False}}, "application/merge-patch+json")
    it.reach("a", "held")
    assert not it.view().paused


def test_names_and_the_coordinator_mean_the_same_pod_after_an_eviction(bed: Testbed, ns: str) -> None:
    """Pods find one another by names that DNS gives them, and the first one by a label; those that come back have them, too."""
    document = jobset(
        job("prepare", 1),
        job("train", 2, FOREVER, dependsOn=after("prepare"), replicas=2),
        name="ring",
        network={"enableDNSHostnames": True, "subdomain": "net"},
        coordinator={"replicatedJob": "train", "jobIndex": 1, "podIndex": 0},
    )
    it = Driven(bed, ENGINE, ns, document)
    it.reach("prepare", "held")
    it.open("prepare")
    it.release("prepare", 1)
    it.reach("train", "held")
    it.open("train")
    it.release("train", 4)
    before = named(it.running("train", 4))
    wanted = {(f"ring-train-{job}-{pod}", "net", "ring-train-1-0.net") for job in (0, 1) for pod in (0, 1)}
    assert {names for names, _ in before} == wanted
    service = bed.get(f"/api/v1/namespaces/{ns}/services/net")["spec"]
    assert service["clusterIP"] == "None"
    it.stop("train")
    bed.wait(lambda: not reachable(bed, ns, "net"), "their names to lead nowhere while they are stopped")
    it.open("train")
    it.release("train", 4)
    after_it = named(it.running("train", 4))
    assert {names for names, _ in after_it} == wanted
    assert not {uid for _, uid in before} & {uid for _, uid in after_it}, "they are other pods"
    bed.wait(lambda: reachable(bed, ns, "net") == after_it, "their names to lead to them")


def named(pods: Sequence[Object]) -> set[tuple[tuple[str, str, str], str]]:
    """(host name, subdomain, coordinator) of each pod, and the pod."""
    found = set()
    for pod in pods:
        spec, labels = pod["spec"], pod["metadata"]["labels"]
        label = labels["jobset.sigs.k8s.io/coordinator"]
        found.add(((spec["hostname"], spec["subdomain"], label), pod["metadata"]["uid"]))
    return found


def reachable(bed: Testbed, ns: str, service: str) -> set[tuple[tuple[str, str, str], str]]:
    """What DNS answers with: the endpoints of the headless Service."""
    slices = bed.objects("discovery.k8s.io/v1", "endpointslices", ns, f"kubernetes.io/service-name={service}")
    ends = [end for one in slices for end in one.get("endpoints") or () if end["conditions"].get("ready")]
    return {((end["hostname"], service, "ring-train-1-0.net"), end["targetRef"]["uid"]) for end in ends}
