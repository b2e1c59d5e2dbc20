"""The store, the log files and the artifacts of a server, as whoever reads those of this machine knows them. Made by `stores` for settings that
name a server (`penstock … --server`, `Client`).

A Store asks a driver for the rows of queries by their names, so a driver that asks a server makes a whole Store of it, and every view and screen
works on it as it is. It only reads: what changes something is a verb of the API (`remote_verbs`).
"""

from __future__ import annotations

import base64
import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from penstock.artifacts.blobs import Blobs
from penstock.errors import Problem, StoreError, UserError
from penstock.service.connection import ServerConnection
from penstock.service.home_files import LogPiece
from penstock.store.drivers.base import Row
from penstock.store.migrate import known
from penstock.store.served import COUNTED, MOST_KEYS, MOST_ROWS, PAGED
from penstock.store.sql import Store

if TYPE_CHECKING:
    from penstock.backends.base import Orphan

MOST_NAMES: Final = 1000
"""Log files in one request."""
AGAIN: Final = 1.0
"""Seconds until a stream that broke is opened again."""


def connection(url: str) -> ServerConnection:
    """One for each server and token, so that it is asked over one line. Raises UserError."""
    return _connection(url, os.environ.get("PENSTOCK_TOKEN", ""))


@lru_cache(maxsize=16)
def _connection(url: str, token: str) -> ServerConnection:
    """`token`: unless there is one in the address."""
    return ServerConnection(url)


def open_remote(url: str) -> Store:
    """Raises UserError: it does not answer, refuses, or is of another version."""
    remote = connection(url)
    about = remote.get("store")
    store = Store(RemoteDriver(remote))
    if about.get("tables") != len(known()):
        fix = f"use the version of the server ({about.get('version', 'unknown')}) here too: pip install penstock=={about.get('version', '…')}"
        raise StoreError(Problem("P970", f"{remote.base} has another version of Penstock", fix))
    capacity = {str(name): int(amount) for name, amount in about["capacity"].items()}
    store.queues.capacity = lambda: capacity
    return store


class RemoteDriver:
    """A Driver that reads the store of a server."""

    alone = False
    patience = 0.0
    in_transaction = False
    ddl: ClassVar[dict[str, str]] = {}

    def __init__(self, remote: ServerConnection) -> None:
        self.where = remote.base
        self._remote = remote
        self._news: _News | None = None

    def rows(self, name: str, args: Sequence[Any] = ()) -> list[Row]:
        return self._asked(name, list(args), None)

    def within(self, name: str, keys: Sequence[Any], *rest: Any) -> list[Row]:
        found: list[Row] = []
        for first in range(0, len(keys), MOST_KEYS):
            found += self._asked(name, list(rest), list(keys[first : first + MOST_KEYS]))
        return found

    def _asked(self, name: str, args: list[Any], keys: list[Any] | None) -> list[Row]:
        if name == COUNTED:
            while self._page(name, args, keys):
                pass  # the server counts them, some at a time
            return []
        place = PAGED.get(name)
        if place is None:
            return self._page(name, args, keys)
        found: list[Row] = []
        left, offset = args[place], args[place + 1]
        while left > 0:
            page = self._page(name, [*args[:place], min(left, MOST_ROWS), offset, *args[place + 2 :]], keys)
            found += page
            if len(page) < MOST_ROWS:
                break
            left, offset = left - len(page), offset + len(page)
        return found

    def _page(self, name: str, args: list[Any], keys: list[Any] | None) -> list[Row]:
        body = {"args": args} if keys is None else {"args": args, "keys": keys}
        return [tuple(row) for row in self._remote.post(f"store/rows/{name}", body)["rows"]]

    def changed(self) -> object:
        """A stream of the server says when anything was written; so nobody has to ask again and again."""
        if self._news is None:
            self._news = _News(self._remote)
        return self._news.count()

    def has_schema(self) -> bool:
        return True

    def reconnect(self, patience: float) -> None:
        """Each request is made again if it is not answered."""

    def rollback(self) -> None:
        """There is nothing to take back."""

    def close(self) -> None:
        if self._news is not None:
            self._news.stop()

    # -- what it does not do ------------------------------------------------------------------------------------------

    def write(self, name: str, args: Sequence[Any] = ()) -> int:
        raise self._only_read()

    def write_within(self, name: str, keys: Sequence[Any], *rest: Any) -> int:
        raise self._only_read()

    def many(self, name: str, rows: Iterable[Sequence[Any]]) -> None:
        raise self._only_read()

    def begin(self) -> None:
        raise self._only_read()

    begin_alone = commit = vacuum = begin

    def statement(self, sql: str) -> None:
        raise self._only_read()

    def _only_read(self) -> StoreError:
        fix = "use the command on the machine of the server"
        return StoreError(Problem("P971", f"this cannot be done to {self.where} from here", fix))


