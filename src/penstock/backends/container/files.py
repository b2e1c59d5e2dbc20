"""The files of one replica of a step with an image: what is mounted, what is made before it starts, and where its outputs are.
StepContainer and PodContainers have one each.

Inside the container, a declared path is that path:

    an input's path        its file or folder, a copy of the attempt's own, is mounted there and hides nothing else
    an output's path       its parent folder is made if the image has none; the file is copied out of the ended container, or
                           read in its place if that is below a mount. A folder mounted for it would hide what the image has
                           beside it, and a file mounted for it could not be replaced by renaming, as careful programs do
    a mounted folder       its folder on the host is mounted (see mounts); an input or output below it is in it
    /tmp/penstock/…        outputs ($PENSTOCK_OUTPUTS), the text of a script, and what a function needs
    the working directory  of the run, at the path that it has on the host. It is the container's own too unless the step has
                           one: `python train.py` finds the same file in a container, with `--on container=process`, and by hand
"""

from __future__ import annotations

import os
import posixpath
import shutil
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock import rights
from penstock.artifacts import values
from penstock.backends.attempt import STDOUT, CannotRun, for_replica, replica_folder, starts_at_root
from penstock.backends.base import AttemptSpec, BackendContext
from penstock.backends.folders import is_below
from penstock.backends.mounts import HostMount, clear_input, make_mounts
from penstock.graph.model import Container, Function, Output, Script

INSIDE = "/tmp/penstock"
OUTPUTS = f"{INSIDE}/outputs"
_SYSTEM_FOLDERS = frozenset(
    "/ /bin /dev /etc /lib /lib64 /proc /run /sbin /sys /usr /usr/bin /usr/lib /usr/local /var".split()
)
"""A working directory that is one of these is not mounted: the image needs its own."""
ALWAYS_THERE = _SYSTEM_FOLDERS | frozenset("/home /opt /root /srv /tmp /var/lib /var/log /var/run /var/tmp".split())
"""Folders that every image has."""


@dataclass(frozen=True, slots=True)
class BindMount:
    source: Path
    target: str
    read_only: bool = False

    def words(self) -> tuple[str, str]:
        source, more = str(self.source), ",readonly" if self.read_only else ""
        if ":" not in source + self.target:
            return "--volume", f"{source}:{self.target}{':ro' if self.read_only else ''}"
        if "," in source + self.target:
            raise CannotRun(f"{source} cannot be mounted: its path has both ':' and ','")
        return "--mount", f"type=bind,source={source},target={self.target}{more}"


