"""Functions that the tests of the backends run in other processes."""

from __future__ import annotations

import sys


def add(a: int, b: int) -> int:
    return a + b


def boom() -> None:
    raise ValueError("a bad day")


def say() -> str:
    print("to out")
    print("to err", file=sys.stderr)
    return "said"
