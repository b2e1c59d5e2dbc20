"""The two commands that images have and machines may not: `python` and `ash`. Called by process for steps that name an image and run on
the host all the same.

Images of Python call it `python`, Debian and others have only `python3`; small images have busybox's shell, which is called `ash`
besides `sh`. What PATH lacks of these is put into a folder at the end of PATH, behind everything of the user's: `python` is the `python3` of that PATH,
or, if there is none, the Python that Penstock itself runs on; `ash` is busybox's, or else `sh`. A step without an image says what it
wants of this machine, and gets just that. Nothing else is made up: a command that is missing is missing.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import threading
from pathlib import Path

from penstock import rights

_known: dict[tuple[str, str], str] = {}
_HEAD = "#!/bin/sh\n# Written by Penstock: see penstock.backends.local.shims.\n"
_TEXTS = {
    "python": 'command -v python3 >/dev/null 2>&1 && exec python3 "$@"\nexec {python} "$@"\n',
    "ash": 'command -v busybox >/dev/null 2>&1 && exec busybox ash "$@"\nexec sh "$@"\n',
}


def with_shims(path: str, home: Path) -> str:
    """PATH, with both in it. Asked once for each PATH: what is installed meanwhile is found by the next engine."""
    known = _known.get((path, str(home)))
    if known is None:
        known = path
        missing = [name for name in _TEXTS if shutil.which(name, path=path) is None]
        if missing:
            folder = _folder(home, missing)
            known = f"{path}{os.pathsep}{folder}" if path else str(folder)
        _known[path, str(home)] = known
    return known


def _folder(home: Path, names: list[str]) -> Path:
    folder = home.absolute() / "cache" / "shims" / "-".join(names)
    rights.make_folder(folder)
    for name in names:
        _write(folder / name, _HEAD + _TEXTS[name].format(python=shlex.quote(sys.executable)))
    return folder


def _write(file: Path, text: str) -> None:
    try:
        if file.read_text(encoding="utf-8") == text:
            return
    except OSError:
        pass
    new = file.with_name(f".{file.name}-{os.getpid()}-{threading.get_ident()}")  # others may be at it too
    new.write_text(text, encoding="utf-8")
    new.chmod(0o755)
    os.replace(new, file)
