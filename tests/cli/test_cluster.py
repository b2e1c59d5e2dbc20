"""The commands about a cluster, with a kubectl that answers from a file: what they print, and how every error teaches."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.cli import main
from tests.cli.conftest import Result
from tests.controller.cluster_objects import BASE, Doc, fake_kubectl, local_queue, obj, pending, said, workload

Penstock = Callable[..., Result]
Cluster = Callable[..., None]
WAITS = "insufficient unused quota for cpu in flavor default, 1 more needed"
OBJECTS = (
    *BASE,
    obj("Job", "me", "here"),
    obj("Job", "holder", "here"),
    workload("w-holder", 3, owner="Job/holder", held_in="shared"),
    workload("w-me", 1, 2, owner="Job/me", ago=90, conditions=(pending(WAITS),)),
    workload("w-place", 1, ago=80, active=False, metadata={"labels": {"penstock/place": "true"}}),
)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    def make(*objects: Doc, **options: Any) -> None:
        monkeypatch.setenv("PENSTOCK_KUBECTL", fake_kubectl(tmp_path, *objects, **options))

    make(*OBJECTS)
    return make


def test_why_of_a_job_has_the_words_of_this_machine_and_those_of_kueue(penstock: Penstock, cluster: Cluster) -> None:
    done = penstock("why", "job/me")
    assert done.code == 0, done.err
    head, *rest = done.out.splitlines()
    assert head.startswith("job/me has waited for ") and head.endswith(
        "in queue here/team-a (ClusterQueue shared): 2 pods, 2 cpu."
    )
    assert rest == [
        "  why      not enough of the nominalQuota of ClusterQueue shared is free",
        "  short    cpu of flavor default: 2 asked, 1 free, 4 at most",
        "  held by  job/holder has 3 cpu   (queue here/team-a, priority 0)",
        "  order    1st in the queue",
        "  help     it can start when job/holder ends or releases quota",
        f"  kueue    {WAITS}",
    ]
    data = json.loads(penstock("why", "job/me", "-n", "here", "-o", "json").out)
    (one,) = data["workloads"]
    assert (data["object"], data["namespace"], one["state"]) == ("job/me", "here", "waiting")
    assert one["kueue"] == {"reason": "Pending", "message": WAITS} and one["names"] == {"here/w-holder": "job/holder"}


def test_an_admitted_one_one_that_is_ahead_and_one_that_is_over(penstock: Penstock, cluster: Cluster) -> None:
    said_of = penstock("why", "job/holder").out
    assert "by ClusterQueue shared: it holds 3 cpu of flavor default." in said_of
    assert "pods     0 of 1 run, 1 not made yet" in said_of
    assert "keeps its place in queue here/team-a" in penstock("why", "workload/w-place").out
    cluster(*BASE, workload("w-over", conditions=(said("Finished", True, "Succeeded", "Job finished successfully"),)))
    assert penstock("why", "workload/w-over").out == "workload/w-over is over: Job finished successfully\n"


def test_a_workflow_with_many_stages_names_those_that_are_over_or_ahead_in_a_line(
    penstock: Penstock, cluster: Cluster
) -> None:
    def stage(name: str, **more: Any) -> Doc:
        meta = {
            "labels": {"penstock/workflow-uid": "uid-flow", **more.pop("labels", {})},
            "annotations": {"penstock/stage": name},
        }
        return workload(f"w-{name}", owner="Workflow/flow", metadata=meta, **more)

    cluster(
        *OBJECTS,
        obj("Workflow", "flow", "here"),
        stage("a", conditions=(said("Finished", True, "Succeeded", "done"),)),
        stage("b", held_in="shared"),
        stage("c", active=False, labels={"penstock/place": "true"}),
    )
    said_of = penstock("why", "workflow/flow").out
    assert "workflow/flow/b was admitted" in said_of
    assert "not reached yet, and keeping their place: workflow/flow/c" in said_of and "over: workflow/flow/a" in said_of


def test_the_last_warning_among_the_events_comes_last(penstock: Penstock, cluster: Cluster) -> None:
    warned = {"type": "Warning", "reason": "WriteRefused", "message": "a policy refused it. Ask its owner."}
    cluster(*OBJECTS, obj("Event", "e", "here", involvedObject={"uid": "uid-me"}, **warned))
    assert penstock("why", "job/me").out.splitlines()[-1] == f"  warning  WriteRefused: {warned['message']}"


def test_without_a_workload_the_help_is_printed(penstock: Penstock, cluster: Cluster) -> None:
    cluster(*BASE, obj("Workflow", "flow", "here"))
    done = penstock("why", "workflow/flow")
    assert done.code == 0 and "workflow/flow is in no queue: it has no label kueue.x-k8s.io/queue-name." in done.out
    assert "help     submit it with the label kueue.x-k8s.io/queue-name: team-a" in done.out


def test_a_workload_of_a_run_is_called_by_the_run(penstock: Penstock, cluster: Cluster) -> None:
    ours = {"annotations": {"penstock/reservation": "flow-1/train"}}
    cluster(*BASE, workload("w-run", 1, held_in="shared", metadata=ours), workload("w-me", 9, owner="Job/me"))
    assert "run/flow-1/train" in penstock("queue", "show", "shared", "--cluster").out


def test_the_queues_of_a_cluster_as_those_of_this_machine(penstock: Penstock, cluster: Cluster) -> None:
    table = penstock("queue", "ls", "--cluster").out
    assert table.splitlines()[1].split() == ["shared", "BestEffortFIFO", "1", "1", "3/4", "active"]
    shown = penstock("queue", "show", "shared", "--cluster")
    assert all(part in shown.out for part in ("job/holder", "job/me", "1 cpu short")) and "1 gated" in shown.err
    data = json.loads(penstock("queue", "show", "team-a", "-n", "here", "-o", "json").out)
    assert (data["kind"], data["queue"], data["pending"], data["gated"]) == ("LocalQueue", "here/team-a", 1, 1)
    assert data["waiting"][0]["workload"] == "here/w-me" and data["waiting"][0]["run"] == "job/me"
    assert data["waiting"][0]["reason"]["short"][0]["holders"][0]["workload"] == "here/w-holder"
    assert "kind: LocalQueue" in penstock("queue", "ls", "--cluster", "-o", "yaml").out
    assert "P812" in penstock("queue", "show", "team-z", "--cluster").err


def test_a_local_queue_with_the_name_of_its_cluster_queue_is_a_queue_too(penstock: Penstock, cluster: Cluster) -> None:
    cluster(*BASE, local_queue("shared", "shared", "default"))
    data = json.loads(penstock("queue", "ls", "--cluster", "-o", "json").out)
    assert sorted(data[0]["local_queues"]) == ["here/team-a", "shared"]


def test_as_a_plugin_of_kubectl_queues_are_those_of_the_cluster(
    penstock: Penstock, cluster: Cluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for words, part in (
        (["queue", "ls"], "shared"),
        (["queue"], "shared"),
        (["why", "job/me", "-n", "here"], "job/holder has 3 cpu"),
    ):
        monkeypatch.setattr("sys.argv", ["kubectl-penstock", *words])
        with pytest.raises(SystemExit) as done:
            main.kubectl_plugin()
        assert done.value.code == 0 and part in capsys.readouterr().out
    monkeypatch.setattr("sys.argv", ["kubectl-penstock", "why", "--help"])
    with pytest.raises(SystemExit):
        main.kubectl_plugin()
    assert "Usage: kubectl penstock why" in capsys.readouterr().out


def test_context_and_kubeconfig_are_handed_to_kubectl(penstock: Penstock, cluster: Cluster, tmp_path: Path) -> None:
    assert penstock("why", "job/me", "--context", "far").code == 0
    assert penstock("queue", "ls", "--kubeconfig", "other.yaml").code == 0
    asked = set((tmp_path / "answers.json.asked").read_text().splitlines())
    assert asked == {"--context far", "--kubeconfig other.yaml"}


@pytest.mark.parametrize(
    ("options", "words", "code", "parts"),
    [
        (
            {"down": 'error: context "x" does not exist'},
            ("why", "job/me"),
            "P890",
            ("does not exist", "kubectl cluster-info"),
        ),
        (
            {"refused": ("clusterqueues", "cohorts")},
            ("queue", "ls", "--cluster"),
            "P891",
            (
                "ana may not list clusterqueues, cohorts",
                "--resource=clusterqueues.kueue.x-k8s.io,cohorts.kueue.x-k8s.io",
                "--user=ana",
            ),
        ),
        (
            {"without": ("ClusterQueue", "Workload", "LocalQueue")},
            ("queue", "ls", "--cluster"),
            "P892",
            ("Kueue is not installed in this cluster",),
        ),
        (
            {"without": ("Workload",), "groups": {"kueue.x-k8s.io": ["v1beta1"]}},
            ("queue", "ls", "--cluster"),
            "P892",
            ("not as v1beta2, only v1beta1", "newer Kueue"),
        ),
        ({"without": ("Workflow",)}, ("why", "workflow/x"), "P893", ("no workflows of argoproj.io/v1alpha1",)),
        ({}, ("why", "job/mee"), "P893", ('Did you mean "me"?', "holder")),
        ({}, ("why", "job/me", "-n", "there"), "P893", ("there is one in namespace here: -n here",)),
        ({}, ("why", "nightly", "-n", "there"), "P894", ("KIND/NAME",)),
    ],
)
def test_errors_say_what_to_do(
    penstock: Penstock,
    cluster: Cluster,
    options: dict[str, Any],
    words: tuple[str, ...],
    code: str,
    parts: tuple[str, ...],
) -> None:
    cluster(*OBJECTS, obj("Job", "else", "there"), **options)
    done = penstock(*words)
    assert done.code in (2, 4) and f"error[{code}]" in done.err, done
    for part in parts:
        assert part in done.err, done.err


def test_without_kubectl(penstock: Penstock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PENSTOCK_KUBECTL", str(tmp_path / "none"))
    assert "P870" in penstock("why", "job/me").err


def test_who_may_not_see_pods_sees_the_rest(penstock: Penstock, cluster: Cluster) -> None:
    cluster(*OBJECTS, refused=("pods", "events", "configmaps"))
    done = penstock("why", "job/holder")
    assert done.code == 0 and "it holds 3 cpu" in done.out and "pods" not in done.out


def test_who_may_see_one_namespace_only_is_told_what_kueue_says(penstock: Penstock, cluster: Cluster) -> None:
    cluster(
        *OBJECTS,
        refused=("v1beta2/clusterqueues", "v1beta2/workloads", "v1beta2/localqueues", "cohorts"),
    )
    done = penstock("why", "job/me")
    assert done.code == 0 and "warning[P891]: ana may not list clusterqueues, cohorts, localqueues" in done.err
    assert "you may not see the queues of the whole cluster" in done.out and f"kueue    {WAITS}" in done.out
    assert "it holds 3 cpu of flavor default" in penstock("why", "job/holder").out
    data = json.loads(penstock("why", "job/me", "-o", "json").out)
    assert data["unseen"]["code"] == "P891" and data["workloads"][0]["reason"]["why"] == "unseen"
    assert "error[P891]" in penstock("queue", "ls", "--cluster").err
    cluster(*OBJECTS, refused=("clusterqueues", "workloads"))
    assert "error[P891]" in penstock("why", "job/me").err


def test_a_run_is_still_asked_about_by_its_name(penstock: Penstock, cluster: Cluster) -> None:
    began = time.monotonic()
    done = penstock("why", "flow-1/train")
    assert done.code == 4 and "P50" in done.err and time.monotonic() - began < 30


FLOW = """
apiVersion: penstock/v1
kind: Workflow
name: flow
steps:
  - {name: small, resources: {cpu: 1}, script: {source: "true"}}
  - {name: wide, needs: [small], resources: {cpu: 1}, each: {axes: [{i: [1, 2, 3]}]}, script: {source: "true"}}
  - {name: large, needs: [wide], resources: {cpu: 9}, script: {source: "true"}}
