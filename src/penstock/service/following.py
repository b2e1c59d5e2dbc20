"""Following a run that another process executes. Called by watch and `logs -f`.

The store is polled; it is read only if something was written to it.
"""

from __future__ import annotations

import time

from penstock.service.run_records import removed, state_of
from penstock.store.records import FINAL, RunRecord
from penstock.store.sql import Store

POLL = 0.2
"""Seconds between two polls."""
CHECK = 2.0
"""Seconds between two checks whether the engine is alive: its death is not recorded."""


class RunFollower:
    def __init__(self, store: Store, run: RunRecord) -> None:
        self.store = store
        self.run = run
        self.state = state_of(store, run)
        self._token: object = None
        self._checked = time.monotonic()

    @property
    def over(self) -> bool:
        """Will nothing more happen?"""
        return self.state in (*FINAL, "stopped", "lost")

    def news(self) -> bool:
        """Has anything been written since the last call? Raises NotFound if the run was removed."""
        token = self.store.peers.changed()
        late = time.monotonic() - self._checked > CHECK
        if token == self._token and not late:
            return False
        changed = token != self._token
        self._token = token
        self._checked = time.monotonic()
        current = self.store.runs.by_number(self.run.number)
        if current is None:
            raise removed(self.run)
        self.run = current
        self.state = state_of(self.store, current)
        return changed

    def wait(self, timeout: float | None = None) -> bool:
        """Until the run is over, or for `timeout` seconds. Is it over?"""
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            self.news()
            if self.over:
                return True
            left = POLL if until is None else until - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(POLL, left))
