"""What the screens show of a run, read from the store. Called by the commands that look (ls, show, watch, logs, diff) and by the
progress of run; later by the pages.

`Outline` is the run seen as the author wrote it: one node for each step, however many tasks it has. It works on tallies, which
come from the engine itself while it runs, and from the task rows (`tallies`) for everybody else.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.errors import NotFound, Problem, nearest
from penstock.graph.model import Nested, Step, Workflow, edges_of

if TYPE_CHECKING:
    from penstock.plan.diff import PlanDiff
    from penstock.settings import Settings
    from penstock.store.base import Event, Run, TaskRow
    from penstock.store.sql import Store

Tallies = Mapping[str, Mapping[str, int]]
"""Step path -> tasks by state, and `tasks`: how many there are in all, for a looped step."""
Times = Mapping[str, Sequence[float]]
"""Step path -> when its first task began and, if it is over, its last ended."""

ACTIVE = ("running", "suspended", "retrying", "waiting")
ENDED = ("succeeded", "reused", "failed", "errored", "skipped", "omitted", "cancelled")
BAD = ("failed", "errored")
OVER = ("succeeded", "failed", "cancelled")
"""States of a run in which nothing more happens."""
DEEPEST = 12
MOST_STEPS = 20_000
"""Workflows that call each other twice double at each level; nobody reads so many lines."""


# -- the run as the author wrote it -----------------------------------------------------------------------------------


class Node:
    """One step, with how far it has come."""

    __slots__ = (
        "before", "depth", "each", "items", "looping", "name", "nested", "parent", "path", "state", "step", "tally", "total",
    )  # fmt: skip

    def __init__(self, step: Step, path: str, parent: Node | None, before: tuple[str, ...]) -> None:
        self.step = step
        self.name = step.name
        self.path = path
        self.parent = parent
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.before = before
        """Paths of the steps that it waits for."""
        self.each = step.each is not None
        self.items = _items(step)
        self.looping: bool = step.loop is not None or (parent is not None and parent.looping)
        self.nested = isinstance(step.action, Nested)
        self.state = ""
        """Of the whole step: one of the states of a task, or "" if its time has not come."""
        self.total: int | None = None
        """Tasks that it has, as far as is known."""
        self.tally: Mapping[str, int] = {}

    @property
    def over(self) -> bool:
        return self.state in ENDED

    @property
    def many(self) -> bool:
        """Is it more than one task?"""
        return self.each or (self.total or 0) > 1

    def count(self, states: Collection[str]) -> int:
        many = 0
        for state, some in [*self.tally.items()]:  # a copy: the engine writes into it meanwhile
            if state in states:
                many += some
        return many


def _items(step: Step) -> int | None:
    """How often it runs, if the author's own text says so; None if that shows only later."""
    if step.each is None:
        return 1
    product = 1
    for axis in step.each.axes:
        lengths = [len(items) for items in axis.values() if isinstance(items, tuple | list)]
        if len(lengths) < len(axis) or not lengths:
            return None
        product *= min(lengths)
    return product


