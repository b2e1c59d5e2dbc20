"""Notes beside large blobs: this file, as it is on the disk now, had the right digest. So a large blob is hashed when it is written, and not
again each time that it is read. Called by blobs.

A note names the inode, size and times of the file. Whoever changes the file changes these. It counts for one day, so that what a failing
disk has changed without anybody writing is found too. Only a note of the same user counts: others could write a wrong blob with its note.
"""

from __future__ import annotations

import os
import stat
import time
from contextlib import suppress

LARGE = 64 * 1024 * 1024
"""Blobs below this size have no note. They are hashed whenever they are read."""
_DAY = 86400.0
_SETTLED = 1_000_000_000
"""Nanoseconds. Two changes within one tick of the kernel's clock leave the same times: a younger file gets a time that no clock gives."""


def same(one: os.stat_result, other: os.stat_result) -> bool:
    """Has the file not been changed or replaced in between?"""
    return _signature("", one) == _signature("", other)


def is_noted(place: str, digest: str, found: os.stat_result) -> bool:
    if found.st_size < LARGE:
        return False
    try:
        handle = os.open(f"{place}.ok", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        note = os.fstat(handle)
        ours = stat.S_ISREG(note.st_mode) and note.st_uid == os.geteuid()
        return ours and 0 <= time.time() - note.st_mtime < _DAY and os.read(handle, 1000) == _signature(digest, found)
    except OSError:
        return False
    finally:
        os.close(handle)


def note(place: str, digest: str, found: os.stat_result | None = None) -> None:
    """`found`: the file as it was when its digest was right; None: it has just been written. Where there can be no note, there is none."""
    with suppress(OSError):
        if found is None:
            if os.stat(place).st_size < LARGE:
                return
            now = time.time_ns()
            os.utime(place, ns=(now, now - int.from_bytes(os.urandom(4)) % _SETTLED))
            found = os.stat(place)
        elif found.st_size < LARGE or time.time_ns() - max(found.st_ctime_ns, found.st_mtime_ns) < _SETTLED:
            return
        scratch = f"{place}.ok.{os.getpid()}.{os.urandom(4).hex()}"
        handle = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.write(handle, _signature(digest, found))
        finally:
            os.close(handle)
        os.replace(scratch, f"{place}.ok")


def _signature(digest: str, found: os.stat_result) -> bytes:
    return f"{digest} {found.st_dev} {found.st_ino} {found.st_size} {found.st_mtime_ns} {found.st_ctime_ns}\n".encode()
