"""A store that keeps nothing but what an engine asks for again. Used by simulate, where nobody reads what happened from a file.

A record in SQLite would be a third of the time that a simulated task takes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from penstock.store.base import Batch, Event, Found, Run, Standing
from penstock.store.sql import Store

Row = tuple[str, str, str]
"""(kind, name, document as JSON text) of a queue object."""


def scratch(objects: Iterable[Row] = ()) -> Store:
    """`objects`: the queues that it has from the beginning."""
    return cast(Store, _Scratch(objects))


class _Scratch:
    """As much of a Store as an engine needs that nobody else writes beside, and whose tasks have no keys."""

    alone = True

    def __init__(self, objects: Iterable[Row]) -> None:
        self._objects: list[tuple[str, str, int, str | None]] = [(*row[:2], 0, row[2]) for row in objects]
        self._runs: dict[int, Run] = {}
        self._counts: dict[str, Iterator[int]] = {}
        self._decisions = 0

    def create_run(
        self,
        workflow: str,
        digest: str,
        document: str,
        params: Mapping[str, Any],
        options: Mapping[str, Any],
        user: str,
        now: float,
    ) -> Run:
        count = next(self._counts.setdefault(workflow, itertools.count(1)))
        number = len(self._runs) + 1
        run = Run(
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
        self._runs[number] = run
        return run

    def take(self, run: int, engine: str, expected: str | None) -> bool:
        self._runs[run].engine = engine
        return True

    def release(self, run: int, engine: str, state: str) -> bool:
        self._runs[run].state = state
        return True

    def run_by_number(self, number: int) -> Run | None:
        return self._runs.get(number)

    def events(self, run: int, **_: Any) -> Iterator[Event]:
        return iter(())

    def claim(
        self, wanted: Sequence[tuple[str, int, str]], engine: str, fresh: bool = False, hold: bool = True
    ) -> dict[str, Found]:
        return {key: Found() for key, _, _ in wanted}

    # The queues

    def queue_objects(self, after: int = -1) -> list[tuple[str, str, int, str | None]]:
        return self._objects if after < 0 else []

    def workloads(self, after: int | None = None) -> list[Standing]:
        return []

    def next_decision(self) -> int:
        self._decisions += 1
        return self._decisions

    def last_decision(self) -> int:
        return self._decisions

    # What leaves no trace

    def be_patient(self, seconds: float) -> None: ...

    def register(self, engine: Any, now: float | None = None) -> None: ...

    def forget(self, id: str) -> None: ...

    def begin(self) -> None: ...

    def flush(self, batch: Batch, engine: str) -> None: ...

    def commit(self) -> None: ...
