"""Resource steps on a real cluster: a Job and a JobSet wait in Kueue's queue, end by the conditions of their kind, and are deleted when the run is cancelled. Nodes are fake."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from penstock import LocalRunner, PenstockError, ResourceJob, Workflow, open_run
from testbed.components.kwok import EXIT_CODE, RUN_TIME
from testbed.instance import Testbed
from tests.cluster.kueue_protocol import Desk
from tests.cluster.support import is_true

LABEL = "kueue.x-k8s.io/queue-name"


@pytest.fixture
def bed(testbed: Callable[..., Testbed]) -> Testbed:
    return testbed("kueue", "kwok", "jobset")


@pytest.fixture
def desk(bed: Testbed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A namespace; the kubectl and the home of the runs are the test's."""
    monkeypatch.setenv("PENSTOCK_KUBECTL", str(bed.binary("kubectl")))
    monkeypatch.setenv("KUBECONFIG", str(bed.kubeconfig))
    monkeypatch.setenv("KUBECACHEDIR", str(tmp_path / "kubectl"))
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / ".penstock"))
    monkeypatch.chdir(tmp_path)
    return Desk(bed)


def template(**annotations: str) -> dict[str, Any]:
    container = {"name": "main", "image": "busybox:testbed", "resources": {"requests": {"cpu": "1"}}}
    return {"metadata": {"annotations": annotations}, "spec": {"containers": [container], "restartPolicy": "Never"}}


def job(desk: Desk, **annotations: str) -> dict[str, Any]:
    spec = {"parallelism": 2, "completions": 2, "backoffLimit": 0, "template": template(**annotations)}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train", "namespace": desk.namespace},
        "spec": spec,
    }


def jobset(desk: Desk, **annotations: str) -> dict[str, Any]:
    inner = {"parallelism": 2, "completions": 2, "backoffLimit": 0, "template": template(**annotations)}
    spec = {"replicatedJobs": [{"name": "workers", "template": {"spec": inner}}]}
    meta = {"name": "train", "namespace": desk.namespace}
    return {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": meta, "spec": spec}


def path(desk: Desk, manifest: dict[str, Any]) -> str:
    return f"/apis/{manifest['apiVersion']}/namespaces/{desk.namespace}/{manifest['kind'].lower()}s/train"


def flow(manifest: dict[str, Any], **more: Any) -> Workflow:
    return Workflow("train", [ResourceJob("make", manifest, **more)], queue="main")


MAKERS = pytest.mark.parametrize("maker", [job, jobset])


@MAKERS
def test_it_waits_in_the_queue_of_kueue_and_ends_by_the_conditions_of_its_kind(desk: Desk, maker: Any) -> None:
    desk.queue(cpu="2")
    run = LocalRunner().run(flow(maker(desk)))
    assert run.ok, run["make"].error
    made = desk.read(path(desk, maker(desk)))
    assert made["metadata"]["labels"][LABEL] == "main"
    assert is_true(made, "Complete") or is_true(made, "Completed")
    assert "it waits in Kueue's queue main" in run["make"].logs and "--- pod train-" in run["make"].logs


@MAKERS
def test_one_that_fails_fails_the_step_with_its_own_words(desk: Desk, maker: Any) -> None:
    desk.queue(cpu="2")
    run = LocalRunner().run(flow(maker(desk, **{EXIT_CODE: "3"})))
    assert not run.ok and f"{maker(desk)['kind']} {desk.namespace}/train has failed (" in str(run["make"].error)


@MAKERS
def test_cancelled_while_it_waits_it_is_deleted(desk: Desk, maker: Any) -> None:
    desk.queue(cpu="2")
    desk.stop_queue("Hold")
    manifest = maker(desk, **{RUN_TIME: "forever"})
    with LocalRunner() as runner:
        run = runner.submit(flow(manifest))
        desk.bed.wait(lambda: desk.bed.found(path(desk, manifest)), "the object to be made")

        def says_so() -> bool:
            with suppress(PenstockError):  # nothing is recorded yet
                return "it waits in Kueue's queue" in open_run(run.id)["make"].logs
            return False

        desk.bed.wait(says_so, "the log to say so")
        run.cancel()
    assert run.status == "cancelled"
    desk.bed.wait(lambda: not desk.bed.found(path(desk, manifest)), "the object to be gone")


def test_one_that_somebody_deletes_is_made_again(desk: Desk) -> None:
    desk.queue(cpu="2")
    manifest = job(desk, **{RUN_TIME: "forever"})
    with LocalRunner() as runner:
        run = runner.submit(flow(manifest))
        first = desk.bed.wait(lambda: desk.bed.found(path(desk, manifest)), "the Job to be made")
        desk.bed.delete(path(desk, manifest))

        def other() -> Any:
            found = desk.bed.found(path(desk, manifest))
            return found and found["metadata"]["uid"] != first["metadata"]["uid"]

        desk.bed.wait(other, "another Job to be made", 60)
        run.cancel()


def test_a_kind_that_the_cluster_does_not_know_names_its_operator(desk: Desk) -> None:
    ray = {"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": {"name": "train"}, "spec": {}}
    run = LocalRunner().run(flow(ray))
    assert not run.ok and "P907 the cluster knows no RayJob of ray.io/v1. Fix: install KubeRay" in str(
        run["make"].error
    )


def test_the_conditions_of_argo_hold_for_the_real_objects(desk: Desk) -> None:
    desk.queue(cpu="2")
    found = '{.status.conditions[?(@.type=="Complete")].status} == True, status.failed < 1, metadata.name in (train)'
    run = LocalRunner().run(
        flow(job(desk), success_condition=found.replace(", status.failed < 1", ", status.failed != 1"))
    )
    assert run.ok, run["make"].error
    assert json.dumps(desk.read(path(desk, job(desk)))["status"]["succeeded"]) == "2"
