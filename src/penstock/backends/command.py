"""What a command of a step is, on the machine itself: words, environment, and where its files lie. Called by process. (What it
is in a container: see crate.)

A step may declare absolute paths for its inputs and outputs (`/tmp/rows.json`). In a container they are its own; on a shared
machine they would be everybody's. So on the host each is laid below the attempt's own folder, and wherever the step's words,
script, environment or workdir name such a path, they get the real one. The same holds for the folders that a step mounts (see
mounts); a declared path below one of them lies in that folder. A path that is put together while the program runs is
not found that way. Relative paths are relative to where the command starts.
"""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.artifacts import values
from penstock.artifacts.blobs import Blobs
from penstock.artifacts.values import as_text
from penstock.backends import mounts, places
from penstock.backends.base import Context, Order
from penstock.backends.mounts import Laid
from penstock.errors import Problem, UserError
from penstock.graph import model
from penstock.graph.evaluate import resolve
from penstock.graph.model import MISSING, Container, Function, Pod, Script
from penstock.graph.stored import Stored
from penstock.graph.types import Type

STDOUT = "/dev/stdout"
REPLICA = "$(PENSTOCK_REPLICA)"
_SHELLS = frozenset({"sh", "bash", "dash", "ash", "ksh", "zsh"})
_LONGEST_WORD = 30_000
"""Linux takes 128 KiB in one word of a command, and a character may be four bytes."""


class Unfit(Exception):
    """This order cannot be run here, and why."""


@dataclass(slots=True)
class Files:
    """Where the inputs and outputs of one replica lie on this machine."""

    folder: Path
    moved: dict[str, str] = field(default_factory=dict)
    """Absolute path as declared -> where it is."""
    outputs: dict[str, Path] = field(default_factory=dict)
    stdout: Path | None = None
    start: str = ""
    """Where the command starts; empty: where the engine is."""
    pattern: re.Pattern[str] | None = None
    laid: list[Path] = field(default_factory=list)
    """Inputs in the user's own folder, because they were declared there: to be removed afterwards."""
    mounts: list[Laid] = field(default_factory=list)

    @property
    def out(self) -> Path:
        return self.folder / "out"

    def move(self, paths: Iterable[str | None], laid: Iterable[Laid] = ()) -> None:
        """Declared absolute paths get their places, in a mounted folder if they are below one. `/../x` does not lead out of it."""
        self.mounts += [mount for mount in laid if mount.path.strip("/")]
        for path in paths:
            if path is not None and path.startswith("/") and path.strip("/") and path != STDOUT:
                self.moved[path.rstrip("/")] = self._place(os.path.normpath(path))
        for mount in self.mounts:
            self.moved[mount.path.rstrip("/")] = str(mount.source)
        if self.moved:
            known = "|".join(re.escape(path) for path in sorted(self.moved, key=len, reverse=True))
            self.pattern = re.compile(rf"(?<![\w./~)}}-])(?:{known})(?![\w-]|\.\w)")

    def _place(self, path: str) -> str:
        around = [mount for mount in self.mounts if is_below(path, mount.path)]
        if around:
            mount = max(around, key=lambda one: len(one.path.rstrip("/")))
            return f"{mount.source}{path.removeprefix(mount.path.rstrip('/'))}"
        return f"{self.folder}/root/{path.lstrip('/')}"

    def real(self, path: str) -> Path:
        """The place for a declared path."""
        return Path(self.moved.get(path.rstrip("/")) or os.path.join(self.start, path))

    def inside(self, path: str) -> str:
        """The place for any path of an image whose root is the attempt's own folder."""
        moved = self.relocate(path)
        return moved if moved != path else os.path.normpath(f"{self.folder}/root/{os.path.normpath('/' + path)}")

    def relocate(self, text: str) -> str:
        """Every declared path in a text, replaced. `/tmp/x` is not found in `/tmp/xy` nor in `/var/tmp/x`, but in `/tmp/x/y`."""
        if self.pattern is None or "/" not in text:
            return text
        return self.pattern.sub(lambda found: self.moved[found[0]], text)


def needs_folder(order: Order) -> bool:
    """Is there anything to be written to disk before the command starts? (A script that is no shell's is, later.)"""
    step = order.step
    return (
        isinstance(order.action, Function)
        or any(output.path != STDOUT for output in step.outputs)
        or any(given.path for given in step.inputs)
        or bool(step.mounts)
        or bool(_results(order))
        or is_at_large(order)
    )


def is_absent(order: Order, name: str) -> bool:
    """Is there nothing to be laid for this input? A file that another step did not leave, and did not have to."""
    return name not in order.inputs or (order.inputs[name] is None and is_at_large(order))


