"""A driver on a virtual clock: answers are given, nothing runs. Called by `--dry` and by the tests of recorded executions."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Protocol

from penstock.formats.asl.language.failures import TIMEOUT, StateFailure
from penstock.formats.asl.walk.effects import CallTask, CancelCall, Effect, MachineEnded, ReadItems, Wake
from penstock.formats.asl.walk.walker import Walker


@dataclass(frozen=True, slots=True)
class GivenAnswer:
    """What comes back from a call: an output, or a failure. `never`: nothing comes back."""

    output: Any = None
    failure: StateFailure | None = None
    never: bool = False
    seconds: float = 0.0


class Answers(Protocol):
    """Where answers come from."""

    def call(self, call: CallTask) -> GivenAnswer: ...

    def read(self, reading: ReadItems) -> GivenAnswer: ...


@dataclass(slots=True)
class DryRun:
    """What happened, in order."""

    trace: list[Effect] = field(default_factory=list)
    ended: MachineEnded | None = None
    """None: it waits for an answer that never comes."""
    calls: int = 0


@dataclass(order=True, slots=True)
class _Due:
    at: datetime
    number: int
    tell: Callable[[datetime], list[Effect]] = field(compare=False)
    id: str = field(compare=False, default="")


class DryDriver:
    """Carries out the effects of one walker."""

    def __init__(self, walker: Walker, answers: Answers, now: datetime, most: int = 1_000_000) -> None:
        self.walker = walker
        self.answers = answers
        self.now = now
        self.most = most
        self.run = DryRun()
        self._due: list[_Due] = []
        self._cancelled: set[str] = set()
        self._number = 0

    def go(self, given: Any) -> DryRun:
        """To the end, or until nothing is left that could happen."""
        limit = self.walker.definition.get("TimeoutSeconds")
        if isinstance(limit, int | float):
            self._at(limit, self.walker.timed_out, "")
        self._carry_out(self.walker.start(given, self.now))
        while self._due and self.run.ended is None and self.most > 0:
            self.most -= 1
            due = heapq.heappop(self._due)
            if due.id in self._cancelled:
                continue
            self.now = max(self.now, due.at)
            self._carry_out(due.tell(self.now))
        return self.run

    def _at(self, seconds: float, tell: Callable[[datetime], list[Effect]], id: str) -> None:
        self._number += 1
        heapq.heappush(self._due, _Due(self.now + timedelta(seconds=seconds), self._number, tell, id))

    def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case CallTask():
                    self.run.trace.append(effect)
                    self.run.calls += 1
                    self._answer(effect, self.answers.call(effect))
                case ReadItems():
                    self.run.trace.append(effect)
                    self._answer(effect, self.answers.read(effect))
                case Wake(id, at):
                    self._at((at - self.now).total_seconds(), lambda now, id=id: self.walker.woken(id, now), id)  # type: ignore[misc]
                case CancelCall(id):
                    self._cancelled.add(id)
                case MachineEnded():
                    self.run.ended = effect
                case _:
                    self.run.trace.append(effect)

    def _answer(self, asked: CallTask | ReadItems, answer: GivenAnswer) -> None:
        walker, id = self.walker, asked.id
        if isinstance(asked, ReadItems) and answer.failure is None:
            self._at(0, lambda now: walker.items_read(id, answer.output, now), id)
            return
        failure, seconds = answer.failure, answer.seconds
        limits = [] if isinstance(asked, ReadItems) else [one for one in (asked.timeout, asked.heartbeat) if one]
        limit = min(limits, default=None)
        if limit is not None and (answer.never or seconds > limit):
            failure, seconds = StateFailure(TIMEOUT, None), limit
        elif answer.never:
            return
        if failure is not None:
            raised = failure
            self._at(seconds, lambda now: walker.failed(id, raised, now), id)
        else:
            self._at(seconds, lambda now: walker.answered(id, answer.output, now), id)
