"""Statistics: one workflow analyses a segment, another calls it for each of them. A segment without enough people is left out.

penstock run examples/ab_test.py -p least=10000
"""

import math
import random

from penstock import task, workflow


@task(cpu=1)
def visits(segment: str) -> dict[str, list[int]]:
    chance = random.Random(segment)
    return {arm: [int(chance.random() < rate) for _ in range(2000)] for arm, rate in (("a", 0.10), ("b", 0.13))}


@task
def people(data: dict[str, list[int]]) -> int:
    return len(data["a"]) + len(data["b"])


@task(cpu=1)
def z_value(data: dict[str, list[int]]) -> float:
    a, b = data["a"], data["b"]
    p = (sum(a) + sum(b)) / (len(a) + len(b))
    error = math.sqrt(p * (1 - p) * (1 / len(a) + 1 / len(b)))
    return round((sum(b) / len(b) - sum(a) / len(a)) / error, 2)


@workflow
def segment_result(segment: str, least: int):
    data = visits(segment)
    z = 0.0
    if people(data) >= least:
        z = z_value(data)
    return z


@task
def verdict(values: list[float], segments: list[str]) -> dict[str, str]:
    return {name: "better" if z > 1.96 else "no difference" for name, z in zip(segments, values, strict=True)}


@workflow
def ab_test(segments: list[str] = ["mobile", "desktop", "tablet"], least: int = 1000):  # noqa: B006
    return verdict([segment_result(segment, least) for segment in segments], segments)
