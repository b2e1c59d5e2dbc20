"""The thread that makes runs when the time of a schedule has come. Started by service.workers, beside its engines.

It sleeps until the next time of any schedule, which is one look at an index, and looks again when something was written to the store. Any number of
them may work on one store: what is to be done follows from the row alone (`policy.due`), and is written in one transaction with the row's next
time, by whoever is first. So a time has one run, whoever dies and when.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final

from penstock.errors import PenstockError, StoreError
from penstock.service import stores, work
from penstock.service.run_records import RunConflict
from penstock.service.schedules.noun import StoredSchedule
from penstock.service.schedules.policy import Due, DueDecision, due
from penstock.service.schedules.timing import told
from penstock.service.schedules.verbs import record
from penstock.settings import Settings
from penstock.store import liveness
from penstock.store.records import FINAL, EngineRecord
from penstock.store.schedules import ScheduleRow, ScheduleRun
from penstock.store.sql import Store

POLL: Final = 0.5
"""Seconds between two questions whether anything was written."""
AGAIN: Final = 30.0
"""Seconds after which a schedule that could not be acted on is tried again, and the store if it does not answer."""
AT_ONCE: Final = 200
"""Schedules that are read at once."""
LAST: Final = 50
"""Runs of a schedule among which those that go on are looked for."""
_NOTE: Final = "clockwork"


class Clockwork:
    """`say`: is told of faults and of what is run, a line each, in its thread. `nudge`: there are new orders. `now`: the time of day."""

    def __init__(
        self,
        settings: Settings,
        say: Callable[[str], None] = lambda line: None,
        nudge: Callable[[], None] = lambda: None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._settings = settings
        self._say = say
        self._nudge = nudge
        self._now = now
        self._later: dict[str, float] = {}
        """Schedules that could not be acted on -> when they are tried again."""
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="penstock clockwork", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()

    def join(self, timeout: float | None = None) -> None:
        if self._thread.ident is not None:
            self._thread.join(timeout)

    # -- in its thread ------------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        while not self._stopped.is_set():
            try:
                with stores.open_or_create(self._settings) as store:
                    me = liveness.identity()
                    store.note(_NOTE, json.dumps(me))
                    self._follow(store)
                    if store.note(_NOTE) == json.dumps(me):
                        store.note(_NOTE, "[]")
            except PenstockError as error:  # the disk is full, the database is away for long
                self._say(f"schedules: the store does not answer: {error}")
                self._stopped.wait(AGAIN)

    def _follow(self, store: Store) -> None:
        token: object = None
        wake = float("-inf")
        while not self._stopped.is_set():
            new = store.peers.changed()
            if new != token or self._now() >= wake:
                token = new
                if self.turn(store):
                    self._nudge()
                found = store.schedules.next_due()
                wake = float("inf") if found is None else found
            left = wake - self._now()
            self._stopped.wait(POLL if left <= 0 else min(POLL, left))

    def turn(self, store: Store) -> int:
        """Acts on all whose time has come. How many runs were made."""
        made, more = 0, True
        while more and not self._stopped.is_set():
            more = False
            now = self._now()
            for row in self._rows(store, now):
                try:
                    done = self._act(store, row, now)
                except StoreError:
                    raise
                except Exception as error:  # of one schedule: the others go on
                    self._later[row.name] = time.monotonic() + AGAIN
                    self._say(f"the schedule {row.name}: {type(error).__name__}: {error}")
                    continue
                made += len(done or ())
                more = more or done is not None
        return made

    def _rows(self, store: Store, now: float) -> Iterator[ScheduleRow]:
        limit = AT_ONCE + len(self._later)
        for row in (*store.schedules.waiting(limit), *store.schedules.due(now, limit)):
            if self._stopped.is_set():
                return
            if self._later.get(row.name, 0.0) <= time.monotonic():
                yield row

    def _act(self, store: Store, row: ScheduleRow, now: float) -> tuple[float, ...] | None:
        """The times that got a run. None: there was nothing to do, or somebody else has done it."""
        found = StoredSchedule.of(row)
        going = _going_on(store, found)
        decision = due(found.timing, found.policy, Due(row.next_at, row.waiting), now, bool(going))
        if decision is None or not store.schedules.change(
            row, _after(found, decision, going), self._runs(store, found, decision, going, now)
        ):
            return None
        for at in decision.fires:
            self._say(f"the schedule {row.name}: a run for {told(at, found.timing.zone)}")
        return decision.fires

    def _runs(
        self, store: Store, found: StoredSchedule, decision: DueDecision, going: list[ScheduleRun], now: float
    ) -> Callable[[], None]:
        """What is written with the row."""

        def write() -> None:
            for one in going if decision.replaces else ():
                before = store.runs.by_number(one.run)
                if before is not None and before.state not in FINAL:
                    with suppress(RunConflict):  # it has ended
                        work.cancel(store, before, f"the schedule {found.row.name}, by the run for its next time")
            for at in decision.fires:
                run = record(store, found, now, at)
                store.schedules.note_run(found.row.name, at, run.number)
                store.orders.put(run.number, "run", {})

        return write


def _going_on(store: Store, found: StoredSchedule) -> list[ScheduleRun]:
    """Its runs that are not over."""
    if found.policy.overlap == "allow":
        return []
    return [one for one in store.schedules.runs_of(found.row.name, LAST) if one.state not in FINAL]


def _after(found: StoredSchedule, decision: DueDecision, going: list[ScheduleRun]) -> ScheduleRow:
    row, zone = found.row, found.timing.zone
    following = decision.after
    over = following.next_at is None and following.waiting is None
    note = row.note
    if decision.note and row.next_at is not None:
        at = told(row.next_at, zone)
        which = going[0].id if going else "the run before it"
        note = f"no run for {at}: " + ("nobody was there" if decision.note == "late" else f"{which} went on")
    return row._replace(
        state="over" if over else "active",
        next_at=following.next_at,
        waiting=following.waiting,
        last_at=max(decision.fires) if decision.fires else row.last_at,
        note=note,
    )


def is_there(store: Store) -> bool:
    """Is there somebody who makes the runs, as far as can be told from here?"""
    found = json.loads(store.note(_NOTE) or "[]")
    return bool(found) and liveness.alive(EngineRecord(*found)) is not False
