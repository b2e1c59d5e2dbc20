"""The state of a JobSet or Job, from the object as the cluster shows it. Called by the runners, through formats.registry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.formats.documents import items, part
from penstock.formats.status import Status, TaskStatus


def job_status(data: Mapping[str, Any]) -> Status:
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
