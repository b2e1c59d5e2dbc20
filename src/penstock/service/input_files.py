"""Files and folders that are given as parameters: a run gets copies, named by their content. Called by Submission, and by the forecast of
`penstock plan`, which must know the names and makes no copy.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from penstock import rights
from penstock.artifacts.regular import check_kind
from penstock.expressions.types import Type
from penstock.store.drivers.base import read_only

Place = Callable[[Path], Any]


def copied(type_: Type, value: Any, home: Path) -> Any:
    """The value with copies in place of the files and folders that it names, where its type says that it names some. Raises ValueError
    if one of them, or what is in it, is a pipe, a socket or a device, or cannot be read."""
    return _placed(type_, value, lambda path: _copy(path, _target(path, home)))


def named(type_: Type, value: Any, home: Path) -> Any:
    """The same value, but nothing is copied."""
    return _placed(type_, value, lambda path: str(_target(path, home)))


def replaced(type_: Type, value: Any, by: Place) -> Any:
    """The value with something else in place of each file and folder that it names. Raises ValueError as `copied`."""
    return _placed(type_, value, by)


def _placed(type_: Type, value: Any, place: Place) -> Any:
    if type_.name in ("file", "dir"):
        if not isinstance(value, str | os.PathLike) or not os.path.exists(value):
            return value
        check_kind(value, os.stat(value).st_mode)
        return place(Path(value))
    if type_.name == "optional":
        return _placed(type_.args[0], value, place)
    if type_.name == "tuple" and isinstance(value, list | tuple) and len(value) == len(type_.args):
        return [_placed(inner, item, place) for inner, item in zip(type_.args, value, strict=True)]
    if type_.args and type_.item.name != "any":
        if isinstance(value, list | tuple):
            return [_placed(type_.item, item, place) for item in value]
        if isinstance(value, dict):
            return {key: _placed(type_.item, item, place) for key, item in value.items()}
    return value


def _target(path: Path, home: Path) -> Path:
    """With the digest of the content in its path: a step that reads it runs again if, and only if, the content has changed."""
    return home / "inputs" / _digest_of(path)[:24] / path.absolute().name


def _copy(path: Path, target: Path) -> str:
    import shutil

    if not target.exists():
        try:
            scratch = target.with_name(f".{os.getpid()}-{target.name}")
            rights.make_folder(target.parent)
            if path.is_dir():
                shutil.copytree(path, scratch, symlinks=True)
            else:
                shutil.copy2(path, scratch)
            os.rename(scratch, target)
        except OSError as error:
            if not target.exists():  # another process may have made the same copy
                home = str(target.parents[2])
                raise read_only(home, error.strerror or str(error)) from None
    return str(target)


def _digest_of(path: Path) -> str:
    """Raises ValueError."""
    found = hashlib.sha256()
    try:
        for one in sorted(_inside(path)) if path.is_dir() else [path]:
            found.update(str(one.relative_to(path)).encode("utf-8", "surrogateescape") + b"\0")
            if one.is_file():
                with open(one, "rb") as file:
                    while data := file.read(1 << 20):
                        found.update(data)
    except OSError as error:
        raise ValueError(f"{error.filename or path} cannot be read: {error.strerror or error}") from None
    return found.hexdigest()


def _inside(folder: Path) -> Iterator[Path]:
    """All files, folders and links below it, without following links."""
    for place, folders, files in os.walk(folder, onerror=_raise):
        for name in (*folders, *files):
            one = Path(place, name)
            if not one.is_symlink():
                check_kind(one, one.stat().st_mode)
            yield one


def _raise(error: OSError) -> None:
    raise error
