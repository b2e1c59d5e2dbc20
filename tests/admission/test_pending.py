"""A PendingQueue against a plain model of it: a set of active Workloads, a set of inadmissible ones, and the smallest of all."""

from __future__ import annotations

import random

import pytest

from penstock.admission.model import Config, PodSet, Strategy, Workload
from penstock.admission.order import queue_key
from penstock.admission.pending import (
    IMMEDIATE,
    SAME_FOR_SHAPE,
    PendingQueue,
    PendingWorkload,
    RequeueReason,
    ready_to_queue,
    shape_of,
)


class Plain:
    def __init__(self, strategy: Strategy, config: Config, usage: dict[str, float] | None) -> None:
        self.strategy, self.config, self.usage = strategy, config, usage
        self.active: dict[str, Workload] = {}
        self.inadmissible: dict[str, Workload] = {}
        self.shapes: set[object] = set()
        self.sticky: str | None = None

    def rank(self, workload: Workload) -> tuple[object, ...]:
        used = self.usage[f"{workload.namespace}/{workload.queue}"] if self.usage is not None else 0.0
        return (used, workload.key != self.sticky, queue_key(workload, self.config))

    def head(self) -> str | None:
        return min(self.active.values(), key=self.rank).key if self.active else None

    def push(self, workload: Workload, now: float) -> None:
        was_active = workload.key in self.active
        self.active.pop(workload.key, None)
        self.inadmissible.pop(workload.key, None)
        shut = shape_of(workload, self.config) in self.shapes
        (self.active if (was_active or ready_to_queue(workload, now)) and not shut else self.inadmissible)[
            workload.key
        ] = workload

    def remove(self, key: str) -> None:
        self.active.pop(key, None)
        self.inadmissible.pop(key, None)
        if key == self.sticky:
            self.sticky = None

    def requeue(self, workload: Workload, why: RequeueReason, now: float, left: bool) -> None:
        if why is RequeueReason.PREEMPTING:
            self.sticky = workload.key if self.strategy is Strategy.BEST_EFFORT else None
        at_once = why is not RequeueReason.NAMESPACE if self.strategy is Strategy.STRICT else why in IMMEDIATE
        shape = shape_of(workload, self.config)
        if (at_once or left) and ready_to_queue(workload, now):
            (self.inadmissible if shape in self.shapes else self.active)[workload.key] = workload
            return
        self.inadmissible[workload.key] = workload
        if why in SAME_FOR_SHAPE and self.strategy is Strategy.BEST_EFFORT and shape is not None:
            self.shapes.add(shape)
            for other in [each for each in self.active.values() if shape_of(each, self.config) == shape]:
                self.inadmissible[other.key] = self.active.pop(other.key)

    def requeue_inadmissible(self, now: float, admits: set[str]) -> None:
        self.shapes.clear()
        for workload in list(self.inadmissible.values()):
            if ready_to_queue(workload, now) and workload.namespace in admits:
                self.active[workload.key] = self.inadmissible.pop(workload.key)


@pytest.mark.parametrize("seed", range(150))
def test_a_line_is_what_it_says(seed: int) -> None:
    rnd = random.Random(seed)
    config = Config(gates={} if rnd.random() < 0.8 else {"SchedulingEquivalenceHashing": False})
    strategy = rnd.choice(list(Strategy))
    usage = {f"{ns}/{lq}": 0.0 for ns in "ab" for lq in "xy"} if rnd.random() < 0.3 else None
    line = PendingQueue("q", strategy, config, usage.__getitem__ if usage is not None else None)
    plain = Plain(strategy, config, usage)
    known: dict[str, Workload] = {}
    now = 0.0
    for number in range(150):
        now += rnd.random()
        step(rnd, line, plain, known, now, number)
        if usage is not None and rnd.random() < 0.2:
            usage[rnd.choice(sorted(usage))] = rnd.randint(0, 3)
        head = line.head()
        assert (head.workload.key if head is not None else None) == plain.head()
        assert {key for key in line.workloads if line.is_inadmissible(key)} == plain.inadmissible.keys()
        assert {key for key in line.workloads if not line.is_inadmissible(key)} == plain.active.keys()
        listed = [workload.key for workload in line.in_order()]
        assert listed == [
            each.key
            for each in sorted([*plain.active.values(), *plain.inadmissible.values()], key=plain.rank)  # type: ignore[arg-type]
        ]


def step(
    rnd: random.Random, line: PendingQueue, plain: Plain, known: dict[str, Workload], now: float, number: int
) -> None:
    kind = rnd.choice(("new", "new", "new", "change", "remove", "cycle", "cycle", "cycle", "flush"))
    if kind == "new":
        workload = Workload(
            name=f"w{number}",
            namespace=rnd.choice("ab"),
            queue=rnd.choice("xy"),
            priority=rnd.randint(0, 1),
            created=float(rnd.randint(0, 5)),
            podsets=(PodSet(requests={"cpu": rnd.randint(1, 3)}),),
            requeue_at=now + 3 if rnd.random() < 0.1 else None,
        )
        known[workload.key] = workload
        line.push(workload, now)
        plain.push(workload, now)
    elif kind == "change" and line.workloads:
        workload = known[rnd.choice(sorted(line.workloads))]
        workload.priority = rnd.randint(0, 2)
        line.push(workload, now)
        plain.push(workload, now)
    elif kind == "remove" and line.workloads:
        key = rnd.choice(sorted(line.workloads))
        line.remove(key)
        plain.remove(key)
    elif kind == "flush":
        admits = {"a", "b"} if rnd.random() < 0.7 else {"a"}
        line.requeue_inadmissible(now, None if len(admits) == 2 else admits.__contains__)
        plain.requeue_inadmissible(now, admits)
    elif kind == "cycle":
        place: PendingWorkload | None = line.pop()
        if place is None:
            return
        del plain.active[place.workload.key]
        if rnd.random() < 0.3:
            line.remove(place.workload.key)
            plain.remove(place.workload.key)
            return
        why, left = rnd.choice(list(RequeueReason)), rnd.random() < 0.1
        line.requeue(place, why, now, left)
        plain.requeue(place.workload, why, now, left)
