"""What failed, why, the last lines of its log, and what to type next. Called by the screens of runs and tasks, and at the end of a run."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from penstock.cli.ui import render
from penstock.cli.ui.render import DIM, Line
from penstock.graph.paths import parents, step_of
from penstock.phrases import quoted
from penstock.service.logs import log_text
from penstock.service.views.reasons import failure_reason
from penstock.settings import Settings

BLOCKS = 5
"""Groups of failures that are shown in detail."""
LAST = 6
"""Lines of a log."""
_NO_RETRY = re.compile("P7(07|19) ")
"""A stored value is missing or damaged. It is the step that made it that has to run again, and retry does not do that."""

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
    """To stderr, or to `stream`. `total`: how many failed in all, if `failures` are only the first."""
    out = stream if stream is not None else sys.stderr
    groups = grouped(failures)
    for members in groups[:BLOCKS]:
        for line in _block(members, settings):
            render.print_line(line, out)
    shown = sum(len(members) for members in groups[:BLOCKS])
    left = max(total or 0, sum(map(len, groups))) - shown
    if left > 0:
        render.data(f"  … {left:,} more failed", stream=out)
    if groups:
        first = groups[0][0][0]
        render.data(f"  logs   penstock logs {quoted(f'{run}/{first}')}", stream=out)
        if len(groups) > 1 or len(groups[0]) > 1 or left > 0:
            render.data(f"         penstock logs {run} --failed", stream=out)
        if retry and not all(_NO_RETRY.match(str(data.get("message"))) for members in groups for _, data in members):
            render.data(f"  retry  penstock retry {run}", stream=out)


def grouped(failures: Iterable[Failure]) -> list[list[Failure]]:
    """Tasks of one step that failed in the same way are one group. A called workflow is left out if a task in it failed."""
    every = list(failures)
    callers = {parent for path, _ in every for parent in parents(path)}
    found: dict[tuple[Any, ...], list[Failure]] = {}
    for path, data in every:
        if path not in callers:
            message = re.sub(r"\d+", "0", failure_reason(data))
            same = step_of(path), data.get("exit_code"), data.get("exception"), message
            found.setdefault(same, []).append((path, data))
    return list(found.values())


def _block(members: list[Failure], settings: Settings) -> Iterable[Line]:
    path, data = members[0]
    others = f" and {len(members) - 1:,} more of its kind" if len(members) > 1 else ""
    word = "could not be run" if data.get("state") == "errored" else "failed"
    tries = f" ({data['attempts']} attempts)" if data.get("attempts", 0) > 1 else ""
    reason = render.clean(failure_reason(data))
    yield [(f"✗ {path}", {"fg": "red", "bold": True}), (f"{others} {word}{tries}: {reason}", {})]
    place = _innermost_frame(str(data.get("traceback") or ""))
    if place:
        yield [("    " + render.clean(place), {})]
    for line in last_lines(settings, data):
        yield [("    │ ", DIM), (render.clean(line), {})]


def last_lines(settings: Settings, data: Mapping[str, Any], last: int = LAST) -> list[str]:
    """Of a task's log, without empty lines."""
    text = data["log_end"] if "log_end" in data else log_text(settings, data.get("log") or (), last)
    lines = [line.rstrip() for line in str(text).splitlines() if line.strip()]
    return lines[-last:]


def _innermost_frame(traceback: str) -> str:
    """`flow.py:12 in parse: rows[n]`"""
    found = re.findall(r'^  File "([^"]+)", line (\d+), in (.+)\n(?:    (.+)\n)?', traceback, re.MULTILINE)
    if not found:
        return ""
    file, line, function, source = found[-1]
    return f"{render.near(file)}:{line} in {function}" + (f": {source.strip()}" if source else "")
