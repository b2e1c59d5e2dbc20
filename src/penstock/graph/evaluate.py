"""The value of an expression on plain data. Bounded in time and memory; sees nothing but what it is given.

Called by plan.expand (what is known before running) and by the engine (what a step produced). CEL's rules: integers of 64
bits that overflow loudly, no silent mixing of integers and doubles, `&&` and `||` that decide as soon as one side can.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.graph.expr import (
    Binary,
    Call,
    Choice,
    Const,
    Expr,
    Index,
    ListOf,
    Macro,
    MapOf,
    Member,
    Name,
    Node,
    Unary,
    path_of,
    show,
)
from penstock.graph.template import Template

BUDGET = 2_000_000
"""Units of work in one evaluation: a node visited, an element copied, sixteen characters joined."""
LARGEST = 10_000_000
"""Elements, or sixteens of characters, of a value written out. `[x, x]` inside itself sixty times costs sixty nodes to make
and would never end being written."""
_INT_MIN, _INT_MAX = -(2**63), 2**63 - 1
_LISTS = (list, tuple, range)
_INTEGER = re.compile(r"[+-]?\d{1,100}\Z", re.A)
_NUMBER = re.compile(r"[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?|inf|infinity|nan)\Z", re.A | re.I)


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
Scope = Mapping[str, Any]


def evaluate(expr: Expr | Node, scope: Scope, budget: int = BUDGET) -> Any:
    """The value as plain data: None, bool, int, float, str, list, dict, or a range. Raises EvaluationError."""
    node = expr.node if isinstance(expr, Expr) else expr
    try:
        value = _Evaluation(scope, budget).value(node)
        if path_of(node) is None:
            _weigh(value)
        elif isinstance(value, Mapping) and _has_gaps(value):
            raise NotKnown(path_of(node) or ())
    except RecursionError:  # called from far down the stack
        raise EvaluationError("nested too deep") from None
    return value


def resolve(value: Any, scope: Scope) -> Any:
    """A Value with every expression in it replaced by what it evaluates to."""
    if isinstance(value, Expr):
        return evaluate(value, scope)
    if isinstance(value, Template):
        parts = [part if isinstance(part, str) else to_text(evaluate(part, scope)) for part in value.parts]
        if sum(map(len, parts)) > LARGEST * 16:
            raise EvaluationError("the text is too long")
        return "".join(parts)
    if isinstance(value, tuple | list):
        return [resolve(item, scope) for item in value]
    if isinstance(value, dict):
        return {key: resolve(item, scope) for key, item in value.items()}
    return value


def to_text(value: Any) -> str:
    """How a value becomes a string at the edge: text as it is, everything else as compact JSON."""
    if isinstance(value, str):
        return value
    import json

    _weigh(value, ranges=True)
    return json.dumps(value, default=_as_json, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def _as_json(value: Any) -> Any:
    if isinstance(value, range):
        return list(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise EvaluationError(f"{kind(value)} has no form as text")


def _has_gaps(value: Mapping[str, Any]) -> bool:
    return any(item is ABSENT or (isinstance(item, Mapping) and _has_gaps(item)) for item in value.values())


def _weigh(value: Any, ranges: bool = False) -> None:
    """Raises EvaluationError if the value is too large to be written out, NotKnown if a part of it is not known yet.
    Parts that stand in it several times are looked at once."""
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

    if weight(value) > LARGEST:
        raise EvaluationError("the value is too large; move it into a step")


_PLAIN = frozenset({int, float, bool, type(None)})


@dataclass(slots=True)
class _Evaluation:
    scope: Scope
    budget: int = BUDGET

    def spend(self, units: int) -> None:
        self.budget -= units
        if self.budget < 0:
            raise EvaluationError("the expression takes too long; move it into a step")

    def value(self, node: Node) -> Any:
        self.spend(1)
        match node:
            case Const(value):
                return self.bounded(value)
            case Name(id):
                if id not in self.scope:
                    raise EvaluationError(f"there is no {id!r} here")
                return self.present(self.scope[id], node)
            case Member(of, name):
                return self.field(node, self.value(of), name)
            case Index(of, index):
                return self.index(node, self.value(of), self.value(index))
            case Binary("&&" | "||" as op, left, right):
                return self.logic(op == "||", left, right)
            case Binary(op, left, right):
                return self.binary(op, self.value(left), self.value(right))
            case Unary(op, of):
                return self.unary(op, self.value(of))
            case Choice(test, yes, no):
                return self.value(yes if self.boolean(self.value(test)) else no)
            case ListOf(items):
                return [self.value(item) for item in items]
            case MapOf(pairs):
                return {self.key(self.value(key)): self.value(value) for key, value in pairs}
            case Macro(name, of, var, body):
                return self.macro(name, self.value(of), var, body)
            case Call(name, args, of):
                return self.call(name, args, of)

    def present(self, value: Any, node: Node) -> Any:
        if value is ABSENT:
            raise NotKnown(path_of(node) or (show(node),))
        return value

    def field(self, node: Node, of: Any, name: str) -> Any:
        if not isinstance(of, Mapping):
            raise EvaluationError(f"{kind(of)} has no field {name!r}")
        if name not in of:
            raise EvaluationError(f"there is no field {name!r} in {show(node)}")
        return self.present(of[name], node)

    def index(self, node: Node, of: Any, index: Any) -> Any:
        if isinstance(of, Mapping):
            return self.field(node, of, self.key(index))
        if not isinstance(of, list | tuple | range):
            raise EvaluationError(f"{kind(of)} cannot be indexed")
        if isinstance(index, float) and index.is_integer():
            index = int(index)
        if isinstance(index, bool) or not isinstance(index, int):
            raise EvaluationError(f"a list is indexed by an int, not {kind(index)}")
        if not 0 <= index < len(of):
            raise EvaluationError(f"index {index} is outside a list of {len(of)}")
        return self.present(of[index], node)

    def boolean(self, value: Any) -> bool:
        if not isinstance(value, bool):
            raise EvaluationError(f"expected true or false, found {kind(value)}")
        return value

    def key(self, value: Any) -> str:
        if not isinstance(value, str):
            raise EvaluationError(f"a map key must be a string, not {kind(value)}")
        return value

    def logic(self, decisive: bool, left: Node, right: Node) -> bool:
        """True || anything is true, even if the anything cannot be known: CEL's rule, and what a plan needs."""
        failure: EvaluationError | None = None
        for side in (left, right):
            try:
                if self.boolean(self.value(side)) is decisive:
                    return decisive
            except EvaluationError as error:
                failure = _weaker(failure, error)
        if failure is not None:
            raise failure
        return not decisive

    def unary(self, op: str, value: Any) -> Any:
        if op == "!":
            return not self.boolean(value)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise EvaluationError(f"{kind(value)} cannot be negated")
        return self.bounded(-value)

    def bounded(self, value: Any) -> Any:
        if isinstance(value, int) and not _INT_MIN <= value <= _INT_MAX:
            raise EvaluationError("integer overflow: the result does not fit 64 bits")
        return value

    def binary(self, op: str, left: Any, right: Any) -> Any:
        if op in ("==", "!="):
            return self.equal(left, right) is (op == "==")
        if op == "in":
            if isinstance(right, Mapping):
                return left in right if isinstance(left, str) else False
            if isinstance(right, range):
                return (
                    isinstance(left, int | float)
                    and not isinstance(left, bool)
                    and left == left // 1
                    and int(left) in right
                )
            if not isinstance(right, list | tuple):
                raise EvaluationError(f"'in' needs a list or a map, not {kind(right)}")
            return any(self.equal(left, item) for item in right)
        if op in ("<", "<=", ">", ">="):
            return self.compare(op, left, right)
        return self.arithmetic(op, left, right)

    def equal(self, left: Any, right: Any) -> bool:
        self.spend(2)
        if left is ABSENT or right is ABSENT:
            raise NotKnown(("a part of the value",))
        if isinstance(left, str) and isinstance(right, str):
            self.spend(min(len(left), len(right)) // 16)
            return left == right
        if isinstance(left, _LISTS) and isinstance(right, _LISTS):
            return len(left) == len(right) and all(map(self.equal, left, right))
        if isinstance(left, Mapping) and isinstance(right, Mapping):
            self.spend(len(left))
            return left.keys() == right.keys() and all(self.equal(left[k], right[k]) for k in left)
        if isinstance(left, bool) or isinstance(right, bool):
            return left is right
        if isinstance(left, int | float) and isinstance(right, int | float):
            return left == right
        return type(left) is type(right) and bool(left == right)

    def compare(self, op: str, left: Any, right: Any) -> bool:
        numbers = all(isinstance(x, int | float) and not isinstance(x, bool) for x in (left, right))
        if not numbers and not (type(left) is type(right) and isinstance(left, str | bool)):
            raise EvaluationError(f"{kind(left)} {op} {kind(right)} has no meaning")
        if isinstance(left, str):
            self.spend(min(len(left), len(right)) // 16)
        order: dict[str, Callable[[Any, Any], bool]] = {
            "<": lambda a, b: a < b, "<=": lambda a, b: a <= b, ">": lambda a, b: a > b, ">=": lambda a, b: a >= b,
        }  # fmt: skip
        return order[op](left, right)

    def arithmetic(self, op: str, left: Any, right: Any) -> Any:
        if isinstance(left, bool) or isinstance(right, bool) or type(left) is not type(right):
            if op == "+" and isinstance(left, list | tuple | range) and isinstance(right, list | tuple | range):
                return self.joined(left, right)
            raise EvaluationError(f"{kind(left)} {op} {kind(right)} has no meaning")
        if isinstance(left, float):
            if op == "%":
                raise EvaluationError("% is for integers")
            if op == "/":
                return _divide(left, right)
            return {"+": left + right, "-": left - right, "*": left * right}[op]
        if isinstance(left, int):
            if op in "/%":
                if right == 0:
                    raise EvaluationError("division by zero")
                quotient = self.bounded(abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1))
                return quotient if op == "/" else left - quotient * right
            return self.bounded({"+": left + right, "-": left - right, "*": left * right}[op])
        if op == "+" and isinstance(left, str):
            self.spend((len(left) + len(right)) // 16)
            return left + right
        if op == "+" and isinstance(left, list | tuple | range):
            return self.joined(left, right)
        raise EvaluationError(f"{kind(left)} {op} {kind(right)} has no meaning")

    def joined(self, left: Sequence[Any], right: Sequence[Any]) -> list[Any]:
        self.spend(len(left) + len(right))
        return [*left, *right]

    def macro(self, name: str, of: Any, var: str, body: Node) -> Any:
        if isinstance(of, Mapping):
            self.spend(len(of))
            of = list(of)
        if not isinstance(of, list | tuple | range):
            raise EvaluationError(f"{name} needs a list, not {kind(of)}")
        outer = self.scope
        result: list[Any] = []
        failure: EvaluationError | None = None
        try:
            for item in of:
                self.scope = {**outer, var: item}
                self.spend(2)
                if name == "map":
                    result.append(self.value(body))
                    continue
                try:
                    holds = self.boolean(self.value(body))
                except EvaluationError as error:
                    if name not in ("all", "exists") or self.budget < 0:
                        raise
                    failure = _weaker(failure, error)
                    continue
                if name == "all" and not holds:
                    return False
                if name == "exists" and holds:
                    return True
                if holds and name in ("filter", "exists_one"):
                    result.append(item)
        finally:
            self.scope = outer
        if failure is not None:
            raise failure
        return {"map": result, "filter": result, "all": True, "exists": False, "exists_one": len(result) == 1}[name]

    def call(self, name: str, args: tuple[Node, ...], of: Node | None) -> Any:
        if name == "has":
            member = args[0]
            assert isinstance(member, Member)
            holder = self.value(member.of)
            if not isinstance(holder, Mapping):
                raise EvaluationError(f"{kind(holder)} has no fields")
            if member.name in holder:
                self.present(holder[member.name], member)
            return member.name in holder
        values = [self.value(arg) for arg in args]
        if of is not None:
            return self.method(name, self.value(of), values)
        return _FUNCTIONS[name](self, *values)

    def method(self, name: str, of: Any, args: list[Any]) -> Any:
        if name == "size":
            return _size(self, of)
        if not isinstance(of, str) or not isinstance(args[0], str):
            raise EvaluationError(f"{name}() is for strings, not {kind(of)} and {kind(args[0])}")
        self.spend(len(of) // 16)
        return {"contains": args[0] in of, "startsWith": of.startswith(args[0]), "endsWith": of.endswith(args[0])}[name]


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


def _weaker(known: EvaluationError | None, error: EvaluationError) -> EvaluationError:
    """Of two sides that gave no value: what is not known yet may still decide, what has failed cannot."""
    return error if known is None or (isinstance(error, NotKnown) and not isinstance(known, NotKnown)) else known


def _divide(left: float, right: float) -> float:
    if right != 0:
        return left / right
    return math.nan if left == 0 or left != left else math.copysign(math.inf, left) * math.copysign(1, right)


def _size(run: _Evaluation, value: Any) -> int:
    if isinstance(value, str | list | tuple | range | Mapping):
        return len(value)
    raise EvaluationError(f"{kind(value)} has no size")


def _string(run: _Evaluation, value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(run.bounded(value))
    if isinstance(value, float):
        return format(value, ".0f") if value.is_integer() and abs(value) < 1e15 else repr(value)
    raise EvaluationError(f"{kind(value)} is not turned into a string")


def _int(run: _Evaluation, value: Any) -> int:
    if isinstance(value, bool):
        raise EvaluationError("a bool is not turned into an int")
    if isinstance(value, int):
        return value
    if (
        isinstance(value, float) and _INT_MIN < value < _INT_MAX
    ):  # no double is _INT_MAX; other CELs refuse _INT_MIN too
        return int(value)
    if isinstance(value, str) and _INTEGER.match(value):
        return int(run.bounded(int(value)))
    raise EvaluationError(f"{_brief(value)} is not an int")


def _double(run: _Evaluation, value: Any) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(run.bounded(value))
    if isinstance(value, str) and len(value) <= 1000 and _NUMBER.match(value):
        run.spend(len(value) // 16)
        return float(value)
    raise EvaluationError(f"{_brief(value)} is not a number")


def _bool(run: _Evaluation, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    known = {"true": True, "True": True, "TRUE": True, "t": True, "1": True}
    known |= {"false": False, "False": False, "FALSE": False, "f": False, "0": False}
    if isinstance(value, str) and value in known:
        return known[value]
    raise EvaluationError(f"{_brief(value)} is neither true nor false")


def _brief(value: Any) -> str:
    return repr(value[:80]) if isinstance(value, str) else repr(value) if isinstance(value, float) else kind(value)


def _as_lists(value: Any) -> Any:
    """Lists are kept as tuples and ranges; Python prints them as lists."""
    if isinstance(value, list | tuple | range):
        return [_as_lists(item) for item in value]
    return {key: _as_lists(item) for key, item in value.items()} if isinstance(value, Mapping) else value


def _format(run: _Evaluation, value: Any, spec: Any) -> str:
    """Python's format(), for f-strings: the plain run and the compiled workflow must print the same."""
    if not isinstance(spec, str) or len(spec) > 16:
        raise EvaluationError("a format is a string of at most 16 characters")
    digits = "".join(c if c.isdecimal() else " " for c in spec).split()
    if any(int(number) > 4096 for number in digits):
        raise EvaluationError(f"the format {spec!r} is too wide")
    _weigh(value, ranges=True)
    try:
        text = format(_as_lists(value), spec)
    except (ValueError, TypeError, OverflowError) as error:
        raise EvaluationError(f"format {spec!r}: {error}") from None
    run.spend(len(text) // 16)
    return text


def _range(run: _Evaluation, *bounds: Any) -> range:
    if any(isinstance(bound, bool) or not isinstance(bound, int) for bound in bounds) or bounds[2:] == (0,):
        raise EvaluationError("range() takes ints, and a step that is not 0")
    found = range(*bounds)
    if found and abs(found[-1] - found[0]) // abs(found.step) >= _INT_MAX:
        raise EvaluationError("range() is longer than 64 bits count")
    return found


def _extreme(choose: Callable[[Any, Any], Any]) -> Callable[[_Evaluation, Any, Any], Any]:
    def function(run: _Evaluation, left: Any, right: Any) -> Any:
        run.compare("<", left, right)
        return choose(left, right)

    return function


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "size": _size, "string": _string, "int": _int, "double": _double, "bool": _bool, "format": _format, "range": _range,
    "truthy": lambda run, value: bool(value), "min": _extreme(min), "max": _extreme(max),
}  # fmt: skip
