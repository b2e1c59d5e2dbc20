"""What resource templates of a queued Workflow create: it waits by itself, or the user is told that it does not."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from penstock.controller.engine import Adjusted
from penstock.controller.engines.argo import ENGINE
from penstock.controller.names import PRIORITY, QUEUE
from penstock.formats.argo.manifest import with_label
from tests.controller.engine_objects import Shelf

Object = dict[str, Any]
JOB = """\
apiVersion: batch/v1
kind: Job
metadata:
  # whose it is
  generateName: made-{{workflow.name}}-
spec:
  parallelism: {{inputs.parameters.n}}
  template: {spec: {containers: [{name: main, image: x, resources: {requests: {cpu: "2"}}}]}}
"""


def workflow(manifest: str, **more: Any) -> Object:
    resource = {"action": "create", "manifest": manifest}
    made = {"name": "make", "resource": resource, "inputs": {"parameters": [{"name": "n", "value": "3"}]}}
    metadata = {"name": "w", "namespace": "team", "labels": {QUEUE: "q", PRIORITY: "high"}}
    spec = {"entrypoint": "make", "templates": [made | more]}
    return {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": metadata, "spec": spec}


def adjusted(document: Object, *others: Object) -> Adjusted:
    return ENGINE.adjust(document, "stage", Shelf(*others))


def manifest_of(made: Adjusted) -> str:
    (found,) = (one["resource"]["manifest"] for one in made.object["spec"]["templates"] if "resource" in one)
    return str(found)


def test_a_job_that_it_creates_waits_by_itself_and_the_stage_does_not_ask_for_it() -> None:
    made = adjusted(workflow(JOB))
    text = manifest_of(made)
    assert f'"{QUEUE}": "q"' in text and f'"{PRIORITY}": "high"' in text
    assert "# whose it is" in text and "parallelism: {{inputs.parameters.n}}" in text
    assert any("waits in queue q by itself" in one for one in made.warnings)
    assert "cpu" not in str(made.object["metadata"]["annotations"]), "its pods would be counted twice"


def test_a_template_with_a_queue_of_its_own_makes_it_wait_there() -> None:
    made = adjusted(workflow(JOB, metadata={"labels": {QUEUE: "gpu"}}))
    assert f'"{QUEUE}": "gpu"' in manifest_of(made)


@pytest.mark.parametrize(
    "manifest",
    [
        JOB.replace("kind: Job", "kind: Deployment").replace("batch/v1", "apps/v1"),
        JOB.replace("  # whose it is", "  namespace: elsewhere"),
        JOB.replace("batch/v1", "example.com/v1").replace("kind: Job", "kind: Machine"),
        "{{inputs.parameters.n}}",
        f"{JOB}---\n{JOB}",
    ],
)
def test_what_cannot_be_labelled_is_told(manifest: str) -> None:
    made = adjusted(workflow(manifest))
    assert manifest_of(made) == manifest
    assert any("cannot hold or stop what it creates" in one for one in made.warnings)


@pytest.mark.parametrize(
    "manifest",
    [
        JOB.replace("  # whose it is", f"  labels: {{{QUEUE}: own}}"),
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n",
    ],
)
def test_what_names_a_queue_or_has_no_pods_is_left_alone(manifest: str) -> None:
    made = adjusted(workflow(manifest))
    assert manifest_of(made) == manifest and not made.warnings


def test_a_template_of_others_is_only_told() -> None:
    others = workflow(JOB)
    others |= {"kind": "WorkflowTemplate", "metadata": {"name": "lib", "namespace": "team"}}
    document = workflow(JOB)
    step = [{"name": "a", "templateRef": {"name": "lib", "template": "make"}}]
    document["spec"] = {"entrypoint": "main", "templates": [{"name": "main", "steps": [step]}]}
    (told,) = (one for one in adjusted(document, others).warnings if "cannot hold" in one)
    assert told.startswith("WorkflowTemplate lib, spec.templates[0].resource")
    assert others["spec"]["templates"][0]["resource"]["manifest"] == JOB


KEYS = st.text("abc", min_size=1, max_size=3)
METADATA = st.fixed_dictionaries(
    {"name": KEYS},
    optional={
        "labels": st.dictionaries(KEYS, KEYS, max_size=2) | st.none(),
        "annotations": st.dictionaries(KEYS, KEYS),
    },
)


@given(METADATA, st.booleans(), st.sampled_from([None, True, False]))
def test_a_label_is_added_and_nothing_else_changes(metadata: Object, sort: bool, flow: bool | None) -> None:
    document = {"kind": "Job", "metadata": metadata, "spec": {"n": 1}}
    text = yaml.safe_dump(document, sort_keys=sort, default_flow_style=flow)
    found = with_label(text, "k", "v")
    if "labels" in metadata and metadata["labels"] is None:
        assert found is None
    else:
        labels = {**(metadata.get("labels") or {}), "k": "v"}
        assert found is not None
        assert yaml.safe_load(found) == {**document, "metadata": {**metadata, "labels": labels}}


@given(st.text("{}[]:\"' \n-&*#abck", max_size=60))
def test_any_text_is_either_labelled_or_left(text: str) -> None:
    found = with_label(text, "k", "v")
    assert found is None or yaml.safe_load(found)["metadata"]["labels"]["k"] == "v"
