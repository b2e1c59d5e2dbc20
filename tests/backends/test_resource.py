"""Resource steps against a stand-in for kubectl: what is asked, how answers are read, when it is over. That a real API server
says the same is shown in tests/cluster/test_resource_steps.py.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.backends import resource
from penstock.backends.base import AttemptEnded, AttemptSpec, AttemptStarted
from penstock.backends.kubectl import object_of
from penstock.backends.resource import ResourceBackend
from penstock.expressions.parse import Expr
from penstock.expressions.types import parse
from penstock.graph import model
from penstock.graph.model import MISSING, Outcome
from tests.backends.harness import Play, play, spec_of

JOB: dict[str, Any] = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "train"},
    "spec": {"parallelism": 4},
}
DONE = "status.succeeded >= 1"


class Cluster:
    """The stand-in's folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()

    def put(self, manifest: dict[str, Any], **meta: Any) -> None:
        name = manifest["metadata"]["name"]
        full = {**manifest, "metadata": {**manifest["metadata"], "uid": "old", **meta}}
        (self.folder / f"{manifest['kind']}.{name}.json").write_text(json.dumps(full))

    def progress(self, *statuses: Any, of: str = "Job.train") -> None:
        (self.folder / "progress.json").write_text(json.dumps({of: statuses}))

    def fault(self, *lines: str) -> None:
        (self.folder / "fault").write_text("\n".join(lines))

    def object(self, name: str = "Job.train") -> Any:
        file = self.folder / f"{name}.json"
        return json.loads(file.read_text()) if file.exists() else None

    def calls(self) -> list[Any]:
        file = self.folder / "calls"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def verbs(self) -> list[str]:
        """Of the calls about the object itself."""
        return [call[0] for call in self.calls() if call[-1] is not None]

    def has_pods(self, selector: str, **logs: str) -> None:
        pods = [{"metadata": {"name": name}, "status": {"phase": "Succeeded"}} for name in logs]
        (self.folder / "pods").write_text(json.dumps({selector: pods}))
        (self.folder / "logs").write_text(json.dumps(logs))


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    found = Cluster(tmp_path / "cluster")
    script = Path(__file__).with_name("stand_in_kubectl.py")
    monkeypatch.setenv("PENSTOCK_KUBECTL", f"{sys.executable} -S -E {script}")
    monkeypatch.setenv("STAND_IN", str(found.folder))
    monkeypatch.setattr(resource.PollInterval, "pause", lambda self: 0.01)
    return found


def step(
    verb: str = "create",
    success: str | None = None,
    failure: str | None = None,
    manifest: Any = JOB,
    outputs: tuple[model.Output, ...] = (),
) -> model.Step:
    action = model.Resource(
        manifest=manifest,
        action=verb,
        success_condition=Expr(success) if success else None,
        failure_condition=Expr(failure) if failure else None,
    )
    return model.Step(name="make", action=action, outputs=outputs)


def output(name: str, value: str | None = None, type_: str = "any") -> model.Output:
    return model.Output(name=name, type=parse(type_), value=Expr(value) if value else MISSING)


def run(tmp_path: Path, spec: AttemptSpec) -> tuple[AttemptEnded, str]:
    found: list[Any] = []

    async def story(engine: Play) -> None:
        ended = await engine.one(spec)
        found.extend((ended, engine.text(ended)))

    play(tmp_path / "home", ResourceBackend, story)
    return found[0], found[1]


# -- waiting -----------------------------------------------------------------------------------------------------------


def test_a_job_is_created_and_looked_at_until_it_is_done(cluster: Cluster, tmp_path: Path) -> None:
    cluster.progress({}, {"active": 1}, {"active": 0, "succeeded": 1})
    outputs = (
        output("count", "status.succeeded", "int"),
        output("name", "object.metadata.name", "str"),
        output("twice", "spec.parallelism * inputs.n", "int"),
        output("uid", "metadata.uid", "str"),
        output("all"),
    )
    ended, text = run(tmp_path, spec_of(step(success=DONE, failure="status.failed > 0", outputs=outputs), {"n": 2}))
    assert ended.outcome is Outcome.SUCCEEDED, ended.message
    assert cluster.verbs() == ["create", "get", "get", "get"]
    assert (ended.outputs["count"], ended.outputs["name"], ended.outputs["twice"]) == (1, "train", 8)
    assert ended.outputs["uid"] == cluster.object()["metadata"]["uid"]
    assert ended.outputs["all"]["spec"] == {"parallelism": 4}
    assert text == "create Job train\nwaiting for status.succeeded >= 1\n"


