"""A folder as one blob: a tar without compression, the same bytes whenever names, content and the executable bit are the same.
Called by artifacts.values for outputs of type dir; apart from it because tarfile is slow to import.

A link that stays inside the folder is kept as a link. One that leads out of it is refused: where the folder is laid, it would lead to
something else, and what it leads to here may be the whole machine. Sockets, pipes and devices have no content, and are left out.
"""

from __future__ import annotations

import os
import shutil
import tarfile
import tempfile
from pathlib import Path

from penstock.artifacts.blobs import Blobs
from penstock.artifacts.regular import NotTaken, check_size, open_regular
from penstock.errors import Problem, UserError


def put(folder: Path, blobs: Blobs) -> tuple[str, int]:
    """Its digest and size. Written to a temporary file first: it may be larger than memory."""
    root = os.path.realpath(folder)
    if root == os.sep:
        raise NotTaken(f"{folder} is the whole file system; give a folder with the files that are meant")
    if folder.is_symlink():
        raise NotTaken(f"{folder} is a link to a folder; give {root} itself, or copy it")
    with tempfile.NamedTemporaryFile(prefix="penstock-", suffix=".tar") as scratch:
        with tarfile.open(fileobj=scratch, mode="w", format=tarfile.PAX_FORMAT) as tar:
            _Packing(tar, folder, root, blobs.limits.file).add(root, "")
        scratch.flush()
        return blobs.put_file(scratch.name)


class _Packing:
    def __init__(self, tar: tarfile.TarFile, shown: Path, root: str, limit: int) -> None:
        self._tar = tar
        self._shown = shown
        self._root = root
        self._limit = limit
        self._size = 0

    def add(self, folder: str, prefix: str) -> None:
        with os.scandir(folder) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
        for entry in found:
            info = tarfile.TarInfo(f"{prefix}{entry.name}")
            if entry.is_symlink():
                info.type, info.linkname = tarfile.SYMTYPE, self._target(entry.path)
                self._tar.addfile(info)
            elif entry.is_dir(follow_symlinks=False):
                info.type, info.mode = tarfile.DIRTYPE, 0o755
                self._tar.addfile(info)
                self.add(entry.path, f"{info.name}/")
            elif entry.is_file(follow_symlinks=False):
                self._file(entry.path, info)

    def _file(self, path: str, info: tarfile.TarInfo) -> None:
        with open_regular(path, follow=False) as file:
            stat = os.fstat(file.fileno())
            self._size += stat.st_size
            check_size(f"the folder {self._shown}", self._size, self._limit, "PENSTOCK_LARGEST_FILE")
            info.size, info.mode = stat.st_size, 0o755 if stat.st_mode & 0o100 else 0o644
            self._tar.addfile(info, file)

    def _target(self, link: str) -> str:
        """What the link leads to, relative to where it is: the folder will be laid elsewhere. Raises NotTaken."""
        target = os.readlink(link)
        folder = os.path.dirname(link)
        real = os.path.realpath(os.path.join(folder, target))
        if real != self._root and not real.startswith(self._root + os.sep):
            name = os.path.relpath(link, self._root)
            raise NotTaken(
                f"in the folder {self._shown}, {name} is a link to {target}, which is outside of it; copy what is meant (cp -L)"
            )
        if os.path.isabs(target) or os.path.normpath(f"{os.path.relpath(folder, self._root)}/{target}").startswith(
            ".."
        ):
            return os.path.relpath(real, folder)
        return target


def fetch(digest: str, blobs: Blobs, to: Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{to.name}-", dir=to.parent))
    try:
        blobs.fetch(digest, scratch / "tar")
        (scratch / "content").mkdir()
        try:
            with tarfile.open(scratch / "tar") as tar:
                tar.extractall(scratch / "content", filter="data")
        except tarfile.TarError as error:
            fix = "run the step that made it again"
            raise UserError(Problem("P707", f"the stored folder {to.name} cannot be read: {error}", fix)) from None
        os.rename(scratch / "content", to)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
