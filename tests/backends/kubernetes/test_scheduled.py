"""Tasks whose pods a scheduler of the cluster queues (PENSTOCK_SCHEDULER=yunikorn): what is written on their Jobs, what its decisions mean, and that nothing is held
here. YuniKorn itself is tried in tests/cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.artifacts.blobs import Blobs
from penstock.backends.base import AttemptSpec
from penstock.backends.kubernetes import boot, options
from penstock.backends.kubernetes.cluster import JOBS
from penstock.backends.kubernetes.manifest import job_of
from penstock.backends.kubernetes.outcome import Ended, Waiting, judge
from penstock.backends.kubernetes.work import work_of
from penstock.errors import UserError
from penstock.expressions.types import parse
from penstock.graph import model
from penstock.kueue.kinds import WORKLOADS
from penstock.scheduling import registry
from penstock.service import runs, stores
from penstock.service.hosting import Host
from penstock.service.plans import plan
from penstock.service.submission import Submission
from penstock.service.views.why import why
from penstock.service.workflows import load
from penstock.settings import read
from tests.backends.harness import spec_of
from tests.backends.kubernetes.fake_cluster import FakeCluster
from tests.backends.kubernetes.fake_kueue import FakeKueue
from tests.backends.kubernetes.pods import condition, ended, pod
from tests.backends.kubernetes.pods import job as seen_job
from tests.controller.fake_api import wait_for

DOMAIN = "yunikorn.apache.org"
HOME = Path("/home/of/penstock")
ON = dict.fromkeys(("function", "container", "pod", "script"), "kubernetes")
QUEUE = "the queue team-a of yunikorn"
FLOW = """
apiVersion: penstock/v1
kind: Workflow
name: fan
queue: team-a
steps:
  - name: large
    resources: {cpu: 4000}
    cache: {enabled: false}
    container: {image: "does:succeed", command: [x]}
  - name: other
    queue: team-b
    resources: {cpu: 1}
    cache: {enabled: false}
    container: {image: "does:succeed", command: [y]}
on_exit:
  - name: tidy
    resources: {cpu: 1}
    container: {image: "does:succeed", command: [z]}
