"""What failed, why, the last that was heard of it, and what to type next. Called at the end of run, resume and retry (act), by
show and by watch.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click

from penstock.cli import render
from penstock.cli.render import DIM, Line
from penstock.engine.live import step_of
from penstock.service.runs import log_text
from penstock.service.views import cause
from penstock.settings import Settings

BLOCKS = 5
"""Failures that are shown at length."""
LAST = 6
"""Lines of a log."""
_PLAIN = re.compile(r"[\w@./+:-]+\Z")

Failure = tuple[str, Mapping[str, Any]]
"""A task's path and what is known: message, exit_code, exception, traceback, log."""


def failure_lines(
    run: str,
    failures: Sequence[Failure],
    settings: Settings,
    *,
    total: int | None = None,
    retry: bool = True,
    stream: Any = None,
) -> None:
    """Print them, to stderr unless told otherwise. `total`: how many failed in all, if `failures` are only the first few."""
    out = stream if stream is not None else sys.stderr
    groups = grouped(failures)
    for members in groups[:BLOCKS]:
        for line in _block(members, settings):
            render.print_line(line, out)
    shown = sum(len(members) for members in groups[:BLOCKS])
    left = max(total or 0, sum(map(len, groups))) - shown
    if left > 0:
        click.echo(f"  … {left:,} more failed", file=out)
    if groups:
        first = groups[0][0][0]
        click.echo(f"  logs   penstock logs {quoted(f'{run}/{first}')}", file=out)
        if len(groups) > 1 or len(groups[0]) > 1 or left > 0:
            click.echo(f"         penstock logs {run} --failed", file=out)
        if retry:
            click.echo(f"  retry  penstock retry {run}", file=out)


def grouped(failures: Iterable[Failure]) -> list[list[Failure]]:
    """Tasks of one step that failed in the same way belong together. A called workflow that failed because of a task in it says
    nothing new."""
    every = list(failures)
    inner = {parent for path, _ in every for parent in _parents(path)}
    found: dict[tuple[Any, ...], list[Failure]] = {}
    for path, data in every:
        if path not in inner:
            same = step_of(path), data.get("exit_code"), data.get("exception"), re.sub(r"\d+", "0", cause(data))
            found.setdefault(same, []).append((path, data))
    return list(found.values())


def _parents(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:length]) for length in range(1, len(parts))]


def _block(members: list[Failure], settings: Settings) -> Iterable[Line]:
    path, data = members[0]
    others = f" and {len(members) - 1:,} more of its kind" if len(members) > 1 else ""
    word = "could not be run" if data.get("state") == "errored" else "failed"
    tries = f" ({data['attempts']} attempts)" if data.get("attempts", 0) > 1 else ""
    yield [(f"✗ {path}", {"fg": "red", "bold": True}), (f"{others} {word}{tries}: {render.clean(cause(data))}", {})]
    place = _frame(str(data.get("traceback") or ""))
    if place:
        yield [("    " + render.clean(place), {})]
    for line in last_lines(settings, data):
        yield [("    │ ", DIM), (render.clean(line), {})]


def last_lines(settings: Settings, data: Mapping[str, Any], last: int = LAST) -> list[str]:
    text = data["log_end"] if "log_end" in data else log_text(settings, data.get("log") or (), last)
    lines = [line.rstrip() for line in str(text).splitlines() if line.strip()]
    return lines[-last:]


def _frame(traceback: str) -> str:
    """`flow.py:12 in parse: rows[n]`, the innermost frame of a traceback."""
    found = re.findall(r'^  File "([^"]+)", line (\d+), in (.+)\n(?:    (.+)\n)?', traceback, re.MULTILINE)
    if not found:
        return ""
    file, line, function, source = found[-1]
    return f"{render.near(file)}:{line} in {function}" + (f": {source.strip()}" if source else "")


def quoted(word: str) -> str:
    """As one would type it: brackets mean something to a shell."""
    return word if _PLAIN.match(word) else "'" + word.replace("'", "'\\''") + "'"
