"""What could start: tasks in lanes, in line for a permit, or held back because enough run. Called by loop through machine, which
builds on it.

Which tasks there are, and what they are given, is machine's business (`_take_item`, `_call`); in which order and when they may go
on is this one's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from penstock.engine.steps import Scope, StepState, Task
from penstock.graph.model import Step

_AHEAD: Final = 4096
"""Called workflows are entered as there is room for their tasks; so many ready tasks are enough."""


class Lines:
    root: Scope

    def __init__(self, lane_of: Callable[[Step], str], most: int | None) -> None:
        self.lane_of = lane_of
        self.asking: dict[StepState, None] = {}
        """Steps that queue and have something to start: the caller sees to their being admitted, and says so by `permit`."""
        self.freed: list[tuple[StepState, Any]] = []
        """Permits that are not needed any more, with the steps they were for."""
        self.settled_steps: list[StepState] = []
        """Steps that queue and are over."""
        self.lanes: dict[str, deque[StepState | Task]] = {}
        self.unopened: deque[StepState | Task] = deque()
        self.asks_first = False
        """Whoever calls has results of calls at hand."""
        self.doors: list[Task] = []
        """Calls of which the result may be known: the caller says `ended`, or `enter`."""
        self.scopes: dict[str, Scope] = {}
        self.live: dict[str, Task] = {}
        """Tasks that have been taken and have not ended, by path."""
        self.most = most
        """So many tasks may run at a time, whoever called them; None: any number."""
        self.busy = 0
        self.held: deque[StepState | Task] = deque()
        """What could start if fewer ran."""

    def _take_item(self, state: StepState, index: int, logged: bool = True) -> Task | None:
        """A task of a step. None if it was over at once."""
        raise NotImplementedError

    def _call(self, task: Task) -> None:
        """Enter the workflow that this task is."""
        raise NotImplementedError

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
                if head.path in self.live and (self.most is None or self._counts(head)):
                    found.append(head)
                continue
            if not self._may_go_on(head):
                queue.popleft()
                continue
            task = self._materialise(head)
            if task is not None:
                if head.permits is not None:
                    task.permit = head.permits.pop()
                if self.most is not None:
                    self._counts(task)
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
        """It needs no permit any more, nor its place among those that run: it is over, or waits, or somebody else does its
        work."""
        if task.counted:
            self._uncount(task)
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

    def advance(self) -> None:
        """Enter called workflows, as many as are needed to keep everybody busy."""
        while self.unopened and sum(map(len, self.lanes.values())) < _AHEAD:
            head = self.unopened[0]
            if isinstance(head, Task):
                self.unopened.popleft()
                if head.path in self.live and head.path + "/" not in self.scopes:
                    self._at_the_door(head)
                continue
            if not self._may_go_on(head):
                self.unopened.popleft()
                continue
            task = self._materialise(head)
            if task is not None:
                self._at_the_door(task)

    def _at_the_door(self, task: Task) -> None:
        if task.key and self.asks_first:
            self.doors.append(task)
        else:
            self._call(task)

    def enter(self, task: Task) -> None:
        """Nothing is known: what is called is to be run."""
        if task.path in self.live:
            self._call(task)

    def _may_go_on(self, state: StepState, permitted: bool = False) -> bool:
        if not state.open or (state.permits is not None and not state.permits and not permitted):
            state.queued = False
            return False
        scope = state.scope
        if scope.owner is None:
            limit = None  # of the run itself: see below
        else:
            limit = scope.blueprint.workflow.parallel
        if limit is not None and scope.live >= limit and scope.phase == "main" and state.plan.slot:
            scope.blocked.append(state)
            return False
        if self.most is not None and not permitted and self.busy >= self.most and self._limited(state):
            self.held.append(state)
            return False
        return True

    # -- so many at a time in the whole run ----------------------------------------------------------------------------

    def _limited(self, state: StepState) -> bool:
        """Only what runs counts: neither calls, whose own tasks do, nor who waits for a person. Exit handlers never wait."""
        plan = state.plan
        return plan.inner is None and plan.slot > 0 and state.scope.phase == "main" and self.root.phase == "main"

    def _counts(self, task: Task) -> bool:
        """Give a task its place among those that run. False: there is none now, and it is held back."""
        assert self.most is not None
        if task.counted or task.state.plan.inner is not None or not task.state.plan.slot:
            return True
        if self.busy >= self.most and self._limited(task.state):
            self.held.append(task)
            return False
        task.counted = True
        self.busy += 1
        return True

    def _uncount(self, task: Task) -> None:
        task.counted = False
        self.busy -= 1
        self.unhold()

    def unhold(self) -> None:
        """Fewer run than may: who was held back is queued again."""
        room = (self.most or 0) - self.busy
        while self.held and (room > 0 or self.root.phase != "main"):
            head = self.held.popleft()
            if isinstance(head, Task):
                if head.path in self.live:
                    self.lanes.setdefault(self.lane_of(head.step), deque()).append(head)
                    room -= 1
                continue
            head.queued = False
            if head.open:
                self._queue(head)
                room -= 1

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

    # -- putting in line ---------------------------------------------------------------------------------------------------

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

    def _queue_task(self, task: Task) -> None:
        if task.state.plan.inner is not None:
            self.unopened.append(task)
        else:
            self.lanes.setdefault(self.lane_of(task.step), deque()).appendleft(task)

    def again(self, task: Task) -> None:
        """To be started once more."""
        self.live[task.path] = task
        state = task.state
        if state.permits is not None and task.permit is None:
            self.asking[state] = None
            if not state.permits:
                state.line.appendleft(task)
                return
            task.permit = state.permits.pop()  # what it was for asks again
        self.lanes.setdefault(self.lane_of(task.step), deque()).appendleft(task)
