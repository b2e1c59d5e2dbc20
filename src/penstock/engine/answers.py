"""Steps that wait for an answer from outside: their tokens, and what comes or does not come. Called by Dispatcher.

The token of an attempt is made when the attempt starts, and its digest is recorded with the start. Once the action has ended, nothing of the
attempt is left but a row of the store and a timer: no process, no permit of a queue, no place under a limit of the run. An answer is a fact
of the store from the moment it is given, also while the action runs or no engine lives; the request that comes with it only says: look.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from penstock.artifacts.values import loads
from penstock.backends.base import AttemptEnded, AttemptSpec
from penstock.engine.active_run import TIMED_OUT, ActiveRun, Execution, execution
from penstock.engine.follow import PAYLOAD_WAIT, row_key
from penstock.engine.journal import Journal
from penstock.engine.steps import Task
from penstock.engine.timers import TurnTimers
from penstock.engine.values import given_seconds
from penstock.expressions.evaluate import EvaluationError, evaluate
from penstock.expressions.secret import TOKEN, URL, Secret, joined
from penstock.graph import model
from penstock.graph.model import Answer, Outcome, Pod, Step, Suspend
from penstock.graph.stored import Stored
from penstock.store.answers import digest_of, token_of
from penstock.store.records import AnswerRow

if TYPE_CHECKING:
    from penstock.store.protocols import AnswerStore

TOKEN_ENV: Final = "PENSTOCK_CALLBACK_TOKEN"
URL_ENV: Final = "PENSTOCK_CALLBACK_URL"
AGAIN: Final = 1.0
"""Seconds before the store is asked again when it was away."""
LONGEST: Final = 86400.0
"""Seconds of one timer: the wall clock is looked at in between."""


def waits_for_payloads(step: Step) -> bool:
    return isinstance(step.action, Suspend) and step.action.payloads is not None


Finish = Callable[[ActiveRun, Task, AttemptEnded], None]


class AnswerDesk:
    """`finish`: is told how a task that waited has ended. `address`: where others reach a server of this store."""

    def __init__(
        self,
        store: AnswerStore | None,
        journal: Journal,
        timers: TurnTimers,
        now: Callable[[], float],
        fetch: Callable[[Stored], Any],
        finish: Finish,
        address: str = "",
    ) -> None:
        self._store = store
        self._journal = journal
        self._timers = timers
        self._now = now
        self._fetch = fetch
        self._finish = finish
        self._address = address.rstrip("/")
        self._key = b""

    def concern(self, run: ActiveRun, task: Task) -> bool:
        asks = task.step.answer is not None or waits_for_payloads(task.step)
        return asks and self._store is not None and not run.dry

    # -- the token ----------------------------------------------------------------------------------------------------

    def asked(self, run: ActiveRun, task: Task, spec: AttemptSpec) -> AttemptSpec:
        """The attempt as one that is given a token, which is recorded. Raises EvaluationError."""
        answer = task.step.answer
        assert answer is not None
        self._limits(task, answer)
        secret = Secret("", TOKEN, "")
        env = {TOKEN_ENV: secret} | ({URL_ENV: Secret("", URL, "")} if self._address else {})
        action, inputs = _with_env(spec.action, env), dict(spec.inputs)
        if answer.token_as is not None:
            text = evaluate(answer.token_as, self._view(task))
            if isinstance(text, str) and text:
                inputs = _swapped(inputs, text, secret)
                values = {name: _swapped(value, text, secret) for name, value in model.action_values(action)}
                action = model.with_values(action, values)
        row = (digest_of(self._token(run, task)), run.number, task.path, task.attempt)
        self._journal.batch.asked.append(row)
        # What it gives comes with the answer.
        return dataclasses.replace(
            spec, action=action, inputs=inputs, step=dataclasses.replace(spec.step, outputs=(), answer=None)
        )

    def texts(self, run: ActiveRun, task: Task) -> dict[str, str]:
        """What takes the place of `callback.token` and `callback.url` when the attempt starts."""
        if not self.concern(run, task):
            return {}
        token = self._token(run, task)
        return {TOKEN: token} | ({URL: f"{self._address}/callbacks/{token}"} if self._address else {})

    def _token(self, run: ActiveRun, task: Task) -> str:
        assert self._store is not None
        if not self._key:
            self._key = self._journal.read(self._store.key)
        return token_of(self._key, run.number, run.record.created, task.path, task.attempt)

    def _view(self, task: Task) -> dict[str, Any]:
        plan = task.state.plan
        return plan.within(task.state.scope.view, task.inputs, task.item, self._fetch)

    def _limits(self, task: Task, answer: Answer) -> tuple[float, float]:
        """(within, heartbeat) in seconds; 0: no limit. Raises EvaluationError."""
        found = []
        for name, fixed, by in (
            ("within", answer.within, answer.within_by),
            ("heartbeat", answer.heartbeat, answer.heartbeat_by),
        ):
            some = [] if fixed is None else [fixed]
            if by is not None and (given := evaluate(by, self._view(task))) is not None:
                some.append(given_seconds(given, f"answer.{name}_by"))
            found.append(max(min(some, default=0.0), 1e-3) if some else 0.0)
        return found[0], found[1]

    # -- waiting ------------------------------------------------------------------------------------------------------

    def meant(self, run: ActiveRun, task: Task, report: AttemptEnded) -> AttemptEnded | None:
        """The action has ended. What that means: what was answered meanwhile, else its own end; None: the task waits now."""
        row = self._row(run, task)
        if row is not None and row.state == "answered":
            return _as_answered(row, report)
        if report.outcome is not Outcome.SUCCEEDED or execution(task).timed_out:
            return report
        answer = task.step.answer
        assert answer is not None
        try:
            within, heartbeat = self._limits(task, answer)
        except EvaluationError as error:
            return dataclasses.replace(report, outcome=Outcome.ERRORED, message=str(error), outputs={})
        self._wait(run, task, report, within, heartbeat)
        if row is None:  # the store was away: what it may know is looked for later
            self._timers.after(AGAIN, lambda: self.look(run, task.path))
        return None

    def _wait(self, run: ActiveRun, task: Task, report: AttemptEnded, within: float, heartbeat: float) -> None:
        now = self._now()
        until = now + within if within else 0.0
        self._journal.batch.awaited.append((until, heartbeat, now, run.number, task.path, task.attempt))
        ran: dict[str, Any] = {"seconds": round(report.seconds, 6)}
        if report.cpu is not None:
            ran["cpu_seconds"] = round(report.cpu, 6)
        if report.log:
            ran["log"] = report.log
        limits = {name: value for name, value in (("within", within), ("heartbeat", heartbeat)) if value}
        if waits_for_payloads(task.step):
            said: dict[str, Any] = {"payloads": len(task.action.payloads)}  # type: ignore[union-attr]
        else:
            said = {"ran": ran}
        run.note("task.suspended", task.path, {"attempt": task.attempt, "answer": True, **limits, **said})
        info = (
            {"answer": True, **limits}
            | ({"payloads": said["payloads"]} if "payloads" in said else {})
            | ({"until": until} if until else {})
            | ({"log": report.log} if report.log else {})
        )
        run.row(task, "suspended", json.dumps(info))
        run.state.ready.free(task)
        execution(task).ran = ran
        run.prompts[task.path] = f"{task.path} waits for an answer"
        self._arm(run, task, min(until or float("inf"), now + heartbeat if heartbeat else float("inf")))

    def wait_for_payloads(self, run: ActiveRun, task: Task) -> None:
        """The answer is how they have ended. A courier looks at them once this is recorded, and whenever one of them ends."""
        action = task.action
        assert isinstance(action, Suspend)
        wanted = action.payloads
        if not isinstance(wanted, tuple | list) or not all(isinstance(one, str) for one in wanted):
            run.not_succeeded(task, "errored", {"message": "what it waits for is no list of identities of payloads"})
            return
        task.attempt += 1
        execution(task).started = self._now()
        who = (run.number, task.path, task.attempt)
        batch = self._journal.batch
        batch.asked.append((digest_of(self._token(run, task)), *who))
        batch.waited += [(one, *who) for one in dict.fromkeys(wanted)]
        self._wait(run, task, AttemptEnded(id="", outcome=Outcome.SUCCEEDED), action.duration or 0.0, 0.0)
        key = row_key(f"{run.record.id}/{task.path}", task.attempt)
        data = json.dumps({"task": task.path, "attempt": task.attempt})
        batch.outbox.append((run.number, run.seq, PAYLOAD_WAIT, data, key, self._now(), self._now()))

    def _arm(self, run: ActiveRun, task: Task, limit: float) -> None:
        own: Execution = execution(task)
        own.stop_timer()
        if limit < float("inf"):
            left = min(max(0.0, limit - self._now()), LONGEST)
            own.timer = self._timers.after(left, lambda: self.look(run, task.path))

    def go_on(self, run: ActiveRun, task: Task) -> bool:
        """Another engine had begun it. True: it waits here, or its answer is there; False: its action is to be run again."""
        own = execution(task)
        if own.state == "suspended":
            run.prompts[task.path] = f"{task.path} waits for an answer"
        else:
            row = self._row(run, task)
            if row is None or row.state != "answered":
                return False
            run.row(task, "suspended", '{"answer":true}')
        self._timers.later(lambda: self.look(run, task.path))
        return True

    def look(self, run: ActiveRun, path: str) -> None:
        """There may be an answer, or it may be too late for one."""
        task = run.state.live.get(path)
        if task is None or not run.owned or not self.concern(run, task) or execution(task).state != "suspended":
            return
        row = self._row(run, task)
        if row is None:
            self._arm(run, task, self._now() + AGAIN)
        elif row.state == "answered":
            found = _as_answered(row, AttemptEnded(id="", outcome=Outcome.SUCCEEDED))
            if waits_for_payloads(task.step):
                found.outputs = {output.name: found.outputs["payloads"] for output in task.step.outputs}
            self._over(run, task, found)
        elif row.state == "expired" or (row.limit <= self._now() and self._expire(row)):
            self._over(run, task, self._late(task, row))
        elif row.limit <= self._now():
            self._timers.later(lambda: self.look(run, path))  # something came in the last moment
        else:
            self._arm(run, task, row.limit)

    def _over(self, run: ActiveRun, task: Task, report: AttemptEnded) -> None:
        own = execution(task)
        own.stop_timer()
        run.prompts.pop(task.path, None)
        report.log = tuple(map(tuple, own.ran.get("log", ())))
        self._finish(run, task, report)

    def _late(self, task: Task, row: AnswerRow) -> AttemptEnded:
        silent = row.heartbeat and row.limit == row.beat + row.heartbeat
        within = "in time" if row.heartbeat else f"within {row.until - row.beat:g} s"
        said = f"no sign of life for {row.heartbeat:g} s" if silent else f"no answer came {within}"
        execution(task).timed_out = True
        return AttemptEnded(id="", outcome=Outcome.FAILED, exception=TIMED_OUT, message=said)

    # -- the store ----------------------------------------------------------------------------------------------------

    def _row(self, run: ActiveRun, task: Task) -> AnswerRow | None:
        store = self._store
        assert store is not None
        return self._journal.outside(lambda: store.of(run.number, task.path, task.attempt), None)

    def _expire(self, row: AnswerRow) -> bool:
        store = self._store
        assert store is not None
        return self._journal.outside(lambda: store.expire(row, self._now()), False)


def _as_answered(row: AnswerRow, report: AttemptEnded) -> AttemptEnded:
    """How the task ends by the answer, whatever its action did."""
    data = row.data
    found = AttemptEnded(
        id=report.id, outcome=Outcome.SUCCEEDED, log=report.log, seconds=report.seconds, cpu=report.cpu
    )
    if "error" in data:
        found.outcome, found.exception, found.message = Outcome.FAILED, data["error"], data["message"]
    else:
        found.outputs = loads(json.dumps(data["outputs"]))
    return found


def _with_env(action: model.Action, env: Mapping[str, Secret]) -> model.Action:
    if isinstance(action, Pod):
        parts = tuple(dataclasses.replace(part, env={**part.env, **env}) for part in action.parts)
        return dataclasses.replace(action, parts=parts)
    if isinstance(action, model.Container | model.Script | model.Function):
        return dataclasses.replace(action, env={**action.env, **env})
    return action


def _swapped(value: Any, text: str, secret: Secret) -> Any:
    """The value with the secret wherever the text stands in it."""
    if isinstance(value, str):
        parts = value.split(text)
        return value if len(parts) == 1 else joined([one for part in parts for one in (secret, part)][1:])
    if isinstance(value, tuple | list):
        return type(value)(_swapped(item, text, secret) for item in value)
    if isinstance(value, dict):
        return {key: _swapped(item, text, secret) for key, item in value.items()}
    return value