class Outline:
    def __init__(self, workflow: Workflow) -> None:
        self.nodes: list[Node] = []
        """In the author's order, each before those inside it."""
        self._definitions = {definition.name: definition for definition in workflow.definitions}
        self._add(workflow, "", None)
        self.by_path = {node.path: node for node in self.nodes}
        self._followers: dict[str, list[Node]] = {}
        for node in self.nodes:
            for up in node.before:
                self._followers.setdefault(up, []).append(node)

    def _add(self, workflow: Workflow, prefix: str, parent: Node | None) -> None:
        steps = (*workflow.steps, *workflow.on_exit)
        known = {step.name for step in steps}
        for step in steps:
            before = tuple(prefix + up for up in edges_of(step) if up in known)
            node = Node(step, prefix + step.name, parent, before)
            self.nodes.append(node)
            if isinstance(step.action, Nested) and node.depth < DEEPEST and len(self.nodes) < MOST_STEPS:
                inner = self._definitions.get(step.action.name)
                if inner is not None:
                    self._add(inner, node.path + "/", node)

    def measure(self, tallies: Tallies, state: str) -> None:
        """How far each step has come. `state`: of the run."""
        over = state in OVER
        for node in self.nodes:
            node.tally = tallies.get(node.path) or {}
        for node in self.nodes:
            self._measure(node, over)

    def _measure(self, node: Node, run_over: bool) -> None:
        parent = node.parent
        tally = node.tally
        done, busy = node.count(ENDED), node.count(ACTIVE)
        calls = 1 if parent is None else parent.total
        if node.each:
            known = tally.get("tasks") or (node.items * calls if node.items is not None and calls is not None else None)
            if "tasks" not in tally and done:
                known = done  # skipped or left out as a whole
        else:
            known = calls
        if node.looping:
            known = None
        node.total = max(known, done + busy) if known is not None else (done + busy or None)
        if run_over if parent is None else parent.over:
            over = True
        elif node.looping:
            # Between two rounds nothing is active either.
            top = parent is None or not parent.looping
            over = top and bool(done) and not busy and any(one.tally for one in self._followers.get(node.path, ()))
        elif parent is not None and (parent.each or parent.looping):
            over = False
        else:
            over = bool(done) and not busy and done >= (known or 0)
        node.state = _ended_as(tally) if over else _going_on_as(tally, done)


def _ended_as(tally: Mapping[str, int]) -> str:
    for state in ("failed", "errored", "cancelled", "succeeded", "reused", "omitted", "skipped"):
        if tally.get(state):
            return state
    return "cancelled" if any(tally.get(state) for state in ACTIVE) else "omitted"


def _going_on_as(tally: Mapping[str, int], done: int) -> str:
    return next((state for state in ACTIVE if tally.get(state)), "running" if done or tally.get("tasks") else "")


# -- what the store knows ---------------------------------------------------------------------------------------------


class Reader:
    """Tallies of a run from its records, kept up to date: only events that are new are read again."""

    def __init__(self, store: Store, run: Run) -> None:
        self.store = store
        self.run = run
        self.tallies: dict[str, dict[str, int]] = {}
        self.times: dict[str, list[float]] = {}
        self._seen = 0
        self._ready: dict[str, int] = {}
        self._dropped: dict[tuple[str, str], int] = {}
        """Tasks that were cancelled before anybody took them: they have no row."""
        self._retried = 0.0

    def read(self) -> None:
        run = self.store.run_by_number(self.run.number)
        if run is None:
            raise NotFound(
                Problem("P505", f"{self.run.id} has been removed meanwhile", "penstock ls shows what there is")
            )
        self.run = run
        counts = self.store.task_counts(run.number)
        if run.state not in OVER or sum(run.counts.values()) != sum(count for count, _, _ in counts.values()):
            self._follow()
        tallies: dict[str, dict[str, int]] = {}
        stamps: dict[str, tuple[list[float], list[float]]] = {}
        for (step, state), (count, started, ended) in counts.items():
            if state in ("failed", "errored", "cancelled", "omitted") and ended is not None and ended < self._retried:
                continue  # to be done again
            tallies.setdefault(step, {})[state] = count
            starts, ends = stamps.setdefault(step, ([], []))
            starts += [started] if started is not None else []
            ends += [ended] if ended is not None else []
        for (step, state), many in self._dropped.items():
            tally = tallies.setdefault(step, {})
            tally[state] = tally.get(state, 0) + many
        for step, many in self._ready.items():
            tallies.setdefault(step, {})["tasks"] = many
        self.tallies = tallies
        self.times = {
            step: [min(starts), max(ends)] if ends else [min(starts)]
            for step, (starts, ends) in stamps.items()
            if starts
        }

    def _follow(self) -> None:
        from penstock.engine.live import step_of

        for event in self.store.events(self.run.number, self._seen):
            self._seen = event.seq
            if event.kind == "step.ready":
                step = step_of(event.task)
                self._ready[step] = self._ready.get(step, 0) + int(event.data["tasks"])
            elif event.kind == "run.retried":
                self._retried = event.at
                self._dropped.clear()
            elif event.kind.startswith("step.") and int(event.data.get("tasks", 1)) > 1:
                place = step_of(event.task), event.kind.partition(".")[2]
                self._dropped[place] = self._dropped.get(place, 0) + int(event.data["tasks"])


