"""Rows of the outbox that are callbacks: rendered, sent, settled. Made by service.couriers; called by a courier, in its thread.

A row stands for one request, or for one for each of its items: then it is replaced by a row for each, in one transaction, and each of these has
retries of its own. Requests are sent by threads, a few at a time to one receiver. What came of them is recorded here, some at a time. If this
process dies between a request and that, the request is sent again, with the same key. So a receiver may hear a thing twice, and never not at all.

A receiver that fails again and again is left alone for a while (backends.breaker). That is known to this process only.
"""

from __future__ import annotations

import queue
import random
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple

from penstock.artifacts.blobs import Blobs
from penstock.backends import breaker
from penstock.backends.breaker import Breaker, BreakerLimits
from penstock.backends.secrets.mask import Masker, needles_of
from penstock.backends.secrets.sources import SecretSources, is_optional, ways
from penstock.errors import NotFound, StoreError, UserError
from penstock.graph.callback import Callback
from penstock.service import stores
from penstock.service.callbacks.answers import FATAL, RETRY, SUCCESS, Verdict, judge, reads_body
from penstock.service.callbacks.backoff import delay
from penstock.service.callbacks.ends import ended_run
from penstock.service.callbacks.entries import KIND, guard_of
from penstock.service.callbacks.render import (
    NO_ITEM,
    CallbackRequest,
    CannotRender,
    EndedRun,
    SealedRequest,
    chosen_items,
    passes,
    request_of,
    sealed,
)
from penstock.service.callbacks.sender import CallbackSender, NotSent, ReceiverOrigin, origin_of
from penstock.service.run_records import workflow_of
from penstock.settings import Settings
from penstock.store.deliveries import Delivered, OutboxRowData
from penstock.store.outbox import DEAD, DONE, LEASE, NEW, OutboxEntry
from penstock.store.records import Disconnected
from penstock.store.sql import Store

THREADS: Final = 16
OF_ONE: Final = 8
"""Requests at the same time to one receiver."""
LONGEST: Final = LEASE - 15.0
"""Seconds of one delivery: then what is left goes back, before its lease is over."""
TOGETHER: Final = 50
"""Results that are recorded at once."""
SOON: Final = 1.0
"""Seconds: who has to wait longer for a receiver goes back to the outbox."""
LIMITS: Final = BreakerLimits()
KNOWN: Final = 10_000
"""Receivers whose trouble is remembered."""


class Job(NamedTuple):
    """A row that is to be sent."""

    entry: OutboxEntry
    callback: Callback
    request: SealedRequest
    masker: Masker

    @property
    def made(self) -> int:
        """Attempts that count: not those before somebody had it delivered once more."""
        return self.entry.attempts + 1 - int(self.entry.data.get("before", 0))


class SentCallback(NamedTuple):
    job: Job
    origin: ReceiverOrigin
    verdict: Verdict
    at: float
    status: int
    seconds: float
    probe: bool


