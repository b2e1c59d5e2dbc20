"""Simulation of queues: a list of workflows executed by the engine with a virtual clock, once for each unit. Called by
`penstock queue simulate`.

Nothing is modelled: it is the engine itself, with a backend whose tasks only take time, and a store in memory. So the results are those
of a real run, if the run times are right. In a real run two things depend on the speed of the machine: how often the engine
recomputes what a whole workflow still needs, and how much it does in one turn. Here they do not, so that the results are the same on
every machine.
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

from penstock.admission.metrics import Fact, Measures, What, measure
from penstock.admission.model import UNLIMITED, ClusterQueue, Cohort, Object
from penstock.artifacts.blobs import Blobs
from penstock.backends.base import AttemptSpec, BackendContext
from penstock.backends.fake import FakeBackend
from penstock.engine.active_run import ActiveRun
from penstock.engine.backend_pool import LANES
from penstock.engine.blueprint import blueprints
from penstock.engine.clock import Standstill, VirtualClock
from penstock.engine.engine import Engine
from penstock.engine.peers import NoPeers
from penstock.engine.podsets import amounts
from penstock.engine.quota_replica import QuotaReplica, state_of
from penstock.errors import Problem, UserError
from penstock.graph.model import Unit, Workflow
from penstock.service import wording
from penstock.service.feasibility import vet
from penstock.service.queues import Row
from penstock.service.submission import Submission
from penstock.store.memory import MemoryStore

if TYPE_CHECKING:
    from penstock.engine.quota import AdmitterQuota
    from penstock.engine.workflow_reservation import WorkflowReservation

UNITS = (Unit.WORKFLOW, Unit.STAGE, Unit.TASK, Unit.REUSE)
OF_ONE_UNIT = ("P815", "P818")
"""Errors that may concern one unit only: with another the list may be possible."""
PATIENCE = 30 * 86400.0
"""Virtual seconds without any start or end of a task after which the simulation is considered stuck."""
SWAPS = 100
"""Evictions of one Workload at one moment after which the simulation is considered endless."""
LOOKS = 250
"""How often in a run the remaining demand of a whole workflow is recomputed, if it has more steps than that."""
_LANE = "fake"
Seconds = Callable[[AttemptSpec], float | tuple[float, Mapping[str, Any]]]
"""Of a task: how long it takes; and its outputs, if they are not to be empty."""
Progress = Callable[[Unit, int], None]
"""Called with the number of tasks that have ended. A UserError that it raises ends the simulation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedJob:
    """A workflow that is submitted at a given time."""

    workflow: Workflow
    seconds: Seconds
    """The run time of a task."""
    at: float = 0.0
    params: Mapping[str, Any] = field(default_factory=dict)
    queue: str | None = None
    priority: str | int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutcome:
    """How a run ended."""

    state: str
    why: str = ""
    tasks: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationResult:
    """The result with one unit."""

    unit: Unit
    measures: Measures | None = None
    refused: UserError | None = None
    """Why it could not be simulated: a reservation can never be admitted, or the simulation was stuck."""
    runs: Mapping[str, RunOutcome] = field(default_factory=dict)
    """In the order of the jobs' submission."""
    capacity: Mapping[str, int | None] = field(default_factory=dict)
    """The quota, by resource. None: unlimited."""
    workloads: int = 0
    """How many waited in a queue or were admitted."""
    decisions: int = 0


def simulate(
    jobs: Sequence[SimulatedJob],
    objects: Sequence[Object] = (),
    units: Iterable[Unit] = UNITS,
    documents: Sequence[Row] = (),
    progress: Progress | None = None,
) -> list[SimulationResult]:
    """`objects`: the queues. `documents`: instead, rows as a store has them. Raises UserError for what is wrong with every unit."""
    return [_simulate(jobs, objects, unit, documents, progress) for unit in units]


