"""A pod on this machine: what each part is when its turn has come. Called by process, which starts and watches the parts; the
turns themselves are in podding.

All parts see the same files, laid for the attempt as for any command (see command), so a path that the step mounts or declares,
and a file that a part declares as a result, is in the texts of every part where it really is. Beside them, in the attempt's folder:

    parts/NAME/script      the text of a part with a source, unless a shell can take it as a word
    parts/NAME/exitCode    how the part ended, if another part asks for it

There is no process between the engine and the parts: each part leads a session of its own, as every command does, so whatever
it leaves running ends with it, and a pod costs no more than its parts.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from penstock.backends import command, places, podding, shims
from penstock.backends.base import Context, LogPart, Order
from penstock.backends.command import Files
from penstock.backends.podding import Failure
from penstock.graph import model
from penstock.graph.model import Part

_OPTIONS = re.compile(r"-[eux]+\Z")
"""Words after a shell that do not stand in the way of `-c`."""


@dataclass(frozen=True, slots=True)
class Start:
    """One part, ready to be started."""

    part: Part
    words: list[str]
    env: dict[str, str]
    folder: str
    out: str
    err: str
    """Logs, below the home."""


class HostPod:
    """One replica of it."""

    def __init__(self, order: Order, number: int, context: Context, environ: Mapping[str, str]) -> None:
        """Lays its files. Raises Unfit, ValueError, OSError, and what the blobs raise."""
        order = command.for_replica(order, number)
        action = order.action
        assert isinstance(action, model.Pod)
        self.number = number
        self._order = order
        self._home = context.home
        self._log = podding.Log(context.home, order, number, action.parts)
        os.makedirs((context.home / self._log.err).parent, exist_ok=True)
        folder = command.replica_folder(context, order, number)
        self.files: Files = command.lay_files(order, folder, context, context.home / self._log.out)
        for part in action.parts:
            for path in part.results.values():
                os.makedirs(self.files.real(path).parent, exist_ok=True)
        self._environ = {**environ, **command.penstock_env(order, context, number, str(self.files.out))}

        def text(value: object) -> str:
            return command.text_of(value, context.blobs)

        parts = [podding.written(part, text, self.files.relocate) for part in action.parts]
        self.turns = podding.Turns(parts, self._read, self._code_path)

    def next(self) -> Iterator[Start]:
        """The parts to be started now, each to be started before the next is asked for. Raises Unfit, UserError and OSError."""
        for part in self.turns.next():
            self._tell_skipped()
            words = self._words(part)
            env = {**self._environ, **part.env}
            if part.image is not None:
                env["PATH"] = shims.with_shims(env.get("PATH", os.defpath), self._home)
            yield Start(part, words, env, self._folder(part), *self._log.open(part.name))
        self._tell_skipped()

    def ended(self, name: str, code: int, timed_out: bool) -> None:
        self.turns.ended(name, code, timed_out)
        if self.turns.wants_codes:
            file = Path(self._code_path(name))
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(str(code if code >= 0 else 128 - code), encoding="ascii")
        if code and self.turns.parts[name].on_error == "continue" and not timed_out:
            self._log.note(name, f"exit code {code}; the pod goes on")

    def explain(self, failure: Failure, how: str) -> str:
        """`how`: what is said of its exit code."""
        said = failure.message or how
        return f"part {failure.part}: {said}" if len(self.turns.parts) > 1 else said

    @property
    def log_names(self) -> list[str]:
        return self._log.names

    def close_log(self) -> list[LogPart]:
        return self._log.close()

    # -- one part -----------------------------------------------------------------------------------------------------

    def _words(self, part: Part) -> list[str]:
        if part.source is None:
            if not part.command or not part.command[0]:
                raise command.no_command(part.image, part.name if len(self.turns.parts) > 1 else "")
            return [*part.command, *part.args]
        words = list(part.command) or ["sh"]
        plain = not part.source.startswith("#!") and all(map(_OPTIONS.match, words[1:]))
        if plain and command.fits_word(words[0], part.source):
            return [*words, "-c", part.source, part.name, *part.args]
        return podding.script_words(part, command.write_script(self._own(part.name), part.source))

    def _folder(self, part: Part) -> str:
        """Where it starts. What is in a folder of the attempt or of the run is made; the machine's own must be there."""
        if part.workdir is None:
            return self.files.start
        folder = os.path.join(self._order.place or os.getcwd(), part.workdir)
        ours = [str(self.files.folder), *(str(mount.source) for mount in self.files.mounts)]
        if command.is_at_large(self._order) and not any(command.is_below(folder, one) for one in ours):
            folder = self.files.inside(folder)
        if any(command.is_below(folder, one) for one in ours):
            os.makedirs(folder, exist_ok=True)
        return folder

    def _own(self, name: str) -> Path:
        return self.files.folder / "parts" / places.mangled(name)

    def _code_path(self, name: str) -> str:
        return str(self._own(name) / "exitCode")

    def _read(self, part: Part, path: str) -> str | None:
        return podding.read_small(self.files.real(path))

    def _tell_skipped(self) -> None:
        while self.turns.skipped:
            self._log.note(self.turns.skipped.pop(0), "skipped")
