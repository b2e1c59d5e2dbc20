"""What a link gives to the run that it starts, and whether its condition holds. Called by delivery."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from penstock.artifacts.plain import plain
from penstock.errors import PlanError, Problem
from penstock.expressions.evaluate import EvaluationError, evaluate, resolve
from penstock.expressions.parse import references
from penstock.graph.chains import name_of
from penstock.graph.model import Link, Workflow, expressions
from penstock.service.payloads.process import Definition, handed_on
from penstock.service.results import opened, outputs_of
from penstock.service.run_records import params_of
from penstock.settings import Settings
from penstock.store.records import RunRecord


class Before(NamedTuple):
    """One of those that a link comes after."""

    workflow: Workflow
    run: RunRecord | None
    """None: it was not run."""


def opened_params(settings: Settings, run: RunRecord) -> dict[str, Any]:
    """Its parameters as plain data, also those that are among the blobs."""
    return {name: plain(value) for name, value in opened(settings, run.id, params_of(run)).items()}


class Passing:
    """`head`: the run whose workflow has the link. `before`: in the order of the link."""

    def __init__(
        self, settings: Settings, link: Link, target: Workflow, head: RunRecord, before: Sequence[Before]
    ) -> None:
        self._settings = settings
        self._link = link
        self._target = target
        self._head = head
        self._before = before
        self._outputs = self._read()
        self._params = opened_params(settings, head)

    def unmet(self) -> str:
        """The condition, if it does not hold. Raises PlanError."""
        if self._link.when is None:
            return ""
        found = self._valued("when", self._link.when)
        if not isinstance(found, bool):
            raise PlanError(self._problem("when", f"{self._link.when.text} is neither true nor false"))
        return "" if found else f"{self._link.when.text} does not hold"

    def params(self) -> dict[str, Any]:
        """Raises PlanError."""
        found: dict[str, Any] = {}
        for param in self._target.params:
            name = param.name
            if name in self._link.params:
                found[name] = self._valued(f"params.{name}", self._link.params[name])
            elif name in self._outputs:
                found[name] = self._outputs[name]
            elif name in self._params:
                found[name] = self._params[name]
        return found

    def _valued(self, place: str, value: Any) -> Any:
        scope = {"outputs": self._outputs, "params": self._params, "run": self._run()}
        try:
            return resolve(value, scope) if place != "when" else evaluate(value, scope)
        except (EvaluationError, KeyError) as error:
            raise PlanError(self._problem(place, str(error))) from None

    def _run(self) -> Mapping[str, Any]:
        ran = [one.run for one in self._before if one.run is not None]
        run = next((one for one in ran if one.state != "succeeded"), ran[0] if ran else self._head)
        return {"id": run.id, "state": run.state, "error": run.error, "workflow": run.workflow}

    def _read(self) -> dict[str, Any]:
        """Only what is used: there may be files of any size among the outputs. What several of them have is a list, in their order."""
        wanted = self._names()
        declared = [{output.name for output in one.workflow.outputs} for one in self._before]
        found: dict[str, Any] = {}
        for place, one in enumerate(self._before):
            if one.run is None:
                continue
            kept = {name: value for name, value in outputs_of(one.run).items() if name in wanted & declared[place]}
            for name, value in opened(self._settings, one.run.id, kept).items():
                if sum(name in names for names in declared) > 1:
                    found.setdefault(name, []).append(plain(value))
                else:
                    found[name] = plain(value)
        return found

    def _names(self) -> set[str]:
        values = [self._link.when, *self._link.params.values()]
        paths = [path for value in values for expr in expressions(value) for path in references(expr.text)]
        everything = any(path == ("outputs",) for path in paths)
        read = {path[1] for path in paths if path[0] == "outputs" and len(path) > 1}
        passed = {param.name for param in self._target.params} - set(self._link.params)
        return read | passed | ({o.name for one in self._before for o in one.workflow.outputs} if everything else set())

    def _problem(self, place: str, message: str) -> Problem:
        fix = "correct the link, or give what it reads a default"
        return Problem("P545", f"the link {name_of(self._link)!r}: {message}", fix, where=f"links.{place}")


# -- payloads ---------------------------------------------------------------------------------------------------------


def payload_param(workflow: Workflow) -> str:
    return workflow.payload.param if workflow.payload is not None else "payload"


def output_payload(settings: Settings, workflow: Workflow, run: RunRecord) -> Any:
    """What a run hands on: its output of the name of the payload, or `result`, or its only output, with the process of its own payload if it has
    none. Its own payload, if none of that is a map, or it has not succeeded."""
    name = payload_param(workflow)
    own = opened_params(settings, run).get(name)
    kept = outputs_of(run) if run.state == "succeeded" else {}
    chosen = next((one for one in (name, "result") if one in kept), next(iter(kept)) if len(kept) == 1 else "")
    found = plain(opened(settings, run.id, {chosen: kept[chosen]})[chosen]) if chosen else None
    if not isinstance(found, dict):
        return own
    return {"process": own["process"], **found} if isinstance(own, dict) and "process" in own else found


class PayloadPassing:
    """The same for a link that the payload of `head` asks for."""

    def __init__(
        self, settings: Settings, definition: Definition, target: Workflow, head: RunRecord, before: Sequence[Before]
    ) -> None:
        self._target = target
        self.name = payload_param(target)
        given = [output_payload(settings, one.workflow, one.run) for one in before if one.run is not None]
        self._payload = handed_on([one for one in given if isinstance(one, dict)], definition.process)
        known = {param.name for param in target.params}
        self._others = {
            name: value
            for name, value in opened_params(settings, head).items()
            if name in known and name != self.name and name != payload_param(before[0].workflow)
        }

    def unmet(self) -> str:
        return "" if self._payload is not None else "its chain_filter leaves no feature"

    def params(self) -> dict[str, Any]:
        """Raises PlanError."""
        if self.name not in {param.name for param in self._target.params}:
            fix = f"declare it, or say which it is: payload: {{param: …}} of {self._target.name}"
            message = f"{self._target.name} has no parameter {self.name!r}, which a process is given its payload by"
            raise PlanError(Problem("P549", message, fix))
        return {**self._others, self.name: self._payload}