@pytest.mark.parametrize("of", [{}, {"success": "true"}, {"manifest": {**JOB, "apiVersion": "example.com/v1"}}])
def test_without_a_condition_it_is_over_when_the_object_is_accepted(
    cluster: Cluster, tmp_path: Path, of: dict[str, Any]
) -> None:
    other = {"manifest": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "train"}}}
    ended, _ = run(tmp_path, spec_of(step(**(of or other))))
    assert ended.outcome is Outcome.SUCCEEDED
    assert cluster.verbs() == ["create"]


def test_failure_is_asked_first_and_tells_what_the_object_says(cluster: Cluster, tmp_path: Path) -> None:
    bad = {"failed": 3, "succeeded": 1, "conditions": [{"type": "Failed", "status": "True", "message": "out of luck"}]}
    cluster.progress({}, bad)
    ended, _ = run(tmp_path, spec_of(step(success=DONE, failure="status.failed > 2")))
    assert ended.outcome is Outcome.FAILED
    assert ended.message == "Job train has failed: status.failed > 2 (out of luck)"


def test_a_condition_that_makes_no_sense_is_told_in_the_log(cluster: Cluster, tmp_path: Path) -> None:
    cluster.progress({"succeeded": "one"}, {"succeeded": "one"}, {"succeeded": 1})
    ended, text = run(tmp_path, spec_of(step(success=DONE)))
    assert ended.outcome is Outcome.SUCCEEDED
    assert "status.succeeded >= 1: a string >= an int has no meaning" in text


def test_an_object_that_somebody_deletes_is_lost_and_has_not_failed(cluster: Cluster, tmp_path: Path) -> None:
    cluster.progress({}, None)
    ended, _ = run(tmp_path, spec_of(step(success=DONE)))
    assert ended.lost and "was deleted by somebody" in ended.message
    cluster.put(JOB)
    cluster.progress({}, None)
    ended, _ = run(tmp_path, spec_of(step("get", success=DONE), attempt=2))
    assert not ended.lost and ended.outcome is Outcome.FAILED  # it is not ours to make again


def test_a_pod_that_is_evicted_is_lost_and_one_that_fails_is_not(cluster: Cluster, tmp_path: Path) -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {}}
    evicted = {"type": "DisruptionTarget", "status": "True", "message": "node n1 is drained"}
    cluster.progress({"phase": "Running"}, {"phase": "Failed", "conditions": [evicted]}, of="Pod.p")
    ended, _ = run(tmp_path, spec_of(step(manifest=pod)))
    assert ended.lost and ended.message == "Pod p was taken from its node: node n1 is drained"
    cluster.progress({"phase": "Running"}, {"phase": "Failed", "message": "exit code 3"}, of="Pod.p")
    ended, text = run(tmp_path, spec_of(step(manifest=pod), attempt=2))
    assert (ended.lost, ended.outcome, ended.message) == (False, Outcome.FAILED, "Pod p has failed (exit code 3)")
    assert "Pod p is that of an earlier try, and is replaced" in text


def test_a_job_without_conditions_is_waited_for_and_its_log_has_what_it_says_and_what_its_pods_print(
    cluster: Cluster, tmp_path: Path
) -> None:
    complete = {"type": "Complete", "status": "True", "reason": "CompletionsReached", "message": "all there"}
    cluster.progress({}, {"active": 1}, {"conditions": [complete]})
    cluster.has_pods("batch.kubernetes.io/job-name=train", a="hello\nhello", b="bye")
    ended, text = run(tmp_path, spec_of(step()))
    assert ended.outcome is Outcome.SUCCEEDED, ended.message
    assert text.splitlines() == [
        "create Job train",
        "waiting for the Job to end well",
        "Complete=True (CompletionsReached): all there",
        "--- pod a (Succeeded)",
        "hello",
        "hello",
        "--- pod b (Succeeded)",
        "bye",
    ]


