"""A definition: its states, where they lead, and what is inside them. Called by read and by the tests of machines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.errors import instead, known_are, nearest
from penstock.formats.asl.check import values
from penstock.formats.asl.check.fields import KINDS, LANGUAGES, MACHINE
from penstock.formats.asl.check.findings import MISSING, STRUCTURE, Finding, Findings
from penstock.formats.asl.check.states import check_state
from penstock.formats.asl.check.values import Place

LONGEST_NAME: Final = 80
DEEPEST: Final = 30
"""Machines inside machines."""


@dataclass(slots=True)
class _Check:
    found: Findings = field(default_factory=Findings)
    names: dict[str, Place] = field(default_factory=dict)
    express: bool = False


def check(definition: Any, express: bool = False) -> list[Finding]:
    """Every problem of a definition."""
    made = _Check(express=express)
    _machine(made, definition, (), "JSONPath", 0)
    return made.found.found


def _machine(made: _Check, machine: Any, place: Place, outer: str, depth: int) -> None:
    found = made.found
    if not isinstance(machine, Mapping):
        found.add(STRUCTURE, place, "a machine is not an object", "give StartAt and States")
        return
    if depth > DEEPEST:
        found.add(STRUCTURE, place, f"machines nested deeper than {DEEPEST}", "use a machine of its own")
        return
    for name in machine:
        if name not in MACHINE:
            found.add(STRUCTURE, (*place, str(name)), f"a machine has no field {name}", instead(str(name), MACHINE))
    language = _language(found, machine, place, outer)
    if "TimeoutSeconds" in machine and not values.is_substituted(machine["TimeoutSeconds"]):
        values.number(found, machine["TimeoutSeconds"], 1, 99_999_999, (*place, "TimeoutSeconds"))
    states, start = machine.get("States"), machine.get("StartAt")
    if not isinstance(states, Mapping) or not states:
        here = (*place, "States") if "States" in machine else place
        found.add(STRUCTURE, here, "a machine needs States", "give at least one state")
    if not isinstance(start, str):
        found.add(
            STRUCTURE, (*place, "StartAt") if "StartAt" in machine else place, "a machine needs StartAt", "name a state"
        )
    if not isinstance(states, Mapping) or not states:
        return
    if isinstance(start, str) and start not in states:
        found.add(MISSING, (*place, "StartAt"), f"there is no state {start!r}", _one_of(start, states))
    for name, state in states.items():
        _state(made, str(name), state, (*place, "States", str(name)), language, depth)
    _ways(found, machine, states, place)


def _language(found: Findings, machine: Mapping[str, Any], place: Place, outer: str) -> str:
    if "QueryLanguage" not in machine:
        return outer
    values.one_of(found, machine["QueryLanguage"], LANGUAGES, (*place, "QueryLanguage"))
    return str(machine["QueryLanguage"])


def _state(made: _Check, name: str, state: Any, place: Place, language: str, depth: int) -> None:
    found = made.found
    if len(name) > LONGEST_NAME:
        found.add(STRUCTURE, place[:-1], f"the name {name[:40]!r}… has {len(name)} characters", "use at most 80")
    if name in made.names:
        message = f"there are two states {name!r}; a name is unique in the whole machine"
        found.add(STRUCTURE, place, message, "rename one of them")
    made.names[name] = place
    if not isinstance(state, Mapping):
        found.add(STRUCTURE, place, "a state is not an object", "give an object with Type")
        return
    spoken = state.get("QueryLanguage", language)
    known = "QueryLanguage" not in state or values.one_of(found, spoken, LANGUAGES, (*place, "QueryLanguage"))
    if known and spoken == "JSONPath" and language == "JSONata" and depth == 0:
        message = "QueryLanguage can not be JSONPath if it is JSONata for the whole machine"
        found.add(STRUCTURE, place, message, "remove it, or make JSONPath the language of the machine")
    if "Type" not in state or not values.one_of(found, state["Type"], KINDS, (*place, "Type")):
        if "Type" not in state:
            found.add(STRUCTURE, place, "a state without Type", f"use one of {', '.join(KINDS)}")
        return
    check_state(found, name, state, str(spoken), place, made.express)
    for inside, where in machines_in(state):
        _machine(made, inside, (*place, *where), language, depth + 1)


def machines_in(state: Mapping[str, Any]) -> Iterator[tuple[Any, Place]]:
    """(machine, place) of the branches, or of what handles an item."""
    branches = state.get("Branches")
    if state.get("Type") == "Parallel" and isinstance(branches, list):
        yield from ((branch, ("Branches", at)) for at, branch in enumerate(branches))
    if state.get("Type") == "Map":
        yield from (
            (state[name], (name,)) for name in ("ItemProcessor", "Iterator") if isinstance(state.get(name), Mapping)
        )


# -- where states lead ------------------------------------------------------------------------------------------------


def targets(state: Mapping[str, Any]) -> Iterator[tuple[str, Place]]:
    """(name, place) of every state that may follow."""
    for name in ("Next", "Default"):
        if isinstance(state.get(name), str):
            yield state[name], (name,)
    for name in ("Choices", "Catch"):
        given = state.get(name)
        for at, rule in enumerate(given if isinstance(given, list) else ()):
            if isinstance(rule, Mapping) and isinstance(rule.get("Next"), str):
                yield rule["Next"], (name, at, "Next")


def _ways(found: Findings, machine: Mapping[str, Any], states: Mapping[str, Any], place: Place) -> None:
    """Does every way lead to a state of this machine, every state have a way to it, and any way an end?"""
    for name, state in states.items():
        for target, where in targets(state) if isinstance(state, Mapping) else ():
            if target not in states:
                message = f"there is no state {target!r} in this machine; a branch cannot be left or entered"
                found.add(MISSING, (*place, "States", str(name), *where), message, _one_of(target, states))
    met = _reached(machine.get("StartAt"), states)
    for name in states:
        if met and name not in met:
            fix = "lead a way to it, or remove it"
            found.add(MISSING, (*place, "States", str(name)), f"no way leads to the state {name!r}", fix)
    if met and not any(_terminal(states[name]) for name in met):
        found.add(
            STRUCTURE, (*place, "States"), "the machine has no end", 'give a state "End": true, or a Succeed or Fail'
        )


def _one_of(name: str, states: Mapping[str, Any]) -> str:
    """The fix for a name that no state has."""
    known = [str(one) for one in states]
    return nearest(name, known).strip() or f"name a state that there is; {known_are(known)}"


def _reached(start: Any, states: Mapping[str, Any]) -> set[str]:
    met: set[str] = set()
    rest = [start] if isinstance(start, str) and start in states else []
    while rest:
        name = rest.pop()
        if name not in met:
            met.add(name)
            state = states[name]
            rest += [one for one, _ in targets(state) if one in states] if isinstance(state, Mapping) else []
    return met


def _terminal(state: Any) -> bool:
    return isinstance(state, Mapping) and (state.get("End") is True or state.get("Type") in ("Succeed", "Fail"))
