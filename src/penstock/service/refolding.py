"""A run before its first event, for who folds its log only to read it. Called by views.tasks and tracking.teller."""

from __future__ import annotations

import datetime
from typing import Any

from penstock.artifacts.values import load_value
from penstock.engine.active_run import ActiveRun
from penstock.engine.run_state import RunState
from penstock.engine.values import RunValues
from penstock.service import stores
from penstock.service.run_records import blueprint_of, params_of
from penstock.settings import Settings
from penstock.store.records import RunRecord, WriteBatch
from penstock.store.sql import Store


def refolded(store: Store, run: RunRecord, settings: Settings) -> ActiveRun:
    blobs = stores.blobs_of(settings)
    created = datetime.datetime.fromtimestamp(run.created, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def make_state(emit: Any) -> RunState:
        values = RunValues(lambda stored: load_value(stored, blobs, settings.home / "work"))
        return RunState(blueprint_of(store, run), params_of(run), values, emit, run={"id": run.id, "created": created})

    return ActiveRun(run, WriteBatch(), lambda: run.created, make_state, replaying=True)
