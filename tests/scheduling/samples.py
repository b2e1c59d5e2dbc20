"""A manifest of each kind, as data, for the tests beside it."""

from __future__ import annotations

from typing import Any

from penstock.formats.documents import Document

Data = dict[str, Any]


def pod(cpu: str = "1", memory: str = "2Gi", **spec: Any) -> Data:
    """A pod template."""
    main = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": cpu, "memory": memory}}}
    return {"metadata": {"labels": {"team": "a"}}, "spec": {"containers": [main], **spec}}


def worker(name: str = "w", **more: Any) -> Data:
    return {"groupName": name, "replicas": 2, "minReplicas": 2, "maxReplicas": 4, "template": pod(memory="1Gi"), **more}


def cluster(*workers: Data, **more: Any) -> Data:
    return {"headGroupSpec": {"template": pod()}, "workerGroupSpecs": list(workers or (worker(),)), **more}


def document(api: str, kind: str, spec: Any, **metadata: Any) -> Document:
    return Document(
        {"apiVersion": api, "kind": kind, "metadata": {"name": "one", **metadata}, "spec": spec}, "job.yaml"
    )


def replicas(field: str, **roles: int) -> Data:
    return {field: {name: {"replicas": count, "template": pod()} for name, count in roles.items()}}


def job(**spec: Any) -> Document:
    return document("batch/v1", "Job", {"parallelism": 3, "completions": 3, "template": pod(), **spec})


def ray_cluster(*workers: Data, metadata: Data | None = None, **more: Any) -> Document:
    return document("ray.io/v1", "RayCluster", cluster(*workers, **more), **(metadata or {}))


def ray_job(spec: Data | None = None, **more: Any) -> Document:
    inside = cluster() if spec is None else spec
    return document("ray.io/v1", "RayJob", {"rayClusterSpec": inside, "shutdownAfterJobFinishes": True, **more})


def spark(driver: Data | None = None, executor: Data | None = None, **more: Any) -> Document:
    spec = {"type": "Scala", "driver": {"cores": 1, "memory": "1g", **(driver or {})}}
    spec["executor"] = {"cores": 1, "instances": 2, "memory": "1g", **(executor or {})}
    return document("sparkoperator.k8s.io/v1beta2", "SparkApplication", {**spec, **more})


def dask(**metadata: Any) -> Document:
    spec = {"scheduler": {"spec": pod()["spec"]}, "worker": {"replicas": 3, "spec": pod()["spec"]}}
    return document("kubernetes.dask.org/v1", "DaskCluster", spec, **metadata)


def jobset(**more: Any) -> Document:
    def one(name: str, count: int, parallelism: int, **fields: Any) -> Data:
        template = {"spec": {"parallelism": parallelism, "completions": parallelism, "template": pod()}}
        return {"name": name, "replicas": count, "template": template, **fields}

    jobs = [one("driver", 1, 1), one("Workers", 2, 3)]
    return document("jobset.x-k8s.io/v1alpha2", "JobSet", {"replicatedJobs": jobs, **more})


def runtime() -> Document:
    def one(name: str, step: str) -> Data:
        labels = {"trainer.kubeflow.org/trainjob-ancestor-step": step}
        node = pod()
        node["spec"]["containers"][0]["name"] = "node" if step == "trainer" else name
        return {"name": name, "template": {"metadata": {"labels": labels}, "spec": {"template": node}}}

    jobs = [one("dataset-initializer", "dataset-initializer"), one("node", "trainer")]
    jobs[1]["dependsOn"] = [{"name": "dataset-initializer", "status": "Complete"}]
    found = document(
        "trainer.kubeflow.org/v1alpha1",
        "ClusterTrainingRuntime",
        {"mlPolicy": {"numNodes": 1}, "template": {"spec": {"replicatedJobs": jobs}}},
    )
    return Document({**found.data, "metadata": {"name": "torch"}}, "runtime.yaml")


def train_job() -> Document:
    trainer = {"numNodes": 4, "resourcesPerNode": {"requests": {"cpu": "2", "memory": "4Gi"}}}
    return document("trainer.kubeflow.org/v1alpha1", "TrainJob", {"runtimeRef": {"name": "torch"}, "trainer": trainer})


