"""Test doubles for workflows and for Penstock itself: a virtual clock, a scripted backend, a temporary store.

from penstock.testing import Fake, run_virtually

report = run_virtually(my_workflow, script=lambda order: (3600, {"result": 1}))   # an hour that takes no time
assert report.state == "succeeded" and report.seconds == 3600
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.artifacts.blobs import Blobs
from penstock.artifacts.values import loads
from penstock.author.jobs import Authored
from penstock.backends.fake import FakeBackend as Fake
from penstock.engine.active_run import ActiveRun
from penstock.engine.blueprint import blueprints
from penstock.engine.clock import VirtualClock
from penstock.engine.engine import Engine
from penstock.graph.model import Workflow
from penstock.runners.base import graph_of
from penstock.service.runs import own
from penstock.service.submission import Submission
from penstock.store.records import Event, TaskRow
from penstock.store.sql import open_store

__all__ = ["Fake", "VirtualClock", "VirtualReport", "run_virtually"]

Meanwhile = Callable[[Engine, ActiveRun], Coroutine[Any, Any, None]]


@dataclass(frozen=True, slots=True)
class VirtualReport:
    state: str
    outputs: dict[str, Any]
    seconds: float
    """Of the virtual clock."""
    events: list[Event]
    tasks: list[TaskRow]
    backend: Fake
    live: ActiveRun


def run_virtually(
    workflow: Authored | Workflow,
    params: Mapping[str, Any] | None = None,
    script: Callable[..., Any] | None = None,
    home: str | Path | None = None,
    clock: VirtualClock | None = None,
    meanwhile: Meanwhile | None = None,
    chance: Callable[[], float] = lambda: 0.5,
    retried: str = "",
    **options: Any,
) -> VirtualReport:
    """Run a workflow with the scripted backend, in virtual time. `meanwhile` runs beside it: it may sleep, cancel, resume; what it raises
    ends the run and is raised here. With `retried` (the user), the last run in `home` is retried instead."""
    graph = graph_of(workflow)
    clock = clock or VirtualClock()
    if home is None:
        with tempfile.TemporaryDirectory() as folder:
            return run_virtually(graph, params, script, folder, clock, meanwhile, chance, retried, **options)
    place = Path(home)

    async def main() -> VirtualReport:
        submission = Submission(graph, params or {}, **options)
        with open_store(str(place)) as store:
            engine = Engine(store, place, Blobs(place / "artifacts"), jobs=1_000_000, now=clock.now, chance=chance)
            fake = Fake(engine.context, script) if script is not None else Fake(engine.context)
            engine.pool.use(set(engine.pool.on.values()) - {"suspend"}, fake)
            run = own(store, engine.me.id, store.runs.newest(limit=1)[0] if retried else submission.record(store))
            began = clock.elapsed
            live = engine.adopt(run, blueprints(submission.workflow, submission.links), submission.params, retried)
            beside = None if meanwhile is None else _beside(engine, meanwhile(engine, live))
            await engine.run()
            seconds = clock.elapsed - began
            if beside is not None:
                await _ended(beside)
            await engine.close()
            return VirtualReport(
                live.status,
                loads(live.outputs_text) if live.outputs_text else {},
                round(seconds, 6),
                list(store.runs.events(run.number)),
                store.runs.tasks(run.number),
                fake,
                live,
            )

    return clock.run(main())


def _beside(engine: Engine, work: Coroutine[Any, Any, None]) -> asyncio.Future[None]:
    """Starts it. If it raises, the engine returns from `run`: the workflow might wait forever for what it was to do."""
    task = asyncio.ensure_future(work)

    def ended(task: asyncio.Future[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            engine.abandon()

    task.add_done_callback(ended)
    return task


async def _ended(task: asyncio.Future[None]) -> None:
    """Cancels it if it still runs. Raises what it raised."""
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
