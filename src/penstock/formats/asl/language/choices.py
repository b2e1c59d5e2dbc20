"""The rules of a Choice: comparisons of JSONPath states. Called by walk; the names of the operators are read by check."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

from penstock.formats.asl.language.failures import RUNTIME, NoMatch, StateFailure
from penstock.formats.asl.language.paths import follow, read_path
from penstock.formats.asl.language.scope import Scope
from penstock.formats.asl.language.times import read_timestamp

_ORDER: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "Equals": operator.eq,
    "LessThan": operator.lt,
    "GreaterThan": operator.gt,
    "LessThanEquals": operator.le,
    "GreaterThanEquals": operator.ge,
}


def _number(value: Any) -> Any:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


_KINDS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "String": lambda value: value if isinstance(value, str) else None,
    "Numeric": _number,
    "Timestamp": read_timestamp,
    "Boolean": lambda value: value if isinstance(value, bool) else None,
}
_TESTS: Final[Mapping[str, Callable[[Any], bool]]] = {
    "IsNull": lambda value: value is None,
    "IsNumeric": lambda value: _number(value) is not None,
    "IsString": lambda value: isinstance(value, str),
    "IsBoolean": lambda value: isinstance(value, bool),
    "IsTimestamp": lambda value: read_timestamp(value) is not None,
}
COMPARED: Final = {
    f"{kind}{order}{path}": (kind, order)
    for kind in _KINDS
    for order in (_ORDER if kind != "Boolean" else ("Equals",))
    for path in ("", "Path")
}
OPERATORS: Final = (*COMPARED, *_TESTS, "IsPresent", "StringMatches")
"""All 39, without And, Or and Not."""


def holds(rule: Mapping[str, Any], data: Any, scope: Scope) -> bool:
    """Is a rule, or a part of one, true? Raises StateFailure if it reads what is not there."""
    if "And" in rule:
        return all(holds(one, data, scope) for one in rule["And"])
    if "Or" in rule:
        return any(holds(one, data, scope) for one in rule["Or"])
    if "Not" in rule:
        return not holds(rule["Not"], data, scope)
    name = next(name for name in rule if name in _KNOWN)
    if name == "IsPresent":
        return _present(rule["Variable"], data, scope) is rule[name]
    value = _read(rule["Variable"], data, scope)
    if name in _TESTS:
        return _TESTS[name](value) is rule[name]
    if name == "StringMatches":
        return isinstance(value, str) and wildcard(rule[name], value)
    kind, order = COMPARED[name]
    other = _read(rule[name], data, scope) if name.endswith("Path") else rule[name]
    left, right = _KINDS[kind](value), _KINDS[kind](other)
    return left is not None and right is not None and (_ORDER[order](left, right))


_KNOWN: Final = frozenset(OPERATORS)


def _present(path: str, data: Any, scope: Scope) -> bool:
    try:
        follow(read_path(path), data, scope)
    except NoMatch:
        return False
    return True


def _read(path: str, data: Any, scope: Scope) -> Any:
    try:
        return follow(read_path(path), data, scope)
    except (NoMatch, ValueError):
        cause = f"Invalid path '{path}': The choice state's condition path references an invalid value."
        raise StateFailure(RUNTIME, cause) from None


@lru_cache(maxsize=256)
def _pieces(pattern: str) -> tuple[str, ...]:
    r"""The text between the stars. `\*` and `\\` are letters."""
    found: list[str] = []
    part: list[str] = []
    letters = iter(pattern)
    for letter in letters:
        if letter == "*":
            found.append("".join(part))
            part = []
        else:
            part.append(next(letters, "\\") if letter == "\\" else letter)
    return (*found, "".join(part))


def wildcard(pattern: str, text: str) -> bool:
    """Does the text match, where a star stands for any letters? In linear time."""
    first, *rest = _pieces(pattern)
    if not rest:
        return text == first
    *middle, last = rest
    if not text.startswith(first) or len(text) < len(first) + len(last) or not text.endswith(last):
        return False
    at, end = len(first), len(text) - len(last)
    for piece in middle:
        found = text.find(piece, at, end)
        if found < 0:
            return False
        at = found + len(piece)
    return True
