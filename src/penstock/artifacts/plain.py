"""Objects of Python as plain data: members of an Enum, dates, decimals, paths, sets, and classes with fields. Called by values, rebuild
and author.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

TEXTS = {
    ("datetime", "date"): "2024-05-17",
    ("datetime", "datetime"): "2024-05-17T12:30:00",
    ("datetime", "time"): "12:30:00",
    ("decimal", "Decimal"): "1.50",
    ("uuid", "UUID"): "12345678-1234-5678-1234-567812345678",
}
"""Classes of Python that are text between steps, with an example. By name: few functions need them imported."""


def plain(value: Any) -> Any:
    """Enums, dates, decimals, paths, sets and classes with fields as plain data, at any depth. Everything else stays as it is."""
    kind = type(value)
    if kind in (str, int, float, bool, type(None)):
        return value
    if isinstance(value, enum.Enum):
        return member_value(value)
    if isinstance(value, Mapping):
        return {plain(key) if isinstance(key, enum.Enum) else key: plain(item) for key, item in value.items()}
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, set | frozenset):
        return plain(in_order(list(value)))
    fields = fields_of(value)
    if fields is not None:
        return {name: plain(item) for name, item in fields.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    for cls in kind.__mro__:
        if (cls.__module__, cls.__name__) in TEXTS:
            return value.isoformat() if cls.__module__ == "datetime" else str(value)
    return value


def has_plain_form(cls: type) -> bool:
    """Is it a class whose objects `plain` turns into plain data?"""
    return (
        issubclass(cls, enum.Enum | PurePath | set | frozenset)
        or (cls.__module__, cls.__name__) in TEXTS
        or hasattr(cls, "__dataclass_fields__")
        or (issubclass(cls, tuple) and hasattr(cls, "_fields"))
        or (hasattr(cls, "model_fields") and callable(getattr(cls, "model_validate", None)))
    )


def member_value(member: enum.Enum) -> Any:
    """A member of an Enum as plain data: its value; its name, if the values are not all text or all numbers."""
    return member.value if by_value(type(member)) else member.name


@functools.lru_cache(maxsize=1024)
def by_value(cls: type[enum.Enum]) -> bool:
    if issubclass(cls, enum.Flag):
        return True
    kinds = {type(member.value) for member in cls}
    return kinds <= {int, float} or kinds in ({str}, {bool})


def alike(made: Any, value: Any, exactly: bool) -> bool:
    """Is what arrives what was given? Tuples arrive as lists where nothing is declared. `exactly`: of the same class too."""
    if isinstance(value, list | tuple) and isinstance(made, list | tuple) and not hasattr(value, "_fields"):
        return len(made) == len(value) and all(alike(*pair, exactly) for pair in zip(made, value, strict=True))
    if isinstance(value, Mapping) and isinstance(made, Mapping):
        return made.keys() == value.keys() and all(alike(made[key], value[key], exactly) for key in value)
    if type(made) is type(value) and not isinstance(value, tuple):
        fields, others = fields_of(value), fields_of(made)
        if fields is not None and others is not None:
            return alike(others, fields, exactly)
    return bool(made == value) and (not exactly or type(made) is type(value))


def in_order(found: list[Any]) -> list[Any]:
    """A set as a list that is the same in every process, if its elements have an order."""
    try:
        return sorted(found)
    except TypeError:
        return found


def fields_of(value: Any) -> dict[str, Any] | None:
    """What a dataclass, named tuple or pydantic model holds; None for everything else."""
    cls = type(value)
    names = getattr(cls, "__dataclass_fields__", None)
    if names is not None and not isinstance(value, type):
        import dataclasses

        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, tuple) and hasattr(cls, "_fields"):
        return dict(zip(cls._fields, value, strict=True))
    if hasattr(cls, "model_fields") and callable(getattr(cls, "model_validate", None)):
        return {name: getattr(value, name) for name in cls.model_fields}
    return None


def brief(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:79] + "…"
