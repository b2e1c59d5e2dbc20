"""Why a run, or a step of it, waits: now, and what it has waited for so far. Called by `penstock why`, and for its queues by the
screens that show a run.

What is waited for is either a queue (then the queues themselves are asked, as they are now), a lock (then the store says who holds
it now), another run that computes the same, a time, a person, a worker, or other steps. What was waited for is read from the log: every
hold was written down with its reason.

Steps of one group stand in line together, under the name of their group: whoever asks about one of them, or about the group, hears
of the same wait.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.engine.live import step_of
from penstock.graph.model import Nested, Unit, Workflow
from penstock.service import views, wording
from penstock.service.runs import owner_alive, state_of, workflow_of
from penstock.store.base import FINAL, Event, Run, Standing, TaskRow
from penstock.store.sql import Store

if TYPE_CHECKING:
    from penstock.engine.book import Book
    from penstock.service.views import Node, Outline

_HOLDS = ("reservation.waiting", "reservation.admitted", "reservation.evicted", "reservation.withdrawn")
_BREAKS = ("run.started", "run.stopped", "run.finished")
IN_LINE = ("pending", "leaving")
MOST_LOCKED = 1000
"""So many tasks that wait are looked at for a screen: those of a run that wait for a lock are found among the first of them."""
NAMED = 5
"""Holders of a lock that are named."""


@dataclass(slots=True)
class Wait:
    """Something that is waited for now."""

    path: str
    """The step, stage or task that waits; "workflow" for the whole."""
    kind: str
    """queue · lock · slot · shared · retry · somebody · time · steps · engine"""
    since: float | None = None
    reason: dict[str, Any] = field(default_factory=dict)
    """Of a queue: what `Hold.as_data` gives. Of a lock: {why, lock, limit, of, held, holders: [{run, task, since, user, gone}]}."""
    tasks: int = 1
    asks: dict[str, int] = field(default_factory=dict)
    """Of a queue: what it would have, all of it together."""
    steps: tuple[str, ...] = ()
    """Paths of the steps that wait; none: the run as a whole."""
    priority: int = 0
    who: dict[str, str] = field(default_factory=dict)
    """Workload -> its user and priority, of those that the reason names."""
    own: bool = False
    """What it waits for is all in its own hands: a fan-out that goes round in what there is."""

    def as_data(self) -> dict[str, Any]:
        data: dict[str, Any] = {"path": self.path, "kind": self.kind, "since": self.since, "tasks": self.tasks}
        if self.kind == "queue":
            data["asks"] = {name: wording.spell(amount, name) for name, amount in self.asks.items()}
            data["priority"] = self.priority
        return data | {"reason": wording.spelled(self.reason)}


@dataclass(slots=True)
class Spell:
    """A time that was spent waiting for a queue."""

    path: str
    workload: str
    start: float
    end: float | None
    """None: it still goes on."""
    reasons: list[dict[str, Any]]
    outcome: str = ""
    """admitted; withdrawn: it was not needed any more, because what had been admitted before went round; stopped: the engine was; or
    nothing, while it goes on."""
    tasks: int = 0
    queue: str = ""
    held: dict[str, dict[str, int]] = field(default_factory=dict)
    """What it was admitted with: flavor -> resource -> amount."""

    def as_data(self) -> dict[str, Any]:
        held = {
            flavor: {name: wording.spell(amount, name) for name, amount in amounts.items()}
            for flavor, amounts in self.held.items()
        }
        return {
            "path": self.path, "workload": self.workload, "from": self.start, "to": self.end, "outcome": self.outcome, "tasks": self.tasks,
            "cluster_queue": self.queue, "held": held, "reasons": [wording.spelled(reason) for reason in self.reasons],
        }  # fmt: skip


@dataclass(slots=True)
class Why:
    run: Run
    state: str
    path: str
    waits: list[Wait]
    running: int
    history: list[Spell]
    """The holds that are over, in order."""
    evictions: list[dict[str, Any]]
    ended: str = ""
    """How the step ended, if it has."""

    def as_data(self) -> dict[str, Any]:
        return {
            "run": self.run.id, "state": self.state, "step": self.path or None, "running": self.running, "ended": self.ended or None,
            "waits": [wait.as_data() for wait in self.waits], "history": [spell.as_data() for spell in self.history],
            "evictions": self.evictions,
        }  # fmt: skip


def why(store: Store, run: Run, path: str = "") -> Why:
    """`path`: a step, a task, or a stage as queues call it. Raises NotFound if the run has no such thing."""
    workflow = workflow_of(store, run)
    outline = views.Outline(workflow)
    wanted = _wanted(store, run, outline, path)
    alive = store.tasks(run.number, states=["running", "waiting", "retrying", "suspended"])
    rows = [row for row in alive if not wanted or any(_under(row.task, one) or _under(row.step, one) for one in wanted)]
    state = state_of(store, run)
    events = list(store.events(run.number, kinds=[*_HOLDS, *_BREAKS]))
    reader = views.Reader(store, run)
    reader.read()
    outline.measure(reader.tallies, run.state)
    nodes = [outline.by_path[step_of(one)] for one in wanted if step_of(one) in outline.by_path]
    # What is called is not counted: the tasks in it are.
    called = {one.path for one in outline.nodes if one.nested}
    running = sum(row.state == "running" and row.step not in called for row in rows)
    waits: list[Wait] = []
    if state in ("stopped", "lost"):
        waits.append(Wait("", "engine", reason={"state": state}))
    elif state not in FINAL:
        exits = _exits(workflow, outline)
        every = [_at_hand(wait, outline) for wait in _in_queues(store, run, workflow, outline, events)]
        in_queues = {step for wait in every for step in wait.steps}
        locked = [row for row in alive if _locked(row)]
        waits += [wait for wait in every if _concerns(wait, wanted)]
        waits += _locks(store, run, [row for row in locked if _kept_from(row, wanted)], in_queues)
        waits += _tasks(store, run, rows)
        if all(wait.steps for wait in every) and all(
            map(_of, locked)
        ):  # what else could start has everything but a worker
            held_up = in_queues | {step_of(_of(row)) for row in locked}
            waits += _slots(outline, wanted, held_up, exits)
        if not waits and nodes and not running:
            waits += _steps(outline, nodes, exits, path)
    row = store.task(run.number, path) if path else None
    ended = row.state if row is not None and row.ended is not None else _ended(nodes)
    return Why(
        run,
        state,
        path,
        waits,
        0 if state in ("stopped", "lost") else running,
        [spell for spell in spells(events) if spell.end is not None and _about(spell.path, wanted, outline)],
        [
            {"path": event.task, "at": event.at, **event.data}
            for event in events
            if event.kind == "reservation.evicted" and _about(event.task, wanted, outline)
        ],
        ended,
    )


def _wanted(store: Store, run: Run, outline: Outline, path: str) -> tuple[str, ...]:
    """What is asked about: steps or tasks, those of a stage each by itself; none for the run as a whole. Raises NotFound."""
    if not path:
        return ()
    node = outline.by_path.get(step_of(path))
    if node is not None and (node.path == path or node.many or store.task(run.number, path) is not None):
        return (path,)
    stage = members(outline, path)
    if not stage and node is None:  # a task that has not begun may well be asked about
        views.check_path(store, run, path)
    return stage or (path,)


def members(outline: Outline, name: str) -> tuple[str, ...]:
    """The steps of a stage, by the name under which it stands in line: `call[1]/main[0]` -> `call[1]/a`, `call[1]/b`. None if there
    is no such group. Its last part is as the author, or a template, calls the group: that it may end like a task's means nothing."""
    parts = name.split("/")
    for depth in reversed(range(len(parts))):
        prefix, group = "/".join(parts[:depth]), "/".join(parts[depth:])
        scope = step_of(prefix)
        found = [one.name for one in outline.nodes if one.step.group == group and _prefix(one) == scope]
        if found:
            return tuple(f"{prefix}/{one}".lstrip("/") for one in found)
    return ()


