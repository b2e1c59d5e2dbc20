"""Plays the engine to a backend: gives it specs, takes its reports, with a deadline instead of patience."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from penstock.artifacts.blobs import Blobs
from penstock.author.capture import recorded
from penstock.author.pack import pack
from penstock.backends.base import AttemptEnded, AttemptReport, AttemptSpec, AttemptStarted, BackendContext, Inbox
from penstock.expressions.types import parse
from penstock.graph import model

DEADLINE = 30.0


class Play:
    """One backend, one home."""

    def __init__(self, home: Path, backend: Callable[[BackendContext], Any], jobs: int = 2, **more: Any) -> None:
        self.home = home
        self.blobs = Blobs(home / "blobs")
        self.inbox = Inbox(asyncio.get_running_loop())
        self.context = BackendContext(
            home=home,
            blobs=self.blobs,
            inbox=self.inbox,
            jobs=jobs,
            engine="engine-1",
            now=time.time,
            environ=dict(os.environ),
            **more,
        )
        self.reports: list[AttemptReport] = []
        self.backend = backend(self.context)

    async def until(self, done: Callable[[], bool], seconds: float = DEADLINE) -> None:
        async with asyncio.timeout(seconds):
            while not done():
                await self.inbox.wait()
                self.reports += self.inbox.take()

    def ended(self, id: str) -> AttemptEnded | None:
        return next((r for r in self.reports if isinstance(r, AttemptEnded) and r.id == id), None)

    def began(self, id: str) -> AttemptStarted | None:
        return next((r for r in self.reports if isinstance(r, AttemptStarted) and r.id == id), None)

    async def end_of(self, *specs: AttemptSpec) -> list[AttemptEnded]:
        await self.until(lambda: all(self.ended(spec.id) for spec in specs))
        return [found for spec in specs if (found := self.ended(spec.id)) is not None]

    async def run(self, *specs: AttemptSpec) -> list[AttemptEnded]:
        """Starts them, as there is room, and waits for all of them."""
        waiting = list(specs)
        while waiting:
            count = max(self.backend.room(), 0)
            self.backend.start(waiting[:count])
            del waiting[:count]
            if waiting:
                await self.inbox.wait()
                self.reports += self.inbox.take()
        return await self.end_of(*specs)

    async def one(self, spec: AttemptSpec) -> AttemptEnded:
        return (await self.run(spec))[0]

    def text(self, report: AttemptEnded | AttemptStarted) -> str:
        """What its log says."""
        found = b""
        for name, start, end in report.log:
            data = (self.home / name).read_bytes()
            found += data[start:end]
        return found.decode()


def play(
    home: Path, backend: Callable[[BackendContext], Any], story: Callable[[Play], Awaitable[None]], **more: Any
) -> None:
    async def main() -> None:
        playing = Play(home, backend, **more)
        try:
            await story(playing)
        finally:
            async with asyncio.timeout(10):
                await playing.backend.close()

    asyncio.run(main())


def types_of(given: Mapping[str, str]) -> tuple[model.Output, ...]:
    return tuple(model.Output(name=name, type=parse(type_)) for name, type_ in given.items())


def function_step(function: Callable[..., Any], returns: str = "any", **more: Any) -> model.Step:
    from penstock.artifacts.rebuild import hints_of
    from penstock.author.annotations import to_type

    action = model.Function(
        module=function.__module__, name=function.__qualname__, code=recorded(function), env=more.pop("env", {})
    )
    inputs = tuple(
        model.Input(name=name, value=None, type=to_type(hint))
        for name, hint in hints_of(function).items()
        if name != "return"
    )
    outputs = more.pop("outputs", types_of({"result": returns}))
    return model.Step(name=function.__name__.strip("_"), action=action, inputs=inputs, outputs=outputs, **more)


def bundle_of(*steps: model.Step, blobs: Blobs) -> str:
    packed = pack(model.Workflow(name="test", steps=steps))
    return blobs.put(packed[0]) if packed is not None else ""


def spec_of(step: model.Step, inputs: Mapping[str, Any] | None = None, **more: Any) -> AttemptSpec:
    task, run, attempt = more.pop("task", step.name), more.pop("run", "test-1"), more.pop("attempt", 1)
    return AttemptSpec(
        id=f"{run}/{task}/{attempt}",
        run=run,
        task=task,
        attempt=attempt,
        step=step,
        action=more.pop("action", step.action),
        inputs=dict(inputs or {}),
        **more,
    )
