"""From a bundle of the author's code to a function that can be called. Called by the worker processes, by function_main, and by
inline for functions that the engine's own process does not have. The other side of author.pack.

Several source roots may hold modules of the same name. Only one root is in force at a time: its modules are found first, and
those of another are put aside, so that an import inside a function still finds the function's own neighbours. Modules are
made from the bundle's source but know the file they came from, if it is there, so that data beside it is found and a
traceback names a line that the author can open.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from penstock import rights
from penstock.artifacts.blobs import Blobs

if TYPE_CHECKING:
    from penstock.errors import UserError

_OURS = str(Path(__file__).parents[2])


class Loader:
    """Functions by bundle, module, name and code; each is loaded once."""

    def __init__(self, blobs: Blobs, cache_folder: Path) -> None:
        self._blobs = blobs
        self._cache = cache_folder
        self._known: dict[tuple[str, ...], tuple[_Root, Callable[..., Any]]] = {}
        self._bundles: dict[str, dict[tuple[str, str, str], tuple[_Root, dict[str, Any]]]] = {}
        self._places: dict[str, _Root] = {}
        self._current: _Root | None = None
        self._before = frozenset(sys.modules)

    def function(self, bundle: str, module: str, name: str, code: str, place: str = "") -> Callable[..., Any]:
        """Its root is in force until the next call: whoever calls the function calls this first. Raises UserError (P702)."""
        key = (bundle, module, name, code, place)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._load(bundle, module, name, code, place)
        if known[0] is not self._current:
            self._enter(known[0])
        return known[1]

    def _load(self, bundle: str, module: str, name: str, code: str, place: str) -> tuple[_Root, Callable[..., Any]]:
        entries = self._bundle(bundle) if bundle else {}
        if (module, name, code) not in entries:
            root = self._places.setdefault(place, _Root({}, [place] if place else [], self._before))
            self._enter(root)
            return root, _named(_import(module, place), name)
        root, entry = entries[module, name, code]
        self._enter(root)
        if "as" in entry:
            found = _named(_import(entry["as"], ""), name)
            _set_values(entry)
            return root, found
        if not self._blobs.pickles:
            fix = "move it into a module, or set PENSTOCK_PICKLES=yes"
            raise _refused(f"{name}() was packed as a pickle, and PENSTOCK_PICKLES=no forbids pickles", fix, "P749")
        found = _unpickled(self._folder(bundle) / entry["pickle"], name)
        _set_values(entry)
        return root, found

    def _enter(self, root: _Root) -> None:
        if root is self._current:
            return
        if self._current is not None:
            self._current.leave()
        root.enter()
        self._current = root

    def _bundle(self, digest: str) -> dict[tuple[str, str, str], tuple[_Root, dict[str, Any]]]:
        if digest not in self._bundles:
            import json

            folder = self._unpack(digest)
            manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
            roots = []
            for found in manifest["roots"]:
                modules = {
                    name: _Source(folder / inner if inner else None, Path(original), package)
                    for name, (inner, original, package, *_) in found["modules"].items()
                }
                roots.append(_Root(modules, found["folders"], self._before))
            self._bundles[digest] = {
                (entry["module"], entry["name"], entry["code"]): (roots[entry["root"]], entry)
                for entry in manifest["functions"]
            }
        return self._bundles[digest]

    def _folder(self, digest: str) -> Path:
        return self._cache / "bundles" / digest.removeprefix("sha256:")

    def _unpack(self, digest: str) -> Path:
        """Many processes may do this at once: each into a folder of its own, and the first to be done gives it its name."""
        folder = self._folder(digest)
        if folder.is_dir():
            return folder
        import io
        import shutil
        import tempfile
        import zipfile

        data = self._blobs.get(digest)
        rights.make_folder(folder.parent)
        scratch = Path(tempfile.mkdtemp(dir=folder.parent))
        try:
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                archive.extractall(scratch)
            rights.give_to_group(scratch)
            os.rename(scratch, folder)
        except OSError:
            if not folder.is_dir():
                raise
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        return folder


class _Source:
    """One module of a bundle."""

    def __init__(self, file: Path | None, original: Path, package: bool) -> None:
        self.file = file
        """None: a folder of modules without an __init__.py."""
        self.original = original
        self.package = package


class _Root:
    """The modules that the functions of one folder see, and the folders that they came from. While it is in force it is one
    of sys.meta_path. (Finder and loader are bare: importlib.abc would double the time a worker takes to start.)"""

    def __init__(self, modules: dict[str, _Source], folders: list[str], before: frozenset[str]) -> None:
        self.modules = modules
        self.folders = [folder for folder in folders if os.path.isdir(folder)]
        self._inside = tuple(folder.rstrip("/") + "/" for folder in self.folders)
        self._before = before
        self._loaded: dict[str, ModuleType] = {}
        self._added: list[str] = []

    def enter(self) -> None:
        sys.modules.update(self._loaded)
        sys.meta_path.insert(0, self)
        # Behind everything else: only what the bundle does not have is looked for where the code once was. Without a
        # bundle it is all there is, and stands in front as it does when Python runs a file.
        self._added = [folder for folder in self.folders if folder not in sys.path]
        if self.modules:
            sys.path.extend(self._added)
        else:
            sys.path[:0] = self._added

    def leave(self) -> None:
        self._loaded = {name: module for name, module in sys.modules.items() if self._owns(name, module)}
        for name in self._loaded:
            del sys.modules[name]
        sys.meta_path.remove(self)
        for folder in self._added:
            sys.path.remove(folder)

    def _owns(self, name: str, module: ModuleType) -> bool:
        if name in self.modules:
            return True
        if name in self._before or name.partition(".")[0] == "penstock":
            return False
        file = getattr(module, "__file__", None)
        return isinstance(file, str) and file.startswith(self._inside) and "site-packages" not in file

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        source = self.modules.get(fullname)
        if source is None:
            return None
        if source.file is None:
            spec = importlib.machinery.ModuleSpec(fullname, None, is_package=True)
            spec.submodule_search_locations = [str(source.original)]
            return spec
        where = source.original if source.original.is_file() else source.file
        return importlib.util.spec_from_file_location(
            fullname,
            where,
            loader=_FromBundle(fullname, source, str(where)),  # type: ignore[arg-type]
            submodule_search_locations=[str(where.parent)] if source.package else None,
        )


class _FromBundle:
    """Runs the bundle's text. Its lines are shown from the original file only if that still says the same."""

    def __init__(self, name: str, source: _Source, where: str) -> None:
        self.name = name
        self.source = source
        self.path = where

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        exec(self.get_code(module.__name__), module.__dict__)

    def get_source(self, fullname: str) -> str:
        assert self.source.file is not None
        return importlib.util.decode_source(self.source.file.read_bytes())

    def get_filename(self, fullname: str) -> str:
        return self.path

    def is_package(self, fullname: str) -> bool:
        return self.source.package

    def get_code(self, fullname: str) -> Any:
        assert self.source.file is not None
        data, shown = self.source.file.read_bytes(), self.source.file
        try:
            if self.source.original.read_bytes() == data:
                shown = self.source.original
        except OSError:
            pass
        return compile(data, str(shown), "exec", dont_inherit=True)


