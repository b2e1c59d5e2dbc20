"""Numbers and text as Go prints them: `%v`, `%03d`, and JSON. Called by functions, sprig and govaluate.

Argo and Tekton are written in Go, and the output of their expressions ends up in command lines: 10 / 2 is `5` there, not `5.0`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from penstock.expressions.plain import EvaluationError, Spelled, as_lists, brief, kind, weigh

MAX_WIDTH = 4096
_VERB = re.compile(r"%(?P<flags>[-+# 0]*)(?P<width>\d{1,9})?(?:\.(?P<places>\d{0,9}))?(?P<verb>.)", re.S)
_ESCAPES = {
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
    "\\": "\\\\",
    '"': '\\"',
}


def number(value: float, low: int = -4, high: int = 6) -> str:
    """`%v`: the shortest digits that round-trip, with an exponent below 10**low and from 10**high on."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    sign = "-" if math.copysign(1, value) < 0 else ""
    digits, power = _digits(abs(value))
    if not digits:
        return f"{sign}0"
    if not low <= power < high:
        rest = f".{digits[1:]}" if len(digits) > 1 else ""
        return f"{sign}{digits[0]}{rest}e{'-' if power < 0 else '+'}{abs(power):02d}"
    if power < 0:
        return f"{sign}0.{'0' * (-power - 1)}{digits}"
    whole, broken = digits[: power + 1].ljust(power + 1, "0"), digits[power + 1 :]
    return f"{sign}{whole}.{broken}" if broken else f"{sign}{whole}"


def _digits(value: float) -> tuple[str, int]:
    """123.4 -> ("1234", 2): the digits, and the power of ten of the first."""
    mantissa, _, exponent = f"{value!r}".partition("e")
    whole, _, broken = mantissa.partition(".")
    digits = (whole + broken).lstrip("0")
    power = len(whole) - 1 - (len(whole + broken) - len(digits)) + int(exponent or 0)
    return digits.rstrip("0"), power


def shown(value: Any) -> str:
    """`%v`: [1 a] for a list, map[a:1] for a map, <nil> for null."""
    weigh(value, ranges=True)
    return _shown(value)


def _shown(value: Any) -> str:
    match value:
        case None:
            return "<nil>"
        case bool():
            return "true" if value else "false"
        case str():
            return value
        case int():
            return str(value)
        case Spelled():
            return value.written
        case float():
            return number(value)
        case Mapping():
            return f"map[{' '.join(f'{key}:{_shown(value[key])}' for key in sorted(value))}]"
        case list() | tuple() | range():
            return f"[{' '.join(map(_shown, value))}]"
    raise EvaluationError(f"{kind(value)} has no form as text")


def to_json(value: Any, indent: int | None = None) -> str:
    """JSON with sorted keys and whole numbers without a point; a number that is Spelled, as it was written."""
    weigh(value, ranges=True)
    plain = as_lists(value)
    try:
        if indent is None and _has_spelled(plain):
            return _as_spelled(plain)
        return json.dumps(
            _wholes(plain),
            ensure_ascii=False,
            allow_nan=False,
            sort_keys=True,
            indent=indent,
            separators=(",", ": ") if indent else (",", ":"),
        )
    except (TypeError, ValueError):
        raise EvaluationError(f"{kind(value)} has no form as JSON") from None


def _has_spelled(value: Any) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return isinstance(value, Spelled) or any(map(_has_spelled, inner))


def _as_spelled(value: Any) -> str:
    match value:
        case Spelled():
            return value.written
        case list():
            return f"[{','.join(map(_as_spelled, value))}]"
        case dict():
            return f"{{{','.join(f'{json.dumps(key, ensure_ascii=False)}:{_as_spelled(value[key])}' for key in sorted(value))}}}"
    return json.dumps(_wholes(value), ensure_ascii=False, allow_nan=False)


def _wholes(value: Any) -> Any:
    match value:
        case float() if value.is_integer() and abs(value) < 1e21:
            return int(value)
        case list():
            return [_wholes(item) for item in value]
        case dict():
            return {key: _wholes(item) for key, item in value.items()}
    return value


