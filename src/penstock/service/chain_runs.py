"""Goes on with a chain in this process: executes what its links start, unless somebody else does, until nothing follows any more. Called by the
commands run, resume and retry, and by LocalRunner.

Couriers beside the engine decide about the links; here only the runs are taken that they have recorded. If this process ends, what is left
stays ordered, for a worker or `penstock resume`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Final

from penstock.service import runs, stores
from penstock.service.couriers import Couriers
from penstock.service.hosting import Host
from penstock.service.run_records import RunConflict, owner_alive
from penstock.service.submission import LINK
from penstock.settings import Settings
from penstock.store import outbox
from penstock.store.records import FINAL, RunRecord
from penstock.store.sql import Store

POLL: Final = 0.05
"""Seconds between two looks at what has been recorded."""


def left(store: Store, run: RunRecord) -> bool:
    """Is there anything to do in the chain after a run that is over?"""
    found = [run.number, *after(store, run.number)]
    return any(_is_open(store, number) for number in found) or any(_may_begin(store, number) for number in found[1:])


def after(store: Store, number: int) -> list[int]:
    """The runs that followed from this one, in their order."""
    origin = store.runs.origin(number)
    known = {number}
    for one in store.runs.origins_of_root(number if origin is None else origin.root):
        if one.parent in known:
            known.add(one.run)
    return sorted(known - {number})


def _is_open(store: Store, number: int) -> bool:
    """Has it ended, and nobody has decided yet what follows?"""
    return any(row.kind == LINK and row.state == outbox.NEW for row in store.outbox.of_run(number))


def _may_begin(store: Store, number: int) -> bool:
    run = store.runs.by_number(number)
    return run is not None and run.state not in FINAL and owner_alive(store, run) is False


class ChainFollower:
    """`first`: the run after which the chain is followed. It is over, or executed by `host`."""

    def __init__(self, host: Host, settings: Settings, first: int) -> None:
        self._host = host
        self._settings = settings
        self._first = first
        self._mine: dict[int, runs.HostedRun] = {}
        self._closed: set[int] = set()
        """Runs that are over, and after which everything is decided."""

    def sessions(self, stopped: Callable[[], bool]) -> Iterator[runs.HostedRun]:
        """Each run as soon as it is executed here, until the chain has ended or `stopped`."""
        if self._host.beside is None:
            self._host.beside = Couriers(self._settings)
            self._host.beside.start()
        self._host.beside.look()
        with stores.open_or_create(self._settings) as store:
            while not stopped():
                known = [self._first, *after(store, self._first)]
                begun = [session for number in known if (session := self._begin(store, number)) is not None]
                yield from begun
                if not begun:
                    if sum(not self._is_closed(store, number) for number in known) == 0:
                        return
                    time.sleep(POLL)

    def _begin(self, store: Store, number: int) -> runs.HostedRun | None:
        if number == self._first or number in self._mine or number in self._closed or not _may_begin(store, number):
            return None
        run = store.runs.by_number(number)
        assert run is not None
        try:
            self._mine[number] = runs.go_on(self._host, run.id)
        except RunConflict:  # a worker has it
            return None
        return self._mine[number]

    def _is_closed(self, store: Store, number: int) -> bool:
        """Is it over, with all that follows decided? What this process did for an order is done."""
        if number in self._closed:
            return True
        run = store.runs.by_number(number)
        if run is not None and (run.state not in FINAL or _is_open(store, number)):
            if run.state in FINAL and self._host.beside is not None:
                self._host.beside.look()
            return False
        order = store.orders.of(number)
        if order is not None and order.verb == "run":
            store.orders.drop(order)
        self._closed.add(number)
        return True
