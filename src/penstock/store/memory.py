"""A store in memory that keeps only what an engine reads again. Used by the simulator: recording in SQLite would take a third of
the time of a simulated task.

It is enough for an engine that is the only writer, and whose tasks have no keys.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from penstock.store.lock_policies import LockPolicy, by_priority
from penstock.store.queue_use import QueueUse
from penstock.store.records import (
    EngineRecord,
    Event,
    KeyClaim,
    KeyWait,
    LeaseHolder,
    LockRequest,
    Origin,
    Result,
    RunRecord,
    RunRequest,
    TaskRow,
    WorkloadRecord,
    WriteBatch,
)

QueueObject = tuple[str, str, str]
"""(kind, name, document as JSON text)"""
Who = tuple[int, str]
"""(run, task)"""


class MemoryStore:
    """`objects`: the queues."""

    def __init__(self, objects: Iterable[QueueObject] = ()) -> None:
        self.runs = MemoryRuns()
        self.results = MemoryResults()
        self.locks = MemoryLocks()
        self.queues = MemoryQueues(objects)
        self.journal = MemoryJournal(self.queues)
        self.series = MemorySeries()
        self.peers = MemoryPeers()
        self.answers = None


class MemoryRuns:
    def __init__(self) -> None:
        self._runs: dict[int, RunRecord] = {}
        self._counts: dict[str, Iterator[int]] = {}

    def create(
        self,
        workflow: str,
        digest: str,
        document: str,
        params: Mapping[str, Any],
        options: Mapping[str, Any],
        user: str,
        now: float,
        tracked: tuple[str, str] | None = None,
        origin: Origin | None = None,
    ) -> RunRecord:
        count = next(self._counts.setdefault(workflow, itertools.count(1)))
        number = len(self._runs) + 1
        run = self._runs[number] = RunRecord(
            number=number,
            id=f"{workflow}-{count}",
            workflow=workflow,
            digest=digest,
            params=dict(params),
            options=dict(options),
            state="running",
            created=now,
            seq=1,
            user=user,
        )
        return run

    def by_number(self, number: int) -> RunRecord | None:
        return self._runs.get(number)

    def take(self, run: int, engine: str, expected: str | None) -> bool:
        self._runs[run].engine = engine
        return True

    def release(self, run: int, engine: str, state: str) -> bool:
        self._runs[run].state = state
        return True

    def events(
        self, run: int, after: int = 0, limit: int | None = None, kinds: Sequence[str] | None = None
    ) -> Iterator[Event]:
        return iter(())

    def tasks(self, run: int) -> list[TaskRow]:
        return []

    def task(self, run: int, path: str) -> TaskRow | None:
        return None

    def task_counts(self, run: int) -> dict[tuple[str, str], tuple[int, float | None, float | None]]:
        return {}

    def drop_tasks(self, run: int, tasks: Sequence[str]) -> None: ...

    def requests(self, after: int, runs: Sequence[int]) -> list[RunRequest]:
        return []


class MemoryResults:
    """Every key is free, and stays so."""

    def claim(
        self, wanted: Sequence[tuple[str, int, str]], engine: str, fresh: bool = False, hold: bool = True
    ) -> dict[str, KeyClaim]:
        return {key: KeyClaim() for key, _, _ in wanted}

    def lookup(self, keys: Sequence[str]) -> dict[str, Result]:
        return {}

    def waiting(self, engine: str) -> list[KeyWait]:
        return []


class MemoryLocks:
    """The same rules as store.locks."""

    def __init__(self, policy: LockPolicy = by_priority) -> None:
        self._policy = policy
        self._waiting: dict[Who, tuple[tuple[int, int, int], LockRequest]] = {}
        """-> its place in the order, and the request."""
        self._holding: dict[Who, LockRequest] = {}
        self._held: dict[str, int] = {}
        """Lock -> how many hold it."""
        self._number = 0

    def lock(
        self, engine: str, asks: Sequence[LockRequest], frees: Sequence[Who] = (), names: Sequence[str] = ()
    ) -> set[Who]:
        for who in frees:
            self._waiting.pop(who, None)
            released = self._holding.pop(who, None)
            for name in released.names if released is not None else ():
                self._held[name] -= 1
        for ask in asks:
            self._number += 1
            place = (self._policy(ask, self._number), ask.run, self._number)
            self._waiting[ask.run, ask.task] = (place, ask)
        for who, (_, ask) in sorted(self._waiting.items(), key=lambda item: item[1][0]):
            if all(self._held.get(name, 0) < limit for name, limit in ask.names.items()):
                del self._waiting[who]
                self._holding[who] = ask
                for name in ask.names:
                    self._held[name] = self._held.get(name, 0) + 1
        return set(self._holding)

    def lock_holders(self, names: Sequence[str]) -> dict[str, list[LeaseHolder]]:
        return {
            name: [LeaseHolder(name, "", *who) for who, ask in self._holding.items() if name in ask.names]
            for name in names
        }


class MemoryQueues:
    """Objects that do not change, and the number of decisions."""

    def __init__(self, objects: Iterable[QueueObject]) -> None:
        self._objects: list[tuple[str, str, int, str | None]] = [(kind, name, 0, text) for kind, name, text in objects]
        self.decisions = 0

    def queue_objects(self, after: int = -1) -> list[tuple[str, str, int, str | None]]:
        return self._objects if after < 0 else []

    def workloads(self, after: int | None = None) -> list[WorkloadRecord]:
        return []

    def last_decision(self) -> int:
        return self.decisions


class MemorySeries:
    """Nothing is recorded."""

    def at(self, at: int) -> dict[str, QueueUse]:
        return {}

    def join(self, now: float) -> bool:
        return False


class MemoryJournal:
    """Writes nothing."""

    alone = True

    def __init__(self, queues: MemoryQueues) -> None:
        self._queues = queues

    def next_decision(self) -> int:
        self._queues.decisions += 1
        return self._queues.decisions

    def be_patient(self, seconds: float) -> None: ...

    def begin(self) -> None: ...

    def flush(self, batch: WriteBatch, engine: str) -> None: ...

    def commit(self) -> None: ...

    def committed(self, run: int, seq: int) -> bool:
        return True

    def reconnect(self, patience: float) -> None: ...


class MemoryPeers:
    """There is one engine."""

    def register(self, engine: EngineRecord, now: float | None = None) -> None: ...

    def beat(self, id: str, now: float | None = None) -> bool:
        return True

    def engines(self) -> list[EngineRecord]:
        return []

    def forget(self, id: str) -> None: ...

    def changed(self) -> object:
        return None
