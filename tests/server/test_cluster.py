"""A cluster beside the store: the same pages and lists show its queues and what waits in them, from recorded objects and a watch. A cluster
that is slow, away or without Kueue keeps nobody waiting."""

from __future__ import annotations

import io
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.cli.main import run
from penstock.controller.inspect.watched import WatchedCluster, watched_kinds
from penstock.controller.objects import ApiResource
from penstock.kubernetes import watch
from penstock.kubernetes.client import Client
from penstock.kubernetes.kubeconfig import Connection
from penstock.kubernetes.log import Log
from penstock.kueue.wanted import RESERVATION
from tests.controller.cluster_objects import BASE, NOW, Doc, cluster_queue, obj, pending, workload
from tests.controller.fake_api import FakeApi
from tests.server.served import Served, wait_for
from tests.server.test_pages import page

KINDS = {one.kind: one for one in watched_kinds()}
LABEL = {"kueue.x-k8s.io/queue-name": "team-a"}
CRON = {
    "ownerReferences": [{"apiVersion": "argoproj.io/v1alpha1", "kind": "CronWorkflow", "name": "c", "controller": True}]
}
STAGE = {"labels": {"penstock/workflow-uid": "uid-nightly"}, "annotations": {"penstock/stage": "train"}}
OBJECTS = [
    *BASE,
    workload("w-holder", 3, owner="Job/holder", held_in="shared", ago=400),
    workload("w-set", 2, owner="JobSet/sweep", ago=300, conditions=(pending("insufficient unused quota"),)),
    workload("w-stage", 2, owner="Workflow/nightly", ago=200, conditions=(pending(),), metadata=STAGE),
    workload("w-run", 1, held_in="shared", ago=350, metadata={"annotations": {RESERVATION: "flow-1/train"}}),
    obj("Workflow", "cron", "here", metadata={"labels": {**LABEL, "kueue.x-k8s.io/queue-name": "mian"}} | CRON),
    obj("Workflow", "nightly", "here", metadata={"labels": LABEL}, status={"phase": "Running"}),
    obj("PipelineRun", "ignored", "here", metadata={"labels": {**LABEL, "kueue.x-k8s.io/queue-name": "mian"}}),
    obj("Workflow", "ended", "here", metadata={"labels": LABEL}, status={"phase": "Succeeded"}),
]


def put(api: FakeApi, *objects: Doc) -> None:
    for one in objects:
        kind = KINDS[one["kind"]]
        api.put(ApiResource(kind.api, kind.kind, kind.plural, kind.namespaced), one)


@pytest.fixture(scope="module")
def api() -> Iterator[FakeApi]:
    found = FakeApi(*(ApiResource(one.api, one.kind, one.plural, one.namespaced) for one in watched_kinds()))
    put(found, *OBJECTS)
    yield found
    found.stop()


@pytest.fixture(scope="module")
def beside(api: FakeApi, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    cluster = WatchedCluster(Client(api.connection()), "lab", Log(io.StringIO()), clock=lambda: NOW)
    with Served(tmp_path_factory.mktemp("beside") / ".penstock", worker=False, cluster=cluster) as served:
        wait_for(lambda: served.get("runs")["cluster"]["problem"] is None, what="the cluster")
        wait_for(lambda: len(served.get("runs")["cluster"]["items"]) == 6, what="all that is in it")
        yield served


def test_lists_have_what_is_in_the_queues_with_the_reason(beside: Served) -> None:
    found = beside.get("runs")["cluster"]
    assert found["cluster"] == "lab" and found["seen"] == NOW
    rows = {one["object"]: one for one in found["items"]}
    unknown = ["pipelinerun/ignored", "workflow/cron"]
    assert list(rows) == ["jobset/sweep", "workflow/nightly", *unknown, "job/holder", "workload/w-run"]
    assert rows["workload/w-run"]["name"] == "run/flow-1/train"
    assert rows["job/holder"]["state"] == "running" and rows["jobset/sweep"]["state"] == "queued"
    assert rows["jobset/sweep"]["reason"] == "waiting in queue here/team-a: 2 cpu short"
    assert rows["workflow/nightly"]["reason"].endswith("2 cpu short (position 2)")
    assert "namespace here has no LocalQueue of that name" in rows["pipelinerun/ignored"]["reason"]
    [queue] = beside.get("queues")["cluster"]["items"]
    assert (queue["queue"], queue["pending"], queue["admitted"]) == ("shared", 2, 2)
    assert {one["resource"]: one["used"] for one in queue["quota"]} == {"cpu": "4"}


def test_filters_count_for_the_cluster_too(beside: Served) -> None:
    def names(query: str) -> list[str]:
        return [one["object"] for one in beside.get(f"runs?{query}")["cluster"]["items"]]

    assert names("state=running") == ["job/holder", "workload/w-run"] and names("workflow=nightly") == [
        "workflow/nightly"
    ]
    assert names("user=ana") == [] and beside.get("runs?cursor=5")["cluster"] is None


def test_pages_say_the_same_and_lead_to_the_whole_why(beside: Served) -> None:
    outline, text = page(beside, "/")
    assert "In the queues of cluster lab" in text and "waiting in queue here/team-a: 2 cpu short" in text
    [there] = [one["href"] for one in outline.all("a") if "nightly" in str(one.get("href"))]
    _, text = page(beside, str(there))
    assert "workflow/nightly/train has waited" in text and "here/job/holder has 3 cpu" in text
    assert "penstock why workflow/nightly -n here --context lab" in text
    _, text = page(beside, "/queues")
    assert "In cluster lab" in text and 'href="/cluster/queues/shared"' in text
    for name in ("shared", "here%2Fteam-a"):
        _, text = page(beside, f"/cluster/queues/{name}")
        assert "here/workflow/nightly/train" in text and "2 cpu short" in text and "csrf" not in text
    data = beside.ask("GET", str(there)).data
    assert data["workloads"][0]["reason"]["why"] == "quota" and data["cluster"]["cluster"] == "lab"
    assert beside.get("cluster/why?object=workflow/nightly&namespace=here")["workloads"] == data["workloads"]
    assert beside.get("cluster/queues/shared")["pending"] == 2


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("cluster/why?object=workflow/none&namespace=here", 404, "P893"),
        ("cluster/why?object=nothing&namespace=here", 400, "P894"),
        ("cluster/why?object=spark/x&namespace=here", 404, "P893"),
        ("cluster/queues/nowhere", 404, "P812"),
    ],
)
def test_what_is_not_there(beside: Served, path: str, status: int, code: str) -> None:
    found = beside.ask("GET", f"/api/v1/{path}")
    assert (found.status, found.data["code"]) == (status, code), found


