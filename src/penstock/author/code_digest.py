"""The digest of a function's code. Called by capture for every function step.

The digest covers the function's own source and, transitively, every function, class and constant of the author's that it
names or declares its parameters as, and whole files of the author's modules that it goes through, with the values that it
reads there. Comments, blank lines and decorators do not count: resources must not change identity. Installed packages do not
count either; an image, or `cache=Cache(version=…)`, stands for those (docs/ideas/identity.md).
"""

from __future__ import annotations

import ast
import decimal
import dis
import enum
import functools
import hashlib
import importlib.util
import inspect
import io
import re
import sys
import sysconfig
import textwrap
import tokenize
import types
import typing
from collections.abc import Callable, Iterator
from pathlib import Path, PurePath
from typing import Any

from penstock.artifacts.plain import has_plain_form
from penstock.artifacts.rebuild import hints_of
from penstock.graph.codec import canonical

_PENSTOCK = str(Path(__file__).parent.parent)


@functools.cache
def installed() -> tuple[str, ...]:
    """Folders of modules that are not the author's."""
    paths = sysconfig.get_paths()
    return tuple({paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")} | {_PENSTOCK})


def is_authors(module_name: str | None) -> bool:
    module = sys.modules.get(module_name or "")
    if module is None:
        return True
    file = getattr(module, "__file__", None)
    if file is None:
        return module_name == "__main__" or not hasattr(module, "__spec__") or module.__spec__ is None
    return not any(str(Path(file).absolute()).startswith(path) for path in installed())


def code_digest(function: Callable[..., Any]) -> str:
    """`sha256:…` of all code of the author's that this function runs."""
    parts: _Parts = {}
    if isinstance(function, types.MethodType):
        parts["self"] = ("=self", _data(function, parts, 0))
    else:
        _visit(function, parts)
    if function.__name__ == "<lambda>" and _source_of(function).count("lambda") > 1:
        parts["lambda"] = ("lambda", _code_text(function.__code__))  # its text does not say which of them it is
    found = sorted(set(parts.values()))
    return "sha256:" + hashlib.sha256(canonical(found).encode("utf-8", "surrogatepass")).hexdigest()


_Parts = dict[Any, tuple[str, str]]
"""What was visited, by identity -> (name, text). The name of a module is left out: `__main__` and `flow` may be one file."""


# -- what a function reaches


def _visit(thing: Any, parts: _Parts) -> None:
    thing = inspect.unwrap(thing)
    if id(thing) in parts:
        return
    parts[id(thing)] = (f"{getattr(thing, '__qualname__', thing)}", _source_of(thing))
    if isinstance(thing, type):
        _visit_class(thing, parts)
    elif isinstance(thing, types.FunctionType):
        _names(thing, parts)


def _visit_class(cls: type, parts: _Parts) -> None:
    for base in cls.__bases__:
        if base is not object and is_authors(base.__module__):
            _visit(base, parts)
    if has_plain_form(cls) and not issubclass(cls, enum.Enum):
        _declared(cls, parts)
    for name, member in vars(cls).items():
        member = getattr(member, "__func__", member)
        if isinstance(member, property | functools.cached_property):
            getters = (member.fget, member.fset) if isinstance(member, property) else (member.func,)
            for getter in getters:
                if isinstance(getter, types.FunctionType):
                    _names(getter, parts)
        elif isinstance(member, types.FunctionType) and member.__module__ == cls.__module__:
            _names(member, parts)
        elif not name.startswith("__") and not isinstance(
            member, types.MemberDescriptorType | types.GetSetDescriptorType
        ):
            _used(f"{cls.__qualname__}.{name}", member, parts)


def _names(function: types.FunctionType, parts: _Parts) -> None:
    for default in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
        _used(f"{function.__qualname__} default", default, parts)
    if not all(note in _PLAIN_NOTES for note in map(str, function.__annotations__.values())):
        _declared(function, parts)
    for name in _of_code(function.__code__, "imports", lambda: sorted(set(_imports(function.__code__)))):
        _imported(name, parts)
    closure = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=False))
    names = _of_code(function.__code__, "names", lambda: sorted(set(code_names(function.__code__)) | set(closure)))
    for name in names:
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
        if isinstance(value, types.ModuleType):
            _attributes(value, names, parts, set())


def _attributes(module: types.ModuleType, names: list[str], parts: _Parts, seen: set[int]) -> None:
    """What the code reaches through a module of the author's: `cfg.CFG` counts as `CFG` does after `from cfg import CFG`."""
    if id(module) in seen or not is_authors(module.__name__):
        return
    seen.add(id(module))
    for name in names:
        if name in vars(module):
            value = vars(module)[name]
            _used(name, value, parts)
            if isinstance(value, types.ModuleType):
                _attributes(value, names, parts, seen)


