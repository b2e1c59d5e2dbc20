"""The states of one level while they are written, and the names in a machine. Called by machine and steps."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

LONGEST_STATE: Final = 80
LONGEST_ROW: Final = 64
"""A function's name on AWS is no longer."""


@dataclass(slots=True)
class Names:
    """What is called how. State names are unique in a machine, rows of the table among all machines."""

    states: set[str] = field(default_factory=set)
    variables: set[str] = field(default_factory=lambda: {"states", "params", "workflow", "result"})

    def state(self, wanted: str) -> str:
        return unique(wanted or "state", self.states, LONGEST_STATE)

    def variable(self, wanted: str) -> str:
        base = re.sub(r"[^A-Za-z0-9_]+", "_", wanted).strip("_")
        return unique(base if base[:1].isalpha() else f"v_{base}", self.variables, LONGEST_STATE, "_")


def unique(wanted: str, taken: set[str], longest: int, dash: str = "-") -> str:
    found, number = wanted[:longest], 2
    while found in taken:
        more = f"{dash}{number}"
        found, number = wanted[: longest - len(more)] + more, number + 1
    taken.add(found)
    return found


class StateChain:
    """States that follow one another. What has no state to go to yet goes to the next one that is added."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self.states: dict[str, dict[str, Any]] = {}
        self.start = ""
        self.open: list[tuple[dict[str, Any], str]] = []
        """(state or rule, the field that says where it goes)"""
        self.assigned: list[str] = []
        """The variables that stand when its end is reached."""

    def add(self, name: str, state: dict[str, Any]) -> str:
        """The name that the state has got."""
        own = self.names.state(name)
        for holder, where in self.open:
            holder[where] = own
        self.start = self.start or own
        self.states[own] = state
        self.open = [] if state["Type"] in ("Choice", "Fail", "Succeed") else [(state, "Next")]
        return own

    def machine(self, name: str, output: Mapping[str, Any]) -> dict[str, Any]:
        """Ends it with this output."""
        self.add(name, {"Type": "Pass", "Output": dict(output), "End": True})
        return {"StartAt": self.start, "States": self.states}
