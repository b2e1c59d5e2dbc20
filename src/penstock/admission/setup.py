"""Queues, cohorts, flavors and the like come, change and go. Called by queues.

A change of what quota there is rebuilds the tree and lets everybody be tried again; that is seldom enough.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock.admission import lifecycle
from penstock.admission.hall import Hall
from penstock.admission.lifecycle import Evicted
from penstock.admission.lines import Line
from penstock.admission.model import (
    Check,
    ClusterQueue,
    Cohort,
    LocalQueue,
    Namespace,
    Object,
    PriorityClass,
    ResourceFlavor,
    Stop,
)


def apply(q: Hall, objects: Iterable[Object], now: float) -> list[Evicted]:
    quota = False
    classes: list[PriorityClass] = []
    queues: list[LocalQueue] = []
    for one in objects:
        match one:
            case LocalQueue():
                queues.append(one)
            case PriorityClass():
                q.priority_classes[one.name] = one
                classes.append(one)
            case _:
                _shelf(q, type(one))[one.name] = one
                quota = True
    if quota:
        rebuild(q, now)
    for queue in queues:
        _local_queue(q, queue.key, queue, now)
    for found in classes:
        for workload in list(q.workloads.values()):
            if workload.priority_class == found.name:
                q.set_priority_of(workload, found.value, now)
    return lifecycle.stops(q, now)


def delete(q: Hall, kind: type[Any], name: str, now: float) -> list[Evicted]:
    if kind is LocalQueue:
        if name in q.local_queues:
            _local_queue(q, name, None, now)
            if q.ledger is not None:
                q.ledger.forget(name)
    elif kind is PriorityClass:
        q.priority_classes.pop(name, None)
    elif _shelf(q, kind).pop(name, None) is not None:
        rebuild(q, now)
    return lifecycle.stops(q, now)


def _shelf(q: Hall, kind: type[Any]) -> dict[str, Any]:
    shelves: dict[type[Any], dict[str, Any]] = {
        ResourceFlavor: q.flavors, ClusterQueue: q.cluster_queues, Cohort: q.cohorts, Namespace: q.namespaces, Check: q.checks
    }  # fmt: skip
    return shelves[kind]


def _local_queue(q: Hall, key: str, new: LocalQueue | None, now: float) -> None:
    old = q.local_queues.get(key)
    members = [q.workloads[member] for member in q.members.get(key, ())]
    moved = old is None or new is None or (old.cluster_queue, old.stop) != (new.cluster_queue, new.stop)
    if moved and old is not None:
        line = q.lines.get(old.cluster_queue)
        if line is not None:
            for workload in members:
                line.remove(workload.key)
            q.stir(old.cluster_queue)
    if new is None:
        del q.local_queues[key]
        return
    q.local_queues[key] = new
    if moved:
        for workload in members:
            q.enqueue(workload, now)
    elif q.ledger is not None:
        q.stir(new.cluster_queue)


def rebuild(q: Hall, now: float) -> None:
    why = {name: found for name, queue in q.cluster_queues.items() if (found := _wrong(q, queue))}
    q.state.inactive = set(why)
    q.state.rebuild()
    for name in sorted(q.tree.cut_off):
        why[name] = f"the cohorts above it form a circle: {', '.join(sorted(q.tree.circular))}"
    q.why_inactive = why
    q.roots, q.trees = {}, {}
    for name, node in q.tree.queues.items():
        root = node.root
        q.roots[name] = f"{'queue' if root.is_queue else 'cohort'}/{root.name}"
        q.trees.setdefault(q.roots[name], []).append(name)
    for name in [name for name in q.lines if name not in q.cluster_queues]:
        del q.lines[name]
    for name in sorted(q.cluster_queues):
        _line(q, q.cluster_queues[name], now)
    for name in q.roots:
        q.retry(name, now)
        for place in q.lines[name].places.values():
            place.workload.memory = None
    q.stirred, q.flushed = set(q.trees), set()


def _wrong(q: Hall, queue: ClusterQueue) -> str:
    """Why it can admit nobody."""
    found = []
    if queue.stop is not Stop.NONE:
        found.append("it is stopped")
    named = {flavor.flavor for group in queue.groups for flavor in group.flavors}
    if missing := sorted(named - q.flavors.keys()):
        found.append(f"flavor {', '.join(missing)} not found")
    checks = {rule.name for rule in queue.checks}
    if missing := sorted(checks - q.checks.keys()):
        found.append(f"admission check {', '.join(missing)} not found")
    if broken := sorted(name for name in checks & q.checks.keys() if not q.checks[name].active):
        found.append(f"admission check {', '.join(broken)} is not active")
    return "; ".join(found)


def _line(q: Hall, queue: ClusterQueue, now: float) -> None:
    usage = q.ledger.usage if q.ledger is not None and queue.usage_based else None
    line = q.lines.get(queue.name)
    if line is not None and (line.usage is None) == (usage is None):
        if line.strategy is not queue.strategy:
            line.strategy, line.sticky = queue.strategy, False
        return
    q.lines[queue.name] = Line(queue.name, queue.strategy, q.config, usage)
    for key, local_queue in q.local_queues.items():
        if local_queue.cluster_queue == queue.name:
            for member in q.members.get(key, ()):
                q.enqueue(q.workloads[member], now)
