"""Structured logs: one JSON line for each message, with the workflow, stage and Workload as fields; for people, in a terminal, one plain line. Used by watch and by the shell of the controller."""

from __future__ import annotations

import datetime
import json
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, TextIO

Level = Literal["info", "warning", "error"]
LEVELS: Final[Mapping[Level, int]] = {"info": 1, "warning": 2, "error": 3}
FIRST = ("workflow", "stage", "workload")
"""Fields that come before the others."""


class Log:
    """Fields that are bound go into each line. Thread-safe."""

    def __init__(
        self,
        out: TextIO | None = None,
        *,
        level: Level = "info",
        human: bool | None = None,
        clock: Callable[[], datetime.datetime] = lambda: datetime.datetime.now(datetime.UTC),
    ) -> None:
        self._out = out if out is not None else sys.stderr
        self._least = LEVELS[level]
        self._human = self._out.isatty() if human is None else human
        self._clock = clock
        self._fields: dict[str, Any] = {}
        self._lock = threading.Lock()

    def bind(self, **fields: Any) -> Log:
        """The same log, with these in each line."""
        other = Log.__new__(Log)
        other.__dict__.update(self.__dict__)
        other._fields = {**self._fields, **fields}
        return other

    def info(self, msg: str, **fields: Any) -> None:
        self._write("info", msg, fields)

    def warning(self, msg: str, **fields: Any) -> None:
        self._write("warning", msg, fields)

    def error(self, msg: str, **fields: Any) -> None:
        self._write("error", msg, fields)

    def _write(self, level: Level, msg: str, fields: Mapping[str, Any]) -> None:
        if LEVELS[level] < self._least:
            return
        line = self._line(level, msg, {**self._fields, **fields})
        with self._lock:
            try:
                self._out.write(line + "\n")
                self._out.flush()
            except (OSError, ValueError):
                pass  # nobody reads it any more; the work goes on

    def _line(self, level: Level, msg: str, fields: Mapping[str, Any]) -> str:
        ordered = {key: fields[key] for key in (*FIRST, *fields) if key in fields}
        error = ordered.get("error")
        if isinstance(error, BaseException):
            ordered["error"] = repr(error)
            if error.__traceback__ is not None:
                ordered["traceback"] = "".join(traceback.format_exception(error))
        now = self._clock()
        if not self._human:
            head = {"time": now.isoformat(timespec="milliseconds").replace("+00:00", "Z"), "level": level, "msg": msg}
            return json.dumps({**head, **ordered}, default=str, ensure_ascii=False)
        words = [now.astimezone().strftime("%H:%M:%S"), *([level.upper()] if level != "info" else []), msg]
        trace = ordered.pop("traceback", "")
        words += [f"{key}={_word(value)}" for key, value in ordered.items()]
        return "  ".join(words) + (f"\n{trace}".rstrip() if trace else "")


def _word(value: Any) -> str:
    text = " ".join(str(value).split())
    return json.dumps(text, ensure_ascii=False) if " " in text or not text else text
