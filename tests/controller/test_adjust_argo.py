"""The Argo engine without a cluster: what it makes of new Workflows, and what it sees in their nodes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.controller.engine import Adjusted
from penstock.controller.engines.argo import ENGINE
from penstock.controller.names import QUEUE, QUEUED
from penstock.errors import DocumentError
from tests.controller.engine_objects import Shelf

Object = dict[str, Any]


def flow(**spec: Any) -> Object:
    leaf = {"name": "leaf", "container": {"image": "none", "resources": {"requests": {"cpu": "1"}}}}
    main = {"name": "main", "steps": [[{"name": "a", "template": "leaf"}]]}
    metadata = {"name": "w", "namespace": "default", "labels": {QUEUE: "team"}}
    spec = {"entrypoint": "main", "templates": [main, leaf], **spec}
    return {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": metadata, "spec": spec}


def adjusted(document: Object, *others: Object) -> Adjusted:
    return ENGINE.adjust(document, "stage", Shelf(*others))


@pytest.mark.parametrize(
    "metadata",
    [
        {"labels": {QUEUE: "other"}},
        {"labelsFrom": {QUEUE: {"expression": "'other'"}}},
        {"labels": {"penstock/unit": "task"}},
        {"annotations": {"penstock/stages": "[]"}},
    ],
)
def test_argo_must_not_move_a_workflow_to_another_queue(metadata: Object) -> None:
    with pytest.raises(DocumentError) as found:
        adjusted(flow(workflowMetadata=metadata))
    (problem,) = found.value.problems
    assert problem.code == "P885" and "workflowMetadata" in str(problem.where)


def test_not_by_a_template_that_it_refers_to_either() -> None:
    template = flow(workflowMetadata={"labels": {QUEUE: "other"}})
    template["kind"], template["metadata"] = "WorkflowTemplate", {"name": "t", "namespace": "default"}
    document = flow()
    document["spec"] = {"workflowTemplateRef": {"name": "t"}}
    with pytest.raises(DocumentError) as found:
        adjusted(document, template)
    assert [one.code for one in found.value.problems] == ["P885"]


def test_the_label_that_it_has_already_and_labels_of_others_are_no_harm() -> None:
    adjusted(flow(workflowMetadata={"labels": {QUEUE: "team", "team": "a"}, "annotations": {"note": "b"}}))


# -- queues of their own ----------------------------------------------------------------------------------------------


def leaf(name: str, queue: str = "", cpu: str = "1") -> Object:
    found: Object = {"name": name, "container": {"image": "none", "resources": {"requests": {"cpu": cpu}}}}
    return found | ({"metadata": {"labels": {QUEUE: queue, "theirs": "x"}}} if queue else {})


def main(*groups: list[str], by_reference: bool = False) -> Object:
    def call(name: str) -> Object:
        where = {"templateRef": {"name": "lib", "template": name}} if by_reference else {"template": name}
        return {"name": f"do-{name}", **where}

    return {"name": "main", "steps": [[call(name) for name in group] for group in groups]}


def library(*templates: Object, kind: str = "WorkflowTemplate") -> Object:
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": kind,
        "metadata": {"name": "lib", "namespace": "default"},
        "spec": {"templates": list(templates)},
    }


def told(made: Adjusted) -> dict[str, Object]:
    return {one["stage"]: one for one in json.loads(made.object["metadata"]["annotations"]["penstock/stages"])}


def labels_in(made: Adjusted, template: str) -> Object:
    (found,) = [one for one in made.object["spec"]["templates"] if one["name"] == template]
    labels: Object = found.get("metadata", {}).get("labels", {})
    return labels


def test_a_template_names_its_queue_and_its_stage_waits_there() -> None:
    made = adjusted(flow(templates=[main(["a"], ["b"]), leaf("a"), leaf("b", "gpus")]))
    assert told(made)["main[1]"]["queue"] == "gpus" and "queue" not in told(made)["main[0]"]
    assert labels_in(made, "b") == {"penstock/queue": "gpus", "theirs": "x"}
    assert "penstock/queues" not in made.object["metadata"]["annotations"], "its pods say it"


@pytest.mark.parametrize("label", [QUEUE, QUEUED])
def test_a_template_that_names_nothing_does_not_take_the_queue_from_its_pods(label: str) -> None:
    template = leaf("train")
    template["metadata"] = {"labels": {label: "", "mine": "x"}}
    made = adjusted(flow(templates=[main(["train"]), template]))
    assert labels_in(made, "train") == {"mine": "x"}


def test_a_copy_of_a_queued_workflow_keeps_the_queues_of_its_templates() -> None:
    once = adjusted(flow(templates=[main(["a"]), leaf("a", "gpus")]))
    again = adjusted(json.loads(json.dumps(once.object)))
    assert told(again)["main[0]"]["queue"] == "gpus" and labels_in(again, "a")["penstock/queue"] == "gpus"


@pytest.mark.parametrize("kind", ["WorkflowTemplate", "ClusterWorkflowTemplate"])
def test_a_template_of_another_document_names_its_queue_too(kind: str) -> None:
    document = flow(templates=[main(["a"], by_reference=True)])
    call = document["spec"]["templates"][0]["steps"][0][0]
    call["templateRef"]["clusterScope"] = kind == "ClusterWorkflowTemplate"
    other = library(leaf("a", "gpus"), kind=kind)
    made = adjusted(document, other)
    assert told(made)["main[0]"]["queue"] == "gpus"
    place = f"{'cluster' if kind.startswith('Cluster') else 'namespaced'}/lib/a"
    assert json.loads(made.object["metadata"]["annotations"]["penstock/queues"]) == {place: "gpus"}
    by_task = ENGINE.adjust(document, "task", Shelf(other)).object["metadata"]["annotations"]
    assert json.loads(by_task["penstock/queues"]) == {place: "gpus"}


def test_templates_of_a_workflow_template_ref_keep_their_queues() -> None:
    document = flow()
    document["spec"] = {"workflowTemplateRef": {"name": "lib"}}
    other = library(main(["a"]), leaf("a", "gpus"))
    other["spec"]["entrypoint"] = "main"
    made = adjusted(document, other)
    assert told(made)["main[0]"]["queue"] == "gpus" and labels_in(made, "a")["penstock/queue"] == "gpus"
    by_task = ENGINE.adjust(document, "task", Shelf(other)).object["metadata"]["annotations"]
    assert json.loads(by_task["penstock/queues"]) == {"a": "gpus", "namespaced/lib/a": "gpus"}


def test_defaults_and_templates_in_a_call_name_queues() -> None:
    inline = {"name": "main", "steps": [[{"name": "do", "inline": leaf("", "gpus")}], [{"name": "b", "template": "b"}]]}
    defaults = {"metadata": {"labels": {QUEUE: "spot"}}}
    made = ENGINE.adjust(flow(templates=[inline, leaf("b")], templateDefaults=defaults), "task", Shelf()).object
    assert made["spec"]["templateDefaults"]["metadata"]["labels"] == {"penstock/queue": "spot"}
    (group, _) = made["spec"]["templates"][0]["steps"]
    assert group[0]["inline"]["metadata"]["labels"]["penstock/queue"] == "gpus"


def test_steps_of_one_group_with_different_queues_wait_as_pods_and_the_user_is_told() -> None:
    made = adjusted(flow(templates=[main(["a", "b"]), leaf("a"), leaf("b", "gpus")]))
    assert told(made)["main[0]"]["queues"] == ["team", "gpus"]
    (said,) = made.warnings
    assert "main[0]" in said and "team, gpus" in said


def test_a_step_that_asks_for_nothing_has_no_say() -> None:
    made = adjusted(flow(templates=[main(["a", "b"]), leaf("a", cpu="0"), leaf("b", "gpus")]))
    assert told(made)["main[0]"]["queue"] == "gpus" and not made.warnings


def test_a_queue_that_counts_for_nothing_is_told() -> None:
    document = flow(templates=[main(["a"]), leaf("a", "gpus")])
    whole = ENGINE.adjust(document, "workflow", Shelf())
    assert any("by unit workflow" in one for one in whole.warnings)
    late = flow(templates=[main(["a"]), leaf("a", "{{workflow.parameters.queue}}")])
    made = adjusted(late)
    assert any("only the run knows its queue" in one for one in made.warnings)
    assert "queue" not in told(made)["main[0]"]


def test_a_stage_that_nobody_can_size_is_told_when_the_workflow_is_created() -> None:
    made = adjusted(flow(templates=[main(["a"]), leaf("a", cpu="{{inputs.parameters.cpu}}")]))
    (said,) = made.warnings
    assert "only the run knows cpu of step do-a" in said and "write figures" in said
    looped = main(["a"])
    looped["steps"][0][0]["withParam"] = "{{=sprig.list(1)}}"
    (said,) = adjusted(flow(templates=[looped, leaf("a")])).warnings
    assert "how often it runs" in said
    assert not ENGINE.adjust(flow(templates=[looped, leaf("a")]), "task", Shelf()).warnings


# -- whether stages or pods wait --------------------------------------------------------------------------------------


def namespace(**metadata: Object) -> Object:
    return {"kind": "Namespace", "metadata": {"name": "default", **metadata}}


BY_STEPS = "penstock/suspend-by-steps"


@pytest.mark.parametrize(
    ("own", "default", "by"),
    [
        ({}, {}, "suspend"),
        ({"annotations": {BY_STEPS: "true"}}, {}, "suspend"),
        ({"annotations": {BY_STEPS: "false"}}, {}, "pods"),
        ({"labels": {BY_STEPS: "false"}}, {}, "pods"),
        ({}, {"annotations": {BY_STEPS: "false"}}, "pods"),
        ({}, {"labels": {BY_STEPS: "false"}}, "pods"),
        ({"annotations": {BY_STEPS: "true"}}, {"labels": {BY_STEPS: "false"}}, "suspend"),
        ({"annotations": {BY_STEPS: "false"}}, {"labels": {BY_STEPS: "true"}}, "pods"),
    ],
)
def test_stages_wait_or_pods_as_the_workflow_says_or_its_namespace(own: Object, default: Object, by: str) -> None:
    document = flow()
    document["metadata"] |= {"annotations": own.get("annotations", {})}
    document["metadata"]["labels"] |= own.get("labels", {})
    made = adjusted(document, namespace(**default)).object
    assert json.loads(made["metadata"]["annotations"]["penstock/gate"])["by"] == by
    held = any(one["name"] == "penstock-gate" for one in made["spec"]["templates"])
    assert held == (by == "suspend")
    assert made["spec"]["podMetadata"]["labels"]["penstock/queue"] == "team", "its pods are held either way"


@pytest.mark.parametrize("place", ["workflow", "namespace"])
def test_anything_else_is_refused(place: str) -> None:
    document, said = flow(), {"annotations": {BY_STEPS: "no"}}
    document["metadata"] |= said if place == "workflow" else {}
    with pytest.raises(DocumentError) as found:
        adjusted(document, *([namespace(**said)] if place == "namespace" else []))
    assert [one.code for one in found.value.problems] == ["P886"] and "true" in found.value.problems[0].fix


def test_as_a_whole_the_namespace_has_no_say_in_how_it_waits() -> None:
    made = ENGINE.adjust(flow(), "workflow", Shelf(namespace(labels={BY_STEPS: "false"}))).object
    assert made["spec"]["suspend"] is True


def test_what_argo_adds_to_each_pod_is_counted_if_a_patch_says_its_figures() -> None:
    """Argo's own configuration (executor.resources) is not read."""
    added = {"resources": {"requests": {"cpu": "100m"}}}
    patch = json.dumps({"containers": [{"name": "wait", **added}], "initContainers": [{"name": "init", **added}]})
    (shape,) = told(adjusted(flow(podSpecPatch=patch)))["main[0]"]["shape"]
    assert shape["resources"] == {"cpu": "1100m"}
