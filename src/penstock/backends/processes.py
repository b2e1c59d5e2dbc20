"""Child processes and their groups: when one has ended, how to end one, and how to name its end. Called by local, container
and tools.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress


class ProcessWatch:
    """Calls `ended(status)` once, in the loop's thread, when the process has ended. The status is that of os.waitpid.

    It does not poll, and needs no thread where the kernel offers pidfd. It ends what is left of the process's group while the
    process is still a zombie: until then its number cannot be given to another process."""

    def __init__(self, loop: asyncio.AbstractEventLoop, pid: int, ended: Callable[[int], None]) -> None:
        self._loop = loop
        self.pid = pid
        self._ended = ended
        self.over = False
        self.cpu: float | None = None
        """Seconds of processor time that it and what it waited for have used, once it has ended; None: not known."""
        self.until = 0.0
        """The loop time until which the rest of the group may go on after the process has ended. Set when the group was asked to end."""
        try:
            self._fd = os.pidfd_open(pid)
        except (AttributeError, OSError):  # not Linux, or an old one, or not allowed
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
            _, status, used = os.wait4(self.pid, 0)
            self.cpu = used.ru_utime + used.ru_stime
        except ChildProcessError:  # other code has waited for it: how it ended is not known
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


def kill_group(pid: int, number: int) -> None:
    """Signals the process and everything that it started and that is still in its group."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def group_lives(pid: int) -> bool:
    """Does any process of the group still run? Zombies do not count."""
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


def how_it_ended(code: int | None) -> str:
    """An exit code in words; it is minus the number of the signal if one ended the process."""
    if code is None or code >= 0:
        return f"exit code {code}"
    more = "; perhaps out of memory" if -code == signal.SIGKILL else ""
    return f"ended by signal {-code} ({signal_name(-code)}{more})"
