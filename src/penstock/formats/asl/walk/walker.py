"""A state machine that is being walked: it is told what happened and says what to do next. Driven by dry and by the engine's steps.

It has no clock and no chance of its own: times and a Chance are given. A Parallel or a Map has walks of its own inside, as Scopes in a
tree; all of them share one queue of scopes that may go on, so that neither a loop of a million rounds nor deep nesting recurses.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from penstock.formats.asl.language import jsonata, payload
from penstock.formats.asl.language.failures import QUERY, RUNTIME, TOLERANCE, StateFailure
from penstock.formats.asl.language.scope import Chance, Scope
from penstock.formats.asl.language.times import as_text, read_timestamp
from penstock.formats.asl.walk import dataflow, maps, retries
from penstock.formats.asl.walk.dataflow import Exit, Visit
from penstock.formats.asl.walk.effects import (
    CallTask,
    CancelCall,
    Effect,
    Entered,
    EvaluationFailed,
    Inside,
    Left,
    MachineEnded,
    ReadItems,
    Wake,
)

LONGEST_WAIT: Final = 2**31 - 1
"""Seconds."""
MOST_VISITS: Final = 5_000_000
"""A machine that visits more states than this without waiting for anything goes round in a circle."""
TOKEN: Final = ".waitForTaskToken"


@dataclass(frozen=True, slots=True)
class MachineRun:
    """What the context object says of a run."""

    id: str
    name: str
    started: str
    machine_id: str
    machine: str
    role: str = ""

    def context(self, given: Any) -> dict[str, Any]:
        return {
            "Execution": {
                "Id": self.id,
                "Input": given,
                "Name": self.name,
                "RoleArn": self.role,
                "StartTime": self.started,
                "RedriveCount": 0,
            },
            "StateMachine": {"Id": self.machine_id, "Name": self.machine},
        }


@dataclass(slots=True)
class Children:
    """The walks inside a Parallel or a Map."""

    inputs: list[tuple[Any, Mapping[str, Any]]]
    definitions: list[Mapping[str, Any]]
    plan: maps.MapPlan | None
    distributed: bool = False
    results: dict[int, Any] = field(default_factory=dict)
    started: int = 0
    failures: int = 0
    running: dict[int, Walk] = field(default_factory=dict)


@dataclass(slots=True)
class Walk:
    """One level: a machine, a branch or the handling of an item, and where it is."""

    id: str
    definition: Mapping[str, Any]
    language: str
    context: Mapping[str, Any]
    variables: dict[str, Any]
    next: str
    raw: Any
    parent: Walk | None = None
    index: int = 0
    traced: bool = True
    visit: Visit | None = None
    used: dict[int, int] = field(default_factory=dict)
    """How often each rule of Retry was used in this visit."""
    retried: int = 0
    children: Children | None = None
    waiting: str = ""
    """The id of the answer that it waits for."""
    over: bool = False


class Walker:
    """The whole tree."""

    def __init__(
        self, definition: Mapping[str, Any], execution: MachineRun, chance: Chance, one_level: bool = False
    ) -> None:
        """`one_level`: what is inside a Parallel or a Map is walked by others (see rounds)."""
        self.one_level = one_level
        self.definition = definition
        self.execution = execution
        self.chance = chance
        self.now: datetime | None = None
        self.ended: MachineEnded | None = None
        self._out: list[Effect] = []
        self._ready: deque[Walk] = deque()
        self._waiting: dict[str, Walk] = {}
        self._asked = 0

    # -- facts --------------------------------------------------------------------------------------------------------

    def start(self, given: Any, now: datetime) -> list[Effect]:
        language = str(self.definition.get("QueryLanguage", "JSONPath"))
        context = self.execution.context(given)
        root = Walk("0", self.definition, language, context, {}, self.definition["StartAt"], given)
        self._ready.append(root)
        return self._go_on(now)

    def answered(self, id: str, output: Any, now: datetime) -> list[Effect]:
        """A call has succeeded. An answer that nobody waits for is ignored."""
        walk = self._waiting.pop(id, None)
        if walk is not None and walk.visit is not None:
            walk.waiting = ""
            self.now = now
            self._try(walk, lambda visit: self._leave(walk, dataflow.leave(visit, output, visit.state.get("Next"))))
        return self._go_on(now)

    def failed(self, id: str, failure: StateFailure, now: datetime) -> list[Effect]:
        """A call, or the reading of items, has failed."""
        walk = self._waiting.pop(id, None)
        if walk is not None:
            walk.waiting = ""
            self.now = now
            self._failed(walk, failure)
        return self._go_on(now)

    def items_read(self, id: str, content: Any, now: datetime) -> list[Effect]:
        walk = self._waiting.pop(id, None)
        if walk is not None:
            walk.waiting = ""
            self.now = now
            self._try(walk, lambda visit: self._map(walk, visit, "" if content is None else content))
        return self._go_on(now)

    def inside_ended(self, id: str, ends: list[MachineEnded], total: int, now: datetime) -> list[Effect]:
        """All branches or items have ended, or enough of the `total`; of a walker of one level."""
        walk = self._waiting.pop(id, None)
        if walk is not None:
            walk.waiting = ""
            self.now = now
            self._try(walk, lambda visit: self._fold(walk, visit, ends, total))
        return self._go_on(now)

    def _fold(self, walk: Walk, visit: Visit, ends: list[MachineEnded], total: int) -> None:
        bad = [one for one in ends if one.status != "SUCCEEDED"]
        if bad and not (visit.kind == "Map" and maps.is_distributed(visit.state)):
            raise StateFailure(bad[0].error, bad[0].cause)
        if bad and maps.plan(visit).exceeded(len(bad), total):
            raise StateFailure(TOLERANCE, "The specified tolerated failure threshold was exceeded")
        results = [one.output for one in ends if one.status == "SUCCEEDED"]
        self._leave(walk, dataflow.leave(visit, self._written(visit, results), visit.state.get("Next")))

    def woken(self, id: str, now: datetime) -> list[Effect]:
        """A wait, or the wait before a retry, is over."""
        walk = self._waiting.pop(id, None)
        if walk is not None and walk.visit is not None:
            walk.waiting = ""
            self.now = now
            if walk.visit.kind == "Wait":
                self._try(walk, lambda visit: self._pass_on(walk, visit))
            else:
                self._ready.append(walk)  # again, from its raw input
        return self._go_on(now)

    def timed_out(self, now: datetime) -> list[Effect]:
        """The whole machine has taken too long."""
        if self.ended is None:
            for id in list(self._waiting):
                self._out.append(CancelCall(id))
            self._waiting.clear()
            self._ready.clear()
            self.ended = MachineEnded("TIMED_OUT", error="States.Timeout")
            self._out.append(self.ended)
        return self._go_on(now)

    def resume(self, walk: Walk) -> None:
        """Go on from a walk of one level that was kept: it waits for an answer, or may enter its next state."""
        if walk.waiting:
            self._waiting[walk.waiting] = walk
        else:
            self._ready.append(walk)

    def go_on(self, now: datetime) -> list[Effect]:
        """Without a new fact."""
        return self._go_on(now)

    # -- going on -----------------------------------------------------------------------------------------------------

    def _go_on(self, now: datetime) -> list[Effect]:
        self.now = now
        visited = 0
        while self._ready:
            walk = self._ready.popleft()
            if walk.over:
                continue
            visited += 1
            if visited > MOST_VISITS:
                raise StateFailure(RUNTIME, f"more than {MOST_VISITS} states without a wait or a task")
            self._enter(walk)
        out, self._out = self._out, []
        return out

    def _enter(self, walk: Walk) -> None:
        """Visit the next state, or this one again after a retry."""
        again = walk.visit is not None
        name = walk.visit.name if walk.visit is not None else walk.next
        state = walk.definition["States"][name]
        if not again:
            walk.used, walk.retried = {}, 0
        walk.visit = self._visit(walk, name, state)
        if not again and walk.traced:
            self._out.append(Entered(name, walk.raw))
        self._try(walk, lambda visit: self._work(walk, visit))

    def _visit(self, walk: Walk, name: str, state: Mapping[str, Any]) -> Visit:
        entered = as_text(self._time())
        here: dict[str, Any] = {"Name": name, "EnteredTime": entered}
        if state["Type"] in ("Task", "Parallel", "Map"):  # what can be retried
            here["RetryCount"] = walk.retried
        context: dict[str, Any] = {**walk.context, "State": here}
        if str(state.get("Resource", "")).endswith(TOKEN):
            context["Task"] = {"Token": self.chance.uuid()}
        language = str(state.get("QueryLanguage", walk.language))
        scope = Scope(context, walk.variables, self.chance, lambda: as_text(self._time()))
        return Visit(name, state, language, walk.raw, scope)

    def _time(self) -> datetime:
        assert self.now is not None, "a fact comes with its time"
        return self.now

    def _try(self, walk: Walk, work: Any) -> None:
        """Do something with the visit; a failure of the language is a failure of the state."""
        assert walk.visit is not None, "it is in a state"
        try:
            work(walk.visit)
        except StateFailure as failure:
            if walk.traced and failure.error == QUERY:
                self._out.append(EvaluationFailed(walk.visit.name, QUERY, failure.where))
            self._failed(walk, dataflow.in_state(walk.visit, failure))

    # -- the states ---------------------------------------------------------------------------------------------------

    def _work(self, walk: Walk, visit: Visit) -> None:
        match visit.kind:
            case "Pass" | "Succeed":
                self._pass_on(walk, visit)
            case "Choice":
                self._leave(walk, dataflow.choose(visit))
            case "Fail":
                raise dataflow.failed(visit)
            case "Wait":
                self._wait(walk, visit)
            case "Task":
                self._task(walk, visit)
            case "Parallel":
                self._parallel(walk, visit)
            case _:
                self._map(walk, visit)

    def _pass_on(self, walk: Walk, visit: Visit) -> None:
        if visit.kind == "Pass" and "Result" in visit.state and not visit.is_jsonata:
            dataflow.effective(visit)
            found = dataflow.leave(visit, visit.state["Result"], visit.state.get("Next"))
        else:
            found = dataflow.leave(visit, dataflow.effective(visit), visit.state.get("Next"), worked=False)
        self._leave(walk, found)

    def _wait(self, walk: Walk, visit: Visit) -> None:
        until = wait_until(visit, self._time())
        if until <= self._time() and not self.one_level:  # between rounds a walk is at a state that is known to them
            self._pass_on(walk, visit)
        else:
            self._ask(walk, lambda id: Wake(id, until))

    def _task(self, walk: Walk, visit: Visit) -> None:
        parameters = dataflow.effective(visit)
        timeout = dataflow.number(visit, "TimeoutSeconds", visit.seen.get("afterInputPath"))
        heartbeat = dataflow.number(visit, "HeartbeatSeconds", visit.seen.get("afterInputPath"))
        token = visit.scope.context.get("Task", {}).get("Token")
        resource = str(visit.state["Resource"])
        self._ask(walk, lambda id: CallTask(id, visit.name, resource, parameters, timeout, heartbeat, token))

    def _ask(self, walk: Walk, effect: Any) -> None:
        """Emit an effect that has an answer."""
        self._asked += 1
        walk.waiting = f"{walk.id}-{self._asked}"
        self._waiting[walk.waiting] = walk
        self._out.append(effect(walk.waiting))

    def _parallel(self, walk: Walk, visit: Visit) -> None:
        given = dataflow.effective(visit)
        branches = list(visit.state["Branches"])
        walk.children = Children([(given, walk.context) for _ in branches], branches, None)
        self._start_children(walk, visit)

    def _map(self, walk: Walk, visit: Visit, read: Any = None) -> None:
        plan = maps.plan(visit)
        call = maps.reader_call(visit) if read is None else None
        if call is not None:
            self._ask(walk, lambda id: ReadItems(id, visit.name, *call))
            return
        distributed = maps.is_distributed(visit.state)
        found = [maps.item_input(visit, at, item) for at, item in enumerate(maps.items_of(visit, read))]
        inputs: list[tuple[Any, Mapping[str, Any]]] = found
        if "ItemBatcher" in visit.state:
            inputs = [(one, walk.context) for one in maps.batched(visit, [given for given, _ in found])]
        definition = maps.processor(visit.state)
        walk.children = Children(inputs, [definition] * len(inputs), plan, distributed)
        self._start_children(walk, visit)

    # -- walks inside walks -------------------------------------------------------------------------------------------

    def _start_children(self, walk: Walk, visit: Visit) -> None:
        """As many as may run at once; the end of the state if all have ended."""
        held = walk.children
        assert held is not None, "it has just been made"
        if self.one_level:
            walks = tuple(self._child(walk, visit, held, index) for index in range(len(held.inputs)))
            walk.children = None
            beyond = maps.beyond(held.plan, held.distributed, len(walks))
            at_once = held.plan.at_once if held.plan is not None else len(walks)
            self._ask(walk, lambda id: Inside(id, visit.name, walks, at_once, beyond))
            return
        at_once = held.plan.at_once if held.plan is not None else len(held.inputs)
        while held.started < len(held.inputs) and len(held.running) < at_once:
            index = held.started
            held.started += 1
            held.running[index] = self._child(walk, visit, held, index)
            self._ready.append(held.running[index])
        if not held.running and held.started == len(held.inputs):
            walk.children = None
            results = [held.results[at] for at in sorted(held.results)]
            self._leave(walk, dataflow.leave(visit, self._written(visit, results), visit.state.get("Next")))

    def _written(self, visit: Visit, results: list[Any]) -> Any:
        """The results of a Map, or what its ResultWriter says of them."""
        writer = visit.state.get("ResultWriter")
        if not isinstance(writer, Mapping) or "Resource" not in writer:
            return results
        target = payload.fill(writer.get("Parameters", {}), visit.raw, visit.scope)
        if visit.is_jsonata:
            target = jsonata.fill(writer.get("Arguments", {}), visit.states(), visit.scope, "ResultWriter/Arguments")
        run = f"{self.execution.machine_id}/{visit.name}:{self.chance.uuid()}"
        key = f"{str(target.get('Prefix', '')).rstrip('/')}/{run.rpartition(':')[2]}/manifest.json".lstrip("/")
        return {"MapRunArn": run, "ResultWriterDetails": {"Bucket": target.get("Bucket", ""), "Key": key}}

    def _child(self, walk: Walk, visit: Visit, held: Children, index: int) -> Walk:
        given, context = held.inputs[index]
        definition = held.definitions[index]
        language = str(definition.get("QueryLanguage", walk.language))
        variables = {} if held.distributed else dict(walk.variables)
        if held.distributed:
            context = {**context, **self.execution.context(given)}
        return Walk(
            f"{walk.id}.{index}",
            definition,
            language,
            context,
            variables,
            definition["StartAt"],
            given,
            parent=walk,
            index=index,
            traced=walk.traced and not held.distributed,
        )

    def _child_ended(self, child: Walk, output: Any) -> None:
        parent = child.parent
        held = parent.children if parent is not None else None
        if parent is None or held is None or parent.visit is None:
            return
        held.running.pop(child.index, None)
        held.results[child.index] = output
        self._try(parent, lambda visit: self._start_children(parent, visit))

    def _child_failed(self, child: Walk, failure: StateFailure) -> None:
        parent = child.parent
        held = parent.children if parent is not None else None
        if parent is None or held is None or parent.visit is None:
            return
        held.running.pop(child.index, None)
        if not held.distributed or held.plan is None:
            self._failed(parent, failure)
            return
        held.failures += 1
        if held.plan.exceeded(held.failures, len(held.inputs)):
            cause = "The specified tolerated failure threshold was exceeded"
            self._failed(parent, StateFailure(TOLERANCE, cause))
        else:
            self._try(parent, lambda visit: self._start_children(parent, visit))

    def _stop(self, walk: Walk) -> None:
        """Everything inside a walk is not wanted any more."""
        for inside in list(_below(walk)):
            inside.over = True
            if inside.waiting and self._waiting.pop(inside.waiting, None) is not None:
                self._out.append(CancelCall(inside.waiting))
        walk.children = None

    # -- leaving ------------------------------------------------------------------------------------------------------

    def _leave(self, walk: Walk, found: Exit) -> None:
        visit = walk.visit
        assert visit is not None, "it is in a state"
        if walk.traced:
            self._out.append(Left(visit.name, found.output, found.assigned))
        if found.assigned:
            walk.variables = {**walk.variables, **found.assigned}
        walk.visit = None
        if found.next is not None:
            walk.next, walk.raw = found.next, found.output
            self._ready.append(walk)
        else:
            self._end(walk, found.output)

    def _end(self, walk: Walk, output: Any) -> None:
        walk.over = True
        if walk.parent is None:
            self.ended = MachineEnded("SUCCEEDED", output)
            self._out.append(self.ended)
        else:
            self._child_ended(walk, output)

    def _failed(self, walk: Walk, failure: StateFailure) -> None:
        """Retry, else catch, else fail what is around."""
        self._stop(walk)
        visit = walk.visit
        assert visit is not None, "it is in a state"
        if self._retry(walk, visit, failure) or self._catch(walk, visit, failure):
            return
        walk.over = True
        if walk.parent is None:
            self.ended = MachineEnded("FAILED", error=failure.error, cause=failure.cause)
            self._out.append(self.ended)
        else:
            self._child_failed(walk, failure)

    def _retry(self, walk: Walk, visit: Visit, failure: StateFailure) -> bool:
        rules = visit.state.get("Retry", ())
        at = retries.retrier_for(rules, failure)
        if at is None or not retries.may_retry(rules[at], walk.used.get(at, 0)):
            return False
        wait = retries.delay(rules[at], walk.used.get(at, 0), self.chance)
        walk.used[at] = walk.used.get(at, 0) + 1
        walk.retried += 1
        until = self._time() + timedelta(seconds=wait)
        self._ask(walk, lambda id: Wake(id, until))
        return True

    def _catch(self, walk: Walk, visit: Visit, failure: StateFailure) -> bool:
        rules = visit.state.get("Catch", ())
        at = retries.catcher_for(rules, failure)
        if at is None:
            return False
        try:
            found = dataflow.caught(visit, rules[at], failure)
        except StateFailure as second:
            walk.visit = dataclasses.replace(visit, state={**visit.state, "Retry": (), "Catch": ()})
            self._failed(walk, dataflow.in_state(visit, second))
            return True
        self._leave(walk, found)
        return True


def _below(walk: Walk) -> Iterator[Walk]:
    rest = list(walk.children.running.values()) if walk.children is not None else []
    while rest:
        one = rest.pop()
        yield one
        if one.children is not None:
            rest += one.children.running.values()


def wait_until(visit: Visit, now: datetime) -> datetime:
    """When a Wait is over. Raises StateFailure."""
    dataflow.effective(visit)
    state = visit.state
    if "Seconds" in state or "SecondsPath" in state:
        seconds = _seconds(visit)
        if seconds < 0:
            raise StateFailure(QUERY if visit.is_jsonata else RUNTIME, "Seconds cannot be negative.", "Seconds")
        if seconds > LONGEST_WAIT:
            raise StateFailure(RUNTIME, "Wait state delay is too long.")
        return now + timedelta(seconds=seconds)
    until = _timestamp(visit)
    if (until - now).total_seconds() > LONGEST_WAIT:
        raise StateFailure(RUNTIME, "Wait state delay is too long.")
    return until


def _seconds(visit: Visit) -> float:
    path = visit.state.get("SecondsPath")
    if path is not None and not visit.is_jsonata:
        try:
            found = payload.picked(path, visit.raw, visit.scope)
        except StateFailure:
            cause = f"The SecondsPath parameter does not reference an input value: {path}"
            raise StateFailure(RUNTIME, cause, "SecondsPath") from None
        value = dataflow.as_number(found, whole=True)
        if value is None:
            raise StateFailure(
                RUNTIME, f"The SecondsPath parameter does not reference an integer: {path}", "SecondsPath"
            )
        return value
    return dataflow.number(visit, "Seconds") or 0


def _timestamp(visit: Visit) -> datetime:
    path = visit.state.get("TimestampPath")
    if path is not None and not visit.is_jsonata:
        found = payload.picked(path, visit.raw, visit.scope)
        cause = (
            "The TimestampPath parameter does not reference a valid ISO-8601 extended offset date-time format "
            f"string: {path} == {found}"
        )
        error = RUNTIME
    else:
        found = visit.state["Timestamp"]
        if visit.is_jsonata:
            found = jsonata.typed(found, "string", visit.states(), visit.scope, "Timestamp")
        cause = f"The Timestamp field cannot be parsed as an ISO-8601 extended offset date-time format string: {found}"
        error = QUERY if visit.is_jsonata else RUNTIME
    until = read_timestamp(found)
    if until is None:
        raise StateFailure(error, cause, "Timestamp")
    return until
