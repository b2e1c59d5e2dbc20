"""Knowing when a child process has ended, without polling and without a thread where the kernel can tell. Called by workers and
process.

The callback comes while the process is still a zombie: its number cannot have been given to another, so that what is left
of its group can be ended before it is reaped.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress


class Watch:
    """Calls `ended(status)` once, in the loop's thread. Status as of os.waitpid."""

    def __init__(self, loop: asyncio.AbstractEventLoop, pid: int, ended: Callable[[int], None]) -> None:
        self._loop = loop
        self.pid = pid
        self._ended = ended
        self.over = False
        self.until = 0.0
        """Loop time up to which what the process leaves behind may go on: it was asked to end, and may be at it."""
        try:
            self._fd = os.pidfd_open(pid)
        except (AttributeError, OSError):  # not Linux, or an old one, or forbidden here
            self._fd = -1
            threading.Thread(target=self._wait, daemon=True, name=f"wait-{pid}").start()
        else:
            loop.add_reader(self._fd, self._reap)

    def _wait(self) -> None:
        with suppress(OSError):
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        with suppress(RuntimeError):  # the loop may be gone by now
            self._loop.call_soon_threadsafe(self._reap)

    def _reap(self) -> None:
        if self.over:
            return
        self.over = True
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
        patient = self.until > self._loop.time()
        if not patient:
            kill_group(self.pid, signal.SIGKILL)
        try:
            _, status = os.waitpid(self.pid, 0)
        except ChildProcessError:  # somebody else has waited for it: how it ended is not known
            status = 0xFF00
        if patient:
            self._linger(status)
        else:
            self._ended(status)

    def _linger(self, status: int) -> None:
        if group_lives(self.pid) and self._loop.time() < self.until:
            self._loop.call_later(0.02, self._linger, status)
        else:
            kill_group(self.pid, signal.SIGKILL)
            self._ended(status)

    def close(self) -> None:
        """Stop watching; the process is the caller's business again."""
        if not self.over:
            self.over = True
            if self._fd >= 0:
                self._loop.remove_reader(self._fd)
                os.close(self._fd)


def kill_group(pid: int, number: int) -> None:
    """The process and all that it started and that did not leave its group."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def group_lives(pid: int) -> bool:
    """Is anybody of the group left who still does something? Those who only wait to be reaped by init do not."""
    try:
        os.killpg(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:
        numbers = [name for name in os.listdir("/proc") if name.isdigit()]
    except OSError:  # not Linux
        return True
    for number in numbers:
        with suppress(OSError):
            with open(f"/proc/{number}/stat", "rb") as file:
                state, _, group = file.read().rpartition(b")")[2].split()[:3]
            if int(group) == pid and state not in b"ZX":
                return True
    return False


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
