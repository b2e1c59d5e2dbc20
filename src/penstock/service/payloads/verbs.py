"""What is asked about payloads that were submitted: list, show, invalidate, drive again. Called by the commands, the server and runners."""

from __future__ import annotations

import fnmatch
import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from penstock import rights
from penstock.errors import NotFound, PlanError, Problem
from penstock.service import work
from penstock.service.access import check_run
from penstock.service.payloads.decide import REUSE
from penstock.service.policy import Actor
from penstock.settings import Settings
from penstock.store.records import EndedRun, PayloadRecord, RunRecord
from penstock.store.sql import Store

AGAIN: Final = ("failed", "cancelled", "invalid")
"""States from which runs can be driven again."""
TOGETHER: Final = 200
"""Runs that are driven again in one transaction."""
_WILD: Final = re.compile(r"[*?\[]")


def find(store: Store, name: str) -> PayloadRecord:
    """By its id, or by the name of a run of it. Raises NotFound."""
    found = store.payloads.find(name)
    if found is None:
        run = store.runs.by_id(name)
        origin = None if run is None else store.runs.origin(run.number)
        found = store.payloads.find(origin.payload) if origin is not None else None
    if found is None:
        raise NotFound(Problem("P515", f"there is no payload {name[:80]!r}", "penstock payload ls shows them"))
    return found


def payload_data(payload: PayloadRecord) -> dict[str, Any]:
    """As all lists have it."""
    return {
        "payload": payload.id,
        "workflow": payload.workflow,
        "label": payload.label,
        "state": payload.state or "removed",
        "run": payload.run_id,
        "attempts": payload.attempts,
        "version": payload.version,
        "user": payload.user,
        "created": payload.created,
        "ended": payload.ended,
        "invalid_after": payload.invalid_after,
        "error": payload.error or "",
    }


def page(
    store: Store,
    limit: int,
    before: int | None = None,
    state: str | None = None,
    workflow: str | None = None,
    since: float | None = None,
    error: str = "",
) -> tuple[list[PayloadRecord], int | None]:
    """The newest first, and where the next page begins. `error`: a pattern, `Timeout*`."""
    begins, pattern = _pattern(error)
    found: list[PayloadRecord] = []
    while len(found) <= limit:
        rows = store.payloads.page(limit + 1, before, state, workflow, since, begins)
        found += [row for row in rows if _fits(row.error or "", pattern)]
        if len(rows) <= limit:
            break
        before = rows[-1].run
    return found[:limit], found[limit - 1].run if len(found) > limit else None


def history(store: Store, payload: PayloadRecord) -> dict[str, Any]:
    """All that is known of it: its attempts with how they ended, and what happened to it besides."""
    attempts = []
    for origin in store.runs.origins_of_payload(payload.id):
        run = store.runs.by_number(origin.run)
        if run is not None:
            attempts.append(
                {
                    "attempt": origin.attempt,
                    "run": run.id,
                    "state": "invalid" if run.invalid else {"stopped": "queued"}.get(run.state, run.state),
                    "created": run.created,
                    "ended": run.ended,
                    "user": run.user,
                    "error": run.error,
                }
            )
    events = [one._asdict() for one in store.payloads.events(payload.id)]
    return {**payload_data(payload), "history": attempts, "events": events}


def invalidate(store: Store, payload: PayloadRecord, by: Actor, after: float | None = 0.0) -> PayloadRecord:
    """What came of it does not count after this time; 0: from now on, None: it counts again. Raises UserError."""
    run = store.runs.by_number(payload.run)
    if run is not None:
        check_run(store, run, by, "invalidate")
    store.payloads.invalidate(payload.id, after, time.time(), by.person)
    return find(store, payload.id)


# -- driving again ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which runs are driven again."""

    state: str = "failed"
    workflow: str | None = None
    since: float = 0.0
    """They ended at this time or later."""
    error: str = ""
    """A pattern, `Timeout*`."""


@dataclass(frozen=True, slots=True)
class Redriven:
    chosen: list[EndedRun]
    started: list[str]
    """The runs that go on now: of a payload a new one, otherwise the run itself."""

    def as_data(self) -> dict[str, Any]:
        return {"chosen": [one.id for one in self.chosen], "started": self.started}


def chosen(store: Store, selection: Selection) -> list[EndedRun]:
    """Oldest first. Of a payload only the newest attempt is among them. Raises PlanError."""
    if selection.state not in AGAIN:
        fix = f"use one of {', '.join(AGAIN)}"
        raise PlanError(Problem("P516", f"runs that are {selection.state!r} cannot be driven again", fix))
    begins, pattern = _pattern(selection.error)
    rows = store.payloads.ended(selection.state, selection.workflow, selection.since, begins)
    return [row for row in rows if _fits(row.error, pattern)]


def redrive(store: Store, settings: Settings, selection: Selection, by: Actor) -> Redriven:
    """Every run that was chosen is tried again by the next free worker: of a payload as its next attempt, which is a new run; a run without one
    goes on where it failed. Whatever somebody else has started meanwhile is left alone. Raises UserError."""
    found = chosen(store, selection)
    for owner in {row.user: row for row in found}.values():
        run = store.runs.by_number(owner.number)
        if run is not None:
            check_run(store, run, by, "drive again")
    driver = _Driver(store, settings, selection, by)
    started: list[str] = []
    for first in range(0, len(found), TOGETHER):
        started += driver.drive(found[first : first + TOGETHER])
    return Redriven(found, started)


class _Driver:
    def __init__(self, store: Store, settings: Settings, selection: Selection, by: Actor) -> None:
        self._store = store
        self._settings = settings
        self._selection = selection
        self._by = by
        self._documents: dict[str, str] = {}

    def drive(self, rows: Sequence[EndedRun]) -> list[str]:
        """In one transaction."""

        def work() -> list[str]:
            return [id for row in rows if (id := self._again(row))]

        return self._store.payloads.together(work)

    def _again(self, row: EndedRun) -> str:
        run = self._store.runs.by_number(row.number)
        if run is None or run.state != {"invalid": "failed"}.get(self._selection.state, self._selection.state):
            return ""
        if not row.payload:
            work.retry(self._store, run, self._by.person)
            return run.id
        known = self._store.payloads.find(row.payload)
        if known is None:
            return ""

        def why(now: PayloadRecord | None) -> str:
            return "redriven" if now is not None and now.run == row.number else REUSE

        def create(_: PayloadRecord | None, attempt: int) -> RunRecord:
            return self._next_attempt(run, attempt)

        of = (known.id, known.workflow, known.label, known.version)
        made = self._store.payloads.submit(*of, why, create, time.time(), self._by.person)[1]
        return "" if made is None else made.id

    def _next_attempt(self, run: RunRecord, attempt: int) -> RunRecord:
        """The same work again: the same workflow, parameters and options."""
        if run.digest not in self._documents:
            self._documents[run.digest] = self._store.runs.document(run.digest)
        origin, told = self._store.runs.origin(run.number), self._store.tracking.of(run.number)
        assert origin is not None
        return self._store.runs.create(
            run.workflow,
            run.digest,
            self._documents[run.digest],
            run.params,
            self._options(run),
            self._by.person,
            time.time(),
            None if told is None else (told.url, told.experiment),
            origin._replace(attempt=attempt),
        )

    def _options(self, run: RunRecord) -> dict[str, Any]:
        """A run that came to a server has a folder of its own there, which goes with it: another one gets another."""
        place = Path(run.options.get("place", ""))
        if place.parent != self._settings.home / "work" or not place.name.startswith("served-"):
            return run.options
        fresh = place.with_name(f"served-{os.urandom(8).hex()}")
        rights.make_folder(fresh)
        return {**run.options, "place": str(fresh)}


def _pattern(error: str) -> tuple[str, str]:
    """(how it begins, the whole pattern if more is to be compared). A text without wildcards is a beginning, too."""
    plain = _WILD.split(error, maxsplit=1)[0]
    return plain, "" if error in (plain, plain + "*") and len(plain) <= 64 else error


def _fits(text: str, pattern: str) -> bool:
    if not pattern:
        return True
    return fnmatch.fnmatchcase(text, pattern) if _WILD.search(pattern) else text.startswith(pattern)
