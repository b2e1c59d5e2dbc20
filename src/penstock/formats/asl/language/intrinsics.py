"""`States.Format('{} of {}', $.done, $.all)`: the functions of JSONPath states. Called by templates and the checks."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from penstock.formats.asl.language.failures import INTRINSIC, MalformedText, StateFailure
from penstock.formats.asl.language.path_text import Reader
from penstock.formats.asl.language.paths import Path, follow, read_path
from penstock.formats.asl.language.scope import Scope, SeededChance, same

MAX_CALL: Final = 20_000
MAX_CODED: Final = 10_000
"""The longest text for Base64 and Hash."""
MAX_RANGE: Final = 1000
MAX_NESTING: Final = 10
_SPLIT: Final = "\ue000"
"""Stands for `{}` in the template of Format, so that an escaped brace is none."""
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "/": "/"}
HASHES: Final = {"MD5": "md5", "SHA-1": "sha1", "SHA-256": "sha256", "SHA-384": "sha384", "SHA-512": "sha512"}


@dataclass(frozen=True, slots=True)
class Literal:
    """A text, number, true, false or null. `template`: the text with its `{}` marked."""

    value: Any
    template: str = ""


@dataclass(frozen=True, slots=True)
class IntrinsicCall:
    name: str
    args: tuple[Literal | Path | IntrinsicCall, ...]


# -- reading ----------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=2048)
def read_call(text: str) -> IntrinsicCall:
    """Raises MalformedText."""
    if len(text) > MAX_CALL:
        raise MalformedText(f"a call of more than {MAX_CALL} characters")
    reader = Reader(text)
    call = _call(reader)
    reader.spaces()
    if not reader.done:
        raise reader.wrong(f"{reader.peek()!r} does not belong there")
    return call


def _call(reader: Reader) -> IntrinsicCall:
    reader.expect("States.")
    reader.depth += 1
    if reader.depth > MAX_NESTING:
        raise reader.wrong(f"calls nested deeper than {MAX_NESTING}")
    name = reader.name()
    if name not in FUNCTIONS:
        raise reader.wrong(f"States.{name} is not a function; known are {', '.join(FUNCTIONS)}")
    reader.spaces()
    reader.expect("(")
    args: list[Literal | Path | IntrinsicCall] = []
    reader.spaces()
    while not reader.take(")"):
        if args:
            reader.expect(",")
            reader.spaces()
        args.append(_argument(reader))
        reader.spaces()
    reader.depth -= 1
    least, most, _ = FUNCTIONS[name]
    if not least <= len(args) <= most:
        raise reader.wrong(f"States.{name} takes {least if least == most else f'{least} to {most}'} arguments")
    return IntrinsicCall(name, tuple(args))


def _argument(reader: Reader) -> Literal | Path | IntrinsicCall:
    letter = reader.peek()
    if letter == "$":
        return _path(reader)
    if letter == "'":
        return _text(reader)
    if reader.text.startswith("States.", reader.at):
        return _call(reader)
    number = reader.number()
    if number is not None:
        return Literal(number)
    for word, value in (("true", True), ("false", False), ("null", None)):
        if reader.take(word):
            return Literal(value)
    raise reader.wrong("a path, a text in single quotes, a number or a call is missing")


def _path(reader: Reader) -> Path:
    """Up to the comma or bracket that is not inside the path."""
    start, depth, quote = reader.at, 0, ""
    while not reader.done:
        letter = reader.peek()
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter in "([":
            depth += 1
        elif letter in ")]" and depth:
            depth -= 1
        elif letter in ")," and depth == 0:
            break
        reader.at += 1
    return read_path(reader.text[start : reader.at].rstrip())


def _text(reader: Reader) -> Literal:
    reader.expect("'")
    value: list[str] = []
    template: list[str] = []
    while not reader.done:
        letter = reader.text[reader.at]
        reader.at += 1
        if letter == "'":
            return Literal("".join(value), "".join(template))
        if letter == "\\":
            letter = reader.peek()
            reader.at += 1
            if letter not in "'{}\\" and letter not in _ESCAPES:
                raise reader.wrong(f"\\{letter} is not an escape; known are \\' \\{{ \\}} \\\\")
            letter = _ESCAPES.get(letter, letter)
        elif letter == "{" and reader.peek() == "}":
            reader.at += 1
            value.append("{}")
            template.append(_SPLIT)
            continue
        value.append(letter)
        template.append(letter)
    raise reader.wrong("' is not closed")


# -- calling ----------------------------------------------------------------------------------------------------------


def call(made: IntrinsicCall, data: Any, scope: Scope) -> Any:
    """The value of a call. Raises StateFailure, NoMatch."""
    if made.name == "Format":
        return _format(made, data, scope)
    args = [_value(one, data, scope) for one in made.args]
    return FUNCTIONS[made.name][2](args, scope)


def _value(one: Literal | Path | IntrinsicCall, data: Any, scope: Scope) -> Any:
    if isinstance(one, Literal):
        return one.value
    return follow(one, data, scope) if isinstance(one, Path) else call(one, data, scope)


def _wrong(name: str, message: str) -> StateFailure:
    return StateFailure(INTRINSIC, f"States.{name}: {message}")


def _format(made: IntrinsicCall, data: Any, scope: Scope) -> str:
    first = made.args[0]
    template = first.template if isinstance(first, Literal) else _value(first, data, scope)
    if not isinstance(template, str):
        raise _wrong("Format", "the first argument must be text")
    parts = template.split(_SPLIT if isinstance(first, Literal) else "{}")
    values = [_value(one, data, scope) for one in made.args[1:]]
    if len(parts) - 1 != len(values):
        raise _wrong("Format", f"{len(parts) - 1} places for {len(values)} values")
    found = [parts[0]]
    for value, part in zip(values, parts[1:], strict=True):
        found += [value if isinstance(value, str) else compact(value), part]
    return "".join(found)


def compact(value: Any) -> str:
    """JSON without spaces."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _list(name: str, value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise _wrong(name, "the first argument must be an array")
    return value


