"""Tasks as they are tried: started, watched, ended, tried again, stopped. Called by sharing (what is to be run) and loop (what
has happened).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from penstock.artifacts.values import dumps
from penstock.backends.base import Began, Ended, Order
from penstock.engine import retry
from penstock.engine.core import SUSPEND, Core
from penstock.engine.judge import said
from penstock.engine.live import Extra, Live, extra
from penstock.engine.share import Who, origin
from penstock.engine.steps import Task
from penstock.graph.evaluate import EvaluationError
from penstock.graph.model import MISSING, Outcome, Suspend

GRACE = 10.0
"""Seconds between asking a process to end and making it."""


class Attempts(Core):
    def _launch(self, live: Live, task: Task, lane: str) -> None:
        if lane == SUSPEND:
            self._suspend(live, task)
            return
        if live.limit is not None:
            self._limit_run(live, self.now())
        if live.unarmed:
            self._arm_called(live, task.path)
        backend = self.backend(lane)
        task.attempt += 1
        kept = extra(task)
        kept.lane = lane
        kept.started = self.now()
        if kept.first is None:
            kept.first = kept.started
        kept.timed_out = kept.cancelled = False
        kept.displaced = None
        try:
            if task.tries:
                live.machine.renew(task)
            order = self._order(live, task)
        except (EvaluationError, KeyError, IndexError, TypeError) as error:
            self._ended_here(live, task, Ended(id="", outcome=Outcome.ERRORED, message=said(error)))
            return
        kept.order = order.id
        if self.at_once(lane):
            kept.held = not self.store.alone
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
        """Raises EvaluationError."""
        step = task.step
        if not live.dry:
            step = task.state.plan.ordered(task.inputs, task.state.scope.view, task.item, self.fetch)
        return Order(
            id=f"{live.run.id}/{task.path}/{task.attempt}", run=live.run.id, task=task.path, attempt=task.attempt, step=step, action=task.action, inputs=task.inputs,
            bundle=live.bundle, place=live.place,
        )  # fmt: skip

    def _start(self, lane: str, orders: Sequence[Order]) -> None:
        """After the commit: what is started has been written down before."""
        tells = getattr(self.backend(lane), "tells_start", False)
        for order in orders:
            who = self.orders.get(order.id)
            if who is not None and order.step.timeout is not None and not tells:
                self._limit(extra(who[1]), order.id, order.step.timeout)
        self.backend(lane).start(orders)

    def _suspend(self, live: Live, task: Task, logged: bool = False) -> None:
        action = task.action
        assert isinstance(action, Suspend)
        kept = extra(task)
        left = 0.0 if live.dry else action.duration
        if not logged:
            kept.started = self.now()
            data = {"message": action.message, "seconds": action.duration}
            text = json.dumps({name: value for name, value in data.items() if value not in (None, "")})
            live.log("task.suspended", task.path, text)
            live.row(task, "suspended", text)
        elif left is not None:
            left = min(left, max(0.0, (kept.resume_at or 0.0) - self.now()))
        if left is not None:
            given = live.supplied(task)
            kept.timer = self.loop.call_later(left, self.later, lambda: self._resumed(live, task, given))
        else:
            wants = "".join(f" -p {output.name}=…" for output in task.step.outputs if output.default is MISSING)
            said = f"{action.message}   " if action.message else ""
            live.asking[task.path] = (
                f"{task.path} waits for you: {said}penstock resume {live.run.id}/{task.path}{wants}"
            )

    def _resumed(self, live: Live, task: Task, outputs: dict[str, Any]) -> None:
        if task.path in live.machine.live and extra(task).state == "suspended":
            self._stop_timer(task)
            live.asking.pop(task.path, None)
            live.succeeded(task, outputs, dumps(outputs), None, None)
            live.settle()

    def resume(self, live: Live, path: str, outputs: dict[str, Any]) -> None:
        """Somebody says that a suspended task may go on."""
        task = live.machine.live.get(path)
        if task is not None:
            self._resumed(live, task, outputs)

    def _began(self, report: Began) -> None:
        """Where its log is, and its process: to be seen by others, not a fact that anything hangs on, so it need not be
        written at once."""
        who = self.orders.get(report.id)
        if who is None:
            return
        live, task = who
        kept = extra(task)
        if task.step.timeout is not None and kept.timer is None:
            self._limit(kept, report.id, task.step.timeout)
        if report.log or report.pid:
            kept.log = report.log
            live.row(task, "running", json.dumps({"pid": report.pid, "log": report.log}))

    def _limit(self, kept: Extra, id: str, seconds: float) -> None:
        kept.timer = self.loop.call_later(seconds, self.later, lambda: self._timeout(id))

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
        elif kept.displaced is not None and not kept.cancelled:
            self._displaced(live, task, report)
        elif kept.cancelled:
            self._release(task)
            live.not_succeeded(task, "cancelled", self._facts(report) | {"message": "stopped"})
        elif report.lost and kept.lost + 1 < retry.LOST_LIMIT:
            kept.lost += 1
            live.note("task.lost", task.path, {"attempt": task.attempt, **self._facts(report)})
            live.row(task, "waiting")
            self._requeue(live, task)
        else:
            if report.lost:
                report.message += f"; it has lost {kept.lost + 1} workers"
            self._failed(live, task, report)
        live.settle()

    def _displaced(self, live: Live, task: Task, report: Ended) -> None:
        """It has been stopped because its place was taken: that is no failure of it."""
        kept = extra(task)
        why, kept.displaced = kept.displaced, None
        live.note("task.preempted", task.path, {"attempt": task.attempt, **why, "seconds": round(report.seconds, 6)})
        live.row(task, "waiting", json.dumps({"reason": {"why": "preempted", **why}}))
        live.machine.free(task)
        flight = self.shares.flights.get(task.key) if task.key else None
        if flight is not None and flight.owner[1] is task:
            self.batch.released.append(task.key)
            for other, twin in self.shares.land(task.key):
                other.machine.again(twin)
        live.machine.again(task)

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
            wait = retry.delay(
                task.step.retry, task.tries, report, kept.timed_out, self.chance, self._since_first(kept)
            )
        if wait is not None:
            wait = 0.0 if live.dry else wait
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

    def _since_first(self, kept: Extra) -> float:
        return 0.0 if kept.first is None else max(0.0, self.now() - kept.first)

    def _facts(self, report: Ended) -> dict[str, Any]:
        """What is kept of a report that is not a success."""
        data: dict[str, Any] = {"message": report.message}
        for name in ("exit_code", "exception", "traceback", "log"):
            value = getattr(report, name)
            if value or value == 0:
                data[name] = value
        data["seconds"] = round(report.seconds, 6)
        if report.outputs:
            data["outputs"] = json.loads(dumps(report.outputs))
        return data

    def _try_later(self, live: Live, task: Task, wait: float) -> None:
        extra(task).state = "retrying"
        extra(task).timer = self.loop.call_later(wait, self.later, lambda: self._requeue(live, task))

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
            kept = extra(task)
            lasted = 0.0 if kept.started is None else max(0.0, self.now() - kept.started)
            report = Ended(id="", outcome=outcome, message=why, seconds=lasted)
            wait = None
            if not task.state.scope.halted:
                since = self._since_first(kept)
                wait = retry.delay(task.step.retry, task.tries, report, False, self.chance, since)
            data: dict[str, Any] = {"message": why}
            if wait is None:
                live.machine.called.pop(task.path)
                live.not_succeeded(task, outcome.value, data)
                continue
            data |= {"retry": round(wait, 3), "tries": task.tries}
            live.note(f"task.{outcome}", task.path, {"attempt": task.attempt, **data})
            live.row(task, "retrying", json.dumps(data))
            extra(task).timer = self.loop.call_later(wait, self.later, lambda t=task: self._recall(live, t))

    def _recall(self, live: Live, task: Task) -> None:
        extra(task).timer = None
        if live.number in self.lives and task.path in live.machine.called:
            live.machine.recall(task)

    def _timeout(self, id: str) -> None:
        who = self.orders.get(id)
        if who is not None:
            extra(who[1]).timed_out = True
            self.backend(extra(who[1]).lane).stop(id, min(GRACE, 2.0))

    def _arm_called(self, live: Live, path: str) -> None:
        """Something in a called workflow is admitted: its time begins."""
        for prefix in [prefix for prefix in live.unarmed if path.startswith(prefix)]:
            self._limit_called(live, live.unarmed.pop(prefix))

    def _limit_called(self, live: Live, task: Task) -> None:
        limit = task.step.timeout
        assert limit is not None

        def over() -> None:
            if live.number in self.lives and live.machine.live.get(task.path) is task:
                why = f"timed out after {limit:g} s"
                live.note("task.timeout", task.path, {"message": why})
                live.machine.time_out(task.path, why)
                self._stop_tasks(live, GRACE)

        self.loop.call_later(limit, self.later, over)

    def _limit_run(self, live: Live, since: float) -> None:
        """The time that a run may take begins when something of it is admitted: to wait in line costs none of it."""
        limit, live.limit = live.limit, None
        assert limit is not None
        left = limit - min(max(0.0, self.now() - since), limit)
        live.timer = self.loop.call_later(left, self.later, lambda: self._run_timeout(live, limit))

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
            heir_kept.order, heir_kept.lane, heir_kept.timer, heir_kept.started = (
                kept.order,
                kept.lane,
                kept.timer,
                kept.started,
            )
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

    def _disown(self, live: Live, task: Task) -> None:
        """A task of a run that is not ours any more. If other runs wait for it here, it goes on as theirs."""
        self._stop_task(live, task, 0.0)
        id = extra(task).order
        if id in self.orders and self.orders[id][1] is task:
            del self.orders[id]
            self._release(task)

    def _release(self, task: Task) -> None:
        flight = self.shares.flights.get(task.key)
        if flight is not None and flight.owner[1] is not task:
            return  # while it was being stopped, somebody else has begun the same: the key is theirs
        if task.key:
            self.shares.land(task.key)
            self.batch.released.append(task.key)
