"""A Python file -> the workflow in it. Called by service when FILE ends in .py.

The author's module is run. What it raises is reported at the author's line, without a traceback. What it prints goes to
stderr: stdout belongs to the command.
"""

from __future__ import annotations

import ast
import contextlib
import importlib.machinery
import importlib.util
import linecache
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, ModuleType

from penstock.author.capture import cached_digests
from penstock.author.chains import Chain
from penstock.author.errors import Broken
from penstock.author.flow import WorkflowFunction
from penstock.author.jobs import Authored
from penstock.errors import AuthorError, NotFound, PenstockError, Problem, Source, loading, nearest
from penstock.graph.model import Workflow


def load_graph(path: Path, name: str | None = None) -> Workflow:
    """The one workflow of a file, or the one called `name`. Raises AuthorError or NotFound.

    Modules that the file imported from its own folder are removed again: the next file may import others of the same names."""
    before = set(sys.modules)
    package, root = _package(path)
    folders = (path.parent.absolute(), Path.cwd()) if not package else (root / package[0], root, Path.cwd())
    token = loading.set(True)
    try:
        with _neighbours(*folders), cached_digests():
            return find_workflow(path, load_module(path), name).graph
    finally:
        loading.reset(token)
        for known in set(sys.modules) - before:
            file = getattr(sys.modules[known], "__file__", None)
            if file and Path(file).absolute().is_relative_to(folders[0]) and "site-packages" not in file:
                del sys.modules[known]


def find_workflow(path: Path, module: ModuleType, name: str | None) -> Authored:
    found = _workflows(module)
    broken = {key: value.error for key, value in vars(module).items() if isinstance(value, Broken)}
    if name is not None:
        if name in broken:
            raise broken[name]
        if name not in found:
            raise NotFound(
                Problem(
                    "P303",
                    f"there is no workflow {name!r} in {path}",
                    f"known: {', '.join(found) or 'none'}.{nearest(name, found)}",
                )
            )
        return found[name]
    distinct = {id(workflow): (key, workflow) for key, workflow in found.items()}
    if not distinct:
        for error in broken.values():
            raise error
        fix = "decorate a function with @workflow, or assign a Workflow(…) to a name at the top of the file"
        raise AuthorError(Problem("P304", f"there is no workflow in {path}", fix, source=Source(str(path), 1)))
    called = {id(one) for _, workflow in distinct.values() for one in _calls(workflow, found) if one is not workflow}
    if len(distinct) > 1 and len(distinct.keys() - called) == 1:
        return next(workflow for key, (_, workflow) in distinct.items() if key not in called)
    if len(distinct) > 1:
        names = [key for number, (key, _) in distinct.items() if number not in called] or [*found]
        raise AuthorError(
            Problem(
                "P303",
                f"there are {len(names)} workflows in {path} that no other calls: {', '.join(names)}",
                f"say which: {path}:{names[-1]}",
                source=Source(str(path), 1),
            )
        )
    return next(iter(distinct.values()))[1]


def _workflows(module: ModuleType) -> dict[str, Authored]:
    """Those that the file defines. Imported ones are parts of other workflows."""
    found: dict[str, Authored] = {}
    for key, value in vars(module).items():
        if isinstance(value, WorkflowFunction):
            if value.function.__module__ == module.__name__:
                found[key] = value
        elif isinstance(value, Authored) and not key.startswith("_"):
            found[key] = value
    return found


def _calls(workflow: Authored, found: dict[str, Authored]) -> list[Authored]:
    """The workflows of the same file that this one names in its code, or is made of. Nothing is compiled: it may be wrong."""
    if isinstance(workflow, WorkflowFunction):
        named = [found[name] for name in _names(workflow.function.__code__) if name in found]
        linked = [getattr(link, "workflow", link) for link in workflow.given.get("links") or ()]
        linked += workflow.given.get("catalogue") or ()
        return [*named, *(one for one in found.values() if any(one is other for other in linked))]
    names = {definition.name for definition in workflow.graph.definitions}
    if isinstance(workflow, Chain):
        names.add(workflow.name)
    return [one for one in found.values() if one.name in names and not isinstance(one, Chain)]


