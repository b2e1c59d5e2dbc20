"""The engine: adopts runs, starts what may start, records what happens. Called by service.

It only orders a turn; the work is done by its parts, each with state of its own:

    Journal        what is written, and the database that may go away
    ActiveRun      one run: its RunState (pure) and the rows that its facts become
    SingleFlight   reuse a result, share one that is being computed, or run
    LockManager    locks over all engines
    Admitter       quota: Reservations (pure) and the QuotaReplica
    Dispatcher     attempts: launched, ended, retried, stopped
    Deadlines      time limits of runs and of called workflows
    Peers          other engines of the same store

One turn: take reports, apply them, settle locks, decide admission, take the tasks that may start, resolve each (reuse, share or
run), commit everything in one transaction, and only then start processes. Small functions run inside of the transaction itself,
so that no other engine can begin the same key meanwhile.
"""

from __future__ import annotations

import asyncio
import datetime
import json
import os
import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.artifacts.blobs import Blobs
from penstock.artifacts.values import dumps, load_value, store_value
from penstock.backends.base import AttemptEnded, BackendContext, BackendFactory, Inbox
from penstock.backends.environment import for_tasks
from penstock.engine import follow
from penstock.engine.active_run import ActiveRun, Route, execution
from penstock.engine.admission import Admitter
from penstock.engine.backend_pool import BackendPool
from penstock.engine.blueprint import Blueprint
from penstock.engine.deadlines import Deadlines
from penstock.engine.dispatcher import GRACE, Dispatcher
from penstock.engine.effects import (
    CallFailed,
    CallOpened,
    CallReady,
    CallSucceeded,
    Emit,
    QuotaFreed,
    QuotaWanted,
    StepSettled,
    StopTask,
)
from penstock.engine.journal import Journal
from penstock.engine.locks import LockManager
from penstock.engine.peers import POLL, Neighbours, Peers
from penstock.engine.queue_recorder import QueueRecorder
from penstock.engine.replay import replay
from penstock.engine.run_names import RunNames
from penstock.engine.run_state import RunState
from penstock.engine.single_flight import Launch, SingleFlight
from penstock.engine.steps import StepState, Task
from penstock.engine.timers import TurnTimers
from penstock.engine.values import RunValues
from penstock.graph.model import Step
from penstock.graph.stored import Stored
from penstock.plan.make import uninterrupted
from penstock.store import liveness
from penstock.store.records import Fenced, RunRecord, RunRequest

if TYPE_CHECKING:
    from penstock.engine.cluster_quota import ClusterQueues
    from penstock.engine.observer import Observer
    from penstock.engine.quota import AdmitterQuota
    from penstock.engine.reservations import ShrinkPace
    from penstock.store.protocols import EngineStore

WINDOW = 0.05
"""Seconds that one transaction may stay open for small functions."""
GROUP = 0.002
"""Seconds for which facts are gathered while every processor is busy anyway."""
IMMEDIATE = 256
"""Tasks of a backend that runs them at once, taken together."""


