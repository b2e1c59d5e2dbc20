"""The table: a row for each kind of object that makes pods. Called by `objects`.

To add a kind: a function that reads its pods, and a row.
"""

from __future__ import annotations

from penstock.formats.documents import Document
from penstock.scheduling.kinds import batch, dask, engines, ray, spark, training, wrapped
from penstock.scheduling.model import Kind, Path

POD_LABELS: Path = ("spec", "podMetadata", "labels")
KUBEFLOW = "Kueue queues it only if its configuration lists the framework kubeflow.org/{kind}"
SPARK = "Kueue queues it only with the feature gate SparkApplicationIntegration and its framework in the configuration"


def kind_of(document: Document) -> Kind | None:
    """The row for a document; None: this kind makes no pods that we know."""
    return KINDS.get((document.group, document.kind))


def _kubeflow(kind: str, job_type: str, field: str, *order: str) -> Kind:
    remark = KUBEFLOW.format(kind=kind.lower())
    return Kind("kubeflow.org", kind, job_type, training.of(field, *order), "optional", remark=remark)


_ROWS = (
    Kind("", "Pod", "default", batch.pod),
    Kind("batch", "Job", "default", batch.job),
    Kind("batch", "CronJob", "default", batch.cron_job, queue_labels=("spec", "jobTemplate", "metadata", "labels")),
    Kind("apps", "Deployment", "default", batch.serving),
    Kind("apps", "StatefulSet", "default", batch.serving),
    Kind("apps", "ReplicaSet", "default", batch.serving, "pods", ("spec", "template", "metadata", "labels")),
    Kind("apps", "DaemonSet", "default", batch.daemon, "none", remark="Kueue does not hold back what runs on every node"),
    Kind("jobset.x-k8s.io", "JobSet", "jobset", batch.jobset),
    Kind("leaderworkerset.x-k8s.io", "LeaderWorkerSet", "lws", batch.leader_worker_set),
    Kind("ray.io", "RayCluster", "ray", ray.cluster),
    Kind("ray.io", "RayJob", "ray", ray.job),
    Kind("ray.io", "RayService", "ray", ray.service),
    Kind("ray.io", "RayCronJob", "ray", ray.cron_job, "none", remark="Kueue queues the RayJobs that it makes, by labels that it does not pass on"),
    Kind("sparkoperator.k8s.io", "SparkApplication", "spark", spark.application, "optional", remark=SPARK),
    Kind("sparkoperator.k8s.io", "ScheduledSparkApplication", "spark", spark.scheduled, "none", remark="Kueue queues the applications that it makes, by labels that it does not pass on"),
    _kubeflow("PyTorchJob", "pytorch", "pytorchReplicaSpecs", "Master", "Worker"),
    _kubeflow("TFJob", "tensorflow", "tfReplicaSpecs", "Chief", "Master", "PS", "Worker", "Evaluator"),
    _kubeflow("XGBoostJob", "xgboost", "xgbReplicaSpecs", "Master", "Worker"),
    _kubeflow("PaddleJob", "paddle", "paddleReplicaSpecs", "Master", "Worker"),
    _kubeflow("JAXJob", "jax", "jaxReplicaSpecs", "Worker"),
    Kind("kubeflow.org", "MPIJob", "mpi", training.of("mpiReplicaSpecs", "Launcher", "Worker")),
    Kind("trainer.kubeflow.org", "TrainJob", "train", training.train_job),
    Kind("kubernetes.dask.org", "DaskCluster", "dask", dask.cluster, "group"),
    Kind("kubernetes.dask.org", "DaskJob", "dask", dask.job, "pods"),
    Kind("kubernetes.dask.org", "DaskWorkerGroup", "dask", dask.workers, "pods"),
    Kind("workload.codeflare.dev", "AppWrapper", "appwrapper", wrapped.of(kind_of)),
    Kind("argoproj.io", "Workflow", "argo", engines.argo, "pods", POD_LABELS),
    Kind("argoproj.io", "WorkflowTemplate", "argo", engines.argo, "pods", POD_LABELS),
    Kind("argoproj.io", "ClusterWorkflowTemplate", "argo", engines.argo, "pods", POD_LABELS),
    Kind("argoproj.io", "CronWorkflow", "argo", engines.argo_cron, "pods", ("spec", "workflowSpec", "podMetadata", "labels")),
    Kind("tekton.dev", "PipelineRun", "tekton", engines.pipeline_run, "pods"),
    Kind("tekton.dev", "TaskRun", "tekton", engines.task_run, "pods"),
)  # fmt: skip
KINDS = {(one.api_group, one.kind): one for one in _ROWS}
JOB_TYPES = tuple(dict.fromkeys(one.job_type for one in _ROWS))
