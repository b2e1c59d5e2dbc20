"""Regular files, opened so that nothing can block: a pipe, a socket or a device is refused and never read. Called by blobs, values and
folders, and by service for files that are parameters. Also how much is taken at most.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from io import BufferedReader

_KINDS = (
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


class Limits:
    """How many bytes are taken at most. Not a dataclass: every worker imports this (see graph.stored)."""

    __slots__ = ("file", "value")

    def __init__(self, value: int = 256 * 1024**2, file: int = 1024**4) -> None:
        self.value = value
        """Of what is read into memory: a text or JSON output of a command, the answer to an http request. $PENSTOCK_LARGEST_VALUE."""
        self.file = file
        """Of a file or folder that is an output. $PENSTOCK_LARGEST_FILE."""


class NotTaken(ValueError):
    """It is not a regular file, or too large. The message is a sentence."""


def check_kind(path: str | os.PathLike[str], mode: int) -> None:
    """Raises NotTaken unless it is a regular file or a folder."""
    for test, name in _KINDS:
        if test(mode):
            raise NotTaken(f"{os.fspath(path)} is {name}; only regular files and folders are taken")


def open_regular(path: str | os.PathLike[str], follow: bool = True) -> BufferedReader:
    """Raises NotTaken, OSError."""
    check_kind(path, os.stat(path, follow_symlinks=follow).st_mode)
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
    handle = os.open(path, flags if follow else flags | os.O_NOFOLLOW)
    try:
        check_kind(path, os.fstat(handle).st_mode)  # it may be another one by now
        return open(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def check_size(what: str, size: int, limit: int, setting: str) -> None:
    """Raises NotTaken."""
    if size > limit:
        raise NotTaken(
            f"{what} is larger than {shown_size(limit)}, the most that is taken; {setting} sets another limit, as in {setting}={shown_size(2 * limit)}"
        )


def shown_size(size: int) -> str:
    for unit, name in ((1024**4, "Ti"), (1024**3, "Gi"), (1024**2, "Mi"), (1024, "Ki")):
        if size >= unit and size % unit == 0:
            return f"{size // unit}{name}"
    return str(size)
