"""The functions of expressions besides those of CEL: text, lists, numbers, and those of Argo and Tekton.

Called by evaluate, which loads it when the first of them is called; signatures has the number of arguments of each. Every function gets
the evaluation as its first argument and spends from its budget before it makes anything large, so that no text or list grows without
limit. Lengths are in characters, not bytes. Nothing here reads the clock.
"""

from __future__ import annotations

import base64
import binascii
import json as json_
import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from penstock.expressions import jsonpath, python, regex
from penstock.expressions.go import govaluate, sprig
from penstock.expressions.go import text as golang
from penstock.expressions.go import times as gotime
from penstock.expressions.plain import (
    INT_MAX,
    INT_MIN,
    EvaluationError,
    Meter,
    Spelled,
    as_list,
    as_map,
    as_text,
    as_whole,
    bounded,
    brief,
    brief_text,
    copied,
    in_order,
    kind,
    on_text,
    paid_text,
    pay_for_order,
    weigh,
)

# -- values that may be missing, and values as text -------------------------------------------------------------------


def get(run: Meter, of: Any, key: Any) -> Any:
    """The element, or null if there is no such key or index. A negative index counts from the end."""
    if isinstance(of, Mapping):
        return of.get(key) if isinstance(key, str) else None
    if not isinstance(of, list | tuple | range | str) or isinstance(key, bool):
        return None
    if isinstance(key, float) and key.is_integer():
        key = int(key)
    if not isinstance(key, int):
        raise EvaluationError(f"a list is indexed by an int, not {kind(key)}")
    return of[key] if -len(of) <= key < len(of) else None


def text(run: Meter, value: Any) -> str:
    """The text that replaces a tag: a string as it is, everything else as compact JSON, 5.0 as 5."""
    if isinstance(value, str):
        return value
    run.spend(2 * weigh(value, ranges=True))
    return golang.text(value)


