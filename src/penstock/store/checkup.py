"""The file of an SQLite store, looked at from outside: is it whole, and what can be saved of it? Called by service.doctor, also for files
that sql.open_store refuses.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any
from urllib.parse import quote

from penstock.store.drivers.sqlite import FILE

BESIDE = ("", "-wal", "-shm")
"""The database is these files together."""


def faults(folder: str) -> list[str]:
    """What SQLite finds wrong with the file. Empty: it is whole."""
    path = os.path.join(folder, FILE)
    if os.path.getsize(path) == 0:
        return ["the file is empty, 0 bytes"]  # not opened: SQLite would remove the log beside it
    try:
        with closing(sqlite3.connect(f"file:{quote(os.path.abspath(path))}?mode=rw", uri=True)) as db:
            found = [str(row[0]) for row in db.execute("PRAGMA integrity_check(20)")]
            if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'meta'").fetchall():
                return ["it has no tables of Penstock"]
    except sqlite3.Error as error:
        return [str(error)]
    return [] if found == ["ok"] else found


def users(folder: str) -> list[int]:
    """Processes that have the file open, as far as this system tells us: it must not be exchanged under them."""
    path = os.path.realpath(os.path.join(folder, FILE))
    found = []
    for pid in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if pid.isdigit() and int(pid) != os.getpid():
            with suppress(OSError):
                if any(os.readlink(f"/proc/{pid}/fd/{fd}") == path for fd in os.listdir(f"/proc/{pid}/fd")):
                    found.append(int(pid))
    return found


def reindex(folder: str) -> None:
    """Makes all indexes anew from the tables. Harmless if that does not help."""
    with suppress(sqlite3.Error), closing(sqlite3.connect(os.path.join(folder, FILE))) as db:
        db.execute("REINDEX")


def set_aside(folder: str) -> str:
    """Gives the file another name, with what lies beside it. Returns the new path."""
    path = os.path.join(folder, FILE)
    number = 1
    while os.path.lexists(f"{path}.damaged-{number}"):
        number += 1
    for suffix in BESIDE:
        if os.path.exists(path + suffix):
            os.rename(path + suffix, f"{path}.damaged-{number}{suffix}")
    return f"{path}.damaged-{number}"


def salvage(old: str, folder: str) -> tuple[int, list[str]]:
    """Copies what can be read of a damaged file into the new, empty store of a folder. Returns the number of rows, and the runs that
    have lost events."""
    if os.path.getsize(old) == 0:
        return 0, []
    many = 0
    with closing(sqlite3.connect(old)) as source, closing(sqlite3.connect(os.path.join(folder, FILE))) as target:
        tables = target.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
        for (table,) in tables.fetchall():
            info = target.execute(f'PRAGMA table_info("{table}")').fetchall()
            columns = [row[1] for row in info if row[1] in _columns(source, table)]
            keys = [row[1] for row in sorted(info, key=lambda row: row[5]) if row[5]]
            if columns:
                places = ", ".join("?" * len(columns))
                put = f'INSERT OR IGNORE INTO "{table}" ({", ".join(columns)}) VALUES ({places})'
                if table == "meta":
                    put = put.replace("IGNORE", "REPLACE")  # the store keeps its id
                for row in _readable(source, table, columns, keys):
                    if table != "meta" or "schema" not in row:
                        many += target.execute(put, row).rowcount
        lost = target.execute(
            "SELECT id FROM runs WHERE seq <> (SELECT count(*) FROM events WHERE events.run = runs.number) ORDER BY number"
        ).fetchall()
        target.commit()
    return many, [str(row[0]) for row in lost]


def _columns(source: sqlite3.Connection, table: str) -> set[str]:
    try:
        return {row[1] for row in source.execute(f'PRAGMA table_info("{table}")')}
    except sqlite3.Error:
        return set()


def _readable(source: sqlite3.Connection, table: str, columns: list[str], keys: list[str]) -> Iterator[tuple[Any, ...]]:
    """From both ends up to the first page that cannot be read. Rows may come twice."""
    names = ", ".join(columns)
    for direction in ("", " DESC"):
        order = ", ".join(key + direction for key in keys)
        try:
            yield from source.execute(f'SELECT {names} FROM "{table}" ORDER BY {order}')
            return
        except sqlite3.Error:
            continue
