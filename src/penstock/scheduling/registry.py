"""Schedulers by name, found by the entry point penstock.schedulers. Called by service.schedule."""

from __future__ import annotations

import importlib
from functools import cache
from importlib.metadata import entry_points
from typing import Final

from penstock.errors import NotFound, Problem, nearest
from penstock.scheduling.model import SchedulerPlugin

GROUP: Final = "penstock.schedulers"
UNKNOWN: Final = "P884"
OURS: Final = {"kueue": "penstock.scheduling.kueue", "yunikorn": "penstock.scheduling.yunikorn"}
"""Found without the metadata of all installed packages, which takes longer to read than most documents."""
NONE: Final = "none"
"""Where a scheduler is chosen: nothing is to be queued."""


@cache
def names() -> tuple[str, ...]:
    return tuple(sorted({*OURS, *(one.name for one in entry_points(group=GROUP))}))


def takes_pods(name: str) -> bool:
    """Does it queue pods by what is written on them? Kueue queues Workloads; no name, or `none`, is no scheduler."""
    return name not in ("", NONE, "kueue")


@cache
def scheduler(name: str) -> SchedulerPlugin:
    """Raises NotFound, P884: there is none, or it is none."""
    if name in OURS:
        ours: SchedulerPlugin = importlib.import_module(OURS[name]).PLUGIN
        return ours
    found = next((one for one in entry_points(group=GROUP) if one.name == name), None)
    if found is None:
        fix = f"there are: {', '.join(names()) or 'none'}.{nearest(name, names())}"
        raise NotFound(Problem(UNKNOWN, f"there is no scheduler {name!r}", fix))
    try:
        plugin = found.load()
    except Exception as error:  # of another package, so anything
        raise _broken(name, found.value, f"cannot be loaded: {type(error).__name__}: {error}") from error
    plugin = plugin() if isinstance(plugin, type) else plugin
    if not isinstance(plugin, SchedulerPlugin):
        raise _broken(name, found.value, "is no scheduler: a verb is missing")
    return plugin


def _broken(name: str, value: str, why: str) -> NotFound:
    fix = "correct the package that brings it: docs/howto/write-a-scheduler.md shows a whole one"
    return NotFound(Problem(UNKNOWN, f"the scheduler {name!r} ({value}) {why}", fix))
