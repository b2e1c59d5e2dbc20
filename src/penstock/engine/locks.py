"""What may start only while it holds a lock: tasks, called workflows, runs. Called by Engine.

A task asks for its locks when its turn has come, and before it requests quota: a task that holds a lock may wait for quota, but no
task holds quota, or a place under a limit of the run, while it waits for a lock. A called workflow, or the run, asks when the first
task in it could start. The store hands locks out over all engines (store.locks), in transactions of its own, so a task starts on a
lock that is on record. A lock is held until the task has ended for good, with all its retries.

Inside of what holds a lock, the same name means another lock: a task in there must not wait for what is around it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from penstock.engine.active_run import ActiveRun
from penstock.engine.blueprint import lock_names
from penstock.engine.journal import Journal
from penstock.engine.outcomes import said
from penstock.engine.run_names import RunNames, origin
from penstock.engine.single_flight import LOOK_AHEAD, Launch
from penstock.engine.steps import StepState, Task, WorkflowScope
from penstock.engine.timers import TurnTimers
from penstock.expressions.evaluate import EvaluationError
from penstock.store.records import LeaseHolder, LockRequest

if TYPE_CHECKING:
    from penstock.store.protocols import LockStore

Holder: TypeAlias = tuple[int, str]
"""The number of a run, and the path of a task in it; "" is the run itself."""
MOST_HOLDERS = 5
"""How many holders of a lock a reason names."""


class Claim:
    """What a task, a call or a run here holds, or waits for."""

    __slots__ = ("held", "names", "recorded", "run", "tasks")

    def __init__(self, run: ActiveRun, names: Mapping[str, tuple[str, int]]) -> None:
        self.run = run
        self.names = names
        """The author's name of a lock -> the store's name, and how many may hold it."""
        self.held = False
        self.recorded = False
        """It is on record that it waits."""
        self.tasks: list[Task] = []
        """Those that can start when it is held."""


class LockManager:
    def __init__(
        self,
        store: LockStore,
        journal: Journal,
        names: RunNames,
        timers: TurnTimers,
        active: Mapping[int, ActiveRun],
        priority_of: Callable[[str], int],
    ) -> None:
        self._store = store
        self._journal = journal
        self._names = names
        self._timers = timers
        self._active = active
        self._priority_of = priority_of
        """The value of a priority class."""
        self._locking: set[int] = set()
        """Runs in which anything is locked."""
        self._claims: dict[Holder, Claim] = {}
        self._holding: dict[Holder, Claim] = {}
        """Those of them that are held: few, where thousands may wait."""
        self._new: list[Holder] = []
        self._scheduled = False
        """A round is due in the next turn."""
        self._sweep = False
        """A claim that waits may have become pointless."""
        self._seen: object = None

    def __len__(self) -> int:
        return len(self._claims)

    def adopt(self, run: ActiveRun) -> None:
        """A run in which something is locked."""
        self._locking.add(run.number)

    def concerns(self, run: ActiveRun) -> bool:
        return run.number in self._locking

    # -- which tasks have to wait -------------------------------------------------------------------------------------

    def admit(self, wanted: list[Launch]) -> list[Launch]:
        """The tasks that hold their locks. The others start when they do."""
        if not self._locking:
            return wanted
        return [one for one in wanted if one[0].number not in self._locking or self._may_start(one[0], one[1])]

    def before_request(self, run: ActiveRun, state: StepState) -> None:
        """Before a step requests quota: those of its tasks that wait for a lock do not."""
        if run.number in self._locking and (state.plan.step.locks or _around(state.scope)):
            run.state.ready.preview(state, LOOK_AHEAD - len(state.line))
            for task in list(state.line):
                if not self._may_start(run, task):
                    run.state.ready.free(task)

    def _may_start(self, run: ActiveRun, task: Task) -> bool:
        """Does it hold its locks, and those around it? If not, it is started again when it does."""
        for scope in _around(task.state.scope):
            owner = scope.owner
            path = "" if owner is None else owner.path
            if not scope.halted and not self._holds(run, path, scope, task):
                return False
        return not task.step.locks or self._holds(run, task.path, None, task)

    def _holds(self, run: ActiveRun, path: str, scope: WorkflowScope | None, task: Task) -> bool:
        """Does the run, or a call, or the task itself hold its locks? `scope`: what is inside of it; None: the task itself."""
        claim = self._claims.get((run.number, path))
        if claim is None:
            try:
                names = _lock_names(run, scope, task)
            except (EvaluationError, KeyError, IndexError, TypeError) as error:
                run.not_succeeded(task, "errored", {"message": f"a lock has no name: {said(error)}"})
                run.settle()
                return False
            claim = self._claims[run.number, path] = Claim(run, self._stored_names(run, path, names))
            self._new.append((run.number, path))
            self._schedule()
        if not claim.held:
            claim.tasks.append(task)
            if claim.recorded:
                run.waits(task, self._reason(claim, path))
        return claim.held

    def _stored_names(self, run: ActiveRun, path: str, names: Mapping[str, int]) -> dict[str, tuple[str, int]]:
        """What is held around it is not waited for. Those inside still exclude one another."""
        parts = path.split("/") if path else []
        around = [self._claims.get((run.number, "/".join(parts[:depth]))) for depth in range(len(parts))]
        found = {}
        for name, most in names.items():
            stored = name
            for depth, claim in enumerate(around):
                if claim is not None and name in claim.names:
                    stored = f"{claim.names[name][0]} in {run.record.id}/{'/'.join(parts[:depth])}"
            found[name] = (stored, most)
        return found

    # -- asking and releasing -----------------------------------------------------------------------------------------

    @property
    def scheduled(self) -> bool:
        return self._scheduled

    def _schedule(self) -> None:
        """A round in the next turn, before anything is taken."""
        if not self._scheduled:
            self._scheduled = True
            self._timers.later(self._round)

    def release_ended(self) -> None:
        """After a turn: has a holder ended?"""
        if self._claims and (self._sweep or any(self._gone(*who) for who in self._holding)):
            self._schedule()

    def tasks_stopped(self) -> None:
        """Tasks were stopped: some that waited may be among them."""
        self._sweep = bool(self._claims)

    def drop(self, run: ActiveRun) -> None:
        """The run has ended, or belongs to another engine."""
        self._locking.discard(run.number)
        self._sweep = bool(self._claims)

    def _gone(self, number: int, path: str) -> bool:
        run = self._active.get(number)
        if run is None or run is not self._claims[number, path].run:
            return True
        return path not in run.state.live if path else run.ended is not None

    def _round(self, names: Callable[[], set[str]] = set) -> None:
        """`names`: locks that others may have released."""
        gone = [who for who in (self._claims if self._sweep else self._holding) if self._gone(*who)]
        self._scheduled = self._sweep = False
        for who in gone:
            del self._claims[who]
            self._holding.pop(who, None)
        new = [who for who in self._new if who in self._claims]
        self._new.clear()
        requests = [self._request(who) for who in new]
        held = self._store.lock(self._journal.engine, requests, gone, sorted(names()))
        for who in sorted(held - self._holding.keys()):
            if who in self._claims:
                self._granted(who, self._claims[who])
        for who in new:
            if not self._claims[who].held:
                self._record_wait(who, self._claims[who])

    def _request(self, who: Holder) -> LockRequest:
        claim = self._claims[who]
        named = claim.run.state.blueprint.workflow.priority
        priority = self._priority_of(named) if isinstance(named, str) else named or 0
        return LockRequest(*who, dict(claim.names.values()), priority, claim.held)

    def _granted(self, who: Holder, claim: Claim) -> None:
        claim.held = True
        self._holding[who] = claim
        state = claim.run.state
        if claim.recorded and who[1]:
            call = state.live.get(who[1])
            if call is not None and call.state.plan.inner is not None:
                claim.run.row(call, "running")
        elif claim.recorded:
            claim.run.note("run.entered", "", {"locks": sorted(claim.names)})
        tasks, claim.tasks = claim.tasks, []
        for task in reversed(tasks):  # each goes to the front of the queue
            if state.live.get(task.path) is task:
                state.again(task)

    # -- why ----------------------------------------------------------------------------------------------------------

    def _record_wait(self, who: Holder, claim: Claim) -> None:
        """The locks were not free: that is recorded once, and that its tasks wait."""
        claim.recorded = True
        run, path = claim.run, who[1]
        reason = self._reason(claim, path)
        call = run.state.live.get(path) if path else None
        if not path:
            run.note("run.waiting", "", {"reason": reason})
        elif call is not None and call.state.plan.inner is not None:
            text = json.dumps({"reason": reason})
            run.log("task.waiting", path, text)
            run.row(call, "waiting", text)
        for task in claim.tasks:
            if run.state.live.get(task.path) is task:
                run.waits(task, reason)

    def _reason(self, claim: Claim, path: str) -> dict[str, Any]:
        """The first name that is not free, and who holds it. `of`: what needs it, if that is around the task."""
        holders = self._holders([stored for stored, _ in claim.names.values()])
        name = next((name for name, (stored, most) in claim.names.items() if len(holders[stored]) >= most), None)
        if name is None:  # free, but others are before it; or it has just been released
            name = next(iter(claim.names))
        stored, most = claim.names[name]
        reason: dict[str, Any] = {"why": "lock", "lock": name, "limit": most, "of": path}
        reason["holders"] = [origin(self._names[one.run], one.task) for one in holders[stored][:MOST_HOLDERS]]
        return reason

    def _holders(self, names: list[str]) -> dict[str, list[LeaseHolder]]:
        return self._journal.read(lambda: self._store.lock_holders(names))

    # -- other engines ------------------------------------------------------------------------------------------------

    @property
    def waits(self) -> bool:
        """Does anything here wait for a lock?"""
        return len(self._claims) > len(self._holding)

    def look(self, token: object, reaped: bool) -> None:
        """Take what other engines have released. `token`: changes with each change of the store; `reaped`: an engine was found dead."""
        if reaped or token != self._seen:
            self._seen = token
            waiting = [claim for claim in self._claims.values() if not claim.held]
            self._round(lambda: {stored for claim in waiting for stored, _ in claim.names.values()})

    def claim_again(self) -> None:
        """Another engine took this one for dead and released its locks. What is held here is requested again, as held."""
        self._new = list(self._claims)
        if self._claims:
            self._schedule()


def _around(scope: WorkflowScope) -> list[WorkflowScope]:
    """The calls around a task in which something is locked, the outermost first."""
    found = []
    at: WorkflowScope | None = scope
    while at is not None:
        owner = at.owner
        if at.blueprint.workflow.locks or (owner is not None and owner.step.locks):
            found.append(at)
        at = None if owner is None else owner.state.scope
    return found[::-1]


def _lock_names(run: ActiveRun, scope: WorkflowScope | None, task: Task) -> dict[str, int]:
    """Raises EvaluationError."""
    owner = task if scope is None else scope.owner
    fetch = run.state.values.fetch
    found: dict[str, int] = {}
    if owner is not None and owner.step.locks:
        plan, around = owner.state.plan, owner.state.scope
        found |= lock_names(owner.step.locks, plan.within(around.view, owner.inputs, owner.item, fetch))
    if scope is not None:
        for name, most in lock_names(scope.blueprint.workflow.locks, scope.view).items():
            found[name] = min(most, found.get(name, most))
    return found
