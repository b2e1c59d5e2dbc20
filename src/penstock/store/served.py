"""The queries that a server answers for stores elsewhere, and what their arguments must be. Asked by server.api.store; the other end is
service.remote_store.

What is read by `penstock ls`, `show`, `why`, `watch`, `logs`, `get` and `queue`. Nothing here writes, and nothing here reads tokens, the audit,
keys of cookies or submissions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from penstock.errors import PlanError, Problem

LARGEST: Final = 1 << 62
MOST_ROWS: Final = 10_000
"""Of tasks and events in one answer."""
COUNTED: Final = "runs_to_count"
"""The server counts their usage before it answers, as far as it gets: whoever asks cannot write it."""
MOST_RUNS: Final = 100_000
MOST_KEYS: Final = 10_000
PAGED: Final[Mapping[str, int]] = {"tasks": 3, "tasks_in": 3}
"""Query -> where its limit is; the offset follows."""
SERVED: Final[Mapping[str, str]] = {
    "counter": "s",
    "document": "s",
    "run": "s",
    "run_by_number": "i",
    "runs": "fN",
    "runs_of": "sfN",
    "runs_in": "*SSfN",
    "events": "iin",
    "events_of": "*iin",
    "tasks": "iSSno",
    "tasks_in": "*iSSno",
    "task": "is",
    "task_counts": "i",
    "results": "*",
    "leases": "*",
    "engines": "",
    "queue_objects": "i",
    "workloads": "i",
    "workloads_open": "",
    "lock_holders": "*",
    "order_of": "i",
    "origin": "i",
    "origins_of_root": "i",
    "links_of_root": "i",
    "ordered": "",
    "queue_use": "sii",
    "queue_use_before": "si",
    "run_usage": "ff",
    "runs_to_count": "ff",
}
"""Query -> its arguments: i a whole number, f a number, s text, S text or nothing, n and N a limit, o an offset; * in front: it also has keys, which are text."""


def checked(name: str, args: Sequence[Any], keys: Sequence[Any] | None) -> list[Any]:
    """The arguments as the query gets them: limits are cut. Raises PlanError."""
    shape = SERVED.get(name)
    if shape is None:
        raise _refused(f"there is no query {name[:60]!r}")
    wanted = shape.removeprefix("*")
    if shape.startswith("*") != (keys is not None) or len(args) != len(wanted):
        raise _refused(f"{name} has other arguments")
    if keys is not None and (len(keys) > MOST_KEYS or not all(_is_text(key) for key in keys)):
        raise _refused(f"the keys of {name} are not at most {MOST_KEYS:,} texts")
    return [_checked(name, kind, value) for kind, value in zip(wanted, args, strict=True)]


def _checked(name: str, kind: str, value: Any) -> Any:
    if kind == "S" and value is None:
        return None
    if kind in "sS":
        if _is_text(value):
            return value
        raise _refused(f"an argument of {name} is not text")
    if kind == "f" and isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST:
        return value
    if kind == "f" or not isinstance(value, int) or isinstance(value, bool) or abs(value) > LARGEST:
        raise _refused(f"an argument of {name} is not a number in range")
    if kind == "o":
        return max(0, value)
    if kind == "n":
        return max(0, min(value, MOST_ROWS))
    return max(0, min(value, MOST_RUNS)) if kind == "N" else value


def _is_text(value: Any) -> bool:
    """Both databases can take it."""
    return isinstance(value, str) and "\0" not in value and not any("\ud800" <= char <= "\udfff" for char in value)


def _refused(why: str) -> PlanError:
    return PlanError(Problem("P946", why, "use the same version of Penstock here and on the server"))
