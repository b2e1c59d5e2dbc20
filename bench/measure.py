"""How the benchmarks measure, and the row each of them prints."""

from __future__ import annotations

import gc
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Figure:
    """One row: what was measured, its bar, and how many times the bare limit it is."""

    name: str
    got: float
    bar: float | None
    unit: str = "s"
    bare: float | None = None
    bare_name: str = ""

    @property
    def met(self) -> bool:
        return self.bar is None or self.got <= self.bar

    def line(self) -> str:
        bar = f"bar {self.bar:g} {self.unit}" if self.bar is not None else ""
        verdict = "" if self.bar is None else "ok" if self.met else "MISSED"
        ratio = f"{self.got / self.bare:5.1f} × {self.bare_name} ({self.bare:.3f} {self.unit})" if self.bare else ""
        return f"{self.name:<58} {self.got:>9.3f} {self.unit:<3} {bar:<12} {verdict:<7} {ratio}"


def best(work: Callable[[], Any], times: int = 3) -> float:
    """The shortest of several runs, in seconds."""
    found = []
    for _ in range(times):
        gc.collect()
        start = time.perf_counter()
        work()
        found.append(time.perf_counter() - start)
    return min(found)


def process(*args: str, times: int = 7) -> float:
    """The shortest run of a Python process, in milliseconds."""
    return 1000 * best(lambda: subprocess.run([sys.executable, *args], check=True, stdout=subprocess.DEVNULL), times)
