"""Runs on a cluster with Kueue, as a whole: what an engine asks of Kueue, what it does with the answers, and what is left. The protocol itself
is tried with the real Kueue in tests/cluster."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.artifacts.blobs import Blobs
from penstock.backends.kubernetes.cluster import JOBS, PODS
from penstock.backends.registry import check
from penstock.errors import UserError
from penstock.kubernetes.objects import annotations_of, condition, holds, part, rows
from penstock.kueue.kinds import LOCAL_QUEUES, WORKLOADS
from penstock.service import runs, stores, wording
from penstock.service.hosting import Host
from penstock.service.submission import Submission
from penstock.service.views.why import why
from penstock.service.workflows import load
from penstock.settings import Settings, read
from penstock.store.records import Event
from tests.backends.kubernetes.fake_cluster import NAMESPACE, FakeCluster
from tests.backends.kubernetes.fake_kueue import FakeKueue
from tests.controller.fake_api import Fault, wait_for

ON = dict.fromkeys(("function", "container", "pod", "script"), "kubernetes")
FAN = """
apiVersion: penstock/v1
kind: Workflow
name: fan
{more}
steps:
  - name: first
    resources: {{cpu: 1}}
    cache: {{enabled: false}}
    retry: {{limit: 1}}
    container: {{image: "does:{first}", command: [x]}}
  - name: many
    needs: [first]
    each: {{axes: [{{i: [1, 2, 3, 4, 5]}}]}}
    resources: {{cpu: 1}}
    cache: {{enabled: false}}
    container: {{image: "does:{many}", command: [x, "${{{{ item.i }}}}"]}}
"""


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCluster]:
    made = FakeCluster(Blobs(tmp_path / "blobs"))
    (tmp_path / "kubeconfig").write_text(made.kubeconfig())
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    monkeypatch.setenv("PENSTOCK_KUBERNETES_VOLUME", "host:/data")
    yield made
    made.stop()


@pytest.fixture
def kueue(cluster: FakeCluster) -> Iterator[FakeKueue]:
    made = FakeKueue(cluster, cores=2)
    yield made
    made.end()


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return read(home=str(tmp_path / "home"))


def fan(tmp_path: Path, more: str = "", first: str = "succeed", many: str = "succeed") -> str:
    path = tmp_path / "fan.yaml"
    path.write_text(FAN.format(more=more, first=first, many=many))
    return str(path)


@contextmanager
def running(settings: Settings, file: str, **more: Any) -> Iterator[runs.HostedRun]:
    host = Host(settings, ON)
    submission = Submission(load(file), {}, on=ON, **more)
    functions = submission.pack(settings)
    try:
        yield runs.begin(host, submission, functions)
    except BaseException:
        host.abandon()
        raise
    finally:
        host.close()


def events(settings: Settings, run: str, *kinds: str) -> list[Event]:
    with stores.open_existing(settings) as store:
        record = store.runs.by_id(run)
        assert record is not None
        return list(store.runs.events(record.number, kinds=list(kinds) or None))


@pytest.mark.parametrize("unit", ["workflow", "stage", "task", "reuse"])
def test_kueue_admits_by_each_unit_and_nothing_is_left(
    cluster: FakeCluster, kueue: FakeKueue, settings: Settings, tmp_path: Path, unit: str
) -> None:
    kueue.cores = 6 if unit == "workflow" else 2
    with running(settings, fan(tmp_path, f"unit: {unit}")) as session:
        session.wait()
        assert session.state == "succeeded"
    assert len(cluster.made) == 6 and cluster.names() == [] and kueue.workloads() == []
    assert all(sum(held.values()) <= kueue.cores for held in kueue.held)
    admitted = events(settings, "fan-1", "reservation.admitted")
    assert {one.data["queue"] for one in admitted} == {"research"} and admitted[0].data["flavors"] == ["spot"]
    if unit == "workflow":
        assert [sum(held.values()) for held in kueue.held] == [5]  # one Workload, as large as the peak
    if unit == "task":
        assert {cores for held in kueue.held for cores in held.values()} == {1}


def test_warm_pods_make_no_calls_that_kueue_has_admitted(
    cluster: FakeCluster, kueue: FakeKueue, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A warm pod stays longer than its task, on quota that is somebody else's by then."""
    monkeypatch.setenv("PENSTOCK_KUBERNETES_IMAGE", "does:succeed")
    monkeypatch.setenv("PENSTOCK_KUBERNETES_POD_REUSE", "1")
    flow = """
    from penstock import task, workflow

    @task(cpu=1, cache=False)
    def square(x: int) -> int:
        return x * x

    @workflow
    def squares():
        return [square(x) for x in [1, 2, 3]]
    """
    (tmp_path / "squares.py").write_text(textwrap.dedent(flow))
    with running(settings, str(tmp_path / "squares.py")) as session:
        session.wait()  # the pods do nothing, and no function has a result then
    assert len(cluster.made) == 3, "a Job for each"
    assert kueue.workloads() == []


