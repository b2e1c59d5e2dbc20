"""Lines of logs on the terminal. Called by `penstock logs`."""

from __future__ import annotations

import json
from collections.abc import Sequence

from penstock.cli.ui import render

WIDEST = 40
"""Characters for the task's name before each line."""


class LogPrinter:
    """`alone`: all lines are from one task, whose name need not be shown."""

    def __init__(self, json_lines: bool, alone: bool, tasks: Sequence[str] = ()) -> None:
        self.json_lines = json_lines
        self._alone = alone
        self._width = min(max(map(len, tasks), default=0), WIDEST)

    def put(self, task: str, lines: Sequence[str]) -> None:
        """A terminal gets nothing that would move its cursor; a pipe gets the lines unchanged."""
        if self.json_lines:
            for line in lines:
                render.data(json.dumps({"task": task, "line": line}, ensure_ascii=False))
        elif not render.is_terminal():
            render.data("".join(f"{line}\n" if self._alone else f"{task}\t{line}\n" for line in lines), end="")
        else:
            self._width = max(self._width, min(len(task), WIDEST))
            head = "" if self._alone else render.paint(f"{task:<{self._width}} │ ", dim=True)
            render.data("".join(f"{head}{render.clean(line.expandtabs())}\n" for line in lines), end="")
