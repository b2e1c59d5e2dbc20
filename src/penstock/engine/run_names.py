"""Runs are numbers in the store and names for people. Called where a record says which run a result, a lease or a lock belongs to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from penstock.engine.active_run import ActiveRun
from penstock.engine.journal import Journal

if TYPE_CHECKING:
    from penstock.store.protocols import RunStore


def origin(run: str, task: str) -> dict[str, Any]:
    """Where a result came from, as it is recorded."""
    return {"run": run, "task": task}


class RunNames:
    def __init__(self, store: RunStore, journal: Journal, active: Mapping[int, ActiveRun]) -> None:
        self._store = store
        self._journal = journal
        self._active = active
        self._known: dict[int, str] = {}

    def __getitem__(self, number: int) -> str:
        run = self._active.get(number)
        if run is not None:
            return run.record.id
        if number not in self._known:
            record = self._journal.read(lambda: self._store.by_number(number))
            self._known[number] = f"run {number}" if record is None else record.id
        return self._known[number]

    def origin(self, number: int, task: str) -> dict[str, Any]:
        return origin(self[number], task)
