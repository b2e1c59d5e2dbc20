"""ETL: extract one file for each day, clean them side by side, load them into a database, report.

penstock run examples/etl.py -p 'days=["mon", "tue"]'    # a new day: only that day is extracted and cleaned again
"""

import csv
import random
import sqlite3
from contextlib import closing
from pathlib import Path

from penstock import task, workflow


@task(cpu=1, retry=3)
def extract(day: str) -> Path:
    rows = random.Random(day)
    path = Path(f"{day}.csv")
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([day, rows.choice(["ok", "", "late"]), rows.randint(1, 99)] for _ in range(200))
    return path


@task(cpu=1)
def clean(raw: Path) -> list[tuple[str, str, int]]:
    with raw.open(newline="") as file:
        return [(day, state, int(amount)) for day, state, amount in csv.reader(file) if state]


@task(cpu=1, locks=["warehouse"])  # one writer at a time, over all runs
def load(days: list[list[tuple[str, str, int]]]) -> Path:
    path = Path("warehouse.db")
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("CREATE TABLE sales (day TEXT, state TEXT, amount INT)")
        db.executemany("INSERT INTO sales VALUES (?, ?, ?)", [row for rows in days for row in rows])
    return path


@task
def report(warehouse: Path) -> list[tuple[str, int]]:
    with closing(sqlite3.connect(warehouse)) as db:
        return db.execute("SELECT day, SUM(amount) FROM sales GROUP BY day ORDER BY day").fetchall()


@workflow
def etl(days: list[str] = ["mon", "tue", "wed"]):  # noqa: B006
    return report(load([clean(extract(day)) for day in days]))
