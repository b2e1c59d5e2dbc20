"""What a command says of its own failure: JSON in the file $PENSTOCK_ERROR. Called by the backends that run commands.

    {"error": "BadScene", "message": "no bbox", "invalid": true}

`error` is the name that is recorded, `message` what is shown. `invalid`: its input is not valid, and it is of no use to try it again. A command that
has succeeded has not failed, whatever is in the file.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from typing import Any, Final

from penstock.backends.base import AttemptEnded
from penstock.graph.model import Outcome

ERROR: Final = "PENSTOCK_ERROR"
NAME: Final = "error.json"
LONGEST: Final = 65536
"""Bytes of the file that are read."""
INVALID: Final = "invalid"
"""The outcome that a function has which has raised InvalidInput."""
_KNOWN: Final = frozenset({"error", "message", "invalid"})


def read_error(ended: AttemptEnded, path: str, keep: bool = False) -> None:
    """Fills in what the file says, if there is one, and removes it."""
    with suppress(OSError):
        if os.path.islink(path):
            return
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW), "rb") as file:
            text = file.read(LONGEST + 1)
        if not keep:
            os.unlink(path)
        if ended.outcome is Outcome.FAILED and len(text) <= LONGEST:
            note_error(ended, text.decode("utf-8", "replace"))


def note_error(ended: AttemptEnded, text: str) -> bool:
    """Fills in what a text says that should be such JSON. False: it is not, and nothing has changed."""
    said = parsed(text)
    if said is None:
        return False
    name, message, ended.invalid = said
    ended.exception = name or ended.exception
    if name or message:
        ended.message = ": ".join(filter(None, (name, message)))
    return True


def parsed(text: str) -> tuple[str, str, bool] | None:
    """(name, message, invalid), or None."""
    if not text.lstrip().startswith("{"):
        return None
    try:
        found: Any = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or not found or not set(found) <= _KNOWN:
        return None
    name, message, invalid = found.get("error", ""), found.get("message", ""), found.get("invalid", False)
    if not isinstance(name, str) or not isinstance(message, str) or not isinstance(invalid, bool):
        return None
    return _line(name, 200), _line(message, 500), invalid


def outcome_of(word: str) -> tuple[Outcome, bool]:
    """Of a call of a function, as invoke has it: (outcome, is its input not valid)."""
    return (Outcome.FAILED, True) if word == INVALID else (Outcome(word), False)


def _line(text: str, longest: int) -> str:
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return first if len(first) <= longest else first[: longest - 1] + "…"
