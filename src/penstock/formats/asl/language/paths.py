"""`$.orders[?(@.total > 10)].id`: JSONPath as state machines have it. Called by templates, intrinsics, choices and the checks.

The dialect is that of the Jayway library, not RFC 9535: a path that can only meet one place gives the value there or fails; a path with a
wildcard, slice, descent, union or filter gives a list, also of one or none. `$$` begins in the context object, `$name` in a variable.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from penstock.formats.asl.language.failures import RUNTIME, MalformedText, NoMatch, StateFailure
from penstock.formats.asl.language.path_filters import Filter, read_filter
from penstock.formats.asl.language.path_text import Reader
from penstock.formats.asl.language.scope import Budget, Scope

MAX_PATH: Final = 4000
_FUNCTIONS: Final = ("length", "size", "min", "max", "avg", "sum", "keys", "first", "last")


@dataclass(frozen=True, slots=True)
class Key:
    """`.name`, `['name']` or `['a', 'b']`."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class At:
    """`[0]`, `[-1]` or `[0, 2]`."""

    indexes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Slice:
    start: int | None
    stop: int | None
    step: int | None


@dataclass(frozen=True, slots=True)
class Every:
    """`*`."""


@dataclass(frozen=True, slots=True)
class Descent:
    """`..`: the value and everything inside it."""


@dataclass(frozen=True, slots=True)
class Where:
    """`[?(…)]`."""

    test: Filter


@dataclass(frozen=True, slots=True)
class PathFunction:
    """`.length()` at the end of a path."""

    name: str


Part = Key | At | Slice | Every | Descent | Where | PathFunction


@dataclass(frozen=True, slots=True)
class Path:
    """A path that was read. `root`: "$", "$$" or the name of a variable."""

    text: str
    root: str
    parts: tuple[Part, ...]

    @property
    def definite(self) -> bool:
        """Can it meet one place only?"""
        return all(
            isinstance(part, PathFunction)
            or (isinstance(part, Key) and len(part.names) == 1)
            or (isinstance(part, At) and len(part.indexes) == 1)
            for part in self.parts
        )

    @property
    def reference(self) -> bool:
        """May it be written to, or tested by a Choice?"""
        return self.definite and not any(isinstance(part, PathFunction) for part in self.parts)


# -- reading ----------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=2048)
def read_path(text: str) -> Path:
    """Raises MalformedText."""
    if len(text) > MAX_PATH:
        raise MalformedText(f"a path of more than {MAX_PATH} characters")
    reader = Reader(text.rstrip())
    reader.expect("$")
    root = "$"
    if reader.take("$"):
        root = "$$"
    elif reader.peek().isidentifier():
        root = reader.name()
    parts = tuple(_parts(reader))
    if not reader.done:
        raise reader.wrong(f"{reader.peek()!r} does not belong there")
    return Path(text, root, parts)


def relative_parts(reader: Reader) -> tuple[Part, ...]:
    """What follows `@` in a filter."""
    return tuple(_parts(reader))


def _parts(reader: Reader) -> Iterator[Part]:
    while not reader.done:
        if reader.take(".."):
            yield Descent()
            if reader.peek() == "[":
                continue
            yield _after_dot(reader)
        elif reader.take("."):
            if reader.peek() == "[":
                continue  # `$.[0]`
            yield _after_dot(reader)
        elif reader.take("["):
            yield _bracket(reader)
        else:
            return


def _after_dot(reader: Reader) -> Part:
    if reader.take("*"):
        return Every()
    name = reader.name()
    if reader.take("()"):
        if name not in _FUNCTIONS:
            raise reader.wrong(f"{name}() is not a function of paths")
        return PathFunction(name)
    return Key((name,))


def _bracket(reader: Reader) -> Part:
    reader.spaces()
    if reader.take("*"):
        return _closed(reader, Every())
    if reader.take("?"):
        reader.spaces()
        reader.expect("(")
        test = read_filter(reader, relative_parts)
        reader.spaces()
        reader.expect(")")
        return _closed(reader, Where(test))
    if reader.peek() in "'\"":
        names = [reader.quoted()]
        reader.spaces()
        while reader.take(","):
            reader.spaces()
            names.append(reader.quoted())
            reader.spaces()
        return _closed(reader, Key(tuple(names)))
    return _closed(reader, _numbers(reader))


def _numbers(reader: Reader) -> Part:
    first = reader.whole()
    reader.spaces()
    if reader.take(":"):
        stop = reader.whole()
        step = reader.whole() if reader.take(":") else None
        return Slice(first, stop, step)
    if first is None:
        raise reader.wrong("a number, a name in quotes, * or ?( belongs behind [")
    found = [first]
    while reader.take(","):
        reader.spaces()
        more = reader.whole()
        if more is None:
            raise reader.wrong("a number belongs behind the comma")
        found.append(more)
        reader.spaces()
    return At(tuple(found))


