"""JobSets on the real JobSet controller: the order that dependsOn promises, what a failure does, and what Penstock makes of it. Nodes are fake."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock import ContainerJob, JobSetRunner, RunFailed, Workflow
from penstock.errors import UserError
from penstock.formats import registry
from penstock.formats.gates.marks import MARK, POD_GATE
from penstock.formats.kubernetes.write.jobset import write_jobset
from penstock.formats.registry import status_of
from penstock.runners.clusters import ClusterRun
from penstock.service.manifests import library_of
from testbed.api import JSON_PATCH, MERGE
from testbed.components.jobset import API
from testbed.components.kwok import EXIT_CODE, RUN_TIME
from testbed.errors import ApiError
from testbed.instance import Testbed
from tests.cluster.support import condition, fresh_namespace, is_true, unique
from tests.formats.corpus import files, label, needs_corpus

Beds = Callable[..., Testbed]
HELD = {"schedulingGates": [{"name": "testbed.penstock/held"}]}
"""In a pod's spec: it does not begin before `release`."""
FOREVER = {RUN_TIME: "forever"}
FAILS = {EXIT_CODE: "3"}


@pytest.fixture
def bed(testbed: Beds) -> Testbed:
    return testbed("kwok", "jobset")


@pytest.fixture
def ns(bed: Testbed) -> str:
    return fresh_namespace(bed)


def job(
    name: str, pods: int = 1, annotations: dict[str, str] | None = None, pod: Any = (), **more: Any
) -> dict[str, Any]:
    """A replicated job of one container."""
    container = {"name": "main", "image": "busybox:testbed", "resources": {"requests": {"cpu": "1"}}}
    spec = {"containers": [container], "restartPolicy": "Never", **dict(pod)}
    template = {"metadata": {"annotations": annotations or {}}, "spec": spec}
    counts = {"parallelism": pods, "completions": pods, "backoffLimit": 0}
    return {"name": name, "template": {"spec": {**counts, "template": template}}, **more}


def after(name: str, status: str = "Complete") -> list[dict[str, str]]:
    return [{"name": name, "status": status}]


def jobset(*jobs: dict[str, Any], name: str = "", **spec: Any) -> dict[str, Any]:
    metadata = {"name": name or unique("set")}
    return {"apiVersion": API, "kind": "JobSet", "metadata": metadata, "spec": {**spec, "replicatedJobs": list(jobs)}}


def create(bed: Testbed, ns: str, document: dict[str, Any]) -> str:
    """Its path."""
    made = bed.raw("POST", f"/apis/{API}/namespaces/{ns}/jobsets", document)
    return f"/apis/{API}/namespaces/{ns}/jobsets/{made['metadata']['name']}"


def reaches(bed: Testbed, path: str, kind: str) -> dict[str, Any]:
    def reached() -> dict[str, Any] | None:
        found: dict[str, Any] = bed.get(path)
        return found if is_true(found, kind) else None

    return bed.wait(reached, f"{path} to be {kind}")


def jobs(bed: Testbed, ns: str) -> dict[str, dict[str, Any]]:
    """By the name of the replicated job."""
    return {
        one["metadata"]["labels"]["jobset.sigs.k8s.io/replicatedjob-name"]: one
        for one in bed.objects("batch/v1", "jobs", ns)
    }


def pods(bed: Testbed, ns: str, of: str = "") -> list[dict[str, Any]]:
    return bed.objects("v1", "pods", ns, f"jobset.sigs.k8s.io/replicatedjob-name={of}" if of else "")


def gathered(bed: Testbed, ns: str, of: str, count: int) -> list[dict[str, Any]]:
    """Its pods, once there are so many."""

    def found() -> list[dict[str, Any]] | None:
        listed = pods(bed, ns, of)
        return listed if len(listed) == count else None

    return bed.wait(found, f"{count} pods of {of}")


def state(bed: Testbed, path: str, name: str) -> dict[str, Any]:
    """Of one replicated job, as the JobSet shows it."""
    listed = bed.get(path).get("status", {}).get("replicatedJobsStatus", [])
    return next((one for one in listed if one["name"] == name), {})


