"""Between what could start and what may: in each turn, quota is given back, requested and decided about. Called by Engine.

Within one turn: what has ended gives its quota back, what has become ready requests quota (Reservations does both), the scheduler
decides, and what is admitted reaches RunState as permits. All of it is recorded in the transaction of the turn, so that tasks start
only on quota that is on record.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.engine.active_run import ActiveRun
from penstock.engine.effects import QuotaFreed, QuotaWanted, StepSettled
from penstock.engine.journal import Journal
from penstock.engine.steps import StepState
from penstock.engine.timers import TurnTimers
from penstock.graph.model import Http, Resource, Step, Suspend, Workflow

if TYPE_CHECKING:  # the queues are loaded when the first step needs them
    from penstock.engine.observer import Observer
    from penstock.engine.queue_recorder import QueueRecorder
    from penstock.engine.quota import AdmitterQuota
    from penstock.engine.quota_replica import QuotaReplica
    from penstock.engine.reservations import Preempt, Reservations, ShrinkPace
    from penstock.engine.workflow_reservation import WorkflowReservation
    from penstock.store.protocols import QueueStore

ROUNDS = 16
"""How often the scheduler decides again within one turn because of what it has just decided."""
PAUSE = 1.0
"""Seconds before it decides again after that; and between looks at whether the reason of a wait has changed."""
SHARE = 10
"""It may take long to work out what a whole workflow still needs: at most one part in so many of the time is spent on it."""


@dataclass(slots=True)
class _Intake:
    """What a run has reported since the last decision."""

    wanted: dict[StepState, None] = field(default_factory=dict)
    freed: list[tuple[StepState, Any]] = field(default_factory=list)
    settled: list[StepState] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.wanted or self.freed or self.settled)


class TimedPace:
    """Shrinks the reservation of a whole workflow as often as the time that it takes allows."""

    def __init__(self, later: Callable[[float, WorkflowReservation], None]) -> None:
        self._later = later
        self._next: dict[int, float] = {}
        """Run -> when it may be worked out again."""

    def shrink(self, reservation: WorkflowReservation) -> dict[str, int] | None:
        started = time.perf_counter()
        due = self._next.get(reservation.run.number, 0.0)
        if started < due:
            self._later(due - started, reservation)
            return None
        gone = reservation.shrink()
        done = time.perf_counter()
        self._next[reservation.run.number] = done + SHARE * (done - started)
        return gone


class Admitter:
    def __init__(
        self,
        store: QueueStore,
        journal: Journal,
        timers: TurnTimers,
        now: Callable[[], float],
        *,
        capacity: Callable[[], Sequence[Any]] | None,
        cluster: AdmitterQuota | None = None,
        elsewhere: Callable[[Step], bool] = lambda step: False,
        queue_there: Callable[[Step, str | None], str] = lambda step, named: "",
        before_request: Callable[[ActiveRun, StepState], None],
        preempt: Preempt,
        admitted: Callable[[ActiveRun, str], None],
        pace: ShrinkPace | None = None,
        observer: Observer | None = None,
        recorder: QueueRecorder | None = None,
        explains: bool = True,
    ) -> None:
        self._store = store
        self._journal = journal
        self._timers = timers
        self._now = now
        self._capacity = capacity
        """What there is to share as long as no queues are configured, as queue objects; None: no limit."""
        self._elsewhere = elsewhere
        """Does the step run on other machines, so that this capacity is no limit for it?"""
        self._queue_there = queue_there
        """The queue of the cluster that takes the pods of a step as they are, so that nothing is held for them here. Not asked of resource steps: those that a
        cluster queues ask for nothing (service.sizing)."""
        self._cluster = cluster
        """The queues of the cluster that those machines belong to. They decide, and the queues of the store do not."""
        self._before_request = before_request
        """Called for each step before quota is requested for it: known results and locks come first."""
        self._preempt = preempt
        self._admitted = admitted
        self._pace: ShrinkPace = pace if pace is not None else TimedPace(self._shrink_later)
        self._observer = observer
        self._recorder = recorder
        self._explains = explains
        """Record why reservations wait."""
        self.replica: AdmitterQuota | None = cluster
        """Opened when the first step needs it: most stores know no queues."""
        self.reservations: Reservations | None = None
        self._outdated = False
        """Others have decided something, or time has passed that decides something."""
        self._strict = False
        """There is a queue that must admit even steps that need nothing."""
        self._intake: dict[int, _Intake] = {}
        self._alarm: asyncio.TimerHandle | None = None
        self._explained_at = 0.0

    # -- which steps need quota ---------------------------------------------------------------------------------------

    def is_used(self) -> bool:
        """Are there queues, or a capacity to share? Looked at when a run is adopted."""
        if self.replica is None and self._store.queue_objects():
            self.open()
        return self._capacity is not None or self.replica is not None

    def needs_quota(self, workflow: Workflow, state: StepState) -> bool:
        return self._step_needs_quota(workflow, state.plan.step) and not state.exempt

    def _step_needs_quota(self, workflow: Workflow, step: Step) -> bool:
        if isinstance(step.action, Suspend | Http):
            return False
        if self._cluster is None and not step.resources and not self._strict:
            return False  # nearly all
        if self._cluster is not None:
            return bool(step.resources) if isinstance(step.action, Resource) else self._elsewhere(step)
        if not isinstance(step.action, Resource) and self._queue_there(step, workflow.queue):
            return False
        if step.resources:
            return (self.replica is not None and self.replica.configured) or not self._elsewhere(step)
        return self._strict and self.replica is not None and self.replica.holds_all(step.queue or workflow.queue)

    def open(self) -> AdmitterQuota:
        if self.replica is None:
            defaults = () if self._capacity is None else self._capacity()
            self.replica = self._journal.read(lambda: self._load(defaults))
            self._strict = self.replica.strict
        return self.replica

    def _load(self, defaults: Sequence[Any]) -> QuotaReplica:
        from penstock.engine.quota_replica import QuotaReplica

        replica = QuotaReplica(self._store, self._journal.engine, defaults)
        replica.load(self._now())
        return replica

    def _reservations(self, replica: AdmitterQuota) -> Reservations:
        if self.reservations is None:
            from penstock.engine.reservations import Reservations

            evicted = None if self._observer is None else self._observer.evicted
            self.reservations = Reservations(replica, self._preempt, self._admitted, self._pace, evicted)
        return self.reservations

    # -- what runs report ---------------------------------------------------------------------------------------------

    def wanted(self, run: ActiveRun, effect: QuotaWanted) -> None:
        self._of(run).wanted[effect.step] = None

    def freed(self, run: ActiveRun, effect: QuotaFreed) -> None:
        self._of(run).freed.append((effect.step, effect.permit))

    def settled(self, run: ActiveRun, effect: StepSettled) -> None:
        intake = self._of(run)
        intake.wanted.pop(effect.step, None)
        intake.settled.append(effect.step)

    def _of(self, run: ActiveRun) -> _Intake:
        found = self._intake.get(run.number)
        if found is None:
            found = self._intake[run.number] = _Intake()
        return found

    # -- one turn -----------------------------------------------------------------------------------------------------

    def pending(self, runs: Mapping[int, ActiveRun]) -> bool:
        """Is there anything to request, to give back or to decide?"""
        if self._outdated and self.replica is not None:
            return True
        return bool(self._intake) and any(self._intake.get(number) for number in runs)

    def decide(self, runs: Mapping[int, ActiveRun], stopping: bool) -> None:
        """Part of the open transaction."""
        replica = self.open()
        reservations = self._reservations(replica)
        now = self._now()
        news = self._catch_up(replica, now)
        self._strict = replica.strict
        self._release(reservations, runs, stopping, now)
        if stopping:
            reservations.withdraw_waiting(now)
        else:
            self._request(reservations, runs, now)
        reservations.release_idle(now)
        reservations.shrink_postponed(now)
        self._ask_checks(replica, reservations, now)
        again = self._settle(replica, reservations, news, now)
        self._record(replica, reservations, now)
        times = [replica.scheduler.next_time(now), again]
        if self._recorder is not None and replica.configured:
            times.append(self._recorder.look(replica, now, last=not reservations))
        self._set_alarm(min((at for at in times if at is not None), default=None), now)

    def _catch_up(self, replica: AdmitterQuota, now: float) -> set[str]:
        """Nobody else decides before this transaction ends. Returns the Workloads that others have changed."""

        def take() -> set[str]:
            number = self._journal.take_decision()
            if number is None:
                return set()
            return replica.catch_up(now, number)

        self._outdated = False
        return self._journal.read(take)

    def _release(self, reservations: Reservations, runs: Mapping[int, ActiveRun], stopping: bool, now: float) -> None:
        for run in list(runs.values()):
            run.settle()
            intake = self._intake.get(run.number)
            if intake is not None:
                freed, intake.freed = intake.freed, []
                settled, intake.settled = intake.settled, []
                reservations.release(run, freed, settled, now, keep=not stopping)

    def _request(self, reservations: Reservations, runs: Mapping[int, ActiveRun], now: float) -> None:
        for run in list(runs.values()):
            workflow = run.state.blueprint.workflow
            reservations.reserve_ahead(run, partial(self._step_needs_quota, workflow), now)
            intake = self._intake.get(run.number)
            if intake is None:
                continue
            wanted, intake.wanted = intake.wanted, {}
            ready = []
            for state in sorted(wanted, key=lambda one: one.plan.number):  # in the order of the workflow
                self._before_request(run, state)
                if state.wanted and not state.scope.halted:
                    ready.append(state)
            reservations.request(run, ready, now)
            if not intake:
                del self._intake[run.number]

    def _settle(self, replica: AdmitterQuota, reservations: Reservations, news: set[str], now: float) -> float | None:
        """Let the scheduler decide and act on it, until nothing more follows. When to decide again, if that is known."""
        scheduler = replica.scheduler
        again = None
        for _ in range(ROUNDS):
            scheduler.settle(now)
            changed = (news | scheduler.touched) & reservations.keys()
            news = set()
            if not reservations.apply(sorted(changed), now) | reservations.cut_down(now):
                break
        else:
            again = now + PAUSE
        if any(_has_checks(replica, one.key) for one in reservations.waiting()):
            again = now + PAUSE
        return again

    def _ask_checks(self, replica: AdmitterQuota, reservations: Reservations, now: float) -> None:
        """Workloads that have quota and wait for checks: the checks are asked again."""
        scheduler = replica.scheduler
        if not scheduler.checks:
            return
        from penstock.engine.checks import ask

        for allocation in list(reservations.waiting()):
            workload = scheduler.workloads.get(allocation.key)
            if workload is None or workload.admission is None or workload.eviction is not None:
                continue
            for name, state in sorted(workload.checks.items()):
                if state == "Pending":
                    result = ask(name, workload)
                    if result.state != state or result.message != workload.check_messages.get(name, ""):
                        scheduler.set_check(allocation.key, name, result.state, now, message=result.message)

    def _record(self, replica: AdmitterQuota, reservations: Reservations, now: float) -> None:
        if self._explains:
            recently = self._explained_at <= now < self._explained_at + PAUSE
            if not recently:
                self._explained_at = now
            reservations.record_reasons(now, everybody=not recently)
        rows = replica.written()
        self._journal.batch.workloads.update(rows)
        if self._observer is not None:
            self._observer.decided(self._journal.batch.workloads, replica)

    def _set_alarm(self, at: float | None, now: float) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if at is not None and self.reservations:
            self._alarm = self._timers.after(max(0.0, at - now), self.decide_again)

    def decide_again(self) -> None:
        """In the next turn, even if no run reports anything."""
        self._outdated = True

    def _shrink_later(self, seconds: float, whole: WorkflowReservation) -> None:
        def postponed() -> None:
            if self.reservations is not None and self.reservations.is_active(whole):
                whole.postponed = self._outdated = True

        self._timers.after(seconds, postponed)

    # -- runs end, others decide --------------------------------------------------------------------------------------

    def drop(self, run: ActiveRun) -> None:
        """The run has ended, or belongs to another engine."""
        self._intake.pop(run.number, None)
        if self._cluster is not None and run.ended is not None:
            self._cluster.ended(run.record.id)
        if self.reservations is not None and self.reservations.drop(run, self._now()):
            self._outdated = True
            self._timers.wake()

    @property
    def waits(self) -> bool:
        """Does anything here wait for admission?"""
        return self.reservations is not None and self.reservations.waits

    @property
    def is_queued(self) -> bool:
        """Does anything here hold quota, or wait for it?"""
        return bool(self.reservations)

    def decided_elsewhere(self) -> None:
        """The queues of the cluster have decided something."""
        self._outdated = True
        self._timers.wake()

    def look(self, dead_engines: Callable[[], set[str]], reap: Callable[[Iterable[str]], None]) -> None:
        """Have other engines decided anything? Does an engine that is gone hold quota that is waited for here?"""
        if self.replica is None:
            if self._store.last_decision() and self._store.queue_objects():
                self.open()
                self._outdated = True
            return
        if self.waits:
            others = {engine for _, engine in self.replica.owners.values() if engine != self._journal.engine}
            dead = others & dead_engines() if others else set()
            if dead:
                reap(dead)
        if self._store.last_decision() > self.replica.version:
            self._outdated = True


def _has_checks(replica: AdmitterQuota, key: str) -> bool:
    if not replica.scheduler.checks:
        return False
    workload = replica.scheduler.workloads.get(key)
    return workload is not None and workload.admission is not None and bool(workload.checks)
