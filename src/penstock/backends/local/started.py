"""What the functions of a worker process start: noticed, and ended with the attempt if it has left the worker's group. Used by worker_main.

A program that calls setsid is in no group of ours. While the worker lives it is found as a descendant: the worker adopts what loses its
parent (PR_SET_CHILD_SUBREAPER of Linux), so that also one that has cleared its environment has a way back to it. Without that it is found by its
environment. What stays in the worker's group, as the processes of a pool do, may go on for the next attempt, and ends with the worker.

Nothing is looked for unless a function has started a process through Python: that costs nothing for all the others.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import Any

_STARTS = frozenset({"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system"})
_ADOPT = 36
"""PR_SET_CHILD_SUBREAPER."""


class StartedProcesses:
    def __init__(self) -> None:
        self.any = False
        """Has the running attempt started one?"""
        self._adopts = False
        self._pid = os.getpid()
        sys.addaudithook(self._audit)

    def _audit(self, event: str, _: Any) -> None:
        if event in _STARTS and not self.any and os.getpid() == self._pid:
            self.any = True
            if not self._adopts:
                self._adopts = True
                self._adopt()

    def _adopt(self) -> None:
        with suppress(ImportError, OSError, AttributeError):  # not Linux, or a Python without ctypes
            import ctypes

            ctypes.CDLL(None).prctl(_ADOPT, 1, 0, 0, 0)

    def end(self) -> None:
        """At the end of an attempt: those that have left the group."""
        from penstock.backends.local.orphans import EscapedProcesses

        log = os.environ.get("PENSTOCK_WORKER_LOG", "")
        for pid in EscapedProcesses(self._pid, {"PENSTOCK_WORKER_LOG": log}, family=True).end():
            with suppress(OSError):
                os.waitpid(pid, os.WNOHANG)  # if it is ours by now, nobody else waits for it
        self.any = False
