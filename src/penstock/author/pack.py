"""The author's code as one zip, so that another process or machine can run the functions of a workflow. Called by service
when a run starts; read by backends.local.loader.

An importable function is packed as the source files of its module and of every module of the author's that it imports.
Imports are found in the source, those inside functions included. Installed packages are not packed. Functions of a script or
a notebook (`__main__`), closures and the like are packed by value, with cloudpickle. Functions of different folders have
different roots, so that the zip can hold two files called flow.py.

    manifest.json    roots: module -> [path in the zip, path where it was, is it a package], and the folders they were in;
                     functions: module, name, code -> root, and the module's name or the pickle; values: what modules were given after their import
    0/flow.py        …
    0.pickle
"""

from __future__ import annotations

import ast
import importlib.machinery
import io
import json
import sys
import types
import typing
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from penstock.artifacts.rebuild import hints_of
from penstock.author.capture import CapturedFunction, FunctionKey, captured, function_keys
from penstock.author.code_digest import installed
from penstock.author.reached import set_since_import
from penstock.errors import AuthorError, Problem
from penstock.graph.model import Workflow

Manifest = dict[str, Any]
_EPOCH = (1980, 1, 1, 0, 0, 0)


def pack(workflow: Workflow) -> tuple[bytes, Manifest] | None:
    """The zip and its manifest; None if no function of the workflow is the author's."""
    roots: dict[str, _Root] = {}
    functions: list[dict[str, Any]] = []
    files: dict[str, bytes] = {}
    for key in function_keys(workflow):
        known = captured.get(key)
        if known is None or _is_installed(known):
            continue
        home = _home(known)
        root = roots.setdefault(home, _Root(len(roots), home))
        entry: dict[str, Any] = {"module": key[0], "name": key[1], "code": key[2], "root": root.number}
        if _importable(known):
            entry["as"] = known.function.__module__
        else:
            entry["pickle"] = f"{len(functions)}.pickle"
            files[entry["pickle"]] = _by_value(key, known)
        root.take(known, file_too="as" in entry or known.function.__module__ != "__main__")
        if values := set_since_import(known.function, root.file_of):
            entry["values"] = values
        functions.append(entry)
    if not functions:
        return None
    for root in roots.values():
        files.update(root.files)
    manifest = {"version": 1, "roots": [root.as_data() for root in roots.values()], "functions": functions}
    return _zip(files | {"manifest.json": json.dumps(manifest, indent=1, sort_keys=True).encode()}), manifest


def _zip(files: dict[str, bytes]) -> bytes:
    """The same files give the same bytes: no times, one order."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(files):
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), files[name], zipfile.ZIP_DEFLATED)
    return target.getvalue()


class _Root:
    """The modules that functions from one folder use."""

    def __init__(self, number: int, home: str) -> None:
        self.number = number
        self.folders: dict[str, None] = {home: None} if home else {}
        self.modules: dict[str, list[Any]] = {}
        self.files: dict[str, bytes] = {}
        self.seen: set[str] = set()

    def as_data(self) -> dict[str, Any]:
        return {"modules": dict(sorted(self.modules.items())), "folders": list(self.folders)}

    def file_of(self, module: str) -> Path | None:
        """The source that workers make this module of; None if they do not: it is installed, or sent by value."""
        if module not in self.modules:
            return None
        return Path(self.modules[module][1]) if self.modules[module][0] else None

    def take(self, known: CapturedFunction, file_too: bool) -> None:
        """The function's module and all modules of the author's that it imports."""
        for entry in known.path:
            folder = str(Path(entry).absolute())
            if Path(folder).is_dir() and not folder.startswith(installed()):
                self.folders.setdefault(folder, None)
        file = _file(known)
        if file is None:
            return
        name = known.function.__module__
        if file_too:
            for outer in _outer(name):
                self.find(outer, known)
            self.add(name, file, file.name == "__init__.py", known)
        else:
            self.imports(name, file, False, known)

    def add(self, name: str, file: Path, package: bool, known: CapturedFunction) -> None:
        if name in self.modules:
            return
        inner = name.replace(".", "/") + ("/__init__.py" if package else ".py")
        self.modules[name] = [f"{self.number}/{inner}", str(file), package]
        self.files[f"{self.number}/{inner}"] = file.read_bytes()
        self.imports(name, file, package, known)

    def imports(self, name: str, file: Path, package: bool, known: CapturedFunction) -> None:
        try:
            tree = ast.parse(file.read_bytes())
        except (SyntaxError, ValueError, OSError):
            return
        for wanted in _imported(tree, name if package else name.rpartition(".")[0]):
            for outer in (*_outer(wanted), wanted):
                self.find(outer, known)

    def find(self, name: str, known: CapturedFunction) -> None:
        """Adds the module of this name, if it is the author's."""
        if name in self.seen or name.partition(".")[0] in sys.stdlib_module_names | {"penstock"}:
            return
        self.seen.add(name)
        parent = name.rpartition(".")[0]
        if parent:
            if parent not in self.modules:
                return
            places = self.modules[parent][3:] or [str(Path(self.modules[parent][1]).parent)]
        else:
            places = [entry or "." for entry in dict.fromkeys((*self.folders, *known.path))]
        try:
            spec = importlib.machinery.PathFinder.find_spec(name, places)
        except (ImportError, ValueError):
            return
        if spec is None:
            return
        if spec.origin is None and spec.submodule_search_locations:
            folders = [str(Path(place).absolute()) for place in spec.submodule_search_locations]
            if not folders[0].startswith(installed()):
                self.modules[name] = [None, folders[0], True, *folders]
        elif spec.origin and spec.origin.endswith(".py"):
            file = Path(spec.origin).absolute()
            if not str(file).startswith(installed()) and "site-packages" not in file.parts:
                self.add(name, file, spec.submodule_search_locations is not None, known)


