"""What goes into one container and what comes out of it: mounts, words, environment, files. Called by container, which does the
running. One crate is one replica of a step with an image.

Inside, a declared path is just that path:

    an input's path       its file or folder, a copy of the attempt's own, is mounted there and hides nothing else
    an output's path      its parent folder is made if the image has none; the file is copied out of the ended container, or
                          read where it lies if that is below a mount. A folder mounted for it would hide what the image
                          has beside it, and a file mounted for it could not be replaced by renaming, as careful programs do
    a mounted folder      its folder on the host is mounted (see mounts); an input or output below it lies in it
    /tmp/penstock/…       outputs ($PENSTOCK_OUTPUTS), the text of a script, and what a function needs
    the place of the run  at the path that it has on the host, and the working directory unless the step has its own: so that
                          `python train.py` finds the same file in a container, with `--on container=process`, and by hand

A function needs Python 3.11 or newer in the image and nothing else: Penstock itself is mounted, to be read only. It gets copies
of the blobs that its inputs name, and what it stores is taken over afterwards: a container neither sees nor changes the
blobs of others, nor needs the key to where they are kept.
"""

from __future__ import annotations

import hashlib
import io
import os
import posixpath
import re
import shutil
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.artifacts import values
from penstock.artifacts.blobs import Blobs
from penstock.backends import call, mounts, places
from penstock.backends.base import Context, Order
from penstock.backends.command import (
    STDOUT,
    Unfit,
    clear,
    for_replica,
    is_at_large,
    is_below,
    penstock_env,
    replica_folder,
    step_env,
    text_of,
)
from penstock.backends.invoke import Told
from penstock.graph.model import Container, Function, Output, Script
from penstock.graph.stored import Stored

INSIDE = "/tmp/penstock"
OUTPUTS, SCRIPT, CALL, LIBRARY = f"{INSIDE}/outputs", f"{INSIDE}/script", f"{INSIDE}/call", f"{INSIDE}/lib"
_IMAGES_OWN = frozenset(
    "/ /bin /dev /etc /lib /lib64 /proc /run /sbin /sys /usr /usr/bin /usr/lib /usr/local /var".split()
)
"""A place of the run that is one of these is not mounted: the image could not live without its own."""
ALWAYS_THERE = _IMAGES_OWN | frozenset("/home /opt /root /srv /tmp /var/lib /var/log /var/run /var/tmp".split())
_RUN_CALL = (
    "import sys; sys.path.pop(0); sys.argv.pop(0); import runpy; runpy.run_path(sys.argv[0], run_name='__main__')"
)
"""As `python -P` does, which a Python that is too old would not understand well enough to say that it is too old."""


@dataclass(frozen=True, slots=True)
class Mount:
    source: Path
    target: str
    read_only: bool = False

    def words(self) -> tuple[str, str]:
        source, more = str(self.source), ",readonly" if self.read_only else ""
        if ":" not in source + self.target:
            return "--volume", f"{source}:{self.target}{':ro' if self.read_only else ''}"
        if "," in source + self.target:
            raise Unfit(f"{source} cannot be mounted: its path has both ':' and ','")
        return "--mount", f"type=bind,source={source},target={self.target}{more}"


