"""How the queues are used, recorded as decisions are made. Called by Admitter in the transaction of each decision.

The log says who was admitted, but not what each task gave back, nor what the quota was: so it is written down, for all queues, by whoever
decides. At most once a second, and only what has changed. Where no queues are configured nothing is written.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from penstock.store.queue_use import FINE, QueueUse, Use, merged

if TYPE_CHECKING:
    from penstock.engine.journal import Journal
    from penstock.engine.quota import AdmitterQuota
    from penstock.store.protocols import SeriesStore

PAUSE: Final = 1.0
"""Seconds between two looks."""
JOINED: Final = 3600.0
"""Seconds after which old records are joined again."""


class QueueRecorder:
    def __init__(self, store: SeriesStore, journal: Journal) -> None:
        self._store = store
        self._journal = journal
        self._known: dict[str, tuple[Use, dict[str, Use]]] = {}
        """What was recorded last of each queue, if nobody else has decided since."""
        self._version = 0
        self._looked = -math.inf
        self._joined = -math.inf

    def look(self, quota: AdmitterQuota, now: float, last: bool) -> float | None:
        """Part of the open transaction. `last`: nothing here holds or wants quota any more, so there may be no other look. Returns when to look
        again, if it is too early now."""
        if quota.version != self._version + 1:
            self._known.clear()
        self._version = quota.version
        if not last and self._looked <= now < self._looked + PAUSE:
            return self._looked + PAUSE
        self._looked = now
        at = int(now) // FINE * FINE
        found = quota.queue_use(at)
        changed = {name: use for name, use in found.items() if self._known.get(name) != _state(use)}
        if changed:
            before = self._journal.read(lambda: self._store.at(at))
            for name, use in changed.items():
                self._put(name, use, before.get(name))
        if found and not self._joined <= now < self._joined + JOINED:
            more = self._journal.read(lambda: self._store.join(now))
            self._joined = now - JOINED + 1.0 if more else now
        return None

    def _put(self, name: str, use: QueueUse, before: QueueUse | None) -> None:
        self._known[name] = _state(use)
        row = use if before is None else merged(before, use)
        if row != before:
            self._journal.batch.queue_use[name] = (name, FINE, row.at, row.text())


def _state(use: QueueUse) -> tuple[Use, dict[str, Use]]:
    return use.waiting, dict(use.amounts)
