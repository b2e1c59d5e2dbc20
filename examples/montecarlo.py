"""Physics: many independent simulations, written with objects instead of a function. Equal seeds give equal keys.

penstock plan examples/montecarlo.py --unit workflow    # the peak of what runs at the same time, not the sum
"""

import random

from penstock import FunctionJob, Workflow, WorkflowParam, for_loop, task


@task(cpu=1, memory="64Mi")
def walk(seed: int, steps: int) -> float:
    """How far a drunkard gets."""
    chance, x, y = random.Random(seed), 0, 0
    for _ in range(steps):
        dx, dy = chance.choice([(1, 0), (-1, 0), (0, 1), (0, -1)])
        x, y = x + dx, y + dy
    return (x * x + y * y) ** 0.5


@task
def summary(distances: list[float]) -> dict[str, float]:
    mean = sum(distances) / len(distances)
    return {"mean": round(mean, 2), "furthest": round(max(distances), 2)}


steps = WorkflowParam("steps", int, 1000)


@for_loop(seed=range(20), parallel=8)
def each(seed):
    return FunctionJob("walk", walk, {"seed": seed, "steps": steps})


total = FunctionJob("summary", summary, {"distances": each.outputs["result"]})
flow = Workflow("montecarlo", [each, total], params=[steps], outputs={"result": total.outputs["result"]})
