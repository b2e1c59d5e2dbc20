"""Argo workflows behind the controller, on the real Argo and the real Kueue: one label, and each stage waits for its own quota."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.controller.names import MANAGER
from testbed.errors import ApiError, TestbedError
from testbed.instance import Testbed
from tests.cluster.argo_runs import RUN_TIME, create, fake, flow, node, path, pods, step, until, until_over
from tests.cluster.controlled import Controlled, Witness
from tests.cluster.kueue_protocol import KUEUE, MERGE, Desk, condition, holds

QUEUE = "kueue.x-k8s.io/queue-name"
Object = dict[str, Any]


@pytest.fixture(scope="module")
def bed(testbed: Callable[..., Testbed]) -> Testbed:
    return testbed("kueue", "kwok", "argo")


@pytest.fixture(scope="module")
def controller(bed: Testbed) -> Iterator[Controlled]:
    with Controlled(bed, ["argo"]) as found:
        yield found


@pytest.fixture
def desk(bed: Testbed, controller: Controlled) -> Desk:
    return Desk(bed)


def needs(template: Object, cpu: str) -> Object:
    template["container"]["resources"] = {"requests": {"cpu": cpu}}
    return template


def queued(document: Object, queue: str = "main", unit: str = "", **labels: str) -> Object:
    document["metadata"]["labels"] = {QUEUE: queue, **labels}
    if unit:
        document["metadata"]["annotations"] = {"penstock/unit": unit}
    return document


def loop(name: str, template: str, *items: str) -> list[Object]:
    return [{"name": name, "template": template, "withItems": list(items)}]


def workloads(desk: Desk) -> dict[str, Object]:
    """By stage."""
    found = desk.read(desk.path("workloads"))["items"]
    return {one["metadata"].get("annotations", {}).get("penstock/stage", one["metadata"]["name"]): one for one in found}


def is_now(desk: Desk, stage: str, kind: str) -> bool:
    found = workloads(desk).get(stage)
    return found is not None and holds(found, kind)


def pending(desk: Desk, stage: str) -> bool:
    found = workloads(desk).get(stage)
    return found is not None and condition(found, "QuotaReserved").get("reason") == "Pending"


def is_told(desk: Desk, kind: str, name: str, *reasons: str) -> None:
    """The controller's Events on a workflow have these reasons, sooner or later."""
    told: set[str] = set()

    def look() -> bool:
        found = desk.read(desk.path("events", api="/apis/events.k8s.io/v1"))["items"]
        mine = [one for one in found if (one["regarding"]["kind"], one["regarding"]["name"]) == (kind, name)]
        told.update(one["reason"] for one in mine if one.get("reportingController") == MANAGER)
        return told >= set(reasons)

    try:
        desk.bed.wait(look, "Events", 15)
    except TestbedError as error:
        raise AssertionError(
            f"Events on {kind} {name}: {sorted(told)}, and not {sorted(set(reasons) - told)}"
        ) from error


def finished(desk: Desk) -> bool:
    return all(holds(one, "Finished") for one in workloads(desk).values())


def three_stages(name: str, run_time: str = "1s") -> Object:
    steps = [step("first", "small"), loop("middle", "big", "x", "y", "z"), step("last", "small")]
    return flow(name, steps, needs(fake("small", run_time="1s"), "1"), needs(fake("big", run_time=run_time), "1"))


def test_each_stage_waits_for_its_own_quota(bed: Testbed, desk: Desk) -> None:
    """1 + 3 + 1 cpu in a queue of 3: the sum would never fit."""
    desk.queue("main", "3")
    with Witness(bed, desk.namespace) as witness:
        create(bed, desk.namespace, queued(three_stages("w")))
        found = until_over(bed, desk.namespace, "w")
        assert found["status"]["phase"] == "Succeeded", found["status"].get("message")
        bed.wait(lambda: finished(desk), "all Workloads to be finished")
    assert set(workloads(desk)) == {"main[0]", "main[1]", "main[2]"}
    assert witness.check()["most pods"] == 3
    assert not any(pod["metadata"]["labels"].get(QUEUE) for pod in pods(bed, desk.namespace, "w"))


def test_pods_go_where_their_flavor_is(bed: Testbed, desk: Desk) -> None:
    name = desk.queue("main", "3")
    body = {"spec": {"nodeLabels": {"type": "kwok"}, "tolerations": [{"key": "spot", "operator": "Exists"}]}}
    desk.send("PATCH", f"{KUEUE}/resourceflavors/{name}", body, MERGE)
    create(bed, desk.namespace, queued(three_stages("w")))
    until(bed, desk.namespace, "w", "middle(0:x)", "Running")
    for pod in pods(bed, desk.namespace, "w"):
        assert pod["spec"]["nodeSelector"] == {"type": "kwok"}
        assert [one for one in pod["spec"]["tolerations"] if one.get("key") == "spot"]


