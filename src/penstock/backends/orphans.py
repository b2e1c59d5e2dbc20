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
"""Seconds to wait until they are gone. A process that the kernel holds may take longer; then so be it."""


def end_orphans(home: Path, engines: Collection[str]) -> list[int]:
    """Ends them, at once: their engine is gone, and the same tasks are about to start again. Returns whom it ended."""
    ended: dict[int, None] = {}
    deadline = time.monotonic() + _PATIENCE
    while found := find_orphans(home, engines):
        for pid in found:
            ended[pid] = None
            _end(pid)
        if time.monotonic() > deadline:
            break
        time.sleep(0.005)
    return list(ended)


def find_orphans(home: Path, engines: Collection[str]) -> list[int]:
    """Pids of processes that these engines of this home left behind."""
    if not engines:
        return []
    wanted = b"PENSTOCK_HOME=" + os.fsencode(home.absolute())
    marks = {b"PENSTOCK_ENGINE=" + engine.encode() for engine in engines}
    found = []
    for pid in _processes():
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                environ = file.read().split(b"\0")
        except OSError:  # gone meanwhile, or another user's
            continue
        if wanted in environ and not marks.isdisjoint(environ):
            found.append(pid)
    return found


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
