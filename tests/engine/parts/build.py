"""Parts of an engine, each built alone. Used by the tests beside this file."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from penstock.artifacts.blobs import Blobs
from penstock.backends.base import Abilities, AttemptSpec, BackendContext, Inbox
from penstock.engine.active_run import ActiveRun, Route
from penstock.engine.backend_pool import LANES, SUSPEND, BackendPool
from penstock.engine.blueprint import blueprints
from penstock.engine.effects import Effect, Emit
from penstock.engine.run_state import RunState
from penstock.engine.steps import StepState
from penstock.engine.timers import TurnTimers
from penstock.engine.values import RunValues
from penstock.graph.links import links_of
from penstock.graph.model import Cache, Edge, Script, Step, Workflow
from penstock.store.records import RunRecord, WriteBatch


def step(name: str, *needs: str, cpu: int = 0, **fields: Any) -> Step:
    fields.setdefault("cache", Cache(enabled=False))
    resources = {"cpu": cpu * 1000} if cpu else {}
    edges = tuple(Edge(up) for up in needs)
    return Step(name=name, action=Script(source=name), needs=edges, resources=resources, **fields)


def flow(*steps: Step, **fields: Any) -> Workflow:
    return Workflow(name="w", steps=steps, **fields)


def state_of(
    workflow: Workflow, emit: Emit, needs_quota: Callable[[StepState], bool] | None = None, fail_fast: bool = False
) -> RunState:
    graph = blueprints(workflow, links_of(workflow))
    values = RunValues(lambda stored: None)
    return RunState(graph, {}, values, emit, lane_of=lambda step: "x", needs_quota=needs_quota, fail_fast=fail_fast)


def active_run(
    workflow: Workflow,
    batch: WriteBatch | None = None,
    routes: Mapping[type, Route] | None = None,
    number: int = 1,
    needs_quota: Callable[[StepState], bool] | None = None,
    now: Callable[[], float] = lambda: 100.0,
    **options: Any,
) -> ActiveRun:
    record = RunRecord(
        number=number,
        id=f"w-{number}",
        workflow="w",
        digest="",
        params={},
        options=options,
        state="running",
        created=1.0,
        seq=1,
    )
    make = lambda emit: state_of(workflow, emit, needs_quota)
    return ActiveRun(record, WriteBatch() if batch is None else batch, now, make, routes)


def of_kind(effects: Iterable[Effect], kind: type) -> list[Any]:
    return [effect for effect in effects if isinstance(effect, kind)]


class Backend:
    """Starts nothing. The test reports what happened."""

    def __init__(self, call: Callable[[AttemptSpec], Any] | None = None) -> None:
        self.abilities = Abilities(call=call)
        self.started: list[AttemptSpec] = []
        self.stopped: list[tuple[str, float]] = []

    def room(self) -> int:
        return 100

    def start(self, specs: Any) -> None:
        self.started += specs

    def stop(self, id: str, grace: float) -> None:
        self.stopped.append((id, grace))

    async def close(self) -> None: ...


def pool_of(backend: Backend, tmp_path: Any, inbox: Inbox) -> BackendPool:
    context = BackendContext(
        home=tmp_path,
        blobs=Blobs(tmp_path / "artifacts"),
        inbox=inbox,
        jobs=1,
        engine="me",
        now=lambda: 0.0,
        environ={},
    )
    pool = BackendPool(context, dict.fromkeys(LANES, "x") | {"suspend": SUSPEND})
    pool.use(["x"], backend)
    return pool


class Turns(TurnTimers):
    """Timers that fire when the test says so."""

    def __init__(self, inbox: Inbox) -> None:
        super().__init__(asyncio.get_running_loop(), inbox)
        self.waiting: list[tuple[float, Callable[[], None]]] = []

    def after(self, seconds: float, call: Callable[[], None]) -> asyncio.TimerHandle:
        self.waiting.append((seconds, call))
        return asyncio.get_running_loop().call_later(3600, lambda: None)

    def fire(self) -> None:
        waiting, self.waiting = self.waiting, []
        for _, call in waiting:
            call()

    def turn(self) -> None:
        for call in self.take():
            call()