def test_a_failed_job_says_why_and_keeps_the_output_of_its_pods(cluster: Cluster, tmp_path: Path) -> None:
    bad = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "too many failures"}
    cluster.progress({}, {"failed": 7, "conditions": [bad]})
    cluster.has_pods("batch.kubernetes.io/job-name=train", a="Traceback …")
    (cluster.folder / "logs").write_text("{}")
    ended, text = run(tmp_path, spec_of(step()))
    assert (ended.outcome, ended.message) == (Outcome.FAILED, "Job train has failed (too many failures)")
    assert "its output cannot be had: kubectl: Error from server (BadRequest)" in text


ENDS: dict[str, tuple[str, list[Any], bool]] = {
    "RayJob": ("ray.io/v1", [{"jobDeploymentStatus": "Retrying", "jobStatus": "FAILED"}, {"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED"}], True),
    "RayJob stopped": ("ray.io/v1", [{"jobDeploymentStatus": "Complete", "jobStatus": "STOPPED"}], False),
    "RayJob invalid": ("ray.io/v1", [{"jobDeploymentStatus": "ValidationFailed"}], False),
    "RayCluster": ("ray.io/v1", [{"state": "suspended"}, {"state": "ready"}], True),
    "SparkApplication": ("sparkoperator.k8s.io/v1beta2", [{"applicationState": {"state": "SUBMISSION_FAILED"}}, {"applicationState": {"state": "COMPLETED"}}], True),
    "SparkApplication failed": ("sparkoperator.k8s.io/v1beta2", [{"applicationState": {"state": "FAILED"}}], False),
    "PyTorchJob": ("kubeflow.org/v1", [{"conditions": [{"type": "Suspended", "status": "True"}]}, {"conditions": [{"type": "Succeeded", "status": "True"}]}], True),
    "MPIJob": ("kubeflow.org/v2beta1", [{"conditions": [{"type": "Failed", "status": "True"}]}], False),
    "TrainJob": ("trainer.kubeflow.org/v1alpha1", [{"conditions": [{"type": "Complete", "status": "True"}]}], True),
    "JobSet": ("jobset.x-k8s.io/v1alpha2", [{"conditions": [{"type": "Completed", "status": "True"}]}], True),
    "DaskJob": ("kubernetes.dask.org/v1", [{"jobStatus": "Running"}, {"jobStatus": "Successful"}], True),
    "AppWrapper": ("workload.codeflare.dev/v1beta2", [{"phase": "Resetting"}, {"phase": "Failed"}], False),
    "LeaderWorkerSet": ("leaderworkerset.x-k8s.io/v1", [{"conditions": [{"type": "Available", "status": "True"}]}], True),
    "Deployment": ("apps/v1", [{"observedGeneration": 1, "updatedReplicas": 2, "availableReplicas": 2}, {"observedGeneration": 2, "updatedReplicas": 1, "availableReplicas": 2}, {"observedGeneration": 2, "updatedReplicas": 2, "availableReplicas": 2}], True),
    "Deployment stuck": ("apps/v1", [{"observedGeneration": 2, "conditions": [{"type": "Progressing", "status": "False"}]}], False),
    "DaemonSet": ("apps/v1", [{"observedGeneration": 2, "desiredNumberScheduled": 3, "updatedNumberScheduled": 3, "numberReady": 3}], True),
    "Workflow": ("argoproj.io/v1alpha1", [{"phase": "Running"}, {"phase": "Error"}], False),
    "PipelineRun": ("tekton.dev/v1", [{"conditions": [{"type": "Succeeded", "status": "Unknown"}]}, {"conditions": [{"type": "Succeeded", "status": "False"}]}], False),
}  # fmt: skip


@pytest.mark.parametrize("name", ENDS)
def test_kinds_that_are_known_need_no_conditions(cluster: Cluster, tmp_path: Path, name: str) -> None:
    api, seen, well = ENDS[name]
    kind = name.split()[0]
    cluster.progress({}, *seen, of=f"{kind}.x")
    meta = {"name": "x", "generation": 2}
    ended, _ = run(
        tmp_path, spec_of(step(manifest={"apiVersion": api, "kind": kind, "metadata": meta, "spec": {"replicas": 2}}))
    )
    assert ended.outcome is (Outcome.SUCCEEDED if well else Outcome.FAILED), ended.message
    assert cluster.verbs() == ["create", *["get"] * (len(seen) + 1)]  # not sooner


