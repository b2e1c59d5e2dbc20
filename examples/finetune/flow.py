"""Prepare data, train a few models side by side, choose the best, publish it if it is good enough.

penstock plan examples/finetune/flow.py   # what it needs, stage by stage
penstock run examples/finetune/flow.py    # recorded; a second time everything is reused
python examples/finetune/flow.py          # the same function, as ordinary Python
"""

import random

from penstock import task, workflow


@task(cpu=1, memory="512Mi", retry=2)
def prepare(rows: int) -> list[float]:
    """A noisy line to fit."""
    noise = random.Random(7)
    return [2.0 * x + noise.gauss(0, 0.1) for x in range(rows)]


# On a cluster this would ask for gpu=8, and wait in a queue for them. Here it asks for two CPUs, so that it runs anywhere. What a step
# asks for is not part of its key, so the results are reused in both places.
@task(cpu=2, memory="1Gi", timeout="10m")
def train(data: list[float], rate: float) -> float:
    """Fit the slope by gradient descent, leaving out one row after the other; return how far off it ends on average."""
    off = 0.0
    for left_out in range(len(data)):
        points = [(x, y) for x, y in enumerate(data) if x != left_out]
        slope = 0.0
        for _ in range(200):
            gradient = sum((slope * x - y) * x for x, y in points) / len(points)
            slope -= rate * gradient / len(points)
        off += abs(slope - 2.0) / len(data)
    print(f"rate {rate}: off by {off:.4f}")
    return off


@task
def best(errors: list[float]) -> int:
    return min(range(len(errors)), key=lambda i: errors[i])


@task(cpu=1)
def publish(rate: float, error: float) -> str:
    return f"published the model with rate {rate}, off by {error:.4f}"


@workflow
def finetune(rows: int = 100, rates: list[float] = [0.001, 0.003, 0.01, 0.03], good: float = 0.05):  # noqa: B006
    data = prepare(rows)
    errors = [train(data, rate) for rate in rates]
    winner = best(errors)
    if errors[winner] < good:
        message = publish(rates[winner], errors[winner])
    else:
        message = "nothing was good enough to publish"
    return message


if __name__ == "__main__":
    print(finetune())