class Crate:
    """`pack` before it starts and `read` after its end copy files: not in the engine's thread."""

    def __init__(self, order: Order, number: int, context: Context) -> None:
        self.order = order = for_replica(order, number)
        self.number = number
        self.context = context
        self.name = container_name(str(context.home), order.id, number)
        self.folder = replica_folder(context, order, number).absolute()
        suffix = f"{number}.log" if number else "log"
        self.err = self.out = places.log_name(order, suffix)
        if any(output.path == STDOUT for output in order.step.outputs):
            self.out = places.log_name(order, suffix.replace("log", "out"))
        self.mounts: list[Mount] = []
        self.laid: list[mounts.Laid] = []
        """The folders that the step mounts."""
        self.place = order.place if order.place and posixpath.normpath(order.place) not in _IMAGES_OWN else ""
        self.workdir = self._workdir()
        self.folders: list[str] = []
        """To be made inside before it starts."""
        self.mount_points: list[tuple[Path, Path]] = []
        """What mounting will make in the user's own folder, with the topmost part of it that is not there yet."""
        self.command: list[str] = []
        self.image = ""

    # -- in ------------------------------------------------------------------------------------------------------------

    def pack(self) -> None:
        """Raises Unfit, ValueError, OSError, and what the blobs raise."""
        action = self.order.action
        assert isinstance(action, Container | Script | Function)
        self.image = self._text(action.image)
        if not self.image or self.image.startswith("-"):
            raise Unfit(f"{self.image!r} is not the name of an image")
        self._pack_folders()
        if isinstance(action, Function):
            self._pack_function()
        else:
            self._pack_inputs()
            self._pack_outputs()
            self._pack_command(action)

    def _pack_folders(self) -> None:
        """The attempt's own, the place of the run, and what the step mounts."""
        shutil.rmtree(self.folder, ignore_errors=True)  # an engine that crashed was at the same attempt
        os.makedirs(self.folder, exist_ok=True)
        if self.place:
            os.makedirs(self.place, exist_ok=True)
            self.mounts.append(Mount(Path(self.place), self.place))
        self.laid = mounts.lay(self.order, self.folder, self.context.home.absolute(), self.context.blobs)
        for laid in self.laid:
            if laid.own:
                _open_up(laid.source, laid.read_only)
            elif laid.source.is_dir() and laid.source.stat().st_uid == os.geteuid():
                laid.source.chmod(0o777)
            self._mount(laid.source, self._inside(laid.path), laid.read_only)
        if self.workdir:
            self._make(self.workdir)

    def _make(self, path: str) -> None:
        """A folder that is in one of those that the step mounts, if it is missing there."""
        found = self._mounted(path)
        if found is not None and not os.path.lexists(found):
            os.makedirs(found, exist_ok=True)
            found.chmod(0o777)

    def _mounted(self, path: str) -> Path | None:
        """Where a path of the container lies in a folder that the step mounts; None if it is in none. What other tasks have put
        there does not lead out of it."""
        found = self._host(path)
        if found is None or not any(laid.source == found[1] for laid in self.laid):
            return None
        place, root = found
        if not Path(os.path.realpath(place)).is_relative_to(os.path.realpath(root)):
            raise Unfit(f"{path} is not used: on its way there is a link that leads out of the folder mounted there")
        return place

    def _pack_inputs(self) -> None:
        for number, given in enumerate(self.order.step.inputs):
            if given.path is None or given.name not in self.order.inputs:
                continue
            target = self._inside(given.path)
            place = self._mounted(target)
            source = place or self.folder / "inputs" / str(number) / (posixpath.basename(target) or "input")
            clear(source, self.laid)
            values.write_input(given, self.order.inputs[given.name], source, self.context.blobs)
            _open_up(source)
            if place is None:
                self._mount(source, target)

    def _pack_outputs(self) -> None:
        folder = self.folder / "outputs"
        folder.mkdir()
        folder.chmod(0o777)  # whoever the image runs as
        self._mount(folder, OUTPUTS)
        for output in self.order.step.outputs:
            if output.path is not None and output.path != STDOUT:
                parent = posixpath.dirname(self._inside(output.path))
                self._make(parent)
                if parent not in ALWAYS_THERE and parent not in self.folders and self._host(parent) is None:
                    self.folders.append(parent)

    def _pack_command(self, action: Container | Script) -> None:
        words = [self._text(word) for word in action.command]
        if isinstance(action, Container):
            # As in Kubernetes: `command` replaces the image's entrypoint, `args` what it is given.
            if words:
                self.command = ["--entrypoint", words[0], self.image, *words[1:]]
            else:
                self.command = [self.image]
            self.command += [self._text(word) for word in action.args]
            return
        file = self.folder / "script"
        file.write_text(self._text(action.source), encoding="utf-8")
        file.chmod(0o755)
        self._mount(file, SCRIPT, read_only=True)
        words = words or ["sh"]
        self.command = ["--entrypoint", words[0], self.image, *words[1:], SCRIPT]

    def _pack_function(self) -> None:
        folder = self.folder / "call"
        call.write_order(self.order, folder, f"{CALL}/blobs", f"{INSIDE}/cache")
        mine = Blobs(folder / "blobs")
        wanted = {stored.digest for stored in _stored_in(self.order.inputs, self.context.blobs)}
        for digest in sorted(wanted | ({self.order.bundle} if self.order.bundle else set())):
            self.context.blobs.fetch(digest, mine_at(mine, digest))
        _open_up(folder)
        self._mount(folder, CALL)
        package = Path(call.__file__).parents[1]
        self._mount(package, f"{LIBRARY}/{package.name}", read_only=True)
        file = f"{LIBRARY}/{package.name}/backends/call.py"
        self.command = ["--entrypoint", "python3", self.image, "-c", _RUN_CALL, file, CALL]

    def _mount(self, source: Path, target: str, read_only: bool = False) -> None:
        if self.place and is_below(target, self.place) and not os.path.lexists(target):
            top = Path(target)
            while not os.path.lexists(top.parent):
                top = top.parent
            self.mount_points.append((Path(target), top))
        self.mounts.append(Mount(source, target, read_only))

    def create_words(self, options: Sequence[str]) -> list[str]:
        """What follows the name of the tool. The user's own options come last, so that they win."""
        context = self.context
        words = ["create", "--name", self.name, "--pull", "missing"]
        labels = {"home": str(context.home), "engine": context.engine, "order": self.order.id}
        for key, value in labels.items():
            words += ["--label", f"penstock.{key}={value}"]
        words += [
            "--log-driver",
            "none",
        ]  # we keep the log; a second copy, or all of it in the system's journal, helps nobody
        if self.workdir:
            words += ["--workdir", self.workdir]
        for mount in self.mounts:
            words += mount.words()
        for key, value in self._env().items():
            words += ["--env", f"{key}={value}"]
        return [*words, *options, *self.command]

    def folders_tar(self) -> bytes:
        """The folders that outputs go to, in the form that `cp` takes."""
        import tarfile

        data = io.BytesIO()
        with tarfile.open(fileobj=data, mode="w") as tar:
            for folder in self.folders:
                info = tarfile.TarInfo(folder.lstrip("/"))
                info.type, info.mode, info.mtime = tarfile.DIRTYPE, 0o777, int(time.time())
                tar.addfile(info)
        return data.getvalue()

    def _env(self) -> dict[str, str]:
        ours = penstock_env(self.order, self.context, self.number, OUTPUTS)
        del ours["PENSTOCK_HOME"]  # a folder that need not be in there
        return ours | step_env(self.order.action, self.context.blobs)

    def _workdir(self) -> str:
        """Empty: the image's own."""
        action = self.order.action
        given = action.workdir if isinstance(action, Container | Script) else None
        return posixpath.normpath(posixpath.join(self.place, given)) if given else self.place

    def _inside(self, path: str) -> str:
        """A declared path as an absolute one. `/../x` does not lead out of the container."""
        found = posixpath.normpath(posixpath.join(self.workdir, path))
        if not found.startswith("/"):
            raise Unfit(f"the path {path!r} is relative, and to what is not known: make it absolute, or give `workdir`")
        found = "/" + found.lstrip("/")
        if found == "/":
            raise Unfit(f"{path!r} is not the path of a file or folder")
        return found

    def _text(self, value: Any) -> str:
        return text_of(value, self.context.blobs)

    # -- out -----------------------------------------------------------------------------------------------------------

    def _host(self, path: str) -> tuple[Path, Path] | None:
        """Where a path of the container lies here, and the mount that it is below; None if only the container has it."""
        below = [mount for mount in self.mounts if is_below(path, mount.target)]
        if not below:
            return None
        mount = max(below, key=lambda one: len(one.target))
        return Path(f"{mount.source}{path.removeprefix(mount.target)}"), mount.source

    def to_copy(self) -> list[tuple[str, Path]]:
        """(path in the container, where to) of the outputs that are not below a mount."""
        found = []
        for output in self.order.step.outputs:
            if not isinstance(self.order.action, Function) and output.path not in (None, STDOUT):
                path = self._inside(output.path or "")
                if self._host(path) is None:
                    found.append((path, self._collected(output, path)))
        return found

    def _collected(self, output: Output, path: str) -> Path:
        return self.folder / "collected" / output.name / posixpath.basename(path)

    def read(self) -> dict[str, Any]:
        """The outputs of a command. Raises ValueError with a sentence."""
        found: dict[str, Any] = {}
        for output in self.order.step.outputs:
            if output.path == STDOUT:
                place, root = self.context.home / self.out, self.context.home
            else:
                path = self._inside(output.path) if output.path is not None else f"{OUTPUTS}/{output.name}"
                place, root = self._host(path) or (self._collected(output, path), self.folder)
                shown = output.path or f"$PENSTOCK_OUTPUTS/{output.name}"
                if output.type.name == "optional" and not os.path.lexists(place):
                    found[output.name] = None
                    continue
                _examine(output.name, place, root, shown)
            found[output.name] = values.read_output(output, place, self.context.blobs, loosely=is_at_large(self.order))
        return found

    def read_result(self) -> Told | None:
        """Of a function; what it has stored is stored here from now on. None: it did not get to say anything."""
        told = call.read_result(self.folder / "call")
        if told is None:
            return None
        theirs, ours = Blobs(self.folder / "call" / "blobs"), self.context.blobs
        waiting = list(_stored_in(told[1]))
        while waiting:
            stored = waiting.pop()
            if not ours.has(stored.digest):
                file = theirs.local(stored.digest)
                if file is None or file.is_symlink() or not file.is_file() or ours.put_file(file)[0] != stored.digest:
                    raise ValueError(f"the function returned a {stored.kind} that it did not store")
            if stored.kind == "json":
                waiting += _stored_in(values.loads(ours.get(stored.digest).decode()))
        return told


