"""List and watch of one kind into its cache, by a thread that never gives up. Started by the controller (run.Manager) and by the backend kubernetes, one for each kind.

After a break it goes on from the last version seen; if the server has forgotten that (410), it lists again and finds by comparison what was deleted. A
kind that the cluster does not have counts as an empty one, and is asked for again from time to time: its definition may be installed later.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Any, Literal

from penstock.errors import UserError
from penstock.kubernetes.cache import Change, ObjectCache
from penstock.kubernetes.client import ApiError, Client, WatchStream
from penstock.kubernetes.log import Log

_chance = random.Random()
"""Of our own: threads of a library leave the random numbers of its users alone."""
State = Literal["starting", "synced", "absent", "refused"]
FIRST, LONGEST = 0.2, 30.0
"""Seconds between two attempts after errors: doubled each time."""
ABSENT = 30.0
"""Seconds after which a kind that the cluster does not have is asked for again."""
GOOD = 5.0
"""Seconds after which a stream counts as having worked."""


class Watcher:
    def __init__(
        self,
        client: Client,
        cache: ObjectCache,
        changed: Callable[[Change], None],
        log: Log,
        *,
        namespace: str = "",
        seconds: int = 300,
        absent: float = ABSENT,
    ) -> None:
        """`namespace`: only there."""
        self.cache = cache
        self.problem = ""
        """Why it is not up to date."""
        self.lists = 0
        """How often everything was listed."""
        self._client = client
        self._changed = changed
        self._log = log.bind(kind=cache.resource.kind)
        self._namespace = namespace
        self._seconds = seconds
        self._absent = absent
        self._state: State = "starting"
        self._version = ""
        self._failures = 0
        self._good_since: float | None = None
        self._lock = threading.Lock()
        self._stream: WatchStream | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"watch-{cache.resource.plural}", daemon=True)

    @property
    def state(self) -> State:
        return self._state

    @property
    def synced(self) -> bool:
        """The cache shows what the cluster has, or has shown it; a kind that is not there has nothing."""
        return self._state in ("synced", "absent")

    def good_for(self) -> float:
        """Seconds for which it has told all, without a break; 0 while it does not."""
        since = self._good_since
        return time.monotonic() - since if since is not None else 0.0

    def alive(self) -> bool:
        return self._thread.is_alive()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        with self._lock:
            if self._stream is not None:
                self._stream.stop()

    def join(self, timeout: float | None = None) -> None:
        if self._thread.ident is not None:
            self._thread.join(timeout)

    # -- the thread

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                if not self._version:
                    self._list()
                self._follow()
            except ApiError as error:
                self._failed(error)
            except UserError as error:  # a login plugin
                self._wait_after(str(error))
            except Exception as error:
                # A thread that dies would leave the cache behind for good. Whatever it is, it is told and tried again from the start.
                self._log.error("watch failed", error=error)
                self._version = ""
                self._wait_after(repr(error))

    def _list(self) -> None:
        floor = self.cache.highest
        listing = self._client.list(self.cache.resource, self._namespace, keep=self.cache.slim)
        self._stop_if_asked()
        self.lists += 1
        changes = self.cache.replace(listing.items, listing.version, floor)
        self._version = listing.version
        if self._state != "synced":
            self._log.info("watching", objects=len(self.cache))
        self._state = "synced"
        self._good()
        for change in changes:
            self._changed(change)

    def _follow(self) -> None:
        began = time.monotonic()
        # The server ends it; not all kinds at the same moment.
        seconds = max(1, int(self._seconds * _chance.uniform(0.8, 1.2)))
        stream = self._client.watch(self.cache.resource, self._version, namespace=self._namespace, seconds=seconds)
        with stream:
            with self._lock:
                self._stream = stream
            try:
                self._stop_if_asked()
                self._good()
                for event in stream:
                    self._stop_if_asked()
                    self._take(event)
                    self._failures = 0
            finally:
                with self._lock:
                    self._stream = None
        if time.monotonic() - began >= min(GOOD, self._seconds / 2):
            self._failures = 0
        else:
            self._wait()  # a server that ends every stream at once must not be asked a thousand times a second

    def _take(self, event: dict[str, Any]) -> None:
        kind, obj = event.get("type"), event.get("object") or {}
        if kind == "ERROR":
            raise ApiError(int(obj.get("code") or 500), str(obj.get("reason", "")), str(obj.get("message", "")))
        if kind in ("ADDED", "MODIFIED"):
            change = self.cache.put(obj)
        elif kind == "DELETED":
            change = self.cache.remove(obj)
        else:
            change = None  # a bookmark
        self._version = str((obj.get("metadata") or {}).get("resourceVersion") or self._version)
        if change is not None:
            self._changed(change)

    def _stop_if_asked(self) -> None:
        if self._stopped.is_set():
            raise ApiError(0, "", "stopped")

    def _good(self) -> None:
        self.problem = ""
        if self._good_since is None:
            self._good_since = time.monotonic()

    def _failed(self, error: ApiError) -> None:
        if self._stopped.is_set():
            return
        self._good_since = None
        if error.gone:
            self._log.info("the watch is too old, listing again")
            self._version = ""
            self._wait(self._failures > 0)
            self._failures += 1
        elif error.code == 404:
            self._leave_out()
        else:
            if error.code in (401, 403):
                self._state = "refused" if self._state != "synced" else self._state
            self._wait_after(str(error))

    def _leave_out(self) -> None:
        if self._state != "absent":
            self._log.info("the cluster does not have this kind; it will be asked for again")
        self._state, self.problem, self._version, self._failures = "absent", "", "", 0
        for change in self.cache.replace((), ""):
            self._changed(change)
        self._stopped.wait(self._absent * _chance.uniform(0.8, 1.2))

    def _wait_after(self, problem: str) -> None:
        if self._stopped.is_set():
            return
        self.problem, self._good_since = problem, None
        self._log.warning("watch interrupted", problem=problem, failures=self._failures)
        self._wait()

    def _wait(self, really: bool = True) -> None:
        if really:
            self._good_since = None
            self._stopped.wait(min(LONGEST, FIRST * 2.0 ** min(self._failures, 20)) * _chance.uniform(0.5, 1.0))
            self._failures += 1