def lws(**more: Any) -> Document:
    spec = {
        "replicas": 2,
        "leaderWorkerTemplate": {"size": 3, "leaderTemplate": pod(), "workerTemplate": pod(cpu="2"), **more},
    }
    return document("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", spec)


def wrapper(*components: Data) -> Document:
    return document("workload.codeflare.dev/v1beta2", "AppWrapper", {"components": list(components)})


def every_kind() -> list[Document]:
    kubeflow = "kubeflow.org/v1"
    return [
        document("v1", "Pod", pod()["spec"]),
        job(),
        document("batch/v1", "CronJob", {"schedule": "* * * * *", "jobTemplate": {"spec": job().spec}}),
        document("apps/v1", "Deployment", {"replicas": 2, "template": pod()}),
        document("apps/v1", "StatefulSet", {"replicas": 2, "template": pod()}),
        document("apps/v1", "ReplicaSet", {"replicas": 2, "template": pod()}),
        document("apps/v1", "DaemonSet", {"template": pod()}),
        jobset(),
        lws(),
        ray_cluster(enableInTreeAutoscaling=True, autoscalerOptions={"resources": {"requests": {"cpu": "200m"}}}),
        ray_job(),
        ray_job(submitterPodTemplate=pod()),
        document("ray.io/v1", "RayService", {"rayClusterConfig": cluster()}),
        document("ray.io/v1", "RayCronJob", {"schedule": "* * * * *", "jobTemplate": ray_job().spec}),
        spark(
            {
                "tolerations": [{"key": "a"}],
                "template": pod(tolerations=[{"key": "b"}]),
                "gpu": {"name": "x/y", "quantity": 1},
            },
            {"sidecars": [{"name": "s"}]},
            nodeSelector={"a": "b"},
            dynamicAllocation={"enabled": True, "minExecutors": 1},
            sparkConf={"spark.memory.offHeap.enabled": "true", "spark.memory.offHeap.size": "1g"},
        ),
        document("sparkoperator.k8s.io/v1beta2", "ScheduledSparkApplication", {"template": spark().spec}),
        document(
            kubeflow,
            "PyTorchJob",
            {**replicas("pytorchReplicaSpecs", Master=1, Worker=3), "elasticPolicy": {"minReplicas": 2}},
        ),
        document(kubeflow, "TFJob", replicas("tfReplicaSpecs", Chief=1, PS=2, Worker=3)),
        document(kubeflow, "XGBoostJob", replicas("xgbReplicaSpecs", Master=1, Worker=2)),
        document(kubeflow, "PaddleJob", replicas("paddleReplicaSpecs", Worker=2)),
        document(kubeflow, "JAXJob", replicas("jaxReplicaSpecs", Worker=2)),
        document("kubeflow.org/v2beta1", "MPIJob", replicas("mpiReplicaSpecs", Launcher=1, Worker=2)),
        train_job(),
        dask(),
        document(
            "kubernetes.dask.org/v1", "DaskJob", {"job": {"spec": pod()["spec"]}, "cluster": {"spec": dask().spec}}
        ),
        document("kubernetes.dask.org/v1", "DaskWorkerGroup", {"worker": {"replicas": 2, "spec": pod()["spec"]}}),
        wrapper({"template": dict(job().data)}, {"template": dict(ray_cluster().data)}),
        document("argoproj.io/v1alpha1", "Workflow", {"entrypoint": "a", "templates": []}),
        document("argoproj.io/v1alpha1", "CronWorkflow", {"workflowSpec": {"entrypoint": "a"}}),
        document("tekton.dev/v1", "PipelineRun", {"pipelineRef": {"name": "p"}}),
        document("tekton.dev/v1", "TaskRun", {"taskRef": {"name": "t"}}),
    ]


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Of every value in a document."""
    found = [path] if path else []
    if isinstance(value, dict):
        for key, item in value.items():
            found += places(item, (*path, key))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            found += places(item, (*path, number))
    return found
