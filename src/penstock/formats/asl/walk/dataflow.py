"""The data of one visit to a state: what it works on, what it hands on, what it assigns. In both query languages. Called by walker and inspect."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.formats.asl.language import choices, jsonata, payload
from penstock.formats.asl.language.failures import NO_CHOICE, QUERY, RUNTIME, StateFailure
from penstock.formats.asl.language.intrinsics import compact
from penstock.formats.asl.language.scope import Scope

JSONATA: Final = "JSONata"


@dataclass(slots=True)
class Visit:
    """One state, its raw input, and what it may read."""

    name: str
    state: Mapping[str, Any]
    language: str
    raw: Any
    scope: Scope
    seen: dict[str, Any] = field(default_factory=dict)
    """Every step of the processing, by the names that TestState gives them."""

    @property
    def kind(self) -> str:
        return str(self.state["Type"])

    @property
    def is_jsonata(self) -> bool:
        return self.language == JSONATA

    def states(self, **more: Any) -> dict[str, Any]:
        """`$states` of JSONata, without the context."""
        return {"input": self.raw, **more}


@dataclass(frozen=True, slots=True)
class Exit:
    """How a state is left."""

    output: Any
    assigned: Mapping[str, Any] = field(default_factory=dict)
    next: str | None = None
    """None: the machine has succeeded."""


def effective(visit: Visit) -> Any:
    """What the state works on: after InputPath and Parameters, or Arguments. Raises StateFailure."""
    visit.seen["input"] = visit.raw
    state = visit.state
    if visit.is_jsonata:
        if "Arguments" not in state:
            return visit.raw
        found = jsonata.fill(state["Arguments"], visit.states(), visit.scope, "Arguments")
        visit.seen["afterArguments"] = found
        return found
    found = payload.picked(state.get("InputPath", "$"), visit.raw, visit.scope)
    visit.seen["afterInputPath"] = found
    if visit.kind in ("Task", "Pass", "Parallel"):
        if "Parameters" in state:
            found = payload.fill(state["Parameters"], found, visit.scope)
        visit.seen["afterParameters"] = found
    return found


def leave(visit: Visit, result: Any, next_state: str | None, worked: bool = True) -> Exit:
    """What the state hands on. `worked`: is `result` the result of a task, branches or items, not just the input? Raises StateFailure."""
    state = visit.state
    if visit.is_jsonata:
        states = visit.states(result=result) if worked else visit.states()
        return _left_jsonata(visit, state, states, result if worked else visit.raw, next_state)
    if worked:
        visit.seen["result"] = result
    if "ResultSelector" in state:
        result = payload.fill(state["ResultSelector"], result, visit.scope)
    visit.seen["afterResultSelector"] = result
    assigned = payload.fill(state.get("Assign", {}), result, visit.scope)
    kept = visit.kind in ("Task", "Pass", "Parallel", "Map")
    output = payload.placed(state.get("ResultPath", "$"), visit.raw, result) if kept else result
    visit.seen["afterResultPath"] = output
    return Exit(payload.picked(state.get("OutputPath", "$"), output, visit.scope), assigned, next_state)


def _left_jsonata(
    visit: Visit, fields: Mapping[str, Any], states: dict[str, Any], default: Any, next_state: str | None
) -> Exit:
    assigned = jsonata.fill(fields.get("Assign", {}), states, visit.scope, "Assign")
    output = jsonata.fill(fields["Output"], states, visit.scope, "Output") if "Output" in fields else default
    return Exit(output, assigned, next_state)


def caught(visit: Visit, catcher: Mapping[str, Any], failure: StateFailure) -> Exit:
    """What a state hands on to the state that handles its failure. Raises StateFailure."""
    error = {"Error": failure.error, "Cause": failure.cause}
    if visit.is_jsonata:
        return _left_jsonata(visit, catcher, visit.states(errorOutput=error), error, catcher["Next"])
    assigned = payload.fill(catcher.get("Assign", {}), error, visit.scope)
    return Exit(payload.placed(catcher.get("ResultPath", "$"), visit.raw, error), assigned, catcher["Next"])


def choose(visit: Visit) -> Exit:
    """The way that a Choice takes. Raises StateFailure."""
    state = visit.state
    data = effective(visit)
    rule = next((rule for rule in state["Choices"] if _true(visit, rule, data)), None)
    target = state.get("Default") if rule is None else rule["Next"]
    if target is None:
        raise StateFailure(NO_CHOICE, f"Failed to transition out of the state {visit.name!r}: no rule is true")
    fields: Mapping[str, Any] = state if rule is None else rule
    if visit.is_jsonata:
        return _left_jsonata(visit, fields, visit.states(), visit.raw, target)
    assigned = payload.fill(fields.get("Assign", {}), data, visit.scope)
    return Exit(payload.picked(state.get("OutputPath", "$"), data, visit.scope), assigned, target)


def _true(visit: Visit, rule: Mapping[str, Any], data: Any) -> bool:
    if visit.is_jsonata:
        found = jsonata.typed(rule["Condition"], "boolean", visit.states(), visit.scope, "Condition")
        return bool(found)
    return choices.holds(rule, data, visit.scope)


def failed(visit: Visit) -> StateFailure:
    """What a Fail state fails with. Raises StateFailure if that cannot be evaluated."""
    return StateFailure(_said(visit, "Error"), _said(visit, "Cause"))


def _said(visit: Visit, name: str) -> str | None:
    state = visit.state
    visit.seen["input"] = visit.raw
    if visit.is_jsonata:
        if name not in state:
            return None
        return str(jsonata.typed(state[name], "string", visit.states(), visit.scope, name))
    visit.seen["afterInputPath"] = visit.raw
    path = f"{name}Path"
    if path not in state:
        return state.get(name)
    found = payload.value_of(state[path], visit.raw, visit.scope, path)
    if not isinstance(found, str):
        raise StateFailure(RUNTIME, f"The {path} field refers to a value that is not text: {state[path]}", path)
    return found


def number(visit: Visit, name: str, data: Any = None, whole: bool = True) -> int | float | None:
    """A field that is a number, an expression, or a path that leads to a number (or to text with one). Raises StateFailure."""
    state = visit.state
    if f"{name}Path" in state and not visit.is_jsonata:
        path = state[f"{name}Path"]
        found = payload.picked(path, visit.raw if data is None else data, visit.scope)
        value = as_number(found, whole)
        if value is None:
            shown = f'"{found}"' if isinstance(found, str) else f'"{compact(found)}"'
            wanted = "integer" if whole else "number"
            cause = f"The {name}Path field refers to value {shown} which is not a valid {wanted}: {path}"
            raise StateFailure(RUNTIME, cause, name)
        return value
    if name not in state:
        return None
    if visit.is_jsonata:
        kind = "integer" if whole else "number"
        found = jsonata.typed(state[name], kind, visit.states(), visit.scope, name)
        return found if isinstance(found, int | float) else None
    return as_number(state[name], whole)


def as_number(value: Any, whole: bool) -> int | float | None:
    """A number, or text that is one."""
    if isinstance(value, str):
        try:
            value = float(value) if not whole or "." in value else int(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value or abs(value) == float("inf"):
        return None
    if whole and isinstance(value, float):
        return int(value) if value.is_integer() else None
    return value


def in_state(visit: Visit, failure: StateFailure) -> StateFailure:
    """A failure of the language, with the name of the state in its cause."""
    if failure.error not in (RUNTIME, QUERY) or str(failure.cause).startswith("An error occurred while"):
        return failure
    cause = f"An error occurred while executing the state '{visit.name}'. {failure.cause}"
    return StateFailure(failure.error, cause, failure.where)
