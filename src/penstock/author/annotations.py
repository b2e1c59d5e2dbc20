"""Python annotations -> the types of the graph. Called by jobs, flow and compiler."""

from __future__ import annotations

import dataclasses
import inspect
import pathlib
import types as python_types
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from penstock.graph import types
from penstock.graph.types import Type

_PLAIN: dict[Any, Type] = {
    int: types.INT, float: types.FLOAT, str: types.STR, bool: types.BOOL, None: types.NULL, type(None): types.NULL,
    Any: types.ANY, object: types.ANY, inspect.Parameter.empty: types.ANY,
    list: types.list_of(types.ANY), tuple: types.list_of(types.ANY), dict: Type("dict", (types.ANY,)), range: types.list_of(types.INT),
    pathlib.Path: types.FILE, pathlib.PurePath: types.FILE,
}  # fmt: skip
_LISTS = (list, Sequence, Iterable, Collection, Iterator, set, frozenset)
_MAPS = (dict, Mapping)


def to_type(annotation: Any) -> Type:
    """`list[float]` -> list[float]; classes with fields -> any; a class that JSON cannot hold -> object."""
    if isinstance(annotation, Type):
        return annotation
    if isinstance(annotation, str):
        try:
            return types.parse(annotation)
        except ValueError:
            return types.ANY
    try:
        if annotation in _PLAIN:
            return _PLAIN[annotation]
    except TypeError:
        return types.ANY
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return to_type(args[0])
    if origin in (typing.Union, python_types.UnionType):
        inner = types.join(*(to_type(arg) for arg in args if arg is not type(None)))
        return types.optional(inner) if type(None) in args else inner
    if origin is typing.Literal:
        return types.join(*(types.of_value(arg) for arg in args))
    if origin is tuple:
        return (
            types.list_of(to_type(args[0]))
            if len(args) == 2 and args[1] is Ellipsis
            else Type("tuple", tuple(map(to_type, args)))
        )
    if origin in _LISTS:
        return types.list_of(to_type(args[0]))
    if origin in _MAPS:
        return Type("dict", (to_type(args[1]),))
    if isinstance(annotation, type) and not _has_fields(annotation):
        return types.OBJECT
    return types.ANY


def _has_fields(cls: type) -> bool:
    """Dataclasses, TypedDicts, named tuples, pydantic models: their attributes have a JSON form."""
    return dataclasses.is_dataclass(cls) or (
        hasattr(cls, "__annotations__") and (issubclass(cls, dict | tuple) or hasattr(cls, "model_fields"))
    )


def hints_of(function: Callable[..., Any]) -> dict[str, Any]:
    """The annotations, evaluated where they can be. An annotation that cannot is as good as none."""
    try:
        return typing.get_type_hints(function, include_extras=True)
    except Exception:  # the author's annotations may name anything, or nothing
        return {
            name: note for name, note in getattr(function, "__annotations__", {}).items() if not isinstance(note, str)
        }
