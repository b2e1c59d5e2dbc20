"""The log of a pod: which part prints where. Called by the pods of local and container."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from penstock.backends import folders
from penstock.backends.attempt import STDOUT
from penstock.backends.base import AttemptSpec, LogPart
from penstock.graph.links import part_needs
from penstock.graph.model import Part


class PodLog:
    """The log of one replica of a pod. Parts that run one after another share the log of the task, each below a line with its
    name. A part that may run beside others has its own file, with the same first line. A single part has no such line. What
    is declared as an output goes to another file than stderr, as for any command."""

    def __init__(self, home: Path, spec: AttemptSpec, number: int, parts: Sequence[Part]) -> None:
        suffix = f"{number}." if number else ""
        self._home = home
        self._spec = spec
        self._suffix = suffix
        self.err = folders.log_name(spec, f"{suffix}log")
        self.out = ""
        """The file for what the printing part prints, if that is an output."""
        plain = [part for part in parts if not part.sidecar]
        needs = part_needs(tuple(parts))
        chained = [needs[part.name] for part in plain] == [(), *((part.name,) for part in plain[:-1])][: len(plain)]
        self._apart = {part.name for part in parts if part.sidecar or not chained}
        self._several = len(parts) > 1
        self.printer = next((part.name for part in plain if part.name == "main"), plain[-1].name if plain else "")
        if any(output.path == STDOUT for output in spec.step.outputs):
            self.out = folders.log_name(spec, f"{suffix}out")
            (home / self.out).unlink(missing_ok=True)  # left by the same attempt before a crash
        self._split: tuple[str, int] | None = None
        """The log, and the byte in it, where the printing part starts."""
        self._marks: dict[str, int] = {}
        """Bytes of each file that are our own lines."""
        self.names: list[str] = []
        for part in sorted(parts, key=lambda part: part.sidecar):
            for name in (self._of(part.name), self.out if part.name == self.printer else ""):
                if name and name not in self.names:
                    self.names.append(name)

    def _of(self, part: str) -> str:
        if self._several and part in self._apart:
            return folders.log_name(self._spec, f"{self._suffix}part-{folders.mangled(part)}.log")
        return self.err

    def open(self, part: str) -> tuple[str, str]:
        """(stdout, stderr) of a part that is about to start."""
        err = self._of(part)
        self.note(part, "")
        if self.out and part == self.printer:
            if self._several:
                self._split = err, os.path.getsize(self._home / err)
            return self.out, err
        return err, err

    def note(self, part: str, text: str) -> None:
        """Writes a line of our own."""
        if not self._several:
            return
        name = self._of(part)
        line = f"[{part}] {text}".rstrip().encode() + b"\n"
        with open(self._home / name, "a+b", buffering=0) as file:
            size = file.seek(0, os.SEEK_END)
            if size and os.pread(file.fileno(), 1, size - 1) != b"\n":
                line = b"\n" + line
            file.write(line)
        self._marks[name] = self._marks.get(name, 0) + len(line)

    def close(self) -> list[LogPart]:
        """What was printed, in the order of printing. Removes files that hold only our own lines."""
        sizes: dict[str, int] = {}
        for name in self.names:
            with suppress(OSError):
                sizes[name] = os.path.getsize(self._home / name)
        within, split = self._split if self._split is not None and sizes.get(self.out) else ("", 0)
        found: list[LogPart] = []
        for name, size in sizes.items():
            if name == within:  # what the printing part printed comes below its name
                found += [(name, 0, split), (self.out, 0, sizes[self.out])]
                found += [(name, split, size)] if size > split else []
            elif size <= self._marks.get(name, 0):
                with suppress(OSError):
                    os.unlink(self._home / name)
            elif name != self.out or not within:
                found.append((name, 0, size))
        return found
