"""The state of a submitted run, as every format reports it. Called by the status readers of the formats and by the runners."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

FINAL = frozenset({"succeeded", "failed"})


@dataclass(frozen=True, slots=True)
class TaskStatus:
    """One task of a run."""

    name: str
    state: str
    message: str = ""
    pod: str = ""
    containers: tuple[str, ...] = ()
    """Those of the pod that are the task's own, if not all of them are."""


@dataclass(frozen=True, slots=True)
class Status:
    """A run."""

    state: str
    """pending, running, suspended, succeeded or failed."""
    message: str = ""
    outputs: Mapping[str, Any] = field(default_factory=dict)
    tasks: tuple[TaskStatus, ...] = ()


def value_of(text: Any) -> Any:
    """What a text stands for: JSON if it is JSON, otherwise itself."""
    if not isinstance(text, str):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
