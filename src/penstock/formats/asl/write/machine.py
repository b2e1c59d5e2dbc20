"""A workflow -> a state machine in JSONata, and the table of what its tasks do. Called by asl.format.

    begin      what the machine is started with becomes $params
    …          the steps: a row of states, with a Parallel wherever steps stand beside one another (see order)
    over?      has a step failed that nobody asked about? (only where failures are caught)
    end        the outputs

With exit handlers all of that is the one branch of a Parallel, whose Catch leads to the handlers too. A workflow that a step calls is a
machine of its own, which that step starts.
"""

from __future__ import annotations

import dataclasses
import json
from typing import Any, Final

from penstock.errors import InvalidWorkflow, Problem
from penstock.expressions.evaluate import resolve
from penstock.expressions.parse import references
from penstock.formats.asl.check.machine import check
from penstock.formats.asl.write.expression import Unwritten, field, literal, marked
from penstock.formats.asl.write.order import Row, SideBySide, arrange
from penstock.formats.asl.write.policies import seconds
from penstock.formats.asl.write.scope import MachineScope, Shared
from penstock.formats.asl.write.states import LONGEST_ROW, Names, StateChain, unique
from penstock.formats.asl.write.steps import BAD, Recorded, StepStates
from penstock.formats.base import Written
from penstock.graph.model import (
    MISSING,
    Function,
    Nested,
    Outcome,
    Workflow,
    edges_of,
    expressions,
    step_values,
)
from penstock.graph.order import topological

TABLE: Final = "StateMachineResources"
_RAN: Final = ["failed", "succeeded"]


def write_machine(workflow: Workflow, *, bundle: bytes | None = None) -> Written:
    """The machine and its table. `bundle`: not used; functions are called by their names, where the machine is run. Raises
    UserError with every step that no state machine can express."""
    shared = Shared(workflow, {one.name: one for one in workflow.definitions})
    for name in _called(workflow, shared):
        shared.machines[name] = unique(name, shared.taken, LONGEST_ROW)
    machine = _machine(workflow, shared, "")
    for name, row in shared.machines.items():
        shared.rows[row] = {"machine": _machine(shared.definitions[name], shared, f"definitions.{name}.")}
    if not shared.problems:
        started = (row["machine"] for row in shared.rows.values() if "machine" in row)
        shared.problems += [one for made in (machine, *started) for one in _checked(made, workflow)]
    if shared.problems:
        raise InvalidWorkflow(list(dict.fromkeys(shared.problems))[:50])
    _notes(workflow, shared)
    documents = [machine]
    if shared.rows:
        documents.append({"kind": TABLE, "resources": shared.rows})
    return Written(documents, shared.report)


def _called(workflow: Workflow, shared: Shared) -> list[str]:
    """The definitions that are used. One that calls itself is a problem."""
    found: list[str] = []

    def visit(one: Workflow, around: tuple[str, ...]) -> None:
        for step in (*one.steps, *one.on_exit):
            if not isinstance(step.action, Nested):
                continue
            name = step.action.name
            if name in around:
                said = f"the workflow {name} calls itself, and a machine that starts itself is not run here"
                where = f"definitions.{one.name}.steps.{step.name}"
                shared.problems.append(
                    Problem("P849", said, "use a while loop instead", where=where, source=step.source)
                )
            elif name not in found:
                found.append(name)
                visit(shared.definitions[name], (*around, name))

    visit(workflow, ())
    return found


def _checked(machine: dict[str, Any], workflow: Workflow) -> list[Problem]:
    """What Step Functions would refuse of it: names and sizes that only the whole shows."""
    found = check(machine)
    return [
        Problem("P847", f"the machine: {one.message}", one.fix, where=one.pointer, source=workflow.source)
        for one in found
    ]


def _notes(workflow: Workflow, shared: Shared) -> None:
    """What is true of every machine that is written."""
    report = shared.report
    steps = [step for one in (workflow, *workflow.definitions) for step in (*one.steps, *one.on_exit)]
    if shared.rows:
        said = f"what a task does is said in the document {TABLE}; on AWS a function or a machine of that name does it"
        report.changed("steps", said)
    if any(isinstance(step.action, Function) for step in steps):
        said = "functions are called by module and name: run it in the folder that has the module"
        report.changed("steps", said)
    for place, given in (("unit", workflow.unit), ("parallel", workflow.parallel), ("locks", workflow.locks)):
        if given:
            report.lost(place, f"a machine has no {place}", source=workflow.source)


# -- one machine ------------------------------------------------------------------------------------------------------


def _machine(workflow: Workflow, shared: Shared, prefix: str) -> dict[str, Any]:
    return _Machine(workflow, shared, prefix).written()


