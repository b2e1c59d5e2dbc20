"""Functions that the tests of the backends run in other processes."""

from __future__ import annotations

import os
import signal
import sys
import time


def add(a: int, b: int) -> int:
    return a + b


def listed(folder: str) -> list[str]:
    return sorted(os.listdir(folder))


def boom() -> None:
    raise ValueError("a bad day")


def say() -> str:
    print("to out")
    print("to err", file=sys.stderr)
    return "said"


def who(word: str) -> dict[str, str]:
    print("replica", os.environ["PENSTOCK_REPLICA"])
    names = {"replica": "PENSTOCK_REPLICA", "replicas": "PENSTOCK_REPLICAS", "extra": "EXTRA"}
    return {name: os.environ[variable] for name, variable in names.items()} | {"word": word}


def fail_as_second(how: str) -> None:
    if os.environ["PENSTOCK_REPLICA"] == "0":
        time.sleep(1000)
    elif how == "raise":
        raise ValueError("a bad day")
    elif how == "exit":
        os._exit(5)
    else:
        os.kill(os.getpid(), signal.SIGKILL)


def stay_here() -> int:
    """Starts a process that stays in the group of this one, as a pool does."""
    import subprocess

    return subprocess.Popen(["sleep", "300"]).pid


def run_away(place: str, stay: bool, bare: bool = False) -> int:
    """Starts a process that leaves the session of this one; if asked, with nothing in its environment and without a parent."""
    import subprocess

    code = (
        "import os, signal, sys, time; signal.signal(15, signal.SIG_IGN); open(sys.argv[1] + '.new', 'w').write(str(os.getpid()));"
        "os.rename(sys.argv[1] + '.new', sys.argv[1]); time.sleep(300)"
    )
    if bare:
        command = 'setsid env -i "$0" -S -c "$1" "$2" & exit 0'
        subprocess.run(["sh", "-c", command, sys.executable, code, place], check=True)
    else:
        subprocess.Popen([sys.executable, "-c", code, place], start_new_session=True)
    while not os.path.exists(place):
        time.sleep(0.01)
    if stay:
        time.sleep(300)
    return os.getpid()
