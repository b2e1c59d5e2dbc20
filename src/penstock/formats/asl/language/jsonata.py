"""`{% $sum($states.input.orders.total) %}`: JSONata, behind an interface of our own. Called by templates, choices and the checks.

The language itself is the library jsonata-python (ADR 26). Here are what state machines change in it: `$states`, six functions of their own, no
`$eval`, an undefined result is an error, and the bounds: an expression comes with an untrusted document.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping
from functools import lru_cache
from operator import is_not
from typing import Any, Final

from penstock.expressions.plain import EvaluationError
from penstock.expressions.regex import matches
from penstock.formats.asl.language.failures import QUERY, MalformedText, StateFailure
from penstock.formats.asl.language.intrinsics import MAX_RANGE, hashed
from penstock.formats.asl.language.scope import Budget, Scope, SeededChance

MAX_EXPRESSION: Final = 32_000
MAX_MILLISECONDS: Final = 2000
MAX_DEPTH: Final = 150
MAX_NESTING: Final = 60
"""Brackets inside one another. The library reads them by recursion."""
MAX_MATCHED: Final = 100_000
"""The longest text that a regular expression is matched against."""
LARGEST: Final = 2_000_000
"""The most values in a result."""
_EXPRESSION: Final = re.compile(r"\{%(.*)%\}\Z", re.S)
_REPEATED_GROUP: Final = re.compile(r"\((?:[^()\\]|\\.)*(?:[*+]|\{\d*,\d*\})(?:[^()\\]|\\.)*\)(?:[*+]|\{\d)")
_NOT_TOP: Final = re.compile(r"(?<![\w$])\$(?:\$)?(?![\w$])")
_NOW: Final = ("now", "millis")


def is_expression(text: Any) -> bool:
    return isinstance(text, str) and text.startswith("{%") and text.endswith("%}")


def inner(text: str) -> str:
    """What stands between `{%` and `%}`."""
    found = _EXPRESSION.match(text)
    return found.group(1).strip() if found else text


# -- reading ----------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1024)
def read_expression(text: str) -> Any:
    """The expression, parsed by the library. Raises MalformedText."""
    if len(text) > MAX_EXPRESSION:
        raise MalformedText(f"an expression of more than {MAX_EXPRESSION} characters")
    depth = deepest = 0
    for letter in text:
        depth += (letter in "([{") - (letter in ")]}")
        deepest = max(deepest, depth)
    if deepest > MAX_NESTING:
        raise MalformedText(f"brackets nested deeper than {MAX_NESTING}")
    limit = sys.getrecursionlimit()
    try:
        from jsonata import Jsonata

        read = Jsonata(text, _pattern)
    except MalformedText:
        raise
    except ImportError:
        raise MalformedText("JSONata needs a library: pip install 'penstock[asl]'") from None
    except RecursionError:
        raise MalformedText("an expression nested too deep") from None
    except Exception as error:  # the library raises errors of many kinds for hostile text
        raise MalformedText(str(error) or type(error).__name__) from None
    finally:
        sys.setrecursionlimit(limit)  # the library raises it for the whole process
    if read.errors:
        raise MalformedText(str(read.errors[0]))
    read.set_output_convert_nulls(False)
    read.set_validate_input(False)
    return read


class _Pattern:
    """A regular expression of Python, used only where it cannot run for long: no repeat inside a repeat, short texts, and
    Penstock's own matcher, which is linear, has found a match before Python's looks for its place."""

    def __init__(self, pattern: str, flags: Any) -> None:
        if _REPEATED_GROUP.search(pattern):
            raise MalformedText("a regular expression with a repeat inside a repeat")
        self.linear = f"(?{'i' * flags.case_insensitive}{'m' * flags.multiline}s)" + pattern
        if not flags.case_insensitive and not flags.multiline:
            self.linear = pattern
        python = (re.IGNORECASE if flags.case_insensitive else 0) | (re.MULTILINE if flags.multiline else 0)
        try:
            self.python = re.compile(pattern, python)
        except (re.error, RecursionError, OverflowError) as error:
            raise MalformedText(f"the regular expression /{pattern}/: {error}") from None

    def _may(self, text: str) -> bool:
        if len(text) > MAX_MATCHED:
            raise StateFailure(QUERY, f"a regular expression over a text of more than {MAX_MATCHED} characters")
        try:
            return matches(Budget(), text, self.linear)
        except EvaluationError:
            return len(text) < 1000  # a look-ahead or a back reference, which only Python's has

    def search(self, text: str) -> Any:
        return self.python.search(text) if self._may(text) else None

    def finditer(self, text: str) -> Any:
        return self.python.finditer(text) if self._may(text) else iter(())

    def sub(self, replacement: Any, text: str, count: int = 0) -> str:
        return self.python.sub(replacement, text, count) if self._may(text) else text

    def split(self, text: str, maxsplit: int = 0) -> list[str]:
        return list(self.python.split(text, maxsplit)) if self._may(text) else [text]


def _pattern(pattern: str, flags: Any) -> Any:
    return _Pattern(pattern, flags)


# -- evaluating -------------------------------------------------------------------------------------------------------


def evaluate(text: str, states: Mapping[str, Any], scope: Scope, field: str) -> Any:
    """The value of `{% … %}`. `states`: input, result and errorOutput; the context is added. Raises StateFailure."""
    expression = inner(text)
    said = f"The JSONata expression '{expression}' specified for the field '{field}'"
    try:
        read = read_expression(expression)
    except MalformedText as error:
        raise StateFailure(QUERY, f"{said} cannot be read: {error}", field) from None
    from jsonata import Jsonata
    from jsonata.utils import Utils

    frame = Jsonata.Frame(None)
    frame.set_runtime_bounds(MAX_MILLISECONDS, MAX_DEPTH)
    for name, value in {**scope.variables, "states": {**states, "context": scope.context}}.items():
        if f"${name}" in expression:
            frame.bind(name, _with_nulls(value, Utils.NULL_VALUE))
    for name, function in _functions(scope).items():
        frame.bind(name, Jsonata.JLambda(function))
    frame.bind("eval", None)
    try:
        found = read.evaluate(None, frame)
        value = None if found is None else _plain(found, [LARGEST])
    except StateFailure as failure:
        raise StateFailure(QUERY, f"{said} threw an error during evaluation. {failure.cause}", field) from None
    except RecursionError:
        raise StateFailure(QUERY, f"{said} threw an error during evaluation. It recurses too deep", field) from None
    except Exception as error:  # the library raises errors of many kinds
        cause = f"{getattr(error, 'error', '') or type(error).__name__}: {error}"
        raise StateFailure(QUERY, f"{said} threw an error during evaluation. {cause}", field) from None
    if found is None:
        raise StateFailure(QUERY, f"{said} returned nothing (undefined).", field)
    return value


def _with_nulls(value: Any, null: Any) -> Any:
    """The library takes a None in a list for nothing at all; a null is a value of its own. What has none is not copied."""
    if value is None:
        return null
    if isinstance(value, list):
        made = [one if isinstance(one, str | int | float) else _with_nulls(one, null) for one in value]
        return made if any(map(is_not, made, value)) else value
    if isinstance(value, dict):
        changed = {
            key: found
            for key, one in value.items()
            if not isinstance(one, str | int | float) and (found := _with_nulls(one, null)) is not one
        }
        return {**value, **changed} if changed else value
    return value


def _plain(value: Any, left: list[int]) -> Any:
    """A result as JSON data. Results share parts with their input and use lists of the library's own."""
    from jsonata.utils import Utils

    left[0] -= 1
    if left[0] < 0:
        raise StateFailure(QUERY, f"the result has more than {LARGEST} values")
    if value is None or value is Utils.NULL_VALUE:
        return None
    if isinstance(value, bool | str | int):
        return value
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < 2**53 else value
    if isinstance(value, list):
        return [_plain(value[at], left) for at in range(len(value))]
    if isinstance(value, Mapping):
        return {str(key): _plain(one, left) for key, one in value.items()}
    raise StateFailure(QUERY, "the result is a function, not data")


