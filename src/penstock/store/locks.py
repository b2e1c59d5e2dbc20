"""Locks: names that so many may hold at the same time, over all engines of a store. Called by sql.Store.

Who needs several gets all of them or none. What is free goes to whoever stands first in line: by the priority of the run, then by
its age, then by who asked first. Somebody who waits for one lock does not keep another from those behind: nobody holds a lock while
waiting for a second one that it asked for together with it, so nobody waits for ever in a circle.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from penstock.store.base import Ask
from penstock.store.driver import Driver

Who = tuple[int, str]
"""(run, task)"""
FIRST = 64
"""So many of a line are looked at at first. Few locks are free at once, so the next is nearly always among them."""


def hand_out(
    db: Driver,
    engine: str,
    number: int,
    asks: Sequence[Ask],
    frees: Sequence[tuple[int, str]],
    names: Collection[str] = (),
) -> set[tuple[int, str]]:
    """Those who let go do, those who ask stand in line, and whoever is next gets what is free, at whichever engine. Part of the
    open transaction, in which `number` was taken. `names`: lines to look at although nobody here has changed them. Returns the
    (run, task) at this engine that hold what they asked for."""
    touched = set(names)
    for run, task in frees:
        touched |= {name for name, _ in db.rows("locks_of_task", (run, task))}
        db.write("drop_locks", (run, task, engine))
    rows = [
        (name, ask.run, ask.task, engine, int(ask.held), most, -ask.priority, number * 1_000_000 + at)
        for at, ask in enumerate(asks)
        for name, most in sorted(ask.names.items())
    ]
    if rows:
        db.many("put_lock", rows)
        touched |= {row[0] for row in rows}
    _serve(db, sorted(touched))
    return {(run, task) for run, task in db.rows("locks_of_engine", (engine,))}


def _serve(db: Driver, names: Sequence[str]) -> None:
    """Nobody else can have become able to go on: only in these lines has anything changed."""
    first = FIRST
    while names:
        held = _held(db, names)
        line: dict[Who, tuple[tuple[int, int, int], dict[str, int]]] = {}
        long = {}
        for name in names:
            rows = db.rows("locks_in_line", (name, first))
            for rank, run, number, task, most in rows:
                line.setdefault((run, task), ((rank, run, number), {}))[1][name] = most
            if len(rows) == first:
                long[name] = rows[-1][-1]
        for who in sorted(line, key=lambda who: line[who][0]):
            _give(db, who, line[who][1], held)
        # Behind a whole page of those who wait for something else as well, there may be one who does not.
        names = [name for name, most in long.items() if held[name] < most]
        first *= 8


def _give(db: Driver, who: Who, known: Mapping[str, int], held: dict[str, int]) -> None:
    """All that somebody has asked for, if it is free. `known`: a part of what that is."""
    if any(held[name] >= most for name, most in known.items()):
        return
    asked = {name: int(most) for name, most in db.rows("locks_of_task", who)}
    unknown = [name for name in asked if name not in held]
    if unknown:
        held |= _held(db, unknown)
    if any(held[name] >= most for name, most in asked.items()):
        return
    db.write("take_locks", who)
    for name in asked:
        held[name] += 1


def _held(db: Driver, names: Sequence[str]) -> dict[str, int]:
    return {**dict.fromkeys(names, 0), **{name: int(many) for name, many in db.within("locks_held", names)}}
