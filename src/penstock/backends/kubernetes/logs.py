"""What the container of a task prints, in a file below the home: while it runs if there is a thread for it, and in any case when it has
ended. Made and called by attempt, in threads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from penstock import rights
from penstock.backends.base import LogPart
from penstock.backends.secrets.mask import Masker, needles_of
from penstock.kubernetes.client import ApiError, LogStream

MOMENT = 0.1
"""Seconds after its end in which a container's stream mostly ends too: then it need not be asked for again."""


class ContainerLog:
    """One container. `secrets`: texts that must not be in it; `title`: a first line, if the container prints anything."""

    def __init__(self, home: Path, name: str, secrets: Iterable[str], title: str = "") -> None:
        self.name = name
        self._title = title
        self._path = home / name
        self._needles = needles_of(secrets)
        self._lock = threading.Lock()
        self._notes: list[str] = []
        self._written = False
        self._complete = False
        self._stream: LogStream | None = None
        self._ended = False
        self._idle = threading.Event()
        self._idle.set()
        rights.make_folder(self._path.parent)
        self._path.unlink(missing_ok=True)  # left by the same attempt before a crash

    def note(self, line: str) -> bool:
        """A line of ours, before the container prints anything. Each one once: False if it was not written."""
        with self._lock:
            if line in self._notes or self._written:
                return False
            self._notes.append(line)
            with open(self._path, "a", encoding="utf-8", opener=rights.opener) as file:
                file.write(f"penstock: {line}\n")
        return True

    def follow(self, open_: Callable[[bool], LogStream]) -> None:
        """Until the container ends or `stop` is called. Raises nothing: what is missing then, `complete` gets."""
        self._idle.clear()
        try:
            with suppress(ApiError, OSError):
                stream = open_(True)
                with self._lock:
                    self._stream = stream
                    stop = self._ended
                if stop:
                    stream.stop()
                self._copy(stream)
                self._complete = not self._ended
        finally:
            self._idle.set()

    def stop(self) -> None:
        with self._lock:
            self._ended = True
            if self._stream is not None:
                self._stream.stop()

    def complete(self, open_: Callable[[bool], LogStream]) -> None:
        """All of it, when the container has ended. If it cannot be had any more, what was followed stays."""
        self._idle.wait(MOMENT)
        if not self._complete:
            with suppress(ApiError, OSError):
                self._copy(open_(False))
                self._complete = True

    def _copy(self, stream: LogStream) -> None:
        masker = Masker(self._needles) if self._needles else None
        notes = "".join(f"penstock: {line}\n" for line in self._notes).encode()
        with stream, open(self._path, "wb", opener=rights.opener, buffering=0) as file:
            self._written = True
            file.write(notes)
            title = f"{self._title}\n".encode() if self._title else b""
            for data in stream:
                if data and title:
                    file.write(title)
                    title = b""
                file.write(masker.feed(data) if masker is not None else data)
            if masker is not None:
                file.write(masker.end())

    def part(self) -> tuple[LogPart, ...]:
        """Removes it if it is empty."""
        with suppress(OSError):
            size = self._path.stat().st_size
            if size:
                return ((self.name, 0, size),)
            self._path.unlink()
        return ()