def _ended(nodes: Sequence[Node]) -> str:
    """How it ended, if all of it has: what went wrong counts most."""
    if not nodes or not all(node.over for node in nodes):
        return ""
    states = {node.state for node in nodes}
    return next(
        one for one in (*views.BAD, "cancelled", "succeeded", "reused", "omitted", "skipped", *states) if one in states
    )


def _under(path: str, wanted: str) -> bool:
    return path == wanted or path.startswith((f"{wanted}/", f"{wanted}[", f"{wanted}#"))


def _meet(one: str, other: str) -> bool:
    """Is one of them the other, or inside it? `call/x` is every task of x, in every call."""
    return all(
        mine == yours or _under(mine, yours) or _under(yours, mine)
        for mine, yours in zip(one.split("/"), other.split("/"), strict=False)
    )


def _about(name: str, wanted: Sequence[str], outline: Outline) -> bool:
    """A reservation of the whole workflow concerns every step."""
    if not wanted or name == "workflow":
        return True
    return any(_meet(one, other) for one in members(outline, name) or (name,) for other in wanted)


def _concerns(wait: Wait, wanted: Sequence[str]) -> bool:
    if not wanted or not wait.steps:
        return True
    # The steps, in the call in which they wait.
    prefix = wait.path.rpartition("/")[0] if wait.path.count("/") == wait.steps[0].count("/") else ""
    tasks = [f"{prefix}/{step.rpartition('/')[2]}" if prefix else step for step in wait.steps]
    return any(_meet(one, other) for one in tasks for other in wanted)


