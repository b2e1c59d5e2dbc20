"""A Python file -> the workflow in it. Called by service when FILE ends in .py.

Runs the author's module, so whatever it raises is the author's and is shown as one line of theirs, not as our traceback.
What it prints goes to stderr: stdout belongs to the command.
"""

from __future__ import annotations

import contextlib
import importlib.machinery
import importlib.util
import linecache
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from penstock.author.capture import remembering
from penstock.author.flow import WorkflowFunction
from penstock.author.jobs import Authored
from penstock.errors import AuthorError, NotFound, PenstockError, Problem, Source, nearest
from penstock.graph.model import Workflow


def load_graph(path: Path, name: str | None = None) -> Workflow:
    """The one workflow of a file, or the one called `name`. Raises AuthorError or NotFound.

    Modules that the file imported from beside it are forgotten again: the next file may have neighbours of the same names."""
    before = set(sys.modules)
    folders = (path.parent.absolute(), Path.cwd())
    try:
        with _neighbours(*folders), remembering():
            return find_workflow(path, load_module(path), name).graph
    finally:
        for known in set(sys.modules) - before:
            file = getattr(sys.modules[known], "__file__", None)
            if file and Path(file).absolute().is_relative_to(folders[0]) and "site-packages" not in file:
                del sys.modules[known]


def find_workflow(path: Path, module: ModuleType, name: str | None) -> Authored:
    found = _workflows(module)
    if name is not None:
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
        fix = "decorate a function with @workflow, or assign a Workflow(…) to a name at the top of the file"
        raise AuthorError(Problem("P304", f"there is no workflow in {path}", fix, source=Source(str(path), 1)))
    if len(distinct) > 1:
        names = [key for key, _ in distinct.values()]
        raise AuthorError(
            Problem(
                "P303",
                f"there are {len(names)} workflows in {path}: {', '.join(names)}",
                f"say which: {path}:{names[-1]}",
                source=Source(str(path), 1),
            )
        )
    return next(iter(distinct.values()))[1]


def _workflows(module: ModuleType) -> dict[str, Authored]:
    """Those the file itself defines: imported ones are parts of others."""
    found: dict[str, Authored] = {}
    for key, value in vars(module).items():
        if isinstance(value, WorkflowFunction):
            if value.function.__module__ == module.__name__:
                found[key] = value
        elif isinstance(value, Authored) and not key.startswith("_"):
            found[key] = value
    return found


def load_module(path: Path) -> ModuleType:
    """Raises AuthorError with the author's own line."""
    name = _module_name(path)
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
    """The file's own name, unless another module has it: a flow in json.py must not replace the json that all else uses."""
    name = path.stem if path.stem.isidentifier() else "workflow_file"
    known = sys.modules.get(name)
    others = [entry for entry in sys.path if Path(entry or ".").absolute() != path.parent.absolute()]
    spec = None if known is not None else importlib.machinery.PathFinder.find_spec(name, others)
    file = getattr(known, "__file__", None) if known is not None else spec and spec.origin
    elsewhere = (known is not None or spec is not None) and (not file or Path(file).absolute() != path.absolute())
    return f"penstock_flow_{name}" if elsewhere or name in sys.stdlib_module_names else name


@contextlib.contextmanager
def _neighbours(*folders: Path) -> Iterator[None]:
    """Modules beside the file, and those of the folder one stands in, can be imported, as when the file is run."""
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
                "mend the line",
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
    fix = "mend the file; it is run once to find the workflow in it"
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
