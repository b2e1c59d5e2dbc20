"""Runs as the store has them: find one by name, its state, its owner, its workflow. Called by the commands, `runs` and the views.

Nothing here needs an engine, so that commands that only read do not load one.
"""

from __future__ import annotations

import json
import time
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Final

from penstock.errors import NotFound, Problem, nearest
from penstock.errors import RunConflict as RunConflict  # where it is looked for
from penstock.store import liveness
from penstock.store.records import FINAL, EngineRecord, RunRecord
from penstock.store.sql import Store

if TYPE_CHECKING:
    from penstock.engine.blueprint import Blueprint
    from penstock.graph.model import Workflow

KEPT: Final = 8
"""Workflows that are kept in memory after they were read."""
STARTING: Final = 15.0
"""Seconds that a run which was started in the background may take to get an engine."""
IDLE: Final = ("starting", "stopped", "lost")
"""States in which no engine executes a run that is not over."""


def find(store: Store, name: str) -> RunRecord:
    """`finetune-3`, `@` for the last run, `@2` for the one before it. Raises NotFound."""
    if name.startswith("@"):
        back = name[1:] or "1"
        if not back.isdecimal() or int(back) < 1:
            raise NotFound(Problem("P505", f"{name!r} names no run", "@ is the last run, @2 the one before it"))
        runs = store.runs.newest(limit=int(back))
        if len(runs) < int(back):
            fix = "start one: penstock run FILE" if not runs else f"there are {len(runs)}; penstock ls shows them"
            raise NotFound(Problem("P505", "there is no run yet" if not runs else f"there is no run {name}", fix))
        return runs[-1]
    run = store.runs.by_id(name)
    if run is None:
        known = [one.id for one in store.runs.newest(limit=200)]
        raise NotFound(Problem("P505", f"there is no run {name!r}", f"penstock ls shows them.{nearest(name, known)}"))
    return run


def removed(run: RunRecord) -> NotFound:
    """`penstock gc` removed the run while it was being read."""
    return NotFound(
        Problem("P505", f"{run.id} has been removed in the meantime", "penstock ls shows the runs that exist")
    )


def split_target(target: str) -> tuple[str, str]:
    """`@/train[3]` -> the run, and the path of a step or task ("" if there is none)."""
    run, _, path = target.partition("/")
    return run, path.rstrip("/")


BY_REFERENCE: Final = "by_reference"
"""The option of a run that names the parameters whose values are among the blobs: its record has what `artifacts.values.dumps` writes."""


def params_of(run: RunRecord) -> dict[str, Any]:
    """Its parameters as an engine takes them: with Stored where a value is among the blobs."""
    names = run.options.get(BY_REFERENCE) or ()
    if not names:
        return run.params
    from penstock.artifacts.values import loads

    return {**run.params, **{name: loads(json.dumps(run.params[name], separators=(",", ":"))) for name in names}}


def plain_params(run: RunRecord) -> dict[str, Any]:
    """Those whose values are in the record: what a plan can be made with."""
    return {name: value for name, value in run.params.items() if name not in run.options.get(BY_REFERENCE, ())}


def workflow_of(store: Store, run: RunRecord) -> Workflow:
    return _read(store.runs.document(run.digest), run.id)


@lru_cache(maxsize=KEPT)
def _read(document: str, run: str) -> Workflow:
    """A page that follows a run asks for the same workflow again and again. It is frozen, so that all can have the same one."""
    from penstock.graph import codec

    return codec.from_data(json.loads(document), run)


def blueprint_of(store: Store, run: RunRecord) -> Blueprint:
    """Its workflow as an engine needs it, and whoever folds its log."""
    from penstock.engine.blueprint import blueprints
    from penstock.graph.links import links_of

    workflow = workflow_of(store, run)
    return blueprints(workflow, links_of(workflow))


# -- state and owner --------------------------------------------------------------------------------------------------


class Owners:
    """Who executes runs, and which are ordered: read once, for whoever looks at many runs."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @cached_property
    def _engines(self) -> dict[str, bool | None]:
        return {one.id: liveness.alive(one) for one in self._store.peers.engines()}

    @cached_property
    def ordered(self) -> set[int]:
        return {one.run for one in self._store.orders.all()}

    @cached_property
    def _running(self) -> set[int]:
        return set(self._store.runs.numbers_in("running"))

    def still_running(self, run: RunRecord) -> bool:
        """By its record, a moment after who is alive was read."""
        return run.number in self._running

    def alive(self, run: RunRecord) -> bool | None:
        return False if run.engine is None else self._engines.get(run.engine, False)


def state_of(store: Store, run: RunRecord, owners: Owners | None = None) -> str:
    """The state that users see: that of the record; `starting` if it was submitted a moment ago and no engine has it yet; or `lost` if
    the engine of a running run is gone. `owners`: as they were when the first of many runs was looked at."""
    if run.state == "stopped" and run.seq <= 1 and 0 <= time.time() - run.created < STARTING:
        return "starting"
    if run.state == "stopped":
        ordered = store.orders.of(run.number) is not None if owners is None else run.number in owners.ordered
        return "starting" if ordered else run.state  # a worker will take it
    if run.state in FINAL:
        return run.state
    if (owner_alive(store, run) if owners is None else owners.alive(run)) is not False:
        return run.state
    if owners is not None and owners.still_running(run):
        return "lost"
    now = store.runs.by_number(run.number)  # the run and its engine may have ended between the two reads
    return now.state if now is not None and now.state != run.state else "lost"


def seconds_of(run: RunRecord, now: float | None = None) -> float | None:
    """How long it took, or has taken until `now`."""
    end = run.ended if run.ended is not None else now
    return None if end is None else max(0.0, end - run.created)


def owner_alive(store: Store, run: RunRecord) -> bool | None:
    """Does an engine own this run? None if its liveness cannot be told from this machine."""
    owner = _owner(store, run)
    return False if owner is None else liveness.alive(owner)


def watch_owner(store: Store, run: RunRecord) -> bool:
    """Does an engine own this run? If its liveness cannot be told from this machine, waits until its heartbeat moves, or has not
    moved for too long. In the second case the engine is removed from the store, so that the run can be taken over."""
    watch, first = liveness.Watch(liveness.PATIENCE), None
    while (alive := owner_alive(store, run)) is None:
        owner = _owner(store, run)
        if owner is None:
            return False
        first = owner.beat if first is None else first
        if owner.beat != first:
            return True
        if watch.dead(owner.id, owner.beat, time.monotonic()):
            store.peers.forget(owner.id)
            return False
        time.sleep(0.1)
    return alive


def owned_problem(store: Store, run: RunRecord) -> Problem:
    """Names the process that owns the run."""
    owner = _owner(store, run)
    who = f"process {owner.pid} on {owner.host.partition('/')[0]}" if owner is not None else "another engine"
    fix = f"watch it: penstock watch {run.id}; or end it: penstock cancel {run.id}"
    return Problem("P411", f"{run.id} is being run by {who}", fix)


def _owner(store: Store, run: RunRecord) -> EngineRecord | None:
    if run.engine is None:
        return None
    return next((one for one in store.peers.engines() if one.id == run.engine), None)
