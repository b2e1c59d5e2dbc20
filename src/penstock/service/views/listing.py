"""Runs as a list. Called by `penstock ls`, and by the server, which has it in pages."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any

from penstock.service.run_records import Owners, state_of
from penstock.store.records import ACTIVE, RunRecord
from penstock.store.sql import Store

if TYPE_CHECKING:
    from penstock.backends.base import Orphan

_RECORDED = {"lost": "running", "queued": "running", "starting": "stopped"}
"""State that users see -> the state of the record, where it is another."""


DERIVED = 500
"""Runs that are read at once where the record does not say whether they are in the state that is asked for."""


def runs_in(
    store: Store, states: Collection[str], workflow: str | None, since: float | None, number: int
) -> list[tuple[RunRecord, str]]:
    """At most `number` runs with their states as users see them, the newest first. No `states`: all. `since`: a time."""
    # Whether a running run is lost or queued, and a stopped one starting, is not in its record, so all of these are read.
    recorded = {_RECORDED.get(one, one) for one in states}
    limit = number if recorded.isdisjoint(ACTIVE) else None
    rows = store.runs.newest(limit=limit, state=sorted(recorded) or None, workflow=workflow, since=since)
    owners = Owners(store)
    found = [(run, state_of(store, run, owners)) for run in rows]
    if any(state == "running" for _, state in found):
        from penstock.service.views.waiting import is_queued, queued_runs

        waiting = queued_runs(store)
        found = [(run, "queued" if is_queued(run, state, waiting) else state) for run, state in found]
    return [pair for pair in found if not states or pair[1] in states][:number]


def page_of_runs(
    store: Store,
    limit: int,
    before: int | None = None,
    state: str | None = None,
    workflow: str | None = None,
    user: str | None = None,
    since: float | None = None,
) -> tuple[list[tuple[RunRecord, str]], int | None]:
    """The newest first, with their states as users see them; and where the next page begins, if there is one. `state`: as users see it."""
    from penstock.service.views.waiting import is_queued, queued_runs

    recorded = _RECORDED.get(state, state) if state is not None else None
    derived = recorded in ACTIVE
    found: list[tuple[RunRecord, str]] = []
    waiting: set[int] | None = None
    owners = Owners(store)
    piece = max(limit + 1, DERIVED if derived and state is not None else 0)
    while True:
        rows = store.runs.page(piece, before, recorded, workflow, user, since)
        for run in rows:
            if len(found) == limit:
                return found, found[-1][0].number
            shown = state_of(store, run, owners)
            if shown == "running":
                waiting = queued_runs(store) if waiting is None else waiting
                shown = "queued" if is_queued(run, shown, waiting) else shown
            if state is None or shown == state:
                found.append((run, shown))
        if len(rows) < piece or not (derived and state is not None):
            return found, None
        before = rows[-1].number


def run_data(run: RunRecord, state: str, orphans: Iterable[Orphan] = ()) -> dict[str, Any]:
    """A run as one element of a list."""
    left = {"orphans": [{"pid": one.pid, "task": one.task} for one in orphans]} if state == "lost" else {}
    return {
        "run": run.id,
        "workflow": run.workflow,
        "state": state,
        "user": run.user,
        "created": run.created,
        "ended": run.ended,
        "tasks": run.counts,
        **left,
    }
