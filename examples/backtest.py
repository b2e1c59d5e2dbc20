"""Finance: every strategy on every year; rank them by their worst year.

penstock run examples/backtest.py -p 'years=[2021, 2022, 2023, 2024]'    # one year more: only that year is computed
"""

import random

from penstock import task, workflow


@task(cpu=1)
def prices(year: int) -> list[float]:
    chance, price = random.Random(year), 100.0
    found = []
    for _ in range(250):
        price *= 1 + chance.gauss(0.0004, 0.01)
        found.append(price)
    return found


@task(cpu=1, memory="256Mi", parallel=16)
def trade(strategy: str, year: list[float]) -> float:
    """What one unit of money has become."""
    money = 1.0
    for day in range(20, len(year)):
        mean = sum(year[day - 20 : day]) / 20
        inside = {"hold": True, "trend": year[day - 1] > mean, "contrary": year[day - 1] < mean}[strategy]
        money *= year[day] / year[day - 1] if inside else 1.0
    return round(money, 4)


@task
def rank(results: list[list[float]], strategies: list[str]) -> list[tuple[str, float]]:
    worst = [(name, min(years)) for name, years in zip(strategies, results, strict=True)]
    return sorted(worst, key=lambda entry: -entry[1])


@workflow
def backtest(strategies: list[str] = ["hold", "trend", "contrary"], years: list[int] = [2021, 2022, 2023]):  # noqa: B006
    data = [prices(year) for year in years]
    return rank([[trade(strategy, year) for year in data] for strategy in strategies], strategies)