WAITS = "Job train is suspended: it waits in Kueue's queue lab"


def test_what_a_queue_holds_waits_and_has_neither_begun_nor_failed(cluster: Cluster, tmp_path: Path) -> None:
    held = {
        **JOB,
        "metadata": {"name": "train", "labels": {"kueue.x-k8s.io/queue-name": "lab"}},
        "spec": {"suspend": True},
    }
    spec = spec_of(step(success=DONE, failure="status.failed > 0", manifest=held))
    cluster.progress({"failed": 1})

    async def story(engine: Play) -> None:
        engine.backend.start([spec])
        held_back: list[AttemptStarted] = []

        def told() -> bool:
            engine.reports += engine.inbox.take()
            held_back[:] = [one for one in engine.reports if isinstance(one, AttemptStarted)]
            return len(held_back) == 2

        await eventually(told)
        assert [(one.begun, one.waits) for one in held_back] == [(False, ""), (False, WAITS)]
        cluster.put({**held, "spec": {"suspend": False}}, **cluster.object()["metadata"])
        cluster.progress({"succeeded": 1})
        (ended,) = await engine.end_of(spec)
        assert ended.outcome is Outcome.SUCCEEDED, ended.message
        assert [one.begun for one in engine.reports if isinstance(one, AttemptStarted)] == [False, False, True]
        assert WAITS in engine.text(ended)

    play(tmp_path / "home", ResourceBackend, story)


def test_who_only_looks_at_an_object_is_not_held_by_what_holds_it(cluster: Cluster, tmp_path: Path) -> None:
    cluster.put({**JOB, "spec": {"suspend": True}})
    cluster.progress({"failed": 1})
    ended, _ = run(tmp_path, spec_of(step("get", success=DONE, failure="status.failed > 0")))
    assert (ended.outcome, ended.message) == (Outcome.FAILED, "Job train has failed: status.failed > 0")


QUEUED = "kueue.x-k8s.io/queue-name"


def test_what_it_makes_goes_into_the_queue_of_the_cluster(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    template = {"spec": {"containers": [{"name": "c", "image": "i"}]}}
    job = {**JOB, "spec": {"parallelism": 4, "template": template}}
    accepted = step(success="true", manifest=job)
    (cluster.folder / "localqueues").write_text("lab")
    ended, text = run(tmp_path, spec_of(accepted, queue="lab"))
    assert ended.outcome is Outcome.SUCCEEDED, ended.message
    assert cluster.object()["metadata"]["labels"] == {QUEUED: "lab"} and f"kueue: Job train: {QUEUED}=lab" in text
    again, _ = run(tmp_path, spec_of(accepted, queue="other", attempt=2))
    assert again.outcome is Outcome.SUCCEEDED and "labels" not in cluster.object()["metadata"]
    monkeypatch.setenv("PENSTOCK_SCHEDULER", "kueue")
    run(tmp_path, spec_of(accepted, queue="other", attempt=3))
    assert cluster.object()["metadata"]["labels"] == {QUEUED: "other"}
    own = {**job, "metadata": {"name": "train", "labels": {QUEUED: "mine"}}}
    run(tmp_path, spec_of(step(success="true", manifest=own), queue="other", attempt=4))
    assert cluster.object()["metadata"]["labels"] == {QUEUED: "mine"}
    ended, _ = run(tmp_path, spec_of(accepted, queue="Not a name", attempt=5))
    assert ended.outcome is Outcome.ERRORED and ended.message.startswith("P888")


def test_a_kind_that_the_cluster_does_not_know_names_the_operator(cluster: Cluster, tmp_path: Path) -> None:
    (cluster.folder / "unknown").write_text("RayJob Thing")
    ray = {"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": {"name": "x"}}
    ended, _ = run(tmp_path, spec_of(step(manifest=ray)))
    assert ended.outcome is Outcome.ERRORED
    assert ended.message.startswith("P907 the cluster knows no RayJob of ray.io/v1. Fix: install KubeRay")
    ended, text = run(tmp_path, spec_of(step(manifest={**ray, "spec": {}}), queue="lab", attempt=3))
    assert ended.message.startswith("P907") and "it is put into no queue: this RayJob has no cluster of its own" in text
    thing = {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "x"}}
    ended, _ = run(tmp_path, spec_of(step("get", manifest=thing), attempt=2))
    assert "install the operator that brings it" in ended.message


