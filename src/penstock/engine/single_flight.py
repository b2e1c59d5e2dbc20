"""One execution for everybody who needs the same key: reuse a result, share one that is being computed, or run. Called by Engine for
each task that may start, and by Dispatcher when an attempt ends.

Inside one engine a key that is being computed is a Flight with subscribers. Between engines the store's leases decide: a task whose
key is leased to another engine waits, and gets the result or the failure through the store.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from penstock.artifacts.blobs import Blobs
from penstock.artifacts.values import dumps, is_of, store_value
from penstock.engine.active_run import ActiveRun, execution
from penstock.engine.effects import CallReady, CallSucceeded
from penstock.engine.journal import Journal
from penstock.engine.run_names import RunNames, origin
from penstock.engine.steps import StepState, Task
from penstock.graph.stored import stored_in
from penstock.store.records import KeyClaim, LeaseHolder, Result

if TYPE_CHECKING:
    from penstock.store.protocols import ResultStore

LOOK_AHEAD = 4096
"""Tasks of a step whose results are looked up before quota is requested for them."""
Owner: TypeAlias = tuple[ActiveRun, Task]
Launch: TypeAlias = tuple[ActiveRun, Task, str]
"""A task that has to run, and the backend for it."""


@dataclass(slots=True)
class Flight:
    """A key that this engine is computing."""

    key: str
    owner: Owner
    subscribers: list[Owner] = field(default_factory=list)


class SingleFlight:
    def __init__(
        self,
        store: ResultStore,
        journal: Journal,
        names: RunNames,
        blobs: Blobs,
        now: Callable[[], float],
        is_immediate: Callable[[str], bool],
    ) -> None:
        self._store = store
        self._journal = journal
        self._names = names
        self._blobs = blobs
        self._now = now
        self._is_immediate = is_immediate
        """Does this backend compute within the transaction, so that no lease is needed?"""
        self._flights: dict[str, Flight] = {}
        self._remote: dict[str, list[Owner]] = {}
        """Keys that other engines compute, and the tasks here that wait for them."""
        self._landed: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}
        """Results of this transaction, which the store does not show yet: outputs, and where they came from."""
        self._calls: dict[int, list[Task]] = {}
        """Run -> called workflows whose result may be known."""
        self._results: dict[int, list[CallSucceeded]] = {}
        """Run -> called workflows that have succeeded."""

    # -- each task that may start -------------------------------------------------------------------------------------

    def resolve(self, wanted: Sequence[Launch]) -> tuple[list[Launch], list[Owner]]:
        """Reuses and shares what it can. Returns the tasks that have to run; and those that have the same key as one of them,
        for `rejoin` once these have been launched."""
        if len(wanted) == 1:
            launches = self._resolve_one(*wanted[0])
            if launches is not None:
                return launches, []
        asks: dict[tuple[bool, bool], list[tuple[str, int, str]]] = {}
        asking: dict[str, Launch] = {}
        duplicates: list[Owner] = []
        launches = []
        for run, task, lane in wanted:
            key = task.key
            if not key or execution(task).attempt_id:
                launches.append((run, task, lane))
            elif key in self._landed and not run.fresh:
                self._reuse(run, task, *self._landed[key])
            elif key in asking:
                duplicates.append((run, task))
            elif self._join(run, task):
                pass
            else:
                asking[key] = (run, task, lane)
                asks.setdefault((run.fresh, not self._is_immediate(lane)), []).append((key, run.number, task.path))
        for (fresh, lease), some in asks.items():
            launches += self._claim_all(some, asking, fresh, lease)
        return launches, duplicates

    def _claim_all(
        self, some: list[tuple[str, int, str]], asking: Mapping[str, Launch], fresh: bool, lease: bool
    ) -> list[Launch]:
        launches = []
        found = self.claim(some, fresh, lease)
        stale = []
        for key, number, path in some:
            run, task, lane = asking[key]
            here = found[key]
            if here.result is not None:
                if self._usable(task, here.result):
                    self._reuse_result(run, task, here.result)
                else:
                    stale.append((key, number, path))
            elif here.holder is not None:
                self._wait_remote(run, task, here.holder)
            else:
                launches.append((run, task, lane))
        if stale:
            for key, other in self.claim(stale, True, lease).items():
                run, task, lane = asking[key]
                if other.holder is not None:
                    self._wait_remote(run, task, other.holder)
                else:
                    launches.append((run, task, lane))
        return launches

    def _resolve_one(self, run: ActiveRun, task: Task, lane: str) -> list[Launch] | None:
        """The short way for chains, where one task is ready at a time. None: the case is not that simple."""
        key = task.key
        if (
            not key
            or execution(task).attempt_id
            or key in self._landed
            or key in self._flights
            or task.step.cache.ttl is not None
        ):
            return None
        asks = [(key, run.number, task.path)]
        lease = not self._is_immediate(lane)
        found = self.claim(asks, run.fresh, lease)[key]
        if found.result is not None and not self._complete(task, found.result.outputs):
            found = self.claim(asks, True, lease)[key]
        if found.holder is not None:
            self._wait_remote(run, task, found.holder)
        elif found.result is not None:
            self._reuse_result(run, task, found.result)
        else:
            return [(run, task, lane)]
        return []

    def rejoin(self, duplicates: Sequence[Owner]) -> None:
        """Tasks with the same key as another one of the same round, which has been launched, or waits for another engine, or has
        ended by now."""
        for run, task in duplicates:
            if self._join(run, task):
                continue
            if task.key in self._remote:
                self._remote[task.key].append((run, task))
                run.waits(task, {"why": "shared"})
            else:
                run.state.again(task)

    def _join(self, run: ActiveRun, task: Task) -> bool:
        """Subscribe to a flight, if there is one."""
        flight = self._flights.get(task.key)
        if flight is None:
            return False
        flight.subscribers.append((run, task))
        owner = flight.owner
        run.waits(task, {"why": "shared", **origin(owner[0].record.id, owner[1].path)})
        return True

    # -- looking up ---------------------------------------------------------------------------------------------------

    def claim(self, asks: list[tuple[str, int, str]], fresh: bool, lease: bool = True) -> dict[str, KeyClaim]:
        store, engine = self._store, self._journal.engine
        return self._journal.read(lambda: store.claim(asks, engine, fresh, lease))

    def look_up(self, run: ActiveRun, state: StepState) -> None:
        """End the tasks of a step whose result is known, before quota is requested for them."""
        if run.fresh or state.plan.private:
            return
        tasks = run.state.ready.preview(state, LOOK_AHEAD - len(state.line))
        known = self._known([task.key for task in tasks if task.key])
        for task in tasks:
            self._reuse_if_known(run, task, known)

    def call_ready(self, run: ActiveRun, effect: CallReady) -> None:
        self._calls.setdefault(run.number, []).append(effect.task)

    def resolve_calls(self, run: ActiveRun, runs: Mapping[int, ActiveRun]) -> bool:
        """Called workflows that have a key: end those whose result is known, enter the others. False: there are none."""
        calls = self._calls.pop(run.number, None)
        if not calls:
            return False
        for other in runs.values():
            self.keep_results(other)
        known = {} if run.fresh else self._known([task.key for task in calls])
        for task in calls:
            run.settle()  # the events that led here come before it
            if not self._reuse_if_known(run, task, known, not run.fresh):
                run.state.enter(task)
        return True

    def _known(self, keys: list[str]) -> dict[str, Result]:
        return self._journal.read(lambda: self._store.lookup(keys)) if keys else {}

    def _reuse_if_known(self, run: ActiveRun, task: Task, known: Mapping[str, Result], landed: bool = True) -> bool:
        if landed and task.key in self._landed:
            self._reuse(run, task, *self._landed[task.key])
            return True
        result = known.get(task.key)
        if result is not None and self._usable(task, result):
            self._reuse_result(run, task, result)
            return True
        return False

    def _usable(self, task: Task, result: Result) -> bool:
        """Is it young enough, and complete?"""
        ttl = task.step.cache.ttl
        return (ttl is None or 0 <= self._now() - result.at <= ttl) and self._complete(task, result.outputs)

    def _complete(self, task: Task, outputs: Mapping[str, Any]) -> bool:
        """Is it of the types that the step declares, and are all blobs there that it names? They may have been removed by hand,
        cut off, or lie on another machine."""
        return all(is_of(one.type, outputs[one.name]) for one in task.step.outputs if one.name in outputs) and all(
            self._blobs.has(stored.digest, stored.size) for value in outputs.values() for stored in stored_in(value)
        )

    def _reuse(self, run: ActiveRun, task: Task, outputs: dict[str, Any], source: dict[str, Any]) -> None:
        run.succeeded(task, outputs, "", None, source)
        run.settle()

    def _reuse_result(self, run: ActiveRun, task: Task, result: Result) -> None:
        self._reuse(run, task, result.outputs, self._names.origin(result.run, result.task))

    # -- attempts ----------------------------------------------------------------------------------------------------

    def launched(self, run: ActiveRun, task: Task) -> None:
        """An attempt of the task begins. Others who need its key can join from now on."""
        if task.key and task.key not in self._flights:
            self._flights[task.key] = Flight(task.key, (run, task))

    def in_flight(self, key: str) -> bool:
        return key in self._flights

    def succeeded(self, run: ActiveRun, task: Task, outputs: dict[str, Any], text: str) -> list[Owner]:
        """Records the result. Returns those who waited for it here."""
        batch = self._journal.batch
        batch.results.append((task.key, text, run.number, task.path, self._now()))
        if execution(task).leased:
            batch.released.append(task.key)
        self._landed[task.key] = (outputs, origin(run.record.id, task.path))
        return self._land(task.key)

    def failed(self, key: str, failure: str) -> list[Owner]:
        """For good. `failure`: as JSON text, for those who wait in other engines. Returns those who waited here."""
        batch = self._journal.batch
        batch.released.append(key)
        batch.failures.append((failure, key))
        return self._land(key)

    def forget(self, key: str) -> None:
        """The result of this key is not to be trusted."""
        self._landed.pop(key, None)
        batch = self._journal.batch
        batch.results = [row for row in batch.results if row[0] != key]
        batch.untrusted.append(key)

    def preempted(self, task: Task) -> None:
        """The task was stopped and waits for quota again. Those who waited for it ask again."""
        flight = self._flights.get(task.key) if task.key else None
        if flight is not None and flight.owner[1] is task:
            self._journal.batch.released.append(task.key)
            for other, subscriber in self._land(task.key):
                other.state.again(subscriber)

    def release(self, task: Task) -> None:
        """The task gives its key up."""
        flight = self._flights.get(task.key)
        if flight is not None and flight.owner[1] is not task:
            return  # while it was being stopped, another task has begun the same: the key is theirs
        if task.key:
            self._land(task.key)
            self._journal.batch.released.append(task.key)

    def leave_running(self, run: ActiveRun, task: Task) -> Owner | None:
        """A task that runs is no longer wanted by its run. Its new owner, if others have joined it."""
        flight = self._leave(task)
        return None if flight is None else flight.owner

    def leave_waiting(self, run: ActiveRun, task: Task) -> None:
        """A task that does not run is no longer wanted by its run."""
        if self._leave_remote(task):
            self._journal.batch.served.append((task.key, run.number, task.path))
            return
        # It waits for its next attempt. Those who wait for its key go on with it: the lease is still held.
        owned = task.key in self._flights and self._flights[task.key].owner[1] is task
        flight = self._leave(task)
        if flight is not None:
            del self._flights[task.key]
            for other, subscriber in [flight.owner, *flight.subscribers]:
                other.state.again(subscriber)
        elif owned:
            self._journal.batch.released.append(task.key)

    def _land(self, key: str) -> list[Owner]:
        flight = self._flights.pop(key, None)
        return [] if flight is None else flight.subscribers

    def _leave(self, task: Task) -> Flight | None:
        """The flight, if it goes on under another owner."""
        flight = self._flights.get(task.key)
        if flight is None:
            return None
        flight.subscribers = [one for one in flight.subscribers if one[1] is not task]
        if flight.owner[1] is not task:
            return None
        if not flight.subscribers:
            del self._flights[task.key]
            return None
        flight.owner = flight.subscribers.pop(0)
        return flight

    # -- results of called workflows ----------------------------------------------------------------------------------

    def call_succeeded(self, run: ActiveRun, effect: CallSucceeded) -> None:
        self._results.setdefault(run.number, []).append(effect)

    def keep_results(self, run: ActiveRun) -> None:
        for task, outputs in self._results.pop(run.number, ()):
            text = dumps({name: store_value(value, self._blobs) for name, value in outputs.items()})
            self._journal.batch.results.append((task.key, text, run.number, task.path, self._now()))
            self._landed[task.key] = (outputs, origin(run.record.id, task.path))

    def committed(self) -> None:
        """What this transaction computed can be found in the store now."""
        self._landed.clear()

    # -- other engines ------------------------------------------------------------------------------------------------

    @property
    def waits(self) -> bool:
        return bool(self._remote)

    def _wait_remote(self, run: ActiveRun, task: Task, holder: LeaseHolder) -> None:
        self._remote.setdefault(task.key, []).append((run, task))
        where = self._names.origin(holder.run, holder.task)
        run.waits(task, {"why": "shared", "engine": holder.engine, **where})

    def _leave_remote(self, task: Task) -> bool:
        waiting = self._remote.get(task.key)
        if waiting is None:
            return False
        left = [one for one in waiting if one[1] is not task]
        if len(left) == len(waiting):
            return False
        if left:
            self._remote[task.key] = left
        else:
            del self._remote[task.key]
        return True

    def look(self, dead_engines: Callable[[], set[str]]) -> set[str]:
        """Take what other engines have computed for tasks here. Returns engines that were found dead."""
        dead: set[str] | None = None
        forgotten = set(self._remote)
        for key, _, _, failure, result, holder in self._store.waiting(self._journal.engine):
            forgotten.discard(key)
            if key not in self._remote:
                continue
            if result is not None or failure is not None:
                self._served(key, failure, result)
                continue
            if holder is not None:
                dead = dead_engines() if dead is None else dead
                if holder.engine not in dead:
                    continue
            # No engine computes it any more: whoever asks first now gets it.
            for run, task in self._serve(key):
                run.state.again(task)
        for key in forgotten:  # another engine took this one for dead: ask again
            for run, task in self._remote.pop(key):
                run.state.again(task)
        return dead or set()

    def _served(self, key: str, failure: dict[str, Any] | None, result: Result | None) -> None:
        for run, task in self._serve(key):
            if result is not None and not self._complete(task, result.outputs):
                run.state.again(task)
            elif result is not None:
                self._reuse_result(run, task, result)
            elif failure is not None:
                data = {name: value for name, value in failure.items() if name != "kind"}
                run.not_succeeded(task, failure["kind"], data)
                run.settle()

    def _serve(self, key: str) -> list[Owner]:
        waiting = self._remote.pop(key)
        for run, task in waiting:
            self._journal.batch.served.append((key, run.number, task.path))
        return waiting