def removed(run: Run) -> NotFound:
    return NotFound(Problem("P505", f"{run.id} has been removed meanwhile", "penstock ls shows what there is"))


@dataclass(slots=True)
class RunView:
    """A run at a glance."""

    run: Run
    state: str
    """As people see it: `lost` if its engine is gone."""
    outline: Outline
    tallies: Tallies
    times: Times
    reasons: Mapping[str, str]
    """Step -> why it waits, failed or was left out, in words; one for each."""
    failures: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    """The first tasks that failed, with what is known."""
    failed: int = 0
    outputs: dict[str, Any] = field(default_factory=dict)

    def as_data(self) -> dict[str, Any]:
        steps = []
        for node in self.outline.nodes:
            stamps = self.times.get(node.path, ())
            steps.append({
                "step": node.path, "kind": node.step.action.kind, "state": node.state or "pending", "total": node.total,
                "tasks": {state: many for state, many in node.tally.items() if many and state != "tasks"},
                "started": stamps[0] if stamps else None, "ended": stamps[1] if len(stamps) > 1 and node.over else None,
                "reason": self.reasons.get(node.path, ""),
            })  # fmt: skip
        return {
            **run_data(self.run, self.state), "params": self.run.params, "options": self.run.options, "digest": self.run.digest,
            "steps": steps, "outputs": self.outputs, "failed": self.failed,
            "failures": [{"task": path, **data} for path, data in self.failures],
        }  # fmt: skip


def run_data(run: Run, state: str) -> dict[str, Any]:
    """A run as one row of a list."""
    return {
        "run": run.id, "workflow": run.workflow, "state": state, "user": run.user, "created": run.created, "ended": run.ended,
        "tasks": run.counts,
    }  # fmt: skip


def overview(store: Store, run: Run, settings: Settings) -> RunView:
    from penstock import service
    from penstock.artifacts.values import dumps
    from penstock.service import runs

    reader = Reader(store, run)
    reader.read()
    run = reader.run
    outline = Outline(runs.workflow_of(store, run))
    outline.measure(reader.tallies, run.state)
    # A called workflow fails because of a task in it, which is counted.
    bad = sum(node.count(BAD) for node in outline.nodes if not node.nested)
    found = failures(store, run, settings) if any(node.count(BAD) for node in outline.nodes) else []
    outputs = {} if run.outputs is None else service.shown_outputs(dumps(run.outputs))
    return RunView(
        run=run, state=runs.state_of(store, run), outline=outline, tallies=reader.tallies, times=reader.times,
        reasons=_reasons(store, run, outline), failures=found, failed=bad, outputs=outputs,
    )  # fmt: skip


def _reasons(store: Store, run: Run, outline: Outline) -> dict[str, str]:
    found: dict[str, str] = {}
    for state in (*BAD, "suspended", "retrying", "waiting", "omitted", "skipped", "cancelled"):
        for node in outline.nodes:
            if node.tally.get(state) and node.path not in found and len(found) < 500:
                rows = store.tasks(run.number, states=[state], step=node.path, limit=1)
                if rows and (said := reason(rows[0])):
                    found[node.path] = said
    return found


