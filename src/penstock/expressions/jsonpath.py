"""`$.employees[?(@.age > 42)].name`: the language of the `jsonpath` function in Argo's expressions. Called by functions.

A path that can only match one place gives the value there, or an error if there is none. A path with `*`, `..`, a slice, several names or a
filter gives a list of all matches; later parts are applied to each of them, and matches without them are dropped. Maps are visited in the
order of their keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from penstock.expressions.plain import EvaluationError, Meter, kind
from penstock.expressions.regex import matches

MAX_PATH = 2000
MAX_NESTING = 30
MAX_DEPTH = 200
_LEXEME = re.compile(
    r"""\s*(?:
    (?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)
  | (?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
  | (?P<word>(?:true|false|null|nil|in)\b)
  | (?P<op>&&|\|\||==|!=|=~|<=|>=|[-+*/%<>!(),\[\]@$])
  )""",
    re.X | re.A | re.S,
)
_LEVEL = {
    "||": 1,
    "&&": 2,
    "==": 3,
    "!=": 3,
    "<": 3,
    "<=": 3,
    ">": 3,
    ">=": 3,
    "=~": 3,
    "in": 3,
    "+": 4,
    "-": 4,
    "*": 5,
    "/": 5,
    "%": 5,
}
_WORDS = {"true": True, "false": False, "null": None, "nil": None}


@dataclass(frozen=True, slots=True)
class _Key:
    name: str


@dataclass(frozen=True, slots=True)
class _At:
    index: int


@dataclass(frozen=True, slots=True)
class _Keys:
    names: tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class _Slice:
    bounds: tuple[int | None, int | None, int | None]


@dataclass(frozen=True, slots=True)
class _All:
    pass


@dataclass(frozen=True, slots=True)
class _Below:
    """`..`: this and everything inside it."""


@dataclass(frozen=True, slots=True)
class _Where:
    test: _Formula


@dataclass(frozen=True, slots=True)
class _Computed:
    """`[(@.length - 1)]`"""

    index: _Formula


_Step = _Key | _At | _Keys | _Slice | _All | _Below | _Where | _Computed


@dataclass(frozen=True, slots=True)
class _Value:
    value: Any


@dataclass(frozen=True, slots=True)
class _Path:
    root: bool
    steps: tuple[_Step, ...]


@dataclass(frozen=True, slots=True)
class _Not:
    of: _Formula


@dataclass(frozen=True, slots=True)
class _Pair:
    op: str
    left: _Formula
    right: _Formula


_Formula = _Value | _Path | _Not | _Pair


class _Nothing(EvaluationError):
    """The path matches nothing."""


def query(run: Meter, data: Any, path: str) -> Any:
    """Raises EvaluationError for a malformed path, and for a single-place path that matches nothing."""
    run.spend(len(path) // 16 + 1)
    return _Query(run, data).follow(data, _parsed(path))


# -- following --------------------------------------------------------------------------------------------------------


class _Query:
    def __init__(self, run: Meter, root: Any) -> None:
        self.run = run
        self.root = root

    def follow(self, value: Any, steps: tuple[_Step, ...]) -> Any:
        for number, step in enumerate(steps):
            self.run.spend(1)
            if isinstance(step, _Key | _At | _Computed):
                value = self.one(value, step)
                continue
            found = list(self.several(value, step))
            rest = steps[number + 1 :]
            return [last for part in found for last in self.rest(part, rest)] if rest else found
        return value

    def rest(self, value: Any, steps: tuple[_Step, ...]) -> Iterator[Any]:
        try:
            yield self.follow(value, steps)
        except _Nothing:
            return

    def one(self, value: Any, step: _Key | _At | _Computed) -> Any:
        key: Any = self.value(value, step.index) if isinstance(step, _Computed) else None
        key = step.name if isinstance(step, _Key) else step.index if isinstance(step, _At) else key
        if isinstance(value, Mapping) and isinstance(key, str) and key in value:
            return value[key]
        if key == "length" and isinstance(value, Mapping | list | tuple | range | str):
            return len(value)
        if isinstance(key, float) and key.is_integer():
            key = int(key)
        if isinstance(value, list | tuple | range) and isinstance(key, int) and -len(value) <= key < len(value):
            return value[key]
        raise _Nothing(f"there is no {str(key)[:80]!r} in {kind(value)}")

    def several(self, value: Any, step: _Step) -> Iterator[Any]:
        match step:
            case _All():
                yield from self.inside(value)
            case _Keys(names):
                for name in names:
                    yield from self.rest(value, (_Key(name) if isinstance(name, str) else _At(name),))
            case _Slice((first, last, by)):
                if not isinstance(value, list | tuple | range):
                    raise _Nothing(f"{kind(value)} cannot be sliced")
                if (by or 1) > 0:
                    self.run.spend(len(value))
                    yield from list(value)[first:last:by]
            case _Below():
                yield from self.below(value, 0)
            case _Where(test):
                for item in self.inside(value):
                    if self.holds(item, test):
                        yield item

    def inside(self, value: Any) -> Iterator[Any]:
        if isinstance(value, Mapping):
            self.run.spend(len(value))
            yield from (value[key] for key in sorted(value))
        elif isinstance(value, list | tuple | range):
            self.run.spend(len(value))
            yield from value
        else:
            raise _Nothing(f"there is nothing inside {kind(value)}")

    def below(self, value: Any, depth: int) -> Iterator[Any]:
        if depth > MAX_DEPTH:
            raise EvaluationError("the data is nested too deep")
        self.run.spend(1)
        yield value
        if isinstance(value, Mapping | list | tuple):
            for item in self.inside(value):
                yield from self.below(item, depth + 1)

    # -- filters

    def holds(self, item: Any, test: _Formula) -> bool:
        try:
            found = self.value(item, test)
        except _Nothing:
            return False
        return found is not None and found is not False

    def value(self, item: Any, formula: _Formula) -> Any:
        self.run.spend(1)
        match formula:
            case _Value(value):
                return value
            case _Path(root, steps):
                return self.follow(self.root if root else item, steps)
            case _Not(of):
                return not self.truth(self.value(item, of))
            case _Pair("&&", left, right):
                return self.truth(self.value(item, left)) and self.truth(self.value(item, right))
            case _Pair("||", left, right):
                return self.holds(item, left) or self.truth(self.value(item, right))
            case _Pair(op, left, right):
                return self.pair(op, self.value(item, left), self.value(item, right))

    def truth(self, value: Any) -> bool:
        return value is not None and value is not False

    def pair(self, op: str, left: Any, right: Any) -> Any:
        if op in ("==", "!="):
            return self.run.equal(left, right) is (op == "==")
        if op == "in" and isinstance(right, list | tuple | range):
            return any(self.run.equal(left, one) for one in right)
        if op == "=~" and isinstance(left, str) and isinstance(right, str):
            return matches(self.run, left, right)
        numbers = all(isinstance(side, int | float) and not isinstance(side, bool) for side in (left, right))
        if op in ("<", "<=", ">", ">=") and (numbers or (isinstance(left, str) and isinstance(right, str))):
            return self.run.compare(op, left, right)
        if not numbers or op not in "+-*/%" or (op in "/%" and right == 0):
            raise _Nothing(f"{kind(left)} {op} {kind(right)} has no meaning")
        try:
            left, right = float(left), float(right)
            return (
                {"+": left + right, "-": left - right, "*": left * right}.get(op)
                if op in "+-*"
                else left / right
                if op == "/"
                else left % right
            )
        except OverflowError:
            raise _Nothing("a number is too large") from None


# -- reading ----------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=512)
def _parsed(path: str) -> tuple[_Step, ...]:
    if len(path) > MAX_PATH:
        raise EvaluationError(f"a path of more than {MAX_PATH} characters")
    reader = _Reader(path)
    if not path.strip().startswith(("$", "@")):
        raise reader.wrong("it begins with '$'")
    reader.at = len(path) - len(path.lstrip()) + 1
    steps = reader.steps()
    if path[reader.at :].strip():
        raise reader.wrong(f"{path[reader.at : reader.at + 20]!r} is out of place")
    return steps


class _Reader:
    def __init__(self, path: str) -> None:
        self.path = path
        self.at = 0
        self.depth = 0

    def wrong(self, why: str) -> EvaluationError:
        return EvaluationError(f"{self.path[:80]!r} is not a path: {why}")

    def take(self, sign: str) -> bool:
        if self.path.startswith(sign, self.at):
            self.at += len(sign)
            return True
        return False

    def steps(self) -> tuple[_Step, ...]:
        found: list[_Step] = []
        while self.at < len(self.path):
            if self.take(".."):
                found.append(_Below())
                if self.at < len(self.path) and self.path[self.at] not in "[ )":
                    found.append(self.name())
            elif self.take("."):
                found.append(self.name())
            elif self.take("["):
                found.append(self.bracket())
            else:
                break
        return tuple(found)

    def name(self) -> _Step:
        if self.take("*"):
            return _All()
        match = re.compile(r"[^\s.\[\]()'\"=<>!&|,*+/%]+").match(self.path, self.at)
        if match is None:
            raise self.wrong("a name is missing after '.'")
        name = match[0]
        if self.depth and "-" in name:  # in a filter `@.length-1` is a subtraction
            name = name.partition("-")[0] or name
        self.at += len(name)
        return _Key(name)

    def bracket(self) -> _Step:
        if self.take("?("):
            return _Where(self.closed(self.formula(), ")]"))
        if self.take("("):
            return _Computed(self.closed(self.formula(), ")]"))
        end = self.closing()
        inner, self.at = self.path[self.at : end].strip(), end + 1
        if inner == "*":
            return _All()
        if match := re.fullmatch(r"(-?\d{0,9})\s*:\s*(-?\d{0,9})(?:\s*:\s*(-?\d{0,9}))?", inner, re.A):
            first, last, by = (int(part) if part and part != "-" else None for part in match.groups())
            return _Slice((first, last, by or None))
        parts = re.findall(r"""\s*("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|-?\d{1,9})\s*(?:,|\Z)""", inner, re.A)
        if not parts or re.sub(r"\s", "", ",".join(parts)) != re.sub(r"\s", "", inner):
            raise self.wrong(f"[{inner[:40]}] is out of place")
        names = [_unquoted(part) if part[0] in "\"'" else int(part) for part in parts]
        if len(names) > 1:
            return _Keys(tuple(names))
        return _Key(names[0]) if isinstance(names[0], str) else _At(names[0])

    def closing(self) -> int:
        at = self.at
        while at < len(self.path) and self.path[at] != "]":
            if self.path[at] in "\"'":
                end = at + 1
                while end < len(self.path) and self.path[end] != self.path[at]:
                    end += 2 if self.path[end] == "\\" else 1
                at = end
            at += 1
        if at >= len(self.path):
            raise self.wrong("'[' without ']'")
        return at

    def closed(self, formula: _Formula, sign: str) -> _Formula:
        self.at += len(self.path[self.at :]) - len(self.path[self.at :].lstrip())
        if not self.take(sign):
            raise self.wrong(f"{sign!r} is missing")
        return formula

    # -- filters

    def lexeme(self) -> tuple[str, str]:
        match = _LEXEME.match(self.path, self.at)
        return (match.lastgroup or "", match[match.lastgroup or 0]) if match else ("", "")

    def skip(self) -> None:
        match = _LEXEME.match(self.path, self.at)
        self.at = match.end() if match else self.at

    def formula(self, level: int = 1) -> _Formula:
        self.depth += 1
        if self.depth > MAX_NESTING:
            raise self.wrong("it is nested too deep")
        left = self.operand()
        while own := _LEVEL.get(self.lexeme()[1], 0):
            if own < level:
                break
            op = self.lexeme()[1]
            self.skip()
            left = _Pair(op, left, self.formula(own + 1))
        self.depth -= 1
        return left

    def operand(self) -> _Formula:
        kind_, token = self.lexeme()
        self.skip()
        match kind_, token:
            case "number", _:
                return _Value(float(token) if set(token) & set(".eE") else int(token[:18]))
            case "string", _:
                return _Value(_unquoted(token))
            case "word", _ if token != "in":
                return _Value(_WORDS[token])
            case "op", "@" | "$":
                return _Path(token == "$", self.steps())
            case "op", "!":
                return _Not(self.formula(6))
            case "op", "-":
                return _Pair("-", _Value(0), self.formula(6))
            case "op", "(":
                return self.closed(self.formula(), ")")
            case "op", "[":
                return _Value(self.items())
        raise self.wrong("a value is missing in a filter")

    def items(self) -> tuple[Any, ...]:
        found: list[Any] = []
        while self.lexeme()[1] != "]":
            item = self.operand()
            if not isinstance(item, _Value):
                raise self.wrong("a list in a filter has constants in it")
            found.append(item.value)
            if self.lexeme()[1] == ",":
                self.skip()
            elif self.lexeme()[1] != "]":
                raise self.wrong("']' is missing")
        self.skip()
        return tuple(found)


def _unquoted(token: str) -> str:
    return re.sub(r"\\(.)", r"\1", token[1:-1], flags=re.S)
