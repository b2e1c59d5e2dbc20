"""The empty value of a type. Called where no step has given a value: dry runs, simulations, the fake backend."""

from __future__ import annotations

from typing import Any

from penstock.expressions.types import Type


def empty_value(type_: Type) -> Any:
    """Not for files. The empty value of `any` is the empty text, which is valid everywhere: as a word, in a file, in a condition."""
    plain = {"int": 0, "float": 0.0, "str": "", "bool": False, "any": "", "list": [], "dict": {}}
    return plain.get(type_.name)