class CallbackDelivery:
    """A Delivery. `now`, `clock`, `draw`, `sender`: for tests. `clock`: by which receivers are spared."""

    kind = KIND

    def __init__(
        self,
        settings: Settings,
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
        draw: Callable[[], float] = random.random,
        sender: CallbackSender | None = None,
        limits: BreakerLimits = LIMITS,
    ) -> None:
        self._settings = settings
        self._now = now
        self.clock = clock
        self._draw = draw
        self._sender = sender or CallbackSender(guard_of(settings))
        self._limits = limits
        self._secrets = SecretSources()
        self._breakers: dict[ReceiverOrigin, Breaker] = {}

    def deliver(self, store: Store, entries: Sequence[OutboxEntry]) -> None:
        jobs = _Prepared(self, store, entries).jobs()
        if jobs:
            self._sender.keep()
            try:
                _Round(self, store, jobs).run()
            finally:
                self._sender.close()

    @cached_property
    def blobs(self) -> Blobs:
        return stores.blobs_of(self._settings)

    # -- secrets ------------------------------------------------------------------------------------------------------

    def seal(self, request: CallbackRequest, beside: str) -> tuple[SealedRequest, Masker]:
        """Raises CannotRender, NotSent: a secret is not given here, but may be later."""
        texts = {}
        for name in sorted(request.names):
            try:
                text = self._secrets.find(name, beside)
            except UserError as error:
                raise NotSent(str(error)) from None
            if text is not None:
                texts[name] = text
            elif not is_optional(name):
                raise NotSent(f"the secret {name} is not given where callbacks are sent: {ways(name)}")
        request = request._replace(headers=_without_gaps(request.headers, texts))
        return sealed(request, texts, self._now()), Masker(needles_of(texts.values()))

    # -- receivers ----------------------------------------------------------------------------------------------------

    def breaker_of(self, origin: ReceiverOrigin) -> Breaker:
        return self._breakers.get(origin) or breaker.closed(self._limits)

    def starting(self, origin: ReceiverOrigin) -> bool:
        """Is this a probe?"""
        state = self.breaker_of(origin)
        while len(self._breakers) >= KNOWN and origin not in self._breakers:
            del self._breakers[next(iter(self._breakers))]
        self._breakers[origin] = breaker.sent(state, self._limits, self.clock())
        return bool(self._limits.after) and state.failures >= self._limits.after

    def heard(self, sent: SentCallback) -> None:
        """An answer that is final is a receiver that works."""
        state = self.breaker_of(sent.origin)
        self._breakers[sent.origin] = (
            breaker.failed(state, self._limits, self.clock(), sent.probe)
            if sent.verdict.then == RETRY
            else breaker.succeeded(state, self._limits)
        )

    # -- what follows -------------------------------------------------------------------------------------------------

    def outcome(self, job: Job, verdict: Verdict, at: float = 0.0, status: int = 0, seconds: float = 0.0) -> Delivered:
        entry, attempts = job.entry, job.entry.attempts + 1
        tried: dict[str, Any] = {"at": at, "status": status, "seconds": round(seconds, 6)}
        if verdict.then == SUCCESS:
            return Delivered(entry, DONE, attempts, **tried)
        error = job.masker.mask(verdict.error)
        wait = None
        if verdict.then == RETRY:
            wait = delay(job.callback.retry, job.made, self._draw(), verdict.after)
            error = error if wait is not None else f"{error}; that was the last of {job.made} attempts"
        if wait is None:
            return Delivered(entry, DEAD, attempts, error, **tried)
        return Delivered(entry, NEW, attempts, error, self._now() + wait, **tried)

    def send(self, job: Job) -> tuple[Verdict, int]:
        """Called in the threads."""
        try:
            whole = any(map(reads_body, job.callback.answers))
            answer = self._sender.send(job.request, float(job.callback.timeout), whole)
            return judge(job.callback.answers, answer, self._now()), answer.status
        except NotSent as error:
            return Verdict(FATAL if error.fatal else RETRY, str(error)), 0
        except Exception as error:  # nobody would see an exception in a thread
            return Verdict(RETRY, f"{type(error).__name__}: {error}"), 0

    def now(self) -> float:
        return self._now()


def _without_gaps(headers: Mapping[str, Any], texts: Mapping[str, str]) -> dict[str, Any]:
    """Without headers whose optional secret is not given."""
    return {name: value for name, value in headers.items() if all(one in texts for one in getattr(value, "names", ()))}


class _Prepared:
    """Rows → what is to be sent. What needs no request is settled here."""

    def __init__(self, delivery: CallbackDelivery, store: Store, entries: Sequence[OutboxEntry]) -> None:
        self._delivery = delivery
        self._store = store
        self._entries = entries
        self._ended: dict[tuple[int, int, str], tuple[Callback, EndedRun, str]] = {}

    def jobs(self) -> list[Job]:
        jobs: list[Job] = []
        settled: list[Delivered] = []
        for entry in self._entries:
            found = self._one(entry)
            if isinstance(found, Job):
                jobs.append(found)
            elif found is not None:
                settled.append(found)
        if settled:
            self._store.deliveries.record(settled)
        return jobs

    def _one(self, entry: OutboxEntry) -> Job | Delivered | None:
        """None: it is settled already."""
        nothing = Masker(())
        callback = None
        try:
            callback, run, beside = self._about(entry)
            item = entry.data.get("item", NO_ITEM) if "place" in entry.data else NO_ITEM
            if callback.items is not None and item is NO_ITEM:
                self._expand(entry, callback, run)
                return None
            if item is NO_ITEM and not passes(callback, run):
                return Delivered(entry, DONE, entry.attempts)
            request, masker = self._delivery.seal(request_of(callback, run, entry.key, item), beside)
            return Job(entry, callback, request, masker)
        except (CannotRender, NotFound) as error:
            return Delivered(entry, DEAD, entry.attempts, str(error))
        except (StoreError, Disconnected):
            raise
        except Exception as error:  # a secret or a blob that is not there now; and no row may hold up the others
            if callback is None:
                return Delivered(entry, DEAD, entry.attempts, f"{type(error).__name__}: {error}")
            unsent = SealedRequest("", "", {}, {}, None)
            job = Job(entry, callback, unsent, nothing)
            said = str(error) if isinstance(error, NotSent | UserError) else f"{type(error).__name__}: {error}"
            return self._delivery.outcome(job, Verdict(RETRY, said), self._delivery.now())

    def _about(self, entry: OutboxEntry) -> tuple[Callback, EndedRun, str]:
        """Raises CannotRender, NotFound, UserError."""
        name = str(entry.data.get("callback", ""))
        known = self._ended.get((entry.run, entry.seq, name))
        if known is None:
            run = self._store.runs.by_number(entry.run)
            if run is None:
                raise CannotRender("its run has been removed")
            workflow = workflow_of(self._store, run)
            callback = next((one for one in workflow.callbacks if one.name == name), None)
            if callback is None:
                raise CannotRender(f"the workflow of {run.id} has no callback {name!r}")
            ended = ended_run(self._store, entry, run, lambda: self._delivery.blobs, callback)
            beside = str((run.options.get("secrets") or {}).get("beside", ""))
            known = self._ended[entry.run, entry.seq, name] = (callback, ended, beside)
        return known

    def _expand(self, entry: OutboxEntry, callback: Callback, run: EndedRun) -> None:
        from penstock.engine.follow import row_key

        said = {**entry.data, "at": run.ended}
        rows = [
            OutboxRowData({**said, "place": place, "item": item}, row_key(entry.key, place))
            for place, item in chosen_items(callback, run)
        ]
        self._store.deliveries.expand(entry, rows, self._delivery.now())