def release(bed: Testbed, ns: str, of: str = "") -> None:
    """Takes the scheduling gates off its pods."""
    for one in pods(bed, ns, of):
        if one["spec"].get("schedulingGates"):
            patch = [{"op": "remove", "path": "/spec/schedulingGates"}]
            bed.raw("PATCH", f"/api/v1/namespaces/{ns}/pods/{one['metadata']['name']}", patch, JSON_PATCH)


# -- the controller -----------------------------------------------------------------------------------------------------


def test_a_job_begins_when_the_one_before_it_is_complete(bed: Testbed, ns: str) -> None:
    path = create(bed, ns, jobset(job("first", 2, pod=HELD), job("second", dependsOn=after("first"))))
    bed.wait(lambda: state(bed, path, "first").get("active") == 1 and len(pods(bed, ns)) == 2, "the first job to begin")
    assert list(jobs(bed, ns)) == ["first"]
    release(bed, ns)
    done = reaches(bed, path, "Completed")
    found = jobs(bed, ns)
    assert found["first"]["status"]["completionTime"] <= found["second"]["metadata"]["creationTimestamp"]
    assert [one["succeeded"] for one in done["status"]["replicatedJobsStatus"]] == [1, 1]
    assert done["status"]["terminalState"] == "Completed"


def test_a_job_that_waits_for_ready_begins_while_the_other_runs(bed: Testbed, ns: str) -> None:
    """And once what the success policy names is complete, the JobSet is, and whatever else runs is removed."""
    path = create(
        bed,
        ns,
        jobset(
            job("server", annotations=FOREVER, pod=HELD),
            job("client", dependsOn=after("server", "Ready")),
            successPolicy={"operator": "All", "targetReplicatedJobs": ["client"]},
        ),
    )
    bed.wait(lambda: state(bed, path, "server").get("active") == 1 and pods(bed, ns), "the server to wait")
    assert list(jobs(bed, ns)) == ["server"]
    release(bed, ns)
    reaches(bed, path, "Completed")
    bed.wait(lambda: list(jobs(bed, ns)) == ["client"], "the server to be removed")


def test_a_failed_job_fails_the_set_and_what_waits_for_it_never_begins(bed: Testbed, ns: str) -> None:
    path = create(bed, ns, jobset(job("first", annotations=FAILS), job("second", dependsOn=after("first"))))
    failed = reaches(bed, path, "Failed")
    assert condition(failed, "Failed")["reason"] == "FailedJobs"
    assert "first" in condition(failed, "Failed")["message"]
    assert list(jobs(bed, ns)) == ["first"]
    assert state(bed, path, "second") == {
        "name": "second",
        "active": 0,
        "failed": 0,
        "ready": 0,
        "succeeded": 0,
        "suspended": 0,
    }


def test_restarts_begin_at_the_first_job_again(bed: Testbed, ns: str) -> None:
    path = create(
        bed,
        ns,
        jobset(
            job("first"), job("second", annotations=FAILS, dependsOn=after("first")), failurePolicy={"maxRestarts": 1}
        ),
    )
    failed = reaches(bed, path, "Failed")
    assert condition(failed, "Failed")["reason"] == "ReachedMaxRestarts"
    assert failed["status"]["restarts"] == 1
    assert {one["metadata"]["labels"]["jobset.sigs.k8s.io/restart-attempt"] for one in jobs(bed, ns).values()} == {"1"}


def test_what_the_webhook_does_not_take(bed: Testbed, ns: str) -> None:
    with pytest.raises(ApiError, match="DependsOn can't be set for the first"):
        create(bed, ns, jobset(job("first", dependsOn=after("second")), job("second")))
    with pytest.raises(ApiError, match="cannot depend on"):
        create(bed, ns, jobset(job("first"), job("second", dependsOn=after("third")), job("third")))


# -- Penstock's runner --------------------------------------------------------------------------------------------------


