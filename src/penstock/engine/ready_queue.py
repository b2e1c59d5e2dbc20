"""Which tasks of a run may start next, and in which order. Owned by RunState, which makes the tasks.

Steps start in the order in which they are ready, and those that are ready together in source order, also if one of them is a call or
needs quota: a step has its place from the moment when it is ready, and keeps it. A task that needs quota waits for a permit before it
gets into a lane. A lane is the queue of one backend. Where the run limits how many tasks run at a time, tasks beyond the limit are held
back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final, Protocol

from penstock.engine.effects import CallReady, Emit, QuotaFreed, QuotaWanted
from penstock.engine.lane import Lane
from penstock.engine.steps import StepState, Task, WorkflowScope
from penstock.graph.model import Step

_AHEAD: Final = 4096
"""Ready tasks beyond which no further called workflow is entered."""


class TaskSource(Protocol):
    """What the queue needs of a run: it makes tasks, and enters called workflows."""

    @property
    def root(self) -> WorkflowScope: ...

    @property
    def live(self) -> Mapping[str, Task]:
        """Tasks that were taken and have not ended, by path."""
        ...

    @property
    def scopes(self) -> Mapping[str, WorkflowScope]:
        """Calls of workflows that have not ended, by prefix."""
        ...

    def take_item(self, state: StepState, index: int) -> Task | None:
        """The task of one item. None if it ended at once."""
        ...

    def call(self, task: Task) -> None:
        """Enter the workflow that this task is."""
        ...


class ReadyQueue:
    def __init__(self, source: TaskSource, lane_of: Callable[[Step], str], most: int | None, emit: Emit) -> None:
        self.source = source
        self.lane_of = lane_of
        self.emit = emit
        self.lanes: dict[str, Lane] = {}
        """Backend -> what may start there: tasks, and steps that still have tasks to make."""
        self.calls: deque[StepState | Task] = deque()
        """Called workflows that have not been entered."""
        self.most = most
        """How many tasks of the run may run at a time; None: any number."""
        self.busy = 0
        """How many count against that now."""
        self.held = Lane()
        """What waits because too many run."""
        self.entering: tuple[int, ...] = ()
        """The place of the call whose workflow begins now: its first steps stand where the call stands."""
        self._added = 0
        self.asks_first = False
        """The caller looks up the results of called workflows that have a key: emit CallReady instead of entering them."""

    # -- taking tasks -------------------------------------------------------------------------------------------------

    def take(self, lane: str, room: int, room_for: Callable[[Step], int] | None = None) -> list[Task]:
        """Up to `room` tasks that may start now, or up to what `room_for` says of their step."""
        found: list[Task] = []
        queue = self.lanes.get(lane)
        live = self.source.live
        while queue and len(found) < room:
            head = queue.head
            if room_for is not None and len(found) >= room_for(head.step if isinstance(head, Task) else head.plan.step):
                break
            if isinstance(head, Task):
                queue.pop()
                if head.path in live and (self.most is None or self._count(head)):
                    found.append(head)
                continue
            if not self._may_go_on(head):
                queue.pop()
                continue
            if head.cursor == head.n - 1:  # its last task
                queue.pop()
                head.queued = False
            task = self._make(head)
            if task is not None:
                if head.permits is not None:
                    task.permit = head.permits.pop()
                if self.most is not None:
                    self._count(task)
                found.append(task)
        return found

    def preview(self, state: StepState, most: int) -> list[Task]:
        """Make up to `most` further tasks of a step that waits for quota. Those that do not end at once wait for permits, and are
        returned, so that the caller can end those whose result is known. Tasks that the step has permits for are left: they start."""
        found: list[Task] = []
        while len(found) < most and state.unpermitted and self._may_go_on(state, permitted=True):
            task = self._make(state)
            if task is not None:
                state.line.append(task)
                found.append(task)
        return found

    def enter_calls(self) -> None:
        """Enter called workflows, as many as keep the backends busy."""
        while self.calls and sum(map(len, self.lanes.values())) < _AHEAD:
            head = self.calls[0]
            if isinstance(head, Task):
                self.calls.popleft()
                if head.path in self.source.live and head.path + "/" not in self.source.scopes:
                    self._open_call(head)
                continue
            if not self._may_go_on(head):
                self.calls.popleft()
                continue
            task = self._make(head)
            if task is not None:
                self._open_call(task)

    def _open_call(self, task: Task) -> None:
        if task.key and self.asks_first:
            self.emit(CallReady(task))
        else:
            self.source.call(task)

    def _make(self, state: StepState) -> Task | None:
        """The next task of a step. None if it ended at once."""
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
        return self.source.take_item(state, at)

    def _may_go_on(self, state: StepState, permitted: bool = False) -> bool:
        if not state.open or (state.permits is not None and not state.permits and not permitted):
            state.queued = False
            return False
        scope = state.scope
        if scope.owner is None:
            limit = None  # the limit of the run itself is `most`
        else:
            limit = scope.blueprint.workflow.parallel
        if limit is not None and scope.live >= limit and scope.phase == "main" and state.plan.slot:
            scope.blocked.append(state)
            return False
        if self.most is not None and not permitted and self.busy >= self.most and self._limited(state):
            self.held.add(state)
            return False
        return True

    # -- permits ------------------------------------------------------------------------------------------------------

    def permit(self, state: StepState, permit: Any, many: int = 1) -> None:
        """So many tasks of the step are admitted. Tasks that were made already come first."""
        assert state.permits is not None
        lane = self._lane(state.plan.step)
        while many and state.line:
            task = state.line.popleft()
            task.permit = permit
            lane.add(task)
            many -= 1
        if many:
            state.permits += [permit] * many
            self.add_step(state)

    def withdraw(self, state: StepState, permit: Any = None) -> list[Any]:
        """Take back the permits that no task has used: all of them, or those of one allocation."""
        gone = [one for one in state.permits or () if permit is None or one is permit]
        state.permits = [one for one in state.permits or () if permit is not None and one is not permit]
        return gone

    def free(self, task: Task) -> None:
        """The task needs neither its permit nor its place under the limit: it ended, or waits, or another task computes its
        result."""
        if task.counted:
            self.uncount(task)
        if task.permit is not None:
            self.emit(QuotaFreed(task.state, task.permit))
            task.permit = None
        elif task.state.line:
            with suppress(ValueError):
                task.state.line.remove(task)

    def displace(self, task: Task) -> None:
        """Its permit is taken away. It waits for quota again, unless it is being started or retried."""
        task.permit = None
        lane = self.lanes.get(self.lane_of(task.step))
        if lane is not None and lane.remove(task):
            self.again(task)

    # -- how many run at a time in the whole run ----------------------------------------------------------------------

    def _limited(self, state: StepState) -> bool:
        """Only what runs counts: not called workflows (their tasks do), not suspended steps, never exit handlers."""
        plan = state.plan
        root = self.source.root
        return plan.inner is None and plan.slot > 0 and state.scope.phase == "main" and root.phase == "main"

    def _count(self, task: Task) -> bool:
        """Count a task among those that run. False: the limit is reached, and the task is held back."""
        assert self.most is not None
        if task.counted or task.state.plan.inner is not None or not task.state.plan.slot:
            return True
        if self.busy >= self.most and self._limited(task.state):
            self.held.add(task)
            return False
        task.counted = True
        self.busy += 1
        return True

    def uncount(self, task: Task) -> None:
        task.counted = False
        self.busy -= 1
        self.unhold()

    def unhold(self) -> None:
        """Queue again what was held back, as far as the limit allows."""
        room = (self.most or 0) - self.busy
        while self.held and (room > 0 or self.source.root.phase != "main"):
            head = self.held.pop()
            if isinstance(head, Task):
                if head.path in self.source.live:
                    self._lane(head.step).add(head)
                    room -= 1
                continue
            head.queued = False
            if head.open:
                self.add_step(head)
                room -= 1

    # -- adding -------------------------------------------------------------------------------------------------------

    def _lane(self, step: Step) -> Lane:
        name = self.lane_of(step)
        lane = self.lanes.get(name)
        if lane is None:
            lane = self.lanes[name] = Lane()
        return lane

    def add_step(self, state: StepState) -> None:
        if state.queued or not state.open:
            return
        if not state.place:
            self._added += 1
            state.place = (*self.entering, self._added)
        if state.permits is not None and not state.permits:
            self.emit(QuotaWanted(state))
            return
        state.queued = True
        if state.plan.inner is not None:
            self.calls.append(state)
        else:
            self._lane(state.plan.step).add(state)

    def add_task(self, task: Task) -> None:
        if task.state.plan.inner is not None:
            self.calls.append(task)
        else:
            self._lane(task.step).put_ahead(task)

    def again(self, task: Task) -> None:
        """The task is to be started once more."""
        state = task.state
        if state.permits is not None and task.permit is None:
            self.emit(QuotaWanted(state))
            if not state.permits:
                state.line.appendleft(task)
                return
            task.permit = state.permits.pop()  # the task that the permit was for asks again
        self._lane(task.step).put_ahead(task)
