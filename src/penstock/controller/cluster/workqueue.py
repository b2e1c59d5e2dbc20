"""Which key is handled next: no key twice at once, none lost. Filled by the watches, emptied by the workers of run.Manager.

`Schedule` is the data structure; time is an argument. `WorkQueue` puts a lock and a clock around it. A key that is added while it is handled is handled
again afterwards. Groups (namespaces) take turns, so that one with a thousand keys does not hold up the others; inside a group it is first come, first
served. All that is remembered of a key goes when it was handled without fault.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Schedule(Generic[K]):
    def __init__(
        self, *, first: float = 0.1, longest: float = 60.0, group: Callable[[K], Hashable] | None = None
    ) -> None:
        self._first, self._longest = first, longest
        self._group = group or (lambda key: None)
        self._ready: dict[Hashable, deque[K]] = {}  # groups take turns in the order of the dict
        self._waiting: set[K] = set()  # the keys of _ready
        self._handled: set[K] = set()
        self._dirty: set[K] = set()  # added while they are handled
        self._due: dict[K, float] = {}
        self._timers: list[tuple[float, int, K]] = []  # a heap; entries that _due does not know are void
        self._count = 0
        self._failures: dict[K, int] = {}

    def add(self, key: K) -> None:
        if key in self._handled:
            self._dirty.add(key)
        elif key not in self._waiting:
            self._waiting.add(key)
            self._ready.setdefault(self._group(key), deque()).append(key)

    def add_at(self, key: K, when: float) -> None:
        """To be handled then, unless it is handled before."""
        if key in self._due and self._due[key] <= when:
            return
        self._due[key] = when
        self._count += 1
        heapq.heappush(self._timers, (when, self._count, key))
        if len(self._timers) > 2 * len(self._due) + 64:
            self._timers = [entry for entry in self._timers if self._due.get(entry[2]) == entry[0]]
            heapq.heapify(self._timers)

    def take(self, now: float) -> K | None:
        """The next key to handle. `done` must follow."""
        self._ring(now)
        if not self._ready:
            return None
        group = next(iter(self._ready))
        keys = self._ready.pop(group)
        key = keys.popleft()
        if keys:
            self._ready[group] = keys  # at the end: it is the others' turn
        self._waiting.discard(key)
        self._due.pop(key, None)  # it is handled now; whoever handles it says when to look again
        self._handled.add(key)
        return key

    def done(self, key: K, now: float, *, failed: bool = False, again: float | None = None) -> None:
        """It was handled. After a failure it comes back by itself, later each time, or after `again` if that is sooner."""
        self._handled.discard(key)
        if failed:
            count = self._failures[key] = self._failures.get(key, 0) + 1
            self.add_at(key, now + min(self._longest, self._first * 2.0 ** min(count - 1, 60)))
        else:
            self._failures.pop(key, None)
        if again is not None:
            self.add_at(key, now + max(again, 0.0))
        if key in self._dirty:
            self._dirty.discard(key)
            self.add(key)

    def next_due(self) -> float | None:
        """When the next timer rings."""
        while self._timers and self._due.get(self._timers[0][2]) != self._timers[0][0]:
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def _ring(self, now: float) -> None:
        while (when := self.next_due()) is not None and when <= now:
            key = heapq.heappop(self._timers)[2]
            del self._due[key]
            self.add(key)

    def failures(self, key: K) -> int:
        return self._failures.get(key, 0)

    @property
    def depth(self) -> int:
        """How many wait to be handled now."""
        return len(self._waiting) + len(self._dirty)

    @property
    def remembered(self) -> int:
        """How many entries there are in all: what the memory grows with."""
        return len(self._waiting) + len(self._handled) + len(self._dirty) + len(self._timers) + len(self._failures)

    @property
    def idle(self) -> bool:
        return not self._waiting and not self._handled and not self._dirty


class WorkQueue(Generic[K]):
    """A Schedule for threads."""

    def __init__(self, schedule: Schedule[K], clock: Callable[[], float] = time.monotonic) -> None:
        self._schedule = schedule
        self._clock = clock
        self._changed = threading.Condition()
        self._closed = False

    def add(self, key: K) -> None:
        with self._changed:
            self._schedule.add(key)
            self._changed.notify()

    def add_after(self, key: K, seconds: float) -> None:
        with self._changed:
            self._schedule.add_at(key, self._clock() + seconds)
            self._changed.notify()

    def take(self) -> K | None:
        """Waits for a key. None: the queue is closed."""
        with self._changed:
            while not self._closed:
                now = self._clock()
                key = self._schedule.take(now)
                if key is not None:
                    if self._schedule.depth:
                        self._changed.notify()
                    return key
                due = self._schedule.next_due()
                self._changed.wait(None if due is None else max(0.0, due - now))
            return None

    def done(self, key: K, *, failed: bool = False, again: float | None = None) -> None:
        with self._changed:
            self._schedule.done(key, self._clock(), failed=failed, again=again)
            self._changed.notify()

    def failures(self, key: K) -> int:
        with self._changed:
            return self._schedule.failures(key)

    def depth(self) -> int:
        with self._changed:
            return self._schedule.depth

    def remembered(self) -> int:
        with self._changed:
            return self._schedule.remembered

    def idle(self) -> bool:
        with self._changed:
            return self._schedule.idle

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
