"""What of a run waits in queues now, and why. Called by `waiting` and `why`.

The queues are evaluated as they are now, on a copy: nothing is written.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from penstock.graph.model import Workflow
from penstock.service import wording
from penstock.service.amounts import added
from penstock.service.run_records import owner_alive, plain_params, workflow_of
from penstock.service.task_states import ENDED
from penstock.service.views.outline import Outline
from penstock.service.views.reservation_steps import steps_of
from penstock.service.views.wait_history import KINDS, past_waits
from penstock.service.views.waits import Wait
from penstock.store.protocols import RunStore
from penstock.store.records import Event, RunRecord, WorkloadRecord
from penstock.store.sql import Store

if TYPE_CHECKING:
    from penstock.admission.explain import Lines
    from penstock.engine.quota_replica import QuotaReplica

_TAKEN = ("running", *ENDED)
IN_QUEUE = ("pending", "leaving")
"""States of a Workload that waits: also one that was evicted waits again, once its tasks have stopped."""


def queue_waits(
    store: Store,
    run: RunRecord,
    workflow: Workflow | None = None,
    outline: Outline | None = None,
    events: Iterable[Event] | None = None,
) -> list[Wait]:
    """One for each reservation. What is given need not be read again."""
    if "kubernetes" in (run.options.get("on") or {}).values():
        from penstock.service.views.cluster_waits import cluster_waits

        if waits := cluster_waits(store, run, workflow, outline, events):
            return waits
    mine = [one for one in store.queues.workloads() if one.run == run.number and one.state in IN_QUEUE]
    if not mine:
        return []
    from penstock.service.access import limits_on
    from penstock.service.queues import replica_of

    workflow = workflow or workflow_of(store, run)
    outline = outline or Outline(workflow)
    if events is None:
        events = store.runs.events(run.number, kinds=KINDS)
    # Of several Workloads of a stage only the first records when it began to wait; the others wait since that one was admitted.
    since = {wait.path: wait.start if wait.end is None else wait.end for wait in past_waits(events)}
    now = time.time()
    replica = replica_of(store.queues, now, gated=False)
    queues = replica.scheduler
    queues.settle(now)
    found: dict[str, Wait] = {}
    rows = [(kind, text) for kind, _, _, text in store.queues.queue_objects()]
    # Of several Workloads of a stage the first in the queue gives the reason.
    places = {other.key: place for queue in queues.cluster_queues for place, other in enumerate(queues.pending(queue))}
    lines: Lines = {}
    known: dict[str, str] = {}
    for one in sorted(mine, key=lambda one: (one.state == "leaving", places.get(one.key, 0), one.key)):
        workload = queues.workloads.get(one.key)
        # What could be admitted at this moment is about to be: it is not reported as a wait.
        if workload is None or (workload.admitted_at is not None and workload.eviction is None):
            continue
        name = _reservation(one, run)
        asks = added(
            {resource: amount * podset.count for resource, amount in podset.requests.items()}
            for podset in workload.podsets
        )
        steps = steps_of(workflow, plain_params(run), name, outline)
        tasks = 0 if not steps else sum(podset.count for podset in workload.podsets) // _replicas(outline, steps)
        if name in found:
            found[name].tasks += tasks
            found[name].asks = added([found[name].asks, asks])
            continue
        reason = queues.explain(one.key, now, lines).as_data()
        limits = limits_on(rows, queues.queue_of(workload), run.user)
        if limits:
            reason["limits"] = limits
        who = _who(store, replica, reason, known)
        own = _is_own(reason, one)
        found[name] = Wait(name, "queue", since.get(name), reason, tasks, asks, steps, workload.priority, who, own)
    for name, wait in list(found.items()):
        if (
            wait.tasks > 1
            and list(wait.steps) == [name]
            and not _count_only_left(wait, untaken_tasks(store.runs, run.number, name))
        ):
            del found[name]  # all of them have started: it is about to be withdrawn
    return list(found.values())


def untaken_tasks(runs: RunStore, run: int, step: str) -> int | None:
    """Tasks of a looped step that neither run nor have ended; None if that is not known.

    While a loop runs, each task that ends leaves its quota to the next one. The Workload of the rest is not written anew for each of
    them, and asks for more than is left."""
    ready = runs.events(run, kinds=["step.ready"])
    total = sum(int(event.data["tasks"]) for event in ready if event.task == step)
    if not total:
        return None
    counts = runs.task_counts(run).items()
    return max(0, total - sum(many for (of, state), (many, _, _) in counts if of == step and state in _TAKEN))


def _count_only_left(wait: Wait, left: int | None) -> bool:
    """Reduce what waits to what is left. False: nothing is."""
    if left is not None and left < wait.tasks:
        wait.asks = {name: amount * left // wait.tasks for name, amount in wait.asks.items()}
        wait.tasks = left
    return wait.tasks > 0


def _reservation(one: WorkloadRecord, run: RunRecord) -> str:
    return wording.workload_name(one.key).removeprefix(run.id).removeprefix("/") or "workflow"


def _replicas(outline: Outline, steps: Sequence[str]) -> int:
    found = {node.step.replicas for path in steps if (node := outline.by_path.get(path)) is not None}
    return found.pop() if len(found) == 1 else 1


def _who(store: Store, replica: QuotaReplica, reason: Mapping[str, Any], known: dict[str, str]) -> dict[str, str]:
    """For each Workload that the reason names as a holder: its user and priority. `known`: from the reasons before."""
    found: dict[str, str] = {}
    for short in reason.get("short", ()):
        for holder in short.get("holders", ()):
            key = holder["workload"]
            if key in known:
                found[key] = known[key]
                continue
            owner = store.runs.by_number(replica.owners[key][0]) if key in replica.owners else None
            priority = replica.scheduler.workloads[key].priority if key in replica.scheduler.workloads else 0
            user = f"{owner.user}, " if owner is not None and owner.user else ""
            gone = ", its process is gone" if owner is not None and owner_alive(store, owner) is False else ""
            found[key] = known[key] = f"{user}priority {priority}{gone}"
    return found


def _is_own(reason: Mapping[str, Any], record: WorkloadRecord) -> bool:
    """Is all that is short held by Workloads of the same reservation?"""
    named = [holder["workload"] for short in reason.get("short", ()) for holder in short.get("holders", ())]
    named += reason.get("ahead", ())
    me = wording.workload_name(record.key)
    short_of_quota = reason["why"] in ("quota", "no candidates")
    return short_of_quota and bool(named) and all(wording.workload_name(key) == me for key in named)
