"""The engine: takes runs in hand, starts what may start, records what happens. Called by service and by LocalRunner.

One turn of the loop: read the reports that have come in, let the machines work out what follows, take the tasks that may
start, look each key up (reuse, share, or run), write everything in one transaction, and only then start processes. Small
functions run inside the transaction itself, so that nobody else can begin the same key meanwhile.
"""

from __future__ import annotations

import asyncio
import datetime
import json
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from penstock.artifacts.values import dumps, shelve
from penstock.backends.base import Ended
from penstock.engine.attempts import GRACE
from penstock.engine.blueprint import Blueprint
from penstock.engine.core import LANES, PATIENCE, SUSPEND
from penstock.engine.live import Live, extra
from penstock.engine.locking import Locking
from penstock.engine.machine import Machine
from penstock.engine.replay import replay
from penstock.engine.share import origin
from penstock.engine.steps import Task
from penstock.graph.model import Step
from penstock.plan.make import uninterrupted
from penstock.store.base import Disconnected, Fenced, Run

WINDOW = 0.05
"""Seconds that one transaction may stay open for small functions."""
GROUP = 0.002
"""Seconds for which facts are gathered while every processor is busy anyway."""
POLL = 0.2
"""Seconds between looks at what other processes have written."""
BEAT = 5.0


