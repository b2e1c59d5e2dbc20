"""What of a run waits in the queues of a cluster's Kueue, in Kueue's words. Called by queue_waits.

They are not in the store: its engine records what Kueue says, and again when it says something else.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.graph.model import Workflow
from penstock.service.run_records import plain_params, workflow_of
from penstock.service.views.outline import Outline
from penstock.service.views.reservation_steps import steps_of
from penstock.service.views.wait_history import KINDS, past_waits
from penstock.service.views.waits import Wait
from penstock.service.workflows import step_at
from penstock.store.records import Event, RunRecord
from penstock.store.sql import Store


def cluster_waits(
    store: Store,
    run: RunRecord,
    workflow: Workflow | None = None,
    outline: Outline | None = None,
    events: Iterable[Event] | None = None,
) -> list[Wait]:
    """One for each reservation."""
    if events is None:
        events = store.runs.events(run.number, kinds=KINDS)
    still = [wait for wait in past_waits(events) if wait.end is None and wait.reasons]
    still = [wait for wait in still if wait.reasons[-1].get("why") == "kueue"]
    if not still:
        return []
    workflow = workflow or workflow_of(store, run)
    outline = outline or Outline(workflow)
    found = []
    for wait in still:
        reason = {name: value for name, value in wait.reasons[-1].items() if name != "at"}
        steps = steps_of(workflow, plain_params(run), wait.path, outline)
        pods, asks, priority = reason.pop("pods", 0), reason.pop("asks", {}), reason.pop("priority", 0)
        replicas = {step.replicas for path in steps if (step := step_at(workflow, path)) is not None}
        tasks = int(pods) // (replicas.pop() if len(replicas) == 1 else 1)
        found.append(Wait(wait.path, "queue", wait.start, reason, tasks if steps else 0, dict(asks), steps, priority))
    return found