def test_an_output_that_is_not_there_is_a_failure(cluster: Cluster, tmp_path: Path) -> None:
    ended, _ = run(tmp_path, spec_of(step(success="true", outputs=(output("x", "status.nothing"),))))
    assert ended.outcome is Outcome.FAILED
    assert ended.message.startswith("the output 'x' has no value: there is no field 'nothing'")


def stopped(cluster: Cluster, tmp_path: Path, spec: AttemptSpec, before: Callable[[], None] = lambda: None) -> str:
    """What is said when the step is stopped while it waits."""
    said: list[str] = []

    async def story(engine: Play) -> None:
        engine.backend.start([spec])
        await eventually(lambda: "get" in cluster.verbs())
        before()
        engine.backend.stop(spec.id, 10.0)
        engine.backend.stop(spec.id, 0.0)
        (ended,) = await engine.end_of(spec)
        assert ended.outcome is Outcome.CANCELLED
        said.append(ended.message)

    play(tmp_path / "home", ResourceBackend, story)
    return said[0]


def test_stopping_deletes_what_the_step_has_created(cluster: Cluster, tmp_path: Path) -> None:
    assert stopped(cluster, tmp_path, spec_of(step(success=DONE))) == "stopped; Job train is deleted"
    assert cluster.object() is None


@pytest.mark.parametrize("verb", ["apply", "patch", "get"])
def test_stopping_leaves_what_the_step_has_not_created(cluster: Cluster, tmp_path: Path, verb: str) -> None:
    cluster.put(JOB)
    assert stopped(cluster, tmp_path, spec_of(step(verb, success=DONE))) == "stopped; Job train is left as it is"
    assert cluster.object() is not None


def test_stopping_leaves_an_object_that_has_taken_the_place_of_its_own(cluster: Cluster, tmp_path: Path) -> None:
    said = stopped(cluster, tmp_path, spec_of(step(success=DONE)), lambda: cluster.put(JOB))
    assert "could not be deleted" in said or "there is no" in said
    assert cluster.object()["metadata"]["uid"] == "old"


def test_an_engine_that_ends_leaves_its_objects_to_the_next(cluster: Cluster, tmp_path: Path) -> None:
    async def story(engine: Play) -> None:
        engine.backend.start([spec_of(step(success=DONE))])
        await eventually(lambda: "get" in cluster.verbs())

    play(tmp_path / "home", ResourceBackend, story)
    assert cluster.object() is not None


def test_an_order_that_is_stopped_at_once_ends_too(cluster: Cluster, tmp_path: Path) -> None:
    spec = spec_of(step(success=DONE))

    async def story(engine: Play) -> None:
        engine.backend.start([spec])
        engine.backend.stop(spec.id, 10.0)
        (ended,) = await engine.end_of(spec)
        assert ended.outcome is Outcome.CANCELLED
        assert engine.backend.room() == resource.MOST

    play(tmp_path / "home", ResourceBackend, story)


def test_closing_waits_for_nothing(cluster: Cluster, tmp_path: Path) -> None:
    async def story(engine: Play) -> None:
        engine.backend.start([spec_of(step(success=DONE))])
        await asyncio.sleep(0.1)

    began = time.monotonic()
    play(tmp_path / "home", ResourceBackend, story)
    assert time.monotonic() - began < 5


# -- the verbs ---------------------------------------------------------------------------------------------------------


def test_apply_replace_patch_and_get(cluster: Cluster, tmp_path: Path) -> None:
    changed = {**JOB, "spec": {"parallelism": 9}}
    seen = output("n", "spec.parallelism", "int")
    for number, verb in enumerate(("apply", "replace", "patch", "get")):
        cluster.put(JOB)
        ended, _ = run(tmp_path, spec_of(step(verb, "true", manifest=changed, outputs=(seen,)), attempt=number + 1))
        assert ended.outputs == {"n": 9 if verb != "get" else 4}, (verb, ended.message)
    assert "annotations" not in cluster.object()["metadata"]  # what is not ours by birth is not marked as ours