def _at_hand(wait: Wait, outline: Outline) -> Wait:
    """Of the steps of a stage, those that have something left to start, and whose time has come."""
    nodes = [outline.by_path[step] for step in wait.steps if step in outline.by_path]
    steps = tuple(node.path for node in nodes if _left(node) and _ready(node, outline))
    wait.steps = steps or wait.steps
    return wait


def _left(node: Node) -> int:
    """Tasks that have not begun, or were stopped for others."""
    if node.over:
        return 0
    going = node.count(("running", "suspended", "retrying"))
    return 1 if node.total is None else max(0, node.total - node.count(views.ENDED) - going)


# -- queues -----------------------------------------------------------------------------------------------------------


def queued(store: Store) -> set[int]:
    """Numbers of the runs that have something in line, for quota or for a lock."""
    found = {one.run for one in store.workloads() if one.state == "pending"}
    for run in store.runs(state=["running"]):
        if run.number not in found and run.counts.get("waiting") and not run.counts.get("running"):
            rows = store.tasks(run.number, states=["waiting"], limit=MOST_LOCKED)
            found |= {run.number} if any(_locked(row) for row in rows) else set()
    return found


def is_queued(run: Run, state: str, waiting: set[int]) -> bool:
    """Does all of it wait: something in a queue or for a lock, and nothing runs?"""
    return state == "running" and run.number in waiting and not run.counts.get("running")


def in_line(
    store: Store,
    run: Run,
    workflow: Workflow | None = None,
    outline: Outline | None = None,
    events: Iterable[Event] | None = None,
) -> list[Wait]:
    """What of a run stands in a queue, or waits for a lock, with the reason as it is now."""
    rows = store.tasks(run.number, states=["waiting"], limit=MOST_LOCKED)
    waits = _in_queues(store, run, workflow, outline, events)
    return [*waits, *_locks(store, run, rows, {step for wait in waits for step in wait.steps})]


