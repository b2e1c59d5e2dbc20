"""What a queued Workflow must not say of itself, in the webhook of the Argo engine."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.controller.engines.argo import ENGINE
from penstock.errors import DocumentError
from tests.controller.model import Cluster

QUEUE = "kueue.x-k8s.io/queue-name"


def workflow(**spec: Any) -> dict[str, Any]:
    container = {"image": "none", "command": ["none"], "resources": {"requests": {"cpu": "1"}}}
    templates = [{"name": "main", "container": container}]
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Workflow",
        "metadata": {"name": "w", "namespace": "team", "labels": {QUEUE: "q"}},
        "spec": {"entrypoint": "main", "templates": templates, **spec},
    }


@pytest.mark.parametrize(
    ("metadata", "key"),
    [
        ({"labels": {QUEUE: "other"}}, QUEUE),
        ({"labelsFrom": {"penstock/unit": {"expression": "'task'"}}}, "penstock/unit"),
        ({"annotations": {"penstock/stages": "[]"}}, "penstock/stages"),
    ],
)
def test_argo_may_not_be_told_to_change_the_queue_when_it_starts(metadata: dict[str, Any], key: str) -> None:
    with pytest.raises(DocumentError) as caught:
        ENGINE.adjust(workflow(workflowMetadata=metadata), "stage", Cluster())
    (problem,) = caught.value.problems
    assert problem.code == "P885" and problem.message.startswith(f"{key} is taken from the workflow")


def test_other_labels_are_its_own_matter() -> None:
    made = ENGINE.adjust(workflow(workflowMetadata={"labels": {"team": "x"}}), "stage", Cluster()).object
    assert made["spec"]["workflowMetadata"] == {"labels": {"team": "x"}}


@pytest.mark.parametrize(
    "collector",
    [
        {"strategy": "OnWorkflowCompletion", "podSpecPatch": "containers: [{name: main, image: mine}]"},
        {"podMetadata": {"labels": {"penstock/queue": "q"}}},
    ],
)
@pytest.mark.parametrize("by_template", [False, True])
def test_pods_that_delete_artifacts_are_argos_own(collector: dict[str, Any], by_template: bool) -> None:
    document = workflow(artifactGC=collector)
    library = Cluster()
    if by_template:
        library.add(
            "workflowtemplates", {"kind": "WorkflowTemplate", "metadata": {"name": "t"}, "spec": document["spec"]}
        )
        document["spec"] = {"workflowTemplateRef": {"name": "t"}}
    with pytest.raises(DocumentError) as caught:
        ENGINE.adjust(document, "stage", library)
    (problem,) = caught.value.problems
    assert problem.code == "P885" and "artifactGC" in str(problem.where)


def test_artifacts_may_be_deleted() -> None:
    collector = {
        "strategy": "OnWorkflowCompletion",
        "podMetadata": {"labels": {"team": "x"}},
        "serviceAccountName": "x",
    }
    made = ENGINE.adjust(workflow(artifactGC=collector), "stage", Cluster()).object
    assert made["spec"]["artifactGC"] == collector


def test_the_workflow_that_it_refers_to_cannot_change_them_later() -> None:
    """Argo reads it when it starts the workflow, which may be long after the webhook did."""
    library = Cluster()
    library.add(
        "workflowtemplates", {"kind": "WorkflowTemplate", "metadata": {"name": "t"}, "spec": workflow()["spec"]}
    )
    document = workflow()
    document["spec"] = {"workflowTemplateRef": {"name": "t"}, "artifactGC": {"strategy": "OnWorkflowDeletion"}}
    once = ENGINE.adjust(document, "task", library).object
    assert once["spec"]["artifactGC"] == {"strategy": "OnWorkflowDeletion", "podSpecPatch": "{}"}
    assert ENGINE.adjust(once, "task", library).object == once, "a copy of it is no attempt"
    by_stage = ENGINE.adjust(document, "stage", library).object["spec"]
    assert "workflowTemplateRef" not in by_stage and "podSpecPatch" not in by_stage["artifactGC"], "nothing can change"
