"""What a document needs so that its pods start, and end, on fake nodes. Called by examples, once for both sides.

Nothing here changes what follows from what. It takes away what a fake node cannot have: images whose command a registry would be asked for,
claims that nobody binds, machines and accounts that are not there; and time, which is virtual on our side: limits, pauses between tries.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Doc = dict[str, Any]
PLACE = (
    "nodeSelector",
    "affinity",
    "tolerations",
    "schedulerName",
    "resourceClaims",
    "priorityClassName",
    "runtimeClassName",
)
ARGO_DROPPED = (
    *PLACE,
    "activeDeadlineSeconds",
    "timeout",
    "pendingTimeout",
    "serviceAccountName",
    "podGC",
    "ttlStrategy",
    "artifactRepositoryRef",
    "executorPlugins",
    "podDisruptionBudget",
    "securityContext",
)
TEKTON_DROPPED = (
    "timeout",
    "timeouts",
    "serviceAccountName",
    "taskServiceAccountName",
    "computeResources",
    "managedBy",
)
NOT_MADE = frozenset(
    {"PersistentVolumeClaim", "PersistentVolume", "StorageClass", "Namespace", "ResourceQuota", "LimitRange"}
)
"""Documents that are not created: they would hold up pods that a fake node runs without them."""
ARGO_TYPES = ("container", "script", "containerSet", "resource", "data", "steps", "dag", "suspend", "http", "plugin")


# -- Argo -------------------------------------------------------------------------------------------------------------


def workflow_spec(document: Doc) -> Doc:
    """The part of a document of Argo that is a WorkflowSpec."""
    spec = _map(document, "spec")
    return _map(spec, "workflowSpec") if document.get("kind") == "CronWorkflow" else spec


def templates(document: Doc) -> Iterator[Doc]:
    """Every template of a document of Argo, inline ones too, at any depth."""
    waiting = [one for one in _maps(workflow_spec(document).get("templates"))]
    while waiting:
        one = waiting.pop(0)
        yield one
        for call in calls(one):
            if isinstance(call.get("inline"), dict):
                waiting.append(call["inline"])


def calls(template: Doc) -> Iterator[Doc]:
    """The steps or tasks of a template. A group of steps is a list, or an object with `steps`."""
    for group in template.get("steps") or ():
        yield from _maps(group.get("steps") if isinstance(group, dict) else group)
    yield from _maps(_map(template, "dag").get("tasks"))


def artifacts(template: Doc) -> Iterator[Doc]:
    for side in ("inputs", "outputs"):
        yield from _maps(_map(template, side).get("artifacts"))


def argo(document: Doc) -> None:
    _open(document)
    spec = workflow_spec(document)
    claims = [_map(one, "metadata").get("name") for one in _maps(spec.pop("volumeClaimTemplates", None))]
    _drop(spec, ARGO_DROPPED)
    volumes = [*(spec.get("volumes") or ()), *({"name": name, "emptyDir": {}} for name in claims)]
    if volumes:
        spec["volumes"] = volumes
    for holder in (spec, *templates(document), _map(spec, "templateDefaults")):
        _drop(holder, ARGO_DROPPED)
        _own_accounts(holder)
        _unclaim(holder.get("volumes"))
        _patient(holder.get("retryStrategy"))
        for container in containers(holder):
            container.pop("resources", None)
            if not container.get("command"):
                container["command"] = ["none"]
        if holder.get("daemon"):
            from tests.cluster.agreement.marks import mark

            mark(holder, run_time="forever")


def containers(template: Doc) -> Iterator[Doc]:
    for name in ("container", "script"):
        if isinstance(template.get(name), dict):
            yield template[name]
    yield from _maps(_map(template, "containerSet").get("containers"))
    for name in ("sidecars", "initContainers"):
        yield from _maps(template.get(name))


def _own_accounts(holder: Doc) -> None:
    """Executors and those who delete artifacts run under the account that every namespace has."""
    if _map(holder, "executor").get("serviceAccountName"):
        holder["executor"]["serviceAccountName"] = "default"
    for one in (holder, *artifacts(holder)):
        _drop(_map(one, "artifactGC"), ("serviceAccountName",))


def _patient(retry: Any) -> None:
    if isinstance(retry, dict):
        _drop(retry, ("backoff", "affinity"))


# -- Tekton -----------------------------------------------------------------------------------------------------------


def task_specs(document: Doc) -> Iterator[Doc]:
    """Every TaskSpec of a document of Tekton, at any depth."""
    spec = _map(document, "spec")
    if document.get("kind") in ("Task", "ClusterTask"):
        yield spec
    if isinstance(spec.get("taskSpec"), dict):
        yield spec["taskSpec"]
    for pipeline in pipeline_specs(document):
        for task in pipeline_tasks(pipeline):
            if isinstance(task.get("taskSpec"), dict):
                yield task["taskSpec"]


def pipeline_specs(document: Doc) -> Iterator[Doc]:
    spec = _map(document, "spec")
    waiting = [spec] if document.get("kind") == "Pipeline" else []
    waiting += [spec["pipelineSpec"]] if isinstance(spec.get("pipelineSpec"), dict) else []
    while waiting:
        one = waiting.pop()
        yield one
        waiting += [task["pipelineSpec"] for task in pipeline_tasks(one) if isinstance(task.get("pipelineSpec"), dict)]


def pipeline_tasks(pipeline: Doc) -> Iterator[Doc]:
    yield from _maps(pipeline.get("tasks"))
    yield from _maps(pipeline.get("finally"))


def tekton(document: Doc) -> None:
    _open(document)
    spec = _map(document, "spec")
    holders = [spec, _map(spec, "taskRunTemplate"), *_maps(spec.get("taskRunSpecs"))]
    for pipeline in pipeline_specs(document):
        holders += pipeline_tasks(pipeline)
    for holder in holders:
        _drop(holder, TEKTON_DROPPED)
        _drop(_map(holder, "podTemplate"), PLACE)
        _unclaim(holder.get("workspaces") if holder is spec else None)
    for task in task_specs(document):
        _unclaim(task.get("volumes"))
        for step in (*_maps(task.get("steps")), *_maps(task.get("sidecars"))):
            _step(step)
        _drop(_map(task, "stepTemplate"), ("computeResources", "resources"))
    if document.get("kind") == "StepAction":
        _step(spec)


def _step(step: Doc) -> None:
    _drop(step, ("computeResources", "resources", "timeout"))
    if "image" in step and not (step.get("command") or step.get("script") or step.get("ref")):
        step["command"] = ["none"]


# -- both -------------------------------------------------------------------------------------------------------------


def _unclaim(volumes: Any) -> None:
    """Claims become empty folders: nobody binds them here."""
    for one in _maps(volumes):
        if one.keys() & {"persistentVolumeClaim", "volumeClaimTemplate", "ephemeral"}:
            _drop(one, ("persistentVolumeClaim", "volumeClaimTemplate", "ephemeral"))
            one["emptyDir"] = {}


def _open(data: Any) -> None:
    """Secrets become texts and empty folders: nothing is compared that depends on them."""
    if isinstance(data, dict):
        if "secretKeyRef" in _map(data, "valueFrom"):
            del data["valueFrom"]
            data["value"] = "text"
        if isinstance(data.get("envFrom"), list):
            data["envFrom"] = [one for one in data["envFrom"] if "secretRef" not in one]
        if "name" in data and (
            "secret" in data or any("secret" in one for one in _maps(_map(data, "projected").get("sources")))
        ):
            _drop(data, ("secret", "projected"))
            data["emptyDir"] = {}
    for one in data.values() if isinstance(data, dict) else data if isinstance(data, list) else ():
        _open(one)


def _drop(holder: Doc, names: tuple[str, ...]) -> None:
    for name in names:
        holder.pop(name, None)


def _map(holder: Any, name: str) -> Doc:
    found = holder.get(name) if isinstance(holder, dict) else None
    return found if isinstance(found, dict) else {}


def _maps(found: Any) -> list[Doc]:
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
