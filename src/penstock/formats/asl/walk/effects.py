"""What a walker asks of its driver, and what it tells of its way. Made by walker; carried out by dry and by the engine's steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class CallTask:
    """Do the work of a Task. The driver answers with `Walker.answered`, also when `timeout` or `heartbeat` seconds have passed."""

    id: str
    state: str
    resource: str
    parameters: Any
    timeout: float | None = None
    heartbeat: float | None = None
    token: str | None = None


@dataclass(frozen=True, slots=True)
class ReadItems:
    """Read what an ItemReader names. The driver answers with `Walker.items_read`."""

    id: str
    state: str
    resource: str
    parameters: Any


@dataclass(frozen=True, slots=True)
class Inside:
    """Walk these, one for each branch or item; only a walker of one level asks for it. The driver answers with `Walker.inside_ended`."""

    id: str
    state: str
    walks: tuple[Any, ...]
    at_once: int
    beyond: int
    """So many may fail; with one more the others are not wanted."""


@dataclass(frozen=True, slots=True)
class Wake:
    """Call `Walker.woken` at that time."""

    id: str
    at: datetime


@dataclass(frozen=True, slots=True)
class CancelCall:
    """The answer is not wanted any more."""

    id: str


@dataclass(frozen=True, slots=True)
class Entered:
    state: str
    input: Any


@dataclass(frozen=True, slots=True)
class Left:
    state: str
    output: Any
    assigned: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class EvaluationFailed:
    state: str
    error: str
    where: str


@dataclass(frozen=True, slots=True)
class MachineEnded:
    """The machine has ended: SUCCEEDED with `output`, FAILED or TIMED_OUT with `error` and `cause`."""

    status: str
    output: Any = None
    error: str | None = None
    cause: Any = None


Effect = CallTask | ReadItems | Inside | Wake | CancelCall | Entered | Left | EvaluationFailed | MachineEnded
