"""The other engines of the store: heartbeat, what they write, and what is left of those that died. Called by Engine.

Several engines share one store. Each says every few seconds that it is alive, looks a few times a second whether others have written
something, and cleans up after an engine that is gone. The simulator has no peers.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from penstock.backends.registry import reap
from penstock.engine.journal import Journal
from penstock.engine.timers import TurnTimers
from penstock.store import liveness
from penstock.store.records import EngineRecord

if TYPE_CHECKING:
    from penstock.store.protocols import PeerStore

POLL = 0.2
"""Seconds between looks at what other processes have written."""
BEAT = 5.0
"""Seconds between heartbeats."""


class Neighbours(Protocol):
    """What the engine asks of its peers."""

    token: object
    """Changes with each change of the store that another process made."""

    def start(self, waits: Callable[[], bool], look: Callable[[], None], forgotten: Callable[[], None]) -> None:
        """Begin to look. `waits`: does anything here wait for others? `look`: called in a turn when there may be news.
        `forgotten`: called in a turn when another engine took this one for dead."""
        ...

    def stop(self) -> None: ...

    def dead(self) -> set[str]:
        """Engines that are gone."""
        ...

    def reap(self, engines: Iterable[str]) -> None:
        """End the processes that dead engines left behind, and free what they held."""
        ...

    def reap_certain(self) -> None:
        """The same for all engines of this machine that are surely dead. Called when the engine starts."""
        ...

    def leave(self) -> None:
        """This engine ends."""
        ...


class Peers:
    def __init__(
        self,
        store: PeerStore,
        journal: Journal,
        timers: TurnTimers,
        loop: asyncio.AbstractEventLoop,
        home: Path,
        me: EngineRecord,
        now: Callable[[], float],
    ) -> None:
        self._store = store
        self._journal = journal
        self._timers = timers
        self._loop = loop
        self._home = home
        self._me = me
        self._now = now
        self._watch = liveness.Watch()
        self._handles: dict[str, asyncio.TimerHandle] = {}
        self.token: object = None
        self._waits: Callable[[], bool] = lambda: False
        self._look: Callable[[], None] = lambda: None
        self._forgotten: Callable[[], None] = lambda: None
        store.register(me, now())

    def start(self, waits: Callable[[], bool], look: Callable[[], None], forgotten: Callable[[], None]) -> None:
        self._waits, self._look, self._forgotten = waits, look, forgotten
        self._handles["beat"] = self._loop.call_later(BEAT, self._beat_later)
        self._handles["poll"] = self._loop.call_later(POLL, self.poll)

    def stop(self) -> None:
        for handle in self._handles.values():
            handle.cancel()

    def poll(self) -> None:
        self._handles["poll"] = self._loop.call_later(POLL, self.poll)
        token = self._journal.outside(self._store.changed, otherwise=object())
        if token != self.token or self._waits():
            self.token = token
            self._timers.later(self._look)

    def _beat_later(self) -> None:
        self._handles["beat"] = self._loop.call_later(BEAT, self._beat_later)
        self._timers.later(self.beat)

    def beat(self) -> None:
        if not self._journal.outside(lambda: self._store.beat(self._me.id, self._now()), otherwise=True):
            self._journal.outside(self._register_again, otherwise=None)

    def _register_again(self) -> None:
        """Another engine took this one for dead."""
        self._store.register(self._me, self._now())
        self._forgotten()

    def dead(self) -> set[str]:
        found = set()
        for engine in self._store.engines():
            if engine.id == self._me.id:
                continue
            alive = liveness.alive(engine)
            if alive is False or (alive is None and self._watch.dead(engine.id, engine.beat, time.monotonic())):
                found.add(engine.id)
        return found

    def reap_certain(self) -> None:
        others = [engine for engine in self._store.engines() if engine.id != self._me.id]
        dead = {engine.id for engine in others if liveness.alive(engine) is False}
        if dead:
            self.reap(dead)

    def reap(self, engines: Iterable[str]) -> None:
        dead = set(engines)
        reap(self._home, dead)
        for id in dead:
            self._store.forget(id)

    def leave(self) -> None:
        self._store.forget(self._me.id)


class NoPeers:
    """For an engine that has its store for itself."""

    token: object = None

    def start(self, waits: Callable[[], bool], look: Callable[[], None], forgotten: Callable[[], None]) -> None: ...

    def stop(self) -> None: ...

    def dead(self) -> set[str]:
        return set()

    def reap_certain(self) -> None: ...

    def reap(self, engines: Iterable[str]) -> None: ...

    def leave(self) -> None: ...
