"""What if: a list of workflows played through the engine and its queues with a clock that jumps, once for each unit. Called by
`penstock queue simulate` and by whoever compares queue configurations.

Nothing is modelled here: it is the engine itself with a backend that only takes time, on a store that keeps nothing. So what is
measured is what would happen, as far as the run times are right. Two things of a real run depend on how fast this machine is: how
often the engine looks at what a whole workflow still needs, and how much it does in one turn. Here neither does, so that the same
list gives the same figures everywhere.
"""

from __future__ import annotations

import asyncio
import dataclasses
import math
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.admission.meter import Fact, Measures, What, measure
from penstock.admission.model import UNLIMITED, ClusterQueue, Cohort, Object
from penstock.artifacts.blobs import Blobs
from penstock.backends.base import Context, Ended, Order
from penstock.backends.fake import Fake
from penstock.engine.blueprint import blueprints
from penstock.engine.book import standing_of
from penstock.engine.clock import Standstill, VirtualClock
from penstock.engine.core import LANES
from penstock.engine.live import Live
from penstock.engine.loop import Engine
from penstock.engine.reserved import Lot, Reserved, base
from penstock.errors import Problem, UserError
from penstock.graph.model import Unit, Workflow
from penstock.service import wording
from penstock.service.queueing import vet
from penstock.service.runs import Submission
from penstock.service.scratch import Row, scratch

if TYPE_CHECKING:
    from penstock.engine.whole import Whole

UNITS = (Unit.WORKFLOW, Unit.STAGE, Unit.TASK, Unit.REUSE)
OF_ONE_UNIT = ("P815", "P818")
"""Why a list may be impossible with one unit, and possible with another."""
PATIENCE = 30 * 86400.0
"""Seconds after which nothing will happen any more, although something goes on by the clock."""
SWAPS = 100
"""So often one reservation may be taken back at one moment before it is plain that this has no end."""
LOOKS = 250
"""So often in a run it is worked out what a whole workflow still needs, if it has more steps than that."""
_LANE = "fake"
Seconds = Callable[[Order], float]
Progress = Callable[[Unit, int], None]
"""Told how many tasks are over."""


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
class Outcome:
    """How a run ended."""

    state: str
    why: str = ""
    tasks: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """What came of it with one unit."""

    unit: Unit
    measures: Measures | None = None
    refused: UserError | None = None
    """It could never have started, or stood still in the middle."""
    runs: Mapping[str, Outcome] = field(default_factory=dict)
    """In the order of the jobs' submission."""
    capacity: Mapping[str, int | None] = field(default_factory=dict)
    """What there is to share, by resource. None: as much as anybody asks for."""
    workloads: int = 0
    """How many stood in line."""
    decisions: int = 0


def simulate(
    jobs: Sequence[Job],
    objects: Sequence[Object] = (),
    units: Iterable[Unit] = UNITS,
    documents: Sequence[Row] = (),
    progress: Progress | None = None,
) -> list[Played]:
    """`objects`: the queues. `documents`: instead, Kueue's manifests as a store has them. Raises UserError for what is wrong with
    every unit."""
    return [_play(jobs, objects, unit, documents, progress) for unit in units]


def capacity_of(objects: Iterable[Object]) -> dict[str, int | None]:
    """What the queues have together, by resource."""
    found: dict[str, int] = {}
    for one in objects:
        if isinstance(one, ClusterQueue | Cohort):
            for group in one.groups:
                for flavor in group.flavors:
                    for resource, quota in flavor.quotas.items():
                        found[resource] = found.get(resource, 0) + quota.nominal
    return {name: amount if amount < UNLIMITED else None for name, amount in sorted(found.items())}


def copies(job: Job, many: int, every: float) -> list[Job]:
    return [dataclasses.replace(job, at=job.at + number * every) for number in range(many)]


# -- one unit ---------------------------------------------------------------------------------------------------------


def _play(
    jobs: Sequence[Job], objects: Sequence[Object], unit: Unit, documents: Sequence[Row], progress: Progress | None
) -> Played:
    ready = _submissions(jobs, unit)
    clock = VirtualClock()
    with tempfile.TemporaryDirectory(prefix="penstock-simulate-") as folder:
        playing = _Playing(clock, Path(folder), unit, objects, documents, progress)
        try:
            return clock.run(playing.play(ready))
        except Standstill:
            return playing.stuck()


def _submissions(jobs: Sequence[Job], unit: Unit) -> list[tuple[Job, Submission]]:
    """In the order of time. Jobs that are alike are planned once."""
    made: dict[Any, Submission] = {}
    found = []
    for job in sorted(jobs, key=lambda job: job.at):
        alike = (id(job.workflow), id(job.params), job.queue, job.priority)
        if alike not in made:
            # Nothing is to be reused: what was computed by one run of the list would not be by the next.
            made[alike] = Submission(
                job.workflow, job.params, fresh=True, queue=job.queue, priority=job.priority, unit=str(unit)
            )
        found.append((job, made[alike]))
    return found


