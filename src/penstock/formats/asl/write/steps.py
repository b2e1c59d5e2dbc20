"""One step as states: whether it runs (Choice), for each item (Map), round after round (a circle), and what it does (Task, Wait). Called by machine."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from typing import Any, Final

from penstock.expressions.evaluate import resolve
from penstock.expressions.parse import references
from penstock.expressions.plain import EvaluationError
from penstock.expressions.types import ANY, Type
from penstock.formats.asl.write.expression import Unwritten, alone, data, field, literal, marked
from penstock.formats.asl.write.policies import retry_rules, seconds
from penstock.formats.asl.write.rows import Row, row_of, spread
from penstock.formats.asl.write.scope import MachineScope, defaults
from penstock.formats.asl.write.states import LONGEST_ROW, StateChain, unique
from penstock.graph.model import (
    MISSING,
    ForEach,
    Nested,
    Outcome,
    Step,
    Suspend,
    While,
    action_values,
    edges_of,
    expressions,
)

CALLS: Final = "arn:aws:states:::lambda:invoke"
ASKS: Final = "arn:aws:states:::lambda:invoke.waitForTaskToken"
STARTS: Final = "arn:aws:states:::states:startExecution.sync:2"
INLINE: Final = 40
"""So many items of an inline Map are worked on at the same time."""
MOST_ITEMS: Final = 10_000
BAD: Final = frozenset({Outcome.FAILED, Outcome.ERRORED})


@dataclass(frozen=True, slots=True)
class Recorded:
    """Where a step's record goes: a variable, or nowhere. `caught`: it goes on after a failure."""

    variable: str | None
    caught: bool = False

    def assign(self, outcome: Any, outputs: Any, **more: Any) -> dict[str, Any]:
        """The field Assign, if it is recorded."""
        if self.variable is None:
            return {}
        return {"Assign": {self.variable: {"outcome": outcome, "outputs": outputs, **more}}}


