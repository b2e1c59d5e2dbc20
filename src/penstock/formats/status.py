"""How a submitted Workflow, PipelineRun or JobSet stands, from the object as the cluster shows it. Called by service.clusters. Pure."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.formats.documents import items, part

FINAL = frozenset({"succeeded", "failed"})
_ARGO = {"Succeeded": "succeeded", "Failed": "failed", "Error": "failed", "Running": "running", "Pending": "pending"}
_ARGO_LEAVES = frozenset({"Pod", "HTTP", "Plugin", "Suspend", "Skipped", "Container"})
_ARGO_PREFIX = 242
"""As much of a pod's name is left for the names of workflow and template."""
MOST_BYTES = 64 * 2**20
"""Of a list of nodes, written out."""


@dataclass(frozen=True, slots=True)
class TaskStatus:
    name: str
    state: str
    message: str = ""
    pod: str = ""
    containers: tuple[str, ...] = ()
    """Those of the pod that are the task's own, if not all of them are."""


@dataclass(frozen=True, slots=True)
class Status:
    state: str
    """pending, running, suspended, succeeded or failed."""
    message: str = ""
    outputs: Mapping[str, Any] = field(default_factory=dict)
    tasks: tuple[TaskStatus, ...] = ()


def status_of(data: Mapping[str, Any]) -> Status:
    """Of any of the kinds that a runner submits."""
    kind = data.get("kind")
    if kind == "Workflow":
        return _argo(data)
    if kind in ("PipelineRun", "TaskRun"):
        return _tekton(data)
    return _jobset(data)


def _argo(data: Mapping[str, Any]) -> Status:
    status = part(data, "status")
    state = _ARGO.get(str(status.get("phase") or ""), "pending")
    if state == "running" and part(data, "spec").get("suspend") is True:
        state = "suspended"
    nodes = _nodes(status)
    tasks = []
    root: Mapping[str, Any] = {}
    name = part(data, "metadata").get("name")
    for node in nodes.values():
        if not isinstance(node, Mapping):
            continue
        if node.get("name") == name:
            root = node
        if node.get("type") in _ARGO_LEAVES:
            pod = _argo_pod(node, nodes, part(data, "metadata"))
            tasks.append(_argo_task(node, pod, _argo_containers(node, nodes) if pod else ()))
    return Status(state, str(status.get("message") or ""), _parameters(part(root, "outputs")), tuple(tasks))


def _argo_task(node: Mapping[str, Any], pod: str, containers: tuple[str, ...]) -> TaskStatus:
    phase = str(node.get("phase") or "Pending")
    state = "suspended" if node.get("type") == "Suspend" and phase == "Running" else _ARGO.get(phase, phase.lower())
    return TaskStatus(
        str(node.get("displayName") or node.get("name") or ""),
        state,
        str(node.get("message") or ""),
        pod,
        containers,
    )


def _argo_containers(node: Mapping[str, Any], nodes: Mapping[str, Any]) -> tuple[str, ...]:
    """Argo's executor works, and prints, beside them in the same pod."""
    if node.get("type") == "Container":
        return (str(node.get("displayName") or ""),)
    every = [one for one in nodes.values() if isinstance(one, Mapping) and one.get("type") == "Container"]
    inside = [str(one.get("displayName") or "") for one in every if one.get("boundaryID") == node.get("id")]
    return tuple(inside) or ("main",)


def _argo_pod(node: Mapping[str, Any], nodes: Mapping[str, Any], meta: Mapping[str, Any]) -> str:
    """Argo does not say the name of a node's pod: it is made of the names of workflow and template and the end of the node's id."""
    if node.get("type") == "Container":  # one of several in a pod, which is the node around it
        node = part(nodes, str(node.get("boundaryID")))
    if node.get("type") != "Pod":
        return ""
    workflow, ident = str(meta.get("name") or ""), str(node.get("id") or "")
    if part(meta, "annotations").get("workflows.argoproj.io/pod-name-format") == "v1":
        return ident
    if node.get("name") == workflow:
        return workflow
    template = part(node, "templateRef").get("template") or node.get("templateName")
    prefix = f"{workflow}-{template}" if template else workflow
    return f"{prefix[:_ARGO_PREFIX]}-{ident.removeprefix(f'{workflow}-')}"


