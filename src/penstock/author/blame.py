"""Whose line was it? Called wherever the author's Python is at fault, to point at the author's file and not at ours."""

from __future__ import annotations

import functools
import linecache
import sys
from pathlib import Path

from penstock.errors import AuthorError, Problem, Source

_NOT_THEIRS = (str(Path(__file__).parent.parent), str(Path(functools.__file__).parent), "<frozen")
"""Our own package, and Python's library, through which our decorators are called."""


def here() -> Source | None:
    """The innermost line on the stack that is not Penstock's own."""
    frame = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(_NOT_THEIRS):
            return Source(file, frame.f_lineno)
        if frame.f_back is None:
            return None
        frame = frame.f_back
    return None


def wrong(code: str, message: str, fix: str, source: Source | None = None, where: str = "") -> AuthorError:
    """An AuthorError at `source`, or at the author's current line."""
    source = source or here()
    excerpt = linecache.getline(source.file, source.line).rstrip("\n") if source else ""
    return AuthorError(Problem(code, message, fix, where=where, source=source, excerpt=excerpt[:200]))