def what_there_is(order: Order, files: Files, blobs: Blobs) -> dict[str, Any]:
    """The outputs of a command that failed, as far as it wrote them: other systems hand them on."""
    found: dict[str, Any] = {}
    for output in order.step.outputs if is_at_large(order) else ():
        path = files.outputs[output.name]
        if path.exists():
            with suppress(ValueError, OSError):
                found[output.name] = values.read_output(output, path, blobs, loosely=True)
    return found


def is_at_large(order: Order) -> bool:
    """A step of a run that has no folder of its own to start in, because it was written for another system: it starts at the root of its
    image, and on the host in the attempt's own folder, which stands for that."""
    return order.place == "/" and not isinstance(order.action, Function)


def is_plain(order: Order) -> bool:
    """A command that needs nothing on disk but its log."""
    step, action = order.step, order.action
    if step.outputs or step.replicas != 1 or step.mounts or isinstance(action, Function | Pod) or is_at_large(order):
        return False
    if any(given.path for given in step.inputs):
        return False
    return isinstance(action, Container) or (isinstance(action, Script) and _by_word(action.command, action.source))


def _by_word(words: Sequence[Any], source: Any) -> bool:
    """A script that its shell can be given as a word."""
    if len(words) != 1 or not isinstance(words[0], str) or not isinstance(source, str):
        return False
    return fits_word(words[0], source)


def fits_word(program: str, source: str) -> bool:
    """Is it a shell, which can be given this text as a word?"""
    return os.path.basename(program) in _SHELLS and len(source) < _LONGEST_WORD and "\0" not in source


def lay_files(order: Order, folder: Path, context: Context, stdout: Path) -> Files:
    """Makes the folders that outputs go to, and the files that inputs come as. `stdout` is used if what the command prints
    is an output."""
    files = Files(folder)
    step = order.step
    outputs = () if isinstance(order.action, Function) else step.outputs
    needed = needs_folder(order)
    if (needed or isinstance(order.action, Pod)) and os.path.lexists(folder):
        shutil.rmtree(folder)  # of the same attempt, before a crash
    if needed:
        os.makedirs(files.out)
        laid = () if isinstance(order.action, Function) else mounts.lay(order, folder, context.home, context.blobs)
        files.move(
            [
                *(given.path for given in step.inputs), *(output.path for output in outputs), *_results(order),
                *(_workdirs(order) if is_at_large(order) else ()),
            ],
            laid,
        )  # fmt: skip
    files.start = start_folder(order, files)
    for output in outputs:
        if output.path is None:
            files.outputs[output.name] = files.out / output.name
        elif output.path == STDOUT:
            files.stdout = files.outputs[output.name] = stdout
        else:
            files.outputs[output.name] = files.real(output.path)
            # An output that is the image's own /tmp is a folder before anybody has written to it.
            own = is_at_large(order) and os.path.isdir(output.path)
            os.makedirs(files.outputs[output.name] if own else files.outputs[output.name].parent, exist_ok=True)
    for given in step.inputs:
        if given.path is not None and not is_absent(order, given.name):
            place = files.real(given.path)
            if not given.path.startswith("/"):
                if os.path.lexists(place):
                    raise Unfit(
                        f"the input {given.name} is to be laid at {given.path}, where there is something already ({place}); "
                        "give it an absolute path: each task then gets its own"
                    )
                files.laid.append(place)
            clear(place, files.mounts)
            values.write_input(given, order.inputs[given.name], place, context.blobs)
    return files


def _workdirs(order: Order) -> list[str]:
    """Where an image is told to start, apart from its root."""
    parts = order.action.parts if isinstance(order.action, Pod) else (order.action,)
    found = [getattr(part, "workdir", None) for part in parts]
    return [path for path in found if isinstance(path, str) and path.strip("/")]


def _results(order: Order) -> list[str]:
    """Where the parts of a pod write what other parts read."""
    action = order.action
    return [path for part in action.parts for path in part.results.values()] if isinstance(action, Pod) else []


def clear(place: Path, laid: Iterable[Laid]) -> None:
    """An input that is laid in a folder of the run is laid anew, whatever an earlier task left there."""
    if any(not mount.own and is_below(str(place), str(mount.source)) for mount in laid) and os.path.lexists(place):
        shutil.rmtree(place) if place.is_dir() and not place.is_symlink() else place.unlink()


def is_below(path: str, folder: str) -> bool:
    folder = folder.rstrip("/")
    return path == folder or path.startswith(f"{folder}/")


def is_heavy(order: Order) -> bool:
    """May its files be so large that laying or keeping them would hold up everything else?"""
    if isinstance(order.action, Function):
        return False  # it sees to them itself
    return any(_kind(output.type) in ("file", "dir") for output in order.step.outputs) or any(
        given.path and (isinstance(order.inputs.get(given.name), Stored) or _kind(given.type) in ("file", "dir"))
        for given in order.step.inputs
    )


