"""The folders that a step mounts, as they are on this machine. Called by local (which replaces the path in the step's texts by
the real one) and container (which mounts the folder there). The engine calls `forget_run` at the end of a run.

    task     the attempt's own: work/<run>/<task>.<attempt>/root/<path>, or …/mounts/<name> if it is mounted more than once, or
             only a folder of it is
    run      work/<run>/volumes/<name>, shared by all tasks of the run, also by those that run at the same time and those that
             run after a crash. Only `forget_run` and `penstock gc` remove it
    given    the attempt's own: …/given/<number>, with the given files in it. If `sub_path` is one of them, the path is that file

`sub_path` is made if it is missing. Neither `/../` nor a link leads out of the folder: what one task leaves in a shared folder
must not give the next one access to the machine. On the host, `read_only` only sets the mode of given files; in a container it
is enforced. The text of given files is not changed: a path in it that is mounted elsewhere on the host does not exist there.
"""

from __future__ import annotations

import os
import posixpath
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from penstock import rights
from penstock.artifacts.blobs import Blobs
from penstock.artifacts.values import as_text
from penstock.backends import folders
from penstock.backends.base import AttemptSpec
from penstock.graph.model import Mount


class MountError(Exception):
    """A folder cannot be mounted. The message says why."""


@dataclass(frozen=True, slots=True)
class HostMount:
    """A mount of the step, with its place on this machine."""

    path: str
    """As the step names it."""
    source: Path
    """A folder, or for one given file that file."""
    read_only: bool
    own: bool
    """Does it belong to this attempt alone?"""


def make_mounts(spec: AttemptSpec, folder: Path, home: Path, blobs: Blobs) -> list[HostMount]:
    """Makes the folders of the step's mounts, the attempt's own below `folder`. Raises MountError, ValueError, OSError."""
    names = Counter(mount.name for mount in spec.step.mounts if mount.scope == "task")
    found = []
    for number, mount in enumerate(spec.step.mounts):
        sub = inside(as_text(mount.sub_path, blobs))
        if mount.scope == "run":
            base = folders.volumes_folder(home, spec.run) / folders.mangled(mount.name)
        elif mount.scope == "given":
            base = folder / "given" / str(number)
        elif names[mount.name] > 1 or sub:
            base = folder / "mounts" / folders.mangled(mount.name)
        else:
            base = folder / "root" / inside(mount.path)
        if not base.is_dir():
            rights.make_folder(base.parent)
            os.makedirs(base, exist_ok=True)  # as open as any folder: the user of a container may be another
            rights.give_to_group(base)
        for name, text in mount.files.items():
            _write(mount, base, name, as_text(text, blobs))
        source = base / sub
        _check_inside(mount, base, source)
        if not source.is_file():
            os.makedirs(source, exist_ok=True)
        found.append(HostMount(mount.path, source, mount.read_only, mount.scope != "run"))
    return found


def inside(path: str) -> str:
    """A path as one below a folder: `/../x` is `x`."""
    return posixpath.normpath(f"/{path}").lstrip("/")


def clear_input(place: Path, mounted: Iterable[HostMount]) -> None:
    """Removes what an earlier task left where an input is to be written in a folder of the run."""
    shared = any(not mount.own and folders.is_below(str(place), str(mount.source)) for mount in mounted)
    if shared and os.path.lexists(place):
        shutil.rmtree(place) if place.is_dir() and not place.is_symlink() else place.unlink()


def _write(mount: Mount, base: Path, name: str, text: str) -> None:
    """An existing file stays: in a shared folder, the run may have changed it. Another task may write the same file at the same
    time, so the file appears complete or not at all."""
    place = base / inside(name)
    _check_inside(mount, base, place.parent)
    if os.path.lexists(place):
        return
    os.makedirs(place.parent, exist_ok=True)
    handle, new = tempfile.mkstemp(prefix=".new-", dir=place.parent)
    try:
        with open(handle, "w", encoding="utf-8", newline="") as file:
            file.write(text)
        os.chmod(new, 0o444 if mount.read_only else 0o644)
        try:
            os.link(new, place)
        except FileExistsError:
            pass
        except OSError:  # a file system without links
            os.replace(new, place)
    finally:
        Path(new).unlink(missing_ok=True)


def _check_inside(mount: Mount, base: Path, place: Path) -> None:
    if not Path(os.path.realpath(place)).is_relative_to(os.path.realpath(base)):
        raise MountError(f"the mount {mount.name!r} is not used: in its folder, {place} is a link that leads out of it")


def forget_run(home: Path, run: str) -> None:
    """Removes the folders that the tasks of a run shared. What cannot be removed (files of another user, made by a container) is
    left to `penstock gc`."""
    folder = folders.volumes_folder(home, run)
    shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError):
        folder.parent.rmdir()  # if it is empty now
