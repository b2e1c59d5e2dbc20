"""An engine in a thread of its own, for a program that does other things meanwhile: draw progress, handle Ctrl-C, run a notebook. Called
by `runs`, the run command and LocalRunner.
"""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from penstock.engine.active_run import ActiveRun
from penstock.engine.engine import Engine
from penstock.service import stores
from penstock.settings import Settings
from penstock.store.drivers.base import full, read_only
from penstock.store.records import FINAL
from penstock.store.sql import Store

if TYPE_CHECKING:
    from penstock.engine.cluster_quota import ClusterQueues
    from penstock.service.tracking.sender import Sender, TrackingState

Start = Callable[[Engine, Store], ActiveRun]
"""Starts or continues a run; called in the thread of the engine."""


class Beside(Protocol):
    """Is ended with the engine."""

    def start(self) -> None: ...

    def look(self) -> None:
        """There may be something new."""
        ...

    def close(self) -> None:
        """Finish what is due."""
        ...

    def stop(self) -> None: ...


def _machine() -> list[Any]:
    from penstock.service.machine import machine

    return list(machine())


def _sender(settings: Settings) -> Sender | None:
    """Who tells the tracking server of runs, if one is configured. Raises UserError."""
    if (
        "PENSTOCK_MLFLOW" not in os.environ
        and "MLFLOW_TRACKING_URI" not in os.environ
        and not os.path.isfile("penstock.yaml")
    ):
        return None
    from penstock.service.tracking.target import configured

    target = configured()
    if target is None:
        return None
    from penstock.service.tracking.sender import Sender

    return Sender(settings, target)


class Host:
    """`on`: kind of step -> backend. `backends`: name -> the user's own backend. `id`: of the engine, if it was chosen already."""

    def __init__(
        self,
        settings: Settings,
        on: Mapping[str, str] | None = None,
        backends: Mapping[str, Callable[[Any], Any]] | None = None,
        id: str = "",
    ) -> None:
        self.settings = settings
        self.id = id
        self.on = dict(on or {})
        self.backends = dict(backends or {})
        self.functions: dict[tuple[str, str, str], Callable[..., Any]] = {}
        """Functions that are loaded in this process. Grows with each run; only the thread of the engine uses it."""
        self.engine: Engine | None = None
        self._store: Store | None = None
        self.failure: BaseException | None = None
        """What ended the engine."""
        self.sender: Sender | None = None
        self.beside: Beside | None = None
        """What acts on the ends of runs while the engine is there."""
        self._ready = threading.Event()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._runs: list[ActiveRun] = []
        self._starting: list[Future[ActiveRun]] = []

    def start(self) -> None:
        if self._thread is None:
            self.sender = _sender(self.settings)
            self._thread = threading.Thread(target=self._serve, name="penstock engine", daemon=True)
            self._thread.start()

    def take(
        self, start: Start, functions: Mapping[tuple[str, str, str], Callable[..., Any]] | None = None
    ) -> ActiveRun:
        """Let the engine start a run, and return when it has. Raises what `start` raises."""
        self.start()
        self._ready.wait()
        if self.failure is not None or self._loop is None or self.engine is None:
            raise self.failure or RuntimeError("the engine is closed")
        done: Future[ActiveRun] = Future()
        self._starting.append(done)

        def begin() -> None:
            assert self.engine is not None and self._store is not None
            self.functions.update(functions or {})
            try:
                live = start(self.engine, self._store)
                self._runs = [one for one in self._runs if not one.finished.is_set()]
                self._runs.append(live)
                done.set_result(live)
            except BaseException as error:
                done.set_exception(error)

        try:
            self._loop.call_soon_threadsafe(begin)
        except RuntimeError:  # the loop was closed after the check above
            self._refuse()
        try:
            live = done.result()
        finally:
            self._starting.remove(done)
        if self.sender is not None:
            self.sender.start()
            self.sender.look()
        return live

    def wait(self, live: ActiveRun, timeout: float | None = None) -> bool:
        """True once the run or the engine has ended. Raises what ended the engine."""
        over = live.finished.wait(timeout)
        if self.failure is not None:
            raise self.failure
        return over

    def interrupt(self) -> None:
        """Let running tasks finish, start nothing more."""
        if self._thread is None:
            self._stop_telling()
        self._tell(lambda engine: engine.interrupt())

    def abandon(self) -> None:
        """End running tasks now."""
        self._stop_telling()
        self._tell(lambda engine: engine.abandon())

    def cancel(self, live: ActiveRun, now: bool = False) -> None:
        """End a run for good. `now`: without its exit handlers."""
        self._tell(lambda engine: engine.later(lambda: engine.cancel(live, "cancelled", now)))

    def close(self) -> None:
        """Return when all runs have ended and the engine with them, what follows from them has been tried, and the tracking server has been
        told, if it answers."""
        self.end()
        if self.beside is not None:
            self.beside.close()
        if self.sender is not None:
            self.sender.close()

    def end(self) -> None:
        """Return when all runs have ended and the engine with them."""
        if self._thread is not None:
            self._ready.wait()
            self._tell(lambda engine: engine.end())
            self._thread.join()
            self._thread = None

    def told(self, run: int) -> TrackingState | None:
        """How much of a run the tracking server has; None: it is not to be told of it."""
        if self.sender is None:
            return None
        with stores.open_or_create(self.settings) as store:
            return self.sender.told(store, run)

    def _stop_telling(self) -> None:
        for one in (self.sender, self.beside):
            if one is not None:
                one.stop()

    def _tell(self, what: Callable[[Engine], None]) -> None:
        """Call this in the thread of the engine, if there still is one."""
        if self._loop is not None and self.engine is not None:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(what, self.engine)

    def _serve(self) -> None:
        try:
            asyncio.run(self._main())
        except OSError as error:
            # A folder that cannot be written or a full disk: errors that the user can fix, like those of the store.
            home = str(self.settings.home)
            self.failure = full(home) if error.errno == errno.ENOSPC else read_only(home, error.strerror or str(error))
        except BaseException as error:
            self.failure = error
        finally:
            self._ready.set()
            for live in self._runs:
                live.finished.set()
            self._refuse()

    def _refuse(self) -> None:
        """The engine is gone: callers of `take` that still wait get its failure."""
        for waiting in list(self._starting):
            if not waiting.done():
                with suppress(InvalidStateError):
                    waiting.set_exception(self.failure or RuntimeError("the engine is closed"))

    async def _cluster_queues(self, store: Store) -> ClusterQueues | None:
        """Of the cluster that all its tasks run on. Raises UserError."""
        from penstock.backends.registry import cluster_queues

        settings = self.settings
        given = (self.on, settings.home, settings.artifacts, os.environ, self.id)
        found = await asyncio.to_thread(cluster_queues, *given)
        if found is not None:
            from penstock.engine.cluster_quota import clear

            clear(found, lambda run: (record := store.runs.by_id(run)) is None or record.state in FINAL)
        return found

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.id = self.id or os.urandom(16).hex()
        with stores.open_or_create(self.settings, engine=True) as store:
            engine = Engine(
                store,
                self.settings.home,
                stores.blobs_of(self.settings),
                jobs=self.settings.jobs,
                id=self.id,
                on=self.on,
                backends=self.backends,
                functions=self.functions,
                capacity=_machine,
                cluster=await self._cluster_queues(store),
                scheduler=self.settings.queues_pods,
                address=self.settings.address,
            )
            self.engine, self._store = engine, store
            engine.peers.reap_certain()
            self._ready.set()
            try:
                await engine.run(keep=True)
            except BaseException as error:
                engine.failure = error
                raise
            finally:
                await engine.close()
