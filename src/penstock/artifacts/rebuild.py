"""Plain data -> what a function's parameters are annotated with. Called by the workers before they call a function, by the
compiler for constants, and by service for parameters.

Between steps a dataclass is a map, a member of an Enum is its value, a date is text and a path is a file or text. A function
that says `def train(config: Config, mode: Mode, data: Path)` gets them back as such, so that it works the same when called
plainly. What does not fit the annotation is a Misfit. Parameters without an annotation get plain data.

formats/shim_main does the same in pods of foreign systems.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path, PurePath
from typing import Any, NoReturn

from penstock.artifacts.plain import TEXTS, brief, by_value, member_value, plain

Build = Callable[[Any], Any]
_WORD = re.compile(r"[A-Za-z_.]+")
_PLAIN = frozenset(
    "int float str bool None list dict Any any object List Dict Optional Union Sequence Mapping Iterable typing".split()
)


class Misfit(ValueError):
    """A value that is not what is declared. `fix` says what is."""

    def __init__(self, value: Any, wanted: str, fix: str) -> None:
        super().__init__(f"{brief(value)}, which is not {wanted}")
        self.fix = fix


def builder(function: Callable[..., Any]) -> Callable[[dict[str, Any]], dict[str, Any]] | None:
    """Turns keyword arguments into what the function asks for; None if they are right as they are, which is the rule."""
    notes = getattr(function, "__annotations__", None)
    if not notes or all(_is_plain(note) for name, note in notes.items() if name != "return"):
        return None
    hints = hints_of(function)
    builds = {name: build for name, hint in hints.items() if name != "return" and (build := build_of(hint)) is not None}
    if not builds:
        return None

    def convert(given: dict[str, Any]) -> dict[str, Any]:
        try:
            return {name: builds[name](value) if name in builds else value for name, value in given.items()}
        except Misfit:
            for name, value in given.items():
                if name in builds:
                    _named(builds[name], value, name, function)
            raise

    return convert


def _named(build: Build, value: Any, name: str, function: Callable[..., Any]) -> None:
    try:
        build(value)
    except Misfit as error:
        from penstock.errors import Problem, UserError

        inside = "" if str(error).startswith(brief(value)) else f"{brief(value)}: "
        message = f"{name} of {getattr(function, '__name__', 'the function')}() is {inside}{error}"
        raise UserError(Problem("P709", message, error.fix)) from None


def result_check(function: Callable[..., Any]) -> Build | None:
    """Raises Misfit if what the function returned is outside of its Literal or Enum; None if it declares none."""
    note = getattr(function, "__annotations__", {}).get("return")
    if note is None or _is_plain(note):
        return None
    import typing

    hint: Any = hints_of(function).get("return")
    if typing.get_origin(hint) is typing.Annotated:
        hint = typing.get_args(hint)[0]
    chosen = _without_none(hint)
    if typing.get_origin(chosen) is typing.Literal or (isinstance(chosen, type) and issubclass(chosen, enum.Enum)):
        return build_of(hint)
    return None


def hints_of(thing: Any) -> dict[str, Any]:
    """The annotations of a function or class. One that cannot be evaluated is left out: it may name anything, or what only a type checker
    imports."""
    import typing

    try:
        return typing.get_type_hints(thing, include_extras=True)
    except Exception:
        return _one_by_one(thing)


def _one_by_one(thing: Any) -> dict[str, Any]:
    import inspect
    import typing

    def holder() -> None: ...

    found: dict[str, Any] = {}
    for owner in reversed(thing.__mro__) if isinstance(thing, type) else [thing]:
        if isinstance(owner, type):
            names, own = vars(sys.modules.get(owner.__module__, typing)), dict(vars(owner))
        else:
            names, own = getattr(inspect.unwrap(getattr(owner, "__func__", owner)), "__globals__", {}), {}
        notes: dict[str, Any] = {}
        with contextlib.suppress(Exception):
            notes = inspect.get_annotations(owner)
        for name, note in notes.items():
            holder.__annotations__ = {name: note}
            with contextlib.suppress(Exception):
                found |= typing.get_type_hints(holder, names, own, include_extras=True)
    return found


def _without_none(hint: Any) -> Any:
    """`X | None` -> X"""
    import types
    import typing

    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        inner = [arg for arg in typing.get_args(hint) if arg is not type(None)]
        return inner[0] if len(inner) == 1 else hint
    return hint


def _is_plain(note: Any) -> bool:
    if isinstance(note, str):
        return _PLAIN.issuperset(_WORD.findall(note))
    return note in (int, float, str, bool, None, list, dict, object)


def build_of(hint: Any, depth: int = 0, exact: bool = False) -> Build | None:
    """What makes a value of this annotation out of plain data; None if plain data is right. `exact`: numbers, texts, lists and dicts are
    compared with the annotation too. Parameters of a step need that not, since their types are those of its inputs."""
    import types
    import typing

    if depth > 10:
        return None
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return build_of(args[0], depth, exact)
    if origin is typing.Literal:
        return _literal(args)
    if origin in (typing.Union, types.UnionType):
        return _union(args, depth, exact)
    if exact and (hint in _KINDS or hint in (list, dict, tuple, set, frozenset)):
        return functools.partial(_exactly, hint)
    if hint is str:
        return lambda value: str(value) if isinstance(value, PurePath) else value
    if origin is not None:
        return _container(origin, args, depth, exact)
    if hasattr(hint, "__supertype__"):
        return build_of(hint.__supertype__, depth + 1, exact)
    if not isinstance(hint, type):
        return None
    if hint in (tuple, set, frozenset):
        return lambda value: hint(value) if isinstance(value, list) else value
    if issubclass(hint, PurePath):
        return _path(Path if hint is PurePath else hint)
    if issubclass(hint, enum.Enum):
        return _enum(hint)
    if (hint.__module__, hint.__name__) in TEXTS:
        return _text(hint)
    return _class(hint, depth)


_KINDS: Mapping[Any, tuple[tuple[type, ...], str]] = {
    bool: ((bool,), "true or false"),
    int: ((int,), "a whole number"),
    float: ((int, float), "a number"),
    str: ((str,), "text"),
}


def _exactly(hint: Any, value: Any) -> Any:
    if value is None or not is_data(value):
        return str(value) if hint is str and isinstance(value, PurePath) else value
    if hint not in _KINDS:
        wanted = dict if hint is dict else list
        return hint(value) if isinstance(value, wanted) else _object(value, f"a {wanted.__name__}")
    kinds, wanted_text = _KINDS[hint]
    if isinstance(value, bool) != (hint is bool) or not isinstance(value, kinds):
        raise Misfit(value, wanted_text, f"give {wanted_text}")
    return value


def is_data(value: Any) -> bool:
    """Scalars, lists and maps. Anything else is an object that a step has passed on as it was."""
    return isinstance(value, bool | int | float | str | list | dict) and not isinstance(value, enum.Enum)


def _path(make: Any) -> Build:
    def build(value: Any) -> Any:
        if isinstance(value, str):
            return make(value)
        if is_data(value):
            raise Misfit(value, f"a {make.__name__}", "give the path of a file or folder")
        return value

    return build


def _text(cls: Any) -> Build:
    example = TEXTS[cls.__module__, cls.__name__]

    def build(value: Any) -> Any:
        if not is_data(value):
            return value
        try:
            if cls.__module__ == "datetime" and isinstance(value, str):
                return cls.fromisoformat(value)
            if isinstance(value, str) or (cls.__name__ == "Decimal" and isinstance(value, int | float)):
                return cls(str(value))
        except (ValueError, ArithmeticError):  # decimal.InvalidOperation is of the second kind
            pass
        raise Misfit(value, f"a {cls.__name__}", f"write it as {example}")

    return build


def _enum(cls: Any) -> Build:
    def build(value: Any) -> Any:
        if value is None or isinstance(value, cls):
            return value
        if isinstance(value, enum.Enum) and type(value).__qualname__ == cls.__qualname__:
            value = value.name if not isinstance(value, enum.Flag) else value.value  # its class came along by value
        try:
            if by_value(cls):
                return cls(value)
        except (ValueError, TypeError):
            pass
        if isinstance(value, str) and value in cls.__members__:
            return cls[value]
        raise Misfit(value, f"a {cls.__name__}", _choose(value, {m.name: member_value(m) for m in cls}))

    return build


def _literal(args: tuple[Any, ...]) -> Build:
    def build(value: Any) -> Any:
        for arg in args:
            if value is arg or (type(value) is type(arg) and value == arg):
                return arg
            if isinstance(arg, enum.Enum) and value in (member_value(arg), arg.name):
                return arg
        if value is None:
            return value
        allowed = {str(plain(arg)): plain(arg) for arg in args}
        raise Misfit(value, f"one of the {len(args)} values that are declared", _choose(value, allowed))

    return build


def _choose(value: Any, allowed: Mapping[str, Any]) -> str:
    """`use one of 'red', 'blue'`, or `use one of HIGH (3), LOW (1)`: what is nearest to the value first."""
    import difflib

    given = str(value)[:200].lower()

    def nearness(item: tuple[str, Any]) -> float:
        return max(difflib.SequenceMatcher(None, str(one).lower(), given).ratio() for one in item)

    found = [
        repr(one) if str(one).lower() == name.lower() else f"{name} ({one!r})"
        for name, one in sorted(allowed.items(), key=nearness, reverse=True)
    ]
    return f"use one of {', '.join(found[:50])}{', …' if len(found) > 50 else ''}"


def _union(args: tuple[Any, ...], depth: int, exact: bool) -> Build | None:
    inner = [arg for arg in args if arg is not type(None)]
    rest = [arg for arg in inner if arg is str]
    if rest:  # a path that arrives as text may have been text
        inner = [arg for arg in inner if arg is not str and not (isinstance(arg, type) and issubclass(arg, PurePath))]
    builds: list[Build] = []
    for arg in inner:
        if build_of(arg, depth + 1) is None:
            rest.append(arg)
        else:
            builds.append(build_of(arg, depth + 1, exact) or _same)
    if not builds and not exact:
        return None
    plainly: list[Build] = [_same] * bool(rest)
    if exact:
        plainly = [build_of(arg, depth + 1, True) or _same for arg in rest]
    return functools.partial(_one_of, builds, plainly)


def _one_of(builds: list[Build], plainly: list[Build], value: Any) -> Any:
    """`plainly`: those of the union's types that need no building. A value which fits none of the builds may be one of them."""
    if value is None:
        return None
    found, wrong = _fitting(builds, value)
    if not found:
        found, other = _fitting(plainly, value)
        problem = wrong or other
        if not found and problem is not None:
            raise problem
    exact = [one for one in found if plain(one) == value] if len(found) > 1 else found
    # Which of several classes a map was cannot be told.
    return exact[0] if exact and (len(exact) == 1 or not isinstance(value, dict)) else value


