"""Which returned files were changed while a function ran. Called by backends.local.invoke, which tells the engine: two attempts that ran at
the same time and changed and returned the same file may have each other's content.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

_SLACK: Final = 2.0
"""Seconds. Clocks of file systems are coarse, and those of other machines are not ours."""


def changed_since(paths: Iterable[Path], moment: float) -> tuple[str, ...]:
    """The real paths of the files and folders that were written to, made or renamed after this moment, a time of the wall clock."""
    found = {os.path.realpath(path): None for path in paths}
    return tuple(path for path in found if _changed(path) >= moment - _SLACK)


def _changed(path: str) -> float:
    """When it was changed last; of a folder, also anything in it. What is gone has just been changed."""
    try:
        last = os.stat(path).st_ctime
        if os.path.isdir(path):
            for folder, names, files in os.walk(path):
                last = max([last, *(os.lstat(os.path.join(folder, name)).st_ctime for name in (*names, *files))])
    except OSError:
        return float("inf")
    return last
