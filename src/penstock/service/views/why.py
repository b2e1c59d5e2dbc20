"""Why a run, or a step of it, waits: now, and what it has waited for so far. Called by `penstock why`.

It waits for a queue (the queues are evaluated as they are now), a lock (the store says who holds it now), another run that computes the
same, a time, a person, a worker, or other steps. Past waits are read from the log, where each is recorded with its reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.graph.paths import inside, inside_any, overlap, step_of
from penstock.service.home_files import HomeFiles
from penstock.service.run_records import IDLE, state_of, workflow_of
from penstock.service.task_states import ACTIVE, BAD, ENDED
from penstock.service.views.lock_waits import blocks, lock_taker, lock_waits, waits_for_lock
from penstock.service.views.outline import Outline, StepNode
from penstock.service.views.queue_waits import queue_waits
from penstock.service.views.reservation_steps import group_members, prefix_of
from penstock.service.views.runs import RunView
from penstock.service.views.tallies import TallyReader
from penstock.service.views.tasks import check_path
from penstock.service.views.wait_history import KINDS, PastWait, past_waits
from penstock.service.views.waits import Wait
from penstock.store.records import FINAL, RunRecord, TaskRow
from penstock.store.sql import Store


@dataclass(slots=True)
class WaitReport:
    run: RunRecord
    state: str
    path: str
    """The step, task or stage that was asked about; "" for the run as a whole."""
    waits: list[Wait]
    running: int
    """Tasks that run now."""
    history: list[PastWait]
    """The waits in queues that are over, in order."""
    evictions: list[dict[str, Any]]
    ended: str = ""
    """The state in which the step ended, if it has."""

    def as_data(self) -> dict[str, Any]:
        return {
            "run": self.run.id,
            "state": self.state,
            "step": self.path or None,
            "running": self.running,
            "ended": self.ended or None,
            "waits": [wait.as_data() for wait in self.waits],
            "history": [wait.as_data() for wait in self.history],
            "evictions": self.evictions,
        }


def why(
    store: Store,
    run: RunRecord,
    path: str = "",
    home: HomeFiles | None = None,
    seen: tuple[RunView, Sequence[Wait]] | None = None,
) -> WaitReport:
    """`path`: a step, a task, or a stage as queues name it. `home`: where to look for what a lost run has left behind. `seen`: its details, if the
    caller has just looked. Raises NotFound if the run has no such thing."""
    workflow = workflow_of(store, run)
    outline = seen[0].outline if seen is not None else Outline(workflow)
    wanted = _wanted(store, run, outline, path)
    alive = store.runs.tasks(run.number, states=ACTIVE)
    rows = [row for row in alive if not wanted or any(inside(row.task, one) or inside(row.step, one) for one in wanted)]
    state = state_of(store, run)
    events = list(store.runs.events(run.number, kinds=KINDS))
    if seen is None:
        reader = TallyReader(store, run)
        reader.read()
        outline.measure(reader.tallies, run.state)
    nodes = [outline.by_path[step_of(one)] for one in wanted if step_of(one) in outline.by_path]
    # A step that calls a workflow is not counted: the tasks in it are.
    calls = {one.path for one in outline.nodes if one.nested}
    running = sum(row.state == "running" and row.step not in calls and not row.info.get("waits") for row in rows)
    waits: list[Wait] = []
    if state in IDLE:
        waits.append(Wait("", "engine", reason={"state": state, **_order(store, run), **_orphans(run, state, home)}))
    elif state not in FINAL:
        exits = {one.path for one in outline.nodes if one.at_end}
        known = _in_queues(seen)
        in_line = known if known is not None else queue_waits(store, run, workflow, outline, events)
        every = [_ready_steps(wait, outline) for wait in in_line]
        in_queues = {step for wait in every for step in wait.steps}
        locked = [row for row in alive if waits_for_lock(row)]
        waits += [wait for wait in every if _concerns(wait, wanted)]
        waits += lock_waits(store, run, [row for row in locked if blocks(row, wanted)], in_queues)
        waits += _task_waits(store, run, rows)
        if all(wait.steps for wait in every) and all(map(lock_taker, locked)):
            # The run as a whole waits for nothing, so what else could start lacks only a worker.
            blocked = in_queues | {step_of(lock_taker(row)) for row in locked}
            waits += _slot_waits(outline, wanted, blocked, exits)
        if not waits and nodes and not running:
            waits += _step_waits(outline, nodes, exits, path)
    row = store.runs.task(run.number, path) if path else None
    return WaitReport(
        run,
        state,
        path,
        waits,
        0 if state in IDLE else running,
        [
            _handed_on(wait, outline)
            for wait in past_waits(events)
            if wait.end is not None and _about(wait.path, wanted, outline)
        ],
        [
            {"path": event.task, "at": event.at, **event.data}
            for event in events
            if event.kind == "reservation.evicted" and _about(event.task, wanted, outline)
        ],
        row.state if row is not None and row.ended is not None else _ended(nodes),
    )


def _in_queues(seen: tuple[RunView, Sequence[Wait]] | None) -> list[Wait] | None:
    """What waits in queues, if the caller has looked."""
    if seen is None or seen[0].state not in ("running", "queued"):
        return None
    return [wait for wait in seen[1] if wait.kind == "queue"]


def _order(store: Store, run: RunRecord) -> dict[str, Any]:
    """What workers are to do about a run that no engine has."""
    order = store.orders.of(run.number)
    if order is None:
        return {}
    problem = order.data.get("problem")
    return {"ordered": order.verb, **({"problem": problem["message"]} if problem else {})}


def _handed_on(wait: PastWait, outline: Outline) -> PastWait:
    """A wait that was withdrawn is over because the tasks were not needed; or because they did start, on quota that earlier tasks of
    the same loop left to them."""
    node = outline.by_path.get(step_of(wait.path))
    if wait.outcome == "withdrawn" and node is not None and node.many:
        unneeded = sum(node.tally.get(state, 0) for state in ("reused", "skipped", "omitted", "cancelled"))
        if not unneeded and any(node.tally.get(state) for state in ("running", "succeeded", *BAD)):
            wait.outcome = "handed on"
    return wait


def _orphans(run: RunRecord, state: str, home: HomeFiles | None) -> dict[str, Any]:
    """Processes of its tasks that still run although its engine is gone."""
    if state != "lost" or home is None:
        return {}
    from penstock.service.views.orphans import orphans_of

    left = orphans_of(home, [run]).get(run.id)
    return {"orphans": [{"pid": one.pid, "task": one.task} for one in left]} if left else {}


def _ended(nodes: Sequence[StepNode]) -> str:
    """The state in which they ended, if all have: the worst of them."""
    if not nodes or not all(node.over for node in nodes):
        return ""
    states = {node.state for node in nodes}
    return next(
        one for one in (*BAD, "cancelled", "succeeded", "reused", "omitted", "skipped", *states) if one in states
    )


# -- what was asked about ---------------------------------------------------------------------------------------------


def _wanted(store: Store, run: RunRecord, outline: Outline, path: str) -> tuple[str, ...]:
    """Steps or tasks; for a stage, each of its steps; none for the run as a whole. Raises NotFound."""
    if not path:
        return ()
    node = outline.by_path.get(step_of(path))
    if node is not None and (node.path == path or node.many or store.runs.task(run.number, path) is not None):
        return (path,)
    group = group_members(outline, path)
    if not group and node is None:  # a task that has not started is accepted
        check_path(store, run, path)
    return group or (path,)


def _about(name: str, wanted: Sequence[str], outline: Outline) -> bool:
    """Does a reservation of this name concern what was asked about? That of the whole workflow concerns every step."""
    if not wanted or name == "workflow":
        return True
    return any(overlap(one, other) for one in group_members(outline, name) or (name,) for other in wanted)


def _concerns(wait: Wait, wanted: Sequence[str]) -> bool:
    if not wanted or not wait.steps:
        return True
    # The steps, in the call in which they wait.
    prefix = wait.path.rpartition("/")[0] if wait.path.count("/") == wait.steps[0].count("/") else ""
    tasks = [f"{prefix}/{step.rpartition('/')[2]}" if prefix else step for step in wait.steps]
    return any(overlap(one, other) for one in tasks for other in wanted)


def _ready_steps(wait: Wait, outline: Outline) -> Wait:
    """Keeps those steps of a stage that are ready and have tasks left to start."""
    nodes = [outline.by_path[step] for step in wait.steps if step in outline.by_path]
    steps = tuple(node.path for node in nodes if _left(node) and _ready(node, outline))
    wait.steps = steps or wait.steps
    return wait


def _left(node: StepNode) -> int:
    """Tasks that have not started, or were preempted."""
    if node.over:
        return 0
    started = node.count(("running", "suspended", "retrying"))
    return 1 if node.total is None else max(0, node.total - node.count(ENDED) - started)


def _ready(node: StepNode, outline: Outline) -> bool:
    """Are all steps over that it depends on, and that the calls around it depend on?"""
    if not all(outline.by_path[up].over for up in node.before):
        return False
    return node.parent is None or (_ready(node.parent, outline) and bool(node.parent.state))


# -- waits that are neither for a queue nor for a lock ----------------------------------------------------------------


def _task_waits(store: Store, run: RunRecord, rows: Iterable[TaskRow]) -> list[Wait]:
    """Tasks that wait for another run, for the time of the next attempt, to be resumed, or where they are to run."""
    found: dict[tuple[str, str], Wait] = {}
    due: dict[str, float] | None = None
    for row in rows:
        reason = row.info.get("reason") or {}
        message = {"message": row.info["message"]} if row.info.get("message") else {}
        if row.state in ("retrying", "suspended"):
            due = _due(store, run) if due is None else due
            until = {"until": due[row.task]} if row.task in due else {}
            if row.state == "suspended" and row.info.get("answer"):
                kind, until = "answer", {name: row.info[name] for name in ("until", "payloads") if row.info.get(name)}
            else:
                kind = "retry" if row.state == "retrying" else "time" if until else "somebody"
            wait = Wait(row.task, kind, row.started, {**message, **until})
        elif row.state == "running" and row.info.get("waits"):
            wait = Wait(row.task, "there", row.started, {"message": row.info["waits"]})
        elif row.state == "waiting" and reason.get("why") == "shared":
            wait = Wait(row.task, "shared", None, dict(reason))
        else:
            continue
        key = (row.step, wait.kind)
        if key in found:
            found[key].tasks += 1
        else:
            found[key] = wait
    return list(found.values())


def _due(store: Store, run: RunRecord) -> dict[str, float]:
    """When tasks that wait for a time continue."""
    found: dict[str, float] = {}
    for event in store.runs.events(run.number, kinds=["task.failed", "task.errored", "task.suspended"]):
        seconds = event.data.get("seconds" if event.kind == "task.suspended" else "retry")
        if seconds is not None:
            found[event.task] = event.at + float(seconds)
    return found


def _slot_waits(outline: Outline, wanted: Sequence[str], blocked: set[str], exits: set[str]) -> list[Wait]:
    """Tasks that could start and have not: all workers are busy, or as many run as the step allows."""
    found = []
    asked = [step_of(one) for one in wanted]
    for node in outline.nodes:
        if node.nested or node.over or inside_any(node.path, blocked):
            continue
        if not _ready(node, outline) or _too_early(node, outline, exits):
            continue
        if asked and not any(inside(node.path, one) or inside(one, node.path) for one in asked):
            continue
        active = node.count(ACTIVE)
        left = (node.total or 0) - node.count(ENDED) - active
        if left > 0 and not node.looping:
            parallel = node.step.each.parallel if node.step.each is not None else None
            limit = {"parallel": parallel} if parallel is not None and active >= parallel else {}
            found.append(Wait(node.path, "slot", None, limit, left, steps=(node.path,)))
    return found


def _step_waits(outline: Outline, nodes: Sequence[StepNode], exits: set[str], path: str) -> list[Wait]:
    """Steps that are not ready: the steps that they, or the calls around them, depend on."""
    for node in nodes:
        at: StepNode | None = node
        while at is not None:
            before = _unfinished(at, outline, exits)
            if before:
                handler = {"exit": True} if at.path in exits else {}
                name = path if len(nodes) > 1 else node.path
                return [Wait(name, "steps", None, {"steps": before, **handler}, steps=(node.path,))]
            at = at.parent
    return []


# -- exit handlers ----------------------------------------------------------------------------------------------------


def _unfinished(node: StepNode, outline: Outline, exits: set[str]) -> list[str]:
    """The steps that it comes after and that are not over. An exit handler comes after all other steps of its workflow."""
    before = [up for up in node.before if not outline.by_path[up].over]
    if node.path in exits:
        around = prefix_of(node)
        before += [
            one.path for one in outline.nodes if prefix_of(one) == around and one.path not in exits and not one.over
        ]
    return list(dict.fromkeys(before))


def _too_early(node: StepNode, outline: Outline, exits: set[str]) -> bool:
    """Does it belong to an exit handler that cannot start yet?"""
    at: StepNode | None = node
    while at is not None:
        if at.path in exits and _unfinished(at, outline, exits):
            return True
        at = at.parent
    return False
