"""Processes that outlived their engine, or the attempt that they belong to. Called by the engine when it finds another one dead, before it
takes over its runs; and by process and workers when an attempt has ended or is to end.

Every process of a step knows its home and its engine by its environment (PENSTOCK_HOME, PENSTOCK_ENGINE), and so do those
that it started. They are found in /proc. Where there is none (macOS), nothing is found: workers end with their engine by
themselves, but a command goes on until it is done. Containers that an engine left are ended by name: see `container.orphans`.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from penstock.backends.base import Orphan

_PATIENCE = 2.0
"""Seconds to wait until they are gone. A process that the kernel holds may take longer; then so be it."""

_FEW = 200
"""So many numbers are tried one by one. For more, the list of all processes is read."""


def end_orphans(home: Path, engines: Collection[str]) -> list[int]:
    """Ends them, at once: their engine is gone, and the same tasks are about to start again. Returns whom it ended."""
    return _end_all(lambda: find_orphans(home, engines))


def find_orphans(home: Path, engines: Collection[str]) -> list[int]:
    """Pids of processes that these engines of this home left behind."""
    return [one.pid for one in name_orphans(home, engines)]


def name_orphans(home: Path, engines: Collection[str]) -> list[Orphan]:
    """The same, with what each of them belongs to."""
    if not engines:
        return []
    wanted = b"PENSTOCK_HOME=" + os.fsencode(home.absolute())
    marks = {b"PENSTOCK_ENGINE=" + engine.encode() for engine in engines}
    found = []
    for pid, environ in _environs(_processes()):
        if wanted in environ and not marks.isdisjoint(environ):
            known = dict(
                entry.decode(errors="replace").partition("=")[::2] for entry in environ if b"PENSTOCK_" in entry
            )
            found.append(Orphan(pid, known.get("PENSTOCK_RUN", ""), known.get("PENSTOCK_TASK", "")))
    return found


class EscapedProcesses:
    """What left the group of a process, with setsid, and did not end with it. It still has the variables that the process was given, or
    writes into its log; or it was seen while it was a descendant of the process."""

    def __init__(
        self,
        since: int,
        marks: Mapping[str, str],
        known: Collection[int] = (),
        family: bool = False,
        logs: Collection[str] = (),
    ) -> None:
        self._since = since
        """The process: whatever it started has a higher number, unless the numbers began anew."""
        self._marks = marks
        self._known = known
        """Running processes that are somebody else's, by their numbers: their environment need not be read."""
        self._family = family
        """Look for descendants too: the process adopts those of them that lose their parents."""
        self._logs = logs
        """The files that its output goes to. Nobody else has them as output: so is found what has cleared its environment."""
        self._seen: dict[int, str] = {}
        """Descendants outside of its group, with the times at which they began."""

    def find(self) -> list[int]:
        """Costs next to nothing if no process at all was started after it, and no family is looked for."""
        found = self._marked()
        if not self._family and not self._seen:
            return found
        running = _running()
        if self._family:  # its group is still there, and is not asked for
            left = {pid for pid, process in running.items() if process.group != self._since}
            found = [pid for pid in found if pid in left]
            self._seen |= {pid: running[pid].began for pid in _descendants(self._since, running) if pid in left}
        old = [pid for pid, began in self._seen.items() if pid in running and running[pid].began == began]
        return list(dict.fromkeys((*found, *old)))

    def orphaned(self) -> None:
        """The process has ended. Whoever has its number from now on is somebody else."""
        self._family = False

    def _marked(self) -> list[int]:
        last = _last_pid()
        if self._since <= last < self._since + _FEW:
            numbers: Iterable[int] = range(self._since + 1, last + 1)
        else:
            numbers = (pid for pid in _processes() if not self._since <= last or pid > self._since)
        known = self._known
        others = [pid for pid in numbers if pid not in known and _exists(pid)]
        if not others:  # as for nearly every process: it started none, and none was started meanwhile by others
            return []
        ours, marks = os.getpid(), {os.fsencode(f"{name}={value}") for name, value in self._marks.items()}
        logs = set(map(os.path.realpath, self._logs))
        return [
            pid
            for pid, environ in _environs(others)
            if pid != ours and (marks <= environ or (logs and not logs.isdisjoint(_outputs(pid))))
        ]

    def ask(self) -> None:
        """To end by themselves."""
        for pid in self.find():
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGTERM)

    def end(self) -> list[int]:
        """At once. May take a moment. Returns whom it ended."""
        return _end_all(self.find)


class _Process(NamedTuple):
    parent: int
    group: int
    began: str


def _running() -> dict[int, _Process]:
    """All processes that run; zombies do not."""
    found = {}
    with suppress(OSError):
        for name in os.listdir("/proc"):
            if name.isdigit():
                with suppress(OSError, ValueError, IndexError):
                    with open(f"/proc/{name}/stat", "rb", buffering=0) as file:
                        fields = file.read().decode(errors="replace").rpartition(")")[2].split()
                    if fields[0] not in "ZX":
                        found[int(name)] = _Process(int(fields[1]), int(fields[2]), fields[19])
    return found


def _descendants(pid: int, running: Mapping[int, _Process]) -> list[int]:
    children: dict[int, list[int]] = {}
    for one, process in running.items():
        children.setdefault(process.parent, []).append(one)
    found: list[int] = []
    waiting = list(children.get(pid, ()))
    while waiting:
        one = waiting.pop()
        found.append(one)
        waiting += children.get(one, ())
    return found


def _end_all(find: Callable[[], list[int]]) -> list[int]:
    ended: dict[int, None] = {}
    deadline = time.monotonic() + _PATIENCE
    while found := find():
        for pid in found:
            ended[pid] = None
            _end(pid)
        if time.monotonic() > deadline:
            break
        time.sleep(0.005)
    return list(ended)


def _environs(pids: Iterable[int]) -> Iterator[tuple[int, set[bytes]]]:
    for pid in pids:
        try:
            with open(f"/proc/{pid}/environ", "rb", buffering=0) as file:
                yield pid, set(file.read().split(b"\0"))
        except OSError:  # gone meanwhile, or another user's
            continue


def _outputs(pid: int) -> Iterator[str]:
    for number in (1, 2):
        with suppress(OSError):
            yield os.readlink(f"/proc/{pid}/fd/{number}")


def _exists(pid: int) -> bool:
    """Is there such a process? Asked like this, nothing is opened."""
    try:
        os.getpgid(pid)
    except OSError:
        return False
    return True


def _last_pid() -> int:
    """The number that was given last; 0 if it is not known."""
    try:
        handle = os.open("/proc/loadavg", os.O_RDONLY)
        try:
            return int(os.read(handle, 200).split()[4])
        finally:
            os.close(handle)
    except (OSError, ValueError, IndexError):
        return 0


def _processes() -> Iterator[int]:
    """All but ourselves and our group: this engine may itself have been started by a step."""
    ours = os.getpgrp()
    with suppress(OSError):
        for name in os.listdir("/proc"):
            with suppress(OSError):
                if name.isdigit() and int(name) != os.getppid() and os.getpgid(int(name)) != ours:
                    yield int(name)


def _end(pid: int) -> None:
    """Its whole group, if it leads one: what it started may have cleared its environment."""
    with suppress(ProcessLookupError, PermissionError):
        if os.getpgid(pid) == pid:
            os.killpg(pid, signal.SIGKILL)
        else:
            os.kill(pid, signal.SIGKILL)
