"""A thread that takes the rows of one kind from the outbox, and has them done. Made by service.couriers, beside an
engine or a worker.

It shares nothing with the engine but the store, on a connection of its own. Any number of couriers may work on one store: a row belongs to one
of them at a time. If this process ends, what is left is done by the next one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from penstock.errors import PenstockError
from penstock.service import stores
from penstock.settings import Settings
from penstock.store import liveness
from penstock.store.outbox import OutboxEntry
from penstock.store.sql import Store

POLL: Final = 0.25
"""Seconds between two questions whether anything was written."""
CHECK: Final = 5.0
"""Seconds between two looks at the outbox if nothing was: the death of another courier is not recorded."""
MOST: Final = 200
"""Rows that are taken at once."""
LONGEST: Final = 10.0
"""Seconds for which the end of a program waits at most for rows that are due."""


class Delivery(Protocol):
    """Does rows of one kind."""

    kind: str

    def deliver(self, store: Store, entries: Sequence[OutboxEntry]) -> None:
        """Do each, and settle it (store.outbox.settle). Called in the thread of the courier, outside of a transaction. What is not settled is
        tried again when the lease is over."""
        ...


class Courier:
    """`say`: is told of faults, a line each, in its thread."""

    def __init__(
        self,
        settings: Settings,
        delivery: Delivery,
        say: Callable[[str], None] = lambda line: None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.delivery = delivery
        self._settings = settings
        self._say = say
        self._now = now
        self._me = liveness.identity()
        self._news = threading.Event()
        self._closing = threading.Event()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        if self._thread is None:
            name = f"penstock {self.delivery.kind}"
            self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
            self._thread.start()

    def look(self) -> None:
        """There may be something new."""
        self._news.set()

    def finish(self) -> None:
        """Try what is due once more, and end. Returns at once."""
        self._closing.set()
        self._news.set()

    def close(self, longest: float = LONGEST) -> None:
        """Returns when everything that is due has been tried once, or it takes too long. What is to be tried again later is left to others."""
        self.finish()
        if self._thread is not None:
            self._thread.join(longest)
            self.stop()

    def stop(self) -> None:
        """Take nothing more, and let nobody wait."""
        self._stopped.set()
        self._news.set()

    # -- in its thread ------------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        while not self._stopped.is_set():
            try:
                with stores.open_or_create(self._settings) as store:
                    self._follow(store)
                    store.outbox.free(self._me)
                return
            except PenstockError as error:  # the disk is full, the database is away for long
                self._say(f"{self.delivery.kind}: the store does not answer: {error}")
                if self._closing.is_set():
                    return
                self._stopped.wait(CHECK)

    def _follow(self, store: Store) -> None:
        token: object = None
        looked = due = float("-inf")
        while not self._stopped.is_set():
            last = self._closing.is_set()
            new = store.peers.changed()
            if last or new != token or self._news.is_set() or self._now() >= due or time.monotonic() - looked > CHECK:
                token, looked = new, time.monotonic()
                self._news.clear()
                while not self._stopped.is_set() and self.round(store):
                    pass
                due = self._due(store)
            if last:
                return
            self._news.wait(min(POLL, max(0.0, due - self._now())))

    def _due(self, store: Store) -> float:
        """When to look again at the latest; a row that somebody else has taken does not count as due all the time."""
        found = store.outbox.next_due(self.delivery.kind)
        now = self._now()
        return float("inf") if found is None else found if found > now else now + CHECK

    def round(self, store: Store) -> bool:
        """Take what is due, and have it done. False: there was nothing."""
        entries = store.outbox.take(self.delivery.kind, self._me, self._now(), MOST)
        if not entries:
            return False
        try:
            self.delivery.deliver(store, entries)
        except PenstockError:
            raise
        except Exception as error:  # a fault of ours must not end the thread: the rows wait until their lease is over
            self._say(f"{self.delivery.kind}: {type(error).__name__}: {error}")
            return False
        return True
