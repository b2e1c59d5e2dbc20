"""Python's own operators, builtins and methods on values of the run, with Python's own answers. Called by evaluate through functions.

The compiler of @workflow functions writes them (`py_mod(params.x, 3)`) where CEL has no such function or means something else by it: `//`, `%` and
`**` of negative numbers, slices, bools that count as 0 and 1. What Python raises is an EvaluationError here, with Python's words. Every function
spends from the budget before it makes anything large. Whole numbers have 64 bits, as everywhere in expressions.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from penstock.expressions.plain import EvaluationError, Meter, as_lists, bounded, brief, kind, weigh

_LISTS = (list, tuple, range)
_MESSAGE = 300
"""Letters of a message of Python: some repeat the value."""
_RAISED = (TypeError, ValueError, ArithmeticError, LookupError, AttributeError)


def _computed(function: Callable[..., Any], *args: Any, **named: Any) -> Any:
    """What Python answers."""
    try:
        found = function(*args, **named)
    except _RAISED as error:
        raise EvaluationError(f"{type(error).__name__}: {str(error)[:_MESSAGE]}") from None
    if isinstance(found, complex):
        raise EvaluationError(f"{found} is a complex number, which cannot be passed between steps")
    return bounded(found)


def _whole(run: Meter, value: Any) -> Any:
    """A value whose parts will be looked at: all of them are paid for and known."""
    if isinstance(value, str | int | float) or value is None:
        return value
    run.spend(weigh(value, ranges=True))
    return as_lists(value)


def _items(run: Meter, value: Any) -> Sequence[Any]:
    """What a loop over the value goes over."""
    if isinstance(value, _LISTS):
        run.spend(len(value))
        return value
    if isinstance(value, str | Mapping):
        run.spend(len(value))
        return list(value)
    raise EvaluationError(f"TypeError: {kind(value)} cannot be looped over")


# -- operators --------------------------------------------------------------------------------------------------------


def add(run: Meter, left: Any, right: Any) -> Any:
    if isinstance(left, _LISTS) and isinstance(right, _LISTS):
        run.spend(len(left) + len(right))
        return [*left, *right]
    if isinstance(left, str) and isinstance(right, str):
        run.spend((len(left) + len(right)) // 16)
    return _computed(operator.add, _plain(left), _plain(right))


def _plain(value: Any) -> Any:
    """So that Python's own messages speak of lists and dicts."""
    return list(value[:0]) if isinstance(value, tuple | range) else {} if isinstance(value, Mapping) else value


