"""Does a text match a regular expression? In linear time. Called by functions, govaluate and jsonpath.

Expressions come from untrusted workflows, and Python's own matcher backtracks: `(a+)+b` on thirty letters takes minutes. This one follows
all alternatives at once, one letter at a time, like RE2, and has RE2's syntax, which Argo and Tekton use. It only answers whether there is a
match: there are no groups.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from penstock.expressions.plain import EvaluationError, Meter

MAX_PATTERN = 1000
MAX_PROGRAM = 5000
"""The most instructions of a program, with counted repeats expanded."""
MAX_REPEAT = 1000
MAX_NESTING = 50

Test = Callable[[str], bool]
"""Is it this character?"""


def matches(run: Meter, text: str, pattern: str) -> bool:
    """Is there a match anywhere in the text? Raises EvaluationError for a malformed pattern, or if the budget is used up."""
    run.spend(len(pattern) // 4 + 1)
    return _search(run, compiled(pattern), text)


@lru_cache(maxsize=256)
def compiled(pattern: str) -> tuple[Instruction, ...]:
    """Raises EvaluationError."""
    if len(pattern) > MAX_PATTERN:
        raise EvaluationError(f"a regular expression of more than {MAX_PATTERN} characters")
    reader = _Reader(pattern)
    tree = reader.alternatives()
    if reader.at < len(pattern):
        raise reader.wrong("')' without '('")
    program = _Program()
    program.emit(tree)
    program.add(Instruction("match"))
    return tuple(program.steps)


# -- matching ---------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Instruction:
    """One instruction. `char`: continue if the letter passes `test`. `both`: continue here and at `to`. `jump`: continue at
    `to`. `at`: continue if the position between two letters passes `place`."""

    op: str
    test: Test | None = None
    to: int = 0
    place: str = ""


def _search(run: Meter, program: tuple[Instruction, ...], text: str) -> bool:
    active: list[int] = []
    before = ""
    for at in range(len(text) + 1):
        after = text[at] if at < len(text) else ""
        waiting, work = _closure(program, [*active, 0], before, after)
        if waiting is None:
            return True
        run.spend(1 + work // 2)
        active = [number + 1 for number in waiting if after and _passes(program[number], after)]
        before = after
    return False


def _passes(step: Instruction, char: str) -> bool:
    assert step.test is not None
    return step.test(char)


def _closure(
    program: tuple[Instruction, ...], starts: list[int], before: str, after: str
) -> tuple[list[int] | None, int]:
    """The `char` instructions that are reachable without reading a letter, None if the end is; and how many were visited."""
    seen = set(starts)
    todo = starts[::-1]
    found = []
    while todo:
        number = todo.pop()
        step = program[number]
        match step.op:
            case "match":
                return None, len(seen)
            case "char":
                found.append(number)
                continue
            case "jump":
                following = [step.to]
            case "both":
                following = [number + 1, step.to]
            case _:
                following = [number + 1] if _PLACES[step.place](before, after) else []
        for number in following:
            if number not in seen:
                seen.add(number)
                todo.append(number)
    return found, len(seen)


def _wordy(char: str) -> bool:
    return char.isascii() and (char.isalnum() or char == "_") if char else False


_PLACES: dict[str, Callable[[str, str], bool]] = {
    "text begins": lambda before, after: not before,
    "text ends": lambda before, after: not after,
    "line begins": lambda before, after: before in ("", "\n"),
    "line ends": lambda before, after: after in ("", "\n"),
    "edge of a word": lambda before, after: _wordy(before) != _wordy(after),
    "no edge": lambda before, after: _wordy(before) == _wordy(after),
}


# -- the tree, and instructions from it -------------------------------------------------------------------------------


@dataclass(slots=True)
class _Char:
    test: Test


@dataclass(slots=True)
class _Place:
    name: str


@dataclass(slots=True)
class _Row:
    parts: list[_Tree]


@dataclass(slots=True)
class _Either:
    options: list[_Tree]


@dataclass(slots=True)
class _Repeat:
    of: _Tree
    low: int
    high: int | None


_Tree = _Char | _Place | _Row | _Either | _Repeat


class _Program:
    def __init__(self) -> None:
        self.steps: list[Instruction] = []
        self.visits = 0

    def add(self, step: Instruction) -> Instruction:
        self.steps.append(step)
        return step

    def emit(self, tree: _Tree) -> None:
        self.visits += 1
        if max(self.visits, len(self.steps)) > MAX_PROGRAM:
            raise EvaluationError("the regular expression repeats too much")
        match tree:
            case _Char(test):
                self.add(Instruction("char", test))
            case _Place(name):
                self.add(Instruction("at", place=name))
            case _Row(parts):
                for part in parts:
                    self.emit(part)
            case _Either(options):
                self.either(options)
            case _Repeat(of, low, high):
                self.repeat(of, low, high)

    def either(self, options: list[_Tree]) -> None:
        ends = []
        for option in options[:-1]:
            fork = self.add(Instruction("both"))
            self.emit(option)
            ends.append(self.add(Instruction("jump")))
            fork.to = len(self.steps)
        self.emit(options[-1])
        for end in ends:
            end.to = len(self.steps)

    def repeat(self, of: _Tree, low: int, high: int | None) -> None:
        for _ in range(low):
            self.emit(of)
        if high is None:
            fork = self.add(Instruction("both"))
            again = len(self.steps) - 1
            self.emit(of)
            self.add(Instruction("jump", to=again))
            fork.to = len(self.steps)
            return
        forks = []
        for _ in range(high - low):
            forks.append(self.add(Instruction("both")))
            self.emit(of)
        for fork in forks:
            fork.to = len(self.steps)


# -- reading ----------------------------------------------------------------------------------------------------------

_SIGNS = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "f": "\f", "v": "\v"}
_POSIX: dict[str, Test] = {
    "alnum": str.isalnum,
    "alpha": str.isalpha,
    "ascii": lambda char: True,
    "blank": lambda char: char in " \t",
    "cntrl": lambda char: char < " " or char == "\x7f",
    "digit": str.isdigit,
    "graph": lambda char: "!" <= char <= "~",
    "lower": str.islower,
    "print": lambda char: " " <= char <= "~",
    "punct": lambda char: "!" <= char <= "~" and not char.isalnum(),
    "space": lambda char: char in " \t\n\r\f\v",
    "upper": str.isupper,
    "word": _wordy,
    "xdigit": lambda char: char in "0123456789abcdefABCDEF",
}


def _ascii(test: Test) -> Test:
    return lambda char: char.isascii() and test(char)


def _negated(test: Test) -> Test:
    return lambda char: not test(char)


_CLASSES: dict[str, Test] = {
    "d": _ascii(str.isdigit),
    "w": _wordy,
    "s": lambda char: char in " \t\n\r\f",
}
_CLASSES |= {name.upper(): _negated(test) for name, test in _CLASSES.items()}


def _same(wanted: str, folded: bool) -> Test:
    if not folded:
        return lambda char: char == wanted
    forms = {wanted, wanted.lower(), wanted.upper()}
    return lambda char: char in forms or char.lower() in forms


def _forms(char: str, folded: bool) -> tuple[str, ...]:
    """The character; in both cases if case is ignored."""
    return tuple(form for form in (char, char.lower(), char.upper()) if len(form) == 1) if folded else (char,)


class _Reader:
    """A pattern, read from left to right."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.at = 0
        self.depth = 0
        self.folded = self.lines = self.dots = False

    def wrong(self, why: str) -> EvaluationError:
        return EvaluationError(f"{self.pattern[:80]!r} is not a regular expression: {why}")

    def take(self, text: str) -> bool:
        if self.pattern.startswith(text, self.at):
            self.at += len(text)
            return True
        return False

    def next(self) -> str:
        if self.at >= len(self.pattern):
            raise self.wrong("it ends too early")
        self.at += 1
        return self.pattern[self.at - 1]

    def alternatives(self) -> _Tree:
        self.depth += 1
        if self.depth > MAX_NESTING:
            raise self.wrong(f"nested deeper than {MAX_NESTING}")
        kept = (self.folded, self.lines, self.dots)
        options = [self.row()]
        while self.take("|"):
            options.append(self.row())
        self.folded, self.lines, self.dots = kept
        self.depth -= 1
        return options[0] if len(options) == 1 else _Either(options)

    def row(self) -> _Tree:
        parts: list[_Tree] = []
        while self.at < len(self.pattern) and self.pattern[self.at] not in "|)":
            atoms = self.quoted() if self.take("\\Q") else [self.atom()]
            parts += [atom for atom in atoms[:-1] if atom is not None]
            part = self.repeated(atoms[-1] if atoms else None)
            if part is not None:
                parts.append(part)
        return parts[0] if len(parts) == 1 else _Row(parts)

    def quoted(self) -> list[_Tree | None]:
        """The characters up to `\\E`, taken literally. A repeat after them applies to the last."""
        end = self.pattern.find("\\E", self.at)
        end = len(self.pattern) if end < 0 else end
        inner, self.at = self.pattern[self.at : end], min(end + 2, len(self.pattern))
        return [_Char(_same(one, self.folded)) for one in inner]

    def repeated(self, part: _Tree | None) -> _Tree | None:
        times = self.times()
        if times is None:
            return part
        if part is None:
            raise self.wrong("nothing to repeat")
        self.take("?")  # non-greedy: the answer is the same
        if self.times() is not None:
            raise self.wrong("a repeat of a repeat")
        return _Repeat(part, *times)

    def times(self) -> tuple[int, int | None] | None:
        for sign, times in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self.take(sign):
                return times
        end = self.pattern.find("}", self.at)
        if not self.pattern.startswith("{", self.at) or end < 0:
            return None
        low, comma, high = self.pattern[self.at + 1 : end].partition(",")
        if not (low.isascii() and low.isdigit()) or not (high == "" or (high.isascii() and high.isdigit())):
            return None  # a literal brace
        self.at = end + 1
        first = int(low[:9])
        last = (int(high[:9]) if high else None) if comma else first
        if max(first, last or 0) > MAX_REPEAT or (last is not None and last < first):
            raise self.wrong(f"repeats go from few to many, and to {MAX_REPEAT}")
        return first, last

    def atom(self) -> _Tree | None:
        if self.times() is not None:
            raise self.wrong("nothing to repeat")
        char = self.next()
        match char:
            case "(":
                return self.group()
            case "[":
                return _Char(self.char_class())
            case ".":
                return _Char((lambda char: True) if self.dots else (lambda char: char != "\n"))
            case "^":
                return _Place("line begins" if self.lines else "text begins")
            case "$":
                return _Place("line ends" if self.lines else "text ends")
            case "\\":
                return self.escape()
        return _Char(_same(char, self.folded))

    def group(self) -> _Tree | None:
        if self.take("?"):
            if self.take("P<") or (self.pattern[self.at : self.at + 2] not in ("<=", "<!") and self.take("<")):
                self.name()
            elif not self.take(":"):
                return self.flags()
        tree = self.alternatives()
        if not self.take(")"):
            raise self.wrong("'(' without ')'")
        return tree

    def name(self) -> None:
        end = self.pattern.find(">", self.at)
        if end < 0 or not self.pattern[self.at : end].isidentifier():
            raise self.wrong("a group has no name")
        self.at = end + 1

    def flags(self) -> _Tree | None:
        wanted, kept = True, (self.folded, self.lines, self.dots)
        while True:
            char = self.next()
            match char:
                case "i":
                    self.folded = wanted
                case "m":
                    self.lines = wanted
                case "s":
                    self.dots = wanted
                case "U":
                    pass
                case "-" if wanted:
                    wanted = False
                case ")":
                    return None
                case ":":
                    tree = self.alternatives()
                    self.folded, self.lines, self.dots = kept
                    if not self.take(")"):
                        raise self.wrong("'(' without ')'")
                    return tree
                case _:
                    raise self.wrong(
                        "looking ahead or back is not possible" if char in "=!<" else f"(?{char} is unknown"
                    )

    def escape(self) -> _Tree:
        char = self.next()
        places = {"A": "text begins", "z": "text ends", "b": "edge of a word", "B": "no edge"}
        if char in places:
            return _Place(places[char])
        if char in _CLASSES:
            return _Char(_CLASSES[char])
        if char in "pP":
            return _Char(self.category(char == "P"))
        return _Char(_same(self.letter(char), self.folded))

    def letter(self, char: str) -> str:
        """The character that `\\char` denotes."""
        if char in _SIGNS:
            return _SIGNS[char]
        if char == "x":
            digits = self.braced() if self.take("{") else self.next() + self.next()
            if (
                not 1 <= len(digits) <= 6
                or not set(digits) <= set("0123456789abcdefABCDEF")
                or int(digits, 16) > 0x10FFFF
            ):
                raise self.wrong(f"\\x{digits[:8]} is no character")
            return chr(int(digits, 16))
        if char in "01234567":
            digits = char
            while len(digits) < 3 and self.at < len(self.pattern) and self.pattern[self.at] in "01234567":
                digits += self.next()
            if char != "0" and len(digits) < 2:
                raise self.wrong("what a group has matched cannot be asked for again")
            return chr(int(digits, 8))
        if char.isascii() and char.isalnum():
            raise self.wrong(f"\\{char} has no meaning")
        return char

    def braced(self) -> str:
        end = self.pattern.find("}", self.at)
        if end < 0:
            raise self.wrong("'{' without '}'")
        inner, self.at = self.pattern[self.at : end], end + 1
        return inner

    def category(self, negated: bool) -> Test:
        name = self.next()
        if name == "{":
            name = self.braced()
            if name.startswith("^"):
                name, negated = name[1:], not negated
        if name not in _CATEGORIES:
            raise self.wrong(f"\\p{{{name[:20]}}} is unknown")
        folded = self.folded
        return lambda char: (
            any(unicodedata.category(form).startswith(name) for form in _forms(char, folded)) is not negated
        )

    def char_class(self) -> Test:
        negated = self.take("^")
        tests: list[Test] = []
        first = True
        while first or not self.take("]"):
            first = False
            if self.at >= len(self.pattern):
                raise self.wrong("'[' without ']'")
            tests.append(self.class_item())
        folded = self.folded

        def test(char: str) -> bool:
            return any(one(form) for form in _forms(char, folded) for one in tests) is not negated

        return test

    def class_item(self) -> Test:
        if self.take("[:"):
            end = self.pattern.find(":]", self.at)
            name = self.pattern[self.at : end] if end >= 0 else ""
            if name.lstrip("^") not in _POSIX:
                raise self.wrong(f"[:{name[:20]}:] is unknown")
            self.at = end + 2
            test = _ascii(_POSIX[name.lstrip("^")])
            return _negated(test) if name.startswith("^") else test
        low = self.class_letter()
        if not isinstance(low, str):
            return low
        if self.pattern.startswith("-", self.at) and not self.pattern.startswith("-]", self.at):
            self.at += 1
            high = self.class_letter()
            if not isinstance(high, str) or high < low:
                raise self.wrong("a range goes from a lower to a higher character")
            return lambda char: low <= char <= high
        return lambda char: char == low

    def class_letter(self) -> str | Test:
        char = self.next()
        if char != "\\":
            return char
        char = self.next()
        if char in _CLASSES:
            return _CLASSES[char]
        return self.category(char == "P") if char in "pP" else self.letter(char)


_CATEGORIES = frozenset(
    "L Lu Ll Lt Lm Lo M Mn Mc Me N Nd Nl No P Pc Pd Ps Pe Pi Pf Po S Sm Sc Sk So Z Zs Zl Zp C Cc Cf Co".split()
)
