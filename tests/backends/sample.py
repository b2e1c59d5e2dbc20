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