class ContainerFiles:
    """Its methods copy files: do not call them in the engine's thread."""

    def __init__(self, spec: AttemptSpec, number: int, context: BackendContext) -> None:
        self.spec = spec = for_replica(spec, number)
        self.number = number
        self.context = context
        self.folder = replica_folder(context, spec, number).absolute()
        here = spec.working_directory
        self.working_directory = here if here and posixpath.normpath(here) not in _SYSTEM_FOLDERS else ""
        """Of the run, mounted in the container; empty if it cannot be."""
        action = spec.action
        self.workdir = self.workdir_of(action.workdir if isinstance(action, Container | Script) else None)
        """Where the container starts; empty: where its image says."""
        self.mounts: list[BindMount] = []
        self.step_mounts: list[HostMount] = []
        self.new_folders: list[str] = []
        """To be made in the container before it starts."""
        self.mount_points: list[tuple[Path, Path]] = []
        """What mounting will create in the user's own folder, with the topmost part of it that does not exist yet."""

    # -- before it starts ---------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """The attempt's own folder, the working directory, and what the step mounts. Raises CannotRun, MountError, ValueError,
        OSError, and what the blobs raise."""
        shutil.rmtree(self.folder, ignore_errors=True)  # left by the same attempt before a crash
        rights.make_folder(self.folder)
        if self.working_directory:
            os.makedirs(self.working_directory, exist_ok=True)
            self.mounts.append(BindMount(Path(self.working_directory), self.working_directory))
        self.step_mounts = make_mounts(self.spec, self.folder, self.context.home.absolute(), self.context.blobs)
        for mount in self.step_mounts:
            if mount.own:
                open_to_all(mount.source, mount.read_only)
            elif mount.source.is_dir() and mount.source.stat().st_uid == os.geteuid():
                mount.source.chmod(0o777)
            self.mount(mount.source, self.inside(mount.path), mount.read_only)
        if self.workdir:
            self.make(self.workdir)

    def write_inputs(self) -> None:
        for number, given in enumerate(self.spec.step.inputs):
            if given.path is None or given.name not in self.spec.inputs:
                continue
            target = self.inside(given.path)
            place = self._in_step_mount(target)
            source = place or self.folder / "inputs" / str(number) / (posixpath.basename(target) or "input")
            clear_input(source, self.step_mounts)
            values.write_input(given, self.spec.inputs[given.name], source, self.context.blobs)
            open_to_all(source)
            if place is None:
                self.mount(source, target)

    def make_outputs(self) -> None:
        folder = self.folder / "outputs"
        folder.mkdir()
        folder.chmod(0o777)  # the image may run as any user
        self.mount(folder, OUTPUTS)
        for output in self.spec.step.outputs:
            if output.path is not None and output.path != STDOUT:
                parent = posixpath.dirname(self.inside(output.path))
                self.make(parent)
                if parent not in ALWAYS_THERE and parent not in self.new_folders and self.on_host(parent) is None:
                    self.new_folders.append(parent)

    def share(self, folder: str) -> None:
        """Mounts one folder of the attempt for all parts of a pod."""
        if folder in ALWAYS_THERE:
            return
        if self.on_host(folder) is not None:
            self.make(folder)
            return
        source = self.folder / "shared" / str(len(self.mounts))
        os.makedirs(source)
        source.chmod(0o777)
        self.mount(source, folder)

    def mount(self, source: Path, target: str, read_only: bool = False) -> None:
        if self.working_directory and is_below(target, self.working_directory) and not os.path.lexists(target):
            top = Path(target)
            while not os.path.lexists(top.parent):
                top = top.parent
            self.mount_points.append((Path(target), top))
        self.mounts.append(BindMount(source, target, read_only))

    def make(self, path: str) -> None:
        """Makes a folder of the container that is in a folder which the step mounts, if it is missing there."""
        found = self._in_step_mount(path)
        if found is not None and not os.path.lexists(found):
            os.makedirs(found, exist_ok=True)
            found.chmod(0o777)

    # -- paths --------------------------------------------------------------------------------------------------------

    def workdir_of(self, workdir: str | None) -> str:
        """A declared workdir as an absolute path; empty: the image's own."""
        if not workdir:
            return self.working_directory
        return posixpath.normpath(posixpath.join(self.working_directory, workdir))

    def inside(self, path: str) -> str:
        """A declared path as an absolute path of the container. `/../x` does not lead out of it. Raises CannotRun."""
        found = posixpath.normpath(posixpath.join(self.workdir, path))
        if not found.startswith("/"):
            raise CannotRun(
                f"the path {path!r} is relative, and to what is not known: make it absolute, or give `workdir`"
            )
        found = "/" + found.lstrip("/")
        if found == "/":
            raise CannotRun(f"{path!r} is not the path of a file or folder")
        return found

    def on_host(self, path: str) -> tuple[Path, Path] | None:
        """Where a path of the container is on the host, and the source of its mount; None if only the container has it."""
        below = [mount for mount in self.mounts if is_below(path, mount.target)]
        if not below:
            return None
        mount = max(below, key=lambda one: len(one.target))
        return Path(f"{mount.source}{path.removeprefix(mount.target)}"), mount.source

    def _in_step_mount(self, path: str) -> Path | None:
        """Where a path of the container is in a folder that the step mounts; None if it is in none. A link that another task has
        made there must not lead out of it. Raises CannotRun."""
        found = self.on_host(path)
        if found is None or not any(mount.source == found[1] for mount in self.step_mounts):
            return None
        place, root = found
        if not Path(os.path.realpath(place)).is_relative_to(os.path.realpath(root)):
            raise CannotRun(
                f"{path} is not used: on its way there is a link that leads out of the folder mounted there"
            )
        return place

    # -- after its end ------------------------------------------------------------------------------------------------

    def outputs_to_copy(self) -> list[tuple[str, Path]]:
        """(path in the container, destination) of the outputs that are not below a mount."""
        found = []
        for output in self.spec.step.outputs:
            if not isinstance(self.spec.action, Function) and output.path not in (None, STDOUT):
                path = self.inside(output.path or "")
                if self.on_host(path) is None:
                    found.append((path, self._copied(output, path)))
        return found

    def _copied(self, output: Output, path: str) -> Path:
        return self.folder / "collected" / output.name / posixpath.basename(path)

    def read_outputs(self, stdout: Path) -> dict[str, Any]:
        """The outputs of a command. `stdout` is the file with what it printed. Raises ValueError with a sentence."""
        found: dict[str, Any] = {}
        for output in self.spec.step.outputs:
            place = stdout
            if output.path != STDOUT:
                path = self.inside(output.path) if output.path is not None else f"{OUTPUTS}/{output.name}"
                place, root = self.on_host(path) or (self._copied(output, path), self.folder)
                shown = output.path or f"$PENSTOCK_OUTPUTS/{output.name}"
                if output.type.name == "optional" and not os.path.lexists(place):
                    found[output.name] = None
                    continue
                _check_output(output.name, place, root, shown)
            loosely = starts_at_root(self.spec)
            found[output.name] = values.read_output(output, place, self.context.blobs, loosely=loosely)
        return found