def capacity_of(objects: Iterable[Object]) -> dict[str, int | None]:
    """The quota of all queues together, by resource."""
    found: dict[str, int] = {}
    for one in objects:
        if isinstance(one, ClusterQueue | Cohort):
            for group in one.groups:
                for flavor in group.flavors:
                    for resource, quota in flavor.quotas.items():
                        found[resource] = found.get(resource, 0) + quota.nominal
    return {name: amount if amount < UNLIMITED else None for name, amount in sorted(found.items())}


# -- one unit ---------------------------------------------------------------------------------------------------------


def _simulate(
    jobs: Sequence[SimulatedJob],
    objects: Sequence[Object],
    unit: Unit,
    documents: Sequence[Row],
    progress: Progress | None,
) -> SimulationResult:
    ready = _submissions(jobs, unit)
    clock = VirtualClock()
    with tempfile.TemporaryDirectory(prefix="penstock-simulate-") as folder:
        simulation = _Simulation(clock, Path(folder), unit, objects, documents, progress)
        try:
            return clock.run(simulation.run(ready))
        except Standstill:
            return simulation.stuck()


def _submissions(jobs: Sequence[SimulatedJob], unit: Unit) -> list[tuple[SimulatedJob, Submission]]:
    """In the order of submission. Equal jobs are planned once."""
    made: dict[Any, Submission] = {}
    found = []
    for job in sorted(jobs, key=lambda job: job.at):
        alike = (id(job.workflow), id(job.params), job.queue, job.priority)
        if alike not in made:
            # No result is reused, so that every run of the list is executed.
            made[alike] = Submission(
                job.workflow, job.params, fresh=True, queue=job.queue, priority=job.priority, unit=str(unit)
            )
        found.append((job, made[alike]))
    return found


