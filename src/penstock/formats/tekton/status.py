"""The state of a PipelineRun or TaskRun, from the object as the cluster shows it. Called by the runners, through formats.registry."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from penstock.formats.documents import items, part
from penstock.formats.status import Status, TaskStatus, value_of


def run_status(data: Mapping[str, Any]) -> Status:
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
        status, meta = run_status(run), part(run, "metadata")
        name = str(part(meta, "labels").get("tekton.dev/pipelineTask") or meta.get("name") or "")
        steps = tuple(str(one["container"]) for _, one in items(part(run, "status"), "steps") if "container" in one)
        pod = str(part(run, "status").get("podName") or "")
        found.append(TaskStatus(name, status.state, status.message, pod, steps))
    names = [task.name for task in known]
    order = {name: names.index(name) for name in names}
    found.sort(key=lambda task: order.get(task.name, len(order)))
    seen = {task.name for task in found}
    return (*found, *(task for task in known if task.name not in seen))


def _condition(data: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    return next((one for _, one in items(part(data, "status"), "conditions") if one.get("type") == kind), {})
