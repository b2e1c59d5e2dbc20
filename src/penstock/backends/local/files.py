"""Where the files of a step are on the host. Called by process and pod. (In a container: see container.files.)

A step may declare absolute paths for its inputs and outputs (`/tmp/rows.json`). In a container these are the container's own; on
a shared machine they would be shared by everybody. So on the host each gets a place below the attempt's own folder, and wherever
the step's words, script, environment or workdir name such a path, they get the real one. The same holds for the folders that a
step mounts (see mounts); a declared path below one of them is in that folder. A path that the program puts together while it runs
is not found that way. Relative paths are relative to where the command starts.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock import rights
from penstock.artifacts import values
from penstock.artifacts.blobs import Blobs
from penstock.backends.attempt import STDOUT, CannotRun, starts_at_root
from penstock.backends.base import AttemptSpec, BackendContext
from penstock.backends.folders import is_below
from penstock.backends.local import guard
from penstock.backends.mounts import HostMount, clear_input, make_mounts
from penstock.expressions.evaluate import resolve
from penstock.expressions.types import Type
from penstock.graph.model import MISSING, Action, Container, Function, Part, Pod, Script, action_values
from penstock.graph.stored import Stored

_EMPTY = ("/mnt", "/media", "/srv", "/workspace")
_TEMPORARY = ("/tmp", "/var/tmp")


@dataclass(slots=True)
class HostFiles:
    """The places of the inputs and outputs of one replica."""

    folder: Path
    """The replica's own."""
    start: str = ""
    """Where the command starts; empty: where the engine is."""
    moved: dict[str, str] = field(default_factory=dict)
    """Absolute path as declared -> where it is."""
    outputs: dict[str, Path] = field(default_factory=dict)
    to_remove: list[Path] = field(default_factory=list)
    """Inputs in the user's own folder, because they were declared there."""
    mounts: list[HostMount] = field(default_factory=list)
    _pattern: re.Pattern[str] | None = None

    @property
    def own(self) -> tuple[str, ...]:
        """The folders and files of this machine that the replica may write to."""
        return str(self.folder), *(str(mount.source) for mount in self.mounts)

    @property
    def out(self) -> Path:
        """$PENSTOCK_OUTPUTS."""
        return self.folder / "out"

    def move(self, paths: Iterable[str | None], mounted: Iterable[HostMount] = ()) -> None:
        """Gives declared absolute paths their places: in a mounted folder if they are below one. `/../x` does not lead out."""
        self.mounts += [mount for mount in mounted if mount.path.strip("/")]
        for path in paths:
            if path is not None and path.startswith("/") and path.strip("/") and path != STDOUT:
                self.moved[path.rstrip("/")] = self._place(os.path.normpath(path))
        for mount in self.mounts:
            self.moved[mount.path.rstrip("/")] = str(mount.source)
        if self.moved:
            known = "|".join(re.escape(path) for path in sorted(self.moved, key=len, reverse=True))
            self._pattern = re.compile(rf"(?<![\w./~)}}-])(?:{known})(?![\w-]|\.\w)")

    def _place(self, path: str) -> str:
        around = [mount for mount in self.mounts if is_below(path, mount.path)]
        if around:
            mount = max(around, key=lambda one: len(one.path.rstrip("/")))
            return f"{mount.source}{path.removeprefix(mount.path.rstrip('/'))}"
        return f"{self.folder}/root/{path.lstrip('/')}"

    def temporary(self) -> dict[str, str]:
        """The /tmp of an image is the task's own: programs find it by this variable."""
        place = self.inside("/tmp")
        os.makedirs(place, exist_ok=True)
        return {"TMPDIR": place}

    def real(self, path: str) -> Path:
        """The place of a declared path."""
        return Path(self.moved.get(path.rstrip("/")) or os.path.join(self.start, path))

    def inside(self, path: str) -> str:
        """The place of any path of an image whose root is the replica's own folder."""
        moved = self.relocate(path)
        return moved if moved != path else os.path.normpath(f"{self.folder}/root/{os.path.normpath('/' + path)}")

    def relocate(self, text: str) -> str:
        """Replaces every declared path in a text. `/tmp/x` is found in `/tmp/x/y`, but not in `/tmp/xy` nor in `/var/tmp/x`."""
        if self._pattern is None or "/" not in text:
            return text
        return self._pattern.sub(lambda found: self.moved[found[0]], text)


def make_files(spec: AttemptSpec, folder: Path, context: BackendContext, stdout: Path) -> HostFiles:
    """Makes the folders for outputs and writes the files of inputs. `stdout` is the place of an output that is printed. Raises
    CannotRun, MountError, ValueError, OSError, and what the blobs raise."""
    files = HostFiles(folder)
    action = spec.action
    needed = _needs_folder(spec)
    if (needed or isinstance(action, Pod)) and os.path.lexists(folder):
        shutil.rmtree(folder)  # left by the same attempt before a crash
    if needed:
        rights.make_folder(files.out)
        if isinstance(action, Function):
            files.move(given.path for given in spec.step.inputs)
        else:
            paths = [
                *(given.path for given in spec.step.inputs),
                *(output.path for output in spec.step.outputs),
                *_results(action),
                *(_workdirs(action) if starts_at_root(spec) else ()),
            ]
            if starts_at_root(spec):
                shared = guard.writes_anywhere(context.environ or os.environ)
                paths += _empty_folders(action, folder, _EMPTY if shared else (*_EMPTY, *_TEMPORARY))
            files.move(paths, make_mounts(spec, folder, context.home, context.blobs))
    files.start = start_folder(spec, files)
    if not isinstance(action, Function):
        _make_outputs(spec, files, stdout)
    _write_inputs(spec, files, context)
    return files


