"""Times and durations as Go reads and writes them: layouts consist of the digits of one reference time. Called by functions, sprig and
govaluate.

A time is text in RFC 3339, or seconds since 1970. There is no clock here. Names of time zones are not known: a time without offset
is in UTC, as in the containers that Argo runs.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from penstock.expressions.plain import EvaluationError, brief

_MONTHS = "January February March April May June July August September October November December".split()
_DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
_TOKEN = re.compile(
    r"January|Jan|Monday|Mon|MST|2006|__2|_2|002|Z07:00:00|Z070000|Z07:00|Z0700|Z07|-07:00:00|-070000|-07:00|-0700|-07"
    r"|01|02|03|04|05|06|15|PM|pm|[.,](?:0+|9+)(?!\d)|1|2|3|4|5"
)
_START = datetime(1970, 1, 1, tzinfo=UTC)
_RFC3339 = re.compile(r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(?:[.,](\d{1,9})\d*)?([Zz]|[+-]\d\d:?\d\d)?\Z", re.A)
_DURATION = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)", re.A)
_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
MAX_LAYOUT = 200


def moment(value: Any) -> datetime:
    """RFC 3339 text, or seconds since 1970. Raises EvaluationError."""
    try:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return _START + timedelta(seconds=value)
        if isinstance(value, str) and (match := _RFC3339.match(value.strip())):
            day, clock, fraction, zone = match.groups()
            offset = "+00:00" if zone in (None, "Z", "z") else zone
            return datetime.fromisoformat(f"{day}T{clock}.{(fraction or '0')[:6].ljust(6, '0')}{offset}")
    except (ValueError, OverflowError):
        pass
    raise EvaluationError(f"{brief(value)} is not a moment, as 2026-01-31T12:00:00Z is")


def epoch(value: Any) -> float:
    return (moment(value) - _START).total_seconds()


def timestamp(when: datetime) -> str:
    """RFC 3339, with a fraction only where there is one."""
    return written(when, "2006-01-02T15:04:05.999999Z07:00")


# -- layouts ----------------------------------------------------------------------------------------------------------


def written(when: datetime, layout: str) -> str:
    """The time in Go's layout. Raises EvaluationError."""
    if len(layout) > MAX_LAYOUT:
        raise EvaluationError(f"a layout of more than {MAX_LAYOUT} characters")
    return _TOKEN.sub(lambda match: _write(when, match[0]), layout)


def _write(when: datetime, token: str) -> str:
    if token in _WRITERS:
        return _WRITERS[token](when)
    if token[0] in ".,":
        digits = f"{when.microsecond:06d}000"[: len(token) - 1]
        if token[1] == "9":
            digits = digits.rstrip("0")
        return token[0] + digits if digits else ""
    return _write_offset(when, token)


def _write_offset(when: datetime, token: str) -> str:
    offset = when.utcoffset() or timedelta()
    if token[0] == "Z" and not offset:
        return "Z"
    sign = "-" if offset < timedelta() else "+"
    minutes, seconds = divmod(int(abs(offset).total_seconds()), 60)
    parts = [f"{minutes // 60:02d}", f"{minutes % 60:02d}", f"{seconds:02d}"][: len(re.findall(r"\d\d", token))]
    return sign + (":" if ":" in token else "").join(parts)


_WRITERS: dict[str, Callable[[datetime], str]] = {
    "2006": lambda when: f"{when.year:04d}", "06": lambda when: f"{when.year % 100:02d}",
    "January": lambda when: _MONTHS[when.month - 1], "Jan": lambda when: _MONTHS[when.month - 1][:3],
    "01": lambda when: f"{when.month:02d}", "1": lambda when: str(when.month),
    "Monday": lambda when: _DAYS[when.weekday()], "Mon": lambda when: _DAYS[when.weekday()][:3],
    "02": lambda when: f"{when.day:02d}", "2": lambda when: str(when.day), "_2": lambda when: f"{when.day:2d}",
    "002": lambda when: f"{when.timetuple().tm_yday:03d}", "__2": lambda when: f"{when.timetuple().tm_yday:3d}",
    "15": lambda when: f"{when.hour:02d}", "03": lambda when: f"{(when.hour + 11) % 12 + 1:02d}",
    "3": lambda when: str((when.hour + 11) % 12 + 1), "04": lambda when: f"{when.minute:02d}", "4": lambda when: str(when.minute),
    "05": lambda when: f"{when.second:02d}", "5": lambda when: str(when.second),
    "PM": lambda when: "PM" if when.hour >= 12 else "AM", "pm": lambda when: "pm" if when.hour >= 12 else "am",
    "MST": lambda when: "UTC" if not when.utcoffset() else _write_offset(when, "-0700"),
}  # fmt: skip

