"""Documents that Kubernetes' API server would refuse, whatever their own project says of them: P839."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

POD = "{containers: [{name: main, image: i, command: ['true']}], restartPolicy: Never}"
KINDS = {
    "argo": """
kind: Workflow
apiVersion: argoproj.io/v1alpha1
spec: {entrypoint: main, templates: [{name: main, container: {image: i, command: ['true']}}]}
""",
    "tekton": """
kind: TaskRun
apiVersion: tekton.dev/v1
spec: {taskSpec: {steps: [{name: main, image: i, command: ['true']}]}}
""",
    "jobset": f"""
kind: JobSet
apiVersion: jobset.x-k8s.io/v1alpha2
spec: {{replicatedJobs: [{{name: w, template: {{spec: {{template: {{spec: {POD}}}}}}}}}]}}
""",
    "job": f"""
kind: Job
apiVersion: batch/v1
spec: {{template: {{spec: {POD}}}}}
""",
}
WRONG = {
    "metadata: {labels: {a: b}}": "has no name",
    "metadata: {name: Bad_Name}": "'Bad_Name' is no name",
    "metadata: {generateName: bad_-}": "'bad_-' is no generateName",
    "metadata: {name: w, labels: {'a b': c}}": "'a b' is no key of a label",
    "metadata: {name: w, labels: {a: 'x y'}}": "'x y' is no value of a label",
    "metadata: {name: w, labels: {a: 3}}": "'a' is not text",
    "metadata: {name: w, annotations: {a/b/c: d}}": "'a/b/c' is no key of an annotation",
}
RIGHT = (
    "metadata: {generateName: a.b-}",
    "metadata: {name: w, labels: {kueue.x-k8s.io/queue-name: team_A.1, a: ''}, annotations: {A.b/c: 'any {{text}}'}}",
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "w.yaml"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("metadata", "message"), WRONG.items())
def test_what_the_api_server_would_refuse_is_not_run_or_gated(
    penstock: Any, file: Path, kind: str, metadata: str, message: str
) -> None:
    file.write_text(metadata + KINDS[kind])
    for command in (("run", "w.yaml", "--on", "container=process"), ("gate", "w.yaml", "--unit", "workflow")):
        said = penstock(*command)
        assert said.code == 2 and "P839" in said.err and message in said.err and "w.yaml:1" in said.err, said.err
    said = penstock("plan", "w.yaml")
    assert said.code == 0 and "warning[P839]" in said.err and message in said.err
    said = penstock("convert", "w.yaml", "--to", kind, "--strict")
    assert said.code == 0 and "P839" in said.err and message in said.err
    assert penstock("run", "w.yaml", "--dry").code == 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("metadata", RIGHT)
def test_what_it_takes_is_taken(penstock: Any, file: Path, kind: str, metadata: str) -> None:
    file.write_text(metadata + KINDS[kind])
    said = penstock("plan", "w.yaml")
    assert said.code == 0 and "P839" not in said.err, said.err