def _functions(scope: Scope) -> dict[str, Callable[..., Any]]:
    """What state machines add to JSONata."""

    def uuid() -> str:
        return scope.chance.uuid()

    def chance(seed: Any = None) -> float:
        return scope.chance.random() if seed is None else SeededChance(json.dumps(seed)).random()

    return {
        "partition": _partition,
        "range": _range,
        "hash": _hash,
        "parse": _parse,
        "random": chance,
        "uuid": uuid,
        "now": lambda *_: scope.now(),
    }


def _partition(items: Any = None, size: Any = None) -> Any:
    if items is None:
        return None
    held = items if isinstance(items, list) else [items]
    if not _number(size) or size < 1:
        raise StateFailure(QUERY, "$partition needs a size of at least 1")
    return [list(held[at : at + int(size)]) for at in range(0, len(held), int(size))]


def _range(first: Any = None, last: Any = None, step: Any = 1) -> Any:
    if not (_number(first) and _number(last) and _number(step)) or step == 0:
        raise StateFailure(QUERY, "$range needs three numbers, and a step that is not 0")
    found, count = [], 0
    while (first + count * step <= last) if step > 0 else (first + count * step >= last):
        found.append(first + count * step)
        count += 1
        if count > MAX_RANGE:
            raise StateFailure(QUERY, f"$range makes more than {MAX_RANGE} elements")
    return found[0] if len(found) == 1 else found  # one element is that element, as everywhere in JSONata


