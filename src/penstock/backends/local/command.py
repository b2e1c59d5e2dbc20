"""The command of a step on the host: its words, and its script if it has one. Called by process and pod. (In a container: see
container.step.)
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from penstock import rights
from penstock.artifacts.blobs import Blobs
from penstock.backends.attempt import starts_at_root, text_of
from penstock.backends.base import AttemptSpec
from penstock.backends.local.files import HostFiles
from penstock.errors import Problem, UserError
from penstock.graph.model import Container, Function, Pod, Script

_SHELLS = frozenset({"sh", "bash", "dash", "ash", "ksh", "zsh"})
_LONGEST_WORD = 30_000
"""Linux allows 128 KiB in one word of a command, and a character may take four bytes."""
_FUNCTION_MAIN = str(Path(__file__).with_name("function_main.py"))


def is_plain(spec: AttemptSpec) -> bool:
    """Does the command need nothing on disk but its log?"""
    step, action = spec.step, spec.action
    if step.outputs or step.replicas != 1 or step.mounts or isinstance(action, Function | Pod) or starts_at_root(spec):
        return False
    if any(given.path for given in step.inputs):
        return False
    return isinstance(action, Container) or (isinstance(action, Script) and _as_word(action.command, action.source))


def words_of(spec: AttemptSpec, files: HostFiles, blobs: Blobs) -> list[str]:
    """Raises CannotRun, UserError, OSError."""
    action = spec.action
    if isinstance(action, Function):
        return [sys.executable, "-P", _FUNCTION_MAIN, str(files.folder)]
    if isinstance(action, Container):
        words = [text_of(word, blobs) for word in (*action.command, *action.args)]
        if not words or not action.command or not words[0]:
            raise no_command(action.image)
        return [files.relocate(word) for word in words]
    assert isinstance(action, Script)
    source = files.relocate(text_of(action.source, blobs))
    words = [files.relocate(text_of(word, blobs)) for word in action.command] or ["sh"]
    if _as_word(words, source):
        return [*words, "-c", source, spec.step.name]  # saves a folder and a file
    return [*words, write_script(files.folder, source)]


def _as_word(words: Sequence[Any], source: Any) -> bool:
    """Can the shell get the script as a word?"""
    if len(words) != 1 or not isinstance(words[0], str) or not isinstance(source, str):
        return False
    return fits_word(words[0], source)


def fits_word(program: str, source: str) -> bool:
    """Is it a shell that can get this text as a word?"""
    return os.path.basename(program) in _SHELLS and len(source) < _LONGEST_WORD and "\0" not in source


def write_script(folder: Path, source: str) -> str:
    rights.make_folder(folder)
    path = folder / "script"
    path.write_text(source, encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def no_command(image: Any, part: str = "") -> UserError:
    who = f"part {part} of the step" if part else "the step"
    message = f"{who} has no command, and what the image {image} does by itself is not known without it"
    fix = "install podman or docker, give it a command, or walk the workflow without running anything: --dry"
    return UserError(Problem("P876", message, fix))
