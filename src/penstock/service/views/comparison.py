"""Two runs compared, or a run and a file. Called by `penstock diff`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from penstock.plan.diff import PlanDiff, diff
from penstock.plan.make import make
from penstock.service import parameters
from penstock.service.run_records import plain_params, seconds_of, workflow_of
from penstock.service.sizing import sized
from penstock.service.views.listing import run_data
from penstock.service.views.runs import RunView, overview
from penstock.service.workflows import load
from penstock.settings import Settings, read
from penstock.store.records import RunRecord
from penstock.store.sql import Store


@dataclass(slots=True)
class StepTime:
    """Seconds that a step took in each of the two runs."""

    step: str
    before: float | None
    after: float | None
    states: tuple[str, str]
    reused: int
    """Tasks whose result the second run reused."""

    def as_data(self) -> dict[str, Any]:
        return {
            "step": self.step,
            "before": self.before,
            "after": self.after,
            "state_before": self.states[0],
            "state_after": self.states[1],
            "reused": self.reused,
        }


@dataclass(slots=True)
class RunDiff:
    before: RunView
    after: RunView
    plan: PlanDiff
    """Parameters, steps and demand."""
    steps: list[StepTime]

    @property
    def outputs(self) -> dict[str, tuple[Any, Any]]:
        """Those that differ."""
        names = dict.fromkeys([*self.before.outputs, *self.after.outputs])
        pairs = {name: (self.before.outputs.get(name), self.after.outputs.get(name)) for name in names}
        return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}

    def as_data(self) -> dict[str, Any]:
        sides = {}
        for name, view in (("before", self.before), ("after", self.after)):
            sides[name] = {**run_data(view.run, view.state), "seconds": seconds_of(view.run)}
        return {
            **sides,
            "plan": self.plan.as_data(),
            "steps": [one.as_data() for one in self.steps],
            "outputs": {name: {"before": old, "after": new} for name, (old, new) in self.outputs.items()},
        }


def compare(store: Store, a: RunRecord, b: RunRecord, settings: Settings) -> RunDiff:
    plans = [make(workflow_of(store, run), plain_params(run)) for run in (a, b)]
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


def compare_file(store: Store, a: RunRecord | str, b: RunRecord | str, given: Sequence[str]) -> PlanDiff:
    """A file (its target) and a run. Parameters of the file that are not given are those of the run."""
    recorded = next(one for one in (a, b) if not isinstance(one, str))
    plans = []
    for one in (a, b):
        if isinstance(one, str):
            workflow = load(one)
            known = {param.name for param in workflow.params}
            params = {name: value for name, value in plain_params(recorded).items() if name in known}
            params = {**params, **parameters.parse(workflow, given)}
            plans.append(make(sized(workflow, params, read().scheduler).workflow, params))
        else:
            plans.append(make(workflow_of(store, one), plain_params(one)))
    return diff(*plans)
