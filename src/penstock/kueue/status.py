"""What the status of a Workload says, and the patches that answer it. Called by the controller's `workload`. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from penstock.kubernetes.objects import Object, Write, condition, name_of, namespace_of, part, rows, uid_of
from penstock.kueue.kinds import WORKLOADS

AT_ONCE = frozenset({"Preempted", "NodeFailures"})
"""After these evictions a Workload goes back into its queue at once. After others Kueue says when."""


def reclaim(workload: Object, finished: Mapping[str, int]) -> Write | None:
    """Gives back what is over; the figures only grow. `finished`: by pod set."""
    before = {str(one.get("name")): int(one.get("count") or 0) for one in rows(workload, "status", "reclaimablePods")}
    asked = {str(one.get("name") or "main"): int(one.get("count") or 0) for one in rows(workload, "spec", "podSets")}
    after = {
        name: min(asked.get(name, 0), max(before.get(name, 0), finished.get(name, 0)))
        for name in {**before, **finished}
        if name in asked
    }
    if {name: count for name, count in after.items() if count} == {n: c for n, c in before.items() if c}:
        return None
    listed = [{"name": name, "count": count} for name, count in sorted(after.items()) if count]
    body = _versioned(workload, {"status": {"reclaimablePods": listed}})
    return patch(workload, body, "gives back what is over", "status", every=1.0)


def pods_ready(workload: Object, now: float, recovered: bool = False) -> Write:
    reason = "Recovered" if recovered else "Started"
    told = _stated("PodsReady", True, reason, "all pods of the stage run", now)
    return _status(workload, [told], "its pods run again" if recovered else "its pods run")


def pods_lost(workload: Object, message: str, now: float) -> Write:
    """Kueue gives it some time to recover."""
    told = _stated("PodsReady", False, "WaitForRecovery", message, now)
    return _status(workload, [told], f"some of its pods are lost: {message}")


def finish(workload: Object, outcome: str, message: str, now: float) -> Write:
    told = _stated("Finished", True, outcome or "Succeeded", message, now)
    return _status(workload, [told], message)


def respond(workload: Object, now: float) -> Write:
    """The answer to an eviction: nothing runs any more, the quota goes back, and the Workload back into its queue."""
    why = str(condition(workload, "Evicted").get("reason", ""))
    told = [
        _stated("QuotaReserved", False, "Pending", "evicted; its pods are stopped", now),
        _stated("Admitted", False, "NoReservation", "evicted", now),
        _stated("PodsReady", False, "WaitForStart", "evicted", now),
        _stated("Requeued", why in AT_ONCE, why, "evicted; its pods are stopped", now),
    ]
    more: dict[str, Any] = {"admission": None}
    if part(workload, "spec").get("maximumExecutionTimeSeconds"):
        past = int(part(workload, "status").get("accumulatedPastExecutionTimeSeconds") or 0)
        more["accumulatedPastExecutionTimeSeconds"] = past + _seconds_admitted(workload, now)
    return _status(workload, told, f"answers the eviction ({why})", more)


def _seconds_admitted(workload: Object, now: float) -> int:
    since = condition(workload, "Admitted").get("lastTransitionTime")
    return max(0, int(now - seconds(since))) if since else 0


def delete(workload: Object, why: str) -> Write:
    body = {"preconditions": {"uid": uid_of(workload)}, "propagationPolicy": "Background"}
    return Write("delete", WORKLOADS, namespace_of(workload), name_of(workload), body, why=why)


def _status(
    workload: Object, told: Sequence[Mapping[str, Any]], why: str, more: Mapping[str, Any] | None = None
) -> Write:
    """A merge patch replaces the whole list, so it has all conditions; the version keeps others' changes."""
    changed = {one["type"] for one in told}
    kept = [one for one in rows(workload, "status", "conditions") if one.get("type") not in changed]
    body = _versioned(workload, {"status": {"conditions": [*kept, *told], **(more or {})}})
    return patch(workload, body, why, "status")


def _versioned(workload: Object, body: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"resourceVersion": part(workload, "metadata").get("resourceVersion")}, **body}


def patch(workload: Object, body: Object, why: str, subresource: str = "", every: float = 0) -> Write:
    return Write(
        "patch",
        WORKLOADS,
        namespace_of(workload),
        name_of(workload),
        body,
        subresource=subresource,
        why=why,
        every=every,
    )


def _stated(kind: str, status: bool, reason: str, message: str, now: float) -> dict[str, Any]:
    return {
        "type": kind,
        "status": "True" if status else "False",
        "reason": reason,
        "message": message,
        "lastTransitionTime": timestamp(now),
    }


def timestamp(now: float) -> str:
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def seconds(text: Any) -> float:
    """A time of the API server; 0 if it is none."""
    try:
        return datetime.fromisoformat(str(text).replace("Z", "+00:00")).timestamp()
    except ValueError:
        return 0.0
