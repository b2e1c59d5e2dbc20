"""The functions of expr-lang for Penstock's functions. Read by expr."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock.expressions.types import ANY, FLOAT, INT, STR, Type, list_of

OPERATORS: Final = ("contains", "startsWith", "endsWith", "matches")
"""Methods in CEL, infix operators in expr-lang."""
MACROS: Final[Mapping[str, str]] = {
    "map": "map",
    "filter": "filter",
    "all": "all",
    "exists": "any",
    "exists_one": "one",
}
_MANY: Final = list_of(ANY)

SAME: Final[Mapping[str, tuple[str, Type]]] = {
    "min": ("min", ANY), "max": ("max", ANY), "smallest": ("min", ANY), "largest": ("max", ANY), "sum": ("sum", ANY),
    "mean": ("mean", FLOAT), "median": ("median", FLOAT), "abs": ("abs", ANY), "floor": ("floor", FLOAT), "ceil": ("ceil", FLOAT),
    "round": ("round", FLOAT), "upper": ("upper", STR), "lower": ("lower", STR), "trim": ("trim", STR),
    "trimPrefix": ("trimPrefix", STR), "trimSuffix": ("trimSuffix", STR), "split": ("split", list_of(STR)), "join": ("join", STR),
    "replace": ("replace", STR), "repeat": ("repeat", STR), "indexOf": ("indexOf", INT), "lastIndexOf": ("lastIndexOf", INT),
    "toBase64": ("toBase64", STR), "fromBase64": ("fromBase64", STR), "keys": ("keys", list_of(STR)), "values": ("values", _MANY),
    "first": ("first", ANY), "last": ("last", ANY), "flatten": ("flatten", _MANY), "unique": ("uniq", _MANY),
    "reverse": ("reverse", _MANY), "sort": ("sort", _MANY), "toPairs": ("toPairs", _MANY), "fromPairs": ("fromPairs", Type("dict", (ANY,))),
    "get": ("get", ANY), "type": ("type", STR), "jsonpath": ("jsonpath", ANY), "date": ("sprig.date", STR),
}  # fmt: skip
"""Penstock's name -> expr-lang's name, and the type of the result."""
