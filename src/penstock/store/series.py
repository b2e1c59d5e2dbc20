"""How queues were used over time, in the database. `Store.series`; read and kept small by the engine's QueueRecorder, read by
service.views.series. What the rows mean, and how long they are kept, is said in queue_use.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Final

from penstock.store.queue_use import FINE, KEPT, QueueUse, joined, parsed
from penstock.store.session import Session

AT_ONCE: Final = 2000
"""Rows that are joined in one transaction, in which nobody else can decide."""


class SeriesRepository:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._db = session.db

    def between(self, queue: str, since: float, until: float) -> tuple[QueueUse | None, list[QueueUse]]:
        """The row before, and those that begin in [since, until)."""
        rows = self._db.rows("queue_use", (queue, int(since), int(until) + 1))
        before = self._db.rows("queue_use_before", (queue, int(since)))
        return next((parsed(*row) for row in before), None), [parsed(*row) for row in rows]

    def at(self, at: int) -> dict[str, QueueUse]:
        """What is recorded of the queues for the span that began then."""
        return {queue: parsed(FINE, at, text) for queue, text in self._db.rows("queue_use_at", (FINE, at))}

    def join(self, now: float) -> bool:
        """Join what has become old enough into wider spans, and remove what is older than all. Part of the open transaction, if there is one.
        True: there is more to do."""
        return self._session.transact(lambda: self._join(now))

    def _join(self, now: float) -> bool:
        more = False
        for (width, kept), (wider, _) in itertools.pairwise(KEPT):
            until = int(now - kept) // wider * wider
            rows = self._db.rows("queue_use_older", (width, until, AT_ONCE))
            if len(rows) == AT_ONCE:  # the last span may not be whole
                more, until = True, rows[-1][1] // wider * wider
            spans: dict[tuple[str, int], list[QueueUse]] = {}
            for queue, at, text in rows:
                if at < until:
                    spans.setdefault((queue, at // wider * wider), []).append(parsed(width, at, text))
            self._put_joined(spans, wider)
        last, kept = KEPT[-1]
        self._db.write("drop_old_queue_use", (last, int(now - kept)))
        return more

    def _put_joined(self, spans: Mapping[tuple[str, int], Iterable[QueueUse]], wider: int) -> None:
        made, gone = [], []
        for (queue, at), rows in spans.items():
            inside = list(rows)
            before = next((parsed(*row) for row in self._db.rows("queue_use_before", (queue, at))), None)
            found = joined(inside, before, at, wider)
            assert found is not None
            made.append((queue, wider, at, found.text()))
            gone += [(queue, row.width, row.at) for row in inside]
        if made:
            self._db.many("drop_queue_use", gone)
            self._db.many("put_queue_use", made)
