"""Admission at size: Kueue's own performance scenarios, in virtual time, and what a cycle costs when nothing can be admitted.

The scenarios are those of Kueue's test/performance/scheduler (baseline and large-scale): every queue of every cohort gets its
Workloads at fixed intervals, each runs for a fixed time once it is admitted, and a preempted one stops at once. Kueue, which has
an API server behind it, takes about 351 s and 1,179 s for them. Only the time that the processor spends in the engine is counted.
"""

from __future__ import annotations

import gc
import heapq
import time
from collections.abc import Iterator
from typing import NamedTuple

from bench.measure import Figure
from penstock.admission.model import (
    ClusterQueue,
    Cohort,
    Config,
    FlavorQuotas,
    LocalQueue,
    Object,
    PodSet,
    Policy,
    Preemption,
    Quota,
    ResourceFlavor,
    ResourceGroup,
    Strategy,
    Workload,
)
from penstock.admission.scheduler import Scheduler


class Kind(NamedTuple):
    """Of Workloads in one queue: how many, one every so many milliseconds, running for how long."""

    name: str
    count: int
    every: int
    runs: int
    priority: int
    cpus: int


BASELINE = (
    Kind("small", 350, 100, 200, 50, 1),
    Kind("medium", 100, 500, 500, 100, 5),
    Kind("large", 50, 1200, 1000, 200, 20),
)
LARGE_SCALE = (
    Kind("small", 35, 60, 150, 50, 1),
    Kind("medium", 11, 300, 350, 100, 5),
    Kind("large", 4, 700, 700, 200, 20),
)


def _queues(cohorts: int, queues: int, strategy: Strategy) -> list[Object]:
    found: list[Object] = [ResourceFlavor(name="default")]
    for i in range(cohorts):
        found.append(Cohort(name=f"cohort-{i:02}"))
        for j in range(queues):
            name = f"cq-{i:02}-{j:03}"
            quotas = FlavorQuotas("default", {"cpu": Quota(20_000, borrowing=100_000)})
            found.append(
                ClusterQueue(
                    name=name,
                    cohort=f"cohort-{i:02}",
                    strategy=strategy,
                    groups=(ResourceGroup(("cpu",), (quotas,)),),
                    preemption=Preemption(within=Policy.LOWER, reclaim=Policy.ANY),
                )
            )
            found.append(LocalQueue(name=name, cluster_queue=name))
    return found


def _workload(queue: str, kind: Kind, number: int, created: float) -> Workload:
    name = f"{queue}-{kind.name}-{number:04}"
    podset = PodSet(requests={"cpu": kind.cpus * 1000})
    return Workload(name=name, uid=name, queue=queue, podsets=(podset,), priority=kind.priority, created=created)


class Outcome(NamedTuple):
    engine: float
    """Seconds of the machine."""
    virtual: float
    """Seconds of the scenario."""
    cycles: int
    preempted: int


def scenario(cohorts: int, queues: int, kinds: tuple[Kind, ...], strategy: Strategy, fair: bool = False) -> Outcome:
    """All of it, until everything has run."""
    engine = Scheduler(Config(fair_sharing=fair))
    objects = _queues(cohorts, queues, strategy)
    engine.apply(objects, 0.0)
    names = [one.name for one in objects if isinstance(one, ClusterQueue)]
    arrivals: dict[int, list[tuple[Kind, int]]] = {}
    for kind in kinds:
        for number in range(kind.count):
            arrivals.setdefault((number + 1) * kind.every, []).append((kind, number))
    runs = {kind.priority: kind.runs for kind in kinds}
    todo = sorted(arrivals)
    ends: list[tuple[int, str, float]] = []
    spent, cycles, preempted, now = 0.0, 0, 0, 0
    gc.collect()
    while todo or ends:
        now = min(todo[0] if todo else ends[0][0], ends[0][0] if ends else todo[0])
        new = []
        if todo and todo[0] == now:
            new = [_workload(name, *one, now / 1000) for one in arrivals[todo.pop(0)] for name in names]
        over = []
        while ends and ends[0][0] == now:
            _, key, since = heapq.heappop(ends)
            workload = engine.workloads.get(key)
            if workload is not None and workload.reserved_at == since:
                over.append(key)
        at = now / 1000
        start = time.process_time()
        for key in over:
            engine.finish(key, at)
        for workload in new:
            engine.submit(workload, at)
        while found := engine.settle(at):
            cycles += len(found)
            for cycle in found:
                for key in cycle.admitted:
                    heapq.heappush(ends, (now + runs[engine.workloads[key].priority], key, at))
                preempted += len(cycle.preempted)
                for victim in cycle.preempted:
                    engine.release(victim.workload, at)
        spent += time.process_time() - start
    assert not engine.workloads, f"{len(engine.workloads)} left"
    return Outcome(spent, now / 1000, cycles, preempted)


def idle(pending: int, strategy: Strategy, queues: int = 30) -> float:
    """Milliseconds of a cycle that admits nothing, with so many waiting in all and as many shapes as queues."""
    engine = Scheduler()
    objects = _queues(5, queues // 5, strategy)
    engine.apply(objects, 0.0)
    names = [one.name for one in objects if isinstance(one, ClusterQueue)]
    for number, name in enumerate(names):
        engine.submit(_workload(name, Kind("holder", 1, 0, 0, 1000, 20), number, 0.0), 0.0)
    engine.settle(0.0)
    for number in range(pending):
        kind = Kind("waiting", 1, 0, 0, 10, 1 + number % 10)
        engine.submit(_workload(names[number % len(names)], kind, number, float(number)), float(number))
    engine.settle(float(pending))
    found = []
    for _ in range(5):
        for name in names:
            engine.queues.requeue_inadmissible(name, float(pending))
        gc.collect()
        start = time.process_time()
        engine.cycle(float(pending))
        found.append(time.process_time() - start)
    assert len([one for one in engine.workloads.values() if one.admission is None]) == pending
    return 1000 * min(found)


def figures() -> Iterator[Figure]:
    for strategy in (Strategy.BEST_EFFORT, Strategy.STRICT):
        found = scenario(5, 6, BASELINE, strategy)
        yield Figure(f"Kueue's baseline, 15,000 Workloads, {strategy}", found.engine, 6)
        found = scenario(10, 100, LARGE_SCALE, strategy)
        yield Figure(f"Kueue's large scale, 50,000 Workloads, {strategy}", found.engine, 40)
        for pending in (500, 5_000, 50_000):
            yield Figure(
                f"a cycle that admits nothing, {pending:,} wait, {strategy}", idle(pending, strategy), 20, "ms"
            )


if __name__ == "__main__":
    for figure in figures():
        print(figure.line(), flush=True)
