"""Plain data, the values of expressions: how large it may be, how it becomes text, and what is raised when there is no value.

Below evaluate, which imports it, so that the functions an expression may call (functions, sprig, regex, jsonpath, condition)
can raise the same errors and spend from the same budget.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

LARGEST = 10_000_000
"""Elements, or sixteens of characters, of a value written out. `[x, x]` inside itself sixty times costs sixty nodes to make
and would never end being written."""
INT_MIN, INT_MAX = -(2**63), 2**63 - 1


class EvaluationError(ValueError):
    """The expression has no value on this data."""


class NotKnown(EvaluationError):
    """The value depends on something that is not known yet. Decided sides of && and || still count."""

    def __init__(self, path: tuple[str, ...]) -> None:
        super().__init__(f"{'.'.join(path)} is not known yet")
        self.path = path


class Absent:
    """Stands in the data for a value that will exist but does not yet: reading it raises NotKnown."""

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT = Absent()


class Meter(Protocol):
    """The evaluation that calls a function, as far as functions see it."""

    def spend(self, units: int) -> None:
        """Raises EvaluationError when the budget is used up. A unit is an element copied or sixteen characters joined."""

    def equal(self, left: Any, right: Any) -> bool: ...

    def compare(self, op: str, left: Any, right: Any) -> bool: ...


def kind(value: Any) -> str:
    """What to call a value in a message."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a bool"
    if isinstance(value, list | tuple | range):
        return "a list"
    names = {int: "an int", float: "a double", str: "a string", dict: "a map"}
    return names.get(type(value), "a map" if isinstance(value, Mapping) else f"a {type(value).__name__}")


def brief(value: Any) -> str:
    """The value itself if it is short, else its kind."""
    return repr(value[:80]) if isinstance(value, str) else repr(value) if isinstance(value, float) else kind(value)


def bounded(value: Any) -> Any:
    if isinstance(value, int) and not INT_MIN <= value <= INT_MAX:
        raise EvaluationError("integer overflow: the result does not fit 64 bits")
    return value


def to_text(value: Any) -> str:
    """How a value becomes a string at the edge: text as it is, everything else as compact JSON."""
    if isinstance(value, str):
        return value
    import json

    weigh(value, ranges=True)
    return json.dumps(value, default=_as_json, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def _as_json(value: Any) -> Any:
    if isinstance(value, range):
        return list(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise EvaluationError(f"{kind(value)} has no form as text")


def as_lists(value: Any) -> Any:
    """Lists are kept as tuples and ranges; here they are lists, and maps dicts, all the way down."""
    if isinstance(value, list | tuple | range):
        return [as_lists(item) for item in value]
    return {key: as_lists(item) for key, item in value.items()} if isinstance(value, Mapping) else value


def weigh(value: Any, ranges: bool = False) -> int:
    """How many elements and sixteens of characters it has, written out. Raises EvaluationError if that is too much, NotKnown
    if a part of it is not known yet. Parts that stand in it several times are looked at once."""
    seen: dict[int, int] = {}

    def weight(part: Any) -> int:
        if isinstance(part, str):
            return len(part) // 16
        if isinstance(part, range):
            return len(part) if ranges else 0
        if part is ABSENT:
            raise NotKnown(("a part of the value",))
        if not isinstance(part, list | tuple | Mapping):
            return 0
        if id(part) not in seen:
            inner = list(part.values()) if isinstance(part, Mapping) else part
            keys = sum(map(weight, part)) if isinstance(part, Mapping) else 0
            seen[id(part)] = len(inner) + keys + sum(weight(item) for item in inner if type(item) not in _PLAIN)
        return seen[id(part)]

    total = weight(value)
    if total > LARGEST:
        raise EvaluationError("the value is too large; move it into a step")
    return total


_PLAIN = frozenset({int, float, bool, type(None)})


# -- what functions are given -----------------------------------------------------------------------------------------


def as_text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise EvaluationError(f"{name}() is for strings, not {kind(value)}")
    return value


def as_list(name: str, value: Any) -> Sequence[Any]:
    if not isinstance(value, list | tuple | range):
        raise EvaluationError(f"{name}() is for lists, not {kind(value)}")
    return value


def as_map(name: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise EvaluationError(f"{name}() is for maps, not {kind(value)}")
    return value


def as_whole(name: str, value: Any) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise EvaluationError(f"{name}() takes a whole number, not {brief(value)}")
    return value


def copied(run: Meter, name: str, value: Any) -> list[Any]:
    items = as_list(name, value)
    run.spend(len(items))
    return list(items)
