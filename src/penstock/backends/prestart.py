"""A worker process, started. Called by workers, and by the command line before anything else is known: a worker takes as long to
start as the rest of Penstock, so that both starting at once halves the time to the first task.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

_MAIN = f"""import sys
sys.path.append({str(Path(__file__).parents[2])!r})
from penstock.backends.worker_main import main
main(sys.argv[1:])"""
"""Not run as a file, which Python would compile anew each time; and found where we were found, wherever that is."""

_LIKELY = ("penstock.author.tasks", "penstock.author.flow")
"""Nearly every author's file begins with these."""


class Started:
    """The engine's ends of a worker's lines."""

    def __init__(self, home: Path, engine: str, log: str, environ: Mapping[str, str]) -> None:
        self.key = (str(home), engine, log)
        path = home / log
        self.socket, theirs = socket.socketpair()
        self.tickets_theirs, self.tickets_ours = os.pipe()
        life_theirs, self.life = os.pipe()
        given = (theirs.fileno(), self.tickets_theirs, life_theirs)
        environ = {**environ, "PENSTOCK_ENGINE": engine, "PENSTOCK_HOME": str(home), "PENSTOCK_WORKER_LOG": str(path)}
        with open(path, "ab") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-c", _MAIN, *map(str, given), *_LIKELY],
                stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=environ, pass_fds=given, start_new_session=True,
            )  # fmt: skip
        theirs.close()
        os.close(life_theirs)


_ahead: list[Started] = []


def start_ahead(home: Path, engine: str) -> None:
    """The first worker of an engine that is yet to be made. If it is never claimed it ends with this process."""
    try:
        (home / "logs" / engine).mkdir(parents=True, exist_ok=True)
        _ahead.append(Started(home, engine, f"logs/{engine}/worker-1.log", os.environ))
    except OSError:
        return  # the engine will meet the same trouble, and say so


def claim(home: Path, engine: str, log: str) -> Started | None:
    """The one that was started ahead, if it is this one."""
    if _ahead and _ahead[0].key == (str(home), engine, log):
        return _ahead.pop()
    return None


def unclaimed() -> None:
    """Nobody came for it: it ends, and what was made for it goes."""
    while _ahead:
        started = _ahead.pop()
        started.socket.close()
        os.close(started.life)
        started.process.kill()
        started.process.wait()
        log = Path(started.key[0], started.key[2])
        for path, remove in ((log, os.unlink), (log.parent, os.rmdir)):
            try:
                remove(path)
            except OSError:
                return
