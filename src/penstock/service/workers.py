"""A worker: takes the runs that are ordered, and executes them with engines of its own. Called by `penstock worker`, and by `penstock serve`,
which has one inside.

It looks at the orders whenever something was written to the store, and from time to time even if nothing was: the death of another worker
is not recorded. What to do about one order is decided by `work.action_of`; here it is done.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from penstock.errors import Problem, StoreError, UserError
from penstock.service import runs, stores, work
from penstock.service.couriers import Couriers
from penstock.service.hosting import Host
from penstock.service.run_records import RunConflict
from penstock.settings import Settings
from penstock.store import liveness
from penstock.store.orders import WorkOrder
from penstock.store.records import RunRecord
from penstock.store.sql import Store

POLL: Final = 0.1
"""Seconds between two questions whether anything was written."""
CHECK: Final = 2.0
"""Seconds between two looks at the orders if nothing was."""
AGAIN: Final = 30.0
"""Seconds after which a run that could not be started is tried again."""
Say = Callable[[str], None]


class Worker:
    """`say`: is told what it does, a line each, in its thread."""

    def __init__(self, settings: Settings, say: Say) -> None:
        self.settings = settings
        self.failure: BaseException | None = None
        """What ended it."""
        self._say = say
        self._hosts: dict[tuple[tuple[str, str], ...], Host] = {}
        """The backends that a run has chosen -> an engine with them."""
        self._mine: dict[int, runs.HostedRun] = {}
        self._broken: dict[int, BaseException] = {}
        """Runs whose engine has failed -> with what."""
        self._watch = liveness.Watch()
        self._idle = False
        """At the last look there was nothing to do."""
        self._couriers = Couriers(settings, say=say)
        self._stopping = threading.Event()
        self._news = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="penstock worker", daemon=True)

    def start(self) -> None:
        self._thread.start()
        self._couriers.start()

    def nudge(self) -> None:
        """There is something new."""
        self._news.set()

    def stop(self) -> None:
        """Take nothing more, and let running tasks finish. Their runs are left to other workers."""
        self._stopping.set()
        self._news.set()
        self._couriers.stop()
        for host in list(self._hosts.values()):
            host.interrupt()

    def finish(self) -> None:
        """Try once what follows from the runs that have ended, then stop."""
        self._couriers.close()
        self.stop()

    def abandon(self) -> None:
        """End running tasks, too."""
        self.stop()
        for host in list(self._hosts.values()):
            host.abandon()

    def join(self, timeout: float | None = None) -> bool:
        """Is it over?"""
        if self._thread.ident is not None:
            self._thread.join(timeout)
        return not self._thread.is_alive()

    @property
    def idle(self) -> bool:
        """Is there nothing that it could do now? What it could not begin does not count, nor what another engine executes."""
        return self._idle and not self._mine

    @property
    def running(self) -> int:
        """Runs that it executes now."""
        return len(self._mine)

    # -- in its thread ------------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        try:
            with stores.open_or_create(self.settings, engine=True) as store:
                while not self._stopping.is_set():
                    try:
                        self._follow(store)
                    except StoreError as error:  # the disk is full, the database is away for long
                        self._say(f"the store does not answer, trying again: {error}")
                        self._stopping.wait(CHECK)
        except BaseException as error:
            self.failure = error
            self._say(f"the worker has ended: {error}")
        finally:
            for host in self._hosts.values():
                host.interrupt()
                with suppress(Exception):
                    host.close()

    def _follow(self, store: Store) -> None:
        token: object = None
        looked = float("-inf")
        while not self._stopping.is_set():
            new = store.peers.changed()
            if new != token or self._news.is_set() or time.monotonic() - looked > CHECK:
                token, looked = new, time.monotonic()
                self._news.clear()
                self._look(store)
            self._news.wait(POLL)

    def _look(self, store: Store) -> None:
        for number, hosted in list(self._mine.items()):
            if hosted.live.finished.is_set():
                del self._mine[number]
                if hosted.host.failure is not None:
                    self._broken[number] = hosted.host.failure
        busy = False
        for order in store.orders.all():
            if self._stopping.is_set():
                return
            if order.run in self._mine and order.verb == "run":
                continue
            run = store.runs.by_number(order.run)
            action = work.action_of(order, run, None if run is None else self._owned(store, run))
            if action == "drop":
                store.orders.drop(order)
            elif action != "wait" and run is not None:
                busy = busy or "problem" not in order.data
                self._act(store, order, run, action)
        self._idle = not busy

    def _owned(self, store: Store, run: RunRecord) -> bool | None:
        """Does a living engine own the run? None: not known yet; it may be on another machine."""
        owner = next((one for one in store.peers.engines() if one.id == run.engine), None) if run.engine else None
        if owner is None:
            return False
        alive = liveness.alive(owner)
        if alive is None and self._watch.dead(owner.id, owner.beat, time.monotonic()):
            store.peers.forget(owner.id)
            self._watch.forget(owner.id)
            return False
        return alive

    def _act(self, store: Store, order: WorkOrder, run: RunRecord, action: work.Action) -> None:
        if order.data.get("tried", 0) + AGAIN > time.time():
            return
        try:
            if order.run in self._broken:
                raise _cannot_begin(self._broken.pop(order.run))
            if action == "ask":
                store.runs.request(run.number, "cancel", {name: order.data.get(name) for name in ("message", "now")})
            elif action != "obey":
                self._mine[run.number] = self._begin(run, order, action)
                self._say(f"{run.id}: {action}")
        except RunConflict:
            return  # another worker has it
        except UserError as error:
            self._say(f"{run.id}: {error}")
            problem = {"problem": error.problems[0].as_data(), "tried": time.time()}
            store.orders.turn(order, order.verb, {**order.data, **problem})
            return
        if order.verb != "run" or "problem" in order.data:
            store.orders.turn(order, "run", {})

    def _begin(self, run: RunRecord, order: WorkOrder, action: work.Action) -> runs.HostedRun:
        given: dict[str, Any] = {}
        if action == "retry":
            given = {"retried": order.data.get("by") or "somebody"}
        elif action == "cancel":
            given = {"cancelled": order.data.get("message") or "cancelled", "now": bool(order.data.get("now"))}
        key = tuple(sorted((run.options.get("on") or {}).items()))
        host = self._hosts.get(key)
        if host is None or host.failure is not None:
            host = self._hosts[key] = Host(self.settings, dict(key))
            host.beside = self._couriers
        try:
            return runs.go_on(host, run.id, **given)
        except UserError:
            raise
        except Exception as error:
            del self._hosts[key]
            raise _cannot_begin(error) from error


def _cannot_begin(error: BaseException) -> UserError:
    if isinstance(error, UserError):
        return error
    fix = "see the log of the worker; it tries again"
    return UserError(Problem("P938", f"the worker could not go on with it: {error}", fix))
