"""A program started in a session of its own, with its output in files, as fast as the machine can. Called by process.

os.posix_spawn does not copy the engine's memory maps and does not run Python between fork and exec. It cannot change the
folder, though: for a program that starts elsewhere than the engine did, subprocess does it.
"""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.backends.secrets.masked_log import MaskedLogs

from penstock import rights
from penstock.backends.local import guard

_LOG = os.O_WRONLY | os.O_APPEND | os.O_CREAT
_IGNORED = [getattr(signal, name) for name in ("SIGPIPE", "SIGXFSZ") if hasattr(signal, name)]
"""Python ignores these, and a program started by it would too: `yes | head -1` would never end."""
_found: dict[tuple[str, str], str] = {}


class NotStarted(Exception):
    """In a sentence for people."""


def spawn(
    words: list[str],
    env: Mapping[str, str],
    folder: str,
    out: str,
    err: str,
    logs: MaskedLogs | None = None,
    writes: Sequence[str] = (),
) -> int:
    """Its pid, which is its group's too. The files are appended to; both may be the same. `logs`: takes secrets out of what goes there.
    `writes`: the only folders in which it may write, if there are any (see guard). Raises NotStarted."""
    path = env.get("PATH", os.defpath)
    program = _program(words[0], path)
    here = not folder or folder == _current()
    try:
        if logs is not None:
            return _popen(program, words, env, folder, logs.to(out), logs.to(err), logs, writes)
        if here and not writes:
            return _spawn(program, words, env, out, err)
        return _popen(program, words, env, folder, out, err, None, writes)
    except (OSError, ValueError) as error:
        if logs is not None:
            logs.close()
        _found.pop((words[0], path), None)
        raise NotStarted(_why(error, words[0], program, folder)) from None


def _spawn(program: str, words: list[str], env: Mapping[str, str], out: str, err: str) -> int:
    mode = 0o660 if rights.is_group(os.path.dirname(err)) else 0o600
    actions: list[tuple[int, ...] | tuple[int, int, str, int, int]] = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, out, _LOG, mode),
        (os.POSIX_SPAWN_DUP2, 1, 2) if out == err else (os.POSIX_SPAWN_OPEN, 2, err, _LOG, mode),
    ]
    try:
        pid = os.posix_spawn(program, words, env, file_actions=actions, setsid=True, setsigmask=(), setsigdef=_IGNORED)
    except NotImplementedError:  # a system whose posix_spawn makes no sessions
        return _popen(program, words, env, "", out, err)
    if mode == 0o660:
        for name in {out, err}:
            os.chmod(name, mode)  # whatever the umask is
    return pid


def _popen(
    program: str,
    words: list[str],
    env: Mapping[str, str],
    folder: str,
    out: str | int,
    err: str | int,
    logs: MaskedLogs | None = None,
    writes: Sequence[str] = (),
) -> int:
    with open(out, "ab", opener=rights.opener) as stdout, open(err, "ab", opener=rights.opener) as stderr:

        def start() -> subprocess.Popen[bytes]:
            return subprocess.Popen(
                words,
                executable=program,
                env=env,
                cwd=folder or None,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )

        process = guard.writing_only_below(writes, start) if writes else start()
    if logs is not None:
        logs.given()
    process.returncode = 0  # whoever asked for it waits for it; Popen is not to
    return process.pid


def _program(word: str, path: str) -> str:
    """Looked up in the PATH that the program will see, which posix_spawnp would not do."""
    if "/" in word:
        return word
    found = _found.get((word, path))
    if found is None:
        found = shutil.which(word, path=path)
        if found is None:
            raise NotStarted(f"there is no command {word!r} on this machine")
        _found[word, path] = found
    return found


def _current() -> str:
    try:
        return os.getcwd()
    except OSError:  # it was removed
        return ""


def _why(error: OSError | ValueError, word: str, program: str, folder: str) -> str:
    number = getattr(error, "errno", None)
    if folder and not os.path.isdir(folder):
        return f"there is no folder {folder!r} to start {word!r} in"
    place = os.path.join(folder, program)
    if number == errno.ENOENT:
        if os.path.exists(place):
            return f"{word!r} cannot be started: the interpreter named in its first line is not on this machine"
        return f"there is no command {word!r} on this machine"
    if number == errno.EACCES:
        what = "it is a folder" if os.path.isdir(place) else f"it is not executable (chmod +x {place})"
        return f"{word!r} cannot be started: {what}"
    if number == errno.E2BIG:
        return f"{word!r} cannot be started: its words and environment are too long; give large inputs a path instead"
    if number == errno.ENOEXEC:
        return f"{word!r} cannot be started: it is neither a program nor a script with a #! line"
    if isinstance(error, ValueError):
        return f"{word!r} cannot be started: a word or variable has a zero character or '=' where there must be none"
    return f"{word!r} cannot be started: {error.strerror}"
