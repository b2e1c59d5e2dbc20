"""A run as the fold of its log: which tasks may start, what has ended, what follows from it. Called by loop. No I/O, no clock.

Facts come in through `started`, `ended`, `cancel`, live or from the log (`replay`); what follows from a fact (a step skipped, a
loop grown, a workflow over) is worked out here at once and is noted in `notes`, to be logged beside the fact. On replay it is
worked out again and not noted again.

A task's path is its step's path with the number of the item and of the round: `outer[2]/refine[0]#3`.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

from penstock.engine.blueprint import Blueprint, Fetch, Items, Loaded, StepPlan
from penstock.engine.judge import BAD, failures_of, gathered, handlers_failed, outcome_of, results_of, said
from penstock.engine.lines import Lines
from penstock.engine.steps import Scope, StepState, Task
from penstock.graph.evaluate import EvaluationError, evaluate, resolve
from penstock.graph.expr import Expr
from penstock.graph.model import MISSING, Outcome, Step
from penstock.plan.expand import decide, each_item

SUCCEEDED, FAILED, ERRORED, SKIPPED, OMITTED, CANCELLED = (
    Outcome.SUCCEEDED, Outcome.FAILED, Outcome.ERRORED, Outcome.SKIPPED, Outcome.OMITTED, Outcome.CANCELLED,
)  # fmt: skip
_CODES: Final = {SUCCEEDED: 2, FAILED: 3, ERRORED: 4, SKIPPED: 5, CANCELLED: 6}
_PATH: Final = re.compile(r"([^\[\]#/]+)(?:\[(\d+)\])?(?:#(\d+))?\Z")
DEEPEST: Final = 100
"""So many calls deep, and no deeper: a workflow that calls itself might never end."""
UNKNOWN: Final[Mapping[str, str]] = {"id": "", "created": ""}
"""Of a run that is none yet."""


class Machine(Lines):
    def __init__(
        self,
        blueprint: Blueprint,
        params: Mapping[str, Any],
        fetch: Fetch,
        lane_of: Callable[[Step], str] = lambda step: step.action.kind,
        fail_fast: bool = False,
        variant_of: Callable[[Step], str | None] | None = None,
        queues: Callable[[StepState], bool] | None = None,
        run: Mapping[str, str] = UNKNOWN,
    ) -> None:
        super().__init__(lane_of, blueprint.workflow.parallel)
        self.blueprint = blueprint
        self.run = run
        """What expressions can read of the run itself."""
        self.fetch = fetch
        self.fail_fast = fail_fast
        self.variant_of = variant_of
        """What sets a result apart beside its content, such as where it is made; None: it is not to be kept at all."""
        self.queues = queues
        """Which steps have to be admitted before their tasks may be taken."""
        self.notes: list[tuple[str, str, dict[str, Any], Task | None]] = []
        """(kind, path, data, task if it is one) of what followed from the last facts."""
        self.facts: list[tuple[str, Task, Outcome, dict[str, Any], str]] = []
        """Tasks that were over as soon as they were looked at: kind, task, outcome, outputs, why. To be logged as facts."""
        self.stopping: list[Task] = []
        """Tasks that are to be stopped."""
        self.opened: list[Task] = []
        """Tasks that are called workflows and have begun."""
        self.called: dict[str, tuple[Task, Outcome, str]] = {}
        """Called workflows that failed and may be tried again: `recall`, or `ended`."""
        self.kept: list[tuple[Task, dict[str, Any]]] = []
        """Calls that succeeded and have a key, with their outputs: to be kept for others."""
        self.outputs: dict[str, Any] = {}
        self.outcome: Outcome | None = None
        self.why = ""
        self.memo: dict[int, tuple[Any, str]] = {}
        self.attempts: dict[str, int] = {}
        """Of tasks that were started and had not ended when the log stops."""
        self._returns: deque[tuple[Task, Outcome, dict[str, Any], str]] = deque()
        self._returning = False
        self.replaying = False
        self.ignored = 0
        """Events of the log that had no place."""
        self.settled = 0
        """Tasks that were over as soon as they were looked at."""
        self._enter(blueprint, dict(params), "", "", None)

    def _take_item(self, state: StepState, index: int, logged: bool = True) -> Task | None:
        plan, scope = state.plan, state.scope
        state.status[index] = 1
        state.live += 1
        scope.live += plan.slot
        step = plan.step
        item = None
        task = Task(state, index, 0, state.task_path(index, 1), {})
        if plan.inner is not None and scope.depth >= DEEPEST:
            why = f"it is {DEEPEST} calls deep: a workflow that calls itself must end somewhere"
            self._at_once("task.errored", task, ERRORED, {}, why, logged)
            return None
        try:
            if state.items is not None:
                item = state.items[index]
                if step.when is not None and not self._item_wanted(scope, step.when, item):
                    self._at_once("task.skipped", task, SKIPPED, {}, f"{step.when.text} does not hold", logged)
                    return None
            task.inputs = self._inputs(scope, plan, item)
        except (EvaluationError, KeyError, IndexError, TypeError) as error:
            self._at_once("task.errored", task, ERRORED, {}, f"an input has no value: {said(error)}", logged)
            return None
        if step.loop is not None:
            return self._first_round(task, item, logged)
        return self._ready(task, item, logged)

    def _inputs(self, scope: Scope, plan: StepPlan, item: Any) -> dict[str, Any]:
        return plan.inputs(scope.params, scope.steps, scope.view, item)

    def _ready(self, task: Task, item: Any, logged: bool) -> Task | None:
        plan, scope = task.state.plan, task.state.scope
        try:
            if not plan.static:
                self._resolve(task, item)
            if plan.laid or plan.keyed:
                self._key_of(task, plan.within(scope.view, task.inputs, item, self.fetch))
            elif not plan.private:
                variant = "" if self.variant_of is None else self.variant_of(plan.step)
                if variant is not None:
                    task.key = plan.key(task.inputs, task.action, self.memo, variant)
        except (EvaluationError, KeyError, IndexError, TypeError) as error:
            self._at_once("task.errored", task, ERRORED, {}, f"{plan.kind}: {said(error)}", logged)
            return None
        self.live[task.path] = task
        return task

    def _key_of(self, task: Task, within: Mapping[str, Any]) -> None:
        plan = task.state.plan
        mounts = plan.mounts(within) if plan.laid else ()  # also where no key is made of them: it must be possible
        variant = "" if self.variant_of is None else self.variant_of(plan.step)
        if plan.private or variant is None:
            return
        if plan.keyed:
            task.key = plan.own_key(within, variant)
        else:
            task.key = plan.key(task.inputs, task.action, self.memo, variant, mounts)

    def _resolve(self, task: Task, item: Any) -> None:
        task.action = task.state.plan.action(task.state.scope.view, task.inputs, item, self.fetch, task.tries)

    def renew(self, task: Task) -> None:
        """It is tried again, and what it does hangs on how often that was. What could be worked out once can be again."""
        if task.state.plan.anew:
            self._resolve(task, task.item)

    def _at_once(
        self, kind: str, task: Task, outcome: Outcome, outputs: dict[str, Any], why: str, logged: bool
    ) -> None:
        self.settled += 1
        if logged:
            self.facts.append((kind, task, outcome, outputs, why))
        self._task_over(task, outcome, outputs, why)

    # -- rounds of a while loop --------------------------------------------------------------------------------------

    def _first_round(self, task: Task, item: Any, logged: bool) -> Task | None:
        loop = task.step.loop
        assert loop is not None
        task.round = 1
        if loop.test == "before":
            holds = self._holds(task, loop.condition, item, None)
            if holds is not True:
                if holds is None:
                    self._at_once("task.errored", task, ERRORED, {}, self.why_not, logged)
                else:
                    outputs = {output: task.inputs[name] for name, output in loop.carry.items() if name in task.inputs}
                    self._at_once(
                        "task.succeeded", task, SUCCEEDED, outputs, "no round: the condition does not hold", logged
                    )
                return None
        return self._ready(task, item, logged)

    why_not = ""

    def _holds(self, task: Task, condition: Expr, item: Any, outputs: Mapping[str, Any] | None) -> bool | None:
        scope: dict[str, Any] = {**task.state.scope.view, "inputs": Loaded(task.inputs, self.fetch)}
        if item is not None:
            scope["item"] = item
        if outputs is not None:
            scope["outputs"] = Loaded(outputs, self.fetch)
        try:
            return evaluate(condition, scope) is True
        except EvaluationError as error:
            self.why_not = f"its condition has no value: {error}"
            return None

    def _next_round(self, task: Task, outputs: dict[str, Any]) -> bool:
        """After a round that succeeded. False if it was the last, then `self.last` says how the task ended."""
        loop = task.step.loop
        assert loop is not None
        state = task.state
        item = None if state.items is None else state.items[task.index]
        self.last: tuple[Outcome, str] = (SUCCEEDED, "")
        if task.counted:
            self._uncount(task)
        inputs = {**task.inputs, **{name: outputs[output] for name, output in loop.carry.items() if output in outputs}}
        if loop.test == "before":
            task.inputs = inputs
        holds = self._holds(task, loop.condition, item, outputs if loop.test != "before" else None)
        if holds is None:
            self.last = (ERRORED, self.why_not)
            return False
        if not holds:
            return False
        if task.round >= loop.max_iterations:
            if loop.at_limit == "fail":
                self.last = (FAILED, f"the condition still holds after {task.round} rounds")
            return False
        again = Task(state, task.index, task.round + 1, state.task_path(task.index, task.round + 1), inputs)
        again.permit, task.permit = task.permit, None
        state.rounds[task.index] = again.round
        ready = self._ready(again, item, True)
        if ready is not None:
            self._queue_task(ready)
        return True

    # -- facts --------------------------------------------------------------------------------------------------------

    def ended(self, task: Task, outcome: Outcome, outputs: Mapping[str, Any], why: str = "") -> None:
        """The task is over for good."""
        self.live.pop(task.path, None)
        outputs = dict(outputs)
        if outcome is SUCCEEDED and task.step.loop is not None and not task.state.scope.halted:
            if self._next_round(task, outputs):
                return
            outcome, why = self.last[0], self.last[1] or why
            if outcome is not SUCCEEDED:
                self.notes.append(
                    (f"task.{outcome}", task.state.task_path(task.index, 0), {"follows": True, "message": why}, None)
                )
        self._task_over(task, outcome, outputs, why)

    def cancel(self, why: str = "cancelled", exits: bool = True) -> None:
        """Nothing more starts but exit handlers, and those only if asked; what runs is to be stopped."""
        self._halt(self.root, "cancelled" if exits else "now", why)

    def time_out(self, path: str, why: str) -> None:
        """The run ("") or a called workflow has run out of time."""
        scope = self.scopes.get(path + "/" if path else "")
        if scope is not None:
            self._halt(scope, "timeout", why)

    # -- scopes -------------------------------------------------------------------------------------------------------

    def _enter(
        self, blueprint: Blueprint, params: dict[str, Any], prefix: str, step_prefix: str, owner: Task | None
    ) -> Scope:
        scope = Scope(blueprint, params, prefix, step_prefix, owner, self.run)
        self.scopes[prefix] = scope
        if owner is None:
            self.root = scope
        first = [i for i in range(blueprint.main) if not scope.waiting[i]]
        self._settle(scope, first)
        self._scope_moves(scope)
        return scope

    def _call(self, task: Task) -> None:
        """Enter the workflow that this task is."""
        plan = task.state.plan
        assert plan.inner is not None
        if not self.replaying:
            self.opened.append(task)
        self.live[task.path] = task
        params: dict[str, Any] = {}
        for param in plan.inner.workflow.params:
            if param.name in task.inputs:
                params[param.name] = task.inputs[param.name]
            elif param.default is not MISSING:
                params[param.name] = resolve(param.default, {})
        self._enter(plan.inner, params, task.path + "/", task.state.path + "/", task)

    def _settle(self, scope: Scope, ready: list[int]) -> None:
        """Steps that have nothing left to wait for: each is queued, or over at once, and then others may be ready."""
        while ready:
            number = ready.pop()
            ended = self._open(scope, number)
            if ended is not None:
                ready.extend(self._step_over(scope, number, *ended))

    def _open(self, scope: Scope, number: int) -> tuple[Outcome, dict[str, Any]] | None:
        """Queue the step's tasks; or how it ended, if there are none."""
        plan = scope.blueprint.plans[number]
        step = plan.step
        if scope.halted and (number < scope.blueprint.main or scope.halt == "now"):
            return self._noted(scope, step, CANCELLED, scope.halted, {})
        for up, allowed in plan.edges:
            outcome = scope.outcomes[up]
            if outcome not in allowed:
                return self._noted(scope, step, OMITTED, f"{scope.blueprint.plans[up].step.name} {outcome}", {})
        try:
            if step.trigger is not None and not self._triggered(scope, plan):
                return self._noted(scope, step, OMITTED, f"{step.trigger.text} does not hold", {})
            items = None
            if step.when is not None and self._wanted(scope, plan) is False:
                return self._noted(scope, step, SKIPPED, f"{step.when.text} does not hold", plan.defaults())
            if step.each is not None:
                items = self._items(scope, plan)
                if not items.count:
                    return self._noted(scope, step, SKIPPED, "no items", plan.defaults())
        except (EvaluationError, ValueError, KeyError, TypeError) as error:
            return self._noted(scope, step, ERRORED, said(error), {})
        state = StepState(scope, plan, items)
        if self.queues is not None and plan.inner is None and self.queues(state):
            state.permits = []
        scope.states[number] = state
        if items is not None and not self.replaying:
            self.notes.append(
                (
                    "step.ready",
                    state.path if not scope.prefix else scope.prefix + step.name,
                    {"tasks": items.count},
                    None,
                )
            )
        self._queue(state)
        return None

    def _triggered(self, scope: Scope, plan: StepPlan) -> bool:
        return plan.step.trigger is not None and evaluate(plan.step.trigger, scope.view) is True

    def _wanted(self, scope: Scope, plan: StepPlan) -> bool | None:
        """Does its condition hold? None: that hangs on the item."""
        when = plan.step.when
        assert when is not None
        return decide(when, scope.view) if plan.step.each is not None else evaluate(when, scope.view) is True

    def _item_wanted(self, scope: Scope, when: Expr, item: Mapping[str, Any]) -> bool:
        return evaluate(when, {**scope.view, "item": item}) is True

    def _items(self, scope: Scope, plan: StepPlan) -> Items:
        assert plan.step.each is not None
        return Items(plan.step.each.axes, scope.view, each_item)

    def _noted(
        self, scope: Scope, step: Step, outcome: Outcome, why: str, outputs: dict[str, Any]
    ) -> tuple[Outcome, dict[str, Any]]:
        if not self.replaying:
            self.notes.append((f"step.{outcome}", scope.prefix + step.name, {"message": why}, None))
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
        self.free(task)
        number = state.plan.number
        if state.items is None:
            code = 0
            if outcome in BAD:
                self._failed(scope, number, outcome, why or f"{task.path} {outcome}")
                code = getattr(task, "exit_code", -1)
            self._settle(scope, self._step_over(scope, number, outcome, outputs, code))
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
            if state.done == state.n:
                self._settle(scope, self._step_over(scope, number, *gathered(state)))
            elif not state.queued and state.open:
                self._queue(state)
        while scope.blocked:
            other = scope.blocked.popleft()
            other.queued = False
            if other.open:
                self._queue(other)
                break
        self._scope_moves(scope)

    def _failed(self, scope: Scope, number: int, outcome: Outcome, why: str) -> None:
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
        self, scope: Scope, number: int, outcome: Outcome, outputs: dict[str, Any], code: int | None = None
    ) -> list[int]:
        """The step has ended; returns the steps that wait for nothing any more. `code`: if it was one command, its exit code."""
        plan = scope.blueprint.plans[number]
        scope.outcomes[number] = outcome
        state = scope.states[number]
        if state is not None and state.permits is not None:
            self.asking.pop(state, None)
            self.settled_steps.append(state)
        scope.states[number] = None
        known = scope.steps[plan.step.name] = {"outputs": Loaded(outputs, self.fetch), "outcome": outcome.value}
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

    def _scope_moves(self, scope: Scope) -> None:
        if scope.left == 0:
            if scope.phase == "main":
                self._main_over(scope)
            elif scope.phase == "exit":
                self._scope_over(scope)

    def _main_over(self, scope: Scope) -> None:
        blueprint = scope.blueprint
        scope.outcome = outcome_of(scope)
        handlers = len(blueprint.plans) - blueprint.main
        if not handlers or scope.halt == "now":
            self._scope_over(scope)
            return
        scope.phase = "exit"
        scope.left = handlers
        scope.view["workflow"] = {
            "outcome": scope.outcome.value, "name": blueprint.workflow.name, "message": scope.why, "failures": failures_of(scope),
        }  # fmt: skip
        self._settle(scope, [i for i in range(blueprint.main, len(blueprint.plans)) if not scope.waiting[i]])
        self._scope_moves(scope)

    def _scope_over(self, scope: Scope) -> None:
        scope.phase = "done"
        assert scope.outcome is not None
        if scope.outcome is SUCCEEDED and handlers_failed(scope):
            scope.outcome, scope.why = FAILED, scope.why or "an exit handler failed"
        outputs, problem = self._results(scope)
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

    def _results(self, scope: Scope) -> tuple[dict[str, Any], str]:
        return results_of(scope)

    def recall(self, owner: Task) -> None:
        """Enter a called workflow again, because it failed and its step is to be tried again."""
        self.called.pop(owner.path, None)
        self._call(owner)

    def _called_over(self, owner: Task, outcome: Outcome, outputs: dict[str, Any], why: str) -> None:
        if outcome in BAD and owner.step.retry is not None and not owner.state.scope.halted:
            self.called[owner.path] = (owner, outcome, why)
            return
        if not self.replaying:
            if owner.key and outcome is SUCCEEDED:
                self.kept.append((owner, outputs))
            self.notes.append(
                (f"task.{outcome}", owner.path, {"follows": True, "message": why} if why else {"follows": True}, owner)
            )
        self.ended(owner, outcome, outputs, why)

    # -- stopping -----------------------------------------------------------------------------------------------------

    def _halt(self, scope: Scope, kind: str, why: str) -> None:
        """Nothing more starts in this scope or below; unless it is only for a failure, what runs is stopped too."""
        phases = ("main", "exit") if kind == "now" else ("main",)
        inside = [one for prefix, one in self.scopes.items() if prefix.startswith(scope.prefix) and one.phase in phases]
        for one in inside:
            one.halt, one.halted = (one.halt if one.halt and kind != "now" else kind), one.halted or why
        if kind != "fail fast":
            ids = set(map(id, inside))
            for task in self.live.values():
                at = task.state.scope
                if id(at) in ids and task.state.plan.inner is None and at.phase in phases:
                    self.stopping.append(task)
        for one in sorted(inside, key=lambda each: -len(each.prefix)):
            for state in list(one.states):
                if state is not None and (state.plan.number < one.blueprint.main or kind == "now"):
                    self._drop_rest(state, why)

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
        if not self.replaying:
            where = state.scope.prefix + state.plan.step.name
            self.notes.append(("step.cancelled", where, {"message": why, "tasks": len(dropped)}, None))
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
                self._call(owner)
            scope = self.scopes.get(prefix + slash)
        match = _PATH.match(last)
        if scope is None or match is None:
            return None
        number = scope.blueprint.number.get(match[1])
        state = None if number is None else scope.states[number]
        index = int(match[2] or 0)
        if state is None or index >= state.n or state.status[index]:
            return None
        found = self._take_item(state, index, logged=False)
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