def _nodes(status: Mapping[str, Any]) -> Mapping[str, Any]:
    """Large workflows keep their nodes compressed; those kept in a database are not here at all."""
    packed = status.get("compressedNodes")
    if not isinstance(packed, str) or not packed:
        return part(status, "nodes")
    try:
        text = zlib.decompressobj(wbits=31).decompress(base64.b64decode(packed), MOST_BYTES)
        found = json.loads(text)
    except (ValueError, zlib.error):
        return {}
    return found if isinstance(found, Mapping) else {}


def _parameters(outputs: Mapping[str, Any]) -> dict[str, Any]:
    return {str(one["name"]): value_of(one.get("value")) for _, one in items(outputs, "parameters") if "name" in one}


def value_of(text: Any) -> Any:
    """What a text stands for: JSON if it is JSON, otherwise itself."""
    if not isinstance(text, str):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _condition(data: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    return next((one for _, one in items(part(data, "status"), "conditions") if one.get("type") == kind), {})


def _tekton(data: Mapping[str, Any]) -> Status:
    done = _condition(data, "Succeeded")
    state = {"True": "succeeded", "False": "failed", "Unknown": "running"}.get(str(done.get("status")), "pending")
    if str(part(data, "spec").get("status") or "").endswith("Pending"):
        state = "suspended"
    status = part(data, "status")
    results = {str(one["name"]): value_of(one.get("value")) for _, one in items(status, "results") if "name" in one}
    tasks = [
        TaskStatus(
            str(one.get("pipelineTaskName") or one.get("name") or ""), "started", pod=f"{one.get('name') or ''}-pod"
        )
        for _, one in items(status, "childReferences")
    ]
    tasks += [
        TaskStatus(str(one.get("name") or ""), "skipped", str(one.get("reason") or ""))
        for _, one in items(status, "skippedTasks")
    ]
    return Status(state, str(done.get("message") or ""), results, tuple(tasks))


def task_run_states(known: Sequence[TaskStatus], runs: Iterable[Mapping[str, Any]]) -> tuple[TaskStatus, ...]:
    """The tasks of a PipelineRun as their TaskRuns show them. The PipelineRun itself only says which there are."""
    found = []
    for run in runs:
        status, meta = _tekton(run), part(run, "metadata")
        name = str(part(meta, "labels").get("tekton.dev/pipelineTask") or meta.get("name") or "")
        steps = tuple(str(one["container"]) for _, one in items(part(run, "status"), "steps") if "container" in one)
        pod = str(part(run, "status").get("podName") or "")
        found.append(TaskStatus(name, status.state, status.message, pod, steps))
    names = [task.name for task in known]
    order = {name: names.index(name) for name in names}
    found.sort(key=lambda task: order.get(task.name, len(order)))
    seen = {task.name for task in found}
    return (*found, *(task for task in known if task.name not in seen))


def _jobset(data: Mapping[str, Any]) -> Status:
    """A JobSet or a Job."""
    status = part(data, "status")
    complete = {"Completed", "Complete", "SuccessCriteriaMet"}
    for _, one in items(status, "conditions"):
        if one.get("status") == "True" and one.get("type") in complete:
            return Status("succeeded", str(one.get("message") or ""), {}, _replicated(data))
        if one.get("status") == "True" and one.get("type") == "Failed":
            return Status("failed", str(one.get("message") or ""), {}, _replicated(data))
    if part(data, "spec").get("suspend") is True:
        return Status("suspended", "", {}, _replicated(data))
    started = bool(status.get("replicatedJobsStatus") or status.get("active") or status.get("startTime"))
    return Status("running" if started else "pending", "", {}, _replicated(data))


def _replicated(data: Mapping[str, Any]) -> tuple[TaskStatus, ...]:
    """In the order of the document; that of the status is any."""
    order = [one.get("name") for _, one in items(part(data, "spec"), "replicatedJobs")]
    found = []
    for _, one in items(part(data, "status"), "replicatedJobsStatus"):
        state = next(
            (word for word in ("failed", "active", "ready", "suspended", "succeeded") if one.get(word)), "pending"
        )
        found.append(
            TaskStatus(str(one.get("name") or ""), {"active": "running", "ready": "running"}.get(state, state))
        )
    return tuple(sorted(found, key=lambda task: order.index(task.name) if task.name in order else len(order)))