def test_pods_get_the_nodes_of_their_flavor_and_are_not_queued_again(
    cluster: FakeCluster, kueue: FakeKueue, settings: Settings, tmp_path: Path
) -> None:
    with running(settings, fan(tmp_path, first="hang")) as session:
        job = wait_for(lambda: cluster.all(JOBS))[0]
        pod = job["spec"]["template"]
        assert pod["spec"]["nodeSelector"] == {"pool": "spot"} and pod["spec"]["tolerations"][0]["key"] == "spot"
        assert not [key for one in (job, pod) for key in one["metadata"]["labels"] if "kueue" in key]
        first = next(one for one in kueue.workloads() if holds(one, "Admitted"))
        wait_for(lambda: holds(cluster_workload(kueue, first), "PodsReady"))
        place = next(one for one in kueue.workloads() if one["metadata"]["name"] != first["metadata"]["name"])
        assert place["spec"]["active"] is False  # the second stage keeps its place
        cluster.nodes.hold.set()
        session.wait()
    assert session.state == "succeeded" and kueue.workloads() == []


def cluster_workload(kueue: FakeKueue, like: dict[str, Any]) -> dict[str, Any]:
    return next(one for one in kueue.workloads() if one["metadata"]["name"] == like["metadata"]["name"])


def test_what_is_evicted_stops_answers_and_waits_again_without_using_a_retry(
    cluster: FakeCluster, kueue: FakeKueue, settings: Settings, tmp_path: Path
) -> None:
    with running(settings, fan(tmp_path, first="hang")) as session:
        pod = wait_for(lambda: [one for one in cluster.all(PODS) if one["status"]["phase"] == "Running"])[0]
        kueue.stopped = True
        mine = next(one for one in kueue.workloads() if holds(one, "Admitted"))
        kueue.evict(mine["metadata"]["name"])
        answered = wait_for(lambda: [one for one in kueue.workloads() if holds(one, "Requeued")])[0]
        assert not cluster.names() and pod["metadata"]["name"] not in cluster.names(PODS)
        assert not part(answered, "status", "admission") and not holds(answered, "QuotaReserved")
        assert condition(answered, "PodsReady")["status"] == "False"
        kueue.stopped = False
        wait_for(lambda: cluster.names())
        cluster.nodes.hold.set()
        session.wait()
    assert session.state == "succeeded" and len(cluster.made) == 7
    evicted = events(settings, "fan-1", "reservation.evicted")
    assert [one.data["reason"] for one in evicted] == ["InClusterQueue"]
    assert not events(settings, "fan-1", "task.failed", "task.errored")


def test_the_reason_of_a_wait_is_what_kueue_says(
    cluster: FakeCluster, kueue: FakeKueue, settings: Settings, tmp_path: Path
) -> None:
    kueue.cores = 0
    with running(settings, fan(tmp_path)) as session:
        said = wait_for(
            lambda: [one for one in events(settings, "fan-1", "reservation.waiting") if "quota" in str(one.data)]
        )
        assert said[0].data["reason"]["queue"] == f"{NAMESPACE}/team" and said[0].data["reason"]["cluster"]
        assert "insufficient unused quota for cpu" in said[0].data["reason"]["detail"]
        with stores.open_existing(settings) as store:
            record = store.runs.by_id("fan-1")
            assert record is not None
            (wait,) = why(store, record).waits
            assert (wait.path, wait.kind, wait.tasks, wait.asks, wait.steps) == (
                "first",
                "queue",
                1,
                {"cpu": 1000},
                ("first",),
            )
            assert "waiting in queue ns/team: couldn't assign flavors" in wording.brief(wait.reason)
            (help,) = wording.remedies(wait.reason)
            assert help.startswith("penstock why workload/penstock-fan-1-first-") and " -n ns " in help
        kueue.cores = 2
        cluster.put(LOCAL_QUEUES, cluster.all(LOCAL_QUEUES)[0])
        session.wait()
    assert session.state == "succeeded"
    assert events(settings, "fan-1", "reservation.admitted")