def _names(code: CodeType) -> Iterator[str]:
    """What a function names, also inside its comprehensions."""
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _names(inner)


def _package(path: Path) -> tuple[tuple[str, ...], Path]:
    """For a file with relative imports: the names of the packages around it, and the folder that holds the outermost. () for any other."""
    try:
        nodes = ast.walk(ast.parse(path.read_bytes()))
    except (SyntaxError, ValueError, OSError):
        return (), path.parent
    depth = max((node.level for node in nodes if isinstance(node, ast.ImportFrom)), default=0)
    if not depth:
        return (), path.parent
    folder = path.absolute().parent
    names: list[str] = []
    while len(names) < depth or (folder / "__init__.py").is_file():
        names.insert(0, folder.name)
        folder = folder.parent
    return tuple(names), folder


def load_module(path: Path) -> ModuleType:
    """Raises AuthorError at the author's line."""
    package, _ = _package(path)
    name = ".".join((*package, path.stem)) if package else _module_name(path)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise AuthorError(
            Problem("P301", f"{path} cannot be read as Python", "give a .py file", source=Source(str(path), 1))
        )
    module = importlib.util.module_from_spec(spec)
    before = sys.modules.get(name)
    sys.modules[name] = module
    linecache.checkcache(str(path))
    try:
        with contextlib.redirect_stdout(sys.stderr):
            spec.loader.exec_module(module)
    except BaseException as error:
        if before is not None:
            sys.modules[name] = before
        else:
            sys.modules.pop(name, None)
        if isinstance(error, PenstockError | KeyboardInterrupt):
            raise
        raise _authors_error(error, path) from None
    return module


def _module_name(path: Path) -> str:
    """The file's own name, unless another module has it: a flow in json.py must not replace Python's json."""
    name = path.stem if path.stem.isidentifier() else "workflow_file"
    known = sys.modules.get(name)
    others = [entry for entry in sys.path if Path(entry or ".").absolute() != path.parent.absolute()]
    spec = None if known is not None else importlib.machinery.PathFinder.find_spec(name, others)
    file = getattr(known, "__file__", None) if known is not None else spec and spec.origin
    elsewhere = (known is not None or spec is not None) and (not file or Path(file).absolute() != path.absolute())
    return f"penstock_flow_{name}" if elsewhere or name in sys.stdlib_module_names else name


@contextlib.contextmanager
def _neighbours(*folders: Path) -> Iterator[None]:
    """Inside, modules can be imported from these folders, as when the file is run."""
    entries = [str(folder) for folder in folders]
    sys.path[:0] = entries
    try:
        yield
    finally:
        for entry in entries:
            with contextlib.suppress(ValueError):
                sys.path.remove(entry)


def _authors_error(error: BaseException, path: Path) -> AuthorError:
    if isinstance(error, SyntaxError):
        source = Source(error.filename or str(path), error.lineno or 1, error.offset or 0)
        return AuthorError(
            Problem(
                "P301",
                f"this is not Python: {error.msg}",
                "correct the line",
                source=source,
                excerpt=(error.text or "").rstrip("\n")[:200],
            )
        )
    if isinstance(error, UnicodeDecodeError | ValueError) and not error.__traceback__:
        return AuthorError(
            Problem("P301", f"this is not Python: {error}", "save the file as UTF-8", source=Source(str(path), 1))
        )
    frames = [f for f in traceback.extract_tb(error.__traceback__) if Path(f.filename).absolute() == path.absolute()]
    frame = frames[-1] if frames else None
    source = Source(str(path), frame.lineno or 1) if frame else Source(str(path), 1)
    what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    fix = "correct the file; it is run once to find the workflow in it"
    if isinstance(error, ModuleNotFoundError):
        fix = f"install {error.name!r} where penstock runs, or import it inside the task that needs it"
    if isinstance(error, SystemExit):
        fix = "put what runs the program under `if __name__ == '__main__':`"
    return AuthorError(
        Problem(
            "P302",
            f"running the file failed: {what[:500]}",
            fix,
            source=source,
            excerpt=(frame.line or "") if frame else "",
        )
    )
