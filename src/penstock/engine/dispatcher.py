"""Attempts of tasks: launched, limited in time, ended, retried, stopped. Called by Engine (what has to run, what has happened) and by
Reservations (what is preempted).

A process starts only after the transaction that records it: `launch` puts the attempt on the list, `start` hands the list to the
backends once the journal has committed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from time import monotonic
from typing import TYPE_CHECKING, Any

from penstock.artifacts.values import dumps
from penstock.backends.attempt import CannotRun
from penstock.backends.base import AttemptEnded, AttemptSpec, AttemptStarted, TakenFiles
from penstock.backends.secrets.reveal import uses_secrets
from penstock.engine import retry
from penstock.engine.active_run import AGAIN, TIMED_OUT, ActiveRun, Execution, execution
from penstock.engine.answers import AnswerDesk
from penstock.engine.backend_pool import SUSPEND, BackendPool
from penstock.engine.deadlines import Deadlines
from penstock.engine.effects import CallFailed, StopTask
from penstock.engine.file_claims import FileClaims
from penstock.engine.journal import Journal
from penstock.engine.maker import with_maker
from penstock.engine.outcomes import ENOUGH, said
from penstock.engine.quota import AdmitterQuota
from penstock.engine.run_names import origin
from penstock.engine.single_flight import Owner, SingleFlight
from penstock.engine.steps import Task
from penstock.engine.timers import TurnTimers
from penstock.errors import Problem, UserError
from penstock.expressions.evaluate import EvaluationError
from penstock.graph.model import MISSING, Function, Outcome, Suspend
from penstock.graph.paths import inside
from penstock.graph.stored import Stored

if TYPE_CHECKING:
    from penstock.store.protocols import AnswerStore

GRACE = 10.0
"""Seconds between asking a process to end and killing it."""
SHORT_GRACE = 2.0
"""The same for a task that has run out of time."""


class Dispatcher:
    def __init__(
        self,
        journal: Journal,
        pool: BackendPool,
        flights: SingleFlight,
        timers: TurnTimers,
        now: Callable[[], float],
        chance: Callable[[], float],
        fetch: Callable[[Stored], Any],
        deadlines: Deadlines,
        quota: AdmitterQuota | None = None,
        answers: AnswerStore | None = None,
        address: str = "",
    ) -> None:
        """`quota`: that of a cluster, which says more about the machines for a task. `address`: where others answer (see answers)."""
        self._journal = journal
        self._pool = pool
        self._flights = flights
        self._timers = timers
        self._now = now
        self._chance = chance
        self._fetch = fetch
        self._deadlines = deadlines
        self._quota = quota
        self.answers = AnswerDesk(answers, journal, timers, now, fetch, self._answered, address)
        self._attempts: dict[str, Owner] = {}
        """Attempts that have begun and not ended, by id."""
        self._unstarted: dict[str, list[AttemptSpec]] = {}
        """By backend: attempts that are recorded in the open transaction, and start after it."""
        self._secret: set[str] = set()
        """Attempts that are to be given secrets when they start."""
        self._texts: dict[str, Mapping[str, str]] = {}
        """Attempt -> the secrets that it was given, which its report must not hold."""
        self._over: dict[str, list[str]] = {}
        """By backend that wants to know: attempts whose end is recorded in the open transaction."""
        self._inherited: dict[tuple[int, str], tuple[ActiveRun, str, str]] = {}
        """Attempts of dead engines whose tasks have not been started again: (run, task) -> run, backend, id."""
        self._stopping: dict[int, list[Task]] = {}
        """Run -> tasks that are to be stopped."""
        self._failed_calls: dict[int, list[CallFailed]] = {}
        self._claims = FileClaims()

    @property
    def busy(self) -> bool:
        """Does any attempt run?"""
        return bool(self._attempts)

    def room(self, lane: str) -> int:
        return self._pool.room(lane) - len(self._unstarted.get(lane, ()))

    def unstarted(self, lane: str) -> int:
        return len(self._unstarted.get(lane, ()))

    # -- starting -----------------------------------------------------------------------------------------------------

    def launch(self, run: ActiveRun, task: Task, lane: str) -> None:
        if lane == SUSPEND:
            self.suspend(run, task)
            return
        self._deadlines.admitted(run, task.path)
        task.attempt += 1
        own: Execution = task.execution or execution(task)
        own.lane = lane
        own.since = own.since or task.attempt
        if self._inherited:
            _, before, id = self._inherited.pop((run.number, task.path), (run, lane, ""))
            if before != lane:
                self._note_over(before, id)
        own.started = self._now()
        if own.first is None:
            own.first = own.started
        own.timed_out = own.cancelled = False
        own.preempted = None
        try:
            if task.tries:
                run.state.renew(task)
            spec = self._spec(run, task, own.since)
            asks = self.answers.concern(run, task)
            spec = self.answers.asked(run, task, spec) if asks else spec
        except (EvaluationError, KeyError, IndexError, TypeError) as error:
            self._end(run, task, AttemptEnded(id="", outcome=Outcome.ERRORED, message=said(error)))
            return
        own.attempt_id = spec.id
        if (run.has_secrets or asks) and not run.dry and uses_secrets(spec):
            own.lane = lane = self._pool.lane_with_secrets(lane)
            self._secret.add(spec.id)
        call = self._pool.abilities(lane).call
        if call is not None:
            own.leased = not self._journal.alone
            self._end(run, task, call(spec))
            return
        self._flights.launched(run, task)
        self._attempts[spec.id] = (run, task)
        key = f',"key":"{task.key}"' if task.key else ""
        run.log("task.started", task.path, f'{{"attempt":{task.attempt},"on":"{lane}"{key}}}')
        run.row(task, "running")
        self._unstarted.setdefault(lane, []).append(spec)

    def _spec(self, run: ActiveRun, task: Task, since: int) -> AttemptSpec:
        """Raises EvaluationError."""
        plan = task.state.plan
        step = plan.step
        if plan.kind != Function.kind and not run.dry:
            step = plan.ordered(task.inputs, task.state.scope.view, task.item, self._fetch)
        if self._quota is not None and task.permit is not None:
            step = self._quota.placed(step, plan.step, task.permit.key)
        return AttemptSpec(
            id=f"{run.record.id}/{task.path}/{task.attempt}",
            run=run.record.id,
            task=task.path,
            attempt=task.attempt,
            since=since,
            step=step,
            action=task.action,
            inputs=task.inputs,
            bundle=run.bundle,
            working_directory=run.place,
            queue=self._queue_there(run, task) if self._pool.may_queue_there(plan.kind) else "",
            counted=self._quota is not None and self._quota.counts_pods and task.permit is not None,
        )

    def _queue_there(self, run: ActiveRun, task: Task) -> str:
        """The queue of the cluster that the task, or what it makes, goes into: that of the run, if no quota is held for it here."""
        if task.state.permits is not None or task.state.exempt:
            return ""
        return self._pool.queue_there(task.step, run.state.blueprint.workflow.queue)

    def start(self) -> None:
        """After the commit: what starts has been recorded, and so has what ended."""
        for key, (run, lane, id) in list(self._inherited.items()) if self._inherited else ():
            if key[1] not in run.state.live:
                del self._inherited[key]
                self._note_over(lane, id)
        if self._over and not self._journal.batch:
            over, self._over = self._over, {}
            for lane, ids in over.items():
                if (recorded := self._pool.abilities(lane).recorded) is not None:
                    recorded(ids)
        unstarted, self._unstarted = self._unstarted, {}
        for lane, specs in unstarted.items():
            reports_start = self._pool.abilities(lane).reports_start
            for spec in specs:
                owner = self._attempts.get(spec.id)
                if owner is not None and owner[1].timeout is not None and not reports_start:
                    self._limit(execution(owner[1]), spec.id, owner[1].timeout)
            self._pool.start(lane, self._with_secrets(lane, specs) if self._secret else specs)

    def _with_secrets(self, lane: str, specs: list[AttemptSpec]) -> list[AttemptSpec]:
        """Attempts that are given secrets get their texts here, when everything about them has been recorded."""
        ready = []
        for spec in specs:
            if spec.id not in self._secret or spec.id not in self._attempts:
                ready.append(spec)
                continue
            self._secret.discard(spec.id)
            run, task = self._attempts[spec.id]
            try:
                known = self.answers.texts(run, task)
                found = self._pool.revealed(spec, lane, run.secrets_beside, known)
            except (CannotRun, UserError) as error:
                self._pool.context.inbox.put(AttemptEnded(id=spec.id, outcome=Outcome.ERRORED, message=str(error)))
                continue
            self._texts[spec.id] = found.secrets
            ready.append(found)
        return ready

    # -- reports of backends ------------------------------------------------------------------------------------------

    def started(self, report: AttemptStarted) -> None:
        """Where its log is, and its process. Nothing depends on it, so it need not be written at once."""
        owner = self._attempts.get(report.id)
        if owner is None:
            return
        run, task = owner
        own = execution(task)
        if task.timeout is not None and own.timer is None and report.begun:
            self._limit(own, report.id, task.timeout)
        if report.log or report.pid:
            own.log = report.log
            waits = {"waits": report.waits} if report.waits and not report.begun else {}
            run.row(task, "running", json.dumps({"pid": report.pid, "log": report.log, **waits}))

    def ended(self, report: AttemptEnded) -> None:
        owner = self._attempts.pop(report.id, None)
        if owner is None:
            return
        run, task = owner
        if report.id in self._texts:
            report = self._pool.guarded(report, self._texts.pop(report.id))
        execution(task).stop_timer()
        if run.owned:
            self._note_over(execution(task).lane, report.id)
            self._end(run, task, report)

    def inherit(self, run: ActiveRun, task: Task) -> None:
        """A task that ran when its engine died. If nobody starts it again, its backend is told so when that is recorded."""
        own = execution(task)
        if own.since and own.lane:
            id = f"{run.record.id}/{task.path}/{own.since}"
            self._inherited[run.number, task.path] = (run, own.lane, id)

    def _note_over(self, lane: str, id: str) -> None:
        with suppress(UserError):  # a backend that is not installed any more
            if self._pool.abilities(lane).recorded is not None:
                self._over.setdefault(lane, []).append(id)

    def _end(self, run: ActiveRun, task: Task, report: AttemptEnded) -> None:
        own: Execution = task.execution or execution(task)
        own.attempt_id = ""
        own.since = 0
        if not own.cancelled and self.answers.concern(run, task):
            meant = self.answers.meant(run, task, report)
            if meant is None:
                run.settle()
                return
            if meant is not report:
                own.preempted, own.timed_out = None, False
            report = meant
        if report.outcome is Outcome.SUCCEEDED and not own.timed_out:
            self._succeeded(run, task, report)
        elif own.preempted is not None and not own.cancelled:
            self._preempted(run, task, report, own.preempted)
        elif own.cancelled:
            self._flights.release(task)
            scope = task.state.scope
            had = task.state.enough is not None and task.state.enough < 0
            why = scope.halted if scope.halt in ("enough", "dropped") else ENOUGH if had else "stopped"
            run.not_succeeded(task, "cancelled", _facts(report) | {"message": why})
        elif report.lost and (report.preempted or own.lost + 1 < retry.LOST_LIMIT):
            own.lost += not report.preempted
            run.note("task.lost", task.path, {"attempt": task.attempt, **_facts(report)})
            run.row(task, "waiting")
            self._requeue(run, task)
        else:
            if report.lost:
                report.message += f"; it has lost {own.lost + 1} workers"
            self._failed(run, task, report)
        run.settle()

    def _succeeded(self, run: ActiveRun, task: Task, report: AttemptEnded) -> None:
        if report.taken is not None and not self._is_its_own(run, task, report, report.taken):
            return
        text = dumps(report.outputs)
        if not task.key:
            run.succeeded(task, report.outputs, text, report, None)
            return
        others = self._flights.succeeded(run, task, report.outputs, text)
        run.succeeded(task, report.outputs, "", report, None)
        for other, subscriber in others:
            other.succeeded(subscriber, report.outputs, "", None, origin(run.record.id, task.path))
            other.settle()

    def _is_its_own(self, run: ActiveRun, task: Task, report: AttemptEnded, taken: TakenFiles) -> bool:
        """Did nobody else return the same files at the same time? Otherwise neither has a result, and their runs have failed."""
        path, others = self._claims.add(run, task, taken, self._oldest)
        if not self._attempts:
            self._claims.clear()
        if not others:
            return True
        names = ", ".join(one.task if one.run is run else f"{one.run.record.id}/{one.task}" for one in others)
        said = f"{task.path} and {names} returned the same file, {path}, and ran at the same time: each may have the other's content"
        fix = "give each task a file of its own, as in Path(tempfile.mkdtemp()) / 'out.gz'"
        why = str(UserError(Problem("P710", said, fix)))
        report.outcome, report.outputs, report.message = Outcome.FAILED, {}, why
        self._failed(run, task, report, final=True)
        for one in others:
            for name, key in one.results:
                if key:
                    self._flights.forget(key)
                if one.run.owned:
                    one.run.note("task.untrusted", name, {"message": why})
        for spoiled in {id(one): one for one in (run, *(one.run for one in others))}.values():
            if spoiled.owned:
                spoiled.note("run.untrusted", "", {"message": why})
                spoiled.state.time_out("", why)
        return False

    def _oldest(self) -> float:
        """Since when whatever runs now has run, by time.monotonic; a minute earlier, as the wall clock may be put back."""
        began = [execution(task).started or 0.0 for _, task in self._attempts.values()]
        return monotonic() - max(0.0, self._now() - min(began, default=self._now())) - 60.0

    def _preempted(self, run: ActiveRun, task: Task, report: AttemptEnded, why: dict[str, Any]) -> None:
        """It was stopped because its quota was taken: that is not a failure."""
        execution(task).preempted = None
        used = {} if report.cpu is None else {"cpu_seconds": round(report.cpu, 6)}
        run.note(
            "task.preempted", task.path, {"attempt": task.attempt, **why, "seconds": round(report.seconds, 6), **used}
        )
        run.row(task, "waiting", json.dumps({"reason": {"why": "preempted", **why}}))
        run.state.ready.free(task)
        self._flights.preempted(task)
        run.state.again(task)

    def _failed(self, run: ActiveRun, task: Task, report: AttemptEnded, final: bool = False) -> None:
        own = execution(task)
        task.tries += 1
        report.message = with_maker(report.message, task.state.scope, task.inputs)
        report.invalid = retry.is_invalid(report, own.timed_out, run.state.blueprint.workflow.payload is not None)
        data = _facts(report)
        if own.timed_out:
            if report.exception != TIMED_OUT:
                data["message"] = f"timed out after {task.timeout:g} s"
            data["timed_out"] = True
        kind = "errored" if report.outcome is Outcome.ERRORED and not own.timed_out else "failed"
        wait = None if final or report.invalid else self._retry_delay(task, report, own.timed_out)
        if wait is not None:
            wait = 0.0 if run.dry else wait
            data |= {"retry": round(wait, 3), "tries": task.tries}
            run.note(f"task.{kind}", task.path, {"attempt": task.attempt, **data})
            run.row(task, "retrying", json.dumps(data))
            self.retry_later(run, task, wait)
            return
        if task.key:
            told = {**data, "shared": origin(run.record.id, task.path)}
            for other, subscriber in self._flights.failed(task.key, json.dumps({"kind": kind, **told})):
                other.not_succeeded(subscriber, kind, told)
                other.settle()
        run.not_succeeded(task, kind, data)

    # -- retries ------------------------------------------------------------------------------------------------------

    def _retry_delay(self, task: Task, report: AttemptEnded, timed_out: bool) -> float | None:
        """Seconds until the next attempt. None: there is none."""
        if task.state.scope.halted:
            return None
        first = execution(task).first
        since = 0.0 if first is None else max(0.0, self._now() - first)
        return retry.delay(task.step.retry, task.tries, report, timed_out, self._chance, since)

    def retry_later(self, run: ActiveRun, task: Task, wait: float) -> None:
        own = execution(task)
        own.state = "retrying"
        own.timer = self._timers.after(wait, lambda: self._requeue(run, task))

    def _requeue(self, run: ActiveRun, task: Task) -> None:
        """To be started again. The lease of the key is kept meanwhile."""
        if run.owned and task.path in run.state.live:
            own = execution(task)
            own.timer = None
            if task.key and self._flights.in_flight(task.key):
                own.attempt_id = AGAIN
            run.state.again(task)

    def call_failed(self, run: ActiveRun, effect: CallFailed) -> None:
        self._failed_calls.setdefault(run.number, []).append(effect)

    def retry_calls(self, run: ActiveRun) -> None:
        """Called workflows that failed and have a retry policy."""
        for task, outcome, why in self._failed_calls.pop(run.number, ()):
            if task.path in run.state.failed_calls:
                self._retry_call(run, task, outcome, why)

    def _retry_call(self, run: ActiveRun, task: Task, outcome: Outcome, why: str) -> None:
        task.tries += 1
        own = execution(task)
        lasted = 0.0 if own.started is None else max(0.0, self._now() - own.started)
        wait = None
        if not any(data.get("invalid") and inside(path, task.path) for path, data in run.firsts.values()):
            wait = self._retry_delay(task, AttemptEnded(id="", outcome=outcome, message=why, seconds=lasted), False)
        data: dict[str, Any] = {"message": why}
        if wait is None:
            run.state.accept_failure(task.path)
            run.not_succeeded(task, outcome.value, data)
            return
        data |= {"retry": round(wait, 3), "tries": task.tries}
        run.note(f"task.{outcome}", task.path, {"attempt": task.attempt, **data})
        run.row(task, "retrying", json.dumps(data))
        own.timer = self._timers.after(wait, lambda: self._recall(run, task))

    def _recall(self, run: ActiveRun, task: Task) -> None:
        execution(task).timer = None
        if run.owned and task.path in run.state.failed_calls:
            run.state.recall(task)

    # -- suspended tasks ----------------------------------------------------------------------------------------------

    def suspend(self, run: ActiveRun, task: Task, logged: bool = False) -> None:
        """`logged`: it was suspended before this engine took the run over."""
        action = task.action
        assert isinstance(action, Suspend)
        if self.answers.concern(run, task):
            self.answers.wait_for_payloads(run, task)
            return
        own = execution(task)
        try:
            left = 0.0 if run.dry else _seconds(action, self._now())
        except ValueError:
            run.not_succeeded(task, "errored", {"message": f"{action.until!r} is no time such as 2026-11-19T08:00:00Z"})
            return
        if not logged:
            own.started = self._now()
            data = {"message": action.message, "seconds": left if action.until else action.duration}
            text = json.dumps({name: value for name, value in data.items() if value not in (None, "")})
            run.log("task.suspended", task.path, text)
            run.row(task, "suspended", text)
        elif left is not None:
            left = min(left, max(0.0, (own.resume_at or 0.0) - self._now()))
        if left is not None:
            given = run.supplied(task)
            own.timer = self._timers.after(left, lambda: self._resumed(run, task, given))
        else:
            wants = "".join(f" -p {output.name}=…" for output in task.step.outputs if output.default is MISSING)
            message = f"{action.message}   " if action.message else ""
            command = f"penstock resume {run.record.id}/{task.path}{wants}"
            run.prompts[task.path] = f"{task.path} waits for you: {message}{command}"

    def resume(self, run: ActiveRun, path: str, outputs: dict[str, Any]) -> None:
        """A person, or another program, lets a suspended task go on."""
        task = run.state.live.get(path)
        if task is not None:
            self._resumed(run, task, outputs)

    def _resumed(self, run: ActiveRun, task: Task, outputs: dict[str, Any]) -> None:
        if task.path in run.state.live and execution(task).state == "suspended":
            execution(task).stop_timer()
            run.prompts.pop(task.path, None)
            run.succeeded(task, outputs, dumps(outputs), None, None)
            run.settle()

    def _answered(self, run: ActiveRun, task: Task, report: AttemptEnded) -> None:
        """How a task that waited for an answer has ended."""
        if report.outcome is Outcome.SUCCEEDED:
            run.succeeded(task, report.outputs, dumps(report.outputs), None, None, report.log)
        else:
            self._failed(run, task, report)
        run.settle()

    # -- time limits of tasks -----------------------------------------------------------------------------------------

    def _limit(self, own: Execution, id: str, seconds: float) -> None:
        own.timer = self._timers.after(seconds, lambda: self._time_out(id))

    def _time_out(self, id: str) -> None:
        owner = self._attempts.get(id)
        if owner is not None:
            own = execution(owner[1])
            own.timed_out = True
            self._pool[own.lane].stop(id, SHORT_GRACE)

    # -- stopping -----------------------------------------------------------------------------------------------------

    def stop_wanted(self, run: ActiveRun, effect: StopTask) -> None:
        self._stopping.setdefault(run.number, []).append(effect.task)

    def stop_halted(self, run: ActiveRun, grace: float = GRACE) -> bool:
        """Stop the tasks of what was halted. False: nothing was."""
        if run.number not in self._stopping:
            return False
        self.stop_tasks(run, grace)
        return True

    def stop_tasks(self, run: ActiveRun, grace: float) -> None:
        for task in self._stopping.pop(run.number, ()):
            if run.state.live.get(task.path) is task:  # it may have ended in the same turn
                self._stop(run, task, grace)
        for path, (task, _, _) in list(run.state.failed_calls.items()):
            if task.state.scope.halted:
                execution(task).stop_timer()
                run.state.give_up(path)
        run.settle()

    def _stop(self, run: ActiveRun, task: Task, grace: float) -> None:
        own = execution(task)
        if own.attempt_id and own.attempt_id in self._attempts:
            successor = self._flights.leave_running(run, task)
            if successor is None:
                own.cancelled = True
                self._pool[own.lane].stop(own.attempt_id, grace)
                return
            self._hand_over(own, successor)
        else:
            self._flights.leave_waiting(run, task)
        own.stop_timer()
        run.not_succeeded(task, "cancelled", {"message": task.state.scope.halted or "stopped"})

    def _hand_over(self, own: Execution, successor: Owner) -> None:
        """Others still want the result: the attempt goes on as theirs."""
        run, task = successor
        theirs = execution(task)
        theirs.attempt_id, theirs.lane, theirs.timer, theirs.started = own.attempt_id, own.lane, own.timer, own.started
        self._attempts[own.attempt_id] = successor
        run.row(task, "running")
        own.attempt_id, own.timer = "", None

    def preempt(self, run: ActiveRun, task: Task, why: dict[str, Any]) -> bool:
        """Stop an attempt because its quota is taken away. False: none runs."""
        own = execution(task)
        if not own.attempt_id or own.attempt_id not in self._attempts:
            return False
        own.preempted = why
        own.stop_timer()
        self._pool[own.lane].stop(own.attempt_id, GRACE)
        return True

    def disown(self, runs: Iterable[ActiveRun]) -> list[tuple[str, int, str]]:
        """Runs that another engine has taken over. Their attempts end, unless other runs here wait for them. Returns the keys of
        attempts that have not started: (key, run, task), to be claimed again."""
        for run in runs:
            for task in list(run.state.live.values()):
                self._stop(run, task, 0.0)
                id = execution(task).attempt_id
                if id in self._attempts and self._attempts[id][1] is task:
                    del self._attempts[id]
                    self._flights.release(task)
        self._unstarted = {
            lane: [spec for spec in specs if spec.id in self._attempts] for lane, specs in self._unstarted.items()
        }
        owners = [self._attempts[spec.id] for specs in self._unstarted.values() for spec in specs]
        return [(task.key, run.number, task.path) for run, task in owners if task.key]

    def forget(self, run: ActiveRun) -> None:
        self._stopping.pop(run.number, None)
        self._failed_calls.pop(run.number, None)


def _seconds(action: Suspend, now: float) -> float | None:
    """How long it waits; None: for a person. Raises ValueError."""
    if action.until in (None, ""):
        return action.duration
    until = datetime.fromisoformat(str(action.until))
    if until.tzinfo is None:
        raise ValueError("no zone")
    return max(0.0, until.timestamp() - now)


def _facts(report: AttemptEnded) -> dict[str, Any]:
    """What is recorded of a report that is not a success."""
    data: dict[str, Any] = {"message": report.message}
    if report.exit_code is not None:
        data["exit_code"] = report.exit_code
    own = (("exception", report.exception), ("traceback", report.traceback), ("log", report.log))
    for name, value in (*own, ("invalid", report.invalid), ("cause", report.cause)):
        if value:
            data[name] = value
    data["seconds"] = round(report.seconds, 6)
    if report.cpu is not None:
        data["cpu_seconds"] = round(report.cpu, 6)
    if report.outputs:
        data["outputs"] = json.loads(dumps(report.outputs))
    return data
