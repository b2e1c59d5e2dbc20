"""What a command of a step is, on the machine itself: words, environment, and where its files lie. Called by process. (What it
is in a container: see crate.)

A step may declare absolute paths for its inputs and outputs (`/tmp/rows.json`). In a container they are its own; on a shared
machine they would be everybody's. So on the host each is laid below the attempt's own folder, and wherever the step's words,
script, environment or workdir name such a path, they get the real one. A path that is put together while the program runs is
not found that way. Relative paths are relative to where the command starts.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.artifacts import values
from penstock.artifacts.blobs import Blobs
from penstock.artifacts.values import as_text
from penstock.backends import places
from penstock.backends.base import Context, Order
from penstock.graph import model
from penstock.graph.model import Container, Function, Script
from penstock.graph.stored import Stored
from penstock.graph.types import Type

STDOUT = "/dev/stdout"
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

    @property
    def out(self) -> Path:
        return self.folder / "out"

    def move(self, paths: Iterable[str | None]) -> None:
        """Declared absolute paths get their places. `/../x` does not lead out of the folder."""
        for path in paths:
            if path is not None and path.startswith("/") and path.strip("/") and path != STDOUT:
                self.moved[path.rstrip("/")] = f"{self.folder}/root/{os.path.normpath(path).lstrip('/')}"
        if self.moved:
            known = "|".join(re.escape(path) for path in sorted(self.moved, key=len, reverse=True))
            self.pattern = re.compile(rf"(?<![\w./~)}}-])(?:{known})(?![\w-]|\.\w)")

    def real(self, path: str) -> Path:
        """The place for a declared path."""
        return Path(self.moved.get(path.rstrip("/")) or os.path.join(self.start, path))

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
    )


def is_plain(order: Order) -> bool:
    """A command that needs nothing on disk but its log."""
    step, action = order.step, order.action
    if step.outputs or step.replicas != 1 or isinstance(action, Function) or any(given.path for given in step.inputs):
        return False
    return isinstance(action, Container) or (isinstance(action, Script) and _by_word(action.command, action.source))


def _by_word(words: Sequence[Any], source: Any) -> bool:
    """A script that its shell can be given as a word."""
    if len(words) != 1 or not isinstance(words[0], str) or os.path.basename(words[0]) not in _SHELLS:
        return False
    return isinstance(source, str) and len(source) < _LONGEST_WORD and "\0" not in source


def lay_files(order: Order, folder: Path, blobs: Blobs, start: str, stdout: Path) -> Files:
    """Makes the folders that outputs go to, and the files that inputs come as. `stdout` is used if what the command prints
    is an output."""
    files = Files(folder, start=start)
    step = order.step
    outputs = () if isinstance(order.action, Function) else step.outputs
    if needs_folder(order):
        if os.path.lexists(folder):
            shutil.rmtree(folder)  # of the same attempt, before a crash
        os.makedirs(files.out)
        files.move([*(given.path for given in step.inputs), *(output.path for output in outputs)])
        files.start = files.relocate(start)
        if files.start != start:
            os.makedirs(files.start, exist_ok=True)
    for output in outputs:
        if output.path is None:
            files.outputs[output.name] = files.out / output.name
        elif output.path == STDOUT:
            files.stdout = files.outputs[output.name] = stdout
        else:
            files.outputs[output.name] = files.real(output.path)
            os.makedirs(files.outputs[output.name].parent, exist_ok=True)
    for given in step.inputs:
        if given.path is not None and given.name in order.inputs:
            place = files.real(given.path)
            if not given.path.startswith("/"):
                if os.path.lexists(place):
                    raise Unfit(
                        f"the input {given.name} is to be laid at {given.path}, where there is something already ({place}); "
                        "give it an absolute path: each task then gets its own"
                    )
                files.laid.append(place)
            values.write_input(given, order.inputs[given.name], place, blobs)
    return files


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
            raise Unfit(f"what the image {action.image} does by itself is not known here: give the step a command")
        return [files.relocate(word) for word in words]
    assert isinstance(action, Script)
    source = files.relocate(text_of(action.source, blobs))
    words = [files.relocate(text_of(word, blobs)) for word in action.command] or ["sh"]
    if len(words) == 1 and os.path.basename(words[0]) in _SHELLS and len(source) < _LONGEST_WORD and "\0" not in source:
        return [*words, "-c", source, order.step.name]  # saves a folder and a file
    return [*words, write_script(files, source)]


def write_script(files: Files, source: str) -> str:
    files.folder.mkdir(parents=True, exist_ok=True)
    path = files.folder / "script"
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


def start_folder(order: Order) -> str:
    """Where the command starts: its workdir, seen from the place of the run."""
    workdir = getattr(order.action, "workdir", None)
    return os.path.join(order.place or os.getcwd(), workdir) if workdir else order.place


def read_outputs(order: Order, files: Files, blobs: Blobs) -> dict[str, Any]:
    """Raises ValueError with a sentence about the first output that is missing or wrong."""
    found: dict[str, Any] = {}
    for output in order.step.outputs:
        path = files.outputs[output.name]
        if not path.exists() and output.type.name == "optional":
            found[output.name] = None
            continue
        try:
            found[output.name] = values.read_output(output, path, blobs)
        except ValueError as error:
            shown = output.path or f"$PENSTOCK_OUTPUTS/{output.name}"
            raise ValueError(str(error).replace(str(path), f"{shown} (here {path})")) from None
    return found


def replica_folder(context: Context, order: Order, replica: int) -> Path:
    base = places.work_folder(context.home, order)
    return base if order.step.replicas == 1 else base / str(replica)
