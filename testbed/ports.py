"""Ports on 127.0.0.1 for one instance, which no other instance on the machine takes. Called by instance.py.

Taken below the range that the kernel uses for outgoing connections, and held by a lock on a small file as long as the instance lives: several
instances may start at the same moment, and a port is only tried, not held, until its server listens.
"""

from __future__ import annotations

import fcntl
import os
import random
import socket
from pathlib import Path

from testbed.errors import TestbedError

FIRST, LAST = 20000, 29999


class Ports:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._locks: list[int] = []
        folder.mkdir(parents=True, exist_ok=True)

    def take(self) -> int:
        for _ in range(500):
            port = random.randint(FIRST, LAST)
            lock = os.open(self._folder / str(port), os.O_CREAT | os.O_RDWR, 0o666)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
            except OSError:
                os.close(lock)
                continue
            self._locks.append(lock)
            return port
        raise TestbedError(f"no free port between {FIRST} and {LAST} on 127.0.0.1")

    def release(self) -> None:
        while self._locks:
            os.close(self._locks.pop())
