"""Evaluates an expression on plain data, with bounded time and memory.

Called by plan.expand (values known before the run) and by the engine (outputs of steps). CEL's rules apply: 64-bit integers raise on
overflow, integers and doubles do not mix silently, and `&&` and `||` need only one side that decides.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from penstock.expressions.parse import (
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
from penstock.expressions.plain import ABSENT as ABSENT
from penstock.expressions.plain import INT_MAX, INT_MIN, as_lists, bounded, brief, weigh
from penstock.expressions.plain import LARGEST as LARGEST
from penstock.expressions.plain import Absent as Absent
from penstock.expressions.plain import EvaluationError as EvaluationError
from penstock.expressions.plain import NotKnown as NotKnown
from penstock.expressions.plain import kind as kind
from penstock.expressions.plain import to_text as to_text
from penstock.expressions.secret import CALLBACK, CALLBACKS, ROOT, SECRETS, Secret, joined
from penstock.expressions.template import Template

BUDGET = 2_000_000
"""Units of work in one evaluation: a node visited, an element copied, sixteen characters joined."""
_LISTS = (list, tuple, range)
_INTEGER = re.compile(r"[+-]?\d{1,100}\Z", re.A)
_NUMBER = re.compile(r"[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?|inf|infinity|nan)\Z", re.A | re.I)


Scope = Mapping[str, Any]


def evaluate(expr: Expr | Node, scope: Scope, budget: int = BUDGET) -> Any:
    """The value as plain data: None, bool, int, float, str, list, dict, or a range. Raises EvaluationError."""
    node = expr.node if isinstance(expr, Expr) else expr
    try:
        value = _Evaluation(scope, budget).value(node)
        if path_of(node) is None:
            weigh(value)
        elif isinstance(value, Mapping) and _has_gaps(value):
            raise NotKnown(path_of(node) or ())
    except RecursionError:  # the caller is deep in the stack already
        raise EvaluationError("nested too deep") from None
    return value


def resolve(value: Any, scope: Scope) -> Any:
    """A Value with every expression in it replaced by its value."""
    if isinstance(value, Expr):
        return evaluate(value, scope)
    if isinstance(value, Template):
        parts = [part if isinstance(part, str) else _part(evaluate(part, scope)) for part in value.parts]
        if any(type(part) is Secret for part in parts):
            return joined(parts)
        if sum(map(len, parts)) > LARGEST * 16:
            raise EvaluationError("the text is too long")
        return "".join(parts)
    if isinstance(value, tuple | list):
        return [resolve(item, scope) for item in value]
    if isinstance(value, dict):
        return {key: resolve(item, scope) for key, item in value.items()}
    return value


def _part(value: Any) -> Any:
    return value if type(value) is Secret else to_text(value)


def _has_gaps(value: Mapping[str, Any]) -> bool:
    return any(item is ABSENT or (isinstance(item, Mapping) and _has_gaps(item)) for item in value.values())


@dataclass(slots=True)
class _Evaluation:
    """One evaluation, with what is left of its budget."""

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
                return bounded(value)
            case Name(id):
                if id not in self.scope:
                    if id == ROOT:
                        return SECRETS
                    if id == CALLBACK:
                        return CALLBACKS
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
        """`true || x` is true even if x is not known. This is CEL's rule, and plans need it."""
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
        return bounded(-value)

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
        if type(left) is Secret or type(right) is Secret:
            raise EvaluationError("a secret is not compared: its value is known to the step alone that is given it")
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
            "<": lambda a, b: a < b,
            "<=": lambda a, b: a <= b,
            ">": lambda a, b: a > b,
            ">=": lambda a, b: a >= b,
        }
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
                quotient = bounded(abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1))
                return quotient if op == "/" else left - quotient * right
            return bounded({"+": left + right, "-": left - right, "*": left * right}[op])
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
        if name == "default":
            return self.default(*args)
        values = [self.value(arg) for arg in args]
        if of is not None:
            return self.method(name, self.value(of), values)
        for value in values:  # whatever it does with a text, it reads it
            if isinstance(value, str):
                self.spend(len(value) // 16)
        return (_FUNCTIONS.get(name) or _library()[name])(self, *values)

    def default(self, wanted: Node, otherwise: Node) -> Any:
        """NotKnown is passed on: the value may still come. A value that is absent, null or cannot be computed gives the default."""
        try:
            value = self.value(wanted)
        except NotKnown:
            raise
        except EvaluationError:
            value = None
        return self.value(otherwise) if value is None else value

    def method(self, name: str, of: Any, args: list[Any]) -> Any:
        if name == "size":
            return _size(self, of)
        if not isinstance(of, str) or not isinstance(args[0], str):
            raise EvaluationError(f"{name}() is for strings, not {kind(of)} and {kind(args[0])}")
        if name == "matches":
            return _library()[name](self, of, args[0])
        self.spend(len(of) // 16)
        return {"contains": args[0] in of, "startsWith": of.startswith(args[0]), "endsWith": of.endswith(args[0])}[name]


def _weaker(known: EvaluationError | None, error: EvaluationError) -> EvaluationError:
    """Both sides have no value: NotKnown wins, because that side may still decide; a failed side cannot."""
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
        return str(bounded(value))
    if isinstance(value, float):
        return format(value, ".0f") if value.is_integer() and abs(value) < 1e15 else repr(value)
    raise EvaluationError(f"{kind(value)} is not turned into a string")


def _int(run: _Evaluation, value: Any) -> int:
    if isinstance(value, bool):
        raise EvaluationError("a bool is not turned into an int")
    if isinstance(value, int):
        return value
    if (
        isinstance(value, float) and INT_MIN < value < INT_MAX
    ):  # no double equals INT_MAX; other CEL implementations refuse INT_MIN too
        return int(value)
    if isinstance(value, str) and _INTEGER.match(value):
        return int(bounded(int(value)))
    raise EvaluationError(f"{brief(value)} is not an int")


def _double(run: _Evaluation, value: Any) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(bounded(value))
    if isinstance(value, str) and len(value) <= 1000 and _NUMBER.match(value):
        run.spend(len(value) // 16)
        return float(value)
    raise EvaluationError(f"{brief(value)} is not a number")


def _bool(run: _Evaluation, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    known = {"true": True, "True": True, "TRUE": True, "t": True, "1": True}
    known |= {"false": False, "False": False, "FALSE": False, "f": False, "0": False}
    if isinstance(value, str) and value in known:
        return known[value]
    raise EvaluationError(f"{brief(value)} is neither true nor false")


def _format(run: _Evaluation, value: Any, spec: Any) -> str:
    """Python's format(), for f-strings: a plain call and a compiled workflow must print the same."""
    if not isinstance(spec, str) or len(spec) > 16:
        raise EvaluationError("a format is a string of at most 16 characters")
    digits = "".join(c if c.isdecimal() else " " for c in spec).split()
    if any(int(number) > 4096 for number in digits):
        raise EvaluationError(f"the format {spec!r} is too wide")
    run.spend(2 * weigh(value, ranges=True))
    try:
        text = format(as_lists(value), spec)
    except (ValueError, TypeError, OverflowError) as error:
        raise EvaluationError(f"format {spec!r}: {error}") from None
    run.spend(len(text) // 16)
    return text


def _range(run: _Evaluation, *bounds: Any) -> range:
    if any(isinstance(bound, bool) or not isinstance(bound, int) for bound in bounds) or bounds[2:] == (0,):
        raise EvaluationError("range() takes ints, and a step that is not 0")
    found = range(*bounds)
    if found and abs(found[-1] - found[0]) // abs(found.step) >= INT_MAX:
        raise EvaluationError("range() is longer than 64 bits count")
    return found


def _extreme(choose: Callable[[Any, Any], Any]) -> Callable[[_Evaluation, Any, Any], Any]:
    def function(run: _Evaluation, left: Any, right: Any) -> Any:
        run.compare("<", left, right)
        return choose(left, right)

    return function


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "size": _size,
    "string": _string,
    "int": _int,
    "double": _double,
    "bool": _bool,
    "format": _format,
    "range": _range,
    "truthy": lambda run, value: bool(value),
    "min": _extreme(min),
    "max": _extreme(max),
}


@cache
def _library() -> Mapping[str, Callable[..., Any]]:
    """The less common functions. Loaded when the first of them is called."""
    from penstock.expressions.functions import FUNCTIONS

    return FUNCTIONS