class _Round:
    """What is to be sent now, in threads."""

    def __init__(self, delivery: CallbackDelivery, store: Store, jobs: Iterable[Job]) -> None:
        self._delivery = delivery
        self._store = store
        self._lanes: dict[ReceiverOrigin, deque[Job]] = defaultdict(deque)
        for job in jobs:
            self._lanes[origin_of(job.request.url)].append(job)
        self._flying: dict[ReceiverOrigin, int] = defaultdict(int)
        self._todo: queue.SimpleQueue[tuple[Job, ReceiverOrigin, bool] | None] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[SentCallback] = queue.SimpleQueue()
        self._settled: list[Delivered] = []
        self._threads = 0
        self._until = time.monotonic() + LONGEST

    def run(self) -> None:
        try:
            while self._lanes or any(self._flying.values()):
                wait = self._start()
                if self._lanes or any(self._flying.values()):
                    self._collect(wait)
                if time.monotonic() > self._until:
                    break
            self._give_back()
        finally:
            for _ in range(self._threads):
                self._todo.put(None)

    def _start(self) -> float:
        """Start what may be. Returns in how many seconds more may be."""
        now, wait = self._delivery.clock(), SOON
        for origin in list(self._lanes):
            lane = self._lanes[origin]
            while lane and self._flying[origin] < OF_ONE and sum(self._flying.values()) < THREADS:
                due = breaker.due(self._delivery.breaker_of(origin))
                if due > now + SOON:
                    self._put_off(origin, lane, due - now)
                    break
                if due > now:
                    wait = min(wait, due - now)
                    break
                self._flying[origin] += 1
                self._todo.put((lane.popleft(), origin, self._delivery.starting(origin)))
                self._more_threads()
            if not lane:
                del self._lanes[origin]
        return wait

    def _more_threads(self) -> None:
        if self._threads < min(THREADS, sum(self._flying.values())):
            self._threads += 1
            # A daemon: a receiver that hangs must not hold up the end of the program.
            threading.Thread(target=self._work, daemon=True, name=f"penstock callback {self._threads}").start()

    def _work(self) -> None:
        while (given := self._todo.get()) is not None:
            job, origin, probe = given
            at, began = self._delivery.now(), time.perf_counter()
            verdict, status = self._delivery.send(job)
            self._done.put(SentCallback(job, origin, verdict, at, status, time.perf_counter() - began, probe))

    def _collect(self, wait: float) -> None:
        flying = any(self._flying.values())
        try:
            sent = self._done.get(timeout=max(0.001, wait))
        except queue.Empty:
            self._record()
            return
        while True:
            self._flying[sent.origin] -= 1
            self._delivery.heard(sent)
            self._settled.append(self._delivery.outcome(sent.job, sent.verdict, sent.at, sent.status, sent.seconds))
            try:
                sent = self._done.get_nowait()
            except queue.Empty:
                break
        if len(self._settled) >= TOGETHER or not flying or not self._lanes:
            self._record()

    def _record(self) -> None:
        if self._settled:
            self._store.deliveries.record(self._settled)
            self._settled = []

    def _put_off(self, origin: ReceiverOrigin, lane: deque[Job], wait: float) -> None:
        """The receiver is left alone: what is for it comes again when it may be asked, one after another."""
        state, due = self._delivery.breaker_of(origin), self._delivery.now() + wait
        for place, job in enumerate(lane):
            error = (
                job.entry.error or f"{origin} has failed {state.failures} times in a row and is left alone for a while"
            )
            self._settled.append(Delivered(job.entry, NEW, job.entry.attempts, error, due + place / state.rate))
        lane.clear()

    def _give_back(self) -> None:
        """What there was no time for. Requests that are on their way are forgotten: another courier sends them again."""
        for lane in self._lanes.values():
            self._settled += [
                Delivered(job.entry, NEW, job.entry.attempts, job.entry.error, self._delivery.now()) for job in lane
            ]
        self._record()
