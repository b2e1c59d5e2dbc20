"""When an object of a known kind has succeeded, failed, waits or was taken from it; where its pods are found; and who makes it. Called by the backend of resource steps.

The conditions are those by which Kueue 0.19 and the operators themselves take the object for finished, as expressions over `status` and `spec`. Of what never ends
(a RayCluster, a Deployment) it is success to be ready. A kind with empty conditions is done as soon as the cluster has accepted it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from penstock.formats.documents import items, part

Data = Mapping[str, Any]


def _condition(type_: str, status: str = "True") -> str:
    return f'status.conditions.exists(one, one.type == "{type_}" && one.status == "{status}")'


Selectors = tuple[str, ...]


def _labelled(label: str) -> Callable[[Data], Selectors]:
    return lambda data: (f"{label}={part(data, 'metadata').get('name', '')}",)


def _selected(data: Data) -> Selectors:
    """As the object itself selects them."""
    labels = part(data, "spec", "selector", "matchLabels")
    return (",".join(f"{name}={value}" for name, value in sorted(labels.items())),) if labels else ()


def _of_ray(data: Data) -> Selectors:
    """The submitter of a RayJob is a Job of its name; its cluster, and that of a RayService, have names of their own."""
    own = part(data, "status").get("rayClusterName") or part(data, "status", "activeServiceStatus").get(
        "rayClusterName"
    )
    cluster = (f"ray.io/cluster={own}",) if own else ()
    return (*_labelled("batch.kubernetes.io/job-name")(data), *cluster) if data.get("kind") == "RayJob" else cluster


def _none(data: Data) -> Selectors:
    return ()


@dataclass(frozen=True, slots=True)
class Ending:
    """Of one kind."""

    success: str = ""
    failure: str = ""
    pods: Callable[[Data], Selectors] = _none
    """The selectors of its pods, given the object, those with the most to say first; none: not known."""


_ENDED: Final = Ending(_condition("Succeeded"), _condition("Failed"), _labelled("training.kubeflow.org/job-name"))
_KNATIVE: Final = (_condition("Succeeded"), _condition("Succeeded", "False"))
_SEEN: Final = "status.observedGeneration == metadata.generation"
"""What the status says is of the object as it is now, not as it was before it was applied."""


def _all(*fields: str, of: str = "spec.replicas") -> str:
    return " && ".join((_SEEN, *(f"default(status.{field}, 0) == {of}" for field in fields)))


_RAY_FAILED: Final = (
    'default(status.jobDeploymentStatus, "") in ["Failed", "ValidationFailed"]'
    ' || (default(status.jobDeploymentStatus, "") == "Complete" && default(status.jobStatus, "") in ["FAILED", "STOPPED"])'
)
"""Not by jobStatus alone: with backoffLimit, KubeRay tries again what has failed."""
_GAVE_UP: Final = f"{_SEEN} && {_condition('Progressing', 'False')}"

ENDINGS: Final[Mapping[tuple[str, str], Ending]] = {
    ("", "Pod"): Ending('status.phase == "Succeeded"', 'status.phase == "Failed"'),
    ("batch", "Job"): Ending(_condition("Complete"), _condition("Failed"), _labelled("batch.kubernetes.io/job-name")),
    ("batch", "CronJob"): Ending(),
    ("apps", "Deployment"): Ending(_all("updatedReplicas", "availableReplicas"), _GAVE_UP, _selected),
    ("apps", "StatefulSet"): Ending(_all("updatedReplicas", "readyReplicas"), "", _selected),
    ("apps", "ReplicaSet"): Ending(_all("readyReplicas"), "", _selected),
    ("apps", "DaemonSet"): Ending(
        _all("updatedNumberScheduled", "numberReady", of="status.desiredNumberScheduled"), "", _selected
    ),
    ("jobset.x-k8s.io", "JobSet"): Ending(
        _condition("Completed"), _condition("Failed"), _labelled("jobset.sigs.k8s.io/jobset-name")
    ),
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): Ending(
        _condition("Available"), "", _labelled("leaderworkerset.sigs.k8s.io/name")
    ),
    ("ray.io", "RayCluster"): Ending('status.state == "ready"', 'status.state == "failed"', _labelled("ray.io/cluster")),
    ("ray.io", "RayJob"): Ending('status.jobStatus == "SUCCEEDED"', _RAY_FAILED, _of_ray),
    ("ray.io", "RayService"): Ending(_condition("Ready"), "", _of_ray),
    ("ray.io", "RayCronJob"): Ending(),
    ("sparkoperator.k8s.io", "SparkApplication"): Ending(
        'status.applicationState.state == "COMPLETED"', 'status.applicationState.state == "FAILED"',
        _labelled("sparkoperator.k8s.io/app-name"),
    ),
    ("sparkoperator.k8s.io", "ScheduledSparkApplication"): Ending(
        'status.scheduleState == "Scheduled"', 'status.scheduleState == "FailedValidation"'
    ),
    ("kubeflow.org", "PyTorchJob"): _ENDED,
    ("kubeflow.org", "TFJob"): _ENDED,
    ("kubeflow.org", "XGBoostJob"): _ENDED,
    ("kubeflow.org", "PaddleJob"): _ENDED,
    ("kubeflow.org", "JAXJob"): _ENDED,
    ("kubeflow.org", "MPIJob"): _ENDED,
    ("trainer.kubeflow.org", "TrainJob"): Ending(
        _condition("Complete"), _condition("Failed"), _labelled("jobset.sigs.k8s.io/jobset-name")
    ),
    ("kubernetes.dask.org", "DaskCluster"): Ending('status.phase == "Running"', "", _labelled("dask.org/cluster-name")),
    ("kubernetes.dask.org", "DaskJob"): Ending(
        'status.jobStatus in ["Successful", "Completed"]', 'status.jobStatus == "Failed"', _labelled("dask.org/cluster-name")
    ),
    ("kubernetes.dask.org", "DaskWorkerGroup"): Ending("", "", _labelled("dask.org/workergroup-name")),
    ("workload.codeflare.dev", "AppWrapper"): Ending(
        'status.phase == "Succeeded"', 'status.phase == "Failed"', _labelled("workload.codeflare.dev/appwrapper")
    ),
    ("argoproj.io", "Workflow"): Ending(
        'status.phase == "Succeeded"', 'status.phase in ["Failed", "Error"]', _labelled("workflows.argoproj.io/workflow")
    ),
    ("argoproj.io", "WorkflowTemplate"): Ending(),
    ("argoproj.io", "ClusterWorkflowTemplate"): Ending(),
    ("argoproj.io", "CronWorkflow"): Ending(),
    ("tekton.dev", "PipelineRun"): Ending(*_KNATIVE, _labelled("tekton.dev/pipelineRun")),
    ("tekton.dev", "TaskRun"): Ending(*_KNATIVE, _labelled("tekton.dev/taskRun")),
}  # fmt: skip
"""A row for each kind of the table."""

OPERATORS: Final[Mapping[str, str]] = {
    "ray.io": "KubeRay (https://github.com/ray-project/kuberay)",
    "sparkoperator.k8s.io": "the Spark operator of Kubeflow (https://github.com/kubeflow/spark-operator)",
    "kubeflow.org": "Kubeflow's training operator, for MPIJob the MPI operator (https://github.com/kubeflow/training-operator, …/mpi-operator)",
    "trainer.kubeflow.org": "Kubeflow Trainer (https://github.com/kubeflow/trainer)",
    "kubernetes.dask.org": "the Dask operator (https://kubernetes.dask.org)",
    "jobset.x-k8s.io": "JobSet (https://jobset.sigs.k8s.io)",
    "leaderworkerset.x-k8s.io": "LeaderWorkerSet (https://lws.sigs.k8s.io)",
    "workload.codeflare.dev": "the AppWrapper controller (https://github.com/project-codeflare/appwrapper)",
    "argoproj.io": "Argo Workflows (https://argoproj.github.io/workflows)",
    "tekton.dev": "Tekton Pipelines (https://tekton.dev)",
}
"""API group → what has to be installed for it."""


def group_of(data: Data) -> str:
    """`ray.io` of `ray.io/v1`; empty for Kubernetes' own first objects."""
    return str(data.get("apiVersion") or "").rpartition("/")[0]