class _News:
    """Counts what a server says to have been written."""

    def __init__(self, remote: ServerConnection) -> None:
        self._remote = remote
        self._number = 0
        self._trouble: UserError | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="news of a server", daemon=True)
        self._thread.start()

    def count(self) -> int:
        """Raises UserError: the token is of no use any more, or the server is away for too long."""
        if self._trouble is not None:
            raise self._trouble
        return self._number

    def stop(self) -> None:
        self._stop.set()  # the thread ends with its next line, or with the process

    def _listen(self) -> None:
        while not self._stop.is_set():
            try:
                for changed in self._remote.news():
                    if self._stop.is_set():
                        return
                    self._number += changed
            except StoreError:
                pass  # it is being restarted, or its database is
            except UserError as error:
                self._trouble = error
                return
            self._number += 1  # something may have been written meanwhile
            self._stop.wait(AGAIN)


class RemoteHome:
    """The HomeFiles of a server."""

    def __init__(self, url: str) -> None:
        self._remote = connection(url)

    def sizes(self, names: Sequence[str]) -> Mapping[str, int]:
        found: dict[str, int] = {}
        for first in range(0, len(names), MOST_NAMES):
            found |= self._remote.post("store/logs/sizes", {"names": list(names[first : first + MOST_NAMES])})["sizes"]
        return found

    def read(self, pieces: Sequence[LogPiece]) -> list[bytes | None]:
        """The server gives as much as it likes of each; the rest is asked for again."""
        found: list[bytes | None] = [None] * len(pieces)
        wanted = list(enumerate(pieces))
        while wanted:
            some, wanted = wanted[:MOST_NAMES], wanted[MOST_NAMES:]
            answer = self._remote.post("store/logs", {"pieces": [list(piece) for _, piece in some]})["pieces"]
            rest = []
            for (number, piece), one in zip(some, answer, strict=True):
                if one is None:
                    continue
                data = base64.b64decode(one["data"])
                found[number] = (found[number] or b"") + data
                if one["more"]:
                    rest.append((number, LogPiece(piece.name, one["start"] + len(data), piece.end)))
            wanted = rest + wanted
        return found

    def shown(self, name: str) -> str:
        return name  # where the server keeps it is nobody's business

    def orphans(self, engines: Sequence[str]) -> list[Orphan]:
        from penstock.backends.base import Orphan

        found = self._remote.post("store/orphans", {"engines": list(engines)})["orphans"]
        return [Orphan(one["pid"], one["run"], one["task"]) for one in found]


class RemoteBlobs(Blobs):
    """The artifacts of a server, to be read. Objects of Python are not loaded from there: that would run its code."""

    def __init__(self, url: str) -> None:
        super().__init__(os.devnull, pickles=False)
        self._server = connection(url)

    def get(self, digest: str) -> bytes:
        return self._server.fetch(digest)

    def fetch(self, digest: str, to: Path) -> None:
        to.parent.mkdir(parents=True, exist_ok=True)
        self._server.fetch_to(digest, to)

    def has(self, digest: str, size: int | None = None) -> bool:
        return not self._server.missing([digest])

    def local(self, digest: str) -> Path | None:
        return None
