"""A run at a glance, with what it waits for now. Called by `penstock show` and the server."""

from __future__ import annotations

from penstock.service.views.runs import RunView, overview
from penstock.service.views.waiting import is_queued, waits_of
from penstock.service.views.waits import Wait, texts
from penstock.settings import Settings
from penstock.store.records import RunRecord
from penstock.store.sql import Store


def details(store: Store, run: RunRecord, settings: Settings) -> tuple[RunView, list[Wait]]:
    """The waits are those in queues and for locks; the view's state and reasons say them too."""
    view = overview(store, run, settings)
    waits = waits_of(store, run, outline=view.outline) if view.state == "running" else []
    if is_queued(view.run, view.state, {run.number} if waits else set()):
        view.state = "queued"
    view.reasons = {**view.reasons, **{path: text for path, text in texts(waits).items() if path}}
    return view, waits
