"""What the steps of a state machine call where they run: the clock, the files and the functions that its pure walk has not. Named as
functions of steps by formats.asl.read; called by workers."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from penstock.formats.asl.walk import rounds
from penstock.formats.asl.walk.walker import MachineRun


class StateMachineFailed(Exception):
    """The machine has ended in a failure: its error and cause."""


def begin(definition: dict[str, Any], name: str, given: Any, run: str, created: str) -> dict[str, Any]:
    """The walk before its first round."""
    return rounds.first(definition, given, MachineRun(run, run, created, name, name))


def turn(definition: dict[str, Any], walk: dict[str, Any], answers: dict[str, Any]) -> dict[str, Any]:
    """The walk after one more round. `answers`: of each state that works, {outcome, answer, error} of its steps."""
    return rounds.turn(definition, walk, _answer(walk, answers), datetime.now(UTC))


def _answer(walk: Mapping[str, Any], answers: Mapping[str, Any]) -> Mapping[str, Any]:
    steps = answers.get(walk["at"]) or ()
    for one in reversed(steps):
        if one["outcome"] == "succeeded":
            return {"answer": one["answer"]}
        if one["outcome"] not in ("skipped", "omitted"):
            return {"error": one["error"] or {"name": "States.TaskFailed", "message": one["outcome"]}}
    return {"answer": None}


def same(value: Any) -> Any:
    """The value itself: for steps that only say that something is so."""
    return value


def finish(walk: dict[str, Any]) -> Any:
    """The output of the machine. Raises StateMachineFailed."""
    end = walk["end"]
    if end["status"] != "SUCCEEDED":
        raise StateMachineFailed(f"{end['error']}: {end['cause']}" if end["cause"] else f"{end['error']}")
    return end["output"]


def call(target: str, payload: Any) -> Any:
    """`module:function`, called with the payload. Modules of the folder that the run was started in are found (see the loader)."""
    module, _, name = target.partition(":")
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found(payload)


def read_file(folder: str, parameters: dict[str, Any]) -> str:
    """The object that an ItemReader names, from a folder of buckets. Raises OSError."""
    base = Path(folder).resolve()
    bucket, key = str(parameters.get("Bucket", "")), str(parameters.get("Key", ""))
    for path in (base / bucket / key, base / key):
        if path.resolve().is_relative_to(base) and path.is_file():
            return path.read_text(encoding="utf-8-sig")
    raise FileNotFoundError(f"there is no {key!r} in {folder}")