def _set_values(entry: dict[str, Any]) -> None:
    """What the author's process gave to modules after their import: `cfg.LIMIT = 5`."""
    for name, attribute, text in entry.get("values", ()):
        module = sys.modules.get(name)
        if module is None or repr(getattr(module, attribute, None)) == text:
            continue
        import ast

        value: Any = ast.literal_eval(text)
        known: Any = getattr(module, attribute, None)
        if type(known) is not type(value) or not isinstance(known, dict | set | list):
            setattr(module, attribute, value)
            continue
        known.clear()  # the same object: others may have imported it by its name
        known.extend(value) if isinstance(known, list) else known.update(value)


def _refused(message: str, fix: str, code: str = "P702") -> UserError:
    from penstock.errors import Problem, UserError

    return UserError(Problem(code, message, fix))


def _import(module: str, place: str) -> ModuleType:
    from penstock.errors import loading

    token = loading.set(True)
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name == module:
            fix = (
                f"give the module to PYTHONPATH, or start from the folder it is in{f' (now {place})' if place else ''}"
            )
            raise _refused(f"there is no module {module!r} here", fix) from None
        fix = f"install {error.name!r} where the step runs, or import it inside the function that needs it"
        raise _refused(f"module {module!r} imports {error.name!r}, which is not here", fix) from None
    except Exception as error:
        what = f"{type(error).__name__}: {error}".split("\n")[0]
        fix = "importing the file must do nothing that only works at home: move it into the function"
        raise _refused(f"module {module!r} cannot be imported: {what}", fix) from error
    finally:
        loading.reset(token)


def _named(module: ModuleType, name: str) -> Callable[..., Any]:
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
    found = getattr(found, "penstock_task", found)
    function = getattr(found, "function", found)
    if not callable(function):
        from penstock.errors import nearest

        fix = f"define it at the top of the file.{nearest(name, vars(module))}"
        raise _refused(f"there is no function {name!r} in module {module.__name__!r}", fix)
    return function  # type: ignore[no-any-return]


def _unpickled(file: Path, name: str) -> Callable[..., Any]:
    import pickle

    try:
        return pickle.loads(file.read_bytes())  # type: ignore[no-any-return]
    except Exception as error:
        what = f"{type(error).__name__}: {error}".split("\n")[0]
        fix = "install what it needs where the step runs, or move the function into a module of its own"
        raise _refused(f"{name}() cannot be loaded: {what}", fix) from None
