"""Weather: an ensemble of forecasts, each from a slightly different start. Stages with the same needs keep their machines.

penstock plan examples/ensemble.py --unit reuse
"""

import random

from penstock import task, workflow


@task(cpu=1)
def perturb(member: int) -> list[float]:
    chance = random.Random(member)
    return [15 + chance.gauss(0, 0.1) for _ in range(20)]


@task(cpu=1, memory="256Mi", timeout="30m")
def forecast(state: list[float], hours: int) -> list[float]:
    """Heat spreads along a ring, and the sun shines on one side."""
    for _ in range(hours * 10):
        state = [
            here + 0.1 * (state[i - 1] - 2 * here + state[(i + 1) % len(state)]) + (0.01 if i < 10 else -0.01)
            for i, here in enumerate(state)
        ]
    return state


@task(cpu=1)
def spread(members: list[list[float]]) -> list[float]:
    return [round(max(cell) - min(cell), 3) for cell in zip(*members, strict=True)]


@workflow
def ensemble(members: int = 6, hours: int = 24):
    states = [perturb(member) for member in range(members)]
    return spread([forecast(state, hours) for state in states])
