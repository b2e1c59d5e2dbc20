"""A log between a program and its file, from which secrets are taken out. Called by process and by the container tool.

The program writes into a pipe. The engine reads it, so nothing of a secret is ever on disk. When the program has ended, what is in the
pipe is written, and the rest of it belongs to nobody: a process that is left over finds the pipe closed.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress

from penstock.backends.secrets.mask import Masker

_CHUNK = 1 << 16


PRINTED = "it printed a secret where what it prints is an output; a result is recorded, and a secret must not be: print something else"


class MaskedLogs:
    """The logs of one program."""

    def __init__(self, loop: asyncio.AbstractEventLoop, needles: tuple[bytes, ...]) -> None:
        self._loop = loop
        self._needles = needles
        self._open: dict[str, _MaskedLog] = {}
        self.masked: set[str] = set()
        """The logs from which something was taken out, once they are closed."""

    def to(self, path: str) -> int:
        """A file descriptor for the program, which belongs to the caller. The same log for the same path."""
        log = self._open.get(path)
        if log is None:
            log = self._open[path] = _MaskedLog(self._loop, path, self._needles)
        return os.dup(log.write)

    def given(self) -> None:
        """The program has its descriptors."""
        for log in self._open.values():
            log.given()

    def close(self) -> None:
        """The program has ended."""
        for path, log in self._open.items():
            log.close()
            if log.masked:
                self.masked.add(path)
        self._open = {}


class _MaskedLog:
    def __init__(self, loop: asyncio.AbstractEventLoop, path: str, needles: tuple[bytes, ...]) -> None:
        self._loop = loop
        self._masker = Masker(needles)
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._read, self.write = os.pipe()
        os.set_blocking(self._read, False)
        loop.add_reader(self._read, self._some)

    @property
    def masked(self) -> bool:
        """Was anything taken out?"""
        return self._masker.found

    def given(self) -> None:
        if self.write >= 0:
            os.close(self.write)
            self.write = -1

    def close(self) -> None:
        """The program has ended."""
        self.given()
        while self._some():
            pass
        self._loop.remove_reader(self._read)
        os.close(self._read)
        self._put(self._masker.end())
        os.close(self._file)

    def _some(self) -> bool:
        try:
            data = os.read(self._read, _CHUNK)
        except BlockingIOError:
            return False
        if not data:
            self._loop.remove_reader(self._read)
            return False
        self._put(self._masker.feed(data))
        return True

    def _put(self, data: bytes) -> None:
        with suppress(OSError):  # a full disk: as when the program writes its log itself
            while data:
                data = data[os.write(self._file, data) :]
