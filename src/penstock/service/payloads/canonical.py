"""JSON in one form, as RFC 8785 (JCS) has it: so that the order of keys, spaces and ways to write a number do not change what data is.
Called by identity. Pure.

One thing goes beyond the RFC, which knows only numbers that a double can hold: a whole number that is larger keeps all its digits. As a double,
two of them that differ would be the same.
"""

from __future__ import annotations

import json
import math
from decimal import Decimal
from typing import Any, Final

MOST_DEPTH: Final = 200
_text = json.JSONEncoder(ensure_ascii=False).encode
_SAFE: Final = 1 << 53


class NotCanonical(ValueError):
    """With where and what, as half a sentence."""


def canonical(value: Any) -> str:
    """Raises NotCanonical: it is no JSON data, too deep, or no text in Unicode."""
    out: list[str] = []
    _write(value, out, 0)
    text = "".join(out)
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise NotCanonical("half a character: a lone surrogate") from None
    return text


def _write(value: Any, out: list[str], depth: int) -> None:
    kind = type(value)
    if kind is str:
        out.append(_text(value))
    elif value is None:
        out.append("null")
    elif kind is bool:
        out.append("true" if value else "false")
    elif kind is int or kind is float:
        out.append(number(value))
    elif depth >= MOST_DEPTH:
        raise NotCanonical(f"it is nested deeper than {MOST_DEPTH}")
    elif kind is dict:
        _write_map(value, out, depth + 1)
    elif kind is list or kind is tuple:
        before = "["
        for item in value:
            out.append(before)
            _write(item, out, depth + 1)
            before = ","
        out.append("]" if before == "," else "[]")
    else:
        raise NotCanonical(f"a {kind.__name__} is no data that JSON has")


def _write_map(value: dict[Any, Any], out: list[str], depth: int) -> None:
    if not all(type(key) is str for key in value):
        raise NotCanonical("a key is no text")
    before = "{"
    # Keys are in the order of their UTF-16 code units; that of their characters is the same as long as all are ASCII.
    for key in sorted(value) if "".join(value).isascii() else sorted(value, key=_utf16):
        out.append(before + _text(key) + ":")
        _write(value[key], out, depth)
        before = ","
    out.append("}" if before == "," else "{}")


def _utf16(key: str) -> bytes:
    return key.encode("utf-16-be", "surrogatepass")


def number(value: int | float) -> str:
    """As ECMAScript writes a number. Raises NotCanonical: it is none that has an end."""
    if type(value) is int:
        if -_SAFE <= value <= _SAFE:
            return str(value)
        try:
            near = float(value)
        except OverflowError:
            raise NotCanonical("a number is too large: at most 1.8e308") from None
        if int(Decimal(repr(near))) != value:
            return str(value)
        value = near
    if not math.isfinite(value):
        raise NotCanonical("a number is too large, or none: at most 1.8e308")
    if value == 0:
        return "0"
    return _as_ecmascript(repr(value))


def _as_ecmascript(shortest: str) -> str:
    """Python and ECMAScript find the same digits, and set point and exponent by different rules."""
    sign = "-" if shortest.startswith("-") else ""
    mantissa, _, exponent = shortest.removeprefix("-").partition("e")
    whole, _, fraction = mantissa.partition(".")
    fraction = "" if fraction == "0" else fraction
    point = len(whole) + int(exponent or 0)
    digits = (whole + fraction).lstrip("0")
    point -= len(whole + fraction) - len(digits)
    digits = digits.rstrip("0")
    many = len(digits)
    if many <= point <= 21:
        return sign + digits + "0" * (point - many)
    if 0 < point <= 21:
        return f"{sign}{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    rest = f".{digits[1:]}" if many > 1 else ""
    return f"{sign}{digits[0]}{rest}e{point - 1:+d}"
