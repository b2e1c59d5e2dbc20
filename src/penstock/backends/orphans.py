"""Processes that outlived their engine. Called by the engine when it finds another one dead, before it takes over its runs.

Every process of a step knows its home and its engine by its environment (PENSTOCK_HOME, PENSTOCK_ENGINE), and so do those
that it started. They are found in /proc. Where there is none (macOS), nothing is found: workers end with their engine by
themselves, but a command goes on until it is done. Containers that an engine left are ended by name: see `container.remove`.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

_PATIENCE = 2.0


def find_orphans(home: Path, dead: Collection[str]) -> list[int]:
    """Pids of processes that engines of this home left behind."""
    wanted = b"PENSTOCK_HOME=" + os.fsencode(home.absolute())
    engines = {b"PENSTOCK_ENGINE=" + engine.encode() for engine in dead}
    found = []
    for pid in _processes():
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                environ = file.read().split(b"\0")
        except OSError:  # gone meanwhile, or another user's
            continue
        if wanted in environ and not engines.isdisjoint(environ):
            found.append(pid)
    return found


def _processes() -> Iterator[int]:
    own = {os.getpid(), os.getppid()}
    with suppress(OSError):
        for name in os.listdir("/proc"):
            if name.isdigit() and int(name) not in own:
                yield int(name)


def end_orphans(home: Path, dead: Collection[str], patience: float = _PATIENCE) -> list[int]:
    """Ends them, asked first, and waits until they are gone. Returns whom it ended. May be called when there are none."""
    if not dead:
        return []
    ended: dict[int, None] = {}
    deadline = time.monotonic() + patience
    number = signal.SIGTERM
    while found := find_orphans(home, dead):
        if time.monotonic() > deadline:
            if number == signal.SIGKILL:
                break  # not ours to end, or stuck in the kernel
            number, deadline = signal.SIGKILL, time.monotonic() + patience
        new = [pid for pid in found if pid not in ended]
        for pid in new if number == signal.SIGTERM else found:
            ended[pid] = None
            _end(pid, number)
        time.sleep(0.01)
    return list(ended)


def _end(pid: int, number: int) -> None:
    """Its whole group, if it leads one: what it started may have cleared its environment."""
    with suppress(ProcessLookupError, PermissionError):
        if os.getpgid(pid) == pid:
            os.killpg(pid, number)
        else:
            os.kill(pid, number)
