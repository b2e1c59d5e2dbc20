"""Why a task is in the state it is in, in one line. Called by the views of runs and tasks and by the screens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.service.task_states import BAD
from penstock.store.records import TaskRow

_OURS = "penstock.errors"
"""The messages of these begin with a code."""


def reason_of(row: TaskRow) -> str:
    info = row.info
    why = info.get("reason")
    if isinstance(why, Mapping):
        if why.get("why") == "lock":
            from penstock.service.wording import brief

            return brief(why)
        if why.get("why") == "shared":
            return f"{why['run']}/{why['task']} computes the same" if "run" in why else "another task computes the same"
        return str(why.get("message") or why.get("why") or "")
    if row.state == "reused" and isinstance(info.get("from"), Mapping):
        return f"from {info['from'].get('run')}/{info['from'].get('task')}"
    return failure_reason(info) if row.state in (*BAD, "retrying") else " ".join(str(info.get("message") or "").split())


def failure_reason(data: Mapping[str, Any]) -> str:
    """The exit code or the exception, and the message."""
    message = " ".join(str(data.get("message") or "").split())
    code = data.get("exit_code")
    if code is not None:
        name = f"signal {-code}" if isinstance(code, int) and code < 0 else f"exit code {code}"
        if not message or name in message or f"exit {code}" in message or code == 0:
            return message or name
        return f"{message} ({name})"
    module, _, kind = str(data.get("exception") or "").rpartition(".")
    if kind and kind not in message and module != _OURS:
        return f"{kind}: {message}" if message else kind
    return message or "no reason was given"