_READERS = {
    "2006": r"(?P<year>\d{4})", "06": r"(?P<short>\d\d)", "January": f"(?P<name>{'|'.join(_MONTHS)})",
    "Jan": f"(?P<name>{'|'.join(month[:3] for month in _MONTHS)})", "01": r"(?P<month>\d\d)", "1": r"(?P<month>\d{1,2})",
    "Monday": f"(?:{'|'.join(_DAYS)})", "Mon": f"(?:{'|'.join(day[:3] for day in _DAYS)})", "02": r"(?P<day>\d\d)",
    "2": r"(?P<day>\d{1,2})", "_2": r"\ ?(?P<day>\d{1,2})", "15": r"(?P<hour>\d\d)", "03": r"(?P<hour12>\d\d)",
    "3": r"(?P<hour12>\d{1,2})", "04": r"(?P<minute>\d\d)", "4": r"(?P<minute>\d{1,2})",
    "05": r"(?P<second>\d\d)(?P<fraction>[.,]\d+)?", "5": r"(?P<second>\d{1,2})(?P<fraction>[.,]\d+)?", "PM": r"(?P<half>AM|PM)",
    "pm": r"(?P<half>am|pm)", "MST": r"(?P<word>[A-Z]{3,4})",
}  # fmt: skip


def read(text: str, layout: str) -> datetime | None:
    """The time that the text has in Go's layout; None if it does not match. Fields that the layout lacks are those of year 1."""
    if len(layout) > MAX_LAYOUT or len(text) > MAX_LAYOUT:
        return None
    pattern, at = "", 0
    for token in _TOKEN.finditer(layout):
        pattern += re.escape(layout[at : token.start()]) + _reader(token[0])
        at = token.end()
    try:
        match = re.compile(pattern + re.escape(layout[at:]), re.A).fullmatch(text)
        return None if match is None else _moment_of(match.groupdict())
    except (re.error, ValueError, OverflowError):  # a field twice, or the 31st of February
        return None


def _reader(token: str) -> str:
    if token in _READERS:
        return _READERS[token]
    if token[0] in ".,":
        return ""  # Go reads it with the seconds, whether the layout has it or not
    if token in ("002", "__2"):
        return r"(?P<ordinal>[ \d]{3})"
    colon = ":" if ":" in token else ""
    digits = colon.join([r"\d\d"] * len(re.findall(r"\d\d", token)))
    return rf"(?P<zone>{'Z|' if token[0] == 'Z' else ''}[+-]{digits})"


def _moment_of(found: dict[str, str | None]) -> datetime:
    def whole(name: str, missing: int) -> int:
        return int(found.get(name) or missing)

    year = whole("year", 1)
    if short := found.get("short"):
        year = int(short) + (1900 if int(short) >= 69 else 2000)
    month = whole("month", 1)
    if name := found.get("name"):
        month = [one[:3] for one in _MONTHS].index(name[:3]) + 1
    hour = whole("hour", 0)
    if found.get("hour12"):
        hour = whole("hour12", 0) % 12 if found.get("half") else whole("hour12", 0)
    if (found.get("half") or "").lower() == "pm":
        hour += 12
    micro = int(((found.get("fraction") or ".0")[1:] + "000000")[:6])
    zone = UTC
    if (offset := found.get("zone")) and offset != "Z":
        digits = offset[1:].replace(":", "").ljust(6, "0")
        away = timedelta(hours=int(digits[:2]), minutes=int(digits[2:4]), seconds=int(digits[4:6]))
        zone = timezone(-away if offset[0] == "-" else away)
    when = datetime(year, month, whole("day", 1), hour, whole("minute", 0), whole("second", 0), micro, zone)
    return when + timedelta(days=int(found["ordinal"] or 1) - 1) if found.get("ordinal") else when


def in_zone(when: datetime, zone: str) -> datetime:
    """The same time in another zone. Only offsets are known; a name is UTC, as sprig does for unknown names."""
    match = re.fullmatch(r"([+-])(\d\d):?(\d\d)", zone, re.A)
    hours, minutes = (int(match[2]), int(match[3])) if match else (0, 0)
    if hours > 23 or minutes > 59:
        raise EvaluationError(f"{zone!r} is not an offset")
    away = timedelta(hours=hours, minutes=minutes)
    return when.astimezone(timezone(-away if match and match[1] == "-" else away))


# -- durations --------------------------------------------------------------------------------------------------------


def seconds(text: str) -> float:
    """`1h30m`, `-1.5s` -> seconds. Raises EvaluationError."""
    body = text.lstrip("+-") if text[:2] not in ("--", "++", "+-", "-+") else ""
    parts = _DURATION.findall(body)
    if len(text) > 100 or (body != "0" and (not parts or "".join(number + unit for number, unit in parts) != body)):
        raise EvaluationError(f"{text[:80]!r} is not a duration, as 1h30m is")
    total = sum(float(number) * _UNITS[unit] for number, unit in parts)
    return -total if text.startswith("-") else total


def duration(total: float) -> str:
    """Seconds as Go prints a duration: 1h30m0s."""
    whole, sign = abs(total), "-" if total < 0 else ""
    if whole < 1:
        return "0s" if whole == 0 else f"{sign}{_short(whole * 1000)}ms"
    minutes, rest = divmod(round(whole, 9), 60)
    hours, minutes = divmod(int(minutes), 60)
    return sign + (f"{hours}h" if hours else "") + (f"{minutes}m" if hours or minutes else "") + f"{_short(rest)}s"


def _short(value: float) -> str:
    return f"{value:.9f}".rstrip("0").rstrip(".")
