"""A thread that tells the tracking server what the log has and the server has not: of the runs of this process, and of earlier ones on the same
store. Made by hosting, beside the engine; by `penstock resume` for a run that is over.

It shares nothing with the engine but the store, on a connection of its own. If the server is away it tries again, less and less often; what is
not told when the process ends is told by the next one. So a run never waits for it.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from dataclasses import dataclass

from penstock.errors import PenstockError
from penstock.service import stores
from penstock.service.tracking.client import TIMEOUT, MlflowClient, RunUnavailable, TrackingUnavailable
from penstock.service.tracking.target import TrackingTarget
from penstock.service.tracking.teller import RunTeller
from penstock.settings import Settings
from penstock.store import liveness
from penstock.store.records import FINAL, TrackedRun
from penstock.store.sql import Store

SILENCE = 2.0
"""Seconds without a word of the server after which the end of a program does not wait for it."""
LONGEST = 10.0
"""Seconds for which the end of a program waits at most, as long as the server answers."""
_POLL = 0.5
_ALL = 30.0
"""Seconds between two looks at all runs of the store; in between, at those that this process knows."""
_SAVE = 2.0
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0


@dataclass(frozen=True, slots=True)
class TrackingState:
    """How it stands with one run."""

    url: str
    """Of the run, for a browser; of the server as long as it has not got the run."""
    left: int
    """Events that are still to be told."""
    trouble: str
    """Why, if it is known."""


class Sender:
    def __init__(self, settings: Settings, target: TrackingTarget, timeout: float = TIMEOUT) -> None:
        self.target = target
        self._timeout = timeout
        self.trouble = ""
        self._settings = settings
        self._me = liveness.identity()
        self._tellers: dict[int, RunTeller] = {}
        self._broken: set[int] = set()
        """Runs that cannot be told, by a fault of ours or of the log."""
        self._saved = 0.0
        self._heard = 0.0
        self._looked = float("-inf")
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="penstock mlflow", daemon=True)
            self._thread.start()

    def look(self) -> None:
        """There may be a new run."""
        self._looked = float("-inf")
        self._wake.set()

    def close(self, longest: float = LONGEST, silence: float = SILENCE) -> None:
        """Returns when the server has everything, or does not answer, or it takes too long."""
        if self._thread is None:
            return
        began = time.monotonic()
        self._closing.set()
        self.look()
        while self._thread.is_alive() and not self._stopped.is_set():
            self._thread.join(0.02)
            now = time.monotonic()
            if now - began > longest or now - max(began, self._heard) > silence:
                self.stop()

    def stop(self) -> None:
        """Tell no more, and let nobody wait."""
        self._stopped.set()
        self._wake.set()

    def told(self, store: Store, run: int) -> TrackingState | None:
        """None: the server is not to be told of this run, or another one is."""
        found = store.tracking.of(run)
        record = store.runs.by_number(run)
        if found is None or record is None or not self.target.serves(found.url):
            return None
        return TrackingState(page_of(found), max(0, record.seq - found.seq), self.trouble)

    # -- in its thread ------------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        pause = _FIRST_PAUSE
        try:
            with stores.open_or_create(self._settings) as store:
                client: MlflowClient | None = None
                while not self._stopped.is_set():
                    last = self._closing.is_set()
                    try:
                        client = client or MlflowClient(self.target, self._timeout)
                        self._round(store, client)
                        self.trouble, pause = "", _FIRST_PAUSE
                        wait = _POLL
                    except TrackingUnavailable as away:
                        self.trouble, wait = str(away), pause
                        pause = min(2 * pause, _LONGEST_PAUSE)
                    if last:
                        break
                    self._wake.wait(wait)
                    self._wake.clear()
                for run in self._tellers:  # others need not find out that nobody goes on with it here
                    store.tracking.free(run, self._me)
        except PenstockError as error:  # the store is gone: the engine says so
            self.trouble = str(error)

    def _round(self, store: Store, client: MlflowClient) -> None:
        """Everything that there is to tell now. Raises TrackingUnavailable."""
        now = time.monotonic()
        if now - self._looked >= _ALL:
            self._looked = now
            rows = store.tracking.behind()
        else:
            rows = [row for number in list(self._tellers) if (row := _behind(store, number)) is not None]
        away: TrackingUnavailable | None = None
        for row in rows:
            if self._stopped.is_set():
                return
            if row.run in self._broken or not self.target.serves(row.url):
                continue
            if not store.tracking.has(row, self._me):
                self._tellers.pop(row.run, None)  # another process may have told more since
            if store.tracking.take(row, self._me, time.time()):
                try:
                    self._run(store, client, row)
                except TrackingUnavailable as error:
                    away = error
                    if not isinstance(error, RunUnavailable):
                        break
        if away is not None:
            self._looked = float("-inf")
            raise away

    def _run(self, store: Store, client: MlflowClient, row: TrackedRun) -> None:
        seq = row.seq
        teller: RunTeller | None = None
        try:
            teller = self._tellers.get(row.run)
            if teller is None:
                teller = self._tellers[row.run] = RunTeller(client, store, self._settings, row, self.target.largest)
            for event in store.runs.events(row.run, seq):
                if self._stopped.is_set():
                    break
                teller.tell(event)
                seq = event.seq
                self._heard = time.monotonic()
                if self._heard - self._saved > _SAVE and not self._save(store, row.run, teller, seq):
                    return
            record = store.runs.by_number(row.run)
            over = record is None or (record.state in FINAL and seq >= record.seq)
            if over:
                teller.tidy()
            self._save(store, row.run, teller, seq)
            if over:
                del self._tellers[row.run]
                store.tracking.free(row.run, self._me)
        except TrackingUnavailable:
            if teller is not None:
                self._save(store, row.run, teller, seq)
            raise
        except PenstockError:
            raise
        except Exception as error:  # a fault of ours must not end the others, nor the thread
            self._broken.add(row.run)
            self._tellers.pop(row.run, None)
            with suppress(PenstockError):
                store.tracking.free(row.run, self._me)
            self.trouble = f"run {row.run} cannot be told: {type(error).__name__}: {error}"

    def _save(self, store: Store, run: int, teller: RunTeller, seq: int) -> bool:
        self._saved = time.monotonic()
        kept = store.tracking.move(run, self._me, seq, teller.place, time.time())
        if not kept:
            self._tellers.pop(run, None)
        return kept


def _behind(store: Store, run: int) -> TrackedRun | None:
    found, record = store.tracking.of(run), store.runs.by_number(run)
    return found if found is not None and record is not None and found.seq < record.seq else None


def page_of(found: TrackedRun) -> str:
    """Where a browser finds it."""
    experiment, _, run = found.place.partition("/")
    return f"{found.url}/#/experiments/{experiment}/runs/{run}" if run else found.url