def text(value: Any) -> str:
    """The text that replaces an expression tag: a string as it is, everything else as compact JSON."""
    if isinstance(value, Spelled):
        return value.written
    if isinstance(value, float) and math.isfinite(value):
        return re.sub(r"e-0(\d)\Z", r"e-\1", number(value, -6, 21))
    return value if isinstance(value, str) else to_json(value)


def quoted(value: str) -> str:
    """`%q`"""

    def one(char: str) -> str:
        if char in _ESCAPES:
            return _ESCAPES[char]
        if char.isprintable():
            return char
        code = ord(char)
        return f"\\x{code:02x}" if code < 0x80 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"

    return '"' + "".join(map(one, value)) + '"'


# -- formats ----------------------------------------------------------------------------------------------------------


def sprintf(template: str, args: Sequence[Any]) -> str:
    """Raises EvaluationError where Go would print an error into the text."""
    left = list(args)

    def one(match: re.Match[str]) -> str:
        if match["verb"] == "%":
            return "%"
        if not left:
            raise EvaluationError(f"the format {template[:80]!r} asks for more values than there are")
        return _verb(match, left.pop(0))

    result = _VERB.sub(one, template)
    if left:
        raise EvaluationError(f"the format {template[:80]!r} has no place for {brief(left[0])}")
    if re.search(r"%[-+# 0]*[\d.]*\Z", _VERB.sub("", template)):
        raise EvaluationError(f"the format {template[:80]!r} ends in the middle of a verb")
    return result


def _verb(match: re.Match[str], value: Any) -> str:
    flags, verb = match["flags"], match["verb"]
    width = int(match["width"] or 0)
    places = None if match["places"] is None else int(match["places"] or 0)
    if max(width, places or 0) > MAX_WIDTH:
        raise EvaluationError(f"the format {match[0]!r} is too wide")
    if verb in _OF_INTS:
        body = _of_int(match[0], verb, flags, places, value)
    elif verb in "eEfFgG":
        body = _of_float(match[0], verb, flags, places, value)
    elif verb == "t" and isinstance(value, bool):
        body = "true" if value else "false"
    elif verb in "sv" and (verb == "v" or isinstance(value, str)):
        body = shown(value) if places is None or not isinstance(value, str) else value[:places]
        body = f"+{body}" if "+" in flags and isinstance(value, int | float) and body[0] != "-" else body
    elif verb == "q" and isinstance(value, str):
        body = quoted(value)
    else:
        raise EvaluationError(f"{match[0]!r} is not for {kind(value)}")
    if "-" in flags:
        return body.ljust(width)
    if "0" in flags and body[:1] in "+- " and verb not in "sq":
        return body[:1] + body[1:].rjust(width - 1, "0")
    return body.rjust(width, "0" if "0" in flags else " ")


_OF_INTS: dict[str, Callable[[int], str]] = {
    "d": str,
    "b": lambda n: f"{n:b}",
    "o": lambda n: f"{n:o}",
    "x": lambda n: f"{n:x}",
    "X": lambda n: f"{n:X}",
    "c": chr,
    "U": lambda n: f"U+{n:04X}",
}


def _of_int(written: str, verb: str, flags: str, places: int | None, value: Any) -> str:
    if isinstance(value, str) and verb in "xX":
        digits = ("0x" if "#" in flags and value else "") + value.encode(errors="surrogatepass").hex()
        return digits if verb == "x" else digits.upper()
    if isinstance(value, bool) or not isinstance(value, int):
        raise EvaluationError(f"{written!r} is not for {kind(value)}")
    if verb in "cU":
        if not 0 <= value < 0x110000 or 0xD800 <= value < 0xE000:
            raise EvaluationError(f"{value} is no character")
        return _OF_INTS[verb](value)
    digits = _OF_INTS[verb](abs(value)).rjust(places or 0, "0")
    if "#" in flags:
        digits = {"x": "0x", "X": "0X", "o": "0", "b": "0b"}.get(verb, "") + digits
    return ("-" if value < 0 else "+" if "+" in flags else " " if " " in flags else "") + digits


def _of_float(written: str, verb: str, flags: str, places: int | None, value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, float):
        raise EvaluationError(f"{written!r} is not for {kind(value)}")
    body = (
        number(value) if verb in "gG" and places is None else format(value, f".{6 if places is None else places}{verb}")
    )
    return f"+{body}" if "+" in flags and body[0] != "-" else f" {body}" if " " in flags and body[0] != "-" else body
