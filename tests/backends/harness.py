"""Plays the engine to a backend: gives it orders, takes its reports, with a deadline instead of patience."""

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
from penstock.backends.base import Began, Context, Ended, Inbox, Order, Report
from penstock.graph import model
from penstock.graph.types import parse

DEADLINE = 30.0


class Play:
    """One backend, one home."""

    def __init__(self, home: Path, backend: Callable[[Context], Any], jobs: int = 2, **more: Any) -> None:
        self.home = home
        self.blobs = Blobs(home / "blobs")
        self.inbox = Inbox(asyncio.get_running_loop())
        self.context = Context(
            home=home, blobs=self.blobs, inbox=self.inbox, jobs=jobs, engine="engine-1", now=time.time,
            environ=dict(os.environ), **more,
        )  # fmt: skip
        self.reports: list[Report] = []
        self.backend = backend(self.context)

    async def until(self, done: Callable[[], bool], seconds: float = DEADLINE) -> None:
        async with asyncio.timeout(seconds):
            while not done():
                await self.inbox.wait()
                self.reports += self.inbox.take()

    def ended(self, id: str) -> Ended | None:
        return next((r for r in self.reports if isinstance(r, Ended) and r.id == id), None)

    def began(self, id: str) -> Began | None:
        return next((r for r in self.reports if isinstance(r, Began) and r.id == id), None)

    async def end_of(self, *orders: Order) -> list[Ended]:
        await self.until(lambda: all(self.ended(order.id) for order in orders))
        return [found for order in orders if (found := self.ended(order.id)) is not None]

    async def run(self, *orders: Order) -> list[Ended]:
        """Starts them, as there is room, and waits for all of them."""
        waiting = list(orders)
        while waiting:
            count = max(self.backend.room(), 0)
            self.backend.start(waiting[:count])
            del waiting[:count]
            if waiting:
                await self.inbox.wait()
                self.reports += self.inbox.take()
        return await self.end_of(*orders)

    async def one(self, order: Order) -> Ended:
        return (await self.run(order))[0]

    def text(self, report: Ended | Began) -> str:
        """What its log says."""
        found = b""
        for name, start, end in report.log:
            data = (self.home / name).read_bytes()
            found += data[start:end]
        return found.decode()


def play(home: Path, backend: Callable[[Context], Any], story: Callable[[Play], Awaitable[None]], **more: Any) -> None:
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
    from penstock.author.annotations import hints_of, to_type

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


def order_of(step: model.Step, inputs: Mapping[str, Any] | None = None, **more: Any) -> Order:
    task, run, attempt = more.pop("task", step.name), more.pop("run", "test-1"), more.pop("attempt", 1)
    return Order(
        id=f"{run}/{task}/{attempt}", run=run, task=task, attempt=attempt, step=step, action=more.pop("action", step.action),
        inputs=dict(inputs or {}), **more,
    )  # fmt: skip
