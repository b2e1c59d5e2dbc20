"""Plain data, the values of expressions: its size limits, its text form, and the errors when there is no value.

Imported by evaluate and by the functions of expressions (functions, sprig, regex, jsonpath, govaluate), so that they raise the same
errors and spend from the same budget.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

LARGEST = 10_000_000
"""The largest expanded value: elements plus characters / 16. `[x, x]` nested sixty times takes sixty nodes and would never finish
printing."""
LONGEST = 1000
"""The longest text that is read letter by letter."""
INT_MIN, INT_MAX = -(2**63), 2**63 - 1


class EvaluationError(ValueError):
    """The expression has no value on this data."""


class NotKnown(EvaluationError):
    """The value depends on something that is not known yet. A decided side of && or || still decides."""

    def __init__(self, path: tuple[str, ...]) -> None:
        super().__init__(f"{'.'.join(path)} is not known yet")
        self.path = path


class Absent:
    """Marks a value in the data that does not exist yet: reading it raises NotKnown."""

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT = Absent()


class Spelled(float):
    """A number of a JSON text that keeps its spelling when it becomes text again, as items of loops do in Argo: 1.50, 1e3."""

    written: str

    def __new__(cls, written: str) -> Spelled:
        found = super().__new__(cls, written)
        found.written = written
        return found


class Meter(Protocol):
    """What functions see of the evaluation that calls them."""

    def spend(self, units: int) -> None:
        """Raises EvaluationError if the budget is used up. A unit is one copied element or sixteen joined characters."""

    def equal(self, left: Any, right: Any) -> bool: ...

    def compare(self, op: str, left: Any, right: Any) -> bool: ...


def kind(value: Any) -> str:
    """The name of a value's type in a message."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a bool"
    if isinstance(value, list | tuple | range):
        return "a list"
    if isinstance(value, Spelled):
        return "a double"
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
    """A value as a string: text as it is, everything else as compact JSON."""
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
    """Tuples and ranges as lists, maps as dicts, at every depth."""
    if isinstance(value, list | tuple | range):
        return [as_lists(item) for item in value]
    return {key: as_lists(item) for key, item in value.items()} if isinstance(value, Mapping) else value


def weigh(value: Any, ranges: bool = False) -> int:
    """Its expanded size: elements plus characters / 16. Raises EvaluationError if that is too much, NotKnown if a part is not known yet.
    Shared parts are visited once."""
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


def brief_text(name: str, value: Any) -> str:
    """A text that is read letter by letter: a layout, a moment, a version."""
    found = as_text(name, value)
    if len(found) > LONGEST:
        raise EvaluationError(f"{name}() takes texts of at most {LONGEST} characters")
    return found


def paid_text(run: Meter, name: str, value: Any) -> str:
    """A text, paid for by its length: what follows goes through it once."""
    found = as_text(name, value)
    run.spend(len(found) // 16 + 1)
    return found


def on_text(name: str, change: Callable[[str], Any]) -> Callable[[Meter, Any], Any]:
    """A function of expressions that takes one text."""
    return lambda run, value: change(paid_text(run, name, value))


def in_order(run: Meter, texts: Collection[str], reverse: bool = False) -> list[str]:
    pay_for_order(run, texts)
    return sorted(texts, reverse=reverse)


def pay_for_order(run: Meter, marks: Collection[Any]) -> None:
    """Each mark is compared about log n times, and a comparison reads texts up to where they differ."""
    times = max(len(marks).bit_length(), 1)
    run.spend(len(marks) * times)
    run.spend(sum(len(mark) // 16 for mark in marks if isinstance(mark, str)) * times)


def copied(run: Meter, name: str, value: Any) -> list[Any]:
    items = as_list(name, value)
    run.spend(len(items))
    return list(items)
