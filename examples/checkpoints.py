"""Training with checkpoints: each round continues from the file that the last one wrote. Kill it, run it again: it goes on there.

penstock run examples/checkpoints.py
penstock show @                                # every round is a task of its own
"""

import json
from pathlib import Path

from penstock import task, workflow


@task
def start() -> Path:
    path = Path("model.json")
    path.write_text(json.dumps({"round": 0, "weight": 0.0}))
    return path


@task(cpu=1, timeout="5m", retry=2)
def train(checkpoint: Path, rate: float) -> Path:
    model = json.loads(checkpoint.read_text())
    for _ in range(10):
        model["weight"] -= rate * 2 * (model["weight"] - 3.0)
    model["round"] += 1
    path = Path("model.json")
    path.write_text(json.dumps(model))
    return path


@task
def loss(checkpoint: Path) -> float:
    return (json.loads(checkpoint.read_text())["weight"] - 3.0) ** 2


@task
def rounds(checkpoint: Path) -> int:
    return json.loads(checkpoint.read_text())["round"]


@workflow(max_iterations=100)
def checkpoints(rate: float = 0.02, good: float = 0.0001):
    model = start()
    error = loss(model)
    while error > good:
        model = train(model, rate)
        error = loss(model)
    return rounds(model)
