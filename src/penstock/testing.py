"""Doubles for tests of workflows and of Penstock itself: a clock that jumps, a scripted backend, a place that is thrown away.

from penstock.testing import Fake, run_virtually

report = run_virtually(my_workflow, script=lambda order: (3600, {"result": 1}))   # an hour that takes no time
assert report.state == "succeeded" and report.seconds == 3600
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.artifacts.blobs import Blobs
from penstock.author.jobs import Authored
from penstock.backends.fake import Fake
from penstock.engine.blueprint import blueprints
from penstock.engine.clock import VirtualClock
from penstock.engine.live import Live
from penstock.engine.loop import Engine
from penstock.graph.model import Workflow
from penstock.service.runs import Submission, own
from penstock.store.base import Event, TaskRow
from penstock.store.sql import open_store

__all__ = ["Fake", "VirtualClock", "VirtualReport", "run_virtually"]


@dataclass(frozen=True, slots=True)
class VirtualReport:
    state: str
    outputs: dict[str, Any]
    seconds: float
    events: list[Event]
    tasks: list[TaskRow]
    backend: Fake
    live: Live


def run_virtually(
    workflow: Authored | Workflow,
    params: Mapping[str, Any] | None = None,
    script: Callable[..., Any] | None = None,
    home: str | Path | None = None,
    clock: VirtualClock | None = None,
    meanwhile: Callable[[Engine, Live], Coroutine[Any, Any, None]] | None = None,
    chance: Callable[[], float] = lambda: 0.5,
    retried: str = "",
    **options: Any,
) -> VirtualReport:
    """Run a workflow on the scripted backend, in no time. `meanwhile` goes on beside it: it may sleep, cancel, resume. With
    `retried` (by whom), the last run in `home` is tried again instead."""
    graph = workflow.graph if isinstance(workflow, Authored) else workflow
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
            engine.backends = dict.fromkeys(set(engine.on.values()) - {"suspend"}, fake)
            run = own(engine, store.runs(limit=1)[0] if retried else submission.record(store))
            began = clock.elapsed
            live = engine.adopt(run, blueprints(submission.workflow, submission.links), submission.params, retried)
            beside = asyncio.ensure_future(meanwhile(engine, live)) if meanwhile is not None else None
            await engine.run()
            seconds = clock.elapsed - began
            if beside is not None:
                beside.cancel()
            await engine.close()
            from penstock.artifacts.values import loads

            outputs = loads(live.outputs_text) if live.outputs_text else {}
            return VirtualReport(
                live.state, outputs, round(seconds, 6), list(store.events(run.number)), store.tasks(run.number), fake, live
            )  # fmt: skip

    return clock.run(main())
