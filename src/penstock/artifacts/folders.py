"""A folder as one blob: a tar without compression, the same bytes whenever names, content and the executable bit are the same.
Called by artifacts.values for outputs of type dir; apart from it because tarfile is slow to import.
"""

from __future__ import annotations

import os
import shutil
import tarfile
import tempfile
from pathlib import Path

from penstock.artifacts.blobs import Blobs
from penstock.errors import Problem, UserError


def put(folder: Path, blobs: Blobs) -> tuple[str, int]:
    """Its digest and size. Written to a temporary file first: it may be larger than memory."""
    with tempfile.NamedTemporaryFile(prefix="penstock-", suffix=".tar") as scratch:
        with tarfile.open(fileobj=scratch, mode="w", format=tarfile.PAX_FORMAT) as tar:
            _add(tar, folder, "", folder.resolve())
        scratch.flush()
        return blobs.put_file(scratch.name)


def _add(tar: tarfile.TarFile, folder: Path, prefix: str, root: Path) -> None:
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        name, path = f"{prefix}{entry.name}", Path(entry.path)
        info = tarfile.TarInfo(name)
        if entry.is_symlink() and _stays_inside(path, root):
            info.type, info.linkname = tarfile.SYMTYPE, os.readlink(path)
            tar.addfile(info)
        elif entry.is_dir():
            info.type, info.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(info)
            _add(tar, path, f"{name}/", root)
        elif entry.is_file():
            stat = path.stat()
            info.size, info.mode = stat.st_size, 0o755 if stat.st_mode & 0o100 else 0o644
            with open(path, "rb") as file:
                tar.addfile(info, file)
        # Sockets, pipes and links to nothing have no content to keep.


def _stays_inside(link: Path, root: Path) -> bool:
    """A link to elsewhere would be broken where the folder is laid: its content is taken instead."""
    target = os.readlink(link)
    return not os.path.isabs(target) and (link.parent / target).resolve().is_relative_to(root)


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