def _fitting(builds: list[Build], value: Any) -> tuple[list[Any], Misfit | None]:
    found, wrong = [], None
    for build in builds:
        try:
            found.append(build(value))
        except Misfit as error:
            wrong = wrong or error
    return found, wrong


def _container(origin: Any, args: tuple[Any, ...], depth: int, exact: bool) -> Build | None:
    if not isinstance(origin, type) or not issubclass(origin, Iterable):
        return build_of(origin, depth + 1, exact)
    if issubclass(origin, Mapping):
        keys = (
            build_of(args[0], depth + 1) if len(args) == 2 else None
        )  # keys are text between steps, whatever is declared
        items = build_of(args[1], depth + 1, exact) if len(args) == 2 else None
        if not exact and ((keys is None and items is None) or (args[0] is str and items is None)):
            return None
        return functools.partial(_map, keys or _same, items or _same)
    if origin is tuple and args and args[-1] is not Ellipsis:
        return functools.partial(_tuple, [build_of(arg, depth + 1, exact) or _same for arg in args])
    item = build_of(args[0], depth + 1, exact) if args else None
    if not exact and item is None and origin not in (tuple, set, frozenset):
        return None
    return functools.partial(_list, origin if origin in (tuple, set, frozenset) else list, item or _same)


def _map(keys: Build, items: Build, value: Any) -> Any:
    if isinstance(value, dict):
        return {keys(key): items(item) for key, item in value.items()}
    return _object(value, "a dict")


