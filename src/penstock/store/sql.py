"""The store: runs, their events, tasks and results, in one SQL database. Opened by service and engine, used from one thread.

Readers may be called at any time. The engine writes in transactions of its own: `begin`, `claim` what it wants to start,
`flush` what has happened, `commit`. Whenever one of these raises, the transaction is rolled back. All other writers are
transactions by themselves, or part of the one that is open.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Self, TypeVar

from penstock.store import driver
from penstock.store.base import (
    Ask,
    Batch,
    Disconnected,
    Engine,
    Event,
    Fenced,
    Found,
    Holder,
    Request,
    Result,
    Run,
    Standing,
    TaskRow,
    Waiting,
)
from penstock.store.driver import Driver, Row
from penstock.store.migrate import migrate

T = TypeVar("T")
ALL = 1 << 62
"""A limit that is none: the two databases spell "no limit" differently."""
CHUNK = 1000
"""Rows read at once by what streams. No cursor stays open between chunks: an open one would keep the log from shrinking."""
BLOB = re.compile(r"sha256:[0-9a-f]{64}")

dump = json.JSONEncoder(separators=(",", ":")).encode


def open_store(where: str, busy: float = 60.0) -> Store:
    """The store in a folder or behind a `postgresql://` URL, made if it is not there. `busy`: how long to wait for a lock."""
    db: Driver
    if where.startswith(("postgresql://", "postgres://")):
        from penstock.store.postgres import Postgres

        db = Postgres(where, busy)
    elif "://" in where:
        raise driver.unreachable(where, "only folders and postgresql:// are known")
    else:
        from penstock.store.sqlite import Sqlite

        db = Sqlite(where, busy)
    try:
        migrate(db)
    except BaseException:
        db.close()
        raise
    return Store(db)


class Store:
    def __init__(self, db: Driver) -> None:
        self._db = db
        # What `claim` has written since the last commit. If the connection is lost, it is lost with it, but the caller
        # counts on it: the next `flush` writes it again.
        self._leases: list[tuple[str, str, int, str]] = []
        self._waiters: list[tuple[str, int, str, str]] = []
        self._lost = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def where(self) -> str:
        return self._db.where

    @property
    def in_transaction(self) -> bool:
        return self._db.in_transaction

    @property
    def alone(self) -> bool:
        """Nobody else can write while a transaction is open here."""
        return self._db.alone

    @property
    def id(self) -> str:
        """Of the store itself, the same for everybody who opens it."""
        return str(self._db.rows("meta", ("id",))[0][0])

    def close(self) -> None:
        self._db.close()

    # Runs

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
        """A new run, recorded with its first event, that nobody works on yet."""
        params_text, options_text = dump(params), dump(options)

        def work() -> Run:
            number, count = self._next("run"), self._next(f"run {workflow}")
            name = f"{workflow}-{count}"
            self._db.write("put_workflow", (digest, document))
            self._db.write("put_run", (number, name, workflow, digest, now, user, params_text, options_text))
            data = dump({"workflow": workflow, "digest": digest, "user": user})
            self._db.write("put_event", (number, 1, now, "run.submitted", "", data))
            made = self.run_by_number(number)
            assert made is not None
            return made

        return self._own(work, twice=False)

    def document(self, digest: str) -> str:
        """The canonical JSON of a graph; KeyError if it is not here."""
        rows = self._db.rows("document", (digest,))
        if not rows:
            raise KeyError(digest)
        return str(rows[0][0])

    def take(self, run: int, engine: str, expected: str | None) -> bool:
        """Makes `engine` the owner if `expected` is (None: nobody), or if it is the owner already."""
        if expected is None:
            return self._own(lambda: self._db.write("take_free", (engine, run, engine))) > 0
        return self._own(lambda: self._db.write("take_over", (engine, run, expected, engine))) > 0

    def release(self, run: int, engine: str, state: str) -> bool:
        """Leaves the run to whoever comes. False: it was not this engine's any more."""
        return self._own(lambda: self._db.write("release", (state, run, engine))) > 0

    def run(self, id: str) -> Run | None:
        return next(map(_run, self._db.rows("run", (id,))), None)

    def run_by_number(self, number: int) -> Run | None:
        return next(map(_run, self._db.rows("run_by_number", (number,))), None)

    def runs(
        self,
        limit: int | None = None,
        state: str | Sequence[str] | None = None,
        workflow: str | None = None,
        since: float | None = None,
    ) -> list[Run]:
        """The newest first."""
        first, top = 0.0 if since is None else since, ALL if limit is None else limit
        if state is not None:
            states = [state] if isinstance(state, str) else list(state)
            rows = self._db.within("runs_in", states, workflow, workflow, first, top)
        elif workflow is not None:
            rows = self._db.rows("runs_of", (workflow, first, top))
        else:
            rows = self._db.rows("runs", (first, top))
        return [_run(row) for row in rows]

    # Events and tasks

    def events(
        self, run: int, after: int = 0, limit: int | None = None, kinds: Sequence[str] | None = None
    ) -> Iterator[Event]:
        """In order, read piece by piece: what is written meanwhile is still seen. `kinds`: only these (a handful)."""
        left = ALL if limit is None else limit
        while left > 0:
            if kinds is None:
                rows = self._db.rows("events", (run, after, min(CHUNK, left)))
            else:
                rows = self._db.within("events_of", kinds, run, after, min(CHUNK, left))
            for seq, at, kind, task, data in rows:
                yield Event(seq, at, kind, task, json.loads(data))
            if len(rows) < CHUNK:
                return
            left -= len(rows)
            after = rows[-1][0]

    def event_count(self, run: int) -> int:
        return int(self._db.rows("event_count", (run,))[0][0])

    def tasks(
        self,
        run: int,
        states: Sequence[str] | None = None,
        step: str | None = None,
        limit: int | None = None,
        offset: int = 0,
    ) -> list[TaskRow]:
        """By path, in the order of their characters."""
        top = ALL if limit is None else limit
        if states is None:
            rows = self._db.rows("tasks", (run, step, step, top, offset))
        else:
            rows = self._db.within("tasks_in", list(states), run, step, step, top, offset)
        return [_task(row) for row in rows]

    def task(self, run: int, path: str) -> TaskRow | None:
        return next(map(_task, self._db.rows("task", (run, path))), None)

    def task_counts(self, run: int) -> dict[tuple[str, str], tuple[int, float | None, float | None]]:
        """(step, state) -> (how many, when the first started, when the last ended)."""
        rows = self._db.rows("task_counts", (run,))
        return {(step, state): (count, started, ended) for step, state, count, started, ended in rows}

    def drop_tasks(self, run: int, tasks: Sequence[str]) -> None:
        """Forget the summaries of tasks that will be decided again; their events stay."""
        if tasks:
            self._own(lambda: self._db.many("drop_tasks", [(run, task) for task in tasks]))

    # What the engine writes

    def begin(self) -> None:
        self._db.begin()

    def commit(self) -> None:
        with self._guarded():
            self._db.commit()
        self._forget_claims()

    def rollback(self) -> None:
        self._forget_claims()
        self._db.rollback()

    def flush(self, batch: Batch, engine: str) -> None:
        """Writes a batch into the open transaction. Fenced, and nothing is written, if a run in it is another engine's."""
        db = self._db
        if not db.in_transaction:
            raise AssertionError("flush without begin")
        with self._guarded():
            for number, values in batch.runs.items():
                if not db.write("update_run", (*values, number, engine)):
                    raise Fenced(number)
            for name, rows in (
                ("put_lease", sorted(set(self._leases)) if self._lost else ()),
                ("put_waiter", sorted(set(self._waiters)) if self._lost else ()),
                ("put_event", batch.events),
                ("put_task", batch.tasks.values()),
                ("put_result", {row[0]: row for row in batch.results}.values()),
                ("fail_waiters", batch.failures),
                ("drop_waiter", batch.served),
                ("put_outbox", batch.outbox),
                ("put_workload", batch.workloads.values()),
            ):
                if rows:
                    db.many(name, rows)
            db.write_within("drop_leases", batch.released, engine)
            db.write_within("drop_requests", batch.handled)

    def committed(self, run: int, seq: int) -> bool:
        """Whether a batch that ended with this event is recorded: asked when the answer to `commit` was lost."""
        rows = self._db.rows("run_seq", (run,))
        return bool(rows) and rows[0][0] >= seq

    def be_patient(self, seconds: float) -> None:
        """Wait so long for a database that has gone away, also where nothing is open. Without this, one try is made."""
        self._db.patience = seconds

    def reconnect(self, patience: float) -> None:
        """After Disconnected: tries again and again for `patience` seconds, then StoreError.

        What was claimed in the lost transaction is not lost: the next `flush` writes it again.
        """
        self._lost = True
        self._db.reconnect(patience)

    def changed(self) -> object:
        """Differs from the last time if another connection has written since; may also differ if none has."""
        return self._db.changed()

    # Keys: one computes, the others wait

    def claim(
        self, wanted: Sequence[tuple[str, int, str]], engine: str, fresh: bool = False, hold: bool = True
    ) -> dict[str, Found]:
        """For each (key, run, task): its result, or who is at it (then this task waits), or else a lease for `engine`.

        Part of the open transaction. `fresh`: results that are there do not count. `hold=False`: the caller computes and
        records what it gets before the commit; then no lease is written where nobody else can write until then anyway.
        """
        db = self._db
        if not db.in_transaction:
            raise AssertionError("claim without begin")
        try:
            return self._claim_alone(wanted, engine, fresh, hold) if db.alone else self._claim(wanted, engine, fresh)
        except BaseException as error:
            self._failed(error)
            raise

    def _claim_alone(
        self, wanted: Sequence[tuple[str, int, str]], engine: str, fresh: bool, hold: bool
    ) -> dict[str, Found]:
        """Nobody else can write: what we see stays true."""
        if len(wanted) == 1 and not hold and not fresh:
            rows = self._db.rows("one_key", (wanted[0][0], wanted[0][0]))
            if not rows:
                return {wanted[0][0]: Found()}
            if len(rows) == 1 and rows[0][0] == "":
                from penstock.artifacts.values import loads

                _, outputs, run, task, at = rows[0]
                return {wanted[0][0]: Found(Result(wanted[0][0], loads(outputs), run, task, at))}
        first = {key: (key, engine, run, task) for key, run, task in reversed(wanted)}
        found: dict[str, Found] = {}
        if not fresh:
            found = {key: Found(result) for key, result in self.lookup([*first]).items()}
        missing = [key for key in first if key not in found] if found else [*first]
        if not missing:
            return found
        holders = self.holders(missing)
        for key in missing:
            holder = holders.get(key)
            found[key] = Found() if holder is None or holder.engine == engine else Found(None, holder)
        if hold and len(holders) < len(missing):
            self._db.many("put_lease", [first[key] for key in missing if key not in holders])
        if holders:
            held = [(key, run, task, engine) for key, run, task in wanted if found[key].holder]
            self._db.many("put_waiter", held)
        return found

    def _claim(self, wanted: Sequence[tuple[str, int, str]], engine: str, fresh: bool) -> dict[str, Found]:
        """Others write beside us: the lease comes first, and what counts is what is there after it."""
        db = self._db
        # In the order of keys: two engines that want the same ones must not wait for each other crosswise.
        first: dict[str, tuple[int, str]] = {}
        asked = sorted(set(wanted))
        for key, run, task in asked:
            first.setdefault(key, (run, task))
        found: dict[str, Found] = {}
        if not fresh:
            found = {key: Found(result=result) for key, result in self.lookup(list(first)).items()}
        held: dict[str, Holder] = {}
        missing = [key for key in first if key not in found]
        while missing:
            db.many("put_lease", [(key, engine, *first[key]) for key in missing])
            holders = self.holders(missing)
            if not fresh:
                # Somebody may have finished between our look and our lease.
                late = self.lookup(missing)
                found.update((key, Found(result=result)) for key, result in late.items())
                db.write_within("drop_leases", list(late), engine)
            again = []
            for key in missing:
                if key in found:
                    continue
                holder = holders.get(key)
                if holder is None:
                    again.append(key)  # its holder let go between our attempt and our look
                elif holder.engine == engine:
                    found[key] = Found()
                    self._leases.append((key, engine, *first[key]))
                else:
                    held[key] = holder
                    found[key] = Found(holder=holder)
            missing = again
        if held:
            waiters = [(key, run, task, engine) for key, run, task in asked if key in held]
            db.many("put_waiter", waiters)
            self._waiters += waiters
        return found

    def lookup(self, keys: Sequence[str]) -> dict[str, Result]:
        rows = self._db.within("results", keys)
        if not rows:
            return {}
        # Here, because most commands never see a result, and it takes longer to import than all of the store.
        from penstock.artifacts.values import loads

        return {key: Result(key, loads(outputs), run, task, at) for key, outputs, run, task, at in rows}

    def holders(self, keys: Sequence[str]) -> dict[str, Holder]:
        return {row[0]: Holder(*row) for row in self._db.within("leases", keys)}

    def waiting(self, engine: str) -> list[Waiting]:
        """What those who wait on behalf of this engine have got so far."""
        from penstock.artifacts.values import loads

        found = []
        for key, run, task, failure, holder, h_run, h_task, outputs, r_run, r_task, at in self._db.rows(
            "waiting", (engine,)
        ):
            found.append(
                Waiting(
                    key,
                    run,
                    task,
                    failure=None if failure is None else json.loads(failure),
                    result=None if outputs is None else Result(key, loads(outputs), r_run, r_task, at),
                    holder=None if holder is None else Holder(key, holder, h_run, h_task),
                )
            )
        return found

    # Engines, and what they are asked

    def register(self, engine: Engine, now: float | None = None) -> None:
        at = time.time() if now is None else now
        row = (engine.id, engine.host, engine.pid, engine.born, engine.beat, at)
        self._own(lambda: self._db.write("put_engine", row))

    def beat(self, id: str, now: float | None = None) -> bool:
        """False: somebody thought this engine dead and forgot it."""
        at = time.time() if now is None else now
        return self._own(lambda: self._db.write("beat", (at, id))) > 0

    def engines(self) -> list[Engine]:
        return [Engine(*row) for row in self._db.rows("engines")]

    def forget(self, id: str) -> None:
        """Removes an engine, what it held and what it waited for. Its runs stay its own until somebody takes them over."""

        def work() -> None:
            for name in ("drop_engine", "drop_leases_of", "drop_waiters_of", "drop_locks_of"):
                self._db.write(name, (id,))
            if self._db.rows("workloads_of_engine", (id,))[0][0]:
                self._db.write("end_workloads_of", (self.next_decision(), id))

        self._own(work)

    # Locks

    def lock(
        self, engine: str, asks: Sequence[Ask], frees: Sequence[tuple[int, str]] = (), names: Sequence[str] = ()
    ) -> set[tuple[int, str]]:
        """Let go of the locks of some tasks, ask for those of others, and see who is next. `names`: look at who waits for these,
        too. Returns every (run, task) at this engine that holds what it asked for, now or before."""
        from penstock.store.locks import hand_out

        return self._own(lambda: hand_out(self._db, engine, self._next("locks"), asks, frees, names))

    def lock_holders(self, names: Sequence[str]) -> dict[str, list[Holder]]:
        """Who holds each of these names now."""
        found: dict[str, list[Holder]] = {name: [] for name in names}
        for name, run, task, engine in self._db.within("lock_holders", list(names)):
            found[name].append(Holder(name, engine, run, task))
        return found

    # Queues

    def next_decision(self) -> int:
        """The number of what is decided now about admission. Nobody else decides until the commit."""
        return self._next("admission")

    def last_decision(self) -> int:
        rows = self._db.rows("counter", ("admission",))
        return int(rows[0][0]) if rows else 0

    def queue_objects(self, after: int = -1) -> list[tuple[str, str, int, str | None]]:
        """(kind, name, version, document as JSON text; None: it was deleted)."""
        return [(kind, name, version, text) for kind, name, version, text in self._db.rows("queue_objects", (after,))]

    def put_queue_objects(self, objects: Iterable[tuple[str, str, str | None]]) -> int:
        """(kind, name, document as JSON text, or None to delete it). All at once; returns the number of the decision."""

        def work() -> int:
            version = self.next_decision()
            self._db.many("put_queue_object", [(kind, name, version, text) for kind, name, text in objects])
            return version

        return self._own(work)

    def workloads(self, after: int | None = None) -> list[Standing]:
        """Those that are not over; or all that were written after a decision."""
        rows = self._db.rows("workloads_open") if after is None else self._db.rows("workloads", (after,))
        return [Standing(*row) for row in rows]

    def note(self, name: str, value: str | None = None) -> str:
        """A word that the store keeps for somebody; empty if nobody has left one."""
        if value is not None:
            self._own(lambda: self._db.write("put_meta", (name, value)))
            return value
        rows = self._db.rows("meta", (name,))
        return str(rows[0][0]) if rows else ""

    def ask(self, run: int, verb: str, data: Mapping[str, Any], now: float | None = None) -> int:
        """Puts a request into the inbox of whoever owns the run, and returns its number."""
        at, text = time.time() if now is None else now, dump(data)

        def work() -> int:
            number = self._next("request")
            self._db.write("put_request", (number, run, verb, text, at))
            return number

        return self._own(work)

    def requests(self, after: int, runs: Sequence[int]) -> list[Request]:
        """Those for the given runs with a higher number, in order."""
        rows = sorted(self._db.within("requests", list(runs), after))
        return [Request(number, run, verb, json.loads(data)) for number, run, verb, data in rows]

    # Cleaning up

    def delete_runs(self, numbers: Iterable[int], before: float) -> tuple[int, int]:
        """Removes runs that nobody works on, then results older than `before` that no run refers to any more.

        Returns how many runs and results went. Each run goes by itself, so that engines do not have to wait long.
        """
        gone = sum(self._own(lambda number=number: self._delete(number)) for number in numbers)  # type: ignore[misc]
        return gone, self._own(lambda: self._db.write("gc_results", (before,)))

    def _delete(self, number: int) -> int:
        run = self.run_by_number(number)
        if run is None or not self._db.write("gc_run", (number,)):
            return 0
        for name in ("gc_events", "gc_tasks", "gc_waiters", "gc_requests", "gc_outbox", "gc_workloads", "gc_locks"):
            self._db.write(name, (number,))
        self._db.write("gc_workflow", (run.digest,))
        return 1

    def referenced_blobs(self) -> set[str]:
        """Every `sha256:…` that a record speaks of."""
        found: set[str] = set()
        for name, start in (
            ("text_of_events", (0, 0)),
            ("text_of_tasks", (0, "")),
            ("text_of_results", ("",)),
            ("text_of_workflows", ("",)),
            ("text_of_outbox", (0,)),
        ):
            for row in self._pages(name, start, "%sha256:%"):
                found.update(BLOB.findall(row[-1]))
        for _, *texts in self._pages("text_of_runs", (0,)):
            for text in texts:
                found.update(BLOB.findall(text or ""))
        return found

    def vacuum(self) -> None:
        """Gives free space back to the disk. Slow; nobody can write meanwhile."""
        self._db.vacuum()

    # Inside

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            self._failed(error)
            raise

    def _failed(self, error: BaseException) -> None:
        """Ends the transaction. After a lost connection the caller goes on, and what it has claimed is kept in mind."""
        if not isinstance(error, Disconnected):
            self._forget_claims()
        self._db.rollback()

    def _forget_claims(self) -> None:
        self._leases.clear()
        self._waiters.clear()
        self._lost = False

    def _pages(self, name: str, start: Row, *rest: Any) -> Iterator[Row]:
        """All rows of a query that is ordered by its first columns, as many as `start` has."""
        while rows := self._db.rows(name, (*start, *rest, CHUNK)):
            yield from rows
            start = rows[-1][: len(start)]

    def _next(self, counter: str) -> int:
        self._db.write("count_up", (counter,))
        return int(self._db.rows("counter", (counter,))[0][0])

    def _own(self, work: Callable[[], T], twice: bool = True) -> T:
        """Runs `work` in a transaction of its own, or as part of the one that is open.

        If the database goes away, once more. `twice`: also when the answer to the commit was lost, because doing it a
        second time does no harm.
        """
        db = self._db
        if db.in_transaction:
            return work()
        again = False
        while True:
            done = False
            try:
                db.begin()
                value = work()
                done = True
                db.commit()
                return value
            except Disconnected as error:
                if (again and not db.patience) or (done and not twice):
                    said = "the connection was lost" + ("; look whether it was recorded before you try again" * done)
                    raise driver.unreachable(db.where, said) from error
                db.reconnect(db.patience)
                again = True
            except BaseException:
                db.rollback()
                raise


def _run(row: Row) -> Run:
    number, id, workflow, digest, state, created, ended, seq, engine, user, counts, params, options, outputs = row
    return Run(
        number=number,
        id=id,
        workflow=workflow,
        digest=digest,
        params=json.loads(params),
        options=json.loads(options),
        state=state,
        created=created,
        ended=ended,
        seq=seq,
        engine=engine,
        counts=json.loads(counts),
        outputs=None if outputs is None else json.loads(outputs),
        user=user,
    )


def _task(row: Row) -> TaskRow:
    task, step, state, attempt, key, started, ended, info = row
    return TaskRow(
        task=task,
        step=step,
        state=state,
        attempt=attempt,
        key=key,
        started=started,
        ended=ended,
        info=json.loads(info),
    )
