"""A store with a hundred thousand finished runs, written directly. For T3.7, and for bench."""

from __future__ import annotations

import sqlite3
import uuid
from pathlib import Path

from penstock.store.sql import open_store
from tests.integrator.payloads import send

RUNS = 100_000
DAY = 86_400.0
ERRORS = (
    "TimeoutError: timed out after 60 s",
    "OutOfMemory: more than 4Gi",
    "ValueError: no bbox",
    "failed: exit code 1",
)


def fill(home: Path, now: float, runs: int = RUNS) -> int:
    """Runs of ten workflows over ten days, a third of them failed in one of four ways; those of `ingest`, every second one, have a payload. Returns how many
    of `ingest` timed out within the last day."""
    with open_store(str(home)) as store:
        first = send(store, {"id": 0}).run
        assert first is not None
        assert store.runs.take(first.number, "e", None) and store.runs.release(first.number, "e", "cancelled")
    rows, origins, payloads, due = [], [], [], 0
    for number in range(2, runs + 1):
        workflow = "ingest" if number % 2 else f"other-{number % 10}"
        ended = now - (runs - number) * 10 * DAY / runs
        failed = number % 3 == 0
        error = ERRORS[number // 6 % 4] if failed else ""
        state = "failed" if failed else "succeeded"
        due += failed and error.startswith("Timeout") and workflow == "ingest" and ended >= now - DAY
        params = f'{{"payload":{{"id":{number}}}}}'
        rows.append((number, f"{workflow}-x{number}", workflow, first.digest, state, ended - 60, ended, params, error))
        if workflow == "ingest":
            id = str(uuid.UUID(int=number))
            origins.append((number, number, id))
            payloads.append((id, number, ended))
    db = sqlite3.connect(home / "state.db")
    with db:
        db.executemany(
            "INSERT INTO runs (number, id, workflow, digest, state, created, ended, seq, username, counts, params, options, error)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, 5, 'ann', '{}', ?, '{}', ?)",
            rows,
        )
        db.executemany("INSERT INTO origins VALUES (?, ?, 0, '', ?, 1)", origins)
        db.executemany("INSERT INTO payloads VALUES (?, 'ingest', '', 1, ?, 1, ?, NULL)", payloads)
        db.execute("UPDATE counters SET value = ? WHERE name = 'run'", (runs,))
        db.execute("UPDATE counters SET value = ? WHERE name = 'run ingest'", (runs,))
    db.close()
    return due
