"""One level of a machine, a round at a time: between rounds it is JSON, so that an engine can keep it. Called by backends.states.

A round ends where the level needs something: the work of a Task, a time, its branches or items. What it needs is in the kept walk, for the
steps of the workflow to read (see read): `at` is the state, and `call`, `wait`, `items` or `read` say what for; `end` says how it ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from penstock.formats.asl.language.failures import RUNTIME, TIMEOUT, StateFailure
from penstock.formats.asl.language.scope import Scope, SeededChance
from penstock.formats.asl.language.times import as_text
from penstock.formats.asl.walk.dataflow import Visit
from penstock.formats.asl.walk.effects import CallTask, Inside, MachineEnded, ReadItems, Wake
from penstock.formats.asl.walk.executions import ended, input_of, started
from penstock.formats.asl.walk.walker import MachineRun, Walk, Walker

Kept = dict[str, Any]


def first(definition: Mapping[str, Any], given: Any, execution: MachineRun) -> Kept:
    """Before the first round of a whole machine."""
    walk = Walk(
        "0",
        definition,
        str(definition.get("QueryLanguage", "JSONPath")),
        execution.context(given),
        {},
        definition["StartAt"],
        given,
    )
    return _kept(walk, execution, 0)


def turn(definition: Mapping[str, Any], kept: Kept, answer: Mapping[str, Any], now: datetime) -> Kept:
    """The next round. `answer`: {answer: …} or {error: {name, message}} of what the last one asked for."""
    execution = MachineRun(**kept["execution"])
    rounds = kept["rounds"] + 1
    walk = _restored(definition, kept)
    walker = Walker(definition, execution, SeededChance(f"{execution.id}/{walk.id}/{rounds}"), one_level=True)
    if walk.visit is not None:
        walk.visit.scope = replace(walk.visit.scope, chance=walker.chance)
    walker.resume(walk)
    effects = walker.go_on(now) if not walk.waiting else _answered(walker, kept, walk.waiting, answer, now)
    asked = next((one for one in effects if isinstance(one, CallTask | ReadItems | Inside | Wake)), None)
    found = _kept(walk, execution, rounds)
    match asked:
        case CallTask():
            found |= {
                "at": asked.state,
                "call": unwrapped(asked.resource, asked.parameters),
                "token": asked.token or "",
                "timeout": asked.timeout,
                "heartbeat": asked.heartbeat,
            }
            child = definition.get("Machines", {}).get(asked.state)
            if child is not None:
                run = started(child, asked.parameters, f"{execution.id}/{walk.id}-{rounds}", now)
                found["items"] = [first(child, input_of(asked.parameters), run)]
        case ReadItems():
            found |= {"at": asked.state, "read": {"parameters": asked.parameters}}
        case Inside():
            found |= {"at": asked.state, "items": [_kept(one, execution, 0) for one in asked.walks]}
            found |= {"at_once": max(1, asked.at_once), "beyond": asked.beyond}
        case Wake():
            found["wait"] = as_text(asked.at)
    if walk.visit is not None:
        found["place"] = definition["Places"].get(walk.visit.name, 0)
    if walker.ended is not None:
        end = walker.ended
        found["end"] = {"status": end.status, "output": end.output, "error": end.error, "cause": end.cause}
        found["inner"] = {}
    return found


def _answered(walker: Walker, kept: Kept, id: str, answer: Mapping[str, Any], now: datetime) -> list[Any]:
    if kept["wait"]:
        return walker.woken(id, now)
    if kept["at"] in walker.definition.get("Machines", {}):
        resource = str(walker.definition["States"][kept["at"]]["Resource"])
        told = ended(resource, kept["items"][0]["execution"], kept["call"], answer, now)
        return walker.failed(id, told, now) if isinstance(told, StateFailure) else walker.answered(id, told, now)
    if answer.get("error"):
        failure = _failure(answer["error"])
        if kept["token"] and failure.error == TIMEOUT:
            failure = StateFailure(TIMEOUT, "")  # nobody has answered
        return walker.failed(id, failure, now)
    found = answer.get("answer")
    if kept["read"] is not None:
        return walker.items_read(id, found, now)
    if kept["items"] is not None:
        ends = [MachineEnded(**one) for one in found or ()]
        return walker.inside_ended(id, ends, len(kept["items"]), now)
    resource = str(walker.definition["States"][kept["at"]].get("Resource", ""))
    return walker.answered(id, wrapped(resource, found), now)


def _failure(error: Mapping[str, Any]) -> StateFailure:
    name = str(error.get("name") or "States.TaskFailed")
    if not name.startswith("States."):
        name = name.rpartition(".")[2]  # an exception is known by its class, without the module
    names = {"TimeoutError": TIMEOUT, "failed": "States.TaskFailed", "errored": "States.TaskFailed"}
    return StateFailure(names.get(name, name), error.get("message", ""))


def unwrapped(resource: str, parameters: Any) -> Any:
    """What the bound function is called with: of lambda:invoke its Payload."""
    invoked = ":lambda:invoke" in resource and isinstance(parameters, dict)
    return parameters.get("Payload", {}) if invoked else parameters


def wrapped(resource: str, answer: Any) -> Any:
    """What the state takes for the answer: of lambda:invoke the Payload and the state of the call."""
    if ":lambda:invoke" not in resource or ".waitForTaskToken" in resource:
        return answer
    return {"ExecutedVersion": "$LATEST", "Payload": answer, "StatusCode": 200}


def _kept(walk: Walk, execution: MachineRun, rounds: int) -> Kept:
    visit = walk.visit
    inner = {
        "id": walk.id,
        "language": walk.language,
        "context": walk.context,
        "variables": walk.variables,
        "next": walk.next,
        "raw": walk.raw,
        "used": {str(at): count for at, count in walk.used.items()},
        "retried": walk.retried,
        "waiting": walk.waiting,
        "visit": None if visit is None else visit.name,
        "seen": None if visit is None else visit.scope.context,
    }
    asked = {
        "id": execution.id,
        "name": execution.name,
        "started": execution.started,
        "machine_id": execution.machine_id,
        "machine": execution.machine,
        "role": execution.role,
    }
    empty: Kept = {
        "at": "",
        "place": 0,
        "wait": "",
        "call": None,
        "read": None,
        "items": None,
        "at_once": 1,
        "beyond": 0,
        "timeout": None,
        "token": "",
        "heartbeat": None,
        "end": None,
    }
    return {**empty, "inner": inner, "execution": asked, "rounds": rounds}


def _restored(definition: Mapping[str, Any], kept: Kept) -> Walk:
    inner = kept["inner"]
    if not inner:
        raise StateFailure(RUNTIME, "the machine has ended")
    walk = Walk(
        inner["id"],
        definition,
        inner["language"],
        inner["context"],
        dict(inner["variables"]),
        inner["next"],
        inner["raw"],
        used={int(at): count for at, count in inner["used"].items()},
        retried=inner["retried"],
        waiting=inner["waiting"],
    )
    if inner["visit"] is not None:
        state = definition["States"][inner["visit"]]
        language = str(state.get("QueryLanguage", walk.language))
        scope = Scope(inner["seen"], walk.variables)
        walk.visit = Visit(inner["visit"], state, language, walk.raw, scope)
    return walk
