"""Resource steps whose objects have their real operator: KubeRay makes the pods of a RayCluster, mpi-operator those of an MPIJob. What was counted is what they make; the
steps end as the operators say, and what is cancelled is gone. Nodes are fake."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from penstock import LocalRunner, PenstockError, ResourceJob, Workflow, open_run
from penstock.formats.documents import Document
from penstock.formats.pods.requests import resources_of
from penstock.graph.quantity import parse
from penstock.scheduling.objects import job_object
from penstock.service.sizing import demand
from testbed.api import MERGE
from testbed.components import yunikorn
from testbed.components.kwok import EXIT_CODE, RUN_TIME
from testbed.instance import Testbed
from tests.cluster import test_yunikorn as real
from tests.cluster.kueue_protocol import KUEUE, Desk
from tests.cluster.support import fresh_namespace

Data = dict[str, Any]
Beds = Callable[..., Testbed]
FAKE = {"nodeSelector": {"type": "kwok"}, "tolerations": [{"operator": "Exists"}]}


@pytest.fixture
def at(testbed: Beds, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Testbed, str]]:
    """An instance and a namespace of it; the kubectl and the home of the runs are the test's."""

    def start(*names: str) -> tuple[Testbed, str]:
        bed = testbed("kwok", *names)
        monkeypatch.setenv("PENSTOCK_KUBECTL", str(bed.binary("kubectl")))
        monkeypatch.setenv("KUBECONFIG", str(bed.kubeconfig))
        monkeypatch.setenv("KUBECACHEDIR", str(tmp_path / "kubectl"))
        monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / ".penstock"))
        monkeypatch.chdir(tmp_path)
        return bed, fresh_namespace(bed)

    return start


def template(name: str, cpu: str, annotations: Mapping[str, str]) -> Data:
    size = {"requests": {"cpu": cpu, "memory": "1Gi"}, "limits": {"cpu": cpu, "memory": "1Gi"}}
    container = {"name": name, "image": "busybox:testbed", "resources": size}
    return {"metadata": {"annotations": dict(annotations)}, "spec": {"containers": [container], **FAKE}}


def cluster(ns: str, **spec: Any) -> Data:
    forever = {RUN_TIME: "forever"}
    head = {"rayStartParams": {}, "template": template("head", "1", forever)}
    group = {"groupName": "w", "replicas": 2, "minReplicas": 2, "maxReplicas": 2, "rayStartParams": {}}
    workers = [{**group, "template": template("worker", "2", forever)}]
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": "ray", "namespace": ns},
        "spec": {"rayVersion": "2.52.0", "headGroupSpec": head, "workerGroupSpecs": workers, **spec},
    }


def mpi(ns: str, **launcher: str) -> Data:
    def role(name: str, replicas: int, annotations: Mapping[str, str]) -> Data:
        return {"replicas": replicas, "restartPolicy": "Never", "template": template(name, "1", annotations)}

    roles = {"Launcher": role("launcher", 1, launcher), "Worker": role("worker", 2, {RUN_TIME: "forever"})}
    policy = {"cleanPodPolicy": "Running", "backoffLimit": 0}
    return {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": "mpi", "namespace": ns},
        "spec": {"slotsPerWorker": 1, "runPolicy": policy, "mpiReplicaSpecs": roles},
    }


def flow(manifest: Data, **more: Any) -> Workflow:
    return Workflow("flow", [ResourceJob("make", manifest, **more)], queue="main")


def counted(manifest: Data) -> dict[str, int]:
    job = job_object(Document(manifest, ""))
    assert job is not None
    return demand(job)


def asked(pods: list[Any]) -> dict[str, int]:
    found: dict[str, int] = {}
    for pod in pods:
        for name, amount in resources_of(pod["spec"]).items():
            found[name] = found.get(name, 0) + amount
    return found


def pods_of(bed: Testbed, ns: str) -> list[Any]:
    return [
        one for one in bed.objects("v1", "pods", ns) if real.PLACEHOLDER not in one["metadata"].get("annotations", {})
    ]


def gone(bed: Testbed, ns: str, path: str) -> None:
    bed.wait(lambda: not bed.found(path) and not pods_of(bed, ns), "the object and its pods to be gone")


@pytest.mark.parametrize("more", [{}, {"enableInTreeAutoscaling": True}])
def test_a_ray_cluster_is_ready_when_kuberay_says_so_with_the_pods_that_were_counted(at: Any, more: Data) -> None:
    bed, ns = at("ray")
    manifest = cluster(ns, **more)
    run = LocalRunner().run(flow(manifest))
    assert run.ok, run["make"].error
    assert asked(pods_of(bed, ns)) == counted(manifest)
    bed.delete(f"/apis/ray.io/v1/namespaces/{ns}/rayclusters/ray")
    gone(bed, ns, f"/apis/ray.io/v1/namespaces/{ns}/rayclusters/ray")


