"""One part of a pod: its texts, its script, and the small files that it leaves. Called by sequence and by the pods of local and
container.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from penstock.graph.model import Part

LARGEST_RESULT = 1_000_000
"""Bytes. More belongs into files, not into the words of a command."""


def as_texts(part: Part, text: Callable[[Any], str], moved: Callable[[str], str] = str) -> Part:
    """The part with all its values as text. `moved` replaces the paths in its texts, but not in the name of its image."""

    def told(value: Any) -> str:
        return moved(text(value))

    return replace(
        part,
        image=None if part.image in (None, "") else text(part.image),
        command=tuple(map(told, part.command)),
        args=tuple(map(told, part.args)),
        source=None if part.source is None else told(part.source),
        env={name: told(value) for name, value in part.env.items()},
        workdir=None if part.workdir in (None, "") else told(part.workdir),
        when=tuple(
            {
                "input": told(test.get("input", "")),
                "operator": text(test.get("operator", "in")),
                "values": [told(value) for value in _listed(test.get("values", ()))],
            }
            for test in part.when
        ),
    )


def texts_of(part: Part) -> Iterator[str]:
    """Every text in which a part may read something of another."""
    yield from (*part.command, *part.args, *part.env.values())
    if part.source is not None:
        yield part.source
    if part.workdir is not None:
        yield part.workdir
    for test in part.when:
        yield from (test["input"], *test["values"])


def script_words(part: Part, path: str) -> list[str]:
    """The command of a part with a source, which is at `path`. Its `#!` line is followed here and not by the kernel: the file may
    be where nothing can be executed."""
    words = list(part.command) or ["sh"]
    if part.source.startswith("#!"):
        words = part.source[2:].partition("\n")[0].strip().split(None, 1) or words
    return [*words, path, *part.args]


def read_small(path: Path, within: Path | None = None) -> str | None:
    """The text of a small file that a part left; None if there is none. With `within`, links must not lead out of that folder.
    Raises ValueError."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a pipe would block
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror}") from None
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise ValueError("is not a file")
        if within is not None and not _is_inside(os.path.realpath(f"/proc/self/fd/{handle}"), path, within):
            raise ValueError("is a link that leads elsewhere")
        with open(handle, "rb", closefd=False) as file:
            data = file.read(LARGEST_RESULT + 1)
    finally:
        os.close(handle)
    if len(data) > LARGEST_RESULT:
        raise ValueError(f"is larger than {LARGEST_RESULT:,} bytes: hand it on in a file")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ValueError("is not text") from None


def _is_inside(opened: str, path: Path, within: Path) -> bool:
    """Where there is no /proc, the path itself is followed."""
    real = opened if not opened.startswith("/proc/") else os.path.realpath(path)
    return Path(real).is_relative_to(os.path.realpath(within))


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else [value]