def test_different_steps_of_a_group_start_together_or_not_at_all(bed: Testbed, desk: Desk) -> None:
    desk.queue("main", "3")
    desk.workload("other", count=1, cpu="1")
    bed.wait(lambda: holds(desk.get("other"), "Admitted"), "the other one to be admitted")
    group = [{"name": name, "template": "small"} for name in ("a", "b")] + [{"name": "c", "template": "large"}]
    small, large = needs(fake("small", run_time="1s"), "500m"), needs(fake("large", run_time="1s"), "2")
    create(bed, desk.namespace, queued(flow("w", [group], small, large)))
    bed.wait(lambda: pending(desk, "main[0]"), "it to wait")
    assert not pods(bed, desk.namespace, "w")
    desk.finish("other")
    assert until_over(bed, desk.namespace, "w")["status"]["phase"] == "Succeeded"


def test_a_loop_is_admitted_in_part(bed: Testbed, desk: Desk) -> None:
    desk.queue("main", "3")
    desk.workload("other", count=1, cpu="1")
    bed.wait(lambda: holds(desk.get("other"), "Admitted"), "the other one to be admitted")
    with Witness(bed, desk.namespace) as witness:
        create(bed, desk.namespace, queued(three_stages("w")))
        assert until_over(bed, desk.namespace, "w")["status"]["phase"] == "Succeeded"
    assert witness.check()["most pods"] <= 2


def test_an_evicted_stage_is_stopped_goes_back_in_line_and_continues(bed: Testbed, desk: Desk) -> None:
    """One of its pods has ended before: that one is not run again. No try is used up: the template allows none."""
    desk.queue("main", "3", preemption={"withinClusterQueue": "LowerPriority"})
    short, long = needs(fake("short", run_time="1s"), "1"), needs(fake("long", run_time="20s"), "1")
    group = [{"name": "a", "template": "short"}, {"name": "b", "template": "long"}, {"name": "c", "template": "long"}]
    with Witness(bed, desk.namespace) as witness:
        create(bed, desk.namespace, queued(flow("w", [group, step("last", "short")], short, long)))
        before = until(bed, desk.namespace, "w", "a", "Succeeded")
        until(bed, desk.namespace, "w", "b", "Running")
        bed.wait(lambda: is_now(desk, "main[0]", "PodsReady"), "its pods to be ready")
        desk.workload("urgent", count=3, cpu="1", priority=100)
        bed.wait(lambda: holds(desk.get("urgent"), "Admitted"), "the urgent one to be admitted", 60)
        assert not [pod for pod in pods(bed, desk.namespace, "w") if pod["status"]["phase"] in ("Pending", "Running")]
        desk.finish("urgent")
        found = until_over(bed, desk.namespace, "w")
    assert found["status"]["phase"] == "Succeeded", found["status"].get("message")
    assert node(found, "a")["startedAt"] == node(before, "a")["startedAt"]
    is_told(desk, "Workflow", "w", "Queued", "Admitted", "Released", "Evicted")
    witness.check()


@pytest.mark.parametrize("limit", [0, 1])
def test_an_eviction_uses_up_no_retry(bed: Testbed, desk: Desk, limit: int) -> None:
    desk.queue("main", "2", preemption={"withinClusterQueue": "LowerPriority"})
    long = needs(fake("long", run_time="8s"), "1")
    long["retryStrategy"] = {"limit": str(limit)}
    create(bed, desk.namespace, queued(flow("w", [loop("b", "long", "x", "y")], long)))
    for _ in range(2):
        bed.wait(lambda: is_now(desk, "main[0]", "PodsReady"), "its pods to be ready", 60)
        desk.workload("urgent", count=1, cpu="2", priority=100)
        bed.wait(lambda: holds(desk.get("urgent"), "Admitted"), "the urgent one to be admitted", 60)
        desk.send("DELETE", desk.path("workloads", "urgent"), None)
    found = until_over(bed, desk.namespace, "w")
    assert found["status"]["phase"] == "Succeeded", found["status"].get("message")
    assert not [one for one in found["status"]["nodes"].values() if "(1)" in one["displayName"]]


