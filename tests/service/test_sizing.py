"""What resource steps ask for: the pods of their objects, in plan and in admission, and never on both sides."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock import LocalRunner, ResourceJob, Workflow, WorkflowParam
from penstock.errors import PlanError, UserError
from penstock.graph import quantity
from penstock.graph.codec import to_yaml
from penstock.service.conversion import write
from penstock.service.feasibility import vet_cluster
from penstock.service.plans import outlook_of, plan, sizes_of
from penstock.settings import read

SPEC = {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]}
POD = {"spec": SPEC}
RAY: dict[str, Any] = {
    "apiVersion": "ray.io/v1",
    "kind": "RayJob",
    "metadata": {"generateName": "r-"},
    "spec": {
        "rayClusterSpec": {
            "enableInTreeAutoscaling": True,
            "headGroupSpec": {"template": POD},
            "workerGroupSpecs": [{"groupName": "w", "replicas": 1, "minReplicas": 2, "template": POD}],
        }
    },
}
QUEUES = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: any}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: lab}
spec:
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [cpu, memory]
    flavors: [{name: any, resources: [{name: cpu, nominalQuota: %d}, {name: memory, nominalQuota: 64Gi}]}]
"""


def job(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train"}, "spec": {"template": POD, **spec}
    }  # fmt: skip


def planned(tmp_path: Path, *steps: ResourceJob, given: tuple[str, ...] = (), **more: Any) -> Any:
    file = tmp_path / "flow.yaml"
    file.write_text(to_yaml(Workflow("w", list(steps), queue="lab", **more).graph))
    return plan(str(file), given)


def peak(found: Any) -> dict[str, str]:
    return {name: quantity.short(one.amount, name) for name, one in found.peaks.items()}


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PENSTOCK_SCHEDULER", raising=False)
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / ".penstock"))


def test_a_ray_job_asks_for_its_head_with_the_autoscaler_its_least_workers_and_its_submitter(tmp_path: Path) -> None:
    found = planned(tmp_path, ResourceJob("train", RAY))
    assert peak(found) == {"cpu": "4", "memory": "3.7Gi"}  # 1.5 + 2 × 1 + 0.5; 1.5Gi + 2 × 1Gi + 200Mi
    assert sizes_of(found) == ()


def test_spark_asks_for_its_overhead(tmp_path: Path) -> None:
    role = {"cores": 1, "memory": "1g"}
    spark = {
        "apiVersion": "sparkoperator.k8s.io/v1beta2", "kind": "SparkApplication", "metadata": {"name": "s"},
        "spec": {"type": "Scala", "driver": role, "executor": {**role, "instances": 2}},
    }  # fmt: skip
    assert peak(planned(tmp_path, ResourceJob("s", spark))) == {"cpu": "3", "memory": "4.1Gi"}  # 3 × 1408Mi


def test_what_the_author_says_wins_and_what_makes_no_pods_asks_for_nothing(tmp_path: Path) -> None:
    assert peak(planned(tmp_path, ResourceJob("train", RAY, cpu=9))) == {"cpu": "9"}
    other = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}
    found = planned(tmp_path, ResourceJob("c", other), ResourceJob("look", job(), action="get"))
    assert (peak(found), sizes_of(found)) == ({}, ())


def test_counts_that_are_parameters_are_known_and_those_of_steps_are_warned_of(tmp_path: Path) -> None:
    sizes = ResourceJob("sizes", job(), outputs=[WorkflowParam("n", int)])
    wide = ResourceJob("wide", job(parallelism="${{ params.n }}"))
    found = planned(tmp_path, wide, params=[WorkflowParam("n", int, 3)])
    assert peak(found)["cpu"] == "3"
    found = planned(tmp_path, wide, params=[WorkflowParam("n", int, 3)], given=("n=5",))
    assert peak(found)["cpu"] == "5"
    found = planned(tmp_path, sizes, ResourceJob("wide", job(parallelism=sizes.outputs["n"])))
    (warning,) = sizes_of(found)
    assert (warning.code, warning.where, warning.severity) == ("P906", "steps.wide", "warning")
    assert peak(found)["cpu"] == "1"


def test_without_queues_this_machine_is_no_limit_for_the_pods_of_a_cluster(tmp_path: Path) -> None:
    found = planned(tmp_path, ResourceJob("train", job(parallelism=900)))
    assert outlook_of(found, read())["train"].text() == "runs on the cluster, and there are no queues here"


def test_queues_here_refuse_what_never_fits(tmp_path: Path) -> None:
    (tmp_path / "q.yaml").write_text(QUEUES % 4)
    found = planned(tmp_path, ResourceJob("train", job(parallelism=5)))
    assert outlook_of(found, read(), "q.yaml")["train"].verdict == "never fits"
    found = planned(tmp_path, ResourceJob("train", job(parallelism=4)))
    assert outlook_of(found, read(), "q.yaml")["train"].verdict == "fits now"


def test_pods_that_all_ask_for_the_same_machines_get_quota_of_a_flavor_that_has_them(tmp_path: Path) -> None:
    (tmp_path / "q.yaml").write_text(
        (QUEUES % 4).replace("{name: any}", "{name: any}\nspec: {nodeLabels: {pool: small}}", 1)
    )
    for pool, verdict in (("small", "fits now"), ("large", "never fits")):
        template = {"spec": {**SPEC, "nodeSelector": {"pool": pool}}}
        found = planned(tmp_path, ResourceJob("train", job(template=template)))
        assert outlook_of(found, read(), "q.yaml")["train"].verdict == verdict


