"""Bytes by their digest: results too large for the store, files that pass between steps, the author's code. Called by
artifacts.values, by backends on both sides, and by the engine.

Below a local folder a blob is the read-only file `<root>/ab/cdef…`, written under a passing name and then renamed, so that
two writers of the same bytes do no harm. Any URL that fsspec knows works the same (`s3://bucket/penstock`, `file:///mnt/x`).
A reader always gets a copy of its own: a hard link would let a task that writes into its input change everybody's.

Every worker process imports this before it can do anything, so what is seldom needed is imported where it is.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.errors import UserError

CHECKED = 64 * 1024 * 1024
"""Blobs below this size are compared with their digest whenever they are read whole."""
_CHUNK = 1024 * 1024
_FICLONE = 0x40049409
_PREFIX = "sha256:"


def digest_of(data: bytes) -> str:
    import hashlib

    return _PREFIX + hashlib.sha256(data).hexdigest()


class Blobs:
    """A content-addressed heap of bytes."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = os.fspath(root)
        self._remote: Any = None
        self._folder: Path | None = None
        if "://" in self.root:
            self._remote, self._base = _filesystem(self.root)
        else:
            self._folder = Path(self.root).absolute()
            self._base = str(self._folder)

    def __repr__(self) -> str:
        return f"Blobs({self.root!r})"

    def __reduce__(self) -> tuple[type[Blobs], tuple[str]]:
        return Blobs, (self.root,)

    def put(self, data: bytes) -> str:
        digest = digest_of(data)
        place = self._place(digest)
        if self._remote is not None:
            if not self._remote.exists(place):
                self._remote.makedirs(os.path.dirname(place), exist_ok=True)
                self._remote.pipe_file(place, data)
            return digest
        if not os.path.exists(place):
            scratch = self._scratch(place)
            with open(scratch, "wb") as file:
                file.write(data)
            self._settle(scratch, place)
        else:
            os.utime(place)  # as good as new: whoever clears away what is old must not take it now
        return digest

    def put_file(self, path: str | os.PathLike[str]) -> tuple[str, int]:
        """Its digest and size. The file is read once, in pieces, and may be larger than memory."""
        import hashlib

        hasher, size = hashlib.sha256(), 0
        if self._remote is not None:
            with open(path, "rb") as source:
                while chunk := source.read(_CHUNK):
                    hasher.update(chunk)
                    size += len(chunk)
            digest = _PREFIX + hasher.hexdigest()
            place = self._place(digest)
            if not self._remote.exists(place):
                self._remote.makedirs(os.path.dirname(place), exist_ok=True)
                self._remote.put_file(os.fspath(path), place)
            return digest, size
        scratch = self._scratch(os.path.join(self._base, "tmp", "new"))
        try:
            with open(path, "rb") as source, open(scratch, "wb") as target:
                while chunk := source.read(_CHUNK):
                    hasher.update(chunk)
                    size += len(chunk)
                    target.write(chunk)
            digest = _PREFIX + hasher.hexdigest()
            place = self._place(digest)
            if os.path.exists(place):
                os.unlink(scratch)
                os.utime(place)
            else:
                os.makedirs(os.path.dirname(place), exist_ok=True)
                self._settle(scratch, place)
        except BaseException:
            _forget(scratch)
            raise
        return digest, size

    def get(self, digest: str) -> bytes:
        place = self._place(digest)
        try:
            if self._remote is not None:
                data: bytes = self._remote.cat_file(place)
            else:
                with open(place, "rb") as file:
                    data = file.read()
        except FileNotFoundError:
            raise self._missing(digest) from None
        if len(data) < CHECKED and digest_of(data) != digest:
            raise self._damaged(digest)
        return data

    def fetch(self, digest: str, to: Path) -> None:
        """A copy at `to`, which its owner may change. Shares its blocks with the blob where the file system can."""
        import hashlib
        import shutil

        place = self._place(digest)
        to.parent.mkdir(parents=True, exist_ok=True)
        try:
            if self._remote is not None:
                if not self._remote.exists(place):
                    raise FileNotFoundError(place)
                self._remote.get_file(place, str(to))
            elif not _clone(place, to):
                shutil.copyfile(place, to)
        except FileNotFoundError:
            raise self._missing(digest) from None
        if os.path.getsize(to) < CHECKED:
            with open(to, "rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != digest.removeprefix(_PREFIX):
                    raise self._damaged(digest)

    def has(self, digest: str) -> bool:
        place = self._place(digest)
        return bool(self._remote.exists(place)) if self._remote is not None else os.path.exists(place)

    def delete(self, digest: str) -> None:
        """Gone, or never there."""
        place = self._place(digest)
        if self._remote is None:
            _forget(place)
        elif self._remote.exists(place):
            self._remote.rm_file(place)

    def all(self) -> Iterator[tuple[str, int, float]]:
        """(digest, size, time of last change) of everything that is there."""
        if self._remote is not None:
            yield from self._all_remote()
            return
        for first in sorted(os.listdir(self._base)) if os.path.isdir(self._base) else ():
            if len(first) != 2:
                continue
            with os.scandir(os.path.join(self._base, first)) as entries:
                for entry in entries:
                    if len(entry.name) == 62:  # not the passing name of one that is being written
                        stat = entry.stat()
                        yield _PREFIX + first + entry.name, stat.st_size, stat.st_mtime

    def _all_remote(self) -> Iterator[tuple[str, int, float]]:
        self._remote.invalidate_cache()
        if not self._remote.exists(self._base):
            return
        for place, info in sorted(self._remote.find(self._base, detail=True).items()):
            folder, name = place.rsplit("/", 2)[-2:]
            if len(folder) == 2 and len(name) == 62:
                changed = info.get("mtime") or info.get("LastModified") or info.get("created") or 0.0
                when = changed.timestamp() if hasattr(changed, "timestamp") else float(changed)
                yield _PREFIX + folder + name, int(info["size"]), when

    def local(self, digest: str) -> Path | None:
        """The blob's own file, to be read only; None if it is not on this machine."""
        if self._folder is None:
            return None
        place = Path(self._place(digest))
        return place if place.exists() else None

    def _place(self, digest: str) -> str:
        name = digest.removeprefix(_PREFIX)
        if len(name) != 64 or not name.isalnum():
            raise _error("P707", f"{digest[:80]!r} is not the digest of a blob", "give sha256:<64 digits>")
        return f"{self._base}/{name[:2]}/{name[2:]}"

    def _scratch(self, place: str) -> str:
        """A name that nobody else writes to, in the same file system."""
        scratch = f"{place}.{os.getpid()}.{os.urandom(4).hex()}"
        os.makedirs(os.path.dirname(place), exist_ok=True)
        return scratch

    def _settle(self, scratch: str, place: str) -> None:
        try:
            os.chmod(scratch, 0o444)
            os.replace(scratch, place)
        except BaseException:
            _forget(scratch)
            raise

    def _missing(self, digest: str) -> UserError:
        fix = f"it was deleted from {self.root}, or this machine sees another folder; run the step that made it again"
        return _error("P707", f"the stored value {_short(digest)} is not there", fix)

    def _damaged(self, digest: str) -> UserError:
        fix = f"delete {self._place(digest)} and run the step that made it again"
        return _error("P707", f"the stored value {_short(digest)} has been changed", fix)


def _error(code: str, message: str, fix: str) -> UserError:
    from penstock.errors import Problem, UserError

    return UserError(Problem(code, message, fix))


def _short(digest: str) -> str:
    return digest.removeprefix(_PREFIX)[:12]


def _forget(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return


def _clone(place: str, to: Path) -> bool:
    """A reflink: as cheap as a hard link, but a write to one is not seen in the other. False where there are none."""
    try:
        import fcntl
    except ImportError:
        return False
    with open(place, "rb") as source, open(to, "wb") as target:
        try:
            fcntl.ioctl(target.fileno(), _FICLONE, source.fileno())
        except OSError:
            return False
    return True


def _filesystem(url: str) -> tuple[Any, str]:
    """fsspec's file system and the path in it. Imported here: most stores are a folder."""
    try:
        import fsspec  # type: ignore[import-untyped]

        filesystem, base = fsspec.core.url_to_fs(url)
    except (ImportError, ValueError) as error:
        scheme = url.split("://")[0]
        fix = f"install the fsspec driver for {scheme}:// (s3fs, gcsfs, adlfs, …), or give a folder"
        raise _error("P705", f"blobs cannot be kept at {url}: {error}", fix) from None
    return filesystem, str(base).rstrip("/")