class _Simulation:
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
        self.store = MemoryStore(documents)
        self.progress = progress
        self.facts: list[Fact] = []
        self.runs: list[ActiveRun] = []
        self.engine: Engine | None = None
        self.recorder = DecisionRecorder(self.facts, clock)

    async def run(self, ready: Sequence[tuple[SimulatedJob, Submission]]) -> SimulationResult:
        seconds: dict[str, Seconds] = {}

        def timed(context: BackendContext) -> TimedBackend:
            report = self.progress
            progress = None if report is None else lambda n: self._report(report, n)
            backend = TimedBackend(context, seconds, self.facts, self.clock, progress)
            self.recorder.idle_since = lambda: None if backend.using else backend.moved
            return backend

        engine = self.engine = Engine(
            self.store,
            self.place,
            Blobs(self.place / "artifacts"),
            jobs=1_000_000,
            id="simulation",
            on=dict.fromkeys(LANES, _LANE),
            backends={_LANE: timed},
            now=self.clock.now,
            chance=lambda: 0.5,
            capacity=lambda: self.objects,
            peers=NoPeers(),
            pace=CountedPace(),
            observer=self.recorder,
            explains=False,
            window=math.inf,
        )
        refused = self._vetted(engine, ready)
        if refused is not None:
            await engine.close()
            return SimulationResult(unit=self.unit, refused=refused, capacity=self._capacity())
        beside = asyncio.ensure_future(self._submit(engine, ready, seconds))
        await engine.run(keep=True)
        await beside
        await engine.close()
        return SimulationResult(
            unit=self.unit,
            measures=measure(self.facts, self._capacity()),
            runs={
                run.record.id: RunOutcome(state=run.status, why=run.why, tasks=sum(run.counts.values()))
                for run in self.runs
            },
            capacity=self._capacity(),
            workloads=len(self.recorder.queued),
            decisions=self.store.queues.last_decision(),
        )

    def _report(self, report: Progress, ended: int) -> None:
        """Called by a timer, which nothing that is raised gets out of."""
        try:
            report(self.unit, ended)
        except UserError as error:
            self.recorder.refused = error

    def _vetted(self, engine: Engine, ready: Sequence[tuple[SimulatedJob, Submission]]) -> UserError | None:
        replica = engine.admission.open()
        assert isinstance(replica, QuotaReplica)
        different = {id(one): one for _, one in ready}.values()
        several = len({one.workflow.name for one in different}) > 1
        found: dict[str, Problem] = {}
        for submission in different:
            try:
                vet(replica, submission.plan)
            except UserError as error:
                if any(problem.code not in OF_ONE_UNIT for problem in error.problems):
                    raise
                for problem in error.problems:
                    text = f"{submission.workflow.name}: {problem.message}" if several else problem.message
                    found.setdefault(text, dataclasses.replace(problem, message=text))
        return UserError(found.values()) if found else None

    async def _submit(
        self, engine: Engine, ready: Sequence[tuple[SimulatedJob, Submission]], seconds: dict[str, Seconds]
    ) -> None:
        drawn: dict[int, Any] = {}
        for job, submission in ready:
            if job.at > self.clock.elapsed:
                await asyncio.sleep(job.at - self.clock.elapsed)
            run = self.store.runs.create(
                submission.workflow.name, "", "", submission.params, submission.options, "", self.clock.now()
            )
            self.store.runs.take(run.number, engine.me.id, None)
            seconds[run.id] = job.seconds
            self.recorder.names[run.number] = run.id
            self.facts.append(Fact(self.clock.elapsed, run.id, What.SUBMITTED))
            if id(submission) not in drawn:
                drawn[id(submission)] = blueprints(submission.workflow, submission.links)
            self.runs.append(engine.adopt(run, drawn[id(submission)], submission.params))
        engine.end()

    def _capacity(self) -> dict[str, int | None]:
        replica = self.engine.admission.replica if self.engine is not None else None
        if not isinstance(replica, QuotaReplica):
            return {}
        return capacity_of([*replica.scheduler.cluster_queues.values(), *replica.scheduler.cohorts.values()])

    def stuck(self) -> SimulationResult:
        """A Workload waits and nothing will happen any more: its queue is stopped, or its admission checks have no answer. Or two Workloads
        preempt each other without end."""
        engine = self.engine
        assert engine is not None and engine.admission.replica is not None
        scheduler = engine.admission.replica.scheduler
        reasons: dict[str, list[str]] = {}
        swapped = [key for key, times in self.recorder.swaps.items() if times >= SWAPS]
        if swapped:
            reasons["is evicted and admitted again without end"] = swapped
        for key, state in self.recorder.states.items():
            if not swapped and state == "pending":
                hold = scheduler.explain(key, self.clock.now()).as_data()
                text = f"waits forever {wording.place_of(hold)}: {wording.cause(hold)}"
                reasons.setdefault(text, []).append(key)
        parts = [f"{wording.names(keys)} {text}" for text, keys in reasons.items()]
        fix = "give --queues a file with queues that admit it"
        problem = Problem("P820", "; ".join(parts) or "something waits forever", fix)
        return SimulationResult(unit=self.unit, refused=UserError(problem), capacity=self._capacity())


class CountedPace:
    """Shrinks the reservation of a whole workflow by how many tasks have ended, not by how fast this machine is."""

    def __init__(self) -> None:
        self._looked: dict[int, int] = {}

    def shrink(self, reservation: WorkflowReservation) -> dict[str, int] | None:
        run = reservation.run
        over = run.counts.get("succeeded", 0)
        due = over - self._looked.get(run.number, -LOOKS) > len(reservation.plan.level.steps) // LOOKS
        if not due:
            return None
        self._looked[run.number] = over
        return reservation.shrink()


