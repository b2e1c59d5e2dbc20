"""Every example manifest there is: read, converted to everything, walked through, and some of them run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.author.explain import explain
from penstock.author.jobs import Authored
from penstock.errors import UserError
from penstock.formats import registry, schema
from penstock.graph import codec
from penstock.graph.check import errors
from penstock.graph.model import Workflow
from penstock.runners.local import LocalRunner, Run
from penstock.service import conversion, manifests
from tests.formats.corpus import CORPUS, files, label, needs_corpus

FILES = files("argo", "tekton", "jobset")


def workflows(path: Path) -> list[Workflow]:
    own = manifests.library_of(path)
    library = manifests.with_neighbours(own, path)
    return [registry.read(library, document).workflow for document in registry.roots(own)]


@needs_corpus
@pytest.mark.parametrize("path", FILES, ids=label)
def test_it_is_read_and_converted_or_refused_with_a_code(path: Path) -> None:
    for workflow in workflows(path):
        assert errors(workflow) == []
        assert codec.from_text(codec.to_yaml(workflow)) == workflow
        for to in ("argo", "tekton", "jobset", "job"):
            try:
                written = conversion.render(workflow, to)
            except UserError as refused:
                assert all(problem.code.startswith("P8") and problem.fix for problem in refused.problems)
            else:
                assert [finding for one in written.documents for finding in schema.check(one)] == []
        for to in ("mermaid", "dot", "penstock"):
            assert conversion.write(workflow, to).text


def sorted_out(workflow: Workflow) -> Any:
    """As data, with the definitions in the order of their names."""
    data = codec.to_data(workflow)
    data["definitions"] = sorted(data.get("definitions", ()), key=lambda one: one["name"])
    return data


@needs_corpus
@pytest.mark.parametrize("path", FILES, ids=label)
def test_as_python_it_builds_the_same_workflow(path: Path) -> None:
    for workflow in workflows(path):
        names: dict[str, Any] = {}
        exec(compile(explain(workflow), "flow.py", "exec"), names)
        built = [one for one in names.values() if isinstance(one, Authored) and one.name == workflow.name]
        assert any(sorted_out(one.graph) == sorted_out(workflow) for one in built)


@needs_corpus
def test_every_workflow_is_walked_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    stuck = []
    walked = 0
    with LocalRunner(dry=True, jobs=8) as runner:
        for path in FILES:
            for workflow in workflows(path):
                run = runner.submit(workflow).wait(60)
                walked += 1
                if not run.ok:
                    stuck.append((label(path), run.status, run.failures))
    assert stuck == []
    assert walked > 200


RUNS = (
    "argo/coinflip-recursive.yaml",
    "argo/conditional-artifacts.yaml",
    "argo/dag-diamond.yaml",
    "argo/dag-nested.yaml",
    "argo/exit-handler-with-param.yaml",
    "argo/fibonacci-seq-conditional-param.yaml",
    "argo/global-outputs.yaml",
    "argo/global-parameters-from-configmap.yaml",
    "argo/loops-dag.yaml",
    "argo/loops-param-argument.yaml",
    "argo/loops-sequence.yaml",
    "argo/output-parameter.yaml",
    "argo/retry-with-steps.yaml",
    "argo/scripts-python.yaml",
    "argo/skipped-output-defaults/expression-fallback.yaml",
    "argo/status-reference.yaml",
    "argo/steps.yaml",
    "argo/withsequence-nested-result.yaml",
    "tekton/v1/pipelineruns/beta/ignore-task-error.yaml",
    "tekton/v1/pipelineruns/beta/pipelinerun-with-matrix-emitting-results.yaml",
    "tekton/v1/pipelineruns/mapping-workspaces.yaml",
    "tekton/v1/pipelineruns/pipelinerun-array-results-substitution.yaml",
    "tekton/v1/pipelineruns/pipelinerun-results-with-params.yaml",
    "tekton/v1/pipelineruns/pipelinerun-task-execution-status.yaml",
    "tekton/v1/pipelineruns/pipelinerun-with-parallel-tasks-using-pvc.yaml",
    "tekton/v1/pipelineruns/pipelinerun-with-when-expressions.yaml",
    "tekton/v1/taskruns/secret-volume.yaml",
    "tekton/v1/taskruns/task-result.yaml",
)
"""Whose commands any machine has."""


@needs_corpus
@pytest.mark.parametrize("name", RUNS)
def test_it_runs_here(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not (CORPUS / name).exists():
        pytest.skip(f"{name} is not in this sample")
    monkeypatch.chdir(tmp_path)
    for workflow in workflows(CORPUS / name):
        run: Run = LocalRunner(on={"container": "process"}, jobs=4).run(workflow)
        assert run.ok, (run.status, run.failures)
    assert {entry.name for entry in tmp_path.iterdir()} == {
        ".penstock"
    }  # nothing is left where somebody happens to stand
