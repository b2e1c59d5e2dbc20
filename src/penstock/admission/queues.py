"""The state machine that the engine, the simulator and the conformance test hold: what is configured, who waits, who holds what.

Callers tell it what happened (`submit`, `finish`, `release`, `reclaim`…) and when, and let it decide (`settle`). It decides
nothing by itself and knows no clock: the same calls give the same answers. What happens to a Workload is in lifecycle, how a
decision is made in cycle.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from penstock.admission import cycle, explain, lifecycle, setup
from penstock.admission.decisions import Cycle
from penstock.admission.explain import Hold
from penstock.admission.hall import Hall
from penstock.admission.lifecycle import Evicted
from penstock.admission.model import (
    CheckState,
    Object,
    PodSet,
    Workload,
)


class Queues(Hall):
    # -- what is configured -------------------------------------------------------------------------------------------

    def apply(self, objects: Iterable[Object], now: float) -> list[Evicted]:
        """Add or replace. Returns who has to stop because of it."""
        return setup.apply(self, objects, now)

    def delete(self, kind: type[Any], name: str, now: float) -> list[Evicted]:
        """`name` of a LocalQueue: "namespace/name"."""
        return setup.delete(self, kind, name, now)

    # -- Workloads ----------------------------------------------------------------------------------------------------

    def submit(self, workload: Workload, now: float) -> None:
        """It is new, or it was known to somebody before: with an admission it holds quota from the start."""
        if workload.key in self.workloads:
            self.remove(workload.key, now)
        if workload.finished:
            return
        self.touched.add(workload.key)
        self.workloads[workload.key] = workload
        self.members.setdefault(f"{workload.namespace}/{workload.queue}", {})[workload.key] = None
        if workload.priority_class is not None and workload.priority_class in self.priority_classes:
            workload.priority = self.priority_classes[workload.priority_class].value
        if workload.admission is not None:
            lifecycle.restore(self, workload, now)
        else:
            self.enqueue(workload, now)
            lifecycle.watch(self, workload)

    def ungate(self, key: str, gate: str, now: float) -> None:
        workload = self.workloads[key]
        if gate in workload.gates:
            self.touched.add(key)
            workload.gates -= {gate}
            if not workload.gates:
                self.enqueue(workload, now)

    def set_priority(self, key: str, priority: int, now: float) -> None:
        self.set_priority_of(self.workloads[key], priority, now)

    def resize(self, key: str, podsets: tuple[PodSet, ...], now: float) -> None:
        workload = self.workloads[key]
        if workload.admission is not None:
            raise ValueError(f"{key} holds quota for its pods as they are")
        self.touched.add(key)
        workload.podsets, workload.memory = podsets, None
        workload.reclaimable = {}  # which was said of the pods there were before
        sizes = {podset.name: podset.count for podset in podsets}
        workload.reclaimable = {name: min(n, sizes[name]) for name, n in workload.reclaimable.items() if name in sizes}
        self.changed(workload, now)

    def reclaim(self, key: str, counts: Mapping[str, int], now: float) -> None:
        """Pods, by pod set, that are not needed any more. While quota is held there can only be more of them."""
        workload = self.workloads[key]
        sizes = {podset.name: podset.count for podset in workload.podsets}
        found = dict(workload.reclaimable)
        for name, count in counts.items():
            least = found.get(name, 0) if workload.admission is not None else 0
            found[name] = max(least, min(count, sizes.get(name, 0)))
        if found == workload.reclaimable:
            return
        self.touched.add(key)
        workload.reclaimable = found
        if workload.admission is not None:
            lifecycle.shrink(self, workload, now)
        else:
            self.changed(workload, now)

    def set_active(self, key: str, active: bool, now: float) -> list[Evicted]:
        return lifecycle.set_active(self, self.workloads[key], active, now)

    def set_check(
        self, key: str, name: str, state: CheckState, now: float, retry_after: float | None = None
    ) -> list[Evicted]:
        return lifecycle.set_check(self, self.workloads[key], name, state, now, retry_after)

    def ready(self, key: str, now: float, ready: bool = True) -> None:
        """Are all of its pods up?"""
        lifecycle.ready(self, self.workloads[key], ready, now)

    def release(self, key: str, now: float) -> None:
        """It has stopped after an eviction: what it held is free, and it queues again, if it may."""
        lifecycle.release(self, self.workloads[key], now)

    def look_again(self, key: str, now: float) -> None:
        """If what held it back is over by now, it queues again."""
        lifecycle.look_again(self, self.workloads[key], now)

    def finish(self, key: str, now: float) -> None:
        workload = self.workloads[key]
        self.remove(key, now)
        workload.finished = True

    def remove(self, key: str, now: float) -> None:
        workload = self.workloads[key]
        self.touched.add(key)
        queue = self.queue_of(workload)
        lifecycle.let_go(self, workload, now)
        self.dequeue(workload)
        if self.ledger is not None:
            self.ledger.given_up(f"{workload.namespace}/{workload.queue}", key)
        del self.workloads[key]
        self.decisions.pop(key, None)
        self.undecided.pop(key, None)
        self.lost.pop(key, None)
        members = self.members[f"{workload.namespace}/{workload.queue}"]
        del members[key]
        if not members:
            del self.members[f"{workload.namespace}/{workload.queue}"]
        self.flush(queue, now)

    # -- time ---------------------------------------------------------------------------------------------------------

    def cycle(self, now: float) -> Cycle:
        """One scheduling cycle over everything that is in line."""
        return cycle.run(self, now)

    def settle(self, now: float) -> list[Cycle]:
        """Whatever can be decided now."""
        lifecycle.tick(self, now)
        found = []
        while self.stirred:
            roots, self.stirred = self.stirred, set()
            found.append(cycle.run(self, now, roots))
            lifecycle.ask_checks(self, found[-1].reserved, now)
        return found

    def tick(self, now: float) -> list[Evicted]:
        """What time alone brings about: backoffs end, somebody was not ready in time or ran too long."""
        return lifecycle.tick(self, now)

    def next_time(self, now: float) -> float | None:
        """When `tick` will next have something to do."""
        return lifecycle.next_time(self, now)

    # -- looking ------------------------------------------------------------------------------------------------------

    def gated(self, queue: str) -> list[Workload]:
        """Who will wait in a ClusterQueue when somebody says so, oldest first."""
        found = [
            workload
            for local_queue, members in self.members.items()
            if (to := self.local_queues.get(local_queue)) is not None and to.cluster_queue == queue
            for workload in map(self.workloads.__getitem__, members)
            if workload.gates and workload.admission is None
        ]
        return sorted(found, key=lambda workload: (workload.created, workload.key))

    def heads(self) -> dict[str, Workload]:
        """Who would be tried next, by ClusterQueue."""
        found = {}
        for name, line in sorted(self.lines.items()):
            head = line.head() if not self.why_inactive.get(name) else None
            if head is not None:
                found[name] = head.workload
        return found

    def is_parked(self, key: str) -> bool:
        queue = self.queue_of(self.workloads[key])
        return queue in self.lines and self.lines[queue].is_parked(key)

    def waiting_beside(self, key: str) -> int:
        """How many wait, in line or parked, that could have what this Workload holds."""
        root = self.roots.get(self.queue_of(self.workloads[key]))
        return sum(len(self.lines[name]) for name in self.trees.get(root, ())) if root is not None else 0

    def explain(self, key: str, now: float) -> Hold:
        """Why it waits."""
        return explain.explain(self, key, now)

    def hold_kind(self, key: str, now: float) -> str:
        """The same in a word, without looking at quotas."""
        return explain.kind_of(self, self.workloads[key], now)[0]
