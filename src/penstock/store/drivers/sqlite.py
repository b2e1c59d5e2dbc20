"""The store in a file of SQLite: `<folder>/state.db`. Opened by sql.open_store; needs no server.

One writer at a time, readers beside it (WAL). A writer begins with BEGIN IMMEDIATE: it waits for its turn at the beginning,
where nothing has to be undone, and never in the middle.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar

from penstock import rights
from penstock.errors import StoreError
from penstock.store.drivers import base
from penstock.store.drivers.base import Row

FILE = "state.db"
CHUNK = 512
"""Keys in one IN list. Old SQLites take no more than 999 parameters."""


class Sqlite:
    alone = True
    patience = 0.0
    ddl: ClassVar[dict[str, str]] = {"$WITHOUT_ROWID": "WITHOUT ROWID", "$SERIAL": "INTEGER PRIMARY KEY AUTOINCREMENT"}

    def __init__(self, folder: str, busy: float) -> None:
        self.where = os.path.join(folder, FILE)
        self._busy = busy
        self._sql = base.queries()
        self._single = {name: sql.replace("IN (*)", "= ?") for name, sql in self._sql.items()}
        self._db = self._open(folder)

    @property
    def in_transaction(self) -> bool:
        try:
            return self._db.in_transaction
        except sqlite3.ProgrammingError:
            return False  # closed

    def rows(self, name: str, args: Sequence[Any] = ()) -> list[Row]:
        try:
            return self._db.execute(self._sql[name], args).fetchall()
        except sqlite3.Error as error:
            raise self._translated(error) from error

    def within(self, name: str, keys: Sequence[Any], *rest: Any) -> list[Row]:
        if len(keys) == 1:
            # The way of chains, where every step asks for one key.
            try:
                return self._db.execute(self._single[name], (keys[0], *rest)).fetchall()
            except sqlite3.Error as error:
                raise self._translated(error) from error
        found: list[Row] = []
        for cursor in self._each(name, keys, rest):
            found += cursor
        return found

    def write(self, name: str, args: Sequence[Any] = ()) -> int:
        try:
            return self._db.execute(self._sql[name], args).rowcount
        except sqlite3.Error as error:
            raise self._translated(error) from error

    def write_within(self, name: str, keys: Sequence[Any], *rest: Any) -> int:
        return sum(cursor.rowcount for cursor in self._each(name, keys, rest))

    def many(self, name: str, rows: Iterable[Sequence[Any]]) -> None:
        try:
            self._db.executemany(self._sql[name], rows)
        except sqlite3.Error as error:
            raise self._translated(error) from error

    def begin(self) -> None:
        self.statement("BEGIN IMMEDIATE")

    begin_alone = begin

    def commit(self) -> None:
        self.statement("COMMIT")

    def rollback(self) -> None:
        # A full disk ends the transaction by itself.
        if self.in_transaction:
            self.statement("ROLLBACK")

    def has_schema(self) -> bool:
        try:
            return bool(self._db.execute("SELECT 1 FROM sqlite_master WHERE name = 'meta'").fetchall())
        except sqlite3.Error as error:
            raise self._translated(error) from error

    def statement(self, sql: str) -> None:
        try:
            self._db.execute(sql)
        except sqlite3.Error as error:
            raise self._translated(error) from error

    def changed(self) -> object:
        try:
            return self._db.execute("PRAGMA data_version").fetchone()[0]
        except sqlite3.Error as error:
            raise self._translated(error) from error

    def reconnect(self, patience: float) -> None:
        """A file does not go away."""
        self.rollback()

    def vacuum(self) -> None:
        self.statement("VACUUM")
        self.statement("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        try:
            self._db.close()
        except sqlite3.Error as error:
            raise self._translated(error) from error

    def _each(self, name: str, keys: Sequence[Any], rest: tuple[Any, ...]) -> Iterator[sqlite3.Cursor]:
        before, _, after = self._sql[name].partition("IN (*)")
        for start in range(0, len(keys), CHUNK):
            chunk = [*keys[start : start + CHUNK]]
            # Filled up to a power of two: so there are few different statements, and each is parsed once.
            chunk += chunk[-1:] * ((1 << (len(chunk) - 1).bit_length()) - len(chunk))
            sql = f"{before}IN ({','.join('?' * len(chunk))}){after}"
            try:
                yield self._db.execute(sql, (*chunk, *rest))
            except sqlite3.Error as error:
                raise self._translated(error) from error

    def _open(self, folder: str) -> sqlite3.Connection:
        if not os.path.exists(self.where):
            self._make(folder)
        if self._is_empty():
            # Before SQLite sees it: it would take the file for a new one, and remove the log beside it.
            raise base.damaged(self.where, "the file is empty, 0 bytes: what was recorded is no longer in it")
        try:
            return self._connected(self.where)
        except sqlite3.Error as error:
            if _primary(error) not in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
                raise self._translated(error) from error
            first = error
        # The files beside the database cannot be made. Reading is possible if they are there already, or if everything
        # has been written back into the one file: then SQLite must be told that nobody will change it under our eyes.
        from urllib.parse import quote

        forms = ["mode=ro"]
        if not os.path.exists(f"{self.where}-wal") or not os.path.getsize(f"{self.where}-wal"):
            forms.append("immutable=1")
        for form in forms:
            try:
                return self._connected(f"file:{quote(os.path.abspath(self.where))}?{form}")
            except sqlite3.Error:
                continue
        raise self._translated(first) from first

    def _make(self, folder: str) -> None:
        try:
            rights.make_home(folder)
            ignore = os.path.join(folder, ".gitignore")
            if not os.path.exists(ignore):
                with open(ignore, "w", encoding="utf-8", opener=rights.opener) as file:
                    file.write("*\n")
            self._make_file(f"{self.where}.{os.getpid()}.{os.urandom(4).hex()}")
        except OSError as error:
            raise self._of_system(error) from error
        except sqlite3.Error as error:
            raise self._translated(error) from error

    def _make_file(self, scratch: str) -> None:
        """A new database, with a first page and in its mode before it gets its name: nobody ever sees an empty one."""
        try:
            with open(scratch, "wb", opener=rights.opener):
                pass
            db = sqlite3.connect(scratch, isolation_level=None)
            try:
                db.execute("PRAGMA synchronous = OFF")
                db.execute("PRAGMA journal_mode = WAL").fetchall()
            finally:
                db.close()
            try:
                os.link(scratch, self.where)
            except FileExistsError:
                return  # another process was faster
            except OSError:  # a file system without links
                if not os.path.exists(self.where):
                    os.rename(scratch, self.where)
        finally:
            with contextlib.suppress(OSError):
                os.unlink(scratch)

    def _is_empty(self) -> bool:
        try:
            return os.path.getsize(self.where) == 0
        except OSError:
            return False

    def _connected(self, path: str) -> sqlite3.Connection:
        db = sqlite3.connect(
            path, timeout=self._busy, isolation_level=None, cached_statements=200, uri=path.startswith("file:")
        )
        try:
            # Reading the mode reads the file: whatever is wrong with it shows here.
            if db.execute("PRAGMA journal_mode").fetchone()[0] != "wal" and not path.startswith("file:"):
                self._to_wal(db)
            # NORMAL: a power cut may take the last commits, never the order or the whole.
            db.execute("PRAGMA synchronous = NORMAL")
            # Keys are digests, so results go everywhere in their table: what is not in the cache is read again for each.
            db.execute("PRAGMA cache_size = -131072")
            db.execute("PRAGMA wal_autocheckpoint = 8000")
            db.execute("PRAGMA temp_store = MEMORY")
            # Opens the log and its index, too.
            db.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()
        except BaseException:
            db.close()
            raise
        return db

    def _to_wal(self, db: sqlite3.Connection) -> None:
        # Several processes may open a new store at once; here SQLite says "busy" without waiting.
        until = time.monotonic() + self._busy
        while True:
            try:
                db.execute("PRAGMA journal_mode = WAL").fetchall()
                return
            except sqlite3.OperationalError as error:
                if _primary(error) == sqlite3.SQLITE_READONLY:
                    return  # then it is only read, in whatever mode it is
                if _primary(error) != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                    raise
            time.sleep(0.005)

    def _translated(self, error: sqlite3.Error) -> StoreError:
        said, code = str(error), _primary(error)
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            return base.damaged(self.where, said)
        if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
            return base.read_only(self.where, said)
        if code == sqlite3.SQLITE_FULL or (code == sqlite3.SQLITE_IOERR and self._no_space()):
            return base.full(self.where)
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return base.locked(self.where, self._busy)
        if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR):
            if self._no_space():
                return base.full(self.where)
            return base.unreachable(self.where, said)
        return base.refused(self.where, said)

    def _of_system(self, error: OSError) -> StoreError:
        said = error.strerror or str(error)
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            return base.read_only(self.where, said)
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return base.full(self.where)
        return base.unreachable(self.where, said)

    def _no_space(self) -> bool:
        """SQLite says "I/O error" when there is no room for the index of its log."""
        try:
            there = os.statvfs(os.path.dirname(self.where) or ".")
        except OSError:
            return False
        return there.f_bavail * there.f_frsize < 1 << 16


def _primary(error: sqlite3.Error) -> int:
    """SQLite's code without its details; 0 for what Python's own module complains about."""
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF
