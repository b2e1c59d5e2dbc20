"""Payloads in the database: which run works on each, and what was said about it. `Store.payloads`; called by service.payloads.

A payload has one row, and its state is that of its newest run: nothing is kept twice, so an engine that ends a run has nothing more to write,
and a late word about an old attempt changes nothing. What decides is the number of the attempt; clocks are for display, and for what people
set by the clock.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from penstock.store.records import INVALID, EndedRun, Event, PayloadRecord, RunRecord
from penstock.store.session import Session

T = TypeVar("T")
INDEXED: Final = 64
"""So much of an error is in the index."""
_NO_LIMIT: Final = 1 << 62
_dump = json.JSONEncoder(separators=(",", ":")).encode
_LAST: Final = chr(0x10FFFF)
"""After every error in the order of characters."""
_RECORDED: Final = {"queued": "stopped", INVALID: "failed"}

Decide = Callable[[PayloadRecord | None], str]
"""Why a new run is due, or nothing: the one there is does."""
Create = Callable[[PayloadRecord | None, int], RunRecord]
"""Records a run: (what is known of the payload, number of the attempt)."""


class PayloadRepository:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._db = session.db

    def find(self, id: str) -> PayloadRecord | None:
        return next((PayloadRecord(*row) for row in self._db.rows("payload", (id,))), None)

    def submit(
        self, id: str, workflow: str, label: str, version: int, decide: Decide, create: Create, now: float, by: str
    ) -> tuple[PayloadRecord, RunRecord | None]:
        """Looks the payload up, decides, and records the run with its order, all in one transaction that nobody else does at the same time.
        The run is None if none was due."""

        def work() -> tuple[PayloadRecord, RunRecord | None]:
            self._session.next_number("payload")  # nobody else looks a payload up until the commit
            known = self.find(id)
            why = decide(known)
            if known is not None and not why:
                return known, None
            attempt = 1 if known is None else known.attempts + 1
            run = create(known, attempt)
            self._db.write("put_payload", (id, workflow, label, version, run.number, attempt, now))
            self._db.write("put_order", (run.number, "run", "{}", now))
            said = {"run": run.id, "attempt": attempt, "version": version, "why": why, "by": by}
            self._note(id, now, "payload.submitted", said)
            made = self.find(id)
            assert made is not None
            return made, run

        return self._session.transact(work)  # done twice, it finds what it has done

    def together(self, work: Callable[[], T]) -> T:
        """Runs `work` in one transaction, in which nobody else submits a payload."""

        def locked() -> T:
            self._session.next_number("payload")
            return work()

        return self._session.transact(locked, repeatable=False)

    def order(self, run: int, now: float) -> None:
        """A run that is not over has an order, so that a worker goes on with it if nobody does: it may have been retried by hand, and interrupted."""

        def work() -> None:
            if not self._db.rows("order_of", (run,)):
                self._db.write("put_order", (run, "run", "{}", now))

        if not self._db.rows("order_of", (run,)):
            self._session.transact(work)

    def invalidate(self, id: str, after: float | None, now: float, by: str) -> bool:
        """What came of it does not count after this time; 0: from now on, None: it counts again. False: there is no such payload."""

        def work() -> bool:
            self._session.next_number("payload")
            if not self._db.write("invalidate_payload", (after, id)):
                return False
            self._note(id, now, "payload.invalidated", {"after": after, "by": by})
            return True

        return self._session.transact(work)

    def events(self, id: str) -> list[Event]:
        """What happened to it outside of its runs, in order."""
        rows = self._db.rows("payload_events", (id,))
        return [Event(seq, at, kind, "", json.loads(data)) for seq, at, kind, data in rows]

    def page(
        self,
        limit: int | None = None,
        before: int | None = None,
        state: str | None = None,
        workflow: str | None = None,
        since: float | None = None,
        error: str = "",
    ) -> list[PayloadRecord]:
        """Those whose newest run has a lower number than `before`, the newest first. `since`: of its end, or of its beginning if it has
        not ended. `error`: how its error begins."""
        low, high = _range(error)
        top, most = _NO_LIMIT if before is None else before, _NO_LIMIT if limit is None else limit
        kept = _RECORDED.get(state or "", state), int(state == INVALID)
        first = 0.0 if since is None else since
        if workflow is not None and state in ("succeeded", "failed", "cancelled", INVALID):
            rows = self._db.rows("payloads_ended", (workflow, *kept, first, low, high, top, most))
        else:
            some = (top, workflow, workflow, kept[0], *kept, first, low, high, most)
            rows = self._db.rows("payloads_page", some)
        return [PayloadRecord(*row) for row in rows]

    def ended(self, state: str, workflow: str | None, since: float, error: str = "") -> list[EndedRun]:
        """Runs that ended in a state, `invalid` among them, at or after a time, oldest first; of a payload only its newest attempt. `error`: how
        its error begins."""
        kept = (_RECORDED.get(state, state), int(state == INVALID), since, *_range(error))
        name, args = ("runs_ended", kept) if workflow is None else ("runs_ended_of", (workflow, *kept))
        return [EndedRun(*row) for row in self._db.rows(name, args)]

    def _note(self, id: str, at: float, kind: str, data: Mapping[str, Any]) -> None:
        self._db.write("put_payload_event", (id, at, kind, _dump(data), id))


def _range(error: str) -> tuple[str, str]:
    """From where to where, in the order of characters, the errors are that begin so. What is beyond the index is left to the caller."""
    low = error[:INDEXED]
    return low, low + _LAST