def ending_of(data: Data) -> Ending | None:
    """None: the kind is not known."""
    return ENDINGS.get((group_of(data), str(data.get("kind") or "")))


# -- an object as it is -----------------------------------------------------------------------------------------------


def waits(data: Data) -> str:
    """Why the object does nothing at present, if a queue or somebody holds it: never a failure. Empty if it may go on."""
    spec = part(data, "spec")
    held = {"Suspending", "Suspended"} & {
        str(part(data, "status").get(name)) for name in ("jobDeploymentStatus", "phase")
    }
    if held or spec.get("suspend") is True or part(spec, "runPolicy").get("suspend") is True:
        return _suspended(data)
    gates = [str(one.get("name")) for _, one in items(spec, "schedulingGates")]
    if gates and str(data.get("kind")) == "Pod":
        return f"held by {', '.join(gates)}"
    return ""


def _suspended(data: Data) -> str:
    queue = part(data, "metadata", "labels").get("kueue.x-k8s.io/queue-name")
    return f"suspended: it waits in Kueue's queue {queue}" if queue else "suspended"


def disrupted(data: Data) -> str:
    """Why a failed pod is no failure of its program: it was evicted, preempted, or its node went away. Empty if it is none."""
    if str(data.get("kind")) != "Pod" or group_of(data):
        return ""
    status = part(data, "status")
    for _, one in items(status, "conditions"):
        if one.get("type") in ("DisruptionTarget", "TerminationTarget") and one.get("status") == "True":
            return str(one.get("message") or one.get("reason") or "disrupted")
    reason = str(status.get("reason") or "")
    return str(status.get("message") or reason) if reason in ("Evicted", "NodeLost", "Shutdown", "Terminated") else ""


def told(data: Data) -> list[str]:
    """What the object says of itself, a line for each: its phase or state, and its conditions, with reason and message."""
    status = part(data, "status")
    found = []
    for name in ("phase", "state", "jobStatus", "jobDeploymentStatus", "scheduleState"):
        if isinstance(status.get(name), str) and status[name]:
            found.append(f"{name}: {status[name]}")
    spark = part(status, "applicationState").get("state")
    if spark:
        found.append(f"state: {spark}")
    for _, one in items(status, "conditions"):
        reason = f" ({one['reason']})" if one.get("reason") else ""
        message = f": {one['message']}" if one.get("message") else ""
        found.append(f"{one.get('type')}={one.get('status')}{reason}{message}")
    return found
