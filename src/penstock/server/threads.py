"""The store for code that waits for many things at once: a few threads, each with a store of its own. Made by app, called by everything
that answers requests.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, TypeVar

from penstock.service import stores
from penstock.settings import Settings
from penstock.store.sql import Store

T = TypeVar("T")
MANY: Final = 4
"""Threads. SQLite has one writer, and reads take a moment."""
Job = tuple[Callable[[Store], Any], "asyncio.Future[Any]"]


class StoreThreads:
    def __init__(self, settings: Settings, many: int = MANY) -> None:
        self.settings = settings
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._threads = [threading.Thread(target=self._work, name=f"store-{n}", daemon=True) for n in range(many)]
        self._closed = False

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    async def call(self, work: Callable[[Store], T]) -> T:
        """Raises what `work` raises."""
        if self._closed:
            raise asyncio.CancelledError
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._jobs.put((work, future))
        return await future

    def close(self) -> None:
        """Returns when what was asked for is done."""
        self._closed = True
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()

    def _work(self) -> None:
        store: Store | None = None
        while (job := self._jobs.get()) is not None:
            work, future = job
            if future.cancelled():  # whoever asked is gone
                continue
            value, error = None, None
            try:
                store = store or stores.open_or_create(self.settings)
                value = work(store)
            except BaseException as raised:
                error = raised
            with suppress(RuntimeError):  # the loop is closed
                future.get_loop().call_soon_threadsafe(_settle, future, value, error)
            del job, work, future, value, error  # nothing of a request stays until the next one
        if store is not None:
            store.close()


def _settle(future: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(value)
