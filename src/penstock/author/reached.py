"""What a function reaches by the names in its code: other functions and classes, and values of modules. Called by flow, which compiles a
workflow anew when a cell of a notebook has defined some of that again, and by pack, for values that were set after the import.
"""

from __future__ import annotations

import ast
import functools
import inspect
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.author.code_digest import code_digest, code_names, is_authors
from penstock.author.jobs import Authored

_LARGEST = 100_000
"""Characters of a value that is sent to workers."""

Fingerprint = tuple[str, tuple[Any, ...]]


class Reached:
    """`things`: functions, tasks and workflows, in order. `values`: (module, name) -> what the name stands for there."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.things: list[Any] = []
        self.values: dict[tuple[str, str], Any] = {}
        self._seen: set[int] = set()
        self._function(function)

    def _function(self, function: Any) -> None:
        function = inspect.unwrap(getattr(function, "__func__", function))
        if id(function) in self._seen or not isinstance(function, types.FunctionType):
            return
        self._seen.add(id(function))
        names = sorted(set(code_names(function.__code__)))
        closure = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=False))
        for name, cell in sorted(closure.items()):
            try:
                self._thing(cell.cell_contents, names, "", name)
            except ValueError:  # it has no value yet
                continue
        for name in names:
            if name in function.__globals__ and name not in closure:
                self._thing(function.__globals__[name], names, function.__module__ or "", name)

    def _thing(self, value: Any, names: list[str], module: str, name: str) -> None:
        if isinstance(value, types.ModuleType):
            if is_authors(value.__name__) and id(value) not in self._seen:
                self._seen.add(id(value))
                for inner in names:
                    if inner in vars(value):
                        self._thing(vars(value)[inner], names, value.__name__, inner)
        elif callable(value) or isinstance(value, Authored):
            self.things.append(value)
            if is_authors(getattr(value, "__module__", None)):
                for member in vars(value).values() if isinstance(value, type) else (value,):
                    self._function(member)
        else:
            self.values[module, name] = value


def fingerprint(function: Callable[..., Any]) -> Fingerprint:
    """Equal as long as nothing of what the function reaches was changed or defined again."""
    return code_digest(function), tuple(Reached(function).things)


def same(one: Fingerprint, other: Fingerprint) -> bool:
    """Things are compared by identity: a task that was defined again may differ in nothing but its options."""
    return (
        one[0] == other[0]
        and len(one[1]) == len(other[1])
        and all(mine is theirs for mine, theirs in zip(one[1], other[1], strict=True))
    )


# -- values that were set after the import


def set_since_import(function: Callable[..., Any], file_of: Callable[[str], Path | None]) -> list[tuple[str, str, str]]:
    """(module, name, value as Python writes it) of plain values that the function reaches in modules, where these are assigned once and
    something else. An import elsewhere would not give what they are here. What a module computes is not compared: it is computed anew."""
    found = []
    for (module, name), value in sorted(Reached(function).values.items(), key=lambda item: item[0]):
        file = file_of(module)
        if file is None or not _is_plain(value):
            continue
        literals = literals_of(str(file), file.stat().st_mtime_ns)
        if name in literals and literals[name] != (text := repr(value)) and len(text) <= _LARGEST:
            found.append((module, name, text))
    return found


def _is_plain(value: Any, depth: int = 20) -> bool:
    """Does Python read what it writes of it?"""
    if type(value) in (list, tuple, set):
        return depth > 0 and all(_is_plain(item, depth - 1) for item in value)
    if type(value) is dict:
        return depth > 0 and all(_is_plain(item, depth - 1) for pair in value.items() for item in pair)
    if type(value) is float:
        return value - value == 0
    return value is None or type(value) in (bool, int, str, bytes)


@functools.lru_cache(maxsize=200)
def literals_of(file: str, changed: int) -> dict[str, str]:
    """Names that the module assigns at its top, a literal and only once -> the value as Python writes it."""
    try:
        tree = ast.parse(Path(file).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return {}
    stored: dict[str, int] = {}
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            names = [node.id]
        elif isinstance(node, ast.Global):
            names = node.names
        for name in names:
            stored[name] = stored.get(name, 0) + 1
    found = {}
    for statement in tree.body:
        match statement:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=value)
            ):
                if value is not None and stored[name] == 1:
                    try:
                        found[name] = repr(ast.literal_eval(value))
                    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
                        continue
    return found
