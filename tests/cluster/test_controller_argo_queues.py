"""Places and queues of the real Kueue, with the real Argo: templates that name a queue, stages of unknown size that keep their place, pods that wait
instead of stages by the namespace's choice."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from testbed.instance import Testbed
from tests.cluster.argo_runs import API, create, fake, flow, pods, step, until_over
from tests.cluster.controlled import Controlled, Witness
from tests.cluster.kueue_protocol import MERGE, Desk, condition, holds

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
    found = Desk(bed)
    found.queue("main", "4")
    found.queue("gpus", "4")
    return found


def queued(document: Object, unit: str = "stage") -> Object:
    document["metadata"] |= {"labels": {QUEUE: "main"}, "annotations": {"penstock/unit": unit}}
    return document


def asking(name: str, cpu: str, queue: str = "") -> Object:
    found = fake(name, cpu=cpu, run_time="2s")
    return found | {"metadata": found["metadata"] | ({"labels": {QUEUE: queue}} if queue else {})}


def queues(desk: Desk) -> dict[str, set[str]]:
    """Of each stage, the queues of its Workloads."""
    found: dict[str, set[str]] = {}
    for one in desk.read(desk.path("workloads"))["items"]:
        stage = one["metadata"].get("annotations", {}).get("penstock/stage", "")
        found.setdefault(stage, set()).add(one["spec"]["queueName"])
    return found


def ends_well(bed: Testbed, desk: Desk, witness: Witness) -> None:
    found = until_over(bed, desk.namespace, "w")
    assert found["status"]["phase"] == "Succeeded", found["status"].get("message")
    listed = desk.read(desk.path("workloads"))["items"]
    bed.wait(
        lambda: all(holds(desk.get(one["metadata"]["name"]), "Finished") for one in listed), "the Workloads to end"
    )
    witness.check()


def test_by_task_pods_wait_in_the_queues_of_their_templates(bed: Testbed, desk: Desk) -> None:
    steps = [step("a", "here"), step("b", "there")]
    with Witness(bed, desk.namespace) as witness:
        create(bed, desk.namespace, queued(flow("w", steps, asking("here", "1"), asking("there", "1", "gpus")), "task"))
        ends_well(bed, desk, witness)
    assert list(queues(desk).values()) == [{"main"}, {"gpus"}]


def test_steps_of_a_group_with_different_queues_wait_in_each(bed: Testbed, desk: Desk) -> None:
    group = [{"name": "a", "template": "here"}, {"name": "b", "template": "there"}]
    with Witness(bed, desk.namespace) as witness:
        create(bed, desk.namespace, queued(flow("w", [group], asking("here", "1"), asking("there", "1", "gpus"))))
        ends_well(bed, desk, witness)
    assert queues(desk) == {"main[0]": {"main", "gpus"}}


@pytest.mark.parametrize("unit", ["stage", "task"])
def test_a_template_of_a_workflow_template_names_its_queue(bed: Testbed, desk: Desk, unit: str) -> None:
    library = {"apiVersion": API, "kind": "WorkflowTemplate", "metadata": {"name": "lib"}}
    spec = {"templates": [asking("there", "1", "gpus")]}
    bed.raw("POST", f"/apis/{API}/namespaces/{desk.namespace}/workflowtemplates", library | {"spec": spec})
    steps = [[{"name": "a", "templateRef": {"name": "lib", "template": "there"}}], step("b", "here")]

    def held() -> bool:
        """The controller knows the template: without it, the first stage would be in the workflow's queue."""
        made = bed.raw("POST", f"/apis/{API}/namespaces/{desk.namespace}/workflows?dryRun=All", document("try"))
        return "gpus" in json.dumps(made["metadata"]["annotations"])

    def document(name: str) -> Object:
        return queued(flow(name, json.loads(json.dumps(steps)), asking("here", "1")), unit)

    bed.wait(held, "the template to be known")
    with Witness(bed, desk.namespace) as witness:
        create(bed, desk.namespace, document("w"))
        ends_well(bed, desk, witness)
    assert list(queues(desk).values()) == [{"gpus"}, {"main"}]


def test_a_stage_of_unknown_size_keeps_its_place(bed: Testbed, desk: Desk) -> None:
    """Its amount is a parameter of the step before; the Workload that kept its place is the one that is admitted."""
    first = fake("first", run_time="3s", result="500m")
    late = {**asking("late", "{{inputs.parameters.cpu}}"), "inputs": {"parameters": [{"name": "cpu"}]}}
    late["podSpecPatch"] = json.dumps(
        {"containers": [{"name": "main", "resources": {"requests": {"cpu": "{{inputs.parameters.cpu}}"}}}]}
    )
    del late["container"]["resources"]
    steps = [step("first", "first"), step("late", "late", cpu="{{steps.first.outputs.result}}")]

    def of(stage: str) -> Object:
        listed = desk.read(desk.path("workloads"))["items"]
        found = [one for one in listed if one["metadata"].get("annotations", {}).get("penstock/stage") == stage]
        return found[0] if found else {}

    with Witness(bed, desk.namespace) as witness:
        create(bed, desk.namespace, queued(flow("w", steps, first, late)))
        place = bed.wait(lambda: of("main[1]"), "the place")
        assert place["spec"]["active"] is False
        ends_well(bed, desk, witness)
    found = of("main[1]")
    assert found["metadata"]["uid"] == place["metadata"]["uid"]
    assert "penstock/tasks" in found["metadata"]["annotations"] and holds(found, "Finished")
    told = bed.get(f"/api/v1/namespaces/{desk.namespace}/events")["items"]
    assert [one for one in told if one["reason"] == "UnknownSize"]


def test_by_the_choice_of_the_namespace_pods_wait(bed: Testbed, desk: Desk) -> None:
    space = f"/api/v1/namespaces/{desk.namespace}"
    bed.raw("PATCH", space, {"metadata": {"annotations": {"penstock/suspend-by-steps": "false"}}}, MERGE)

    def by() -> str:
        made = bed.raw("POST", f"/apis/{API}/namespaces/{desk.namespace}/workflows?dryRun=All", document("try"))
        return str(json.loads(made["metadata"]["annotations"]["penstock/gate"])["by"])

    def document(name: str) -> Object:
        return queued(flow(name, [step("a", "here")], asking("here", "1")))

    bed.wait(lambda: by() == "pods", "the namespace to be known")
    desk.workload("other", queue="main", count=4, cpu="1")
    bed.wait(lambda: holds(desk.get("other"), "Admitted"), "the other one to be admitted")
    with Witness(bed, desk.namespace) as witness:
        create(bed, desk.namespace, document("w"))
        (pod,) = bed.wait(lambda: pods(bed, desk.namespace, "w"), "its pod")
        assert pod["spec"]["schedulingGates"] == [{"name": "penstock/admission"}]
        desk.finish("other")
        ends_well(bed, desk, witness)


def test_pods_that_run_are_said_to_be_ready(bed: Testbed, desk: Desk) -> None:
    with Witness(bed, desk.namespace) as witness:
        loop = [[{"name": "a", "template": "here", "withItems": [1, 2, 3]}]]
        create(bed, desk.namespace, queued(flow("w", loop, asking("here", "1"))))
        ends_well(bed, desk, witness)
    (one,) = desk.read(desk.path("workloads"))["items"]
    assert condition(one, "PodsReady")["reason"] == "Started"