"""


def test_a_plan_for_the_cluster_speaks_of_its_queues(
    penstock: Penstock, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("flow.yaml").write_text(FLOW)
    cluster(*BASE, workload("w-holder", 3, owner="Job/holder", held_in="shared"))
    found = json.loads(penstock("plan", "flow.yaml", "--on", "kubernetes", "-o", "json").out)["reservations"]
    outlook = {one["name"]: one["outlook"] for one in found}
    assert {name: one["verdict"] for name, one in outlook.items()} == {
        "small": "fits now",
        "wide": "fits in part",
        "large": "never fits",
    }
    assert {one["queue"] for one in outlook.values()} == {"shared"} and outlook["wide"]["tasks"] == 1
    assert "fits now" in penstock("plan", "flow.yaml", "--on", "kubernetes").out
    none = penstock("plan", "flow.yaml", "--on", "kubernetes", "--queue", "team-z").out
    assert "there is no queue 'team-z'" in none
    assert "P814" in penstock("plan", "flow.yaml", "--on", "kubernetes", "--priority", "urgnt").err
    monkeypatch.setenv("PENSTOCK_KUBERNETES_NAMESPACE", "elsewhere")
    assert "the namespace elsewhere has no queue" in penstock("plan", "flow.yaml", "--on", "kubernetes").out