class _Playing:
    def __init__(
        self,
        clock: VirtualClock,
        place: Path,
        unit: Unit,
        objects: Sequence[Object],
        documents: Sequence[Row],
        progress: Progress | None,
    ) -> None:
        self.clock = clock
        self.place = place
        self.unit = unit
        self.objects = objects
        self.store = scratch(documents)
        self.progress = progress
        self.facts: list[Fact] = []
        self.lives: list[Live] = []
        self.engine: Watched | None = None

    async def play(self, ready: Sequence[tuple[Job, Submission]]) -> Played:
        seconds: dict[str, Seconds] = {}

        def timed(context: Context) -> Timed:
            told = self.progress
            return Timed(
                context, seconds, self.facts, self.clock, None if told is None else lambda n: told(self.unit, n)
            )

        engine = self.engine = Watched(
            self.store, self.place, Blobs(self.place / "artifacts"), facts=self.facts, clock=self.clock, jobs=1_000_000,
            id="simulation", on=dict.fromkeys(LANES, _LANE), backends={_LANE: timed}, now=self.clock.now, chance=lambda: 0.5,
            capacity=lambda: self.objects,
        )  # fmt: skip
        refused = self._vetted(engine, ready)
        if refused is not None:
            await engine.close()
            return Played(unit=self.unit, refused=refused, capacity=self._capacity())
        beside = asyncio.ensure_future(self._submit(engine, ready, seconds))
        await engine.run(keep=True)
        await beside
        await engine.close()
        return Played(
            unit=self.unit,
            measures=measure(self.facts, self._capacity()),
            runs={live.run.id: Outcome(state=live.state, why=live.why, tasks=sum(live.counts.values())) for live in self.lives},
            capacity=self._capacity(),
            workloads=len(engine.lined),
            decisions=self.store.last_decision(),
        )  # fmt: skip

    def _vetted(self, engine: Engine, ready: Sequence[tuple[Job, Submission]]) -> UserError | None:
        book = engine._open_book()
        different = {id(one): one for _, one in ready}.values()
        several = len({one.workflow.name for one in different}) > 1
        found: dict[str, Problem] = {}
        for submission in different:
            try:
                vet(book, submission.plan)
            except UserError as error:
                if any(problem.code not in OF_ONE_UNIT for problem in error.problems):
                    raise
                for problem in error.problems:
                    text = f"{submission.workflow.name}: {problem.message}" if several else problem.message
                    found.setdefault(text, dataclasses.replace(problem, message=text))
        return UserError(found.values()) if found else None

    async def _submit(
        self, engine: Engine, ready: Sequence[tuple[Job, Submission]], seconds: dict[str, Seconds]
    ) -> None:
        drawn: dict[int, Any] = {}
        for job, submission in ready:
            if job.at > self.clock.elapsed:
                await asyncio.sleep(job.at - self.clock.elapsed)
            run = self.store.create_run(
                submission.workflow.name, "", "", submission.params, submission.options, "", self.clock.now()
            )
            self.store.take(run.number, engine.me.id, None)
            seconds[run.id] = job.seconds
            self.facts.append(Fact(self.clock.elapsed, run.id, What.SUBMITTED))
            if id(submission) not in drawn:
                drawn[id(submission)] = blueprints(submission.workflow, submission.links)
            self.lives.append(engine.adopt(run, drawn[id(submission)], submission.params))
        engine.end()

    def _capacity(self) -> dict[str, int | None]:
        book = self.engine.book if self.engine is not None else None
        if book is None:
            return {}
        return capacity_of([*book.queues.cluster_queues.values(), *book.queues.cohorts.values()])

    def stuck(self) -> Played:
        """Somebody waits, and nothing will ever happen: a queue is stopped, or nobody answers its checks. Or two are let in in
        each other's place without end."""
        engine = self.engine
        assert engine is not None and engine.book is not None
        reasons: dict[str, list[str]] = {}
        swapped = [key for key, times in engine.swaps.items() if times >= SWAPS]
        if swapped:
            reasons["is stopped and let in again without end"] = swapped
        for _, lot in engine.lots.values():
            if not swapped and engine.standing.get(lot.key) == "pending":
                hold = engine.book.queues.explain(lot.key, self.clock.now()).as_data()
                said = f"waits for ever {wording.line_of(hold)}: {wording.cause(hold)}"
                reasons.setdefault(said, []).append(lot.key)
        parts = [f"{wording.names(keys)} {said}" for said, keys in reasons.items()]
        fix = "give --queues a file with queues that admit it"
        problem = Problem("P820", "; ".join(parts) or "something waits for ever", fix)
        return Played(unit=self.unit, refused=UserError(problem), capacity=self._capacity())


