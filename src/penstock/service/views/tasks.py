"""The tasks of a run, and one task with all that is known of it. Called by show and logs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.artifacts.values import dumps
from penstock.errors import NotFound, Problem, nearest
from penstock.expressions.parse import Expr
from penstock.expressions.template import Template
from penstock.graph.paths import inside, natural, step_of
from penstock.service.run_records import workflow_of
from penstock.service.stores import home_of
from penstock.service.views.outline import Outline
from penstock.service.views.outputs import shown_outputs
from penstock.service.views.reasons import reason_of
from penstock.service.workflows import step_at
from penstock.settings import Settings
from penstock.store.records import Event, RunRecord, TaskRow
from penstock.store.sql import Store

_PLAIN = (str, int, float, bool, type(None))


def tasks(store: Store, run: RunRecord, path: str = "", states: Sequence[str] | None = None) -> list[TaskRow]:
    """All tasks; or those of a step and inside it; or one task and those inside it. Sorted. Raises NotFound."""
    step = step_of(path)
    rows: list[TaskRow] = []
    for one in dict.fromkeys(name for name, _ in store.runs.task_counts(run.number)):
        if not path or one == step or one.startswith(step + "/"):
            rows += store.runs.tasks(run.number, states=states, step=one)
    if step != path:
        rows = [row for row in rows if inside(row.task, path)]
    if path and not rows:
        check_path(store, run, path)
    return sorted(rows, key=lambda row: natural(row.task))


def check_path(store: Store, run: RunRecord, path: str) -> None:
    """Raises NotFound unless this is a step of the workflow, or a task that has started."""
    steps = [node.path for node in Outline(workflow_of(store, run)).nodes]
    if path in steps or store.runs.task(run.number, path) is not None:
        return
    if step_of(path) in steps:
        fix = f"the task has not started, or has another number: penstock show {run.id}/{step_of(path)} lists them"
        raise NotFound(Problem("P507", f"{run.id} has no task {path!r}", fix))
    known = ", ".join(steps[:8]) + (", …" if len(steps) > 8 else "")
    raise NotFound(Problem("P507", f"{run.id} has no step {path!r}", f"its steps are {known}.{nearest(path, steps)}"))


def task_data(row: TaskRow) -> dict[str, Any]:
    return {
        "task": row.task,
        "step": row.step,
        "state": row.state,
        "attempt": row.attempt,
        "key": row.key,
        "started": row.started,
        "ended": row.ended,
        "reason": reason_of(row),
        **{name: value for name, value in row.info.items() if name != "reason"},
    }


@dataclass(slots=True)
class TaskView:
    row: TaskRow
    attempts: list[dict[str, Any]]
    """attempt, state, started, ended, seconds, on, message, exit_code, exception, log: what is known of each."""
    inputs: dict[str, Any]
    """Their values; where these cannot be told, the text of the expression."""
    outputs: dict[str, Any]
    log: list[str]
    """Paths of its log files."""

    def as_data(self) -> dict[str, Any]:
        return {
            **task_data(self.row),
            "attempts": self.attempts,
            "inputs": self.inputs,
            "outputs": self.outputs,
            "files": self.log,
        }


def task_view(store: Store, run: RunRecord, row: TaskRow, settings: Settings) -> TaskView:
    events = [event for event in store.runs.events(run.number) if event.task == row.task]
    outputs: dict[str, Any] = {}
    for event in events:
        if event.kind == "task.succeeded":
            result = store.results.lookup([event.data["key"]]).get(event.data["key"]) if "key" in event.data else None
            outputs = result.outputs if result is not None else event.data.get("outputs", {})
    step = step_at(workflow_of(store, run), row.step)
    inputs = {} if step is None else {given.name: _as_written(given.value) for given in step.inputs}
    if any(not isinstance(given.value, _PLAIN) for given in (() if step is None else step.inputs)):
        inputs |= _given(store, run, row.task, settings)
    attempts = _attempts(events)
    parts = row.info.get("log") or next((one["log"] for one in reversed(attempts) if one.get("log")), ())
    home = home_of(settings)
    files = [home.shown(name) for name in dict.fromkeys(part[0] for part in parts)]
    return TaskView(row, attempts, inputs, shown_outputs(dumps(outputs)), files)


def _given(store: Store, run: RunRecord, path: str, settings: Settings) -> dict[str, Any]:
    """The values of a task's inputs, worked out again from what was recorded before it began. Empty if they cannot be told: something
    was removed, or the log is of another version."""
    from penstock.engine.replay import inputs_of
    from penstock.service.refolding import refolded

    try:
        again = refolded(store, run, settings)
        found = inputs_of(again, store.runs, store.results, path)
    except Exception:
        return {}
    return shown_outputs(dumps(found)) if found else {}


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


def _as_written(value: Any) -> Any:
    if isinstance(value, Expr):
        return value.text
    if isinstance(value, Template):
        return "".join(part if isinstance(part, str) else f"{{{part.text}}}" for part in value.parts)
    if isinstance(value, list | tuple):
        return [_as_written(item) for item in value]
    return {key: _as_written(item) for key, item in value.items()} if isinstance(value, dict) else value