def reason(row: TaskRow) -> str:
    """Why a task is in the state it is in, in one line."""
    info = row.info
    why = info.get("reason")
    if isinstance(why, Mapping):
        if why.get("why") == "lock":
            from penstock.service.wording import brief

            return brief(why)
        where = f"{why['run']}/{why['task']}" if "run" in why else "another task"
        return (
            f"{where} computes the same"
            if why.get("why") == "shared"
            else str(why.get("message") or why.get("why") or "")
        )
    if row.state == "reused" and isinstance(info.get("from"), Mapping):
        return f"from {info['from'].get('run')}/{info['from'].get('task')}"
    return cause(info) if row.state in (*BAD, "retrying") else " ".join(str(info.get("message") or "").split())


def cause(data: Mapping[str, Any]) -> str:
    """One line for a failure: the exit code or the exception, and what was said."""
    message = " ".join(str(data.get("message") or "").split())
    code = data.get("exit_code")
    if code is not None:
        name = f"signal {-code}" if isinstance(code, int) and code < 0 else f"exit code {code}"
        if not message or name in message or f"exit {code}" in message or code == 0:
            return message or name
        return f"{message} ({name})"
    kind = str(data.get("exception") or "").rpartition(".")[2]
    if kind and kind not in message:
        return f"{kind}: {message}" if message else kind
    return message or "no reason was given"


def failures(store: Store, run: Run, settings: Settings, limit: int = 20) -> list[tuple[str, dict[str, Any]]]:
    """Task -> message, exit_code, exception, traceback, log, log_end (its last lines), attempts, state. The first few, innermost
    first: a called workflow that failed because of a task in it comes after that task."""
    from penstock.service.runs import log_text

    rows = store.tasks(run.number, states=BAD, limit=limit * 5)
    rows = sorted(rows, key=lambda row: (-row.task.count("/"), row.ended or 0.0, natural(row.task)))[:limit]
    found = []
    for row in rows:
        data = {**row.info, "state": row.state, "attempts": max(row.attempt, 1)}
        data["log_end"] = log_text(settings, row.info.get("log") or (), 10)
        found.append((row.task, data))
    return found


# -- steps and tasks --------------------------------------------------------------------------------------------------


_DIGITS = re.compile(r"(\d+)")


def natural(path: str) -> list[Any]:
    """So that train[10] comes after train[2]."""
    return [int(part) if part.isdecimal() else part for part in _DIGITS.split(path)]


def tasks(store: Store, run: Run, path: str = "", states: Sequence[str] | None = None) -> list[TaskRow]:
    """All tasks; those of a step and inside it; or one task with those inside it. In natural order. Raises NotFound."""
    from penstock.engine.live import step_of

    step = step_of(path)
    rows: list[TaskRow] = []
    for one in dict.fromkeys(name for name, _ in store.task_counts(run.number)):
        if not path or one == step or one.startswith(step + "/"):
            rows += store.tasks(run.number, states=states, step=one)
    if step != path:
        below = (path + "/", path + "#", path + "[")
        rows = [row for row in rows if row.task == path or row.task.startswith(below)]
    if path and not rows:
        check_path(store, run, path)
    return sorted(rows, key=lambda row: natural(row.task))


def check_path(store: Store, run: Run, path: str) -> None:
    """Raises NotFound unless this is a step of the workflow, or a task that has begun."""
    from penstock.engine.live import step_of
    from penstock.service.runs import workflow_of

    steps = [node.path for node in Outline(workflow_of(store, run)).nodes]
    if path in steps or store.task(run.number, path) is not None:
        return
    if step_of(path) in steps:
        fix = f"the task has not begun, or has another number: penstock show {run.id}/{step_of(path)} lists them"
        raise NotFound(Problem("P507", f"{run.id} has no task {path!r}", fix))
    known = ", ".join(steps[:8]) + (", …" if len(steps) > 8 else "")
    raise NotFound(Problem("P507", f"{run.id} has no step {path!r}", f"its steps are {known}.{nearest(path, steps)}"))