class Watched(Engine):
    """Writes down what the queues give and take back."""

    def __init__(self, *args: Any, facts: list[Fact], clock: VirtualClock, **options: Any) -> None:
        super().__init__(*args, **options)
        self.facts = facts
        self.clock = clock
        self._held: dict[str, dict[str, int]] = {}
        self.standing: dict[str, str] = {}
        self.swaps: dict[str, int] = {}
        """How often each was taken back at this moment."""
        self._moment = 0.0
        self.lined: set[str] = set()
        """Who ever stood in line. Stages are put there before their time has come, and some need not come."""
        self._looked: dict[int, int] = {}

    def _poll(self) -> None:
        """Nobody else writes, and nobody asks whether we are alive."""

    def _beat(self) -> None:
        """As above."""

    def _say_why(self, now: float) -> None:
        """Nobody asks for it, and it is most of the work where many wait."""

    def _pump(self) -> None:
        # All that there is to do at one moment, however long it takes.
        super()._pump()
        while self.more:
            super()._pump()

    def _whole_shrinks(self, whole: Whole) -> None:
        over = whole.live.counts.get("succeeded", 0)
        due = over - self._looked.get(whole.live.number, -LOOKS) > len(whole.plan.level.steps) // LOOKS
        whole.look_again = 0.0 if due else math.inf
        if due:
            self._looked[whole.live.number] = over
        super()._whole_shrinks(whole)

    def _evict(self, reserved: Reserved, lot: Lot, why: dict[str, Any]) -> None:
        self.facts.append(Fact(self.clock.elapsed, reserved.live.run.id, What.PREEMPTED, lot.key))
        if self._moment != self.clock.elapsed:
            self._moment, self.swaps = self.clock.elapsed, {}
        self.swaps[lot.key] = self.swaps.get(lot.key, 0) + 1
        if self.swaps[lot.key] > SWAPS:
            raise Standstill(f"{lot.key} is stopped and let in again for ever")
        super()._evict(reserved, lot, why)

    def _finish(self) -> list[Live]:
        over = super()._finish()
        for live in over:
            self.facts.append(Fact(self.clock.elapsed, live.run.id, What.ENDED))
        if over and self.stale:
            self.inbox.wake()  # what they held is free, and that is looked at in the next turn
        return over

    def _admit(self) -> None:
        super()._admit()
        assert self.book is not None
        if not self.orders and self.clock.elapsed - self.backend(_LANE).moved > PATIENCE:
            raise Standstill("nothing has run for a month")
        for key, (_, _, number, _, state, _) in self.batch.workloads.items():
            workload = self.book.queues.workloads.get(key)
            now: dict[str, int] = {}
            if workload is not None:
                state = standing_of(workload)
                for fr, amount in sorted(workload.held.items()) if workload.admission is not None else ():
                    now[fr.resource] = now.get(fr.resource, 0) + amount
            before = self._held.get(key, {})
            was = self.standing.get(key, "")
            if now != before or state != was:
                self._held[key], self.standing[key] = now, state
                if state in ("pending", "held"):
                    self.lined.add(key)
                change = {name: now.get(name, 0) - before.get(name, 0) for name in sorted({*now, *before})}
                what = What.CHANGED
                if state != was and "pending" in (state, was):
                    what = What.QUEUED if state == "pending" else What.ADMITTED
                self.facts.append(Fact(self.clock.elapsed, self._run_id(number), what, key, change))


class Timed(Fake):
    """Takes the time that a task takes, and says what is in use."""

    def __init__(
        self,
        context: Context,
        seconds: Mapping[str, Seconds],
        facts: list[Fact],
        clock: VirtualClock,
        progress: Callable[[int], None] | None,
    ) -> None:
        super().__init__(context, lambda order: seconds[order.run](order))
        self.facts = facts
        self.clock = clock
        self.progress = progress
        self.using: dict[str, tuple[str, dict[str, int]]] = {}
        self.over = 0
        self.moved = 0.0
        """When something last began or ended."""

    def start(self, orders: Sequence[Order]) -> None:
        self.moved = self.clock.elapsed
        for order in orders:
            needs = {name: amount * order.step.replicas for name, amount in base(order.step.resources).items()}
            self.using[order.id] = (order.run, needs)
            self.facts.append(Fact(self.moved, order.run, What.STARTED, "", {}, needs))
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
        self.moved = self.clock.elapsed
        self.facts.append(Fact(self.moved, run, What.CHANGED, "", {}, {name: -v for name, v in needs.items()}))
        self.over += 1
        if self.progress is not None and self.over % 100 == 0:
            self.progress(self.over)
