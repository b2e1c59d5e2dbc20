"""Times as Kubernetes writes them, and as seconds since 1970. Called by read, write and schema.

Kubernetes keeps whole seconds. What is written here keeps all digits, because rounding could change the order of a queue.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal

_TIME = re.compile(r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(\.\d{1,30})?([Zz]|[+-]\d\d:\d\d)", re.A)
_START = datetime(1970, 1, 1, tzinfo=UTC)


def time_of(text: str | None) -> float | None:
    """Raises ValueError if it is not a time."""
    if not text:
        return None
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError(f"{text[:60]!r} is not a time")
    day, clock, part, zone = match.groups()
    whole = datetime.fromisoformat(f"{day}T{clock}{'+00:00' if zone in 'Zz' else zone}") - _START
    return float(whole.days * 86400 + whole.seconds + Decimal(part or 0))


def text_of(time: float) -> str:
    exact = Decimal(repr(float(time)))
    whole = exact.__floor__()
    part = f"{exact - whole:f}".removeprefix("0").rstrip("0").rstrip(".")
    return f"{(_START + timedelta(seconds=whole)).replace(tzinfo=None).isoformat()}{part}Z"