def _list(make: Any, item: Build, value: Any) -> Any:
    return make(map(item, value)) if isinstance(value, list) else _object(value, "a list")


def _tuple(each: list[Build], value: Any) -> Any:
    if isinstance(value, list) and len(value) == len(each):
        return tuple(build(item) for build, item in zip(each, value, strict=True))
    return _object(value, f"a list of {len(each)}")


def _object(value: Any, wanted: str) -> Any:
    """What is no data was passed on by a step as it was."""
    if is_data(value):
        raise Misfit(value, wanted, f"give {wanted}")
    return value


def _same(value: Any) -> Any:
    return value


# -- classes with fields ----------------------------------------------------------------------------------------------


def _class(cls: Any, depth: int) -> Build | None:
    """A class with fields from the map that it was."""
    if callable(getattr(cls, "model_validate", None)) and hasattr(cls, "model_fields"):
        return functools.partial(_validated, cls)
    if hasattr(cls, "__dataclass_fields__"):
        import dataclasses

        names = {field.name: field.init for field in dataclasses.fields(cls)}
    elif issubclass(cls, tuple) and hasattr(cls, "_fields"):
        names = dict.fromkeys(cls._fields, True)
    else:
        return None
    hints = hints_of(cls)
    builds = {name: build_of(hints[name], depth + 1, exact=True) or _same for name in names if name in hints}
    import inspect

    signature = inspect.signature(cls)

    def convert(value: Any) -> Any:
        if isinstance(value, list) and issubclass(cls, tuple) and len(value) == len(names):
            value = dict(zip(names, value, strict=True))
        if not is_data(value):
            return value
        if not isinstance(value, dict) or not names.keys() >= value.keys():
            _no_class(value, cls, names)
        fields = {name: builds.get(name, _same)(item) for name, item in value.items()}
        given = {name: item for name, item in fields.items() if names[name]}
        try:
            signature.bind(**given)
        except TypeError:
            _no_class(value, cls, names)
        made = cls(**given)
        for name, item in fields.items():
            if not names[name]:
                object.__setattr__(made, name, item)
        return made

    return convert


def _no_class(value: Any, cls: Any, names: Mapping[str, Any]) -> NoReturn:
    raise Misfit(value, f"a {cls.__name__}", f"give a dict of its fields: {', '.join(names)}")


def _validated(cls: Any, value: Any) -> Any:
    if not is_data(value):
        return value
    try:
        return cls.model_validate(value)
    except ValueError as error:
        found = error.errors() if hasattr(error, "errors") else []
        said = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in found[:3]) or str(error)
        raise Misfit(value, f"a {cls.__name__}", said) from None
