"""Runs with their events, tasks and requests, in the database. `Store.runs`; called by service and engine.

Readers may be called at any time. Writers are transactions of their own, or part of the open one.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from penstock.store.drivers.base import Row
from penstock.store.records import Event, Origin, RunRecord, RunRequest, TaskRow
from penstock.store.session import CHUNK, Session

NO_LIMIT = 1 << 62
"""The two databases spell "no limit" differently."""
SKEW = 3600.0
"""Seconds by which the clocks of those who share a store may differ, so that a list since some time leaves nothing out."""

dump = json.JSONEncoder(separators=(",", ":")).encode


class RunRepository:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._db = session.db

    # -- runs ---------------------------------------------------------------------------------------------------------

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
        """A new run with its first event. No engine owns it yet. `tracked`: a tracking server is to be told of it, (url, experiment).
        `origin`: what it works on or follows from; its root 0 is the run itself."""
        params_text, options_text = dump(params), dump(options)

        def work() -> RunRecord:
            number, count = self._session.next_number("run"), self._session.next_number(f"run {workflow}")
            name = f"{workflow}-{count}"
            self._db.write("put_workflow", (digest, document))
            self._db.write("put_run", (number, name, workflow, digest, now, user, params_text, options_text))
            said: dict[str, Any] = {"workflow": workflow, "digest": digest, "user": user}
            if origin is not None and origin.payload:
                said |= {"payload": origin.payload, "attempt": origin.attempt}
            self._db.write("put_event", (number, 1, now, "run.submitted", "", dump(said)))
            if tracked is not None:
                self._db.write("put_tracking", (number, *tracked))
            if origin is not None:
                self._db.write("put_origin", (number, origin.root or number, *origin[2:]))
            made = self.by_number(number)
            assert made is not None
            return made

        return self._session.transact(work, repeatable=False)

    def document(self, digest: str) -> str:
        """The canonical JSON of a graph. Raises KeyError if it is not in the store."""
        rows = self._db.rows("document", (digest,))
        if not rows:
            raise KeyError(digest)
        return str(rows[0][0])

    def by_id(self, id: str) -> RunRecord | None:
        return next(map(_run, self._db.rows("run", (id,))), None)

    def by_number(self, number: int) -> RunRecord | None:
        return next(map(_run, self._db.rows("run_by_number", (number,))), None)

    def newest(
        self,
        limit: int | None = None,
        state: str | Sequence[str] | None = None,
        workflow: str | None = None,
        since: float | None = None,
    ) -> list[RunRecord]:
        """The newest first."""
        first, top = 0.0 if since is None else since, NO_LIMIT if limit is None else limit
        if state is not None:
            states = [state] if isinstance(state, str) else list(state)
            rows = self._db.within("runs_in", states, workflow, workflow, first, top)
        elif workflow is not None:
            rows = self._db.rows("runs_of", (workflow, first, top))
        else:
            rows = self._db.rows("runs", (first, top))
        return [_run(row) for row in rows]

    def page(
        self,
        limit: int,
        before: int | None = None,
        state: str | None = None,
        workflow: str | None = None,
        user: str | None = None,
        since: float | None = None,
    ) -> list[RunRecord]:
        """The newest first, those with a lower number than `before`."""
        known = {
            name: value
            for name, value in (("workflow", workflow), ("user", user), ("state", state))
            if value is not None
        }
        first = self._db.rows("first_since", (since - SKEW,)) if since is not None else []
        low = int(first[0][0]) if first else 0
        tail = (NO_LIMIT if before is None else before, low, 0.0 if since is None else since, limit)
        rows = self._db.rows(
            "_of_".join(["runs_page", "_".join(known)]) if known else "runs_page", (*known.values(), *tail)
        )
        return [_run(row) for row in rows]

    def flows(self, limit: int, after: str = "", find: str = "") -> list[tuple[str, int, int]]:
        """(workflow, how many runs, number of the newest), by name. `find`: part of the name."""
        return [
            (str(name), int(many), int(last))
            for name, many, last in self._db.rows("flows", (after, f"%{find}%", limit))
        ]

    def many_of(self, workflow: str) -> int:
        return int(self._db.rows("runs_of_flow", (workflow,))[0][0])

    def numbers_in(self, state: str) -> list[int]:
        """Of the runs whose record has this state."""
        return [number for (number,) in self._db.rows("run_numbers_in", (state,))]

    def origin(self, run: int) -> Origin | None:
        """None: it follows from no other run, and has no payload."""
        return next((Origin(*row) for row in self._db.rows("origin", (run,))), None)

    def origins_of_root(self, root: int) -> list[Origin]:
        """The runs that began with this one, in their order, itself included if others followed it as part of a chain."""
        return [Origin(*row) for row in self._db.rows("origins_of_root", (root,))]

    def origins_of_payload(self, payload: str) -> list[Origin]:
        """Its attempts, in their order."""
        return [Origin(*row) for row in self._db.rows("origins_of_payload", (payload,))]

    def take(self, run: int, engine: str, expected: str | None) -> bool:
        """Makes `engine` the owner if `expected` is (None: nobody), or if it is the owner already."""
        if expected is None:
            return self._session.transact(lambda: self._db.write("take_free", (engine, run, engine))) > 0
        return self._session.transact(lambda: self._db.write("take_over", (engine, run, expected, engine))) > 0

    def release(self, run: int, engine: str, state: str) -> bool:
        """Then any engine may take the run. False: this engine did not own it any more."""
        return self._session.transact(lambda: self._db.write("release", (state, run, engine))) > 0

    # -- events and tasks ---------------------------------------------------------------------------------------------

    def events(
        self, run: int, after: int = 0, limit: int | None = None, kinds: Sequence[str] | None = None
    ) -> Iterator[Event]:
        """In order, read in pieces: it also sees what is written meanwhile. `kinds`: only these (a few)."""
        left = NO_LIMIT if limit is None else limit
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

    def tasks(
        self,
        run: int,
        states: Sequence[str] | None = None,
        step: str | None = None,
        limit: int | None = None,
        offset: int = 0,
    ) -> list[TaskRow]:
        """By path, in the order of characters."""
        top = NO_LIMIT if limit is None else limit
        if states is None:
            rows = self._db.rows("tasks", (run, step, step, top, offset))
        else:
            rows = self._db.within("tasks_in", list(states), run, step, step, top, offset)
        return [_task(row) for row in rows]

    def task_page(
        self, run: int, limit: int, after: str = "", step: str | None = None, state: str | None = None
    ) -> list[TaskRow]:
        """By path, in the order of characters, those that come after a path."""
        return [_task(row) for row in self._db.rows("tasks_page", (run, after, step, step, state, state, limit))]

    def task(self, run: int, path: str) -> TaskRow | None:
        return next(map(_task, self._db.rows("task", (run, path))), None)

    def task_counts(self, run: int) -> dict[tuple[str, str], tuple[int, float | None, float | None]]:
        """(step, state) -> (how many, when the first started, when the last ended)."""
        rows = self._db.rows("task_counts", (run,))
        return {(step, state): (count, started, ended) for step, state, count, started, ended in rows}

    def drop_tasks(self, run: int, tasks: Sequence[str]) -> None:
        """Removes the summaries of tasks that will be decided again. Their events stay."""
        if tasks:
            self._session.transact(lambda: self._db.many("drop_tasks", [(run, task) for task in tasks]))

    # -- requests to the owner of a run -------------------------------------------------------------------------------

    def request(self, run: int, verb: str, data: Mapping[str, Any], now: float | None = None) -> int:
        """Puts a request into the inbox of the engine that owns the run, and returns its number."""
        at, text = time.time() if now is None else now, dump(data)

        def work() -> int:
            number = self._session.next_number("request")
            self._db.write("put_request", (number, run, verb, text, at))
            return number

        return self._session.transact(work)

    def requests(self, after: int, runs: Sequence[int]) -> list[RunRequest]:
        """The requests to these runs with a higher number, in order."""
        rows = sorted(self._db.within("requests", list(runs), after))
        return [RunRequest(number, run, verb, json.loads(data)) for number, run, verb, data in rows]


def _run(row: Row) -> RunRecord:
    number, id, workflow, digest, state, created, ended, seq, engine, user, counts, params, options, *rest = row
    outputs, error, invalid = rest
    return RunRecord(
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
        error=error,
        invalid=bool(invalid),
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
