"""A run at a glance: steps, failures, outputs. Called by show, watch and diff."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.graph.model import Workflow
from penstock.graph.paths import natural
from penstock.service.logs import log_text
from penstock.service.run_records import state_of, workflow_of
from penstock.service.task_states import BAD
from penstock.service.views.listing import run_data
from penstock.service.views.outline import Outline, Tallies, Times
from penstock.service.views.outputs import shown_outputs
from penstock.service.views.reasons import reason_of
from penstock.service.views.tallies import TallyReader
from penstock.settings import Settings
from penstock.store.records import RunRecord
from penstock.store.sql import Store

_NOT_STARTED = frozenset({"tasks", "skipped", "omitted", "cancelled"})
MOST_REASONS = 500
"""Steps whose reason is looked up."""


@dataclass(slots=True)
class RunView:
    run: RunRecord
    state: str
    """As users see it: `lost` if its engine is gone, `queued` if all that could start waits in a queue."""
    outline: Outline
    tallies: Tallies
    times: Times
    reasons: Mapping[str, str]
    """Step -> why it waits, failed or was omitted."""
    failures: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    """The first tasks that failed: (task, what is known)."""
    failed: int = 0
    """How many tasks failed in all."""
    outputs: dict[str, Any] = field(default_factory=dict)

    def as_data(self) -> dict[str, Any]:
        steps = []
        for node in self.outline.nodes:
            stamps = self.times.get(node.path, ())
            steps.append(
                {
                    "step": node.path,
                    "kind": node.step.action.kind,
                    "state": node.state or "pending",
                    "total": node.total,
                    "tasks": {state: many for state, many in node.tally.items() if many and state != "tasks"},
                    "started": stamps[0] if stamps else None,
                    "ended": stamps[1] if len(stamps) > 1 and node.over else None,
                    "reason": self.reasons.get(node.path, ""),
                }
            )
        return {
            **run_data(self.run, self.state),
            "params": self.run.params,
            "options": self.run.options,
            "digest": self.run.digest,
            "steps": steps,
            "outputs": self.outputs,
            "failed": self.failed,
            "failures": [{"task": path, **data} for path, data in self.failures],
        }


def overview(store: Store, run: RunRecord, settings: Settings) -> RunView:
    reader = TallyReader(store, run)
    reader.read()
    run = reader.run
    workflow = workflow_of(store, run)
    outline = Outline(workflow)
    outline.measure(reader.tallies, run.state)
    # A called workflow fails because of a task in it; only that task is counted.
    failed = sum(node.count(BAD) for node in outline.nodes if not node.nested)
    found = failures(store, run, settings) if any(node.count(BAD) for node in outline.nodes) else []
    return RunView(
        run=run,
        state=state_of(store, run),
        outline=outline,
        tallies=reader.tallies,
        times=reader.times,
        reasons=_as_tekton_says(workflow, outline, _reasons(store, run, outline)),
        failures=found,
        failed=failed,
        outputs={} if run.outputs is None else shown_outputs(json.dumps(run.outputs)),
    )


def _reasons(store: Store, run: RunRecord, outline: Outline) -> dict[str, str]:
    found: dict[str, str] = {}
    for state in (*BAD, "suspended", "retrying", "waiting", "omitted", "skipped", "cancelled"):
        for node in outline.nodes:
            if node.tally.get(state) and node.path not in found and len(found) < MOST_REASONS:
                rows = store.runs.tasks(run.number, states=[state], step=node.path, limit=1)
                if rows and (reason := reason_of(rows[0])):
                    found[node.path] = reason
    return found


def _as_tekton_says(workflow: Workflow, outline: Outline, reasons: dict[str, str]) -> dict[str, str]:
    """Once a task of a PipelineRun has failed, that comes first as the reason of every task that was not started, also of one whose `when`
    was false before. Tasks of finally have reasons of their own."""
    if workflow.extra.get("format") != "tekton":
        return reasons
    main = {step.name for step in workflow.steps}
    nodes = [node for node in outline.nodes if node.path in main]
    if not any(node.count(BAD) and not node.step.tolerates for node in nodes):
        return reasons
    for node in nodes:
        if node.path in reasons and {state for state, many in node.tally.items() if many} <= _NOT_STARTED:
            reasons[node.path] = f"PipelineRun was stopping; {reasons[node.path]}"
    return reasons


def failures(store: Store, run: RunRecord, settings: Settings, limit: int = 20) -> list[tuple[str, dict[str, Any]]]:
    """The first tasks that failed: (task, message, exit_code, exception, traceback, log, log_end (its last lines), attempts, state).
    The innermost come first: a called workflow comes after the task in it that made it fail."""
    rows = store.runs.tasks(run.number, states=BAD, limit=limit * 5)
    rows = sorted(rows, key=lambda row: (-row.task.count("/"), row.ended or 0.0, natural(row.task)))[:limit]
    found = []
    for row in rows:
        data = {**row.info, "state": row.state, "attempts": max(row.attempt, 1)}
        data["log_end"] = log_text(settings, row.info.get("log") or (), 10)
        found.append((row.task, data))
    return found
