"""The types of values that pass between steps: those of JSON, and files.

They are written as text (`list[int]`) in documents, messages and Python. Called by graph.model, graph.check, infer and author.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

SCALARS = ("any", "null", "bool", "int", "float", "str", "file", "dir", "object")
"""`any` fits everywhere. `object` is a Python value that has no JSON form; it is passed by reference, and expressions cannot
read its parts."""
GENERIC = {"list": 1, "dict": 1, "optional": 1, "tuple": -1}
_ALIASES = {
    "string": "str",
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "json": "any",
    "array": "list",
    "double": "float",
    "artifact": "file",
    "directory": "dir",
    "map": "dict",
}
_TOKEN = re.compile(r"\s*([A-Za-z_]+|[\[\],])")


@dataclass(frozen=True, slots=True)
class Type:
    """`Type("list", (INT,))` is `list[int]`."""

    name: str
    args: tuple[Type, ...] = ()

    def __str__(self) -> str:
        return f"{self.name}[{', '.join(map(str, self.args))}]" if self.args else self.name

    @property
    def item(self) -> Type:
        """The type of one element, as seen by a loop or an index."""
        if self.name in ("list", "dict") and self.args:
            return self.args[0]
        if self.name == "tuple" and self.args:
            return join(*self.args)
        if self.name == "optional":
            return self.args[0].item
        return STR if self.name == "str" else ANY


ANY, NULL, BOOL, INT, FLOAT, STR, FILE, DIR, OBJECT = (Type(name) for name in SCALARS)


def list_of(item: Type) -> Type:
    return Type("list", (item,))


def optional(inner: Type) -> Type:
    return inner if inner.name in ("optional", "any", "null") else Type("optional", (inner,))


@lru_cache(maxsize=4096)
def parse(text: str) -> Type:
    """`list[int]` -> Type. Raises ValueError that names the unknown part."""
    tokens: list[str] = []
    position = 0
    while position < len(text.rstrip()):
        match = _TOKEN.match(text, position)
        if match is None or len(tokens) > 64:
            raise ValueError(f"{text[:80]!r} is not a type")
        tokens.append(match[1])
        position = match.end()
    result, rest = _read(tokens, text)
    if rest:
        raise ValueError(f"{text[:80]!r} is not a type: {rest[0]!r} is left over")
    return result


def _read(tokens: list[str], text: str) -> tuple[Type, list[str]]:
    if not tokens:
        raise ValueError(f"{text[:80]!r} is not a type")
    name, rest = _ALIASES.get(tokens[0], tokens[0]), tokens[1:]
    if name not in SCALARS and name not in GENERIC:
        from penstock.errors import nearest

        raise ValueError(f"{tokens[0][:80]!r} is not a type.{nearest(tokens[0][:80], [*SCALARS, *GENERIC, *_ALIASES])}")
    args: list[Type] = []
    if rest[:1] == ["["]:
        separator = "["
        while separator in ("[", ","):
            arg, rest = _read(rest[1:], text)
            args.append(arg)
            if not rest:
                raise ValueError(f"{text[:80]!r} is not a type: a ']' is missing")
            separator = rest[0]
        if separator != "]":
            raise ValueError(f"{text[:80]!r} is not a type: {separator!r} is out of place")
        rest = rest[1:]
    if name in SCALARS and args:
        raise ValueError(f"{name} takes no arguments in {text[:80]!r}")
    wanted = GENERIC.get(name, 0)
    if wanted == 1 and not args:
        args = [ANY]
    if wanted == 1 and len(args) == 2 and name == "dict" and args[0] == STR:
        args = args[1:]
    if wanted == 1 and len(args) != 1:
        raise ValueError(f"{name} takes one argument in {text[:80]!r}")
    if name == "optional":
        return optional(args[0]), rest
    return Type(name, tuple(args)), rest


def fits(given: Type, wanted: Type) -> bool:
    """May a value of type `given` be used where `wanted` is required?"""
    if given == wanted or "any" in (given.name, wanted.name) or wanted.name == "object":
        return True
    if wanted.name == "optional":
        return given.name == "null" or fits(given.args[0] if given.name == "optional" else given, wanted.args[0])
    if given.name == "optional":
        return fits(given.args[0], wanted)
    if (given.name, wanted.name) in (
        ("int", "float"),
        ("file", "str"),
        ("dir", "str"),
        ("str", "file"),
        ("str", "dir"),
    ):
        return True
    if given.name == "object":
        return False
    if given.name == "tuple" and wanted.name == "tuple" and given.args and wanted.args:
        return len(given.args) == len(wanted.args) and all(map(fits, given.args, wanted.args))
    if given.name in ("list", "tuple") and wanted.name in ("list", "tuple"):
        return fits(given.item, wanted.item)
    return given.name == "dict" == wanted.name and fits(given.item, wanted.item)


def _within(given: Type, wanted: Type) -> bool:
    """Is every value of type `given` also of type `wanted`? Stricter than `fits`, which accepts `any` and null."""
    if given == wanted or wanted.name in ("any", "object"):
        return True
    if wanted.name == "optional":
        return given.name == "null" or _within(given.args[0] if given.name == "optional" else given, wanted.args[0])
    if given.name in ("any", "object", "optional"):
        return False
    if given.name == "tuple" == wanted.name and given.args and wanted.args:
        return len(given.args) == len(wanted.args) and all(map(_within, given.args, wanted.args))
    if given.name in ("list", "tuple") and wanted.name in ("list", "tuple"):
        return not wanted.args or (wanted.name == "list" and _within(given.item, wanted.item))
    if given.name == "dict" == wanted.name:
        return _within(given.item, wanted.item)
    return given.name in SCALARS and wanted.name in SCALARS and fits(given, wanted)


def join(*types: Type) -> Type:
    """The narrowest type that holds every value of all of these."""
    if not types:
        return ANY
    result = types[0]
    for other in types[1:]:
        if _within(other, result):
            continue
        if _within(result, other):
            result = other
        elif {"null", "optional"} & {result.name, other.name}:
            bare = [
                type_.args[0] if type_.name == "optional" else type_
                for type_ in (result, other)
                if type_.name != "null"
            ]
            result = optional(join(*bare))
        else:
            return ANY
    return result


_PLAIN = {bool: BOOL, int: INT, float: FLOAT, str: STR, type(None): NULL}


def _joined(values: Sequence[object]) -> Type:
    """The type that all elements fit. Of a million numbers only the classes are compared."""
    kinds = set(map(type, values))
    if kinds <= _PLAIN.keys():
        return join(*(of for kind, of in _PLAIN.items() if kind in kinds))
    return join(*(of_value(item) for item in values)) if len(values) <= 1024 else ANY


def of_value(value: object) -> Type:
    """The type of a plain value."""
    if value is None:
        return NULL
    if isinstance(value, bool):
        return BOOL
    if isinstance(value, int):
        return INT
    if isinstance(value, float):
        return FLOAT
    if isinstance(value, str):
        return STR
    if isinstance(value, range):
        return list_of(INT)
    if isinstance(value, list | tuple):
        return list_of(_joined(value))
    if isinstance(value, dict):
        return Type("dict", (_joined(list(value.values())),))
    return ANY


def accepts(wanted: Type, value: object) -> bool:
    """Is this value of that type? Checks every element."""
    if wanted.name in ("any", "object"):
        return True
    if wanted.name == "optional":
        return value is None or accepts(wanted.args[0], value)
    if wanted.name in ("list", "tuple"):
        if not isinstance(value, list | tuple | range):
            return False
        if isinstance(value, range):
            many = len(value) != len(wanted.args) if wanted.name == "tuple" and wanted.args else False
            return not many and all(fits(INT, arg) for arg in wanted.args if value)
        if wanted.name == "tuple" and wanted.args:
            return len(value) == len(wanted.args) and all(map(accepts, wanted.args, value))
        return wanted.item.name == "any" or all(accepts(wanted.item, item) for item in value)
    if wanted.name == "dict":
        return isinstance(value, dict) and all(accepts(wanted.item, item) for item in value.values())
    return fits(of_value(value), wanted)