def _in_queues(
    store: Store, run: Run, workflow: Workflow | None, outline: Outline | None, events: Iterable[Event] | None
) -> list[Wait]:
    mine = [one for one in store.workloads() if one.run == run.number and one.state in IN_LINE]
    if not mine:
        return []
    from penstock.service.queueing import book_of

    workflow = workflow or workflow_of(store, run)
    if events is None:
        events = store.events(run.number, kinds=[*_HOLDS, *_BREAKS])
    # Of several lots of a stage only the first says when it began to wait: the others have waited since the last one did.
    since = {spell.path: spell.start if spell.end is None else spell.end for spell in spells(events)}
    now = time.time()
    book = book_of(store, now, gated=False)
    book.queues.settle(now)
    found: dict[str, Wait] = {}
    # Of several lots of a stage the one that stands first speaks for all.
    places = {other.key: place for queue in book.queues.lines for place, other in enumerate(book.queues.pending(queue))}
    for one in sorted(mine, key=lambda one: (one.state == "leaving", places.get(one.key, 0), one.key)):
        workload = book.queues.workloads.get(one.key)
        # What would be admitted this moment is about to be: nobody need hear of it.
        if workload is None or (workload.admitted_at is not None and workload.eviction is None):
            continue
        name = _reservation(one, run)
        asks = {
            resource: amount * podset.count
            for podset in workload.podsets
            for resource, amount in podset.requests.items()
        }
        steps = covers(workflow, run.params, name, outline)
        tasks = 0 if not steps else sum(podset.count for podset in workload.podsets) // _replicas(workflow, steps)
        if name in found:
            found[name].tasks += tasks
            for resource, amount in asks.items():
                found[name].asks[resource] = found[name].asks.get(resource, 0) + amount
            continue
        hold = book.queues.explain(one.key, now).as_data()
        who = _who(store, book, hold)
        own = _is_own(hold, one)
        found[name] = Wait(name, "queue", since.get(name), hold, tasks, asks, steps, workload.priority, who, own)
    return list(found.values())


def _reservation(one: Standing, run: Run) -> str:
    return wording.called(one.key).removeprefix(run.id).removeprefix("/") or "workflow"


def covers(workflow: Workflow, params: Mapping[str, Any], name: str, outline: Outline | None = None) -> tuple[str, ...]:
    """The steps that a reservation is for now, by its name; none if it is for the run as a whole."""
    if workflow.unit is Unit.WORKFLOW and name == "workflow":
        return ()
    outline = outline or views.Outline(workflow)
    prefix, _, last = name.rpartition("/")
    node = outline.by_path.get(f"{step_of(prefix)}/{last}".lstrip("/"))
    if node is None or node.step.group is not None:
        stage = members(outline, name)
        if stage or node is None:
            return tuple(map(step_of, stage)) or (step_of(name),)
    path = node.path
    if workflow.unit is Unit.REUSE and node.over:
        from penstock.engine.reserved import heirs_of

        prefix = _prefix(node)
        chain = [f"{prefix}/{one}".lstrip("/") for one in heirs_of(workflow, params).get(path, ())]
        return tuple(one for one in chain if not outline.by_path[one].over)[:1] or (path,)
    return (path,)


def _prefix(node: Node) -> str:
    return node.path.rpartition("/")[0]


def _replicas(workflow: Workflow, steps: Sequence[str]) -> int:
    from penstock.service.runs import _step_at

    found = {step.replicas for path in steps if (step := _step_at(workflow, path)) is not None}
    return found.pop() if len(found) == 1 else 1


def _who(store: Store, book: Book, hold: Mapping[str, Any]) -> dict[str, str]:
    """Of the Workloads that a hold names as holders: whose they are, and how important."""
    found: dict[str, str] = {}
    for short in hold.get("short", ()):
        for holder in short.get("holders", ()):
            key = holder["workload"]
            owner = store.run_by_number(book.owners[key][0]) if key in book.owners else None
            priority = book.queues.workloads[key].priority if key in book.queues.workloads else 0
            user = f"{owner.user}, " if owner is not None and owner.user else ""
            gone = ", its process is gone" if owner is not None and owner_alive(store, owner) is False else ""
            found[key] = f"{user}priority {priority}{gone}"
    return found


