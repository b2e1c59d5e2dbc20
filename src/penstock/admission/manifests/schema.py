"""The language of the schemas in kinds: which fields a document has, and which values a field may have. Called by validate; rules
checks what concerns several fields.

A schema is data, and `SchemaChecker` compares a document with it. It reports each field that is wrong and continues, so that one pass
finds all problems. Of a pod, only the fields that admission reads are checked; of the others only the names are known.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.admission.manifests.times import time_of
from penstock.errors import instead, nearest
from penstock.graph import quantity

INT32: Final = (-(2**31), 2**31 - 1)


# -- text formats -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TextFormat:
    """A rule for text, and its description."""

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


SUBDOMAIN = TextFormat(
    "lower-case letters, digits, '-' and '.', with a letter or digit at both ends and around each '.'",
    _SUBDOMAIN.fullmatch,
)
LABEL = TextFormat("lower-case letters, digits and '-', with a letter or digit at both ends", _LABEL.fullmatch, 63)
LABEL_KEY = TextFormat(
    "letters, digits, '-', '_' and '.', at most 63 of them, after an optional domain and '/'", is_label_key, 317
)
ANNOTATION_KEY = TextFormat(LABEL_KEY.words, lambda text: is_label_key(text.lower()), 317)
LABEL_VALUE = TextFormat(
    "letters, digits, '-', '_' and '.', with a letter or digit at both ends, or nothing",
    lambda text: not text or _WORD.fullmatch(text),
    63,
)
DURATION = TextFormat("numbers with their units, such as 1h30m or 500ms", _DURATION.fullmatch)
KIND = TextFormat("letters, digits and '-', with a letter first", _KIND.fullmatch, 63)
REASON = TextFormat("letters, digits, '_', ',' and ':', with a letter first", _REASON.fullmatch, 1024)


# -- fields -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TextField:
    format: TextFormat | None = None
    most: int | None = None
    least: int = 0
    words: tuple[str, ...] = ()
    """The allowed values. Empty: any."""


@dataclass(frozen=True, slots=True)
class IntegerField:
    least: int = INT32[0]
    most: int = INT32[1]


@dataclass(frozen=True, slots=True)
class NumberField:
    pass


@dataclass(frozen=True, slots=True)
class BooleanField:
    pass


@dataclass(frozen=True, slots=True)
class QuantityField:
    """A quantity. Kueue's fields take text and integers; those of Kubernetes take any number."""

    fractions: bool = False


@dataclass(frozen=True, slots=True)
class TimeField:
    pass


@dataclass(frozen=True, slots=True)
class AnyField:
    pass


@dataclass(frozen=True, slots=True)
class ListField:
    item: Field
    most: int | None = None
    least: int = 0
    unique: tuple[str, ...] = ()
    """The fields of an item that identify it: no two items may be equal in them. `*`: the item itself."""


@dataclass(frozen=True, slots=True)
class MapField:
    value: Field
    key: TextFormat | None = None
    most: int | None = None


@dataclass(frozen=True, slots=True)
class ObjectField:
    fields: Mapping[str, Field]
    needed: tuple[str, ...] = ()
    unread: frozenset[str] = field(default_factory=frozenset)
    """Fields that exist but are not read here."""


Field = (
    TextField
    | IntegerField
    | NumberField
    | BooleanField
    | QuantityField
    | TimeField
    | AnyField
    | ListField
    | MapField
    | ObjectField
)

Wrong = Callable[[str, str, str, str], None]
"""code, path, message, fix"""


