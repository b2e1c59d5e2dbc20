"""What a run of a plan would do now with each step: reuse a result, share one that is being computed, or run; and why. Called by
`penstock plan`.

The engine's own RunState is asked, with every task whose result is known counted as done. What comes after a task that would have to
run is not known: it is reported as run, though it is reused if the task returns what it returned before.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.artifacts.values import load_value
from penstock.engine.blueprint import Blueprint, blueprints
from penstock.engine.effects import Effect, Noted
from penstock.engine.run_state import RunState
from penstock.engine.steps import Task
from penstock.engine.values import RunValues
from penstock.expressions.evaluate import resolve
from penstock.expressions.types import Type
from penstock.graph import codec
from penstock.graph.links import links_of
from penstock.graph.model import MISSING, Outcome
from penstock.graph.stored import Stored
from penstock.service import stores
from penstock.service.input_files import named
from penstock.settings import Settings
from penstock.store.records import RunRecord
from penstock.store.sql import Store

if TYPE_CHECKING:
    from penstock.plan.make import Plan

MOST_TASKS = 50_000
"""Tasks that are examined."""
_NEVER_REUSED = {
    "suspend": "waits to be resumed",
    "http": "has effects outside",
    "resource": "has effects outside",
}


@dataclass(slots=True)
class StepForecast:
    """How many tasks of one step would be reused, shared or run."""

    reuse: int = 0
    share: int = 0
    run: int = 0
    why: list[str] = field(default_factory=list)

    def word(self) -> str:
        parts = [
            (word, many) for word, many in (("reuse", self.reuse), ("share", self.share), ("run", self.run)) if many
        ]
        if not parts:
            return "–"
        if len(parts) == 1:
            return parts[0][0]
        return ", ".join(f"{word} {many:,}" for word, many in parts)

    def as_data(self) -> dict[str, Any]:
        return {"reuse": self.reuse, "share": self.share, "run": self.run, "why": self.why}


@dataclass(slots=True)
class Forecast:
    steps: dict[str, StepForecast]
    against: str
    """The last run of the same workflow, if there is one."""

    def as_data(self) -> dict[str, Any]:
        return {"against": self.against or None, "steps": {path: one.as_data() for path, one in self.steps.items()}}


def forecast(plan: Plan, store: Store, settings: Settings) -> Forecast:
    last = next(iter(store.runs.newest(limit=1, workflow=plan.workflow.name)), None)
    return _Forecaster(plan, store, settings, last).run()


class _Forecaster:
    def __init__(self, plan: Plan, store: Store, settings: Settings, last: RunRecord | None) -> None:
        self.plan = plan
        self.store = store
        self.last = last
        blobs = stores.blobs_of(settings)

        def fetch(stored: Stored) -> Any:
            return load_value(stored, blobs, settings.home / "work")

        blueprint = blueprints(plan.workflow, links_of(plan.workflow))
        known = {
            param.name: value
            for param in plan.workflow.params
            if (value := plan.params.get(param.name, MISSING)) is not MISSING
        }
        self.effects: list[Effect] = []
        types = {param.name: param.type for param in plan.workflow.params}
        params = {name: _as_in_a_run(types[name], resolve(value, {}), settings) for name, value in known.items()}
        values = RunValues(fetch)
        self.state = RunState(blueprint, params, values, self.effects.append, lane_of=lambda step: "")
        self.found: dict[str, StepForecast] = {}
        self.before = self._prefixes()

    def run(self) -> Forecast:
        examined = 0
        while examined < MOST_TASKS:
            self.state.ready.enter_calls()
            tasks = self.state.ready.take("", 500)
            if not tasks:
                break
            examined += len(tasks)
            keys = [task.key for task in tasks if task.key]
            results, holders = self.store.results.lookup(keys), self.store.results.holders(keys)
            for task in tasks:
                self._task(task, results, holders)
        why = (
            "a step before it runs"
            if examined < MOST_TASKS
            else f"not examined: more than {MOST_TASKS:,} tasks come before"
        )
        for planned, _ in self.plan.level.walk():
            if (
                planned.inner is None
                and not planned.recursive
                and planned.path not in self.found
                and planned.runs != "no"
            ):
                self.found[planned.path] = StepForecast(0, 0, planned.tasks.count or 1, [why])
        for path in list(self.state.scopes):
            self.found.pop(path.rstrip("/"), None)
        notes = [effect for effect in self.effects if isinstance(effect, Noted)]
        skipped = {note.path for note in notes if note.kind == "step.skipped"}
        return Forecast(
            {path: one for path, one in self.found.items() if path not in skipped},
            self.last.id if self.last is not None else "",
        )

    def _task(self, task: Task, results: dict[str, Any], holders: dict[str, Any]) -> None:
        expected = self.found.setdefault(task.step_path, StepForecast())
        result = results.get(task.key) if task.key else None
        ttl = task.step.cache.ttl
        if result is not None and ttl is not None and not 0 <= time.time() - result.at <= ttl:
            expected.run += 1
            self._add(expected, f"the result of {self._name(result.run)} is too old (ttl)")
        elif result is not None:
            expected.reuse += 1
            self._add(expected, f"same code and inputs as in {self._name(result.run)}")
            self.state.ended(task, Outcome.SUCCEEDED, result.outputs)
        elif task.key in holders:
            expected.share += 1
            self._add(expected, f"{self._name(holders[task.key].run)} is computing it now")
        else:
            expected.run += 1
            self._add(expected, self._reason(task))

    def _add(self, expected: StepForecast, why: str) -> None:
        if why not in expected.why and len(expected.why) < 3:
            expected.why.append(why)

    def _name(self, number: int) -> str:
        run = self.store.runs.by_number(number)
        return run.id if run is not None else f"run {number}, which is gone"

    def _reason(self, task: Task) -> str:
        plan = task.state.plan
        if plan.step.answer is not None:
            return "waits for an answer"
        if plan.private:
            return _NEVER_REUSED.get(plan.kind, "its results are not stored (cache is off)")
        if self.last is None:
            return "not run before"
        before = self.before.get(task.step_path)
        if before is None:
            return f"new since {self.last.id}"
        if before != plan.prefix:
            return f"its code or command has changed since {self.last.id}"
        row = self.store.runs.task(self.last.number, task.path)
        if row is not None and row.state in ("failed", "errored"):
            return (
                f"it failed in {self.last.id}"
                if row.key == task.key
                else f"its inputs have changed since {self.last.id}"
            )
        return (
            f"its inputs have changed since {self.last.id}"
            if row is not None and row.key
            else f"not run in {self.last.id}"
        )

    def _prefixes(self) -> dict[str, bytes]:
        """Step path -> what determined the result of the step in the last run."""
        if self.last is None:
            return {}
        try:
            workflow = codec.from_data(json.loads(self.store.runs.document(self.last.digest)), self.last.id)
        except KeyError:
            return {}
        return dict(_walk(blueprints(workflow, links_of(workflow)), "", ()))


def _as_in_a_run(type_: Type, value: Any, settings: Settings) -> Any:
    """A file is known by its content. What a run would refuse is left as it is: the run says so."""
    try:
        return named(type_, value, settings.home)
    except (OSError, ValueError):
        return value


def _walk(blueprint: Blueprint, prefix: str, inside: Sequence[Blueprint]) -> list[tuple[str, bytes]]:
    found = []
    for plan in blueprint.plans:
        path = prefix + plan.step.name
        found.append((path, plan.prefix))
        if plan.inner is not None and plan.inner not in inside and len(found) < MOST_TASKS:
            found += _walk(plan.inner, path + "/", (*inside, blueprint))
    return found
