"""A checked definition -> Workflow. Called by asl.format.

Every level (the machine, a branch, what handles an item) is a definition that a while loop calls, one call for each round. With many states
it is a tree: a round goes down to the few states among which the walk is.

    the states that work (Task, Parallel, Map), one step each: skipped unless the walk is `at` it
    a suspended step, if the walk waits
    `turn`: goes on from the answer until something is needed again (backends.states)

What is carried is the walk (see walk.rounds). The steps of a level stand in a row, because only one of them runs in a round: so the
plan asks for the largest of them, not for their sum.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from penstock.errors import DocumentError, Problem
from penstock.expressions.parse import Expr, quote
from penstock.expressions.types import ANY
from penstock.formats.asl.check.machine import check
from penstock.formats.asl.read.names import legal
from penstock.formats.asl.read.outline import heading, outline, places, within_reach
from penstock.formats.asl.read.resources import CODE, TOKEN, StartedMachine, Table, TaskWork, answered
from penstock.formats.asl.walk import maps
from penstock.formats.base import Read
from penstock.formats.documents import Document, Library
from penstock.formats.report import Report
from penstock.graph.model import (
    ANY_OUTCOME,
    Answer,
    Cache,
    Edge,
    Enough,
    EnoughTasks,
    ForEach,
    Function,
    Input,
    Nested,
    Output,
    Parameter,
    Step,
    Suspend,
    While,
    Workflow,
)

MOST_ROUNDS: Final = 10_000_000
_UNCACHED: Final = Cache(enabled=False)
_WORKS: Final = ("Task", "Parallel", "Map")
FAN: Final = 10
"""A definition has the steps of so many states, or so many parts."""


@dataclass(frozen=True, slots=True)
class _Part:
    """The states of a level from one place to another."""

    low: int
    high: int
    first: str
    last: str
    definition: str


def read_machine(library: Library, document: Document) -> Read:
    """Raises DocumentError with every problem, each with its JSON pointer and line."""
    problems = [
        Problem(one.code, one.message, one.fix, where=one.pointer, source=document.source(one.path))
        for one in check(document.data)
    ]
    table = Table(library)
    if problems or table.wrong:
        raise DocumentError([*problems, *table.wrong])
    reader = _Reader(document, table)
    return Read(reader.workflow(), reader.report)


class _Reader:
    """One machine."""

    def __init__(self, document: Document, table: Table) -> None:
        self.document = document
        self.table = table
        self.report = Report()
        self.definitions: list[Workflow] = []
        self.names: set[str] = set()
        self.started: dict[str, str] = {}
        """The definitions of machines that are started by this one; empty while one is made."""

    def workflow(self) -> Workflow:
        machine = self.document.data
        name = legal(self.document.name or "machine", set())
        level = self._level(machine, name, "")
        walk = Expr.of("steps.begin.outputs.walk")
        begin = Step(
            name="begin",
            action=Function(module=CODE, name="begin"),
            inputs=(
                Input(name="definition", value=heading(machine)),
                Input(name="name", value=name),
                Input(name="given", value=Expr.of("params.input")),
                Input(name="run", value=Expr.of("run.id")),
                Input(name="created", value=Expr.of("run.created")),
            ),
            outputs=(Output(name="walk", type=ANY),),
            cache=_UNCACHED,
        )
        finish = Step(
            name="finish",
            action=Function(module=CODE, name="finish"),
            inputs=(Input(name="walk", value=Expr.of("steps.machine.outputs.walk")),),
            outputs=(Output(name="output", type=ANY),),
            cache=_UNCACHED,
        )
        limit = machine.get("TimeoutSeconds")
        return Workflow(
            name=name,
            params=(Parameter(name="input", default={}, doc="What the machine is started with"),),
            steps=(begin, _looped("machine", level, walk), finish),
            outputs=(Output(name="output", type=ANY, value=Expr.of("steps.finish.outputs.output")),),
            definitions=tuple(self.definitions),
            timeout=float(limit) if isinstance(limit, int | float) else None,
            doc=str(machine.get("Comment", "")),
            source=self.document.source(""),
        )

    # -- a level ------------------------------------------------------------------------------------------------------

    def _level(self, machine: Mapping[str, Any], hint: str, path: str) -> str:
        """The definition of one level; returns its name. With many states it is a tree of definitions, so that a round looks at few."""
        name = self._named(f"{hint}-states")
        numbers = places(machine)
        rows = list(numbers)
        if len(rows) <= FAN:
            return self._leaf(name, machine, numbers, rows, hint, path)
        parts = []
        for start in range(0, len(rows), FAN):
            held = rows[start : start + FAN]
            part = _Part(
                start + 1 if start else 0, start + len(held), held[0], held[-1], self._named(f"{name}-{held[0]}")
            )
            parts.append(part)
            self._leaf(part.definition, machine, numbers, held, hint, path)
        while len(parts) > FAN:
            parts = [
                self._switch(self._named(f"{name}-part"), parts[at : at + FAN]) for at in range(0, len(parts), FAN)
            ]
        return self._switch(name, parts).definition

    def _named(self, wanted: str) -> str:
        name = legal(wanted, self.names)
        self.names.add(name)
        return name

    def _switch(self, name: str, parts: list[_Part]) -> _Part:
        """The definition that goes on in the part in which the walk is."""
        steps: list[Step] = []
        taken: set[str] = set()
        found = "null"
        for part in parts:
            own = legal(f"{part.first}-to-{part.last}", taken)
            taken.add(own)
            step = Step(
                name=own,
                action=Nested(name=part.definition),
                inputs=(Input(name="walk", value=Expr.of("params.walk")),),
                outputs=(Output(name="walk", type=ANY, default=None),),
                needs=(Edge(steps[-1].name, ANY_OUTCOME),) if steps else (),
                when=Expr.of(f"params.walk.place >= {part.low} && params.walk.place <= {part.high}"),
            )
            steps.append(step)
            found = f'steps["{own}"].outcome == "succeeded" ? steps["{own}"].outputs.walk : {found}'
        output = Output(name="walk", type=ANY, value=Expr.of(found))
        self.definitions.append(
            Workflow(name=name, params=(Parameter(name="walk"),), steps=tuple(steps), outputs=(output,))
        )
        return _Part(parts[0].low, parts[-1].high, parts[0].first, parts[-1].last, name)

    def _leaf(
        self,
        name: str,
        machine: Mapping[str, Any],
        numbers: Mapping[str, int],
        rows: list[str],
        hint: str,
        path: str,
    ) -> str:
        """The definition of some states at which a walk can wait: a step or two for each, and `turn`."""
        steps: list[Step] = []
        taken = {"turn", "wait"}
        answers: dict[str, Any] = {}
        for state in rows:
            fields = machine["States"][state]
            if fields["Type"] not in _WORKS:
                continue
            here = f"{path}.States.{state}".lstrip(".")
            made = list(self._steps(state, fields, f"{hint}-{state}", here, taken))
            steps += made
            by_name = fields["Type"] == "Task" and self.table.work(fields).step is not None
            answers[state] = tuple(_answer_of(one, by_name) for one in made)
        waits = Step(
            name="wait",
            action=Suspend(until=Expr.of("params.walk.wait"), message="the machine waits"),
            when=Expr.of('params.walk.wait != ""'),
        )
        first = not rows or numbers[rows[0]] == 1
        reach = within_reach(machine, rows, first)
        tasks = [state for state in sorted(reach) if machine["States"][state]["Type"] == "Task"]
        started = {state: self.table.machine(machine["States"][state]) for state in tasks}
        machines = {state: child.heading() for state, child in started.items() if child is not None}
        known = outline(machine, numbers, reach)
        turn = Step(
            name="turn",
            action=Function(module=CODE, name="turn"),
            inputs=(
                Input(name="definition", value={**known, "Machines": machines} if machines else known),
                Input(name="walk", value=Expr.of("params.walk")),
                Input(name="answers", value=answers),
            ),
            outputs=(Output(name="walk", type=ANY),),
            cache=_UNCACHED,
        )
        row = [*steps, waits, turn]
        for number in range(1, len(row)):
            before = Edge(row[number - 1].name, ANY_OUTCOME)
            every = [Edge(one.name, ANY_OUTCOME) for one in steps] if row[number].name == "turn" else []
            row[number] = replace(row[number], needs=(*dict.fromkeys((*every, before)),))
        output = Output(name="walk", type=ANY, value=Expr.of("steps.turn.outputs.walk"))
        level = Workflow(name=name, params=(Parameter(name="walk"),), steps=tuple(row), outputs=(output,))
        self.definitions.append(level)
        return name

    def _steps(self, name: str, state: Mapping[str, Any], hint: str, path: str, taken: set[str]) -> Iterator[Step]:
        """What a state that works is: one step, and more for an ItemReader."""
        at = f"params.walk.at == {json.dumps(name)}"
        own = legal(name, taken)
        taken.add(own)
        common: dict[str, Any] = {"doc": str(state.get("Comment", "")), "source": self.document.source(path)}
        match state["Type"]:
            case "Task":
                yield from self._task(own, state, at, path, taken, common)
            case "Parallel":
                target = self._parallel(state, hint, path)
                walks = (Input(name="walks", value=Expr.of("params.walk.items")),)
                yield Step(
                    name=own, action=Nested(name=target), inputs=walks, outputs=_said(), when=Expr.of(at), **common
                )
            case _:
                yield from self._map(own, state, at, hint, path, taken, common)

    def _task(
        self, own: str, state: Mapping[str, Any], at: str, path: str, taken: set[str], common: dict[str, Any]
    ) -> Iterator[Step]:
        child = self.table.machine(state)
        if child is not None:
            yield self._start(own, state, child, at, path, common)
            return
        work = self.table.work(state)
        limit = state.get("TimeoutSeconds")
        self._limits(state, path)
        token = TOKEN in str(state["Resource"])
        if work.unknown:
            self.report.lost(f"{path}.Resource", work.unknown, source=self.document.source(f"{path}.Resource"))
        for field in ("Credentials",):
            if field in state:
                self.report.lost(
                    f"{path}.{field}", "has no meaning here", source=self.document.source(f"{path}.{field}")
                )
        timeout = float(limit) if isinstance(limit, int | float) and not token else None
        made = _step(own, work, at, timeout, common)
        if not token and ("TimeoutSecondsPath" in state or isinstance(limit, str)):
            made = replace(made, timeout_by=Expr.of("params.walk.timeout"))
        if token:
            answer = Answer(
                within_by=Expr.of("params.walk.timeout"),
                heartbeat_by=Expr.of("params.walk.heartbeat"),
                token_as=Expr.of("params.walk.token"),
            )
            made = replace(made, answer=answer, outputs=answered())
        yield made

    def _start(
        self, own: str, state: Mapping[str, Any], child: StartedMachine, at: str, path: str, common: dict[str, Any]
    ) -> Step:
        """A machine that is started by this one is a workflow that is called."""
        source = self.document.source(path)
        resource = str(state["Resource"])
        if ".sync" not in resource:
            said = f"the machine waits until {child.name} has ended, and is then answered as if it had just started"
            self.report.changed(f"{path}.Resource", said, source=source)
        for field in ("TimeoutSecondsPath", "HeartbeatSeconds", "HeartbeatSecondsPath"):
            if field in state:
                self.report.lost(f"{path}.{field}", "a machine that is started has no such limit", source=source)
        if self.started.get(child.name) == "":
            said = f"the machine {child.name} would start itself, which a workflow cannot"
            fix = "put a circle of states into the machine instead"
            raise DocumentError([Problem("P836", said, fix, where=f"{path}.Resource", source=source)])
        if child.name not in self.started:
            wrong = [
                Problem(
                    one.code, one.message, one.fix, where=f"{child.name}{one.pointer}", source=child.document.source()
                )
                for one in check(child.definition)
            ]
            if wrong:
                raise DocumentError(wrong)
            self.started[child.name] = ""
            outer, self.document = self.document, child.document
            self.started[child.name] = self._one(child.definition, child.name, child.path)
            self.document = outer
        limits = (state.get("TimeoutSeconds"), child.definition.get("TimeoutSeconds"))
        return Step(
            name=own,
            action=Nested(name=self.started[child.name]),
            inputs=(Input(name="walk", value=Expr.of("params.walk.items[0]")),),
            outputs=_said(),
            when=Expr.of(at),
            timeout=min((float(one) for one in limits if isinstance(one, int | float)), default=None),
            **common,
        )

    def _one(self, machine: Mapping[str, Any], hint: str, path: str) -> str:
        """The definition that walks one machine and gives how it ended: for an item, or a machine that is started."""
        level = self._level(machine, hint, path)
        name = self._named(f"{hint}-item")
        answer = Output(name="answer", type=ANY, value=Expr.of("steps.machine.outputs.walk.end"))
        steps = (_looped("machine", level, Expr.of("params.walk")),)
        self.definitions.append(Workflow(name=name, params=(Parameter(name="walk"),), steps=steps, outputs=(answer,)))
        return name

    def _limits(self, state: Mapping[str, Any], path: str) -> None:
        """What of the time limits of a Task is not kept by its step."""
        token = TOKEN in str(state["Resource"])
        if not token and ("HeartbeatSeconds" in state or "HeartbeatSecondsPath" in state):
            message = "a step sends no heartbeats; only an answer with a token is waited for so long"
            self.report.lost(f"{path}.HeartbeatSeconds", message, "Use TimeoutSeconds.", self.document.source(path))

    def _parallel(self, state: Mapping[str, Any], hint: str, path: str) -> str:
        """The definition that walks the branches, side by side."""
        name = legal(f"{hint}-branches", self.names)
        self.names.add(name)
        steps = []
        for number, branch in enumerate(state["Branches"]):
            level = self._level(branch, f"{hint}-{number}", f"{path}.Branches[{number}]")
            steps.append(_looped(f"branch-{number}", level, Expr.of(f"params.walks[{number}]")))
        ends = [f'steps["branch-{number}"].outputs.walk.end' for number in range(len(steps))]
        every = _noted("all", f"[{', '.join(ends)}]", None)
        bad = [
            _noted(f"failed-{number}", f"[{end}]", f'{end}.status != "SUCCEEDED"') for number, end in enumerate(ends)
        ]
        answer = "steps.all.outputs.ends"
        for one in bad:
            answer = f'steps["{one.name}"].outcome == "succeeded" ? steps["{one.name}"].outputs.ends : {answer}'
        made = Workflow(
            name=name,
            params=(Parameter(name="walks"),),
            steps=(*steps, *bad, every),
            outputs=(Output(name="answer", type=ANY, value=Expr.of(answer)),),
            enough=Enough(steps=tuple(one.name for one in (*bad, every)), of="any"),
        )
        self.definitions.append(made)
        return name

    def _map(
        self, own: str, state: Mapping[str, Any], at: str, hint: str, path: str, taken: set[str], common: dict[str, Any]
    ) -> Iterator[Step]:
        field = "ItemProcessor" if "ItemProcessor" in state else "Iterator"
        name = self._one(maps.processor(state), hint, f"{path}.{field}")
        read = None
        if isinstance(state.get("ItemReader"), Mapping):
            read = legal(f"{own}-reader", taken)
            taken.add(read)
            work = self.table.reader(str(state["ItemReader"].get("Resource", "")))
            if work.unknown:
                self.report.lost(f"{path}.ItemReader", work.unknown, source=self.document.source(f"{path}.ItemReader"))
            yield _step(read, work, f"{at} && params.walk.read != null", None, common)
        limit = state.get("MaxConcurrency")
        at_once = limit if isinstance(limit, int) and limit > 0 else None
        most = maps.INLINE_AT_ONCE if not maps.is_distributed(state) else maps.DISTRIBUTED_AT_ONCE
        by_run = "MaxConcurrencyPath" in state or isinstance(limit, str)
        if isinstance(state.get("ResultWriter"), Mapping) and "Resource" in state["ResultWriter"]:
            message = "the results are kept in the run, not written; the state names where they would be"
            self.report.lost(f"{path}.ResultWriter", message, source=self.document.source(f"{path}.ResultWriter"))
        each = ForEach(
            axes=({"one": Expr.of("params.walk.items")},),
            parallel=at_once or most,
            at_once=Expr.of("params.walk.at_once") if by_run else None,
            enough=EnoughTasks(
                when=Expr.of('outputs.answer.status != "SUCCEEDED"'), beyond=Expr.of("params.walk.beyond")
            ),
        )
        yield Step(
            name=own,
            action=Nested(name=name),
            inputs=(Input(name="walk", value=Expr.of("item.one")),),
            outputs=(Output(name="answer", type=ANY, default=[]),),
            when=Expr.of(f"{at} && params.walk.items != null"),
            each=each,
            **common,
        )


# -- small parts ------------------------------------------------------------------------------------------------------


def _looped(name: str, level: str, walk: Expr) -> Step:
    """The rounds of a level."""
    return Step(
        name=name,
        action=Nested(name=level),
        inputs=(Input(name="walk", value=walk),),
        outputs=(Output(name="walk", type=ANY),),
        loop=While(
            condition=Expr.of("outputs.walk.end == null"),
            carry={"walk": "walk"},
            max_iterations=MOST_ROUNDS,
            at_limit="fail",
        ),
    )


def _noted(name: str, ends: str, when: str | None) -> Step:
    """A branch has failed, which stops its siblings, or all have ended."""
    return Step(
        name=name,
        action=Function(module=CODE, name="same"),
        inputs=(Input(name="value", value=Expr.of(ends)),),
        outputs=(Output(name="ends", type=ANY),),
        when=None if when is None else Expr.of(when),
        cache=_UNCACHED,
    )


def _step(name: str, work: TaskWork, when: str, timeout: float | None, common: Mapping[str, Any]) -> Step:
    if work.step is not None:
        return replace(work.step, name=name, when=Expr.of(when), timeout=timeout, **common)
    return Step(
        name=name,
        action=work.action,
        inputs=work.inputs,
        outputs=work.outputs,
        resources=work.resources,
        queue=work.queue,
        when=Expr.of(when),
        timeout=timeout,
        cache=_UNCACHED,
        extra={"unrunnable": work.unknown} if work.unknown else {},
        **common,
    )


def _said() -> tuple[Output, ...]:
    return (Output(name="answer", type=ANY, default=None),)


def _answer_of(step: Step, by_name: bool) -> dict[str, Any]:
    """How a step ended, for the turn. `by_name`: its outputs are the answer, not the one of that name."""
    at = f"steps[{json.dumps(step.name)}]"
    given = f"{at}.outputs.answer"
    if by_name and not isinstance(step.action, Suspend):
        given = "{" + ", ".join(f"{quote(one.name)}: {at}.outputs[{quote(one.name)}]" for one in step.outputs) + "}"
    answer = Expr.of(f'{at}.outcome == "succeeded" ? {given} : null')
    found = {"outcome": Expr.of(f"{at}.outcome"), "answer": answer, "error": Expr.of(f"{at}.error")}
    return found