def test_what_changes_is_followed_without_asking_again(api: FakeApi, beside: Served) -> None:
    before = len(api.requests)
    put(api, workload("w-late", 1, owner="Job/late", conditions=(pending(),)))
    wait_for(lambda: "job/late" in [one["object"] for one in beside.get("runs")["cluster"]["items"]])
    for _ in range(20):
        page(beside, "/")
        page(beside, "/cluster/why?object=job%2Flate&namespace=here")
    assert len(api.requests) == before
    api.remove(KINDS["Workload"], "here", "w-late")
    wait_for(lambda: "job/late" not in [one["object"] for one in beside.get("runs")["cluster"]["items"]])


def test_a_cluster_that_goes_away_is_still_shown_with_its_age(
    tmp_path: Path, api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "FIRST", 0.01)
    mine = FakeApi(*api.resources.values())
    put(mine, *OBJECTS)
    cluster = WatchedCluster(Client(mine.connection()), "lab", Log(io.StringIO()))
    with Served(tmp_path / ".penstock", worker=False, cluster=cluster) as served:
        wait_for(lambda: served.get("runs")["cluster"]["items"])
        mine.stop()
        wait_for(lambda: served.get("runs")["cluster"]["problem"])
        _, text = page(served, "/")
        assert "cannot be reached" in text and "What is shown is of" in text and "jobset/sweep" in text
        mine.start()
        wait_for(lambda: served.get("runs")["cluster"]["problem"] is None)
        mine.stop()


def test_a_cluster_that_never_answers_keeps_nobody_waiting(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = Client(Connection(f"http://127.0.0.1:{silent.getsockname()[1]}"), timeout=2)
        cluster = WatchedCluster(client, "slow", Log(io.StringIO()))
        with Served(tmp_path / ".penstock", worker=False, cluster=cluster) as served:
            start = time.monotonic()
            _, text = page(served, "/")
            assert "Nothing has been read yet" in text
            page(served, "/queues")
            assert served.ask("GET", "/api/v1/cluster/queues/x").status == 404
            assert time.monotonic() - start < 5


def test_a_cluster_without_kueue_says_so(tmp_path: Path) -> None:
    bare = FakeApi(ApiResource("v1", "Namespace", "namespaces", namespaced=False))
    cluster = WatchedCluster(Client(bare.connection()), "bare", Log(io.StringIO()))
    with Served(tmp_path / ".penstock", worker=False, cluster=cluster) as served:
        wait_for(lambda: "Kueue is not installed" in (served.get("queues")["cluster"]["problem"] or ""))
        assert served.get("runs")["cluster"]["items"] == []
    bare.stop()


def test_a_queue_of_a_newer_kueue_is_told_of_and_the_rest_stays(tmp_path: Path, api: FakeApi) -> None:
    mine = FakeApi(*api.resources.values())
    put(mine, *OBJECTS)
    cluster = WatchedCluster(Client(mine.connection()), "lab", Log(io.StringIO()))
    with Served(tmp_path / ".penstock", worker=False, cluster=cluster) as served:
        wait_for(lambda: served.get("queues")["cluster"]["items"])
        put(mine, cluster_queue("odd", queueingStrategy="Never"))
        wait_for(lambda: "cannot read" in (served.get("queues")["cluster"]["problem"] or ""))
        assert served.get("queues")["cluster"]["items"]
    mine.stop()


def test_without_a_cluster_there_is_none(served: Served) -> None:
    assert served.get("runs")["cluster"] is None and "cluster" not in page(served, "/queues")[1]
    found = served.ask("GET", "/api/v1/cluster/queues/x")
    assert (found.status, found.data["code"]) == (404, "P951")


def test_a_context_that_is_not_there_is_refused_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config").write_text("contexts: []")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "home"))
    assert run(["serve", "--port", "0", "--cluster", "nope"]) == 2
    assert "P880" in capsys.readouterr().err and not (tmp_path / "home").exists()
    assert run(["serve", "--port", "0", "--cluster", "in-cluster"]) == 2
    assert "does not run in a cluster" in capsys.readouterr().err
