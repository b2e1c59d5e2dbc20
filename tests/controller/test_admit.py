"""What the webhook answers about workflows and pods, on the model."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from penstock.controller.admit import PodAdmitter, admit_pod, admit_workflow
from penstock.controller.core import Seen
from penstock.controller.engine import Engine, Observed
from penstock.controller.engines.argo import ENGINE as ARGO
from penstock.controller.engines.tekton import ENGINE as TEKTON
from penstock.controller.workload import queue_of
from tests.controller.model import NS, Cluster, control
from tests.controller.test_engine_argo_disguise import QUEUE, workflow
from tests.controller.toy_engine.penstock_toy import ENGINE


def admitted() -> Cluster:
    cluster = Cluster()
    cluster.submit("a", [{"name": "train", "pods": 1, "cpu": "1"}])
    cluster.engine_step(), control(cluster), cluster.kueue_step(), control(cluster)
    return cluster


def new_pod(**spec: Any) -> dict[str, Any]:
    labels = {"penstock/queue": "q", "step": "train", "index": "0"}
    container = {"resources": {"requests": {"cpu": "1"}}}
    gates = [{"name": "penstock/admission"}]
    return {
        "metadata": {"name": "p", "labels": labels},
        "spec": {"schedulingGates": gates, "containers": [container], **spec},
    }


def patch_of(cluster: Cluster, pod: dict[str, Any]) -> list[dict[str, Any]]:
    main = cluster.of("sequences")[0]
    seen = Seen(ENGINE, Observed(main, {}, cluster, cluster.now), "stage", cluster.of("workloads"))
    answer, _ = admit_pod({"namespace": NS, "object": pod}, PodAdmitter(seen))
    assert answer["allowed"]
    found: list[dict[str, Any]] = json.loads(base64.b64decode(answer.get("patch", "W10=")))
    return found


def test_a_pod_that_is_covered_loses_its_gate_at_once() -> None:
    assert {"op": "remove", "path": "/spec/schedulingGates"} in patch_of(admitted(), new_pod())


def test_a_pod_that_no_policy_has_held_is_held_by_the_webhook() -> None:
    """An API server applies a new policy after about a second."""
    free = new_pod()
    free["spec"].pop("schedulingGates")
    assert patch_of(admitted(), free)[0]["path"] == "/metadata/annotations"  # covered: it counts, and has no gate
    free["metadata"]["annotations"] = {"penstock/pod-set": "forged/main"}
    free["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "2"
    assert patch_of(admitted(), free) == [
        {"op": "add", "path": "/metadata/annotations", "value": {}},
        {"op": "add", "path": "/spec/schedulingGates", "value": [{"name": "penstock/admission"}]},
    ]
    answer, assumed = admit_pod({"namespace": NS, "object": free}, None)
    assert answer["patch"] and assumed is None


def test_a_pod_that_names_its_node_keeps_its_gate() -> None:
    """The API server refuses it then: it would leave the nodes of its flavor."""
    assert patch_of(admitted(), new_pod(nodeName="n1")) == []


def test_nothing_is_let_go_for_a_workflow_that_is_being_deleted() -> None:
    cluster = admitted()
    assert patch_of(cluster, new_pod())
    cluster.of("sequences")[0]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert patch_of(cluster, new_pod()) == []


@pytest.mark.parametrize("labels", [{"kueue.x-k8s.io/queue-name": "q"}, {"penstock/queue": "q"}])
def test_the_queue_is_the_one_that_the_user_named(labels: dict[str, str]) -> None:
    assert queue_of({"metadata": {"labels": labels}}) == "q"
    assert queue_of({"metadata": {"labels": {"penstock/queue": "other", **labels}}}) == "q"


def made_of(metadata: dict[str, Any], engine: Engine = ARGO) -> dict[str, Any]:
    """Labels and annotations with which a new workflow is stored."""
    given = workflow()
    given["metadata"]["labels"] |= metadata.get("labels", {})
    given["metadata"]["annotations"] = metadata.get("annotations", {})
    answer = admit_workflow({"namespace": NS, "object": given}, engine, Cluster())
    assert answer["allowed"]
    patch = {one["path"]: one["value"] for one in json.loads(base64.b64decode(answer["patch"]))}
    kept = given["metadata"]
    return {f: patch.get(f"/metadata/{f}", kept.get(f)) for f in ("labels", "annotations")}


@pytest.mark.parametrize("name", ["", "Team_A", "-a", "a..b"])
@pytest.mark.parametrize("kind", ["Workflow", "TaskRun"])
def test_what_cannot_be_the_name_of_a_queue_is_refused_with_the_fix(name: str, kind: str) -> None:
    given = workflow() if kind == "Workflow" else {"metadata": {"name": "t"}, "spec": {"taskSpec": {"steps": []}}}
    given["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": name}
    answer = admit_workflow({"namespace": NS, "object": given}, ARGO if kind == "Workflow" else TEKTON, Cluster())
    assert not answer["allowed"] and "P888" in answer["status"]["message"] and "Fix: " in answer["status"]["message"]


@pytest.mark.parametrize("label", ["kueue.x-k8s.io/queue-name", "penstock/queue"])
@pytest.mark.parametrize("kind", ["PipelineRun", "TaskRun"])
def test_a_copy_of_a_run_of_tekton_waits_in_the_queue_that_it_names(kind: str, label: str) -> None:
    """By either label, though the marks of the first one are taken out."""
    task = {"taskSpec": {"steps": [{"name": "main", "image": "x", "computeResources": {"requests": {"cpu": "1"}}}]}}
    spec = task if kind == "TaskRun" else {"pipelineSpec": {"tasks": [{"name": "a", **task}]}}
    given: dict[str, Any] = {"kind": kind, "metadata": {"name": "t", "labels": {"kueue.x-k8s.io/queue-name": "q"}}}
    for _ in range(2):
        answer = admit_workflow({"namespace": NS, "object": given | {"spec": spec}}, TEKTON, Cluster())
        made = {one["path"]: one["value"] for one in json.loads(base64.b64decode(answer["patch"]))}
        assert made.get("/metadata/labels", given["metadata"]["labels"])["penstock/queue"] == "q"
        notes = made.get("/metadata/annotations", given["metadata"].get("annotations"))
        spec = {key: value for key, value in made.get("/spec", spec).items() if key != "status"}
        given["metadata"] = {"name": "copy", "labels": {label: "q"}, "annotations": notes}


FORGED = {
    "penstock/stopping": '{"stage":"x","since":99999999999}',
    "penstock/opened": "true",
    "penstock/pod-set": "w/main",
    "penstock/place": "x",
    "penstock/made-up": "x",
}


def test_a_new_workflow_loses_the_marks_that_only_the_controller_writes() -> None:
    users = {"penstock/suspend-by-steps": "true", "penstock/execution-policy": "{}", "theirs": "x"}
    made = made_of({"annotations": FORGED | users, "labels": {"penstock/workflow-uid": "u", "penstock/unit": "stage"}})
    assert not set(FORGED) & set(made["annotations"])
    assert set(users) <= set(made["annotations"])
    assert made["labels"] == {QUEUE: "q", "penstock/unit": "stage"}


@pytest.mark.parametrize(
    ("default", "own", "unit"),
    [
        ({}, {}, "stage"),
        ({"penstock/unit": "task"}, {}, "task"),
        ({"penstock/unit": "task"}, {"penstock/unit": "reuse"}, "reuse"),
    ],
)
@pytest.mark.parametrize("field", ["labels", "annotations"])
def test_the_namespace_has_the_default_unit(default: Any, own: Any, unit: str, field: str) -> None:
    cluster, given = Cluster(), workflow()
    cluster.add("namespaces", {"metadata": {"name": NS, field: default}})
    given["metadata"]["labels"] |= own
    answer = admit_workflow({"namespace": NS, "object": given}, ARGO, cluster)
    patch = {one["path"]: one["value"] for one in json.loads(base64.b64decode(answer["patch"]))}
    assert patch.get("/metadata/labels", given["metadata"]["labels"])["penstock/unit"] == unit


def test_a_namespace_may_have_pods_wait_and_a_wrong_word_is_refused_with_the_fix() -> None:
    cluster, given = Cluster(), workflow()
    space = cluster.add("namespaces", {"metadata": {"name": NS, "annotations": {"penstock/suspend-by-steps": "false"}}})
    request = {"namespace": NS, "object": given}
    patch = json.loads(base64.b64decode(admit_workflow(request, ARGO, cluster)["patch"]))
    (made,) = [one["value"] for one in patch if one["path"] == "/metadata/annotations"]
    assert json.loads(made["penstock/gate"])["by"] == "pods"
    space["metadata"]["annotations"]["penstock/suspend-by-steps"] = "sometimes"
    answer = admit_workflow(request, ARGO, cluster)
    assert not answer["allowed"] and "P886" in answer["status"]["message"] and "Fix: " in answer["status"]["message"]


def test_a_forged_way_back_puts_no_mark_in() -> None:
    way = json.dumps({"d": {"metadata": {"d": {"annotations": {"-": ["penstock/gate"], "=": FORGED}}}}})
    made = made_of({"annotations": {"penstock/gate": "{}", "penstock/gate-undo": way}})
    forged = {key: text for key, text in FORGED.items() if key != "penstock/made-up"}
    assert not set(forged) & set(made["annotations"])


def test_a_copy_of_a_gated_workflow_is_gated_anew_and_only_once() -> None:
    first = admit_workflow({"namespace": NS, "object": workflow()}, ARGO, Cluster())
    copy = workflow()
    for one in json.loads(base64.b64decode(first["patch"])):
        place = copy if one["path"] == "/spec" else copy["metadata"]
        place[one["path"].rpartition("/")[2]] = one["value"]
    copy["metadata"]["annotations"] |= FORGED
    second = admit_workflow({"namespace": NS, "object": copy}, ARGO, Cluster())
    again = {one["path"]: one["value"] for one in json.loads(base64.b64decode(second["patch"]))}
    assert "/spec" not in again
    assert set(again["/metadata/annotations"]) == set(copy["metadata"]["annotations"]) - set(FORGED)
