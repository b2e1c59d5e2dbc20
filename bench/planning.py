"""Planning at size: random graphs, layered graphs, one enormous fan-out. The bare limit is one topological sort by graphlib
over the same edges: no planner can do without it."""

from __future__ import annotations

import graphlib
import json
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from bench.measure import Figure, best
from penstock.expressions.parse import Expr
from penstock.expressions.types import INT
from penstock.graph.antichain import PartialOrder
from penstock.graph.model import Container, ForEach, Function, Input, Output, Step, Workflow
from penstock.plan.demand import peaks
from penstock.plan.make import Plan, make

FAN_OUT = 1_000_000


def random_dag(size: int, seed: int = 1) -> Workflow:
    """Each step reads up to three earlier ones, some near, some far, and asks for cpu, memory and at times a gpu."""
    dice = random.Random(seed)
    steps = []
    for i in range(size):
        near = {max(0, i - 1 - int(dice.expovariate(1 / 50))) for _ in range(2)} if i else set()
        ups = sorted(near | ({dice.randrange(i)} if i and dice.random() < 0.3 else set()))
        resources = {"cpu": 1000 * dice.randint(1, 8), "memory": 1000 * 2**30 * dice.randint(1, 64)}
        if dice.random() < 0.2:
            resources["nvidia.com/gpu"] = 1000 * dice.randint(1, 8)
        steps.append(
            Step(
                name=f"s{i}",
                action=Container(image="busybox", command=("work", str(i))),
                inputs=tuple(
                    Input(name=f"i{k}", value=Expr(f"steps.s{up}.outputs.x"), type=INT) for k, up in enumerate(ups)
                ),
                outputs=(Output(name="x", type=INT),),
                resources=resources,
            )
        )
    return Workflow(name="random", steps=tuple(steps))


def layered(size: int, width: int = 100, seed: int = 1) -> tuple[list[int], list[tuple[int, int]]]:
    dice = random.Random(seed)
    weights = [1000 * dice.choice([1, 2, 4, 8]) for _ in range(size)]
    edges = {((v // width - 1) * width + dice.randrange(width), v) for v in range(width, size) for _ in range(3)}
    return weights, sorted(edges)


def everything(workflow: Workflow) -> Plan:
    """A whole plan: checked, expanded, staged, measured, cut and keyed."""
    plan = make(workflow)
    assert plan.stages and plan.peaks and plan.reservations and plan.keys
    return plan


def figures() -> Iterator[Figure]:
    costs = {}
    for size, bar, times in ((1_000, None, 3), (10_000, 1.0, 5), (100_000, 12.0, 2)):
        workflow = random_dag(size)
        plan = make(workflow)
        bare = best(lambda before=plan.level.before: list(graphlib.TopologicalSorter(before).static_order()), times)
        costs[size] = best(lambda given=workflow: everything(given), times)
        yield Figure(f"plan of a random DAG of {size:,} steps", costs[size], bar, bare=bare, bare_name="bare sort")
        yield Figure(
            f"  of which the peaks of its {len(plan.peaks)} resources",
            best(lambda given=plan: peaks(given.level), times),
            None,
        )
    grown = costs[100_000] / costs[10_000]
    yield Figure("growth from 10,000 to 100,000 (n·log n is 12.5)", grown, 12.5, "×")
    for size, bar, times in ((10_000, 1.0, 3), (100_000, 15.0, 1)):
        for width in (10, 100, 1_000):
            weights, edges = layered(size, width)
            before = {v: set() for v in range(size)} | {}
            for u, v in edges:
                before[v].add(u)
            bare = best(lambda given=before: list(graphlib.TopologicalSorter(given).static_order()), times)
            took = best(lambda w=weights, e=edges: PartialOrder(len(w), e).heaviest(w), times)
            yield Figure(
                f"exact peak, {size:,} steps in layers of {width:,}", took, bar, bare=bare, bare_name="bare sort"
            )
    yield from fan_out()


def fan_out() -> Iterator[Figure]:
    """In a process of its own, so that its memory is its own."""
    for kind in ("range", "list"):
        found = json.loads(
            subprocess.run(
                [sys.executable, "-m", "bench.planning", kind], check=True, capture_output=True, text=True
            ).stdout
        )
        yield Figure(f"plan of a fan-out of {FAN_OUT:,} tasks, items as a {kind}", found["seconds"], 0.5)
        yield Figure("  memory of that process", found["mb"], 200, "MB")


def measure_fan_out(kind: str) -> None:
    items = Expr(f"range({FAN_OUT})") if kind == "range" else tuple(range(FAN_OUT))
    step = Step(
        name="work",
        action=Function(module="m", name="f", code="sha256:0"),
        inputs=(Input(name="i", value=Expr("item.i"), type=INT),),
        each=ForEach(axes=({"i": items},)),
        resources={"cpu": 1000},
    )
    took = best(lambda: everything(Workflow(name="wide", steps=(step,))), 3)
    # VmHWM, because ru_maxrss would count what the parent held before this process became its own.
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    print(json.dumps({"seconds": took, "mb": int(status["VmHWM"].split()[0]) / 1024}))


if __name__ == "__main__":
    measure_fan_out(sys.argv[1])