"""


def settings(**more: str) -> options.KubernetesOptions:
    given = {"PENSTOCK_KUBERNETES_VOLUME": "pvc:claim", "PENSTOCK_SCHEDULER": "yunikorn", **more}
    return options.read(given, HOME, str(HOME / "artifacts"))


def step(**more: Any) -> model.Step:
    fields: dict[str, Any] = {"name": "train", "action": model.Container(image="img:1", command=("run",))}
    return model.Step(**fields | {"resources": {"cpu": 500, "memory": 1000 * 2**30}} | more)


def job(tmp_path: Path, spec: AttemptSpec, chosen: options.KubernetesOptions) -> dict[str, Any]:
    blobs = Blobs(tmp_path / "blobs")
    made = work_of(spec, chosen, blobs, lambda: blobs.put(boot.library()))
    return job_of(spec, made, chosen, "store1", "ns")


def marks(job: dict[str, Any]) -> tuple[dict[str, str], dict[str, str], dict[str, Any]]:
    template = job["spec"]["template"]
    return template["metadata"]["labels"], template["metadata"].get("annotations", {}), template["spec"]


# -- what is written --------------------------------------------------------------------------------------------------


def test_the_pods_of_a_task_name_their_queue_and_their_application(tmp_path: Path) -> None:
    spec = spec_of(step(), queue="team-a")
    found = job(tmp_path, spec, settings())
    labels, annotations, pod = marks(found)
    assert pod["schedulerName"] == "yunikorn"
    assert labels[f"{DOMAIN}/queue"] == labels["queue"] == "root.team-a"
    assert labels[f"{DOMAIN}/app-id"] == labels["applicationId"] != ""
    assert labels["penstock/store"] == "store1" and f"{DOMAIN}/task-groups" not in annotations
    assert found == job(tmp_path, spec, settings()) and "kind" not in found
    assert found["metadata"]["annotations"]["penstock/task"] == spec.task
    another = spec_of(step(), queue="team-a", attempt=2)
    assert marks(job(tmp_path, another, settings()))[0]["applicationId"] != labels["applicationId"]


def test_replicas_are_a_gang_as_large_as_their_pods_are(tmp_path: Path) -> None:
    """With an output, another container stores it: the pod then asks for the larger of the two."""
    outputs = (model.Output(name="n", type=parse("int"), value=None),)
    for more, memory in (({}, "1Gi"), ({"outputs": outputs, "resources": {"memory": 1000 * 2**20}}, "64Mi")):
        spec = spec_of(step(replicas=4, **more), queue="root.team-a")
        _, annotations, _ = marks(job(tmp_path, spec, settings()))
        (group,) = json.loads(annotations[f"{DOMAIN}/task-groups"])
        assert (group["name"], group["minMember"]) == (annotations[f"{DOMAIN}/task-group-name"], 4)
        assert group["minResource"]["memory"] == memory
        assert annotations[f"{DOMAIN}/schedulingPolicyParameters"] == "gangSchedulingStyle=Hard"


@pytest.mark.parametrize(
    ("queue", "more"),
    [("", {}), ("team-a", {"PENSTOCK_SCHEDULER": "none"}), ("team-a", {"PENSTOCK_SCHEDULER": "kueue"})],
)
def test_nothing_is_written_without_a_queue_or_without_such_a_scheduler(
    tmp_path: Path, queue: str, more: dict[str, str]
) -> None:
    spec = spec_of(step(), queue=queue)
    assert job(tmp_path, spec, settings(**more)) == job(tmp_path, spec_of(step()), settings(PENSTOCK_SCHEDULER=""))


def test_a_queue_in_the_pod_template_of_the_user_wins(tmp_path: Path) -> None:
    overlay = tmp_path / "pods.yaml"
    overlay.write_text(json.dumps({"metadata": {"labels": {f"{DOMAIN}/queue": "root.own"}}}))
    found = job(tmp_path, spec_of(step(), queue="team-a"), settings(PENSTOCK_KUBERNETES_POD=str(overlay)))
    labels, _, pod = marks(found)
    assert labels["queue"] == labels[f"{DOMAIN}/queue"] == "root.own" and pod["schedulerName"] == "yunikorn"


def test_a_name_that_is_no_queue_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="P888"):
        job(tmp_path, spec_of(step(), queue="no queue"), settings())


def test_a_scheduler_that_needs_more_than_metadata_takes_no_replicas(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.scheduling.volcano import penstock_volcano

    monkeypatch.setattr("penstock.backends.kubernetes.scheduled.scheduler", lambda name: penstock_volcano.SCHEDULER)
    chosen = settings(PENSTOCK_SCHEDULER="volcano")
    labels, _, pod = marks(job(tmp_path, spec_of(step(), queue="team-a"), chosen))
    assert pod["schedulerName"] == "volcano" and labels["volcano.sh/queue-name"] == "team-a"
    with pytest.raises(UserError, match="P909.*PodGroup"):
        job(tmp_path, spec_of(step(replicas=2), queue="team-a"), chosen)


def test_which_schedulers_take_pods() -> None:
    assert [name for name in ("", "none", "kueue", "yunikorn", "volcano") if registry.takes_pods(name)] == [
        "yunikorn",
        "volcano",
    ]


# -- what it decides --------------------------------------------------------------------------------------------------


def seen(*pods: dict[str, Any], of: dict[str, Any] | None = None, queue: str = QUEUE) -> Any:
    return judge(of if of is not None else seen_job(), pods, max(1, len(pods)), "img:1", 600.0, queue)


def test_what_waits_in_the_queue_waits_for_as_long_as_it_takes() -> None:
    held = condition("PodScheduled", "False", "Unschedulable", "insufficient resources")
    for more, said in (({}, ""), ({"conditions": [held]}, ": insufficient resources")):
        found = seen(pod("Pending", **more))
        assert found == Waiting(f"it waits in {QUEUE}{said}") and found.patience is None
    placed = pod("Pending", containers={"main": {"waiting": {"reason": "ErrImagePull", "message": "not found"}}})
    placed["spec"]["nodeName"] = "one"
    assert seen(placed).problem.code == "P722"


def test_what_the_queue_never_takes_is_an_error_with_the_fix() -> None:
    found = seen(pod("Failed", reason="ApplicationRejected", message=" application rejected: larger than the queue"))
    assert isinstance(found, Ended) and not found.lost
    assert found.message.startswith(f"P724 {QUEUE} does not take it: application rejected: larger than the queue. Fix:")


def test_a_gang_that_finds_no_room_in_time_and_what_is_preempted_wait_again() -> None:
    late = seen(
        pod("Failed", reason="ResourceReservationTimeout"), pod("Failed", 1, reason="ResourceReservationTimeout")
    )
    assert (late.lost, late.preempted) == (True, True)
    gone = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    killed = pod("Failed", meta=gone, containers={"main": ended(143)})
    assert (seen(killed).lost, seen(killed).preempted) == (True, True)
    assert (seen(killed, queue="").lost, seen(killed, queue="").preempted) == (True, False)
    failed = seen_job(conditions=[condition("Failed")])
    assert judge(failed, [], 1, "img:1", 600.0, QUEUE).preempted  # type: ignore[union-attr]
    oom = seen(pod("Failed", meta=gone, containers={"main": ended(137, "OOMKilled")}))
    assert not oom.lost and "P725" in oom.message


# -- a whole run ------------------------------------------------------------------------------------------------------


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCluster]:
    made = FakeCluster(Blobs(tmp_path / "blobs"))
    (tmp_path / "kubeconfig").write_text(made.kubeconfig())
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    monkeypatch.setenv("PENSTOCK_KUBERNETES_VOLUME", "host:/data")
    monkeypatch.setenv("PENSTOCK_SCHEDULER", "yunikorn")
    yield made
    made.stop()


def test_nothing_is_held_here_and_kueue_is_not_asked(cluster: FakeCluster, tmp_path: Path) -> None:
    """One step asks for more than any machine has, and the queues are known to nobody here. Exit handlers never queue."""
    seen: dict[str, tuple[str | None, str | None]] = {}
    plain = cluster._plain

    def watched(method: str, path: str, query: Any, body: Any, headers: Any) -> Any:
        if method == "POST" and path.endswith("/jobs") and not query.get("dryRun"):
            template = body["spec"]["template"]
            name = body["metadata"]["labels"]["penstock/step"]
            seen[name] = template["metadata"]["labels"].get("queue"), template["spec"].get("schedulerName")
        return plain(method, path, query, body, headers)

    cluster._plain = watched  # type: ignore[method-assign]
    kueue = FakeKueue(cluster, cores=2)
    (tmp_path / "flow.yaml").write_text(FLOW)
    given = read(home=str(tmp_path / "home"))
    try:
        host = Host(given, ON)
        submission = Submission(load(str(tmp_path / "flow.yaml")), {}, on=ON, scheduler=given.scheduler)
        try:
            run = runs.begin(host, submission, submission.pack(given))
            assert run.wait(60) and run.live.status == "succeeded"
        finally:
            host.close()
        assert submission.warnings == ()
        assert seen == {
            "large": ("root.team-a", "yunikorn"),
            "other": ("root.team-b", "yunikorn"),
            "tidy": (None, None),
        }
        assert not cluster.all(WORKLOADS) and not cluster.names(JOBS)
    finally:
        kueue.end()


def test_why_says_what_the_cluster_holds_back(cluster: FakeCluster, tmp_path: Path) -> None:
    (tmp_path / "flow.yaml").write_text(FLOW.replace("does:succeed", "does:nowhere"))
    given = read(home=str(tmp_path / "home"))
    host = Host(given, ON)
    submission = Submission(load(str(tmp_path / "flow.yaml")), {}, on=ON, scheduler=given.scheduler)
    found: list[Any] = []
    try:
        run = runs.begin(host, submission, submission.pack(given))

        def told() -> bool:
            with stores.open_existing(given) as store:
                record = store.runs.by_id(run.run.id)
                assert record is not None
                found[:] = [why(store, record)]
            return len(found[0].waits) == 2

        wait_for(told)
    finally:
        host.abandon()
        host.close()
    assert found[0].running == 0
    assert {wait.path: (wait.kind, wait.reason.get("message")) for wait in found[0].waits} == {
        name: ("there", f"it waits in the queue {queue} of yunikorn: 0/1 nodes are available")
        for name, queue in (("large", "team-a"), ("other", "team-b"))
    }


def test_plan_says_whose_queue_decides(cluster: FakeCluster, tmp_path: Path) -> None:
    from penstock.cli.cluster import outlook_in_cluster

    (tmp_path / "flow.yaml").write_text(FLOW)
    found = outlook_in_cluster(plan(str(tmp_path / "flow.yaml"), {}, None, None, None))
    assert {name: one.detail for name, one in found.items()} == {
        name: f"waits in the queue {queue} of yunikorn: the cluster's scheduler decides, and nothing is held here"
        for name, queue in (("large", "team-a"), ("other", "team-b"))
    }
