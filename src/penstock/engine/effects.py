"""What follows from a fact, as data: the effects that RunState emits. Handled by ActiveRun, which records them or passes them to the
part of the engine that acts on them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

from penstock.engine.steps import StepState, Task
from penstock.graph.model import Outcome


class CallOpened(NamedTuple):
    """A task that is a called workflow has begun."""

    task: Task


class TaskSettled(NamedTuple):
    """A task ended as soon as it was looked at: skipped, an input without a value, a loop without a round. Recorded as a fact."""

    kind: str
    task: Task
    outcome: Outcome
    outputs: dict[str, Any]
    why: str


class Noted(NamedTuple):
    """Something followed that is worth an event of its own: a step skipped, a loop expanded, a called workflow ended."""

    kind: str
    path: str
    data: Mapping[str, Any]
    task: Task | None
    """The task that has ended, if it is one."""


class StopTask(NamedTuple):
    """The run, or the call around the task, is halted: the task has to be stopped."""

    task: Task


class CallReady(NamedTuple):
    """A called workflow has a key, so its result may be known. The answer is `RunState.ended` or `RunState.enter`."""

    task: Task


class CallFailed(NamedTuple):
    """A called workflow failed and has a retry policy. The answer is `RunState.recall` or `RunState.give_up`."""

    task: Task
    outcome: Outcome
    why: str


class CallSucceeded(NamedTuple):
    """A called workflow that has a key succeeded: its result can be reused."""

    task: Task
    outputs: dict[str, Any]


class QuotaWanted(NamedTuple):
    """A step that needs quota has tasks to start. The answer is `RunState.permit`."""

    step: StepState


class QuotaFreed(NamedTuple):
    """A task no longer needs the permit that it started on."""

    step: StepState
    permit: Any


class StepSettled(NamedTuple):
    """A step that needs quota has ended."""

    step: StepState


Effect: TypeAlias = (
    CallOpened
    | TaskSettled
    | Noted
    | StopTask
    | CallReady
    | CallFailed
    | CallSucceeded
    | QuotaWanted
    | QuotaFreed
    | StepSettled
)
Emit: TypeAlias = Callable[[Effect], None]