def _make_outputs(spec: AttemptSpec, files: HostFiles, stdout: Path) -> None:
    for output in spec.step.outputs:
        if output.path is None:
            files.outputs[output.name] = files.out / output.name
        elif output.path == STDOUT:
            files.outputs[output.name] = stdout
        else:
            place = files.outputs[output.name] = files.real(output.path)
            # An output that is the image's own /tmp is a folder before the step has written anything to it.
            is_folder = starts_at_root(spec) and os.path.isdir(output.path)
            os.makedirs(place if is_folder else place.parent, exist_ok=True)


def _write_inputs(spec: AttemptSpec, files: HostFiles, context: BackendContext) -> None:
    for given in spec.step.inputs:
        if given.path is None or _is_absent(spec, given.name):
            continue
        place = files.real(given.path)
        if not given.path.startswith("/"):
            if os.path.lexists(place):
                raise CannotRun(
                    f"the input {given.name} is to be laid at {given.path}, where there is something already ({place}); "
                    "give it an absolute path: each task then gets its own"
                )
            files.to_remove.append(place)
        clear_input(place, files.mounts)
        values.write_input(given, spec.inputs[given.name], place, context.blobs)


def start_folder(spec: AttemptSpec, files: HostFiles | None = None) -> str:
    """Where the command starts: its workdir, relative to the run's working directory. A declared path is made if it is missing."""
    action = spec.action
    workdir = action.workdir if isinstance(action, Container | Script) else None
    if files is not None and starts_at_root(spec):
        start = files.inside(workdir or "/")
        os.makedirs(start, exist_ok=True)
        return start
    if not workdir:
        return spec.working_directory
    moved = files.relocate(workdir) if files is not None else workdir
    start = os.path.join(spec.working_directory or os.getcwd(), moved)
    if moved != workdir:
        os.makedirs(start, exist_ok=True)
    return start


def _needs_folder(spec: AttemptSpec) -> bool:
    """Must anything be written to disk before the command starts? (A script that no shell takes as a word is written later.)"""
    step = spec.step
    return (
        isinstance(spec.action, Function)
        or any(output.path != STDOUT for output in step.outputs)
        or any(given.path for given in step.inputs)
        or bool(step.mounts)
        or bool(_results(spec.action))
        or starts_at_root(spec)
    )


def _is_absent(spec: AttemptSpec, name: str) -> bool:
    """Has the input no file? An optional output of another step may have written none."""
    return name not in spec.inputs or (spec.inputs[name] is None and starts_at_root(spec))


def _workdirs(action: Action) -> list[str]:
    """Where the image starts, other than at its root."""
    parts = action.parts if isinstance(action, Pod) else (action,)
    found = [part.workdir if isinstance(part, Container | Script | Part) else None for part in parts]
    return [path for path in found if isinstance(path, str) and path.strip("/")]


def _empty_folders(action: Action, folder: Path, known: Iterable[str]) -> list[str]:
    """Folders that are empty in an image and that its commands name: they are the attempt's own, and not those of this machine."""
    texts = repr([value for _, value in action_values(action)])
    named = [path for path in known if path in texts]
    for path in named:
        os.makedirs(f"{folder}/root{path}", exist_ok=True)
    return named


def _results(action: Action) -> list[str]:
    """Where the parts of a pod write what other parts read."""
    return [path for part in action.parts for path in part.results.values()] if isinstance(action, Pod) else []


def is_heavy(spec: AttemptSpec) -> bool:
    """May its files be so large that copying them would delay everything else?"""
    if isinstance(spec.action, Function):
        return False  # its own process copies them
    return any(_kind(output.type) in ("file", "dir") for output in spec.step.outputs) or any(
        given.path and (isinstance(spec.inputs.get(given.name), Stored) or _kind(given.type) in ("file", "dir"))
        for given in spec.step.inputs
    )


def _kind(type_: Type) -> str:
    return type_.args[0].name if type_.name == "optional" else type_.name


# -- outputs ----------------------------------------------------------------------------------------------------------


def read_outputs(spec: AttemptSpec, files: HostFiles, blobs: Blobs) -> dict[str, Any]:
    """Raises ValueError with a sentence about the first output that is missing or wrong."""
    found: dict[str, Any] = {}
    for output in spec.step.outputs:
        path = files.outputs[output.name]
        if not path.exists() and output.type.name == "optional":
            found[output.name] = None
            continue
        if not path.exists() and output.default is not MISSING and starts_at_root(spec):
            found[output.name] = resolve(output.default, {})
            continue
        try:
            found[output.name] = values.read_output(output, path, blobs, loosely=starts_at_root(spec))
        except ValueError as error:
            shown = output.path or f"$PENSTOCK_OUTPUTS/{output.name}"
            raise ValueError(str(error).replace(str(path), f"{shown} (here {path})")) from None
    return found


def read_partial_outputs(spec: AttemptSpec, files: HostFiles, blobs: Blobs) -> dict[str, Any]:
    """The outputs that a failed command has written. Only for steps of other systems, which hand them on."""
    found: dict[str, Any] = {}
    for output in spec.step.outputs if starts_at_root(spec) else ():
        path = files.outputs[output.name]
        if path.exists():
            with suppress(ValueError, OSError):
                found[output.name] = values.read_output(output, path, blobs, loosely=True)
    return found
