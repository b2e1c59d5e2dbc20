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
from contextlib import suppress
from typing import Any, Final

from penstock.engine.blueprint import Blueprint, Fetch, Items, Loaded, passed_on
from penstock.engine.steps import Scope, StepState, Task
from penstock.graph.evaluate import EvaluationError, evaluate, resolve
from penstock.graph.expr import Expr, references
from penstock.graph.model import MISSING, NORMAL, Outcome, Step, expressions
from penstock.plan.expand import decide, each_item

SUCCEEDED, FAILED, ERRORED, SKIPPED, OMITTED, CANCELLED = (
    Outcome.SUCCEEDED, Outcome.FAILED, Outcome.ERRORED, Outcome.SKIPPED, Outcome.OMITTED, Outcome.CANCELLED,
)  # fmt: skip
_CODES: Final = {SUCCEEDED: 2, FAILED: 3, ERRORED: 4, SKIPPED: 5, CANCELLED: 6}
_BAD: Final = frozenset({FAILED, ERRORED})
_RAN: Final = frozenset({SUCCEEDED, FAILED, ERRORED})
_PATH: Final = re.compile(r"([^\[\]#/]+)(?:\[(\d+)\])?(?:#(\d+))?\Z")
_AHEAD: Final = 4096
"""Called workflows are entered as there is room for their tasks; so many ready tasks are enough."""


