"""Measures of a queue over time: makespan, waiting, utilisation, waste, preemptions. Called by the simulator in service.

The simulator reports what happened as Facts, in any order, and `measure` adds them up. Amounts are the integers of `model` (cpu in
thousandths, all else in its base unit). Sums over time are exact: all times are converted to integers with one common denominator, and
only the results are rounded, once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from typing import Any

from penstock.admission.model import UNLIMITED, Amounts

Time = int | float | Fraction
"""Seconds."""


class What(StrEnum):
    SUBMITTED = "submitted"
    """A run exists."""
    QUEUED = "queued"
    """A Workload waits in the queue: at first, and again after it was preempted."""
    ADMITTED = "admitted"
    """It no longer waits. Also for one that was withdrawn."""
    STARTED = "started"
    """A task of the run has started."""
    PREEMPTED = "preempted"
    CHANGED = "changed"
    """Only the amounts have changed."""
    ENDED = "ended"
    """The run has ended."""


@dataclass(frozen=True, slots=True)
class Fact:
    time: Time
    run: str
    """Empty for what belongs to no run: it counts in the totals only."""
    what: What = What.CHANGED
    workload: str = ""
    reserved: Amounts = field(default_factory=dict)
    """The change of the quota that is held, by resource."""
    used: Amounts = field(default_factory=dict)
    """The change of what running tasks use."""


@dataclass(frozen=True, slots=True)
class ResourceSeries:
    """One resource over time: from times[i] on, reserved[i] and used[i]. Times count from the first fact; the last time is the end."""

    resource: str
    capacity: int | None
    """None: no limit, or not known."""
    times: tuple[float, ...]
    reserved: tuple[int, ...]
    used: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ResourceTotal:
    """One resource over the whole time, in amount × seconds."""

    capacity: int | None
    reserved: float
    used: float
    wasted: float
    """Reserved but not used."""
    utilisation: float | None
    """used / (capacity × makespan). None if there is no capacity, or no time has passed."""
    peak_reserved: int
    peak_used: int

    def as_data(self) -> dict[str, Any]:
        return {
            "capacity": self.capacity,
            "reserved": self.reserved,
            "used": self.used,
            "wasted": self.wasted,
            "utilisation": self.utilisation,
            "peakReserved": self.peak_reserved,
            "peakUsed": self.peak_used,
        }


@dataclass(frozen=True, slots=True)
class RunMeasures:
    """Times in seconds. None: it never happened."""

    submitted: float
    started: float | None
    ended: float | None
    delay: float | None
    """From submission to the first start."""
    waiting: float
    """How long at least one of its Workloads waited in the queue."""
    stalled: float
    """The part of `waiting` in which the run used nothing."""
    preemptions: int

    def as_data(self) -> dict[str, Any]:
        return {
            "submitted": self.submitted,
            "started": self.started,
            "ended": self.ended,
            "delay": self.delay,
            "waiting": self.waiting,
            "stalled": self.stalled,
            "preemptions": self.preemptions,
        }


@dataclass(frozen=True, slots=True)
class Spread:
    mean: float
    longest: float

    def as_data(self) -> dict[str, float]:
        return {"mean": self.mean, "max": self.longest}


@dataclass(frozen=True, slots=True)
class Measures:
    makespan: float
    """From the first fact to the last: from the first submission to the last end."""
    preemptions: int
    runs: Mapping[str, RunMeasures]
    """In the order of submission."""
    totals: Mapping[str, ResourceTotal]
    """By resource, sorted."""
    series: tuple[ResourceSeries, ...]

    @property
    def delay(self) -> Spread:
        """Of the runs that have started."""
        return _spread([run.delay for run in self.runs.values() if run.delay is not None])

    @property
    def waiting(self) -> Spread:
        return _spread([run.waiting for run in self.runs.values()])

    @property
    def stalled(self) -> Spread:
        return _spread([run.stalled for run in self.runs.values()])

    def as_data(self) -> dict[str, Any]:
        """Without the series, which are for charts."""
        return {
            "makespan": self.makespan,
            "delay": self.delay.as_data(),
            "waiting": self.waiting.as_data(),
            "stalled": self.stalled.as_data(),
            "preemptions": self.preemptions,
            "resources": {resource: total.as_data() for resource, total in self.totals.items()},
            "runs": {name: run.as_data() for name, run in self.runs.items()},
        }


def _spread(values: Sequence[float]) -> Spread:
    return Spread(math.fsum(values) / len(values), max(values)) if values else Spread(0.0, 0.0)


# -- measuring -------------------------------------------------------------------------------------------------------


def measure(facts: Iterable[Fact], capacity: Mapping[str, int | None]) -> Measures:
    """Facts with the same time count in the given order. All resources of `capacity` and of the facts are measured."""
    ordered = sorted(facts, key=lambda fact: fact.time)
    clock = _Clock([fact.time for fact in ordered])
    known = dict.fromkeys(capacity) | {name: None for fact in ordered for name in (*fact.reserved, *fact.used)}
    curves = {name: _Curve() for name in sorted(known)}
    runs: dict[str, _Run] = {}
    for tick, fact in zip(clock.ticks, ordered, strict=True):
        for name, amount in fact.reserved.items():
            curves[name].change(tick, amount, 0)
        for name, amount in fact.used.items():
            curves[name].change(tick, 0, amount)
        if fact.run:
            runs.setdefault(fact.run, _Run(tick)).add(tick, fact)
    end = clock.ticks[-1] if clock.ticks else 0
    limits = {name: _limit(capacity.get(name)) for name in curves}
    return Measures(
        makespan=clock.seconds(end),
        preemptions=sum(run.preemptions for run in runs.values()),
        runs={name: run.result(end, clock) for name, run in runs.items()},
        totals={name: curve.total(end, limits[name], clock) for name, curve in curves.items()},
        series=tuple(curve.series(name, end, limits[name], clock) for name, curve in curves.items()),
    )


def _limit(amount: int | None) -> int | None:
    return None if amount is None or amount >= UNLIMITED else amount


class _Clock:
    """Converts times to integer ticks since the first one, and ticks to seconds."""

    def __init__(self, times: Sequence[Time]) -> None:
        ratios = [time.as_integer_ratio() for time in times]
        self.per_second = math.lcm(*{below for _, below in ratios})
        found = [above * (self.per_second // below) for above, below in ratios]
        self.ticks = [tick - found[0] for tick in found]

    def seconds(self, ticks: int) -> float:
        return float(Fraction(ticks, self.per_second))


class _Curve:
    """One resource. Several changes at the same time are one."""

    def __init__(self) -> None:
        self.ticks = [0]
        self.reserved = [0]
        self.used = [0]

    def change(self, tick: int, reserved: int, used: int) -> None:
        if tick > self.ticks[-1]:
            self.ticks.append(tick)
            self.reserved.append(self.reserved[-1])
            self.used.append(self.used[-1])
        self.reserved[-1] += reserved
        self.used[-1] += used

    def total(self, end: int, limit: int | None, clock: _Clock) -> ResourceTotal:
        spans = [after - before for before, after in zip(self.ticks, [*self.ticks[1:], end], strict=True)]
        reserved = sum(map(int.__mul__, self.reserved, spans))
        used = sum(map(int.__mul__, self.used, spans))
        return ResourceTotal(
            limit,
            clock.seconds(reserved),
            clock.seconds(used),
            clock.seconds(reserved - used),
            float(Fraction(used, limit * end)) if limit and end else None,
            max(self.reserved),
            max(self.used),
        )

    def series(self, name: str, end: int, limit: int | None, clock: _Clock) -> ResourceSeries:
        kept = [
            i
            for i, pair in enumerate(zip(self.reserved, self.used, strict=True))
            if not i or pair != (self.reserved[i - 1], self.used[i - 1])
        ]
        if self.ticks[kept[-1]] < end:
            last = [len(self.ticks) - 1]
            times = [*(self.ticks[i] for i in kept), end]
        else:
            last = []
            times = [self.ticks[i] for i in kept]
        shown = [*kept, *last]
        return ResourceSeries(
            name,
            limit,
            tuple(map(clock.seconds, times)),
            tuple(self.reserved[i] for i in shown),
            tuple(self.used[i] for i in shown),
        )


class _Run:
    """One run, while facts are added."""

    def __init__(self, tick: int) -> None:
        self.submitted = tick
        self.started: int | None = None
        self.ended: int | None = None
        self.preemptions = 0
        self.queued: set[str] = set()
        self.using: dict[str, int] = {}
        self.since = tick
        self.waiting = 0
        self.stalled = 0

    def add(self, tick: int, fact: Fact) -> None:
        self.pass_time(tick)
        match fact.what:
            case What.QUEUED:
                self.queued.add(fact.workload)
            case What.ADMITTED:
                self.queued.discard(fact.workload)
            case What.STARTED if self.started is None:
                self.started = tick
            case What.PREEMPTED:
                self.preemptions += 1
            case What.ENDED:
                self.ended = tick
                self.queued.clear()
        for name, amount in fact.used.items():
            left = self.using.pop(name, 0) + amount
            if left:
                self.using[name] = left

    def pass_time(self, tick: int) -> None:
        if self.queued:
            self.waiting += tick - self.since
            if not self.using:
                self.stalled += tick - self.since
        self.since = tick

    def result(self, end: int, clock: _Clock) -> RunMeasures:
        self.pass_time(end)
        return RunMeasures(
            submitted=clock.seconds(self.submitted),
            started=None if self.started is None else clock.seconds(self.started),
            ended=None if self.ended is None else clock.seconds(self.ended),
            delay=None if self.started is None else clock.seconds(self.started - self.submitted),
            waiting=clock.seconds(self.waiting),
            stalled=clock.seconds(self.stalled),
            preemptions=self.preemptions,
        )