def _kind(type_: Type) -> str:
    return type_.args[0].name if type_.name == "optional" else type_.name


def words_of(order: Order, files: Files, blobs: Blobs) -> list[str]:
    """The command on the host."""
    action = order.action
    if isinstance(action, Function):
        return [sys.executable, "-P", str(Path(__file__).with_name("call.py")), str(files.folder)]
    if isinstance(action, Container):
        words = [text_of(word, blobs) for word in (*action.command, *action.args)]
        if not words or not action.command or not words[0]:
            raise no_command(action.image)
        return [files.relocate(word) for word in words]
    assert isinstance(action, Script)
    source = files.relocate(text_of(action.source, blobs))
    words = [files.relocate(text_of(word, blobs)) for word in action.command] or ["sh"]
    if _by_word(words, source):
        return [*words, "-c", source, order.step.name]  # saves a folder and a file
    return [*words, write_script(files.folder, source)]


def no_command(image: Any, part: str = "") -> UserError:
    who = f"part {part} of the step" if part else "the step"
    message = f"{who} has no command, and what the image {image} does by itself is not known without it"
    fix = "install podman or docker, give it a command, or walk the workflow without running anything: --dry"
    return UserError(Problem("P876", message, fix))


def write_script(folder: Path, source: str) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "script"
    path.write_text(source, encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def text_of(value: Any, blobs: Blobs) -> str:
    try:
        return as_text(value, blobs)
    except ValueError as error:
        raise Unfit(str(error)) from None


def step_env(action: model.Action, blobs: Blobs) -> dict[str, str]:
    env: Mapping[str, Any] = getattr(action, "env", {})
    return {name: text_of(value, blobs) for name, value in env.items()}


def penstock_env(order: Order, context: Context, replica: int, out: str) -> dict[str, str]:
    """What every process of a step is told about itself."""
    return {
        "PENSTOCK_RUN": order.run,
        "PENSTOCK_TASK": order.task,
        "PENSTOCK_ATTEMPT": order.id,
        "PENSTOCK_ENGINE": context.engine,
        "PENSTOCK_HOME": str(context.home),
        "PENSTOCK_OUTPUTS": out,
        "PENSTOCK_REPLICA": str(replica),
        "PENSTOCK_REPLICAS": str(order.step.replicas),
    }


def for_replica(order: Order, replica: int) -> Order:
    """The order with its own number for `$(PENSTOCK_REPLICA)`, which stands in words and variables of gangs that count themselves."""
    if order.step.replicas == 1 and not order.step.extra:
        return order

    def numbered(value: Any) -> Any:
        if isinstance(value, str):
            return value.replace(REPLICA, str(replica))
        if isinstance(value, tuple | list):
            return tuple(map(numbered, value))
        return {key: numbered(one) for key, one in value.items()} if isinstance(value, dict) else value

    given = {name: numbered(value) for name, value in model.action_values(order.action)}
    return dataclasses.replace(order, action=model.with_values(order.action, given))


def start_folder(order: Order, files: Files | None = None, workdir: str | None = None) -> str:
    """Where the command starts: its workdir, seen from the place of the run. A declared path among its folders is made."""
    workdir = workdir or getattr(order.action, "workdir", None)
    if files is not None and is_at_large(order):
        start = files.inside(workdir or "/")
        os.makedirs(start, exist_ok=True)
        return start
    if not workdir:
        return order.place
    moved = files.relocate(workdir) if files is not None else workdir
    start = os.path.join(order.place or os.getcwd(), moved)
    if moved != workdir:
        os.makedirs(start, exist_ok=True)
    return start


def read_outputs(order: Order, files: Files, blobs: Blobs) -> dict[str, Any]:
    """Raises ValueError with a sentence about the first output that is missing or wrong."""
    found: dict[str, Any] = {}
    for output in order.step.outputs:
        path = files.outputs[output.name]
        if not path.exists() and output.type.name == "optional":
            found[output.name] = None
            continue
        if not path.exists() and output.default is not MISSING and is_at_large(order):
            found[output.name] = resolve(output.default, {})
            continue
        try:
            found[output.name] = values.read_output(output, path, blobs, loosely=is_at_large(order))
        except ValueError as error:
            shown = output.path or f"$PENSTOCK_OUTPUTS/{output.name}"
            raise ValueError(str(error).replace(str(path), f"{shown} (here {path})")) from None
    return found


def replica_folder(context: Context, order: Order, replica: int) -> Path:
    base = places.work_folder(context.home, order)
    return base if order.step.replicas == 1 else base / str(replica)