def task_data(row: TaskRow) -> dict[str, Any]:
    return {
        "task": row.task, "step": row.step, "state": row.state, "attempt": row.attempt, "key": row.key, "started": row.started,
        "ended": row.ended, "reason": reason(row), **{name: value for name, value in row.info.items() if name != "reason"},
    }  # fmt: skip


@dataclass(slots=True)
class TaskView:
    """One task with everything that is known of it."""

    row: TaskRow
    attempts: list[dict[str, Any]]
    """attempt, state, started, ended, seconds, on, message, exit_code, exception, log: what is known of each."""
    inputs: dict[str, Any]
    """As the author wrote them: a value, or the expression it comes from."""
    outputs: dict[str, Any]
    log: list[str]
    """Files."""

    def as_data(self) -> dict[str, Any]:
        return {
            **task_data(self.row),
            "attempts": self.attempts,
            "inputs": self.inputs,
            "outputs": self.outputs,
            "files": self.log,
        }


def task_view(store: Store, run: Run, row: TaskRow, settings: Settings) -> TaskView:
    from penstock import service
    from penstock.artifacts.values import dumps
    from penstock.service.runs import workflow_of

    events = [event for event in store.events(run.number) if event.task == row.task]
    outputs: dict[str, Any] = {}
    for event in events:
        if event.kind == "task.succeeded":
            result = store.lookup([event.data["key"]]).get(event.data["key"]) if "key" in event.data else None
            outputs = result.outputs if result is not None else event.data.get("outputs", {})
    node = Outline(workflow_of(store, run)).by_path.get(row.step)
    inputs = {} if node is None else {given.name: _shown(given.value) for given in node.step.inputs}
    attempts = _attempts(events)
    parts = row.info.get("log") or next((one["log"] for one in reversed(attempts) if one.get("log")), ())
    files = [str(settings.home / name) for name in dict.fromkeys(part[0] for part in parts)]
    return TaskView(row, attempts, inputs, service.shown_outputs(dumps(outputs)), files)


def _attempts(events: Iterable[Event]) -> list[dict[str, Any]]:
    found: dict[int, dict[str, Any]] = {}
    for event in events:
        number = int(event.data.get("attempt", 0))
        if not number:
            continue
        one = found.setdefault(number, {"attempt": number, "state": "running", "started": None, "ended": None})
        if event.kind == "task.started":
            one |= {"started": event.at, "on": event.data.get("on", "")}
            continue
        one |= {"state": event.kind.partition(".")[2], "ended": event.at}
        if one["started"] is None and "seconds" in event.data:
            one["started"] = event.at - event.data["seconds"]
        one |= {name: value for name, value in event.data.items() if name not in ("attempt", "outputs", "key")}
    return [found[number] for number in sorted(found)]


def _shown(value: Any) -> Any:
    from penstock.graph.expr import Expr
    from penstock.graph.template import Template

    if isinstance(value, Expr):
        return value.text
    if isinstance(value, Template):
        return "".join(part if isinstance(part, str) else f"{{{part.text}}}" for part in value.parts)
    if isinstance(value, list | tuple):
        return [_shown(item) for item in value]
    return {key: _shown(item) for key, item in value.items()} if isinstance(value, dict) else value


# -- over time --------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Band:
    """One row of a chart over time: a step, or a task of it."""

    name: str
    depth: int
    state: str
    spans: list[tuple[float, float]]
    """From when to when each of its tasks ran; the last attempt of each."""

    def as_data(self) -> dict[str, Any]:
        return {"name": self.name, "state": self.state, "spans": [list(span) for span in self.spans]}


