"""Several engines on one store, with queues, a backend that only takes time, and a clock that jumps. Used by test_admission."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

from penstock.artifacts.blobs import Blobs
from penstock.backends.base import AttemptEnded, AttemptSpec
from penstock.backends.fake import FakeBackend
from penstock.engine.active_run import ActiveRun
from penstock.engine.blueprint import blueprints
from penstock.engine.clock import VirtualClock
from penstock.engine.engine import Engine
from penstock.engine.podsets import amounts
from penstock.expressions.parse import Expr
from penstock.graph.model import Cache, Edge, ForEach, Input, Script, Step, Workflow
from penstock.service.machine import machine
from penstock.service.queues import apply
from penstock.service.runs import own
from penstock.service.submission import Submission
from penstock.store.records import Event
from penstock.store.sql import Store, open_store

CPU = 1000
MACHINE = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: default}
"""


def queue(name: str, cpu: int, cohort: str = "", **spec: Any) -> str:
    """A ClusterQueue and a LocalQueue of the same name, as a manifest."""
    fields: dict[str, Any] = {
        "namespaceSelector": {},
        "resourceGroups": [
            {
                "coveredResources": ["cpu"],
                "flavors": [{"name": "default", "resources": [{"name": "cpu", "nominalQuota": cpu}]}],
            }
        ],
        **({"cohortName": cohort} if cohort else {}),
        **spec,
    }
    kinds = [
        {"kind": "ClusterQueue", "metadata": {"name": name}, "spec": fields},
        {"kind": "LocalQueue", "metadata": {"name": name, "namespace": "default"}, "spec": {"clusterQueue": name}},
    ]
    return "".join(f"---\n{json.dumps({'apiVersion': 'kueue.x-k8s.io/v1beta2', **kind})}\n" for kind in kinds)


def step(name: str, *needs: str, cpu: float = 1, tasks: int = 0, gang: bool = False, **fields: Any) -> Step:
    """Takes `cpu`; `tasks` of it at the same time, if that is given."""
    fields.setdefault("cache", Cache(enabled=False))
    each = ForEach(axes=({"i": tuple(range(tasks))},), gang=gang) if tasks else None
    return Step(
        name=name,
        action=Script(source=name),
        needs=tuple(Edge(up) for up in needs),
        resources={"cpu": int(cpu * CPU)} if cpu else {},
        each=each,
        inputs=(Input(name="i", value=Expr.of("item.i")),) if tasks else (),
        **fields,
    )


def flow(*steps: Step, name: str = "w", **fields: Any) -> Workflow:
    return Workflow(name=name, steps=steps, **fields)


class Clocked(FakeBackend):
    """Says what runs, and how much of what is in use."""

    yard: Yard

    def start(self, orders: Sequence[AttemptSpec]) -> None:
        for order in orders:
            needs = {name: amount * order.step.replicas for name, amount in amounts(order.step.resources).items()}
            self.yard.began(order, needs)
        super().start(orders)

    def _end(self, ended: AttemptEnded) -> None:
        self.yard.ended(ended.id)
        super()._end(ended)

    def stop(self, id: str, grace: float) -> None:
        if id in self._running:
            self.yard.ended(id, stopped=True)
        super().stop(id, grace)


