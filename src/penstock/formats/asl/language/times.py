"""Timestamps: RFC 3339 with `T` and a zone. Called by choices, waits and the checks."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, Final

_FORM: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d)(?::(\d\d)(?:[.,](\d{1,12}))?)?(Z|[+-]\d\d:?(?:\d\d)?)\Z", re.A
)


def read_timestamp(value: Any) -> datetime | None:
    """The instant, or None if it is no timestamp."""
    found = _FORM.match(value) if isinstance(value, str) else None
    if found is None:
        return None
    year, month, day, hour, minute, second, fraction, zone = found.groups()
    digits = (fraction or "0")[:6].ljust(6, "0")
    try:
        numbers = (int(year), int(month), int(day), int(hour), int(minute), int(second or 0), int(digits))
        return datetime(*numbers, tzinfo=_zone(zone)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _zone(text: str) -> timezone:
    if text == "Z":
        return UTC
    hours, minutes = int(text[1:3]), int(text[3:].lstrip(":") or 0)
    ahead = timedelta(hours=hours, minutes=minutes)
    return timezone(-ahead if text[0] == "-" else ahead)


def as_text(at: datetime) -> str:
    """As the context object has it: milliseconds and Z."""
    utc = at.astimezone(UTC)
    return f"{utc:%Y-%m-%dT%H:%M:%S}.{utc.microsecond // 1000:03d}Z"