def _whole(name: str, value: Any) -> int:
    """A number, rounded to a whole one."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value or abs(value) > 2**63:
        raise _wrong(name, "a number is needed")
    return value if isinstance(value, int) else math.floor(value + 0.5)


def _string(name: str, value: Any, longest: int | None = None) -> str:
    if not isinstance(value, str):
        raise _wrong(name, "a text is needed")
    if longest is not None and len(value) > longest:
        raise _wrong(name, f"a text of more than {longest} characters")
    return value


def _string_to_json(args: Sequence[Any], scope: Scope) -> Any:
    try:
        return json.loads(_string("StringToJson", args[0]) or "null", parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise _wrong("StringToJson", "the text is not JSON") from None


def _no_constant(name: str) -> None:
    raise ValueError(name)


def _partition(args: Sequence[Any], scope: Scope) -> list[Any]:
    items, size = _list("ArrayPartition", args[0]), _whole("ArrayPartition", args[1])
    if size < 1:
        raise _wrong("ArrayPartition", "the size must be at least 1")
    return [items[at : at + size] for at in range(0, len(items), size)]


def _range(args: Sequence[Any], scope: Scope) -> list[int]:
    first, last, step = (_whole("ArrayRange", one) for one in args)
    if step == 0:
        raise _wrong("ArrayRange", "the step must not be 0")
    found = range(first, last + (1 if step > 0 else -1), step)
    if len(found) > MAX_RANGE:
        raise _wrong("ArrayRange", f"more than {MAX_RANGE} elements")
    return list(found)


def _get_item(args: Sequence[Any], scope: Scope) -> Any:
    items, at = _list("ArrayGetItem", args[0]), _whole("ArrayGetItem", args[1])
    if not 0 <= at < len(items):
        raise _wrong("ArrayGetItem", f"there is no element {at}")
    return items[at]


def _unique(args: Sequence[Any], scope: Scope) -> list[Any]:
    found: dict[str, Any] = {}
    for one in _list("ArrayUnique", args[0]):
        found.setdefault(json.dumps(one, sort_keys=True), one)
    return list(found.values())


def _encode(args: Sequence[Any], scope: Scope) -> str:
    return base64.b64encode(_string("Base64Encode", args[0], MAX_CODED).encode()).decode()


def _decode(args: Sequence[Any], scope: Scope) -> str:
    try:
        return base64.b64decode(_string("Base64Decode", args[0], MAX_CODED), validate=True).decode()
    except (binascii.Error, ValueError):
        raise _wrong("Base64Decode", "the text is not Base64 of UTF-8") from None


def hashed(value: Any, algorithm: Any) -> str | None:
    """The digest as hexadecimal digits; None for an unknown algorithm."""
    name = HASHES.get(algorithm) if isinstance(algorithm, str) else None
    text = value if isinstance(value, str) else compact(value)
    return None if name is None else hashlib.new(name, text.encode(), usedforsecurity=False).hexdigest()


def _hash(args: Sequence[Any], scope: Scope) -> str:
    if isinstance(args[0], str):
        _string("Hash", args[0], MAX_CODED)
    found = hashed(args[0], args[1])
    if found is None:
        raise _wrong("Hash", f"the algorithm is not one of {', '.join(HASHES)}")
    return found


def _merge(args: Sequence[Any], scope: Scope) -> dict[str, Any]:
    if not isinstance(args[0], dict) or not isinstance(args[1], dict):
        raise _wrong("JsonMerge", "two objects are needed")
    if args[2] is not False:
        raise _wrong("JsonMerge", "the third argument must be false: objects inside objects are not merged")
    return {**args[0], **args[1]}


def _random(args: Sequence[Any], scope: Scope) -> int:
    first, end = _whole("MathRandom", args[0]), _whole("MathRandom", args[1])
    if first >= end:
        raise _wrong("MathRandom", "the first number must be below the second")
    share = scope.chance.random() if len(args) == 2 else SeededChance(str(_whole("MathRandom", args[2]))).random()
    return first + int(share * (end - first))


def _split(args: Sequence[Any], scope: Scope) -> list[str]:
    text, marks = _string("StringSplit", args[0]), _string("StringSplit", args[1])
    found: list[str] = []
    part: list[str] = []
    for letter in text:
        if letter in marks:
            found.append("".join(part))
            part = []
        else:
            part.append(letter)
    return [one for one in (*found, "".join(part)) if one]


FUNCTIONS: Final[dict[str, tuple[int, int, Callable[[Sequence[Any], Scope], Any]]]] = {
    "Format": (1, 100, lambda args, scope: None),
    "StringToJson": (1, 1, _string_to_json),
    "JsonToString": (1, 1, lambda args, scope: compact(args[0])),
    "Array": (0, 1000, lambda args, scope: list(args)),
    "ArrayPartition": (2, 2, _partition),
    "ArrayContains": (2, 2, lambda args, scope: any(same(one, args[1]) for one in _list("ArrayContains", args[0]))),
    "ArrayRange": (3, 3, _range),
    "ArrayGetItem": (2, 2, _get_item),
    "ArrayLength": (1, 1, lambda args, scope: len(_list("ArrayLength", args[0]))),
    "ArrayUnique": (1, 1, _unique),
    "Base64Encode": (1, 1, _encode),
    "Base64Decode": (1, 1, _decode),
    "Hash": (2, 2, _hash),
    "JsonMerge": (3, 3, _merge),
    "MathRandom": (2, 3, _random),
    "MathAdd": (2, 2, lambda args, scope: _whole("MathAdd", args[0]) + _whole("MathAdd", args[1])),
    "StringSplit": (2, 2, _split),
    "UUID": (0, 0, lambda args, scope: scope.chance.uuid()),
}
"""Name -> the fewest and the most arguments, and what it does."""
