"""What identifies a payload, and paths into one: `.features[].id`. Read by graph.check and by service.payloads. Pure.

.               the whole payload
.name           a key of a map; `."odd key"` if it is no plain word
[]              every item of a list
… ?             at the end: it may be missing
"""

from __future__ import annotations

import json
import re
from dataclasses import KW_ONLY, dataclass
from typing import Final, NamedTuple

EACH: Final = None
"""The part of a path that stands for every item of a list."""
Parts = tuple[str | None, ...]
MOST_PARTS: Final = 100
_PART: Final = re.compile(r'\.("(?:[^"\\]|\\.)*")|\.([^.\[\]"?\s]+)|(\[\])')


@dataclass(frozen=True, slots=True)
class PayloadIdentity:
    """What says which work a run does: one of its parameters, the payload, or parts of it. Two submissions with the same identity are the same
    work, which is done once.

    Paths are as in `.features[].id`, see above. What no path names belongs to the identity if nothing is included."""

    param: str = "payload"
    _: KW_ONLY
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    version: int = 1
    """Raise it when the workflow has come to give something else: then what an older version gave does not count."""


class PayloadPath(NamedTuple):
    parts: Parts
    """Keys, and EACH."""
    optional: bool
    """It may match nothing."""


def parse_path(text: str) -> PayloadPath:
    """Raises ValueError with half a sentence."""
    optional = text.endswith("?")
    left = text.removesuffix("?")
    if left == ".":
        return PayloadPath((), optional)
    if not left.startswith("."):
        raise ValueError("it does not begin with a dot")
    parts: list[str | None] = []
    place = 1 if left.startswith(".[") else 0
    while place < len(left):
        found = _PART.match(left, place)
        if found is None:
            raise ValueError(f"{left[place : place + 20]!r} is no part of a path")
        quoted, name, _ = found.groups()
        parts.append(_unquoted(quoted) if quoted else name or EACH)
        place = found.end()
    if len(parts) > MOST_PARTS:
        raise ValueError(f"it has more than {MOST_PARTS} parts")
    return PayloadPath(tuple(parts), optional)


def _unquoted(text: str) -> str:
    try:
        return str(json.loads(text))
    except ValueError:
        raise ValueError(f"{text} is no text in JSON") from None
