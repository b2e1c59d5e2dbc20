"""A state machine as steps in a row, for other systems: they have no walk of states. Called by asl.format for `penstock convert`.

It takes what needs no decision between the steps: Tasks that hand on their result, Parallel, Wait for seconds, Pass and Succeed that change
nothing. All else is refused, state by state, with the reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from penstock.errors import DocumentError, Problem
from penstock.expressions.parse import Expr
from penstock.expressions.types import ANY
from penstock.formats.asl.check.machine import check
from penstock.formats.asl.read.names import legal
from penstock.formats.asl.read.resources import TOKEN, Table
from penstock.formats.base import Read
from penstock.formats.documents import Document, Library
from penstock.formats.report import Report
from penstock.graph.model import Backoff, Edge, Output, Parameter, Retry, Step, Suspend, Value, Workflow

_NOT: Final = {
    "Choice": "which state comes next is decided when it runs",
    "Map": "its items are found when it runs",
    "Fail": "the error with which it ends is the machine's own",
}
_DATA: Final = (
    "Parameters",
    "ResultSelector",
    "ResultPath",
    "InputPath",
    "OutputPath",
    "Result",
    "Arguments",
    "Output",
)
_MORE: Final = {
    "Assign": "variables are carried from state to state",
    "Catch": "where it goes after an error is decided when it runs",
    "HeartbeatSeconds": "nothing sends heartbeats",
    "TimeoutSecondsPath": "the limit is found when it runs",
}
_WHOLE: Final = ("$", "{% $states.input %}")


@dataclass(frozen=True, slots=True)
class _Here:
    """Where a chain of states is: the data that is handed on, and the steps that have to be over."""

    data: Value
    after: tuple[str, ...] = ()


def read_plain(library: Library, document: Document) -> Read:
    """Raises DocumentError with every state that other systems have nothing for."""
    problems = [
        Problem(one.code, one.message, one.fix, where=one.pointer, source=document.source(one.path))
        for one in check(document.data)
    ]
    table = Table(library)
    if problems or table.wrong:
        raise DocumentError([*problems, *table.wrong])
    reader = _Plain(document, table)
    end = reader.chain(document.data, "", _Here(Expr.of("params.input")))
    if reader.problems:
        raise DocumentError(reader.problems)
    limit = document.data.get("TimeoutSeconds")
    output = Output(name="output", type=ANY, value=end.data)
    workflow = Workflow(
        name=legal(document.name or "machine", set()),
        params=(Parameter(name="input", default={}, doc="What the machine is started with"),),
        steps=tuple(reader.steps),
        outputs=(output,),
        timeout=float(limit) if isinstance(limit, int | float) else None,
        fail_fast=True,
        doc=str(document.data.get("Comment", "")),
        source=document.source(""),
    )
    return Read(workflow, reader.report)


class _Plain:
    def __init__(self, document: Document, table: Table) -> None:
        self.document = document
        self.table = table
        self.report = Report()
        self.problems: list[Problem] = []
        self.steps: list[Step] = []
        self.names: set[str] = set()

    def chain(self, machine: Mapping[str, Any], path: str, here: _Here) -> _Here:
        """The states from the first to the last."""
        name: str | None = machine["StartAt"]
        seen: set[str] = set()
        language = machine.get("QueryLanguage") or self.document.data.get("QueryLanguage")
        while name is not None:
            state = machine["States"][name]
            at = f"{path}.States.{name}".lstrip(".")
            if name in seen:
                self._refuse(name, at, "the states go round in a circle")
                break
            seen.add(name)
            here = self._state(name, {"QueryLanguage": language, **state}, at, here)
            name = state.get("Next")
        for name in machine["States"]:
            if name not in seen and machine["States"][name]["Type"] in _NOT:
                kind = machine["States"][name]["Type"]
                self._refuse(name, f"{path}.States.{name}".lstrip("."), f"a {kind}: {_NOT[kind]}")
        return here

    def _refuse(self, name: str, at: str, why: str) -> None:
        said = f"the state {name!r} has no form outside of a state machine: {why}"
        fix = "run the machine with Penstock, or change the state"
        self.problems.append(Problem("P842", said, fix, where=at, source=self.document.source(at)))

    def _state(self, name: str, state: Mapping[str, Any], at: str, here: _Here) -> _Here:
        kind = state["Type"]
        if kind in _NOT:
            self._refuse(name, at, f"a {kind}: {_NOT[kind]}")
            return here
        for why in self._strange(state):
            self._refuse(name, at, why)
        match kind:
            case "Task":
                return self._task(name, state, at, here)
            case "Parallel":
                ends = [
                    self.chain(branch, f"{at}.Branches[{number}]", here)
                    for number, branch in enumerate(state["Branches"])
                ]
                said = "a branch that fails does not stop what runs in the others"
                self.report.changed(at, said, source=self.document.source(at))
                after = dict.fromkeys(step for end in ends for step in end.after)
                return _Here(tuple(end.data for end in ends), (*after,))
            case "Wait":
                return self._wait(name, state, at, here)
            case _:
                return here

    def _strange(self, state: Mapping[str, Any]) -> Iterator[str]:
        """What of the fields of a state has no form."""
        for field in _DATA:
            if field in state and state[field] not in _WHOLE and not _is_call(state, field):
                yield f"{field} makes data of data between two states"
        for field, why in _MORE.items():
            if field in state:
                yield f"{field}: {why}"
        if isinstance(state.get("TimeoutSeconds"), str):
            yield f"TimeoutSeconds: {_MORE['TimeoutSecondsPath']}"
        if len(state.get("Retry", ())) > 1 or any(
            rule["ErrorEquals"] not in (["States.ALL"], ["States.TaskFailed"]) for rule in state.get("Retry", ())
        ):
            yield "Retry has rules for different errors"
        if state["Type"] == "Parallel" and state.get("Retry"):
            yield "Retry repeats several steps together"

    def _task(self, name: str, state: Mapping[str, Any], at: str, here: _Here) -> _Here:
        work = self.table.work(state)
        if TOKEN in str(state["Resource"]) or self.table.machine(state) is not None:
            self._refuse(name, at, "it waits for an answer with a token, or for a machine that it starts")
        if work.unknown:
            self._refuse(name, f"{at}.Resource", work.unknown)
        if work.step is not None:
            self._refuse(name, f"{at}.Resource", "what it calls is a step with inputs by name")
        own = legal(name, self.names)
        self.names.add(own)
        limit = state.get("TimeoutSeconds")
        inputs = (replace(one, value=here.data) if one.name == "payload" else one for one in work.inputs)
        step = Step(
            name=own,
            action=work.action,
            inputs=tuple(inputs),
            outputs=tuple(Output(name=one.name, type=ANY, path=one.path, value=one.value) for one in work.outputs),
            needs=tuple(map(Edge, here.after)),
            retry=_retry(state),
            resources=work.resources,
            queue=work.queue,
            timeout=float(limit) if isinstance(limit, int | float) else None,
            doc=str(state.get("Comment", "")),
            source=self.document.source(at),
        )
        self.steps.append(step)
        return _Here(Expr.of(f'steps["{own}"].outputs.answer'), (own,))

    def _wait(self, name: str, state: Mapping[str, Any], at: str, here: _Here) -> _Here:
        seconds = state.get("Seconds")
        if not isinstance(seconds, int | float):
            self._refuse(name, at, "how long it waits is found when it runs")
            return here
        own = legal(name, self.names)
        self.names.add(own)
        wait = Suspend(duration=float(seconds))
        source = self.document.source(at)
        self.steps.append(Step(name=own, action=wait, needs=tuple(map(Edge, here.after)), source=source))
        return _Here(here.data, (own,))


def _is_call(state: Mapping[str, Any], field: str) -> bool:
    """The usual way to call a function: the whole input goes in, and the whole Payload comes out."""
    if ":lambda:invoke" not in str(state.get("Resource", "")):
        return False
    if field in ("Parameters", "Arguments"):
        given = state[field]
        whole = given.get("Payload.$", given.get("Payload"))
        return whole in _WHOLE and set(given) <= {"FunctionName", "Payload", "Payload.$"}
    return bool(state[field] == {"OutputPath": "$.Payload", "Output": "{% $states.result.Payload %}"}.get(field))


def _retry(state: Mapping[str, Any]) -> Retry | None:
    rule = next(iter(state.get("Retry", ())), None)
    if rule is None or not rule.get("MaxAttempts", 3):
        return None
    backoff = Backoff(
        initial=float(rule.get("IntervalSeconds", 1)),
        factor=float(rule.get("BackoffRate", 2.0)),
        longest=float(rule.get("MaxDelaySeconds", 86400)),
        jitter=0.0,
    )
    return Retry(limit=int(rule.get("MaxAttempts", 3)), backoff=backoff)
