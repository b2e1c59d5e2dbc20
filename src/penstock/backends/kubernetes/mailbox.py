"""Letters between an engine and a warm pod, in the artifact store. Used by warm (the engine's side) and serve (in the pod).

    mail/<store>/<job>/in/<n>     calls to make and to stop, from the engine that made the pod
    mail/<store>/<job>/out/<n>    calls that have begun, and what became of them, from the pod
    mail/<store>/<job>/begun      the calls that the pod may have begun and has not told the end of
    mail/<store>/<job>/closed     the pod is given up: it begins nothing more

Streams of exec and attach end with the process that holds them, and what was on its way is lost. What is in the store outlives both the engine
and the pod: the next engine reads what became of calls of which it knows only the names.

A letter is one line and is written once, as a whole or, behind a URL that cannot do that, so that half of it is seen to be half.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any, Final

from penstock import rights
from penstock.artifacts.remote import changed_at, file_system

BEGUN: Final = "begun"
CLOSED: Final = "closed"
MAIL: Final = "mail"


class Mailbox:
    """Its methods block. Raises OSError, and behind a URL whatever its driver raises."""

    def __init__(self, store: str, owner: str, name: str) -> None:
        """`owner`: of the runs. Others may keep theirs in the same artifact store."""
        self._remote: Any = None
        base = store
        if "://" in store:
            self._remote, base = file_system(store)
        self._root = base.rstrip("/")
        self._mail = f"{self._root}/{MAIL}/{owner}"
        self._base = f"{self._mail}/{name}"
        self.is_remote = self._remote is not None

    def make(self) -> None:
        """As open as the store, like a folder of blobs."""
        if self._remote is None:
            folder = self._root
            for name in (MAIL, os.path.basename(self._mail), os.path.basename(self._base)):
                folder = rights.make_blob_folder(folder, name)
            for box in ("in", "out"):
                rights.make_blob_folder(folder, box)

    def others(self) -> dict[str, float]:
        """All mailboxes of this owner, and when something in them has changed last."""
        found: dict[str, float] = {}
        if self._remote is None:
            for place, _, names in os.walk(self._mail):
                box = place.removeprefix(self._mail).strip("/").partition("/")[0]
                for path in (place, *(os.path.join(place, name) for name in names)):
                    with suppress(OSError):
                        found[box] = max(found.get(box, 0.0), os.stat(path).st_mtime)
            found.pop("", None)
            return found
        self._remote.invalidate_cache()
        if self._remote.exists(self._mail):
            for place, info in self._remote.find(self._mail, detail=True).items():
                box = str(place).rpartition(self._mail)[2].strip("/").partition("/")[0]
                found[box] = max(found.get(box, 0.0), changed_at(info))
        return found

    # -- numbered letters

    def post(self, box: str, number: int, text: str) -> None:
        self._write(f"{box}/{number:08d}", text)

    def take(self, box: str, number: int) -> str | None:
        """None: it is not there yet."""
        return self._read(f"{box}/{number:08d}")

    def numbers(self, box: str) -> list[int]:
        folder = f"{self._base}/{box}"
        if self._remote is None:
            names = os.listdir(folder) if os.path.isdir(folder) else []
        else:
            self._remote.invalidate_cache()
            found = self._remote.find(folder) if self._remote.exists(folder) else []
            names = [str(place).rpartition("/")[2] for place in found]
        return sorted(int(name) for name in names if name.isdigit())

    def drop(self, box: str, number: int) -> None:
        self._remove(f"{box}/{number:08d}")

    # -- notes

    def note(self, name: str, text: str = "") -> None:
        self._write(name, text)

    def noted(self, name: str) -> str | None:
        return self._read(name)

    def clear(self) -> None:
        """All of it."""
        if self._remote is None:
            import shutil

            shutil.rmtree(self._base, ignore_errors=True)
        else:
            self._remote.invalidate_cache()
            with suppress(FileNotFoundError):
                self._remote.rm(self._base, recursive=True)

    # -- one file

    def _write(self, name: str, text: str) -> None:
        data, place = (text + "\n").encode(), f"{self._base}/{name}"
        if self._remote is not None:
            self._remote.makedirs(os.path.dirname(place), exist_ok=True)
            self._remote.pipe_file(place, data)
            return
        scratch = f"{place}.{os.getpid()}.{os.urandom(4).hex()}"
        mode = 0o600 | (os.stat(os.path.dirname(place)).st_mode & 0o066)
        handle = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with open(handle, "wb") as file:
            file.write(data)
        os.replace(scratch, place)

    def _read(self, name: str) -> str | None:
        place = f"{self._base}/{name}"
        try:
            if self._remote is not None:
                data: bytes = self._remote.cat_file(place)
            elif self._is_listed(name):
                with open(place, "rb") as file:
                    data = file.read()
            else:
                return None
        except FileNotFoundError:
            return None
        return data[:-1].decode() if data.endswith(b"\n") else None

    def _is_listed(self, name: str) -> bool:
        """A file system of the network may remember for a minute that a name was not there, but opening a folder asks anew."""
        folder, _, last = f"{self._base}/{name}".rpartition("/")
        try:
            return last in os.listdir(folder)
        except FileNotFoundError:
            return False

    def _remove(self, name: str) -> None:
        place = f"{self._base}/{name}"
        with suppress(FileNotFoundError):
            if self._remote is None:
                os.unlink(place)
            else:
                self._remote.rm_file(place)
