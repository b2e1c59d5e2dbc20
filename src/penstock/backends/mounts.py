"""The folders that a step mounts, as they lie on this machine. Called by command (the path in the step's texts is replaced by
where the folder is) and crate (it is mounted there); `forget_run` by whoever ends a run.

    task     the attempt's own: work/<run>/<task>.<attempt>/root/<path>, or …/mounts/<name> if it is mounted more than once, or
             only a folder of it is
    run      work/<run>/volumes/<name>, shared by all tasks of the run, also by those that run at the same time and those that
             run after a crash. Nobody but `forget_run` and `penstock gc` removes it
    given    the attempt's own: …/given/<number>, with the given files in it. If `sub_path` is one of them, the path is that file

`sub_path` is made if it is not there. Neither `/../` nor a link leads out of the folder: what one task leaves in a shared folder
must not open the machine to the next. On the host `read_only` is no more than the mode of given files; in a container it is kept.
What stands in given files is not changed: a path in there that is mounted elsewhere on the host leads nowhere.
"""

from __future__ import annotations

import os
import posixpath
import shutil
import tempfile
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from penstock.artifacts.blobs import Blobs
from penstock.artifacts.values import as_text
from penstock.backends import places
from penstock.backends.base import Order
from penstock.graph.model import Mount


class NotLaid(Exception):
    """A folder cannot be mounted, and why."""


@dataclass(frozen=True, slots=True)
class Laid:
    path: str
    """As the step names it."""
    source: Path
    """Where it is: a folder, or for one given file that file."""
    read_only: bool
    own: bool
    """The attempt's own, and nobody else's."""


def lay(order: Order, folder: Path, home: Path, blobs: Blobs) -> list[Laid]:
    """Makes the folders of an order's mounts, those of its own below `folder`. Raises NotLaid, ValueError, OSError."""
    names = Counter(mount.name for mount in order.step.mounts if mount.scope == "task")
    found = []
    for number, mount in enumerate(order.step.mounts):
        sub = inside(as_text(mount.sub_path, blobs))
        if mount.scope == "run":
            base = places.volumes_folder(home, order.run) / places.mangled(mount.name)
        elif mount.scope == "given":
            base = folder / "given" / str(number)
        elif names[mount.name] > 1 or sub:
            base = folder / "mounts" / places.mangled(mount.name)
        else:
            base = folder / "root" / inside(mount.path)
        os.makedirs(base, exist_ok=True)
        for name, text in mount.files.items():
            _write(mount, base, name, as_text(text, blobs))
        source = base / sub
        _stay(mount, base, source)
        if not source.is_file():
            os.makedirs(source, exist_ok=True)
        found.append(Laid(mount.path, source, mount.read_only, mount.scope != "run"))
    return found


def inside(path: str) -> str:
    """A path as one below a folder, whatever it says: `/../x` is `x`."""
    return posixpath.normpath(f"/{path}").lstrip("/")


def _write(mount: Mount, base: Path, name: str, text: str) -> None:
    """What is there already stays: in a shared folder it is what the run has made of it. Another task may be at the same file,
    so it appears whole or not at all."""
    place = base / inside(name)
    _stay(mount, base, place.parent)
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


def _stay(mount: Mount, base: Path, place: Path) -> None:
    if not Path(os.path.realpath(place)).is_relative_to(os.path.realpath(base)):
        raise NotLaid(f"the mount {mount.name!r} is not used: in its folder, {place} is a link that leads out of it")


def forget_run(home: Path, run: str) -> None:
    """A run is over: the folders that its tasks shared go. What cannot be removed (files of another user, made by a container)
    is left to `penstock gc`."""
    folder = places.volumes_folder(home, run)
    shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError):
        folder.parent.rmdir()  # if that was all
