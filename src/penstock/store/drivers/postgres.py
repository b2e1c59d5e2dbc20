"""The store in a PostgreSQL database, by URL: for a team, or for engines on several machines. Opened by sql.open_store.

Everything runs at READ COMMITTED: each statement sees what was committed before it began, and `claim` in sql.py counts on it.
psycopg is imported here and nowhere else; who keeps to SQLite need not have it.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any, ClassVar, TypeVar
from urllib.parse import unquote

from penstock.errors import Problem, StoreError
from penstock.store.drivers import base
from penstock.store.drivers.base import Row
from penstock.store.records import Disconnected
from penstock.urls import split_password

try:
    import psycopg
    from psycopg.pq import TransactionStatus
except ImportError as error:
    raise StoreError(
        Problem(
            "P605", "PostgreSQL needs the library psycopg 3, which is not here", "pip install 'penstock[postgresql]'"
        )
    ) from error

T = TypeVar("T")
CHUNK = 5000
"""Keys in one list: it is one parameter, but it has to be put into one message."""
ROWS = 500
"""Rows in one INSERT: its JSON may not pass 256 MB."""
TYPES = {
    **dict.fromkeys(("run", "seq", "attempt", "number", "version", "held", "most", "rank", "width"), "bigint"),
    **dict.fromkeys(("at", "started", "ended", "created", "next_at"), "float8"),
}
"""Of columns that are written many rows at a time, where it is not text."""
MIGRATION = 0x70656E73746F636B
"""The advisory lock of migrations: "penstock"."""
AGAIN = {"40001", "40P01"}
"""Serialization failure, deadlock: the transaction gave way to another; the connection is fine."""
LOST = {"57P01", "57P02", "57P03", "57P05", "25P03"}
"""The server ends the session: shutting down, crashed, starting up, idle for too long."""
_AWAY = re.compile(
    r"(?i)refused|starting up|shutting down|recovery mode|not yet accepting|closed the connection|reset by peer|is the server running"
)
"""What is said of a server that is being restarted. A wrong password or name does not become right by waiting."""


class Postgres:
    alone = False
    # The order of characters, as SQLite has it, whatever the language of the database.
    ddl: ClassVar[dict[str, str]] = {
        "$WITHOUT_ROWID": "",
        "$SERIAL": "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
        " TEXT": ' TEXT COLLATE "C"',
    }

    def __init__(self, url: str, busy: float, patience: float = 0.0) -> None:
        self.where, self._secrets = split_password(url)
        self._url = url
        self._busy = busy
        self.patience = patience
        # Lists travel in binary (%b): as text they take longer than the query.
        self._sql = {
            name: sql.replace("%", "%%").replace("IN (*)", "= ANY(%b)").replace("?", "%s")
            for name, sql in base.queries().items()
        }
        self._bulk = {name: bulk for name, sql in self._sql.items() if (bulk := _bulk(sql))}
        self._db = self._first_connected()

    @property
    def in_transaction(self) -> bool:
        return self._db.info.transaction_status in (
            TransactionStatus.INTRANS,
            TransactionStatus.INERROR,
            TransactionStatus.ACTIVE,
        )

    def rows(self, name: str, args: Sequence[Any] = ()) -> list[Row]:
        sql = self._sql[name]
        # Of lists with filters the best way depends on the values: a plan that is kept for all of them reads every run.
        prepare = False if name.startswith(("runs_page", "runs_ended", "payloads_")) else None
        return self._read(lambda: self._db.execute(sql, args, prepare=prepare).fetchall())

    def within(self, name: str, keys: Sequence[Any], *rest: Any) -> list[Row]:
        found: list[Row] = []
        for start in range(0, len(keys), CHUNK):
            found += self.rows(name, (list(keys[start : start + CHUNK]), *rest))
        return found

    def write(self, name: str, args: Sequence[Any] = ()) -> int:
        try:
            return self._db.execute(self._sql[name], args).rowcount
        except psycopg.Error as error:
            raise self._translated(error) from error

    def write_within(self, name: str, keys: Sequence[Any], *rest: Any) -> int:
        return sum(self.write(name, (list(keys[start : start + CHUNK]), *rest)) for start in range(0, len(keys), CHUNK))

    def many(self, name: str, rows: Iterable[Sequence[Any]]) -> None:
        try:
            if name not in self._bulk:
                with self._db.cursor() as cursor:
                    cursor.executemany(self._sql[name], rows)
                return
            rest = iter(rows)
            while chunk := list(islice(rest, ROWS)):
                self._db.execute(self._bulk[name], (json.dumps(chunk),))
        except psycopg.Error as error:
            raise self._translated(error) from error

    def begin(self) -> None:
        self.statement("BEGIN")

    def begin_alone(self) -> None:
        self.begin()
        self.statement(f"SELECT pg_advisory_xact_lock({MIGRATION})")

    def commit(self) -> None:
        self.statement("COMMIT")

    def rollback(self) -> None:
        if not self._db.closed and self.in_transaction:
            # A connection that breaks here has lost its transaction, too.
            with contextlib.suppress(psycopg.Error):
                self._db.execute("ROLLBACK")

    def has_schema(self) -> bool:
        # Not to_regclass: while we waited for the lock of migrations, it would still remember that there was none.
        sql = "SELECT 1 FROM pg_tables WHERE tablename = 'meta' AND schemaname = ANY(current_schemas(false))"
        return bool(self._read(lambda: self._db.execute(sql).fetchall()))

    def statement(self, sql: str) -> None:
        try:
            self._db.execute(sql)
        except psycopg.Error as error:
            raise self._translated(error) from error

    def changed(self) -> object:
        """As long as the snapshot is the same, so is everything that can be seen."""
        return self._read(lambda: self._db.execute("SELECT pg_current_snapshot()::text").fetchall())[0][0]

    def reconnect(self, patience: float) -> None:
        self.rollback()
        if self._db.closed or not self._answers():
            self._db.close()
            self._db = self._connected_within(patience, lambda said: True)

    def _first_connected(self) -> psycopg.Connection[Row]:
        return self._connected_within(self.patience, lambda said: bool(_AWAY.search(said)))

    def _connected_within(self, patience: float, passes: Callable[[str], bool]) -> psycopg.Connection[Row]:
        """Tries until it is connected, or has waited for so long, or the reason is not one that passes."""
        until, pause = time.monotonic() + patience, 0.05
        while True:
            try:
                return self._connected()
            except StoreError as error:
                if time.monotonic() + pause > until or not passes(str(error)):
                    raise
                if pause == 0.05 and patience:
                    import logging  # seldom needed

                    text = "waiting for %s, which does not answer, for at most %g s"
                    logging.getLogger("penstock").warning(text, self.where, patience)
            time.sleep(pause)
            pause = min(2 * pause, 2.0)

    def vacuum(self) -> None:
        self.statement("VACUUM")

    def close(self) -> None:
        self._db.close()

    def _connected(self) -> psycopg.Connection[Row]:
        try:
            db = psycopg.connect(
                self._url,
                autocommit=True,
                connect_timeout=10,
                application_name="penstock",
                # A cable that was pulled is noticed within a minute.
                keepalives_idle=20,
                keepalives_interval=10,
                keepalives_count=3,
            )
            db.execute("SELECT set_config('lock_timeout', %s, false)", (str(int(self._busy * 1000)),))
        except psycopg.Error as error:
            # Without the cause: a traceback would show the words of the URL.
            raise base.unreachable(self.where, self._said(error)) from None
        return db

    def _answers(self) -> bool:
        try:
            self._db.execute("SELECT 1")
        except psycopg.Error:
            return False
        return True

    def _read(self, work: Callable[[], T]) -> T:
        """A reader outside a transaction need not care that the connection was lost since the last time."""
        inside, again = self.in_transaction, False
        while True:
            try:
                return work()
            except psycopg.Error as error:
                problem = self._translated(error)
                if inside or not isinstance(problem, Disconnected):
                    raise problem from error
                if again and not self.patience:
                    raise base.unreachable(self.where, self._said(error)) from error
            self.reconnect(self.patience)
            again = True

    def _translated(self, error: psycopg.Error) -> StoreError | Disconnected:
        said, code = self._said(error), error.sqlstate or ""
        if code in AGAIN or code in LOST or code.startswith("08") or self._db.closed:
            self.rollback()
            return Disconnected(said)
        if code in ("XX001", "XX002") or code == "42P01":
            return base.damaged(self.where, said)
        if code in ("25006", "42501"):
            return base.read_only(self.where, said)
        if code == "53100":
            return base.full(self.where)
        if code == "55P03":
            return base.locked(self.where, self._busy)
        return base.refused(self.where, said)

    def _said(self, error: psycopg.Error) -> str:
        """In one line. The library quotes what it does not understand of a URL."""
        said = " ".join((error.diag.message_primary or str(error)).split())
        for secret in self._secrets:
            for part in (secret, unquote(secret), *secret.split("@")):
                said = said.replace(part, "…") if part else said
        return said


def _bulk(sql: str) -> str:
    """The INSERT that takes all its rows as one JSON text: four times as fast as one after the other, and it does not mind
    whole numbers among the floats, as arrays do. "" for everything else."""
    found = re.fullmatch(r"(INSERT INTO \w+ \(([\w, ]+)\))\s+VALUES \([%s, ]+\)(.*)", sql, re.DOTALL)
    if not found:
        return ""
    columns = ", ".join(f"(r->>{n})::{TYPES.get(name, 'text')}" for n, name in enumerate(found[2].split(", ")))
    return f"{found[1]} SELECT {columns} FROM jsonb_array_elements(%s::jsonb) r {found[3]}"
