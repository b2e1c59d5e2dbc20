"""Removes runs and results that are not needed any more, or not there any more. `Store.maintenance`; called by `penstock gc` and `doctor`."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator

from penstock.store.runs import RunRepository
from penstock.store.session import Session

_BLOB = re.compile(r"sha256:[0-9a-f]{64}")
_STORED = re.compile(r'"digest":"(sha256:[0-9a-f]{64})","size":(\d+)')


class Maintenance:
    def __init__(self, session: Session, runs: RunRepository) -> None:
        self._session = session
        self._db = session.db
        self._runs = runs

    def delete_runs(self, numbers: Iterable[int], before: float) -> tuple[int, int]:
        """Removes runs that no engine owns, then results older than `before` that no run refers to any more.

        Returns how many runs and results it removed. Each run has its own transaction, so that engines do not wait long.
        """
        gone = sum(self._session.transact(lambda number=number: self._delete(number)) for number in numbers)  # type: ignore[misc]
        if gone:
            self._session.transact(lambda: self._db.write("gc_links", ()))
        return gone, self._session.transact(lambda: self._db.write("gc_results", (before,)))

    def _delete(self, number: int) -> int:
        run = self._runs.by_number(number)
        if run is None or not self._db.write("gc_run", (number,)):
            return 0
        for name in (
            "gc_events",
            "gc_tasks",
            "gc_waiters",
            "gc_requests",
            "gc_deliveries",
            "gc_outbox",
            "gc_origin",
            "gc_schedule_runs",
            "gc_answers",
            "gc_payload_waits",
            "gc_payload_events",
            "gc_payload",
            "gc_workloads",
            "gc_locks",
            "gc_tracking",
            "gc_orders",
            "gc_submissions",
        ):
            self._db.write(name, (number,))
        self._db.write("gc_workflow", (run.digest,))
        return 1

    def referenced_blobs(self) -> set[str]:
        """Every `sha256:…` in a record."""
        return {digest for text in self._texts() for digest in _BLOB.findall(text)}

    def recorded_sizes(self) -> dict[str, int]:
        """Every blob that a record names as a value, with its size."""
        return {digest: int(size) for text in self._texts() for digest, size in _STORED.findall(text)}

    def results_with(self, digests: Collection[str]) -> list[str]:
        """The keys of results that name one of these blobs."""
        if not digests:
            return []
        rows = self._session.pages("text_of_results", ("",), "%sha256:%")
        return [row[0] for row in rows if not set(_BLOB.findall(row[-1])).isdisjoint(digests)]

    def forget_results(self, keys: Collection[str]) -> None:
        """Their tasks run again when they are needed next."""
        self._session.transact(lambda: self._db.write_within("drop_results", list(keys)))

    def leases_by_engine(self) -> dict[str, int]:
        return {str(engine): int(many) for engine, many in self._db.rows("leases_by_engine")}

    def _texts(self) -> Iterator[str]:
        for name, start in (
            ("text_of_events", (0, 0)),
            ("text_of_tasks", (0, "")),
            ("text_of_results", ("",)),
            ("text_of_workflows", ("",)),
            ("text_of_outbox", (0,)),
            ("text_of_schedules", ("",)),
        ):
            for row in self._session.pages(name, start, "%sha256:%"):
                yield row[-1]
        for _, *texts in self._session.pages("text_of_runs", (0,)):
            yield from filter(None, texts)

    def vacuum(self) -> None:
        """Returns free space to the disk. Slow; nobody can write meanwhile."""
        self._db.vacuum()