def multiply(run: Meter, left: Any, right: Any) -> Any:
    for many, times in ((left, right), (right, left)):
        if isinstance(many, (*_LISTS, str)) and isinstance(times, int):
            size = len(many) * max(times, 0)
            run.spend(size // 16 + 1 if isinstance(many, str) else size + 1)
            return (many if isinstance(many, str) else list(many)) * times
    return _computed(operator.mul, _plain(left), _plain(right))


def power(run: Meter, base: Any, exponent: Any) -> Any:
    if isinstance(base, int) and isinstance(exponent, int) and abs(base) > 1 and exponent > 64:
        raise EvaluationError("integer overflow: the result does not fit 64 bits")
    return _computed(operator.pow, _plain(base), _plain(exponent))


def modulo(run: Meter, left: Any, right: Any) -> Any:
    if isinstance(left, str):
        raise EvaluationError("% does not format text in a workflow; write an f-string")
    return _computed(operator.mod, _plain(left), _plain(right))


def _operator(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda run, *values: _computed(function, *map(_plain, values))


_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def compare(run: Meter, left: Any, op: Any, right: Any) -> bool:
    if not isinstance(op, str) or op not in _COMPARE:
        raise EvaluationError(f"{brief(op)} does not compare")
    return bool(_computed(_COMPARE[op], _whole(run, left), _whole(run, right)))


def is_in(run: Meter, item: Any, of: Any) -> bool:
    """`item in of`"""
    if isinstance(of, str):
        run.spend(len(of) // 16)
    if isinstance(of, Mapping):
        return isinstance(item, str) and item in of
    return bool(_computed(lambda: _whole(run, item) in _whole(run, of)))


def item(run: Meter, of: Any, index: Any) -> Any:
    """`of[index]`"""
    return _computed(operator.getitem, of, index)


def slice_(run: Meter, of: Any, start: Any, stop: Any, step: Any = None) -> Any:
    found = _computed(operator.getitem, of, slice(start, stop, step))
    if isinstance(found, str):
        run.spend(len(found) // 16)
        return found
    run.spend(len(found))
    return list(found)


def replaced(run: Meter, of: Any, key: Any, value: Any) -> Any:
    """A copy in which `of[key]` is the value."""
    run.spend(len(_items(run, of)))
    if isinstance(of, Mapping):
        return {**of, _key(key): value}
    changed = list(of)
    _computed(operator.setitem, changed, key, value)
    return changed


def _key(value: Any) -> str:
    if not isinstance(value, str):
        raise EvaluationError(f"the key of a dict must be text, not {kind(value)}; write str(…) around it")
    return value


# -- builtins ---------------------------------------------------------------------------------------------------------


def round_to(run: Meter, value: Any, digits: Any = None) -> Any:
    if isinstance(digits, int):
        digits = min(max(digits, -400), 400)  # beyond, nothing changes any more, and Python would compute 10 ** digits
    return _computed(round, _plain(value), digits)


def total(run: Meter, of: Any, start: Any = 0) -> Any:
    if not isinstance(start, _LISTS):
        return _computed(sum, _whole(run, _items(run, of)), start)
    found: Any = start
    for one in _items(run, of):
        found = add(run, found, one)
    return found


def _extreme(choose: Callable[..., Any]) -> Callable[..., Any]:
    def function(run: Meter, of: Any) -> Any:
        return _computed(choose, _whole(run, _items(run, of)))

    return function


def _extreme_or(choose: Callable[..., Any]) -> Callable[..., Any]:
    def function(run: Meter, of: Any, default: Any) -> Any:
        return _computed(choose, _whole(run, _items(run, of)), default=default)

    return function


def sort(run: Meter, of: Any, reverse: Any = False) -> list[Any]:
    items = _whole(run, _items(run, of))
    run.spend((len(items) + weigh(items)) * max(len(items).bit_length(), 1))
    return list(_computed(sorted, items, reverse=bool(reverse)))


def to_dict(run: Meter, of: Any) -> dict[str, Any]:
    """Of pairs."""
    if isinstance(of, Mapping):
        run.spend(len(of))
        return dict(of)
    found: dict[str, Any] = {}
    for pair in _items(run, of):
        if not isinstance(pair, _LISTS) or len(pair) != 2:
            raise EvaluationError(f"a dict is made of pairs of a key and a value, not of {kind(pair)}")
        found[_key(pair[0])] = pair[1]
    return found


def numbered(run: Meter, of: Any, start: Any = 0) -> list[Any]:
    items = _items(run, of)
    run.spend(2 * len(items))
    return [[number, one] for number, one in _computed(lambda: list(enumerate(items, start)))]


def zipped(run: Meter, strict: Any, *of: Any) -> list[Any]:
    lists = [_items(run, one) for one in of]
    rows = min(map(len, lists), default=0)
    run.spend(rows * len(lists))
    return [list(row) for row in _computed(lambda: list(zip(*lists, strict=bool(strict))))]


def chained(run: Meter, of: Any) -> list[Any]:
    """The items of all lists, one list after the other."""
    return [one for part in _items(run, of) for one in _items(run, part)]


# -- methods ----------------------------------------------------------------------------------------------------------

TEXT_METHODS = frozenset(
    "capitalize casefold center count endswith find index isalnum isalpha isascii isdecimal isdigit isidentifier islower isnumeric isspace istitle "
    "isupper join ljust lower lstrip partition removeprefix removesuffix replace rfind rindex rjust rpartition rsplit rstrip split splitlines "
    "startswith strip swapcase title upper zfill".split()
)
LIST_METHODS = frozenset(("count", "index"))
MAP_METHODS = frozenset(("get", "items", "keys", "values"))


_BACKWARDS = frozenset(("rfind", "rindex", "rpartition", "rsplit"))
"""Python compares the whole at each place, while a search forwards goes through the text once."""


def method(run: Meter, of: Any, name: Any, *args: Any) -> Any:
    """`of.name(…)`"""
    if not isinstance(name, str):
        raise EvaluationError(f"the name of a method is text, not {kind(name)}")
    if isinstance(of, str) and name in TEXT_METHODS:
        return _of_text(run, of, name, args)
    if isinstance(of, _LISTS) and name in LIST_METHODS:
        return _computed(getattr(_whole(run, of), name), *(_whole(run, arg) for arg in args))
    if isinstance(of, Mapping) and name in MAP_METHODS:
        run.spend(1 if name == "get" else 2 * len(of))
        found = _computed(getattr(dict(of) if name != "get" else of, name), *args)
        return found if name == "get" else [list(one) if name == "items" else one for one in found]
    raise EvaluationError(f"AttributeError: {kind(of)} has no method {brief(name)} in a workflow")


def _of_text(run: Meter, of: str, name: str, args: tuple[Any, ...]) -> Any:
    given = [tuple(arg) if name in ("startswith", "endswith") and isinstance(arg, list) else arg for arg in args]
    size = len(of) + sum(weigh(arg, ranges=True) * 16 + len(arg) for arg in args if isinstance(arg, (*_LISTS, str)))
    if name == "join" and args and isinstance(args[0], (*_LISTS, str)):
        size += len(of) * len(args[0])
    elif name in _BACKWARDS and args and isinstance(args[0], str):
        size += max(len(of) - len(args[0]), 0) * len(args[0])
    elif name in ("strip", "lstrip", "rstrip") and args and isinstance(args[0], str):
        size += len(of) * len(set(args[0]))
        given = ["".join(set(args[0])), *args[1:]]
    elif name == "replace" and len(args) > 1 and isinstance(args[0], str) and isinstance(args[1], str):
        size += of.count(args[0]) * len(args[1])
    elif name in ("center", "ljust", "rjust", "zfill") and args and isinstance(args[0], int):
        size += max(args[0], 0)
    run.spend(size // 16 + 1)
    found = _computed(getattr(of, name), *given)
    if isinstance(found, list | tuple):
        run.spend(len(found))
        return list(found)
    return found


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "add": add, "sub": _operator(operator.sub), "mul": multiply, "div": _operator(operator.truediv), "floordiv": _operator(operator.floordiv),
    "mod": modulo, "pow": power, "neg": _operator(operator.neg), "abs": _operator(abs), "compare": compare, "in": is_in,
    "item": item, "slice": slice_, "set": replaced, "round": round_to,
    "int": lambda run, value: _computed(int, _plain(value) if not isinstance(value, str) else value[:1000]),
    "float": lambda run, value: _computed(float, _plain(value) if not isinstance(value, str) else value[:1000]),
    "sum": total, "min": _extreme(min), "max": _extreme(max), "min_or": _extreme_or(min), "max_or": _extreme_or(max),
    "sorted": sort, "any": lambda run, of: any(_items(run, of)), "all": lambda run, of: all(_items(run, of)),
    "list": lambda run, of: list(_items(run, of)), "dict": to_dict, "enumerate": numbered, "zip": zipped, "chain": chained,
    "method": method,
}  # fmt: skip
"""Without their prefix `py_`."""
