"""What a round has to know of a machine: the states that it may visit, without what is inside them. Called by machine, and by tests of rounds."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from penstock.formats.asl.walk import maps

_STAYS: Final = ("Task", "Parallel", "Map", "Wait")
"""States at which a walk can be between two rounds."""
_INSIDE: Final = ("Branches", "ItemProcessor", "Iterator", "Comment")


def places(machine: Mapping[str, Any]) -> dict[str, int]:
    """A number for each state at which a walk can be between two rounds; 0 is before the first state."""
    stays = (name for name, state in machine["States"].items() if state["Type"] in _STAYS)
    return {str(name): number for number, name in enumerate(stays, 1)}


def within_reach(machine: Mapping[str, Any], rows: Collection[str], first: bool) -> set[str]:
    """What one round may visit that goes on from one of these states, or from the start: all up to the next states that work or wait."""
    states = machine["States"]
    found = set(rows)
    ahead = [target for name in rows for target in _targets(states[name])]
    if first:
        ahead.append(machine["StartAt"])
    while ahead:
        name = ahead.pop()
        if name in found:
            continue
        found.add(name)
        state = states[name]
        # What is asked of a state that works may be wrong: then its Catch is the way on.
        ahead += _caught(state) if state["Type"] in _STAYS else _targets(state)
    return found


def _targets(state: Mapping[str, Any]) -> Iterator[str]:
    for field in ("Next", "Default"):
        if field in state:
            yield state[field]
    for rule in state.get("Choices", ()):
        yield rule["Next"]
    yield from _caught(state)


def _caught(state: Mapping[str, Any]) -> Iterator[str]:
    for rule in state.get("Catch", ()):
        yield rule["Next"]


def outline(
    machine: Mapping[str, Any], numbers: Mapping[str, int], only: Collection[str] | None = None
) -> dict[str, Any]:
    """The machine, or `only` these states of it, without what is inside its states, which is walked by itself. `numbers`: its places."""
    states = {}
    for name in machine["States"] if only is None else sorted(only):
        state = machine["States"][name]
        kept = {key: value for key, value in state.items() if key not in _INSIDE}
        if "Branches" in state:
            kept["Branches"] = [heading(branch) for branch in state["Branches"]]
        if state["Type"] == "Map":
            kept["ItemProcessor"] = heading(maps.processor(state))
        states[name] = kept
    around = {key: value for key, value in machine.items() if key != "Comment"}
    known = {name: numbers[name] for name in states if name in numbers}
    return {**around, "States": states, "Places": known}


def heading(machine: Mapping[str, Any]) -> dict[str, Any]:
    """Where it starts, and in which language."""
    return {key: machine[key] for key in ("StartAt", "QueryLanguage", "ProcessorConfig") if key in machine}
