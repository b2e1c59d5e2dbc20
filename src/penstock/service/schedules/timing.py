"""When a schedule is due: lines of cron in a time zone, or an interval. Called by noun, policy and verbs.

Pure: times are seconds since 1970, and what time it is now is given. The rules of cron for clocks that are changed are those of Debian's cron,
which the library has: a rule for certain hours whose time does not exist on a day is due when the clock has jumped, and one whose time comes
twice is due the first time; a rule whose minute or hour begins with a star follows the time that passes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice, takewhile
from typing import Any, Final, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from penstock.errors import PlanError, Problem
from penstock.phrases import seconds_in

SHORTEST: Final = 1.0
"""Seconds of an interval."""
MOST_LINES: Final = 50
LONGEST: Final = 400
"""Characters of a line."""
_WORDS: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_EPOCH = datetime(1970, 1, 1)
_WEEK = 7 * 86400
_ZONE = re.compile(r"(?:CRON_)?TZ=(\S+)\s+(.*)", re.S)
_FIX = "give five fields, minute hour day month weekday, as in '0 6 * * 1-5'; or a word, as @daily"


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Lines of cron, of which any may be due; or an interval."""

    crons: tuple[str, ...] = ()
    zone: str = "UTC"
    every: float = 0.0
    """Seconds between two times; 0: there are lines."""
    anchor: float = 0.0
    """The times of an interval are this one and those that follow it."""
    start: float | None = None
    end: float | None = None
    """No time is before the one, or after the other."""

    def after(self, at: float) -> float | None:
        """The first time that is later. None: there is none."""
        low = at if self.start is None else max(at, math.nextafter(self.start, -math.inf))
        found: float | None
        if self.every:
            found = self._interval(low)
        else:
            zone = ZoneInfo(self.zone)
            times = [one for line in self.crons if (one := _next(line, zone, low)) is not None]
            found = min(times, default=None)
        return None if found is None or (self.end is not None and found > self.end) else found

    def _interval(self, at: float) -> float:
        count = max(0, math.floor((at - self.anchor) / self.every))
        while self.anchor + count * self.every <= at:
            count += 1
        return self.anchor + count * self.every

    def times(self, after: float) -> Iterator[float]:
        """All that follow, in order."""
        found = self.after(after)
        while found is not None:
            yield found
            found = self.after(found)

    def within(self, first: float, last: float, most: int) -> list[float]:
        """At most so many, from the first on, with both ends."""
        found = takewhile(lambda one: one <= last, self.times(math.nextafter(first, -math.inf)))
        return list(islice(found, most))

    def last(self, first: float, last: float) -> float | None:
        """The last time between two, with both ends. Looked for from the end, so that years of minutes need not be counted."""
        width = 64.0
        while True:
            low = max(first, last - width)
            found = None
            for one in takewhile(lambda time: time <= last, self.times(math.nextafter(low, -math.inf))):
                found = one
            if found is not None or low <= first:
                return found
            width *= 4

    def as_data(self) -> dict[str, Any]:
        return {
            "cron": list(self.crons),
            "zone": self.zone,
            "every": self.every or None,
            "anchor": self.anchor,
            "start": self.start,
            "end": self.end,
        }

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Self:
        return cls(
            crons=tuple(data["cron"]),
            zone=data["zone"],
            every=data["every"] or 0.0,
            anchor=data["anchor"],
            start=data["start"],
            end=data["end"],
        )


def timing(
    crons: tuple[str, ...], zone: str | None, every: float | None, start: str | None, end: str | None, now: float
) -> Timing:
    """What was typed. Raises PlanError: it is wrong, or never due after `now`."""
    if bool(crons) == (every is not None):
        fix = "give --cron '0 6 * * 1-5' (several times for several lines), or --every 10m"
        raise PlanError(Problem("P556", "a schedule has lines of cron, or an interval", fix))
    if len(crons) > MOST_LINES:
        fix = "make several schedules of it"
        raise PlanError(Problem("P550", f"more than {MOST_LINES} lines of cron in one schedule", fix))
    lines = [_line(line) for line in crons]
    for found, seconds in lines:
        if seconds is not None and len(lines) > 1:
            fix = "make a schedule of its own with --every"
            raise PlanError(Problem("P550", f"{found!r} is an interval, beside other lines", fix))
        every = seconds if seconds is not None else every
    where = zone_in(crons, zone)
    known = zone_of(where)
    first, last = (_moment(text, known, name) for text, name in ((start, "start"), (end, "end")))
    if first is not None and last is not None and last < first:
        raise PlanError(Problem("P556", "the end of the schedule is before its start", "change one of the two"))
    if every is None:
        made = Timing(crons=tuple(line for line, _ in lines), zone=where, start=first, end=last)
    elif not (SHORTEST <= every < 1e10):
        fix = "give at least 1s, as in 90s, 10m, 6h, 1d"
        raise PlanError(Problem("P553", f"{every:g} seconds is no interval of a schedule", fix))
    else:
        anchor = first if first is not None else math.floor(now) + every
        made = Timing(zone=where, every=every, anchor=anchor, start=first, end=last)
    if made.after(now) is None:
        fix = "look at its days and months, and at --end"
        raise PlanError(Problem("P552", "this schedule is never due", fix))
    return made


