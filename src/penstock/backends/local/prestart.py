"""A worker process, started. Called by worker_process, and by the registry before anything else is loaded: a worker takes as long to
start as the rest of Penstock, so starting both at once halves the time to the first task.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from penstock import rights
from penstock.backends.environment import for_tasks

_MAIN = f"""import sys
sys.path.append({str(Path(__file__).parents[3])!r})
from penstock.backends.local.worker_main import main
main(sys.argv[1:])"""
"""Not run as a file: Python would compile it each time. Penstock is found where this process found it."""

_LIKELY = ("penstock.author.tasks", "penstock.author.flow")
"""Most authors' files begin with these."""


class StartedWorker:
    """The engine's ends of the pipes and the socket of a worker."""

    def __init__(self, home: Path, engine: str, log: str, environ: Mapping[str, str]) -> None:
        self.key = (str(home), engine, log)
        path = home / log
        self.socket, theirs = socket.socketpair()
        self.tickets_theirs, self.tickets_ours = os.pipe()
        life_theirs, self._life = os.pipe()
        given = (theirs.fileno(), self.tickets_theirs, life_theirs)
        environ = {
            **environ,
            "PENSTOCK_ENGINE": engine,
            "PENSTOCK_HOME": str(home),
            "PENSTOCK_WORKER_LOG": str(path),
        }
        with open(path, "ab", opener=rights.opener) as file:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-c", _MAIN, *map(str, given), *_LIKELY],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env=environ,
                pass_fds=given,
                start_new_session=True,
            )
        theirs.close()
        os.close(life_theirs)

    def close_tickets(self) -> None:
        if self.tickets_ours >= 0:
            os.close(self.tickets_ours)
            self.tickets_ours = -1

    def close(self) -> None:
        """After the process has been waited for."""
        self.process.returncode = 0
        self.close_tickets()
        self.socket.close()
        os.close(self.tickets_theirs)
        os.close(self._life)


_unclaimed: list[StartedWorker] = []


def start_ahead(home: Path, engine: str) -> None:
    """Starts the first worker of an engine that is not made yet. If nobody claims it, it ends with this process."""
    try:
        rights.make_home(home)
        rights.make_folder(home / "logs" / engine)
        _unclaimed.append(StartedWorker(home, engine, f"logs/{engine}/worker-1.log", for_tasks(os.environ)))
    except OSError:
        return  # the engine meets the same error and reports it


def claim(home: Path, engine: str, log: str) -> StartedWorker | None:
    """The worker that was started ahead, if it is this one."""
    if _unclaimed and _unclaimed[0].key == (str(home), engine, log):
        return _unclaimed.pop()
    return None


def end_unclaimed() -> None:
    """Ends a worker that nobody claimed, and removes what was made for it."""
    while _unclaimed:
        started = _unclaimed.pop()
        started.process.kill()
        started.process.wait()
        started.close()
        log = Path(started.key[0], started.key[2])
        for path, remove in ((log, os.unlink), (log.parent, os.rmdir)):
            try:
                remove(path)
            except OSError:
                return