class SchemaChecker:
    """Compares one document with its schema."""

    def __init__(self, wrong: Wrong) -> None:
        self.wrong = wrong

    def check(self, schema: Field, value: Any, path: str) -> None:
        match schema:
            case TextField():
                self.text(schema, value, path)
            case IntegerField():
                self.integer(schema, value, path)
            case NumberField():
                if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e300:
                    self.unlike(path, "a number", value, "write a number, without quotes")
            case BooleanField():
                if not isinstance(value, bool):
                    self.unlike(path, "true or false", value, "write true or false")
            case QuantityField():
                self.quantity(schema, value, path)
            case TimeField():
                self.time(value, path)
            case ListField():
                self.items(schema, value, path)
            case MapField():
                self.mapping(schema, value, path)
            case ObjectField():
                self.fields(schema, value, path)
            case AnyField():
                pass

    def unlike(self, path: str, expected: str, value: Any, fix: str) -> None:
        self.wrong("P802", path, f"expected {expected}, found {kind_of(value)}", fix)

    def text(self, schema: TextField, value: Any, path: str) -> None:
        if not isinstance(value, str):
            simple = isinstance(value, bool | int | float)
            spelled = str(value).lower() if isinstance(value, bool) else str(value)[:60]
            self.unlike(path, "text", value, f'put it in quotes: "{spelled}"' if simple else "write text")
            return
        if schema.words and value not in schema.words:
            fix = f"write {either(schema.words)}.{nearest(value[:60], schema.words)}"
            self.wrong("P802", path, f"{show(value)} is not one of its values", fix)
        most = schema.most or (schema.format.most if schema.format else None)
        if len(value) < schema.least:
            self.wrong("P802", path, "it is empty", "write something, or leave the field out")
        elif most is not None and len(value) > most:
            self.wrong("P802", path, f"{len(value)} characters are too many", f"write at most {most}")
        elif schema.format is not None and not schema.format.fits(value):
            self.wrong("P802", path, f"{show(value)} is not allowed here", f"use {schema.format.words}")

    def integer(self, schema: IntegerField, value: Any, path: str) -> None:
        if not isinstance(value, int) or isinstance(value, bool):
            self.unlike(path, "a whole number", value, "write a whole number, without quotes")
        elif value < schema.least:
            self.wrong("P802", path, f"{show(value)} is too small", f"write at least {schema.least}")
        elif value > schema.most:
            self.wrong("P802", path, f"{show(value)} is too large", f"write at most {schema.most}")

    def quantity(self, schema: QuantityField, value: Any, path: str) -> None:
        if isinstance(value, float) and not schema.fractions:
            fix = f'put it in quotes: "{value}"'
            self.wrong("P802", path, f"{value} is a fraction, and only whole numbers go without quotes", fix)
        elif isinstance(value, bool) or not isinstance(value, str | int | float):
            self.unlike(path, "a quantity", value, "write a quantity: 2, 500m, 4Gi")
        else:
            try:
                quantity.exact(value)
            except ValueError as error:
                self.wrong("P802", path, str(error), "write a quantity: 2, 500m, 4Gi")

    def time(self, value: Any, path: str) -> None:
        try:
            if not isinstance(value, str) or time_of(value) is None:
                raise ValueError
        except (ValueError, OverflowError):
            self.wrong("P802", path, f"{show(value)} is not a time", "write a time: 2026-01-31T12:00:00Z")

    def items(self, schema: ListField, value: Any, path: str) -> None:
        if not isinstance(value, list):
            self.unlike(path, "a list", value, "write a list: [ … ], or one line with '-' for each item")
            return
        if len(value) < schema.least:
            self.wrong("P802", path, "the list is empty", "write at least one item, or leave the field out")
        if schema.most is not None and len(value) > schema.most:
            self.wrong("P802", path, f"{len(value)} items are too many", f"write at most {schema.most}")
            return
        seen = set()
        for at, item in enumerate(value):
            self.check(schema.item, item, f"{path}[{at}]")
            key = _identity(schema.unique, item)
            if key is not None and key in seen:
                fix = "remove one of the two, or give it another name"
                self.wrong("P804", f"{path}[{at}]", f"{' '.join(key)} is in the list twice", fix)
            seen.add(key)

    def mapping(self, schema: MapField, value: Any, path: str) -> None:
        if not isinstance(value, dict):
            self.unlike(path, "a mapping", value, "write names and values: {name: value}")
            return
        if schema.most is not None and len(value) > schema.most:
            self.wrong("P802", path, f"{len(value)} entries are too many", f"write at most {schema.most}")
        for key, part in value.items():
            where = f"{path}.{key}"
            if not isinstance(key, str):
                self.wrong("P802", where, f"the name {show(key)} is not text", "put it in quotes")
            elif schema.key is not None and not (len(key) <= schema.key.most and schema.key.fits(key)):
                self.wrong("P802", where, f"the name {show(key)} is not allowed here", f"use {schema.key.words}")
            self.check(schema.value, part, where)

    def fields(self, schema: ObjectField, value: Any, path: str) -> None:
        if not isinstance(value, dict):
            self.unlike(path, "a mapping", value, f"write its fields: {', '.join(list(schema.fields)[:6])}")
            return
        for key, part in value.items():
            found = schema.fields.get(key)
            if found is not None:
                if part is not None:
                    self.check(found, part, f"{path}.{key}")
            elif key not in schema.unread:
                names = sorted({*schema.fields, *schema.unread})
                fix = f"{instead(str(key)[:60], names)} Known: {', '.join(names)}"
                self.wrong("P802", f"{path}.{key}", f"there is no field {show(key)} here", fix)
        for name in schema.needed:
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
    """A value for use in a message."""
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
