"""One replica of a pod while it runs: its sequence, its log, and the files with exit codes. The pods of local and container have
one each, and so has the leader in a pod of kubernetes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from penstock.backends.pods.sequence import PodSequence
from penstock.graph.model import Part


class Notes(Protocol):
    def note(self, part: str, text: str) -> None:
        """Writes a line of our own."""
        ...


Log = TypeVar("Log", bound=Notes)


class PodProgress(Generic[Log]):
    """`code_file` says where the file with the exit code of a part is on this machine."""

    def __init__(self, sequence: PodSequence, log: Log, code_file: Callable[[str], Path]) -> None:
        self.sequence = sequence
        self.log = log
        self._code_file = code_file

    def next(self) -> Iterator[Part]:
        """The parts to start now. The caller starts each before it asks for the next."""
        for part in self.sequence.next():
            self._note_skipped()
            yield part
        self._note_skipped()

    def ended(self, name: str, code: int, timed_out: bool) -> None:
        """A part has ended. Raises OSError."""
        self.sequence.ended(name, code, timed_out)
        if self.sequence.wants_codes:
            file = self._code_file(name)
            file.parent.mkdir(parents=True, exist_ok=True)
            scratch = file.with_name(f".{file.name}.new")
            scratch.unlink(missing_ok=True)
            scratch.write_text(str(code if code >= 0 else 128 - code), encoding="ascii")
            scratch.replace(file)  # a part may have put a pipe there, which would block
        if code and self.sequence.parts[name].on_error == "continue" and not timed_out:
            self.log.note(name, f"exit code {code}; the pod goes on")

    def _note_skipped(self) -> None:
        while self.sequence.skipped:
            self.log.note(self.sequence.skipped.pop(0), "skipped")