class Machine:
    def __init__(
        self,
        blueprint: Blueprint,
        params: Mapping[str, Any],
        fetch: Fetch,
        lane_of: Callable[[Step], str] = lambda step: step.action.kind,
        fail_fast: bool = False,
        variant_of: Callable[[Step], str | None] | None = None,
        queues: Callable[[StepState], bool] | None = None,
    ) -> None:
        self.blueprint = blueprint
        self.fetch = fetch
        self.lane_of = lane_of
        self.fail_fast = fail_fast
        self.variant_of = variant_of
        """What sets a result apart beside its content, such as where it is made; None: it is not to be kept at all."""
        self.queues = queues
        """Which steps have to be admitted before their tasks may be taken."""
        self.asking: dict[StepState, None] = {}
        """Steps that queue and have something to start: the caller sees to their being admitted, and says so by `permit`."""
        self.freed: list[tuple[StepState, Any]] = []
        """Permits that are not needed any more, with the steps they were for."""
        self.settled_steps: list[StepState] = []
        """Steps that queue and are over."""
        self.lanes: dict[str, deque[StepState | Task]] = {}
        self.unopened: deque[StepState | Task] = deque()
        self.scopes: dict[str, Scope] = {}
        self.live: dict[str, Task] = {}
        """Tasks that have been taken and have not ended, by path."""
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
        self.outputs: dict[str, Any] = {}
        self.outcome: Outcome | None = None
        self.why = ""
        self.memo: dict[int, tuple[Any, str]] = {}
        self.attempts: dict[str, int] = {}
        """Of tasks that were started and had not ended when the log stops."""
        self.replaying = False
        self.ignored = 0
        """Events of the log that had no place."""
        self.settled = 0
        """Tasks that were over as soon as they were looked at."""
        self._enter(blueprint, dict(params), "", "", None)

    # -- taking tasks ------------------------------------------------------------------------------------------------

    def take(self, lane: str, room: int, room_for: Callable[[Step], int] | None = None) -> list[Task]:
        """Up to `room` tasks that may start now, or up to what `room_for` says of their step. They are the caller's to run, and
        to report by `ended`."""
        found: list[Task] = []
        queue = self.lanes.get(lane)
        while queue and len(found) < room:
            head = queue[0]
            if room_for is not None and len(found) >= room_for(head.step if isinstance(head, Task) else head.plan.step):
                break
            if isinstance(head, Task):
                queue.popleft()
                if head.path in self.live:
                    found.append(head)
                continue
            if not self._may_go_on(head):
                queue.popleft()
                continue
            task = self._materialise(head)
            if task is not None:
                if head.permits is not None:
                    task.permit = head.permits.pop()
                found.append(task)
        return found

    def permit(self, state: StepState, permit: Any, many: int = 1) -> None:
        """So many tasks of the step have been admitted: those in line first."""
        assert state.permits is not None
        lane = self.lanes.setdefault(self.lane_of(state.plan.step), deque())
        while many and state.line:
            task = state.line.popleft()
            task.permit = permit
            lane.append(task)
            many -= 1
        if many:
            state.permits += [permit] * many
            self._queue(state)

    def withdraw(self, state: StepState, permit: Any = None) -> list[Any]:
        """Take back the permits that no task has used: all, or those of one kind."""
        gone = [one for one in state.permits or () if permit is None or one is permit]
        state.permits = [one for one in state.permits or () if permit is not None and one is not permit]
        return gone

    def free(self, task: Task) -> None:
        """It needs no permit any more: it is over, or somebody else does its work."""
        if task.permit is not None:
            self.freed.append((task.state, task.permit))
            task.permit = None
        elif task.state.line:
            with suppress(ValueError):
                task.state.line.remove(task)

    def displace(self, task: Task) -> None:
        """Its permit is taken away: it stands in line again, unless it is being started or tried by somebody."""
        task.permit = None
        lane = self.lanes.get(self.lane_of(task.step))
        if lane is not None:
            with suppress(ValueError):
                lane.remove(task)
                self.again(task)

    def preview(self, state: StepState, most: int) -> list[Task]:
        """Look at up to `most` of the tasks that nobody has taken yet: those that are not over at once stand in line now, and
        are returned, so that what is known already need not wait."""
        found: list[Task] = []
        while len(found) < most and state.open and self._may_go_on(state, permitted=True):
            task = self._materialise(state)
            if task is not None:
                state.line.append(task)
                found.append(task)
        return found

    root: Scope

    def advance(self) -> None:
        """Enter called workflows, as many as are needed to keep everybody busy."""
        while self.unopened and sum(map(len, self.lanes.values())) < _AHEAD:
            head = self.unopened[0]
            if isinstance(head, Task):
                self.unopened.popleft()
                if head.path in self.live and head.path + "/" not in self.scopes:
                    self._call(head)
                continue
            if not self._may_go_on(head):
                self.unopened.popleft()
                continue
            task = self._materialise(head)
            if task is not None:
                self._call(task)

    def _may_go_on(self, state: StepState, permitted: bool = False) -> bool:
        if not state.open or (state.permits is not None and not state.permits and not permitted):
            state.queued = False
            return False
        limit = state.scope.blueprint.workflow.parallel
        if limit is not None and state.scope.live >= limit and state.scope.phase == "main":
            state.scope.blocked.append(state)
            return False
        return True

    def _materialise(self, state: StepState) -> Task | None:
        """The next task of a step. None if it was over at once."""
        status = state.status
        at = state.cursor
        while status[at]:
            at += 1
            if at == state.n:
                state.cursor = at
                return None
        state.cursor = at + 1
        while state.cursor < state.n and status[state.cursor]:
            state.cursor += 1
        return self._take_item(state, at)

    def _take_item(self, state: StepState, index: int, logged: bool = True) -> Task | None:
        plan, scope = state.plan, state.scope
        state.status[index] = 1
        state.live += 1
        scope.live += 1
        step = plan.step
        item = None
        task = Task(state, index, 0, state.task_path(index, 1), {})
        try:
            if state.items is not None:
                item = state.items[index]
                if step.when is not None and evaluate(step.when, {**scope.view, "item": item}) is not True:
                    self._at_once("task.skipped", task, SKIPPED, {}, f"{step.when.text} does not hold", logged)
                    return None
            task.inputs = plan.inputs(scope.params, scope.steps, scope.view, item)
        except (EvaluationError, KeyError, IndexError, TypeError) as error:
            self._at_once("task.errored", task, ERRORED, {}, f"an input has no value: {_said(error)}", logged)
            return None
        if step.loop is not None:
            return self._first_round(task, item, logged)
        return self._ready(task, item, logged)

    def _ready(self, task: Task, item: Any, logged: bool) -> Task | None:
        plan, scope = task.state.plan, task.state.scope
        if not plan.static:
            try:
                task.action = plan.action(scope.view, task.inputs, item, self.fetch)
            except (EvaluationError, KeyError, IndexError, TypeError) as error:
                self._at_once("task.errored", task, ERRORED, {}, f"{plan.kind}: {_said(error)}", logged)
                return None
        if not plan.private:
            variant = "" if self.variant_of is None else self.variant_of(plan.step)
            if variant is not None:
                task.key = plan.key(task.inputs, task.action, self.memo, variant)
        self.live[task.path] = task
        return task

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

    def _queue_task(self, task: Task) -> None:
        if task.state.plan.inner is not None:
            self.unopened.append(task)
        else:
            self.lanes.setdefault(self.lane_of(task.step), deque()).appendleft(task)

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

    def again(self, task: Task) -> None:
        """To be started once more."""
        self.live[task.path] = task
        if task.state.permits is not None and task.permit is None:
            task.state.line.appendleft(task)
            self.asking[task.state] = None
            return
        self.lanes.setdefault(self.lane_of(task.step), deque()).appendleft(task)

    # -- scopes -------------------------------------------------------------------------------------------------------

    def _enter(
        self, blueprint: Blueprint, params: dict[str, Any], prefix: str, step_prefix: str, owner: Task | None
    ) -> Scope:
        scope = Scope(blueprint, params, prefix, step_prefix, owner)
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
            if step.trigger is not None and evaluate(step.trigger, scope.view) is not True:
                return self._noted(scope, step, OMITTED, f"{step.trigger.text} does not hold", {})
            items = None
            if step.when is not None:
                holds = (
                    decide(step.when, scope.view) if step.each is not None else evaluate(step.when, scope.view) is True
                )
                if holds is False:
                    return self._noted(scope, step, SKIPPED, f"{step.when.text} does not hold", plan.defaults())
            if step.each is not None:
                items = Items(step.each.axes, scope.view, each_item)
                if not items.count:
                    return self._noted(scope, step, SKIPPED, "no items", plan.defaults())
        except (EvaluationError, ValueError, KeyError, TypeError) as error:
            return self._noted(scope, step, ERRORED, _said(error), {})
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

    def _queue(self, state: StepState) -> None:
        if state.queued or not state.open:
            return
        if state.permits is not None and not state.permits:
            self.asking[state] = None
            return
        state.queued = True
        if state.plan.inner is not None:
            self.unopened.append(state)
        else:
            self.lanes.setdefault(self.lane_of(state.plan.step), deque()).append(state)

    def _noted(
        self, scope: Scope, step: Step, outcome: Outcome, why: str, outputs: dict[str, Any]
    ) -> tuple[Outcome, dict[str, Any]]:
        if not self.replaying:
            self.notes.append((f"step.{outcome}", scope.prefix + step.name, {"message": why}, None))
        return outcome, outputs

    def _task_over(self, task: Task, outcome: Outcome, outputs: dict[str, Any], why: str) -> None:
        state = task.state
        scope = state.scope
        state.status[task.index] = _CODES[outcome]
        state.live -= 1
        scope.live -= 1
        state.done += 1
        self.free(task)
        number = state.plan.number
        if state.items is None:
            if outcome in _BAD:
                self._failed(scope, number, why or f"{task.path} {outcome}")
            self._settle(scope, self._step_over(scope, number, outcome, outputs))
        else:
            state.tally[outcome] = state.tally.get(outcome, 0) + 1
            if outcome is SUCCEEDED:
                for name, value in outputs.items():
                    column = state.columns.get(name)
                    if column is None:
                        column = state.columns[name] = [MISSING] * state.n
                    column[task.index] = value
            elif outcome in _BAD:
                self._failed(scope, number, why or f"{task.path} {outcome}")
            if state.done == state.n:
                self._settle(scope, self._step_over(scope, number, *_gathered(state)))
            elif not state.queued and state.open:
                self._queue(state)
        while scope.blocked:
            other = scope.blocked.popleft()
            other.queued = False
            if other.open:
                self._queue(other)
                break
        self._scope_moves(scope)

    def _failed(self, scope: Scope, number: int, why: str) -> None:
        if number < scope.blueprint.main and not scope.failures:
            scope.why = scope.why or why
        if number not in scope.failures[-1:]:
            scope.failures.append(number)
        if (
            (scope.blueprint.workflow.fail_fast or (self.fail_fast and scope.phase == "main"))
            and not scope.halted
            and number < scope.blueprint.main
        ):
            self._halt(self.root if self.fail_fast else scope, "fail fast", why)

    def _step_over(self, scope: Scope, number: int, outcome: Outcome, outputs: dict[str, Any]) -> list[int]:
        """The step has ended; returns the steps that wait for nothing any more."""
        plan = scope.blueprint.plans[number]
        scope.outcomes[number] = outcome
        state = scope.states[number]
        if state is not None and state.permits is not None:
            self.asking.pop(state, None)
            self.settled_steps.append(state)
        scope.states[number] = None
        scope.steps[plan.step.name] = {"outputs": Loaded(outputs, self.fetch), "outcome": outcome.value}
        if outcome in _BAD and number not in scope.failures:
            self._failed(scope, number, f"{scope.prefix}{plan.step.name} {outcome}")
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
        scope.outcome = self._outcome_of(scope)
        handlers = len(blueprint.plans) - blueprint.main
        if not handlers or scope.halt == "now":
            self._scope_over(scope)
            return
        scope.phase = "exit"
        scope.left = handlers
        scope.view["workflow"] = {"outcome": scope.outcome.value, "name": blueprint.workflow.name, "message": scope.why}
        self._settle(scope, [i for i in range(blueprint.main, len(blueprint.plans)) if not scope.waiting[i]])
        self._scope_moves(scope)

    def _outcome_of(self, scope: Scope) -> Outcome:
        """Failed if a step failed and nothing that asked for that has run."""
        if scope.halt in ("cancelled", "now"):
            return CANCELLED
        if scope.halt == "timeout":
            return FAILED
        plans, outcomes = scope.blueprint.plans, scope.outcomes
        for number in set(scope.failures):
            if number >= scope.blueprint.main:
                continue
            if outcomes[number] in _BAD and not any(outcomes[follower] in _RAN for follower in plans[number].followers):
                return FAILED
        return SUCCEEDED

    def _scope_over(self, scope: Scope) -> None:
        scope.phase = "done"
        assert scope.outcome is not None
        if scope.outcome is SUCCEEDED:
            main = scope.blueprint.main
            if any(outcome in _BAD for outcome in scope.outcomes[main:]):
                scope.outcome, scope.why = FAILED, scope.why or "an exit handler failed"
        outputs, problem = self._results(scope)
        if problem and scope.outcome is SUCCEEDED:
            scope.outcome, scope.why = ERRORED, problem
        if scope.owner is None:
            self.outcome = FAILED if scope.outcome is ERRORED else scope.outcome
            self.outputs, self.why = outputs, scope.why or scope.halted
            return
        owner = scope.owner
        del self.scopes[scope.prefix]
        self._called_over(owner, scope.outcome, outputs, scope.why or scope.halted)

    def recall(self, owner: Task) -> None:
        """Enter a called workflow again, because it failed and its step is to be tried again."""
        self.called.pop(owner.path, None)
        self._call(owner)

    def _called_over(self, owner: Task, outcome: Outcome, outputs: dict[str, Any], why: str) -> None:
        if outcome in _BAD and owner.step.retry is not None and not owner.state.scope.halted:
            self.called[owner.path] = (owner, outcome, why)
            return
        if not self.replaying:
            self.notes.append(
                (f"task.{outcome}", owner.path, {"follows": True, "message": why} if why else {"follows": True}, owner)
            )
        self.ended(owner, outcome, outputs, why)

    def _results(self, scope: Scope) -> tuple[dict[str, Any], str]:
        found: dict[str, Any] = {}
        problem = ""
        for output in scope.blueprint.workflow.outputs:
            if scope.outcome is not SUCCEEDED and not self._stands(scope, output.value):
                continue  # a list from which failed items are missing would pass for the whole
            try:
                found[output.name] = passed_on(output.value, scope.view)
            except (EvaluationError, KeyError, TypeError) as error:
                if output.default is not MISSING:
                    found[output.name] = resolve(output.default, {})
                else:
                    problem = problem or f"the output {output.name} has no value: {_said(error)}"
        return found, problem

    def _stands(self, scope: Scope, value: Any) -> bool:
        """Did every step that this value reads succeed, or was skipped?"""
        names = {
            path[1] for expr in expressions(value) for path in references(expr.text) if path[0] == "steps" and path[1:]
        }
        return all(
            scope.outcomes[scope.blueprint.number[name]] in NORMAL for name in names if name in scope.blueprint.number
        )

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
            outcome, outputs = _gathered(state) if state.items is not None else (CANCELLED, {})
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
        return self._take_item(state, index, logged=False)

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


def _gathered(state: StepState) -> tuple[Outcome, dict[str, Any]]:
    """How a looped step ended, and its outputs as lists of what succeeded, in order."""
    tally = state.tally
    outcome = next((one for one in (FAILED, ERRORED, CANCELLED, SUCCEEDED) if tally.get(one)), SKIPPED)
    outputs: dict[str, Any] = {}
    for output in state.plan.named_outputs:
        column = state.columns.get(output.name, ())
        outputs[output.name] = [value for value in column if value is not MISSING]
    return outcome, outputs


def _said(error: Exception) -> str:
    return f"there is no {error}" if isinstance(error, KeyError) else str(error)
