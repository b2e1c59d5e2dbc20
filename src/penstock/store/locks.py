"""Locks: names that so many may hold at the same time, over all engines of a store. `Store.locks`; called by service and engine.

A task that needs several locks gets all of them or none. A free lock goes to the first in the order of the policy (see lock_policies).
A task that waits for one lock does not keep another lock from those behind it: nobody holds a lock while it waits for a second one
that it asked for at the same time, so there is no deadlock.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from penstock.store.lock_policies import LockPolicy, by_priority
from penstock.store.records import LeaseHolder, LockRequest
from penstock.store.session import Session

Who = tuple[int, str]
"""(run, task)"""
FIRST_PAGE = 64
"""Requests for a name that are read at first. Few locks are free at once, so the next is nearly always among them."""
_REQUESTS = 1_000_000
"""More than one call of `lock` ever has."""


class LockRepository:
    def __init__(self, session: Session, policy: LockPolicy = by_priority) -> None:
        self._session = session
        self._db = session.db
        self._policy = policy

    def lock(
        self, engine: str, asks: Sequence[LockRequest], frees: Sequence[Who] = (), names: Sequence[str] = ()
    ) -> set[Who]:
        """Releases the locks of some tasks, asks for those of others, and hands out what is free, to tasks of any engine. `names`:
        also hands out these, although nobody here has changed anything about them. Returns every (run, task) of this engine that
        holds what it asked for, now or before."""
        return self._session.transact(lambda: self._hand_out(engine, asks, frees, names))

    def lock_holders(self, names: Sequence[str]) -> dict[str, list[LeaseHolder]]:
        """Who holds each of these names now."""
        found: dict[str, list[LeaseHolder]] = {name: [] for name in names}
        for name, run, task, engine in self._db.within("lock_holders", list(names)):
            found[name].append(LeaseHolder(name, engine, run, task))
        return found

    def _hand_out(
        self, engine: str, asks: Sequence[LockRequest], frees: Sequence[Who], names: Collection[str]
    ) -> set[Who]:
        db, touched = self._db, set(names)
        first = self._session.next_number("locks") * _REQUESTS  # locks are handed out by one transaction at a time
        for run, task in frees:
            touched |= {name for name, _ in db.rows("locks_of_task", (run, task))}
            db.write("drop_locks", (run, task, engine))
        rows = [
            (name, ask.run, ask.task, engine, int(ask.held), most, self._policy(ask, number), number)
            for number, ask in enumerate(asks, first)
            for name, most in sorted(ask.names.items())
        ]
        if rows:
            db.many("put_lock", rows)
            touched |= {row[0] for row in rows}
        self._serve(sorted(touched))
        return {(run, task) for run, task in db.rows("locks_of_engine", (engine,))}

    def _serve(self, names: Sequence[str]) -> None:
        """Hands out these names. Nothing has changed about any other."""
        page = FIRST_PAGE
        while names:
            held = self._held(names)
            waiting: dict[Who, tuple[tuple[int, int, int], dict[str, int]]] = {}
            long = {}
            for name in names:
                rows = self._db.rows("locks_in_line", (name, page))
                for rank, run, number, task, most in rows:
                    waiting.setdefault((run, task), ((rank, run, number), {}))[1][name] = most
                if len(rows) == page:
                    long[name] = rows[-1][-1]
            for who in sorted(waiting, key=lambda who: waiting[who][0]):
                self._give(who, waiting[who][1], held)
            # Behind a whole page of tasks that also wait for another lock there may be one that does not.
            names = [name for name, most in long.items() if held[name] < most]
            page *= 8

    def _give(self, who: Who, known: Mapping[str, int], held: dict[str, int]) -> None:
        """Gives a task all locks that it asked for, if they are free. `known`: some of them, with how many may hold each."""
        if any(held[name] >= most for name, most in known.items()):
            return
        asked = {name: int(most) for name, most in self._db.rows("locks_of_task", who)}
        unknown = [name for name in asked if name not in held]
        if unknown:
            held |= self._held(unknown)
        if any(held[name] >= most for name, most in asked.items()):
            return
        self._db.write("take_locks", who)
        for name in asked:
            held[name] += 1

    def _held(self, names: Sequence[str]) -> dict[str, int]:
        """How many hold each of these names."""
        return {**dict.fromkeys(names, 0), **{name: int(many) for name, many in self._db.within("locks_held", names)}}
