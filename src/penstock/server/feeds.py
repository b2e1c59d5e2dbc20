"""The log of runs, told on as it grows. Made by app; `api` and pages listen.

One thread asks the store whether anything was written, and reads what is new of each run that somebody listens to, once for all of them.
Who is late, or comes later, reads the log itself: nothing is told twice or left out, because every event has its number.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Final

from penstock.server.threads import StoreThreads
from penstock.service import stores
from penstock.settings import Settings
from penstock.store.records import FINAL, Event
from penstock.store.sql import Store

POLL: Final = 0.05
"""Seconds between two questions whether anything was written."""
KEPT: Final = 2000
"""Events of a run that are kept for those who are late."""
PAGE: Final = 500
QUIET: Final = 15.0
"""Seconds after which a listener is told that there is nothing to tell, so that a connection which is gone is noticed."""


class _Run:
    def __init__(self, seq: int) -> None:
        self.seq = seq
        self.events: deque[Event] = deque(maxlen=KEPT)
        self.over = False
        self.listeners: set[asyncio.Event] = set()


class Feeds:
    def __init__(self, settings: Settings, threads: StoreThreads) -> None:
        self._settings = settings
        self._threads = threads
        self._runs: dict[int, _Run] = {}
        self._anything: set[asyncio.Event] = set()
        self._guard = threading.Lock()
        self._stop = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._watch, name="penstock feeds", daemon=True)
        self.closing = False

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    def hang_up(self) -> None:
        """Those who listen are told that the server ends. May be called by a signal handler."""
        self.closing = True
        if self._loop is not None:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._wake_all)

    def stir(self) -> None:
        """Something outside of the store has changed: whoever listens to anything is told. May be called by any thread."""
        if self._loop is not None:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._wake_some)

    def close(self) -> None:
        self.hang_up()
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _wake_some(self) -> None:
        for one in self._anything:
            one.set()

    def _wake_all(self) -> None:
        for one in (*self._anything, *(listener for run in self._runs.values() for listener in run.listeners)):
            one.set()

    # -- listening ----------------------------------------------------------------------------------------------------

    async def events(self, run: int, after: int) -> AsyncIterator[list[Event]]:
        """The events after a number, as they come. Empty: there is nothing to tell. Ends when the run is over, or the server."""
        mine = asyncio.Event()
        with self._guard:
            feed = self._runs.setdefault(run, _Run(0))
            feed.listeners.add(mine)
        try:
            while not self.closing:
                mine.clear()
                new, over = await self._after(feed, run, after)
                if new:
                    piece = new[:PAGE]
                    after = piece[-1].seq
                    yield piece
                    await asyncio.sleep(0)  # whoever listens may be gone
                elif over:
                    return
                else:
                    await self._wait(mine)
                    yield []
        finally:
            with self._guard:
                feed.listeners.discard(mine)
                if not feed.listeners:
                    self._runs.pop(run, None)

    async def _wait(self, mine: asyncio.Event) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(QUIET):
                await mine.wait()

    async def _after(self, feed: _Run, run: int, after: int) -> tuple[list[Event], bool]:
        """What comes next, and is the run over?"""
        kept = list(feed.events)
        if kept and kept[0].seq <= after + 1:
            return [event for event in kept if event.seq > after], feed.over
        if feed.seq and after >= feed.seq:
            return [], feed.over

        def read(store: Store) -> tuple[list[Event], bool]:
            record = store.runs.by_number(run)
            return list(store.runs.events(run, after, PAGE)), record is None or record.state in FINAL

        return await self._threads.call(read)

    async def anything(self) -> AsyncIterator[bool]:
        """True: something was written since the last time. False: nothing for a while. Ends with the server."""
        mine = asyncio.Event()
        self._anything.add(mine)
        try:
            while not self.closing:
                await self._wait(mine)
                if self.closing:
                    return
                yield mine.is_set()
                mine.clear()
        finally:
            self._anything.discard(mine)

    # -- the thread that looks ----------------------------------------------------------------------------------------

    def _watch(self) -> None:
        while not self._stop.is_set():
            try:
                with stores.open_or_create(self._settings) as store:
                    self._follow(store)
            except Exception:  # the database is away: listeners wait
                self._stop.wait(1.0)

    def _follow(self, store: Store) -> None:
        token: object = None
        while not self._stop.wait(POLL):
            new = store.peers.changed()
            fresh = self._unread()
            if new == token and not fresh:
                continue
            with self._guard:
                wanted = list(self._runs.items())
            found = []
            for number, feed in wanted:
                record = store.runs.by_number(number)
                over = record is None or record.state in FINAL
                start = feed.seq if feed.seq else max(0, (record.seq if record is not None else 0) - KEPT)
                found.append((feed, list(store.runs.events(number, start)), over))
            token = new
            if self._loop is not None:
                with suppress(RuntimeError):  # the loop is closed
                    self._loop.call_soon_threadsafe(self._tell, found)

    def _unread(self) -> bool:
        """Has somebody come for a run that was not followed?"""
        with self._guard:
            return any(not feed.seq and not feed.over for feed in self._runs.values())

    def _tell(self, found: list[tuple[_Run, list[Event], bool]]) -> None:
        for feed, events, over in found:
            new = [event for event in events if event.seq > feed.seq]
            if new:
                feed.events.extend(new)
                feed.seq = new[-1].seq
            changed, feed.over = bool(new) or over != feed.over, over
            for listener in feed.listeners if changed else ():
                listener.set()
        for one in self._anything:
            one.set()
