"""How the comparison with the real controllers (tests/cluster/agreement) reads what they tell, and what it takes for a difference. Without a cluster."""

from __future__ import annotations

from typing import Any

from tests.cluster.agreement import argo, examples, ours, tekton
from tests.cluster.agreement.intended import Case, explained
from tests.cluster.agreement.told import Step, Told, differences


def node(name: str, kind: str = "Pod", phase: str = "Succeeded", around: str = "", **more: Any) -> tuple[str, Any]:
    return name, {
        "id": name,
        "name": name,
        "displayName": "shown",
        "type": kind,
        "phase": phase,
        "boundaryID": around,
        **more,
    }


def workflow(phase: str, *nodes: tuple[str, Any]) -> dict[str, Any]:
    return {"metadata": {"name": "w"}, "status": {"phase": phase, "nodes": dict(nodes)}}


def test_nodes_of_argo_become_paths_with_the_index_of_loops() -> None:
    found = argo.told(
        workflow(
            "Succeeded",
            node("w", "Steps"),
            node("w[0]", "StepGroup", around="w"),
            node("w[0].each(0:a.b)", "DAG", around="w"),
            node("w[0].each(0:a.b).inner", around="w[0].each(0:a.b)"),
            node("w[0].each(1:c(d))", phase="Skipped", around="w"),
            node("w[0].each(0:a.b).onExit", around="w"),
            node("w.onExit"),
        ),
        "entry",
    )
    assert {path: step.outcome for path, step in found.steps.items()} == {
        "each[0]": "succeeded",
        "each[0]/inner": "succeeded",
        "each[1]": "skipped",
        "each-onExit[0]": "succeeded",
        "onExit": "succeeded",
    }


def test_of_a_step_that_is_tried_again_the_last_try_counts() -> None:
    found = argo.told(
        workflow(
            "Failed",
            node("w", "Retry", "Failed", children=["w(0)", "w(1)"]),
            node("w(0)", "DAG", "Failed"),
            node("w(0).a", phase="Failed", around="w(0)"),
            node("w(1)", "DAG", "Failed"),
            node("w(1).a", phase="Succeeded", around="w(1)"),
        ),
        "entry",
    )
    assert found.end == "failed"
    assert found.steps == {"entry": Step("failed", "", 2), "entry/a": Step("succeeded")}


def test_a_workflow_without_nodes_was_refused() -> None:
    assert argo.told(workflow("Error") | {"status": {"phase": "Error", "message": "invalid spec"}}, "").end == "refused"


def test_tasks_of_tekton_have_the_reason_why_they_were_skipped() -> None:
    done = {"conditions": [{"type": "Succeeded", "status": "True"}]}
    child = {"kind": "TaskRun", "metadata": {"name": "r-m-1"}, "status": done}
    other = {"kind": "TaskRun", "metadata": {"name": "r-m-0"}, "status": {**done, "retriesStatus": [{}]}}
    status = {
        **done,
        "pipelineSpec": {"tasks": [{"name": "m", "matrix": {}}]},
        "childReferences": [{"name": name, "pipelineTaskName": "m"} for name in ("r-m-1", "r-m-0")],
        "skippedTasks": [{"name": "s", "reason": "When Expressions evaluated to false"}],
    }
    found = tekton.told({"kind": "PipelineRun", "metadata": {}, "status": status}, [child, other], "")
    assert [(path, step.tries, step.reason) for path, step in found.steps.items()] == [
        ("m[0]", 2, ""),
        ("m[1]", 1, ""),
        ("s", 0, "when"),
    ]


def test_what_never_came_to_be_was_omitted() -> None:
    theirs = Told("failed", steps={"a": Step("failed", tries=2)})
    assert not differences(theirs, Told("failed", steps={"a": Step("failed", tries=2), "b": Step("omitted")}))
    found = differences(theirs, Told("succeeded", steps={"a": Step("failed", tries=1), "b": Step("skipped")}))
    assert [str(one) for one in found] == [
        "the run: theirs failed, ours succeeded",
        "a: theirs failed after 2 tries, ours failed after 1",
        "b: theirs absent, ours skipped",
    ]


def test_a_rule_explains_what_it_is_about_and_no_more() -> None:
    theirs = Told("failed", "a is not there", {"a": Step("succeeded")})
    mine = Told("failed", "", {"a": Step("failed"), "b": Step("errored", "it has no value")})
    rules, left = explained(Case("argo", (), theirs, mine, differences(theirs, mine)))
    assert [rule.id for rule in rules] == ["a condition, loop or argument that has no value"]
    assert [one.path for one in left] == ["a"]


LOOP = """
apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {generateName: l-}
spec:
  entrypoint: main
  arguments: {parameters: [{name: p, value: tails}]}
  templates:
  - name: main
    steps:
    - - {name: each, template: leaf, withItems: [x, y]}
    - - {name: after, template: last, when: "{{workflow.parameters.p}} == heads"}
  - {name: leaf, script: {image: i, source: s}, timeout: 1s, retryStrategy: {limit: 1, backoff: {duration: 1h}}}
  - {name: last, container: {image: i}, volumes: [{name: v, persistentVolumeClaim: {claimName: c}}]}
"""


def test_every_leaf_that_a_run_comes_to_fails_in_turn(tmp_path: Any) -> None:
    file = tmp_path / "loop.yaml"
    file.write_text(LOOP)
    (example,) = examples.read(file)
    first = ours.Run(examples.numbered(example))
    assert first.told.end == "succeeded" and first.came_to == {0}  # the condition does not hold: `last` has no pod
    names = [one.name for one in examples.passes(example, first.came_to, 9, 1)]
    assert names == [one.name for one in examples.passes(example, first.came_to, 9, 1)]
    assert {"leaf fails", "results 'heads'"} <= set(names)
    failed = ours.Run(examples.failing(example, 0)).told
    assert failed.end == "failed"
    assert [(path, step.outcome, step.tries) for path, step in failed.steps.items() if step.tries] == [
        ("each[0]", "failed", 2),
        ("each[1]", "failed", 2),
    ]


def test_documents_are_made_to_start_on_fake_nodes(tmp_path: Any) -> None:
    file = tmp_path / "loop.yaml"
    file.write_text(LOOP)
    (example,) = examples.read(file)
    _, leaf, last = example.root["spec"]["templates"]
    assert leaf == {
        "name": "leaf",
        "script": {"image": "i", "source": "s", "command": ["none"]},
        "retryStrategy": {"limit": 1},
    }
    assert last["volumes"] == [{"name": "v", "emptyDir": {}}] and last["container"]["command"] == ["none"]
