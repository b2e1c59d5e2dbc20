"""What Kueue's documents look like: which fields there are, and what each may hold. Called by validate, which adds what no single
field can tell.

A shape is data, and `Walk` holds a document against it. It names every field that is wrong and goes on, so that one reading
finds all mistakes. Of a pod, only what admission looks at is looked into; of the rest only the names of the fields are known.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.admission.times import time_of
from penstock.errors import instead, nearest
from penstock.graph import quantity

INT32: Final = (-(2**31), 2**31 - 1)


# -- formats of text --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Format:
    """A rule for text, and the rule in words."""

    words: str
    fits: Callable[[str], object]
    most: int = 253


_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.A)
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", re.A)
_WORD = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]", re.A)
_KIND = re.compile(r"[A-Za-z]([-A-Za-z0-9]*[A-Za-z0-9])?", re.A)
_REASON = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?", re.A)
_DURATION = re.compile(r"0|(\d{1,12}(\.\d{0,12})?(ms|us|ns|s|m|h))+", re.A)
_PATH = re.compile(r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+", re.A)


def is_label_key(text: str) -> bool:
    prefix, slash, name = text.rpartition("/")
    if slash and not (len(prefix) <= 253 and _SUBDOMAIN.fullmatch(prefix)):
        return False
    return len(name) <= 63 and _WORD.fullmatch(name) is not None


def is_gate(text: str) -> bool:
    """A domain, a slash, a path."""
    domain, slash, path = text.partition("/")
    return bool(slash and _SUBDOMAIN.fullmatch(domain) and _PATH.fullmatch(path))


SUBDOMAIN = Format(
    "lower-case letters, digits, '-' and '.', with a letter or digit at both ends and around each '.'",
    _SUBDOMAIN.fullmatch,
)
LABEL = Format("lower-case letters, digits and '-', with a letter or digit at both ends", _LABEL.fullmatch, 63)
LABEL_KEY = Format(
    "letters, digits, '-', '_' and '.', at most 63 of them, after an optional domain and '/'", is_label_key, 317
)
ANNOTATION_KEY = Format(LABEL_KEY.words, lambda text: is_label_key(text.lower()), 317)
LABEL_VALUE = Format(
    "letters, digits, '-', '_' and '.', with a letter or digit at both ends, or nothing",
    lambda text: not text or _WORD.fullmatch(text),
    63,
)
DURATION = Format("numbers with their units, such as 1h30m or 500ms", _DURATION.fullmatch)
KIND = Format("letters, digits and '-', with a letter first", _KIND.fullmatch, 63)
REASON = Format("letters, digits, '_', ',' and ':', with a letter first", _REASON.fullmatch, 1024)


# -- shapes -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Text:
    format: Format | None = None
    most: int | None = None
    least: int = 0
    words: tuple[str, ...] = ()
    """All that may be written, if only so many things may."""


@dataclass(frozen=True, slots=True)
class Whole:
    least: int = INT32[0]
    most: int = INT32[1]


@dataclass(frozen=True, slots=True)
class Real:
    pass


@dataclass(frozen=True, slots=True)
class Flag:
    pass


@dataclass(frozen=True, slots=True)
class Amount:
    """A quantity. Kueue's own fields take text and whole numbers; Kubernetes' take any number."""

    fractions: bool = False


@dataclass(frozen=True, slots=True)
class Moment:
    pass


@dataclass(frozen=True, slots=True)
class Anything:
    pass


@dataclass(frozen=True, slots=True)
class Items:
    item: Shape
    most: int | None = None
    least: int = 0
    unique: tuple[str, ...] = ()
    """Fields of an item by which no two may be alike. `*`: the item itself."""


@dataclass(frozen=True, slots=True)
class Table:
    value: Shape
    key: Format | None = None
    most: int | None = None


@dataclass(frozen=True, slots=True)
class Fields:
    fields: Mapping[str, Shape]
    needed: tuple[str, ...] = ()
    unread: frozenset[str] = field(default_factory=frozenset)
    """Fields that exist and that nothing here reads."""


Shape = Text | Whole | Real | Flag | Amount | Moment | Anything | Items | Table | Fields

Wrong = Callable[[str, str, str, str], None]
"""code, path, message, fix"""


class Walk:
    """One document against its shape."""

    def __init__(self, wrong: Wrong) -> None:
        self.wrong = wrong

    def check(self, shape: Shape, value: Any, path: str) -> None:
        match shape:
            case Text():
                self.text(shape, value, path)
            case Whole():
                self.whole(shape, value, path)
            case Real():
                if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e300:
                    self.unlike(path, "a number", value, "write a number, without quotes")
            case Flag():
                if not isinstance(value, bool):
                    self.unlike(path, "true or false", value, "write true or false")
            case Amount():
                self.amount(shape, value, path)
            case Moment():
                self.moment(value, path)
            case Items():
                self.items(shape, value, path)
            case Table():
                self.table(shape, value, path)
            case Fields():
                self.fields(shape, value, path)
            case Anything():
                pass

    def unlike(self, path: str, expected: str, value: Any, fix: str) -> None:
        self.wrong("P802", path, f"expected {expected}, found {kind_of(value)}", fix)

    def text(self, shape: Text, value: Any, path: str) -> None:
        if not isinstance(value, str):
            simple = isinstance(value, bool | int | float)
            spelled = str(value).lower() if isinstance(value, bool) else str(value)[:60]
            self.unlike(path, "text", value, f'put it in quotes: "{spelled}"' if simple else "write text")
            return
        if shape.words and value not in shape.words:
            fix = f"write {either(shape.words)}.{nearest(value[:60], shape.words)}"
            self.wrong("P802", path, f"{show(value)} is not one of its values", fix)
        most = shape.most or (shape.format.most if shape.format else None)
        if len(value) < shape.least:
            self.wrong("P802", path, "there is nothing in it", "write something, or leave the field out")
        elif most is not None and len(value) > most:
            self.wrong("P802", path, f"{len(value)} characters are too many", f"write at most {most}")
        elif shape.format is not None and not shape.format.fits(value):
            self.wrong("P802", path, f"{show(value)} is not allowed here", f"use {shape.format.words}")

    def whole(self, shape: Whole, value: Any, path: str) -> None:
        if not isinstance(value, int) or isinstance(value, bool):
            self.unlike(path, "a whole number", value, "write a whole number, without quotes")
        elif value < shape.least:
            self.wrong("P802", path, f"{show(value)} is too small", f"write at least {shape.least}")
        elif value > shape.most:
            self.wrong("P802", path, f"{show(value)} is too large", f"write at most {shape.most}")

    def amount(self, shape: Amount, value: Any, path: str) -> None:
        if isinstance(value, float) and not shape.fractions:
            fix = f'put it in quotes: "{value}"'
            self.wrong("P802", path, f"{value} is a fraction, and only whole numbers go without quotes", fix)
        elif isinstance(value, bool) or not isinstance(value, str | int | float):
            self.unlike(path, "a quantity", value, "write a quantity: 2, 500m, 4Gi")
        else:
            try:
                quantity.exact(value)
            except ValueError as error:
                self.wrong("P802", path, str(error), "write a quantity: 2, 500m, 4Gi")

    def moment(self, value: Any, path: str) -> None:
        try:
            if not isinstance(value, str) or time_of(value) is None:
                raise ValueError
        except (ValueError, OverflowError):
            self.wrong("P802", path, f"{show(value)} is not a time", "write a time: 2026-01-31T12:00:00Z")

    def items(self, shape: Items, value: Any, path: str) -> None:
        if not isinstance(value, list):
            self.unlike(path, "a list", value, "write a list: [ … ], or one line with '-' for each item")
            return
        if len(value) < shape.least:
            self.wrong("P802", path, "the list is empty", "write at least one item, or leave the field out")
        if shape.most is not None and len(value) > shape.most:
            self.wrong("P802", path, f"{len(value)} items are too many", f"write at most {shape.most}")
            return
        seen = set()
        for at, item in enumerate(value):
            self.check(shape.item, item, f"{path}[{at}]")
            key = _identity(shape.unique, item)
            if key is not None and key in seen:
                fix = "remove one of the two, or give it another name"
                self.wrong("P804", f"{path}[{at}]", f"{' '.join(key)} stands twice in the list", fix)
            seen.add(key)

    def table(self, shape: Table, value: Any, path: str) -> None:
        if not isinstance(value, dict):
            self.unlike(path, "a mapping", value, "write names and values: {name: value}")
            return
        if shape.most is not None and len(value) > shape.most:
            self.wrong("P802", path, f"{len(value)} entries are too many", f"write at most {shape.most}")
        for key, part in value.items():
            where = f"{path}.{key}"
            if not isinstance(key, str):
                self.wrong("P802", where, f"the name {show(key)} is not text", "put it in quotes")
            elif shape.key is not None and not (len(key) <= shape.key.most and shape.key.fits(key)):
                self.wrong("P802", where, f"the name {show(key)} is not allowed here", f"use {shape.key.words}")
            self.check(shape.value, part, where)

    def fields(self, shape: Fields, value: Any, path: str) -> None:
        if not isinstance(value, dict):
            self.unlike(path, "a mapping", value, f"write its fields: {', '.join(list(shape.fields)[:6])}")
            return
        for key, part in value.items():
            found = shape.fields.get(key)
            if found is not None:
                if part is not None:
                    self.check(found, part, f"{path}.{key}")
            elif key not in shape.unread:
                names = sorted({*shape.fields, *shape.unread})
                fix = f"{instead(str(key)[:60], names)} Known: {', '.join(names)}"
                self.wrong("P802", f"{path}.{key}", f"there is no field {show(key)} here", fix)
        for name in shape.needed:
            if value.get(name) is None:
                self.wrong("P802", f"{path}.{name}", f"{name!r} is missing", f"add `{name}:`")


def _identity(unique: tuple[str, ...], item: Any) -> tuple[str, ...] | None:
    if unique == ("*",):
        return (item,) if isinstance(item, str) else None
    if not unique or not isinstance(item, dict):
        return None
    found = tuple(item.get(name, "main" if name == "name" else "") for name in unique)
    return found if all(isinstance(part, str) for part in found) else None


def show(value: object) -> str:
    """A value as it may stand in a sentence."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 10**30:
        return "a number of this length"
    text = repr(value)
    return text if len(text) <= 62 else f"{text[:60]}…"


def either(words: tuple[str, ...]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def kind_of(value: object) -> str:
    if isinstance(value, bool | int | float | str):
        return show(value)
    return {type(None): "nothing", list: "a list", dict: "a mapping"}.get(type(value), type(value).__name__)
