"""`?(@.total > 10 && @.kind == 'book')`: the conditions inside paths. Called by paths."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from penstock.expressions.plain import EvaluationError
from penstock.expressions.regex import matches
from penstock.formats.asl.language.failures import NoMatch
from penstock.formats.asl.language.path_text import Reader
from penstock.formats.asl.language.scope import Budget, same

Follow = Callable[[Any, Any, Any, Budget], Any]
_COMPARES: Final = ("==", "!=", "<=", ">=", "=~", "<", ">")
_WORDS: Final = ("in", "nin", "size", "empty")
_CONSTANTS: Final = {"true": True, "false": False, "null": None}


MISSING: Final = object()
"""What a path in a filter meets if it meets nothing."""


class Filter(Protocol):
    def holds(self, one: Any, root: Any, budget: Budget, follow: Follow) -> bool: ...


@dataclass(frozen=True, slots=True)
class FilterOperand:
    """A literal, or a path from `@` or `$`."""

    constant: Any = None
    start: str = ""
    parts: Any = ()

    def value(self, one: Any, root: Any, budget: Budget, follow: Follow) -> Any:
        if not self.start:
            return self.constant
        try:
            return follow(self.parts, one if self.start == "@" else root, root, budget)
        except NoMatch:
            return MISSING


@dataclass(frozen=True, slots=True)
class Compare:
    left: FilterOperand
    op: str = ""
    right: FilterOperand | None = None

    def holds(self, one: Any, root: Any, budget: Budget, follow: Follow) -> bool:
        budget.spend(1)
        left = self.left.value(one, root, budget, follow)
        if self.right is None:
            return left is not MISSING
        return _compared(self.op, left, self.right.value(one, root, budget, follow), budget)


@dataclass(frozen=True, slots=True)
class Both:
    """Several conditions with && (all) or || (any)."""

    tests: tuple[Filter, ...]
    all: bool

    def holds(self, one: Any, root: Any, budget: Budget, follow: Follow) -> bool:
        found = (test.holds(one, root, budget, follow) for test in self.tests)
        return all(found) if self.all else any(found)


@dataclass(frozen=True, slots=True)
class Not:
    test: Filter

    def holds(self, one: Any, root: Any, budget: Budget, follow: Follow) -> bool:
        return not self.test.holds(one, root, budget, follow)


def read_filter(reader: Reader, parts: Callable[[Reader], Any]) -> Filter:
    """Up to the closing bracket, which stays. Raises MalformedText."""
    return _joined(reader, parts, "||", lambda: _joined(reader, parts, "&&", lambda: _simple(reader, parts)))


def _joined(reader: Reader, parts: Callable[[Reader], Any], sign: str, inner: Callable[[], Filter]) -> Filter:
    tests = [inner()]
    reader.spaces()
    while reader.take(sign):
        tests.append(inner())
        reader.spaces()
    return tests[0] if len(tests) == 1 else Both(tuple(tests), sign == "&&")


def _simple(reader: Reader, parts: Callable[[Reader], Any]) -> Filter:
    reader.deeper()
    reader.spaces()
    try:
        if reader.peek() == "!" and reader.text[reader.at + 1 : reader.at + 2] != "=":
            reader.take("!")
            return Not(_simple(reader, parts))
        if reader.take("("):
            found = read_filter(reader, parts)
            reader.spaces()
            reader.expect(")")
            return found
        left = _operand(reader, parts)
        reader.spaces()
        op = next((op for op in (*_COMPARES, *_WORDS) if reader.take(op)), "")
        if not op:
            return Compare(left)
        reader.spaces()
        return Compare(left, op, _operand(reader, parts))
    finally:
        reader.depth -= 1


def _operand(reader: Reader, parts: Callable[[Reader], Any]) -> FilterOperand:
    letter = reader.peek()
    if letter in ("@", "$"):
        reader.at += 1
        return FilterOperand(start=letter, parts=parts(reader))
    if letter in ("'", '"'):
        return FilterOperand(reader.quoted())
    if letter == "/":
        end = reader.text.find("/", reader.at + 1)
        if end < 0:
            raise reader.wrong("/ is not closed")
        pattern = reader.text[reader.at + 1 : end]
        reader.at = end + 1
        return FilterOperand("(?i)" + pattern if reader.take("i") else pattern)
    if letter == "[":
        return FilterOperand(_listed(reader, parts))
    number = reader.number()
    if number is not None:
        return FilterOperand(number)
    word = reader.name()  # AWS takes text without quotes too
    return FilterOperand(_CONSTANTS.get(word, word))


def _listed(reader: Reader, parts: Callable[[Reader], Any]) -> list[Any]:
    reader.expect("[")
    found: list[Any] = []
    reader.spaces()
    while not reader.take("]"):
        found.append(_operand(reader, parts).constant)
        reader.spaces()
        reader.take(",")
        reader.spaces()
        if reader.done:
            raise reader.wrong("] is missing")
    return found


def _compared(op: str, left: Any, right: Any, budget: Budget) -> bool:
    if left is MISSING or right is MISSING:
        return op == "!=" and left is not right
    if op in ("==", "!="):
        return same(left, right) == (op == "==")
    if op in ("in", "nin"):
        return any(same(left, one) for one in (right if isinstance(right, list) else [])) == (op == "in")
    if op == "=~":
        return isinstance(left, str) and isinstance(right, str) and _found(left, right, budget)
    if op in ("size", "empty"):
        length = len(left) if isinstance(left, str | list | dict) else -1
        return length == right if op == "size" else (length == 0) == bool(right)
    comparable = (_number(left) and _number(right)) or (isinstance(left, str) and isinstance(right, str))
    if not comparable:
        return False
    return bool({"<": left < right, "<=": left <= right, ">": left > right, ">=": left >= right}[op])


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _found(text: str, pattern: str, budget: Budget) -> bool:
    try:
        return matches(budget, text, f"^(?:{pattern})$")
    except EvaluationError:
        return False