class DecisionRecorder:
    """Records what the queues admit and evict: the observer of the engine."""

    def __init__(self, facts: list[Fact], clock: VirtualClock) -> None:
        self.facts = facts
        self.clock = clock
        self.names: dict[int, str] = {}
        """Number of a run -> its id."""
        self.idle_since: Callable[[], float | None] = lambda: None
        """When a task last started or ended, if none runs."""
        self.states: dict[str, str] = {}
        """Workload -> its state."""
        self.swaps: dict[str, int] = {}
        """Workload -> how often it was evicted at this moment."""
        self.refused: UserError | None = None
        """Raised at the next decision: whoever is told of the progress has had enough."""
        self.queued: set[str] = set()
        """Workloads that ever waited. Stages are created before they are ready, and some never become ready."""
        self._held: dict[str, dict[str, int]] = {}
        self._moment = 0.0

    def evicted(self, run: ActiveRun, workload: str) -> None:
        self.facts.append(Fact(self.clock.elapsed, run.record.id, What.PREEMPTED, workload))
        if self._moment != self.clock.elapsed:
            self._moment, self.swaps = self.clock.elapsed, {}
        self.swaps[workload] = self.swaps.get(workload, 0) + 1
        if self.swaps[workload] > SWAPS:
            raise Standstill(f"{workload} is evicted and admitted again without end")

    def run_ended(self, run: ActiveRun) -> None:
        self.facts.append(Fact(self.clock.elapsed, run.record.id, What.ENDED))

    def decided(self, rows: Mapping[str, tuple[str, int, int, str, str, str]], quota: AdmitterQuota) -> None:
        if self.refused is not None:
            raise self.refused
        since = self.idle_since()
        if since is not None and self.clock.elapsed - since > PATIENCE:
            raise Standstill("nothing has run for a month")
        for key, (_, _, number, _, recorded, _) in rows.items():
            workload = quota.scheduler.workloads.get(key)
            state = recorded if workload is None else state_of(workload)
            now: dict[str, int] = {}
            if workload is not None:
                for fr, amount in sorted(workload.held.items()) if workload.admission is not None else ():
                    now[fr.resource] = now.get(fr.resource, 0) + amount
            self._changed(key, number, state, now)

    def _changed(self, key: str, number: int, state: str, now: dict[str, int]) -> None:
        before = self._held.get(key, {})
        was = self.states.get(key, "")
        if now == before and state == was:
            return
        self._held[key], self.states[key] = now, state
        if state in ("pending", "held"):
            self.queued.add(key)
        change = {name: now.get(name, 0) - before.get(name, 0) for name in sorted({*now, *before})}
        what = What.CHANGED
        if state != was and "pending" in (state, was):
            what = What.QUEUED if state == "pending" else What.ADMITTED
        self.facts.append(Fact(self.clock.elapsed, self.names[number], what, key, change))


class TimedBackend:
    """A Backend in which each task takes its run time; what is in use is recorded."""

    abilities = FakeBackend.abilities

    def __init__(
        self,
        context: BackendContext,
        seconds: Mapping[str, Seconds],
        facts: list[Fact],
        clock: VirtualClock,
        progress: Callable[[int], None] | None,
    ) -> None:
        self.clockwork = FakeBackend(context, lambda order: seconds[order.run](order), self._over)
        self.facts = facts
        self.clock = clock
        self.progress = progress
        self.using: dict[str, tuple[str, dict[str, int]]] = {}
        self.over = 0
        self.moved = 0.0
        """When a task last started or ended."""

    def start(self, specs: Sequence[AttemptSpec]) -> None:
        self.moved = self.clock.elapsed
        for order in specs:
            needs = {name: amount * order.step.replicas for name, amount in amounts(order.step.resources).items()}
            self.using[order.id] = (order.run, needs)
            self.facts.append(Fact(self.moved, order.run, What.STARTED, "", {}, needs))
        self.clockwork.start(specs)
        self.clockwork.specs.clear()

    def room(self) -> int:
        return self.clockwork.room()

    def stop(self, id: str, grace: float) -> None:
        self.clockwork.stop(id, grace)

    async def close(self) -> None:
        await self.clockwork.close()

    def _over(self, id: str) -> None:
        run, needs = self.using.pop(id)
        self.moved = self.clock.elapsed
        self.facts.append(Fact(self.moved, run, What.CHANGED, "", {}, {name: -v for name, v in needs.items()}))
        self.over += 1
        if self.progress is not None and self.over % 100 == 0:
            self.progress(self.over)
