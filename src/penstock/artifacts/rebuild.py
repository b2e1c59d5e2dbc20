"""Plain data -> what a function's parameters are annotated with. Called by the workers before they call a function.

Between steps a dataclass is a map and a path is a file or text. A function that says `def train(config: Config, data: Path)`
gets them back as such, so that it works the same when called plainly. Parameters without an annotation get plain data.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path, PurePath
from typing import Any

Build = Callable[[Any], Any]
_WORD = re.compile(r"[A-Za-z_.]+")
_PLAIN = frozenset(
    "int float str bool None list dict Any any object List Dict Optional Union Sequence Mapping Iterable typing".split()
)


def builder(function: Callable[..., Any]) -> Callable[[dict[str, Any]], dict[str, Any]] | None:
    """Turns keyword arguments into what the function asks for; None if they are right as they are, which is the rule."""
    notes = getattr(function, "__annotations__", None)
    if not notes or all(_is_plain(note) for name, note in notes.items() if name != "return"):
        return None
    import typing

    try:
        hints = typing.get_type_hints(function)
    except Exception:  # the author's annotations may name anything, or nothing
        return None
    builds = {
        name: build for name, hint in hints.items() if name != "return" and (build := _build(hint, 0)) is not None
    }
    if not builds:
        return None

    def convert(given: dict[str, Any]) -> dict[str, Any]:
        return {name: builds[name](value) if name in builds else value for name, value in given.items()}

    return convert


def _is_plain(note: Any) -> bool:
    if isinstance(note, str):
        return _PLAIN.issuperset(_WORD.findall(note))
    return note in (int, float, str, bool, None, list, dict, object)


def _build(hint: Any, depth: int) -> Build | None:
    import types
    import typing

    if depth > 10:
        return None
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return _build(args[0], depth)
    if origin in (typing.Union, types.UnionType):
        inner = [build for arg in args if arg is not type(None) and (build := _build(arg, depth + 1)) is not None]
        # Which of several classes a map was cannot be told; a Path or one class beside None can.
        return None if len(inner) != 1 else lambda value: None if value is None else inner[0](value)
    if hint is str:
        return lambda value: str(value) if isinstance(value, PurePath) else value
    if origin is not None:
        return _container(origin, args, depth)
    if not isinstance(hint, type):
        return None
    if hint in (tuple, set, frozenset):
        return lambda value: hint(value) if isinstance(value, list) else value
    if issubclass(hint, PurePath):
        make = Path if hint is PurePath else hint
        return lambda value: make(value) if isinstance(value, str) else value
    return _class(hint, depth)


def _container(origin: Any, args: tuple[Any, ...], depth: int) -> Build | None:
    if origin in (tuple, set, frozenset):
        if origin is tuple and args and args[-1] is not Ellipsis:
            each = [_build(arg, depth + 1) or _same for arg in args]
            return lambda value: (
                tuple(build(item) for build, item in zip(each, value, strict=False))
                if isinstance(value, list)
                else value
            )
        item = (_build(args[0], depth + 1) if args else None) or _same
        return lambda value: origin(map(item, value)) if isinstance(value, list) else value
    inner = _build(args[-1], depth + 1) if args else None
    if inner is None:
        return None
    build = inner

    def convert(value: Any) -> Any:
        if isinstance(value, list):
            return [build(item) for item in value]
        return {key: build(item) for key, item in value.items()} if isinstance(value, dict) else value

    return convert


def _same(value: Any) -> Any:
    return value


def _class(cls: Any, depth: int) -> Build | None:
    """A class with fields from the map that it was. A value that does not fit is left as it is: the function will say why."""
    if callable(getattr(cls, "model_validate", None)) and hasattr(cls, "model_fields"):
        return lambda value: cls.model_validate(value) if isinstance(value, dict) else value
    if hasattr(cls, "__dataclass_fields__"):
        import dataclasses

        names = {field.name: field.init for field in dataclasses.fields(cls)}
    elif issubclass(cls, tuple) and hasattr(cls, "_fields"):
        names = dict.fromkeys(cls._fields, True)
    else:
        return None
    import typing

    try:
        hints = typing.get_type_hints(cls)
    except Exception:
        hints = {}
    builds = {name: _build(hints[name], depth + 1) or _same for name in names if name in hints}

    def convert(value: Any) -> Any:
        if not isinstance(value, dict) or not names.keys() >= value.keys():
            return value
        fields = {name: builds.get(name, _same)(item) for name, item in value.items()}
        made = cls(**{name: item for name, item in fields.items() if names[name]})
        for name, item in fields.items():
            if not names[name]:
                object.__setattr__(made, name, item)
        return made

    return convert
