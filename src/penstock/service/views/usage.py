"""Usage as screens show it: by person, queue or flow, day by day, of one run by step, with what it cost. Called by `penstock usage` and the server."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from penstock.errors import PlanError, Problem
from penstock.graph.paths import step_of
from penstock.service.prices import Prices
from penstock.service.usage import HOUR, Attempt, Counter, Folded, Tally, attempts, running_now
from penstock.store.records import FINAL, RunRecord
from penstock.store.sql import Store
from penstock.store.usage import RunUsage

By = Literal["person", "queue", "flow"]
WAYS: Final[tuple[By, ...]] = ("person", "queue", "flow")
DAYS: Final = 30
"""What is shown if nobody says since when."""
NO_QUEUE: Final = "(no queue)"
"""Tasks of runs that name no queue: as long as none is configured they share this machine."""
WASTEFUL: Final = 3


@dataclass(slots=True)
class UsageRow:
    name: str
    runs: int
    tally: Tally
    cost: float | None

    def as_data(self) -> dict[str, Any]:
        data = {"name": self.name, "runs": self.runs, **self.tally.as_data()}
        return data | {"cost": None if self.cost is None else round(self.cost, 6)}


@dataclass(slots=True)
class UsageReport:
    by: By
    since: float
    until: float
    prices: Prices
    rows: list[UsageRow]
    """The one with most first."""
    total: UsageRow
    days: dict[int, Tally] = field(default_factory=dict)
    """Begin of the day (UTC) -> what was done in it."""
    uncounted: int = 0
    """Runs whose log has not been read yet."""

    @property
    def resources(self) -> list[str]:
        """Of all that was asked for: cpu, memory, then the rest."""
        order = {"cpu": 0, "memory": 1}
        return sorted(self.total.tally.asked, key=lambda name: (order.get(name, 2), name))

    def as_data(self) -> dict[str, Any]:
        return {
            "by": self.by,
            "since": self.since,
            "until": self.until,
            "prices": self.prices.as_data(),
            "items": [row.as_data() for row in self.rows],
            "total": self.total.as_data(),
            "days": [{"at": at, **tally.as_data()} for at, tally in sorted(self.days.items())],
            "uncounted": self.uncounted,
        }


def way(text: str) -> By:
    """Raises PlanError."""
    if text not in WAYS:
        raise PlanError(Problem("P980", f"{text[:40]!r} is no way to group usage", f"take {', '.join(WAYS)}"))
    return text


def usage(
    store: Store,
    by: By,
    since: float,
    until: float,
    prices: Prices,
    filters: Mapping[str, str] | None = None,
    *,
    seconds: float = float("inf"),
    tell: Callable[[int], None] = lambda left: None,
) -> UsageReport:
    """In whole hours. `filters`: by person, queue or flow. `seconds`: how long logs that have not been read yet may be read. Raises PlanError."""
    if not since < until:
        raise PlanError(Problem("P980", "the time ends before it begins", "give --since a time before --until"))
    now, wanted = time.time(), dict(filters or {})
    first, last = since // HOUR * HOUR, until
    left = Counter(store, seconds).bring_up(first, last, tell)
    groups: dict[str, UsageRow] = {}
    total = UsageRow("total", 0, Tally(), None)
    days: dict[int, Tally] = {}
    for row in store.usage.between(first, last):
        if wanted.get("person") not in (None, row.user) or wanted.get("flow") not in (None, row.workflow):
            continue
        touched = set()
        for at, queue, data in _hours(store, row, now):
            queue = queue or NO_QUEUE
            if not first <= at < last or wanted.get("queue") not in (None, queue):
                continue
            name = {"person": row.user, "queue": queue, "flow": row.workflow}[by]
            group = groups.get(name)
            if group is None:
                group = groups[name] = UsageRow(name, 0, Tally(), None)
            group.tally.add_data(data)
            day = at - at % 86400
            if day not in days:
                days[day] = Tally()
            days[day].add_data(data)
            touched.add(name)
        for name in touched:
            groups[name].runs += 1
        total.runs += bool(touched)
    for one in groups.values():
        total.tally.add(one.tally)
    for one in (*groups.values(), total):
        one.cost = prices.cost(one.tally.asked)
    weight = total.tally.asked
    rows = sorted(groups.values(), key=lambda one: (-_share(one, weight, prices), one.name))
    return UsageReport(by, since, until, prices, rows, total, days, left)


def _hours(store: Store, row: RunUsage, now: float) -> Iterable[tuple[int, str, Mapping[str, Any]]]:
    """(begin of the hour, queue, what was done in it), with what runs at this moment."""
    data = json.loads(row.document)
    if not data["running"] or not running_now(store, row.run):
        hours: list[tuple[int, str, Mapping[str, Any]]] = data["hours"]
        return hours
    found = Folded.parsed(row.document)
    for start, ask in found.running:
        found.spread(ask, Attempt("", start, None, True, None), now)
    return [(at, queue, tally.as_data()) for (at, queue), tally in found.hours.items()]


def _share(row: UsageRow, total: Mapping[str, float], prices: Prices) -> float:
    """How much of all: by cost, or by the resource of which it has the largest part."""
    if row.cost is not None and prices:
        return row.cost
    parts = [amount / total[name] for name, amount in row.tally.asked.items() if total.get(name)]
    return max(parts, default=0.0) + row.tally.hours * 1e-9


# -- one run ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class StepCost:
    step: str
    queue: str
    tally: Tally
    cost: float | None
    waste: float
    """Core-hours, or the cost if there are prices, of attempts that failed and of cores that were measured and idle."""
    why: str = ""

    def as_data(self) -> dict[str, Any]:
        data = {"step": self.step, "queue": self.queue or None, **self.tally.as_data()}
        return data | {"cost": None if self.cost is None else round(self.cost, 6), "waste": round(self.waste, 6)}


@dataclass(slots=True)
class RunCost:
    run: str
    prices: Prices
    steps: list[StepCost]
    """Those that asked for most first."""
    total: Tally
    cost: float | None

    @property
    def wasteful(self) -> list[StepCost]:
        found = sorted((one for one in self.steps if one.waste > 0), key=lambda one: -one.waste)
        return found[:WASTEFUL]

    def as_data(self) -> dict[str, Any]:
        return {
            "run": self.run,
            "prices": self.prices.as_data(),
            "steps": [one.as_data() for one in self.steps],
            "total": self.total.as_data(),
            "cost": None if self.cost is None else round(self.cost, 6),
            "wasteful": [{"step": one.step, "waste": round(one.waste, 9), "why": one.why} for one in self.wasteful],
        }


def cost_of(store: Store, run: RunRecord, prices: Prices) -> RunCost:
    """By step, also while it runs."""
    now, ask_of = time.time(), Counter(store).asks(run)
    alive = run.state in FINAL or running_now(store, run.number)
    steps: dict[str, StepCost] = {}
    total = Tally()
    for one in () if run.options.get("dry") else attempts(store.runs.events(run.number)):
        if one.end is None and not alive:
            continue
        path = step_of(one.task)
        ask = ask_of(path)
        found = steps.setdefault(path, StepCost(path, ask.queue, Tally(), None, 0.0))
        if one.reused:
            found.tally.reused += 1
            continue
        end = now if one.end is None else one.end
        found.tally.add_time(ask, max(0.0, end - one.start), one)
        found.tally.attempts += 1
    for each in steps.values():
        total.add(each.tally)
        each.cost = prices.cost(each.tally.asked)
        each.waste, each.why = _waste(each.tally, prices)
    order = sorted(steps.values(), key=lambda one: (-(one.cost or 0.0), -sum(one.tally.asked.values()), one.step))
    return RunCost(run.id, prices, order, total, prices.cost(total.asked))


def _waste(tally: Tally, prices: Prices) -> tuple[float, str]:
    idle = max(0.0, tally.cpu_measured - tally.cpu_of_measured)
    if prices:
        amount = (prices.cost(tally.lost) or 0.0) + idle * prices.per_hour.get("cpu", 0.0)
    else:
        amount = tally.lost.get("cpu", 0.0) + idle
    why = ["attempts that did not succeed"] if tally.lost else []
    if idle > 0.1 * tally.cpu_measured:
        why.append(f"{round(100 * (1 - min(1.0, tally.busy or 0.0)))} % of its cores were idle")
    return amount, ", ".join(why)