def _is_own(hold: Mapping[str, Any], standing: Standing) -> bool:
    named = [holder["workload"] for short in hold.get("short", ()) for holder in short.get("holders", ())]
    named += hold.get("ahead", ())
    me = wording.called(standing.key)
    return hold["why"] in ("quota", "no candidates") and bool(named) and all(wording.called(key) == me for key in named)


class InLine:
    """What of a run stands in line, for somebody who looks again and again: the queues are asked only when something has been
    decided since, and never so often that looking would be most of what we do."""

    SHARE = 0.05

    def __init__(self, store: Store, run: Run) -> None:
        self.store = store
        self.run = run
        self.waits: list[Wait] = []
        self._version = -1
        self._next = 0.0
        self._workflow: Workflow | None = None
        self._outline: Outline | None = None
        self._locking = False

    def look(self) -> list[Wait]:
        now = time.monotonic()
        if now < self._next:
            return self.waits
        self._next = now + 0.3
        version = self.store.last_decision()
        if version != self._version or self._locking:  # who holds a lock is no decision
            self._version = version
            if self._workflow is None:
                self._workflow = workflow_of(self.store, self.run)
                self._outline = views.Outline(self._workflow)
                self._locking = _has_locks(self._workflow)
            self.waits = in_line(self.store, self.run, self._workflow, self._outline)
            self._next = time.monotonic() + max(0.3, (time.monotonic() - now) / self.SHARE)
        return self.waits

    def texts(self) -> dict[str, str]:
        return texts(self.look())


def texts(waits: Iterable[Wait]) -> dict[str, str]:
    """Step -> its wait in a line, which is empty if there is nothing to be said about it; "" for the run as a whole."""
    found: dict[str, str] = {}
    for wait in waits:
        whole = wait.kind == "lock" and wait.path == "workflow"
        for step in (*wait.steps, "") if whole or not wait.steps else wait.steps:
            found.setdefault(step, "" if wait.own else wording.brief(wait.reason))
    return found


# -- locks ------------------------------------------------------------------------------------------------------------


def _has_locks(workflow: Workflow) -> bool:
    every = (workflow, *workflow.definitions)
    return any(one.locks or any(step.locks for step in (*one.steps, *one.on_exit)) for one in every)


def _locked(row: TaskRow) -> bool:
    reason = row.info.get("reason")
    return row.state == "waiting" and isinstance(reason, Mapping) and reason.get("why") == "lock"


def _of(row: TaskRow) -> str:
    """What needs the lock: the task itself, a call around it, or the run ("")."""
    return str(row.info["reason"].get("of", row.task))


def _kept_from(row: TaskRow, wanted: Sequence[str]) -> bool:
    """Does what keeps this task from starting keep those that were asked about, too?"""
    return not wanted or not _of(row) or any(_meet(row.task, one) for one in wanted)


def _locks(store: Store, run: Run, tasks: Iterable[TaskRow], in_queues: Collection[str] = ()) -> list[Wait]:
    """What waits for a lock, with who holds it now: who did when it was asked for may long be over. A call that waits, or the run,
    speaks for the tasks in it. `in_queues`: steps of which that is said already."""
    waiting: dict[tuple[str, str], list[TaskRow]] = {}
    for row in tasks:
        if _locked(row):
            waiting.setdefault((step_of(_of(row)), row.info["reason"]["lock"]), []).append(row)
    since = _asked(store, run) if waiting else {}
    found = []
    for (step, lock), some in waiting.items():
        holders = _holders(store, run, lock, _of(some[0]))
        # Who has it by now has not begun: it lacks a worker, or stands in a queue.
        has = [row for row in some if (run.number, _of(row)) in holders]
        for rows in ([row for row in some if row not in has], has):
            if not rows or (rows is has and rows[0].step in in_queues):
                continue
            inside = [row for row in rows if row.task != _of(row)]
            path = _of(rows[0]) or "workflow"
            wait = Wait(path, "lock", since.get(path), dict(rows[0].info["reason"]), len(inside or rows))
            wait.steps = tuple(dict.fromkeys(([step] if step else []) + [row.step for row in rows]))
            if rows is has:
                wait.kind, wait.since, wait.reason = "slot", None, {"why": "worker", "lock": lock}
            else:
                wait.reason |= {"held": len(holders), "holders": _named(store, holders)}
            found.append(wait)
    return found