def _outer(name: str) -> Iterator[str]:
    parts = name.split(".")
    return (".".join(parts[:length]) for length in range(1, len(parts)))


def _imported(tree: ast.AST, package: str) -> Iterator[str]:
    """Every name that may be a module, imported anywhere in the file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                outer = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join(part for part in (*outer, base) if part)
            if base:
                yield base
                yield from (f"{base}.{alias.name}" for alias in node.names if alias.name != "*")


def _names(known: CapturedFunction) -> dict[str, Any]:
    """The names of the module. A function made by a decorator of another module has that module's names as its globals."""
    return vars(known.module) if known.module is not None else known.function.__globals__


def _file(known: CapturedFunction) -> Path | None:
    """The source file of the function's module."""
    name = _names(known).get("__file__")
    file = Path(name).absolute() if isinstance(name, str) else None
    return file if file is not None and file.suffix == ".py" and file.is_file() else None


def _home(known: CapturedFunction) -> str:
    """The folder that the module is imported from."""
    file = _file(known)
    if file is None:
        return ""
    folder, depth = file.parent, known.function.__module__.count(".") + (file.name == "__init__.py")
    for _ in range(depth):
        folder = folder.parent
    return str(folder)


def _is_installed(known: CapturedFunction) -> bool:
    file = _file(known)
    return file is not None and (str(file).startswith(installed()) or "site-packages" in file.parts)


def _importable(known: CapturedFunction) -> bool:
    """Does an import of the module find this function by its name? The worker's loader looks it up in the same way."""
    function = known.function
    if function.__module__ in (None, "__main__") or _file(known) is None or "<" in function.__qualname__:
        return False
    first, *rest = function.__qualname__.split(".")
    found: Any = _names(known).get(first)
    for part in rest:
        found = getattr(found, part, None)
    found = getattr(found, "penstock_task", found)
    return getattr(found, "function", found) is function


def _by_value(key: FunctionKey, known: CapturedFunction) -> bytes:
    import cloudpickle  # type: ignore[import-untyped]

    with _modules_by_name(known.function), _annotations_known(known.function):
        try:
            data: bytes = cloudpickle.dumps(known.function, protocol=5)
        except Exception as error:  # an object's own __reduce__ may raise anything
            reason = str(error).split("\n")[0] or type(error).__name__
            fix = "move it into a module, with what it uses defined there or made inside the function"
            raise AuthorError(Problem("P706", f"{key[1]}() cannot be sent to a worker: {reason}", fix)) from None
    return data


@contextmanager
def _modules_by_name(function: Callable[..., Any]) -> Iterator[None]:
    """Inside, the modules in the function's globals are in sys.modules: cloudpickle packs those by name, others by value."""
    found: dict[str, types.ModuleType] = {}
    waiting = [function.__globals__]
    while waiting:
        for value in list(waiting.pop().values()):
            if (
                isinstance(value, types.ModuleType)
                and value.__name__ not in sys.modules
                and value.__name__ not in found
            ):
                found[value.__name__] = value
                waiting.append(vars(value))
    sys.modules.update(found)
    try:
        yield
    finally:
        for name in found:
            sys.modules.pop(name, None)


@contextmanager
def _annotations_known(function: Callable[..., Any]) -> Iterator[None]:
    """Inside, the annotations of the function are what they stand for. As text (`from __future__ import annotations`) they would mean
    nothing to a worker: cloudpickle packs only the names that the code reads. Those of classes that go along stay so, because
    cloudpickle hands a class out as it is whenever an object of it is packed."""
    plain = getattr(function, "__func__", function)
    before, found = plain.__annotations__, hints_of(function)
    _resolve_classes(list(found.values()))
    plain.__annotations__ = {**before, **found}
    try:
        yield
    finally:
        plain.__annotations__ = before


def _resolve_classes(hints: list[Any]) -> None:
    seen: set[int] = set()
    while hints:
        hint = hints.pop()
        if id(hint) in seen:
            continue
        seen.add(id(hint))
        hints.extend(typing.get_args(hint))
        if not isinstance(hint, type) or not _by_value_too(hint):
            continue
        found = hints_of(hint)
        hints.extend([*found.values(), *hint.__bases__])
        own = vars(hint).get("__annotations__", {})
        known = {name: found.get(name, note) for name, note in own.items()}
        if known != own:
            hint.__annotations__ = known


def _by_value_too(cls: type) -> bool:
    return cls.__module__ == "__main__" or "<locals>" in cls.__qualname__
