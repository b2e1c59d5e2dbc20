"""A sweep over every combination of two parameters; the best one is trained again, longer.

penstock run examples/sweep.py -p steps=50    # another number of steps: everything again; the same: nothing
"""

from penstock import task, workflow


@task(cpu=1, memory="256Mi", parallel=8)
def fit(rate: float, momentum: float, steps: int) -> float:
    """Gradient descent on a narrow valley; the loss that is left."""
    x, y, vx, vy = 4.0, 1.0, 0.0, 0.0
    for _ in range(steps):
        vx, vy = momentum * vx - rate * x, momentum * vy - rate * 10 * y
        x, y = x + vx, y + vy
    return min(1e9, x * x + 10 * y * y)


@task
def best(losses: list[list[float]], rates: list[float], momenta: list[float]) -> dict[str, float]:
    found = [(losses[i][j], rate, momentum) for i, rate in enumerate(rates) for j, momentum in enumerate(momenta)]
    loss, rate, momentum = min(found)
    return {"loss": loss, "rate": rate, "momentum": momentum}


@workflow
def sweep(rates: list[float] = [0.01, 0.05, 0.1], momenta: list[float] = [0.0, 0.5, 0.9], steps: int = 40):  # noqa: B006
    losses = [[fit(rate, momentum, steps) for momentum in momenta] for rate in rates]
    chosen = best(losses, rates, momenta)
    return fit(chosen["rate"], chosen["momentum"], 1000)
