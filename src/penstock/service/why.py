"""Why a run, or a step of it, waits: now, and what it has waited for so far. Called by `penstock why`, and for its queues by the
screens that show a run.

What is waited for is either a queue (then the queues themselves are asked, as they are now), another run that computes the same,
a time, a person, a worker, or other steps. What was waited for is read from the log: every hold was written down with its reason.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.engine.live import step_of
from penstock.graph.model import Unit, Workflow
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


@dataclass(slots=True)
class Wait:
    """Something that is waited for now."""

    path: str
    """The step, stage or task that waits; "workflow" for the whole."""
    kind: str
    """queue · slot · shared · retry · somebody · time · steps · engine"""
    since: float | None = None
    reason: dict[str, Any] = field(default_factory=dict)
    """Of a queue: what `Hold.as_data` gives."""
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
    """Raises NotFound if the run has no such step."""
    workflow = workflow_of(store, run)
    outline = views.Outline(workflow)
    if path and step_of(path) not in outline.by_path:  # a task that has not begun may well be asked about
        views.check_path(store, run, path)
    rows = store.tasks(run.number, states=["running", "waiting", "retrying", "suspended"])
    rows = [row for row in rows if not path or _under(row.task, path) or _under(row.step, path)]
    state = state_of(store, run)
    events = list(store.events(run.number, kinds=[*_HOLDS, *_BREAKS]))
    reader = views.Reader(store, run)
    reader.read()
    outline.measure(reader.tallies, run.state)
    node = outline.by_path.get(step_of(path)) if path else None
    # What is called is not counted: the tasks in it are.
    called = {one.path for one in outline.nodes if one.nested}
    running = sum(row.state == "running" and row.step not in called for row in rows)
    waits: list[Wait] = []
    if state in ("stopped", "lost"):
        waits.append(Wait("", "engine", reason={"state": state}))
    elif state not in FINAL:
        every = in_line(store, run, workflow, outline, events)
        waits += [wait for wait in every if _concerns(wait, path, outline)]
        waits += _tasks(store, run, rows)
        if all(wait.steps for wait in every):  # what else could start has everything but a worker
            waits += _slots(outline, path, {step for wait in every for step in wait.steps})
        if not waits and node is not None and not running:
            waits += _steps(outline, node)
    row = store.task(run.number, path) if path else None
    ended = row.state if row is not None and row.ended is not None else node.state if node and node.over else ""
    return Why(
        run,
        state,
        path,
        waits,
        0 if state in ("stopped", "lost") else running,
        [spell for spell in spells(events) if spell.end is not None and _about(spell.path, path)],
        [
            {"path": event.task, "at": event.at, **event.data}
            for event in events
            if event.kind == "reservation.evicted" and _about(event.task, path)
        ],
        ended,
    )


def _under(path: str, wanted: str) -> bool:
    return path == wanted or path.startswith((f"{wanted}/", f"{wanted}[", f"{wanted}#"))


def _about(name: str, wanted: str) -> bool:
    """A reservation of the whole workflow concerns every step."""
    return not wanted or name == "workflow" or _under(name, wanted) or _under(wanted, name)


def _concerns(wait: Wait, wanted: str, outline: Outline) -> bool:
    if _about(wait.path, wanted) or not wait.steps:
        return True
    step = step_of(wanted)
    return any(_under(one, step) or _under(step, one) for one in wait.steps)


# -- queues -----------------------------------------------------------------------------------------------------------


def queued(store: Store) -> set[int]:
    """Numbers of the runs that have something in line."""
    return {one.run for one in store.workloads() if one.state == "pending"}


def is_queued(run: Run, state: str, waiting: set[int]) -> bool:
    """Does all of it wait: something in a queue, and nothing runs?"""
    return state == "running" and run.number in waiting and not run.counts.get("running")


def in_line(
    store: Store,
    run: Run,
    workflow: Workflow | None = None,
    outline: Outline | None = None,
    events: Iterable[Event] | None = None,
) -> list[Wait]:
    """What of a run stands in a queue, with the reason as it is now."""
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
    path = step_of(name)
    node = outline.by_path.get(path)
    if node is None or node.step.group is not None:
        prefix, _, group = path.rpartition("/")
        return tuple(one.path for one in outline.nodes if one.step.group == group and _prefix(one) == prefix) or (path,)
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

    def look(self) -> list[Wait]:
        now = time.monotonic()
        if now < self._next:
            return self.waits
        self._next = now + 0.3
        version = self.store.last_decision()
        if version != self._version:
            self._version = version
            if self._workflow is None:
                self._workflow = workflow_of(self.store, self.run)
                self._outline = views.Outline(self._workflow)
            self.waits = in_line(self.store, self.run, self._workflow, self._outline)
            self._next = time.monotonic() + max(0.3, (time.monotonic() - now) / self.SHARE)
        return self.waits

    def texts(self) -> dict[str, str]:
        return texts(self.look())


def texts(waits: Iterable[Wait]) -> dict[str, str]:
    """Step -> its wait in a line, which is empty if there is nothing to be said about it; "" for the run as a whole."""
    found: dict[str, str] = {}
    for wait in waits:
        for step in wait.steps or ("",):
            found.setdefault(step, "" if wait.own else wording.brief(wait.reason))
    return found


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


def _slots(outline: Outline, path: str, in_queues: set[str]) -> list[Wait]:
    """Tasks that could start and have not: as many run as may."""
    found = []
    wanted = step_of(path)
    for node in outline.nodes:
        if node.nested or node.over or node.path in in_queues or not _ready(node, outline):
            continue
        if wanted and not (_under(node.path, wanted) or _under(wanted, node.path)):
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


def _steps(outline: Outline, node: Node) -> list[Wait]:
    """A step whose time has not come: what it waits for, or what the workflow around it does."""
    at: Node | None = node
    while at is not None:
        open_ = [up for up in at.before if not outline.by_path[up].over]
        if open_:
            return [Wait(node.path, "steps", None, {"steps": open_}, steps=(node.path,))]
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
