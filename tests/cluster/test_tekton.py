"""Live Tekton on fake nodes: that runs run, what holds them, and what Penstock's gates and runner make of that."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock import ContainerJob, RunFailed, TektonRunner, Workflow, WorkflowParam
from penstock.runners import clusters
from testbed.errors import ApiError
from testbed.instance import Testbed
from tests.cluster.support import fresh_namespace
from tests.cluster.tekton_runs import (
    EXIT_CODE,
    RESULT,
    RUN_TIME,
    condition,
    create,
    ended,
    fake_task,
    left,
    let_go,
    path,
    pipeline,
    pods,
    results,
    run,
    task_runs,
    wait_reason,
)


@pytest.fixture(scope="module")
def bed(testbed: Callable[..., Testbed]) -> Testbed:
    return testbed("kwok", "tekton")


@pytest.fixture
def ns(bed: Testbed) -> str:
    return fresh_namespace(bed)


TWO = pipeline(
    {"name": "first", "taskSpec": fake_task(cpu="10m")},
    {"name": "second", "taskSpec": fake_task(cpu="10m"), "runAfter": ["first"]},
)


# -- Tekton itself -----------------------------------------------------------------------------------------------------


def test_a_pipeline_runs_its_tasks_in_order(bed: Testbed, ns: str) -> None:
    create(bed, ns, run("PipelineRun", "two", TWO))
    assert condition(ended(bed, ns, "PipelineRun", "two"))["reason"] == "Succeeded"
    first, second = (task_runs(bed, ns)[name]["status"] for name in ("first", "second"))
    assert first["completionTime"] <= second["startTime"]
    assert [one["status"]["phase"] for one in pods(bed, ns)] == ["Succeeded", "Succeeded"]


def test_what_is_wrong_is_refused_when_it_is_created(bed: Testbed, ns: str) -> None:
    wrong = run("TaskRun", "wrong", {"taskSpec": fake_task(), "status": "Later"})
    with pytest.raises(ApiError, match="TaskRunPending"):
        create(bed, ns, wrong)


def test_both_versions_show_the_same_run(bed: Testbed, ns: str) -> None:
    create(bed, ns, run("TaskRun", "one", {"taskSpec": fake_task(), "status": "TaskRunPending"}))
    old = bed.get(path(ns, "TaskRun", "one").replace("/v1/", "/v1beta1/"))
    assert (old["apiVersion"], old["spec"]["status"]) == ("tekton.dev/v1beta1", "TaskRunPending")


def test_a_pending_task_has_no_pod_until_it_is_let_go(bed: Testbed, ns: str) -> None:
    create(bed, ns, run("TaskRun", "one", {"taskSpec": fake_task(), "status": "TaskRunPending"}))
    wait_reason(bed, ns, "TaskRun", "one", "TaskRunPending")
    held = bed.get(path(ns, "TaskRun", "one"))
    assert "startTime" not in held["status"], "its clock stands still"
    assert pods(bed, ns) == []
    let_go(bed, ns, "TaskRun", "one")
    assert condition(ended(bed, ns, "TaskRun", "one"))["status"] == "True"
    assert len(pods(bed, ns)) == 1


def test_a_pending_pipeline_has_no_tasks_until_it_is_let_go(bed: Testbed, ns: str) -> None:
    create(bed, ns, run("PipelineRun", "two", {**TWO, "status": "PipelineRunPending"}))
    wait_reason(bed, ns, "PipelineRun", "two", "PipelineRunPending")
    assert "startTime" not in bed.get(path(ns, "PipelineRun", "two"))["status"]
    assert task_runs(bed, ns) == {}
    let_go(bed, ns, "PipelineRun", "two")
    assert condition(ended(bed, ns, "PipelineRun", "two"))["status"] == "True"
    assert set(task_runs(bed, ns)) == {"first", "second"}


def test_what_has_started_cannot_be_made_to_wait(bed: Testbed, ns: str) -> None:
    create(bed, ns, run("TaskRun", "one", {"taskSpec": fake_task()}, **{RUN_TIME: "forever"}))
    wait_reason(bed, ns, "TaskRun", "one", "Running")
    with pytest.raises(ApiError, match="cannot be Pending after it is started"):
        patch(bed, path(ns, "TaskRun", "one"), {"spec": {"status": "TaskRunPending"}})


def test_a_task_that_fails_stops_the_pipeline(bed: Testbed, ns: str) -> None:
    tasks = (
        {"name": "bad", "taskSpec": fake_task(exit_code="3")},
        {"name": "after", "taskSpec": fake_task(), "runAfter": ["bad"]},
    )
    create(bed, ns, run("PipelineRun", "fails", pipeline(*tasks)))
    found = ended(bed, ns, "PipelineRun", "fails")
    assert (condition(found)["status"], condition(found)["reason"]) == ("False", "Failed")
    assert set(task_runs(bed, ns)) == {"bad"}
    bad = task_runs(bed, ns)["bad"]["status"]
    assert bad["steps"][0]["terminated"]["exitCode"] == 3
    assert [one["name"] for one in found["status"]["skippedTasks"]] == ["after"]


def test_a_result_is_handed_on(bed: Testbed, ns: str) -> None:
    word = {"name": "word", "value": "$(tasks.make.results.word)"}
    tasks = (
        {"name": "make", "taskSpec": fake_task(results=("word",), result=left(word='gate "7"'))},
        {"name": "take", "taskSpec": fake_task(params=("word",)), "params": [word]},
    )
    spec = pipeline(*tasks, results=[{"name": "last", "value": "$(tasks.make.results.word)"}])
    create(bed, ns, run("PipelineRun", "hands-on", spec))
    found = ended(bed, ns, "PipelineRun", "hands-on")
    assert condition(found)["status"] == "True", condition(found)
    assert results(found) == {"last": 'gate "7"'}
    take = task_runs(bed, ns)["take"]
    assert take["spec"]["params"] == [{"name": "word", "value": 'gate "7"'}]
    pod = bed.get(f"/api/v1/namespaces/{ns}/pods/{take['status']['podName']}")
    assert 'gate "7"' in pod["spec"]["containers"][0]["args"]


def test_a_result_that_is_missing_fails_the_pipeline(bed: Testbed, ns: str) -> None:
    word = {"name": "word", "value": "$(tasks.make.results.word)"}
    tasks = (
        {"name": "make", "taskSpec": fake_task(results=("word",))},
        {"name": "take", "taskSpec": fake_task(params=("word",)), "params": [word]},
    )
    create(bed, ns, run("PipelineRun", "missing", pipeline(*tasks)))
    found = condition(ended(bed, ns, "PipelineRun", "missing"))
    assert (found["status"], found["reason"]) == ("False", "PipelineValidationFailed")
    assert 'did not emit the result "word"' in found["message"]
    assert set(task_runs(bed, ns)) == {"make"}


def patch(bed: Testbed, where: str, change: Mapping[str, Any]) -> None:
    bed.raw("PATCH", where, dict(change), "application/merge-patch+json")


# -- penstock gate -----------------------------------------------------------------------------------------------------


def gated(folder: Path, document: Mapping[str, Any], *options: str) -> dict[str, Any]:
    """As `penstock gate` writes it, and checked: `penstock ungate` gives back what there was."""
    plain, held, back = (folder / name for name in ("plain.yaml", "held.yaml", "back.yaml"))
    plain.write_text(yaml.safe_dump(dict(document), sort_keys=False))
    for words in (["gate", str(plain), *options, "-o", str(held)], ["ungate", str(held), "-o", str(back)]):
        subprocess.run([sys.executable, "-m", "penstock", *words], check=True, capture_output=True, timeout=180)
    assert yaml.safe_load(back.read_text()) == document
    found: dict[str, Any] = yaml.safe_load(held.read_text())
    return found


def queued(kind: str, name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    document = run(kind, name, spec)
    document["metadata"] = {"name": name, "labels": {"kueue.x-k8s.io/queue-name": "team-a"}}
    return document


def test_gate_by_workflow(bed: Testbed, ns: str, tmp_path: Path) -> None:
    create(bed, ns, gated(tmp_path, queued("PipelineRun", "two", TWO), "--unit", "workflow"))
    wait_reason(bed, ns, "PipelineRun", "two", "PipelineRunPending")
    held = bed.get(path(ns, "PipelineRun", "two"))
    assert json.loads(held["metadata"]["annotations"]["penstock/gate"])["held"] == "penstock"
    assert task_runs(bed, ns) == {}
    let_go(bed, ns, "PipelineRun", "two")
    assert condition(ended(bed, ns, "PipelineRun", "two"))["status"] == "True"


def test_gate_of_a_task_run(bed: Testbed, ns: str, tmp_path: Path) -> None:
    create(bed, ns, gated(tmp_path, queued("TaskRun", "one", {"taskSpec": fake_task(cpu="10m")})))
    wait_reason(bed, ns, "TaskRun", "one", "TaskRunPending")
    assert pods(bed, ns) == []
    let_go(bed, ns, "TaskRun", "one")
    assert condition(ended(bed, ns, "TaskRun", "one"))["status"] == "True"


def webhook(bed: Testbed, namespace: str, kind: str) -> None:
    """Stands for the webhook of a controller, with what the labels of a gated run promise it: an admission policy of the API server."""
    group, resource, label, change = {
        "taskruns": ("tekton.dev", "taskruns", "taskruns", "Object{spec: Object.spec{status: 'TaskRunPending'}}"),
        "pods": (
            "",
            "pods",
            "pods",
            "Object{spec: Object.spec{schedulingGates: [Object.spec.schedulingGates{name: 'penstock/admission'}]}}",
        ),
    }[kind]
    name = f"{namespace}-{kind}"
    rule = {"apiGroups": [group], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": [resource]}
    within = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}
    is_finally = (
        "has(object.metadata.labels) && object.metadata.labels[?'tekton.dev/memberOf'].orValue('') == 'finally'"
    )
    bed.apply(
        [
            {
                "apiVersion": "admissionregistration.k8s.io/v1",
                "kind": "MutatingAdmissionPolicy",
                "metadata": {"name": name},
                "spec": {
                    "reinvocationPolicy": "Never",
                    "matchConstraints": {
                        "resourceRules": [rule],
                        "objectSelector": {"matchLabels": {"penstock/gate": label}},
                        **within,
                    },
                    "matchConditions": [{"name": "finally-never-waits", "expression": f"!({is_finally})"}],
                    "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": change}}],
                },
            },
            {
                "apiVersion": "admissionregistration.k8s.io/v1",
                "kind": "MutatingAdmissionPolicyBinding",
                "metadata": {"name": name},
                "spec": {"policyName": name, "matchResources": within},
            },
        ]
    )
    # A policy counts some time after it is created; asking is the only way to know.
    probe: dict[str, Any] = run("TaskRun", "probe", {"taskSpec": fake_task()})
    where, field = path(namespace, "TaskRun"), "status"
    if kind == "pods":
        probe = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "probe"},
            "spec": {"containers": [{"name": "a", "image": "b"}]},
        }
        where, field = f"/api/v1/namespaces/{namespace}/pods", "schedulingGates"
    probe["metadata"]["labels"] = {"penstock/gate": label}
    bed.wait(
        lambda: bed.raw("POST", where, probe, params={"dryRun": "All"})["spec"].get(field),
        f"the policy {name} to count",
    )


STAGES = pipeline(
    {"name": "first", "taskSpec": fake_task(cpu="10m")},
    {"name": "second", "taskSpec": fake_task(cpu="10m"), "runAfter": ["first"]},
    **{"finally": [{"name": "clean", "taskSpec": fake_task()}]},
)


@pytest.mark.parametrize("unit", ["stage", "task"])
def test_gate_by_stage_holds_each_task_run_but_not_finally(bed: Testbed, ns: str, tmp_path: Path, unit: str) -> None:
    webhook(bed, ns, "taskruns")
    create(bed, ns, gated(tmp_path, queued("PipelineRun", "stages", STAGES), "--unit", unit))
    made = bed.get(path(ns, "PipelineRun", "stages"))["metadata"]
    whole = made["uid"]
    assert [one["task"] for one in json.loads(made["annotations"]["penstock/gate-tasks"])] == ["first", "second"]
    for stage in ("first", "second"):
        held = bed.wait(partial(task_run, bed, ns, stage), f"TaskRun {stage}")
        name = held["metadata"]["name"]
        labels = held["metadata"]["labels"]
        assert labels["kueue.x-k8s.io/queue-name"] == "team-a" and labels["tekton.dev/pipelineRunUID"] == whole
        wait_reason(bed, ns, "TaskRun", name, "TaskRunPending")
        assert len(pods(bed, ns)) == ["first", "second"].index(stage), "only what was let go has a pod"
        let_go(bed, ns, "TaskRun", name)
    assert condition(ended(bed, ns, "PipelineRun", "stages"))["status"] == "True"
    assert condition(task_runs(bed, ns)["clean"])["status"] == "True"


def test_gate_by_pods(bed: Testbed, ns: str, tmp_path: Path) -> None:
    webhook(bed, ns, "pods")
    create(bed, ns, gated(tmp_path, queued("PipelineRun", "stages", STAGES), "--by", "pods"))
    for number in (1, 2):
        held = bed.wait(
            lambda: next((one for one in pods(bed, ns) if one["spec"].get("schedulingGates")), None), "a gated pod"
        )
        assert len(pods(bed, ns)) == number
        assert "nodeName" not in held["spec"]
        patch(bed, f"/api/v1/namespaces/{ns}/pods/{held['metadata']['name']}", {"spec": {"schedulingGates": None}})
        bed.wait(partial(has_succeeded, bed, ns, held), "the pod to end")
    assert condition(ended(bed, ns, "PipelineRun", "stages"))["status"] == "True"
    assert len(pods(bed, ns)) == 3


def task_run(bed: Testbed, namespace: str, task: str) -> dict[str, Any] | None:
    return task_runs(bed, namespace).get(task)


def has_succeeded(bed: Testbed, namespace: str, pod: Mapping[str, Any]) -> bool:
    found = bed.get(f"/api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}")
    return bool(found["status"]["phase"] == "Succeeded")


def test_a_pipeline_that_is_cancelled_takes_its_held_tasks_along(bed: Testbed, ns: str, tmp_path: Path) -> None:
    webhook(bed, ns, "taskruns")
    create(bed, ns, gated(tmp_path, queued("PipelineRun", "stages", TWO)))
    held = bed.wait(lambda: task_runs(bed, ns).get("first"), "TaskRun first")
    wait_reason(bed, ns, "TaskRun", held["metadata"]["name"], "TaskRunPending")
    patch(bed, path(ns, "PipelineRun", "stages"), {"spec": {"status": "Cancelled"}})
    assert condition(ended(bed, ns, "PipelineRun", "stages"))["reason"] == "Cancelled"
    assert condition(ended(bed, ns, "TaskRun", held["metadata"]["name"]))["reason"] == "TaskRunCancelled"
    assert pods(bed, ns) == []


# -- TektonRunner ------------------------------------------------------------------------------------------------------


@pytest.fixture
def runner(bed: Testbed, ns: str, monkeypatch: pytest.MonkeyPatch) -> TektonRunner:
    monkeypatch.setenv("PENSTOCK_KUBECTL", str(bed.binary("kubectl")))
    monkeypatch.setenv("KUBECONFIG", str(bed.kubeconfig))
    monkeypatch.setattr(clusters, "FIRST", 0.1)
    return TektonRunner(namespace=ns)


def flow(**annotations: str) -> Workflow:
    text = WorkflowParam("text", str, "hi")
    say = ContainerJob("say", "none", ["echo", text], outputs=[WorkflowParam("word", str)])
    more = ContainerJob("more", "none", ["echo", say.outputs["word"]])
    extra = {"metadata": {"annotations": annotations}} if annotations else {}
    return Workflow("hello", [say, more], params=[text], outputs={"word": say.outputs["word"]}, extra=extra)


def test_runner_follows_a_run_to_its_end(bed: Testbed, ns: str, runner: TektonRunner) -> None:
    done = runner.submit(flow(**{RESULT: left(word="gate")}), text="hello there").wait(180)
    assert (done.status, done.ok, done.outputs) == ("succeeded", True, {"word": "gate"})
    assert done.id.startswith(f"{ns}/hello-")
    assert [(one.name, one.state) for one in done.tasks] == [("say", "succeeded"), ("more", "succeeded")]
    assert done.check() is done
    say = bed.get(f"/api/v1/namespaces/{ns}/pods/{task_runs(bed, ns)['say']['status']['podName']}")
    assert "hello there" in say["spec"]["containers"][0]["args"]


def test_runner_tells_of_a_failure(bed: Testbed, ns: str, runner: TektonRunner) -> None:
    done = runner.submit(flow(**{EXIT_CODE: "3"})).wait(180)
    assert (done.status, done.ok) == ("failed", False)
    with pytest.raises(RunFailed, match="failed"):
        done.check()
    assert done.failures == {"say": '"step-main" exited with code 3: Error'}
    assert [(one.name, one.state) for one in done.tasks] == [("say", "failed"), ("more", "skipped")]


def test_runner_shows_a_run_that_waits(bed: Testbed, ns: str, runner: TektonRunner) -> None:
    waiting = runner.submit(flow(**{RESULT: left(word="gate"), RUN_TIME: "forever"}))
    bed.wait(lambda: waiting.status == "running", "the run to be seen running")
    assert waiting.wait(timeout=0.1).status == "running"
    waiting.cancel()
    bed.wait(lambda: task_runs(bed, ns) == {} and pods(bed, ns) == [], "the run and its pods to be gone")


def test_a_run_that_waits_keeps_its_parameters(bed: Testbed, ns: str, runner: TektonRunner) -> None:
    """Both runs refer to one pipeline by its name, and the later one has written it again."""
    for document in runner.render(flow(**{RESULT: left(word="gate")}), text="one"):
        if document["kind"] == "PipelineRun":
            document["metadata"] = {"name": "waits", "annotations": document["metadata"]["annotations"]}
            document["spec"]["status"] = "PipelineRunPending"
            create(bed, ns, document)
        else:
            document["metadata"]["namespace"] = ns
            bed.apply([document])
    other = runner.submit(flow(**{RESULT: left(word="gate")}), text="two").wait(180)
    assert other.ok
    let_go(bed, ns, "PipelineRun", "waits")
    assert condition(ended(bed, ns, "PipelineRun", "waits"))["status"] == "True"
    said = {one["metadata"]["name"]: one["spec"]["containers"][0]["args"] for one in pods(bed, ns)}
    assert "one" in said["waits-say-pod"] and "two" in said[f"{other.name}-say-pod"]
