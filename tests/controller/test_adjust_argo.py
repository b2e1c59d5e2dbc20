"""The Argo engine without a cluster: what it makes of new Workflows, and what it sees in their nodes."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.controller.engine import Adjusted
from penstock.controller.engines.argo import ENGINE
from penstock.controller.names import QUEUE
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