def _declared(thing: Any, parts: _Parts) -> None:
    """The classes that parameters or fields are declared as: a worker makes the arguments of them."""
    waiting = [hint for name, hint in hints_of(thing).items() if name != "return"]
    while waiting:
        hint = waiting.pop()
        if typing.get_origin(hint) is typing.Literal:
            waiting += {type(arg) for arg in typing.get_args(hint)}
            continue
        waiting += typing.get_args(hint)
        if isinstance(hint, type) and has_plain_form(hint) and not issubclass(hint, PurePath | set | frozenset):
            _used(hint.__name__, hint, parts)
            parts["declared", hint.__name__] = ("declared", hint.__name__)


_PLAIN_NOTES = frozenset(("int", "float", "str", "bool", *map(str, (int, float, str, bool, list, dict, None))))


def _imports(code: types.CodeType) -> Iterator[str]:
    """Names of the modules that are imported inside the function."""
    yield from (str(step.argval) for step in dis.get_instructions(code) if step.opname == "IMPORT_NAME")
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _imports(constant)


def _imported(name: str, parts: _Parts) -> None:
    """The file of a module of the author's. It may not have been imported yet."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return
    if spec is None or not spec.origin or not Path(spec.origin).is_file():
        return
    if not str(Path(spec.origin).absolute()).startswith(installed()):
        text = hashlib.sha256(Path(spec.origin).read_bytes()).hexdigest()
        parts[(name, text)] = ("module", text)


def code_names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from code_names(constant)


def _used(name: str, value: Any, parts: _Parts) -> None:
    """A value that the code reaches by a name, and what it holds. Tasks have a `__wrapped__`, as other decorators have."""
    if isinstance(value, types.ModuleType):
        if is_authors(value.__name__):
            _visit_module(value, parts)
        return
    if isinstance(value, types.FunctionType | type) or hasattr(value, "__wrapped__"):
        if is_authors(getattr(value, "__module__", None)):
            _visit(value, parts)
        return
    text = _data(value, parts, 0)
    parts[(name, text)] = (f"={name}", text)


def _data(value: Any, parts: _Parts, depth: int) -> str:
    """A constant as text that is the same in every process. Functions and objects of the author's inside it are visited."""
    if depth > 20:
        return "…"
    again = functools.partial(_data, parts=parts, depth=depth + 1)
    if value is None or isinstance(value, bool | int | float | str | bytes | complex):
        return repr(value)
    if isinstance(value, list | tuple):
        return f"{type(value).__name__}[{', '.join(map(again, value))}]"
    if isinstance(value, set | frozenset):
        return f"{type(value).__name__}[{', '.join(sorted(map(again, value)))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{again(key)}: {again(item)}" for key, item in value.items()) + "}"
    if isinstance(value, types.MethodType):
        return f"{again(value.__self__)}.{again(value.__func__)}"
    if isinstance(value, functools.partial):
        return f"partial({again(value.func)}, {again(list(value.args))}, {again(value.keywords)})"
    if isinstance(value, types.FunctionType | types.ModuleType | type):
        _used(getattr(value, "__qualname__", value.__name__), value, parts)
        return getattr(value, "__qualname__", value.__name__)
    if isinstance(value, enum.Enum | re.Pattern | Path | decimal.Decimal | range):
        return repr(value)
    if is_authors(type(value).__module__):
        _visit(type(value), parts)
        return f"{type(value).__qualname__}({again(getattr(value, '__dict__', {}))})"
    return type(value).__qualname__


def _visit_module(module: types.ModuleType, parts: _Parts) -> None:
    file = getattr(module, "__file__", None)
    if id(module) in parts or not file:
        return
    parts[id(module)] = ("module", hashlib.sha256(Path(file).read_bytes()).hexdigest())
    for value in list(vars(module).values()):
        origin = (
            value if isinstance(value, types.ModuleType) else sys.modules.get(getattr(value, "__module__", None) or "")
        )
        if isinstance(origin, types.ModuleType) and origin is not module and is_authors(origin.__name__):
            _visit_module(origin, parts)


# -- source text

_known_code: dict[tuple[int, str], tuple[types.CodeType, Any]] = {}
"""What was read from a code object. A code object never changes, and a thousand steps may be made of one function."""


def _of_code(code: types.CodeType, what: str, work: Callable[[], Any]) -> Any:
    """`work()`, once for each code object."""
    found = _known_code.get((id(code), what))
    if found is None:
        if len(_known_code) > 10_000:
            _known_code.clear()
        found = _known_code[id(code), what] = (code, work())
    return found[1]


def _source_of(thing: Any) -> str:
    code = getattr(thing, "__code__", None)
    if not isinstance(code, types.CodeType):
        return normalised_source(thing)
    text: str = _of_code(code, "source", lambda: normalised_source(thing))
    return text


def normalised_source(thing: Any) -> str:
    """The text without decorators, comments and blank lines; the bytecode if there is no text."""
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
    """Without comments and blank lines. Cut by position, not printed from tokens, so that the text does not depend on the
    version of Python."""
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
