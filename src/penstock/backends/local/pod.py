"""A pod on the host: the command of each part when it is about to start. Called by process, which starts and watches the parts.

All parts see the same files, made for the attempt as for any command (see files). So a path that the step mounts or declares, and
a file that a part declares as a result, is replaced in the texts of every part by its real place. The attempt's folder also has:

    parts/NAME/script      the text of a part with a source, unless a shell can take it as a word
    parts/NAME/exitCode    how the part ended, if another part reads it

There is no process between the engine and the parts. Each part leads a session of its own, as every command does: what it leaves
running ends with it, and a pod costs no more than its parts.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from penstock import rights
from penstock.backends import folders
from penstock.backends.attempt import for_replica, penstock_env, replica_error, replica_folder, starts_at_root, text_of
from penstock.backends.base import AttemptSpec, BackendContext
from penstock.backends.folders import is_below
from penstock.backends.local import command, shims
from penstock.backends.local.files import make_files
from penstock.backends.own_error import NAME
from penstock.backends.pods.log import PodLog
from penstock.backends.pods.parts import as_texts, read_small, script_words
from penstock.backends.pods.progress import PodProgress
from penstock.backends.pods.sequence import PodSequence
from penstock.graph import model
from penstock.graph.model import Part

_SHELL_OPTIONS = re.compile(r"-[eux]+\Z")
"""Words after a shell that allow `-c` behind them."""


@dataclass(frozen=True, slots=True)
class PartCommand:
    """One part, ready to start."""

    part: Part
    words: list[str]
    env: dict[str, str]
    folder: str
    out: str
    err: str
    """Logs, below the home."""


class HostPod:
    """One replica of a pod."""

    def __init__(self, spec: AttemptSpec, number: int, context: BackendContext, environ: Mapping[str, str]) -> None:
        """Makes its files. Raises CannotRun, MountError, ValueError, OSError, and what the blobs raise."""
        self._spec = spec = for_replica(spec, number)
        action = spec.action
        assert isinstance(action, model.Pod)
        self.number = number
        self._home = context.home
        log = PodLog(context.home, spec, number, action.parts)
        rights.make_folder((context.home / log.err).parent)
        self.files = make_files(spec, replica_folder(context, spec, number), context, context.home / log.out)
        for part in action.parts:
            for path in part.results.values():
                os.makedirs(self.files.real(path).parent, exist_ok=True)
        self.error = str(context.home / replica_error(spec, number))
        if starts_at_root(spec):  # its parts may be let write to its own files alone
            rights.make_folder(self.files.out)
            self.error = str(self.files.out / f".{NAME}")
        self._environ = {**environ, **penstock_env(spec, context, number, str(self.files.out), self.error)}
        if starts_at_root(spec):
            self._environ |= self.files.temporary()
        parts = [
            as_texts(part, lambda value: text_of(value, context.blobs), self.files.relocate) for part in action.parts
        ]
        sequence = PodSequence(parts, self._read, lambda name: str(self._code_file(name)))
        self.progress = PodProgress(sequence, log, self._code_file)

    def next(self) -> Iterator[PartCommand]:
        """The parts to start now. The caller starts each before it asks for the next. Raises CannotRun, UserError, OSError."""
        for part in self.progress.next():
            words = self._words(part)
            env = {**self._environ, **part.env}
            if part.image is not None:
                env["PATH"] = shims.with_shims(env.get("PATH", os.defpath), self._home)
            yield PartCommand(part, words, env, self._start_folder(part), *self.progress.log.open(part.name))

    def _words(self, part: Part) -> list[str]:
        if part.source is None:
            if not part.command or not part.command[0]:
                raise command.no_command(part.image, part.name if len(self.progress.sequence.parts) > 1 else "")
            return [*part.command, *part.args]
        words = list(part.command) or ["sh"]
        plain = not part.source.startswith("#!") and all(map(_SHELL_OPTIONS.match, words[1:]))
        if plain and command.fits_word(words[0], part.source):
            return [*words, "-c", part.source, part.name, *part.args]
        return script_words(part, command.write_script(self._own(part.name), part.source))

    def _start_folder(self, part: Part) -> str:
        """A folder of the attempt or of the run is made if it is missing; one of the machine must exist."""
        if part.workdir is None:
            return self.files.start
        folder = os.path.join(self._spec.working_directory or os.getcwd(), part.workdir)
        ours = [str(self.files.folder), *(str(mount.source) for mount in self.files.mounts)]
        if starts_at_root(self._spec) and not any(is_below(folder, one) for one in ours):
            folder = self.files.inside(folder)
        if any(is_below(folder, one) for one in ours):
            os.makedirs(folder, exist_ok=True)
        return folder

    def _own(self, name: str) -> Path:
        return self.files.folder / "parts" / folders.mangled(name)

    def _code_file(self, name: str) -> Path:
        return self._own(name) / "exitCode"

    def _read(self, part: Part, path: str) -> str | None:
        return read_small(self.files.real(path))