def container_name(home: str, id: str, number: int, part: str = "") -> str:
    """The same for the same attempt, readable, and another one for an order of the same id from another home."""
    whole = f"{home}\0{id}\0{part}" if part else f"{home}\0{id}"
    digest = hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    readable = re.sub(r"[^A-Za-z0-9]+", "-", f"{id}-{part}").strip("-")[:60]
    return f"penstock-{readable}-{digest}{f'-{number}' if number else ''}"


def mine_at(blobs: Blobs, digest: str) -> Path:
    name = digest.removeprefix("sha256:")
    return Path(blobs.root) / name[:2] / name[2:]


def remove_mount_point(target: Path, top: Path) -> None:
    """Only what is still empty."""
    with suppress(OSError):
        if target.is_file() and not target.is_symlink() and target.stat().st_size == 0:
            target.unlink()
        elif target.is_dir():
            target.rmdir()
        while target != top:
            target = target.parent
            target.rmdir()


def _stored_in(value: Any, inside: Blobs | None = None) -> Iterator[Stored]:
    """Every Stored in a value; with `inside`, also those in stored plain data."""
    if isinstance(value, Stored):
        yield value
        if inside is not None and value.kind == "json":
            yield from _stored_in(values.loads(inside.get(value.digest).decode()), inside)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _stored_in(item, inside)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _stored_in(item, inside)