class StepStates:
    """One step."""

    def __init__(self, scope: MachineScope, step: Step, record: Recorded, unsure: frozenset[str]) -> None:
        self.scope = scope
        self.step = step
        self.record = record
        self.unsure = unsure
        """Steps that may end in another way than succeeded or skipped."""

    def write(self, chain: StateChain) -> None:
        """Adds its states."""
        self._files()
        try:
            self._guarded(chain)
        except Unwritten as error:
            self.scope.unwritten(self.step, "", error)

    def _files(self) -> None:
        """A file, or an object of Python, is no JSON: it is not carried from state to state."""
        step = self.step
        bad = [name for name, kind in self.scope.outputs(step).items() if _is_no_json(kind)]
        if bad and self.record.variable is not None:
            why = "is a file or an object of Python, and states hand on JSON"
            self.scope.refuse(step, f".outputs.{bad[0]}", f"the output {bad[0]} {why}")
        elif bad:
            self.step = replace(step, outputs=tuple(one for one in step.outputs if one.name not in bad))
            said = f"the output {', '.join(bad)} is no JSON, and is not kept"
            self.scope.shared.report.lost(self.scope.where(step, ".outputs"), said, source=step.source)

    # -- does it run? -------------------------------------------------------------------------------------------------

    def _guarded(self, chain: StateChain) -> None:
        step, rules = self.step, []
        guard = self._guard()
        if guard:
            rules.append({"Condition": marked(f"$not({guard})"), **self.record.assign("omitted", {})})
        if step.when is not None and not self._by_item():
            skipped = self.record.assign("skipped", defaults(step.outputs))
            rules.append({"Condition": marked(f"$not({self.scope.holds(step.when)})"), **skipped})
        if rules:
            self._ask(chain, f"{step.name}?", rules)
        self._each(chain) if step.each is not None else self._run(chain, self.scope, self.record, step.name)
        chain.open += [(rule, "Next") for rule in rules]

    def _ask(self, chain: StateChain, name: str, rules: list[dict[str, Any]]) -> None:
        choice = {"Type": "Choice", "Choices": rules, "Default": ""}
        chain.add(name, choice)
        chain.open = [(choice, "Default")]

    def _guard(self) -> str:
        """Have the steps before it ended as it wants? Empty: they have."""
        asked = []
        for name, outcomes in edges_of(self.step).items():
            if name not in self.unsure or name not in self.scope.records or self.step.trigger is not None:
                continue
            if not set(Outcome) <= outcomes | {Outcome.CANCELLED}:
                if (Outcome.FAILED in outcomes) != (Outcome.ERRORED in outcomes):
                    said = f"{name} failed and could not be run are one outcome there: failed"
                    self.scope.shared.report.changed(self.scope.where(self.step, ".needs"), said)
                words = sorted(str(one) for one in outcomes)
                asked.append(f"${self.scope.records[name]}.outcome in {json.dumps(words)}")
        if self.step.trigger is not None:
            asked.append(self.scope.holds(self.step.trigger))
        return " and ".join(f"({one})" for one in asked)

    def _by_item(self) -> bool:
        when = self.step.when
        return when is not None and any(path[0] == "item" for path in references(when.text))

    # -- for each item ------------------------------------------------------------------------------------------------

    def _each(self, chain: StateChain) -> None:
        step, scope = self.step, self.scope
        assert step.each is not None
        items, selected, types = self._items(step.each)
        item = scope.names.variable(f"item_{step.name}")
        inner = StateChain(scope.names)
        inner.add(f"{step.name}-item", {"Type": "Pass", "Assign": {item: marked("$states.input")}})
        place = scope.at({"item": f"${item}"}, types)
        result = Recorded(scope.names.variable(f"result_{step.name}"))
        rules: list[dict[str, Any]] = []
        if self._by_item():
            assert step.when is not None
            rules = [{"Condition": marked(f"$not({place.holds(step.when)})"), **result.assign("skipped", {})}]
            self._ask(inner, f"{step.name}-item?", rules)
        self._run(inner, place, result, step.name)
        inner.open += [(rule, "Next") for rule in rules]
        output = {"ran": marked(f'${result.variable}.outcome = "succeeded"')}
        if self.record.variable is not None:
            output["outputs"] = marked(f"${result.variable}.outputs")
        processor = inner.machine(f"{step.name}-done", output)
        state: dict[str, Any] = {
            "Type": "Map",
            "Items": items,
            "ItemSelector": selected,
            "ItemProcessor": {"ProcessorConfig": {"Mode": "INLINE"}, **processor},
            **self._at_once(step.each),
            **self.record.assign(
                marked('$count($states.result[ran = true]) > 0 ? "succeeded" : "skipped"'), self._gathered()
            ),
        }
        self._add(chain, f"{step.name}-each", state)

    def _items(self, each: ForEach) -> tuple[Any, Any, dict[tuple[str, str], Type]]:
        """Items, ItemSelector, and the types of the variables."""
        step, scope = self.step, self.scope
        if each.gang:
            scope.shared.report.lost(
                scope.where(step, ".each.gang"), "its items do not start together", "", step.source
            )
        if each.enough is not None:
            scope.refuse(step, ".each.enough", "a Map has not enough before all its items have ended")
        value = "$states.context.Map.Item.Value"
        if not any(True for axis in each.axes for given in axis.values() for _ in _reads(given)):
            try:
                rows = _combined(each)
            except (EvaluationError, ValueError) as error:
                raise Unwritten(f"its items: {error}") from None
            names = [name for axis in each.axes for name in axis]
            kinds = {
                ("item", name): scope.type(next(iter(axis.values()))).item if len(axis) == 1 else ANY
                for axis in each.axes
                for name in axis
            }
            selected = {name: marked(field(value, name)) for name in names}
            return [data(row) for row in rows], selected, kinds
        if len(each.axes) > 1 or len(each.axes[0]) > 1:
            raise Unwritten("a Map has one list of items, and these lists are known only when it runs")
        ((name, given),) = each.axes[0].items()
        kind = scope.type(given)
        if kind.name == "dict":
            raise Unwritten("its items are the keys of a map")
        item = kind.item if kind.name in ("list", "tuple") else ANY
        return scope.value(given), {name: marked(value)}, {("item", name): item}

    def _at_once(self, each: ForEach) -> dict[str, Any]:
        where, report = self.scope.where(self.step, ".each"), self.scope.shared.report
        if each.at_once is not None:
            return {"MaxConcurrency": marked(self.scope.code(each.at_once))}
        if each.parallel is None or each.parallel > INLINE:
            said = f"at most {INLINE} items run at the same time, as in every inline Map"
            report.changed(where, said, source=self.step.source)
        return {} if each.parallel is None else {"MaxConcurrency": each.parallel}

    def _gathered(self) -> Any:
        """The outputs of what ran, as a list each."""
        found: dict[str, Any] = {}
        known = {one.name: resolve(one.default, {}) for one in self.step.outputs if one.default is not MISSING}
        for name in self.scope.outputs(self.step):
            taken = f"$append($all, {alone(field('$each.outputs', name))})"
            every = f"$reduce($states.result, function($all, $each) {{ $each.ran ? {taken} : $all }}, [])"
            if name in known:
                every = f"$count($states.result) = 0 ? {literal(known[name])} : {every}"
            found[name] = marked(every)
        return found

    # -- once, or round after round -----------------------------------------------------------------------------------

    def _run(self, chain: StateChain, place: MachineScope, record: Recorded, name: str) -> None:
        if self.step.loop is None:
            self._action(chain, place, record, name, None)
        else:
            self._rounds(chain, place, record, name, self.step.loop)

    def _rounds(self, chain: StateChain, place: MachineScope, record: Recorded, name: str, loop: While) -> None:
        step, names = self.step, self.scope.names
        given, count = names.variable(f"inputs_{step.name}"), names.variable(f"round_{step.name}")
        own = Recorded(record.variable or names.variable(f"result_{step.name}"), record.caught)
        first = self._inputs(place)
        carried = {output: first[name] for name, output in loop.carry.items() if name in first}
        begin = {given: first, count: 1, **own.assign("succeeded", carried).get("Assign", {})}
        chain.add(f"{name}-first", {"Type": "Pass", "Assign": begin})
        kinds = {("inputs", one.name): one.type if one.type != ANY else place.type(one.value) for one in step.inputs}
        kinds = {key: kind if key[1] not in loop.carry else ANY for key, kind in kinds.items()}
        kinds |= {("outputs", key): kind for key, kind in place.outputs(step).items()}
        inner = place.at({"inputs": f"${given}", "outputs": f"${own.variable}.outputs"}, kinds)
        holds = inner.holds(loop.condition)
        again = [f"{json.dumps(one)}: {field(f'${own.variable}.outputs', out)}" for one, out in loop.carry.items()]
        merged = marked(f"$merge([${given}, {{{', '.join(again)}}}])")
        onward = {"Type": "Pass", "Assign": {given: merged, count: marked(f"${count} + 1")}}
        if loop.test == "before":
            stop = {"Condition": marked(f"$not({holds})")}
            self._ask(chain, f"{name}-first?", [stop])
            begins = self._action(chain, inner, own, name, given)
            caught, chain.open = chain.open[1:], chain.open[:1]
            chain.add(f"{name}-next", onward)
            rules = self._again(chain, name, holds, f"${count} > {loop.max_iterations}", begins, loop)
            chain.open += [(stop, "Next"), *rules, *caught]
            return
        begins = self._action(chain, inner, own, name, given)
        caught, chain.open = chain.open[1:], chain.open[:1]
        rules = self._again(chain, name, holds, f"${count} >= {loop.max_iterations}", "", loop)
        rest, chain.open = [*chain.open, *rules, *caught], [(self.turning, "Next")]
        chain.add(f"{name}-next", onward)
        onward["Next"] = begins
        chain.open = rest

    def _again(
        self, chain: StateChain, name: str, holds: str, full: str, begins: str, loop: While
    ) -> list[tuple[dict[str, Any], str]]:
        """The Choice after a round. Returns what leaves the circle besides its Default."""
        limit: dict[str, Any] = {"Condition": marked(f"{holds} and {full}")}
        self.turning: dict[str, Any] = {"Condition": marked(holds), "Next": begins}
        choice = {"Type": "Choice", "Choices": [limit, self.turning], "Default": ""}
        chain.add(f"{name}-again?", choice)
        if loop.at_limit != "fail":
            chain.open = [(choice, "Default")]
            return [(limit, "Next")]
        chain.open = [(limit, "Next")]
        cause = f"{self.step.name}: the condition still holds after {loop.max_iterations} rounds"
        chain.add(f"{name}-limit", {"Type": "Fail", "Error": "TooManyRounds", "Cause": cause})
        chain.open = [(choice, "Default")]
        return []

    # -- what it does -------------------------------------------------------------------------------------------------

    def _inputs(self, place: MachineScope) -> dict[str, Any]:
        """The fields of its payload."""
        found = {}
        for one in self.step.inputs:
            if one.default is MISSING:
                found[one.name] = place.value(one.value)
            else:
                code = place.code(one.value)
                found[one.name] = marked(f"$exists({code}) ? {code} : {literal(resolve(one.default, {}))}")
        return found

    def _action(self, chain: StateChain, place: MachineScope, record: Recorded, name: str, given: str | None) -> str:
        """The state that does it; returns its name. `given`: the variable that has its inputs."""
        action = self.step.action
        payload = self._inputs(place) if given is None else marked(f"${given}")
        if isinstance(action, Suspend):
            return self._wait(chain, place, record, name, action)
        if isinstance(action, Nested):
            called = self.scope.shared.machines[action.name]
            state = {"Resource": STARTS, "Arguments": {"StateMachineArn": called, "Input": payload}}
            result = "$states.result.Output"
        else:
            row = row_of(self.step, self._queue(), self._priority(), self.scope.handlers)
            payload = self._more(place, payload, given, row)
            if any(path[0] == "attempt" for value in _action_values(self.step) for path in _reads(value)):
                said = "attempt.number is 0 in every attempt"
                self.scope.shared.report.lost(self.scope.where(self.step), said, source=self.step.source)
            own = unique(self.step.name, self.scope.shared.taken, LONGEST_ROW)
            self.scope.shared.rows[own] = row.data
            state = {"Resource": CALLS, "Arguments": {"FunctionName": own, "Payload": payload}}
            result = "$states.result.Payload"
        return self._task(chain, place, record, name, state, marked(result))

    def _more(self, place: MachineScope, payload: Any, given: str | None, row: Row) -> Any:
        """The payload with what its action reads besides its inputs."""
        if spread(self.step, row.more):
            raise Unwritten(f"its environment reads {row.more[0][1].text}, which is no input of the function")
        if not row.more:
            return payload
        if given is None:
            return {**payload, **{name: place.value(expr) for name, expr in row.more}}
        more = ", ".join(f"{json.dumps(name)}: {place.code(expr)}" for name, expr in row.more)
        return marked(f"$merge([${given}, {{{more}}}])")

    def _queue(self) -> str | None:
        return self.scope.workflow.queue or self.scope.shared.root.queue

    def _priority(self) -> str | int | None:
        own = self.scope.workflow.priority
        return own if own is not None else self.scope.shared.root.priority

    def _task(
        self, chain: StateChain, place: MachineScope, record: Recorded, name: str, fields: dict[str, Any], result: Any
    ) -> str:
        step, report = self.step, self.scope.shared.report
        state: dict[str, Any] = {"Type": "Task", **({"Comment": step.doc} if step.doc else {}), **fields}
        if step.timeout_by is not None:
            state["TimeoutSeconds"] = marked(f"$ceil({place.code(step.timeout_by)})")
        elif step.timeout is not None:
            state["TimeoutSeconds"] = seconds(step.timeout, self.scope.where(step, ".timeout"), step, report)
        retry = retry_rules(step, self.scope.where(step), report)
        if retry:
            state["Retry"] = retry
        state |= record.assign("succeeded", result)
        return self._add(chain, name, state, record)

    def _add(self, chain: StateChain, name: str, state: dict[str, Any], record: Recorded | None = None) -> str:
        """A state that may fail."""
        kept = record or self.record
        state["Output"] = {}  # what is read later is in its record: the data between states stays small
        if not kept.caught:
            return chain.add(name, state)
        error = {"name": marked("$states.errorOutput.Error"), "message": marked("$states.errorOutput.Cause")}
        catch = {"ErrorEquals": ["States.ALL"], **kept.assign("failed", {}, error=error)}
        state["Catch"] = [catch]
        own = chain.add(name, state)
        chain.open.append((catch, "Next"))
        return own

    def _wait(self, chain: StateChain, place: MachineScope, record: Recorded, name: str, action: Suspend) -> str:
        """A time, or an answer with a token."""
        step, where, report = self.step, self.scope.where(self.step), self.scope.shared.report
        comment = {"Comment": action.message} if isinstance(action.message, str) and action.message else {}
        if (action.duration is not None or action.until is not None) and not step.outputs:
            said = "nobody can end the wait before its time"
            report.changed(where, said, source=step.source)
            if action.until is not None:
                time: dict[str, Any] = {"Timestamp": place.value(action.until)}
            else:
                time = {"Seconds": math.ceil(action.duration or 0)}
            return chain.add(name, {"Type": "Wait", **comment, **time, **record.assign("succeeded", {})})
        if action.duration is not None or action.until is not None:
            raise Unwritten("it waits for an answer or for a time, whichever comes first")
        said = "who is asked gets a token; the answer with it is {answer: its outputs}, or {failure: {error, cause}}"
        report.changed(where, said, "penstock resume RUN/TASK -p answer='{…}' -p failure=null", step.source)
        own = unique(step.name, self.scope.shared.taken, LONGEST_ROW)
        self.scope.shared.rows[own] = {"command": ["true"]}
        message = place.value(action.message)
        payload = {"token": marked("$states.context.Task.Token"), "message": message}
        fields = {**comment, "Resource": ASKS, "Arguments": {"FunctionName": own, "Payload": payload}}
        return self._task(chain, place, record, name, fields, marked("$states.result"))


def _reads(value: Any) -> list[tuple[str, ...]]:
    return [path for expr in expressions(value) for path in references(expr.text)]


def _action_values(step: Step) -> list[Any]:
    return [value for _, value in action_values(step.action)]


def _is_no_json(kind: Type) -> bool:
    return kind.name in ("file", "dir", "object") or any(map(_is_no_json, kind.args))


def _combined(each: ForEach) -> list[dict[str, Any]]:
    """Every combination of constants, in order. Raises EvaluationError, ValueError."""
    found: list[dict[str, Any]] = [{}]
    for axis in each.axes:
        lists = {name: resolve(items, {}) for name, items in axis.items()}
        rows = [dict(zip(lists, values, strict=True)) for values in zip(*lists.values(), strict=True)]
        if len(found) * len(rows) > MOST_ITEMS:
            raise Unwritten(f"{len(found) * len(rows):,} items are too many to be written down")
        found = [{**one, **row} for one in found for row in rows]
    return found
