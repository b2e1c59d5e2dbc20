"""What determines a function's result, as far as its code goes: one digest. Called by jobs for every function step.

The digest covers the function's own source and, transitively, every function, class and constant of the author's that it
names, and whole files of the author's modules that it goes through. Comments, blank lines and decorators do not count:
resources must not change identity. Installed packages do not count either; an image, or `cache=Cache(version=…)`, speaks for
those (docs/ideas/identity.md).
"""

from __future__ import annotations

import ast
import functools
import hashlib
import inspect
import io
import sys
import sysconfig
import textwrap
import tokenize
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from penstock.graph.codec import canonical

_OURS = str(Path(__file__).parent.parent)


@functools.cache
def _installed() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    return tuple({paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")} | {_OURS})


def _is_authors(module_name: str | None) -> bool:
    module = sys.modules.get(module_name or "")
    if module is None:
        return True
    file = getattr(module, "__file__", None)
    if file is None:
        return module_name == "__main__" or not hasattr(module, "__spec__") or module.__spec__ is None
    return not any(str(Path(file).absolute()).startswith(path) for path in _installed())


def module_of(function: Callable[..., Any]) -> str:
    """Where the function can be imported from: the program that is being run goes by its file's name."""
    name = function.__module__ or "__main__"
    file = getattr(sys.modules.get("__main__"), "__file__", None)
    stem = Path(file).stem if file else ""
    return stem if name == "__main__" and stem.isidentifier() and stem != "__main__" else name


def code_digest(function: Callable[..., Any]) -> str:
    """`sha256:…` of everything of the author's that this function runs."""
    parts: Parts = {}
    _visit(function, parts)
    found = sorted(set(parts.values()))
    return "sha256:" + hashlib.sha256(canonical(found).encode("utf-8", "surrogatepass")).hexdigest()


Parts = dict[Any, tuple[str, str]]
"""What was seen, by identity -> (name, text). Modules are not named: `__main__` and `flow` may be the same file."""


def _visit(thing: Any, parts: Parts) -> None:
    thing = inspect.unwrap(thing)
    if id(thing) in parts:
        return
    parts[id(thing)] = (f"{getattr(thing, '__qualname__', thing)}", normalised_source(thing))
    if isinstance(thing, type):
        for member in vars(thing).values():
            member = getattr(member, "__func__", member)
            if isinstance(member, types.FunctionType) and member.__module__ == thing.__module__:
                _names(member, parts)
        return
    _names(thing, parts)


def _names(function: types.FunctionType, parts: Parts) -> None:
    closure = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=False))
    for name in sorted(set(_code_names(function.__code__)) | set(closure)):
        if name in closure:
            try:
                value = closure[name].cell_contents
            except ValueError:
                continue
        elif name in function.__globals__:
            value = function.__globals__[name]
        else:
            continue
        _used(name, value, parts)


def _code_names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _code_names(constant)


def _used(name: str, value: Any, parts: Parts) -> None:
    task = getattr(value, "penstock_task", None) if not isinstance(value, types.ModuleType) else None
    if task is not None:
        value = task.function
    if isinstance(value, types.ModuleType):
        if _is_authors(value.__name__):
            _visit_module(value, parts)
        return
    if isinstance(value, types.FunctionType | type):
        if _is_authors(value.__module__):
            _visit(value, parts)
        return
    try:
        text = canonical(value)
    except (TypeError, ValueError, RecursionError):
        text = type(value).__qualname__
    parts[(name, text)] = (f"={name}", text)


def _visit_module(module: types.ModuleType, parts: Parts) -> None:
    file = getattr(module, "__file__", None)
    if id(module) in parts or not file:
        return
    parts[id(module)] = ("module", hashlib.sha256(Path(file).read_bytes()).hexdigest())
    for value in list(vars(module).values()):
        origin = (
            value if isinstance(value, types.ModuleType) else sys.modules.get(getattr(value, "__module__", None) or "")
        )
        if isinstance(origin, types.ModuleType) and origin is not module and _is_authors(origin.__name__):
            _visit_module(origin, parts)


def normalised_source(thing: Any) -> str:
    """The text without decorators, comments and blank lines; the bytecode where there is no text."""
    try:
        text = textwrap.dedent(inspect.getsource(thing))
        body = ast.parse(text).body[0]
    except (OSError, TypeError, SyntaxError, IndexError, ValueError):
        code = getattr(thing, "__code__", None)
        return f"bytecode {_code_text(code)}" if code is not None else repr(thing)
    lines = text.splitlines(keepends=True)
    start = body.lineno - 1 if isinstance(body, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) else 0
    return strip_comments("".join(lines[start : body.end_lineno]))


def _code_text(code: types.CodeType) -> str:
    constants = [_code_text(c) if isinstance(c, types.CodeType) else repr(c) for c in code.co_consts]
    return f"{code.co_code.hex()} {constants} {code.co_names} {code.co_varnames}"


def strip_comments(text: str) -> str:
    """Cut by position, not re-printed from tokens, so that every Python version gives the same text."""
    lines = text.splitlines(keepends=True)
    drop: set[int] = set()
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            row, column = token.start
            if token.type == tokenize.COMMENT:
                lines[row - 1] = lines[row - 1][:column].rstrip() + "\n"
            elif token.type == tokenize.NL and not lines[row - 1].strip():
                drop.add(row - 1)
    except (tokenize.TokenError, IndentationError):
        return text
    return "".join(line for i, line in enumerate(lines) if i not in drop)