def _closed(reader: Reader, part: Part) -> Part:
    reader.spaces()
    reader.expect("]")
    return part


# -- evaluating -------------------------------------------------------------------------------------------------------


def follow(path: Path, data: Any, scope: Scope) -> Any:
    """The value of a path. Raises NoMatch, StateFailure."""
    start = data
    if path.root == "$$":
        start = scope.context
    elif path.root != "$":
        if path.root not in scope.variables:
            raise NoMatch(f"there is no variable ${path.root}")
        start = scope.variables[path.root]
    return follow_parts(path.parts, start, data, Budget())


def follow_parts(parts: tuple[Part, ...], start: Any, root: Any, budget: Budget) -> Any:
    """As `follow`, from any place. `root` is what `$` in a filter means."""
    found, single = [start], True
    for number, part in enumerate(parts):
        if isinstance(part, PathFunction):
            found = [_call(part.name, found[0] if single else found)]
            single = True
            continue
        single = _step_is_single(part) and single
        if single:
            found = [_one(part, found[0], parts, number)]
            continue
        met: list[Any] = []
        for value in found:
            for one in _many(part, value, root, budget):
                budget.spend(1)
                met.append(one)
        found = met
    return found[0] if single else found


def _step_is_single(part: Part) -> bool:
    return (isinstance(part, Key) and len(part.names) == 1) or (isinstance(part, At) and len(part.indexes) == 1)


def _one(part: Part, value: Any, parts: tuple[Part, ...], number: int) -> Any:
    if isinstance(part, Key) and isinstance(value, dict) and part.names[0] in value:
        return value[part.names[0]]
    if isinstance(part, At) and isinstance(value, list) and -len(value) <= part.indexes[0] < len(value):
        return value[part.indexes[0]]
    met = "".join(map(_shown, parts[: number + 1]))
    if number + 1 < len(parts):
        raise NoMatch(f"Missing property in path ${met}")
    raise NoMatch(f"No results for path: ${met}")


def _shown(part: Part) -> str:
    if isinstance(part, Key):
        return "[" + ",".join(f"'{name}'" for name in part.names) + "]"
    return "[" + ",".join(map(str, part.indexes)) + "]" if isinstance(part, At) else "[*]"


def _many(part: Part, value: Any, root: Any, budget: Budget) -> Iterator[Any]:
    match part:
        case Key(names):
            if isinstance(value, dict):
                picked = {name: value[name] for name in names if name in value}
                yield from picked.values() if len(names) == 1 else [picked]
        case At(indexes):
            if isinstance(value, list):
                yield from (value[at] for at in indexes if -len(value) <= at < len(value))
        case Slice(start, stop, step):
            if isinstance(value, list) and step != 0:
                yield from value[start:stop:step]
        case Every():
            yield from _inside(value)
        case Descent():
            yield from _below(value)
        case Where(test):
            candidates = _inside(value) if isinstance(value, list) else [value] if isinstance(value, dict) else []
            yield from (one for one in candidates if test.holds(one, root, budget, follow_parts))


def _inside(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def _below(value: Any) -> Iterator[Any]:
    rest = [value]
    while rest:
        one = rest.pop()
        yield one
        rest += reversed([inner for inner in _inside(one) if isinstance(inner, dict | list)])


def _call(name: str, value: Any) -> Any:
    if name in ("length", "size"):
        return len(value) if isinstance(value, dict | list | str) else None
    if name == "keys":
        return list(value) if isinstance(value, dict) else None
    if name in ("first", "last"):
        return value[0 if name == "first" else -1] if isinstance(value, list) and value else None
    numbers = [one for one in _inside(value) if isinstance(one, int | float) and not isinstance(one, bool)]
    if not numbers:
        raise StateFailure(RUNTIME, f"{name}() needs numbers")
    if name == "avg":
        return sum(numbers) / len(numbers)
    return {"min": min, "max": max, "sum": sum}[name](numbers)  # type: ignore[operator]


# -- writing ----------------------------------------------------------------------------------------------------------


def place(path: Path, data: Any, value: Any) -> Any:
    """The data with the value at that place. Objects on the way are made, elements of lists must exist. Raises NoMatch."""
    if path.root == "$$":
        raise NoMatch("the context object cannot be written")
    return _placed(path.parts, data, value)


def _placed(parts: tuple[Part, ...], data: Any, value: Any) -> Any:
    if not parts:
        return value
    part, rest = parts[0], parts[1:]
    if isinstance(part, Key):
        inner = data if isinstance(data, dict) else None
        if inner is None:
            raise NoMatch(f"there is no object to put {part.names[0]!r} into")
        return {**inner, part.names[0]: _placed(rest, inner.get(part.names[0], {}), value)}
    if isinstance(part, At) and isinstance(data, list) and -len(data) <= part.indexes[0] < len(data):
        copied = list(data)
        copied[part.indexes[0]] = _placed(rest, copied[part.indexes[0]], value)
        return copied
    raise NoMatch("there is no such element to write")