def test_queues_and_classes_are_those_of_the_cluster(
    cluster: FakeCluster, kueue: FakeKueue, settings: Settings, tmp_path: Path
) -> None:
    file = fan(tmp_path)
    with (
        pytest.raises(UserError, match=r"P899.*no queue 'teem'.*--queue team. Did you mean"),
        running(settings, file, queue="teem"),
    ):
        pass
    with (
        pytest.raises(UserError, match=r"P899.*no priority class 'urgnt'.*urgent"),
        running(settings, file, priority="urgnt"),
    ):
        pass
    with running(settings, fan(tmp_path, first="hang"), queue="research", priority="urgent") as session:
        mine = wait_for(lambda: [one for one in kueue.workloads() if holds(one, "Admitted")])[0]
        assert mine["spec"]["queueName"] == "team" and mine["spec"]["priority"] == 1000
        assert mine["spec"]["priorityClassRef"]["name"] == "urgent"
        cluster.nodes.hold.set()
        session.wait()
    cluster.put(LOCAL_QUEUES, {"metadata": {"name": "other", "namespace": NAMESPACE}, "spec": {"clusterQueue": "x"}})
    with pytest.raises(UserError, match=r"P899.*which of the cluster's queues.*other, team"), running(settings, file):
        pass


def test_a_wide_stage_runs_in_parts_and_gives_back_as_it_ends(
    cluster: FakeCluster, kueue: FakeKueue, settings: Settings, tmp_path: Path
) -> None:
    with running(settings, fan(tmp_path, many="hang")) as session:
        wait_for(lambda: len([one for one in cluster.all(PODS) if one["status"]["phase"] == "Running"]) == 2)
        cluster.nodes.hold.set()
        session.wait()
    assert session.state == "succeeded" and len(cluster.made) == 6
    assert all(sum(held.values()) <= 2 for held in kueue.held)


def test_a_workload_that_somebody_deletes_is_asked_for_again(
    cluster: FakeCluster, kueue: FakeKueue, settings: Settings, tmp_path: Path
) -> None:
    with running(settings, fan(tmp_path, first="hang")) as session:
        wait_for(lambda: cluster.names())
        mine = next(one for one in kueue.workloads() if holds(one, "Admitted"))
        cluster.remove(WORKLOADS, NAMESPACE, mine["metadata"]["name"])
        wait_for(lambda: len(cluster.made) == 2)
        cluster.nodes.hold.set()
        session.wait()
    assert session.state == "succeeded" and kueue.workloads() == []


def test_faults_of_the_api_server_are_waited_out(
    cluster: FakeCluster, kueue: FakeKueue, settings: Settings, tmp_path: Path
) -> None:
    cluster.faults += [
        Fault(lambda method, path: method == "POST" and "workloads" in path, 500),
        Fault(lambda method, path: method == "POST" and "workloads" in path, 500, after=True),
        Fault(lambda method, path: method == "PATCH" and "workloads" in path, 409, "Conflict", times=2),
        Fault(lambda method, path: method == "DELETE" and "workloads" in path, 503, times=2),
    ]
    with running(settings, fan(tmp_path)) as session:
        session.wait()
    assert session.state == "succeeded" and kueue.workloads() == [] and len(cluster.made) == 6