def _open_up(path: Path, read_only: bool = False) -> None:
    """To whoever the image runs as, who need not be us. It is a copy of the attempt's own."""
    if path.is_symlink():
        return
    if path.is_dir():
        path.chmod(0o777)
        for inner in path.iterdir():
            _open_up(inner, read_only)
    else:
        path.chmod(path.stat().st_mode & 0o777 | (0o444 if read_only else 0o666))


def _examine(name: str, place: Path, root: Path, shown: str) -> None:
    """A link means one file to the container and another one here, perhaps one that the container was never to see."""
    if not os.path.lexists(place):
        raise ValueError(f"the output {name!r} was not written: there is no file {shown} in the container")
    real, bound = Path(os.path.realpath(place)), Path(os.path.realpath(root))
    if not real.is_relative_to(bound) or not real.exists():
        raise ValueError(f"the output {name!r} is a link that leads elsewhere: write the file itself to {shown}")
    mode = real.stat().st_mode
    if stat.S_ISDIR(mode):
        for folder, inner, files in os.walk(real):
            for entry in (*inner, *files):
                if os.path.islink(os.path.join(folder, entry)):
                    target = Path(os.path.realpath(os.path.join(folder, entry)))
                    if not target.is_relative_to(real):
                        where = os.path.relpath(os.path.join(folder, entry), real)
                        raise ValueError(
                            f"the output {name!r} holds a link that leads out of it: {where}; copy with cp -L"
                        )
    elif not stat.S_ISREG(mode):
        raise ValueError(f"the output {name!r} is neither a file nor a folder: {shown}")
