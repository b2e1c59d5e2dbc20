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
