"""What a queue did over time, in figures: makespan, waiting, utilisation, waste, preemptions. Called by the simulator of queues.

Whoever runs the work says what happened, as Facts in any order; `measure` sums them up. Amounts are the integers of `model` (cpu in
thousandths, all else in its base unit). Sums over time are exact: the times, floats included, are brought to one denominator, and
everything is added as integers; only the results are rounded, once.
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
    """A workload is ready and stands in line: at first, and again after it was preempted."""
    ADMITTED = "admitted"
    """It does so no more. Also said of one that was withdrawn."""
    STARTED = "started"
    """Something of the run is at work."""
    PREEMPTED = "preempted"
    CHANGED = "changed"
    """Nothing but the amounts."""
    ENDED = "ended"
    """The run is over."""


@dataclass(frozen=True, slots=True)
class Fact:
    time: Time
    run: str
    """Empty for what belongs to none: it counts in the sums alone."""
    what: What = What.CHANGED
    workload: str = ""
    reserved: Amounts = field(default_factory=dict)
    """By how much the quota that is held changes, by resource."""
    used: Amounts = field(default_factory=dict)
    """By how much that changes what running tasks take."""


@dataclass(frozen=True, slots=True)
class Series:
    """One resource over time. From times[i] on, reserved[i] and used[i]; times count from the first fact. The last time is the end."""

    resource: str
    capacity: int | None
    """None: without limit, or nobody said."""
    times: tuple[float, ...]
    reserved: tuple[int, ...]
    used: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Total:
    """One resource, summed over the whole time: amount × seconds."""

    capacity: int | None
    reserved: float
    used: float
    wasted: float
    """Reserved and not used."""
    utilisation: float | None
    """used / (capacity × makespan); None if there is no capacity to speak of, or no time passed."""
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
class Run:
    """Seconds, all of them. What never came about is None."""

    submitted: float
    started: float | None
    ended: float | None
    delay: float | None
    """From submission to the first start."""
    waiting: float
    """How long at least one of its workloads stood in line."""
    stalled: float
    """The part of it during which nothing of the run used anything."""
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
    runs: Mapping[str, Run]
    """In the order of submission."""
    totals: Mapping[str, Total]
    """By resource, sorted."""
    series: tuple[Series, ...]

    @property
    def delay(self) -> Spread:
        """Of the runs that started at all."""
        return _spread([run.delay for run in self.runs.values() if run.delay is not None])

    @property
    def waiting(self) -> Spread:
        return _spread([run.waiting for run in self.runs.values()])

    @property
    def stalled(self) -> Spread:
        return _spread([run.stalled for run in self.runs.values()])

    def as_data(self) -> dict[str, Any]:
        """Without the series, which are for pictures."""
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


# -- summing up -------------------------------------------------------------------------------------------------------


def measure(facts: Iterable[Fact], capacity: Mapping[str, int | None]) -> Measures:
    """Facts of one time count in the order given. Every resource of `capacity` is measured, and every other that a fact names."""
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
            runs.setdefault(fact.run, _Run(tick)).see(tick, fact)
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
    """Times -> whole ticks since the first of them, and back to seconds."""

    def __init__(self, times: Sequence[Time]) -> None:
        ratios = [time.as_integer_ratio() for time in times]
        self.per_second = math.lcm(*{below for _, below in ratios})
        found = [above * (self.per_second // below) for above, below in ratios]
        self.ticks = [tick - found[0] for tick in found]

    def seconds(self, ticks: int) -> float:
        return float(Fraction(ticks, self.per_second))


class _Curve:
    """One resource. Several changes at one moment are one."""

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

    def total(self, end: int, limit: int | None, clock: _Clock) -> Total:
        spans = [after - before for before, after in zip(self.ticks, [*self.ticks[1:], end], strict=True)]
        reserved = sum(map(int.__mul__, self.reserved, spans))
        used = sum(map(int.__mul__, self.used, spans))
        return Total(
            limit,
            clock.seconds(reserved),
            clock.seconds(used),
            clock.seconds(reserved - used),
            float(Fraction(used, limit * end)) if limit and end else None,
            max(self.reserved),
            max(self.used),
        )

    def series(self, name: str, end: int, limit: int | None, clock: _Clock) -> Series:
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
        return Series(
            name,
            limit,
            tuple(map(clock.seconds, times)),
            tuple(self.reserved[i] for i in shown),
            tuple(self.used[i] for i in shown),
        )


class _Run:
    """One run while facts come in."""

    def __init__(self, tick: int) -> None:
        self.submitted = tick
        self.started: int | None = None
        self.ended: int | None = None
        self.preemptions = 0
        self.in_line: set[str] = set()
        self.using: dict[str, int] = {}
        self.since = tick
        self.waiting = 0
        self.stalled = 0

    def see(self, tick: int, fact: Fact) -> None:
        self.pass_time(tick)
        match fact.what:
            case What.QUEUED:
                self.in_line.add(fact.workload)
            case What.ADMITTED:
                self.in_line.discard(fact.workload)
            case What.STARTED if self.started is None:
                self.started = tick
            case What.PREEMPTED:
                self.preemptions += 1
            case What.ENDED:
                self.ended = tick
                self.in_line.clear()
        for name, amount in fact.used.items():
            left = self.using.pop(name, 0) + amount
            if left:
                self.using[name] = left

    def pass_time(self, tick: int) -> None:
        if self.in_line:
            self.waiting += tick - self.since
            if not self.using:
                self.stalled += tick - self.since
        self.since = tick

    def result(self, end: int, clock: _Clock) -> Run:
        self.pass_time(end)
        return Run(
            submitted=clock.seconds(self.submitted),
            started=None if self.started is None else clock.seconds(self.started),
            ended=None if self.ended is None else clock.seconds(self.ended),
            delay=None if self.started is None else clock.seconds(self.started - self.submitted),
            waiting=clock.seconds(self.waiting),
            stalled=clock.seconds(self.stalled),
            preemptions=self.preemptions,
        )
