"""A worker in the background, for who records runs and does not execute them: `penstock submit`, `penstock redrive`, LocalRunner.

It ends when there is nothing left to do. There is one for each home: it holds a lock on a file. Who has just recorded an order looks at the lock
after that; the worker looks at the orders once more after it has let go of the lock. So one of the two always notices.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from penstock import rights
from penstock.settings import Settings

LOCK: Final = "worker.lock"
LOG: Final = "background-worker.log"


@contextmanager
def alone(settings: Settings) -> Iterator[bool]:
    """False: another process holds the lock."""
    rights.make_folder(settings.home / "logs")
    with open(settings.home / "logs" / LOCK, "ab", opener=rights.opener) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
            return
        yield True


def ensure_worker(settings: Settings) -> int | None:
    """Starts one, in a process that outlives this one, unless there is one. Returns its pid if it was started."""
    with alone(settings) as free:
        if not free:
            return None
    words = [sys.executable, "-m", "penstock", "worker", "--until-idle", "-j", str(settings.jobs)]
    env = {
        **os.environ,
        **({"PENSTOCK_HOME": str(settings.home)} if settings.named else {}),
        "PENSTOCK_STORE": settings.store,
        "PENSTOCK_ARTIFACTS": settings.artifacts,
    }
    with open(settings.home / "logs" / LOG, "ab", opener=rights.opener) as out:
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=env, start_new_session=True
        )
    process.returncode = 0  # tells Popen not to warn that nobody waited for it
    return process.pid