def test_a_ray_job_that_is_cancelled_takes_its_cluster_with_it(at: Any) -> None:
    """Nobody answers in its head, so it never gets further than to its cluster."""
    bed, ns = at("ray")
    spec = {"entrypoint": "python x.py", "shutdownAfterJobFinishes": True, "rayClusterSpec": cluster(ns)["spec"]}
    meta = {"name": "job", "namespace": ns}
    job = {"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": meta, "spec": spec}
    with LocalRunner() as runner:
        run = runner.submit(flow(job))
        bed.wait(lambda: len(pods_of(bed, ns)) >= 3 or None, "the pods of its cluster")
        run.cancel()
    assert run.status == "cancelled"
    gone(bed, ns, f"/apis/ray.io/v1/namespaces/{ns}/rayjobs/job")


def test_an_mpi_job_ends_as_its_launcher_does(at: Any) -> None:
    bed, ns = at("mpi")
    manifest = mpi(ns)
    seen: list[Any] = []
    with LocalRunner() as runner:
        run = runner.submit(flow(manifest))
        bed.wait(lambda: seen.__setitem__(slice(None), pods_of(bed, ns)) or len(seen) == 3 or None, "its pods")
        run.wait()
    assert run.ok, run["make"].error
    assert asked(seen) == counted(manifest)
    made = bed.get(f"/apis/kubeflow.org/v2beta1/namespaces/{ns}/mpijobs/mpi")
    assert any(one["type"] == "Succeeded" and one["status"] == "True" for one in made["status"]["conditions"])


def test_an_mpi_job_that_fails_fails_the_step(at: Any) -> None:
    _, ns = at("mpi")
    run = LocalRunner().run(flow(mpi(ns, **{EXIT_CODE: "3"})))
    assert not run.ok and f"MPIJob {ns}/mpi has failed" in str(run["make"].error)


def test_kueue_holds_a_ray_cluster_until_there_is_room_for_all_of_it(at: Any) -> None:
    bed, ns = at("kueue", "ray")
    full = Desk(bed, ns).queue(resources={"cpu": "4", "memory": "64Gi"})
    manifest = cluster(ns)

    def says_so(run: str) -> bool:
        with suppress(PenstockError):  # nothing is recorded yet
            return "it waits in Kueue's queue main" in open_run(run)["make"].logs
        return False

    with LocalRunner() as runner:
        run = runner.submit(flow(manifest))
        bed.wait(lambda: says_so(run.id), "the log to say that it waits")
        assert not pods_of(bed, ns)
        path = f"{KUEUE}/clusterqueues/{full}"
        spec = bed.get(path)["spec"]
        spec["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] = "5"
        bed.raw("PATCH", path, {"spec": spec}, MERGE)
        run.wait()
    assert run.ok, run["make"].error
    assert asked(pods_of(bed, ns)) == counted(manifest)
    (workload,) = bed.objects("kueue.x-k8s.io/v1beta2", "workloads", ns)
    sets = workload["status"]["admission"]["podSetAssignments"]
    assert sum(parse(one["resourceUsage"]["cpu"]) for one in sets) == counted(manifest)["cpu"] == 5000


@pytest.fixture
def scheduled(at: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Testbed, str]]:
    bed, ns = at("yunikorn", "ray")
    yunikorn.configure(bed, real.QUEUES)
    monkeypatch.setenv("PENSTOCK_SCHEDULER", "yunikorn")
    yield bed, ns
    bed.delete(f"/apis/ray.io/v1/namespaces/{ns}/rayclusters")
    bed.delete(f"/api/v1/namespaces/{ns}/pods")


def test_kuberay_hands_our_gang_to_yunikorn(scheduled: tuple[Testbed, str]) -> None:
    """The queue has room for four processors, and another pod holds one of them: no pod of the cluster, which needs four with its autoscaler's half, may start before."""
    bed, ns = scheduled
    real.create(bed, ns, "other", 1, {"labels": {f"{real.DOMAIN}/queue": "root.small"}})
    bed.wait(lambda: real.phases(bed, ns).get("other") == "Running" or None, "another pod to run")
    manifest = cluster(ns)
    manifest["spec"]["workerGroupSpecs"][0] |= {"replicas": 1, "minReplicas": 1, "maxReplicas": 1}
    manifest["spec"]["enableInTreeAutoscaling"] = True
    with LocalRunner() as runner:
        run = runner.submit(Workflow("flow", [ResourceJob("make", manifest)], queue="small"))
        bed.wait(lambda: len(real.pods(bed, ns)[1]) == 2 or None, "its placeholders")
        (head,) = (one for one in pods_of(bed, ns) if "head" in one["metadata"]["name"])
        groups = head["metadata"]["annotations"][f"{real.DOMAIN}/task-groups"]
        assert '"cpu":"1500m"' in groups.replace(" ", ""), "KubeRay's own groups forget the autoscaler"
        assert [name for name, phase in real.phases(bed, ns).items() if phase == "Running"] == ["other"]
        real.end(bed, ns, "other")
        run.wait()
    assert run.ok, run["make"].error