def _asked(store: Store, run: Run) -> dict[str, float]:
    """Since when tasks, calls or the run ("workflow") have waited for a lock."""
    found: dict[str, float] = {}
    for event in store.events(run.number, kinds=["task.waiting", "run.waiting", "run.started"]):
        if event.kind == "run.started":
            found.clear()  # all is asked for again
            continue
        reason = event.data.get("reason") or {}
        if reason.get("why") == "lock" and reason.get("of", event.task) == event.task:
            found.setdefault(event.task or "workflow", event.at)
    return found


def _named(store: Store, holders: Sequence[tuple[int, str]]) -> list[dict[str, Any]]:
    found = []
    for number, task in holders[:NAMED]:
        run = store.run_by_number(number)
        if run is not None:
            gone = {"gone": True} if owner_alive(store, run) is False else {}
            found.append({"run": run.id, "task": task, "since": _held_since(store, run, task), "user": run.user} | gone)
    return found


def _holders(store: Store, run: Run, name: str, of: str) -> list[tuple[int, str]]:
    """Who holds a lock now. Inside of what holds it the same name means another one, and the store has it under another name:
    see engine.locking."""
    parts = of.split("/") if of else []
    found = [(one.run, one.task) for one in store.lock_holders([name])[name]]
    for depth in range(len(parts)):
        around = "/".join(parts[:depth])
        if (run.number, around) in found:
            name = f"{name} in {run.id}/{around}"
            found = [(one.run, one.task) for one in store.lock_holders([name])[name]]
    return found


def _held_since(store: Store, run: Run, task: str) -> float | None:
    """When it began, which is when it had the lock, or soon after. Not known of who has it and waits for a machine, or tries again."""
    if not task:
        return min((first for _, first, _ in store.task_counts(run.number).values() if first is not None), default=None)
    row = store.task(run.number, task)
    return row.started if row is not None and row.attempt <= 1 else None


# -- all else ---------------------------------------------------------------------------------------------------------


def _tasks(store: Store, run: Run, rows: Iterable[TaskRow]) -> list[Wait]:
    found: dict[tuple[str, str], Wait] = {}
    due: dict[str, float] | None = None
    for row in rows:
        reason = row.info.get("reason") or {}
        message = {"message": row.info["message"]} if row.info.get("message") else {}
        if row.state in ("retrying", "suspended"):
            due = _due(store, run) if due is None else due
            until = {"until": due[row.task]} if row.task in due else {}
            kind = "retry" if row.state == "retrying" else "time" if until else "somebody"
            wait = Wait(row.task, kind, row.started, {**message, **until})
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


def _due(store: Store, run: Run) -> dict[str, float]:
    """When tasks that wait for a time go on."""
    found: dict[str, float] = {}
    for event in store.events(run.number, kinds=["task.failed", "task.errored", "task.suspended"]):
        seconds = event.data.get("seconds" if event.kind == "task.suspended" else "retry")
        if seconds is not None:
            found[event.task] = event.at + float(seconds)
    return found


def _slots(outline: Outline, wanted: Sequence[str], held_up: set[str], exits: set[str]) -> list[Wait]:
    """Tasks that could start and have not: as many run as may."""
    found = []
    asked = [step_of(one) for one in wanted]
    for node in outline.nodes:
        if node.nested or node.over or any(_under(node.path, one) for one in held_up):
            continue
        if not _ready(node, outline) or _too_early(node, outline, exits):
            continue
        if asked and not any(_under(node.path, one) or _under(one, node.path) for one in asked):
            continue
        active = node.count(views.ACTIVE)
        left = (node.total or 0) - node.count(views.ENDED) - active
        if left > 0 and not node.looping:
            parallel = node.step.each.parallel if node.step.each is not None else None
            limit = {"parallel": parallel} if parallel is not None and active >= parallel else {}
            found.append(Wait(node.path, "slot", None, limit, left, steps=(node.path,)))
    return found