def json(run: Meter, value: Any, spelled: Any = False) -> Any:
    """The value of a JSON text. Whole numbers are ints if they fit 64 bits. `spelled`: numbers keep their spelling as text."""
    written = as_text("json", value)
    run.spend(len(written) // 8)
    whole, broken = (_spelled_int, Spelled) if spelled is True else (_json_int, float)
    try:
        found = json_.loads(written, parse_int=whole, parse_float=broken, parse_constant=_json_constant)
    except (ValueError, RecursionError):
        raise EvaluationError(f"{brief(written)} is not JSON") from None
    return found


def _json_int(digits: str) -> int | float:
    number = int(digits) if len(digits) < 20 else float(digits)
    return number if INT_MIN <= number <= INT_MAX else float(number)


def _spelled_int(digits: str) -> int | float:
    number = _json_int(digits)
    return number if str(number) == digits else Spelled(digits)


def _json_constant(name: str) -> Any:
    raise ValueError(name)


def to_json(run: Meter, value: Any, indent: Any = None) -> str:
    spaces = None if indent is None else min(max(as_whole("to_json", indent), 0), 16) or None
    run.spend(weigh(value, ranges=True) * (2 + (spaces or 0)))
    return golang.to_json(value, spaces)


def type_of(run: Meter, value: Any) -> str:
    """nil, bool, int, float, string, array or map."""
    names = {
        "null": "nil",
        "a bool": "bool",
        "an int": "int",
        "a double": "float",
        "a string": "string",
        "a list": "array",
    }
    return names.get(kind(value), "map")


def path(run: Meter, value: Any, where: Any) -> Any:
    """jsonpath(): into data, or into a text that is JSON."""
    return jsonpath.query(run, json(run, value) if isinstance(value, str) else value, as_text("jsonpath", where))


def sprintf(run: Meter, template: Any, *args: Any) -> str:
    pattern = as_text("sprintf", template)
    run.spend(weigh(list(args), ranges=True) + len(pattern) // 16)
    found = golang.sprintf(pattern, args)
    run.spend(len(found) // 16)
    return found


def to_int(run: Meter, value: Any) -> int:
    """A number without its fraction, or a text of digits."""
    if isinstance(value, str):
        digits = value[1:] if value[:1] in ("+", "-") else value
        if digits.isascii() and digits.isdigit() and len(digits) <= 30:
            return int(bounded(int(value)))
    elif isinstance(value, int) and not isinstance(value, bool):
        return value
    elif isinstance(value, float) and INT_MIN < value < INT_MAX:
        return int(value)
    raise EvaluationError(f"{brief(value)} is not an int")


def to_float(run: Meter, value: Any) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(bounded(value))
    if (
        isinstance(value, str)
        and 0 < len(value) <= 1000
        and not (value[0].isspace() or value[-1].isspace() or "_" in value)
    ):
        try:
            return float(value)
        except ValueError:
            pass
    raise EvaluationError(f"{brief(value)} is not a number")


# -- what Argo does with texts ----------------------------------------------------------------------------------------


def collect(run: Meter, values: Any, outcome: Any = "") -> str:
    """One output parameter of all items of a loop, as Argo passes it on: a JSON list of texts; of the values in those texts if every
    one of them is a JSON list or map."""
    _some_ran("collect", outcome)
    items = [text(run, one) for one in copied(run, "collect", values) if one is not None]
    run.spend(weigh(items))
    inner: list[Any] = []
    for item in items:
        try:
            found = json(run, item) if item.lstrip()[:1] in ("[", "{") else None
        except EvaluationError:
            found = None
        if not isinstance(found, list | dict):
            return to_json(run, items)
        inner.append(found)
    return to_json(run, inner)


_SPACE = re.compile(r'("(?:[^"\\]|\\.)*")|\s+')
"""A string of a JSON text, or white space beside strings."""


def _some_ran(name: str, outcome: Any) -> None:
    """Steps of Argo have no outputs at all if every item of the loop was skipped, or there was none."""
    if outcome == "skipped":
        raise EvaluationError(
            f"{name}(): every item of the loop was skipped, so Argo has no outputs of it and never ends"
        )


def loop_names(run: Meter, name: Any, items: Any) -> list[str]:
    """The names that Argo gives the items of a loop: l(0:x), l(1:a:1,b:2), l(2:[1 x])."""
    run.spend(2 * weigh(items, ranges=True))
    stem = as_text("loop_names", name)
    found = copied(run, "loop_names", items)
    run.spend(len(stem) * len(found) // 16)
    return [f"{stem}({at}:{_item_name(one).translate(_NO_BRACKETS)})" for at, one in enumerate(found)]


_NO_BRACKETS = {ord("("): None, ord(")"): None}


def _item_name(item: Any) -> str:
    match item:
        case None:
            return "[]"
        case Mapping():
            return ",".join(sorted(f"{key}:{_item_text(value)}" for key, value in item.items()))
        case list() | tuple() | range():
            return f"[{' '.join(map(_item_text, item))}]"
    return _item_text(item)


def _item_text(item: Any) -> str:
    """JSON; a string without its quotes, and still escaped."""
    return golang.to_json(item)[1:-1] if isinstance(item, str) else golang.to_json(item)


def collect_results(run: Meter, values: Any, outcome: Any = "") -> str:
    """The results that the items of a loop printed: each must be JSON, and stays as it is written."""
    _some_ran("collect_results", outcome)
    items = []
    for one in copied(run, "collect_results", values):
        if isinstance(one, str):
            json(run, one)
            items.append(_SPACE.sub(lambda found: found[1] or "", one))
        elif one is not None:
            items.append(to_json(run, one))
    return f"[{','.join(items)}]"


def collect_maps(run: Meter, columns: Any, outcome: Any = "") -> str:
    """All output parameters of a loop: {name: values} -> a JSON list with one map for each item."""
    _some_ran("collect_maps", outcome)
    lists = {name: copied(run, "collect_maps", column) for name, column in as_map("collect_maps", columns).items()}
    rows = max(map(len, lists.values()), default=0)
    run.spend(rows * len(lists))
    if any(len(column) != rows for column in lists.values()):
        raise EvaluationError("not every item of the loop gave every parameter")
    return to_json(run, [{name: text(run, column[row]) for name, column in lists.items()} for row in range(rows)])


_PHASES = {
    "succeeded": "Succeeded",
    "failed": "Failed",
    "errored": "Error",
    "skipped": "Skipped",
    "omitted": "Omitted",
    "cancelled": "Failed",
}


def phase(run: Meter, outcome: Any) -> str:
    """Argo's name of an outcome. What has not ended is Running."""
    return _PHASES.get(outcome, "Running") if isinstance(outcome, str) else "Running"


# -- texts ------------------------------------------------------------------------------------------------------------


def split(run: Meter, value: Any, separator: Any, most: Any = None) -> list[str]:
    whole, between = as_text("split", value), as_text("split", separator)
    run.spend(len(whole) // 16 + 1)
    limit = -1 if most is None else as_whole("split", most)
    if limit == 0:
        return []
    if not between:
        letters = (
            list(whole) if limit < 0 else [*whole[: limit - 1], *([whole[limit - 1 :]] if whole[limit - 1 :] else [])]
        )
        run.spend(len(letters))
        return letters
    parts = whole.split(between, -1 if limit < 0 else limit - 1)
    run.spend(len(parts))
    return parts


def join(run: Meter, values: Any, separator: Any = "") -> str:
    parts, between = [as_text("join", one) for one in copied(run, "join", values)], as_text("join", separator)
    run.spend((sum(map(len, parts)) + len(between) * len(parts)) // 16 + len(parts))
    return between.join(parts)


def replace(run: Meter, value: Any, old: Any, new: Any, most: Any = None) -> str:
    whole, out, put = as_text("replace", value), as_text("replace", old), as_text("replace", new)
    limit = -1 if most is None else as_whole("replace", most)
    run.spend(len(whole) // 16 + 1)
    times = whole.count(out) if limit < 0 else min(whole.count(out), limit)
    run.spend((len(whole) + times * max(len(put) - len(out), 0)) // 16)
    return whole.replace(out, put, max(limit, -1))


def trim(run: Meter, value: Any, chars: Any = None) -> str:
    whole = paid_text(run, "trim", value)
    return whole.strip() if chars is None else sprig.stripped(run, whole, as_text("trim", chars))


def _on_two(name: str, change: Callable[[str, str], Any]) -> Callable[[Meter, Any, Any], Any]:
    return lambda run, value, other: change(paid_text(run, name, value), paid_text(run, name, other))


def repeat(run: Meter, value: Any, times: Any) -> str:
    whole, number = as_text("repeat", value), as_whole("repeat", times)
    if number < 0:
        raise EvaluationError("repeat() takes a number from 0 on")
    run.spend(len(whole) * number // 16 + 1)
    return whole * number


def matches(run: Meter, value: Any, pattern: Any) -> bool:
    """Is there a match anywhere in the text? Syntax and time bound of RE2: see regex."""
    return regex.matches(run, as_text("matches", value), as_text("matches", pattern))


def _position(name: str, last: bool) -> Callable[[Meter, Any, Any], int]:
    def function(run: Meter, of: Any, wanted: Any) -> int:
        if isinstance(of, str):
            inner = as_text(name, wanted)
            run.spend(len(of) // 16 + 1)
            if not last:
                return of.find(inner)
            # Backwards Python's search takes as many steps as both lengths multiplied, forwards as both together.
            run.spend((len(of) + len(inner)) // 16)
            found = of[::-1].find(inner[::-1])
            return found if found < 0 else len(of) - found - len(inner)
        items = as_list(name, of)
        places = range(len(items))
        return next((at for at in (reversed(places) if last else places) if run.equal(items[at], wanted)), -1)

    return function


def from_base64(run: Meter, value: Any) -> str:
    written = paid_text(run, "fromBase64", value)
    try:
        return base64.b64decode(written, validate=True).decode()
    except (binascii.Error, ValueError):
        raise EvaluationError(f"{brief(written)} is not text in base 64") from None


# -- lists and maps ---------------------------------------------------------------------------------------------------


def keys(run: Meter, of: Any) -> list[str]:
    return in_order(run, as_map("keys", of))


def values(run: Meter, of: Any) -> list[Any]:
    return [as_map("values", of)[key] for key in keys(run, of)]


def first(run: Meter, of: Any) -> Any:
    items = as_list("first", of)
    return items[0] if items else None


def last(run: Meter, of: Any) -> Any:
    items = as_list("last", of)
    return items[-1] if items else None


def slice_(run: Meter, of: Any, begin: Any, end: Any = None) -> Any:
    """From `begin` up to `end`; negative ones count from the end. Out-of-range ends are cut."""
    if not isinstance(of, str | list | tuple | range):
        raise EvaluationError(f"{kind(of)} cannot be sliced")
    low, high = as_whole("slice", begin), len(of) if end is None else as_whole("slice", end)
    low, high = (max(len(of) + at, 0) if at < 0 else min(at, len(of)) for at in (low, high))
    found = of[min(low, high) : high]
    run.spend(len(found) // 16 if isinstance(found, str) else len(found))
    return found if isinstance(found, str) else list(found)


def flatten(run: Meter, of: Any) -> list[Any]:
    found: list[Any] = []
    todo: list[Any] = [as_list("flatten", of)]
    while todo:
        item = todo.pop()
        if isinstance(item, list | tuple | range):
            run.spend(len(item) + 1)
            todo.extend(reversed(item))
        else:
            found.append(item)
    return found


def unique(run: Meter, of: Any) -> list[Any]:
    seen: set[Any] = set()
    found = []
    for item in as_list("unique", of):
        run.spend(2)
        plain = isinstance(item, int | float | str) and not isinstance(item, bool)
        same = item if plain else (kind(item), to_json(run, item))
        if same not in seen:
            seen.add(same)
            found.append(item)
    return found


def sort(run: Meter, of: Any, order: Any = "asc") -> list[Any]:
    return sort_by(run, of, of, order)


def sort_by(run: Meter, of: Any, by: Any, order: Any = "asc") -> list[Any]:
    """The items, sorted by the values at the same indices in `by`, which are all numbers or all texts."""
    items, marks = as_list("sortBy", of), as_list("sortBy", by)
    if len(items) != len(marks) or order not in ("asc", "desc"):
        raise EvaluationError("sort() takes 'asc' or 'desc', and as many values to sort by as there are items")
    pay_for_order(run, marks)
    sample = {str if isinstance(mark, str) else float for mark in marks}
    for mark in marks:
        if len(sample) > 1 or isinstance(mark, bool) or not isinstance(mark, str | int | float) or mark != mark:
            raise EvaluationError("only numbers, or only texts, are put in order")
    return [items[at] for at in sorted(range(len(items)), key=lambda at: marks[at], reverse=order == "desc")]


def group_by(run: Meter, of: Any, by: Any) -> dict[str, list[Any]]:
    items, marks = as_list("groupBy", of), as_list("groupBy", by)
    run.spend(len(items))
    if len(items) != len(marks):
        raise EvaluationError("groupBy() takes as many values to group by as there are items")
    found: dict[str, list[Any]] = {}
    for item, mark in zip(items, marks, strict=True):
        key = text(run, mark)
        run.spend(len(key) // 16 + 1)
        found.setdefault(key, []).append(item)
    return found


def to_pairs(run: Meter, of: Any) -> list[Any]:
    return [[key, as_map("toPairs", of)[key]] for key in keys(run, of)]


def from_pairs(run: Meter, of: Any) -> dict[str, Any]:
    pairs = as_list("fromPairs", of)
    run.spend(len(pairs))
    if not all(isinstance(pair, list | tuple) and len(pair) == 2 and isinstance(pair[0], str) for pair in pairs):
        raise EvaluationError("fromPairs() takes a list of pairs, each of a string and a value")
    return {pair[0]: pair[1] for pair in pairs}


# -- numbers ----------------------------------------------------------------------------------------------------------


def _number(name: str, value: Any) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise EvaluationError(f"{name}() is for numbers, not {kind(value)}")
    return value


def plus(run: Meter, left: Any, right: Any) -> Any:
    """`+` of numbers of either kind, of two texts, or of two lists."""
    if isinstance(left, str) and isinstance(right, str):
        run.spend((len(left) + len(right)) // 16)
        return left + right
    if isinstance(left, list | tuple | range) and isinstance(right, list | tuple | range):
        run.spend(len(left) + len(right))
        return [*left, *right]
    if isinstance(left, str) or isinstance(right, str):
        raise EvaluationError(f"{kind(left)} + {kind(right)} has no meaning")
    return bounded(_mixed("plus", lambda one, other: one + other)(run, left, right))


def _mixed(name: str, compute: Callable[[Any, Any], Any]) -> Callable[[Meter, Any, Any], Any]:
    """On two ints as it is, on any other two numbers as doubles."""

    def function(run: Meter, left: Any, right: Any) -> Any:
        one, other = _number(name, left), _number(name, right)
        if isinstance(one, int) and isinstance(other, int):
            return bounded(compute(one, other))
        return compute(_float(one), _float(other))

    return function


def _float(value: int | float) -> float:
    try:
        return float(value)
    except OverflowError:
        raise EvaluationError("integer overflow: the number does not fit 64 bits") from None


def over(run: Meter, left: Any, right: Any) -> float:
    above, below = _float(_number("over", left)), _float(_number("over", right))
    if below != 0:
        return above / below
    return math.nan if above == 0 or above != above else math.copysign(math.inf, above) * math.copysign(1, below)


def remainder(run: Meter, left: Any, right: Any) -> int:
    """With the sign of the left operand, as in Go."""
    one, other = as_whole("remainder", left), as_whole("remainder", right)
    if other == 0:
        raise EvaluationError("division by zero")
    return int(math.copysign(1, one)) * (abs(one) % abs(other))


def power(run: Meter, left: Any, right: Any) -> float:
    try:
        return math.pow(_number("power", left), _number("power", right))
    except OverflowError:
        return math.inf
    except ValueError:
        return math.nan


def _numbers(run: Meter, name: str, of: Any) -> list[int | float]:
    return [_number(name, one) for one in copied(run, name, of)]


def total(run: Meter, of: Any) -> Any:
    """The sum; 0 of nothing."""
    found = _numbers(run, "sum", of)
    return bounded(sum(found) if all(isinstance(one, int) for one in found) else math.fsum(map(_float, found)))


def product(run: Meter, of: Any) -> Any:
    result: Any = 1
    for one in _numbers(run, "product", of):
        result = _mixed("product", lambda left, right: left * right)(run, result, one)
    return result


def mean(run: Meter, of: Any) -> float:
    found = list(map(_float, _numbers(run, "mean", of)))
    return sum(found) / len(found) if found else 0.0


def median(run: Meter, of: Any) -> float:
    numbers = _numbers(run, "median", of)
    pay_for_order(run, numbers)
    found = sorted(map(_float, numbers))
    if not found:
        return 0.0
    middle = len(found) // 2
    return found[middle] if len(found) % 2 else (found[middle - 1] + found[middle]) / 2


def _most(name: str, choose: Callable[[Iterable[Any]], Any]) -> Callable[[Meter, Any], Any]:
    def function(run: Meter, of: Any) -> Any:
        found = _numbers(run, name, flatten(run, of))
        return choose(found) if found else None

    return function


def _rounded(name: str, change: Callable[[float], float]) -> Callable[[Meter, Any], float]:
    def function(run: Meter, value: Any) -> float:
        number = _float(_number(name, value))
        return float(change(number)) if math.isfinite(number) else number

    return function


def half_away(number: float) -> float:
    """The nearest whole number; ties go away from zero."""
    whole = math.floor(abs(number))
    return math.copysign(whole + (abs(number) - whole >= 0.5), number)


# -- times ------------------------------------------------------------------------------------------------------------


def date(run: Meter, layout: Any, when: Any, zone: Any = "") -> str:
    """A time in Go's layout. The zone is an offset such as +02:00, or UTC."""
    found = gotime.moment(when)
    if zone not in ("", "UTC", "Local"):
        found = gotime.in_zone(found, brief_text("date", zone))
    return gotime.written(found, brief_text("date", layout))


_DATES = (
    "2006-01-02",
    "15:04:05",
    "2006-01-02 15:04:05",
    "2006-01-02T15:04:05Z07:00",
    "02 Jan 06 15:04 MST",
    "Monday, 02-Jan-06 15:04:05 MST",
    "Mon, 02 Jan 2006 15:04:05 MST",
)


def parse_date(run: Meter, written: Any, layout: Any = None) -> str:
    """A time from text in one of the usual layouts, or in the given one."""
    body = brief_text("parse_date", written)
    for one in _DATES if layout is None else (brief_text("parse_date", layout),):
        found = gotime.read(body, one)
        if found is not None:
            return gotime.timestamp(found)
    raise EvaluationError(f"{brief(body)} is not a date")


def seconds(run: Meter, value: Any) -> float:
    """The seconds of a duration such as 1h30m; a number is seconds already."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _float(value)
    return gotime.seconds(brief_text("seconds", value))


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "get": get, "text": text, "json": json, "to_json": to_json, "type": type_of, "jsonpath": path, "sprintf": sprintf,
    "toInt": to_int, "toFloat": to_float,
    "atom": lambda run, value: govaluate.atom(text(run, value) if isinstance(value, list | tuple | range | Mapping) else value),
    "condition": lambda run, value: govaluate.holds(run, as_text("condition", value)),
    "collect": collect, "collect_results": collect_results, "collect_maps": collect_maps, "phase": phase,
    "loop_names": loop_names,
    "split": split, "join": join, "replace": replace, "upper": on_text("upper", str.upper), "lower": on_text("lower", str.lower),
    "trim": trim, "trimPrefix": _on_two("trimPrefix", str.removeprefix), "trimSuffix": _on_two("trimSuffix", str.removesuffix),
    "repeat": repeat, "matches": matches, "indexOf": _position("indexOf", False), "lastIndexOf": _position("lastIndexOf", True),
    "toBase64": on_text("toBase64", lambda value: base64.b64encode(value.encode(errors="replace")).decode()),
    "fromBase64": from_base64,
    "keys": keys, "values": values, "first": first, "last": last, "slice": slice_, "flatten": flatten, "unique": unique,
    "reverse": lambda run, of: copied(run, "reverse", of)[::-1], "sort": sort, "sortBy": sort_by,
    "groupBy": group_by, "toPairs": to_pairs, "fromPairs": from_pairs,
    "plus": plus, "minus": _mixed("minus", lambda left, right: left - right),
    "times": _mixed("times", lambda left, right: left * right), "over": over, "remainder": remainder, "power": power,
    "sum": total, "product": product, "mean": mean, "median": median, "smallest": _most("smallest", min),
    "largest": _most("largest", max), "abs": lambda run, value: bounded(abs(_number("abs", value))),
    "floor": _rounded("floor", math.floor), "ceil": _rounded("ceil", math.ceil), "round": _rounded("round", half_away),
    "epoch": lambda run, when: gotime.epoch(when), "timestamp": lambda run, when: gotime.timestamp(gotime.moment(when)),
    "seconds": seconds, "date": date, "parse_date": parse_date,
    "sprig_fromJson": json,
    **{f"sprig_{name}": function for name, function in sprig.FUNCTIONS.items()},
    **{f"py_{name}": function for name, function in python.FUNCTIONS.items()},
}  # fmt: skip
