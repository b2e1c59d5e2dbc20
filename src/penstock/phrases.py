"""Small pieces of text, the same on terminals and pages. Called by the screens, by service.why_text and by the server. Every command imports it."""

from __future__ import annotations

import re
from collections.abc import Sequence

_PLAIN = re.compile(r"[\w@./+:-]+\Z")


def duration(seconds: float) -> str:
    """12ms, 0.4s, 31s, 1m12s, 1h05m, 2d03h: about six characters at most."""
    if seconds < 0.0995:
        return f"{seconds * 1000:.0f}ms"
    if seconds < 9.95:
        return f"{seconds:.1f}s"
    if seconds < 59.5:
        return f"{seconds:.0f}s"
    whole = int(seconds + 0.5)
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02}m"
    return f"{whole // 86400}d{whole % 86400 // 3600:02}h"


_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)([smhdw])")


def seconds_in(text: str) -> float | None:
    """`30m`, `2d`, `1h30m` -> seconds. None: it is no duration."""
    plain = text.strip().lower()
    parts = _PART.findall(plain)
    if not parts or "".join(number + unit for number, unit in parts) != plain:
        return None
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def plural(many: int, noun: str) -> str:
    """`1 task`, `2 tasks`."""
    return f"{many:,} {noun}{'s' if many != 1 else ''}"


def listed(names: Sequence[str], most: int = 4) -> str:
    """`a, b, c and 7 more`: all names, or one less than `most` and the number of the rest."""
    if len(names) <= most:
        return ", ".join(names)
    return f"{', '.join(names[: most - 1])} and {len(names) - most + 1:,} more"


def clean(text: str) -> str:
    """Text from a user's file, without characters that move the cursor or ring the bell."""
    return "".join(char if char.isprintable() or char == " " else "·" for char in text)


def quoted(word: str) -> str:
    """For a shell: brackets have a meaning there."""
    return word if _PLAIN.match(word) else "'" + word.replace("'", "'\\''") + "'"