def open_to_all(path: Path, read_only: bool = False) -> None:
    """The image may run as any user. The path is a copy that belongs to the attempt."""
    if path.is_symlink():
        return
    if path.is_dir():
        path.chmod(0o777)
        for inner in path.iterdir():
            open_to_all(inner, read_only)
    else:
        path.chmod(path.stat().st_mode & 0o777 | (0o444 if read_only else 0o666))


def remove_mount_point(target: Path, top: Path) -> None:
    """Removes what mounting has created in the user's folder, if it is still empty."""
    with suppress(OSError):
        if target.is_file() and not target.is_symlink() and target.stat().st_size == 0:
            target.unlink()
        elif target.is_dir():
            target.rmdir()
        while target != top:
            target = target.parent
            target.rmdir()


def _check_output(name: str, place: Path, root: Path, shown: str) -> None:
    """A link names one file in the container and another one here, perhaps one that the container must not see. Raises
    ValueError."""
    if not os.path.lexists(place):
        raise ValueError(f"the output {name!r} was not written: there is no file {shown} in the container")
    real, bound = Path(os.path.realpath(place)), Path(os.path.realpath(root))
    if not real.is_relative_to(bound) or not real.exists():
        raise ValueError(f"the output {name!r} is a link that leads elsewhere: write the file itself to {shown}")
    mode = real.stat().st_mode
    if stat.S_ISDIR(mode):
        for folder, inner, files in os.walk(real):
            for entry in (*inner, *files):
                _check_link(name, real, Path(folder, entry))
    elif not stat.S_ISREG(mode):
        raise ValueError(f"the output {name!r} is neither a file nor a folder: {shown}")


def _check_link(name: str, root: Path, path: Path) -> None:
    if path.is_symlink() and not Path(os.path.realpath(path)).is_relative_to(root):
        where = os.path.relpath(path, root)
        raise ValueError(f"the output {name!r} holds a link that leads out of it: {where}; copy with cp -L")
