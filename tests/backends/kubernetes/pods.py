"""Jobs and pods as the API server shows them, for the tests of the backend."""

from __future__ import annotations

from typing import Any

from penstock.backends.kubernetes.names import INDEX

Dict = dict[str, Any]


def job(**status: Any) -> Dict:
    return {"metadata": {"name": "j", "uid": "u"}, "spec": {}, "status": status}


def condition(kind: str, status: str = "True", reason: str = "", message: str = "") -> Dict:
    return {"type": kind, "status": status, "reason": reason, "message": message}


def ended(code: int, reason: str = "", message: str = "", at: str = "2026-01-01T00:00:00Z") -> Dict:
    return {
        "terminated": {
            "exitCode": code,
            "reason": reason or ("Completed" if not code else "Error"),
            "message": message,
            "finishedAt": at,
        }
    }


def pod(phase: str, index: int = 0, meta: Dict | None = None, init: Dict | None = None, **more: Any) -> Dict:
    """`containers` and `init`: name -> state."""
    containers = more.pop("containers", {})
    status: Dict = {"phase": phase, **more}
    if containers:
        status["containerStatuses"] = [{"name": name, "state": state} for name, state in containers.items()]
    if init:
        status["initContainerStatuses"] = [{"name": name, "state": state} for name, state in init.items()]
    metadata = {"name": f"p-{index}", "annotations": {INDEX: str(index)}, **(meta or {})}
    return {
        "metadata": metadata,
        "spec": {"containers": [{"name": "main", "resources": {"limits": {"memory": "64Mi"}}}]},
        "status": status,
    }
