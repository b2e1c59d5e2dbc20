"""Random workflows, queues and mishaps through one or two engines: whatever happens, nobody holds more than there is, no task runs
without quota, everything ends, and nothing stays in line.
"""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path
from typing import Any

import pytest

from penstock.admission.model import FlavorResource, Stop
from penstock.backends.base import AttemptSpec
from penstock.graph.model import Cache, Nested, Retry, Step, Unit, Workflow
from penstock.service.queues import set_stop
from tests.engine.yard import CPU, Yard, flow, queue, step

ROUNDS = int(os.environ.get("PENSTOCK_ADMISSION_ROUNDS", "60"))
SEED = int(os.environ.get("PENSTOCK_SEED", "0"))
FR = FlavorResource("default", "cpu")


def work(chance: random.Random, name: str, most: int) -> Workflow:
    """A few steps, each after some of those before it."""
    steps: list[Step] = []
    definitions: list[Workflow] = []
    for number in range(chance.randint(1, 6)):
        ups = chance.sample([one.name for one in steps], min(len(steps), chance.randint(0, 2)))
        fields: dict[str, Any] = {}
        if chance.random() < 0.3:
            fields["retry"] = Retry(limit=2)
        if chance.random() < 0.2:
            fields["cache"] = Cache()
        if chance.random() < 0.15:
            fields["group"] = f"g{chance.randint(0, 1)}"
        tasks = chance.choice((0, 0, 2, 5, 9))
        if tasks and chance.random() < 0.2:
            tasks = min(tasks, most)
            fields["gang"] = True
        cpu = 0 if chance.random() < 0.15 else chance.randint(1, max(1, most // (tasks if fields.get("gang") else 2)))
        if not fields.get("gang") and chance.random() < 0.2:
            fields["replicas"] = 2
            cpu = max(1, cpu // 2)
        if chance.random() < 0.15:
            definitions.append(
                Workflow(name=f"d{number}", steps=(step("x", cpu=cpu, tasks=tasks), step("y", "x", cpu=1)))
            )
            edges = step("z", *ups).needs
            steps.append(Step(name=f"s{number}", action=Nested(name=f"d{number}"), needs=edges))
            continue
        steps.append(step(f"s{number}", *ups, cpu=cpu, tasks=tasks, **fields))
    exits = (step("clean", cpu=most),) if chance.random() < 0.2 else ()
    return flow(*steps, name=name, definitions=tuple(definitions), on_exit=exits)


def queues(chance: random.Random) -> tuple[str, list[tuple[str, int]]]:
    policies = ["Never", "LowerPriority", "LowerOrNewerEqualPriority"]
    cohort = chance.choice(("", "all"))
    found, names = "", []
    for name in "ab"[: chance.randint(1, 2)]:
        cpu = chance.randint(4, 10)
        preemption = {"withinClusterQueue": chance.choice(policies)}
        if cohort:
            preemption["reclaimWithinCohort"] = chance.choice(("Never", "LowerPriority", "Any"))
        strategy = chance.choice(("StrictFIFO", "BestEffortFIFO"))
        found += queue(name, cpu, cohort, preemption=preemption, queueingStrategy=strategy)
        names.append((name, cpu))
    return found, names


class Mishaps:
    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.failed: set[str] = set()

    def __call__(self, order: AttemptSpec) -> Any:
        seconds = self.chance.choice((0.0, 0.1, 3.0, 8.0, 20.0))
        if order.step.retry is not None and order.task not in self.failed and self.chance.random() < 0.3:
            self.failed.add(order.task)
            return seconds, RuntimeError("once")
        return seconds


def watch(yard: Yard, names: list[tuple[str, int]]) -> None:
    """What runs stands on quota that is held, and what is held is there. Clean-up is exempt."""
    total = sum(cpu for _, cpu in names) * CPU
    used = sum(needs.get("cpu", 0) for id, (_, needs) in yard.running.items() if "/clean/" not in id)
    assert used <= total
    for engine in yard.engines:
        if engine.admission.replica is None:
            continue
        tree = engine.admission.replica.scheduler.tree
        for root in tree.roots():
            assert root.usage.get(FR, 0) <= root.subtree.get(FR, 0)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(SEED, SEED + ROUNDS))
def test_whatever_happens(seed: int, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    store = str(request.getfixturevalue("postgres_url")) if seed % 10 == 9 else ""
    play(seed, tmp_path, store)


def play(seed: int, place: Path, store: str = "") -> None:
    chance = random.Random(seed)
    manifest, names = queues(chance)
    yard = Yard(place / "p", manifest, store=store)
    yard.watch = lambda yard: watch(yard, names)
    script = Mishaps(chance)

    async def main(yard: Yard) -> list[Any]:
        engines = [yard.go(yard.engine(script)) for _ in range(chance.randint(1, 2))]
        lives = []
        for number in range(chance.randint(1, 6)):
            name, cpu = chance.choice(names)
            unit = chance.choice(list(Unit))
            graph = work(chance, f"w{number}", cpu)
            engine = chance.choice(engines)
            try:
                live = yard.submit(engine, graph, queue=name, unit=str(unit), priority=chance.randint(0, 3))
            except Exception as error:
                assert "P818" in str(error) or "P225" in str(error), error
                continue
            lives.append(live)
            await asyncio.sleep(chance.choice((0, 0.3, 5, 12)))
            if chance.random() < 0.1:
                engine.cancel(live, "enough", chance.random() < 0.5)
                engine.inbox.wake()
            if chance.random() < 0.1:
                set_stop(engine.store, name, chance.choice((Stop.HOLD, Stop.DRAIN)))
                await asyncio.sleep(chance.choice((0.1, 10)))
                set_stop(engine.store, name, Stop.NONE)
        return lives

    lives = yard.play(main)
    for live in lives:
        assert live.status in ("succeeded", "cancelled"), (live.status, live.why)
        assert not live.counts.get("running") and not live.counts.get("waiting")
    assert yard.left() == []
    assert not yard.running
    for engine in yard.engines:
        assert not engine.admission.is_queued
        if engine.admission.replica is not None:
            assert (
                not any(node.usage.get(FR) for node in engine.admission.replica.scheduler.tree.queues.values())
                or len(yard.engines) > 1
            )
