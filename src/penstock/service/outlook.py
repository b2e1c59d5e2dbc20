"""What the reservations of a plan would meet if they were asked for now: room, a line, or no way ever. Called by `plan`.

Nothing is written and nothing is put in line: each kind of request is held against the queues as they are, once.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from penstock.admission import flavors, preempt
from penstock.admission.explain import fit_of, fits_ever
from penstock.admission.model import Workload
from penstock.admission.queues import Queues
from penstock.engine.book import Book
from penstock.errors import PlanError
from penstock.service import wording
from penstock.service.queueing import (
    FILE,
    Asked,
    asked,
    emptied,
    is_applied,
    machine,
    no_priority,
    no_such,
    read_file,
    rows_of,
    shut_out,
)
from penstock.store.base import Run, Standing
from penstock.store.sql import Store

if TYPE_CHECKING:
    from penstock.plan.make import Plan


@dataclass(frozen=True, slots=True)
class Outlook:
    verdict: str
    """fits now · fits in part · waits · never fits · no queue"""
    queue: str = ""
    """The ClusterQueue."""
    tasks: int = 0
    """Of an elastic reservation: how many tasks of it would start now."""
    of: int = 0
    behind: int = 0
    stopped: tuple[str, ...] = ()
    """Workloads that would be stopped for it."""
    reason: Mapping[str, Any] = field(default_factory=dict)
    """What `Hold.as_data` gives."""
    detail: str = ""

    def text(self) -> str:
        if self.verdict == "no queue":
            return self.detail
        if self.verdict in ("fits now", "fits in part"):
            some = f"{self.tasks:,} of {self.of:,} fit now" if self.verdict == "fits in part" else "fits now"
            return some + (f", stopping {wording.names(self.stopped, 2)}" if self.stopped else "")
        if self.verdict == "never fits" and self.detail:
            return f"never fits: {self.detail}"
        if self.verdict == "never fits":
            return f"never fits: {wording.unfitting(self.reason.get('short', ())) or wording.too_much(self.reason)}"
        line = f" behind {self.behind:,}" if self.behind else ""
        return f"waits{line}: {wording.cause(self.reason)}"

    def as_data(self) -> dict[str, Any]:
        data: dict[str, Any] = {"verdict": self.verdict, "queue": self.queue or None}
        if self.of:
            data |= {"tasks": self.tasks, "of": self.of}
        if self.verdict == "waits":
            data["behind"] = self.behind
        if self.stopped:
            data["stopped"] = list(self.stopped)
        if self.detail:
            data["detail"] = self.detail
        if self.reason:
            data["reason"] = wording.spelled(self.reason)
        return data


def outlook(plan: Plan, store: Store | None, queues: str | Path | None = None) -> dict[str, Outlook]:
    """By reservation. `store`: None where nothing has been run yet. `queues`: a file that a run would apply before; without it,
    penstock.yaml where we are. Raises UserError if the file is wrong."""
    if not plan.reservations:
        return {}
    now = time.time()
    book = Book(cast(Store, _Layered(store, queues)), "", machine())
    book.load(now)
    problems = no_priority(book, plan)
    if problems:
        raise PlanError(problems)
    book.queues.settle(now)
    empty = emptied(book)
    seen: dict[Any, Outlook] = {}
    found = {}
    for one in asked(book, plan):
        if one.shape not in seen:
            seen[one.shape] = _look(book, empty, one, now)
        found[one.name] = seen[one.shape]
    return found


def nowhere() -> Store:
    """A store as a book reads it, where there is none: with penstock.yaml, if it is here, and nobody in line."""
    return cast(Store, _Layered(None, None))


class _Layered:
    """A store as a book reads it, with a file of queues laid over it that nobody has applied."""

    def __init__(self, store: Store | None, queues: str | Path | None) -> None:
        self.store = store
        path = Path(queues) if queues is not None else Path.cwd() / FILE
        self.rows: list[tuple[str, str, str]] = []
        if queues is not None or path.is_file():
            text = read_file(path)
            if store is None or not is_applied(store, path, text):
                self.rows, _ = rows_of(store, (text, str(path)))

    def last_decision(self) -> int:
        return 0 if self.store is None else self.store.last_decision()

    def queue_objects(self, after: int = -1) -> list[tuple[str, str, int, str | None]]:
        found = {} if self.store is None else {(row[0], row[1]): row for row in self.store.queue_objects(after)}
        for kind, name, text in self.rows:
            found[kind, name] = (kind, name, 0, text)
        return list(found.values())

    def workloads(self, after: int | None = None) -> list[Standing]:
        return [] if self.store is None else [one for one in self.store.workloads(after) if one.state != "gated"]

    def run_by_number(self, number: int) -> Run | None:
        return None if self.store is None else self.store.run_by_number(number)


def _look(book: Book, empty: Queues, one: Asked, now: float) -> Outlook:
    queues, workload = book.queues, one.workload
    queue = queues.queue_of(workload)
    if queue not in queues.cluster_queues:
        return Outlook("no queue", detail=no_such(book, one.queue).message)
    shut = shut_out(book, workload)
    if shut:
        return Outlook("never fits", queue, detail=shut)
    never = fits_ever(empty, workload)
    if never:
        short = [one.as_data() for one in never]
        return Outlook("never fits", queue, reason={"why": "never", "cluster_queue": queue, "short": short})
    closed = queues.inactive(queue) or queues.local_queues[f"{workload.namespace}/{workload.queue}"].stop != "None"
    if closed:
        return Outlook("waits", queue, reason=_reason(queues, workload, now))
    behind = _behind(queues, workload, queue, now)
    strict = queues.cluster_queues[queue].strategy == "StrictFIFO"
    if behind and strict:
        return Outlook("waits", queue, behind=behind, reason=_reason(queues, workload, now))
    fit = fit_of(queues, workload, queue)
    if fit.kind == "Fit":
        tasks, of = _part(queues, workload, queue, one.replicas)
        return Outlook(
            "fits now" if tasks == of else "fits in part", queue, tasks if of > 1 else 0, of if of > 1 else 0
        )
    if fit.kind == "Preempt":
        victims = preempt.targets(queues.state, workload, queue, fit, now)
        if victims:
            return Outlook("fits now", queue, stopped=tuple(sorted(target.workload.key for target in victims)))
    return Outlook("waits", queue, behind=behind, reason=_reason(queues, workload, now))


def _behind(queues: Queues, workload: Workload, queue: str, now: float) -> int:
    """How many would stand before it."""
    if not queues.pending(queue):
        return 0
    queues.submit(workload, now)
    line = queues.pending(queue)
    place = next((number for number, other in enumerate(line) if other is workload), len(line))
    queues.remove(workload.key, now)
    return place


def _reason(queues: Queues, workload: Workload, now: float) -> dict[str, Any]:
    queues.submit(workload, now)
    hold = queues.explain(workload.key, now)
    queues.remove(workload.key, now)
    return hold.as_data()


def _part(queues: Queues, workload: Workload, queue: str, replicas: int) -> tuple[int, int]:
    """Of an elastic fan-out: how many tasks fit now, of how many."""
    podset = workload.podsets[0] if len(workload.podsets) == 1 else None
    if podset is None or podset.min_count is None:
        return 1, 1
    of = podset.count // replicas
    low, high = 1, of
    while low < high:
        middle = (low + high + 1) // 2
        if _fits(queues, workload, queue, [middle * replicas]):
            low = middle
        else:
            high = middle - 1
    return low, of


def _fits(queues: Queues, workload: Workload, queue: str, counts: Sequence[int]) -> bool:
    kept, workload.memory = workload.memory, None
    try:
        return flavors.assign(queues.state, workload, queue, counts).kind == "Fit"
    finally:
        workload.memory = kept
