"""The engine: takes runs in hand, starts what may start, records what happens. Called by service and by LocalRunner.

One turn of the loop: read the reports that have come in, let the machines work out what follows, take the tasks that may
start, look each key up (reuse, share, or run), write everything in one transaction, and only then start processes. Small
functions run inside the transaction itself, so that nobody else can begin the same key meanwhile.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from penstock.artifacts.blobs import Blobs
from penstock.artifacts.values import Stored, dumps, load
from penstock.backends.base import Began, Context, Ended, Inbox, Order, make_backend
from penstock.engine import retry
from penstock.engine.blueprint import Blueprint
from penstock.engine.live import Live, extra
from penstock.engine.machine import Machine, Task
from penstock.engine.replay import replay
from penstock.engine.share import Shares, Who, origin
from penstock.graph.model import Function, Outcome, Step, Suspend
from penstock.store import liveness
from penstock.store.base import Batch, Disconnected, Fenced, Run
from penstock.store.sql import Store

WINDOW = 0.02
"""Seconds that one transaction may stay open for small functions."""
POLL = 0.2
"""Seconds between looks at what other processes have written."""
BEAT = 5.0
PATIENCE = 600.0
"""Seconds to wait for a database that has gone away."""
GRACE = 10.0
"""Seconds between asking a process to end and making it."""
SUSPEND, INLINE = "suspend", "inline"
LANES: Mapping[str, str] = {
    "function": "workers", "container": "container", "script": "process", "resource": "resource", "http": "http", "suspend": SUSPEND,
}  # fmt: skip
"""Which backend runs which kind of step, unless the user says otherwise."""


class Engine:
    def __init__(
        self,
        store: Store,
        home: Path,
        blobs: Blobs,
        *,
        jobs: int,
        on: Mapping[str, str] | None = None,
        functions: Mapping[tuple[str, str, str], Callable[..., Any]] | None = None,
        environ: Mapping[str, str] | None = None,
        backends: Mapping[str, Any] | None = None,
        now: Callable[[], float] = time.time,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.store = store
        self.home = home
        self.blobs = blobs
        self.on = {**LANES, **(on or {})}
        self.now = now
        self.chance = chance
        self.me = liveness.identity()
        self.loop = asyncio.get_running_loop()
        self.inbox = Inbox(self.loop)
        self.context = Context(
            home=home, blobs=blobs, inbox=self.inbox, jobs=jobs, engine=self.me.id, now=now, environ=environ or {}, functions=dict(functions or {}),
        )  # fmt: skip
        self.backends: dict[str, Any] = dict(backends or {})
        self.batch = Batch()
        self.lives: dict[int, Live] = {}
        self.shares = Shares()
        self.landed: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}
        """Results of this very transaction, which the store cannot tell yet."""
        self.orders: dict[str, Who] = {}
        self.ready_orders: dict[str, list[Order]] = {}
        self.due: list[Callable[[], None]] = []
        self.stopping = False
        self.closed = False
        self.failure: BaseException | None = None
        self.watch = liveness.Watch()
        self.asked = 0
        self.keep = False
        self._ids: dict[int, str] = {}
        self.token: object = None
        store.register(self.me, now())

    # -- taking runs in hand -------------------------------------------------------------------------------------------

    def adopt(self, run: Run, blueprint: Blueprint, params: Mapping[str, Any], retried: str = "") -> Live:
        """Go on with a run from where its log ends. The caller has made sure that it is ours (store.take). `retried`: who
        asks for what has failed in it to be tried again."""
        options = run.options
        if retried:
            run.seq += 1
            self.batch.events.append((run.number, run.seq, self.now(), "run.retried", "", json.dumps({"by": retried})))
            self.batch.runs[run.number] = (run.seq, "running", None, json.dumps(run.counts), None)
            self._begin()
            self.store.drop_tasks(run.number, ("failed", "errored", "cancelled", "omitted"))
            self._commit()
        machine = Machine(blueprint, params, self.fetch, self.lane_of, bool(options.get("fail_fast")))
        live = Live(run, machine, self.batch, self.now)
        begun = replay(live, self.store) if run.seq > 1 else []
        live.log("run.started", "", json.dumps({"engine": self.me.id, "pid": self.me.pid}))
        self.lives[run.number] = live
        for task in begun:
            self._go_on(live, task)
        limit = blueprint.workflow.timeout
        if limit is not None and machine.outcome is None:
            spent = min(max(0.0, self.now() - run.created), limit)
            live.timer = self.loop.call_later(limit - spent, self._later, lambda: self._run_timeout(live, limit))
        self.inbox.wake()
        return live

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
            policy = task.step.retry
            longest = policy.backoff.longest * 2 if policy is not None else 0.0
            self._try_later(live, task, min(left, longest))
        else:
            if kept.state == "running":
                live.note("task.lost", task.path, {"attempt": task.attempt, "message": "the engine that ran it is gone"})
            kept.state = ""
            machine.again(task)

    def lane_of(self, step: Step) -> str:
        action = step.action
        kind = action.kind
        if kind == "script" and action.image is not None:  # type: ignore[union-attr]
            kind = "container"
        elif isinstance(action, Function):
            if action.image is not None and self.on["container"] != "process":
                kind = "container"
            elif step.replicas > 1:
                return self.on["script"] if self.on["function"] == LANES["function"] else self.on["function"]
        return self.on.get(kind, kind)

    def fetch(self, stored: Stored) -> Any:
        return load(stored, self.blobs, self.home / "work")

    # -- the loop -------------------------------------------------------------------------------------------------------

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
        finally:
            for timer in self._timers:
                timer.cancel()

    def _done(self) -> bool:
        if self.closed:
            return True
        if self.stopping and not self.orders:
            return True
        return not self.lives and not self.keep

    more = False

    def turn(self) -> None:
        """One turn of the loop."""
        for report in self.inbox.take():
            if isinstance(report, Ended):
                self._ended(report)
            else:
                self._began(report)
        due, self.due = self.due, []
        for call in due:
            call()
        try:
            self._pump()
        except Fenced:
            self._let_go()

    def _pump(self) -> None:
        store = self.store
        deadline = time.perf_counter() + WINDOW
        opened = False
        self.more = False
        while True:
            wanted = [] if self.stopping else self._take()
            if not wanted:
                break
            if not opened:
                opened = self._begin()
            self._decide(wanted)
            if time.perf_counter() > deadline:
                self.more = True
                break
        over = self._finish()
        if self.batch or opened or self._dirty():
            if not opened:
                self._begin()
            self._commit()
        for live in over:
            live.finished.set()
        orders, self.ready_orders = self.ready_orders, {}
        for lane, some in orders.items():
            self._start(lane, some)

    def _dirty(self) -> bool:
        return any(live.dirty for live in self.lives.values())

    def _begin(self) -> bool:
        try:
            self.store.begin()
        except Disconnected:
            self._reconnect()
        return True

    def _commit(self) -> None:
        for live in self.lives.values():
            live.flush()
        while True:
            try:
                self.store.flush(self.batch, self.me.id)
                self.store.commit()
                break
            except Disconnected:
                if self._survives():
                    break
        self.batch.clear()
        self.landed.clear()
        for number in [number for number, live in self.lives.items() if live.ended is not None]:
            del self.lives[number]

    def _survives(self) -> bool:
        """After the database went away in a commit: True if it had been done all the same."""
        while True:
            self._reconnect()
            last = max(self.batch.runs.items(), default=None)
            try:
                if last is None or not self.store.committed(last[0], last[1][0]):
                    return False
                self.store.commit()
                return True
            except Disconnected:
                continue

    def _reconnect(self) -> None:
        while True:
            self.store.reconnect(patience=PATIENCE)
            try:
                self.store.begin()
                return
            except Disconnected:
                continue

    def _take(self) -> list[tuple[Live, Task, str]]:
        """Tasks that may start, for as long as there is room for them."""
        wanted: list[tuple[Live, Task, str]] = []
        rooms: dict[str, int] = {}
        for live in list(self.lives.values()):
            machine = live.machine
            machine.advance()
            for lane in [lane for lane, queue in machine.lanes.items() if queue]:
                room = rooms.get(lane)
                if room is None:
                    room = self._room(lane)
                if room > 0:
                    taken = machine.take(lane, room)
                    wanted += [(live, task, lane) for task in taken]
                    room -= len(taken)
                rooms[lane] = room
            if machine.called:
                self._called(live)
            live.settle()
        return wanted

    def _room(self, lane: str) -> int:
        if lane == SUSPEND:
            return 1000
        backend = self.backend(lane)
        if hasattr(backend, "call"):
            return 256
        return int(backend.room()) - len(self.ready_orders.get(lane, ()))

    def backend(self, lane: str) -> Any:
        found = self.backends.get(lane)
        if found is None:
            found = self.backends[lane] = make_backend(lane, self.context)
        return found

    # -- reuse, share, or run ------------------------------------------------------------------------------------------

    def _decide(self, wanted: list[tuple[Live, Task, str]]) -> None:
        asks: dict[tuple[bool, bool], list[tuple[str, int, str]]] = {}
        asking: dict[str, tuple[Live, Task, str]] = {}
        twins: list[Who] = []
        plain = []
        for live, task, lane in wanted:
            key = task.key
            if not key or extra(task).order:
                plain.append((live, task, lane))
            elif key in self.landed and not live.fresh:
                outputs, source = self.landed[key]
                self._reuse(live, task, outputs, source)
            elif key in asking:
                twins.append((live, task))
            elif self.shares.join(key, (live, task)) is not None:
                self._wait(live, task, self._shared_with(key))
            else:
                asking[key] = (live, task, lane)
                at_once = hasattr(self.backend(lane), "call")
                asks.setdefault((live.fresh, not at_once), []).append((key, live.number, task.path))
        for (fresh, hold), some in asks.items():
            found = self._claim(some, fresh, hold)
            stale = []
            for key, number, path in some:
                live, task, lane = asking[key]
                here = found[key]
                if here.result is not None:
                    ttl = task.step.cache.ttl
                    if ttl is not None and not 0 <= self.now() - here.result.at <= ttl:
                        stale.append((key, number, path))
                    else:
                        self._reuse(live, task, here.result.outputs, self._origin(here.result.run, here.result.task))
                elif here.holder is not None:
                    self._wait_distant(live, task, here.holder)
                else:
                    plain.append((live, task, lane))
            if stale:
                for key, other in self._claim(stale, True).items():
                    live, task, lane = asking[key]
                    if other.holder is not None:
                        self._wait_distant(live, task, other.holder)
                    else:
                        plain.append((live, task, lane))
        for live, task, lane in plain:
            self._launch(live, task, lane)
        for who in twins:
            self._twin(*who)

    def _claim(self, asks: list[tuple[str, int, str]], fresh: bool, hold: bool = True) -> dict[str, Any]:
        while True:
            try:
                return self.store.claim(asks, self.me.id, fresh, hold)
            except Disconnected:
                self._reconnect()

    def _twin(self, live: Live, task: Task) -> None:
        """The same key as another task of the same handful."""
        if self.shares.join(task.key, (live, task)) is not None:
            self._wait(live, task, self._shared_with(task.key))
        elif task.key in self.shares.distant:
            self.shares.distant[task.key].append((live, task))
            self._wait(live, task, {"why": "shared"})
        else:
            live.machine.again(task)

    def _shared_with(self, key: str) -> dict[str, Any]:
        owner = self.shares.flights[key].owner
        return {"why": "shared", **origin(owner[0].run.id, owner[1].path)}

    def _origin(self, number: int, task: str) -> dict[str, Any]:
        return origin(self._run_id(number), task)

    def _run_id(self, number: int) -> str:
        live = self.lives.get(number)
        if live is not None:
            return live.run.id
        if number not in self._ids:
            run = self.store.run_by_number(number)
            self._ids[number] = f"run {number}" if run is None else run.id
        return self._ids[number]


    def _wait(self, live: Live, task: Task, reason: dict[str, Any]) -> None:
        text = json.dumps({"reason": reason})
        live.log("task.waiting", task.path, text)
        live.row(task, "waiting", text)

    def _wait_distant(self, live: Live, task: Task, holder: Any) -> None:
        self.shares.distant.setdefault(task.key, []).append((live, task))
        self._wait(live, task, {"why": "shared", "engine": holder.engine, **self._origin(holder.run, holder.task)})

    def _reuse(self, live: Live, task: Task, outputs: dict[str, Any], source: dict[str, Any]) -> None:
        live.succeeded(task, outputs, "", None, source)
        live.settle()

    # -- starting -------------------------------------------------------------------------------------------------------

    def _launch(self, live: Live, task: Task, lane: str) -> None:
        if lane == SUSPEND:
            self._suspend(live, task)
            return
        backend = self.backend(lane)
        task.attempt += 1
        kept = extra(task)
        kept.lane = lane
        kept.started = self.now()
        kept.timed_out = kept.cancelled = False
        order = self._order(live, task)
        kept.order = order.id
        if hasattr(backend, "call"):
            kept.held = False
            self._ended_here(live, task, backend.call(order))
            return
        if task.key and task.key not in self.shares.flights:
            self.shares.take_off(task.key, (live, task))
        self.orders[order.id] = (live, task)
        key = f',"key":"{task.key}"' if task.key else ""
        live.log("task.started", task.path, f'{{"attempt":{task.attempt},"on":"{lane}"{key}}}')
        live.row(task, "running")
        self.ready_orders.setdefault(lane, []).append(order)

    def _order(self, live: Live, task: Task) -> Order:
        return Order(
            id=f"{live.run.id}/{task.path}/{task.attempt}", run=live.run.id, task=task.path, attempt=task.attempt,
            step=task.state.plan.ordered(task.inputs), action=task.action, inputs=task.inputs, bundle=live.bundle, place=live.place,
        )  # fmt: skip

    def _start(self, lane: str, orders: Sequence[Order]) -> None:
        """After the commit: what is started has been written down before."""
        for order in orders:
            who = self.orders.get(order.id)
            if who is not None and order.step.timeout is not None:
                extra(who[1]).timer = self.loop.call_later(order.step.timeout, self._later, lambda id=order.id: self._timeout(id))
        self.backend(lane).start(orders)

    def _suspend(self, live: Live, task: Task, logged: bool = False) -> None:
        action = task.action
        assert isinstance(action, Suspend)
        kept = extra(task)
        left = action.duration
        if not logged:
            kept.started = self.now()
            data = {"message": action.message, "seconds": action.duration}
            text = json.dumps({name: value for name, value in data.items() if value not in (None, "")})
            live.log("task.suspended", task.path, text)
            live.row(task, "suspended", text)
        elif left is not None:
            left = min(left, max(0.0, (kept.resume_at or 0.0) - self.now()))
        if left is not None:
            kept.timer = self.loop.call_later(left, self._later, lambda: self._resumed(live, task, {}))

    def _resumed(self, live: Live, task: Task, outputs: dict[str, Any]) -> None:
        if task.path in live.machine.live and extra(task).state == "suspended":
            self._stop_timer(task)
            live.succeeded(task, outputs, dumps(outputs), None, None)
            live.settle()

    def resume(self, live: Live, path: str, outputs: dict[str, Any]) -> None:
        """Somebody says that a suspended task may go on."""
        task = live.machine.live.get(path)
        if task is not None:
            self._resumed(live, task, outputs)

    def _later(self, call: Callable[[], None]) -> None:
        self.due.append(call)
        self.inbox.wake()

    # -- what happens to tasks ----------------------------------------------------------------------------------------

    def _began(self, report: Began) -> None:
        who = self.orders.get(report.id)
        if who is not None and (report.log or report.pid):
            live, task = who
            extra(task).log = report.log
            info = json.dumps({"pid": report.pid, "log": report.log})
            live.row(task, "running", info)
            live.dirty = True

    def _ended(self, report: Ended) -> None:
        who = self.orders.pop(report.id, None)
        if who is None:
            return
        live, task = who
        self._stop_timer(task)
        if live.number in self.lives:
            self._ended_here(live, task, report)

    def _ended_here(self, live: Live, task: Task, report: Ended) -> None:
        kept = extra(task)
        kept.order = ""
        if report.outcome is Outcome.SUCCEEDED and not kept.timed_out:
            self._succeeded(live, task, report)
        elif kept.cancelled:
            self._release(task)
            live.not_succeeded(task, "cancelled", self._facts(report) | {"message": "stopped"})
        elif report.lost and kept.lost + 1 < retry.LOST_LIMIT:
            kept.lost += 1
            live.note("task.lost", task.path, {"attempt": task.attempt, **self._facts(report)})
            live.row(task, "waiting")
            self._requeue(live, task)
        else:
            self._failed(live, task, report)
        live.settle()

    def _succeeded(self, live: Live, task: Task, report: Ended) -> None:
        text = dumps(report.outputs)
        key = task.key
        if not key:
            live.succeeded(task, report.outputs, text, report, None)
            return
        self.batch.results.append((key, text, live.number, task.path, self.now()))
        if extra(task).held:
            self.batch.released.append(key)
        self.landed[key] = (report.outputs, origin(live.run.id, task.path))
        others = self.shares.land(key)
        live.succeeded(task, report.outputs, "", report, None)
        for other, twin in others:
            other.succeeded(twin, report.outputs, "", None, origin(live.run.id, task.path))
            other.settle()

    def _failed(self, live: Live, task: Task, report: Ended) -> None:
        kept = extra(task)
        task.tries += 1
        data = self._facts(report)
        if kept.timed_out:
            data["message"] = f"timed out after {task.step.timeout:g} s"
        kind = "errored" if report.outcome is Outcome.ERRORED and not kept.timed_out else "failed"
        wait = None
        if not task.state.scope.halted:
            wait = retry.delay(task.step.retry, task.tries, report, kept.timed_out, self.chance)
        if wait is not None:
            data |= {"retry": round(wait, 3), "tries": task.tries}
            live.note(f"task.{kind}", task.path, {"attempt": task.attempt, **data})
            live.row(task, "retrying", json.dumps(data))
            self._try_later(live, task, wait)
            return
        others: list[Who] = []
        if task.key:
            others = self.shares.land(task.key)
            self.batch.released.append(task.key)
            told = {**data, "shared": origin(live.run.id, task.path)}
            self.batch.failures.append((json.dumps({"kind": kind, **told}), task.key))
            for other, twin in others:
                other.not_succeeded(twin, kind, told)
                other.settle()
        live.not_succeeded(task, kind, data)

    def _facts(self, report: Ended) -> dict[str, Any]:
        """What is kept of a report that is not a success."""
        data: dict[str, Any] = {"message": report.message}
        for name in ("exit_code", "exception", "traceback", "log"):
            value = getattr(report, name)
            if value or value == 0:
                data[name] = value
        data["seconds"] = round(report.seconds, 6)
        return data

    def _try_later(self, live: Live, task: Task, wait: float) -> None:
        extra(task).state = "retrying"
        extra(task).timer = self.loop.call_later(wait, self._later, lambda: self._requeue(live, task))

    def _requeue(self, live: Live, task: Task) -> None:
        """To be started again. The key stays ours while we try."""
        if live.number in self.lives and task.path in live.machine.live:
            kept = extra(task)
            kept.timer = None
            if task.key and task.key in self.shares.flights:
                kept.order = "again"
            live.machine.again(task)

    def _called(self, live: Live) -> None:
        """Workflows that were called, failed, and have a retry policy."""
        for task, outcome, why in list(live.machine.called.values()):
            if extra(task).timer is not None:
                continue
            task.tries += 1
            report = Ended(id="", outcome=outcome, message=why)
            wait = None if task.state.scope.halted else retry.delay(task.step.retry, task.tries, report, False, self.chance)
            data: dict[str, Any] = {"message": why}
            if wait is None:
                live.machine.called.pop(task.path)
                live.not_succeeded(task, outcome.value, data)
                continue
            data |= {"retry": round(wait, 3), "tries": task.tries}
            live.note(f"task.{outcome}", task.path, {"attempt": task.attempt, **data})
            live.row(task, "retrying", json.dumps(data))
            extra(task).timer = self.loop.call_later(wait, self._later, lambda t=task: self._recall(live, t))

    def _recall(self, live: Live, task: Task) -> None:
        extra(task).timer = None
        if live.number in self.lives and task.path in live.machine.called:
            live.machine.recall(task)

    # -- stopping ------------------------------------------------------------------------------------------------------

    def _timeout(self, id: str) -> None:
        who = self.orders.get(id)
        if who is not None:
            extra(who[1]).timed_out = True
            self.backend(extra(who[1]).lane).stop(id, min(GRACE, 2.0))

    def _run_timeout(self, live: Live, limit: float) -> None:
        if live.number in self.lives:
            why = f"timed out after {limit:g} s"
            live.note("run.timeout", "", {"message": why})
            live.machine.time_out("", why)
            self._stop_tasks(live, GRACE)

    def cancel(self, live: Live, why: str, now: bool) -> None:
        """End a run for good: nothing more starts but its exit handlers, and with `now` not even those."""
        live.note("run.cancelling", "", {"message": why, **({"now": True} if now else {})})
        live.machine.cancel(why, exits=not now)
        self._stop_tasks(live, 0.0 if now else GRACE)

    def _stop_tasks(self, live: Live, grace: float) -> None:
        tasks, live.machine.stopping = live.machine.stopping, []
        for task in tasks:
            self._stop_task(live, task, grace)
        for path in list(live.machine.called):
            task, outcome, why = live.machine.called.pop(path)
            self._stop_timer(task)
            live.machine.ended(task, outcome, {}, why)
        live.settle()

    def _stop_task(self, live: Live, task: Task, grace: float) -> None:
        kept = extra(task)
        if kept.order and kept.order in self.orders:
            flight = self.shares.leave((live, task))
            if flight is None:
                kept.cancelled = True
                self.backend(kept.lane).stop(kept.order, grace)
                return
            # Others still want it: it goes on as theirs.
            heir_live, heir = flight.owner
            heir_kept = extra(heir)
            heir_kept.order, heir_kept.lane, heir_kept.timer, heir_kept.started = kept.order, kept.lane, kept.timer, kept.started
            self.orders[kept.order] = flight.owner
            heir_live.row(heir, "running")
            kept.order, kept.timer = "", None
        elif self.shares.leave_distant((live, task)):
            self.batch.served.append((task.key, live.number, task.path))
        else:
            # It waits for its next attempt. Those who wait for the key go on with it: the lease is still ours.
            owner = task.key in self.shares.flights and self.shares.flights[task.key].owner[1] is task
            flight = self.shares.leave((live, task))
            if flight is not None:
                del self.shares.flights[task.key]
                for other, twin in [flight.owner, *flight.subscribers]:
                    other.machine.again(twin)
            elif owner:
                self.batch.released.append(task.key)
        self._stop_timer(task)
        live.not_succeeded(task, "cancelled", {"message": task.state.scope.halted or "stopped"})

    def _release(self, task: Task) -> None:
        if task.key:
            self.shares.land(task.key)
            self.batch.released.append(task.key)

    def _stop_timer(self, task: Task) -> None:
        kept = extra(task)
        if kept.timer is not None:
            kept.timer.cancel()
            kept.timer = None

    def _finish(self) -> list[Live]:
        over = []
        for live in self.lives.values():
            machine = live.machine
            if machine.stopping:
                self._stop_tasks(live, GRACE)
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
                over.append(live)
        return over

    def _kept(self, value: Any) -> Any:
        from penstock.artifacts.values import shelve

        return shelve(value, self.blobs)

    def later(self, call: Callable[[], None]) -> None:
        """Do this in the next turn."""
        self._later(call)

    def end(self) -> None:
        """Return from `run` when nothing is in hand any more; at once if nothing is."""
        self.keep = False
        self.inbox.wake()

    def interrupt(self) -> None:
        """Start nothing more; when what runs has ended, `run` returns and the runs can be taken up again later."""
        self.stopping = True
        self.inbox.wake()

    def abandon(self) -> None:
        """Return from `run` at once."""
        self.stopping = True
        self.closed = True
        self.inbox.wake()

    def _let_go(self) -> None:
        """A run was taken over by another engine: find out which, stop what we started for it, and forget it."""
        self.batch.clear()
        for number, live in list(self.lives.items()):
            current = self.store.run_by_number(number)
            if current is not None and current.engine == self.me.id:
                continue
            live.error = Fenced(f"{live.run.id} was taken over by another engine")
            for id, (owner, task) in list(self.orders.items()):
                if owner is live:
                    del self.orders[id]
                    self.backend(extra(task).lane).stop(id, 0.0)
            del self.lives[number]
            live.finished.set()
        if self.lives:
            raise RuntimeError("a write was refused although every run is ours")

    # -- what others write ----------------------------------------------------------------------------------------------

    def _beat(self) -> None:
        self._timers[0] = self.loop.call_later(BEAT, self._beat)
        self._later(self._beat_now)

    def _beat_now(self) -> None:
        try:
            self.store.beat(self.me.id, self.now())
        except Disconnected:
            self.store.reconnect(patience=PATIENCE)

    def _poll(self) -> None:
        self._timers[1] = self.loop.call_later(POLL, self._poll)
        try:
            token = self.store.changed()
        except Disconnected:
            self.store.reconnect(patience=PATIENCE)
            token = object()
        if token != self.token or self.shares.distant:
            self.token = token
            self._later(self._look_around)

    def _look_around(self) -> None:
        for request in self.store.requests(self.asked, list(self.lives)):
            self.asked = max(self.asked, request.number)
            self._request(request)
        if self.shares.distant:
            self._look_at_shares()

    def _request(self, request: Any) -> None:
        live = self.lives.get(request.run)
        self.batch.handled.append(request.number)
        if live is None:
            return
        if request.verb == "cancel":
            self.cancel(live, request.data.get("message", "cancelled"), bool(request.data.get("now")))
        elif request.verb == "resume":
            self.resume(live, request.data["task"], request.data.get("outputs", {}))

    def _look_at_shares(self) -> None:
        """Has anything come of what other engines compute for us?"""
        dead = None
        for key, number, path, failure, result, holder in self.store.waiting(self.me.id):
            waiting = self.shares.distant.get(key)
            if waiting is None:
                continue
            if result is not None or failure is not None:
                del self.shares.distant[key]
                for live, task in waiting:
                    self.batch.served.append((key, live.number, task.path))
                    if result is not None:
                        self._reuse(live, task, result.outputs, self._origin(result.run, result.task))
                    else:
                        data = {name: value for name, value in failure.items() if name != "kind"}
                        live.not_succeeded(task, failure["kind"], data)
                        live.settle()
                continue
            if holder is not None:
                dead = self._dead_engines() if dead is None else dead
                if holder.engine not in dead:
                    continue
            # Nobody is at it any more: whoever asks first now gets it.
            del self.shares.distant[key]
            for live, task in waiting:
                self.batch.served.append((key, live.number, task.path))
                live.machine.again(task)
        if dead:
            self.bury(dead)

    def _dead_engines(self) -> set[str]:
        dead = set()
        for engine in self.store.engines():
            if engine.id == self.me.id:
                continue
            alive = liveness.alive(engine)
            if alive is False or (alive is None and self.watch.dead(engine.id, engine.beat, time.monotonic())):
                dead.add(engine.id)
        return dead

    def clean(self) -> None:
        """See to what engines left behind that are surely dead."""
        dead = {engine.id for engine in self.store.engines() if engine.id != self.me.id and liveness.alive(engine) is False}
        if dead:
            self.bury(dead)

    def bury(self, dead: set[str]) -> None:
        """Engines that are gone: end the processes they left behind, and free what they held."""
        from penstock.backends.orphans import end_orphans

        end_orphans(self.home, dead)
        for id in dead:
            self.store.forget(id)

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
            self._commit()
            for number in self.lives:
                self.store.release(number, self.me.id, "stopped")
        self.store.forget(self.me.id)
