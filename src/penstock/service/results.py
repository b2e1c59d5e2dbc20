"""What the tasks of a recorded run gave: outputs of a task, of a step, of the run. Called by Run (runners) and by `penstock get`.

The log keeps the outputs of tasks that were executed. What a called workflow gave follows from the tasks in it, and is computed here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.artifacts.values import load_value, loads
from penstock.engine.blueprint import loaded, passed_on
from penstock.errors import NotFound, Problem
from penstock.expressions.evaluate import EvaluationError, resolve
from penstock.graph.model import MISSING, Nested, Step, Workflow
from penstock.graph.paths import inside, natural, step_of
from penstock.graph.stored import Stored
from penstock.service import stores
from penstock.service.run_records import params_of, workflow_of
from penstock.service.views.outline import Outline
from penstock.service.views.tasks import check_path
from penstock.service.workflows import step_at
from penstock.settings import Settings
from penstock.store.records import RunRecord, TaskRow
from penstock.store.sql import Store

GOOD = ("succeeded", "reused")


def opened(settings: Settings, run: str, outputs: Mapping[str, Any]) -> dict[str, Any]:
    """Outputs as Python works with them: the objects themselves, files as paths of copies."""
    blobs, folder = stores.blobs_of(settings), settings.home / "work" / "outputs" / run
    return {name: load_value(value, blobs, folder) for name, value in outputs.items()}


def outputs_of(run: RunRecord) -> dict[str, Any]:
    """Of the workflow; empty while it runs."""
    found: dict[str, Any] = {} if run.outputs is None else loads(json.dumps(run.outputs))
    return found


class RunResults:
    """The outputs in a run, as the store has them: plain data, with Stored for what is kept as a blob."""

    def __init__(self, store: Store, run: RunRecord, settings: Settings, workflow: Workflow | None = None) -> None:
        self.store = store
        self.run = run
        self.settings = settings
        self.workflow = workflow or workflow_of(store, run)

    def rows(self, path: str) -> list[TaskRow]:
        """The tasks of a step, or the one task of this path, in order. Raises NotFound if the run has no such step or task."""
        found = self.found(path)
        if not found:
            check_path(self.store, self.run, path)
        return found

    def found(self, path: str) -> list[TaskRow]:
        """The same; empty if there is none."""
        step = step_of(path)
        rows = self.store.runs.tasks(self.run.number, step=step)
        return sorted(
            (row for row in rows if path == step or inside(row.task, path)), key=lambda row: natural(row.task)
        )

    def is_many(self, path: str) -> bool:
        """Does the path stand for any number of tasks: a loop, or a step inside one?"""
        if path != step_of(path):  # `train[3]`, or `outer[2]/train`
            last = path.rpartition("/")[2]
            step = step_at(self.workflow, step_of(path))
            return last == step_of(last) and step is not None and step.each is not None
        node = Outline(self.workflow).by_path.get(path)
        while node is not None:
            if node.each:
                return True
            node = node.parent
        return False

    def of(self, rows: Sequence[TaskRow]) -> dict[str, dict[str, Any]]:
        """Task -> its outputs, for those that have succeeded."""
        wanted = {row.task for row in rows if row.state in GOOD}
        found: dict[str, dict[str, Any]] = {}
        keys: dict[str, str] = {}
        for event in self.store.runs.events(self.run.number, kinds=["task.succeeded"]) if wanted else ():
            if event.task in wanted:
                if "key" in event.data:
                    keys[event.task] = event.data["key"]
                elif "outputs" in event.data:
                    found[event.task] = loads(json.dumps(event.data["outputs"]))
        results = self.store.results.lookup(list(set(keys.values())))
        found.update((task, results[key].outputs) for task, key in keys.items() if key in results)
        for row in rows:
            step = step_at(self.workflow, row.step)
            if row.task in wanted and row.task not in found and step is not None and isinstance(step.action, Nested):
                found[row.task] = self._called(row.task, step)
        return found

    def of_step(self, path: str) -> dict[str, Any]:
        """The outputs of a step or task as other steps see them: of a loop a list of what succeeded, of a while loop those of its
        last round."""
        rows = self.rows(path)
        return self.gathered(rows, self.is_many(path))

    def gathered(self, rows: Sequence[TaskRow], many: bool) -> dict[str, Any]:
        found = self.of(rows)
        ordered = [found[row.task] for row in rows if row.task in found]
        if not many:
            return ordered[-1] if ordered else {}
        names = dict.fromkeys(name for outputs in ordered for name in outputs)
        return {name: [outputs[name] for outputs in ordered if name in outputs] for name in names}

    # -- called workflows ---------------------------------------------------------------------------------------------

    def _called(self, task: str, step: Step) -> dict[str, Any]:
        """What a call gave, from its outputs as written and the tasks inside it. What cannot be known any more is left out."""
        assert isinstance(step.action, Nested)
        name = step.action.name
        inner = next(one for one in self.workflow.definitions if one.name == name)
        view = {"steps": _Steps(self, inner, task + "/"), "params": _Params(self, inner, task, step), "run": {}}
        found: dict[str, Any] = {}
        for output in inner.outputs:
            try:
                found[output.name] = passed_on(output.value, view)
            except (EvaluationError, KeyError, IndexError, TypeError, ValueError):
                if output.default is not MISSING:
                    found[output.name] = resolve(output.default, {})
        return found

    def fetch(self, stored: Stored) -> Any:
        return load_value(stored, stores.blobs_of(self.settings), self.settings.home / "work" / "outputs" / self.run.id)


class _Lazy(dict[str, Any]):
    """A map whose values are made when they are read."""

    def get(self, name: str, default: Any = None) -> Any:
        if name not in self:
            return default
        return self.__getitem__(name)


class _Steps(_Lazy):
    """The steps of one call as expressions see them."""

    def __init__(self, results: RunResults, workflow: Workflow, prefix: str) -> None:
        super().__init__({step.name: None for step in (*workflow.steps, *workflow.on_exit)})
        self._results = results
        self._prefix = prefix

    def __getitem__(self, name: str) -> Any:
        if name not in self:
            raise KeyError(name)
        if super().__getitem__(name) is None:
            path = self._prefix + name
            rows = self._results.found(path)
            step = step_at(self._results.workflow, step_of(path))
            outputs = self._results.gathered(rows, step is not None and step.each is not None)
            good = any(row.state in GOOD for row in rows)
            outcome = "succeeded" if good else rows[-1].state if rows else "skipped"
            self[name] = {"outputs": loaded(outputs, self._results.fetch), "outcome": outcome}
        return super().__getitem__(name)


class _Params(_Lazy):
    """What a call was given, evaluated in the workflow around it. A call in a loop is given another value each time,
    which the log does not keep."""

    def __init__(self, results: RunResults, workflow: Workflow, task: str, step: Step) -> None:
        super().__init__({param.name: None for param in workflow.params})
        self._results = results
        self._defaults = {param.name: param.default for param in workflow.params}
        self._task = task
        self._step = step

    def __getitem__(self, name: str) -> Any:
        given = next((one.value for one in self._step.inputs if one.name == name), self._defaults[name])
        if given is MISSING:
            raise KeyError(name)
        around, _, _ = self._task.rpartition("/")
        results = self._results
        if not around:
            view: dict[str, Any] = {"params": params_of(results.run), "steps": _Steps(results, results.workflow, "")}
            return passed_on(given, view)
        outer = step_at(results.workflow, step_of(around))
        if outer is None or not isinstance(outer.action, Nested):
            raise KeyError(name)
        called = outer.action.name
        inner = next(one for one in results.workflow.definitions if one.name == called)
        view = {"params": _Params(results, inner, around, outer), "steps": _Steps(results, inner, around + "/")}
        return passed_on(given, view)


def executed(store: Store, row: TaskRow) -> TaskRow | None:
    """The task that was really executed: of a reused one that of the earlier run, which has the log. None if that was removed."""
    if row.state != "reused":
        return row
    source = row.info.get("from") or {}
    earlier = store.runs.by_id(str(source.get("run")))
    return None if earlier is None else store.runs.task(earlier.number, str(source.get("task")))


# -- what a user names ------------------------------------------------------------------------------------------------


def named(results: RunResults, path: str) -> tuple[str, dict[str, dict[str, Any]]]:
    """What `penstock get RUN/PATH` means: a step or task, or after the last slash one of its outputs, or an output of the run. Returns
    the name of the one output that was asked for ("" for all), and task -> outputs ("" for the run). Raises NotFound."""
    run = results.run
    if not path:
        return "", {"": outputs_of(run)}
    steps = [node.path for node in Outline(results.workflow).nodes]
    if step_of(path) in steps:
        return "", results.of(results.rows(path))
    above, _, last = path.rpartition("/")
    declared = [output.name for output in results.workflow.outputs]
    if not above and last in declared:
        return last, {"": {name: value for name, value in outputs_of(run).items() if name == last}}
    if above and step_of(above) in steps:
        found = results.of(results.rows(above))
        if any(last in outputs for outputs in found.values()):
            return last, {task: {last: outputs[last]} for task, outputs in found.items() if last in outputs}
        known = dict.fromkeys(name for outputs in found.values() for name in outputs)
        fix = f"its outputs are {', '.join(known)}" if known else f"penstock show {run.id}/{above} shows how it ended"
        raise NotFound(Problem("P507", f"{run.id}/{above} has no output {last!r}", fix))
    check_path(results.store, run, path)
    raise AssertionError(path)  # it is neither a step nor a task
