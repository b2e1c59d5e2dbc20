"""The part of a queue's page that is about time: plots of what was, and the what-if box. Called by pages.queues."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from penstock.errors import UserError
from penstock.phrases import quoted
from penstock.server.api.records import change_in
from penstock.server.pages.plots import of_queue
from penstock.server.remembered import Remembered
from penstock.service.amounts import GUESS, figure, short_name
from penstock.service.views.quotas import QueueView
from penstock.service.views.series import QueueSeries, SpanCache, series
from penstock.store.sql import Store

if TYPE_CHECKING:
    from penstock.service.simulation.what_if import WhatIf

TIMES: Final[Mapping[str, float]] = {"1h": 3600.0, "6h": 21600.0, "1d": 86400.0, "7d": 7 * 86400.0, "30d": 30 * 86400.0}
TIME: Final = "1d"
ROWS: Final = 60
"""Lines of the table beside the plots."""
_CACHE: Final = SpanCache()
_TRIED: Final[Remembered[WhatIf]] = Remembered()


def over_time(store: Store, view: QueueView, given: Mapping[str, str]) -> dict[str, Any]:
    """`given`: the query of the page."""
    chosen = given.get("since", TIME)
    chosen = chosen if chosen in TIMES else TIME
    now = time.time()
    found = series(store, view.cluster_queue, now - TIMES[chosen], now, cache=_CACHE)
    tried = _tried(store, view.name, given) if "tasks" in given else None
    return {
        "times": list(TIMES),
        "since": chosen,
        "plots": of_queue(found),
        "heads": [_head(name) for name in found.names],
        "spans": _rows(found),
        "history_command": f"penstock queue history {quoted(view.name)} --since {chosen}",
        "asked": {name: given.get(name, "") for name in ("tasks", "asks", "minutes", "quota", "priority")},
        "tried": tried,
        "over_time": {"series": found.as_data(), "what_if": tried["data"] if tried is not None else None},
    }


def _head(name: str) -> str:
    flavor, _, resource = name.partition("/")
    return short_name(resource) + (f" · {flavor}" if flavor != "default" else "")


def _rows(found: QueueSeries) -> list[dict[str, Any]]:
    """The newest first; several spans are left out where there are more than a table should have."""
    shown = list(reversed(found.spans))
    share = max(1, -(-len(shown) // ROWS))
    form = "%H:%M:%S" if found.step < 60 else "%d %b %H:%M"
    rows = []
    for one in shown[::share]:
        cells = []
        for name in found.names:
            use, resource = one.amounts.get(name), name.partition("/")[2]
            if use is None:
                cells.append("")
                continue
            text = f"{figure(use.mean, resource)} of {figure(use.nominal, resource)}"
            cells.append(text + (f", {figure(use.borrowed, resource)} borrowed" if use.borrowed else ""))
        rows.append({"at": time.strftime(form, time.localtime(one.at)), "cells": cells, "waiting": one.waiting.mean})
    return rows


def _tried(store: Store, name: str, given: Mapping[str, str]) -> dict[str, Any]:
    """What the box says. What is wrong with what was typed is said in it, too."""
    from penstock.service.simulation.what_if import what_if
    from penstock.service.simulation.wording import sentences

    try:
        tasks = _number(given.get("tasks", ""), 0)
        minutes = _number(given.get("minutes", ""), GUESS / 60)
        priority = _number(given.get("priority", ""), 0)
        asks, quota = given.get("asks", "").strip(), given.get("quota", "").strip()
        change = change_in(int(min(tasks, 10**9)), asks, minutes * 60, False, int(priority), quota)
        found = _TRIED.get((store.id, name, *sorted(given.items())), lambda: what_if(store, name, change))
    except UserError as error:
        nothing = {"sentences": (), "waiting": (), "command": ""}
        return {**nothing, "problems": error.problems, "data": {"problems": [one.as_data() for one in error.problems]}}
    words = [f"penstock queue what-if {quoted(name)} --tasks {change.tasks}"]
    words += [f"--asks {quoted(asks)}"] if asks else []
    words += [f"--for {change.seconds:g}s"] if change.seconds != GUESS else []
    words += [f"--priority {change.priority}"] if change.priority else []
    words += [f"--quota {quoted(quota)}"] if quota else []
    return {
        "problems": (),
        "sentences": sentences(found),
        "waiting": found.waiting[:100],
        "command": " ".join(words),
        "data": found.as_data() | {"sentences": sentences(found)},
    }


def _number(text: str, otherwise: float) -> float:
    """What is no number counts as not given: the form says so by itself."""
    try:
        found = float(text.strip() or otherwise)
    except ValueError:
        return otherwise
    return found if abs(found) < 1e9 else otherwise
