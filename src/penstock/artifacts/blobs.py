"""Bytes by their digest: results too large for the store, files that pass between steps, the author's code. Called by
artifacts.values, by backends on both sides, and by the engine.

Below a local folder a blob is the read-only file `<root>/ab/cdef…`, written under a passing name and then renamed, so that
two writers of the same bytes do no harm. Any URL that fsspec knows works the same (`s3://bucket/penstock`, `file:///mnt/x`).
A reader always gets a copy of its own: a hard link would let a task that writes into its input change everybody's.

Whoever reads a blob compares it with its digest (large ones: see verified). A damaged one is put aside as `<place>.damaged`, so that it is
missing: the step that made it is run again, and whoever puts the same bytes again writes them anew. A blob and its name are on the disk
before `put` returns: what the record names is there after a power cut.

Every worker process imports this before it can do anything, so what is seldom needed is imported where it is.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from penstock import rights
from penstock.artifacts import verified
from penstock.artifacts.regular import Limits, check_size, open_regular

if TYPE_CHECKING:
    from io import BufferedReader

    from penstock.artifacts.remote import Remote
    from penstock.errors import UserError

_CHUNK = 1024 * 1024
_WRITTEN = 600.0
"""Seconds after which any system has written the name of a file to the disk by itself."""
_FICLONE = 0x40049409
_SCRATCH = re.compile(r"\.\d+\.[0-9a-f]{8}\Z")
"""The end of the name of a file that is being written: see `Blobs._scratch`."""
_PREFIX = "sha256:"


def digest_of(data: bytes) -> str:
    import hashlib

    return _PREFIX + hashlib.sha256(data).hexdigest()


class Blobs:
    """A content-addressed heap of bytes. `own_only`: blobs that belong to another user are refused. `pickles`: may values be kept and
    loaded as pickles? (artifacts.values and the loader of functions ask.)"""

    def __init__(
        self,
        root: str | os.PathLike[str],
        own_only: bool = False,
        pickles: bool = True,
        limits: Limits | None = None,
    ) -> None:
        self.root = os.fspath(root)
        self.own_only = own_only
        self.pickles = pickles
        self.limits = limits or Limits()
        self._remote: Remote | None = None
        self._folders_on_disk: set[str] = set()
        self._on_disk: set[str] = set()
        """Blobs whose names are certainly on the disk."""
        self._harmed: set[str] = set()
        """Blobs behind a URL that were found damaged, and not written anew since."""
        self._intact: set[str] = set()
        """Blobs behind a URL that this process has written, or compared with their digests."""
        self._folder: Path | None = None
        if "://" in self.root:
            from penstock.artifacts.remote import Remote

            self._remote = Remote(self.root)
            self._base = self._remote.base
        else:
            self._folder = Path(self.root).absolute()
            self._base = str(self._folder)

    def __repr__(self) -> str:
        return f"Blobs({self.root!r})"

    def __reduce__(self) -> tuple[type[Blobs], tuple[str, bool, bool, Limits]]:
        return Blobs, (self.root, self.own_only, self.pickles, self.limits)

    def put(self, data: bytes) -> str:
        digest = digest_of(data)
        place = self._place(digest)
        if self._remote is not None:
            if not self._is_kept(digest, len(data)):
                self._remote.pipe_file(place, data)
                self._harmed.discard(digest)
                self._intact.add(digest)
        elif not self._keep(digest, place, len(data), data):
            scratch = self._scratch(place)
            try:
                with open(scratch, "wb") as file:
                    file.write(data)
                    _to_disk(file)
                self._settle(scratch, place, digest)
            except BaseException:
                _forget(scratch)
                raise
        return digest

    def put_file(self, path: str | os.PathLike[str]) -> tuple[str, int]:
        """Its digest and size. The file is read once, in pieces, and may be larger than memory. Raises NotTaken."""
        import hashlib

        hasher, size = hashlib.sha256(), 0
        if self._remote is not None:
            with open_regular(path) as source:
                while chunk := source.read(_CHUNK):
                    hasher.update(chunk)
                    size += len(chunk)
                    check_size(os.fspath(path), size, self.limits.file, "PENSTOCK_LARGEST_FILE")
            digest = _PREFIX + hasher.hexdigest()
            place = self._place(digest)
            if not self._is_kept(digest, size):
                self._remote.put_file(os.fspath(path), place)
                self._harmed.discard(digest)
                self._intact.add(digest)
            return digest, size
        with open_regular(path) as source:
            check_size(os.fspath(path), os.fstat(source.fileno()).st_size, self.limits.file, "PENSTOCK_LARGEST_FILE")
            scratch = self._scratch(os.path.join(self._base, "tmp", "new"))
            try:
                with open(scratch, "wb") as target:
                    while chunk := source.read(_CHUNK):
                        hasher.update(chunk)
                        size += len(chunk)
                        check_size(os.fspath(path), size, self.limits.file, "PENSTOCK_LARGEST_FILE")
                        target.write(chunk)
                    digest = _PREFIX + hasher.hexdigest()
                    place = self._place(digest)
                    kept = self._keep(digest, place, size)
                    if not kept:
                        _to_disk(target)
                if kept:
                    _forget(scratch)
                else:
                    rights.make_blob_folder(self._base, os.path.basename(os.path.dirname(place)))
                    self._settle(scratch, place, digest)
            except BaseException:
                _forget(scratch)
                raise
        return digest, size

    def _is_kept(self, digest: str, size: int) -> bool:
        """The same as `_keep`, behind a URL: is it there, and unharmed? It is read once by each process that would write it again."""
        import hashlib

        assert self._remote is not None
        if digest in self._harmed or not self.has(digest, size):
            return False
        if digest not in self._intact:
            hasher = hashlib.sha256()
            try:
                with self._remote.open(self._place(digest)) as file:
                    while chunk := file.read(_CHUNK):
                        hasher.update(chunk)
            except (FileNotFoundError, ValueError):  # deleted meanwhile, or damaged
                return False
            if _PREFIX + hasher.hexdigest() != digest:
                return False
            self._intact.add(digest)
        return True

    def _keep(self, digest: str, place: str, size: int, data: bytes | None = None) -> bool:
        """Is the blob there, and unharmed? Then it is as good as new: whoever clears away what is old must not take it now. False: it
        must be written; that is cheaper than to read a large one."""
        try:
            with open_regular(place) as file:
                found = os.fstat(file.fileno())
                noted = verified.is_noted(place, digest, found)
                if found.st_size != size or not (
                    noted or (size < verified.LARGE and self._is_intact(file, digest, data))
                ):
                    return False
            if noted:
                verified.note(place, digest)
            else:
                rights.touch(place)
        except (OSError, ValueError):  # it is missing, another user's, or no file at all
            return False
        if digest not in self._on_disk and time.time() - found.st_ctime < _WRITTEN:
            _folder_to_disk(os.path.dirname(place))  # its writer may have died before it did so
        self._on_disk.add(digest)
        return True

    def _is_intact(self, file: BufferedReader, digest: str, data: bytes | None) -> bool:
        import hashlib

        if data is not None:
            return file.read() == data
        return hashlib.file_digest(file, "sha256").hexdigest() == digest.removeprefix(_PREFIX)

    def get(self, digest: str) -> bytes:
        place = self._place(digest)
        found: os.stat_result | None = None
        try:
            if self._remote is not None:
                data = self._remote.cat_file(place)
            else:
                with open_regular(place) as file:
                    self._vet(file.fileno(), place)
                    found = os.fstat(file.fileno())
                    noted = verified.is_noted(place, digest, found)
                    data = file.read()
                    if noted and len(data) == found.st_size and verified.same(found, os.fstat(file.fileno())):
                        return data
        except FileNotFoundError:
            raise self._missing(digest) from None
        except (ValueError, IsADirectoryError):  # no regular file
            raise self._damaged(digest) from None
        if digest_of(data) != digest:
            raise self._damaged(digest)
        if found is not None:
            verified.note(place, digest, found)
        return data

    def fetch(self, digest: str, to: Path) -> None:
        """A copy at `to`, which its owner may change. Shares its blocks with the blob where the file system can."""
        import hashlib
        import shutil

        place = self._place(digest)
        to.parent.mkdir(parents=True, exist_ok=True)
        found: os.stat_result | None = None
        try:
            if self._remote is not None:
                if not self._remote.exists(place):  # before a driver makes an empty file
                    raise FileNotFoundError(place)
                self._remote.get_file(place, str(to))
            else:
                with open_regular(place) as file:
                    self._vet(file.fileno(), place)
                    found = os.fstat(file.fileno())
                    noted = verified.is_noted(place, digest, found)
                    if not _clone(place, to):
                        shutil.copyfile(place, to)
                if noted and os.path.getsize(to) == found.st_size and verified.same(found, os.stat(place)):
                    return
        except FileNotFoundError:
            raise self._missing(digest) from None
        except (ValueError, IsADirectoryError):  # no regular file
            _forget(str(to))
            raise self._damaged(digest) from None
        with open(to, "rb") as copy:
            intact = hashlib.file_digest(copy, "sha256").hexdigest() == digest.removeprefix(_PREFIX)
        if not intact:
            _forget(str(to))
            raise self._damaged(digest)
        if found is not None and verified.same(found, os.stat(place)):
            verified.note(place, digest, found)

    def has(self, digest: str, size: int | None = None) -> bool:
        """Is it there, and of this size? Its content is not read."""
        place = self._place(digest)
        if self._remote is not None:
            if size is None:
                return self._remote.exists(place)
            return self._remote.size(place) == size
        try:
            found = os.stat(place)
        except OSError:
            return False
        return size is None or found.st_size == size

    def delete(self, digest: str) -> None:
        """Gone, or never there."""
        place = self._place(digest)
        if self._remote is None:
            for suffix in ("", ".ok", ".damaged"):
                _forget(place + suffix)
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

    def leftovers(self) -> Iterator[tuple[Path, int, float]]:
        """(file, size, time of last change) of what writers that were killed have left behind, and of what is being written now."""
        for folder in sorted(self._folder.iterdir()) if self._folder is not None and self._folder.is_dir() else ():
            for file in sorted(folder.iterdir()) if folder.is_dir() else ():
                if _SCRATCH.search(file.name):
                    with suppress(OSError):
                        found = file.stat()
                        yield file, found.st_size, found.st_mtime

    def _all_remote(self) -> Iterator[tuple[str, int, float]]:
        from penstock.artifacts.remote import changed_at

        assert self._remote is not None
        for place, info in sorted(self._remote.find().items()):
            folder, name = place.rsplit("/", 2)[-2:]
            if len(folder) == 2 and len(name) == 62:
                yield _PREFIX + folder + name, int(info["size"]), changed_at(info)

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
        rights.make_blob_folder(self._base, os.path.basename(os.path.dirname(place)))
        return scratch

    def _settle(self, scratch: str, place: str, digest: str) -> None:
        """Gives a file that is on the disk its name, for good."""
        os.chmod(scratch, rights.sealed(os.path.dirname(place)))
        os.replace(scratch, place)
        folder = os.path.dirname(place)
        _folder_to_disk(folder)
        if folder not in self._folders_on_disk:
            _folder_to_disk(self._base)
            self._folders_on_disk.add(folder)
        self._on_disk.add(digest)
        verified.note(place, digest)
        _forget(f"{place}.damaged")

    def _vet(self, file: int | str, place: str) -> None:
        """Refuses a blob of another user, where only our own are trusted."""
        if self.own_only and rights.is_foreign(status := os.stat(file)):
            raise rights.refusal(place, rights.user_name(status.st_uid), os.path.dirname(self._base))

    def _missing(self, digest: str) -> UserError:
        if self._remote is None and os.path.exists(f"{self._place(digest)}.damaged"):
            return self._damaged(digest)
        fix = f"it was deleted from {self.root}, or this machine sees another folder; run it again: the step that made it is run again"
        return _error("P707", f"the stored value {digest} is not there", fix)

    def _damaged(self, digest: str) -> UserError:
        """Puts it aside. Nobody can use it, and as long as it is there nobody would make it anew."""
        place = self._place(digest)
        if self._remote is not None:
            self._put_aside(digest, place)
        else:
            with suppress(OSError):
                os.replace(place, f"{place}.damaged")
        fix = "run it again with penstock run, not with retry: the step that made it is then run again; --fresh runs all steps again"
        return _error("P719", f"the stored value {digest} is damaged: its content has been changed or cut off", fix)

    def _put_aside(self, digest: str, place: str) -> None:
        """Behind a URL. Some stores cannot rename, or not now: then it is deleted, or at least not trusted by this process."""
        assert self._remote is not None
        self._harmed.add(digest)
        self._intact.discard(digest)
        try:
            self._remote.mv(place, f"{place}.damaged")
        except Exception:  # each of fsspec's drivers has errors of its own
            with suppress(Exception):
                self._remote.rm_file(place)


def _error(code: str, message: str, fix: str) -> UserError:
    from penstock.errors import Problem, UserError

    return UserError(Problem(code, message, fix))


def _forget(path: str) -> None:
    try:
        os.unlink(path)
    except (FileNotFoundError, IsADirectoryError):  # a folder that stood in the place of a blob is left aside
        return


def _to_disk(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def _folder_to_disk(folder: str) -> None:
    """The names in it. Some file systems cannot, and need not."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


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
