"""What if: a list of workflows played through the engine and its queues with a clock that jumps, once for each unit. Called by
`penstock queue simulate` and by whoever compares queue configurations.

Nothing is modelled here: it is the engine itself with a backend that only takes time, on a store that is thrown away. So what is
measured is what would happen, as far as the run times are right.
"""

from __future__ import annotations

import asyncio
import dataclasses
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.admission.meter import Fact, Measures, What, measure
from penstock.admission.model import ClusterQueue, Cohort, Object
from penstock.artifacts.blobs import Blobs
from penstock.backends.base import Context, Ended, Order
from penstock.backends.fake import Fake
from penstock.engine.blueprint import blueprints
from penstock.engine.book import standing_of
from penstock.engine.clock import VirtualClock
from penstock.engine.loop import Engine
from penstock.engine.reserved import base
from penstock.errors import UserError
from penstock.graph.model import Unit, Workflow
from penstock.service.queueing import vet
from penstock.service.runs import Submission, own
from penstock.store.sql import open_store

UNITS = (Unit.WORKFLOW, Unit.STAGE, Unit.TASK, Unit.REUSE)
Seconds = Callable[[Order], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A workflow that is submitted at some time."""

    workflow: Workflow
    seconds: Seconds
    """How long a task takes."""
    at: float = 0.0
    params: Mapping[str, Any] = field(default_factory=dict)
    queue: str | None = None
    priority: str | int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """What came of it with one unit."""

    unit: Unit
    measures: Measures | None = None
    refused: UserError | None = None
    """It could never have started."""
    states: Mapping[str, str] = field(default_factory=dict)
    """How each run ended."""
    decisions: int = 0


def simulate(
    jobs: Sequence[Job],
    objects: Sequence[Object],
    units: Sequence[Unit] = UNITS,
    documents: Sequence[tuple[str, str, str]] = (),
) -> list[Played]:
    """`objects`: the queues. `documents`: instead, rows for the store, as Kueue's manifests."""
    return [_play(jobs, objects, unit, documents) for unit in units]


def capacity_of(objects: Sequence[Object]) -> dict[str, int | None]:
    """What the queues have together, by resource."""
    found: dict[str, int | None] = {}
    for one in objects:
        if isinstance(one, ClusterQueue | Cohort):
            for group in one.groups:
                for flavor in group.flavors:
                    for resource, quota in flavor.quotas.items():
                        found[resource] = (found.get(resource) or 0) + quota.nominal
    return found


def _play(
    jobs: Sequence[Job], objects: Sequence[Object], unit: Unit, documents: Sequence[tuple[str, str, str]]
) -> Played:
    clock = VirtualClock()
    with tempfile.TemporaryDirectory(prefix="penstock-simulate-") as folder:
        return clock.run(_run(Path(folder), clock, jobs, objects, unit, documents))


async def _run(
    place: Path,
    clock: VirtualClock,
    jobs: Sequence[Job],
    objects: Sequence[Object],
    unit: Unit,
    documents: Sequence[tuple[str, str, str]],
) -> Played:
    with open_store(str(place)) as store:
        if documents:
            store.put_queue_objects(documents)
        facts: list[Fact] = []
        engine = Watched(
            store, place, Blobs(place / "artifacts"), jobs=1_000_000, now=clock.now, chance=lambda: 0.5, capacity=lambda: objects
        )  # fmt: skip
        engine.facts = facts
        backend = Timed(engine.context, facts, clock)
        engine.backends = dict.fromkeys(set(engine.on.values()) - {"suspend"}, backend)
        try:
            ready = [_submission(job, unit) for job in jobs]
            for submission in {id(one.workflow): one for one in ready}.values():
                vet(engine._open_book(), submission.plan)
        except UserError as error:
            await engine.close()
            return Played(unit=unit, refused=error)
        lives = []

        async def submit_all() -> None:
            for job, submission in sorted(zip(jobs, ready, strict=True), key=lambda pair: pair[0].at):
                if job.at > clock.elapsed:
                    await asyncio.sleep(job.at - clock.elapsed)
                run = own(engine, submission.record(store, clock.now()))
                backend.seconds[run.id] = job.seconds
                facts.append(Fact(clock.elapsed, run.id, What.SUBMITTED))
                lives.append(engine.adopt(run, blueprints(submission.workflow, submission.links), submission.params))
            engine.end()

        engine.clock = clock
        beside = asyncio.ensure_future(submit_all())
        await engine.run(keep=True)
        await beside
        await engine.close()
        for live in lives:
            facts.append(Fact((live.ended or clock.now()) - clock.start, live.run.id, What.ENDED))
        everything = list(engine.book.queues.cluster_queues.values()) if engine.book is not None else []
        cohorts = list(engine.book.queues.cohorts.values()) if engine.book is not None else []
        return Played(
            unit=unit,
            measures=measure(facts, capacity_of([*everything, *cohorts])),
            states={live.run.id: live.state for live in lives},
            decisions=store.last_decision(),
        )


def _submission(job: Job, unit: Unit) -> Submission:
    # Nothing is to be reused: what was computed by one run of the list would not be by the next.
    submission = Submission(
        job.workflow, job.params, fresh=True, queue=job.queue, priority=job.priority, unit=str(unit)
    )
    return submission


class Watched(Engine):
    """Writes down what the queues give and take back."""

    facts: list[Fact]
    clock: VirtualClock

    def _poll(self) -> None:
        """Nobody else writes, and nobody asks whether we are alive."""

    def _beat(self) -> None:
        """As above."""

    def _admit(self) -> None:
        super()._admit()
        assert self.book is not None
        held = self.__dict__.setdefault("_held", {})
        standing = self.__dict__.setdefault("_standing", {})
        for key, (_, _, number, _, state, _) in self.batch.workloads.items():
            workload = self.book.queues.workloads.get(key)
            now: dict[str, int] = {}
            if workload is not None:
                state = standing_of(workload)
                for fr, amount in workload.held.items() if workload.admission is not None else ():
                    now[fr.resource] = now.get(fr.resource, 0) + amount
            before = held.get(key, {})
            change = {name: now.get(name, 0) - before.get(name, 0) for name in {*now, *before}}
            was, standing[key] = standing.get(key, ""), state
            what = What.CHANGED
            if state != was:
                what = {"pending": What.QUEUED, "held": What.ADMITTED, "leaving": What.PREEMPTED}.get(
                    state, What.CHANGED
                )
                if state == "over" and was == "pending":
                    what = What.ADMITTED
            held[key] = now
            self.facts.append(
                Fact(self.clock.elapsed, self._run_id(number), what, key, {n: v for n, v in change.items() if v})
            )


class Timed(Fake):
    """Takes the time that a task takes, and says what is in use."""

    def __init__(self, context: Context, facts: list[Fact], clock: VirtualClock) -> None:
        self.seconds: dict[str, Seconds] = {}
        self.facts = facts
        self.clock = clock
        self.using: dict[str, tuple[str, dict[str, int]]] = {}
        super().__init__(context, lambda order: self.seconds[order.run](order))

    def start(self, orders: Sequence[Order]) -> None:
        for order in orders:
            needs = {name: amount * order.step.replicas for name, amount in base(order.step.resources).items()}
            self.using[order.id] = (order.run, needs)
            self.facts.append(Fact(self.clock.elapsed, order.run, What.STARTED, "", {}, needs))
        super().start(orders)
        self.orders.clear()

    def _end(self, ended: Ended) -> None:
        self._over(ended.id)
        super()._end(ended)

    def stop(self, id: str, grace: float) -> None:
        if id in self._running:
            self._over(id)
        super().stop(id, grace)

    def _over(self, id: str) -> None:
        run, needs = self.using.pop(id)
        self.facts.append(Fact(self.clock.elapsed, run, What.CHANGED, "", {}, {name: -v for name, v in needs.items()}))


def copies(job: Job, many: int, every: float) -> list[Job]:
    return [dataclasses.replace(job, at=job.at + number * every) for number in range(many)]