def zone_in(crons: tuple[str, ...], zone: str | None) -> str:
    """The one that was given, or the one that the lines begin with, or UTC. Raises PlanError."""
    named = {match[1] for line in crons if (match := _ZONE.match(line.strip())) is not None}
    if zone:
        named.add(zone)
    if len(named) > 1:
        fix = "make a schedule for each zone"
        raise PlanError(Problem("P551", f"several time zones in one schedule: {', '.join(sorted(named))}", fix))
    return named.pop() if named else "UTC"


def zone_of(name: str) -> ZoneInfo:
    """Raises PlanError."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        fix = "use a name of the IANA database, as Europe/Berlin, America/New_York or UTC"
        raise PlanError(Problem("P551", f"{name[:80]!r} is no time zone that is known here", fix)) from None


def _line(text: str) -> tuple[str, float | None]:
    """A line as the library has it, or the seconds of `@every 5m`. Raises PlanError."""
    matched = _ZONE.match(text.strip())
    plain = " ".join((matched[2] if matched else text).split())
    word, _, rest = plain.partition(" ")
    if word.lower() == "@every":
        seconds = seconds_in(rest)
        if seconds is None:
            raise PlanError(Problem("P550", f"{text[:80]!r} is no interval", "write it as @every 1h30m"))
        return plain, seconds
    plain = _WORDS.get(plain.lower(), plain.replace("?", "*"))
    problem = _wrong(plain)
    if problem is None:
        return plain, None
    fields = plain.split()
    if len(fields) in (5, 6) and _wrong(" ".join([*fields[:-2], "*", fields[-1]])) is None and _known_month(fields[-2]):
        fix = "its day is in none of its months: name another"
        raise PlanError(Problem("P552", f"{text[:80]!r} is never due", fix))
    raise PlanError(Problem("P550", f"{text[:80]!r} is no line of cron: {problem}", _FIX))


def _known_month(field: str) -> bool:
    return _wrong(f"0 0 1 {field} *") is None


def _wrong(line: str) -> str | None:
    """None: it is right, and due within 50 years."""
    from cronsim import CronSim, CronSimError

    if len(line) > LONGEST:
        return f"more than {LONGEST} characters"
    try:
        CronSim(line, datetime(2000, 1, 1))
    except (CronSimError, ValueError) as error:
        return str(error)
    return None


def _next(line: str, zone: ZoneInfo, at: float) -> float | None:
    try:
        return _fixed(line, zone, at) if _for_certain_hours(line) else _elapsing(line, zone, at)
    except (OverflowError, ValueError, OSError):
        return None  # past the end of the calendar


def _for_certain_hours(line: str) -> bool:
    fields = line.split()
    return len(fields) == 5 and not fields[0].startswith("*") and not fields[1].startswith("*")


def _fixed(line: str, zone: ZoneInfo, at: float) -> float | None:
    """The library begins with the time on the wall, which may come twice: what it finds may be earlier than `at`, and is passed over."""
    from cronsim import CronSim

    times = (found.timestamp() for found in CronSim(line, datetime.fromtimestamp(math.floor(at), zone)))
    return next((when for when in times if when > at), None)


def _elapsing(line: str, zone: ZoneInfo, at: float) -> float | None:
    """By a clock that is not changed, up to where it is, and from there on by the clock as it is then. Where clocks are changed by half an hour, the
    library alone would leave times out."""
    from cronsim import CronSim

    since = low = math.floor(at)
    while True:
        offset = _offset(zone, since)
        found = next(CronSim(line, _EPOCH + timedelta(seconds=low) + offset), None)
        if found is None:
            return None
        when = math.floor((found - _EPOCH - offset).total_seconds())
        change = _change(zone, since, when)
        if change is None:
            return float(when)
        since, low = change, change - 1


def _offset(zone: ZoneInfo, at: float) -> timedelta:
    return datetime.fromtimestamp(at, zone).utcoffset() or timedelta()


def _change(zone: ZoneInfo, first: int, last: int) -> int | None:
    """The first second at which the clock is another one than at `first`. Looked for week by week: rules of zones are longer."""
    offset, low = _offset(zone, first), first
    while low < last:
        high = min(low + _WEEK, last)
        if _offset(zone, high) != offset:
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if _offset(zone, middle) == offset else (low, middle)
            return high
        low = high
    return None


def _moment(text: str | None, zone: ZoneInfo, name: str) -> float | None:
    """`2026-12-01`, `2026-12-01T06:00`, with or without an offset. Raises PlanError."""
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text.strip())
        return (found if found.tzinfo is not None else found.replace(tzinfo=zone)).timestamp()
    except (ValueError, OverflowError, OSError):
        fix = (
            "write it as 2026-12-01 or 2026-12-01T06:00; it is in the zone of the schedule unless it has one: +01:00, Z"
        )
        raise PlanError(Problem("P556", f"the {name} {text[:60]!r} is no time", fix)) from None


def told(at: float, zone: str) -> str:
    """ISO 8601, in a zone: 2026-11-20T06:00:00+01:00."""
    return datetime.fromtimestamp(at, ZoneInfo(zone)).isoformat(timespec="seconds" if at == int(at) else "milliseconds")