@pytest.mark.parametrize("where", ["template", "workflow"])
def test_a_time_limit_and_an_eviction(bed: Testbed, desk: Desk, where: str) -> None:
    """The pods run for six seconds, the limit is ten, and the quota is away until these are over. A template's limit begins anew with its pods; the
    workflow's runs on: then it fails, and holds nothing."""
    desk.queue("main", "2", preemption={"withinClusterQueue": "LowerPriority"})
    long = needs(fake("long", run_time="6s"), "1")
    document = flow("w", [loop("b", "long", "x", "y")], long)
    if where == "template":
        long["timeout"] = "10s"
    else:
        document["spec"]["activeDeadlineSeconds"] = 10
    with Witness(bed, desk.namespace) as witness:
        create(bed, desk.namespace, queued(document))
        bed.wait(lambda: is_now(desk, "main[0]", "PodsReady"), "its pods to be ready", 60)
        over = time.monotonic() + 11  # it was reached before that
        desk.workload("urgent", count=2, cpu="1", priority=100)
        bed.wait(lambda: holds(desk.get("urgent"), "Admitted"), "the urgent one to be admitted", 60)
        bed.wait(lambda: time.monotonic() > over, "the time limit to be over")
        desk.finish("urgent")
        found = until_over(bed, desk.namespace, "w")
        bed.wait(lambda: finished(desk), "all Workloads to be finished", 60)
    assert (found["status"]["phase"] == "Succeeded") is (where == "template"), found["status"].get("message")
    desk.until_used("0")
    witness.check()


def test_by_task_each_pod_waits_for_itself(bed: Testbed, desk: Desk) -> None:
    desk.queue("main", "2")
    with Witness(bed, desk.namespace) as witness:
        create(bed, desk.namespace, queued(three_stages("w", "3s"), unit="task"))
        assert until_over(bed, desk.namespace, "w")["status"]["phase"] == "Succeeded"
    assert witness.check()["most pods"] == 2
    assert len(desk.read(desk.path("workloads"))["items"]) == 5


def test_as_a_whole_it_holds_its_peak(bed: Testbed, desk: Desk) -> None:
    desk.queue("main", "3")
    with Witness(bed, desk.namespace) as witness:
        create(bed, desk.namespace, queued(three_stages("w"), unit="workflow"))
        assert until_over(bed, desk.namespace, "w")["status"]["phase"] == "Succeeded"
    (workload,) = workloads(desk).values()
    assert [(one["name"], one["count"]) for one in workload["spec"]["podSets"]] == [("g0-cpu", 3)]
    witness.check()


def test_a_whole_workflow_gives_back_what_the_rest_does_not_need(bed: Testbed, desk: Desk) -> None:
    desk.queue("main", "3")
    document = three_stages("w")
    document["spec"]["templates"][1]["metadata"]["annotations"][RUN_TIME] = "4s"
    create(bed, desk.namespace, queued(document, unit="workflow"))
    bed.wait(lambda: len(pods(bed, desk.namespace, "w")) == 5, "the last stage")
    back = [{"name": "g0-cpu", "count": 2}]
    bed.wait(lambda: workloads(desk)["*"]["status"].get("reclaimablePods") == back, "two cpu to be given back")
    assert until_over(bed, desk.namespace, "w")["status"]["phase"] == "Succeeded"


def test_by_reuse_equal_stages_keep_one_reservation(bed: Testbed, desk: Desk) -> None:
    desk.queue("main", "2")
    steps = [loop(name, "big", "x", "y") for name in ("a", "b", "c")]
    with Witness(bed, desk.namespace) as witness:
        create(bed, desk.namespace, queued(flow("w", steps, needs(fake("big", run_time="1s"), "1")), unit="reuse"))
        assert until_over(bed, desk.namespace, "w")["status"]["phase"] == "Succeeded"
    witness.check()
    (one,) = desk.read(desk.path("workloads"))["items"]
    assert one["metadata"]["annotations"]["penstock/stage"] == "main[2]"