@pytest.mark.parametrize("own", [False, True])
def test_what_the_cluster_queues_is_not_counted_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: bool
) -> None:
    manifest = job(parallelism=2)
    if own:
        manifest["metadata"] = {"name": "train", "labels": {"kueue.x-k8s.io/queue-name": "theirs"}}
    else:
        monkeypatch.setenv("PENSTOCK_SCHEDULER", "kueue")
    found = planned(tmp_path, ResourceJob("train", manifest))
    (warning,) = sizes_of(found)
    assert peak(found) == {} and warning.code == "P908" and "2 pods (2 cpu, 2Gi memory)" in warning.message
    monkeypatch.setenv("PENSTOCK_SCHEDULER", "none")
    assert peak(planned(tmp_path, ResourceJob("train", manifest)))["cpu"] == "2"


def test_a_scheduler_that_there_is_not_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_SCHEDULER", "slurm")
    with pytest.raises(UserError, match="there is no scheduler 'slurm'"):
        planned(tmp_path, ResourceJob("train", job()))


def test_argo_is_told_of_the_end_of_a_kind_as_far_as_it_has_words_for_it() -> None:
    spark = {
        "apiVersion": "sparkoperator.k8s.io/v1beta2", "kind": "SparkApplication", "metadata": {"name": "s"}, "spec": {}
    }  # fmt: skip
    steps = [ResourceJob("s", spark), ResourceJob("j", job()), ResourceJob("k", job(), success_condition=True)]
    found = write(Workflow("w", steps).graph, "argo")
    assert "successCondition: status.applicationState.state == COMPLETED" in found.text
    assert "failureCondition: status.applicationState.state == FAILED" in found.text
    assert found.text.count("Condition:") == 2
    assert {one.path for one in found.report.of("lost")} == {
        "steps.j.resource.success_condition",
        "steps.j.resource.failure_condition",
    }


# -- runs -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the stand-in for kubectl; it has a LocalQueue lab, and jobs that are complete when they are looked at."""
    folder = tmp_path / "cluster"
    folder.mkdir()
    script = Path(__file__).parents[1] / "backends" / "stand_in_kubectl.py"
    monkeypatch.setenv("PENSTOCK_KUBECTL", f"{sys.executable} -S -E {script}")
    monkeypatch.setenv("STAND_IN", str(folder))
    (folder / "localqueues").write_text("lab")
    complete = {"conditions": [{"type": "Complete", "status": "True"}]}
    (folder / "progress.json").write_text(json.dumps({"Job.train": [complete]}))
    return folder


def made(cluster: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((cluster / "Job.train.json").read_text())
    return found


FLOW = Workflow("w", [ResourceJob("train", job(parallelism=900))], queue="lab")
NAME = "kueue.x-k8s.io/queue-name"


@pytest.mark.parametrize("unit", ["stage", "workflow"])
def test_a_run_without_queues_of_ours_puts_the_object_into_the_queue_of_the_cluster(cluster: Path, unit: str) -> None:
    assert LocalRunner(unit=unit).run(FLOW).ok
    assert made(cluster)["metadata"]["labels"] == {NAME: "lab"}


def test_where_the_cluster_has_no_such_queue_the_object_is_as_it_was_written(cluster: Path) -> None:
    (cluster / "localqueues").unlink()
    assert LocalRunner().run(FLOW).ok
    assert "labels" not in made(cluster)["metadata"]


def test_a_queue_of_ours_holds_the_quota_and_then_the_cluster_does_not(cluster: Path, tmp_path: Path) -> None:
    (tmp_path / "q.yaml").write_text(QUEUES % 4)
    with pytest.raises(PlanError, match="asks for 900 cpu, and queue lab can have 4 at most"):
        LocalRunner(queues="q.yaml").run(FLOW)
    (tmp_path / "q.yaml").write_text((QUEUES % 1000).replace("64Gi", "2000Gi"))
    assert LocalRunner(queues="q.yaml").run(FLOW).ok
    assert "labels" not in made(cluster)["metadata"]


def test_the_scheduler_of_the_settings_holds_it_on_the_cluster_instead(
    cluster: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "q.yaml").write_text(QUEUES % 4)
    monkeypatch.setenv("PENSTOCK_SCHEDULER", "yunikorn")
    assert LocalRunner(queues="q.yaml").run(FLOW).ok
    template = made(cluster)["spec"]["template"]
    assert template["metadata"]["labels"]["yunikorn.apache.org/queue"] == "root.lab"
    assert template["spec"]["schedulerName"] == "yunikorn"


def test_an_object_that_is_lost_again_and_again_fails_in_the_end(cluster: Path) -> None:
    (cluster / "progress.json").write_text(json.dumps({"Job.train": [None]}))
    run = LocalRunner().run(FLOW)
    assert (
        not run.ok
        and "was deleted by somebody" in str(run["train"].error)
        and "it has lost 3" in str(run["train"].error)
    )
    created = [one for one in (cluster / "calls").read_text().splitlines() if json.loads(one)[0] == "create"]
    assert len(created) == 3


def test_a_resource_step_that_asks_for_nothing_needs_no_queue_of_the_cluster(tmp_path: Path) -> None:
    """There are two in the cluster, and the one that is named is none of them."""
    queues: Any = SimpleNamespace(local_queues={"a": "x", "b": "y"}, namespace="ns", priorities={})
    vet_cluster(queues, planned(tmp_path, ResourceJob("look", job(), action="get")))
    with pytest.raises(PlanError, match="P899"):
        vet_cluster(queues, planned(tmp_path, ResourceJob("train", job())))
