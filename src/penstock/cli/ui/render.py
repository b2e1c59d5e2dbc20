"""Lines and tables on the terminal. Called by every other module that prints.

Data goes to stdout, everything else to stderr. A terminal gets aligned columns, colours, and lines cut to its width. A pipe gets tabs
between columns, no colour and nothing cut, so that `cut` and `grep` work.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from penstock.errors import Problem, UserError
from penstock.phrases import clean as clean
from penstock.phrases import duration as duration
from penstock.phrases import listed as listed
from penstock.phrases import plural as plural

ROWS = 200
"""A terminal gets no more rows of a table than this."""

Piece = tuple[str, dict[str, Any]]
Line = list[Piece]
"""Text with its style, so that it can be cut to a width before it is coloured."""
DIM: dict[str, Any] = {"dim": True}


def is_terminal(stream: Any = None) -> bool:
    return bool((stream or sys.stdout).isatty())


def paint(text: str, stream: Any = None, **style: Any) -> str:
    if not is_terminal(stream) or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return text
    return click.style(text, **style)


# -- what commands print ----------------------------------------------------------------------------------------------


_SIGNS = "✓ok ✗x ▶> ▷~ ⏸= ·- ×x …... →-> –- │| ├| └` ─- █# ▒= ░. ▕[ ▏] ≤<="
_ASCII = str.maketrans({word[0]: word[1:] for word in _SIGNS.split()})
_LEADING = re.compile(r"^((?:\x1b\[[\d;?]*[A-Za-z]|\s|[├└│─`|])*)([✓✗▶▷⏸·])((?:\x1b\[[\d;]*m)*) ", re.MULTILINE)


def in_letters_of(text: str, encoding: str) -> str:
    """The text in letters that this encoding has: in an ASCII locale a done step is `ok`, a failed one `x`, and not both `?`."""
    try:
        text.encode(encoding)
        return text
    except UnicodeEncodeError:
        # The sign at the beginning of a line gets two columns, so that names stay aligned.
        aligned = _LEADING.sub(lambda found: f"{found[1]}{found[2].translate(_ASCII):<2}{found[3]} ", text)
        return aligned.translate(_ASCII).encode(encoding, "replace").decode(encoding)


def _fitting(text: str, stream: Any) -> str:
    return in_letters_of(text, getattr(stream, "encoding", None) or "utf-8")


def columns() -> int:
    """Of the terminal; many if there is none."""
    return shutil.get_terminal_size().columns if is_terminal() else 1000


def note(text: str) -> None:
    """A line for people, to stderr."""
    click.echo(_fitting(text, sys.stderr), err=True)


def status(text: str) -> None:
    """A line on stderr that the next one replaces; "" removes it."""
    click.echo(_fitting(f"\r\x1b[K{text}", sys.stderr), err=True, nl=False)


def data(text: str, end: str = "\n", stream: Any = None) -> None:
    """To stdout, or to `stream`."""
    click.echo(_fitting(text + end, stream or sys.stdout), nl=False, file=stream)


def json_out(value: Any) -> None:
    data(json.dumps(value, indent=2, ensure_ascii=False))


def yaml_out(documents: Sequence[Mapping[str, Any]]) -> None:
    import yaml

    data(yaml.safe_dump_all(documents, sort_keys=False, allow_unicode=True), end="")


def result(output: str, value: Mapping[str, Any], text: str) -> None:
    """What a command did: `value` as JSON if `output` says so, or else `text`."""
    if output == "json":
        json_out(value)
    else:
        data(text)


def confirm(question: str) -> None:
    """Ends the command unless the user answers yes."""
    click.confirm(question, abort=True, err=True)


def deliver(text: str, out: Path | None) -> None:
    """To this file, or to stdout. Raises UserError if the file cannot be written."""
    if out is None:
        data(text, end="" if text.endswith("\n") else "\n")
    else:
        write_file(out, (text if text.endswith("\n") else text + "\n").encode())


def write_file(path: Path, content: bytes) -> None:
    """Raises UserError."""
    try:
        path.write_bytes(content)
    except OSError as error:
        message = f"{str(path)!r} cannot be written: {error.strerror}"
        raise UserError(Problem("P504", message, "choose another place")) from None
    note(f"wrote {path}")


# -- tables and lines -------------------------------------------------------------------------------------------------


def table(
    head: Sequence[str], rows: Sequence[Sequence[str]], indent: str = "", colours: Mapping[str, str] | None = None
) -> None:
    """Columns as wide as they need; on a terminal lines are cut to its width. `colours`: cell text -> colour."""
    if not is_terminal():
        for row in [head, *rows]:
            data("\t".join(row))
        return
    shown = rows[:ROWS]
    widths = [max(len(row[i]) for row in [head, *shown]) for i in range(len(head))]
    for number, row in enumerate([head, *shown]):
        line: Line = [(indent, {})]
        for cell, width in zip(row, widths, strict=True):
            style = DIM if number == 0 else {"fg": colours[cell]} if colours and cell in colours else {}
            line += [(cell.ljust(width), style), ("  ", {})]
        print_line(line)
    if len(rows) > ROWS:
        data(indent + paint(f"… {len(rows) - ROWS:,} more; -o json, or a pipe, shows all", dim=True))


def without_empty(
    head: Sequence[str], rows: Sequence[Sequence[str]], optional: Sequence[str]
) -> tuple[list[str], list[list[str]]]:
    """On a terminal, leaves out those of the `optional` columns that are empty in every row."""
    kept = [at for at, name in enumerate(head) if name not in optional or any(row[at] for row in rows)]
    if not is_terminal():
        kept = list(range(len(head)))
    return [head[at] for at in kept], [[row[at] for at in kept] for row in rows]


def print_line(line: Line, stream: Any = None) -> None:
    """On a terminal cut to its width; elsewhere whole."""
    if not is_terminal(stream):
        data(plain(line), stream=stream)
        return
    shown = cut(trimmed(line), shutil.get_terminal_size().columns)
    data(painted(shown, lambda text, **style: paint(text, stream, **style)), stream=stream)


def print_wrapped(text: str, style: Mapping[str, Any] | None = None) -> None:
    """On a terminal in as many lines as it takes; elsewhere in one."""
    for part in textwrap.wrap(text, shutil.get_terminal_size().columns) if is_terminal() else [text]:
        print_line([(part, dict(style or {}))])


def cut(line: Line, width: int) -> Line:
    found: Line = []
    left = width
    for text, style in line:
        if len(text) > left:
            found.append((text[: max(0, left - 1)] + "…" if left else "", style))
            return found
        found.append((text, style))
        left -= len(text)
    return found


def plain(line: Line) -> str:
    return "".join(text for text, _ in line).rstrip()


def painted(line: Line, paint: Callable[..., str]) -> str:
    return "".join(paint(text, **style) if style else text for text, style in line)


def trimmed(line: Line) -> Line:
    """Without blanks at the end."""
    found = list(line)
    while found and not found[-1][0].strip():
        found.pop()
    return [*found[:-1], (found[-1][0].rstrip(), found[-1][1])] if found else []


# -- words ------------------------------------------------------------------------------------------------------------


def when(at: float, now: float | None = None) -> str:
    """On a terminal `3m ago`; in a pipe date and time in full."""
    from datetime import datetime

    if not is_terminal():
        return datetime.fromtimestamp(at).astimezone().isoformat(timespec="seconds")
    age = max(0.0, (time.time() if now is None else now) - at)
    for unit, name in ((86400, "d"), (3600, "h"), (60, "m")):
        if age >= unit:
            return f"{age / unit:.0f}{name} ago"
    return f"{age:.0f}s ago"


def brief(value: Any) -> str:
    """A value in at most 40 characters."""
    text = json.dumps(value, ensure_ascii=False, default=str) if not isinstance(value, str) else value
    return text if len(text) <= 40 else text[:39] + "…"


def near(file: str) -> str:
    """A path relative to the current folder, if it is below it."""
    if not os.path.isabs(file):
        return clean(file)
    relative = os.path.relpath(file)
    return clean(relative if not relative.startswith("..") else file)


def confirmed(question: str) -> bool:
    """A yes. Only a person at a terminal can give it."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    try:
        return click.confirm(question, default=False, err=True)
    except click.Abort:
        return False
