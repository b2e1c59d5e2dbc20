"""How many commands to queue ahead, by how long they took lately. Called by process.

While commands are short, the backend keeps some queued, so that no processor waits while the engine records the end of another.
"""

from __future__ import annotations

from typing import Any

from penstock.graph.model import Action, Container, Script

_SHORT = 0.02
"""Seconds. Commands that take less are queued ahead …"""
_AHEAD = 0.01
"""… for about this long, …"""
_MOST = 16
"""… but no more than this for each processor."""
_KNOWN = 1000


class Pacing:
    """Averages of the seconds that commands took, of all of them and by command."""

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs
        self._average = 1.0
        self._averages: dict[Any, float] = {}

    def room(self) -> int:
        """How many attempts to have, running and queued."""
        if self._average >= _SHORT:
            return self._jobs
        return self._jobs + self._jobs * min(_MOST, int(_AHEAD / (self._average + 0.0001)))

    def room_for(self, action: Action) -> int:
        """The same, for a command that is known to be short; for any other, as many as may run."""
        return self.room() if self._averages.get(_alike(action), 1.0) < _SHORT else self._jobs

    def measure(self, action: Action, seconds: float) -> None:
        self._average += (seconds - self._average) * 0.3
        key = _alike(action)
        if len(self._averages) > _KNOWN:
            self._averages.clear()
        before = self._averages.get(key, seconds)
        self._averages[key] = before + (seconds - before) * 0.3


def _alike(action: Action) -> Any:
    """Commands with the same text are expected to take the same time."""
    if isinstance(action, Container):
        key: Any = (action.command, action.args)
    elif isinstance(action, Script):
        key = (action.command, action.source)
    else:
        return None
    try:
        hash(key)
    except TypeError:
        return None
    return key
