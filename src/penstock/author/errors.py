"""Errors that point at a line of the author's Python. Called by the other modules of this package.

The compiler of functions has its own (compiler.refusals): it knows the syntax node. These look at the stack instead.
"""

from __future__ import annotations

import functools
import linecache
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.errors import AuthorError, Problem, Source, loading

_NOT_AUTHORS = (str(Path(__file__).parent.parent), str(Path(functools.__file__).parent), "<frozen")
"""Penstock, and Python's library, through which decorators are called."""


class Broken:
    """In place of a task or workflow whose decorator was refused while its file was loaded. Whoever uses it gets the error."""

    def __init__(self, error: AuthorError) -> None:
        self.error = error

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise self.error


def or_broken(make: Callable[[], Any]) -> Any:
    """What a decorator makes. While a file is loaded: Broken, if it is refused."""
    try:
        return make()
    except AuthorError as error:
        if loading.get():
            return Broken(error)
        raise


def author_line() -> Source | None:
    """The innermost line on the stack that is the author's."""
    frame = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(_NOT_AUTHORS):
            return Source(file, frame.f_lineno)
        if frame.f_back is None:
            return None
        frame = frame.f_back
    return None


def author_error(code: str, message: str, fix: str, source: Source | None = None, where: str = "") -> AuthorError:
    """At `source`, or at the author's current line."""
    source = source or author_line()
    excerpt = linecache.getline(source.file, source.line).rstrip("\n") if source else ""
    return AuthorError(Problem(code, message, fix, where=where, source=source, excerpt=excerpt[:200]))
