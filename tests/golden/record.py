"""What a store says of its runs, as text that is the same each time. Called by stage, for the golden logs.

The store is read with sqlite3 and nothing else, so that what is compared is what any tool would find in the file. All of it is
kept as it is, but for what differs from one day and machine to the next:

    times, lengths of time   left out, or "#". Those of the virtual clock are kept, as seconds since it began
    processes and engines    a pid is "#", engines are numbered in the order in which they took runs
    folders, ports, the user `<here>` is the folder of the case; a case may name more
    logs of workers          which worker it was is left out, and where in its file: the length is kept
    tracebacks               files without their folders, no numbers of lines
    bundles                  the zip of the author's code has absolute paths in it: `<bundle>`

Digests and keys are not among them: whoever has results in a store wants to find them again.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

VIRTUAL = 1_000_000_000.0
"""Where the virtual clock of penstock.testing begins, in 2001. What is later than this by years was written by a real one."""
_YEAR = 366 * 86400.0
_LENGTHS = {"seconds", "waited", "cpu_seconds"}


def is_virtual(at: float | None) -> bool:
    return at is not None and VIRTUAL <= at < VIRTUAL + _YEAR


class Record:
    """One reading of a store."""

    def __init__(
        self, home: Path, names: Mapping[str, str], by_task: bool = False, without: Collection[str] = ()
    ) -> None:
        self.home = home
        self.by_task = by_task
        """Where the order between tasks is not determined: the events of each task by themselves."""
        self.without = without
        """Fields that are not compared."""
        self._names = dict(names)
        self._db = sqlite3.connect(f"file:{home / 'state.db'}?mode=ro", uri=True, timeout=30)
        self._db.row_factory = sqlite3.Row

    def __enter__(self) -> Record:
        return self

    def __exit__(self, *_: object) -> None:
        self._db.close()

    def rows(self, sql: str, *values: Any) -> list[sqlite3.Row]:
        return self._db.execute(sql, values).fetchall()

    # -- all of it ----------------------------------------------------------------------------------------------------

    def whole(self) -> dict[str, Any]:
        self._db.execute("BEGIN")  # one moment
        self._number_engines()
        found: dict[str, Any] = {"runs": [self._run(row) for row in self.rows("SELECT * FROM runs ORDER BY number")]}
        found["results"] = [
            {"of": f"{row['id']}/{row['task']}", "key": row["key"], "outputs": self._data(row["outputs"])}
            for row in self.rows(
                "SELECT results.*, runs.id FROM results LEFT JOIN runs ON results.run = runs.number ORDER BY results.run, task, key"
            )
        ]
        return found | self.held()

    def held(self) -> dict[str, Any]:
        """What runs hold or wait for; what is left behind if it is the end."""
        workloads = [
            {"key": row["key"], "state": row["state"], **self._data(row["document"])}
            for row in self.rows("SELECT * FROM workloads ORDER BY key")
        ]
        found = {
            "workloads": workloads,
            "leases": self._plain("SELECT key, run, task FROM leases ORDER BY run, task"),
            "waiters": self._plain("SELECT key, run, task, failure FROM waiters ORDER BY run, task"),
            "locks": self._plain("SELECT name, run, task, held, most FROM locks ORDER BY name, held DESC, run, task"),
            "requests": self._plain("SELECT run, verb, data FROM requests ORDER BY number"),
            "outbox": self._plain("SELECT run, kind, data, state FROM outbox ORDER BY number"),
        }
        return {name: rows for name, rows in found.items() if rows}

    def look(self, note: str) -> dict[str, Any]:
        """How things stand in the midst of a case, at a moment that the case has made sure of."""
        self._db.execute("BEGIN")
        self._number_engines()
        states = {
            f"{row['id']}/{row['task']}": row["state"]
            for row in self.rows(
                "SELECT runs.id, task, tasks.state FROM tasks JOIN runs ON tasks.run = runs.number ORDER BY number, task"
            )
        }
        runs = {row["id"]: row["state"] for row in self.rows("SELECT id, state FROM runs ORDER BY number")}
        return {"look": note, "runs": runs, "tasks": states, **self.held()}

    # -- one run ------------------------------------------------------------------------------------------------------

    def _run(self, row: sqlite3.Row) -> dict[str, Any]:
        events = self.rows("SELECT * FROM events WHERE run = ? ORDER BY seq", row["number"])
        assert [event["seq"] for event in events] == list(range(1, row["seq"] + 1)), "numbers with gaps or doubles"
        said: Any = [self._event(event) for event in events]
        if self.by_task:
            said = {path: [one for one in said if one[1] == path] for path in sorted({one[1] for one in said})}
        found = {
            "run": row["id"],
            "workflow": row["workflow"],
            "state": row["state"],
            "digest": row["digest"],
            "params": self._data(row["params"]),
            "options": self._data(row["options"]),
            "counts": self._data(row["counts"]),
            "outputs": None if row["outputs"] is None else self._data(row["outputs"]),
            "engine": self._text(row["engine"] or ""),
            "events": said,
        }
        rows = self.rows("SELECT * FROM tasks WHERE run = ? ORDER BY task", row["number"])
        found["tasks"] = [self._task(one) for one in rows]
        return found

    def _event(self, row: sqlite3.Row) -> list[Any]:
        virtual = is_virtual(row["at"])
        data = json.loads(row["data"]) if row["data"] else {}
        keep = virtual or row["kind"] == "task.suspended"
        if row["kind"] == "run.retried":
            data["by"] = "<user>"
        said = [row["kind"], row["task"], self._value(data, keep)]
        return [*said, _since(row["at"])] if virtual else said

    def _task(self, row: sqlite3.Row) -> list[Any]:
        virtual = is_virtual(row["started"]) or is_virtual(row["ended"])
        said = [row["task"], row["step"], row["state"], row["attempt"], row["key"], self._data(row["info"], virtual)]
        times = [None if row[name] is None else _since(row[name]) if virtual else "#" for name in ("started", "ended")]
        return [*said, *times]

    # -- what differs from one time to the next -----------------------------------------------------------------------

    def _number_engines(self) -> None:
        ids = [
            json.loads(row["data"])["engine"]
            for row in self.rows("SELECT data FROM events WHERE kind = 'run.started' ORDER BY run, seq")
        ]
        for number, id in enumerate(dict.fromkeys(ids), 1):
            self._names.setdefault(id, f"<engine {number}>")

    def _plain(self, sql: str) -> list[dict[str, Any]]:
        return [{name: self._cell(name, row[name]) for name in row.keys()} for row in self.rows(sql)]  # noqa: SIM118

    def _cell(self, name: str, value: Any) -> Any:
        return self._data(value) if name in ("data", "failure") and value else self._value(value, True)

    def _data(self, text: str, keep: bool = False) -> Any:
        return self._value(json.loads(text), keep)

    def _value(self, value: Any, keep: bool, name: str = "") -> Any:
        """`keep`: times were made by the virtual clock, and are as good as any number."""
        if name == "log":
            return [self._log(part) for part in value]
        if name == "traceback":
            return _nowhere(value)
        if name in ("bundle", "user"):
            return f"<{name}>"
        if name == "pid":
            return "#"
        if isinstance(value, float) and VIRTUAL <= value < 10 * VIRTUAL:
            return _since(value) if is_virtual(value) else "#"
        if name in _LENGTHS and isinstance(value, int | float):
            return round(value, 3) if keep else "#"
        if isinstance(value, dict):
            kept = {key: one for key, one in value.items() if key not in self.without}
            return {self._text(key): self._value(one, keep, key) for key, one in kept.items()}
        if isinstance(value, list):
            return [self._value(one, keep) for one in value]
        return self._text(value) if isinstance(value, str) else value

    def _text(self, text: str) -> str:
        for name, stands_for in self._names.items():
            text = text.replace(name, stands_for)
        return text

    def _log(self, part: list[Any]) -> list[Any]:
        name, start, end = part
        shared = re.sub(r"worker-\d+", "worker", self._text(name))
        return [shared, start, end] if shared == name else [shared, None if end is None else end - start]


def _since(at: float) -> float:
    return round(at - VIRTUAL, 1)


def _nowhere(traceback: str) -> str:
    """Files without their folders, and no numbers of lines."""
    return re.sub(r'File "(?:[^"]*/)?([^"/]+)", line \d+', r'File "\1"', traceback)


def schema(home: Path) -> str:
    """The tables and indices of a store, as the database has them, and which version that is."""
    with Record(home, {}) as record:
        texts = [
            str(row["sql"]) for row in record.rows("SELECT sql FROM sqlite_master WHERE sql <> '' ORDER BY type, name")
        ]
        version = record.rows("SELECT value FROM meta WHERE name = 'schema'")
    return ";\n".join([*texts, *(f"-- version {row['value']}" for row in version)]) + "\n"


# -- as text ----------------------------------------------------------------------------------------------------------------


def written(found: dict[str, Any]) -> str:
    """As JSON with one line for each thing that happened, so that a difference can be read."""
    return "\n".join(_lines(found, {"runs": 3, "looks": 3}, 2)) + "\n"


def _lines(value: Any, depths: Mapping[str, int], depth: int, pad: str = "", before: str = "") -> Iterator[str]:
    """`depth`: so many levels are spread over lines, those below stand in one; `depths` by name, at the top."""
    if not depth or not value or not isinstance(value, dict | list):
        yield f"{pad}{before}{json.dumps(value, ensure_ascii=False)}"
        return
    named = isinstance(value, dict)
    yield f"{pad}{before}{'{' if named else '['}"
    for number, name in enumerate(value if named else range(len(value)), 1):
        below = depths.get(name, depth - 1) if named else depth - 1
        if name in ("params", "options", "counts", "outputs", "workloads"):
            below = min(below, int(name == "workloads"))
        elif name == "events":
            below += isinstance(value[name], dict)
        *some, end = _lines(value[name], {}, below, pad + " ", f"{json.dumps(name)}: " if named else "")
        yield from some
        yield end + ("," if number < len(value) else "")
    yield f"{pad}{'}' if named else ']'}"