def _rfc3339(seconds: float) -> str:
    """As expressions read it: UTC, to the second."""
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Engine:
    def __init__(
        self,
        store: EngineStore,
        home: Path,
        blobs: Blobs,
        *,
        jobs: int,
        id: str = "",
        on: Mapping[str, str] | None = None,
        functions: Mapping[tuple[str, str, str], Callable[..., Any]] | None = None,
        environ: Mapping[str, str] | None = None,
        backends: Mapping[str, BackendFactory] | None = None,
        now: Callable[[], float] = time.time,
        chance: Callable[[], float] = random.random,
        capacity: Callable[[], Sequence[Any]] | None = None,
        cluster: ClusterQueues | None = None,
        scheduler: str = "",
        peers: Neighbours | None = None,
        pace: ShrinkPace | None = None,
        observer: Observer | None = None,
        explains: bool = True,
        window: float | None = None,
        address: str = "",
    ) -> None:
        """`address`: where others reach a server of this store. `capacity`: what there is to share while no queues are configured; None: no limit. `cluster`: queues of a cluster that decide in
        place of those of the store; the engine starts and closes them. `scheduler`: of a cluster, if it takes the pods of tasks by queues of its own. `peers`, `pace`, `observer`, `explains`
        and `window` are other parts and settings for the simulator and for tests."""
        self.store = store
        self.home = home
        self.blobs = blobs
        self.now = now
        self.me = liveness.identity(id)
        self.runs: dict[int, ActiveRun] = {}
        """The runs that this engine executes, by number."""
        self.inbox = Inbox(asyncio.get_running_loop())
        given = os.environ if environ is None else environ
        self.context = BackendContext(
            home=home,
            blobs=blobs,
            inbox=self.inbox,
            jobs=jobs,
            engine=self.me.id,
            now=now,
            environ=for_tasks(given),
            functions={} if functions is None else functions,
        )
        self.timers = TurnTimers(asyncio.get_running_loop(), self.inbox)
        self.journal = Journal(store.journal, self.me.id)
        self.peers = peers or Peers(
            store.peers, self.journal, self.timers, asyncio.get_running_loop(), home, self.me, now
        )
        self.pool = BackendPool(self.context, on or {}, backends, given, scheduler)
        names = RunNames(store.runs, self.journal, self.runs)
        self.flights = SingleFlight(store.results, self.journal, names, blobs, now, self.pool.is_immediate)
        self.locks = LockManager(store.locks, self.journal, names, self.timers, self.runs, self._priority_of)
        self.deadlines = Deadlines(self.timers, now, self._waits_at_first, partial(self._stop_tasks, grace=GRACE))
        self.cluster = cluster
        quota = None
        if cluster is not None:
            quota = _quota_of(cluster, self.timers, lambda: self.admission.decided_elsewhere())
        self.dispatcher = Dispatcher(
            self.journal,
            self.pool,
            self.flights,
            self.timers,
            now,
            chance,
            self.fetch,
            self.deadlines,
            quota,
            store.answers,
            address,
        )
        self.admission = Admitter(
            store.queues,
            self.journal,
            self.timers,
            now,
            capacity=capacity,
            cluster=quota,
            elsewhere=self.pool.is_elsewhere,
            queue_there=self.pool.queue_there,
            before_request=self._before_request,
            preempt=self.dispatcher.preempt,
            admitted=self.deadlines.admitted,
            pace=pace,
            observer=observer,
            recorder=None if observer is not None else QueueRecorder(store.series, self.journal),
            explains=explains,
        )
        self._routes: Mapping[type, Route] = {
            CallOpened: self.deadlines.call_opened,
            CallReady: self.flights.call_ready,
            CallSucceeded: self.flights.call_succeeded,
            CallFailed: self.dispatcher.call_failed,
            StopTask: self.dispatcher.stop_wanted,
            QuotaWanted: self.admission.wanted,
            QuotaFreed: self.admission.freed,
            StepSettled: self.admission.settled,
        }
        """Which part acts on which effect of a run."""
        self.failure: BaseException | None = None
        """What ended the engine, if it was an error."""
        self._window = window
        self._observer = observer
        self._stopping = False
        self._closed = False
        self._keep = False
        self._more = False
        """Something was left for the next turn because this one had lasted long enough."""
        self._lingering = False
        """Summaries wait to be written with the next transaction."""
        self._asked = 0
        """Number of the last request that was handled."""

    def fetch(self, stored: Stored) -> Any:
        return load_value(stored, self.blobs, self.home / "work")

    # -- adopting runs ------------------------------------------------------------------------------------------------

    def adopt(self, record: RunRecord, blueprint: Blueprint, params: Mapping[str, Any], retried: str = "") -> ActiveRun:
        """Go on with a run from where its log ends. The caller has made sure that it is this engine's (store.runs.take). `retried`: who
        asks for what has failed in it to be tried again."""
        if retried:
            self._record_retry(record, retried)
        make_state = partial(self._state, record, blueprint, params)
        resumed = record.seq > 1
        run = ActiveRun(record, self.journal.batch, self.now, make_state, self._routes, replaying=resumed)
        run.state.ready.asks_first = True
        if blueprint.locking and not run.dry:
            self.locks.adopt(run)
        begun = replay(run, self.store.runs, self.store.results) if resumed else []
        run.log("run.started", "", json.dumps({"engine": self.me.id, "pid": self.me.pid}))
        self.runs[record.number] = run
        again = [task for task in begun if self._go_on(run, task)]
        for task in reversed(again):  # each goes to the head of its lane
            run.state.again(task)
        for task in run.state.live.values():
            if task.state.plan.inner is not None:
                self.deadlines.call_opened(run, CallOpened(task))
        limit = blueprint.workflow.timeout
        if limit is not None and run.state.outcome is None:
            kinds = ["task.started", "reservation.admitted"]
            first = next(self.store.runs.events(record.number, limit=1, kinds=kinds), None)
            waits = first is None and self._waits_at_first(run)
            since = None if waits else record.created if first is None else first.at
            self.deadlines.limit_run(run, limit, since)
        self.inbox.wake()
        return run

    def _record_retry(self, record: RunRecord, by: str) -> None:
        record.seq += 1
        batch = self.journal.batch
        batch.events.append((record.number, record.seq, self.now(), "run.retried", "", json.dumps({"by": by})))
        batch.runs[record.number] = (record.seq, "running", None, json.dumps(record.counts), None, "", 0)
        self.journal.begin()
        self._commit()

    def _state(self, record: RunRecord, blueprint: Blueprint, params: Mapping[str, Any], emit: Emit) -> RunState:
        known = {"id": record.id, "created": _rfc3339(record.created)}
        fail_fast = bool(record.options.get("fail_fast"))
        if record.options.get("dry"):
            from penstock.engine import dry

            values = dry.DryValues(self.fetch)
            return RunState(blueprint, params, values, emit, lane_of=dry.lane_of, fail_fast=fail_fast, run=known)
        needs_quota = partial(self.admission.needs_quota, blueprint.workflow) if self.admission.is_used() else None
        return RunState(
            blueprint,
            params,
            RunValues(self.fetch, None if self.pool.is_default else self.pool.variant_of),
            emit,
            lane_of=self.pool.lane_of,
            fail_fast=fail_fast,
            needs_quota=needs_quota,
            run=known,
        )

    def _waits_at_first(self, run: ActiveRun) -> bool:
        """May the run have to wait before its first task starts? Then time limits count from that moment."""
        return run.state.needs_quota is not None or self.locks.concerns(run)

    def _go_on(self, run: ActiveRun, task: Task) -> bool:
        """A task that had begun before this engine adopted the run. True: it is to be started again."""
        own = execution(task)
        self.dispatcher.inherit(run, task)
        if task.state.scope.halted and own.state != "forgiven":
            run.not_succeeded(task, "cancelled", {"message": task.state.scope.halted})
        elif self.dispatcher.answers.concern(run, task) and own.state in ("suspended", "running", "lost"):
            if not self.dispatcher.answers.go_on(run, task):
                return _lost(run, task)
        elif own.state == "suspended":
            self.dispatcher.suspend(run, task, logged=True)
        elif own.state == "retrying":
            left = max(0.0, (own.resume_at or 0.0) - self.now())
            self.dispatcher.retry_later(run, task, min(left, own.retry_delay))  # the clock may have been put back
        else:
            return _lost(run, task)
        return False

    def _priority_of(self, name: str) -> int:
        return self.admission.open().priority_of(name)[0]

    def _before_request(self, run: ActiveRun, state: StepState) -> None:
        self.flights.look_up(run, state)
        self.locks.before_request(run, state)

    # -- running ------------------------------------------------------------------------------------------------------

    async def run(self, keep: bool = False) -> None:
        """Until every run has ended, or the engine is told to stop and nothing runs any more. With `keep`, it waits for more runs
        until it is told to stop."""
        self.peers.start(self._waits_for_others, self._look_around, self._forgotten)
        self._keep = keep
        try:
            while not self._done():
                self.turn()
                if self._done():
                    break
                if self._more:
                    await asyncio.sleep(0)
                else:
                    await self.inbox.wait()
                    if not self.timers and self.pool.all_ahead():
                        await asyncio.sleep(GROUP)  # what happens meanwhile is written together
        finally:
            self.peers.stop()

    def _done(self) -> bool:
        if self._closed:
            return True
        if self._stopping and not self.dispatcher.busy:
            return True
        return not self.runs and not self._keep and not self.locks.scheduled

    def turn(self) -> None:
        for report in self.inbox.take():
            if isinstance(report, AttemptEnded):
                self.dispatcher.ended(report)
            else:
                self.dispatcher.started(report)
        try:
            for call in self.timers.take():
                call()
            with uninterrupted():
                self._advance()
        except Fenced:
            self._let_go()

    def _advance(self) -> None:
        """Decide admission and resolve tasks until nothing more can start; commit; start."""
        deadline = time.perf_counter() + (WINDOW if self._window is None else self._window)
        opened = False
        self._more = False
        while True:
            if not self._stopping:
                self._enter_calls()  # what is inside may want quota, and must not start after what is written behind it
            if self.admission.pending(self.runs):
                opened = self._begin(opened)
                self.admission.decide(self.runs, self._stopping)
            wanted = [] if self._stopping else self._take()
            if not wanted:
                if self._stopping or not self.admission.pending(self.runs):
                    break
                continue
            opened = self._begin(opened)
            self._resolve(wanted)
            if time.perf_counter() > deadline:
                self._more = True
                break
        ended = self._end_runs()
        self._write(opened)
        for run in ended:
            self._clear_up(run)
            run.finished.set()
        self.locks.release_ended()
        self.dispatcher.start()

    def _begin(self, opened: bool) -> bool:
        if not opened:
            self.journal.begin()
        return True

    def _enter_calls(self) -> None:
        for run in list(self.runs.values()):
            ready = run.state.ready
            if ready.held:
                ready.unhold()
            if ready.calls:
                ready.enter_calls()
            while self.flights.resolve_calls(run, self.runs):
                ready.enter_calls()

    def _take(self) -> list[Launch]:
        """Tasks that may start, as far as the backends have room."""
        wanted: list[Launch] = []
        rooms: dict[str, int] = {}
        for run in list(self.runs.values()):
            for lane, queue in list(run.state.ready.lanes.items()):
                if queue:
                    for task in self._take_from(run, lane, rooms, len(wanted)):
                        wanted.append((run, task, lane))
            self.dispatcher.retry_calls(run)
            run.settle()
            self.deadlines.arm_calls(run)
        return wanted

    def _take_from(self, run: ActiveRun, lane: str, rooms: dict[str, int], wanted: int) -> list[Task]:
        if self.pool.is_immediate(lane):
            return run.state.ready.take(lane, IMMEDIATE)
        room = rooms.get(lane)
        if room is None:
            room = self.dispatcher.room(lane)
        taken = run.state.ready.take(lane, room, self._room_for(lane, wanted)) if room > 0 else []
        rooms[lane] = room - len(taken)
        return taken

    def _room_for(self, lane: str, wanted: int) -> Callable[[Step], int] | None:
        ask = self.pool.room_for(lane)
        if ask is None:
            return None
        ahead = wanted + self.dispatcher.unstarted(lane)
        return lambda step: ask(step) - ahead

    def _resolve(self, wanted: list[Launch]) -> None:
        launches, duplicates = self.flights.resolve(self.locks.admit(wanted))
        for run, task, lane in launches:
            self.dispatcher.launch(run, task, lane)
        self.flights.rejoin(duplicates)

    def _end_runs(self) -> list[ActiveRun]:
        ended = []
        for run in self.runs.values():
            state = run.state
            if self.dispatcher.stop_halted(run):
                self.locks.tasks_stopped()
            self.flights.keep_results(run)
            if state.outcome is not None and run.ended is None and not state.live:
                run.settle()
                run.outputs_text = dumps(
                    {name: store_value(value, self.blobs) for name, value in state.outputs.items()}
                )
                run.status = state.outcome.value
                run.ended = self.now()
                why = {"message": state.why} if state.why and run.status != "succeeded" else {}
                run.say_error()
                run.log("run.finished", "", json.dumps({"outcome": run.status, **why}))
                if follow.FOLLOW in run.record.options and not run.dry:
                    ends = (run.number, run.record.id, run.seq, run.end, run.record.options, run.ended)
                    self.journal.batch.outbox += follow.rows(*ends)
                self._drop(run)
                if self._observer is not None:
                    self._observer.run_ended(run)
                ended.append(run)
        return ended

    def _drop(self, run: ActiveRun) -> None:
        """The run has ended, or belongs to another engine: no part keeps anything of it."""
        self.deadlines.forget(run)
        self.dispatcher.forget(run)
        self.admission.drop(run)
        self.locks.drop(run)

    def _clear_up(self, run: ActiveRun) -> None:
        """The folders that its tasks shared. After a failure they stay: a retry would look for them."""
        if run.state.blueprint.sharing and run.status == "succeeded":
            from penstock.backends.mounts import forget_run

            forget_run(self.home, run.record.id)

    # -- writing ------------------------------------------------------------------------------------------------------

    def _write(self, opened: bool) -> None:
        batch = self.journal.batch
        if batch.urgent or opened or any(run.dirty for run in self.runs.values()):
            self._begin(opened)
            self._commit()
        elif batch and not self._lingering:
            self._lingering = True
            self.timers.after(POLL, self._write_rest)

    def _write_rest(self) -> None:
        """What was not worth a transaction of its own."""
        self._lingering = False
        if self.journal.batch:
            self.journal.begin()
            self._commit()

    def _commit(self) -> None:
        for run in self.runs.values():
            run.flush()
        if self.journal.commit():
            self.admission.decide_again()
        self.flights.committed()
        for number in [number for number, run in self.runs.items() if run.ended is not None]:
            run = self.runs.pop(number)
            run.owned = False
            self.store.runs.release(number, self.me.id, run.status)

    # -- what people ask for ------------------------------------------------------------------------------------------

    def later(self, call: Callable[[], None]) -> None:
        """Do this in the next turn."""
        self.timers.later(call)

    def cancel(self, run: ActiveRun, why: str, now: bool) -> None:
        """End a run for good: nothing more starts but its exit handlers, and with `now` not even those."""
        run.note("run.cancelling", "", {"message": why, **({"now": True} if now else {})})
        run.state.cancel(why, exits=not now)
        self._stop_tasks(run, 0.0 if now else GRACE)

    def resume(self, run: ActiveRun, path: str, outputs: dict[str, Any]) -> None:
        """Let a suspended task go on."""
        self.dispatcher.resume(run, path, outputs)

    def _stop_tasks(self, run: ActiveRun, grace: float) -> None:
        self.dispatcher.stop_tasks(run, grace)
        self.locks.tasks_stopped()

    def end(self) -> None:
        """Return from `run` when every run has ended; at once if there is none."""
        self._keep = False
        self.inbox.wake()

    def interrupt(self) -> None:
        """Start nothing more. When what runs has ended, `run` returns, and the runs can be resumed later."""
        self._stopping = True
        self.admission.decide_again()
        self.inbox.wake()

    def abandon(self) -> None:
        """Return from `run` at once."""
        self._stopping = self._closed = True
        self.inbox.wake()

    async def close(self) -> None:
        """End every process, give the runs back."""
        await self.pool.close()
        if self.cluster is not None:
            await asyncio.to_thread(self.cluster.close)
        for run in self.runs.values():
            if run.ended is None and run.error is None:
                run.log("run.stopped", "")
                run.status = "stopped"
        if self.runs and not isinstance(self.failure, Exception):
            self.journal.begin()
            try:
                self._commit()
            except Fenced:
                self._let_go()
            for number in self.runs:
                self.store.runs.release(number, self.me.id, "stopped")
        self.peers.leave()

    # -- other engines ------------------------------------------------------------------------------------------------

    @property
    def waits(self) -> bool:
        """Does anything hold quota, or wait for quota or locks?"""
        return self.admission.is_queued or self.locks.waits

    def _waits_for_others(self) -> bool:
        return self.flights.waits or self.admission.waits or self.locks.waits

    def _look_around(self) -> None:
        for request in self.store.runs.requests(self._asked, list(self.runs)):
            self._asked = max(self._asked, request.number)
            self._handle(request)
        if self.flights.waits:
            dead = self.flights.look(self.peers.dead)
            if dead:
                self.peers.reap(dead)
        if self.locks.waits:
            dead = self.peers.dead()
            if dead:
                self.peers.reap(dead)
            self.locks.look(self.peers.token, bool(dead))
        self.admission.look(self.peers.dead, self.peers.reap)

    def _handle(self, request: RunRequest) -> None:
        run = self.runs.get(request.run)
        self.journal.batch.handled.append(request.number)
        if run is None:
            return
        if request.verb == "cancel":
            self.cancel(run, request.data.get("message", "cancelled"), bool(request.data.get("now")))
        elif request.verb == "resume":
            self.resume(run, request.data["task"], request.data.get("outputs", {}))
        elif request.verb == "answer":
            self.later(lambda: self.dispatcher.answers.look(run, request.data["task"]))

    def _forgotten(self) -> None:
        """Another engine took this one for dead, and may have taken its runs."""
        if self._lost():
            self._let_go()
        self.locks.claim_again()

    def _lost(self) -> list[ActiveRun]:
        """Runs that belong to another engine now."""
        found = []
        for run in self.runs.values():
            current = self.store.runs.by_number(run.number)
            if current is None or current.engine != self.me.id:
                found.append(run)
        return found

    def _let_go(self) -> None:
        """Other engines have taken runs over: stop what was started for them, and forget them. What there is to record of the
        other runs has not been written, and is written now."""
        lost = self._lost()
        if not lost:
            raise RuntimeError("a write was refused although every run belongs to this engine")
        for run in lost:
            del self.runs[run.number]
            run.owned = False
            run.error = Fenced(f"{run.record.id} was taken over by another engine")
        keys = self.dispatcher.disown(lost)
        if self.cluster is not None:
            for run in lost:
                self.admission.drop(run)  # the other engine asks for what it needs
        self.locks.tasks_stopped()
        self.journal.batch.drop_runs({run.number for run in lost})
        ended = [run for run in self.runs.values() if run.ended is not None]
        self.journal.begin()
        self.flights.claim(keys, fresh=True)
        try:
            self._commit()
        except Fenced:
            self._let_go()
        for run in (*lost, *ended):
            run.finished.set()
        self.inbox.wake()


def _lost(run: ActiveRun, task: Task) -> bool:
    """It is to be started again, and its attempt is lost if there was one."""
    own = execution(task)
    if own.state == "running":
        run.note("task.lost", task.path, {"attempt": task.attempt, "message": "the engine that ran it is gone"})
    own.state = ""
    return True


def _quota_of(cluster: ClusterQueues, timers: TurnTimers, decided: Callable[[], None]) -> AdmitterQuota:
    """`decided`: called in the engine's thread when the cluster has decided something."""
    from penstock.engine.cluster_quota import ClusterQuota

    loop = asyncio.get_running_loop()

    def changed() -> None:
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(timers.later, decided)

    cluster.start(changed)
    return ClusterQuota(cluster)