def test_missing_rights_are_named_and_only_asked_for_where_kueue_is(
    cluster: FakeCluster, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.forbidden |= {"patch workloads", "get resourceflavors"}
    with running(settings, fan(tmp_path)) as session:
        session.wait()
    assert session.state == "succeeded"
    kueue = FakeKueue(cluster, cores=2)
    try:
        with (
            pytest.raises(UserError, match=r"P898.*you may not patch workloads.*get resourceflavors"),
            running(settings, fan(tmp_path)),
        ):
            pass
        monkeypatch.setenv("PENSTOCK_KUBERNETES_KUEUE", "off")
        with running(settings, fan(tmp_path)) as session:
            session.wait()
        assert session.state == "succeeded" and kueue.held == []
    finally:
        kueue.end()


def test_the_check_before_a_run_names_the_queues(cluster: FakeCluster, settings: Settings) -> None:
    given = {**os.environ}
    assert "Kueue" not in check({"kubernetes"}, settings.home, settings.artifacts, given)
    kueue = FakeKueue(cluster, cores=2)
    try:
        assert check({"kubernetes"}, settings.home, settings.artifacts, given).endswith("Kueue decides, in team")
        off = {**given, "PENSTOCK_KUBERNETES_KUEUE": "off"}
        assert "Kueue" not in check({"kubernetes"}, settings.home, settings.artifacts, off)
        with pytest.raises(UserError, match=r"P727.*neither on nor off"):
            check({"kubernetes"}, settings.home, settings.artifacts, {**given, "PENSTOCK_KUBERNETES_KUEUE": "no"})
    finally:
        kueue.end()


def test_where_kueue_queues_every_job_by_itself_it_is_left_to_it(
    cluster: FakeCluster, kueue: FakeKueue, settings: Settings, tmp_path: Path
) -> None:
    cluster.gives_jobs = {"kueue.x-k8s.io/queue-name": "default"}
    with running(settings, fan(tmp_path)) as session:
        session.wait()
    assert session.state == "succeeded" and kueue.held == []


# -- engines that die -------------------------------------------------------------------------------------------------


def started(settings: Settings, file: str, *more: str) -> subprocess.Popen[bytes]:
    environ = {**os.environ, "PENSTOCK_HOME": str(settings.home)}
    line = [sys.executable, "-m", "penstock", "run", file, "--on", "kubernetes", *more]
    with open(f"{settings.home}.said", "a") as said:
        return subprocess.Popen(line, env=environ, stdout=said, stderr=said)


@pytest.mark.slow
@pytest.mark.parametrize("waits", [True, False])
def test_the_next_engine_goes_on_with_the_workloads_of_one_that_was_killed(
    cluster: FakeCluster, kueue: FakeKueue, settings: Settings, tmp_path: Path, waits: bool
) -> None:
    kueue.cores = 0 if waits else 2
    file = fan(tmp_path, first="hang")
    one = started(settings, file)
    wait_for(lambda: kueue.workloads() if waits else cluster.names())
    before = {each["metadata"]["uid"] for each in wait_for(lambda: len(kueue.workloads()) == 2 and kueue.workloads())}
    one.kill()
    one.wait()
    kueue.cores = 2
    other = started(settings, file)
    try:
        wait_for(lambda: cluster.names())
        wait_for(lambda: len({annotations_of(each).get("penstock/engine") for each in kueue.workloads()}) == 1)
        assert {each["metadata"]["uid"] for each in kueue.workloads()} == before
        cluster.nodes.hold.set()
        other.wait(60)
    finally:
        other.kill()
        other.wait()
    assert other.returncode == 0, Path(f"{settings.home}.said").read_text()
    assert len(cluster.made) == 6 and kueue.workloads() == []
    assert all(sum(held.values()) <= 2 for held in kueue.held)


@pytest.mark.slow
def test_cancel_removes_what_a_killed_engine_has_left(
    cluster: FakeCluster, kueue: FakeKueue, settings: Settings, tmp_path: Path
) -> None:
    one = started(settings, fan(tmp_path, first="hang"))
    wait_for(lambda: cluster.names())
    one.kill()
    one.wait()
    assert kueue.workloads()
    environ = {**os.environ, "PENSTOCK_HOME": str(settings.home)}
    subprocess.run(
        [sys.executable, "-m", "penstock", "cancel", "fan-1", "--now"],
        env=environ,
        check=True,
        capture_output=True,
        timeout=60,
    )
    assert kueue.workloads() == [] and cluster.names() == []


def test_counts_are_what_was_asked(cluster: FakeCluster, kueue: FakeKueue, settings: Settings, tmp_path: Path) -> None:
    """Of a stage that may start in parts, one pod is enough."""
    kueue.cores = 1
    with running(settings, fan(tmp_path, many="hang")) as session:
        wide = wait_for(lambda: [one for one in kueue.workloads() if rows(one, "spec", "podSets")[0].get("minCount")])
        assert wide[0]["spec"]["podSets"][0]["count"] in (4, 5)
        cluster.nodes.hold.set()
        session.wait()
    assert session.state == "succeeded"
