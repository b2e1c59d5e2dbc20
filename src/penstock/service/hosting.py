"""An engine in a thread of its own, for a program that has other things to do: draw progress, wait for Ctrl-C, run a
notebook. Called by runs and local.
"""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import Any

from penstock.artifacts.blobs import Blobs
from penstock.engine.live import Live
from penstock.engine.loop import Engine
from penstock.settings import Settings
from penstock.store.driver import full, read_only
from penstock.store.sql import open_store

Start = Callable[[Engine], Live]


def _machine() -> list[Any]:
    from penstock.service.queueing import machine

    return list(machine())


class Host:
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
        self.engine: Engine | None = None
        self.failure: BaseException | None = None
        self._ready = threading.Event()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: list[Live] = []
        self._asked: list[Future[Live]] = []

    def start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="penstock engine", daemon=True)
            self._thread.start()

    def take(self, start: Start, functions: Mapping[tuple[str, str, str], Callable[..., Any]] | None = None) -> Live:
        """Have the engine begin something, and wait until it has. Raises what that raises."""
        self.start()
        self._ready.wait()
        if self.failure is not None or self._loop is None or self.engine is None:
            raise self.failure or RuntimeError("the engine is closed")
        done: Future[Live] = Future()
        self._asked.append(done)

        def begin() -> None:
            assert self.engine is not None
            self.engine.context.functions.update(functions or {})  # type: ignore[attr-defined]
            try:
                live = start(self.engine)
                self._waiting.append(live)
                done.set_result(live)
            except BaseException as error:
                done.set_exception(error)

        try:
            self._loop.call_soon_threadsafe(begin)
        except RuntimeError:  # it has closed this very moment
            self._nobody()
        try:
            return done.result()
        finally:
            self._asked.remove(done)

    def wait(self, live: Live, timeout: float | None = None) -> bool:
        """True once the run is over, or the engine is. Raises what ended the engine."""
        over = live.finished.wait(timeout)
        if self.failure is not None:
            raise self.failure
        return over

    def interrupt(self) -> None:
        """Let what runs finish, start nothing more."""
        self._tell(lambda engine: engine.interrupt())

    def abandon(self) -> None:
        self._tell(lambda engine: engine.abandon())

    def cancel(self, live: Live, now: bool = False) -> None:
        self._tell(lambda engine: engine.later(lambda: engine.cancel(live, "cancelled", now)))

    def close(self) -> None:
        """End the engine with whatever it still has in hand, and wait for that."""
        if self._thread is not None:
            self._ready.wait()
            self._tell(lambda engine: engine.end())
            self._thread.join()
            self._thread = None

    def _tell(self, what: Callable[[Engine], None]) -> None:
        if self._loop is not None and self.engine is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(what, self.engine)

    def _serve(self) -> None:
        try:
            asyncio.run(self._main())
        except OSError as error:
            # A folder that cannot be written, a full disk: the user's to mend, like the store's own trouble.
            home = str(self.settings.home)
            self.failure = full(home) if error.errno == errno.ENOSPC else read_only(home, error.strerror or str(error))
        except BaseException as error:
            self.failure = error
        finally:
            self._ready.set()
            for live in self._waiting:
                live.finished.set()
            self._nobody()

    def _nobody(self) -> None:
        """The engine is gone: whoever waits for it to begin something is told."""
        for asked in list(self._asked):
            if not asked.done():
                with suppress(InvalidStateError):
                    asked.set_exception(self.failure or RuntimeError("the engine is closed"))

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        with open_store(self.settings.store) as store:
            engine = Engine(
                store, self.settings.home, Blobs(self.settings.artifacts), jobs=self.settings.jobs, id=self.id, on=self.on, backends=self.backends,
                capacity=_machine,
            )  # fmt: skip
            self.engine = engine
            engine.clean()
            self._ready.set()
            try:
                await engine.run(keep=True)
            except BaseException as error:
                engine.failure = error
                raise
            finally:
                await engine.close()