class Yard:
    def __init__(self, place: Path, manifest: str = "", cpu: int | None = None, store: str = "") -> None:
        self.place = place
        self.where = store or str(place)
        self.manifest = manifest
        self.cpu = cpu
        self.clock = VirtualClock()
        self.engines: list[Engine] = []
        self.backends: dict[Engine, Clocked] = {}
        self.closed: set[Engine] = set()
        """Engines that a test has ended by hand."""
        self.stores: list[Store] = []
        self.running: dict[str, tuple[str, dict[str, int]]] = {}
        self.spans: list[tuple[str, float, float, bool]] = []
        """(order, from, to, whether it was stopped)"""
        self.most: dict[str, int] = {}
        self.since: dict[str, float] = {}
        self.watch: Callable[[Yard], None] = lambda yard: None

    def began(self, order: AttemptSpec, needs: dict[str, int]) -> None:
        self.running[order.id] = (order.run, needs)
        self.since[order.id] = self.clock.elapsed
        for name, amount in self.in_use().items():
            self.most[name] = max(self.most.get(name, 0), amount)
        self.watch(self)

    def ended(self, id: str, stopped: bool = False) -> None:
        del self.running[id]
        self.spans.append((id, self.since.pop(id), self.clock.elapsed, stopped))

    def in_use(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for _, needs in self.running.values():
            for name, amount in needs.items():
                found[name] = found.get(name, 0) + amount
        return found

    def engine(self, script: Callable[[AttemptSpec], Any] = lambda order: 10.0) -> Engine:
        store = open_store(self.where)
        if self.manifest:
            apply(store, (MACHINE + self.manifest, "queues.yaml"))
            self.manifest = ""
        capacity = None if self.cpu is None else (lambda: machine({"cpu": (self.cpu or 0) * CPU}))
        engine = Engine(
            store,
            self.place,
            Blobs(self.place / "artifacts"),
            jobs=1_000_000,
            now=self.clock.now,
            chance=lambda: 0.5,
            capacity=capacity,
        )
        backend = Clocked(engine.context, script)
        backend.yard = self
        engine.pool.use(set(engine.pool.on.values()) - {"suspend"}, backend)
        self.backends[engine] = backend
        self.engines.append(engine)
        self.stores.append(store)
        return engine

    def submit(
        self, engine: Engine, workflow: Workflow, params: Mapping[str, Any] | None = None, **options: Any
    ) -> ActiveRun:
        submission = Submission(workflow, params or {}, **{"fresh": True, **options})
        submission.vet(engine.store, engine.admission.open())
        run = own(engine.store, engine.me.id, submission.record(engine.store, self.clock.now()))
        return engine.adopt(run, blueprints(submission.workflow, submission.links), submission.params)

    def play(self, main: Callable[[Yard], Coroutine[Any, Any, Any]]) -> Any:
        """Engines that `main` makes run beside it; they end when it has ended and they have nothing left to do."""

        async def all_of_it() -> Any:
            try:
                async with asyncio.timeout(5_000):
                    found = await main(self)
                await asyncio.sleep(0.001)  # an engine that was just started is to be told after it has begun
                for engine in self.engines:
                    engine.end()
                async with asyncio.timeout(5_000):
                    await asyncio.gather(*self.tasks)
                for engine in self.engines:
                    if engine not in self.closed:
                        await engine.close()
                return found
            finally:
                for store in self.stores:
                    store.close()

        self.tasks: list[asyncio.Task[None]] = []
        return self.clock.run(all_of_it())

    def go(self, engine: Engine) -> Engine:
        self.tasks.append(asyncio.ensure_future(engine.run(keep=True)))
        return engine

    async def die(self, engine: Engine) -> None:
        """As kill -9: nothing more is written, and its processes are gone with it."""
        at = self.engines.index(engine)
        self.tasks[at].cancel()
        await asyncio.gather(self.tasks[at], return_exceptions=True)
        del self.engines[at], self.tasks[at]
        backend = self.backends[engine]
        for id in list(backend._running):
            backend._running.pop(id).cancel()
            self.ended(id, stopped=True)

    def times(self, run: str, task: str) -> list[tuple[float, float]]:
        """When attempts of a task ran."""
        return [(start, end) for id, start, end, _ in self.spans if id.startswith(f"{run}/{task}/")]

    def events(self, live: ActiveRun, *kinds: str) -> list[Event]:
        with open_store(self.where) as store:
            return [event for event in store.runs.events(live.number) if not kinds or event.kind in kinds]

    def left(self) -> list[str]:
        """Workloads that are not over."""
        with open_store(self.where) as store:
            return [one.key for one in store.queues.workloads()]
