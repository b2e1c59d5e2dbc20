"""Where commands may write that were written for an image and run on this machine. Called by process and its builder.

In an image a command may write anywhere, and nothing of it stays. Here it may write below the attempt's own folder, in the folders
that the step mounts, and to devices; everything else of the machine it can only read. Linux promises that of a process and of all that
it starts, without root (Landlock, from 5.19 on), and a process cannot take it back. It is asked for by a thread that starts the program
and ends: what a thread has given up is given up for itself and for what it starts, not for the engine.

Where the kernel cannot do it (another system, an older kernel, a sandbox around Penstock), commands write where you may.
"""

from __future__ import annotations

import functools
import os
import struct
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")

SETTING = "PENSTOCK_HOST_WRITES"
"""`yes`: commands write where you may, and /tmp is that of this machine."""
ADVICE = f"it may write to its own folder only, and not to this machine ({SETTING}=yes lets it)"

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on all architectures
_NO_NEW_PRIVILEGES = 38
_PATH_BENEATH = 1
_WRITE_FILE, _REFER, _TRUNCATE = 1 << 1, 1 << 13, 1 << 14
_MAKE_AND_REMOVE = sum(1 << bit for bit in range(4, 13))
_DEVICES = ("/dev", "/proc")
"""Files there may be written to, but none can be made; in /dev/shm they can, which is memory."""
_SHARED_MEMORY = "/dev/shm"


def writes_anywhere(environ: Mapping[str, str]) -> bool:
    return environ.get(SETTING, "").strip().lower() in ("yes", "1", "true")


def is_on(environ: Mapping[str, str]) -> bool:
    return not writes_anywhere(environ) and _version() >= 2


@functools.cache
def _version() -> int:
    """Of Landlock, as this kernel has it; 0 if it has none. The first cannot move files between folders, and is not used."""
    if not sys.platform.startswith("linux"):
        return 0
    try:
        return max(0, _syscall(_CREATE_RULESET, None, 0, 1))
    except OSError:
        return 0


def writing_only_below(folders: Iterable[str], start: Callable[[], T]) -> T:
    """Calls `start`, which starts a program. What it raises is raised."""
    found: list[T] = []
    raised: list[BaseException] = []

    def run() -> None:
        try:
            _restrict(folders)
            found.append(start())
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run, name="penstock-guard")
    thread.start()
    thread.join()
    if raised:
        raise raised[0]
    return found[0]


def _restrict(folders: Iterable[str]) -> None:
    """Of this thread. Raises OSError."""
    on_files = _WRITE_FILE | (_TRUNCATE if _version() >= 3 else 0)
    rights = on_files | _MAKE_AND_REMOVE | _REFER
    rules = _syscall(_CREATE_RULESET, struct.pack("Q", rights), 8, 0)
    try:
        for path in (*folders, _SHARED_MEMORY):
            _allow(rules, path, rights if os.path.isdir(path) else on_files)
        for path in _DEVICES:
            _allow(rules, path, on_files)
        if _libc().prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) != 0:
            raise OSError(_errno(), "no_new_privs")
        _syscall(_RESTRICT_SELF, rules, 0)
    finally:
        os.close(rules)


def _allow(rules: int, path: str, rights: int) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        _syscall(_ADD_RULE, rules, _PATH_BENEATH, struct.pack("=Qi", rights, place), 0)
    finally:
        os.close(place)


@functools.cache
def _libc() -> Any:
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    return libc


def _errno() -> int:
    import ctypes

    return ctypes.get_errno()


def _syscall(number: int, *args: Any) -> int:
    import ctypes

    given = [ctypes.c_long(arg) if isinstance(arg, int) else arg for arg in args]
    found = int(_libc().syscall(ctypes.c_long(number), *given))
    if found < 0:
        raise OSError(_errno(), os.strerror(_errno()))
    return found
