"""Python annotations -> the types of the graph. Called by values, tasks and the compiler."""

from __future__ import annotations

import dataclasses
import enum
import inspect
import pathlib
import types as python_types
import typing
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from penstock.artifacts.plain import alike, brief, member_value, plain
from penstock.artifacts.rebuild import Misfit, build_of
from penstock.expressions import types
from penstock.expressions.types import Type

_PLAIN: dict[Any, Type] = {
    int: types.INT,
    float: types.FLOAT,
    str: types.STR,
    bool: types.BOOL,
    None: types.NULL,
    type(None): types.NULL,
    Any: types.ANY,
    object: types.ANY,
    inspect.Parameter.empty: types.ANY,
    list: types.list_of(types.ANY),
    tuple: types.list_of(types.ANY),
    dict: Type("dict", (types.ANY,)),
    range: types.list_of(types.INT),
    pathlib.Path: types.FILE,
    pathlib.PurePath: types.FILE,
}
_LISTS = (list, Sequence, Iterable, Collection, Iterator, set, frozenset)
_MAPS = (dict, Mapping)


def to_type(annotation: Any) -> Type:
    """`list[float]` -> list[float]; an Enum -> the type of its values; a class with fields -> any; a class without a JSON form ->
    object."""
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
        return types.join(*(types.of_value(plain(arg)) for arg in args))
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
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return (
            types.join(*(types.of_value(member_value(member)) for member in annotation))
            if len(annotation)
            else types.STR
        )
    if isinstance(annotation, type) and not _has_fields(annotation):
        return types.OBJECT
    return types.ANY


def _has_fields(cls: type) -> bool:
    """Dataclasses, TypedDicts, named tuples, pydantic models: their attributes have a JSON form."""
    return dataclasses.is_dataclass(cls) or (
        hasattr(cls, "__annotations__") and (issubclass(cls, dict | tuple) or hasattr(cls, "model_fields"))
    )


_SIMPLE = frozenset({int, float, str, bool, type(None)})


def misfit(name: str, value: Any, annotation: Any) -> Misfit | None:
    """Why a constant given for the parameter `name` would not arrive as it is in Python; None if it does."""
    if value is None or (type(value) in _SIMPLE and (annotation is Any or annotation in _SIMPLE)):
        return None
    data = plain(value)
    build = build_of(annotation)
    try:
        made = data if build is None else build(data)
    except Misfit as error:
        return error
    if alike(data, value, exactly=True) or alike(made, value, exactly=annotation is Any):
        return None
    cls = next((one for one in type(value).__mro__ if one.__module__ != "pathlib" or one is pathlib.Path), type(value))
    return Misfit(value, f"passed on as it is: {brief(made)} would arrive", f"declare it: {name}: {cls.__name__}")