def test_exit_handlers_and_hooks_never_wait(bed: Testbed, desk: Desk) -> None:
    """Of the workflow and of one step, while it runs and when it ends. Each asks for more than the queue has."""
    desk.queue("main", "1")
    document = three_stages("w")
    (first,) = step("first", "slow")
    running = {"template": "clean", "expression": 'steps.first.status == "Running"'}
    first["hooks"] = {"running": running, "exit": {"template": "clean"}}
    document["spec"]["templates"][0]["steps"] = [[first]]
    document["spec"]["templates"] += [needs(fake("clean", run_time="1s"), "8"), needs(fake("slow", run_time="4s"), "1")]
    document["spec"]["onExit"] = "clean"
    document["spec"]["hooks"] = {"running": {"template": "clean", "expression": 'workflow.status == "Running"'}}
    with Witness(bed, desk.namespace) as witness:
        create(bed, desk.namespace, queued(document))
        found = until_over(bed, desk.namespace, "w")
        assert found["status"]["phase"] == "Succeeded", found["status"].get("message")
        bed.wait(lambda: finished(desk), "all Workloads to be finished")
    ran = {one["name"] for one in found["status"]["nodes"].values() if one.get("templateName") == "clean"}
    assert ran == {"w.onExit", "w.hooks.running", "w[1].first.onExit", "w[1].first.hooks.running"}
    assert set(workloads(desk)) == {"main[0]"} and witness.most_held("cpu") == 1000
    witness.check(exempt=["onExit", "hooks.running"])


def test_a_loop_whose_size_only_the_run_knows(bed: Testbed, desk: Desk) -> None:
    desk.queue("main", "3")
    first = fake("first", run_time="1s", result='["a","b","c","d"]')
    steps = [step("list", "first"), [{"name": "each", "template": "big", "withParam": "{{steps.list.outputs.result}}"}]]
    document = flow("w", steps, first, needs(fake("big", run_time="1s"), "1"))
    with Witness(bed, desk.namespace) as witness:
        create(bed, desk.namespace, queued(document))
        assert until_over(bed, desk.namespace, "w")["status"]["phase"] == "Succeeded"
    assert witness.check()["most pods"] <= 4


def test_whoever_opens_the_gate_gets_pods_that_wait(bed: Testbed, desk: Desk) -> None:
    """`argo resume` writes the node's phase. The pods are there then, and none of them runs before the stage is admitted."""
    desk.queue("main", "3")
    desk.workload("other", count=3, cpu="1")
    bed.wait(lambda: holds(desk.get("other"), "Admitted"), "the other one to be admitted")
    create(bed, desk.namespace, queued(three_stages("w")))
    found = until(bed, desk.namespace, "w", "penstock-gate-0", "Running")
    gate = node(found, "penstock-gate-0")
    outputs = {"parameters": [{"name": "flavor", "value": ""}, {"name": "node-selector", "value": "{}"}]}
    opened = {"phase": "Succeeded", "finishedAt": gate["startedAt"], "outputs": outputs}
    desk.send("PATCH", path(desk.namespace, "w"), {"status": {"nodes": {gate["id"]: opened}}}, MERGE)
    bed.wait(lambda: pods(bed, desk.namespace, "w"), "its pod")
    (pod,) = pods(bed, desk.namespace, "w")
    assert pod["spec"]["schedulingGates"] == [{"name": "penstock/admission"}]
    desk.finish("other")
    assert until_over(bed, desk.namespace, "w")["status"]["phase"] == "Succeeded"


def test_a_workload_deleted_by_hand_is_made_again(bed: Testbed, desk: Desk) -> None:
    desk.queue("main", "3")
    document = three_stages("w")
    document["spec"]["templates"][1]["metadata"]["annotations"][RUN_TIME] = "6s"
    create(bed, desk.namespace, queued(document))
    until(bed, desk.namespace, "w", "first", "Running")
    bed.wait(lambda: is_now(desk, "main[0]", "PodsReady"), "its pod to be ready")
    old = workloads(desk)["main[0]"]["metadata"]
    desk.send("DELETE", desk.path("workloads", old["name"]), None)
    assert until_over(bed, desk.namespace, "w")["status"]["phase"] == "Succeeded"
    assert workloads(desk)["main[0]"]["metadata"]["uid"] != old["uid"]


def test_a_queue_that_does_not_exist_is_said(bed: Testbed, desk: Desk) -> None:
    create(bed, desk.namespace, queued(three_stages("w"), queue="nowhere"))

    def told() -> list[str]:
        events = bed.get(f"/api/v1/namespaces/{desk.namespace}/events")["items"]
        return [one["message"] for one in events if one["reason"] == "NoQueue"]

    (message,) = bed.wait(told, "an Event")
    assert "there is no LocalQueue 'nowhere'" in message and "Create that LocalQueue" in message


def test_a_unit_that_does_not_exist_is_refused(bed: Testbed, desk: Desk) -> None:
    with pytest.raises(ApiError, match="P886: there is no unit 'pod'"):
        create(bed, desk.namespace, queued(three_stages("w"), unit="pod"))