def _hash(value: Any = None, algorithm: Any = "SHA-256") -> Any:
    if value is None:
        return None
    found = hashed(_plain(value, [LARGEST]), algorithm)
    if found is None:
        raise StateFailure(QUERY, f"$hash does not know the algorithm {algorithm}")
    return found


def _parse(text: Any = None) -> Any:
    from jsonata.utils import Utils

    if text is None:
        return None
    try:
        found = json.loads(text, parse_constant=_no_constant)
    except (TypeError, ValueError, RecursionError):
        raise StateFailure(QUERY, "$parse needs a text that is JSON") from None
    return Utils.NULL_VALUE if found is None else found


def _no_constant(name: str) -> None:
    raise ValueError(name)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def fill(template: Any, states: Mapping[str, Any], scope: Scope, field: str, depth: int = 0) -> Any:
    """A template with every expression replaced by its value. Raises StateFailure."""
    if depth > 100:
        raise StateFailure(QUERY, "a template nested deeper than 100", field)
    if is_expression(template):
        return evaluate(template, states, scope, field)
    if isinstance(template, dict):
        return {key: fill(one, states, scope, f"{field}/{key}", depth + 1) for key, one in template.items()}
    if isinstance(template, list):
        return [fill(one, states, scope, f"{field}[{at}]", depth + 1) for at, one in enumerate(template)]
    return template


_KINDS: Final = {str: "string", bool: "boolean", int: "number", float: "number", list: "array", dict: "object"}


def typed(template: Any, kind: str, states: Mapping[str, Any], scope: Scope, field: str) -> Any:
    """A field that must be of one type: "string", "number", "integer", "boolean", "array". Raises StateFailure."""
    value = fill(template, states, scope, field)
    found = _KINDS.get(type(value), "null")
    if found == kind or (kind == "integer" and isinstance(value, int) and found == "number"):
        return value
    if kind == "integer" and isinstance(value, float) and value.is_integer():
        return int(value)
    said = f"The JSONata expression '{inner(template)}' specified" if is_expression(template) else "The value"
    cause = (
        f"{said} for the field '{field}' returned an unexpected result type. "
        f"Expected '{kind}', but was '{found}' for value: {json.dumps(value)}"
    )
    raise StateFailure(QUERY, cause, field)
