"""The state of a run as the fold of its log: which tasks may start, what has ended, what follows. Called by the engine's parts
through ActiveRun, and by the forecast of `penstock plan`. Pure: no I/O, no clock.

Facts come in through methods (`ended`, `cancel`, `time_out`, `permit`, …), live or from the log (see replay). What follows from a
fact (a step is skipped, a loop is expanded, a workflow ends) is worked out at once and goes out as effects.

A task's path is its step's path with the number of the item and of the round: `outer[2]/refine[0]#3`.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Mapping
from heapq import heappop, heappush
from typing import Any, Final

from penstock.engine.blueprint import Blueprint, loaded
from penstock.engine.effects import (
    CallFailed,
    CallOpened,
    CallSucceeded,
    Emit,
    Noted,
    StepSettled,
    StopTask,
    TaskSettled,
)
from penstock.engine.outcomes import BAD, ENOUGH, enough_of, failures_of, gathered, handlers_failed, outcome_of, said
from penstock.engine.ready_queue import ReadyQueue
from penstock.engine.steps import StepState, Task, WorkflowScope
from penstock.engine.values import Values
from penstock.expressions.evaluate import EvaluationError, resolve
from penstock.graph.model import MISSING, Outcome, Step
from penstock.graph.stored import Stored

SUCCEEDED, FAILED, ERRORED = Outcome.SUCCEEDED, Outcome.FAILED, Outcome.ERRORED
SKIPPED, OMITTED, CANCELLED = Outcome.SKIPPED, Outcome.OMITTED, Outcome.CANCELLED
_NO_ERROR: Final[Mapping[str, str]] = {}
_WORDS: Final = {outcome: outcome.value for outcome in Outcome}
_CODES: Final = {SUCCEEDED: 2, FAILED: 3, ERRORED: 4, SKIPPED: 5, CANCELLED: 6}
_PATH: Final = re.compile(r"([^\[\]#/]+)(?:\[(\d+)\])?(?:#(\d+))?\Z")
DEEPEST: Final = 98
"""Steps inside so many calls are an error: a workflow that calls itself might never end. With the workflow and the step that is the
hundredth level, where Argo ends it too."""
TOO_DEEP: Final = f"maximum recursion depth exceeded: it is {DEEPEST + 2} levels deep, the workflow being the first"
UNKNOWN: Final[Mapping[str, str]] = {"id": "", "created": ""}
"""What expressions read of a run that does not exist yet."""


class RunState:
    def __init__(
        self,
        blueprint: Blueprint,
        params: Mapping[str, Any],
        values: Values,
        emit: Emit,
        *,
        lane_of: Callable[[Step], str] = lambda step: step.action.kind,
        fail_fast: bool = False,
        needs_quota: Callable[[StepState], bool] | None = None,
        run: Mapping[str, str] = UNKNOWN,
    ) -> None:
        self.blueprint = blueprint
        self.run = run
        """What expressions can read of the run itself."""
        self.values = values
        self.emit = emit
        self.fail_fast = fail_fast
        self.needs_quota = needs_quota
        """Which steps have to be admitted before their tasks may start; None: no step."""
        self.scopes: dict[str, WorkflowScope] = {}
        self.live: dict[str, Task] = {}
        """Tasks that were taken and have not ended, by path."""
        self.failed_calls: dict[str, tuple[Task, Outcome, str]] = {}
        """Called workflows that failed and may be retried: `recall` or `give_up`."""
        self.outputs: dict[str, Any] = {}
        self.outcome: Outcome | None = None
        self.why = ""
        self.ignored = 0
        """Events of the log that match no task."""
        self.settled = 0
        """Tasks that ended as soon as they were looked at."""
        self.ready = ReadyQueue(self, lane_of, blueprint.workflow.parallel, emit)
        self._returns: deque[tuple[Task, Outcome, dict[str, Any], str]] = deque()
        self._returning = False
        self.root = self._scope(blueprint, dict(params), "", "", None)
        self._begin(self.root)

    # -- tasks --------------------------------------------------------------------------------------------------------

    def take_item(self, state: StepState, index: int) -> Task | None:
        """The task of one item. None if it ended at once."""
        plan, scope = state.plan, state.scope
        state.status[index] = 1
        state.live += 1
        scope.live += plan.slot
        step = plan.step
        item = None
        task = Task(state, index, 0, state.task_path(index, 1), {})
        try:
            if state.items is not None:
                item = state.items[index]
                if step.when is not None and not self.values.item_wanted(scope, step.when, item):
                    self._settle_task("task.skipped", task, SKIPPED, {}, f"{step.when.text} does not hold")
                    return None
            if scope.depth >= DEEPEST:
                self._settle_task("task.errored", task, ERRORED, {}, TOO_DEEP)
                return None
            task.inputs = self.values.inputs(scope, plan, item)
        except (EvaluationError, KeyError, IndexError, TypeError) as error:
            self._settle_task("task.errored", task, ERRORED, {}, f"an input has no value: {said(error)}")
            return None
        if step.loop is not None:
            return self._first_round(task, item)
        return self._ready(task, item)

    def _ready(self, task: Task, item: Any) -> Task | None:
        plan = task.state.plan
        try:
            if not plan.static:
                self.values.resolve(task, item)
            self.values.limit(task, item)
            self.values.give_key(task, item)
        except (EvaluationError, KeyError, IndexError, TypeError) as error:
            self._settle_task("task.errored", task, ERRORED, {}, f"{plan.kind}: {said(error)}")
            return None
        self.live[task.path] = task
        return task

    def renew(self, task: Task) -> None:
        """The task is retried, and its action may depend on the number of the try."""
        if task.state.plan.anew:
            self.values.resolve(task, task.item)

    def _settle_task(self, kind: str, task: Task, outcome: Outcome, outputs: dict[str, Any], why: str) -> None:
        self.settled += 1
        self.emit(TaskSettled(kind, task, outcome, outputs, why))
        self._task_over(task, outcome, outputs, why)

    # -- rounds of a while loop ---------------------------------------------------------------------------------------

    def _first_round(self, task: Task, item: Any) -> Task | None:
        loop = task.step.loop
        assert loop is not None
        task.round = 1
        if loop.test == "before":
            try:
                holds = self.values.holds(task, loop.condition, item, None)
            except EvaluationError as error:
                self._settle_task("task.errored", task, ERRORED, {}, str(error))
                return None
            if not holds:
                outputs = {output: task.inputs[name] for name, output in loop.carry.items() if name in task.inputs}
                why = "no round: the condition does not hold"
                self._settle_task("task.succeeded", task, SUCCEEDED, outputs, why)
                return None
        return self._ready(task, item)

    def _next_round(self, task: Task, outputs: dict[str, Any]) -> tuple[Outcome, str] | None:
        """After a round that succeeded. None: another one follows; otherwise how the task ended."""
        loop = task.step.loop
        assert loop is not None
        if not self.values.may_repeat(task):
            return SUCCEEDED, ""
        state = task.state
        item = None if state.items is None else state.items[task.index]
        if task.counted:
            self.ready.uncount(task)
        inputs = {**task.inputs, **{name: outputs[output] for name, output in loop.carry.items() if output in outputs}}
        if loop.test == "before":
            task.inputs = inputs
        try:
            holds = self.values.holds(task, loop.condition, item, outputs if loop.test != "before" else None)
        except EvaluationError as error:
            return ERRORED, str(error)
        if not holds:
            return SUCCEEDED, ""
        if task.round >= loop.max_iterations:
            if loop.at_limit == "fail":
                return FAILED, f"the condition still holds after {task.round} rounds"
            return SUCCEEDED, ""
        again = Task(state, task.index, task.round + 1, state.task_path(task.index, task.round + 1), inputs)
        again.permit, task.permit = task.permit, None
        state.rounds[task.index] = again.round
        ready = self._ready(again, item)
        if ready is not None:
            self.ready.add_task(ready)
        return None

    # -- facts --------------------------------------------------------------------------------------------------------

    def ended(self, task: Task, outcome: Outcome, outputs: Mapping[str, Any], why: str = "") -> None:
        """The task is over for good."""
        self.live.pop(task.path, None)
        outputs = outputs if type(outputs) is dict else dict(outputs)
        if outcome is SUCCEEDED and task.step.loop is not None and not task.state.scope.halted:
            last = self._next_round(task, outputs)
            if last is None:
                return
            outcome, why = last[0], last[1] or why
            if outcome is not SUCCEEDED:
                path = task.state.task_path(task.index, 0)
                self.emit(Noted(f"task.{outcome}", path, {"follows": True, "message": why}, None))
        self._task_over(task, outcome, outputs, why)

    def cancel(self, why: str = "cancelled", exits: bool = True) -> None:
        """Nothing more starts but exit handlers, and those only if asked; what runs is to be stopped."""
        self._halt(self.root, "cancelled" if exits else "now", why)

    def time_out(self, path: str, why: str) -> None:
        """The run ("") or a called workflow has run out of time."""
        scope = self.scopes.get(path + "/" if path else "")
        if scope is not None:
            self._halt(scope, "timeout", why)

    # -- what may start: told to the ready queue ------------------------------------------------------------------------

    def again(self, task: Task) -> None:
        """The task is to be started once more."""
        self.live[task.path] = task
        self.ready.again(task)

    # -- scopes -------------------------------------------------------------------------------------------------------

    def _scope(
        self, blueprint: Blueprint, params: dict[str, Any], prefix: str, step_prefix: str, owner: Task | None
    ) -> WorkflowScope:
        scope = WorkflowScope(blueprint, params, prefix, step_prefix, owner, self.run)
        if any(type(value) is Stored or type(value) is list for value in params.values()):
            scope.view["params"] = loaded(params, self.values.fetch)
        self.scopes[prefix] = scope
        return scope

    def _begin(self, scope: WorkflowScope) -> None:
        self._settle(scope, [i for i in range(scope.blueprint.main) if not scope.waiting[i]])
        self._scope_moves(scope)

    def call(self, task: Task) -> None:
        """Enter the workflow that this task is."""
        plan = task.state.plan
        assert plan.inner is not None
        self.emit(CallOpened(task))
        self.live[task.path] = task
        params: dict[str, Any] = {}
        for param in plan.inner.workflow.params:
            if param.name in task.inputs:
                params[param.name] = task.inputs[param.name]
            elif param.default is not MISSING:
                params[param.name] = resolve(param.default, {})
        before, self.ready.entering = self.ready.entering, task.state.place
        self._begin(self._scope(plan.inner, params, task.path + "/", task.state.path + "/", task))
        self.ready.entering = before

    def enter(self, task: Task) -> None:
        """The answer to CallReady if the result is not known."""
        if task.path in self.live:
            self.call(task)

    def _settle(self, scope: WorkflowScope, ready: list[int]) -> None:
        """Steps that have nothing left to wait for, in the order of the workflow: each is queued, or over at once, and then others
        may be ready."""
        while ready:
            number = heappop(ready)
            ended = self._open(scope, number)
            if ended is not None:
                for follower in self._step_over(scope, number, *ended):
                    heappush(ready, follower)

    def _open(self, scope: WorkflowScope, number: int) -> tuple[Outcome, dict[str, Any]] | None:
        """Queue the step's tasks; or how it ended, if there are none."""
        plan = scope.blueprint.plans[number]
        step = plan.step
        if scope.halted and (number < scope.blueprint.main or scope.halt == "now"):
            return self._noted(scope, step, CANCELLED, scope.halted, {})
        for up, allowed in plan.edges:
            outcome = scope.outcomes[up]
            if outcome not in allowed:
                return self._noted(scope, step, OMITTED, f"{scope.blueprint.plans[up].step.name} {outcome}", {})
        at_once = beyond = None
        try:
            if step.trigger is not None and not self.values.triggered(scope, plan):
                return self._noted(scope, step, OMITTED, f"{step.trigger.text} does not hold", {})
            items = None
            if step.when is not None and self.values.wanted(scope, plan) is False:
                return self._noted(scope, step, SKIPPED, f"{step.when.text} does not hold", plan.defaults())
            if step.each is not None:
                items = self.values.items(scope, plan)
                if not items.count:
                    return self._noted(scope, step, SKIPPED, "no items", plan.defaults())
                at_once, beyond = self.values.at_once(scope, plan), self.values.beyond(scope, plan)
        except (EvaluationError, ValueError, KeyError, TypeError) as error:
            return self._noted(scope, step, ERRORED, said(error), {})
        state = StepState(scope, plan, items, at_once)
        state.enough = beyond
        if self.needs_quota is not None and plan.inner is None and self.needs_quota(state):
            state.permits = []
        scope.states[number] = state
        if items is not None:
            path = state.path if not scope.prefix else scope.prefix + step.name
            self.emit(Noted("step.ready", path, {"tasks": items.count}, None))
        self.ready.add_step(state)
        return None

    def _noted(
        self, scope: WorkflowScope, step: Step, outcome: Outcome, why: str, outputs: dict[str, Any]
    ) -> tuple[Outcome, dict[str, Any]]:
        self.emit(Noted(f"step.{outcome}", scope.prefix + step.name, {"message": why}, None))
        if outcome in BAD:
            scope.messages.setdefault(scope.blueprint.number[step.name], why)
        return outcome, outputs

    def _task_over(self, task: Task, outcome: Outcome, outputs: dict[str, Any], why: str) -> None:
        state = task.state
        scope = state.scope
        state.status[task.index] = _CODES[outcome]
        state.live -= 1
        scope.live -= state.plan.slot
        state.done += 1
        self.ready.free(task)
        number = state.plan.number
        if state.items is None:
            code, error = 0, None
            if outcome in BAD:
                self._failed(scope, number, outcome, why or f"{task.path} {outcome}")
                code, error = task.exit_code, task.error or {"name": str(outcome), "message": why}
            self._settle(scope, self._step_over(scope, number, outcome, outputs, code, error))
        else:
            state.tally[outcome] = state.tally.get(outcome, 0) + 1
            if outcome is SUCCEEDED:
                for name, value in outputs.items():
                    column = state.columns.get(name)
                    if column is None:
                        column = state.columns[name] = [MISSING] * state.n
                    column[task.index] = value
            elif outcome in BAD:
                self._failed(scope, number, outcome, why or f"{task.path} {outcome}")
            enough = outcome is SUCCEEDED and state.enough is not None and self._has_enough(task, outputs)
            if state.done == state.n:
                self._settle(scope, self._step_over(scope, number, *gathered(state)))
            elif enough:
                self._stop_rest(state)
            elif not state.queued and state.open:
                self.ready.add_step(state)
        if outcome is SUCCEEDED and scope.phase == "main" and not scope.halted and (found := enough_of(scope)):
            self._halt(scope, "enough", found)
        while scope.blocked:
            other = scope.blocked.popleft()
            other.queued = False
            if other.open:
                self.ready.add_step(other)
                break
        self._scope_moves(scope)

    def _failed(self, scope: WorkflowScope, number: int, outcome: Outcome, why: str) -> None:
        scope.messages.setdefault(number, why)
        if outcome in scope.blueprint.plans[number].tolerates:
            return
        if number < scope.blueprint.main and not scope.failures:
            scope.why = scope.why or why
        if number not in scope.failures[-1:]:
            scope.failures.append(number)
        workflow = scope.blueprint.workflow
        # What is judged by its leaves is a DAG of Argo's, and that goes on with its other branches while anything runs.
        asked = workflow.fail_fast and workflow.judged_by != "leaves"
        if (asked or (self.fail_fast and scope.phase == "main")) and not scope.halted and number < scope.blueprint.main:
            self._halt(self.root if self.fail_fast else scope, "fail fast", why)

    def _step_over(
        self,
        scope: WorkflowScope,
        number: int,
        outcome: Outcome,
        outputs: dict[str, Any],
        code: int | None = None,
        error: Mapping[str, str] | None = None,
    ) -> list[int]:
        """The step has ended; returns the steps that wait for nothing any more. `code`: if it was one command, its exit code; `error`:
        what it failed with."""
        plan = scope.blueprint.plans[number]
        scope.outcomes[number] = outcome
        state = scope.states[number]
        if state is not None and state.permits is not None:
            self.emit(StepSettled(state))
        scope.states[number] = None
        known = scope.steps[plan.step.name] = {
            "outputs": loaded(outputs, self.values.fetch),
            "outcome": _WORDS[outcome],
            "error": error or _NO_ERROR,
        }
        if code is not None:
            known["exit_code"] = code
        if state is not None and state.items is not None:
            known["succeeded"] = state.tally.get(SUCCEEDED, 0)
        if outcome in BAD and number not in scope.failures:
            self._failed(scope, number, outcome, f"{scope.prefix}{plan.step.name} {outcome}")
        scope.left -= 1
        ready = []
        main = scope.blueprint.main
        for follower in plan.followers:
            scope.waiting[follower] -= 1
            if not scope.waiting[follower] and (scope.phase == "exit") == (follower >= main):
                ready.append(follower)
        return ready

    def _scope_moves(self, scope: WorkflowScope) -> None:
        if scope.left == 0:
            if scope.phase == "main":
                self._main_over(scope)
            elif scope.phase == "exit":
                self._scope_over(scope)

    def _main_over(self, scope: WorkflowScope) -> None:
        blueprint = scope.blueprint
        scope.outcome = outcome_of(scope)
        handlers = len(blueprint.plans) - blueprint.main
        if not handlers or scope.halt == "now":
            self._scope_over(scope)
            return
        scope.phase = "exit"
        scope.left = handlers
        scope.view["workflow"] = {
            "outcome": scope.outcome.value,
            "name": blueprint.workflow.name,
            "message": scope.why,
            "failures": failures_of(scope),
        }
        self._settle(scope, [i for i in range(blueprint.main, len(blueprint.plans)) if not scope.waiting[i]])
        self._scope_moves(scope)

    def _scope_over(self, scope: WorkflowScope) -> None:
        scope.phase = "done"
        assert scope.outcome is not None
        if scope.outcome is SUCCEEDED and handlers_failed(scope):
            scope.outcome, scope.why = FAILED, scope.why or "an exit handler failed"
        outputs, problem = self.values.results(scope)
        if problem and scope.outcome is SUCCEEDED:
            scope.outcome, scope.why = ERRORED, problem
        if scope.owner is None:
            self.outcome = FAILED if scope.outcome is ERRORED else scope.outcome
            self.outputs, self.why = outputs, scope.why or scope.halted
            return
        del self.scopes[scope.prefix]
        self._returns.append((scope.owner, scope.outcome, outputs, scope.why or scope.halted))
        if self._returning:
            return  # calls end one after the other, not one inside the other: they may be a hundred deep
        self._returning = True
        try:
            while self._returns:
                self._called_over(*self._returns.popleft())
        finally:
            self._returning = False

    def recall(self, owner: Task) -> None:
        """Enter a called workflow again, because it failed and its step is to be tried again."""
        self.failed_calls.pop(owner.path, None)
        self.call(owner)

    def accept_failure(self, path: str) -> Task:
        """The call that failed is not retried. Returns its task, whose end is still to be told."""
        return self.failed_calls.pop(path)[0]

    def give_up(self, path: str) -> None:
        """A called workflow that failed is not retried."""
        task, outcome, why = self.failed_calls.pop(path)
        self.ended(task, outcome, {}, why)

    def _called_over(self, owner: Task, outcome: Outcome, outputs: dict[str, Any], why: str) -> None:
        if outcome in BAD and owner.step.retry is not None and not owner.state.scope.halted:
            self.failed_calls[owner.path] = (owner, outcome, why)
            self.emit(CallFailed(owner, outcome, why))
            return
        if owner.key and outcome is SUCCEEDED:
            self.emit(CallSucceeded(owner, outputs))
        data = {"follows": True, "message": why} if why else {"follows": True}
        self.emit(Noted(f"task.{outcome}", owner.path, data, owner))
        self.ended(owner, outcome, outputs, why)

    # -- stopping -----------------------------------------------------------------------------------------------------

    def _halt(self, scope: WorkflowScope, kind: str, why: str) -> None:
        """Nothing more starts in this scope or below; unless it is only for a failure, what runs is stopped too."""
        phases = ("main", "exit") if kind == "now" else ("main",)
        inside = [one for prefix, one in self.scopes.items() if prefix.startswith(scope.prefix) and one.phase in phases]
        for one in inside:
            own = "dropped" if kind == "enough" and one is not scope else kind  # what it calls has not succeeded
            one.halt, one.halted = (one.halt if one.halt and kind != "now" else own), one.halted or why
        if kind != "fail fast":
            ids = set(map(id, inside))
            for task in self.live.values():
                at = task.state.scope
                if id(at) in ids and task.state.plan.inner is None and at.phase in phases:
                    self.emit(StopTask(task))
        for one in sorted(inside, key=lambda each: -len(each.prefix)):
            for state in list(one.states):
                if state is not None and (state.plan.number < one.blueprint.main or kind == "now"):
                    self._drop_rest(state, why)

    def _has_enough(self, task: Task, outputs: Mapping[str, Any]) -> bool:
        """A task of a for-each has succeeded: does the for-each have enough now?"""
        state = task.state
        assert state.enough is not None
        try:
            counts = self.values.is_one_of_enough(task, outputs)
        except (EvaluationError, ValueError, KeyError, TypeError) as error:
            why = f"{task.path}: each.enough has no value: {said(error)}"
            self._failed(state.scope, state.plan.number, ERRORED, why)
            state.tally[ERRORED] = state.tally.get(ERRORED, 0) + 1
            counts = True
            state.enough = 0
        state.enough -= counts
        return state.enough < 0

    def _stop_rest(self, state: StepState) -> None:
        """Of a for-each that has enough."""
        for task in [one for one in self.live.values() if one.state is state]:
            scope = self.scopes.get(task.path + "/")
            if state.plan.inner is None:
                self.emit(StopTask(task))
            elif scope is not None:
                self._halt(scope, "dropped", ENOUGH)
            elif self.failed_calls.pop(task.path, None) is not None:  # it waits for its next try
                self.emit(Noted("task.cancelled", task.path, {"follows": True, "message": ENOUGH}, task))
                self.ended(task, CANCELLED, {}, ENOUGH)
        self._drop_rest(state, ENOUGH)

    def _drop_rest(self, state: StepState, why: str) -> None:
        """Tasks that nobody has taken are cancelled together."""
        dropped = [index for index in range(state.n) if not state.status[index]]
        state.cursor = state.n
        if not dropped:
            return
        for index in dropped:
            state.status[index] = _CODES[CANCELLED]
        state.done += len(dropped)
        state.tally[CANCELLED] = state.tally.get(CANCELLED, 0) + len(dropped)
        where = state.scope.prefix + state.plan.step.name
        self.emit(Noted("step.cancelled", where, {"message": why, "tasks": len(dropped)}, None))
        if state.done == state.n:
            outcome, outputs = gathered(state) if state.items is not None else (CANCELLED, {})
            self._settle(state.scope, self._step_over(state.scope, state.plan.number, outcome, outputs))
            self._scope_moves(state.scope)

    # -- from the log -------------------------------------------------------------------------------------------------

    def find(self, path: str) -> Task | None:
        """The task of this path, taken if it was not yet. None if there is no such task now."""
        if path in self.live:
            return self.live[path]
        prefix, slash, last = path.rpartition("/")
        scope = self.scopes.get(prefix + slash)
        if scope is None and slash:
            owner = self.find(prefix)
            if owner is not None and owner.state.plan.inner is not None and prefix + slash not in self.scopes:
                self.call(owner)
            scope = self.scopes.get(prefix + slash)
        match = _PATH.match(last)
        if scope is None or match is None:
            return None
        number = scope.blueprint.number.get(match[1])
        state = None if number is None else scope.states[number]
        index = int(match[2] or 0)
        if state is None or index >= state.n or state.status[index]:
            return None
        found = self.take_item(state, index)
        while state.cursor < state.n and state.status[state.cursor]:
            state.cursor += 1
        return found

    def over(self, path: str) -> bool:
        """Is the task of this path over, as far as the log tells?"""
        prefix, slash, last = path.rpartition("/")
        scope = self.scopes.get(prefix + slash)
        if scope is None:
            return self.over(prefix) if slash else False
        match = _PATH.match(last)
        number = None if match is None else scope.blueprint.number.get(match[1])
        if match is None or number is None:
            return False
        state = scope.states[number]
        if state is None:
            return scope.outcomes[number] is not None
        index = int(match[2] or 0)
        if index >= state.n:
            return False
        return state.status[index] > 1 or int(match[3] or 0) < state.rounds.get(index, 0)
