"""What tasks print, while they print it. Called by `penstock logs -f`.

Several tasks share the log file of their worker, and where one ends is known only once its end is recorded. So of a task that runs only
what was there at the previous poll is shown: if the task had ended by then, that would be recorded by now.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Final

from penstock.service import following
from penstock.service.following import RunFollower
from penstock.service.home_files import LogPiece
from penstock.service.logs import LogFilter, lines_of
from penstock.service.run_records import workflow_of
from penstock.service.stores import home_of
from penstock.service.task_states import BAD, ENDED
from penstock.service.views.outline import Outline
from penstock.service.views.tallies import TallyReader
from penstock.service.views.tasks import tasks
from penstock.settings import Settings
from penstock.store.records import RunRecord, TaskRow
from penstock.store.sql import Store

ELSEWHERE: Final = 0.5
"""Seconds between two polls of a server."""
_Attempt = tuple[str, int]
"""(task, attempt)"""


class LogTail:
    """`path`: a step or task, or "" for the whole run. `failed`: only tasks that failed."""

    def __init__(
        self, store: Store, run: RunRecord, path: str, failed: bool, settings: Settings, chosen: LogFilter
    ) -> None:
        self.store = store
        self.path = path
        self.failed = failed
        self.chosen = chosen
        self._home = home_of(settings)
        self._pause = ELSEWHERE if settings.server else following.POLL
        self.follower = RunFollower(store, run)
        self._at: dict[_Attempt, dict[str, int]] = {}
        """-> file -> how far it has been read."""
        self._rest: dict[_Attempt, bytes] = {}
        """-> the beginning of a line."""
        self._sizes: Mapping[str, int] = {}
        """File -> its size at the previous poll."""
        self._rows: list[TaskRow] = []
        self._done: set[_Attempt] = set()

    @property
    def one_task(self) -> bool:
        return bool(self.path) and self.store.runs.task(self.follower.run.number, self.path) is not None

    def follow(self) -> Iterator[tuple[str, list[str]]]:
        """(task, lines), also of tasks that start later. Ends with the run, or with the step or task that `path` names."""
        self._rows = self._read()
        self._sizes = self._measure()
        first, over, last = True, False, False
        while True:
            sizes = self._measure()
            news = self.follower.news()
            if news:
                self._rows = self._read()
                over = bool(self.path) and self._path_over()
            for row, lines in self._new_lines():
                if first:
                    lines = self.chosen.tail(lines)
                if lines:
                    yield row.task, lines
            self._sizes, first = sizes, False
            if over or self.follower.over:
                if last or not news:
                    return
                last = True  # one more round after the last news; others may write without end
            time.sleep(self._pause)

    def _read(self) -> list[TaskRow]:
        rows = tasks(self.store, self.follower.run, self.path, states=BAD if self.failed else None)
        return [row for row in rows if row.info.get("log") and (row.task, row.attempt) not in self._done]

    def _path_over(self) -> bool:
        row = self.store.runs.task(self.follower.run.number, self.path)
        if row is not None and row.state in ENDED:
            return True
        reader = TallyReader(self.store, self.follower.run)
        reader.read()
        outline = Outline(workflow_of(self.store, self.follower.run))
        outline.measure(reader.tallies, self.follower.run.state)
        node = outline.by_path.get(self.path)
        return node is not None and node.over

    def _measure(self) -> Mapping[str, int]:
        names = {part[0] for row in self._rows for part in row.info["log"] if part[2] is None}
        return self._home.sizes(sorted(names)) if names else {}

    def _new_lines(self) -> Iterator[tuple[TaskRow, list[str]]]:
        """What has been printed since the last time, of each task."""
        rows = [row for row in self._rows if (row.task, row.attempt) not in self._done]
        pieces = [self._pieces(row) for row in rows]
        wanted = [piece for each in pieces for piece in each if piece.end is None or piece.end > piece.start]
        found = dict(zip(wanted, self._home.read(wanted), strict=True)) if wanted else {}
        for row, each in zip(rows, pieces, strict=True):
            which = row.task, row.attempt
            data = self._rest.pop(which, b"")
            for piece in each:
                new = found.get(piece)
                if new is not None:
                    self._at.setdefault(which, {})[piece.name] = piece.start + len(new)
                    data += new
            if row.state in ENDED:
                self._done.add(which)
                whole, rest = data, b""
            else:
                whole, line_end, rest = data.rpartition(b"\n")
                whole += line_end
            if rest:
                self._rest[which] = rest
            yield row, self.chosen.matching(lines_of(whole.decode("utf-8", "replace"))) if whole else []

    def _pieces(self, row: TaskRow) -> list[LogPiece]:
        at, ended = self._at.get((row.task, row.attempt), {}), row.state in ENDED
        found = []
        for name, start, end in row.info["log"]:
            upto = end if end is not None else None if ended else self._sizes.get(name, 0)
            begin = at.get(name, start)
            found.append(LogPiece(name, begin, upto))
        return found
