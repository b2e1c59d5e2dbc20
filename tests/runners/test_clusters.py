"""Runners of clusters, against a stand-in for kubectl: what is sent, how it is followed, what comes back. That the real systems take the
manifests and run them is the business of the tests with a real control plane."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock import (
    ArgoRunner,
    ContainerJob,
    JobSetRunner,
    LocalRunner,
    RunFailed,
    TektonRunner,
    Workflow,
    WorkflowParam,
)
from penstock.errors import NotFound, PlanError, UserError
from penstock.formats import schema
from penstock.runners import clusters


class Cluster:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()

    def shows(self, *statuses: Any) -> None:
        lines = [one if isinstance(one, str) else json.dumps(one) for one in statuses]
        (self.folder / "next").write_text("\n".join(lines))

    def objects(self) -> list[dict[str, Any]]:
        return [json.loads(file.read_text()) for file in self.folder.iterdir() if "." in file.name]

    def calls(self) -> list[list[str]]:
        return [json.loads(line) for line in (self.folder / "calls").read_text().splitlines()]


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    found = Cluster(tmp_path / "cluster")
    script = Path(__file__).with_name("stand_in_cluster.py")
    monkeypatch.setenv("PENSTOCK_KUBECTL", f"{sys.executable} -S -E {script}")
    monkeypatch.setenv("CLUSTER", str(found.folder))
    monkeypatch.setattr(clusters, "FIRST", 0.0)
    monkeypatch.setattr(clusters, "LONGEST", 0.0)
    return found


def flow() -> Workflow:
    text = WorkflowParam("text", str, "hi")
    say = ContainerJob("say", "busybox", ["echo", text], inputs={})
    more = ContainerJob("more", "busybox", ["echo", "more"], cpu=1).after(say)
    return Workflow("hello", [say, more], params=[text], queue="team-a")


RUNNERS = {ArgoRunner: "Workflow", TektonRunner: "PipelineRun", JobSetRunner: "JobSet"}


@pytest.mark.parametrize("runner", RUNNERS, ids=lambda one: one.__name__)
def test_render_gives_manifests_that_the_system_would_take(runner: Any) -> None:
    found = runner().render(flow(), text="hello there")
    assert [one["kind"] for one in found if one["kind"] in RUNNERS.values()] == [RUNNERS[runner]]
    assert [finding for one in found for finding in schema.check(one)] == []
    assert list(yaml.safe_load_all(str(found))) == list(found)
    assert "hello there" in str(found)
    run = next(one for one in found if one["kind"] == RUNNERS[runner])
    assert run["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team-a"
    assert found.report.losses == 0


def test_run_submits_and_follows_to_the_end(cluster: Cluster) -> None:
    nodes = {
        "a": {
            "name": "hello-abc12.say",
            "displayName": "say",
            "type": "Pod",
            "phase": "Succeeded",
            "id": "hello-abc12-1",
            "templateName": "say",
        }
    }
    cluster.shows({}, {"phase": "Running"}, "away", {"phase": "Running"}, {"phase": "Succeeded", "nodes": nodes})
    run = ArgoRunner().run(flow())
    assert run.ok and run.status == "succeeded" and run.id == f"team/{run.name}"
    assert [(task.name, task.state) for task in run.tasks] == [("say", "succeeded")]
    assert run.logs("say").strip() == "hello from hello-abc12-say-1"
    assert run.check() is run
    assert [one["kind"] for one in cluster.objects()] == ["Workflow"]


def test_a_tekton_run_that_waits_means_what_was_submitted(cluster: Cluster) -> None:
    """Its Pipeline is looked up when it starts: a later version of the workflow must not stand under the same name."""

    def version(word: str) -> Workflow:
        return Workflow("hello", [ContainerJob("say", "busybox", ["echo", word])])

    named = []
    for word in ("first", "second", "first"):
        TektonRunner().submit(version(word))
        [run] = [one for one in cluster.objects() if one["kind"] == "PipelineRun"]
        named.append(run["spec"]["pipelineRef"]["name"])
    meant = {one["metadata"]["name"]: str(one["spec"]) for one in cluster.objects() if one["kind"] == "Pipeline"}
    assert len(meant) == 2 and all(name.startswith("hello-") for name in meant)
    assert ["first" in meant[name] for name in named] == [True, False, True]


def test_what_argos_executor_says_is_not_the_programs() -> None:
    told = 'time=2026-01-01T00:00:00Z level=INFO msg="sub-process exited" argo=true error=<nil>\n'
    also = '{"time":"2026-01-01T00:00:00Z","msg":"sub-process exited","argo":true}\n'
    own = "time=now\n{} argo\nargo=true is mine\nno end of line"
    assert clusters._without_executor_lines(f"{told}{also}{own}") == own


def test_a_failure_is_told(cluster: Cluster) -> None:
    nodes = {"a": {"displayName": "say", "type": "Pod", "phase": "Failed", "message": "exit code 2"}}
    cluster.shows({"phase": "Failed", "message": "child failed", "nodes": nodes})
    run = ArgoRunner().run(flow())
    assert run.status == "failed" and run.failures == {"say": "exit code 2"}
    with pytest.raises(RunFailed, match="say: exit code 2"):
        run.check()


def test_task_runs_tell_how_the_tasks_of_a_pipeline_stand(cluster: Cluster) -> None:
    cluster.shows(
        {
            "conditions": [{"type": "Succeeded", "status": "False", "message": "Tasks Completed: 2 (Failed: 1)"}],
            "childReferences": [
                {"name": "x-1", "pipelineTaskName": "say"},
                {"name": "x-2", "pipelineTaskName": "more"},
            ],
        }
    )
    (cluster.folder / "beside").write_text(
        json.dumps(
            [task_run("more", "False", "exited with code 3", "x-2-pod-retry1"), task_run("say", "True", "", "x-1-pod")]
        )
    )
    run = TektonRunner().run(flow())
    assert [(one.name, one.state) for one in run.tasks] == [("say", "succeeded"), ("more", "failed")]
    assert run.failures == {"more": "exited with code 3"}
    assert run.logs("more").strip() == "hello from x-2-pod-retry1"
    assert f"tekton.dev/pipelineRun={run.name}" in cluster.calls()[-2]
    # A pod of Tekton has containers that prepare it; only what the steps printed is the task's.
    assert cluster.calls()[-1][:6] == ["logs", "x-2-pod-retry1", "-n", run.namespace, "--container", "step-main"]


def task_run(task: str, done: str, message: str, pod: str) -> dict[str, Any]:
    status = {
        "conditions": [{"type": "Succeeded", "status": done, "message": message}],
        "podName": pod,
        "steps": [{"name": "main", "container": "step-main"}],
    }
    return {"kind": "TaskRun", "metadata": {"labels": {"tekton.dev/pipelineTask": task}}, "status": status}


def test_each_run_of_a_jobset_has_a_name_of_its_own(cluster: Cluster) -> None:
    jobs = [{"name": "say", "failed": 1}, {"name": "more"}]
    said = {"type": "Failed", "status": "True", "message": "first failed job: hello-abc12-say-0"}
    cluster.shows({"replicatedJobsStatus": jobs, "conditions": [said]})
    run = JobSetRunner().run(flow())
    (made,) = cluster.objects()
    assert made["metadata"]["generateName"] == "hello-" and run.name == "hello-abc12"
    assert run.failures == {"say": "first failed job: hello-abc12-say-0"}
    run.logs("say")
    pods = "jobset.sigs.k8s.io/jobset-name=hello-abc12,jobset.sigs.k8s.io/replicatedjob-name=say"
    assert cluster.calls()[-1][:4] == ["logs", "--selector", pods, "--tail=-1"]


def test_what_goes_wrong_has_a_code(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PlanError, match="P401"):
        ArgoRunner().run(flow(), txt="x")
    needs = Workflow("w", [ContainerJob("a", "b", ["echo", WorkflowParam("x", str)])], params=[WorkflowParam("x", str)])
    with pytest.raises(PlanError, match="P408"):
        ArgoRunner().run(needs)
    (cluster.folder / "refuses").touch()
    with pytest.raises(UserError, match='P871 the cluster did not accept Workflow .*no matches for kind "Workflow"'):
        ArgoRunner().run(flow())
    (cluster.folder / "refuses").unlink()
    cluster.shows({"phase": "Running"})
    run = ArgoRunner().submit(flow())
    run.cancel()
    with pytest.raises(NotFound, match="P872"):
        run.wait()
    monkeypatch.setenv("PENSTOCK_KUBECTL", "no-such-kubectl")
    with pytest.raises(NotFound, match="P870"):
        ArgoRunner().run(flow())


def test_context_and_namespace_are_passed(cluster: Cluster) -> None:
    cluster.shows({"phase": "Succeeded"})
    ArgoRunner(context="prod", namespace="team-b").run(flow())
    assert all(call[:4] == ["--context", "prod", "-n", "team-b"] for call in cluster.calls())


def test_a_run_looks_like_a_local_one() -> None:
    names = {name for name in dir(clusters.ClusterRun) if not name.startswith("_")} - {"look"}
    from penstock import Run

    assert names <= {name for name in dir(Run) if not name.startswith("_")}
    assert {"run", "submit"} <= set(dir(LocalRunner)) & set(dir(ArgoRunner))