def _rfc3339(seconds: float) -> str:
    """As expressions read it: UTC, to the second."""
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Engine(Locking):
    def adopt(self, run: Run, blueprint: Blueprint, params: Mapping[str, Any], retried: str = "") -> Live:
        """Go on with a run from where its log ends. The caller has made sure that it is ours (store.take). `retried`: who
        asks for what has failed in it to be tried again."""
        if retried:
            run.seq += 1
            self.batch.events.append((run.number, run.seq, self.now(), "run.retried", "", json.dumps({"by": retried})))
            self.batch.runs[run.number] = (run.seq, "running", None, json.dumps(run.counts), None)
            self._begin()
            self._commit()
        machine = self._machine_of(run, blueprint, params)
        machine.asks_first = True
        live = Live(run, machine, self.batch, self.now)
        if blueprint.locking and not live.dry:
            self.locking.add(run.number)
        begun = replay(live, self.store) if run.seq > 1 else []
        live.log("run.started", "", json.dumps({"engine": self.me.id, "pid": self.me.pid}))
        self.lives[run.number] = live
        for task in begun:
            self._go_on(live, task)
        live.timed = [
            task
            for task in machine.live.values()
            if task.state.plan.inner is not None and task.step.timeout is not None
        ]
        limit = blueprint.workflow.timeout
        if limit is not None and machine.outcome is None:
            live.limit = limit
            first = next(self.store.events(run.number, limit=1, kinds=["task.started", "reservation.admitted"]), None)
            if first is not None or not self._waits_at_first(live):
                self._limit_run(live, run.created if first is None else first.at)
        self.inbox.wake()
        return live

    def _machine_of(self, run: Run, blueprint: Blueprint, params: Mapping[str, Any]) -> Machine:
        known = {"id": run.id, "created": _rfc3339(run.created)}
        fail_fast = bool(run.options.get("fail_fast"))
        if run.options.get("dry"):
            from penstock.engine import dry

            return dry.DryMachine(blueprint, params, self.fetch, dry.lane_of, fail_fast, dry.not_kept, None, known)
        return Machine(
            blueprint,
            params,
            self.fetch,
            self.lane_of,
            fail_fast,
            self.variant_of if self.on != LANES else None,
            partial(self._must_queue, blueprint.workflow) if self.queues_at_all() else None,
            known,
        )

    def _waits_at_first(self, live: Live) -> bool:
        """May what has begun have to wait before anything in it starts? Then its time begins when that does."""
        return live.machine.queues is not None or live.number in self.locking

    def _go_on(self, live: Live, task: Task) -> None:
        """A task that was begun before this engine came."""
        kept = extra(task)
        machine = live.machine
        if task.state.scope.halted and kept.state != "forgiven":
            live.not_succeeded(task, "cancelled", {"message": task.state.scope.halted})
        elif kept.state == "suspended":
            self._suspend(live, task, logged=True)
        elif kept.state == "retrying":
            left = max(0.0, (kept.resume_at or 0.0) - self.now())
            self._try_later(live, task, min(left, kept.wait))  # clocks may have been put back since
        else:
            if kept.state == "running":
                live.note(
                    "task.lost", task.path, {"attempt": task.attempt, "message": "the engine that ran it is gone"}
                )
            kept.state = ""
            machine.again(task)

    async def run(self, keep: bool = False) -> None:
        """Until every run in hand is finished, or the engine is told to stop and nothing runs any more. With `keep`, it
        waits for more runs until it is told to stop."""
        self._timers = [self.loop.call_later(BEAT, self._beat), self.loop.call_later(POLL, self._poll)]
        self.keep = keep
        try:
            while not self._done():
                self.turn()
                if self._done():
                    break
                if self.more:
                    await asyncio.sleep(0)
                else:
                    await self.inbox.wait()
                    if self._can_wait():
                        await asyncio.sleep(GROUP)
        finally:
            for timer in self._timers:
                timer.cancel()

    def _can_wait(self) -> bool:
        """Everybody has enough to do for a moment: what happens meanwhile can be written down together."""
        asked = [backend.is_ahead for backend in self.backends.values() if hasattr(backend, "is_ahead")]
        return bool(asked) and not self.due and all(is_ahead() for is_ahead in asked)

    def _done(self) -> bool:
        if self.closed:
            return True
        if self.stopping and not self.orders:
            return True
        return not self.lives and not self.keep and not self._round

    more = False
    """Something was left for the next turn because this one had lasted long enough."""

    def turn(self) -> None:
        """One turn of the loop."""
        for report in self.inbox.take():
            if isinstance(report, Ended):
                self._ended(report)
            else:
                self._began(report)
        due, self.due = self.due, []
        try:
            for call in due:
                call()
            with uninterrupted():
                self._pump()
        except Fenced:
            self._let_go()

    def _pump(self) -> None:
        deadline = time.perf_counter() + WINDOW
        opened = False
        self.more = False
        while True:
            if self._in_line():
                if not opened:
                    opened = self._begin()
                self._admit()
            wanted = [] if self.stopping else self._take()
            if not wanted:
                if self.stopping or not self._in_line():
                    break
                continue
            if not opened:
                opened = self._begin()
            self._decide(wanted)
            if time.perf_counter() > deadline:
                self.more = True
                break
        over = self._finish()
        if self.batch.urgent or opened or self._dirty():
            if not opened:
                self._begin()
            self._commit()
        elif self.batch and not self._lingering:
            self._lingering = True
            self.loop.call_later(POLL, self.later, self._write_rest)
        for live in over:
            self._clear_up(live)
            live.finished.set()
        if self.claims:
            self._let_go_of_locks()
        orders, self.ready_orders = self.ready_orders, {}
        for lane, some in orders.items():
            self._start(lane, some)

    _lingering = False

    def _write_rest(self) -> None:
        """What was not worth a transaction of its own."""
        self._lingering = False
        if self.batch:
            self._begin()
            self._commit()

    def _take(self) -> list[tuple[Live, Task, str]]:
        """Tasks that may start, for as long as there is room for them."""
        wanted: list[tuple[Live, Task, str]] = []
        rooms: dict[str, int] = {}
        for live in list(self.lives.values()):
            machine = live.machine
            if machine.held:
                machine.unhold()
            if machine.unopened:
                machine.advance()
            while machine.doors:
                self._at_doors(live)
                machine.advance()
            for lane, queue in list(machine.lanes.items()):
                if queue:
                    for task in self._take_from(machine, lane, rooms, len(wanted)):
                        wanted.append((live, task, lane))
            if machine.called:
                self._called(live)
            live.settle()
            while live.timed:
                task = live.timed.pop()
                if not self._waits_at_first(live):
                    self._limit_called(live, task)
                else:
                    live.unarmed[task.path + "/"] = task
        return wanted

    def _at_doors(self, live: Live) -> None:
        """Workflows that are to be called, and whose author says what is the same: is the result known?"""
        doors, live.machine.doors = live.machine.doors, []
        for other in self.lives.values():
            self._keep_calls(other)
        known = {} if live.fresh else self._known([task.key for task in doors])
        for task in doors:
            live.settle()  # what led here stands in the log before it
            result = known.get(task.key)
            if task.key in self.landed and not live.fresh:
                self._reuse(live, task, *self.landed[task.key])
            elif result is not None and self._usable(task, result):
                self._reuse(live, task, result.outputs, self._origin(result.run, result.task))
            else:
                live.machine.enter(task)

    def _keep_calls(self, live: Live) -> None:
        kept, live.machine.kept = live.machine.kept, []
        for task, outputs in kept:
            text = dumps({name: self._kept(value) for name, value in outputs.items()})
            self.batch.results.append((task.key, text, live.number, task.path, self.now()))
            self.landed[task.key] = (outputs, origin(live.run.id, task.path))

    def _take_from(self, machine: Machine, lane: str, rooms: dict[str, int], wanted: int) -> list[Task]:
        if self.at_once(lane):
            return machine.take(lane, 256)
        room = rooms.get(lane)
        if room is None:
            room = self._room(lane)
        taken = machine.take(lane, room, self._room_for(lane, wanted)) if room > 0 else []
        rooms[lane] = room - len(taken)
        return taken

    def _room_for(self, lane: str, wanted: int) -> Callable[[Step], int] | None:
        """Some backends take more of what they know to be short."""
        ask = None if lane == SUSPEND else getattr(self.backend(lane), "room_for", None)
        if ask is None:
            return None
        ahead = wanted + len(self.ready_orders.get(lane, ()))
        return lambda step: int(ask(step)) - ahead

    def _room(self, lane: str) -> int:
        if lane == SUSPEND:
            return 1000
        return int(self.backend(lane).room()) - len(self.ready_orders.get(lane, ()))

    def _finish(self) -> list[Live]:
        over = []
        for live in self.lives.values():
            machine = live.machine
            if machine.stopping:
                self._stop_tasks(live, GRACE)
            if machine.kept:
                self._keep_calls(live)
            if machine.outcome is not None and live.ended is None and not machine.live:
                live.settle()
                text = dumps({name: self._kept(value) for name, value in machine.outputs.items()})
                live.state = machine.outcome.value
                live.ended = self.now()
                live.outputs_text = text
                why = {"message": machine.why} if machine.why and live.state != "succeeded" else {}
                live.log("run.finished", "", json.dumps({"outcome": live.state, **why}))
                if live.timer is not None:
                    live.timer.cancel()
                self._give_up(live)
                over.append(live)
        return over

    def _kept(self, value: Any) -> Any:
        return shelve(value, self.blobs)

    def _clear_up(self, live: Live) -> None:
        """The folders that its tasks shared. What failed may be tried again, and would look for them."""
        if live.machine.blueprint.sharing and live.state == "succeeded":
            from penstock.backends.mounts import forget_run

            forget_run(self.home, live.run.id)

    def end(self) -> None:
        """Return from `run` when nothing is in hand any more; at once if nothing is."""
        self.keep = False
        self.inbox.wake()

    def interrupt(self) -> None:
        """Start nothing more; when what runs has ended, `run` returns and the runs can be taken up again later."""
        self.stopping = self.stale = True
        self.inbox.wake()

    def abandon(self) -> None:
        """Return from `run` at once."""
        self.stopping = True
        self.closed = True
        self.inbox.wake()

    def _let_go(self) -> None:
        """Runs were taken over by other engines: find out which, stop what we started for them, and forget them. What there
        is to say of our other runs has not been written, and is written now."""
        lost = self._lost()
        if not lost:
            raise RuntimeError("a write was refused although every run is ours")
        for live in lost:
            del self.lives[live.number]
            live.error = Fenced(f"{live.run.id} was taken over by another engine")
            for task in list(live.machine.live.values()):
                self._disown(live, task)
        self.batch.drop_runs({live.number for live in lost})
        self.ready_orders = {
            lane: [order for order in some if order.id in self.orders] for lane, some in self.ready_orders.items()
        }
        over = [live for live in self.lives.values() if live.ended is not None]
        keys = [
            (task.key, live.number, task.path)
            for some in self.ready_orders.values()
            for live, task in (self.orders[order.id] for order in some)
            if task.key
        ]
        self._begin()
        self._claim(keys, fresh=True)
        try:
            self._commit()
        except Fenced:
            self._let_go()
        for live in (*lost, *over):
            live.finished.set()
        self.inbox.wake()

    def _lost(self) -> list[Live]:
        """Runs in our hands that are another engine's now."""
        found = []
        for live in self.lives.values():
            current = self.store.run_by_number(live.number)
            if current is None or current.engine != self.me.id:
                found.append(live)
        return found

    def _beat(self) -> None:
        self._timers[0] = self.loop.call_later(BEAT, self._beat)
        self.later(self._beat_now)

    def _beat_now(self) -> None:
        try:
            if not self.store.beat(self.me.id, self.now()):
                self.store.register(self.me, self.now())  # somebody has held us for dead, and perhaps taken our runs
                if self._lost():
                    self._let_go()
                self._forgotten()
        except Disconnected:
            self.store.reconnect(patience=PATIENCE)

    def _poll(self) -> None:
        self._timers[1] = self.loop.call_later(POLL, self._poll)
        try:
            token = self.store.changed()
        except Disconnected:
            self.store.reconnect(patience=PATIENCE)
            token = object()
        if token != self.token or self.shares.distant or self.waits_in_line() or self.waits_for_locks:
            self.token = token
            self.later(self._look_around)

    def _look_around(self) -> None:
        for request in self.store.requests(self.asked, list(self.lives)):
            self.asked = max(self.asked, request.number)
            self._request(request)
        if self.shares.distant:
            self._look_at_shares()
        if self.waits_for_locks:
            self._look_at_locks()
        self._look_at_queues()

    def _request(self, request: Any) -> None:
        live = self.lives.get(request.run)
        self.batch.handled.append(request.number)
        if live is None:
            return
        if request.verb == "cancel":
            self.cancel(live, request.data.get("message", "cancelled"), bool(request.data.get("now")))
        elif request.verb == "resume":
            self.resume(live, request.data["task"], request.data.get("outputs", {}))

    async def close(self) -> None:
        """End every process, give the runs back."""
        for backend in self.backends.values():
            await backend.close()
        for live in self.lives.values():
            if live.ended is None and live.error is None:
                live.log("run.stopped", "")
                live.state = "stopped"
        if self.lives and not isinstance(self.failure, Exception):
            self._begin()
            try:
                self._commit()
            except Fenced:
                self._let_go()
            for number in self.lives:
                self.store.release(number, self.me.id, "stopped")
        self.store.forget(self.me.id)
