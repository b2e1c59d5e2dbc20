"""Active learning: train, ask for the labels that would help most, until the budget is spent or the model is good.

penstock run examples/labels.py -p budget=20
"""

from penstock import task, workflow


@task(cpu=1)
def train(labelled: list[int], truth: int) -> tuple[int, int]:
    """The border between two classes lies between these two points."""
    below = [x for x in labelled if x < truth]
    above = [x for x in labelled if x >= truth]
    return max(below, default=0), min(above, default=1000)


@task
def ask(border: tuple[int, int]) -> int:
    """The point that the model is least certain of."""
    return (border[0] + border[1]) // 2


@task
def width(border: tuple[int, int]) -> int:
    return border[1] - border[0]


@workflow(max_iterations=50)
def labels(truth: int = 617, budget: int = 12, good: int = 3):
    labelled = [0, 1000]
    border = train(labelled, truth)
    unsure = width(border)
    while unsure > good and len(labelled) < budget:
        labelled = labelled + [ask(border)]  # noqa: RUF005
        border = train(labelled, truth)
        unsure = width(border)
    return {"border": border, "labels": len(labelled)}
