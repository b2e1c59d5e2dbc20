"""The deterministic functions of the Go library sprig, as Argo's expressions call them. Called by functions.

In an expression they are named sprig_NAME. Left out: functions that are random or read the environment, the
clock or the network, keys and certificates, and regular expressions that return matches. A bad argument is an error, where sprig would
continue with an empty value or zero. Numbers are the exception: people rely on it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import math
import posixpath
import re
import zlib
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from penstock.expressions import regex
from penstock.expressions.go import text, times
from penstock.expressions.plain import (
    INT_MAX,
    INT_MIN,
    LONGEST,
    EvaluationError,
    Meter,
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
    weigh,
)

# -- arguments --------------------------------------------------------------------------------------------------------


def to_int(value: Any) -> int:
    """As in the Go library cast: what is no number is 0, and a text may have a sign, a base and a fraction."""
    if isinstance(value, str):
        match = re.fullmatch(r"([+-]?)(0[xX][0-9a-fA-F]+|0[0-7]*|\d+)(?:\.\d*)?", value.strip(), re.A)
        if match is None or len(match[2]) > 40:
            return 0
        base = 16 if match[2][:2] in ("0x", "0X") else 10
        number = int(match[2], base) * (-1 if match[1] == "-" else 1)
        return number if INT_MIN <= number <= INT_MAX else 0
    if isinstance(value, float):
        return int(value) if INT_MIN < value < INT_MAX else 0
    return int(value) if isinstance(value, int) and INT_MIN <= value <= INT_MAX else 0


def to_float(value: Any) -> float:
    if isinstance(value, str):
        short = len(value) <= LONGEST
        return (
            float(value) if short and re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,4})?", value, re.A) else 0.0
        )
    return float(value) if isinstance(value, int | float) and -1e308 < value < 1e308 else 0.0


def string(run: Meter, value: Any) -> str:
    if isinstance(value, str):
        return value
    run.spend(2 * weigh(value, ranges=True))
    return text.shown(value)


def empty(value: Any) -> bool:
    """Null, false, zero, or of no length."""
    return not value


# -- numbers ----------------------------------------------------------------------------------------------------------


def _folded(compute: Callable[[int, int], int], start: int | None = None) -> Callable[..., int]:
    def function(run: Meter, *values: Any) -> int:
        numbers = list(map(to_int, values)) if start is None else [start, *map(to_int, values)]
        result = numbers[0]
        for number in numbers[1:]:
            result = bounded(compute(result, number))
        return int(bounded(result))

    return function


def _folded_f(compute: Callable[[float, float], float], start: float | None = None) -> Callable[..., float]:
    def function(run: Meter, *values: Any) -> float:
        numbers = list(map(to_float, values)) if start is None else [start, *map(to_float, values)]
        result = numbers[0]
        for number in numbers[1:]:
            try:
                result = compute(result, number)
            except ZeroDivisionError:
                raise EvaluationError("division by zero") from None
        # Sprig counts in decimals, where 0.1 + 0.2 is 0.3.
        return float(f"{result:.15g}")

    return function


def _div(left: int, right: int) -> int:
    if right == 0:
        raise EvaluationError("division by zero")
    return int(abs(left) // abs(right)) * (1 if (left < 0) == (right < 0) else -1)


def _mod(left: int, right: int) -> int:
    return left - _div(left, right) * right


def round_(run: Meter, value: Any, places: Any, up: Any = 0.5) -> float:
    scale = 10.0 ** min(max(as_whole("round", places), -300), 300)
    shifted = to_float(value) * scale
    if not math.isfinite(shifted):
        raise EvaluationError("the number is too large to be rounded")
    broken = shifted - math.trunc(shifted)
    return float((math.ceil(shifted) if broken >= to_float(up) else math.floor(shifted)) / scale)


def until_step(run: Meter, start: Any, stop: Any, step: Any) -> list[int]:
    first, end, by = as_whole("untilStep", start), as_whole("untilStep", stop), as_whole("untilStep", step)
    found = range(first, end, by) if by and (by > 0) is (end >= first) else range(0)
    run.spend(_length(found))
    return list(found)


def _length(found: range) -> int:
    return len(found) if not found or abs(found[-1] - found[0]) < 2**62 else 2**62


def until(run: Meter, count: Any) -> list[int]:
    return until_step(run, 0, count, -1 if as_whole("until", count) < 0 else 1)


def seq(run: Meter, *bounds: Any) -> str:
    numbers = [as_whole("seq", bound) for bound in bounds]
    if not numbers:
        return ""
    start, end = (1, numbers[0]) if len(numbers) == 1 else (numbers[0], numbers[-1])
    step = numbers[1] if len(numbers) == 3 else -1 if end < start else 1
    toward = -1 if end < start else 1
    return " ".join(map(str, until_step(run, start, end + toward, step)))


def to_decimal(run: Meter, value: Any) -> int:
    """From octal digits."""
    digits = string(run, value)
    return int(digits, 8) if re.fullmatch(r"[0-7]{1,20}", digits) else 0


# -- texts ------------------------------------------------------------------------------------------------------------


def _two(name: str, change: Callable[[str, str], Any]) -> Callable[[Meter, Any, Any], Any]:
    """Sprig takes the text as the last argument."""
    return lambda run, other, value: change(paid_text(run, name, value), paid_text(run, name, other))


def _hashed(name: str) -> Callable[[Meter, Any], str]:
    return on_text(f"{name}sum", lambda value: hashlib.new(name, _bytes(value)).hexdigest())


def _bytes(value: str) -> bytes:
    return value.encode(errors="replace")


def _decoded(name: str, decode: Callable[[str], bytes]) -> Callable[[Meter, Any], str]:
    def function(run: Meter, value: Any) -> str:
        try:
            return decode(paid_text(run, name, value)).decode()
        except (binascii.Error, ValueError):
            raise EvaluationError(f"{name}() cannot decode {brief(value)}") from None

    return function


def stripped(run: Meter, value: str, chars: str) -> str:
    """Without these characters at both ends. Each is looked up among all of them."""
    few = "".join(set(chars))
    run.spend(len(chars) + len(value) * len(few) // 256)
    return value.strip(few)


def _title(value: str) -> str:
    return re.sub(r"(?<![\w'])\w", lambda match: match[0].upper(), value)


def _words(value: str) -> list[str]:
    """`fooBar-baz` is three words."""
    spaced = re.sub(r"([a-z0-9])([A-Z])|([A-Z])([A-Z][a-z])", lambda m: f"{m[1] or m[3]} {m[2] or m[4]}", value)
    return [word for word in re.split(r"[\s_.:/-]+", spaced) if word]


def _trim_all(run: Meter, chars: Any, value: Any) -> str:
    return stripped(run, paid_text(run, "trimAll", value), as_text("trimAll", chars))


def repeat(run: Meter, count: Any, value: Any) -> str:
    whole, number = as_text("repeat", value), as_whole("repeat", count)
    if number < 0:
        raise EvaluationError("repeat() takes a number from 0 on")
    run.spend(len(whole) * number // 16 + 1)
    return whole * number


def substr(run: Meter, start: Any, end: Any, value: Any) -> str:
    whole, first, stop = paid_text(run, "substr", value), as_whole("substr", start), as_whole("substr", end)
    if first < 0:
        return whole[: max(stop, 0)]
    return whole[first:] if stop < 0 else whole[first:stop]


def trunc(run: Meter, count: Any, value: Any) -> str:
    whole, number = paid_text(run, "trunc", value), as_whole("trunc", count)
    return whole[:number] if number >= 0 else whole[number:]


def indent(run: Meter, spaces: Any, value: Any) -> str:
    whole, number = as_text("indent", value), as_whole("indent", spaces)
    if number < 0:
        raise EvaluationError("indent() takes a number from 0 on")
    run.spend((len(whole) + number * (whole.count("\n") + 1)) // 16 + 1)
    return " " * number + whole.replace("\n", "\n" + " " * number)


def replace(run: Meter, old: Any, new: Any, value: Any) -> str:
    whole, out, put = paid_text(run, "replace", value), as_text("replace", old), as_text("replace", new)
    run.spend((len(whole) + whole.count(out) * max(len(put) - len(out), 0)) // 16)
    return whole.replace(out, put)


def _joined(run: Meter, parts: list[str], between: str) -> str:
    run.spend((sum(map(len, parts)) + len(between) * len(parts)) // 16 + len(parts))
    return between.join(parts)


def strings(run: Meter, value: Any) -> list[str]:
    if value is None:
        return []
    if not isinstance(value, list | tuple | range):
        return [string(run, value)]
    return [string(run, item) for item in copied(run, "toStrings", value) if item is not None]


def _split(run: Meter, separator: Any, value: Any, most: int = -1) -> list[str]:
    whole, between = paid_text(run, "split", value), as_text("split", separator)
    run.spend(len(whole) if not between else whole.count(between))
    if most == 0:
        return []
    if not between:
        return list(whole) if most < 0 else [*whole[: most - 1], whole[most - 1 :]]
    return whole.split(between, -1 if most < 0 else most - 1)


def _numbered(parts: list[str]) -> dict[str, str]:
    return {f"_{number}": part for number, part in enumerate(parts)}


def sort_alpha(run: Meter, value: Any) -> list[str]:
    return in_order(run, strings(run, value))


# -- choices and JSON -------------------------------------------------------------------------------------------------


def ternary(run: Meter, yes: Any, no: Any, test: Any) -> Any:
    if not isinstance(test, bool):
        raise EvaluationError(f"ternary() takes true or false last, not {kind(test)}")
    return yes if test else no


def to_json(run: Meter, value: Any, spaces: int | None = None) -> str:
    run.spend(weigh(value, ranges=True) * (2 + (spaces or 0)))
    return text.to_json(value, spaces)


def fail(run: Meter, message: Any) -> Any:
    raise EvaluationError(string(run, message)[:200] or "fail() was called")


# -- lists and maps ---------------------------------------------------------------------------------------------------


def _ends(name: str, last: bool) -> Callable[[Meter, Any], Any]:
    def function(run: Meter, value: Any) -> Any:
        items = as_list(name, value)
        return (items[-1] if last else items[0]) if items else None

    return function


def _without(run: Meter, of: Any, *gone: Any) -> list[Any]:
    return [item for item in copied(run, "without", of) if not any(_same(run, item, one) for one in gone)]


def _same(run: Meter, left: Any, right: Any) -> bool:
    """Equal in type too: 1 and 1.0 are different values in Go."""
    return kind(left) == kind(right) and run.equal(left, right)


def uniq(run: Meter, of: Any) -> list[Any]:
    found: list[Any] = []
    for item in copied(run, "uniq", of):
        if not any(_same(run, item, one) for one in found):
            found.append(item)
    return found


def concat(run: Meter, *lists: Any) -> list[Any]:
    return [item for one in lists for item in copied(run, "concat", one)]


def slice_(run: Meter, of: Any, start: Any = 0, end: Any = None) -> Any:
    items = as_list("slice", of)
    first, stop = to_int(start), len(items) if end is None else to_int(end)
    if not 0 <= first <= stop <= len(items):
        raise EvaluationError(f"slice() from {first} to {stop} is outside a list of {len(items)}")
    return copied(run, "slice", items[first:stop])


def chunk(run: Meter, size: Any, of: Any) -> list[Any]:
    number, items = as_whole("chunk", size), copied(run, "chunk", of)
    if number < 1:
        raise EvaluationError("chunk() takes a number from 1 on")
    return [items[at : at + number] for at in range(0, len(items), number)]


def dictionary(run: Meter, *pairs: Any) -> dict[str, Any]:
    padded = [*pairs, ""] if len(pairs) % 2 else list(pairs)
    return {string(run, padded[at]): padded[at + 1] for at in range(0, len(padded), 2)}


def _copy(run: Meter, name: str, value: Any) -> dict[str, Any]:
    found = as_map(name, value)
    run.spend(len(found))
    return dict(found)


def set_(run: Meter, of: Any, key: Any, value: Any) -> dict[str, Any]:
    return {**_copy(run, "set", of), as_text("set", key): value}


def pick(run: Meter, of: Any, *names: Any) -> dict[str, Any]:
    return {name: as_map("pick", of)[name] for name in names if isinstance(name, str) and name in as_map("pick", of)}


def omit(run: Meter, of: Any, *names: Any) -> dict[str, Any]:
    gone = [as_text("omit", name) for name in names]
    return {key: value for key, value in _copy(run, "omit", of).items() if key not in gone}


def merge(run: Meter, *maps: Any) -> dict[str, Any]:
    """The first value that is set wins; nested maps are merged too."""
    result = _copy(run, "merge", maps[0])
    for other in maps[1:]:
        result = _merged(run, result, as_map("merge", other))
    return result


def _merged(run: Meter, first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    run.spend(len(first) + len(second))
    result = dict(first)
    for key, value in second.items():
        own = result.get(key)
        if isinstance(own, Mapping) and isinstance(value, Mapping):
            result[key] = _merged(run, own, value)
        elif empty(own):
            result[key] = value
    return result


def dig(run: Meter, *args: Any) -> Any:
    *names, otherwise, value = args
    for name in names:
        found = as_map("dig", value)
        if as_text("dig", name) not in found:
            return otherwise
        value = found[name]
    return value


def keys(run: Meter, *maps: Any) -> list[str]:
    return [key for one in maps for key in in_order(run, _copy(run, "keys", one))]


_KINDS = {
    "null": "invalid",
    "a bool": "bool",
    "an int": "int",
    "a double": "float64",
    "a string": "string",
    "a list": "slice",
}


def kind_of(value: Any) -> str:
    return _KINDS.get(kind(value), "map")


# -- paths, times, versions -------------------------------------------------------------------------------------------


def _clean(value: str) -> str:
    found = posixpath.normpath(value) if value else "."
    return found[1:] if found.startswith("//") else found


def _base(value: str) -> str:
    return posixpath.basename(value.rstrip("/")) or ("/" if value else ".")


def _dir(value: str) -> str:
    return _clean(value[: value.rfind("/") + 1]) if "/" in value else "."


def _ext(value: str) -> str:
    name = value.rpartition("/")[2]
    return name[name.rfind(".") :] if "." in name else ""


def date(run: Meter, layout: Any, when: Any, zone: Any = "UTC") -> str:
    return times.written(times.in_zone(times.moment(when), brief_text("date", zone)), brief_text("date", layout))


def date_modify(run: Meter, by: Any, when: Any) -> str:
    try:
        return times.timestamp(times.moment(when) + timedelta(seconds=times.seconds(brief_text("dateModify", by))))
    except OverflowError:
        raise EvaluationError("the moment is too far away") from None


def to_date(run: Meter, layout: Any, written: Any) -> str:
    found = times.read(brief_text("toDate", written), brief_text("toDate", layout))
    if found is None:
        raise EvaluationError(f"{brief(written)} is not a date in the layout {brief(layout)}")
    return times.timestamp(found)


def duration_round(run: Meter, value: Any) -> str:
    total = abs(times.seconds(brief_text("durationRound", value)) if isinstance(value, str) else to_float(value) / 1e9)
    for unit, size in (("y", 365 * 86400), ("mo", 30 * 86400), ("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        if total > size:
            return f"{int(total // size)}{unit}"
    return "0s"


_VERSION = re.compile(
    r"v?(\d{1,9})(?:\.(\d{1,9}|[xX*]))?(?:\.(\d{1,9}|[xX*]))?(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?", re.A
)


def semver_compare(run: Meter, constraint: Any, version: Any) -> bool:
    """`>=1.2, <2`, `^1.2`, `~1.2.3`, `1.x`; alternatives with `||`."""
    wanted, given = brief_text("semverCompare", constraint), _version(brief_text("semverCompare", version))
    return any(
        all(_satisfies(given, part) for part in re.findall(r"[^\s,]+", re.sub(r"([<>=!~^]+)\s+", r"\1", option)))
        for option in wanted.split("||")
    )


Version = tuple[int, int, int, bool, tuple[tuple[int, int, str], ...]]


def _version(written: str) -> Version:
    match = _VERSION.fullmatch(written.strip())
    if match is None:
        raise EvaluationError(f"{brief(written)} is not a version")
    numbers = [int(part) if part and part.isdigit() else 0 for part in match.groups()[:3]]
    before = tuple(
        (0, int(one), "") if one.isdigit() and len(one) < 10 else (1, 0, one)
        for one in (match[4] or "").split(".")
        if one
    )
    return numbers[0], numbers[1], numbers[2], not before, before


def _satisfies(given: Version, written: str) -> bool:
    match = re.fullmatch(r"(=|==|!=|>=|<=|=>|=<|>|<|\^|~|~>)?(.+)", written)
    if match is None or written in ("*", "x", "X"):
        return written in ("*", "x", "X")
    op, body = match[1] or "=", match[2]
    wanted = _version(body)
    named = sum(part is not None and part.isdigit() for part in _VERSION.fullmatch(body.strip()).groups()[:3])  # type: ignore[union-attr]
    if not given[3] and wanted[3]:
        return False  # a pre-release matches only if the constraint names one
    if op in ("=", "==") and named < 3:
        return given[:named] == wanted[:named]
    if op in ("~", "~>"):
        return given >= wanted and given[: min(named, 2)] == wanted[: min(named, 2)]
    if op == "^":
        fixed = next((at + 1 for at in range(3) if wanted[at]), 3)
        return given >= wanted and given[: min(fixed, named)] == wanted[: min(fixed, named)]
    return {
        "=": given == wanted,
        "==": given == wanted,
        "!=": given != wanted,
        ">": given > wanted,
        "<": given < wanted,
        ">=": given >= wanted,
        "=>": given >= wanted,
        "<=": given <= wanted,
        "=<": given <= wanted,
    }[op]


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "add": _folded(lambda a, b: a + b, 0), "add1": lambda run, value: bounded(to_int(value) + 1), "sub": _folded(lambda a, b: a - b),
    "mul": _folded(lambda a, b: a * b), "div": _folded(_div), "mod": _folded(_mod), "min": _folded(min), "max": _folded(max),
    "biggest": _folded(max), "addf": _folded_f(lambda a, b: a + b, 0.0), "add1f": _folded_f(lambda a, b: a + b, 1.0),
    "subf": _folded_f(lambda a, b: a - b), "mulf": _folded_f(lambda a, b: a * b), "divf": _folded_f(lambda a, b: a / b),
    "minf": _folded_f(min), "maxf": _folded_f(max), "floor": lambda run, value: float(math.floor(to_float(value))),
    "ceil": lambda run, value: float(math.ceil(to_float(value))), "round": round_, "int": lambda run, value: to_int(value),
    "int64": lambda run, value: to_int(value), "float64": lambda run, value: to_float(value),
    "atoi": lambda run, value: to_int(value) if re.fullmatch(r"[+-]?\d+", as_text("atoi", value), re.A) else 0,
    "toDecimal": to_decimal, "until": until, "untilStep": until_step, "seq": seq,
    "trim": on_text("trim", str.strip), "trimAll": _trim_all, "trimall": _trim_all,
    "trimPrefix": _two("trimPrefix", str.removeprefix), "trimSuffix": _two("trimSuffix", str.removesuffix),
    "upper": on_text("upper", str.upper), "lower": on_text("lower", str.lower), "title": on_text("title", _title),
    "untitle": on_text("untitle", lambda value: re.sub(r"(?<!\S)\S", lambda match: match[0].lower(), value)), "repeat": repeat,
    "substr": substr, "trunc": trunc, "nospace": on_text("nospace", lambda value: "".join(value.split())),
    "initials": on_text("initials", lambda value: "".join(word[0] for word in value.split())),
    "contains": _two("contains", lambda value, inner: inner in value), "hasPrefix": _two("hasPrefix", str.startswith),
    "hasSuffix": _two("hasSuffix", str.endswith),
    "quote": lambda run, *values: _joined(run, [text.quoted(string(run, one)) for one in values if one is not None], " "),
    "squote": lambda run, *values: _joined(run, [f"'{string(run, one)}'" for one in values if one is not None], " "),
    "cat": lambda run, *values: _joined(run, [string(run, one) for one in values if one is not None], " "),
    "indent": indent, "nindent": lambda run, spaces, value: "\n" + indent(run, spaces, value), "replace": replace,
    "plural": lambda run, one, many, count: one if as_whole("plural", count) == 1 else many,
    "snakecase": on_text("snakecase", lambda value: "_".join(_words(value)).lower()),
    "kebabcase": on_text("kebabcase", lambda value: "-".join(_words(value)).lower()),
    "camelcase": on_text("camelcase", lambda value: "".join(word[:1].upper() + word[1:] for word in _words(value))),
    "swapcase": on_text("swapcase", str.swapcase), "toString": string, "toStrings": strings,
    "join": lambda run, separator, value: _joined(run, strings(run, value), as_text("join", separator)),
    "split": lambda run, separator, value: _numbered(_split(run, separator, value)),
    "splitn": lambda run, separator, most, value: _numbered(_split(run, separator, value, as_whole("splitn", most))),
    "splitList": lambda run, separator, value: _split(run, separator, value), "sortAlpha": sort_alpha,
    "regexMatch": lambda run, pattern, value: regex.matches(run, as_text("regexMatch", value), as_text("regexMatch", pattern)),
    "sha1sum": _hashed("sha1"), "sha256sum": _hashed("sha256"), "sha512sum": _hashed("sha512"),
    "adler32sum": on_text("adler32sum", lambda value: str(zlib.adler32(_bytes(value)))),
    "b64enc": on_text("b64enc", lambda value: base64.b64encode(_bytes(value)).decode()),
    "b64dec": _decoded("b64dec", lambda value: base64.b64decode(value, validate=True)),
    "b32enc": on_text("b32enc", lambda value: base64.b32encode(_bytes(value)).decode()),
    "b32dec": _decoded("b32dec", base64.b32decode),
    "default": lambda run, otherwise, given=None: otherwise if empty(given) else given, "empty": lambda run, value: empty(value),
    "coalesce": lambda run, *values: next((one for one in values if not empty(one)), None),
    "all": lambda run, *values: not any(map(empty, values)), "any": lambda run, *values: not all(map(empty, values)),
    "ternary": ternary, "compact": lambda run, of: [item for item in copied(run, "compact", of) if not empty(item)],
    "toJson": to_json, "toRawJson": to_json, "toPrettyJson": lambda run, value: to_json(run, value, 2),
    "list": lambda run, *values: list(values), "tuple": lambda run, *values: list(values),
    "append": lambda run, of, item: [*copied(run, "append", of), item], "push": lambda run, of, item: [*copied(run, "push", of), item],
    "prepend": lambda run, of, item: [item, *copied(run, "prepend", of)], "concat": concat, "first": _ends("first", False),
    "last": _ends("last", True), "rest": lambda run, of: copied(run, "rest", of)[1:],
    "initial": lambda run, of: copied(run, "initial", of)[:-1], "reverse": lambda run, of: copied(run, "reverse", of)[::-1],
    "uniq": uniq, "without": _without,
    "has": lambda run, item, of: of is not None and any(_same(run, item, one) for one in copied(run, "has", of)),
    "slice": slice_, "chunk": chunk, "dict": dictionary,
    "get": lambda run, of, key: as_map("get", of).get(as_text("get", key), ""), "set": set_,
    "unset": lambda run, of, key: omit(run, of, key), "hasKey": lambda run, of, key: as_text("hasKey", key) in as_map("hasKey", of),
    "pluck": lambda run, key, *maps: [as_map("pluck", one)[key] for one in maps if as_text("pluck", key) in as_map("pluck", one)],
    "pick": pick, "omit": omit, "keys": keys,
    "values": lambda run, of: [as_map("values", of)[key] for key in keys(run, of)], "merge": merge,
    "mergeOverwrite": lambda run, *maps: merge(run, *reversed(maps)), "dig": dig, "deepEqual": _same,
    "kindOf": lambda run, value: kind_of(value), "kindIs": lambda run, name, value: kind_of(value) == name,
    "base": on_text("base", _base), "dir": on_text("dir", _dir), "clean": on_text("clean", _clean), "ext": on_text("ext", _ext),
    "isAbs": on_text("isAbs", lambda value: value.startswith("/")), "date": date,
    "dateInZone": lambda run, layout, when, zone: date(run, layout, when, zone),
    "htmlDate": lambda run, when: date(run, "2006-01-02", when), "dateModify": date_modify, "toDate": to_date,
    "unixEpoch": lambda run, when: str(int(times.epoch(when))), "duration": lambda run, value: times.duration(float(to_int(value))),
    "durationRound": duration_round, "semverCompare": semver_compare, "fail": fail,
}  # fmt: skip
