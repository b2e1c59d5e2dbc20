"""Data quality: every rule looks at the same table; what fails is put aside, and the report is written all the same.

penstock run examples/quality.py -p most=0
"""

import random

from penstock import task, workflow

Row = dict[str, int | None]


@task(cpu=1)
def table(rows: int) -> list[Row]:
    chance = random.Random(rows)
    return [{"id": i if i % 50 else 7, "age": chance.choice([20, 41, 63, None, 180])} for i in range(rows)]


@task(cpu=1)
def check(rows: list[Row], rule: str) -> list[int]:
    """The numbers of the rows that break the rule."""
    ids = [row["id"] for row in rows]
    ages = [row["age"] for row in rows]
    broken = {
        "unique id": lambda i: ids.index(ids[i]) != i,
        "age is known": lambda i: ages[i] is None,
        "age is possible": lambda i: ages[i] is not None and not 0 <= ages[i] < 120,
    }[rule]
    return [i for i in range(len(rows)) if broken(i)]


@task
def share(found: list[list[int]], rows: list[Row]) -> float:
    return len({number for numbers in found for number in numbers}) / len(rows)


@task
def put_aside(rows: list[Row], found: list[list[int]]) -> list[Row]:
    bad = {number for numbers in found for number in numbers}
    return [row for i, row in enumerate(rows) if i in bad]


@workflow
def quality(rows: int = 200, most: float = 0.25, rules: list[str] = ["unique id", "age is known", "age is possible"]):  # noqa: B006
    data = table(rows)
    found = [check(data, rule) for rule in rules]
    bad = share(found, data)
    kept: list[Row] = []
    if bad > most:
        kept = put_aside(data, found)
    return {"bad": bad, "put aside": len(kept)}
