"""Functions for the steps of test_argo_real.py. They travel into pods that have nothing but Python, so this file imports nothing else."""

from __future__ import annotations

import os
from pathlib import Path


def numbers(n: int) -> list[int]:
    print(f"counting to {n}")
    return list(range(n))


def square(x: int) -> int:
    return x * x


def total(xs: list[int]) -> int:
    return sum(xs)


def where() -> str:
    """The pod it runs in: a name that this machine does not have."""
    return os.uname().nodename


def written(text: str) -> Path:
    file = Path("note.txt")
    file.write_text(text)
    return file


def read(file: Path) -> str:
    return file.read_text().upper()


def breaks() -> None:
    raise ValueError("no such luck")
