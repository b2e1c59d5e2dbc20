"""What became of the links of runs. `Store.links`; called by service.chains.

Whoever decides about links does so in one transaction, which begins with `lock`: so two couriers that see the ends of two branches decide one
after the other, and the second sees what the first has decided.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, TypeVar

from penstock.store.session import Session

T = TypeVar("T")
STARTED: Final = "started"
SKIPPED: Final = "skipped"
OMITTED: Final = "omitted"
DEAD: Final = "dead"


class LinkRow(NamedTuple):
    """One link of a run, or with an empty name the run itself."""

    head: int
    """The run whose workflow has the link."""
    name: str
    root: int
    workflow: str
    state: str
    """started, skipped, omitted or dead."""
    run: int = 0
    """That it started."""
    ended: str = ""
    """How that run ended; of one that is omitted, the end for which it is."""
    seq: int = 0
    """Of that end."""
    why: str = ""
    at: float = 0.0


class LinkRepository:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._db = session.db

    def deciding(self, work: Callable[[], T]) -> T:
        """Does this in a transaction in which nobody else decides about links."""

        def alone() -> T:
            self._session.next_number("link")
            return work()

        return self._session.transact(alone)

    def of_head(self, head: int) -> dict[str, LinkRow]:
        return {row[1]: LinkRow(*row) for row in self._db.rows("links_of_head", (head,))}

    def of_root(self, root: int) -> list[LinkRow]:
        return [LinkRow(*row) for row in self._db.rows("links_of_root", (root,))]

    def of_run(self, run: int) -> list[LinkRow]:
        """The links that have this run, and its own row."""
        return [LinkRow(*row) for row in self._db.rows("links_of_run", (run,))]

    def started(self, root: int) -> int:
        """How many runs have been started by links since this run."""
        return int(self._db.rows("links_started", (root,))[0][0])

    def pending(self, root: int) -> bool:
        """Has a run since this one ended, and nobody has decided yet what follows?"""
        return bool(self._db.rows("links_pending", (root,)))

    def put(self, row: LinkRow) -> None:
        """In place of what was decided before; part of the open transaction."""
        self._session.transact(lambda: self._db.write("put_link", row))

    def drop(self, head: int, name: str) -> None:
        """It is to be decided again."""
        self._session.transact(lambda: self._db.write("drop_link", (head, name)))