def gantt(view: RunView, rows: Iterable[TaskRow], now: float, path: str = "") -> list[Band]:
    """One band for each step that has run; with `path`, one for each task."""
    if path:
        return [
            Band(row.task, 0, row.state, _span(row, now))
            for row in rows
            if row.started is not None or row.state == "reused"
        ]
    spans: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        spans.setdefault(row.step, []).extend(_span(row, now))
    nodes = [node for node in view.outline.nodes if spans.get(node.path)]
    return [Band(node.name, node.depth, node.state, spans[node.path]) for node in nodes]


def _span(row: TaskRow, now: float) -> list[tuple[float, float]]:
    if row.started is None:
        return [(row.ended, row.ended)] if row.state == "reused" and row.ended is not None else []
    return [(row.started, max(row.started, now if row.ended is None else row.ended))]


# -- two runs ---------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class StepTime:
    step: str
    before: float | None
    after: float | None
    states: tuple[str, str]
    reused: int
    """Tasks that the second run took from earlier ones."""

    def as_data(self) -> dict[str, Any]:
        return {
            "step": self.step, "before": self.before, "after": self.after, "state_before": self.states[0],
            "state_after": self.states[1], "reused": self.reused,
        }  # fmt: skip


@dataclass(slots=True)
class RunDiff:
    before: RunView
    after: RunView
    plan: PlanDiff
    """Parameters, steps and demand."""
    steps: list[StepTime]

    @property
    def outputs(self) -> dict[str, tuple[Any, Any]]:
        names = dict.fromkeys([*self.before.outputs, *self.after.outputs])
        pairs = {name: (self.before.outputs.get(name), self.after.outputs.get(name)) for name in names}
        return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}

    def as_data(self) -> dict[str, Any]:
        sides = {}
        for name, view in (("before", self.before), ("after", self.after)):
            sides[name] = {**run_data(view.run, view.state), "seconds": seconds_of(view.run)}
        return {
            **sides, "plan": self.plan.as_data(), "steps": [one.as_data() for one in self.steps],
            "outputs": {name: {"before": old, "after": new} for name, (old, new) in self.outputs.items()},
        }  # fmt: skip


def seconds_of(run: Run, now: float | None = None) -> float | None:
    """How long it took, or has been going on until `now`."""
    end = run.ended if run.ended is not None else now
    return None if end is None else max(0.0, end - run.created)


def compare(store: Store, a: Run, b: Run, settings: Settings) -> RunDiff:
    from penstock.plan.diff import diff
    from penstock.plan.make import make
    from penstock.service.runs import workflow_of

    plans = [make(workflow_of(store, run), run.params) for run in (a, b)]
    before, after = overview(store, a, settings), overview(store, b, settings)
    old, new = before.outline.by_path, after.outline.by_path
    steps = []
    for path in dict.fromkeys([*old, *new]):
        states = tuple(nodes[path].state if path in nodes else "" for nodes in (old, new))
        spent = [_spent(view.times.get(path)) for view in (before, after)]
        reused = new[path].tally.get("reused", 0) if path in new else 0
        steps.append(StepTime(path, spent[0], spent[1], (states[0], states[1]), reused))
    return RunDiff(before, after, diff(*plans), steps)


def _spent(stamps: Sequence[float] | None) -> float | None:
    return max(0.0, stamps[1] - stamps[0]) if stamps and len(stamps) > 1 else None


def compare_file(store: Store, a: Run | str, b: Run | str, given: Sequence[str]) -> PlanDiff:
    """A file, by its name, and a run. What is not given for the file is as it was in the run."""
    from penstock import service
    from penstock.plan.diff import diff
    from penstock.plan.make import make
    from penstock.service.runs import workflow_of

    recorded = next(one for one in (a, b) if not isinstance(one, str))
    plans = []
    for one in (a, b):
        if isinstance(one, str):
            workflow = service.load(one)
            known = {param.name for param in workflow.params}
            params = {name: value for name, value in recorded.params.items() if name in known}
            plans.append(make(workflow, {**params, **service.parameters(workflow, given)}))
        else:
            plans.append(make(workflow_of(store, one), one.params))
    return diff(*plans)