def test_a_patch_of_a_custom_resource_is_merged(cluster: Cluster, tmp_path: Path) -> None:
    custom = {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "a"}, "spec": {"x": 1}}
    cluster.put({**custom, "spec": {"x": 0, "y": 2}})
    ended, _ = run(tmp_path, spec_of(step("patch", manifest=custom)))
    assert ended.outcome is Outcome.SUCCEEDED, ended.message
    assert cluster.object("Thing.a")["spec"] == {"x": 1, "y": 2}


def test_delete_waits_until_it_is_gone(cluster: Cluster, tmp_path: Path) -> None:
    cluster.put(JOB)
    cluster.progress({}, {}, None)
    ended, _ = run(tmp_path, spec_of(step("delete", outputs=(output("n", "spec.parallelism", "int"),))))
    assert (ended.outcome, ended.outputs) == (Outcome.SUCCEEDED, {"n": 4})
    assert cluster.verbs() == ["get", "delete", "get", "get"]
    assert cluster.object() is None


def test_what_is_not_there_need_not_be_deleted_but_cannot_be_got(cluster: Cluster, tmp_path: Path) -> None:
    ended, _ = run(tmp_path, spec_of(step("delete")))
    assert ended.outcome is Outcome.SUCCEEDED
    ended, _ = run(tmp_path, spec_of(step("get"), attempt=2))
    assert (ended.outcome, ended.message) == (Outcome.FAILED, "there is no Job train")


# -- created once ------------------------------------------------------------------------------------------------------


def test_the_same_attempt_after_a_crash_goes_on_with_its_object(cluster: Cluster, tmp_path: Path) -> None:
    spec = spec_of(step(success=DONE))
    cluster.progress({"succeeded": 1})
    run(tmp_path, spec)
    uid = cluster.object()["metadata"]["uid"]
    ended, _ = run(tmp_path, spec)
    assert ended.outcome is Outcome.SUCCEEDED, ended.message
    assert cluster.object()["metadata"]["uid"] == uid


def test_an_object_of_somebody_else_is_not_taken_for_ours(cluster: Cluster, tmp_path: Path) -> None:
    cluster.put(JOB)
    ended, _ = run(tmp_path, spec_of(step()))
    assert ended.outcome is Outcome.ERRORED
    assert ended.message.startswith(
        "Job train exists already and is not made by Penstock; give the manifest another name"
    )
    ended, _ = run(tmp_path, spec_of(step(success="true", manifest={**JOB, "metadata": {"name": "b"}}), run="test-7"))
    ended, _ = run(tmp_path, spec_of(step(success="true", manifest={**JOB, "metadata": {"name": "b"}}), run="test-8"))
    assert "is of run test-7, task make" in ended.message
    ended, _ = run(
        tmp_path / "elsewhere", spec_of(step(success="true", manifest={**JOB, "metadata": {"name": "b"}}), run="test-7")
    )
    assert ended.outcome is Outcome.ERRORED  # another store, another run of the same name


def test_a_generated_name_is_the_same_for_the_same_attempt_and_new_for_the_next(
    cluster: Cluster, tmp_path: Path
) -> None:
    text = "apiVersion: batch/v1\nkind: Job\nmetadata: {generateName: train-}\nspec: {day: 2026-01-02}\n"
    name = output("name", "metadata.name", "str")
    names = [
        run(tmp_path, spec_of(step(success="true", manifest=text, outputs=(name,)), attempt=attempt))[0].outputs["name"]
        for attempt in (1, 1, 2)
    ]
    assert names[0] == names[1] != names[2]
    assert all(found.startswith("train-") for found in names)


@pytest.mark.parametrize(
    ("manifest", "part"),
    [
        ("a: 1", "not a Kubernetes object"),
        (
            "{apiVersion: v1, kind: Pod, metadata: {name: a}}\n---\n{apiVersion: v1, kind: Pod, metadata: {name: b}}",
            "2 objects",
        ),
        ("{apiVersion: v1, kind: Pod}", "has no metadata.name"),
        ("a: [", "P102"),
    ],
)
def test_a_manifest_that_is_none_is_refused(cluster: Cluster, tmp_path: Path, manifest: str, part: str) -> None:
    ended, _ = run(tmp_path, spec_of(step(manifest=manifest)))
    assert (ended.outcome, part in ended.message) == (Outcome.ERRORED, True), ended.message
    assert cluster.calls() == []


