"""What sql.py needs of a database, and what both databases share. Implemented by sqlite.py and postgres.py.

A driver runs queries by name, and lets no exception of its library out: StoreError with a code, or Disconnected.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Protocol

from penstock.errors import Problem, StoreError

Row = tuple[Any, ...]


class Driver(Protocol):
    where: str
    """What the user calls it, without a password: for messages."""
    alone: bool
    """Between `begin` and `commit` nobody else can write, so that what was read stays true."""
    patience: float
    """How many seconds to wait for a database that has gone away, outside of transactions."""
    ddl: ClassVar[dict[str, str]]
    """What the words with a dollar sign in the migrations stand for."""

    @property
    def in_transaction(self) -> bool: ...

    def rows(self, name: str, args: Sequence[Any] = ()) -> list[Row]:
        """All rows of a query."""

    def within(self, name: str, keys: Sequence[Any], *rest: Any) -> list[Row]:
        """All rows of a query with an `IN (*)`. Any number of keys; more than one query if there are many."""

    def write(self, name: str, args: Sequence[Any] = ()) -> int:
        """The number of rows that were changed."""

    def write_within(self, name: str, keys: Sequence[Any], *rest: Any) -> int:
        """The same with an `IN (*)`."""

    def many(self, name: str, rows: Iterable[Sequence[Any]]) -> None:
        """Once for each row. No key may stand twice among the rows of an INSERT."""

    def begin(self) -> None: ...

    def begin_alone(self) -> None:
        """A transaction beside which no other migration can run."""

    def commit(self) -> None: ...

    def rollback(self) -> None:
        """Never fails, and does nothing outside a transaction."""

    def has_schema(self) -> bool: ...

    def statement(self, sql: str) -> None:
        """One statement of a migration."""

    def changed(self) -> object: ...

    def reconnect(self, patience: float) -> None: ...

    def vacuum(self) -> None: ...

    def close(self) -> None: ...


def queries() -> dict[str, str]:
    """queries.sql by name."""
    with open(os.path.join(os.path.dirname(os.path.dirname(__file__)), "queries.sql"), encoding="utf-8") as file:
        text = file.read()
    found = {}
    for block in text.split("-- name: ")[1:]:
        name, _, body = block.partition("\n")
        found[name] = "\n".join(line for line in body.split("\n") if line and not line.startswith("--"))
    return found


def damaged(where: str, said: str) -> StoreError:
    if "://" in where:
        fix = "restore the database from a copy, or use another one; outputs on disk are not touched"
    else:
        fix = (
            "put back a copy, or see what penstock doctor says: doctor --repair saves what can be read into a new store and keeps"
            " the old file"
        )
    return _error("P601", f"{where} is not a store of Penstock, or it is damaged ({said})", fix)


def newer(where: str, found: int, known: int) -> StoreError:
    return _error(
        "P602",
        f"{where} was written by a newer Penstock (schema {found}; this one knows {known})",
        "pip install --upgrade penstock, or use another store",
    )


def read_only(where: str, said: str) -> StoreError:
    return _error(
        "P603",
        f"{where} cannot be written ({said})",
        "make it writable for you, or use a store elsewhere",
    )


def full(where: str) -> StoreError:
    return _error(
        "P604",
        f"the disk of {where} is full",
        "nothing recorded is lost; free space, then penstock resume",
    )


def unreachable(where: str, said: str) -> StoreError:
    return _error("P605", f"{where} cannot be opened ({said})", "see that it is there, and that you may use it")


def locked(where: str, seconds: float) -> StoreError:
    return _error(
        "P606",
        f"{where} was locked by another process for more than {seconds:g} s",
        "find the process that holds it (fuser, lsof; pg_locks) and end it, then penstock resume",
    )


def refused(where: str, said: str) -> StoreError:
    return _error("P607", f"{where} refused a record ({said})", "this is a mistake in Penstock; please report it")


def _error(code: str, message: str, fix: str) -> StoreError:
    return StoreError(Problem(code, message, fix))
