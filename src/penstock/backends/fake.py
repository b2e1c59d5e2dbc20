"""A backend that runs nothing and does what it is told. For tests of workflows, of policies and of the engine; public as
penstock.testing.Fake, and `--on function=fake` rehearses a workflow.

The script is asked once for each order and answers how the attempt goes:

    {"rows": 3}                      it succeeds with these outputs (those left out get an empty value of their type: no rows,
                                     an empty text, an empty file)
    None                             it succeeds
    Outcome.FAILED, or an exception  it ends that way; an exception may also be raised
    5.0                              it takes five seconds
    (5.0, {"rows": 3})               both
    an AttemptEnded                  word for word

Time is the event loop's: under a virtual clock an hour takes no time.
"""

from __future__ import annotations

import asyncio
import dataclasses
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from penstock.artifacts.empty import empty_value
from penstock.artifacts.values import store_path
from penstock.backends.base import Abilities, AttemptEnded, AttemptSpec, AttemptStarted, BackendContext
from penstock.expressions.types import Type
from penstock.graph.model import Outcome
from penstock.graph.stored import Stored

Script = Callable[[AttemptSpec], Any]


class FakeBackend:
    """A Backend."""

    abilities = Abilities(masks_secrets=True)  # it shows nothing

    def __init__(
        self,
        context: BackendContext,
        script: Script = lambda spec: None,
        ended: Callable[[str], None] = lambda id: None,
    ) -> None:
        """`ended` is told each attempt that has ended, also one that was stopped, before the engine is."""
        self._context = context
        self._script = script
        self._ended = ended
        self._running: dict[str, asyncio.TimerHandle] = {}
        self._stored: dict[str, Stored] = {}
        self.specs: list[AttemptSpec] = []
        """Everything it was ever given, in order."""
        self.stopped: list[str] = []
        """What was stopped while it ran."""
        self.most = 0
        """How many ran at the same time, at most."""

    def room(self) -> int:
        return max(0, self._context.jobs - len(self._running))

    def start(self, specs: Sequence[AttemptSpec]) -> None:
        for spec in specs:
            self.specs.append(spec)
            try:
                answer = self._script(spec)
            except Exception as error:
                answer = error
            seconds, ended = understood(spec, answer, self._empty)
            self._context.inbox.put(AttemptStarted(id=spec.id))
            loop = asyncio.get_running_loop()
            self._running[spec.id] = loop.call_later(seconds, self._end, ended)
            self.most = max(self.most, len(self._running))

    def _empty(self, type_: Type) -> Any:
        """A file is a file, so that a step that is not made up can be given it."""
        if type_.name not in ("file", "dir"):
            return [self._empty(arg) for arg in type_.args] if type_.name == "tuple" else empty_value(type_)
        if type_.name not in self._stored:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder, "empty")
                path.mkdir() if type_.name == "dir" else path.touch()
                self._stored[type_.name] = store_path(path, self._context.blobs)
        return self._stored[type_.name]

    def _end(self, ended: AttemptEnded) -> None:
        del self._running[ended.id]
        self._ended(ended.id)
        self._context.inbox.put(ended)

    def stop(self, id: str, grace: float) -> None:
        timer = self._running.pop(id, None)
        if timer is not None:
            timer.cancel()
            self.stopped.append(id)
            self._ended(id)
            self._context.inbox.put(AttemptEnded(id=id, outcome=Outcome.CANCELLED, message="stopped"))

    async def close(self) -> None:
        for timer in self._running.values():
            timer.cancel()
        self._running.clear()


def understood(spec: AttemptSpec, answer: Any, make: Callable[[Type], Any]) -> tuple[float, AttemptEnded]:
    """(seconds, how it ends). `make` gives the outputs that nobody gave."""
    seconds = 0.0
    if isinstance(answer, tuple):
        seconds, answer = answer
    elif isinstance(answer, int | float) and not isinstance(answer, bool):
        seconds, answer = answer, None
    ended = AttemptEnded(id=spec.id, outcome=Outcome.SUCCEEDED, seconds=seconds)
    if isinstance(answer, AttemptEnded):
        ended = dataclasses.replace(answer, id=spec.id)
    elif isinstance(answer, BaseException):
        ended.outcome, ended.exception = Outcome.FAILED, type(answer).__name__
        ended.message = f"{type(answer).__name__}: {answer}"
    elif isinstance(answer, Outcome):
        ended.outcome, ended.message = answer, "" if answer is Outcome.SUCCEEDED else f"scripted: {answer}"
    elif answer is not None and not isinstance(answer, Mapping):
        raise TypeError(
            f"a script answers with outputs, an outcome, an exception, seconds or an AttemptEnded, not {answer!r}"
        )
    if ended.outcome is Outcome.SUCCEEDED:
        given = answer if isinstance(answer, Mapping) else ended.outputs
        ended.outputs = {output.name: make(output.type) for output in spec.step.outputs} | dict(given)
    return float(seconds), ended