def _ready(node: Node, outline: Outline) -> bool:
    if not all(outline.by_path[up].over for up in node.before):
        return False
    return node.parent is None or (_ready(node.parent, outline) and bool(node.parent.state))


def _exits(workflow: Workflow, outline: Outline) -> set[str]:
    """Paths of the exit handlers, of the workflow and of those that it calls."""
    by_name = {one.name: {step.name for step in one.on_exit} for one in workflow.definitions}
    found = set()
    for node in outline.nodes:
        action = None if node.parent is None else node.parent.step.action
        names = (
            by_name.get(action.name, set()) if isinstance(action, Nested) else {one.name for one in workflow.on_exit}
        )
        if node.name in names:
            found.add(node.path)
    return found


def _open(node: Node, outline: Outline, exits: set[str]) -> list[str]:
    """What it comes after and is not over: an exit handler comes after all of the workflow that it belongs to."""
    before = [up for up in node.before if not outline.by_path[up].over]
    if node.path in exits:
        around = _prefix(node)
        before += [
            one.path for one in outline.nodes if _prefix(one) == around and one.path not in exits and not one.over
        ]
    return list(dict.fromkeys(before))


def _too_early(node: Node, outline: Outline, exits: set[str]) -> bool:
    """Does it belong to an exit handler whose time has not come?"""
    at: Node | None = node
    while at is not None:
        if at.path in exits and _open(at, outline, exits):
            return True
        at = at.parent
    return False


def _steps(outline: Outline, nodes: Sequence[Node], exits: set[str], path: str) -> list[Wait]:
    """Steps whose time has not come: what they wait for, or what the workflow around them does."""
    for node in nodes:
        at: Node | None = node
        while at is not None:
            open_ = _open(at, outline, exits)
            if open_:
                handler = {"exit": True} if at.path in exits else {}
                name = path if len(nodes) > 1 else node.path
                return [Wait(name, "steps", None, {"steps": open_, **handler}, steps=(node.path,))]
            at = at.parent
    return []


# -- what was ---------------------------------------------------------------------------------------------------------


def spells(events: Iterable[Event]) -> list[Spell]:
    """The times that were spent in line, in order."""
    found: list[Spell] = []
    going: dict[str, Spell] = {}

    def over(name: str, at: float, outcome: str) -> Spell:
        spell = going.pop(name)
        spell.end, spell.outcome = at, outcome
        return spell

    for event in events:
        name, data = event.task, event.data
        if event.kind in _BREAKS:
            for left in list(going):
                over(left, event.at, "stopped")
        elif event.kind == "reservation.waiting":
            spell = going.get(name)
            if spell is None:
                spell = going[name] = Spell(name, data.get("workload", ""), event.at, None, [])
                found.append(spell)
            spell.reasons.append({"at": event.at, **data.get("reason", {})})
        elif event.kind == "reservation.withdrawn" and name in going:
            over(name, event.at, "withdrawn")
        elif event.kind == "reservation.admitted":
            before = next((spell.reasons[-1:] for spell in reversed(found) if spell.path == name), [])
            waited = float(data.get("waited", 0.0))
            if name not in going:
                if not before or waited < 0.01:
                    continue  # at once
                going[name] = Spell(name, data.get("workload", ""), event.at - waited, None, list(before))
                found.append(going[name])
            spell = over(name, event.at, "admitted")
            spell.tasks, spell.queue = int(data.get("tasks", 0)), str(data.get("queue", ""))
            spell.held = dict(data.get("held", {}))
    return found