def point_at(bed: Testbed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kubectl that Penstock finds is the testbed's."""
    monkeypatch.setenv("PENSTOCK_KUBECTL", str(bed.binary("kubectl")))
    monkeypatch.setenv("KUBECONFIG", str(bed.kubeconfig))
    monkeypatch.setenv("KUBECACHEDIR", str(tmp_path / "kubectl"))


@pytest.fixture
def runner(bed: Testbed, ns: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> JobSetRunner:
    point_at(bed, tmp_path, monkeypatch)
    return JobSetRunner(namespace=ns)


def step(name: str, annotations: dict[str, str] | None = None, pod: Any = (), **options: Any) -> ContainerJob:
    extra = {"metadata": {"annotations": annotations or {}}, "pod": dict(pod)}
    return ContainerJob(name, "busybox:testbed", ["true"], cpu=1, extra=extra, **options)


def states(run: ClusterRun) -> dict[str, str]:
    return {task.name: task.state for task in run.tasks}


def test_a_workflow_runs_in_the_order_of_its_needs(bed: Testbed, ns: str, runner: JobSetRunner) -> None:
    fetch, train = step("fetch", pod=HELD), step("train", replicas=3)
    report = step("report")
    run = runner.submit(Workflow("finetune", [fetch, train.after(fetch), report.after(train)]))
    assert run.namespace == ns
    bed.wait(lambda: states(run).get("fetch") == "running" and pods(bed, ns), "the first step to begin")
    assert run.status == "running" and states(run) == {"fetch": "running", "train": "pending", "report": "pending"}
    release(bed, ns)
    assert run.wait(180).ok and run.check() is run and run.failures == {}
    assert states(run) == dict.fromkeys(("fetch", "train", "report"), "succeeded")
    found = jobs(bed, ns)
    for before, then in (("fetch", "train"), ("train", "report")):
        assert found[before]["status"]["completionTime"] <= found[then]["metadata"]["creationTimestamp"]
    assert found["train"]["status"]["succeeded"] == 3


def test_a_step_that_fails_ends_the_run(bed: Testbed, ns: str, runner: JobSetRunner) -> None:
    fetch, train = step("fetch", FAILS), step("train")
    run = runner.run(Workflow("finetune", [fetch, train.after(fetch)]))
    assert run.status == "failed" and states(run) == {"fetch": "failed", "train": "pending"}
    with pytest.raises(RunFailed, match="fetch"):
        run.check()
    assert list(jobs(bed, ns)) == ["fetch"]


def test_a_workflow_can_be_run_again(bed: Testbed, ns: str, runner: JobSetRunner) -> None:
    flow = Workflow("again", [step("only")])
    first, second = runner.submit(flow), runner.submit(flow)
    assert first.name != second.name
    assert first.wait(180).ok and second.wait(60).ok


def test_long_names_fit_with_what_the_cluster_adds(bed: Testbed, runner: JobSetRunner) -> None:
    long = "Train_The_Model_" * 5
    first, second = step(f"{long}a", replicas=11), step(f"{long}b")
    run = runner.submit(Workflow("My_Flow-" + "x" * 100, [first, second.after(first)]))
    assert run.wait(180).ok and len(run.tasks) == 2


def test_a_suspended_run_is_told_from_a_running_one(bed: Testbed, ns: str, runner: JobSetRunner) -> None:
    """What was complete stays so; what ran is stopped, and begins again."""
    first, second = step("first"), step("second", FOREVER)
    run = runner.submit(Workflow("pause", [first, second.after(first)]))
    path = f"/apis/{API}/namespaces/{ns}/jobsets/{run.name}"
    (before,) = bed.wait(lambda: pods(bed, ns, "second"), "the second step to begin")
    bed.raw("PATCH", path, {"spec": {"suspend": True}}, MERGE)
    bed.wait(lambda: not pods(bed, ns, "second"), "its pod to be gone")
    assert run.status == "suspended"
    bed.wait(lambda: states(run) == {"first": "succeeded", "second": "suspended"}, "the JobSet to say so")
    bed.raw("PATCH", path, {"spec": {"suspend": False}}, MERGE)
    (then,) = bed.wait(lambda: pods(bed, ns, "second"), "the second step to begin again")
    assert then["metadata"]["uid"] != before["metadata"]["uid"]
    bed.wait(lambda: states(run) == {"first": "succeeded", "second": "running"}, "the run to go on")
    run.cancel()
    bed.wait(lambda: not jobs(bed, ns) and not pods(bed, ns), "nothing to be left of it")


@needs_corpus
def test_every_jobset_that_is_written_of_an_example_is_taken(bed: Testbed) -> None:
    refused: dict[str, str] = {}
    asked = 0
    for file, document in _written():
        asked += 1
        where = bed.api.path(document["apiVersion"], document["kind"], "default")
        document["metadata"].pop("namespace", None)
        try:
            bed.raw("POST", where, document, params={"dryRun": "All", "fieldValidation": "Strict"})
        except ApiError as error:
            refused[file] = str(error)
    assert asked > 50
    # A label of the example itself, and what is off by default.
    assert refused.pop("argo/fun-with-gifs.yaml", "must start and end with").find("must start and end with") > 0
    assert all("InPlaceRestart feature gate is disabled" in said for said in refused.values()), refused


def _written() -> Iterator[tuple[str, dict[str, Any]]]:
    """The documents of every example that a JobSet can say, with the name of its file."""
    for path in files("jobset", "argo", "tekton"):
        try:
            found = library_of(path)
        except UserError:
            continue
        for document in found.documents:
            try:
                written = write_jobset(registry.read(found, document).workflow)
            except UserError:
                continue
            for one in written.documents:
                yield label(path), json.loads(json.dumps(one))


def test_what_the_steps_print_can_be_read(testbed: Beds, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In containers that really run: here the commands and the environment count."""
    bed = testbed("node", "jobset")
    point_at(bed, tmp_path, monkeypatch)
    first = ContainerJob("first", "busybox:testbed", ["sh", "-c", "echo worker $PENSTOCK_REPLICA"], replicas=2)
    last = ContainerJob("last", "busybox:testbed", ["sh", "-c", "echo no room left; exit 7"])
    run = JobSetRunner(namespace=fresh_namespace(bed)).submit(Workflow("logs", [first, last.after(first)])).wait(90)
    assert run.status == "failed" and states(run) == {"first": "succeeded", "last": "failed"}
    assert sorted(run.logs("first").splitlines()) == ["worker 0", "worker 1"]
    assert run.logs("last") == "no room left\n"


# -- Penstock's gates ---------------------------------------------------------------------------------------------------


def penstock(*words: str, given: dict[str, Any], tmp_path: Path) -> dict[str, Any]:
    """What the command makes of a document."""
    file = tmp_path / f"{unique('document')}.yaml"
    file.write_text(yaml.safe_dump(given))
    command = [sys.executable, "-m", "penstock", words[0], str(file), *words[1:]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=True)
    found: dict[str, Any] = yaml.safe_load(done.stdout)
    return found


def test_a_gated_jobset_waits_as_a_whole_until_it_is_let_go(bed: Testbed, ns: str, tmp_path: Path) -> None:
    plain = jobset(job("first"), job("second", dependsOn=after("first")))
    gated = penstock("gate", given=plain, tmp_path=tmp_path)
    assert json.loads(gated["metadata"]["annotations"][MARK]) == {"unit": "stage", "by": "suspend", "held": "penstock"}
    assert penstock("ungate", given=gated, tmp_path=tmp_path) == plain
    path = create(bed, ns, gated)
    waiting = reaches(bed, path, "Suspended")
    assert [one["spec"]["suspend"] for one in jobs(bed, ns).values()] == [True] * len(jobs(bed, ns))
    assert not pods(bed, ns) and status_of(waiting).state == "suspended"
    bed.raw("PATCH", path, {"spec": {"suspend": False}}, MERGE)
    done = reaches(bed, path, "Completed")
    assert [(task.name, task.state) for task in status_of(done).tasks] == [
        ("first", "succeeded"),
        ("second", "succeeded"),
    ]


def test_with_gates_on_its_pods_each_of_them_waits(bed: Testbed, ns: str, tmp_path: Path) -> None:
    plain = jobset(job("first", 2), job("second", dependsOn=after("first")))
    path = create(bed, ns, penstock("gate", "--by", "pods", given=plain, tmp_path=tmp_path))
    for name, count in (("first", 2), ("second", 1)):
        for one in gathered(bed, ns, name, count):
            assert one["spec"]["schedulingGates"] == [{"name": POD_GATE}]
            assert condition(one, "PodScheduled").get("reason") == "SchedulingGated"
        release(bed, ns, name)
    reaches(bed, path, "Completed")


def test_what_the_user_suspended_is_marked_as_the_user_s(bed: Testbed, ns: str, tmp_path: Path) -> None:
    gated = penstock("gate", given=jobset(job("only"), suspend=True), tmp_path=tmp_path)
    assert json.loads(gated["metadata"]["annotations"][MARK])["held"] == "user"
    reaches(bed, create(bed, ns, gated), "Suspended")
    assert not pods(bed, ns)
