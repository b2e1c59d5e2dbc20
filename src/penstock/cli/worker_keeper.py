"""The worker of a server, as a process of its own: an engine that computes does not hold up pages. Called by serving; the other end is
`penstock worker`, which serving starts here.

It is started once the server answers, started again if it dies, and told to end as the server is. It holds the other end of a pipe: when the
server is gone, however it went, the pipe is at its end, and the worker lets running tasks finish and ends.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Final

from penstock.service.stores import child_environment
from penstock.settings import Settings

FIRST: Final = 1.0
LONGEST: Final = 60.0
"""Seconds until a worker that died is started again: as many the first time, twice as many each time, at most."""


class WorkerKeeper:
    """`say`: is told what happens to it."""

    def __init__(self, settings: Settings, say: Callable[[str], None], quiet: bool) -> None:
        words = ["worker", "--until-eof", "-j", str(settings.jobs), *(["-q"] if quiet else [])]
        self._command = [sys.executable, "-m", "penstock", *words]
        self._settings = settings
        self._say = say
        self._process: subprocess.Popen[bytes] | None = None
        self._stopping = threading.Event()
        self._told = 0
        self._thread = threading.Thread(target=self._keep, name="penstock worker's keeper", daemon=True)
        self.trouble = ""
        """Why there is none at the moment."""
        self.restarts = 0

    @property
    def pid(self) -> int | None:
        """Of the process, while there is one."""
        process = self._process
        return process.pid if process is not None and process.returncode is None else None

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Take nothing more, and let running tasks finish. The second time: end them. The third time: end, whatever it does. May be called by a
        signal handler."""
        self._stopping.set()
        self._told += 1
        process = self._process
        if process is not None:
            (process.kill if self._told > 2 else process.terminate)()

    def join(self) -> None:
        """Tells it to end, if nobody has, and returns when it has ended. Handlers of signals are called meanwhile."""
        if not self._stopping.is_set():
            self.stop()
        while self._thread.is_alive():
            self._thread.join(0.1)

    # -- in its thread ------------------------------------------------------------------------------------------------

    def _keep(self) -> None:
        pause = FIRST
        while not self._stopping.is_set():
            process, began = self._begun(), time.monotonic()
            code = process.wait()
            if process.stdin is not None:
                process.stdin.close()
            if self._stopping.is_set():
                return
            pause = FIRST if time.monotonic() - began > LONGEST else pause
            how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
            self.trouble = f"the worker has ended {how}, and is started again"
            self._say(f"the worker has ended {how}; it is started again in {pause:g} s")
            if self._stopping.wait(pause):
                return
            pause = min(LONGEST, 2 * pause)
            self.restarts += 1

    def _begun(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=2,  # what the server prints is its address alone
            env=child_environment(self._settings),
            start_new_session=True,  # Ctrl-C in a terminal is the server's, which passes it on
        )
        self._process, self.trouble = process, ""
        if self._stopping.is_set():  # `stop` did not see it
            process.terminate()
        return process


def until_eof(then: Callable[[], None]) -> None:
    """Calls `then` when whoever has started this process is gone. What is started from here does not see the pipe."""
    pipe = os.dup(0)
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)

    def wait() -> None:
        while os.read(pipe, 1024):
            pass
        then()

    threading.Thread(target=wait, name="penstock server's end", daemon=True).start()
