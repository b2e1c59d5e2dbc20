"""One state by itself: what it makes of an input and of an answer, with every step between. Called by tests of machines; as AWS's TestState."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from penstock.formats.asl.language.failures import RUNTIME, StateFailure
from penstock.formats.asl.language.scope import Scope, SeededChance
from penstock.formats.asl.walk import dataflow, maps, retries
from penstock.formats.asl.walk.dataflow import Exit, Visit
from penstock.formats.asl.walk.walker import wait_until

_NOW: Final = "2026-01-01T00:00:00.000Z"
_WORKS: Final = ("Task", "Parallel", "Map")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is tried."""

    definition: Mapping[str, Any]
    """One state, or a machine."""
    state: str | None = None
    """Which state of the machine, also inside Parallel and Map; None: the definition is the state."""
    input: Any = None
    result: Any = None
    """What its task, branches or items give."""
    failure: StateFailure | None = None
    """What they fail with, instead."""
    context: Mapping[str, Any] | None = None
    variables: Mapping[str, Any] = field(default_factory=dict)
    retries: int = 0
    """How often the rule of Retry that takes the failure was used."""
    items: Any = None
    """What an ItemReader reads."""


@dataclass(slots=True)
class Inspected:
    """SUCCEEDED, FAILED, RETRIABLE or CAUGHT_ERROR, and how it came to that."""

    status: str
    output: Any = None
    next: str | None = None
    failure: StateFailure | None = None
    seen: dict[str, Any] = field(default_factory=dict)


def inspect(request: Request) -> Inspected:
    """What the state does. Raises LookupError if the machine has no such state."""
    visit = _visit(request)
    if request.variables:
        visit.seen["variables"] = dict(request.variables)
    try:
        found = _run(visit, request)
    except StateFailure as failure:
        return _failed(visit, request, dataflow.in_state(visit, failure))
    return Inspected("SUCCEEDED", found.output, found.next, seen=_shown(visit))


def _visit(request: Request) -> Visit:
    definition, language = request.definition, str(request.definition.get("QueryLanguage", "JSONPath"))
    name = request.state or "StateName"
    if request.state is not None:
        known = {known: (state, spoken) for known, state, spoken in _states(definition, language)}
        if request.state not in known:
            raise LookupError(f"there is no state {request.state!r}")
        definition, language = known[request.state]
    context = request.context
    if context is None:
        context = _context(request, definition)
    scope = Scope(context, request.variables, SeededChance(name), lambda: _NOW)
    return Visit(name, definition, str(definition.get("QueryLanguage", language)), request.input, scope)


def _context(request: Request, state: Mapping[str, Any]) -> dict[str, Any]:
    here: dict[str, Any] = {"Name": "StateName", "EnteredTime": _NOW}
    if state.get("Type") in _WORKS:
        here["RetryCount"] = request.retries
    return {
        "Execution": {"Id": "run", "Input": request.input, "Name": "run", "RoleArn": None, "StartTime": _NOW},
        "StateMachine": {"Id": "machine", "Name": "machine"},
        "State": here,
    }


def _states(machine: Mapping[str, Any], language: str) -> Iterator[tuple[str, Mapping[str, Any], str]]:
    """(name, state, query language) of every state, also inside others."""
    for name, state in machine.get("States", {}).items():
        yield name, state, language
        inside = [*state.get("Branches", ()), maps.processor(state)]
        for one in inside:
            yield from _states(one, str(one.get("QueryLanguage", language)))


def _run(visit: Visit, request: Request) -> Exit:
    following = visit.state.get("Next")
    match visit.kind:
        case "Choice":
            return dataflow.choose(visit)
        case "Fail":
            raise dataflow.failed(visit)
        case "Wait":
            wait_until(visit, datetime(2026, 1, 1, tzinfo=UTC))
            return dataflow.leave(visit, dataflow.effective(visit), following, worked=False)
        case "Pass" | "Succeed":
            if "Result" in visit.state and not visit.is_jsonata:
                visit.seen["input"] = visit.raw
                return dataflow.leave(visit, visit.state["Result"], following)
            return dataflow.leave(visit, dataflow.effective(visit), following, worked=False)
        case "Map":
            plan = maps.plan(visit)
            visit.seen.setdefault("maxConcurrency", 0 if plan.at_once > 1 else plan.at_once)
            if request.items is not None or "ItemReader" not in visit.state:
                maps.items_of(visit, request.items)
        case _:
            dataflow.effective(visit)
    if request.failure is not None:
        raise request.failure
    found = dataflow.leave(visit, request.result, following)
    if visit.kind == "Task":
        visit.seen["result"] = request.result
    return found


def _failed(visit: Visit, request: Request, failure: StateFailure) -> Inspected:
    if visit.kind not in _WORKS or failure.error == RUNTIME:
        return Inspected("FAILED", failure=failure, seen=_shown(visit))
    rules = visit.state.get("Retry", ())
    at = retries.retrier_for(rules, failure)
    if at is not None:
        visit.seen["errorDetails"] = {"retryIndex": at}
        if retries.may_retry(rules[at], request.retries):
            wait = retries.delay(rules[at], request.retries, visit.scope.chance)
            visit.seen["errorDetails"] = {"retryBackoffIntervalSeconds": wait, "retryIndex": at}
            return Inspected("RETRIABLE", failure=failure, seen=_shown(visit))
    catchers = visit.state.get("Catch", ())
    at = retries.catcher_for(catchers, failure)
    if at is None:
        return Inspected("FAILED", failure=failure, seen=_shown(visit))
    visit.seen["errorDetails"] = {"catchIndex": at}
    try:
        found = dataflow.caught(visit, catchers[at], failure)
    except StateFailure as second:
        return Inspected("FAILED", failure=dataflow.in_state(visit, second), seen=_shown(visit))
    return Inspected("CAUGHT_ERROR", found.output, found.next, failure, _shown(visit))


_HIDDEN: Final = {"Parallel": ("afterInputPath", "afterParameters", "afterArguments", "result"), "Map": ("result",)}


def _shown(visit: Visit) -> dict[str, Any]:
    """What TestState shows of a kind of state."""
    hidden: tuple[str, ...] = _HIDDEN.get(visit.kind, ())
    if visit.kind in ("Choice", "Wait", "Succeed", "Fail"):
        hidden = ("afterResultSelector", "afterResultPath", "result", "afterParameters")
    return {name: value for name, value in visit.seen.items() if name not in hidden}
