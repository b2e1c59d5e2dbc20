"""What may start only while it holds a lock: tasks, called workflows, runs. Called by loop.

A task asks when its turn has come, and before it stands in line for quota: who holds a lock may wait for machines, but nobody holds
machines, or a place among those that run, while waiting for a lock. A called workflow, or the run, asks when the first task in it
could start. What was asked for is asked of the store, which hands it out over all engines (store.locks), in transactions of their
own: a task starts on a lock that is on record. Held until the task is over for good, whatever is tried in between.

Inside of what holds a lock the same name means another one: whoever is in there may not wait for what is around it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from penstock.engine.admitting import Admitting
from penstock.engine.blueprint import lock_names
from penstock.engine.judge import said
from penstock.engine.live import Live
from penstock.engine.lots import LOOK_AHEAD
from penstock.engine.share import origin
from penstock.engine.steps import Scope, StepState, Task
from penstock.graph.evaluate import EvaluationError
from penstock.store.base import Ask, Disconnected

Holder = tuple[int, str]
"""The number of a run, and the path of a task in it; "" is the run itself."""
MOST_HOLDERS = 5
"""So many are named when it is said who holds a lock."""


class Claim:
    """What somebody here holds, or waits for."""

    __slots__ = ("held", "live", "names", "tasks", "told")

    def __init__(self, live: Live, names: Mapping[str, tuple[str, int]]) -> None:
        self.live = live
        self.names = names
        """As its author calls it -> as the store does, and how many may hold it."""
        self.held = False
        self.told = False
        """It has been written down that it waits."""
        self.tasks: list[Task] = []
        """Those that can start when it is held."""


class Locking(Admitting):
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.locking: set[int] = set()
        """Runs in hand in which anything is locked."""
        self.claims: dict[Holder, Claim] = {}
        self.holding: dict[Holder, Claim] = {}
        """Those of them that are held: few, where thousands may wait."""
        self._new: list[Holder] = []
        self._round = False
        """A round is about to begin."""
        self._sweep = False
        """Somebody who waits may have gone."""
        self._seen: object = None

    # -- who has to wait ----------------------------------------------------------------------------------------------

    def _decide(self, wanted: list[tuple[Live, Task, str]]) -> None:
        if self.locking:
            wanted = [one for one in wanted if one[0].number not in self.locking or self._may_start(one[0], one[1])]
        super()._decide(wanted)

    def _lock_first(self, live: Live, state: StepState) -> None:
        """Before a step asks for quota: those of its tasks that have to wait for a lock do not stand in line for it."""
        if live.number in self.locking and (state.plan.step.locks or self._locked_around(state.scope)):
            live.machine.preview(state, LOOK_AHEAD - len(state.line))
            for task in list(state.line):
                if not self._may_start(live, task):
                    live.machine.free(task)

    def _locked_around(self, scope: Scope) -> bool:
        return any(True for _ in _around(scope))

    def _may_start(self, live: Live, task: Task) -> bool:
        """Does it hold all that it needs, and all that is around it? If not, it is started again when it does."""
        for scope in _around(task.state.scope):
            owner = scope.owner
            path = "" if owner is None else owner.path
            if not scope.halted and not self._holds(live, path, scope, task):
                return False
        return not task.step.locks or self._holds(live, task.path, None, task)

    def _holds(self, live: Live, path: str, scope: Scope | None, task: Task) -> bool:
        """Does the run, or a call, or the task itself hold its locks? `scope`: what is inside, unless it is the task itself."""
        claim = self.claims.get((live.number, path))
        if claim is None:
            try:
                names = _names(live, scope, task)
            except (EvaluationError, KeyError, IndexError, TypeError) as error:
                live.not_succeeded(task, "errored", {"message": f"a lock has no name: {said(error)}"})
                live.settle()
                return False
            claim = self.claims[live.number, path] = Claim(live, self._as_kept(live, path, names))
            self._new.append((live.number, path))
            self._see_to_locks()
        if not claim.held:
            claim.tasks.append(task)
            if claim.told:
                self._wait(live, task, self._reason(claim, path))
        return claim.held

    def _as_kept(self, live: Live, path: str, names: Mapping[str, int]) -> dict[str, tuple[str, int]]:
        """What is held around it is not waited for. Those who are inside still exclude one another."""
        parts = path.split("/") if path else []
        around = [self.claims.get((live.number, "/".join(parts[:depth]))) for depth in range(len(parts))]
        found = {}
        for name, most in names.items():
            kept = name
            for depth, claim in enumerate(around):
                if claim is not None and name in claim.names:
                    kept = f"{claim.names[name][0]} in {live.run.id}/{'/'.join(parts[:depth])}"
            found[name] = (kept, most)
        return found

    # -- asking and letting go ------------------------------------------------------------------------------------------

    def _see_to_locks(self) -> None:
        """In the next turn, before anything is taken."""
        if not self._round:
            self._round = True
            self.later(self._lock_round)

    def _let_go_of_locks(self) -> None:
        """After a turn: has anybody who holds one ended?"""
        if self._sweep or any(self._gone(*who) for who in self.holding):
            self._see_to_locks()

    def _stop_task(self, live: Live, task: Task, grace: float) -> None:
        super()._stop_task(live, task, grace)
        self._sweep = bool(self.claims)

    def _give_up(self, live: Live) -> None:
        super()._give_up(live)
        self.locking.discard(live.number)
        self._sweep = bool(self.claims)

    def _gone(self, number: int, path: str) -> bool:
        live = self.lives.get(number)
        if live is None or live is not self.claims[number, path].live:
            return True
        return path not in live.machine.live if path else live.ended is not None

    def _lock_round(self, names: Callable[[], set[str]] = set) -> None:
        gone = [who for who in (self.claims if self._sweep else self.holding) if self._gone(*who)]
        self._round = self._sweep = False
        for who in gone:
            del self.claims[who]
            self.holding.pop(who, None)
        new = [who for who in self._new if who in self.claims]
        self._new.clear()
        asks = [self._ask_of(who) for who in new]
        held = self.store.lock(self.me.id, asks, gone, sorted(names()))
        for who in sorted(held - self.holding.keys()):
            if who in self.claims:
                self._granted(who, self.claims[who])
        for who in new:
            if not self.claims[who].held:
                self._tell(who, self.claims[who])

    def _ask_of(self, who: Holder) -> Ask:
        claim = self.claims[who]
        return Ask(*who, dict(claim.names.values()), self._priority_of(claim.live), claim.held)

    def _priority_of(self, live: Live) -> int:
        named = live.machine.blueprint.workflow.priority
        return self._open_book().priority_of(named)[0] if isinstance(named, str) else named or 0

    def _granted(self, who: Holder, claim: Claim) -> None:
        claim.held = True
        self.holding[who] = claim
        machine = claim.live.machine
        if claim.told and who[1]:
            task = machine.live.get(who[1])
            if task is not None and task.state.plan.inner is not None:
                claim.live.row(task, "running")
        elif claim.told:
            claim.live.note("run.entered", "", {"locks": sorted(claim.names)})
        tasks, claim.tasks = claim.tasks, []
        for task in reversed(tasks):  # each goes to the front
            if machine.live.get(task.path) is task:
                machine.again(task)

    # -- why ------------------------------------------------------------------------------------------------------------

    def _tell(self, who: Holder, claim: Claim) -> None:
        """It was not free: that is written down, once, and that its tasks wait."""
        claim.told = True
        path = who[1]
        reason = self._reason(claim, path)
        call = claim.live.machine.live.get(path) if path else None
        if not path:
            claim.live.note("run.waiting", "", {"reason": reason})
        elif call is not None and call.state.plan.inner is not None:
            text = json.dumps({"reason": reason})
            claim.live.log("task.waiting", path, text)
            claim.live.row(call, "waiting", text)
        for task in claim.tasks:
            if claim.live.machine.live.get(task.path) is task:
                self._wait(claim.live, task, reason)

    def _reason(self, claim: Claim, path: str) -> dict[str, Any]:
        """The first name that is not free, and who holds it. `of`: what needs it, if it is around the task."""
        holders = self._holders([kept for kept, _ in claim.names.values()])
        name = next((name for name, (kept, most) in claim.names.items() if len(holders[kept]) >= most), None)
        if name is None:  # free, but others are before it, or it has just been let go
            name = next(iter(claim.names))
        kept, most = claim.names[name]
        reason: dict[str, Any] = {"why": "lock", "lock": name, "limit": most, "of": path}
        reason["holders"] = [origin(self._run_id(one.run), one.task) for one in holders[kept][:MOST_HOLDERS]]
        return reason

    def _holders(self, names: list[str]) -> dict[str, list[Any]]:
        while True:
            try:
                return self.store.lock_holders(names)
            except Disconnected:
                self._reconnect()

    # -- others -----------------------------------------------------------------------------------------------------------

    @property
    def waits_for_locks(self) -> bool:
        return len(self.claims) > len(self.holding)

    def _look_at_locks(self) -> None:
        """Has anything been handed to us by others, or left behind by who is gone?"""
        dead = self._dead_engines()
        if dead:
            self.bury(dead)
        if dead or self.token != self._seen:
            self._seen = self.token
            self._lock_round(lambda: {kept for c in self.claims.values() if not c.held for kept, _ in c.names.values()})

    def _forgotten(self) -> None:
        """Somebody has held us for dead, and what we held is free: what we have taken we still have."""
        self._new = list(self.claims)
        if self.claims:
            self._see_to_locks()


def _around(scope: Scope) -> list[Scope]:
    """The calls around a task in which something is locked, the outermost first."""
    found = []
    at: Scope | None = scope
    while at is not None:
        owner = at.owner
        if at.blueprint.workflow.locks or (owner is not None and owner.step.locks):
            found.append(at)
        at = None if owner is None else owner.state.scope
    return found[::-1]


def _names(live: Live, scope: Scope | None, task: Task) -> dict[str, int]:
    """Raises EvaluationError."""
    owner = task if scope is None else scope.owner
    found: dict[str, int] = {}
    if owner is not None and owner.step.locks:
        plan, around = owner.state.plan, owner.state.scope
        found |= lock_names(owner.step.locks, plan.within(around.view, owner.inputs, owner.item, live.machine.fetch))
    if scope is not None:
        for name, most in lock_names(scope.blueprint.workflow.locks, scope.view).items():
            found[name] = min(most, found.get(name, most))
    return found
