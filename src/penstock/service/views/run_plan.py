"""The plan of a run that was submitted, and how it differs from another run of the same workflow. Called by the server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from penstock.plan.make import Plan, make
from penstock.service.run_records import find, plain_params, workflow_of
from penstock.service.views.comparison import RunDiff, compare
from penstock.settings import Settings
from penstock.store.records import RunRecord
from penstock.store.sql import Store

OTHERS: Final = 20
"""Runs that are offered to be compared with."""


@dataclass(slots=True)
class RunPlan:
    run: RunRecord
    plan: Plan
    others: list[RunRecord]
    """Other runs of the workflow, the newest first."""
    difference: RunDiff | None

    def as_data(self) -> dict[str, Any]:
        return {
            "run": self.run.id,
            "plan": self.plan.as_data(),
            "against": None if self.difference is None else self.difference.before.run.id,
            "difference": None if self.difference is None else self.difference.as_data(),
        }


def run_plan(store: Store, run: RunRecord, against: str, settings: Settings) -> RunPlan:
    """`against`: empty: the run of the workflow before it, if there is one. Raises NotFound."""
    before = store.runs.page(OTHERS, before=run.number, workflow=run.workflow)
    later = [one for one in store.runs.newest(limit=OTHERS, workflow=run.workflow) if one.number > run.number]
    other = find(store, against) if against else (before[0] if before else None)
    difference = None if other is None else compare(store, other, run, settings)
    return RunPlan(run, make(workflow_of(store, run), plain_params(run)), [*later, *before], difference)
