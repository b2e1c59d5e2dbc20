"""A stream's moves on Penstock's own engine, in Kueue's rhythm. Called by run for each quiet point, with the facts that the API server has
put to them: creation times, uids, times of reservation.

The engine tries parked Workloads again at once when quota may have become free; Kueue does it in a batch, a second after. Until then it
has decided everything that was in line. `_Patient` puts the engine into that rhythm: moves, then cycles until nothing changes, then
everybody who is parked where something has changed, then cycles again. All rules are the engine's own.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

from penstock.admission.cache import SchedulerCache
from penstock.admission.manifests.read import objects_of
from penstock.admission.manifests.times import time_of
from penstock.admission.model import Config, Object, Workload
from penstock.admission.queues import QueueManager
from penstock.admission.scheduler import Scheduler
from penstock.admission.workloads import WorkloadIndex

Doc = dict[str, Any]
State = dict[str, Doc]
"""By the name of a Workload: see `compare`."""
_CYCLES = 500
"""More than these without an end, and the engine goes in circles."""


class _Patient(QueueManager):
    """Remembers who would be tried again, until `batch`."""

    def __init__(self, cache: SchedulerCache, workloads: WorkloadIndex) -> None:
        super().__init__(cache, workloads)
        self.later: set[str] = set()

    def retry(self, queue: str, now: float) -> None:
        self.later.add(queue)

    def batch(self, now: float, everybody: bool = False) -> None:
        """`everybody`: in all trees in which there is a Cohort."""
        if everybody and self.cache.cohorts:
            self.later.update(name for name, queue in self.cache.cluster_queues.items() if queue.cohort is not None)
        queues, self.later = self.later, set()
        for name in sorted(queues & self.pending.keys()):
            super().retry(name, now)
            self.mark_changed(name)


@dataclass(frozen=True)
class Way:
    """One of the ways in which things can happen in Kueue that no rule decides between."""

    step: float = 0.001
    """Seconds from cycle to cycle. Kueue's cache has times to the nanosecond until it has read them back from the API server, to the
    second then: of two Workloads reserved in one second, the later one is the later, or they are the same."""
    batch_after: int | None = None
    """Cycles. The second until parked ones are tried again may be over before everything else is decided, on a busy machine."""
    early: bool = False
    late: bool = False
    """Kueue takes up the Cohorts above a ClusterQueue anew whenever its status changes, and with that asks for everybody parked below them to
    be tried again, a second later, need be or not. So it may happen before a move, or after it, without any cause in the rules."""


USUAL = Way()


class Ours:
    def __init__(self, fair: bool, namespace: str, docs: list[Doc]) -> None:
        self.namespace = namespace
        self.queues = Scheduler(Config(fair_sharing=fair), queues=_Patient)
        self.queues.apply(_objects(docs), 0.0)
        self.over: dict[str, str] = {}
        """Workloads that are finished."""
        self.uids: dict[str, str] = {}
        """Also of Workloads that are gone: those that were told to stop for them may not have stopped yet."""
        self.cycles = 0
        self.ways: list[Way] = []
        """In which else the latest phase might have gone."""
        self.borrowed = 0
        """Reservations beyond the queue's own quota."""

    def play(self, moves: list[Doc], at: float, batched: bool, way: Way = USUAL) -> State:
        """What the engine makes of some moves, once it is at rest."""
        self.cycles = 0
        if way.early:
            self._batch(at, everybody=True)
            at = self._settle(at, way)
        for move in moves:
            self._move(move, at)
        now = self._settle(at, way, way.batch_after)
        self.ways = self._others(batched)
        if batched or way.late:
            self._batch(now, everybody=way.late)
            self._settle(now, way)
        return self.state()

    def _others(self, batched: bool) -> list[Way]:
        """In which else it might have gone, what is more likely first."""
        uncalled = (
            [(False, False), (False, True), (True, False), (True, True)] if self.queues.cohorts else [(False, False)]
        )
        return [
            Way(step, after, early, late)
            for early, late in uncalled
            for after in (None, *range(self.cycles if batched or late else 0))
            for step in (0.001, 0.0)
        ][1:]

    def _batch(self, now: float, everybody: bool) -> None:
        assert isinstance(self.queues.queues, _Patient)
        self.queues.queues.batch(now, everybody)

    def copy(self) -> Ours:
        return copy.deepcopy(self)

    def _settle(self, now: float, way: Way, most: int | None = None) -> float:
        q = self.queues
        for number in range(_CYCLES):
            if not q.queues.changed or number == most:
                return now
            roots, q.queues.changed = q.queues.changed, set()
            found = q.cycle(now, roots)
            self.borrowed += sum(one.decision == "admit" and one.borrowing_level > 0 for one in found.decisions)
            self.cycles += 1
            now += way.step
        raise AssertionError("the engine does not come to rest")

    def _move(self, move: Doc, now: float) -> None:
        q = self.queues
        key = f"{self.namespace}/{move.get('name', '')}"
        match move["do"]:
            case "objects":
                q.apply(_objects(move["docs"]), now)
            case "create":
                (workload,) = objects_of([move["doc"]])
                assert isinstance(workload, Workload)
                self.uids[workload.key] = workload.uid
                q.submit(workload, now)
            case "finish":
                q.finish(key, now)
                self.over[move["name"]] = "finished"
            case "delete":
                q.remove(key, now)
            case "reclaim":
                q.reclaim(key, move["counts"], now)
            case "priority":
                q.set_priority(key, move["priority"], now)
            case "deactivate":
                q.set_active(key, False, now)
            case "activate":
                q.set_active(key, True, now)
            case "ungate":
                for gate in q.workloads[key].gates:
                    q.ungate(key, gate, now)
            case "release":
                q.release(key, now)
            case other:
                raise AssertionError(f"no such move: {other}")

    def state(self) -> State:
        found: State = {name: {"state": state} for name, state in self.over.items()}
        for workload in self.queues.workloads.values():
            found[workload.name] = _stand(workload, self.uids)
        return dict(sorted(found.items()))

    def circular(self) -> bool:
        """Is somebody left in the middle of its search through the flavors? The engine leaves a search that has come round to where it was.
        Kueue goes on with it for ever: it is never quiet, and whoever stands behind waits for ever. They differ on purpose."""
        return any(
            found.workload.scan_progress is not None and found.workload.scan_progress.pending
            for queue in self.queues.queues.pending.values()
            for found in queue.workloads.values()
        )

    def hidden(self) -> object:
        """What an answer does not show, and the next one may depend on."""
        return tuple(
            (
                name,
                frozenset(filter(queue.is_inadmissible, queue.workloads)),
                queue.preemptor,
                queue.sticky,
                frozenset(queue.inadmissible_shapes),
            )
            for name, queue in sorted(self.queues.queues.pending.items())
        )

    def learn(self, times: dict[str, str]) -> None:
        """Since when Workloads hold their quota, as the API server has it: later decisions go by that."""
        for name, text in times.items():
            workload = self.queues.workloads.get(f"{self.namespace}/{name}")
            if workload is not None and workload.admission is not None:
                workload.reserved_at = time_of(text)


def _objects(docs: list[Doc]) -> list[Object]:
    found: list[Object] = []
    for one in objects_of(docs):
        assert not isinstance(one, Workload)
        found.append(one)
    return found


def _stand(workload: Workload, uids: dict[str, str]) -> Doc:
    """How it stands, in the words of `theirs`."""
    found: Doc = {"state": "pending"}
    if workload.admission is not None:
        found["state"] = "admitted" if workload.admitted_at is not None else "reserved"
        found["queue"] = workload.admission.cluster_queue
        found["podsets"] = [
            {"name": p.name, "count": p.count, "flavors": dict(sorted(p.flavors.items()))}
            for p in workload.admission.podsets
        ]
        if workload.eviction is not None:
            found["state"] = "evicted"
            found["evicted"] = workload.eviction.reason
            if workload.eviction.preempted:
                found["preempted"] = workload.eviction.preempted
                found["by"] = uids.get(workload.eviction.by, "")
    return found
