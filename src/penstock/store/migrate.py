"""Brings a store to the schema that this version knows. Called by sql.open_store, every time: it must cost nothing when there
is nothing to do.

A migration is a file `migrations/NNNN_word.sql`. They only go forward, and are never changed once released.
"""

from __future__ import annotations

import os
import time

from penstock.store.drivers.base import Driver, newer

FOLDER = os.path.join(os.path.dirname(__file__), "migrations")
VERSION = "schema"


def known() -> list[str]:
    """The files, in order: the n-th brings schema n."""
    return sorted(name for name in os.listdir(FOLDER) if name.endswith(".sql"))


def migrate(db: Driver) -> None:
    files = known()
    found = version(db)
    if found == len(files):
        return
    if found > len(files):
        raise newer(db.where, found, len(files))
    db.begin_alone()
    try:
        # Others may have been faster while we waited.
        found = version(db)
        for name in files[found:]:
            with open(os.path.join(FOLDER, name), encoding="utf-8") as file:
                for statement in statements(file.read(), db.ddl):
                    db.statement(statement)
        if found < len(files):
            db.write("put_meta", (VERSION, str(len(files))))
        if not db.rows("meta", ("id",)):
            db.write("put_meta", ("id", os.urandom(16).hex()))
            db.write("put_meta", ("made", repr(time.time())))
        db.commit()
    except BaseException:
        db.rollback()
        raise
    if found > len(files):
        raise newer(db.where, found, len(files))


def version(db: Driver) -> int:
    if not db.has_schema():
        return 0
    rows = db.rows("meta", (VERSION,))
    return int(rows[0][0]) if rows else 0


def statements(text: str, words: dict[str, str]) -> list[str]:
    """The statements of a migration. A semicolon at the end of a line ends one; there are none inside texts."""
    for word, meaning in words.items():
        text = text.replace(word, meaning)
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("--")]
    return [statement for part in "\n".join(lines).split(";\n") if (statement := part.strip().rstrip(";"))]
