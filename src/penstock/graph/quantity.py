"""Kubernetes quantities: `500m`, `4Gi`, `1e3`. Exact, compared and added as integers of a thousandth.

Called by every package that reads, adds or shows amounts. Kubernetes schedules by thousandths; like Kubernetes, anything finer is
rounded up.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache
from typing import Final

PLAIN_RESOURCES: Final = ("cpu", "memory", "ephemeral-storage", "storage", "pods")
RESOURCE_NAME: Final = re.compile(
    r"(?:cpu|memory|ephemeral-storage|storage|pods|hugepages-[0-9]+[KMG]i"
    r"|[a-z0-9](?:[-.a-z0-9]{0,251}[a-z0-9])?/[A-Za-z0-9](?:[-._A-Za-z0-9]{0,61}[A-Za-z0-9])?)\Z",
    re.A,
)
"""As in Kubernetes: a few plain names, and any name with a domain."""
_SUFFIX: dict[str, Fraction] = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": Fraction(1),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "P": Fraction(10**15),
    "E": Fraction(10**18),
    "Ki": Fraction(2**10),
    "Mi": Fraction(2**20),
    "Gi": Fraction(2**30),
    "Ti": Fraction(2**40),
    "Pi": Fraction(2**50),
    "Ei": Fraction(2**60),
}
_QUANTITY = re.compile(
    r"([+-]?)(\d{1,30}(?:\.\d{0,30})?|\.\d{1,30})(?:([numkMGTPE]|[KMGTPE]i)|[eE]([+-]?\d{1,2}))?\Z", re.A
)
_BINARY = ("Ei", "Pi", "Ti", "Gi", "Mi", "Ki")
_BYTES = re.compile(r"memory|storage|hugepages")
LARGEST = (2**63 - 1) * 1000
"""Kubernetes keeps quantities in 64 bits. Anything above is a mistake."""


@lru_cache(maxsize=4096, typed=True)
def parse(text: str | int | float) -> int:
    """The amount in thousandths. Raises ValueError with the reason if `text` is not a quantity."""
    if isinstance(text, int) and not isinstance(text, bool):
        thousandths = text * 1000
    else:
        thousandths = milli(exact(text))
    if thousandths > LARGEST:
        raise ValueError(f"{repr(text) if isinstance(text, str | float) else 'this'} is larger than any machine")
    return thousandths


def milli(value: Fraction) -> int:
    """In thousandths, rounded away from zero."""
    found = -(-abs(value.numerator) * 1000 // value.denominator)
    return -found if value.numerator < 0 else found


@lru_cache(maxsize=4096, typed=True)
def exact(text: str | int | float) -> Fraction:
    """The exact amount. Raises ValueError with the reason if `text` is not a quantity."""
    if isinstance(text, bool):
        raise ValueError(f"{text!r} is not a quantity")
    if isinstance(text, int):
        return Fraction(text)
    spelled = format(text, ".15g") if isinstance(text, float) else text
    match = _QUANTITY.match(spelled)
    if match is None:
        raise ValueError(f"{spelled[:60]!r} is not a quantity such as 2, 500m, 1.5 or 4Gi{_hint(spelled)}")
    sign, number, suffix, exponent = match.groups()
    whole, _, part = number.partition(".")
    value = Fraction(int((whole or "0") + part), 10 ** len(part))
    value *= Fraction(10) ** int(exponent) if exponent else _SUFFIX[suffix or ""]
    return -value if sign == "-" else value


def _hint(text: str) -> str:
    """A hint for GB, gb, gi, mb: people mean Gi and Mi."""
    match = re.fullmatch(r"([\d.]+)\s*([kKmMgGtT])(i?)[bB]?", text.strip())
    if match is None:
        return ""
    letter = match[2].upper()
    return f"; write {match[1]}{letter}i"


def show(milli: int, resource: str = "") -> str:
    """The canonical text: equal amounts give equal texts. Bytes have binary suffixes, other resources have none."""
    if milli < 0:
        return "-" + show(-milli, resource)
    if milli % 1000:
        return f"{milli}m"
    units = milli // 1000
    if units == 0:
        return "0"
    if _BYTES.search(resource):
        for suffix in _BINARY:
            if units % _SUFFIX[suffix].numerator == 0:
                return f"{units // _SUFFIX[suffix].numerator}{suffix}"
        return str(units)
    return str(units)


def short(milli: int, resource: str = "") -> str:
    """For display: at most one decimal, and a unit that fits."""
    if milli % 1000 == 0 and _BYTES.search(resource):
        units = milli // 1000
        for suffix in _BINARY:
            scale = _SUFFIX[suffix].numerator
            if units >= scale:
                return f"{units / scale:.1f}".removesuffix(".0") + suffix
        return str(units)
    if milli % 1000 == 0:
        return f"{milli // 1000:,}"
    return f"{milli / 1000:,.3f}".rstrip("0").rstrip(".") if milli >= 1000 else f"{milli}m"
