"""Paths of steps and tasks. A step is `outer/train`; its tasks are `outer[2]/train[3]#1`: item 3, round 1, in call 2. Called by engine,
service and cli.
"""

from __future__ import annotations

import re
from collections.abc import Container
from typing import Any

_DIGITS = re.compile(r"(\d+)")


def step_of(path: str) -> str:
    """`outer[2]/train[3]#1` -> `outer/train`."""
    if "[" not in path and "#" not in path:
        return path
    return "/".join(part.partition("[")[0].partition("#")[0] for part in path.split("/"))


def natural(path: str) -> list[Any]:
    """A sort key that puts train[2] before train[10]."""
    return [int(part) if part.isdecimal() else part for part in _DIGITS.split(path)]


def parents(path: str) -> list[str]:
    """`a/b/c` -> `a`, `a/b`."""
    parts = path.split("/")
    return ["/".join(parts[:length]) for length in range(1, len(parts))]


def inside(path: str, outer: str) -> bool:
    """Is `path` the step or task `outer`, one of its tasks, or inside it?"""
    return path == outer or path.startswith((f"{outer}/", f"{outer}[", f"{outer}#"))


def inside_any(path: str, outers: Container[str]) -> bool:
    """The same for any of many."""
    return path in outers or any(char in "/[#" and path[:at] in outers for at, char in enumerate(path))


def overlap(one: str, other: str) -> bool:
    """Is one of them the other, or inside it? `call/x` stands for every task of x in every call."""
    return all(
        mine == yours or inside(mine, yours) or inside(yours, mine)
        for mine, yours in zip(one.split("/"), other.split("/"), strict=False)
    )
