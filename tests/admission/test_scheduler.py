"""Random queues under random streams of events: what must always hold. Each stream is made from a seed, so that one that fails can be
run again.
"""

from __future__ import annotations

import copy
import os
import random
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.admission.decisions import Cycle
from penstock.admission.lifecycle import holds
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
    Stop,
    Strategy,
    Workload,
)
from penstock.admission.order import queue_key
from penstock.admission.pending import may_queue
from penstock.admission.quota import QuotaNode
from penstock.admission.scheduler import Scheduler
from penstock.admission.snapshot import Snapshot


class World:
    """`plain`: every queue may reclaim its own quota, nothing is reconfigured, and each Workload fits into the quota of its
    queue."""

    def __init__(self, seed: int, plain: bool = False) -> None:
        self.random = random.Random(seed)
        self.plain = plain
        self.fair = self.random.random() < 0.4
        self.flavors = [f"f{i}" for i in range(1 if plain else self.random.randint(1, 3))]
        self.objects = self._objects()
        self.queues = Scheduler(Config(fair_sharing=self.fair))
        self.queues.apply(self.objects, 0.0)
        self.now = 0.0
        self.made = 0
        self.lines: list[str] = []
        """What has happened."""
        self.settle()

    # -- what there is ------------------------------------------------------------------------------------------------

    def _objects(self) -> list[Object]:
        found: list[Object] = [ResourceFlavor(name=name) for name in self.flavors]
        cohorts = [f"c{i}" for i in range(self.random.randint(1, 4))]
        for i, name in enumerate(cohorts):
            parent = self.random.choice(cohorts[:i]) if i and self.random.random() < 0.7 else None
            groups = (self._group(False),) if self.random.random() < 0.3 else ()
            found.append(Cohort(name=name, parent=parent, groups=groups, weight=self.random.choice((0.5, 1.0, 2.0))))
        for i in range(self.random.randint(2, 5)):
            found.append(self._cluster_queue(f"q{i}", [*cohorts, None]))
            found.append(LocalQueue(name=f"q{i}", cluster_queue=f"q{i}"))
        return found

    def _cluster_queue(self, name: str, cohorts: list[str | None]) -> ClusterQueue:
        cohort = self.random.choice(cohorts)
        reclaim = Policy.ANY if self.plain else self.random.choice((Policy.NEVER, Policy.LOWER, Policy.ANY))
        borrow = Policy.NEVER
        if not self.fair and reclaim is not Policy.NEVER and not self.plain:
            borrow = self.random.choice((Policy.NEVER, Policy.LOWER))
        within = self.random.choice((Policy.NEVER, Policy.LOWER, Policy.LOWER_OR_NEWER))
        return ClusterQueue(
            name=name,
            cohort=cohort,
            groups=(self._group(cohort is not None),),
            strategy=self.random.choice(list(Strategy)),
            preemption=Preemption(within=within, reclaim=reclaim, borrow=borrow),
            weight=self.random.choice((0.5, 1.0, 2.0)),
        )

    def _group(self, limits: bool) -> ResourceGroup:
        names = [flavor for flavor in self.flavors if self.random.random() < 0.8] or self.flavors[:1]
        return ResourceGroup(("cpu",), tuple(FlavorQuotas(name, {"cpu": self._quota(limits)}) for name in names))

    def _quota(self, limits: bool) -> Quota:
        nominal = self.random.randint(2 if self.plain else 0, 10)
        borrowing = self.random.choice((None, None, 0, 3, 8)) if limits else None
        lending = self.random.choice((None, None, 0, nominal // 2)) if limits else None
        return Quota(nominal, borrowing, lending)

    # -- what happens -------------------------------------------------------------------------------------------------

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.now += self.random.choice((0.0, 1.0, 5.0))
            self.step()
            self.settle()
            check(self.queues)

    def step(self) -> None:
        q, rnd = self.queues, self.random
        kinds = ["submit"] * 6 + ["finish"] * 3 + ["release"] * 4 + ["reclaim", "priority", "ungate", "resize"]
        if not self.plain:
            kinds += ["reconfigure", "stop", "active", "remove"]
        kind = rnd.choice(kinds)
        keys = sorted(q.workloads)
        held = [key for key in keys if q.workloads[key].admission is not None]
        going = [key for key in held if q.workloads[key].eviction is not None]
        waiting = [key for key in keys if q.workloads[key].admission is None]
        if kind == "submit" or not keys:
            self.submit()
        elif kind == "finish" and held:
            self.say("finish", key := rnd.choice(held))
            q.finish(key, self.now)
        elif kind == "remove":
            self.say("remove", key := rnd.choice(keys))
            q.remove(key, self.now)
        elif kind == "release" and going:
            self.say("release", key := rnd.choice(going))
            q.release(key, self.now)
        elif kind == "reclaim" and held:
            key = rnd.choice(held)
            self.say("reclaim", key)
            q.reclaim(key, {podset.name: rnd.randint(0, podset.count) for podset in q.workloads[key].podsets}, self.now)
        elif kind == "priority":
            self.say("priority", key := rnd.choice(keys))
            q.set_priority(key, rnd.randint(0, 3), self.now)
        elif kind == "active":
            self.say("active", key := rnd.choice(keys))
            q.set_active(key, not q.workloads[key].active, self.now)
        elif kind == "ungate" and waiting:
            q.ungate(rnd.choice(waiting), "gate", self.now)
        elif kind == "resize" and waiting:
            key = rnd.choice(waiting)
            q.resize(key, self.podsets(q.workloads[key].queue), self.now)
        elif kind in ("reconfigure", "stop"):
            self.reconfigure(stop=kind == "stop")

    def submit(self) -> None:
        self.made += 1
        queue = self.random.choice(sorted(self.queues.cluster_queues))
        workload = Workload(
            name=f"w{self.made}",
            queue=queue,
            podsets=self.podsets(queue),
            priority=self.random.randint(0, 3),
            created=self.now,
            gates=frozenset({"gate"} if self.random.random() < 0.1 else ()),
        )
        self.say("submit", workload.key, queue, workload.priority, *((p.count, p.min_count) for p in workload.podsets))
        self.queues.submit(workload, self.now)

    def podsets(self, queue: str) -> tuple[PodSet, ...]:
        if self.plain:
            (group,) = self.queues.cluster_queues[queue].groups
            return (PodSet(count=self.random.randint(1, group.flavors[0].quotas["cpu"].nominal), requests={"cpu": 1}),)
        found = []
        for i in range(self.random.choice((1, 1, 2))):
            count = self.random.randint(1, 6)
            least = self.random.randint(1, count) if i == 0 and self.random.random() < 0.3 else None
            found.append(
                PodSet(name=f"p{i}", count=count, min_count=least, requests={"cpu": self.random.randint(1, 2)})
            )
        return tuple(found)

    def reconfigure(self, stop: bool) -> None:
        old = self.random.choice([one for one in self.objects if isinstance(one, ClusterQueue)])
        new = self._cluster_queue(old.name, [one.name for one in self.objects if isinstance(one, Cohort)])
        if stop:
            new = replace(old, stop=self.random.choice(list(Stop)))
        self.objects[self.objects.index(old)] = new
        self.say("reconfigure", new)
        for key, _ in self.queues.apply([new], self.now):
            self.say("stopped", key)

    def settle(self) -> None:
        before = usages(self.queues)
        for cycle in self.queues.settle(self.now):
            for decision in cycle.decisions:
                self.say(decision.decision, decision.workload, *(target.key for target in decision.targets))
            self.check_cycle(cycle)
        check_limits(self.queues, before)

    def say(self, *what: object) -> None:
        self.lines.append(" ".join(map(str, what)))

    def check_cycle(self, cycle: Cycle) -> None:
        """No Workload overtakes another in a StrictFIFO queue, and none gets fewer pods than it may."""
        q = self.queues
        for key in cycle.reserved:
            workload = q.workloads[key]
            assert workload.admission is not None
            given = {podset.name: podset.count for podset in workload.admission.podsets}
            for podset in workload.podsets:
                asked = podset.count - workload.reclaimable.get(podset.name, 0)
                least = min(asked, podset.min_count) if podset.min_count is not None else asked
                assert least <= given[podset.name] <= podset.count, key
            queue = q.cluster_queues[workload.admission.cluster_queue]
            if queue.strategy is Strategy.STRICT:
                ahead = [
                    other.key
                    for other in q.pending(queue.name)
                    if queue_key(other, q.config) < queue_key(workload, q.config) and not other.held_back
                ]
                assert not ahead, f"{key} has overtaken {ahead}"

    def drain(self, rounds: int = 400) -> None:
        """All admitted Workloads finish, one after the other; evicted ones stop at once."""
        for _ in range(rounds):
            self.now += 1.0
            self.rest()
            held = sorted(key for key, workload in self.queues.workloads.items() if workload.admission is not None)
            if not held:
                return
            self.queues.finish(self.random.choice(held), self.now)
            self.settle()
            check(self.queues)

    def rest(self) -> bool:
        """Until no Workload must stop any more. With Kueue's rules this need not end: the quota that a queue frees by preempting its
        own Workload may be borrowed by another queue first, and lost again to the preempted one. Without preemption in the own
        queue and without fair sharing it ends."""
        for _ in range(50):
            self.settle()
            going = [key for key, workload in sorted(self.queues.workloads.items()) if workload.eviction is not None]
            if not going:
                return True
            for key in going:
                self.queues.release(key, self.now)
        restless = any(queue.preemption.within is not Policy.NEVER for queue in self.queues.cluster_queues.values())
        assert self.fair or restless, "they preempt each other for ever"
        return False


# -- what must hold ----------------------------------------------------------------------------------------------------


def nodes(queues: Scheduler) -> Iterable[QuotaNode]:
    return (*queues.tree.queues.values(), *queues.tree.cohorts.values())


def usages(queues: Scheduler) -> dict[QuotaNode, dict[object, int]]:
    return {node: dict(node.usage) for node in nodes(queues)}


def check_limits(queues: Scheduler, before: dict[QuotaNode, dict[object, int]]) -> None:
    """No decision makes a node use more than it may, not counting the Workloads that must stop. It may have used more before,
    because quotas were reduced."""
    leaving = [
        (queues.tree.queues[workload.admission.cluster_queue], workload.held)
        for workload in queues.workloads.values()
        if workload.eviction is not None and workload.admission is not None
    ]
    for node, held in leaving:
        node.remove(held)
    for node in nodes(queues):
        for fr, used in node.usage.items():
            most = node.subtree.get(fr, 0)
            if node.parent is not None:
                quota = node.quotas.get(fr)
                if quota is None or quota.borrowing is None:
                    continue
                most += quota.borrowing
            assert used <= max(most, before.get(node, {}).get(fr, 0)), (node, fr)
    for node, held in reversed(leaving):
        node.add(held)


def check(queues: Scheduler) -> None:
    """Every Workload is in exactly one place, and the tree counts what the holders hold."""
    fresh = Snapshot(queues.config)
    fresh.cluster_queues, fresh.cohorts = queues.cluster_queues, queues.cohorts
    fresh.inactive = queues.cache.snapshot.inactive
    fresh.rebuild()
    for key, workload in queues.workloads.items():
        holders = [name for name, held in queues.cache.snapshot.holders.items() if key in held]
        lines = [name for name, queue in queues.queues.pending.items() if key in queue.workloads]
        if holds(workload):
            assert workload.admission is not None
            assert holders == [workload.admission.cluster_queue] and not lines
            fresh.hold(workload)
        else:
            assert not holders
            assert lines == ([queues.queue_of(workload)] if may_queue(workload, queues.config) else []), key
            if workload.last_eviction is not None and workload.last_eviction.reason == "Preempted" and lines:
                assert not workload.held_back
    assert sum(map(len, queues.cache.snapshot.holders.values())) == sum(map(holds, queues.workloads.values()))
    for name, node in queues.tree.queues.items():
        assert _used(node) == _used(fresh.tree.queues[name])
    for name, node in queues.tree.cohorts.items():
        assert _used(node) == _used(fresh.tree.cohorts[name])


def _used(node: QuotaNode) -> dict[object, int]:
    return {fr: used for fr, used in node.usage.items() if used}


SEEDS = 60


@pytest.mark.parametrize("seed", range(SEEDS))
def test_usage_is_counted_right_and_limits_are_kept(seed: int) -> None:
    world = World(seed)
    world.run(80)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_queue_gets_its_own_back(seed: int) -> None:
    """With reclaimWithinCohort: Any, a Workload that fits into the unused quota of its queue does not wait, whatever others have borrowed."""
    world = World(1000 + seed, plain=True)
    for _ in range(12):
        world.run(8)
        if not world.rest():
            continue
        for name, node in world.queues.tree.queues.items():
            first = next(iter(world.queues.pending(name)), None)
            if first is None:
                continue
            asked = sum(podset.count * podset.requests["cpu"] for podset in first.podsets)
            asked -= sum(first.reclaimable.values())
            for fr, quota in node.quotas.items():
                assert node.usage.get(fr, 0) + asked > quota.nominal, f"{first.key} waits for its own quota"


@pytest.mark.parametrize("seed", range(SEEDS))
def test_nobody_waits_for_ever(seed: int) -> None:
    world = World(2000 + seed, plain=True)
    world.run(40)
    for key in sorted(world.queues.workloads):
        world.queues.ungate(key, "gate", world.now)
    world.drain()
    assert not world.queues.workloads


@pytest.mark.parametrize("seed", range(0, SEEDS, 3))
def test_what_is_submitted_again_is_as_it_was(seed: int) -> None:
    world = World(3000 + seed)
    world.run(60)
    again = Scheduler(world.queues.config)
    again.apply(world.objects, world.now)
    for workload in world.queues.workloads.values():
        again.submit(copy.copy(workload), world.now)
    check(again)
    for name in world.queues.cluster_queues:
        assert _used(again.tree.queues[name]) == _used(world.queues.tree.queues[name])
        assert {one.key for one in again.pending(name)} == {one.key for one in world.queues.pending(name)}
    for name in world.queues.tree.cohorts:
        assert _used(again.tree.cohorts[name]) == _used(world.queues.tree.cohorts[name])


def transcript(seeds: Iterable[int]) -> str:
    found = []
    for seed in seeds:
        world = World(seed)
        world.run(60)
        found += world.lines
    return "\n".join(found)


def test_the_same_input_gives_the_same_answers() -> None:
    code = "from tests.admission.test_scheduler import transcript; print(transcript(range(5000, 5012)))"
    root = Path(__file__).parents[2]
    path = os.pathsep.join((str(root), str(root / "src")))
    said = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": path},
            cwd=root,
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert said[0] == said[1]
    assert said[0].count("admit") > 50 and said[0].count("preempt") > 5