class _Machine:
    """One workflow, the root or a definition."""

    def __init__(self, workflow: Workflow, shared: Shared, prefix: str) -> None:
        self.workflow = workflow
        self.shared = shared
        steps = {step.name: step for step in workflow.steps}
        self.edges = {name: edges_of(step) for name, step in steps.items()}
        self.order = topological({name: list(edges) for name, edges in self.edges.items()})
        self.caught = self._caught()
        self.unsure = self._unsure()
        names = Names()
        read = self._read()
        records = {name: names.variable(name) for name in self.order if name in read}
        self.scope = MachineScope(workflow, shared, names, prefix, steps, records)

    # -- what may fail ------------------------------------------------------------------------------------------------

    def _caught(self) -> frozenset[str]:
        """Steps after whose failure the machine goes on: somebody asks how they ended, or it is tolerated."""
        steps = {step.name: step for step in self.workflow.steps}
        found = {name for name, step in steps.items() if step.tolerates & BAD}
        for edges in self.edges.values():
            for name, outcomes in edges.items():
                if outcomes & BAD:
                    found.add(name)
                if Outcome.OMITTED in outcomes:  # then it goes on after whatever made it so
                    found |= self._before(name)
        return frozenset(found)

    def _before(self, name: str) -> set[str]:
        found: set[str] = set()
        rest = [name]
        while rest:
            for other in self.edges[rest.pop()]:
                if other not in found:
                    found.add(other)
                    rest.append(other)
        return found

    def _unsure(self) -> frozenset[str]:
        """Steps that may end as failed or omitted, and the machine goes on."""
        steps = {step.name: step for step in self.workflow.steps}
        found = set(self.caught)
        for name in self.order:
            if steps[name].trigger is not None or any(other in found for other in self.edges[name]):
                found.add(name)
        return frozenset(found)

    def _read(self) -> set[str]:
        """Steps whose record is read."""
        values = [value for step in self.workflow.steps for _, value in step_values(step)]
        values += [output.value for output in self.workflow.outputs]
        found = {
            path[1]
            for value in values
            for expr in expressions(value)
            for path in references(expr.text)
            if path[0] == "steps" and path[1:]
        }
        return found | set(self.unsure)

    # -- its states ---------------------------------------------------------------------------------------------------

    def written(self) -> dict[str, Any]:
        workflow = self.workflow
        self._refused()
        chain = StateChain(self.scope.names)
        if workflow.params:
            chain.add("begin", {"Type": "Pass", "Assign": {"params": self._params()}})
        made = self._with_handlers(chain) if workflow.on_exit else self._body(chain, "")
        limit: dict[str, Any] = {}
        if workflow.timeout is not None:
            place = f"{self.scope.prefix}timeout"
            limit = {"TimeoutSeconds": seconds(workflow.timeout, place, None, self.shared.report)}
            if workflow.on_exit:
                self.shared.report.lost(place, "after a time-out the exit handlers do not run", "", workflow.source)
        return {"Comment": workflow.doc or workflow.name, "QueryLanguage": "JSONata", **limit, **made}

    def _refused(self) -> None:
        workflow, scope = self.workflow, self.scope
        if workflow.enough is not None:
            scope.refuse(None, "enough", "it has succeeded before all of it has, which stops the rest")
        if workflow.judged_by == "leaves" and self.caught:
            scope.refuse(None, "judged_by", "its steps go on after failures, and its last steps decide how it ended")
        for one in workflow.params:
            if one.choices:
                said = "what it is started with is not compared with the choices"
                self.shared.report.lost(f"{scope.prefix}params.{one.name}.choices", said, "", workflow.source)
        if not workflow.fail_fast and len(workflow.steps) > 1:
            scope.once("steps", "a step that fails stops what runs beside it, and nothing more starts")

    def _params(self) -> dict[str, Any]:
        found = {}
        for one in self.workflow.params:
            given = field("$states.input", one.name)
            if one.default is MISSING:
                found[one.name] = marked(given)
                continue
            try:
                instead = literal(resolve(one.default, {}))
            except Unwritten as error:
                self.scope.unwritten(None, f"params.{one.name}.default", error)
                continue
            found[one.name] = marked(f"$exists({given}) ? {given} : {instead}")
        return found

    def _body(self, chain: StateChain, name: str) -> dict[str, Any]:
        """The steps, and the outputs at the end. `name`: what it is the body of."""
        row, levelled = arrange(self.order, self.edges)
        for one in levelled[:100]:
            said = f"{one.later} also waits for {', '.join(one.earlier)}, which it does not need"
            near = "States stand in rows and in Parallel; no others are as wide."
            where = f"{self.scope.prefix}steps.{one.later}.needs"
            self.shared.report.lost(where, said, near, self.scope.steps[one.later].source)
        self._row(row, chain, self.scope)
        self._judged(chain)
        return chain.machine(f"{name}end", self._outputs())

    def _row(self, row: Row, chain: StateChain, scope: MachineScope) -> None:
        for block in row:
            if isinstance(block, SideBySide):
                self._beside(block, chain, scope)
                continue
            record = Recorded(scope.records.get(block), block in self.caught)
            StepStates(scope, scope.steps[block], record, self.unsure).write(chain)
            if record.variable is not None:
                chain.assigned.append(record.variable)

    def _beside(self, block: SideBySide, chain: StateChain, scope: MachineScope) -> None:
        """A Parallel. What its branches have recorded is handed on by name."""
        branches: list[dict[str, Any]] = []
        assigned: dict[str, str] = {}
        for number, row in enumerate(block.rows):
            inner = StateChain(scope.names)
            self._row(row, inner, scope)
            held = {name: marked(f"${name}") for name in inner.assigned}
            branches.append(inner.machine(f"{_first(row)}-done", held))
            assigned |= {name: marked(f"$states.result[{number}].{name}") for name in inner.assigned}
        state: dict[str, Any] = {"Type": "Parallel", "Branches": branches, "Output": {}}
        chain.add(f"{_first(block.rows[0])}-beside", {**state, **({"Assign": assigned} if assigned else {})})
        chain.assigned += assigned

    def _judged(self, chain: StateChain) -> None:
        """Fails if a step failed and nothing that asked for that has run."""
        steps, records = self.scope.steps, self.scope.records
        bad = []
        for name in self.order:
            if name not in self.caught or steps[name].tolerates >= BAD:
                continue
            asked = [
                f"${records[other]}.outcome in {json.dumps(_RAN)}"
                for other in self.order
                if name in self.edges[other] and not steps[other].exempt
            ]
            handled = f" and $not({' or '.join(asked)})" if asked else ""
            bad.append(f'(${records[name]}.outcome = "failed"{handled})')
        if bad:
            rule: dict[str, Any] = {"Condition": marked(" or ".join(bad))}
            choice = {"Type": "Choice", "Choices": [rule], "Default": ""}
            chain.add("over?", choice)
            chain.open = [(rule, "Next")]
            chain.add("failed", {"Type": "Fail", "Error": "StepFailed", "Cause": "a step has failed"})
            chain.open = [(choice, "Default")]

    def _outputs(self) -> dict[str, Any]:
        found = {}
        for one in self.workflow.outputs:
            try:
                if one.default is MISSING:
                    found[one.name] = self.scope.value(one.value)
                else:
                    code = self.scope.code(one.value)
                    found[one.name] = marked(f"$exists({code}) ? {code} : {literal(resolve(one.default, {}))}")
            except Unwritten as error:
                self.scope.unwritten(None, f"outputs.{one.name}", error)
        return found

    # -- exit handlers ------------------------------------------------------------------------------------------------

    def _with_handlers(self, chain: StateChain) -> dict[str, Any]:
        body = self._body(StateChain(self.scope.names), "main-")
        catch: dict[str, Any] = {
            "ErrorEquals": ["States.ALL"],
            "Assign": {"workflow": "failed", "result": {}},
        }
        state = {
            "Type": "Parallel",
            "Branches": [body],
            "Assign": {"workflow": "succeeded", "result": marked("$states.result[0]")},
            "Catch": [catch],
        }
        chain.add("main", state)
        chain.open.append((catch, "Next"))
        steps = {step.name: step for step in self.workflow.on_exit}
        edges = {
            name: {other: how for other, how in edges_of(step).items() if other in steps}
            for name, step in steps.items()
        }
        scope = dataclasses.replace(self.scope, steps=steps, records={}, handlers=True)
        for name, needed in edges.items():
            if any(how & BAD or Outcome.OMITTED in how for how in needed.values()):
                scope.refuse(steps[name], ".needs", "an exit handler that asks how another one ended")
        row, _ = arrange(topological({name: list(needed) for name, needed in edges.items()}), edges)
        self._row(row, chain, scope)
        failed: dict[str, Any] = {"Condition": marked('$workflow = "failed"')}
        choice = {"Type": "Choice", "Choices": [failed], "Default": ""}
        chain.add("over", choice)
        chain.open = [(failed, "Next")]
        chain.add("main-failed", {"Type": "Fail", "Error": "WorkflowFailed", "Cause": "the workflow has failed"})
        chain.open = [(choice, "Default")]
        chain.add("end", {"Type": "Pass", "Output": marked("$result"), "End": True})
        return {"StartAt": chain.start, "States": chain.states}


def _first(row: Row) -> str:
    """The name of its first step."""
    block = row[0]
    return block if isinstance(block, str) else _first(block.rows[0])
