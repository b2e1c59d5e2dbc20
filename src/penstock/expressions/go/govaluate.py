"""Argo's `when` after its tags are filled in: the language of the Go library govaluate. Called by functions, and by
formats.argo.language.when, which translates conditions if it can.

Numbers are doubles, a bare word is a string, a quoted text that looks like a date is seconds since 1970. Operators of one
level associate to the left, the two halves of `? :` included. Text after a complete expression is an error here; govaluate ignores it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from penstock.expressions.go import times
from penstock.expressions.go.text import number, shown, text
from penstock.expressions.plain import LONGEST, EvaluationError, Meter, brief
from penstock.expressions.regex import matches

MAX_CONDITION = 20_000
MAX_NESTING = 50


class ConditionError(EvaluationError):
    """The text is not a condition. `position` counts characters from 0; `symbol`: the token there, if it is not an operator."""

    def __init__(self, message: str, position: int, symbol: str = "") -> None:
        super().__init__(message)
        self.position = position
        self.symbol = symbol


# -- the tree ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Operand:
    value: bool | float | str
    quoted: bool = False
    start: int = 0


@dataclass(frozen=True, slots=True)
class Prefix:
    op: str
    of: Tree


@dataclass(frozen=True, slots=True)
class Infix:
    op: str
    left: Tree
    right: Tree


@dataclass(frozen=True, slots=True)
class Parenthesized:
    """An expression in parentheses. Around a list they make the right side of `in`."""

    of: Tree


Tree = Operand | Prefix | Infix | Parenthesized

# -- tokens -----------------------------------------------------------------------------------------------------------

_LEVELS = (
    (",",),
    ("?", ":", "??"),
    ("||",),
    ("&&",),
    ("==", "!=", ">", ">=", "<", "<=", "=~", "!~", "in"),
    ("^", "&", "|"),
    (">>", "<<"),
    ("+", "-"),
    ("*", "/", "%"),
    ("**",),
)
_LEVEL = {op: level for level, ops in enumerate(_LEVELS) for op in ops}
_KINDS = {
    op: kind
    for kind, ops in {
        "separator": [","],
        "ternary": ["?", ":", "??"],
        "logical": ["||", "&&"],
        "comparator": list(_LEVELS[4]),
        "modifier": ["^", "&", "|", ">>", "<<", "+", "-", "*", "/", "%", "**"],
    }.items()
    for op in ops
}
_VALUES = {"number", "bool", "string", "time"}
_AFTER_VALUE = {"modifier", "comparator", "logical", ")", "ternary", "separator"}
_FOLLOW: dict[str, set[str]] = {
    "": {"prefix", "("} | _VALUES,
    "(": {"prefix", "(", ")"} | _VALUES,
    ")": _AFTER_VALUE,
    "number": _AFTER_VALUE,
    "bool": _AFTER_VALUE,
    "string": _AFTER_VALUE,
    "time": _AFTER_VALUE - {"ternary"},
    "modifier": {"prefix", "(", "number", "bool", "string"},
    "comparator": {"prefix", "("} | _VALUES,
    "logical": {"prefix", "("} | _VALUES,
    "prefix": {"(", "number", "bool"},
    "ternary": {"prefix", "("} | _VALUES,
    "separator": {"prefix", "("} | _VALUES,
}
"""Which kind of token may come after which."""
_SYMBOL_ENDS = re.compile(r"[^\W_]|[()\[\]'\"\s]")
_LAYOUTS = (
    "Mon Jan _2 15:04:05 2006",
    "Mon Jan _2 15:04:05 MST 2006",
    "Mon Jan 02 15:04:05 -0700 2006",
    "3:04PM",
    "2006-01-02T15:04:05Z07:00",
    "2006-01-02",
    "2006-01-02 15:04",
    "2006-01-02 15:04:05",
    "2006-01-02 15:04:05-07:00",
    "2006-01-02T15Z0700",
    "2006-01-02T15:04Z0700",
    "2006-01-02T15:04:05Z0700",
)


@dataclass(slots=True)
class Token:
    kind: str
    """A key of `_FOLLOW`."""
    value: Any
    start: int
    end: int
    quoted: bool = False


def time_of(quoted: str) -> float | None:
    """Seconds since 1970, if a quoted text is a date to govaluate."""
    if not quoted[:1].isalnum() or len(quoted) > 60 or not any(char.isdigit() for char in quoted):
        return None
    for layout in _LAYOUTS:
        if (when := times.read(quoted, layout)) is not None:
            return when.timestamp()
    return None


def tokens(written: str) -> list[Token]:
    """Raises ConditionError."""
    if len(written) > MAX_CONDITION:
        raise ConditionError(f"a condition of more than {MAX_CONDITION} characters", 0)
    found: list[Token] = []
    at = 0
    while True:
        while at < len(written) and written[at].isspace():
            at += 1
        if at == len(written):
            return found
        before = found[-1].kind if found else ""
        token = _token(written, at, before)
        if token.kind not in _FOLLOW[before]:
            raise _out_of_place(token, found[-1] if found else None)
        found.append(token)
        at = token.end


def _out_of_place(token: Token, before: Token | None) -> ConditionError:
    what = f"{str(token.value)[:40]!r}"
    hint = "; put the text in quotes" if before is not None and {before.kind, token.kind} & _VALUES else ""
    return ConditionError(f"{what} cannot stand here{hint}", token.start)


def _token(written: str, at: int, before: str) -> Token:
    char = written[at]
    if char.isdecimal() or char == ".":
        return _number(written, at)
    if char in ",()":
        return Token("separator" if char == "," else char, char, at, at + 1)
    if char in "['\"":
        return _quoted(written, at, "]" if char == "[" else "'\"")
    if char.isalpha():
        return _word(written, at)
    end = at
    while end < len(written) and not _SYMBOL_ENDS.match(written, end):
        end += 1
    symbol = written[at:end]
    if symbol in ("-", "!", "~") and "prefix" in _FOLLOW[before]:
        return Token("prefix", symbol, at, end)
    if symbol not in _KINDS:
        raise ConditionError(
            f"{(symbol or char)[:40]!r} is not an operator; put the text around it in quotes", at, symbol
        )
    return Token(_KINDS[symbol], symbol, at, end)


def _number(written: str, at: int) -> Token:
    if match := re.compile(r"0x\s*([0-9a-fA-F]+)").match(written, at):
        if int(match[1], 16) >= 2**64:
            raise ConditionError(f"{match[0][:40]} is too large", at)
        return Token("number", float(int(match[1], 16)), at, match.end())
    match = re.compile(r"[\d.]+").match(written, at)
    assert match is not None
    if not match[0].isascii() or match[0].count(".") > 1 or match[0] == "." or len(match[0]) > 1000:
        raise ConditionError(f"{match[0][:40]!r} is not a number", at)
    return Token("number", float(match[0]), at, match.end())


def _word(written: str, at: int) -> Token:
    word, end = _until(written, at, lambda char: char.isalnum() or char in "_.")
    if word in ("true", "false"):
        return Token("bool", word == "true", at, end)
    if word in ("in", "IN"):
        return Token("comparator", "in", at, end)
    if "." in word:
        raise ConditionError(f"{word[:40]!r} has a dot in it; put it in quotes", at)
    return Token("string", word, at, end)


def _quoted(written: str, at: int, closing: str) -> Token:
    inner, end = _until(written, at + 1, lambda char: char not in closing, spaces=True)
    if end >= len(written):
        raise ConditionError("this text has no end", at)
    when = time_of(inner) if closing != "]" else None
    if when is not None:
        return Token("time", when, at, end + 1, quoted=True)
    return Token("string", inner, at, end + 1, quoted=True)


def _until(written: str, at: int, good: Callable[[str], bool], spaces: bool = False) -> tuple[str, int]:
    """The characters up to the first that is not accepted; a backslash escapes any character."""
    out = []
    while at < len(written):
        char = written[at]
        if char == "\\":
            if at + 1 == len(written):
                raise ConditionError("a backslash at the end", at)
            out.append(written[at + 1])
            at += 2
            continue
        if not good(char) or (char.isspace() and not spaces):
            break
        out.append(char)
        at += 1
    return "".join(out), at


# -- parsing ----------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def parse(written: str) -> Tree:
    """Raises ConditionError."""
    parser = _Parser(tokens(written), len(written))
    if not parser.left:
        raise ConditionError("the condition is empty", 0)
    tree = parser.infix()
    if parser.at < len(parser.left):
        raise ConditionError("this comes after the end of the condition", parser.left[parser.at].start)
    return tree


class _Parser:
    def __init__(self, left: list[Token], end: int) -> None:
        self.left = left
        self.at = 0
        self.end = end
        self.depth = 0

    def peek(self) -> Token | None:
        return self.left[self.at] if self.at < len(self.left) else None

    def infix(self) -> Tree:
        """All levels in one stack frame; operators of one level associate to the left."""
        operands, operators = [self.operand()], list[str]()
        while True:
            token = self.peek()
            own = -1
            if token is not None and token.kind in ("separator", "ternary", "logical", "comparator", "modifier"):
                own = _LEVEL[token.value]
            while operators and _LEVEL[operators[-1]] >= own:
                right = operands.pop()
                operands.append(Infix(operators.pop(), operands.pop(), right))
            if token is None or own < 0:
                return operands[0]
            self.at += 1
            operators.append(token.value)
            operands.append(self.operand())

    def operand(self) -> Tree:
        token = self.peek()
        if token is None:
            raise ConditionError("the condition ends too early", self.end)
        self.at += 1
        match token.kind:
            case "prefix":
                return Prefix(token.value, self.operand())
            case "(":
                self.depth += 1
                if self.depth > MAX_NESTING:
                    raise ConditionError(f"brackets nested deeper than {MAX_NESTING}", token.start)
                inner = self.infix()
                closing = self.peek()
                if closing is None or closing.kind != ")":
                    raise ConditionError("'(' without ')'", token.start)
                self.at += 1
                self.depth -= 1
                return Parenthesized(inner)
            case "number" | "bool" | "string" | "time":
                return Operand(token.value, token.quoted, token.start)
        raise ConditionError(f"{str(token.value)[:40]!r} cannot stand here", token.start)


# -- values -----------------------------------------------------------------------------------------------------------


def holds(run: Meter, written: str) -> bool:
    """Is the condition true? An empty one is. Raises EvaluationError."""
    if not written:
        return True
    run.spend(len(written) // 4 + 1)
    value = _value(run, parse(written))
    if not isinstance(value, bool):
        raise EvaluationError(f"{written[:80]!r} is {brief(value)}, neither true nor false")
    return value


def atom(value: Any) -> bool | float | str:
    """A value as it reads alone in a condition: a boolean, a number, or else a text."""
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return float(value)
    word = text(value)
    bare = word.strip()
    if bare in ("true", "false"):
        return bare == "true"
    if len(bare) <= LONGEST and re.fullmatch(r"-?(?:\d+\.?\d*|\.\d+)", bare, re.A):
        return float(bare)
    if re.fullmatch(r"0x[0-9a-fA-F]{1,16}", bare):
        return float(int(bare, 16))
    if re.fullmatch(r"'[^'\"\\]*'|\"[^'\"\\]*\"", bare):
        return bare[1:-1]
    return word


def _value(run: Meter, tree: Tree) -> Any:
    """A list is a tuple: only parentheses with a comma make one."""
    run.spend(1)
    match tree:
        case Operand(value):
            return value
        case Parenthesized(of):
            return _value(run, of)
        case Prefix(op, of):
            return _prefix(op, _value(run, of))
        case Infix(op, left, right):
            first = _value(run, left)
            if (op == "&&" and first is False) or (op == "||" and first is True):
                return first
            if op == "?":
                _want(op, first, bool)
                return _value(run, right) if first else None
            if op in (":", "??"):
                return first if first is not None else _value(run, right)
            return _infix(run, op, first, _value(run, right))


def _want(op: str, value: Any, wanted: type | tuple[type, ...]) -> None:
    if not isinstance(value, wanted) or (wanted is float and isinstance(value, bool)):
        what = {bool: "true or false", float: "a number", str: "a text"}.get(wanted, "something else")  # type: ignore[arg-type]
        raise EvaluationError(f"{op!r} needs {what}, and {brief(value)} is none")


def _prefix(op: str, value: Any) -> Any:
    if op == "!":
        _want(op, value, bool)
        return not value
    _want(op, value, float)
    return -value if op == "-" else float(~_int64(value))


def _infix(run: Meter, op: str, left: Any, right: Any) -> Any:
    if op == ",":
        return (*left, right) if isinstance(left, tuple) else (left, right)
    if op in ("==", "!="):
        return _same(left, right) is (op == "==")
    if op in ("&&", "||"):
        _want(op, left, bool)
        _want(op, right, bool)
        return right
    if op == "in":
        if not isinstance(right, tuple):
            raise EvaluationError(f"'in' needs a list of two or more in brackets, and {brief(right)} is none")
        run.spend(len(right))
        return any(_same(left, one) for one in right if not isinstance(one, tuple))
    if op in ("=~", "!~"):
        _want(op, left, str)
        _want(op, right, str)
        return matches(run, left, right) is (op == "=~")
    if op in ("<", "<=", ">", ">="):
        if not (isinstance(left, str) and isinstance(right, str)):
            _want(op, left, float)
            _want(op, right, float)
        return {"<": left < right, "<=": left <= right, ">": left > right, ">=": left >= right}[op]
    if op == "+" and (isinstance(left, str) or isinstance(right, str)):
        run.spend((len(str(left)) + len(str(right))) // 16)
        return _printed(left) + _printed(right)
    _want(op, left, float)
    _want(op, right, float)
    return _arithmetic(op, left, right)


def _same(left: Any, right: Any) -> bool:
    return type(left) is type(right) and bool(left == right)


def _printed(value: Any) -> str:
    return number(value) if isinstance(value, float) else shown(value)


def _arithmetic(op: str, left: float, right: float) -> float:
    try:
        match op:
            case "+" | "-" | "*":
                return {"+": left + right, "-": left - right, "*": left * right}[op]
            case "/":
                return left / right
            case "%":
                return math.fmod(left, right)
            case "**":
                return math.pow(left, right)
            case "<<":
                return float(_uint64(left) << min(_uint64(right), 64) & (2**64 - 1))
            case ">>":
                return float(_uint64(left) >> min(_uint64(right), 64))
            case _:
                one, other = _int64(left), _int64(right)
                return float({"^": one ^ other, "&": one & other, "|": one | other}[op])
    except EvaluationError:
        raise
    except OverflowError:
        return math.inf
    except (ZeroDivisionError, ValueError):
        return math.nan if op != "/" or left == 0 or left != left else math.copysign(math.inf, left)


def _int64(value: float) -> int:
    if not -(2.0**63) <= value < 2.0**63:
        raise EvaluationError(f"{value} does not fit 64 bits")
    return int(value)


def _uint64(value: float) -> int:
    return _int64(value) % 2**64
