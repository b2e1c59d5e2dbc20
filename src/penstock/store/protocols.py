"""What the engine's parts need of a store, one Protocol for each part. Implemented by the parts of sql.Store and of memory.MemoryStore."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from penstock.store.queue_use import QueueUse
from penstock.store.records import (
    AnswerRow,
    EngineRecord,
    Event,
    KeyClaim,
    KeyWait,
    LeaseHolder,
    LockRequest,
    Result,
    RunRecord,
    RunRequest,
    TaskRow,
    WorkloadRecord,
    WriteBatch,
)


class JournalStore(Protocol):
    """The transactions of an engine."""

    @property
    def alone(self) -> bool: ...

    def be_patient(self, seconds: float) -> None: ...

    def begin(self) -> None: ...

    def flush(self, batch: WriteBatch, engine: str) -> None: ...

    def commit(self) -> None: ...

    def committed(self, run: int, seq: int) -> bool: ...

    def reconnect(self, patience: float) -> None: ...

    def next_decision(self) -> int: ...


class ResultStore(Protocol):
    """Results and leases of keys."""

    def claim(
        self, wanted: Sequence[tuple[str, int, str]], engine: str, fresh: bool = False, hold: bool = True
    ) -> dict[str, KeyClaim]: ...

    def lookup(self, keys: Sequence[str]) -> dict[str, Result]: ...

    def waiting(self, engine: str) -> list[KeyWait]: ...


class LockStore(Protocol):
    """Locks, over all engines."""

    def lock(
        self,
        engine: str,
        asks: Sequence[LockRequest],
        frees: Sequence[tuple[int, str]] = (),
        names: Sequence[str] = (),
    ) -> set[tuple[int, str]]: ...

    def lock_holders(self, names: Sequence[str]) -> dict[str, list[LeaseHolder]]: ...


class QueueStore(Protocol):
    """Queue objects, Workloads, and the number of the last decision."""

    def queue_objects(self, after: int = -1) -> list[tuple[str, str, int, str | None]]: ...

    def workloads(self, after: int | None = None) -> list[WorkloadRecord]: ...

    def last_decision(self) -> int: ...


class SeriesStore(Protocol):
    """How queues were used over time. Written with the batch of an engine."""

    def at(self, at: int) -> dict[str, QueueUse]: ...

    def join(self, now: float) -> bool: ...


class PeerStore(Protocol):
    """The engines that share the store."""

    def register(self, engine: EngineRecord, now: float | None = None) -> None: ...

    def beat(self, id: str, now: float | None = None) -> bool: ...

    def engines(self) -> list[EngineRecord]: ...

    def forget(self, id: str) -> None: ...

    def changed(self) -> object: ...


class AnswerStore(Protocol):
    """Tokens of attempts, and the answers to them."""

    def key(self) -> bytes: ...

    def of(self, run: int, task: str, attempt: int) -> AnswerRow | None: ...

    def expire(self, row: AnswerRow, now: float) -> bool: ...


class RunStore(Protocol):
    """Runs, their events, tasks and requests."""

    def by_number(self, number: int) -> RunRecord | None: ...

    def events(
        self, run: int, after: int = 0, limit: int | None = None, kinds: Sequence[str] | None = None
    ) -> Iterator[Event]: ...

    def tasks(self, run: int) -> list[TaskRow]: ...

    def task(self, run: int, path: str) -> TaskRow | None: ...

    def task_counts(self, run: int) -> dict[tuple[str, str], tuple[int, float | None, float | None]]: ...

    def drop_tasks(self, run: int, tasks: Sequence[str]) -> None: ...

    def requests(self, after: int, runs: Sequence[int]) -> list[RunRequest]: ...

    def release(self, run: int, engine: str, state: str) -> bool: ...


class EngineStore(Protocol):
    """All parts, for the engine that hands them to its own parts."""

    @property
    def journal(self) -> JournalStore: ...

    @property
    def results(self) -> ResultStore: ...

    @property
    def runs(self) -> RunStore: ...

    @property
    def locks(self) -> LockStore: ...

    @property
    def queues(self) -> QueueStore: ...

    @property
    def series(self) -> SeriesStore: ...

    @property
    def peers(self) -> PeerStore: ...

    @property
    def answers(self) -> AnswerStore | None:
        """None: nobody answers, and no step waits for an answer."""
        ...
