"""Converts values between foreign documents and the model. Called by every reader and writer."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any, TypeVar

from penstock.expressions.evaluate import to_text
from penstock.expressions.parse import Expr
from penstock.expressions.template import Template
from penstock.graph.model import Value

T = TypeVar("T")


def listed(names: Iterable[str]) -> str:
    """The first few, for a message."""
    first = list(islice(names, 11))
    return f"{', '.join(first[:10])}{' …' if len(first) > 10 else ''}" or "none"


def scalar(value: Any) -> str:
    """A scalar that YAML read as a number or boolean, as text."""
    if isinstance(value, str):
        return value
    return to_text(value) if isinstance(value, bool | int | float) else ""


def brief(value: Any) -> str:
    kinds = {dict: "a mapping", list: "a list", bool: "true or false", type(None): "nothing"}
    return kinds.get(type(value)) or repr(value)[:60]


def pieces(value: Value) -> tuple[str | Expr, ...]:
    """The texts and expressions of a value that is part of a text."""
    if isinstance(value, Template):
        return value.parts
    return (value,) if isinstance(value, str | Expr) else (to_text(value),)


def merge_texts(parts: Iterable[str | T]) -> list[str | T]:
    """Joins neighbouring texts and drops empty ones."""
    merged: list[str | T] = []
    for one in parts:
        last = merged[-1] if merged else None
        if isinstance(one, str) and isinstance(last, str):
            merged[-1] = last + one
        elif one != "":
            merged.append(one)
    return merged


def joined(parts: Iterable[str | Expr]) -> Value:
    """Text with expressions in it, in its simplest form."""
    merged = merge_texts(parts)
    if not merged:
        return ""
    return merged[0] if len(merged) == 1 else Template(tuple(merged))


def frozen(value: Any) -> Any:
    """Data of a document as the model keeps it: tuples for lists, keys as text, no numbers that JSON lacks."""
    if isinstance(value, Mapping):
        return {str(key): frozen(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return tuple(map(frozen, value))
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def thawed(value: Any) -> Any:
    """The inverse: lists again."""
    if isinstance(value, Mapping):
        return {key: thawed(item) for key, item in value.items()}
    return list(map(thawed, value)) if isinstance(value, list | tuple) else value


def short_digest(text: str) -> str:
    """A short digest, for names by content."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