# -- out of reach ------------------------------------------------------------------------------------------------------


def test_without_kubectl_the_fix_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("PENSTOCK_KUBECTL", raising=False)
    ended, _ = run(tmp_path, spec_of(step()))
    assert ended.outcome is Outcome.ERRORED
    assert ended.message.startswith(
        "P704 Kubernetes cannot be reached: there is no kubectl in PATH. Fix: install kubectl"
    )


@pytest.mark.parametrize(
    "line",
    [
        "The connection to the server localhost:8080 was refused - did you specify the right host or port?",
        "Unable to connect to the server: dial tcp: lookup nowhere on 1.1.1.1:53: no such host",
        "error: You must be logged in to the server (Unauthorized)",
        'error: context "prod" does not exist',
    ],
)
def test_a_cluster_that_cannot_be_reached_is_told_from_one_that_refuses(
    cluster: Cluster, tmp_path: Path, line: str
) -> None:
    cluster.fault(line)
    ended, _ = run(tmp_path, spec_of(step()))
    assert ended.outcome is Outcome.ERRORED
    assert ended.message.startswith("P704 Kubernetes cannot be reached: ") and "cluster-info" in ended.message
    cluster.fault('Error from server (Forbidden): jobs.batch is forbidden: User "me" cannot create resource "jobs"')
    ended, _ = run(tmp_path, spec_of(step(), attempt=2))
    assert ended.outcome is Outcome.ERRORED
    assert ended.message.startswith("kubectl: Error from server (Forbidden)")


async def eventually(what: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not what():
            await asyncio.sleep(0.005)


def test_a_cluster_that_is_out_of_reach_for_a_moment_is_waited_for(cluster: Cluster, tmp_path: Path) -> None:
    spec = spec_of(step("apply", success=DONE))

    async def story(engine: Play) -> None:
        engine.backend.start([spec])
        await eventually(lambda: "get" in cluster.verbs())
        cluster.fault(*["Unable to connect to the server: EOF"] * 2)
        await eventually(lambda: not (cluster.folder / "fault").read_text())
        cluster.progress({"succeeded": 1})
        (ended,) = await engine.end_of(spec)
        assert ended.outcome is Outcome.SUCCEEDED, ended.message
        assert "cannot look: P704" in engine.text(ended)

    play(tmp_path / "home", ResourceBackend, story)


def test_but_not_for_ever(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "PATIENCE", 0.3)
    spec = spec_of(step("get", success=DONE))
    cluster.put(JOB)

    async def story(engine: Play) -> None:
        engine.backend.start([spec])
        await eventually(lambda: len(cluster.verbs()) > 1)
        cluster.fault(*["Unable to connect to the server: EOF"] * 1000)
        (ended,) = await engine.end_of(spec)
        assert ended.outcome is Outcome.ERRORED
        assert ended.message.startswith("P704")

    play(tmp_path / "home", ResourceBackend, story)


def test_many_are_looked_at_at_once_by_few_processes(cluster: Cluster, tmp_path: Path) -> None:
    specs = [
        spec_of(
            step(manifest={**JOB, "metadata": {"name": f"job-{n}"}}, success="metadata.name == object.metadata.name"),
            task=f"make[{n}]",
        )
        for n in range(12)
    ]

    async def story(engine: Play) -> None:
        assert all(ended.outcome is Outcome.SUCCEEDED for ended in await engine.run(*specs))

    play(tmp_path / "home", ResourceBackend, story)
    assert len(list(cluster.folder.glob("Job.job-*.json"))) == 12


def test_the_next_engine_finds_an_object_whose_name_was_generated() -> None:
    one = step(manifest={**JOB, "metadata": {"generateName": "train-"}})
    first = str(object_of(one.action, spec_of(one, attempt=1, since=1), "owner"))
    names = [str(object_of(one.action, spec_of(one, attempt=2, since=since), "owner")) for since in (1, 2)]
    assert names[0] == first != names[1], "the second attempt goes on with the first, or is a try of its own"
